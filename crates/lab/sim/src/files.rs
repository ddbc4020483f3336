//! The files at the source, and what changes about them.

mod behind;

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_objects::testing::{MemoryStorage, Node, metadata_of};
use longhaul_objects::{FileIdentity, NameList, identity};
use longhaul_wire::{
    Account, Attributes, DataRanges, Entry, EntryEnd, EntryKind, EntryPath, HardLink, MAX_PATH,
    Metadata, OTHER_NAMES_MAX, Xattr,
};

use crate::draw::Draw;
use crate::scenario::Scenario;

/// A tree at the source, with every version that its files ever had.
#[derive(Debug)]
pub(crate) struct Files {
    items: Vec<Item>,
    /// Which item has a path: versions keep it.
    by_path: BTreeMap<Vec<u8>, usize>,
    /// Somebody else has put other contents under the same names before.
    pub has_foreign: bool,
    /// Names that the destination has and the source had never, below directories of that.
    pub extra: Vec<Vec<u8>>,
    /// Links that are followed, and where they lead, from the top.
    leads: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Items of the tree itself: those behind them are names by links.
    raw: usize,
}

/// One name in the tree.
#[derive(Debug)]
pub(crate) struct Item {
    /// Oldest first, never empty.
    versions: Vec<Version>,
    vanished: bool,
    /// Number of the first item whose file has this name, too.
    same: Option<usize>,
    /// They are hard links.
    is_linked: bool,
    /// It is a link that is followed and leads to nothing that can be copied.
    broken: Option<EntryEnd>,
}

/// First names that a run has announced: numbers of their entries, by that of their first item.
#[derive(Debug, Default)]
pub(crate) struct Links(BTreeMap<usize, u64>);

/// Contents that were once under a name.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub entry: Entry,
    pub data: Arc<Vec<u8>>,
}

impl Files {
    /// The tree of a scenario: its names, each as long or longer, and its bytes.
    pub fn new(draw: &mut Draw, scenario: &Scenario) -> Self {
        let &Scenario { entries, name_len, bytes, .. } = scenario;
        // As names, metadata goes within a bounded number of round trips.
        let metadata_most = (100 * scenario.stream_buffer as u64).min(bytes) / entries;
        if entries == 1 {
            return Self::of(vec![Item::new("", EntryKind::File, contents(draw, bytes), 1)]);
        }
        let mut directories = vec![String::new()];
        let mut items = Vec::new();
        let mut left = bytes;
        for number in 0..entries {
            let parent = draw.pick(&directories).clone();
            let slash = if parent.is_empty() { "" } else { "/" };
            let path = format!("{parent}{slash}{number:0name_len$}");
            let (kind, size) = match draw.below(16) {
                0..2 => {
                    // What has the longest path has none below it.
                    if path.len() + 1 + name_len.max(DIGITS_MAX) <= MAX_PATH {
                        directories.push(path.clone());
                    }
                    (EntryKind::Directory, 0)
                }
                2 => (EntryKind::Link { target: b"../elsewhere".to_vec() }, 0),
                3 => (EntryKind::File, 0),
                4..6 => (EntryKind::File, draw.between(1 << 20, 3 << 20)),
                6..9 => (EntryKind::File, draw.between(20_000, 1 << 20)),
                _ => (EntryKind::File, draw.between(1, 20_000)),
            };
            let size = if number + 1 == entries && kind == EntryKind::File { left } else { size };
            let size = size.min(left);
            left -= size;
            let mut item = Item::new(&path, kind, contents(draw, size), number + 1);
            if draw.below(8) == 0 {
                item.dig(draw, number + 1);
            }
            if draw.below(8) == 0 {
                item.own(draw, metadata_most.clamp(1, 40_000));
            }
            items.push(item);
        }
        let mut files = Self::of(items);
        files.link(&mut Draw::new(scenario.seed, LINKS_STREAM));
        if scenario.follows {
            files.lead(&mut Draw::new(scenario.seed, LEADS_STREAM));
        }
        files
    }

    /// Makes some names such of one file.
    fn link(&mut self, draw: &mut Draw) {
        let is_file = |item: &Item| item.present().entry.kind == EntryKind::File;
        for number in 1..self.items.len() {
            let first = draw.below(number as u64) as usize;
            let first = self.items[first].same.unwrap_or(first);
            if draw.one_in(6) && is_file(&self.items[number]) && is_file(&self.items[first]) {
                let Version { entry, data } = self.items[first].present().clone();
                let item = &mut self.items[number];
                let path = item.present().entry.path.clone();
                item.versions = vec![Version { entry: Entry { path, ..entry }, data }];
                (item.same, item.is_linked) = (Some(first), true);
                let first_item = &mut self.items[first];
                (first_item.same, first_item.is_linked) = (Some(first), true);
            }
        }
    }

