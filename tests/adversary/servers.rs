//! Servers that hold the token and use it badly against who copies from or to them.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::carrier::stream;
use crate::honest::{await_request, copy};
use crate::host::Host;
use crate::oracle::{BOUND, assert_nothing_beside, assert_only, end};
use crate::peer::{Action, Peer, Tamper, WAYS, Way, control_message};
use crate::program::Ended;
use crate::script::{Item, manifest, manifest_end, result, sink, source};
use crate::test::{Test, limited};
use crate::trees::{names, noise};

/// A pull of `f` into `here`, against a server that offers `items`.
fn pull(test: &Test, way: Way, items: &[Item], prepare: impl FnOnce(&mut Peer)) -> Ended {
    pull_to(test, "here", way, items, prepare)
}

/// A pull of `f` to `to`, against a server that offers `items`.
fn pull_to(
    test: &Test,
    to: &str,
    way: Way,
    items: &[Item],
    prepare: impl FnOnce(&mut Peer),
) -> Ended {
    let host = Host::new();
    let copying = copy(test, way, &[&format!("lh://{}/f", host.address), to]);
    let mut peer = host.accept().unwrap();
    await_request(&mut peer);
    prepare(&mut peer);
    source(&mut peer, items, BOUND);
    peer.hang_up();
    end(copying)
}

#[test]
fn a_server_cannot_choose_the_names_of_a_pull() {
    limited(|test| {
        let file = |path: &[u8]| Item::file(path, b"evil");
        let offers = [
            vec![file(b".bashrc")],
            vec![Item::directory(b".ssh"), file(b".ssh/authorized_keys")],
            vec![file(b"f"), file(b"g")],
            vec![file(b"../f")],
            vec![file(b"f/../../g")],
            vec![Item::link(b"g", b"..")],
            vec![Item::link(b"f", b".."), file(b"f/g")],
            vec![Item::directory(b"f"), Item::link(b"f/up", b"../.."), file(b"f/up/g")],
        ];
        // The file that was asked for arrives, so it is the names that the others fail by.
        pull(test, WAYS[0], &[file(b"f")], |_| {}).assert_succeeded();
        fs::remove_file(test.here("f")).unwrap();
        for offer in offers {
            let ended = pull(test, WAYS[0], &offer, |_| {});
            assert_eq!(ended.status, Some(1), "{offer:?}: {ended:?}");
            assert_only(&test.path("here"), &["f"]);
            assert_nothing_beside(test.folder());
        }
    });
}

#[test]
fn a_server_that_is_sent_a_list_cannot_send_what_is_not_on_it() {
    limited(|test| {
        fs::write(test.there("list"), "d/f\ne\n").unwrap();
        fs::create_dir(test.here("d")).unwrap();
        fs::write(test.here("d/g"), "mine").unwrap();
        let top = || vec![Item::directory(b"")];
        let with = |more: Vec<Item>| top().into_iter().chain(more).collect::<Vec<_>>();
        let directory = |path: &[u8]| Item { mode: 0o755, ..Item::directory(path) };
        let file = |path: &[u8]| Item::file(path, b"evil");
        for (offer, status) in [
            (with(vec![directory(b"d"), file(b"d/f"), directory(b"e"), file(b"e/any")]), 0),
            (with(vec![file(b".bashrc")]), 1),
            (with(vec![directory(b"d"), file(b"d/g")]), 1),
            (with(vec![file(b"e-f")]), 1),
            (vec![Item::link(b"", b"..")], 1),
            // A directory above a name stays one.
            (with(vec![file(b"d"), file(b"e")]), 1),
            (with(vec![Item::link(b"d", b".."), file(b"e")]), 1),
            (with(vec![Item::link(b"d", b".."), file(b"d/f")]), 1),
            (with(vec![]), 1),
        ] {
            let host = Host::new();
            let from = format!("lh://{}/top", host.address);
            let copying = copy(test, WAYS[0], &["--files-from", "there/list", &from, "here"]);
            let mut peer = host.accept().unwrap();
            await_request(&mut peer);
            source(&mut peer, &offer, BOUND);
            peer.hang_up();
            let ended = end(copying);
            assert_eq!(ended.status, Some(status), "{offer:?}: {ended:?}");
            assert!(test.here("d").symlink_metadata().unwrap().is_dir(), "{offer:?}");
            assert_eq!(fs::read(test.here("d/g")).unwrap(), b"mine", "{offer:?}");
            assert_only(&test.path("here"), &["d", "e"]);
            assert_nothing_beside(test.folder());
            let _ = fs::remove_file(test.here("d/f"));
            let _ = fs::remove_file(test.here("e"));
            let _ = fs::remove_dir_all(test.here("e"));
        }
    });
}

