//! Symbolic links that are followed: names for what they lead to, or for nothing.

use std::sync::Arc;

use longhaul_objects::testing::{MemoryStorage, Node};
use longhaul_wire::{Attributes, Entry, EntryCode, EntryEnd, EntryKind, EntryPath, MAX_PATH};

use super::{Files, Item, Version};
use crate::draw::Draw;

impl Files {
    /// Adds links, and the names that they make.
    pub fn lead(&mut self, draw: &mut Draw) {
        self.raw = self.items.len();
        for number in 0..self.raw {
            let Entry { kind, path, .. } = &self.items[number].present().entry;
            if matches!(kind, EntryKind::Link { .. }) {
                self.leads.insert(path.as_bytes().to_vec(), b"nowhere".to_vec());
                self.items[number] = broken(path.clone(), end(Leads::Nowhere));
            }
        }
        for number in 0..draw.between(1, LEADS_MAX) {
            let (within, target) = (self.some(draw, true), self.some_target(draw));
            let path = join(&within, format!("l{number}").as_bytes());
            let target = match draw.below(6) {
                // A directory that holds it.
                0 => within,
                1 => path.clone(),
                _ => target,
            };
            self.leads.insert(path, target);
        }
        let links: Vec<Vec<u8>> = self.leads.keys().cloned().collect();
        let mut names = Vec::new();
        for link in links {
            if !self.by_path.contains_key(&link) && !self.expand(link.clone(), &mut names) {
                names.retain(|(path, _)| !path.starts_with(&link));
                self.leads.remove(&link);
            }
        }
        // Without one of them others may lead elsewhere.
        names.clear();
        let links: Vec<Vec<u8>> = self.leads.keys().cloned().collect();
        for link in links.into_iter().filter(|link| !self.by_path.contains_key(link)) {
            self.expand(link, &mut names);
        }
        names.into_iter().for_each(|(path, behind)| self.add(path, behind));
    }

    /// Path of a directory, or of a file.
    fn some(&self, draw: &mut Draw, is_directory: bool) -> Vec<u8> {
        let is_such = |item: &&Item| {
            let kind = &item.present().entry.kind;
            item.broken.is_none() && (*kind == EntryKind::Directory) == is_directory
        };
        let path = |item: &Item| item.present().entry.path.as_bytes().to_vec();
        let mut all: Vec<_> = self.items[..self.raw].iter().filter(is_such).map(path).collect();
        if is_directory || all.is_empty() {
            all.push(Vec::new());
        }
        draw.pick(&all).clone()
    }

    fn some_target(&self, draw: &mut Draw) -> Vec<u8> {
        match draw.below(5) {
            0 => b"nowhere".to_vec(),
            1 => format!("l{}", draw.below(LEADS_MAX)).into_bytes(),
            2 => self.some(draw, false),
            _ => self.some(draw, true),
        }
    }