    /// The entry of name number `number`, which will have the number `id`, as a scan announces it.
    pub fn announce(&self, number: usize, id: usize, links: &mut Links) -> Option<Entry> {
        let mut entry = self.get(number)?.entry.clone();
        if let Some(same) = self.items[number].same.filter(|_| self.items[number].is_linked) {
            let link = match links.0.get(&same) {
                Some(first) => HardLink::To(*first),
                None => HardLink::First,
            };
            links.0.entry(same).or_insert(id as u64);
            let metadata = entry.attributes.metadata.get_or_insert_default();
            metadata.hard_link = Some(link);
            // A scan that is short of memory finds a first name before others.
            if link == HardLink::First && !number.is_multiple_of(3) {
                metadata.other_names = self.names_behind(number, same);
            }
        }
        Some(entry)
    }

    /// Paths of what comes later and is the same file.
    fn names_behind(&self, number: usize, same: usize) -> Vec<EntryPath> {
        let behind = self.items.iter().skip(number + 1);
        let others =
            behind.filter(|item| item.same == Some(same) && item.is_linked && !item.vanished);
        others.map(|item| item.present().entry.path.clone()).take(OTHER_NAMES_MAX).collect()
    }

    fn of(items: Vec<Item>) -> Self {
        let path = |item: &Item| item.present().entry.path.as_bytes().to_vec();
        let by_path = items.iter().enumerate().map(|(number, item)| (path(item), number)).collect();
        let raw = items.len();
        Self { items, by_path, has_foreign: false, extra: Vec::new(), leads: BTreeMap::new(), raw }
    }

    /// A file of each size, in this order.
    pub fn of_sizes(draw: &mut Draw, sizes: &[u64]) -> Self {
        let item = |(number, size): (u64, &u64)| {
            Item::new(&number.to_string(), EntryKind::File, contents(draw, *size), number)
        };
        Self::of((1..).zip(sizes).map(item).collect())
    }

