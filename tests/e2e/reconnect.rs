//! A copy goes on by itself where its connection was lost.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::program::Program;
use crate::test::{Test, limited, until};
use crate::trees::{assert_same, noise, record_len};

fn cp<'t>(test: &'t Test, words: &[&str]) -> Program<'t> {
    let fixed = ["cp", "--json", "--token-file", "token", "--rate", "80Mbps"];
    Program::start(test, &[&fixed[..], words].concat())
}

/// A server of `there` that knows these tokens, at the address of the one before.
fn again<'t>(test: &'t Test, at: SocketAddr, tokens: &str) -> Program<'t> {
    let listen = at.to_string();
    let words = ["serve", "--listen", &listen, "--root", "there", "--token-file", tokens];
    for _ in 0..100 {
        let mut server = Program::start(test, &words);
        if server.prints_or_ends("listening on ") {
            return server;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the port is not free");
}

#[test]
fn a_server_that_is_killed_and_started_again_costs_a_moment() {
    limited(|test| {
        fs::write(test.here("file"), noise(1, 30_000_000)).unwrap();
        for (carrier, signal) in [("tcp", Signal::KILL), ("udp", Signal::TERM)] {
            let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
            let name = format!("copy-{carrier}");
            let to = format!("lh://{at}/{name}");
            let copying = cp(test, &["--carrier", carrier, "here/file", &to]);
            let moved = || record_len(&test.path("there")).filter(|len| *len > 0);
            until("a record", moved);
            server.signal(signal);
            server.end();
            let _server = again(test, at, "token");
            let ended = copying.end();
            ended.assert_succeeded();
            assert_same(&test.here("file"), &test.there(&name));
            let report = ended.json();
            assert!(report["reconnects"].as_u64() > Some(0), "{report}");
            assert_eq!(
                report["resumed_bytes"], 0,
                "nothing was there before this command: {report}"
            );
            let notices = report["notices"].to_string();
            assert!(notices.contains("; dialling again"), "{report}");
        }
    });
}

#[test]
fn what_cannot_get_better_is_not_tried_again() {
    limited(|test| {
        fs::write(test.here("file"), noise(1, 30_000_000)).unwrap();
        let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let to = format!("lh://{at}/copy");
        let copying = cp(test, &["--carrier", "tcp", "--retry", "1h", "here/file", &to]);
        until("a record", || record_len(&test.path("there")).filter(|len| *len > 0));
        server.signal(Signal::KILL);
        server.end();
        fs::write(test.path("other"), crate::test::token(2).to_string()).unwrap();
        let _server = again(test, at, "other");
        let ended = copying.end();
        assert_eq!(ended.status, Some(1), "{ended:?}");
    });
}

#[test]
fn a_server_that_stays_away_is_given_up() {
    limited(|test| {
        fs::write(test.here("file"), noise(1, 30_000_000)).unwrap();
        let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let to = format!("lh://{at}/copy");
        let copying = cp(test, &["--carrier", "tcp", "--retry", "2s", "here/file", &to]);
        until("a record", || record_len(&test.path("there")).filter(|len| *len > 0));
        server.signal(Signal::KILL);
        server.end();
        let ended = copying.end();
        ended.assert_failed("cannot connect to");
        assert!(ended.stderr.contains("; dialling again"), "{ended:?}");
    });
}

#[test]
fn a_signal_while_it_dials_again_ends_it_and_says_what_is_kept() {
    limited(|test| {
        fs::write(test.here("file"), noise(1, 30_000_000)).unwrap();
        let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let to = format!("lh://{at}/copy");
        let mut copying = cp(test, &["--carrier", "tcp", "here/file", &to]);
        until("a record", || record_len(&test.path("there")).filter(|len| *len > 0));
        server.signal(Signal::KILL);
        server.end();
        copying.prints("; dialling again");
        copying.signal(Signal::INT);
        let ended = copying.end();
        ended.assert_failed("stopped; what was written is kept");
        assert!(ended.json()["bytes_done"].as_u64() > Some(0), "{ended:?}");
    });
}
