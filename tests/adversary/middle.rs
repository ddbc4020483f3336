//! An attacker between the ends who holds no token: every byte of both carriers is his to change.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use longhaul_wire::{Carrier, Protect};

use crate::honest::copy;
use crate::oracle::{STALL, Victim, assert_only, end};
use crate::peer::{WAYS, Way};
use crate::program::Program;
use crate::relay::{self, Relay, StreamTaps, Tap};
use crate::test::{Test, limited};
use crate::trees::{assert_same, noise};

/// Copies `f` through `relay` to the server and to here; what is there afterwards is right, or the
/// status says that it is not.
pub fn copy_through(test: &Test, way: Way, relay: &Relay, pull: bool) -> Option<i32> {
    let (from, to) = if pull {
        (format!("lh://{}/f", relay.address), "here/copy".to_owned())
    } else {
        ("here/f".to_owned(), format!("lh://{}/copy", relay.address))
    };
    let ended = end(copy(test, way, &[&from, &to]));
    let (source, copied) = if pull {
        (test.there("f"), test.here("copy"))
    } else {
        (test.here("f"), test.there("copy"))
    };
    if ended.status == Some(0) || copied.exists() {
        assert_same(&source, &copied);
    }
    if copied.exists() {
        fs::remove_file(&copied).unwrap();
    }
    ended.status
}

/// Leaves bytes `left_out` of the first data connection out, in this direction.
fn leaving_out(towards: relay::Way, left_out: std::ops::Range<usize>) -> StreamTaps {
    Box::new(move |connection, way| {
        let (mut passed, left_out) = (0, left_out.clone());
        let hit = connection == 1 && way == towards;
        Box::new(move |bytes| {
            let places = passed..passed + bytes.len();
            passed = places.end;
            let kept = |place: &usize| !(hit && left_out.contains(place));
            Some(
                places.zip(bytes).filter(|(place, _)| kept(place)).map(|(_, byte)| *byte).collect(),
            )
        })
    })
}

/// Lets every datagram through.
pub fn untouched() -> Tap {
    Box::new(|_, datagram| vec![datagram.to_vec()])
}

/// Changes byte `at` of each connection, in both directions.
fn flip(at: usize, connections: std::ops::Range<usize>) -> StreamTaps {
    Box::new(move |connection, _| {
        let mut passed = 0;
        let hit = connections.contains(&connection);
        Box::new(move |bytes| {
            let mut bytes = bytes.to_vec();
            if hit && (passed..passed + bytes.len()).contains(&at) {
                bytes[at - passed] ^= 0x20;
            }
            passed += bytes.len();
            Some(bytes)
        })
    })
}

#[test]
fn bytes_changed_in_any_connection_are_never_taken() {
    // Some copies are over only when what stands still is given up.
    let work = |way| {
        limited(move |test| {
            fs::write(test.here("f"), noise(1, 300_000)).unwrap();
            fs::copy(test.here("f"), test.there("f")).unwrap();
            let victim = Victim::start(test);
            for (at, connection) in [(3, 0), (40, 0), (700, 0), (60, 1), (150, 1), (90_000, 1)] {
                let taps = flip(at, connection..connection + 1);
                let relay = Relay::altering(victim.address, untouched(), taps);
                copy_through(test, way, &relay, at % 4 == 0);
            }
            assert_only(&test.path("there"), &["f"]);
            victim.assert_serves();
        });
    };
    thread::scope(|scope| {
        let threads: Vec<_> = WAYS.map(|way| scope.spawn(move || work(way))).into();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn datagrams_changed_cut_repeated_and_reflected_are_never_taken() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 400_000)).unwrap();
        fs::copy(test.here("f"), test.there("f")).unwrap();
        let victim = Victim::start(test);
        for way in WAYS.into_iter().filter(|way| way.carried == Carrier::Udp) {
            for pull in [false, true] {
                let count = AtomicUsize::new(0);
                let mut other: Option<Vec<u8>> = None;
                let tap: Tap = Box::new(move |_, datagram| {
                    let count = count.fetch_add(1, Ordering::Relaxed);
                    let mut changed = datagram.to_vec();
                    let place = count * 31 % changed.len();
                    changed[place] ^= 1 << (count % 8);
                    let mut passed = vec![datagram.to_vec()];
                    match count % 7 {
                        0 => passed.insert(0, changed),
                        1 => passed.insert(0, datagram[..place].to_vec()),
                        2 => passed.push(datagram.to_vec()),
                        3 => passed.extend(other.replace(datagram.to_vec())),
                        _ => {}
                    }
                    passed
                });
                let relay = Relay::tapped(victim.address, tap);
                let status = copy_through(test, way, &relay, pull);
                // In `clear` who changes payload again and again can end a copy.
                let ended = way.protect == Protect::Clear && status == Some(1);
                assert!(status == Some(0) || ended, "{way:?}: {status:?}");
            }
        }
        victim.assert_serves();
    });
}

