//! Links whose lines are the kernel's.

use longhaul_needs::needs;
use longhaul_units::Bytes;

use super::*;
use crate::emulator::DirectionStats;
use crate::topology::LineKind;

#[needs(namespaces, htb, ipv6)]
#[test]
fn drops_of_a_line_of_the_kernel_are_counted() {
    let conditions = r#"delay = "1ms", rate = "8Mbps", queue = "30kB""#;
    let testbed = htb_hosts(&format!("both = {{ {conditions} }}"));
    for address in addresses_of(&testbed.hosts()[1]) {
        let (sender, receiver) = sockets(&testbed, address);
        let count = 44 * 50;
        let before = testbed.stats(0).unwrap().forward;
        for first in (0..count).step_by(44) {
            send_train(&sender, receiver.local_addr(), first..first + 44, 1000);
        }
        // Where others have the processor the switch's own device may drop some, which it counts.
        let lost = || {
            let now = testbed.stats(0).unwrap().forward;
            let queue = |stats: &DirectionStats| stats.path.dropped(DropReason::Queue);
            [queue(&now) - queue(&before), now.device_full - before.device_full]
        };
        let left = |arrived| u64::from(count) - arrived - lost().iter().sum::<u64>();
        let arrived = receive(&receiver, left);
        let [dropped, at_device] = lost();
        assert!(dropped > 0 && arrived.is_sorted(), "{dropped} over {address}");
        let after = testbed.stats(0).unwrap().forward;
        assert_eq!(after.path.offered - before.path.offered + at_device, u64::from(count));
        assert_eq!(after.path.delivered - before.path.delivered, arrived.len() as u64);
        assert_eq!((after.queue(), after.offered_bytes()), (None, None), "nobody knows");
        assert_eq!(after.queue_bytes, Bytes::ZERO);
        assert_eq!(after.queue_while_late, 0);
    }
    testbed.close().unwrap();
}

#[needs(namespaces, htb)]
#[test]
fn rates_of_the_kernel_change() {
    let text = r#"
        both = { rate = "10Mbps" }
        backward = { rates = [{ at = "1ms", rate = "40Mbps" }] }
        [[link]]
        name = "other"
        between = ["peer", "host"]
        line = "htb"
        forward = { rate = "20Mbps", rates = [{ at = "1000s", rate = "30Mbps" }] }
    "#;
    let testbed = htb_hosts(text);
    let changed = || testbed.stats(0).unwrap().backward.changes_late().unwrap();
    wait_until(|| !changed().is_zero());
    assert_eq!(testbed.stats(0).unwrap().forward.changes_late(), Some(Duration::ZERO));
    assert_eq!(testbed.stats(1).unwrap().backward.changes_late(), None, "it has no line");
    let mut seen = Vec::new();
    for (link, way, switch) in testbed.emulator.switches() {
        let tc = || Command::new("tc").args(["class", "show", "dev", "line"]).output();
        let output = switch.run(tc).unwrap().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let rate = text.split(' ').skip_while(|word| *word != "rate").nth(1).map(str::to_owned);
        seen.push((link, way, rate.unwrap()));
    }
    let expected = [(0, "forward", "10Mbit"), (0, "backward", "40Mbit"), (1, "forward", "20Mbit")];
    assert_eq!(seen, expected.map(|(link, way, rate)| (link, way, rate.to_owned())));
}

#[needs(namespaces, htb, ipv6)]
#[test]
fn gateways_beside_lines_of_the_kernel_forward_and_nothing_stays() {
    let mut topology = Builtin::find("phoebus").unwrap().topology();
    for link in &mut topology.links {
        link.line = LineKind::Htb;
        link.both.rate = Some("1Gbps".parse().unwrap());
    }
    let testbed = testbed(&topology);
    let (host, peer) = (testbed.host("host").unwrap(), testbed.host("peer").unwrap());
    let data = vec![7; 300_000];
    for address in addresses_of(peer) {
        let listener = peer.run(|| TcpListener::bind((address, 0))).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let received = std::thread::scope(|scope| {
            scope.spawn(|| {
                let stream = host.run(|| TcpStream::connect_timeout(&target, PATIENCE));
                stream.unwrap().unwrap().write_all(&data).unwrap();
            });
            let (mut stream, from) = listener.accept().unwrap();
            assert!(addresses_of(host).contains(&from.ip()));
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        assert!(received == data, "over {address}");
    }
    let prefix = testbed.registration.group("");
    let names = || {
        let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(&prefix)).collect::<Vec<_>>()
    };
    if testbed.netns_name(host).is_some() {
        assert_eq!(names().iter().filter(|name| name.ends_with("wan.backward")).count(), 1);
    }
    drop(testbed);
    assert_eq!(names(), Vec::<String>::new());
}

#[needs(namespaces, htb)]
#[test]
fn a_nodes_own_device_refuses_what_it_has_no_room_for() {
    let mut topology = link_of("both = { delay = \"1ms\" }");
    topology.nodes[0].egress = Some("1Mbps,20kB".parse().unwrap());
    let testbed = testbed(&topology);
    let (host, peer) = (&testbed.hosts()[0], &testbed.hosts()[1]);
    let count = 200;
    let at = host.run(|| std::net::UdpSocket::bind((host.ipv4(), 0))).unwrap().unwrap();
    for _ in 0..count {
        at.send_to(&[0; 1000], (peer.ipv4(), 9)).unwrap();
    }
    let refused = host.refused().unwrap();
    // Twenty and a burst of some had room.
    assert!((1..=count - 19).contains(&refused), "{refused}");
    assert_eq!(peer.refused().unwrap(), 0);
    assert!(testbed.stats(0).unwrap().forward.path.offered <= count - refused);
    for wrong in ["1Mbps", "1Mbps,", "fast,20kB"] {
        assert!(wrong.parse::<crate::topology::Egress>().is_err(), "{wrong}");
    }
}

/// Two hosts with a link that has a line of the kernel's.
fn htb_hosts(link: &str) -> Testbed {
    testbed(&link_of(&format!("line = \"htb\"\n{link}")))
}
