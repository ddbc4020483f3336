//! The messages of a peer that copies as it should (protocol.md 7.2). Every hostile script departs from
//! here: in what it offers, or by tampering with what is sent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use longhaul_wire::{EntryEnd, Message, Offered, SinkMessage, SourceMessage};

use crate::bytes::Bytes;
use crate::carrier::Carrier;
use crate::peer::{Peer, Received};

/// An entry of a manifest, true or not.
#[derive(Clone, Debug)]
pub struct Item {
    pub kind: u8,
    pub mode: u16,
    pub path: Vec<u8>,
    /// Contents of a file, target of a link.
    pub bytes: Vec<u8>,
    /// Length announced in place of that of the contents.
    pub size: Option<u64>,
    /// Identity and modification time, in place of those of the contents.
    pub known: Option<([u8; 16], i64)>,
    /// Attributes, by type (7.10).
    pub attributes: Vec<u8>,
    /// Size of the entry, in place of that of its object: of a later name that of the first, of a file with holes
    /// all of it.
    pub size_of_entry: Option<u64>,
}

impl Item {
    pub fn file(path: &[u8], bytes: &[u8]) -> Self {
        Self {
            kind: 1,
            mode: 0o644,
            path: path.to_vec(),
            bytes: bytes.to_vec(),
            size: None,
            known: None,
            attributes: Vec::new(),
            size_of_entry: None,
        }
    }

    pub fn directory(path: &[u8]) -> Self {
        Self { kind: 2, mode: 0o755, ..Self::file(path, &[]) }
    }

    pub fn link(path: &[u8], target: &[u8]) -> Self {
        Self { kind: 3, ..Self::file(path, target) }
    }

    fn contents(&self) -> &[u8] {
        if self.kind == 1 { &self.bytes } else { &[] }
    }

    fn size(&self) -> u64 {
        self.size.unwrap_or(self.contents().len() as u64)
    }

    pub fn put(&self, bytes: Bytes) -> Bytes {
        let mut identity = [0; 16];
        identity.copy_from_slice(&blake3::hash(&self.bytes).as_bytes()[..16]);
        let (identity, modified) = self.known.unwrap_or((identity, 1_700_000_000_000_000_000));
        let with_attributes = if self.attributes.is_empty() { 0 } else { 128 };
        let bytes = bytes.u8(self.kind | with_attributes).u16(self.mode).u64(modified as u64);
        let size = self.size_of_entry.unwrap_or(self.size());
        let bytes = bytes.varint(size).raw(&identity).sized(&self.path);
        let bytes = if self.kind == 3 { bytes.sized(&self.bytes) } else { bytes };
        if with_attributes > 0 { bytes.sized(&self.attributes) } else { bytes }
    }
}

/// REQUEST.
pub fn request(pull: bool, flags: u64, paths: &[&[u8]]) -> Bytes {
    let head = Bytes::new().varint(1).u8(1 + u8::from(pull)).varint(flags).raw(&[7; 16]);
    paths.iter().fold(head.varint(paths.len() as u64), |bytes, path| bytes.sized(path))
}

/// MANIFEST of all `items`, each file with contents an object of its own.
pub fn manifest(items: &[Item]) -> Bytes {
    let bytes = Bytes::new().varint(2).varint(0).varint(items.len() as u64);
    let bytes = items.iter().fold(bytes, |bytes, item| item.put(bytes));
    let objects: Vec<_> = items.iter().enumerate().filter(|(_, item)| item.size() > 0).collect();
    let bytes = bytes.varint(objects.len() as u64);
    objects.iter().enumerate().fold(bytes, |bytes, (id, (entry, item))| {
        bytes.varint(id as u64).varint(*entry as u64).varint(1).varint(item.size())
    })
}

/// MANIFEST_END.
pub fn manifest_end(items: &[Item]) -> Bytes {
    let objects = items.iter().filter(|item| item.size() > 0).count();
    let bytes: u64 = items.iter().map(Item::size).sum();
    Bytes::new().varint(3).varint(items.len() as u64).varint(objects as u64).varint(bytes)
}

