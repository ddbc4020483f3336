//! Peers that announce attributes and hard links that are not possible, or too many.

use std::time::{Duration, Instant};

use crate::bytes::Bytes;
use crate::honest::{await_request, copy};
use crate::host::Host;
use crate::oracle::{PATIENCE, Victim, assert_only, end_within};
use crate::peer::{Peer, WAYS};
use crate::script::{Ending, Item, manifest, note_end, source};
use crate::test::limited;

/// REQUEST of a push that keeps attributes.
fn request(kept: u64) -> Bytes {
    let head = Bytes::new().varint(1).u8(1).varint(1 | 2048).raw(&[7; 16]);
    head.varint(kept).varint(1).sized(b"")
}

const HARD_LINKS: u64 = 32;
const XATTRS: u64 = 8;
const OWNERS: u64 = 2;

/// An attribute of this type.
fn attribute(kind: u64, value: &[u8]) -> Vec<u8> {
    Bytes::new().varint(kind).sized(value).0
}

fn xattr(name: &[u8], len: usize) -> Vec<u8> {
    attribute(4, &Bytes::new().sized(name).sized(&vec![7; len]).0)
}

fn with(item: Item, attributes: Vec<u8>) -> Item {
    Item { attributes, ..item }
}

/// A file of so many bytes whose data is so: of each part the bytes of the hole before it, and its own. Its object has
/// all of them.
fn holed(size: u64, parts: &[(u64, u64)]) -> Item {
    let value = parts.iter().fold(Bytes::new(), |all, (hole, len)| all.varint(*hole).varint(*len));
    let data = parts.iter().map(|(_, len)| len).sum::<u64>().min(size);
    let file = Item { size: Some(data), size_of_entry: Some(size), ..Item::file(b"a", b"") };
    with(file, attribute(1, &value.0))
}

fn first(path: &[u8]) -> Item {
    with(Item::file(path, b""), attribute(7, b""))
}

fn other_names(names: &[&[u8]]) -> Vec<u8> {
    attribute(8, &names.iter().fold(Bytes::new(), |all, name| all.sized(name)).0)
}

/// A first name beside others.
fn among(others: &[&[u8]]) -> Item {
    let attributes = [attribute(7, b""), other_names(others)].concat();
    with(Item::file(b"a", b"contents"), attributes)
}

fn later(path: &[u8], of: u64) -> Item {
    with(Item::file(path, b""), attribute(7, &Bytes::new().varint(of).0))
}

/// Manifests that end the copy, what the request keeps, and a word of the reason.
fn attacks() -> Vec<(u64, Vec<Item>, &'static str)> {
    let plain = |path: &[u8]| Item::file(path, b"");
    let all = HARD_LINKS | XATTRS;
    let to_first = [attribute(7, b"\0"), other_names(&[b"a"])].concat();
    vec![
        (all, vec![with(plain(b"a"), xattr(b"user.a", 10 << 20))], ""),
        (all, vec![with(plain(b"a"), xattr(b"user.a", 1 << 16))], "not valid"),
        (all, vec![with(plain(b"a"), xattr(b"system.posix_acl_access", 9))], "not valid"),
        (all, vec![with(plain(b"a"), xattr(b"user.\0", 9))], "not valid"),
        (all, vec![with(plain(b"a"), [xattr(b"user.a", 1), xattr(b"user.a", 1)].concat())], ""),
        (all, vec![with(plain(b"a"), attribute(2, b"\0\0"))], "not asked for"),
        (OWNERS, vec![with(plain(b"a"), xattr(b"user.a", 1))], "not asked for"),
        (OWNERS, vec![first(b"a"), later(b"b", 0)], "not asked for"),
        // Never announced, later, itself, without other names, a later name, and a directory.
        (all, vec![first(b"a"), later(b"b", 7)], "having several"),
        (all, vec![first(b"a"), later(b"b", u64::MAX >> 2)], "having several"),
        (all, vec![first(b"a"), later(b"b", 2), first(b"c")], "having several"),
        (all, vec![first(b"a"), later(b"b", 1)], "having several"),
        (all, vec![plain(b"a"), later(b"b", 0)], "having several"),
        (all, vec![first(b"a"), later(b"b", 0), later(b"c", 1)], "having several"),
        (all, vec![Item::directory(b"a"), later(b"b", 0)], "having several"),
        (all, vec![with(Item::directory(b"a"), attribute(7, b""))], "hard link"),
        // Other names that lead out, are none or too many, or of a later name.
        (all, vec![among(&[b"../b"])], "not valid"),
        (all, vec![among(&[b"/etc/passwd"])], "not valid"),
        (all, vec![among(&[b""])], "not valid"),
        (all, vec![among(&[&b"b"[..]; 33])], "not valid"),
        (all, vec![with(plain(b"a"), other_names(&[b"b"]))], "not valid"),
        (all, vec![first(b"a"), with(plain(b"b"), to_first)], "not valid"),
        // Data behind the end, without a hole before it, of no bytes, or all; more of it than there may be.
        (all, vec![holed(100, &[(50, 51)])], HOLES),
        (all, vec![holed(100, &[(0, 10), (1, 1 << 61)])], HOLES),
        (all, vec![holed(100, &[(1 << 61, 1 << 61), (1 << 61, 1 << 61)])], HOLES),
        (all, vec![holed(100, &[(0, 10), (0, 10)])], HOLES),
        (all, vec![holed(100, &[(5, 0)])], HOLES),
        (all, vec![holed(100, &[(0, 100)])], HOLES),
        (all, vec![holed(1 << 40, &vec![(1, 1); 5_000])], HOLES),
        // Contents, which later names do not have.
        (all, vec![first(b"a"), Item { size: Some(1), ..later(b"b", 0) }], ""),
    ]
}

