//! Somebody with the same token who pushes under the label and identities of another's copy, with other
//! contents, and hangs up: what the server has then is not what that copy has sent (protocol.md 7.4).

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_wire::{Entry, EntryKind, Message, Request, SourceMessage};

use crate::bytes::Bytes;
use crate::honest::copy;
use crate::host::Host;
use crate::oracle::{BOUND, Victim, end};
use crate::peer::{Action, Peer, Received, WAYS, Way};
use crate::script::{GROUP, Item, hashes, source};
use crate::test::{Test, limited, until};
use crate::trees::{is_hidden, names, noise};

/// Everything that a server learns of a copy that is pushed to it: the request, and all entries.
fn learn(host: &Host) -> (Request, Vec<Entry>) {
    let mut peer = host.accept().unwrap();
    let deadline = Instant::now() + BOUND;
    let (mut asked, mut known) = (None, Vec::new());
    while let Some(Received::Message(message)) = peer.receive(deadline) {
        match message {
            Message::Request(request) => asked = Some(request),
            Message::Source(SourceMessage::Manifest { entries, .. }) => known.extend(entries),
            Message::Source(SourceMessage::ManifestEnd { .. }) => break,
            _ => {}
        }
    }
    peer.hang_up();
    (asked.unwrap(), known)
}

/// REQUEST of a push, again.
fn again(request: &Request) -> Bytes {
    let flags = u64::from(request.destination_is_directory)
        | u64::from(request.sync_at_end) << 1
        | u64::from(request.copy_contents) << 2
        | u64::from(request.unhashed) << 3;
    let head = Bytes::new().varint(1).u8(1).varint(flags).raw(&request.label);
    head.varint(1).sized(&request.paths[0])
}

/// The entries, with contents of somebody else's.
fn others(known: &[Entry]) -> Vec<Item> {
    let item = |entry: &Entry| Item {
        kind: if entry.kind == EntryKind::Directory { 2 } else { 1 },
        mode: entry.mode,
        known: Some((entry.identity, entry.modified)),
        ..Item::file(entry.path.as_bytes(), &vec![0x66; entry.size as usize])
    };
    known.iter().map(item).collect()
}

/// Pushes `items` up to the last group of the last one, and leaves when the rest is recorded.
fn prepare(test: &Test, victim: &Victim, how: Way, request: &Request, items: &[Item]) {
    let mut peer = Peer::dial(victim.address, how).unwrap();
    let files: Vec<Vec<u8>> =
        items.iter().filter(|item| item.kind == 1).map(|item| item.bytes.clone()).collect();
    let last = files.len() as u32 - 1;
    let end = ((files[last as usize].len() - 1) / GROUP * GROUP) as u64;
    let unhashed = request.unhashed;
    let hashes = move |object: u32, contents: &[u8]| match unhashed {
        false => hashes(object, contents),
        true => {
            let zeros = vec![0; 32 * contents.len().div_ceil(GROUP)];
            Bytes::new().varint(4).varint(object.into()).varint(0).raw(&zeros)
        }
    };
    let mut hashed = None;
    let there = test.path("there");
    peer.tamper = Some(Box::new(move |action| match action {
        Action::Object { object, offset, .. } if object == last && offset >= end => {
            // A checkpoint comes a second after what it makes durable, its record and names behind it.
            let hidden = || names(&there).into_iter().find(|name| is_hidden(name));
            let record = until("a hidden directory", hidden);
            let record = there.join(record).join("record");
            until("a record", || {
                fs::metadata(&record).is_ok_and(|record| record.len() > 0).then_some(())
            });
            vec![Action::Pause(Duration::from_millis(2_500)), Action::HangUp]
        }
        Action::Object { object, .. } if hashed != Some(object) => {
            hashed = Some(object);
            vec![Action::Message(hashes(object, &files[object as usize]).0), action]
        }
        other => vec![other],
    }));
    peer.message(again(request));
    source(&mut peer, items, BOUND);
    until("its end", || victim.stderr_so_far().contains("failed: ").then_some(()));
}

/// A copy of `here/tree` to a server on which somebody has prepared the record: with status 0 all of it
/// is what it is here.
fn copies_what_is_here(how: Way, words: &'static [&'static str]) {
    limited(move |test| {
        fs::create_dir(test.here("tree")).unwrap();
        // One is whole, published and recorded when he leaves, of the other four groups of five.
        fs::write(test.here("tree/a"), noise(1, 300_000)).unwrap();
        fs::write(test.here("tree/b"), noise(2, 5 << 20)).unwrap();
        let host = Host::new();
        let to = format!("lh://{}/", host.address);
        let asking = copy(test, how, &[words, &["here/tree", &to]].concat());
        let learning = thread::spawn(move || learn(&host));
        end(asking);
        let (request, known) = learning.join().unwrap();
        assert_eq!(known.len(), 3);
        let victim = Victim::start(test);
        prepare(test, &victim, how, &request, &others(&known));
        let to = format!("lh://{}/", victim.address);
        let ended = end(copy(test, how, &[words, &["here/tree", &to]].concat()));
        ended.assert_succeeded();
        for name in ["tree/a", "tree/b"] {
            let (here, there) = (fs::read(test.here(name)), fs::read(test.there(name)));
            assert!(here.unwrap() == there.unwrap(), "{name}: {ended:?}");
        }
        victim.assert_serves();
    });
}

#[test]
fn a_prepared_record_brings_no_bytes_into_the_copy_of_another() {
    for how in [WAYS[0], WAYS[3]] {
        copies_what_is_here(how, &[]);
    }
}

#[test]
fn a_prepared_record_of_a_copy_without_hashes_brings_no_bytes_into_it_either() {
    // What has its name, size and time stays, whoever wrote it, unless all is to be sent.
    copies_what_is_here(WAYS[0], &["--no-verify", "--ignore-times"]);
}
