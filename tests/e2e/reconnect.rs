//! A copy goes on by itself where its connection was lost.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::program::{Ended, Program};
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

/// A copy of `here/file` to `copy` with these words, whose server gets `signal` once something of the copy is
/// durable, and the address at which that was.
fn interrupted<'t>(test: &'t Test, words: &[&str], signal: Signal) -> (Program<'t>, SocketAddr) {
    fs::write(test.here("file"), noise(1, 30_000_000)).unwrap();
    let _ = fs::remove_file(test.there("copy"));
    let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
    let to = format!("lh://{at}/copy");
    let copying = cp(test, &[words, &["here/file", &to]].concat());
    until("a record", || record_len(&test.path("there")).filter(|len| *len > 0));
    server.signal(signal);
    server.end();
    (copying, at)
}

#[test]
fn a_server_that_is_killed_and_started_again_costs_a_moment() {
    limited(|test| {
        for (carrier, signal) in [("tcp", Signal::KILL), ("udp", Signal::TERM)] {
            let words = ["--carrier", carrier, "--manifest", "list"];
            let (copying, at) = interrupted(test, &words, signal);
            let _server = again(test, at, "token");
            let ended = copying.end();
            ended.assert_succeeded();
            assert_same(&test.here("file"), &test.there("copy"));
            let report = ended.json();
            assert!(report["reconnects"].as_u64() > Some(0), "{report}");
            assert_eq!(
                report["resumed_bytes"], 0,
                "nothing was there before this command: {report}"
            );
            let notices = report["notices"].to_string();
            assert!(notices.contains("; dialling again"), "{report}");
            let hash = blake3::hash(&noise(1, 30_000_000)).to_hex();
            let list = fs::read_to_string(test.path("list")).unwrap();
            assert_eq!(list, format!("{hash}  copy\n"), "hashed over both connections");
        }
    });
}

#[test]
fn counts_and_names_are_those_of_all_connections_of_a_command() {
    limited(|test| {
        for pushes in [true, false] {
            let name = format!("tree{pushes}");
            let (here, there) = (test.here(&name), test.there(&name));
            let (from, to) = if pushes { (&here, &there) } else { (&there, &here) };
            fs::create_dir_all(from).unwrap();
            let make = |letter: &str, count: u64| {
                for number in 0..count {
                    fs::write(from.join(format!("{letter}{number:03}")), noise(number, 60_000))
                        .unwrap();
                }
            };
            let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
            let remote = format!("lh://{at}/{name}");
            let local = format!("here/{name}");
            let words = match pushes {
                true => [local, format!("lh://{at}/")],
                false => [remote, "here/".into()],
            };
            let words = words.each_ref().map(String::as_str);
            let fixed = ["cp", "-v", "--token-file", "token", "--rate", "60Mbps"];
            let copy = || Program::start(test, &[&fixed[..], &words].concat());
            make("a", 50);
            copy().end().assert_succeeded();
            make("b", 400);
            let copying = copy();
            let there_now = || fs::read_dir(to).unwrap().count();
            until("some are there", || (there_now() > 50 + 20).then_some(()));
            server.signal(Signal::KILL);
            server.end();
            let _server = again(test, at, "token");
            let ended = copying.end();
            ended.assert_succeeded();
            assert!(ended.stderr.contains("; dialling again"), "{ended:?}");
            assert_same(from, to);
            let mut named: Vec<&str> =
                ended.stdout.lines().filter(|line| !line.ends_with('/')).collect();
            named.sort_unstable();
            let expected: Vec<String> =
                (0..400).map(|number| format!("{name}/b{number:03}")).collect();
            assert_eq!(named, expected, "{ended:?}");
            assert!(ended.stderr.contains("; 51 entries unchanged"), "{ended:?}");
            assert!(ended.stderr.contains("24.0 MB in 400 entries"), "{ended:?}");
        }
    });
}

#[test]
fn what_cannot_get_better_is_not_tried_again() {
    limited(|test| {
        let words = ["--carrier", "tcp", "--retry", "1h"];
        let (copying, at) = interrupted(test, &words, Signal::KILL);
        fs::write(test.path("other"), crate::test::token(2).to_string()).unwrap();
        let _server = again(test, at, "other");
        let ended = copying.end();
        assert_eq!(ended.status, Some(1), "{ended:?}");
    });
}

#[test]
fn a_server_that_stays_away_is_given_up() {
    limited(|test| {
        let words = ["--carrier", "tcp", "--retry", "2s"];
        let (copying, _) = interrupted(test, &words, Signal::KILL);
        let ended = copying.end();
        ended.assert_failed("cannot connect to");
        assert!(ended.stderr.contains("; dialling again"), "{ended:?}");
    });
}

#[test]
fn a_signal_while_it_dials_again_ends_it_and_says_what_is_kept() {
    limited(|test| {
        let (mut copying, _) = interrupted(test, &["--carrier", "tcp"], Signal::KILL);
        copying.prints("; dialling again");
        copying.signal(Signal::INT);
        let ended = copying.end();
        ended.assert_failed("stopped; what was written is kept");
        assert!(ended.json()["bytes_done"].as_u64() > Some(0), "{ended:?}");
    });
}

/// The same copy twice at the same time, over the carrier of choice: how both ended.
fn twice(test: &Test, retry: &str, pushes: bool) -> [Ended; 2] {
    let name = format!("file{retry}{pushes}");
    let (source, place) = match pushes {
        true => (test.here(&name), "there"),
        false => (test.there(&name), "here"),
    };
    fs::write(&source, noise(1, 12_000_000)).unwrap();
    let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
    let words = match pushes {
        true => [format!("here/{name}"), format!("lh://{at}/copy{name}")],
        false => [format!("lh://{at}/{name}"), format!("here/copy{name}")],
    };
    let words = words.each_ref().map(String::as_str);
    let fixed = ["cp", "--json", "--token-file", "token", "--rate", "20Mbps"];
    let first = Program::start(test, &[&fixed[..], &words].concat());
    until("a record", || record_len(&test.path(place)).filter(|len| *len > 0));
    let second = Program::start(test, &[&fixed[..], &["--retry", retry], &words].concat());
    let ends = [first.end(), second.end()];
    ends[0].assert_succeeded();
    assert_same(&source, &test.path(place).join(format!("copy{name}")));
    ends
}

#[test]
fn a_copy_that_is_under_way_already_is_waited_for_over_udp() {
    limited(|test| {
        for pushes in [true, false] {
            let [_, second] = twice(test, "1m", pushes);
            second.assert_succeeded();
            let report = second.json();
            assert_eq!(report["carrier"], "udp", "{report}");
            assert_eq!(report["unchanged"]["files"], 1, "{report}");
            let notices = report["notices"].to_string();
            assert!(notices.contains("the same copy is under way already"), "{report}");
            assert!(notices.contains("; trying again"), "{report}");
            assert!(!notices.contains("UDP"), "{report}");
        }
    });
}

#[test]
fn without_patience_a_copy_that_is_under_way_already_is_one_sentence() {
    limited(|test| {
        for pushes in [true, false] {
            let [_, second] = twice(test, "0", pushes);
            second.assert_failed("the same command goes on from there once it has ended");
            assert!(!second.stderr.contains("UDP"), "{second:?}");
        }
    });
}
