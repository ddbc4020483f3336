//! Servers that hold the token and use it badly against who copies from or to them.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::honest::{await_request, copy};
use crate::host::Host;
use crate::oracle::{BOUND, assert_only, end};
use crate::peer::{Peer, Saying, WAYS, Way};
use crate::program::Ended;
use crate::script::{Item, sink, source};
use crate::test::{Test, limited};
use crate::trees::{names, noise};

/// A pull of `f` into `here`, against a server that offers `items`.
fn pull(test: &Test, way: Way, items: &[Item], prepare: impl FnOnce(&mut Peer)) -> Ended {
    let host = Host::new();
    let copying = copy(test, way, &[&format!("lh://{}/f", host.address), "here"]);
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
        // What was asked for arrives, so it is the names that the others fail by.
        pull(test, WAYS[0], &[file(b"f")], |_| {}).assert_succeeded();
        fs::remove_file(test.here("f")).unwrap();
        for offer in offers {
            let ended = pull(test, WAYS[0], &offer, |_| {});
            assert_eq!(ended.status, Some(1), "{offer:?}: {ended:?}");
            assert_only(&test.path("here"), &["f"]);
            assert_only(test.folder(), &["here", "there", "token"]);
        }
    });
}

#[test]
fn a_server_that_sends_other_bytes_than_it_hashed_fails() {
    limited(|test| {
        for way in WAYS {
            let items = [Item::file(b"f", &noise(1, 200_000))];
            let ended = pull(test, way, &items, |peer| {
                peer.tamper = Some(Box::new(|saying| match saying {
                    Saying::Object { object, offset, mut payload } => {
                        payload[0] ^= 1;
                        vec![Saying::Object { object, offset, payload }]
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
            let mut said = 0;
            let ended = pull(test, way, &items, |peer| {
                peer.tamper = Some(Box::new(move |saying| {
                    said += 1;
                    if said > step { vec![Saying::HangUp] } else { vec![saying] }
                }));
            });
            // Five words: manifest, its end, three pieces, hashes, the end.
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
                peer.message(
                    Bytes::new().varint(11).varint(1).varint(0).varint(300_000).raw(&[0; 2]),
                );
                sink(&mut peer, Duration::from_secs(2));
                peer.hang_up();
            });
            let ended = end(copying);
            attack.join().unwrap();
            assert_eq!(ended.status, Some(1), "{way:?}: {ended:?}");
        }
    });
}
