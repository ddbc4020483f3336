//! The control connection against strangers, and against one in the middle who changes bits.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use longhaul_control::{Accepted, Acceptor, ConnectError, Control, Dialed, Remote, dial};
use longhaul_session::{ClientConfig, ServerConfig, Session, Token};
use longhaul_sys::stop::Stop;
use longhaul_units::LaneId;

#[test]
fn strangers_do_not_keep_an_honest_client_out() {
    let (address, served) = serve();
    let mut strangers = Vec::new();
    for i in 0..60usize {
        let mut stranger = TcpStream::connect(address).unwrap();
        let sent: &[u8] = match i % 5 {
            0 => b"",
            1 => b"\x16\x03\x01\x02\x00\x01",
            2 => b"LHD1",
            3 => b"GET / HTTP/1.0\r\n\r\n",
            _ => &[0xff; 4000],
        };
        stranger.write_all(sent).unwrap();
        strangers.push(stranger);
    }
    let dialed = dial_at(address).unwrap();
    let (session, control) = served.recv_timeout(PATIENCE).unwrap();
    assert!(session.verify_join(&dialed.session.join(LaneId(0))));
    drop(strangers);
    assert_eq!((dialed.control.ended(), control.ended()), (None, None));
}

#[test]
fn a_bit_changed_on_the_way_makes_no_session() {
    let (address, served) = serve();
    let whole = Relay::start(address, None);
    let dialed = dial_at(whole.address).unwrap();
    served.recv_timeout(PATIENCE).unwrap();
    // Bytes so far, less what signatures may vary in length.
    let lengths = whole.passed.each_ref().map(|passed| passed.load(Ordering::SeqCst) - 16);
    drop(dialed);

    let mut unseen = 0;
    for (way, length) in lengths.into_iter().enumerate() {
        for place in (0..length).step_by(37) {
            let relay = Relay::start(address, Some((way, place)));
            match dial_at(relay.address) {
                Err(ConnectError::System(error)) => panic!("{way} {place}: {error}"),
                Err(_) => {}
                // What may change without being seen are the versions in the heads of records,
                // which TLS 1.3 tells receivers to ignore.
                Ok(dialed) => {
                    // A server may have welcomed clients that did not hear it.
                    let same = std::iter::from_fn(|| served.recv_timeout(PATIENCE).ok())
                        .any(|(session, _)| session.verify_join(&dialed.session.join(LaneId(0))));
                    assert!(same, "{way} {place}: two secrets");
                    unseen += 1;
                }
            }
        }
    }
    assert!(unseen < 5, "{unseen}");
}

/// A server that lets in a client that holds the token.
fn serve() -> (SocketAddr, mpsc::Receiver<(Session, Control)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = Arc::new(
        Acceptor::new(
            &[token()],
            ServerConfig { udp_port: Some(7), ..ServerConfig::default() },
            Stop::default(),
        )
        .unwrap(),
    );
    let (tell, served) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (acceptor, tell) = (acceptor.clone(), tell.clone());
            thread::spawn(move || {
                let stream = stream.unwrap();
                let from = stream.peer_addr().unwrap();
                if let Ok(Accepted::Client(client)) = acceptor.accept(stream, from, |_| {}) {
                    let _ = tell.send(client.welcome(NonZeroU32::MIN, PATIENCE).unwrap());
                }
            });
        }
    });
    (address, served)
}

/// Passes bytes on, up (0) and down (1), with one bit changed.
struct Relay {
    address: SocketAddr,
    passed: Arc<[AtomicUsize; 2]>,
}

impl Relay {
    fn start(server: SocketAddr, change: Option<(usize, usize)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let passed = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let counts = passed.clone();
        thread::spawn(move || {
            let (near, _) = listener.accept().unwrap();
            let far = TcpStream::connect(server).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| pass(&near, &far, 0, change, &counts));
                scope.spawn(|| pass(&far, &near, 1, change, &counts));
            });
        });
        Self { address, passed }
    }
}

fn pass(
    mut from: &TcpStream,
    mut to: &TcpStream,
    way: usize,
    change: Option<(usize, usize)>,
    counts: &[AtomicUsize; 2],
) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let before = counts[way].fetch_add(count, Ordering::SeqCst);
        if let Some((changed, place)) = change
            && changed == way
            && (before..before + count).contains(&place)
        {
            chunk[place - before] ^= 1;
        }
        if to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn dial_at(address: SocketAddr) -> Result<Dialed, ConnectError> {
    // A changed length leaves both ends waiting for bytes that do not come.
    let config = ClientConfig { timeout: Duration::from_secs(3), ..ClientConfig::default() };
    let host = address.ip().to_string();
    let remote = Remote { host: &host, port: address.port(), via: None };
    dial(&remote, &token(), &config, PATIENCE, &Stop::default())
}

fn token() -> Token {
    Token::from_random([8; 16])
}

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
