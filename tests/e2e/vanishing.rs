//! Peers that are killed, and paths that go silent, at every step.

use std::fs;
use std::time::Duration;

use longhaul::{CarrierChoice, ErrorKind, Side};
use rustix::process::Signal;

use crate::program::{Ended, Program};
use crate::relay::Relay;
use crate::server::{Copying, Server, over, pull, push, slowly};
use crate::test::{Test, limited, until};
use crate::trees::{assert_nothing_half_done, assert_same, is_hidden, names, noise, record_len};

#[test]
fn a_killed_server_ends_a_push_which_then_goes_on() {
    limited(|test| killed(test, Victim::Server, true, "udp"));
}

#[test]
fn a_killed_server_ends_a_pull_which_then_goes_on() {
    limited(|test| killed(test, Victim::Server, false, "udp"));
}

#[test]
fn a_killed_client_ends_a_push_which_then_goes_on() {
    limited(|test| killed(test, Victim::Client, true, "udp"));
}

#[test]
fn a_killed_client_ends_a_pull_which_then_goes_on() {
    limited(|test| killed(test, Victim::Client, false, "udp"));
}

#[test]
fn tcp_copies_that_were_killed_go_on_too() {
    limited(|test| {
        for (victim, push) in [(Victim::Server, true), (Victim::Client, false)] {
            killed(test, victim, push, "tcp");
            fs::remove_file(test.here("f")).unwrap();
            fs::remove_file(test.there("f")).unwrap();
        }
    });
}

#[test]
fn small_files_of_a_directory_that_was_not_seen_yet_go_on_after_a_kill() {
    limited(|test| {
        fs::create_dir(test.here("tree")).unwrap();
        for number in 0..3000 {
            let file = test.here("tree").join(format!("f{number}"));
            fs::write(file, noise(number, 10_000)).unwrap();
        }
        let root = test.path("there");
        let (server, at) = Program::serve(test, &test.own_address(), &[]);
        let there = format!("lh://{at}/");
        let words = ["--carrier", "udp", "here/tree", &there];
        let client = Program::cp(test, &[SLOWLY, &words].concat());
        let first = until("a record", || record_len(&root).filter(|len| *len > 0));
        until("something durable", || record_len(&root).filter(|len| *len > first));
        server.signal(Signal::KILL);
        server.end();
        client.end().assert_failed("run the same command again");
        assert!(!test.there("tree").exists(), "it is not whole");

        let (server, _) = Program::serve(test, &at.to_string(), &[]);
        let again = Program::cp(test, &words).end();
        again.assert_succeeded();
        let json = again.json();
        assert!(json["resumed_bytes"].as_u64().unwrap() > 0, "{json}");
        assert_same(&test.here("tree"), &test.there("tree"));
        assert_eq!(names(&root), ["tree"]);
        server.signal(Signal::TERM);
        server.end().assert_succeeded();
    });
}

#[test]
fn a_client_killed_while_it_knocks_leaves_nothing() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 2_000_000)).unwrap();
        let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let there = format!("lh://{at}/");
        // Each dies a little later than the one before, the first before it has begun.
        for step in 0..12u64 {
            let client = Program::cp(test, &["here/f", &there]);
            std::thread::sleep(Duration::from_millis(step * 4));
            client.signal(Signal::KILL);
            client.end();
            assert_nothing_half_done(&test.path("here"), &test.path("there"));
        }
        until("the last one is given up", || {
            let copy = Program::cp(test, &["here/f", &there]).end();
            match copy.status {
                Some(0) => Some(()),
                _ => {
                    assert!(copy.stderr.contains("under way already"), "{copy:?}");
                    None
                }
            }
        });
        assert_same(&test.here("f"), &test.there("f"));
        // The server may come to one of the killed only now, and ends it when it finds nobody there.
        until("nothing is left of the others", || {
            (names(&test.path("there")) == ["f"]).then_some(())
        });
        server.signal(Signal::TERM);
        server.end().assert_succeeded();
    });
}

#[test]
fn a_cut_path_is_noticed_by_both_ends_within_the_idle_timeout() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 30_000_000)).unwrap();
        fs::write(test.there("g"), noise(2, 30_000_000)).unwrap();
        std::thread::scope(|scope| {
            for carrier in [CarrierChoice::Udp, CarrierChoice::Tcp] {
                for pushed in [true, false] {
                    scope.spawn(move || cut(test, carrier, pushed));
                }
            }
        });
    });
}

