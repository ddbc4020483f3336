//! Clients without the token, and what is no client at all.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use longhaul::{ErrorKind, MEMORY_LEAST, ServeEvent, Side};
use rustix::process::Signal;

use crate::program::Program;
use crate::server::{Copying, Server, over, push, run, slowly};
use crate::test::{limited, token, until};
use crate::trees::{assert_same, names, noise, record_len};

#[test]
fn a_wrong_token_gets_nothing() {
    limited(|test| {
        fs::write(test.here("f"), b"secret").unwrap();
        let server = Server::start(test);
        let options = push(&test.here("f"), server.address, b"");
        let error = run(test, &over(options, |by| by.token = token(2))).unwrap_err();
        assert_eq!((error.kind, error.side), (ErrorKind::Unauthorized, Side::There), "{error}");
        assert!(error.to_string().contains("does not accept this token"), "{error}");
        server.wait_for("it is reported", |event| matches!(event, ServeEvent::Refused { .. }));
        assert!(names(&test.path("there")).is_empty());
    });
}

#[test]
fn garbage_at_the_control_port_disturbs_nobody() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 3_000_000)).unwrap();
        let server = Server::start(test);
        let mut hello = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
        hello.extend(noise(2, 505));
        let openings: [&[u8]; 6] =
            [b"", b"\x00", b"GET / HTTP/1.1\r\n\r\n", &[0xff; 60_000], &hello, &hello[..7]];
        let mut open = Vec::new();
        for (i, opening) in openings.iter().enumerate() {
            for end in [true, false] {
                let mut stranger = TcpStream::connect(server.address).unwrap();
                // The server may hang up before it has read all of it.
                let _ = stranger.write_all(opening);
                if end && i % 2 == 0 {
                    let _ = stranger.shutdown(Shutdown::Write);
                }
                if !end {
                    open.push(stranger);
                }
            }
        }
        run(test, &push(&test.here("f"), server.address, b"")).unwrap();
        assert_same(&test.here("f"), &test.there("f"));
        let refused = |event: &ServeEvent| matches!(event, ServeEvent::Refused { reason, .. } if reason.contains("not a Longhaul client"));
        server.wait_for("garbage is reported", refused);
    });
}

#[test]
fn a_target_that_is_no_server_is_reported() {
    limited(|test| {
        fs::write(test.here("f"), b"x").unwrap();
        for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"", &[0xff; 5000]] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = thread::spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                let mut bytes = [0; 100];
                let _ = client.read(&mut bytes);
                let _ = client.write_all(answer);
            });
            let error = run(test, &push(&test.here("f"), address, b"")).unwrap_err();
            assert!(error.to_string().contains(&address.to_string()), "{error}");
            assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
            server.join().unwrap();
        }
    });
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    limited(|test| {
        fs::write(test.here("f"), b"x").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let options = push(&test.here("f"), address, b"");
        let idle_timeout = Duration::from_secs(1);
        let error = run(test, &over(options, |by| by.idle_timeout = idle_timeout)).unwrap_err();
        assert!(error.to_string().contains("does not answer"), "{error}");
    });
}

#[test]
fn serve_once_serves_one_client_and_strangers_do_not_count() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 100_000)).unwrap();
        let server = Server::with(test, |options| options.once = true);
        let at = server.address;
        TcpStream::connect(at).unwrap().write_all(b"hello?\n").unwrap();
        let options = push(&test.here("f"), at, b"");
        run(test, &over(options.clone(), |by| by.token = token(2))).unwrap_err();
        run(test, &options).unwrap();
        server.join();
        assert_same(&test.here("f"), &test.there("f"));
        assert!(TcpStream::connect(at).is_err());
    });
}

#[test]
fn serve_once_ends_with_the_status_of_the_transfer() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 100_000)).unwrap();
        for (source, status) in [("here/f", 0), ("here/missing", 1)] {
            let (server, at) = Program::serve(test, "127.0.0.1:0", &["--once"]);
            let copy = Program::cp(test, &[source, &format!("lh://{at}/")]).end();
            assert_eq!(copy.status, Some(status), "{copy:?}");
            let served = server.end();
            assert_eq!(served.signal, None, "{served:?}");
            assert_eq!(served.status, Some(status), "{served:?}");
            assert_eq!(served.stderr.contains("not copied, first"), status == 1, "{served:?}");
        }
        fs::write(test.here("large"), noise(2, 40_000_000)).unwrap();
        let (server, at) = Program::serve(test, "127.0.0.1:0", &["--once"]);
        let client = Program::cp(test, &["--rate", "8Mbps", "here/large", &format!("lh://{at}/")]);
        until("a record", || record_len(&test.path("there")).filter(|len| *len > 0));
        client.signal(Signal::KILL);
        client.end();
        server.end().assert_failed("the transfer failed: ");
        assert!(!test.there("large").exists());
    });
}

#[test]
fn a_client_that_finds_no_memory_left_learns_that_the_server_is_busy() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 3_000_000)).unwrap();
        let memory = Some(MEMORY_LEAST);
        let server = Server::with(test, |options| options.memory = memory);
        let copying = Copying::start(test, slowly(push(&test.here("f"), server.address, b"f")));
        copying.moved(100_000);
        let second = push(&test.here("f"), server.address, b"g");
        let error = run(test, &second).unwrap_err();
        assert!(error.to_string().contains("the memory of this server is in use"), "{error}");
        copying.end().unwrap();
        server.outcome().unwrap();
        // One copy is no sooner done here than the next begins, and its memory there is not given back.
        for _ in 0..40 {
            run(test, &second).unwrap();
        }
        assert_same(&test.here("f"), &test.there("g"));
    });
}

#[test]
fn a_server_grants_only_what_is_allowed() {
    limited(|test| {
        fs::write(test.here("f"), b"x").unwrap();
        fs::write(test.there("g"), b"y").unwrap();
        for (allow_read, allow_write) in [(true, false), (false, true)] {
            let server = Server::with(test, |options| {
                (options.access[0].allow_read, options.access[0].allow_write) =
                    (allow_read, allow_write);
            });
            let pushed = run(test, &push(&test.here("f"), server.address, b"pushed"));
            let to = test.here("pulled");
            let pulled = run(test, &crate::server::pull(server.address, b"g", &to));
            for (result, allowed) in [(pushed, allow_write), (pulled, allow_read)] {
                match result {
                    Ok(_) => assert!(allowed),
                    Err(error) if error.kind == ErrorKind::Refused => assert!(!allowed),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
}