#[test]
fn a_server_that_says_nothing_of_a_source_fails_by_its_name() {
    limited(|test| {
        for way in [WAYS[0], WAYS[3]] {
            let ended = pull(test, way, &[], |_| {});
            assert_eq!(ended.status, Some(1), "{ended:?}");
            assert!(
                ended.stderr.contains("f: the server has announced neither it nor a failure"),
                "{ended:?}"
            );
            let ended = pull_to(test, "here/new", way, &[], |_| {});
            assert_eq!(ended.status, Some(1), "{ended:?}");
            // Of two it offers one.
            let host = Host::new();
            let [f, g] = ["f", "g"].map(|name| format!("lh://{}/{name}", host.address));
            let copying = copy(test, way, &[&f, &g, "here"]);
            let mut peer = host.accept().unwrap();
            await_request(&mut peer);
            source(&mut peer, &[Item::file(b"f", b"offered")], BOUND);
            peer.hang_up();
            let ended = end(copying);
            assert_eq!(ended.status, Some(1), "{ended:?}");
            assert!(
                format!("{ended:?}").contains("the server has announced neither it nor a failure"),
                "{ended:?}"
            );
            assert!(!format!("{ended:?}").contains("verified\\\":true"), "{ended:?}");
            assert_eq!(fs::read(test.here("f")).unwrap(), b"offered");
            fs::remove_file(test.here("f")).unwrap();
        }
    });
}

#[test]
fn a_server_that_sends_other_bytes_than_it_hashed_fails() {
    limited(|test| {
        for way in WAYS {
            let items = [Item::file(b"f", &noise(1, 200_000))];
            let ended = pull(test, way, &items, |peer| {
                peer.tamper = Some(Box::new(|action| match action {
                    Action::Object { object, offset, mut payload } => {
                        payload[0] ^= 1;
                        vec![Action::Object { object, offset, payload }]
                    }
                    other => vec![other],
                }));
            });
            assert_eq!(ended.status, Some(1), "{way:?}: {ended:?}");
            assert_only(&test.path("here"), &[]);
        }
    });
}

#[test]
fn a_server_that_hangs_up_at_any_step_fails() {
    limited(|test| {
        for (step, way) in (0..6).zip(WAYS) {
            let items = [Item::file(b"f", &noise(1, 120_000))];
            let mut actions = 0;
            let ended = pull(test, way, &items, |peer| {
                peer.tamper = Some(Box::new(move |action| {
                    actions += 1;
                    if actions > step { vec![Action::HangUp] } else { vec![action] }
                }));
            });
            // Its actions: manifest, its end, three pieces, hashes, the end.
            assert_eq!(ended.status, Some(1), "{way:?}: {ended:?}");
            assert!(names(&test.path("here")).iter().all(|name| name != "f"));
        }
    });
}

#[test]
fn a_server_that_confirms_what_it_never_took_is_not_believed() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 300_000)).unwrap();
        for way in WAYS {
            let host = Host::new();
            let to = format!("lh://{}/", host.address);
            let copying = copy(test, way, &["here/f", &to]);
            let attack = thread::spawn(move || {
                let mut peer = host.accept().unwrap();
                await_request(&mut peer);
                peer.message(Bytes::new().varint(9).varint(0).varint(1));
                peer.message(result(1, 0, 300_000));
                sink(&mut peer, Duration::from_secs(2));
                peer.hang_up();
            });
            let ended = end(copying);
            attack.join().unwrap();
            assert_eq!(ended.status, Some(1), "{way:?}: {ended:?}");
        }
    });
}

