//! Servers that hold the token and answer a listing or a comparison badly, and clients that ask for one so.

use std::time::Duration;

use crate::bytes::Bytes;
use crate::carrier::stream;
use crate::host::Host;
use crate::oracle::{BOUND, Victim, assert_nothing_beside, end};
use crate::peer::{Action, Peer, Received, WAYS};
use crate::program::{Ended, Program};
use crate::test::{Test, limited};
use longhaul_wire::{AnswerMessage, HashOutcome, Hashed, Message};

/// LIST.
fn ask(recursive: bool, path: &[u8]) -> Bytes {
    Bytes::new().varint(18).varint(recursive.into()).raw(path)
}

/// LISTED with one file of that path.
fn listed(path: &[u8]) -> Bytes {
    Bytes::new().varint(19).u8(1).u16(0o644).u64(0).varint(1).sized(path)
}

/// LIST_END.
fn list_end(listed: u64, unlisted: u64) -> Bytes {
    Bytes::new().varint(21).varint(listed).varint(unlisted)
}

/// Answers so once the message has come that `is_asked` means, ends its messages and hangs up.
fn answer(host: &Host, answers: Vec<Bytes>, is_asked: impl Fn(&Message) -> bool) {
    let mut peer = host.accept().unwrap();
    let deadline = std::time::Instant::now() + BOUND;
    while let Some(received) = peer.receive(deadline) {
        if matches!(&received, Received::Message(message) if is_asked(message)) {
            break;
        }
    }
    let sent: usize = answers.iter().map(|it| Bytes::new().sized(&it.0).0.len()).sum();
    answers.into_iter().for_each(|answer| peer.message(answer));
    peer.perform(Action::Frames(stream(0, sent as u64, true, &[])));
    let deadline = std::time::Instant::now() + Duration::from_secs(2);
    while let Some(received) = peer.receive(deadline) {
        if matches!(received, Received::Close(..) | Received::Ended) {
            break;
        }
    }
    peer.hang_up();
}

/// A listing with `words`, of a server that answers it so, ends its messages and hangs up.
fn list(test: &Test, words: &[&str], answers: Vec<Bytes>) -> Ended {
    list_at(test, words, "d", answers)
}

fn list_at(test: &Test, words: &[&str], path: &str, answers: Vec<Bytes>) -> Ended {
    let host = Host::new();
    let at = format!("lh://{}/{path}", host.address);
    let words = [&["ls", "--token-file", "token"][..], words, &[&at]].concat();
    let listing = Program::start(test, &words);
    answer(&host, answers, |message| match message {
        Message::List(request) => {
            assert_eq!(request.path, path.as_bytes());
            true
        }
        _ => false,
    });
    end(listing)
}

#[test]
fn a_server_whose_listing_makes_no_sense_fails() {
    limited(|test| {
        for answers in [
            vec![listed(b"../up"), list_end(1, 0)],
            vec![listed(b"/etc/passwd"), list_end(1, 0)],
            vec![listed(b"a//b"), list_end(1, 0)],
            vec![listed(b"a/../b"), list_end(1, 0)],
            vec![listed(b"."), list_end(1, 0)],
            vec![listed(b"a\0b"), list_end(1, 0)],
            vec![listed(b"a"), list_end(2, 0)],
            vec![listed(b"a"), list_end(1, 1)],
            vec![listed(b"a"), Bytes::new().varint(21)],
            // An answer of another request, and a request of its own.
            vec![Bytes::new().varint(3).varint(0).varint(0).varint(0)],
            vec![ask(true, b"")],
        ] {
            let ended = list(test, &["--json"], answers);
            assert_eq!(ended.status, Some(1), "{ended:?}");
            assert!(ended.json()["error"].is_string(), "{ended:?}");
            assert_nothing_beside(test.folder());
        }
    });
}

#[test]
fn a_server_lists_nothing_that_a_pattern_does_not_match() {
    limited(|test| {
        list_at(test, &[], "d/a*", vec![listed(b"ab"), list_end(1, 0)]).assert_succeeded();
        let unlisted = Bytes::new().varint(20).sized(b"b").u8(5).raw(b"no");
        for wrong in [listed(b"b"), listed(b""), listed(b"ab/c/d"), listed(b"d/ab")] {
            let ended = list_at(test, &["--json"], "d/a*", vec![wrong, list_end(1, 0)]);
            assert_eq!(ended.status, Some(1), "{ended:?}");
            assert!(ended.stderr.contains("the pattern does not match"), "{ended:?}");
        }
        let ended = list_at(test, &["-R"], "d/a*", vec![unlisted, list_end(0, 1)]);
        assert_eq!(ended.status, Some(1), "{ended:?}");
    });
}

