use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use longhaul_units::Ecn;

use super::*;
use crate::clock::{self, WallTime};

/// Each test over each version of IP.
macro_rules! over_loopback {
    ($($test:ident,)*) => {
        mod ipv4 {
            $(#[test]
            fn $test() {
                super::$test("127.0.0.1:0".parse().unwrap());
            })*
        }
        mod ipv6 {
            $(#[longhaul_needs::needs(ipv6)]
            #[test]
            fn $test() {
                super::$test("[::1]:0".parse().unwrap());
            })*
        }
    };
}

over_loopback! {
    super_packet_arrives_with_its_notes,
    gathers_and_scatters_across_datagram_borders,
    without_offload_the_same_datagrams_arrive,
    traffic_class_of_the_socket_is_the_default,
}

fn super_packet_arrives_with_its_notes(local: SocketAddr) {
    let (sender, receiver) = pair(local, &UdpOptions::default());
    let payload = pattern(10_500);
    let before = WallTime::now();
    let route = Route::to(receiver.local_addr()).with_traffic_class(0x03);
    let sent = sender.send(&route, &[IoSlice::new(&payload)], Some(1000), Wait::No).unwrap();
    assert_eq!(sent, payload.len());

    let (bytes, notes) = drain(&receiver, payload.len());
    assert_eq!(bytes, payload);
    let datagrams: usize = notes.iter().map(Received::datagrams).sum();
    assert_eq!(datagrams, 11);
    for note in &notes {
        assert_eq!(note.from, sender.local_addr());
        assert_eq!((note.ecn(), note.truncated, note.overflow), (Ecn::Ce, false, 0));
        assert_eq!(note.to, None);
        // The wall clock may be slewed, and the first stamps of a host come late.
        let stamp = note.kernel_time.expect("Linux stamps datagrams");
        assert!(stamp.since(before) < Duration::from_secs(60));
    }
    if sender.capabilities().gso && receiver.capabilities().gro {
        assert_eq!(notes[0].segment, 1000);
    }
}

fn gathers_and_scatters_across_datagram_borders(local: SocketAddr) {
    let (sender, receiver) = pair(local, &UdpOptions::default());
    let payload = pattern(44 * 96);
    // Headers of 32 bytes and payloads of 64, from places apart.
    let gather: Vec<_> = payload.chunks(96).flat_map(|c| [&c[..32], &c[32..]]).collect();
    let gather: Vec<_> = gather.iter().map(|part| IoSlice::new(part)).collect();
    sender.send(&Route::to(receiver.local_addr()), &gather, Some(96), Wait::No).unwrap();

    let mut headers = vec![[0u8; 32]; 44];
    let mut slots = vec![[0u8; 64]; 44];
    let mut received = 0;
    while received < payload.len() {
        let first = received / 96;
        let mut scatter: Vec<_> = headers[first..]
            .iter_mut()
            .zip(&mut slots[first..])
            .flat_map(|(header, slot)| [IoSliceMut::new(header), IoSliceMut::new(slot)])
            .collect();
        received += receiver.recv(&mut scatter, Wait::UntilReady).unwrap().unwrap().len;
    }
    let joined: Vec<u8> =
        headers.iter().zip(&slots).flat_map(|(h, s)| [&h[..], &s[..]].concat()).collect();
    assert_eq!(joined, payload);
}

fn without_offload_the_same_datagrams_arrive(local: SocketAddr) {
    let plain = UdpOptions { gso: false, gro: false, ..UdpOptions::default() };
    let (sender, receiver) = pair(local, &plain);
    assert!(!sender.capabilities().gso && !receiver.capabilities().gro);
    // Slices of prime length, so that datagrams begin and end inside of them.
    let payload = pattern(100 * 100 + 17);
    let slices: Vec<_> = payload.chunks(37).map(IoSlice::new).collect();
    let route = Route::to(receiver.local_addr());
    let sent = sender.send(&route, &slices, Some(100), Wait::UntilReady).unwrap();
    assert_eq!(sent, payload.len());
    let (bytes, notes) = drain(&receiver, payload.len());
    assert_eq!(bytes, payload);
    assert_eq!(notes.len(), 101);
    assert!(notes.iter().all(|note| note.datagrams() == 1 && note.segment as usize == note.len));
}

