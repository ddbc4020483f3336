//! Real sockets over emulated links.

use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket as StdSocket};
use std::process::Stdio;
use std::time::Duration;

use longhaul_needs::needs;
use longhaul_pathsim::{DropReason, Ecn};
use longhaul_sys::clock;
use longhaul_sys::udp::{Route, UdpOptions, UdpSocket, Wait};

use super::*;
use crate::topology::Builtin;

mod htb;
mod other_emulator;

#[needs(namespaces, ipv6)]
#[test]
fn data_arrives_whole_over_a_path_that_does_everything_wrong() {
    let conditions = r#"delay = "1ms", loss = "1%", burst_loss = { begin = "0.3%", mean = 3 },
        jitter = { max = "1ms" }, reorder = { probability = "0.5%", by = "2ms" },
        duplicate = { probability = "0.5%", by = "1ms" }, corrupt = "0.5%",
        rate = "400Mbps", queue = "200kB", ecn = { from = "50kB" }"#;
    let testbed = two_hosts(conditions);
    let data: Vec<u8> =
        (0..3_000_000u32).map(|index| (index.wrapping_mul(7919) >> 7) as u8).collect();
    for address in addresses_of(&testbed.hosts()[1]) {
        let listener = testbed.hosts()[1].run(|| TcpListener::bind((address, 0))).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let received = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut received = Vec::new();
                stream.read_to_end(&mut received).unwrap();
                received
            });
            let stream = testbed.hosts()[0].run(|| TcpStream::connect_timeout(&target, PATIENCE));
            stream.unwrap().unwrap().write_all(&data).unwrap();
            receiver.join().unwrap()
        });
        assert!(received == data, "over {address}");
    }
    let forward = testbed.stats(0).unwrap().forward;
    let path = forward.path;
    assert!(path.dropped(DropReason::Random) > 0 && path.dropped(DropReason::Burst) > 0);
    assert!(path.reordered > 0 && path.duplicated > 0 && path.corrupted > 0);
    assert_eq!(forward.unasked().map(|(_, count)| count), [0; 4]);
    testbed.close().unwrap();
}

#[needs(namespaces, ipv6)]
#[test]
fn every_missing_datagram_is_in_the_log() {
    let conditions = r#"delay = "1ms", loss = "3%", rate = "2Gbps", queue = "60kB""#;
    let testbed = two_hosts(conditions);
    for address in addresses_of(&testbed.hosts()[1]) {
        let (sender, receiver) = sockets(&testbed, address);
        let count = 44 * 200;
        let before = testbed.stats(0).unwrap().forward.path;
        testbed.take_losses(0, Direction::Forward);
        // 44 datagrams a call, with their numbers.
        for first in (0..count).step_by(44) {
            send_train(&sender, receiver.local_addr(), first..first + 44, 1000);
        }
        let dropped = || testbed.stats(0).unwrap().forward.path.total_dropped();
        let left = |arrived| u64::from(count) - arrived - (dropped() - before.total_dropped());
        let arrived = receive(&receiver, left);
        let path = testbed.stats(0).unwrap().forward.path;
        let (losses, left_out) = testbed.take_losses(0, Direction::Forward);
        assert_eq!(left_out, 0);
        assert_eq!(path.offered - before.offered, u64::from(count));
        assert_eq!(path.total_dropped() - before.total_dropped(), losses.len() as u64);
        let lost: BTreeSet<u32> =
            losses.iter().map(|loss| (loss.number - before.offered) as u32).collect();
        assert!(losses.iter().any(|loss| loss.reason == DropReason::Random));
        assert!(
            losses.iter().all(|loss| loss.flow.destination_port == receiver.local_addr().port())
        );
        let missing = (0..count).filter(|number| !arrived.contains(number)).collect();
        assert_eq!(lost, missing, "over {address}");
    }
}

