//! Set-up of a session towards the next gateway: the bytes behind its header, and spare
//! connections.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

#[path = "support/world.rs"]
mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use longhaul_gateway::GatewaySettings;
use longhaul_relay::{
    Addressed, Answer, Clock, Dialled, Dialler, Gatekeeper, Received, Request, Status,
};
use world::*;

/// A next gateway whose every step the test decides.
struct Next {
    listener: TcpListener,
    gatekeeper: Gatekeeper,
}

impl Next {
    fn new() -> Self {
        let keys = [&token()].into_iter().collect();
        let gatekeeper = Gatekeeper::new(keys, None, now());
        Self { listener: TcpListener::bind(loopback()).unwrap(), gatekeeper }
    }

    fn address(&self) -> std::net::SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn accept(&self) -> TcpStream {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Reads a header and nothing behind it.
    fn header(&mut self, stream: &mut TcpStream) -> Box<Request> {
        let mut bytes = Vec::new();
        loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
            match self.gatekeeper.receive(&bytes, &self.address().into(), now()) {
                Received::Incomplete => {}
                Received::Header(request) => return request,
                Received::Refused(refusal) => panic!("{refusal:?}"),
            }
        }
    }
}

/// Begins a session without waiting for its answer.
fn begin(gateway: &Running, next: &Next, payload: &[u8]) -> (TcpStream, Dialler) {
    let address = gateway.addresses[0];
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let addressed = Addressed { written: address.into(), dialled: address.into() };
    let route = route(&[next.address()], "192.0.2.1:80");
    let (dialler, mut header) =
        Dialler::new(&route, addressed, &token().key(), now(), nonce()).unwrap();
    header.extend_from_slice(payload);
    stream.write_all(&header).unwrap();
    (stream, dialler)
}

fn answer(request: &Request, stream: &mut TcpStream) {
    stream.write_all(&request.sign(&Answer::new(Status::CONNECTED, "next"))).unwrap();
}

fn reads(stream: &mut TcpStream, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, expected);
}

#[test]
fn early_payload_follows_the_header_to_the_next_gateway_before_an_answer() {
    let (gateway, mut next) = (start(settings()), Next::new());
    let (mut client, _dialler) = begin(&gateway, &next, b"early");
    let mut stream = next.accept();
    let request = next.header(&mut stream);
    reads(&mut stream, b"early");
    answer(&request, &mut stream);
    client.write_all(b"later").unwrap();
    reads(&mut stream, b"later");
    let sessions = gateway.gateway.status().sessions;
    assert_eq!(sessions[0].bytes_there, 10);
}

#[test]
fn a_session_takes_a_spare_connection_and_a_closed_one_is_dialled_again() {
    let gateway = start(GatewaySettings { spares: 1, ..settings() });
    let mut next = Next::new();
    let (_first, _) = begin(&gateway, &next, b"");
    let mut stream = next.accept();
    let request = next.header(&mut stream);
    answer(&request, &mut stream);

    // Now it is kept warm.
    let mut spare = next.accept();
    spare.set_nonblocking(true).unwrap();
    assert_eq!(spare.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    spare.set_nonblocking(false).unwrap();
    let (mut second, _) = begin(&gateway, &next, b"early");
    let request = next.header(&mut spare);
    // Payload waits here: the connection might have been closed meanwhile.
    second.write_all(b"later").unwrap();
    answer(&request, &mut spare);
    reads(&mut spare, b"earlylater");

    // One that is closed while the header travels.
    let mut spare = next.accept();
    let (_third, _) = begin(&gateway, &next, b"early");
    next.header(&mut spare);
    socket2::SockRef::from(&spare).set_linger(Some(Duration::ZERO)).unwrap();
    drop(spare);
    // Another spare one may come before it.
    next.listener.set_nonblocking(true).unwrap();
    let mut come = Vec::new();
    let mut stream = until("the header again", || {
        come.extend(next.listener.accept().map(|(stream, _)| stream));
        let has_header = |stream: &TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.peek(&mut [0]).is_ok()
        };
        let index = come.iter().position(has_header)?;
        Some(come.swap_remove(index))
    });
    stream.set_nonblocking(false).unwrap();
    let request = next.header(&mut stream);
    answer(&request, &mut stream);
    reads(&mut stream, b"early");
}

/// The outcome at a client.
fn outcome(client: &mut TcpStream, mut dialler: Dialler) -> Dialled {
    let mut byte = [0];
    loop {
        client.read_exact(&mut byte).unwrap();
        match dialler.receive(&byte).unwrap() {
            Dialled::Incomplete => {}
            outcome => return outcome,
        }
    }
}

/// Microseconds from 1970 now, at a gateway whose clock is ahead.
fn ahead(seconds: u64) -> Clock {
    Clock::from_micros(now().as_micros() + seconds * 1_000_000)
}

#[test]
fn the_clock_of_a_next_gateway_is_learnt_once_for_all_sessions() {
    let (gateway, mut next) = (start(settings()), Next::new());
    let header = |next: &mut Next, stream: &mut TcpStream| {
        let mut bytes = Vec::new();
        loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
            match next.gatekeeper.receive(&bytes, &next.address().into(), ahead(600)) {
                Received::Incomplete => {}
                received => return received,
            }
        }
    };
    let (mut first, dialler) = begin(&gateway, &next, b"");
    let mut stream = next.accept();
    let Received::Refused(refusal) = header(&mut next, &mut stream) else { panic!() };
    assert_eq!(refusal.answer.status, Status::WRONG_CLOCK);
    stream.write_all(&refusal.bytes).unwrap();
    let mut stream = next.accept();
    let Received::Header(request) = header(&mut next, &mut stream) else { panic!() };
    answer(&request, &mut stream);
    assert!(matches!(outcome(&mut first, dialler), Dialled::Connected { .. }));

    let (_second, _) = begin(&gateway, &next, b"");
    let mut stream = next.accept();
    assert!(matches!(header(&mut next, &mut stream), Received::Header(_)), "by its clock at once");
}

#[test]
fn a_false_time_of_a_next_gateway_does_not_reach_the_client() {
    let (gateway, mut next) = (start(settings()), Next::new());
    let (mut client, dialler) = begin(&gateway, &next, b"");
    let mut refusals = Vec::new();
    for _ in 0..2 {
        let mut stream = next.accept();
        let mut bytes = Vec::new();
        let refusal = loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
            // Each time another clock.
            let at = ahead(100 + 1000 * refusals.len() as u64);
            match next.gatekeeper.receive(&bytes, &next.address().into(), at) {
                Received::Incomplete => {}
                Received::Refused(refusal) => break refusal,
                other => panic!("{other:?}"),
            }
        };
        stream.write_all(&refusal.bytes).unwrap();
        refusals.push(refusal);
    }
    let Dialled::Refused(answer) = outcome(&mut client, dialler) else { panic!() };
    assert_eq!((answer.status, answer.time), (Status::WRONG_CLOCK, None));
    assert_eq!(answer.at, gateway.addresses[0].to_string());
    assert_eq!(answer.to, next.address().to_string());
}