/// HASHES of a whole object.
pub fn hashes(object: u32, contents: &[u8]) -> Bytes {
    let bytes = Bytes::new().varint(4).varint(object.into()).varint(0);
    chaining_values(contents).iter().fold(bytes, |bytes, value| bytes.raw(value))
}

/// HASHES of some groups of it.
fn some_hashes(object: u32, contents: &[u8], groups: Range<u64>) -> Bytes {
    let bytes = Bytes::new().varint(4).varint(object.into()).varint(groups.start);
    let values = &chaining_values(contents)[groups.start as usize..groups.end as usize];
    values.iter().fold(bytes, |bytes, value| bytes.raw(value))
}

fn chaining_values(contents: &[u8]) -> Vec<[u8; 32]> {
    use blake3::hazmat::HasherExt;
    if contents.len() <= GROUP {
        return vec![*blake3::hash(contents).as_bytes()];
    }
    let group = |(i, group): (usize, &[u8])| {
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset((i * GROUP) as u64);
        hasher.update(group).finalize_non_root()
    };
    contents.chunks(GROUP).enumerate().map(group).collect()
}

/// So long nothing comes before a source sends all again.
const QUIET: Duration = Duration::from_secs(2);

/// The end of a script.
#[derive(Debug, Default)]
pub struct Ending {
    /// RESULT of the program: entries confirmed and failed.
    pub result: Option<(u64, u64)>,
    /// The reason that it refused or closed with.
    pub closed: Option<String>,
    /// Entries it would not take, with its codes and reasons.
    pub refused: Vec<(u64, EntryEnd)>,
    pub repairs: usize,
    /// Objects received, by id.
    pub objects: BTreeMap<u32, Vec<u8>>,
    /// Paths that it announced.
    pub paths: Vec<Vec<u8>>,
}

/// Sends `items` until the program sends the outcome.
pub fn source(peer: &mut Peer, items: &[Item], patience: Duration) -> Ending {
    let deadline = Instant::now() + patience;
    peer.message(manifest(items));
    peer.message(manifest_end(items));
    let contents: Vec<&[u8]> =
        items.iter().filter(|item| item.size() > 0).map(Item::contents).collect();
    let mut ending = Ending::default();
    let mut sent = 0;
    let mut had: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
    let has = |had: &BTreeMap<u32, Vec<Range<u64>>>, id: u32, group: u64| {
        had.get(&id).is_some_and(|groups| groups.iter().any(|range| range.contains(&group)))
    };
    loop {
        let Some(received) = peer.receive(deadline.min(Instant::now() + QUIET)) else {
            if peer.over || Instant::now() >= deadline {
                break;
            }
            // Nobody else sends again what a flood, or a busy host, has lost.
            if matches!(peer.carrier, Carrier::Udp(_)) {
                for (id, contents) in contents.iter().enumerate().take(sent) {
                    send_missing(peer, id as u32, contents, |group| !has(&had, id as u32, group));
                }
            }
            continue;
        };
        match received {
            Received::Message(Message::Sink(SinkMessage::Accept { objects })) => {
                let accepted = (objects as usize).min(contents.len());
                for (id, contents) in contents.iter().enumerate().take(accepted).skip(sent) {
                    send_missing(peer, id as u32, contents, |group| !has(&had, id as u32, group));
                    peer.message(hashes(id as u32, contents));
                }
                sent = sent.max(objects as usize);
            }
            // It has no secret, so it has made no tags.
            Received::Message(Message::Sink(SinkMessage::Offer { object, groups })) => {
                let Some(contents) = contents.get(object.0 as usize) else { continue };
                let Offered::Untagged(ranges) = groups else { panic!("{groups:?}") };
                for range in ranges {
                    peer.message(some_hashes(object.0, contents, range));
                }
            }
            Received::Message(Message::Sink(SinkMessage::Have { object, groups })) => {
                had.entry(object.0).or_default().extend(groups);
            }
            Received::Message(Message::Sink(SinkMessage::Repair { object, group })) => {
                ending.repairs += 1;
                let Some(contents) = contents.get(object.0 as usize) else { continue };
                send_missing(peer, object.0, contents, |one| one == group);
                peer.message(hashes(object.0, contents));
            }
            Received::Message(Message::Sink(SinkMessage::EntryRefused { entry, end })) => {
                ending.refused.push((entry, end));
            }
            Received::Message(Message::Sink(SinkMessage::Result(result))) => {
                ending.result = Some((result.confirmed, result.failed));
                peer.done();
                peer.close(0, b"");
                break;
            }
            other => {
                if note_end(&mut ending, other) {
                    break;
                }
            }
        }
    }
    ending
}