#[needs(namespaces)]
#[test]
fn a_sender_without_limits_loses_nothing_uncounted() {
    let testbed = two_hosts(r#"delay = "1ms", rate = "1Gbps", queue = "1MB""#);
    let (sender, receiver) = sockets(&testbed, testbed.hosts()[1].ipv4());
    // A gigabyte, as fast as the processor can.
    let trains = 20_000;
    for _ in 0..trains {
        send_train(&sender, receiver.local_addr(), 0..44, 1000);
    }
    let counted = || {
        let stats = testbed.stats(0).unwrap().forward;
        assert_eq!((stats.refused, stats.malformed), (0, 0));
        // Where other tests have the processor the emulator may run out of memory, too.
        stats.path.offered + 44 * (stats.device_full + stats.overrun)
    };
    wait_until(|| counted() == 44 * trains);
    assert!(testbed.stats(0).unwrap().forward.path.dropped(DropReason::Queue) > 0);
    testbed.close().unwrap();
}

#[needs(namespaces)]
#[test]
fn order_changes_only_when_asked() {
    for (conditions, ordered) in [
        (r#"jitter = { max = "2ms", hold = "0ms" }, loss = "1%""#, true),
        (r#"reorder = { probability = "2%", by = "1ms" }, rate = "500Mbps", queue = "9MB""#, false),
    ] {
        let testbed = two_hosts(conditions);
        let (sender, receiver) = sockets(&testbed, testbed.hosts()[1].ipv4());
        for first in (0..44 * 100).step_by(44) {
            send_train(&sender, receiver.local_addr(), first..first + 44, 1000);
        }
        let dropped = || testbed.stats(0).unwrap().forward.path.total_dropped();
        let arrived =
            receive(&receiver, |arrived| (44 * 100u64).saturating_sub(arrived + dropped()));
        assert_eq!(arrived.is_sorted(), ordered, "{conditions}");
        let reordered = testbed.stats(0).unwrap().forward.path.reordered;
        assert_eq!(reordered == 0, ordered);
    }
}

#[needs(namespaces, ipv6, htb)]
#[test]
fn a_path_mtu_is_learned_unless_answers_are_filtered() {
    let htb = "line = \"htb\"\n";
    for (link, learned) in [("", true), ("black_hole = true\n", false), (htb, true)] {
        let text = format!("{link}both = {{ rate = \"1Gbps\", path_mtu = 1300 }}");
        let testbed = testbed(&link_of(&text));
        for address in addresses_of(&testbed.hosts()[1]) {
            let (sender, receiver) = sockets(&testbed, address);
            sender.connect(receiver.local_addr()).unwrap();
            assert_eq!(sender.path_mtu().unwrap(), 1500);
            let dropped = || testbed.stats(0).unwrap().forward.path.dropped(DropReason::Mtu);
            let before = dropped();
            send_train(&sender, receiver.local_addr(), 0..1, 1400);
            wait_until(|| dropped() > before);
            assert!(receiver.recv(&mut [], Wait::No).unwrap().is_none());
            match learned {
                true => wait_until(|| sender.path_mtu().unwrap() == 1300),
                false => assert_eq!(sender.path_mtu().unwrap(), 1500, "{address}"),
            }
        }
        let stats = testbed.stats(0).unwrap().forward;
        assert!(stats.path.dropped(DropReason::Mtu) > 0);
        assert_eq!(stats.too_big_sent > 0, learned);
    }
}

#[needs(namespaces, ipv6)]
#[test]
fn marks_reach_the_receiver() {
    let conditions = r#"rate = "100Mbps", queue = "5MB", ecn = { from = "100kB" }"#;
    let testbed = two_hosts(conditions);
    for address in addresses_of(&testbed.hosts()[1]) {
        let (sender, receiver) = sockets(&testbed, address);
        let before = testbed.stats(0).unwrap().forward.path.marked;
        for first in (0..44 * 20).step_by(44) {
            send_train(&sender, receiver.local_addr(), first..first + 44, 1000);
        }
        let mut marked = 0;
        let mut memory = vec![0; 65536];
        let mut left = 44 * 20;
        while left > 0 {
            let deadline = clock::now() + PATIENCE;
            receiver.wait_readable(None, Some(deadline)).unwrap();
            let got = receiver.recv(&mut [IoSliceMut::new(&mut memory)], Wait::No).unwrap();
            let got = got.expect("nothing is lost");
            marked += if got.ecn() == Ecn::Ce { got.datagrams() as u64 } else { 0 };
            left -= got.datagrams();
        }
        let expected = testbed.stats(0).unwrap().forward.path.marked - before;
        assert!(expected > 0);
        assert_eq!(marked, expected, "over {address}");
    }
}

#[needs(namespaces, ipv6)]
#[test]
fn gateways_forward_and_links_have_addresses() {
    let testbed = testbed(&Builtin::find("phoebus").unwrap().topology());
    let (host, peer) = (testbed.host("host").unwrap(), testbed.host("peer").unwrap());
    for address in addresses_of(peer) {
        let listener = peer.run(|| TcpListener::bind((address, 0))).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let client = host.run(|| TcpStream::connect_timeout(&target, PATIENCE)).unwrap().unwrap();
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), client.local_addr().unwrap().ip());
        assert!(addresses_of(host).contains(&from.ip()));
    }
    for link in 0..3 {
        assert!(testbed.stats(link).unwrap().forward.packets_written > 0);
    }
    let testbed = super::tests::testbed(&Builtin::find("circuit").unwrap().topology());
    let (host, peer) = (&testbed.hosts()[0], &testbed.hosts()[1]);
    let bind = |host: &Host, address| host.run(|| StdSocket::bind((address, 0))).unwrap().unwrap();
    for (link, to) in [(0, peer.ipv4()), (0, peer.ipv4_on(0, 1)), (1, peer.ipv4_on(1, 1))] {
        let before = testbed.stats(link).unwrap().forward.path.offered;
        let receiver = bind(peer, to);
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let sender = bind(host, std::net::Ipv4Addr::UNSPECIFIED.into());
        sender.send_to(b"x", receiver.local_addr().unwrap()).unwrap();
        receiver.recv(&mut [0]).unwrap();
        assert_eq!(testbed.stats(link).unwrap().forward.path.offered, before + 1);
    }
}

#[needs(namespaces)]
#[test]
fn commands_know_the_others_and_end_with_the_testbed() {
    let testbed = two_hosts("");
    let host = testbed.host("host").unwrap();
    let mut command = Command::new("cat");
    command.arg("/etc/hosts").stdout(Stdio::piped());
    let output = testbed.spawn(host, command).unwrap().wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("198.51.100.2 peer\n") && text.contains("127.0.0.1 localhost"), "{text}");
    if let Some(name) = testbed.netns_name(host) {
        assert!(std::path::Path::new("/run/netns").join(name).exists());
    }
    // A child, and a child of a child that nobody waits for.
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 300 & echo $!; exec sleep 300"]).stdout(Stdio::piped());
    let mut child = testbed.spawn(host, command).unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.as_mut().unwrap()),
        &mut line,
    )
    .unwrap();
    let orphan = std::path::Path::new("/proc").join(line.trim());
    assert!(orphan.exists());
    let names: Vec<_> =
        testbed.hosts().iter().filter_map(|host| testbed.netns_name(host)).collect();
    drop(testbed);
    assert!(!child.wait().unwrap().success());
    wait_until(|| !is_running(&orphan));
    for name in names {
        assert!(std::fs::symlink_metadata(std::path::Path::new("/run/netns").join(name)).is_err());
    }
}