/// LEFT with one copy of that state and path.
fn left(state: u8, path: &[u8]) -> Bytes {
    left_from(state, path, b"")
}

fn left_from(state: u8, path: &[u8], sources: &[u8]) -> Bytes {
    let figures = Bytes::new().varint(38).u8(state).varint(5).varint(100).varint(200);
    figures.sized(path).sized(sources)
}

const HIDDEN: &[u8] = b"d/.longhaul-0123456789abcdef0123456789abcdef";

#[test]
fn a_server_whose_interrupted_copies_make_no_sense_fails() {
    limited(|test| {
        let look = |answers: Vec<Bytes>| {
            let host = Host::new();
            let at = format!("lh://{}/d", host.address);
            let words = ["resume", "--json", "--token-file", "token", &at];
            let looking = Program::start(test, &words);
            let is_asked =
                |message: &Message| matches!(message, Message::Leftovers(it) if !it.discard);
            answer(&host, answers, is_asked);
            end(looking)
        };
        let right = look(vec![left(1, HIDDEN), left(2, HIDDEN), list_end(2, 0)]);
        assert_eq!((right.status, right.json()["copies"].as_array().unwrap().len()), (Some(0), 2));
        let one = left(1, HIDDEN).0[1..].repeat(1_000);
        let many = vec![Bytes::new().varint(38).raw(&one); 70];
        for answers in [
            vec![left(1, b"etc/passwd"), list_end(1, 0)],
            vec![left(1, b"../.longhaul-0123456789abcdef0123456789abcdef"), list_end(1, 0)],
            vec![left(4, HIDDEN), list_end(1, 0)],
            vec![left(1, HIDDEN), list_end(2, 0)],
            vec![left_from(1, HIDDEN, &[b'x'; 1_025]), list_end(1, 0)],
            vec![left(1, HIDDEN), left(1, b"")],
            vec![listed(b"a"), list_end(1, 0)],
            vec![Bytes::new().varint(37).varint(1).raw(b"d")],
            many,
        ] {
            let ended = look(answers);
            assert_eq!(ended.status, Some(1), "{ended:?}");
            assert!(ended.json()["error"].is_string(), "{ended:?}");
            assert_nothing_beside(test.folder());
        }
    });
}

/// VERIFY with the place `place`, and so many questions.
fn verify(place: &[u8], questions: &[(u8, &[u8])]) -> Bytes {
    let begin = Bytes::new().varint(28).varint(1).sized(place);
    questions.iter().fold(begin, |all, (kind, path)| all.u8(*kind).sized(path))
}

/// HASHED with that hash for question `question`.
fn hashed(question: u64, hash: [u8; 32]) -> Bytes {
    Bytes::new().varint(30).varint(question).u8(1).varint(3).raw(&hash)
}

/// A comparison of one file, `a`, at a server that answers it so, ends its messages and hangs up.
fn compare(test: &Test, answers: Vec<Bytes>) -> Ended {
    let host = Host::new();
    std::fs::write(test.folder().join("list"), format!("{}  a\n", "04".repeat(32))).unwrap();
    let at = format!("lh://{}/d", host.address);
    let words = ["verify", "--json", "--token-file", "token", "list", &at];
    let comparing = Program::start(test, &words);
    answer(
        &host,
        answers,
        |message| matches!(message, Message::Verify(request) if request.is_last),
    );
    end(comparing)
}

#[test]
fn a_server_whose_hashes_make_no_sense_fails() {
    limited(|test| {
        let (right, wrong) = (hashed(0, [4; 32]), hashed(0, [5; 32]));
        let failed = |kind: u8| Bytes::new().varint(30).varint(0).u8(kind);
        for answers in [
            vec![hashed(1, [4; 32]), list_end(1, 0)],
            vec![hashed(1 << 40, [4; 32]), list_end(1, 0)],
            vec![right.clone(), wrong.clone(), list_end(2, 0)],
            vec![right.clone(), list_end(0, 0)],
            vec![list_end(0, 0)],
            vec![failed(4), list_end(1, 0)],
            vec![failed(2).u8(4).varint(9), list_end(1, 0)],
            vec![right.clone(), listed(b"../up"), list_end(2, 0)],
            vec![verify(b"", &[(1, b"a")])],
        ] {
            let ended = compare(test, answers.clone());
            assert_eq!(ended.status, Some(1), "{answers:?}: {ended:?}");
            assert!(ended.json()["error"].is_string(), "{ended:?}");
        }
        let ended = compare(test, vec![wrong, listed(b"b\x1b[2J"), list_end(2, 0)]);
        assert_eq!(ended.json()["changed"]["count"], 1, "{ended:?}");
        assert_eq!(ended.json()["extra"]["count"], 1, "{ended:?}");
        assert!(!ended.stdout.contains('\x1b'), "{ended:?}");
        let ended = compare(test, vec![right, list_end(1, 0)]);
        assert_eq!(ended.status, Some(0), "{ended:?}");
    });
}