    /// Names of all that has nothing below it.
    pub fn list(&self) -> NameList {
        let is_above = |path: &[u8]| {
            let below = [path, b"/"].concat();
            self.by_path
                .range(below.clone()..)
                .next()
                .is_some_and(|(next, _)| next.starts_with(&below))
        };
        let names = self.by_path.keys().filter(|path| !is_above(path));
        // To some a slash is put, which says nothing here.
        let slash = |path: &[u8]| if path.len().is_multiple_of(3) { &b"/"[..] } else { b"" };
        NameList::new(names.map(|path| [path, slash(path)].concat()))
            .expect("scenarios have possible entries")
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Bytes of the present files.
    pub fn bytes(&self) -> u64 {
        self.items.iter().filter(|i| !i.vanished).map(|i| i.present().entry.data_len()).sum()
    }

    /// Contents under name number `number`, unless it has vanished.
    pub fn get(&self, number: usize) -> Option<&Version> {
        self.items.get(number).filter(|item| !item.vanished).map(Item::present)
    }

    /// The names of files with several.
    pub fn linked(&self) -> impl Iterator<Item = &Version> {
        self.items.iter().filter(|item| item.is_linked && !item.vanished).map(Item::present)
    }

    /// The present version under `path`.
    pub fn at(&self, path: &[u8]) -> Option<&Version> {
        self.by_path.get(path).and_then(|number| self.get(*number))
    }

    /// A file (never a directory, so that no other name depends on it) is removed.
    pub fn vanish(&mut self, choice: u64) -> bool {
        self.choose(choice).is_some_and(|item| {
            item.vanished = true;
            true
        })
    }

    /// A file gets other contents, and with them another identity.
    pub fn change(&mut self, choice: u64, draw: &mut Draw) -> bool {
        self.renew(choice, draw, 1_000_000_000)
    }

    /// The same, and the new contents are older than those before: once, since versions differ by
    /// their times.
    pub fn age(&mut self, choice: u64, draw: &mut Draw) -> bool {
        let is_first = |item: &mut Item| item.versions.len() == 1;
        self.choose(choice).is_some_and(is_first) && self.renew(choice, draw, -500_000_000)
    }

    fn renew(&mut self, choice: u64, draw: &mut Draw, later_ns: i64) -> bool {
        let Some(item) = self.choose(choice) else { return false };
        let present = item.present();
        let size = match draw.below(3) {
            0 => present.entry.size,
            1 => present.entry.size / 2,
            _ => present.entry.size + draw.between(1, 50_000),
        };
        let data = Arc::new(contents(draw, size));
        let modified = present.entry.modified + later_ns;
        let inode = draw.word();
        let entry = Entry {
            size,
            modified,
            identity: identity_of(inode, size, modified, None),
            attributes: Attributes::default(),
            ..present.entry.clone()
        };
        item.versions.push(Version { entry, data });
        if draw.below(8) == 0 {
            item.dig(draw, inode);
        }
        let (same, identity) = (item.same, item.present().entry.identity);
        self.renew_names(same, identity);
        true
    }

    /// The version that one name of a file got last is that of the others.
    fn renew_names(&mut self, same: Option<usize>, identity: [u8; 16]) {
        let Some(same) = same else { return };
        let is_new =
            |item: &&Item| item.same == Some(same) && item.present().entry.identity == identity;
        let Some(Version { entry, data }) =
            self.items.iter().find(is_new).map(Item::present).cloned()
        else {
            return;
        };
        for item in self.items.iter_mut().filter(|item| item.same == Some(same)) {
            let present = &item.present().entry;
            if present.identity != identity {
                let path = present.path.clone();
                let entry = Entry { path, ..entry.clone() };
                item.versions.push(Version { entry, data: Arc::clone(&data) });
            }
        }
    }

    /// A file gets a later time, and of its contents one byte changes, or none.
    pub fn patch(&mut self, choice: u64, draw: &mut Draw) {
        let Some(item) = self.choose(choice) else { return };
        let present = item.present();
        let mut data = present.data.to_vec();
        if !data.is_empty() && draw.one_in(2) {
            let at = draw.below(data.len() as u64) as usize;
            data[at] ^= 1;
        }
        let (size, modified) = (present.entry.size, present.entry.modified + 1_000_000_000);
        let identity = identity_of(draw.word(), size, modified, None);
        // The byte may be where a hole was.
        let attributes = Attributes::default();
        let entry = Entry { modified, identity, attributes, ..present.entry.clone() };
        item.versions.push(Version { entry, data: Arc::new(data) });
        let same = item.same;
        self.renew_names(same, identity);
    }

    fn choose(&mut self, choice: u64) -> Option<&mut Item> {
        let mut files: Vec<&mut Item> = self
            .items
            .iter_mut()
            .filter(|item| !item.vanished && item.broken.is_none())
            .filter(|item| item.present().entry.kind == EntryKind::File)
            .collect();
        let count = files.len() as u64;
        (count > 0).then(|| files.swap_remove((choice % count) as usize))
    }

    /// Fault of the name of `entry` at the sink: it must be there, whole and right.
    pub fn fault_of(&self, disk: &MemoryStorage, entry: &Entry) -> Option<String> {
        let path = entry.path.as_bytes();
        let node = disk.node(path);
        let right = match (&entry.kind, node) {
            (EntryKind::Directory, Some(Node::Directory { mode, modified, metadata })) => {
                (*mode, *modified, metadata) == (entry.mode, entry.modified, &metadata_of(entry))
            }
            (EntryKind::Link { target }, Some(Node::Link { target: made })) => {
                target[..] == made[..]
            }
            (EntryKind::File, Some(Node::File { mode, modified, metadata, .. })) => {
                (*mode, *modified, metadata) == (entry.mode, entry.modified, &metadata_of(entry))
                    && self
                        .version(entry)
                        .is_some_and(|version| disk.contents(path) == Some(&version.data[..]))
            }
            _ => false,
        };
        (!right).then(|| format!("`{}` of {} bytes is {node:?}", entry.path, entry.size))
    }

    /// True if the sink has a file of that name that was modified later than the entry.
    pub fn is_newer_at(&self, disk: &MemoryStorage, entry: &Entry) -> bool {
        matches!(disk.node(entry.path.as_bytes()), Some(Node::File { modified, .. }) if *modified > entry.modified)
    }

    fn is_foreign(&self, disk: &MemoryStorage, version: &Version) -> bool {
        let mut other = version.data.to_vec();
        // Holes were not sent, so they are what they were.
        for part in version.entry.parts(0, version.entry.data_len()) {
            other[part.start as usize..part.end as usize].iter_mut().for_each(foreign);
        }
        self.has_foreign && disk.contents(version.entry.path.as_bytes()) == Some(&other)
    }

    fn version(&self, entry: &Entry) -> Option<&Version> {
        let metadata = metadata_of(entry);
        let attributes = Attributes { metadata, ..entry.attributes.clone() };
        let entry = Entry { attributes, ..entry.clone() };
        self.versions(entry.path.as_bytes()).iter().find(|version| version.entry == entry)
    }

    /// All contents that ever were under `path`.
    fn versions(&self, path: &[u8]) -> &[Version] {
        self.by_path.get(path).map_or(&[], |number| &self.items[*number].versions)
    }

    /// Fault of what was there before and is not at the source: it goes where the sink `deletes`, and stays
    /// otherwise.
    pub fn fault_of_extra(&self, disk: &MemoryStorage, deletes: bool) -> Option<String> {
        let extra = self.extra.iter().find(|path| disk.node(path).is_some() == deletes)?;
        Some(format!("{} is there: {deletes}", extra.escape_ascii()))
    }

    /// Fault of any file under a final name, also if nobody here put it there.
    pub fn fault_of_names(&self, disk: &MemoryStorage) -> Option<String> {
        disk.nodes().find_map(|(path, node)| {
            let Node::File { modified, .. } = node else { return None };
            match self.versions(path).iter().find(|version| version.entry.modified == *modified) {
                Some(version) if self.is_foreign(disk, version) => None,
                Some(version) => self.fault_of(disk, &version.entry),
                None => Some(format!("{path:?} was never at the source")),
            }
        })
    }
}

impl Item {
    fn new(path: &str, kind: EntryKind, data: Vec<u8>, number: u64) -> Self {
        let size = data.len() as u64;
        let modified = 1_700_000_000_000_000_000 + number as i64;
        let entry = Entry {
            kind,
            mode: 0o640,
            modified,
            size,
            identity: identity_of(number, size, modified, None),
            path: EntryPath::new(path.into()).expect("made of numbers and slashes"),
            attributes: Attributes::default(),
        };
        let versions = vec![Version { entry, data: Arc::new(data) }];
        Self { versions, vanished: false, same: None, is_linked: false, broken: None }
    }