#[needs(namespaces)]
#[test]
fn congestion_control_is_that_of_the_way() {
    let row = Testbed::row(&["host", "between", "peer"], 1500).unwrap();
    for testbed in [two_hosts("delay = \"1ms\""), Testbed::direct(1500).unwrap(), row] {
        let (host, peer) = testbed.ends();
        let used = || {
            let listener = peer.run(|| TcpListener::bind((peer.ipv4(), 0))).unwrap().unwrap();
            let target = listener.local_addr().unwrap();
            let stream = host.run(|| TcpStream::connect_timeout(&target, PATIENCE));
            let used = |stream| longhaul_sys::tcp::congestion_control(stream).unwrap();
            [used(&stream.unwrap().unwrap()), used(&listener.accept().unwrap().0)]
        };
        let before = used();
        // Not the default, whichever of the two that is.
        let other = if before[0] == "cubic" { "reno" } else { "cubic" };
        testbed.set_congestion_control(host, peer, Some(other)).unwrap();
        assert_eq!(used(), [other; 2]);
        testbed.set_congestion_control(host, peer, None).unwrap();
        assert_eq!(used(), before);
        assert!(testbed.set_congestion_control(host, peer, Some("nosuch")).is_err());
    }
}

#[needs(namespaces)]
#[test]
fn scratch_folders_go_with_their_owner() {
    let testbed = two_hosts("delay = \"1ms\"");
    let folder = testbed.scratch().unwrap();
    let path = folder.path().to_owned();
    clean_up().unwrap();
    assert!(path.exists(), "its owner is alive");
    drop(folder);
    assert!(!path.exists());
}

#[test]
fn shared_folders_need_no_testbed() {
    for place in [Place::Memory, Place::Disk] {
        let folder = shared_folder(place).unwrap();
        let path = folder.path().to_owned();
        clean_up().unwrap();
        assert!(path.exists(), "its owner is alive");
        drop(folder);
        assert!(!path.exists());
    }
}

#[needs(namespaces)]
#[test]
fn commands_keep_to_their_cores_and_quota() {
    let mut topology = link_of("");
    topology.nodes[1].cores = vec![0];
    topology.nodes[1].receive_core = Some(0);
    topology.nodes[1].cpu_quota = Some("20%".parse().unwrap());
    let testbed = testbed(&topology);
    let peer = testbed.host("peer").unwrap();
    assert_eq!(peer.run(longhaul_sys::host::allowed_cpus).unwrap().unwrap(), [0]);
    let mut command = Command::new("grep");
    command.args(["Cpus_allowed_list\\|^.*longhaul", "/proc/self/status", "/proc/self/cgroup"]);
    let child = testbed
        .spawn(peer, {
            command.stdout(Stdio::piped());
            command
        })
        .unwrap();
    let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert!(text.contains("Cpus_allowed_list:\t0\n"), "{text}");
    let group = format!("longhaul-{}-peer", testbed.registration.tag());
    assert!(text.contains(&group), "{text}");
    topology.nodes[0].cores = vec![100_000];
    assert!(Testbed::new(&topology, &TestbedOptions::default()).is_err());
    drop(testbed);
    assert_eq!(quota::remove(|name| name == group), 0, "it is gone");
}

