//! Random trees with contents.

use longhaul_objects::FileIdentity;
use longhaul_objects::identity;
use longhaul_wire::{Attributes, DataRanges, Entry, EntryKind, EntryPath};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

#[derive(Clone, Debug)]
pub struct Item {
    pub entry: Entry,
    pub data: Vec<u8>,
}

pub fn below(rng: &mut Xoshiro256PlusPlus, bound: u64) -> u64 {
    rng.next_u64() % bound.max(1)
}

pub fn item(path: &str, kind: EntryKind, data: Vec<u8>, version: u64) -> Item {
    let size = data.len() as u64;
    let modified = 1_700_000_000_000_000_000 + version as i64;
    let file = FileIdentity { device: 1, inode: version, size, modified, changed: modified };
    let entry = Entry {
        kind,
        mode: 0o640,
        modified,
        size,
        identity: identity(&file, None),
        path: EntryPath::new(path.into()).unwrap(),
        attributes: Attributes::default(),
    };
    Item { entry, data }
}

pub fn contents(rng: &mut Xoshiro256PlusPlus, size: u64) -> Vec<u8> {
    let mut data = vec![0; size as usize];
    let mut word = rng.next_u64();
    for chunk in data.chunks_mut(8) {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x1234_5678;
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
    data
}

/// Makes holes in a file, at random places: in all of it, perhaps.
pub fn dig(rng: &mut Xoshiro256PlusPlus, item: &mut Item) {
    let size = item.entry.size;
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < size && below(rng, 4) > 0 {
        let start = at + below(rng, size - at);
        let end = start + 1 + below(rng, size - start);
        ranges.push(start..end);
        at = end + 1;
    }
    let data = DataRanges::new(ranges).filter(|data| data.fit(size));
    if let Some(data) = data.filter(|_| item.entry.kind == EntryKind::File) {
        let mut past = 0;
        for range in data.iter().chain(std::iter::once(size..size)) {
            item.data[past..range.start as usize].fill(0);
            past = range.end as usize;
        }
        let Entry { size, modified, .. } = item.entry;
        let (inode, changed) = (modified as u64, modified);
        let file = FileIdentity { device: 1, inode, size, modified, changed };
        item.entry.identity = identity(&file, Some(&data));
        item.entry.attributes.data = Some(data);
    }
}

/// At most `bytes` in at most `entries`, parents first; in every other tree in the order of a scan.
pub fn tree(rng: &mut Xoshiro256PlusPlus, entries: u64, bytes: u64) -> Vec<Item> {
    if below(rng, 12) == 0 {
        let size = below(rng, bytes);
        return vec![item("", EntryKind::File, contents(rng, size), 1)];
    }
    let mut directories = vec![String::new()];
    let mut items = Vec::new();
    let mut left = bytes;
    for number in 0..below(rng, entries) + 1 {
        let parent = directories[below(rng, directories.len() as u64) as usize].clone();
        let path =
            if parent.is_empty() { format!("{number}") } else { format!("{parent}/{number}") };
        let (kind, size) = match below(rng, 16) {
            0..3 => {
                directories.push(path.clone());
                (EntryKind::Directory, 0)
            }
            3 => (EntryKind::Link { target: b"../somewhere".to_vec() }, 0),
            4 => (EntryKind::File, 0),
            5..8 => (EntryKind::File, (1 << 20) + below(rng, 3 << 20)),
            8..11 => (EntryKind::File, below(rng, 1 << 20) + 1),
            _ => (EntryKind::File, below(rng, 20_000) + 1),
        };
        let size = size.min(left);
        left -= size;
        let mut item = item(&path, kind, contents(rng, size), number + 1);
        if below(rng, 8) == 0 {
            dig(rng, &mut item);
        }
        items.push(item);
    }
    if below(rng, 2) == 0 {
        items.sort_by(|a, b| scanned(a).cmp(&scanned(b)));
    }
    items
}

/// Directories within each other, with many small files in each, in the order of a scan.
pub fn small_files(rng: &mut Xoshiro256PlusPlus) -> Vec<Item> {
    let mut items = Vec::new();
    let mut path = String::new();
    for directory in 0..below(rng, 5) + 1 {
        let is_beside = path.is_empty() || below(rng, 2) == 0;
        path = if is_beside { format!("d{directory}") } else { format!("{path}/d{directory}") };
        items.push(item(&path, EntryKind::Directory, Vec::new(), items.len() as u64));
        for number in 0..below(rng, 120) {
            let size = below(rng, 60_000) + 1;
            let data = contents(rng, size);
            items.push(item(
                &format!("{path}/{number}"),
                EntryKind::File,
                data,
                items.len() as u64,
            ));
        }
    }
    items
}

/// Files and links come before the directories beside them, and a directory before what is in it.
fn scanned(item: &Item) -> Vec<(bool, &[u8])> {
    let path = item.entry.path.as_bytes();
    let mut steps: Vec<_> = path.split(|byte| *byte == b'/').map(|name| (true, name)).collect();
    if let Some(last) = steps.last_mut() {
        last.0 = item.entry.kind == EntryKind::Directory;
    }
    steps
}