#[test]
fn a_device_that_cannot_cut_is_found_out() {
    let (sender, receiver) = pair("127.0.0.1:0".parse().unwrap(), &UdpOptions::default());
    assert!(sender.capabilities().gso, "every kernel that Longhaul runs on has UDP_SEGMENT");
    // Without checksums the kernel refuses to cut, as it does for a device without offload.
    sockopt::set_int(sender.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let payload = pattern(5000);
    let route = Route::to(receiver.local_addr());
    let sent = sender.send(&route, &[IoSlice::new(&payload)], Some(1000), Wait::No).unwrap();
    assert_eq!(sent, 5000);
    assert_eq!(drain(&receiver, 5000).0, payload);
    assert!(!sender.capabilities().gso);
    assert!(sender.capabilities().missing().any(|line| line.contains("UDP_SEGMENT")));
}

#[test]
fn wildcard_socket_answers_from_the_address_it_was_reached_at() {
    answers_from_where_it_was_reached([("0.0.0.0:0", "127.0.0.2"), ("0.0.0.0:0", "127.0.0.1")]);
}

#[longhaul_needs::needs(ipv6)]
#[test]
fn wildcard_socket_of_both_versions_answers_from_the_address_it_was_reached_at() {
    answers_from_where_it_was_reached([("[::]:0", "::1"), ("[::]:0", "127.0.0.3")]);
}

fn answers_from_where_it_was_reached(cases: [(&str, &str); 2]) {
    for (wildcard, address) in cases {
        let server = bind(wildcard, &UdpOptions::default());
        assert!(server.capabilities().destination);
        let address: IpAddr = address.parse().unwrap();
        let reached = SocketAddr::new(address, server.local_addr().port());
        let local = if address.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let client = bind(local, &UdpOptions::default());
        client.connect(reached).unwrap();
        send(&client, &Route::CONNECTED.with_traffic_class(0x02), b"ping");

        let (bytes, notes) = drain(&server, 4);
        assert_eq!(bytes, b"ping");
        assert_eq!((notes[0].to, notes[0].from), (Some(address), client.local_addr()));
        assert_eq!(notes[0].ecn(), Ecn::Ect0, "{wildcard} reached at {address}");
        // A connected client takes the answer only from the address that it asked.
        let back = Route::to(notes[0].from).from(notes[0].to).with_traffic_class(0x01);
        send(&server, &back, b"pong");
        let (bytes, notes) = drain(&client, 4);
        assert_eq!((&bytes[..], notes[0].from), (&b"pong"[..], reached));
        assert_eq!(notes[0].ecn(), Ecn::Ect1);
    }
}

fn traffic_class_of_the_socket_is_the_default(local: SocketAddr) {
    let ect0 = UdpOptions { traffic_class: 0x02, ..UdpOptions::default() };
    let (sender, receiver) = pair(local, &ect0);
    send(&sender, &Route::to(receiver.local_addr()), b"a");
    assert_eq!(drain(&receiver, 1).1[0].traffic_class, 0x02);
    sender.set_traffic_class(0x04).unwrap();
    send(&sender, &Route::to(receiver.local_addr()), b"b");
    assert_eq!(drain(&receiver, 1).1[0].traffic_class, 0x04);
}

#[test]
fn errors_are_distinguished() {
    let (sender, receiver) = pair("127.0.0.1:0".parse().unwrap(), &UdpOptions::default());
    let route = Route::to(receiver.local_addr());
    let byte = [0u8; 1];
    let send =
        |payload: &[u8], segment| sender.send(&route, &[IoSlice::new(payload)], segment, Wait::No);
    assert!(matches!(send(&[0; PAYLOAD_MAX + 1], Some(1400)), Err(SendError::Invalid)));
    assert!(matches!(send(&byte, Some(0)), Err(SendError::Invalid)));
    let most = sender.capabilities().segments_max;
    assert!(matches!(send(&vec![0; 1 + most as usize], Some(1)), Err(SendError::Invalid)));
    assert_eq!(send(&vec![0; most as usize], Some(1)).unwrap(), most as usize);
    let many = vec![IoSlice::new(&byte); SLICES_MAX + 1];
    let result = sender.send(&route, &many, None, Wait::No);
    assert!(matches!(result, Err(SendError::Invalid)));
    assert_eq!(io::Error::from(SendError::TooLarge).raw_os_error(), Some(libc::EMSGSIZE));

    // A source that is not ours is neither a missing offload nor a full queue.
    let foreign = route.from(Some("192.0.2.1".parse().unwrap()));
    let result = sender.send(&foreign, &[IoSlice::new(&[0; 200])], Some(100), Wait::No);
    assert!(matches!(result, Err(SendError::Io(_))), "{result:?}");
    assert!(sender.capabilities().gso == UdpOptions::default().gso);
}

#[test]
fn a_closed_port_fails_no_call() {
    // Connected elsewhere, it takes nothing from us, and nobody else gets its port.
    let silent = bind("127.0.0.1:0", &UdpOptions::default());
    silent.connect("127.0.0.1:9".parse().unwrap()).unwrap();
    let socket = bind("127.0.0.1:0", &UdpOptions::default());
    socket.connect(silent.local_addr()).unwrap();
    for _ in 0..3 {
        send(&socket, &Route::CONNECTED, b"anyone?");
        // The answer may come later than the call returns.
        assert!(socket.wait_readable(None, None).unwrap().socket);
    }
    assert_eq!(socket.recv(&mut [], Wait::No).unwrap(), None);
}

#[test]
fn short_buffers_are_reported() {
    let (sender, receiver) = pair("127.0.0.1:0".parse().unwrap(), &UdpOptions::default());
    send(&sender, &Route::to(receiver.local_addr()), &[1; 100]);
    let mut small = [0; 40];
    let got = receiver.recv(&mut [IoSliceMut::new(&mut small)], Wait::UntilReady).unwrap().unwrap();
    assert_eq!((got.len, got.truncated), (40, true));
}

#[test]
fn empty_datagrams_pass() {
    let (sender, receiver) = pair("127.0.0.1:0".parse().unwrap(), &UdpOptions::default());
    send(&sender, &Route::to(receiver.local_addr()), b"");
    let got = receiver.recv(&mut [], Wait::UntilReady).unwrap().unwrap();
    assert_eq!((got.len, got.segment, got.datagrams(), got.truncated), (0, 0, 1, false));
}

#[test]
fn nothing_there_is_no_error() {
    let socket = bind("127.0.0.1:0", &UdpOptions::default());
    assert_eq!(socket.recv(&mut [], Wait::No).unwrap(), None);
    let waker = Waker::new().unwrap();
    let deadline = clock::now() + Duration::from_millis(1);
    let ready = socket.wait_readable(Some(&waker), Some(deadline)).unwrap();
    assert_eq!(ready, Ready { socket: false, woken: false });
    waker.wake();
    let ready = socket.wait_readable(Some(&waker), None).unwrap();
    assert_eq!(ready, Ready { socket: false, woken: true });
    send(&socket, &Route::to(socket.local_addr()), b"self");
    let ready = socket.wait_readable(None, None).unwrap();
    assert_eq!(ready, Ready { socket: true, woken: false });
}

#[test]
fn overflow_is_counted_where_it_happened() {
    let small = UdpOptions { receive_buffer: 1, ..UdpOptions::default() };
    let (sender, receiver) = pair("127.0.0.1:0".parse().unwrap(), &small);
    assert!(receiver.receive_buffer().obtained < 65536);
    let route = Route::to(receiver.local_addr());
    for _ in 0..100 {
        send(&sender, &route, &[0; 1000]);
    }
    // The last may come later than the calls return.
    let memory = || receiver.memory().unwrap();
    while memory().drops == 0 {
        std::thread::yield_now();
    }
    assert!(memory().receive_used > 0, "{:?}", memory());
    assert!(memory().receive_limit as usize >= receiver.receive_buffer().obtained);
    let mut counts = Vec::new();
    while counts.len() as u64 + u64::from(memory().drops) < 100 {
        counts.extend(receiver.recv(&mut [], Wait::No).unwrap().map(|note| note.overflow));
    }
    assert_eq!(counts[0], 0, "queued before the first drop");
    assert!(counts.is_sorted(), "{counts:?}");
    let drops = memory().drops;
    assert_eq!(counts.len() as u64 + u64::from(drops), 100);
    send(&sender, &route, &[0; 10]);
    assert_eq!(drain(&receiver, 10).1[0].overflow, drops);
}

#[test]
fn buffers_are_asked_for_and_read_back() {
    let options = UdpOptions { receive_buffer: 100_000, ..UdpOptions::default() };
    let socket = bind("127.0.0.1:0", &options);
    assert_eq!(socket.receive_buffer().asked, 100_000);
    assert_eq!(socket.receive_buffer().obtained, 100_000);
    assert_eq!(socket.receive_buffer().sysctl_to_raise(), None);
    let size = socket.send_buffer();
    assert_eq!(size.sysctl_to_raise().is_some(), size.obtained < size.asked);
}

#[test]
fn path_mtu_is_known_once_connected() {
    let (sender, receiver) = pair("127.0.0.1:0".parse().unwrap(), &UdpOptions::default());
    assert!(sender.path_mtu().is_err());
    sender.connect(receiver.local_addr()).unwrap();
    assert!(sender.path_mtu().unwrap() >= 1280);
}

#[test]
fn port_in_use_is_an_error_unless_shared() {
    let first = bind("127.0.0.1:0", &UdpOptions::default());
    let error = UdpSocket::bind(first.local_addr(), &UdpOptions::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let shared = UdpOptions { reuse_port: true, ..UdpOptions::default() };
    let first = bind("127.0.0.1:0", &shared);
    UdpSocket::bind(first.local_addr(), &shared).unwrap();
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 + index / 251) as u8).collect()
}

fn bind(local: &str, options: &UdpOptions) -> UdpSocket {
    UdpSocket::bind(local.parse().unwrap(), options).unwrap()
}

fn pair(local: SocketAddr, options: &UdpOptions) -> (UdpSocket, UdpSocket) {
    (UdpSocket::bind(local, options).unwrap(), UdpSocket::bind(local, options).unwrap())
}

fn send(socket: &UdpSocket, route: &Route, payload: &[u8]) {
    let sent = socket.send(route, &[IoSlice::new(payload)], None, Wait::UntilReady).unwrap();
    assert_eq!(sent, payload.len());
}

/// Receives until `len` bytes are there.
fn drain(socket: &UdpSocket, len: usize) -> (Vec<u8>, Vec<Received>) {
    let (mut bytes, mut notes) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 65535];
    while bytes.len() < len {
        let got = socket.recv(&mut [IoSliceMut::new(&mut buffer)], Wait::UntilReady);
        let note = got.unwrap().unwrap();
        bytes.extend(&buffer[..note.len]);
        notes.push(note);
    }
    (bytes, notes)
}