    /// Makes holes in the present version of a file, at random places: in all of it, perhaps.
    fn dig(&mut self, draw: &mut Draw, inode: u64) {
        let Version { entry, data } = self.versions.last_mut().expect("an item has a version");
        let (mut ranges, mut at) = (Vec::new(), 0);
        while at < entry.size && draw.below(4) > 0 {
            let start = at + draw.below(entry.size - at);
            let end = start + 1 + draw.below(entry.size - start);
            ranges.push(start..end);
            at = end + 1;
        }
        let holes = DataRanges::new(ranges).filter(|holes| holes.fit(entry.size));
        let Some(holes) = holes.filter(|_| entry.kind == EntryKind::File) else { return };
        let mut sparse = vec![0; data.len()];
        for range in holes.iter().map(|range| range.start as usize..range.end as usize) {
            sparse[range.clone()].copy_from_slice(&data[range]);
        }
        *data = Arc::new(sparse);
        entry.identity = identity_of(inode, entry.size, entry.modified, Some(&holes));
        entry.attributes.data = Some(holes);
    }

    /// Gives the present version metadata, much of it at times.
    fn own(&mut self, draw: &mut Draw, most: u64) {
        let entry = &mut self.versions.last_mut().expect("an item has a version").entry;
        let mut account = |bound| {
            let id = draw.below(bound) as u32;
            Account { id, name: b"ann"[..id as usize % 4].into() }
        };
        let (owner, group) = (Some(account(9)), Some(account(1 << 31)));
        let value = vec![7; draw.scaled(1, most) as usize].into();
        let xattrs = vec![Xattr { name: b"user.a"[..].into(), value }];
        let metadata = Metadata { owner, group, xattrs, ..Metadata::default() };
        entry.attributes.metadata = metadata.boxed();
    }

    fn present(&self) -> &Version {
        self.versions.last().expect("an item has a version")
    }
}

/// Puts a foreign byte in the place of a byte.
pub(crate) fn foreign(byte: &mut u8) {
    *byte = !*byte;
}

/// Number of the stream of choices of names of one file.
const LINKS_STREAM: u64 = 67;
/// Of links that are followed.
const LEADS_STREAM: u64 = 98;
/// Of the number of an item.
const DIGITS_MAX: usize = 20;

fn identity_of(inode: u64, size: u64, modified: i64, data: Option<&DataRanges>) -> [u8; 16] {
    identity(&FileIdentity { device: 1, inode, size, modified, changed: modified }, data)
}

/// Bytes without a pattern that a misplaced packet could hide in.
fn contents(draw: &mut Draw, size: u64) -> Vec<u8> {
    let mut data = vec![0; size as usize];
    let mut word = draw.word();
    let mut next = || {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x1234_5678;
        word.to_le_bytes()
    };
    let (words, rest) = data.as_chunks_mut::<8>();
    words.iter_mut().for_each(|place| *place = next());
    rest.copy_from_slice(&next()[..rest.len()]);
    data
}
