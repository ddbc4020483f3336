use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;

use longhaul_needs::needs;

use super::*;
use crate::udp::{Route, SendError, UdpOptions, UdpSocket, Wait};

#[needs(namespaces, ipv6)]
#[test]
fn two_sides_reach_each_other() {
    let pair = pair(1500);
    for address in [Side::ipv4 as fn(Side) -> IpAddr, Side::ipv6] {
        let listener = pair.run_in(Side::B, || TcpListener::bind((address(Side::B), 0)));
        let listener = listener.unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let client = pair.run_in(Side::A, || TcpStream::connect(target));
        client.unwrap().unwrap().write_all(b"hello").unwrap();
        let (mut accepted, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), address(Side::A));
        let mut text = String::new();
        accepted.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }
    let network = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let [a, b] = Side::ALL.map(|side| pair.run_in(side, network).unwrap());
    assert!(a != b && a != network() && b != network());
}

#[needs(namespaces, ipv6)]
#[test]
fn the_first_datagram_arrives() {
    let pair = pair(1500);
    for address in [Side::ipv4 as fn(Side) -> IpAddr, Side::ipv6] {
        let bind = |side| {
            let local = SocketAddr::new(address(side), 0);
            pair.run_in(side, || UdpSocket::bind(local, &UdpOptions::default())).unwrap().unwrap()
        };
        let (sender, receiver) = (bind(Side::A), bind(Side::B));
        let route = Route::to(receiver.local_addr());
        sender.send(&route, &[IoSlice::new(b"first")], None, Wait::No).unwrap();
        let mut buffer = [0; 16];
        let mut buffer = [IoSliceMut::new(&mut buffer)];
        // Nobody sends again.
        let got = receiver.recv(&mut buffer, Wait::UntilReady).unwrap().unwrap();
        assert_eq!((got.len, got.from), (5, sender.local_addr()));
    }
}

#[needs(namespaces)]
#[test]
fn the_mtu_is_the_limit_of_a_datagram() {
    for mtu in [1500u16, 9000] {
        let pair = pair(mtu.into());
        let receiver = bind(&pair, Side::B);
        let sender = bind(&pair, Side::A);
        sender.connect(receiver.local_addr()).unwrap();
        assert_eq!(sender.path_mtu().unwrap(), u32::from(mtu));
        let payload = vec![1; 3 * usize::from(mtu)];
        let fits = mtu - 28;
        let send = |size, segment| {
            sender.send(&Route::CONNECTED, &[IoSlice::new(&payload[..size])], segment, Wait::No)
        };
        assert_eq!(send(fits.into(), None).unwrap(), usize::from(fits));
        assert!(matches!(send(usize::from(fits) + 1, None), Err(SendError::TooLarge)));
        let ready = sender.wait_readable(None, Some(crate::clock::now())).unwrap();
        assert!(!ready.socket, "nothing is left to read");
        assert_eq!(send(payload.len(), Some(fits)).unwrap(), payload.len());
        assert!(matches!(send(payload.len(), Some(fits + 1)), Err(SendError::TooLarge)));
        assert!(sender.capabilities().gso, "too large a segment says nothing of the device");
    }
}

#[needs(namespaces)]
#[test]
fn full_send_buffer_would_block() {
    let pair = pair(1500);
    let small = UdpOptions { send_buffer: 1, ..UdpOptions::default() };
    let local = SocketAddr::new(Side::A.ipv4(), 0);
    let sender = pair.run_in(Side::A, || UdpSocket::bind(local, &small)).unwrap().unwrap();
    // Nobody has this address, so that datagrams wait for an answer to ARP, charged to the socket.
    let nobody = Route::to("198.51.100.99:9".parse().unwrap());
    let payload = [0; 1400];
    let mut results =
        (0..20).map(|_| sender.send(&nobody, &[IoSlice::new(&payload)], None, Wait::No));
    let result = results.find(Result::is_err);
    assert!(matches!(result, Some(Err(SendError::WouldBlock))), "{result:?}");
    assert!(sender.memory().unwrap().send_used > 0);
    assert!(!sender.wait_writable(Some(longhaul_units::Instant::ZERO)).unwrap());
}

