use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::net::Shutdown;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use longhaul_wire::{SSH_WINDOW, SshFrame};

use super::*;

/// A client, a server, and what arrives there; last its end.
fn tunnels() -> (Tunnel, Tunnel, Receiver<Arrival>, Receiver<()>) {
    let ((there, to_there), (here, to_here)) = (pipe().unwrap(), pipe().unwrap());
    let (server, arrivals, ended) = server(there, to_here);
    (Tunnel::client(here.into(), to_there.into()).unwrap(), server, arrivals, ended)
}

fn server(input: PipeReader, output: PipeWriter) -> (Tunnel, Receiver<Arrival>, Receiver<()>) {
    let ((sender, arrivals), (over, ended)) = (channel(), channel());
    let arrived = move |arrival| sender.send(arrival).unwrap();
    let end = move || over.send(()).unwrap_or_default();
    (Tunnel::server(input.into(), output.into(), arrived, end).unwrap(), arrivals, ended)
}

fn accepted(arrivals: &Receiver<Arrival>) -> TcpStream {
    match arrivals.recv_timeout(PATIENCE) {
        Ok(Arrival::Connection(stream)) => stream,
        other => panic!("{other:?}"),
    }
}

fn noise(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|n| (n.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8)
        .collect()
}

#[test]
fn connections_carry_more_than_a_window_both_ways_at_once() {
    let (client, _server, arrivals, _) = tunnels();
    let near = client.connect().unwrap();
    let far = accepted(&arrivals);
    let expected = [noise(1, 11_000_000), noise(2, 9_000_001)];
    thread::scope(|scope| {
        for ((from, to), bytes) in [(&near, &far), (&far, &near)].into_iter().zip(&expected) {
            scope.spawn(move || {
                (&*from).write_all(bytes).unwrap();
                from.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let mut got = Vec::new();
                (&*to).read_to_end(&mut got).unwrap();
                assert!(got == *bytes);
            });
        }
    });
}

#[test]
fn one_that_is_not_read_holds_up_no_other() {
    let (client, _server, arrivals, _) = tunnels();
    let stuck = client.connect().unwrap();
    let _unread = accepted(&arrivals);
    stuck.set_nonblocking(true).unwrap();
    // Until kernels, window and streams are full: nothing goes for a while.
    let (chunk, mut sent, mut waits) = (vec![7; 1 << 20], 0, 0);
    while waits < 20 {
        match (&stuck).write(&chunk) {
            Ok(len) => (sent, waits) = (sent + len, 0),
            Err(_) => {
                waits += 1;
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    assert!(sent >= SSH_WINDOW as usize, "{sent}");
    let mut near = client.connect().unwrap();
    let mut far = accepted(&arrivals);
    near.write_all(b"ping").unwrap();
    let mut got = [0; 4];
    far.read_exact(&mut got).unwrap();
    far.write_all(&got).unwrap();
    near.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"ping");
}

#[test]
fn the_end_of_the_stream_ends_the_connections_and_is_noticed() {
    let (client, _server, arrivals, ended) = tunnels();
    let _near = client.connect().unwrap();
    let mut far = accepted(&arrivals);
    client.announce(vec![4711, 9]).unwrap();
    assert!(
        matches!(arrivals.recv_timeout(PATIENCE), Ok(Arrival::Ports(ports)) if ports == [4711, 9])
    );
    drop(client);
    ended.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(far.read(&mut [0; 1]), Ok(0) | Err(_)));
}

#[test]
fn what_was_sent_last_arrives_although_the_tunnel_is_let_go_of() {
    let (client, server, arrivals, _) = tunnels();
    let mut near = client.connect().unwrap();
    let mut far = accepted(&arrivals);
    far.write_all(b"goodbye").unwrap();
    drop(far);
    drop(server);
    let mut got = Vec::new();
    near.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"goodbye");
}