/// Attacks of a server on the pull of a file of [`SIZE`] bytes, each by its lengths and counts.
fn lengths() -> Vec<(&'static str, Tamper)> {
    let mut attacks = vec![
        ("short-and-silent", cut(|_| Vec::new())),
        // The end of stream 0 behind the hashes, as a source has it when all is confirmed.
        ("short-and-done", cut(|sent_to| vec![Action::Frames(stream(0, sent_to, true, &[]))])),
        (
            "short-and-closed",
            cut(|_| {
                let done = Bytes::new().u16(0);
                vec![Action::Pause(A_WHILE), Action::Control(control_message(3, &done.0))]
            }),
        ),
        ("behind-the-end", beyond(|size, piece| (size, piece))),
        ("across-the-end", beyond(|size, piece| (size - 10, piece))),
        ("far-behind-the-end", beyond(|size, piece| (size + (7 << 20), piece))),
    ];
    let end = |entries, objects, bytes| {
        Bytes::new().varint(3).varint(entries).varint(objects).varint(bytes).0
    };
    let size = SIZE as u64;
    let huge = (1 << 62) - 1;
    let ends = [
        ("end-of-none", vec![end(0, 0, 0)]),
        ("end-of-more-entries", vec![end(2, 1, size)]),
        ("end-of-less-entries", vec![end(0, 1, size)]),
        ("end-of-more-objects", vec![end(1, 2, size)]),
        ("end-of-no-objects", vec![end(1, 0, size)]),
        ("end-of-more-bytes", vec![end(1, 1, size + 1)]),
        ("end-of-less-bytes", vec![end(1, 1, size - 1)]),
        ("end-of-all-there-is", vec![end(huge, huge, huge)]),
        ("end-twice", vec![end(1, 1, size), end(1, 1, size)]),
        ("end-longer-than-it-is", vec![[end(1, 1, size), vec![0; 32]].concat()]),
        ("end-cut", vec![end(1, 1, size)[..3].to_vec()]),
    ];
    for (what, messages) in ends {
        attacks.push((
            what,
            Box::new(move |action| match action {
                Action::Message(message) if message.first() == Some(&3) => {
                    messages.iter().cloned().map(Action::Message).collect()
                }
                other => vec![other],
            }),
        ));
    }
    attacks
}

/// Nothing of the file is sent but its first piece, and `then`, which gets the offset at which stream 0
/// ends, follows the hashes.
fn cut(then: impl Fn(u64) -> Vec<Action> + Send + 'static) -> Tamper {
    let mut sent_to = 0;
    Box::new(move |action| match action {
        Action::Object { offset: 1.., .. } => Vec::new(),
        Action::Message(message) => {
            sent_to += Bytes::new().sized(&message).0.len() as u64;
            let hashes = message.first() == Some(&4);
            let then = if hashes { then(sent_to) } else { Vec::new() };
            [Action::Message(message)].into_iter().chain(then).collect()
        }
        other => vec![other],
    })
}

/// Each piece goes where `to` says of the file's length, too, and first.
fn beyond(to: impl Fn(u64, Vec<u8>) -> (u64, Vec<u8>) + Send + 'static) -> Tamper {
    Box::new(move |action| match action {
        Action::Object { object, offset, payload } => {
            let (moved, piece) = to(SIZE as u64, payload.clone());
            let extra = Action::Object { object, offset: moved, payload: piece };
            vec![extra, Action::Object { object, offset, payload }]
        }
        other => vec![other],
    })
}

#[test]
fn a_server_whose_lengths_and_counts_are_not_true_fails() {
    limited(|test| {
        let contents = noise(1, SIZE);
        let items = [Item::file(b"f", &contents)];
        // The attacks tell what is theirs by these types.
        assert_eq!((manifest(&items).0[0], manifest_end(&items).0[0]), (2, 3));
        thread::scope(|scope| {
            for (i, (what, tamper)) in lengths().into_iter().enumerate() {
                let (items, contents) = (&items, &contents);
                scope.spawn(move || {
                    let (way, to) = (WAYS[(i + i / 6) % 6], format!("here/{what}"));
                    let ended = pull_to(test, &to, way, items, |peer| peer.tamper = Some(tamper));
                    assert_eq!(ended.status, Some(1), "{what}, {way:?}: {ended:?}");
                    let reason = ended.json()["error"].as_str().unwrap_or("").to_owned();
                    let expected = match what {
                        "short-and-silent" | "short-and-done" => "nothing has moved for",
                        "short-and-closed" => "ended: done",
                        _ => "breaks the protocol",
                    };
                    assert!(reason.contains(expected), "{what}, {way:?}: {ended:?}");
                    // A name may be there where only the end was false: with the right bytes.
                    if let Ok(copied) = fs::read(test.path(&to)) {
                        assert!(what.starts_with("end-") && copied == *contents, "{what}");
                    }
                });
            }
        });
    });
}

/// Three pieces, the last a short one.
const SIZE: usize = 120_000;
/// In this time what was sent before has come.
const A_WHILE: Duration = Duration::from_millis(300);
