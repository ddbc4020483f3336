//! A crowd of strangers at a server's door, and sessions that go wrong: clients get in.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use longhaul::{CarrierChoice, ServeEvent, serve};
use longhaul_wire::Protect;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use crate::program::Program;
use crate::server::{over, push, run, serve_options};
use crate::test::limited;
use crate::trees::{assert_same, noise};

#[test]
fn clients_get_in_past_a_crowd_of_strangers() {
    limited(|test| {
        let limit = raise_own_limit();
        fs::write(test.here("f"), noise(1, 500_000)).unwrap();
        let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let (memory, _) = used(server.id());
        // From another address than the client's, then from the same.
        for from in [Ipv4Addr::new(127, 66, 0, 1), Ipv4Addr::LOCALHOST] {
            let silent: Vec<_> = (0..limit.min(2000)).map(|_| knock(from, at)).collect();
            let slow: Vec<_> = (0..200).map(|_| knock(from, at)).collect();
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| speak_slowly(slow, &done));
                // Also where an assertion fails: the scope waits for those who speak.
                let _over = Over(&done);
                for (carrier, protect) in [
                    (CarrierChoice::Udp, Protect::Aead),
                    (CarrierChoice::Tcp, Protect::Aead),
                    (CarrierChoice::Tcp, Protect::Clear),
                ] {
                    let to = format!("{from}-{carrier:?}-{protect}");
                    let options = push(&test.here("f"), at, to.as_bytes());
                    let options = over(options, |by| {
                        (by.carrier, by.protect, by.lanes) = (carrier, protect, 8);
                    });
                    let copied = run(test, &options);
                    let (grown, threads) = used(server.id());
                    copied.unwrap();
                    assert_same(&test.here("f"), &test.there(&to));
                    assert!(threads < 600, "{threads} threads");
                    let grown = grown.saturating_sub(memory);
                    assert!(grown < 64 << 10, "{grown} KiB more than before");
                }
            });
            drop(silent);
        }
    });
}

#[test]
fn a_session_that_panics_gives_its_place_back_and_others_are_served() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 100_000)).unwrap();
        let mut options = serve_options(&test.path("there"));
        options.connections_max = 1;
        let (send_address, listening) = mpsc::channel();
        let stop = test.stop();
        let stopped = stop.clone();
        let server = thread::spawn(move || {
            let first = AtomicBool::new(true);
            let events = |event: ServeEvent| match event {
                ServeEvent::Listening(at) => send_address.send(at).unwrap(),
                ServeEvent::Began { .. } if first.swap(false, Ordering::Relaxed) => {
                    panic!("as a fault in a session would")
                }
                _ => {}
            };
            serve(&options, &events, &stopped)
        });
        let at = listening.recv().unwrap();
        let error = run(test, &push(&test.here("f"), at, b"first")).unwrap_err();
        assert!(error.to_string().contains("a fault of the server"), "{error}");
        // The place comes back when the session is put in order.
        let second = crate::test::until("the place is free", || {
            run(test, &push(&test.here("f"), at, b"second")).ok()
        });
        assert!(second.verified);
        assert_same(&test.here("f"), &test.there("second"));
        stop.request();
        server.join().unwrap().unwrap();
    });
}

/// Sets a flag when it goes out of scope.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A connection from `from` that sends nothing.
fn knock(from: Ipv4Addr, at: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(IpAddr::V4(from), 0).into()).unwrap();
    socket.connect(&at.into()).unwrap();
    socket.into()
}

/// Begins a TLS handshake on each, a byte a second.
fn speak_slowly(mut streams: Vec<TcpStream>, over: &AtomicBool) {
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &noise(1, 500)].concat();
    for byte in hello {
        for stream in &mut streams {
            // It may have had to make room.
            let _ = stream.write_all(&[byte]);
        }
        for _ in 0..50 {
            if over.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Lets this process have all the descriptors it may; how many strangers it can play.
fn raise_own_limit() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.unwrap_or(u64::MAX) - 600
}

/// Resident memory in KiB, and threads.
fn used(process: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (field("VmRSS:"), field("Threads:"))
}