const HOLES: &str = "data of a file with holes";

/// Sends what it announces, and waits for the end.
fn announce(peer: &mut Peer, items: &[Item]) -> Ending {
    peer.message(manifest(items));
    let (mut ending, deadline) = (Ending::default(), Instant::now() + PATIENCE);
    while let Some(received) = peer.receive(deadline) {
        if note_end(&mut ending, received) {
            break;
        }
    }
    ending
}

#[test]
fn a_client_whose_attributes_or_links_are_not_possible_ends_its_own_copy_only() {
    limited(|test| {
        let victim = Victim::start(test);
        for (number, (kept, items, word)) in attacks().into_iter().enumerate() {
            let mut peer = Peer::dial(victim.address, WAYS[number % WAYS.len()]).unwrap();
            peer.message(request(kept));
            let ending = announce(&mut peer, &items);
            peer.hang_up();
            let closed = ending.closed.as_deref();
            assert!(closed.is_some_and(|reason| reason.contains(word)), "{number}: {ending:?}");
        }
        victim.assert_serves();
        assert_only(&test.path("there"), &[]);
    });
}

#[test]
fn a_server_whose_attributes_or_links_are_not_possible_fails_the_copy() {
    limited(|test| {
        let is_of_it = |(kept, ..): &(u64, Vec<Item>, &str)| *kept == HARD_LINKS | XATTRS;
        for (number, (_, items, word)) in attacks().into_iter().filter(is_of_it).enumerate() {
            let host = Host::new();
            let from = format!("lh://{}/.", host.address);
            let words = ["-HX", "--merge", &from, "here/"];
            let copying = copy(test, WAYS[number % WAYS.len()], &words);
            let mut peer = host.accept().unwrap();
            await_request(&mut peer);
            announce(&mut peer, &items);
            peer.hang_up();
            let ended = end_within(copying, 256 << 20);
            assert_ne!(ended.status, Some(0), "{number}");
            assert!(ended.stderr.contains(word), "{number}: {ended:?}");
        }
        assert_only(&test.path("here"), &[]);
    });
}

/// More than may be announced and not settled, whatever is in it.
#[test]
fn attributes_beyond_their_sum_take_no_memory() {
    limited(|test| {
        let victim = Victim::start(test);
        victim.assert_serves();
        let before = victim.peak();
        let mut peer = Peer::dial(victim.address, WAYS[5]).unwrap();
        peer.message(request(HARD_LINKS | XATTRS));
        let until = Instant::now() + Duration::from_secs(30);
        let mut goes_on = true;
        for number in 0..400 {
            let path = format!("{number}");
            // It waits for contents, which never come.
            let item = Item {
                size: Some(1),
                ..with(Item::file(path.as_bytes(), b""), xattr(b"user.a", 60_000))
            };
            let message = Bytes::new().varint(2).varint(number).varint(1);
            goes_on = goes_on && peer.message_in_turn(item.put(message).varint(0), until);
        }
        peer.hang_up();
        let grown = victim.peak() - before;
        assert!(grown < 64 << 20, "{} MiB", grown >> 20);
        victim.assert_serves();
    });
}

#[test]
fn links_and_attributes_that_are_possible_arrive() {
    limited(|test| {
        let victim = Victim::start(test);
        let mut peer = Peer::dial(victim.address, WAYS[0]).unwrap();
        peer.message(request(HARD_LINKS | XATTRS));
        let attributes = [xattr(b"user.a", 3), attribute(7, b"")].concat();
        let first = with(Item::file(b"a", b"contents"), attributes);
        let mut identity = [0; 16];
        identity.copy_from_slice(&blake3::hash(b"contents").as_bytes()[..16]);
        let known = Some((identity, 1_700_000_000_000_000_000));
        let items = [first, Item { size_of_entry: Some(8), known, ..later(b"b", 0) }];
        let ending = source(&mut peer, &items, PATIENCE);
        peer.hang_up();
        assert_eq!(ending.result, Some((2, 0)), "{ending:?}");
        assert_eq!(std::fs::read(test.there("b")).unwrap(), b"contents");
        victim.assert_sound();
    });
}