#[test]
fn more_connections_than_the_protocol_has_end_at_once() {
    let (client, _server, arrivals, _) = tunnels();
    let six: Vec<_> = (0..6).map(|_| (client.connect().unwrap(), accepted(&arrivals))).collect();
    let mut more = client.connect().unwrap();
    assert!(matches!(more.read(&mut [0; 1]), Ok(0) | Err(_)));
    // There is room again where both ends of one have closed.
    drop(six);
    let more = loop {
        let more = client.connect().unwrap();
        match arrivals.recv_timeout(Duration::from_millis(20)) {
            Ok(Arrival::Connection(far)) => break (more, far),
            Err(RecvTimeoutError::Timeout) => {}
            other => panic!("{other:?}"),
        }
    };
    (&more.0).write_all(b"x").unwrap();
    (&more.1).read_exact(&mut [0; 1]).unwrap();
}

#[test]
fn what_is_no_frame_ends_the_connections_and_leaves_the_stream() {
    for bytes in [
        &b"Broadcast message from root"[..],
        // More than was promised, by frames of the largest size.
        &[&[1, 0, 1, 0, 0][..], &[&[2, 0, 1, 255, 255][..], &[9; 65_535]].concat().repeat(400)]
            .concat(),
        // A number again, and one that is lower.
        &[1, 0, 1, 0, 0, 1, 0, 1, 0, 0],
        &[1, 0, 2, 0, 0, 1, 0, 1, 0, 0],
    ] {
        let ((there, mut to_there), (mut here, to_here)) = (pipe().unwrap(), pipe().unwrap());
        let (server, arrivals, ended) = server(there, to_here);
        to_there.write_all(bytes).unwrap();
        let opened = bytes[0] == 1;
        if opened {
            let mut far = accepted(&arrivals);
            let mut all = Vec::new();
            let _ = far.read_to_end(&mut all);
        }
        // What goes on beside it is not ended, and what comes is passed over.
        to_there.write_all(&[0; 100_000]).unwrap();
        assert_eq!(ended.try_recv().ok(), None);
        drop(to_there);
        ended.recv_timeout(PATIENCE).unwrap();
        drop(server);
        here.read_to_end(&mut Vec::new()).unwrap();
    }
}

#[test]
fn reports_go_in_their_order_and_all_of_them_before_the_end() {
    let ((there, to_there), (mut here, to_here)) = (pipe().unwrap(), pipe().unwrap());
    let (over, ended) = channel();
    let asked =
        Tunnel::of_asked(there.into(), to_here.into(), move || over.send(()).unwrap_or_default())
            .unwrap();
    let expected = noise(3, 3_000_000);
    let reading = thread::spawn(move || {
        let (mut all, mut got) = (Vec::new(), Vec::<u8>::new());
        here.read_to_end(&mut all).unwrap();
        let mut rest = &all[..];
        while let Some((SshFrame::Report { bytes }, len)) = SshFrame::parse(rest).unwrap() {
            got.extend(bytes);
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
        got
    });
    expected.chunks(100_000).for_each(|chunk| asked.report(chunk).unwrap());
    drop(asked);
    assert!(reading.join().unwrap() == expected);
    ended.recv_timeout(PATIENCE).unwrap();
    drop(to_there);
}

#[test]
fn who_asked_is_gone_with_the_input() {
    let ((there, to_there), (_here, to_here)) = (pipe().unwrap(), pipe().unwrap());
    let (over, ended) = channel();
    let asked =
        Tunnel::of_asked(there.into(), to_here.into(), move || over.send(()).unwrap_or_default())
            .unwrap();
    assert!(ended.try_recv().is_err());
    drop(to_there);
    ended.recv_timeout(PATIENCE).unwrap();
    assert!(asked.report(b"x").is_err());
}

#[test]
fn a_server_opens_nothing_at_its_client() {
    for bytes in [&[1, 0, 1, 0, 0][..], &[6, 0, 0, 0, 2, 18, 52], &[7, 0, 0, 0, 1, 9]] {
        let ((_there, to_there), (here, mut to_here)) = (pipe().unwrap(), pipe().unwrap());
        let client = Tunnel::client(here.into(), to_there.into()).unwrap();
        to_here.write_all(bytes).unwrap();
        let reason = loop {
            if let Err(error) = client.connect() {
                break error.to_string();
            }
            thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(reason, "something else than longhaul writes to the stream of ssh");
        // It is read on, so that ssh does not wait.
        to_here.write_all(&[0; 1_000_000]).unwrap();
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
