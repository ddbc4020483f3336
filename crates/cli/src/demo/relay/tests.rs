use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};

use longhaul_pathsim::DropReason;
use longhaul_sys::clock;
use longhaul_sys::udp::{Route, Wait};

use super::*;

fn path() -> EmulatedPath {
    EmulatedPath {
        rate: Rate::from_gbps(1),
        rtt: Duration::from_millis(10),
        loss: Probability::ZERO,
        queue: Bytes::from_mib(4),
        mtu: 1_500,
        seed: 7,
    }
}

/// A server's sockets and a relay before it, at a port that was free a moment ago.
fn start(path: &EmulatedPath) -> (UdpSocket, TcpListener, SocketAddr, Relay) {
    loop {
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let server = listener.local_addr().unwrap();
        let listen = SocketAddr::new("127.0.0.1".parse().unwrap(), server.port());
        let Ok(socket) = UdpSocket::bind(server, &UdpOptions::default()) else { continue };
        let Ok(relay) = Relay::start(listen, server, path) else { continue };
        return (socket, listener, listen, relay);
    }
}

fn client(relay: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap();
    socket.connect(relay).unwrap();
    socket
}

fn send(socket: &UdpSocket, route: Route, bytes: &[u8], segment: Option<u16>) {
    let sent = socket.send(&route, &[IoSlice::new(bytes)], segment, Wait::UntilReady).unwrap();
    assert_eq!(sent, bytes.len());
}

/// Receives until `len` bytes are there; also says who sent the last of them.
fn receive(socket: &UdpSocket, len: usize) -> (Vec<u8>, SocketAddr) {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 65_535];
    loop {
        let got = socket.recv(&mut [IoSliceMut::new(&mut buffer)], Wait::UntilReady).unwrap();
        let got = got.unwrap();
        bytes.extend(&buffer[..got.len]);
        if bytes.len() >= len {
            return (bytes, got.from);
        }
    }
}

#[test]
fn trains_arrive_whole_and_not_before_the_delay() {
    let (server, _listener, relay_at, relay) = start(&path());
    let client = client(relay_at);
    let bytes: Vec<u8> = (0..1472 * 40 + 100).map(|i| (i % 253) as u8).collect();
    let began = clock::now();
    send(&client, Route::CONNECTED, &bytes, Some(1_472));
    let (got, _) = receive(&server, bytes.len());
    assert!(clock::now() - began >= Duration::from_millis(5));
    assert!(got == bytes);
    let report = relay.stop().unwrap();
    assert_eq!(report.forward.released, 41);
    assert_eq!(report.forward.path.delivered, 41);
    assert_eq!(report.backward.path.offered, 0);
}

#[test]
fn answers_go_to_the_client_that_asked() {
    let (server, _listener, relay_at, relay) = start(&path());
    let clients = [client(relay_at), client(relay_at), client(relay_at)];
    for (number, client) in clients.iter().enumerate() {
        send(client, Route::CONNECTED, &[number as u8], None);
        let (question, from) = receive(&server, 1);
        send(&server, Route::to(from), &[question[0] + 100], None);
    }
    for (number, client) in clients.iter().enumerate() {
        assert_eq!(receive(client, 1), (vec![number as u8 + 100], relay_at));
    }
    drop(relay);
}

#[test]
fn larger_packets_than_the_path_takes_vanish() {
    let (server, _listener, relay_at, relay) = start(&path());
    let client = client(relay_at);
    send(&client, Route::CONNECTED, &[1; 1_473], None);
    send(&client, Route::CONNECTED, &[2; 1_472], None);
    assert_eq!(receive(&server, 1).0, [2; 1_472]);
    let report = relay.stop().unwrap();
    assert_eq!(report.forward.path.dropped(DropReason::Mtu), 1);
}

#[test]
fn the_control_connection_carries_both_ways_and_its_end() {
    let (_server, listener, relay_at, relay) = start(&path());
    let began = clock::now();
    let mut client = TcpStream::connect(relay_at).unwrap();
    client.write_all(b"question").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    let mut question = String::new();
    served.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    served.write_all(b"answer").unwrap();
    drop(served);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answer");
    // Setting up the connection, the question, the answer.
    assert!(clock::now() - began >= Duration::from_millis(20));
    relay.stop().unwrap();
}

#[test]
fn a_relay_ends_with_connections_open() {
    let (_server, listener, relay_at, relay) = start(&path());
    let mut client = TcpStream::connect(relay_at).unwrap();
    let (_served, _) = listener.accept().unwrap();
    relay.stop().unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}