#[needs(namespaces)]
#[test]
fn one_namespace_is_joined_to_several() {
    let [host, one, other] = [(); 3].map(|()| quiet_stack());
    host.join(&one, "one", 1500, &[]).unwrap();
    host.join(&other, "other", 1500, &[]).unwrap();
    let again = host.join(&other, "one", 1500, &[]).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists, "the name is taken");
}

#[needs(namespaces)]
#[test]
fn arriving_packets_are_passed_on() {
    let [near, switch, far] = [(); 3].map(|()| quiet_stack());
    let [a, b] = Side::ALL.map(Side::ipv4);
    switch.set("net/ipv4/ip_forward", "1").unwrap();
    for (host, device, own, other) in [(&near, "near", a, b), (&far, "far", b, a)] {
        host.join(&switch, device, 1500, &[]).unwrap();
        host.add_address(device, own, 24).unwrap();
        host.add_neighbour(device, Side::A, other).unwrap();
        switch.add_neighbour(device, Side::B, own).unwrap();
    }
    switch.pass_on("near", "far", b).unwrap();
    switch.pass_on("far", "near", a).unwrap();
    wait_for_path([&near, &far], [a, b]).unwrap();
}

#[needs(namespaces)]
#[test]
fn commands_run_inside() {
    let pair = pair(1500);
    let mut command = Command::new("cat");
    command.arg("/proc/net/dev").stdout(Stdio::piped());
    let child = pair.spawn_in(Side::B, &mut command).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(DEVICE) && text.contains("lo:"), "{text}");
    assert_eq!(text.lines().count(), 4, "two devices below two lines of heading: {text}");
}

#[needs(namespaces)]
#[test]
fn commands_see_other_hosts_and_another_name() {
    let pair = pair(1500);
    let path = std::env::temp_dir().join(format!("longhaul-hosts-{}", std::process::id()));
    std::fs::write(&path, "198.51.100.2 elsewhere\n").unwrap();
    let text = std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            pair.side(Side::A).enter_as_host("here", &path).unwrap();
            let mut command = Command::new("sh");
            let command = command.args(["-c", "cat /etc/hosts; uname -n"]);
            die_with_starter(command.stdout(Stdio::piped()));
            command.spawn().unwrap().wait_with_output().unwrap().stdout
        });
        inside.join().unwrap()
    });
    std::fs::remove_file(&path).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), "198.51.100.2 elsewhere\nhere\n");
    assert!(!std::fs::read_to_string("/etc/hosts").unwrap().contains("elsewhere"));
    assert_ne!(rustix::system::uname().nodename().to_bytes(), b"here");
}

#[test]
fn commands_die_with_their_starter() {
    let child = std::thread::spawn(|| {
        let mut command = Command::new("sleep");
        die_with_starter(command.arg("60"));
        command.spawn().unwrap()
    });
    let status = child.join().unwrap().wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
}

#[needs(namespaces)]
#[test]
fn panics_and_results_pass_through() {
    let pair = pair(1280);
    assert_eq!(pair.run_in(Side::A, || 42).unwrap(), 42);
    let caught = std::panic::catch_unwind(|| pair.run_in(Side::A, || panic!("inside")));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"inside"));
}

/// One that sends nothing by itself.
pub(crate) fn quiet_stack() -> Namespace {
    let stack = Namespace::new().unwrap();
    // Where there is no IPv6, that is as well.
    let _ = stack.set("net/ipv6/conf/default/disable_ipv6", "1");
    stack
}

fn pair(mtu: u32) -> NetnsPair {
    NetnsPair::new(mtu).unwrap()
}

fn bind(pair: &NetnsPair, side: Side) -> UdpSocket {
    let local = SocketAddr::new(side.ipv4(), 0);
    pair.run_in(side, || UdpSocket::bind(local, &UdpOptions::default())).unwrap().unwrap()
}