/// Takes whatever the program sends, and confirms it.
pub fn sink(peer: &mut Peer, patience: Duration) -> Ending {
    let deadline = Instant::now() + patience;
    let mut ending = Ending::default();
    let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
    let mut got: BTreeMap<u32, BTreeMap<u64, usize>> = BTreeMap::new();
    let (mut entries, mut total, mut confirmed) = (0, None, false);
    peer.carrier.credit(1 << 40);
    while let Some(received) = peer.receive(deadline) {
        match received {
            Received::Message(Message::Source(message)) => match message {
                SourceMessage::Manifest { entries: new, objects, .. } => {
                    entries += new.len() as u64;
                    ending.paths.extend(new.iter().map(|entry| entry.path.as_bytes().to_vec()));
                    for object in objects {
                        sizes.insert(object.id.0, object.size);
                    }
                    peer.message(Bytes::new().varint(6).varint(sizes.len() as u64));
                }
                SourceMessage::ManifestEnd { .. } => total = Some(entries),
                _ => {}
            },
            Received::Object { object, offset, payload } => {
                let bytes = ending.objects.entry(object).or_default();
                let end = offset as usize + payload.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[offset as usize..end].copy_from_slice(&payload);
                got.entry(object).or_default().insert(offset, payload.len());
            }
            other => {
                if note_end(&mut ending, other) {
                    break;
                }
            }
        }
        let whole = |(object, size): (&u32, &u64)| {
            let got = got.get(object).map_or(0, |pieces| pieces.values().sum());
            got as u64 >= *size
        };
        if let Some(total) = total
            && !confirmed
            && sizes.iter().all(whole)
        {
            confirmed = true;
            if total > 0 {
                peer.message(Bytes::new().varint(9).varint(0).varint(total));
            }
            let bytes = sizes.values().sum();
            peer.message(result(total, 0, bytes));
            peer.done();
            ending.result = Some((total, 0));
            if peer.dialled {
                peer.close(0, b"");
                break;
            }
        }
    }
    ending
}

pub fn note_end(ending: &mut Ending, received: Received) -> bool {
    match received {
        Received::Message(Message::Refused(refused)) => ending.closed = Some(refused.reason),
        Received::Close(code, reason) => ending.closed = Some(format!("{code} {reason}")),
        Received::Ended => {}
        _ => return false,
    }
    true
}

/// RESULT: entries confirmed and failed, none skipped or unchanged, and bytes, of which none were there before, all with their
/// attributes; of a host that says nothing of itself.
pub fn result(confirmed: u64, failed: u64, bytes: u64) -> Bytes {
    let counts = Bytes::new().varint(11).varint(confirmed).varint(failed).varint(0).varint(0);
    let counts = counts.varint(bytes).varint(0).varint(0).varint(0);
    counts.raw(&[0; HOST_ACCOUNT])
}

fn send_missing(peer: &mut Peer, object: u32, contents: &[u8], is_missing: impl Fn(u64) -> bool) {
    for (i, group) in contents.chunks(GROUP).enumerate() {
        if is_missing(i as u64) {
            for (j, piece) in group.chunks(PIECE).enumerate() {
                peer.object(object, (i * GROUP + j * PIECE) as u64, piece);
            }
        }
    }
}

pub const GROUP: usize = 1 << 20;
/// Bytes of a host account in which all is zero (protocol.md 7.2).
const HOST_ACCOUNT: usize = 21;
const PIECE: usize = 50_000;
