//! Peers that take memory by long names: every directory or file has a path of 3.6 KB.

use std::time::{Duration, Instant};

use crate::bytes::Bytes;
use crate::honest::{await_request, copy};
use crate::host::Host;
use crate::oracle::{Victim, end_within};
use crate::peer::{Peer, Received, WAYS};
use crate::script::{Item, request};
use crate::test::limited;

/// Memory that the names of one attack may take of a server.
const LITTLE: u64 = 96 << 20;
/// All of a client that has nothing but them.
const CLIENT: u64 = 160 << 20;
/// Paths of each attack: of 72 MB, and of 216 where none is settled.
const DIRECTORIES: u64 = 20_000;
const FILES: u64 = 60_000;

#[test]
fn long_names_of_a_client_take_no_memory_of_a_server() {
    limited(|test| {
        for attack in ATTACKS {
            let words = ["--memory", "256MiB", "--stall-timeout", "5"];
            let victim = Victim::start_with(test, &words);
            victim.assert_serves();
            let before = victim.peak();
            let mut peer = Peer::dial(victim.address, WAYS[5]).unwrap();
            peer.message(request(false, 1, &[b""]));
            announce(&mut peer, attack);
            peer.hang_up();
            let grown = victim.peak() - before;
            assert!(grown < LITTLE, "{attack:?}: {} MiB", grown >> 20);
            victim.assert_serves();
        }
    });
}

#[test]
fn long_names_of_a_server_take_no_memory_of_a_client() {
    limited(|test| {
        for attack in ATTACKS {
            let host = Host::new();
            let from = format!("lh://{}/{TOP}", host.address);
            let copying = copy(test, WAYS[5], &["--memory", "64MiB", &from, "here/"]);
            let mut peer = host.accept().unwrap();
            await_request(&mut peer);
            announce(&mut peer, attack);
            peer.hang_up();
            assert_ne!(end_within(copying, CLIENT).status, Some(0), "{attack:?}");
        }
    });
}

#[derive(Clone, Copy, Debug)]
enum Attack {
    Directories,
    /// Their contents never come.
    LargeFiles,
    /// They are in no object.
    SmallFiles,
}

const ATTACKS: [Attack; 3] = [Attack::Directories, Attack::LargeFiles, Attack::SmallFiles];
const TOP: &str = "top";

impl Attack {
    fn item(self, path: &[u8]) -> Item {
        match self {
            Self::Directories => Item::directory(path),
            Self::LargeFiles => Item { size: Some(LARGE), ..Item::file(path, b"") },
            Self::SmallFiles => Item { size: Some(1), ..Item::file(path, b"") },
        }
    }
}

/// Announces as much as the program takes, until it ends that.
fn announce(peer: &mut Peer, attack: Attack) {
    let until = Instant::now() + Duration::from_secs(60);
    let mut deepest = TOP.to_string();
    let mut above = vec![Item::directory(deepest.as_bytes())];
    while deepest.len() < 3_400 {
        deepest = format!("{deepest}/{}", "n".repeat(250));
        above.push(Item::directory(deepest.as_bytes()));
    }
    let (mut first, mut objects) = (above.len() as u64, 0);
    let mut goes_on = peer.message_in_turn(manifest(0, 0, &above), until);
    let count = if matches!(attack, Attack::Directories) { DIRECTORIES } else { FILES };
    while goes_on && first < count {
        let path = |n: u64| format!("{deepest}/{}-{n}", "m".repeat(200));
        let items: Vec<_> =
            (first..first + BATCH).map(|n| attack.item(path(n).as_bytes())).collect();
        goes_on = peer.message_in_turn(manifest(first, objects, &items), until);
        first += BATCH;
        objects += if matches!(attack, Attack::LargeFiles) { BATCH } else { 0 };
    }
    // It has to have been something.
    assert!(first > 1_000, "{attack:?}: {first}");
    let rest = Instant::now() + Duration::from_secs(2);
    while let Some(received) = peer.receive(rest) {
        if let Received::Ended = received {
            return;
        }
    }
}

/// MANIFEST of `items`, each of those that are large an object of its own.
fn manifest(first: u64, first_object: u64, items: &[Item]) -> Bytes {
    let bytes = Bytes::new().varint(2).varint(first).varint(items.len() as u64);
    let bytes = items.iter().fold(bytes, |bytes, item| item.put(bytes));
    let large = items.iter().filter(|item| item.size == Some(LARGE)).count() as u64;
    (0..large).fold(bytes.varint(large), |bytes, n| {
        bytes.varint(first_object + n).varint(first + n).varint(1).varint(LARGE)
    })
}

const LARGE: u64 = 1 << 20;
/// Entries in a message: less than a stream takes at first.
const BATCH: u64 = 40;