#[test]
fn a_destination_directory_that_is_exchanged_fails_the_copy() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 4_000_000)).unwrap();
        fs::write(test.there("g"), noise(2, 4_000_000)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        for (words, into) in [
            (["here/f", &format!("lh://{at}/into/")], test.there("into")),
            ([&format!("lh://{at}/g"), "here/into/"], test.here("into")),
        ] {
            let copy = Program::cp(test, &[SLOWLY, &words].concat());
            until("it has begun", || fs::read_dir(&into).ok()?.next().map(drop));
            fs::rename(&into, into.with_extension("moved")).unwrap();
            fs::create_dir(&into).unwrap();
            copy.end().assert_failed("into was moved or replaced during the copy");
            assert_eq!(names(&into), [""; 0]);
        }
    });
}

/// Cuts the path of a copy that moves.
fn cut(test: &Test, carrier: CarrierChoice, pushed: bool) {
    // Longer than a busy machine keeps quiet.
    let idle_timeout = Duration::from_secs(6);
    let server = Server::with(test, |options| options.idle_timeout = idle_timeout);
    let relay = Relay::paced(server.address, 60_000_000);
    let name = format!("of {carrier:?}");
    let options = match pushed {
        true => push(&test.here("f"), relay.address, name.as_bytes()),
        false => pull(relay.address, b"g", &test.here(&name)),
    };
    let options =
        over(slowly(options), |by| (by.carrier, by.idle_timeout) = (carrier, idle_timeout));
    let copying = Copying::start(test, options);
    copying.moved(1_000_000);
    relay.cut();
    let error = copying.end().unwrap_err();
    let text = error.to_string();
    assert_eq!((error.kind, error.side), (ErrorKind::Lost, Side::Between), "{error}");
    assert!(text.contains("run the same command again"), "{text}");
    let reason = server.outcome().unwrap_err();
    for text in [text, reason] {
        assert!(text.contains("nothing was heard from the peer for 6 s"), "{text}");
    }
    assert!(!test.there(&name).exists() && !test.here(&name).exists());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Server,
    Client,
}

/// Kills one end of a copy that moves, expects the other to report it, and runs the copy again.
fn killed(test: &Test, victim: Victim, push: bool, carrier: &str) {
    let (source, copy) = match push {
        true => (test.here("f"), test.there("f")),
        false => (test.there("f"), test.here("f")),
    };
    let root = copy.parent().unwrap();
    fs::write(&source, noise(1, 40_000_000)).unwrap();
    let (server, at) = Program::serve(test, &test.own_address(), &[]);
    // Names are as they were, so that the second run knows the first: a relay keeps the port.
    let relay = Relay::paced(at, 100_000_000);
    let there = format!("lh://{}/f", relay.address);
    let paths = if push { ["here/f", &there] } else { [&there, "here/f"] };
    let words = [&["--carrier", carrier][..], &paths].concat();
    let client = Program::cp(test, &[SLOWLY, &words].concat());
    let first = until("a record", || record_len(root).filter(|len| *len > 0));
    until("something durable", || record_len(root).filter(|len| *len > first));

    let (server, listen) = match victim {
        Victim::Server => {
            server.signal(Signal::KILL);
            server.end();
            let ended: Ended = client.end();
            ended.assert_failed("run the same command again");
            assert_eq!(ended.json()["verified"], false);
            (None, at.to_string())
        }
        Victim::Client => {
            client.signal(Signal::KILL);
            client.end();
            let mut server = server;
            server.prints("failed:");
            (Some(server), at.to_string())
        }
    };
    assert!(!copy.exists(), "half of it stands under its name");
    assert!(names(root).iter().any(|name| is_hidden(name)), "nothing is kept");

    let server = server.unwrap_or_else(|| Program::serve(test, &listen, &[]).0);
    let again = Program::cp(test, &words).end();
    again.assert_succeeded();
    let json = again.json();
    assert_eq!(json["verified"], true, "{json}");
    assert!(json["resumed_bytes"].as_u64().unwrap() > 0, "{json}");
    assert_same(&source, &copy);
    assert_eq!(names(root), ["f"]);
    server.signal(Signal::TERM);
    server.end().assert_succeeded();
}

/// Half a minute and more for what is copied here: it is under way when it is killed, however late a
/// busy disk lets a part of it be durable.
const SLOWLY: &[&str] = &["--rate", "8Mbps"];