    /// Finds what has the path, through links: an item, or the top.
    fn walk(&self, path: &[u8]) -> Result<Option<usize>, Leads> {
        let mut rest: Vec<Vec<u8>> = components(path);
        let (mut at, mut links) = (Vec::new(), 0);
        while let Some(name) = rest.pop() {
            let next = join(&at, &name);
            if let Some(target) = self.leads.get(&next) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Leads::Back);
                }
                rest.extend(components(target));
                at.clear();
                continue;
            }
            let item = self.by_path.get(&next).filter(|number| **number < self.raw);
            let kind = item.map(|number| &self.items[*number].present().entry.kind);
            match kind {
                Some(EntryKind::Directory) => at = next,
                Some(_) if rest.is_empty() => at = next,
                _ => return Err(Leads::Nowhere),
            }
        }
        Ok(self.by_path.get(&at).copied())
    }

    /// Names of what a path leads to, and all below it; false where there are too many.
    fn expand(&self, path: Vec<u8>, names: &mut Vec<(Vec<u8>, Result<usize, Leads>)>) -> bool {
        if names.len() > NAMES_MAX || path.len() > MAX_PATH {
            return false;
        }
        let found = self.walk(&path);
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        let is_above = [0].into_iter().chain(ends).any(|end| self.walk(&path[..end]) == found);
        let behind = match found {
            Ok(Some(number)) if !is_above => number,
            Ok(_) => {
                names.push((path, Err(Leads::Back)));
                return true;
            }
            Err(why) => {
                names.push((path, Err(why)));
                return true;
            }
        };
        names.push((path.clone(), Ok(behind)));
        let Entry { kind, path: of, .. } = &self.items[behind].present().entry;
        *kind != EntryKind::Directory
            || self
                .names_in(of.as_bytes())
                .into_iter()
                .all(|name| self.expand(join(&path, &name), names))
    }

    fn names_in(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        let items = self.items[..self.raw].iter().map(|item| item.present().entry.path.as_bytes());
        let links = self.leads.keys().map(Vec::as_slice);
        let name = |path: &[u8]| {
            let name = path.strip_prefix(&*join(directory, b""))?;
            (!name.is_empty() && !name.contains(&b'/')).then(|| name.to_vec())
        };
        let mut names: Vec<_> = items.chain(links).filter_map(name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn add(&mut self, path: Vec<u8>, behind: Result<usize, Leads>) {
        let name = EntryPath::new(path.clone()).expect("joined of possible names");
        let item = match behind {
            Err(why) => broken(name, end(why)),
            Ok(number) => {
                let Version { entry, data } = self.items[number].present().clone();
                // Changes of the file are seen by all of its names.
                let is_file = entry.kind == EntryKind::File;
                let same = is_file.then(|| *self.items[number].same.get_or_insert(number));
                let versions = vec![Version { entry: Entry { path: name, ..entry }, data }];
                Item { versions, vanished: false, same, is_linked: false, broken: None }
            }
        };
        self.by_path.insert(path, self.items.len());
        self.items.push(item);
    }

    /// Paths of links that lead nowhere, or back to where they are.
    pub fn broken(&self) -> impl Iterator<Item = (&[u8], EntryCode)> {
        let of = |item: &Item| Some(item.broken.as_ref()?.code);
        self.items
            .iter()
            .filter_map(move |item| Some((item.present().entry.path.as_bytes(), of(item)?)))
    }

    /// Why name number `number` is not copied.
    pub fn broken_end(&self, number: usize) -> Option<&EntryEnd> {
        self.items[number].broken.as_ref()
    }

    /// Fault of the destination, compared with what the paths lead to.
    /// Newer files, where these are left alone, are others.
    pub fn fault_of_followed(&self, disk: &MemoryStorage, keeps_newer: bool) -> Option<String> {
        let is_extra = |path: &[u8]| self.extra.iter().any(|extra| extra == path);
        disk.nodes().filter(|(path, _)| !is_extra(path)).find_map(|(path, node)| {
            let found = self.walk(path).ok().flatten().map(|number| self.items[number].present());
            let is_that = found.is_some_and(|found| match node {
                Node::Directory { .. } => found.entry.kind == EntryKind::Directory,
                Node::File { modified, .. } => {
                    disk.contents(path) == Some(&found.data[..])
                        || keeps_newer && *modified > found.entry.modified
                }
                Node::Link { .. } => false,
            });
            (!is_that).then(|| format!("{}: {node:?} is there", path.escape_ascii()))
        })
    }
}

/// Where a link leads that is not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leads {
    Nowhere,
    Back,
}

fn end(why: Leads) -> EntryEnd {
    match why {
        Leads::Nowhere => EntryEnd::new(EntryCode::NotFound, "it leads nowhere"),
        Leads::Back => EntryEnd::new(EntryCode::Failed, "it leads back to where it is"),
    }
}

/// The stand-in that a scan announces for what cannot be copied.
fn broken(path: EntryPath, end: EntryEnd) -> Item {
    let entry = Entry {
        kind: EntryKind::File,
        mode: 0,
        modified: 0,
        size: 1,
        identity: [0; 16],
        path,
        attributes: Attributes::default(),
    };
    let versions = vec![Version { entry, data: Arc::new(vec![0]) }];
    Item { versions, vanished: false, same: None, is_linked: false, broken: Some(end) }
}

/// Names of a path, the last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.rev().map(<[u8]>::to_vec).collect()
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    [directory, slash, name].concat()
}

const LEADS_MAX: u64 = 4;
/// Names that links make, at most.
const NAMES_MAX: usize = 200;
/// Links in one path, as kernels have it.
const LINKS_MAX: u32 = 40;
