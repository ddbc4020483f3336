//! Servers that hold the token and answer a listing badly, and clients that ask for one so.

use std::time::Duration;

use crate::bytes::Bytes;
use crate::carrier::stream;
use crate::host::Host;
use crate::oracle::{BOUND, Victim, assert_nothing_beside, end};
use crate::peer::{Action, Peer, Received, WAYS};
use crate::program::{Ended, Program};
use crate::test::{Test, limited};
use longhaul_wire::{AnswerMessage, Message};

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

/// A listing with `words`, of a server that answers it so, ends its messages and hangs up.
fn list(test: &Test, words: &[&str], answers: Vec<Bytes>) -> Ended {
    let host = Host::new();
    let at = format!("lh://{}/d", host.address);
    let words = [&["ls", "--token-file", "token"][..], words, &[&at]].concat();
    let listing = Program::start(test, &words);
    let mut peer = host.accept().unwrap();
    let deadline = std::time::Instant::now() + BOUND;
    while let Some(received) = peer.receive(deadline) {
        if let Received::Message(Message::List(request)) = received {
            assert_eq!(request.path, b"d");
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
    end(listing)
}

#[test]
fn a_server_whose_listing_makes_no_sense_fails() {
    limited(|test| {
        for answers in [
            vec![listed(b"../up"), list_end(1, 0)],
            vec![listed(b"/etc/passwd"), list_end(1, 0)],
            vec![listed(b"a//b"), list_end(1, 0)],
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