#[test]
fn a_client_has_nothing_hashed_from_outside_the_root() {
    limited(|test| {
        std::fs::create_dir(test.there("d")).unwrap();
        std::fs::write(test.there("d/f"), "f").unwrap();
        std::os::unix::fs::symlink("../../here", test.there("d/out")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", test.there("d/leaf")).unwrap();
        std::fs::create_dir(test.there("d/.longhaul-0123456789abcdef0123456789abcdef")).unwrap();
        let hidden = b".longhaul-0123456789abcdef0123456789abcdef/record";
        std::fs::write(test.there("d").join(std::str::from_utf8(hidden).unwrap()), "x").unwrap();
        std::fs::write(test.here("secret"), "secret").unwrap();
        let victim = Victim::start(test);
        for way in WAYS {
            for (place, name) in [
                (&b".."[..], &b"here/secret"[..]),
                (b"/etc", b"passwd"),
                (b"d/out", b"secret"),
                (b"d", b"out/secret"),
                (b"d", b"leaf"),
                (b"d", b"../../here/secret"),
                (b"d", b"/etc/passwd"),
                (b"d", hidden),
                (b"d/f", b""),
            ] {
                let mut peer = Peer::dial(victim.address, way).unwrap();
                peer.message(verify(place, &[(1, name), (2, b"out")]));
                let deadline = std::time::Instant::now() + Duration::from_secs(5);
                while let Some(received) = peer.receive(deadline) {
                    match received {
                        Received::Message(Message::Answer(AnswerMessage::Hashed(all))) => {
                            let failed = |it: &Hashed| matches!(it.outcome, HashOutcome::Failed(_));
                            assert!(all.iter().all(failed), "{name:?}: {all:?}");
                        }
                        Received::Message(Message::Answer(AnswerMessage::Listed(all))) => {
                            panic!("{name:?}: {all:?}");
                        }
                        Received::Message(Message::Refused(_) | Message::Answer(_))
                        | Received::Close(..)
                        | Received::Ended => break,
                        _ => {}
                    }
                }
                peer.hang_up();
            }
        }
        victim.assert_serves();
    });
}

#[test]
fn a_server_that_ends_within_a_listing_fails() {
    limited(|test| {
        for answers in [vec![], vec![listed(b"a"), listed(b"b")]] {
            let ended = list(test, &[], answers);
            assert_eq!(ended.status, Some(1), "{ended:?}");
        }
    });
}

#[test]
fn names_of_a_listing_steer_no_reader_of_json() {
    limited(|test| {
        let ended = list(test, &["--json"], vec![listed(b"a\x1b[2J\n\"}"), list_end(1, 0)]);
        let answer = ended.json();
        assert_eq!(answer["entries"].as_array().unwrap().len(), 1, "{ended:?}");
        assert!(!ended.stdout.contains('\x1b'), "{ended:?}");
        assert_eq!(ended.stdout.lines().count(), 1, "{ended:?}");
    });
}

#[test]
fn a_client_lists_nothing_from_outside_the_root() {
    limited(|test| {
        std::fs::write(test.there("f"), "f").unwrap();
        std::os::unix::fs::symlink("../here", test.there("out")).unwrap();
        let victim = Victim::start(test);
        for way in WAYS {
            for path in [&b".."[..], b"../here", b"/", b"/etc", b"out", b"f/..", b"out/../../here"]
            {
                let mut peer = Peer::dial(victim.address, way).unwrap();
                peer.message(ask(true, path));
                let deadline = std::time::Instant::now() + Duration::from_secs(5);
                let mut all = Vec::new();
                while let Some(received) = peer.receive(deadline) {
                    match received {
                        Received::Message(Message::Answer(AnswerMessage::Listed(some))) => {
                            all.extend(some.into_iter().map(|it| it.path.to_string()));
                        }
                        Received::Message(Message::Refused(_) | Message::Answer(_)) => break,
                        _ => {}
                    }
                }
                assert!(all.iter().all(|name| name == "f" || name == "out"), "{path:?}: {all:?}");
                peer.hang_up();
            }
        }
        victim.assert_serves();
    });
}