#[test]
fn leftovers_of_a_killed_testbed_are_removed() {
    // The owner is a process that has ended.
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let mark = format!("{}-1-0", ended.id());
    let mut left = Command::new("sleep").arg("300").env(TAG, &mark).spawn().unwrap();
    let mut other = Command::new("sleep").arg("300").env(TAG, "not a mark").spawn().unwrap();
    let folder = std::env::temp_dir().join(format!("longhaul-{mark}-files-x"));
    std::fs::create_dir(&folder).unwrap();
    let link = std::path::PathBuf::from(format!("/run/netns/longhaul-{mark}-host"));
    let named = std::os::unix::fs::symlink("/proc/1/fd/999", &link).is_ok();
    // Between fork and exec the child does not bear its own environment yet; and the testbed of another
    // test may clean up first, so that it has ended and bears none any more.
    let environment = format!("/proc/{}/environ", left.id());
    let is_marked = |bytes: Vec<u8>| bytes.windows(4).any(|part| part == b"LAB=");
    wait_until(|| {
        left.try_wait().unwrap().is_some() || std::fs::read(&environment).is_ok_and(is_marked)
    });
    clean_up().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&left.wait().unwrap()), Some(9));
    assert!(!named || std::fs::symlink_metadata(&link).is_err());
    assert!(!folder.exists());
    assert_eq!(other.try_wait().unwrap(), None);
    other.kill().unwrap();
    other.wait().unwrap();
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = clock::now() + PATIENCE;
    while !condition() {
        assert!(clock::now() < deadline, "waited in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Not gone and not waiting to be reaped.
fn is_running(process: &std::path::Path) -> bool {
    std::fs::read_to_string(process.join("stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn two_hosts(conditions: &str) -> Testbed {
    testbed(&link_of(&format!("both = {{ {} }}", conditions.replace('\n', " "))))
}

fn link_of(text: &str) -> Topology {
    let head = "name = \"t\"\n[[node]]\nname = \"host\"\n[[node]]\nname = \"peer\"\n[[link]]\n";
    let text = format!("{head}name = \"l\"\nbetween = [\"host\", \"peer\"]\n{text}\n");
    Topology::parse(&text).unwrap()
}

fn testbed(topology: &Topology) -> Testbed {
    Testbed::new(topology, &TestbedOptions { log: 100_000, ..Default::default() }).unwrap()
}

fn addresses_of(host: &Host) -> [IpAddr; 2] {
    [host.ipv4(), host.ipv6().unwrap()]
}

/// A sender at the first host with ECT(0), and a receiver at the second at `address`.
fn sockets(testbed: &Testbed, address: IpAddr) -> (UdpSocket, UdpSocket) {
    let mut options = UdpOptions::default();
    options.traffic_class = 2;
    options.receive_buffer = 16 << 20;
    let (host, peer) = (&testbed.hosts()[0], &testbed.hosts()[1]);
    let own = if address.is_ipv4() { host.ipv4() } else { host.ipv6().unwrap() };
    let bind = |host: &Host, address| {
        host.run(|| UdpSocket::bind(SocketAddr::new(address, 0), &options)).unwrap().unwrap()
    };
    (bind(host, own), bind(peer, address))
}

/// Datagrams of `size` bytes that begin with their numbers, in one call.
fn send_train(sender: &UdpSocket, to: SocketAddr, numbers: std::ops::Range<u32>, size: usize) {
    let mut payload = Vec::new();
    for number in numbers {
        payload.extend(number.to_be_bytes());
        payload.resize(payload.len() + size - 4, 0);
    }
    let slices = [IoSlice::new(&payload)];
    let sent = sender.send(&Route::to(to), &slices, Some(size as u16), Wait::UntilReady).unwrap();
    assert_eq!(sent, payload.len());
}

/// Numbers of the datagrams that arrive, until there are none `left` beside so many.
fn receive(receiver: &UdpSocket, left: impl Fn(u64) -> u64) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut memory = vec![0; 65536];
    wait_until(|| {
        while let Some(got) = receiver.recv(&mut [IoSliceMut::new(&mut memory)], Wait::No).unwrap()
        {
            for datagram in memory[..got.len].chunks(got.segment.into()) {
                numbers.push(u32::from_be_bytes(*datagram.first_chunk().unwrap()));
            }
        }
        left(numbers.len() as u64) == 0
    });
    numbers
}

const PATIENCE: Duration = Duration::from_secs(30);