/// If enough follows, the next record does not authenticate. Behind the last bytes of the data only
/// reports follow: both ends talk, and nothing moves.
#[test]
fn a_piece_left_out_of_a_bare_connection_ends_the_copy() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 300_000)).unwrap();
        fs::copy(test.here("f"), test.there("f")).unwrap();
        let victim = Victim::start(test);
        for (towards, from, to) in
            [(relay::Way::ToServer, "here/f", "copy"), (relay::Way::ToClient, "f", "here/copy")]
        {
            for (left_out, reason) in [
                (90_000..91_000, "altered on the way"),
                (280_000..290_000, "nothing has moved for 3 s"),
            ] {
                let taps = leaving_out(towards, left_out);
                let relay = Relay::altering(victim.address, untouched(), taps);
                let remote = |path| format!("lh://{}/{path}", relay.address);
                let (from, to) = match towards {
                    relay::Way::ToServer => (from.to_owned(), remote(to)),
                    relay::Way::ToClient => (remote(from), to.to_owned()),
                };
                let way = ["--protect", "clear", "--carrier", "tcp", "--stall-timeout", "3"];
                let ended = end(Program::cp(test, &[&way[..], &[&from, &to]].concat()));
                ended.assert_failed(reason);
                ended.assert_failed("run the same command again");
            }
        }
        assert!(!test.there("copy").exists() && !test.here("copy").exists());
        victim.assert_serves();
    });
}

#[test]
fn a_server_without_the_token_is_not_believed() {
    limited(|test| {
        fs::write(test.here("f"), b"secret").unwrap();
        let other = crate::test::token(2).to_string();
        fs::write(test.path("other"), other).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(test.path("other"), private).unwrap();
        let victim = Victim::start(test);
        let to = format!("lh://{}/", victim.address);
        let words = ["cp", "--json", "--token-file", "other", "here/f", &to];
        end(Program::start(test, &words)).assert_failed("token");
        assert_only(&test.path("there"), &[]);
        victim.assert_serves();
    });
}

#[test]
fn an_attacker_that_swallows_datagrams_gains_nothing_by_the_fallback() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 300_000)).unwrap();
        let victim = Victim::start(test);
        for (protect, at) in [("clear", 2_000), ("clear", 150), ("aead", 2_000)] {
            let taps = flip(at, 1..9);
            let relay = Relay::altering(victim.address, Box::new(|_, _| Vec::new()), taps);
            let to = format!("lh://{}/copy", relay.address);
            let ended = end(Program::cp(
                test,
                &[&["--protect", protect, "here/f", &to][..], &STALL].concat(),
            ));
            if ended.status == Some(0) || test.there("copy").exists() {
                assert_same(&test.here("f"), &test.there("copy"));
                fs::remove_file(test.there("copy")).unwrap();
            }
        }
        victim.assert_serves();
    });
}
