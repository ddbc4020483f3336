//! Checking what the source announces.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::ObjectId;
use longhaul_wire::{Entry, EntryCode, EntryEnd, EntryKind, KeptAttributes, ManifestObject};

use super::entries::{Beginning, Entries, State};
use super::hard_links::{HardLinks, first_cost};
use super::objects::Object;
use super::setup::Looks;
use super::{Sink, SinkError, SourceKnows};
use crate::directory::Directory;
use crate::entry::{
    EntryError, EntryId, PathKey, TempName, check, cost, is_large, is_stand_in, key, metadata_cost,
    own_name, parent,
};
use crate::limits::{
    ASIDE_COST, BUNDLE_MAX, DIRECTORIES_MAX, DIRECTORY_COST, ENTRIES_MAX, PATH_COST,
    UNSETTLED_COST, WINDOW_MAX,
};
use crate::names::TopNames;
use crate::names::{shown_name, shown_top};
use crate::paths::{Announced, AnnouncedPaths, Node};

/// Announcements so far.
#[derive(Debug)]
pub(super) struct Manifest {
    names: TopNames,
    paths: AnnouncedPaths,
    /// Attributes that entries may have.
    kept: KeptAttributes,
    /// The root of the copy is a file or link, so that nothing else can be.
    root_is_leaf: bool,
    /// Entries below have no contents or belong to an announced object.
    covered: u32,
    bytes: u64,
    directories: u32,
    /// Something was left out, for want of memory. What is in a directory is left out with it.
    has_left_out: bool,
    ended: bool,
}

/// Treatment of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is taken in; this directory holds it.
    In(Option<EntryId>),
    /// It fails, in these words.
    Out(EntryCode, &'static str),
}

/// Addition by one more message.
struct Addition {
    /// As [`Manifest::paths`].
    taken: BTreeMap<PathKey, Node>,
    places: Vec<Place>,
    /// Memory for their paths, and for names of the directories and first names among them.
    names: u64,
    /// Of it, for first names.
    firsts: u64,
    has_left_out: bool,
    root_is_leaf: bool,
    /// The following are those of the manifest with it.
    covered: u32,
    bytes: u64,
    directories: u32,
}

impl Sink {
    pub(super) fn handle_manifest(
        &mut self,
        first_entry: u64,
        entries: Vec<Entry>,
        objects: &[ManifestObject],
    ) -> Result<(), SinkError> {
        let first = EntryId(self.entries.end());
        let known = self.known();
        let addition = self.manifest.check(&known, first_entry, &entries, objects)?;
        self.entries.names.take(PATH_COST * addition.taken.len() as u64 + addition.firsts);
        let places = self.manifest.add(addition);
        self.report.announced(entries.len(), self.manifest.bytes);
        for ((number, entry), place) in (first.0..).zip(entries).zip(places) {
            let id = EntryId(number);
            match place {
                Place::In(parent) if entry.kind == EntryKind::Directory => {
                    self.announce_directory(id, &entry, parent);
                }
                Place::In(parent) => self.announce(id, Arc::new(entry), parent),
                Place::Out(code, reason) => {
                    self.entries.leave_out(&entry);
                    // Without memory nothing of it is kept.
                    if code != EntryCode::OutOfResources {
                        self.publications.hard_links.announce(id, &entry, None);
                    }
                    let end = EntryEnd::new(code, reason);
                    self.note_ended(id, &entry, end, SourceKnows::No);
                }
            }
        }
        for spec in objects {
            let mut object = Object::new();
            let past = spec.first_entry + spec.entries;
            for id in (spec.first_entry as u32..past as u32).map(EntryId) {
                if let Some((size, is_large)) = self.entries.join_object(id, spec.id.0) {
                    object.push(id, size, is_large);
                }
            }
            self.objects.announce(object);
        }
        self.advance();
        Ok(())
    }

    fn announce(&mut self, id: EntryId, entry: Arc<Entry>, directory: Option<EntryId>) {
        let within = directory.and_then(|directory| self.entries.directory(directory));
        self.publications.hard_links.announce(id, &entry, within);
        let is_compared = self.is_compared(&entry);
        let may_be_elsewhere = !entry.other_names().is_empty();
        let compares = is_compared && (may_be_elsewhere || self.may_be_there(&entry, directory));
        let is_looked_at = self.dry_run && entry.linked_to().is_none() && !is_stand_in(&entry);
        let looks = Looks { compared: compares || is_looked_at, contents: self.keeps.equal };
        let (temp, state) = match self.dry_run && is_stand_in(&entry) {
            // Its failure comes, and until then nothing of it.
            true => (TempName::of_small(key(&entry)), State::Waiting),
            false => self.setup.begin(id, &entry, looks, &mut self.earlier),
        };
        if let Some(directory) = directory.filter(|_| is_compared && !looks.compared)
            && self.entries.in_state(directory, State::Waiting).is_some()
        {
            self.setup.compare_inside(directory, id);
        }
        let aside = self.staged.admits(directory, &entry, state, &mut self.entries.names);
        self.entries.announce(&entry, Beginning { temp, state, directory, aside });
    }

    /// True if it may stay as it is. Of a later name that is known when the first is settled, unless it is newer.
    pub(super) fn is_compared(&self, entry: &Entry) -> bool {
        match entry.linked_to() {
            // Its failure may come in a later packet than itself.
            _ if is_stand_in(entry) => false,
            Some(_) => self.keeps.newer,
            None => self.keeps.compares(),
        }
    }

    fn known(&self) -> Known<'_> {
        let objects = self.objects.end();
        Known { entries: &self.entries, objects, hard_links: &self.publications.hard_links }
    }

    /// True if the file or link may have its name already: not in a directory that is staged. Small files of one
    /// that is to be made are compared once it is known that it was there.
    fn may_be_there(&self, entry: &Entry, directory: Option<EntryId>) -> bool {
        let is_there = |id| {
            let is_made = self.entries.in_state(id, State::Waiting).is_none();
            is_made && !self.staged.is_staged(id)
        };
        let is_made = || directory.is_none_or(is_there);
        is_large(entry) || is_made()
    }

    fn announce_directory(&mut self, id: EntryId, entry: &Entry, parent: Option<EntryId>) {
        self.setup.begin_directory(id);
        self.staged.announce(id, parent, &mut self.entries.names);
        let within = parent.and_then(|parent| self.entries.directory(parent)).cloned();
        self.entries.announce_directory(id, Directory::new(entry, within));
    }

    /// The own names of what was asked for and was not announced, `.` for contents: of these the source
    /// says nothing, not even that they failed.
    pub fn unannounced(&self) -> Vec<String> {
        let unmet = self.manifest.names.unmet();
        // Of contents there is a reason then, if only of one of several directories.
        let says_nothing = self.entries.end() == 0;
        let due = self.manifest.unannounced().filter(|name| says_nothing || !name.is_empty());
        let names = due.chain(unmet.iter().map(Vec::as_slice));
        names.map(shown_name).collect()
    }

    /// Names of a list that was asked for of which the source says nothing.
    pub fn unannounced_of_list(&self) -> impl Iterator<Item = &[u8]> {
        let list = self.manifest.names.list();
        list.into_iter().flat_map(|list| list.unmet(&self.manifest.paths))
    }

    /// The kind of the entry that has this path, if the source has announced one.
    pub fn announced(&self, path: &[u8]) -> Option<Announced> {
        self.manifest.paths.kind(path)
    }

    pub(super) fn handle_manifest_end(
        &mut self,
        entries: u64,
        objects: u64,
        bytes: u64,
    ) -> Result<(), SinkError> {
        let (end, announced) = (self.entries.end(), self.objects.end());
        self.manifest.end((end, announced), (entries, objects, bytes))?;
        self.staged.close();
        self.report.manifest_ended();
        Ok(())
    }
}

/// Entries that were announced before.
struct Known<'a> {
    entries: &'a Entries,
    objects: u32,
    hard_links: &'a HardLinks,
}

impl Known<'_> {
    /// False of a later name whose first was not announced before it: earlier, or in the same `message`.
    fn has_first_of(&self, entry: &Entry, id: EntryId, message: &[Entry]) -> bool {
        let Some(to) = entry.linked_to() else { return true };
        match to.checked_sub(u64::from(self.entries.end())) {
            None => self.hard_links.has(EntryId(to as u32)),
            Some(index) if to < id.as_wire() => {
                message.get(index as usize).is_some_and(Entry::is_first_name)
            }
            Some(_) => false,
        }
    }
}

impl Manifest {
    pub(super) fn new(names: TopNames, kept: KeptAttributes) -> Self {
        Self {
            names,
            kept,
            paths: AnnouncedPaths::default(),
            root_is_leaf: false,
            covered: 0,
            bytes: 0,
            directories: 0,
            has_left_out: false,
            ended: false,
        }
    }

    /// All paths that were announced, for those who look at what is there beside them.
    pub(super) fn paths(&self) -> AnnouncedPaths {
        self.paths.clone()
    }

    /// True if nothing more is announced.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Entries below have no contents or belong to an announced object.
    pub(super) fn covered(&self) -> u32 {
        self.covered
    }

    /// True of what stands for a directory above listed names that cannot be had: the source is to say why, and the
    /// name is never given.
    pub(super) fn only_fails(&self, entry: &Entry) -> bool {
        is_stand_in(entry) && self.names.fails(entry)
    }

    /// Names that were asked for and not announced: names at the top, or that itself.
    fn unannounced(&self) -> impl Iterator<Item = &[u8]> {
        self.names.due().filter(|name| !self.paths.contains(name))
    }

    /// Checks what one more message announces. Nothing is taken before all of it is known to be right,
    /// so a bad one costs no more than those before it, whatever was announced earlier.
    fn check(
        &self,
        known: &Known,
        first_entry: u64,
        entries: &[Entry],
        objects: &[ManifestObject],
    ) -> Result<Addition, SinkError> {
        if self.ended {
            return Err(SinkError::AfterEnd);
        }
        let first = EntryId(known.entries.end());
        if first_entry != first.as_wire() {
            return Err(SinkError::Order);
        }
        let more = entries.iter().filter(|entry| entry.kind == EntryKind::Directory).count() as u64;
        let bytes = entries
            .iter()
            .try_fold(self.bytes, |sum, entry| sum.checked_add(entry.data_len()))
            .ok_or(SinkError::TooMany)?;
        let directories = u64::from(self.directories) + more;
        let others = entries.iter().filter(|entry| entry.kind != EntryKind::Directory);
        let held = known.entries.held_for_source() + others.map(cost).sum::<u64>();
        let window = u64::from(known.entries.window()) + entries.len() as u64;
        if u64::from(first.0) + entries.len() as u64 > u64::from(ENTRIES_MAX)
            || directories > u64::from(DIRECTORIES_MAX)
            || held > UNSETTLED_COST
            || window > 2 * u64::from(WINDOW_MAX)
        {
            return Err(SinkError::TooMany);
        }
        let mut addition = Addition {
            taken: BTreeMap::new(),
            places: Vec::with_capacity(entries.len()),
            names: 0,
            firsts: 0,
            has_left_out: self.has_left_out,
            root_is_leaf: self.root_is_leaf,
            covered: self.check_objects(known, entries, objects)?,
            bytes,
            directories: directories as u32,
        };
        for (number, entry) in (first.0..).zip(entries) {
            let id = EntryId(number);
            self.check_path(known, id, entry, &mut addition)?;
            // What there was no memory for is not kept.
            if !addition.has_left_out && !known.has_first_of(entry, id, entries) {
                return Err(SinkError::HardLink { entry: id });
            }
        }
        Ok(addition)
    }

    /// Takes what was found right. Returns what becomes of each.
    fn add(&mut self, addition: Addition) -> Vec<Place> {
        self.paths.extend(addition.taken);
        self.root_is_leaf = addition.root_is_leaf;
        self.covered = addition.covered;
        self.bytes = addition.bytes;
        self.directories = addition.directories;
        self.has_left_out = addition.has_left_out;
        addition.places
    }

    /// Nothing more is announced, if the totals are right.
    fn end(
        &mut self,
        (end, objects): (u32, u32),
        totals: (u64, u64, u64),
    ) -> Result<(), SinkError> {
        if self.ended {
            return Err(SinkError::AfterEnd);
        }
        if totals != (u64::from(end), u64::from(objects), self.bytes) || self.covered != end {
            return Err(SinkError::Totals);
        }
        self.ended = true;
        Ok(())
    }

    /// Checks `objects`; returns what [`Manifest::covered`] is after them.
    fn check_objects(
        &self,
        known: &Known,
        entries: &[Entry],
        objects: &[ManifestObject],
    ) -> Result<u32, SinkError> {
        let first = EntryId(known.entries.end());
        let file = |number: u32| match number.checked_sub(first.0) {
            Some(index) => {
                let entry = entries.get(index as usize)?;
                Some((entry.data_len(), is_large(entry)))
            }
            None => {
                let slot = known.entries.get(EntryId(number))?;
                Some((slot.size(), slot.is_large()))
            }
        };
        let size_of = |number| file(number).map(|(size, _)| size);
        let end = first.0 + entries.len() as u32;
        let skip = |mut number: u32| {
            while number < end && size_of(number) == Some(0) {
                number += 1;
            }
            number
        };
        let mut covered = skip(self.covered);
        for (number, spec) in (known.objects..).zip(objects) {
            let error = || SinkError::Object { object: spec.id };
            let past = spec.first_entry.checked_add(spec.entries);
            let past = past.filter(|past| *past <= u64::from(end)).ok_or_else(error)? as u32;
            if spec.id != ObjectId(number)
                || spec.first_entry != u64::from(covered)
                || spec.entries == 0
            {
                return Err(error());
            }
            let mut size = 0;
            for number in covered..past {
                let (more, is_large) = file(number).ok_or_else(error)?;
                let fits = spec.entries == 1 || !is_large && size + more <= BUNDLE_MAX;
                if !fits {
                    return Err(error());
                }
                size += more;
            }
            if size != spec.size || size_of(past - 1) == Some(0) {
                return Err(error());
            }
            covered = skip(past);
        }
        Ok(covered)
    }

    fn check_path(
        &self,
        entries: &Known<'_>,
        id: EntryId,
        entry: &Entry,
        new: &mut Addition,
    ) -> Result<(), SinkError> {
        check(entry).map_err(|error| SinkError::Entry { entry: id, error })?;
        let metadata = entry.attributes.metadata.as_deref();
        if metadata.is_some_and(|metadata| !metadata.is_within(self.kept)) {
            return Err(SinkError::Entry { entry: id, error: EntryError::NotKept });
        }
        if !self.names.admit(entry) {
            return Err(SinkError::NotAskedFor { name: shown_top(entry) });
        }
        let known = |key: &PathKey| self.paths.get(key).or_else(|| new.taken.get(key).copied());
        // The root comes first, and nothing is in it unless it is a directory.
        let is_root = entry.path.is_empty();
        let path = parent(entry);
        let holder = known(&PathKey::of(path.unwrap_or_default())).and_then(Node::directory);
        let holder = holder.filter(|_| !is_root);
        let is_orphan = path.is_some() && holder.is_none();
        if is_orphan && !new.has_left_out || new.root_is_leaf || is_root && id.0 > 0 {
            return Err(SinkError::Orphan { entry: id });
        }
        if is_orphan {
            new.places.push(Place::Out(EntryCode::OutOfResources, LEFT_OUT_WITH));
            return Ok(());
        }
        let is_directory = entry.kind == EntryKind::Directory;
        let key = PathKey::of(entry.path.as_bytes());
        if known(&key).is_some() {
            return Err(SinkError::Duplicate { entry: id });
        }
        let own = if is_directory {
            let name = own_name(entry).len() as u64;
            let metadata = metadata_cost(entry.attributes.metadata_len());
            PATH_COST + DIRECTORY_COST + ASIDE_COST + name + metadata
        } else {
            PATH_COST + first_cost(entry)
        };
        if !entries.entries.names.has_room(new.names + own) {
            new.has_left_out = true;
            new.places.push(Place::Out(EntryCode::OutOfResources, LEFT_OUT));
            return Ok(());
        }
        new.names += own;
        new.firsts += first_cost(entry);
        new.taken.insert(key, Node::of(id, &entry.kind));
        new.places.push(match self.names.fails(entry) && !is_stand_in(entry) {
            true => Place::Out(EntryCode::NotFound, NOT_ABOVE),
            false => Place::In(holder),
        });
        new.root_is_leaf = is_root && !is_directory;
        Ok(())
    }
}

pub(super) const NOT_ABOVE: &str = "names in it are listed, and it is no directory at the server";
const LEFT_OUT: &str =
    "the receiving side has no memory left for another name (--memory); copy it in parts";
const LEFT_OUT_WITH: &str = "its directory, or one above it, was left out";

#[cfg(test)]
mod tests {
    use alloc::format;

    use longhaul_wire::SourceMessage;

    use super::*;
    use crate::SinkConfig;
    use crate::entry::tests::take_comparisons;
    use crate::testing::file;

    fn manifest(first_entry: u64, entries: Vec<Entry>) -> SourceMessage {
        SourceMessage::Manifest { first_entry, entries, objects: Vec::new() }
    }

    /// Comparisons of paths for a message of so many `entries`, the last of which has the path of the
    /// first, behind so many `earlier` ones.
    fn cost_of_a_bad_one(earlier: u64, entries: u64) -> u64 {
        let names = |numbers: core::ops::Range<u64>| numbers.map(|n| file(&format!("f{n}"), 0));
        let mut sink = Sink::new(SinkConfig::default(), Default::default());
        sink.handle(manifest(0, names(0..earlier).collect())).unwrap();
        let bad = names(earlier..earlier + entries).chain(names(earlier..earlier + 1)).collect();
        take_comparisons();
        let duplicate = EntryId((earlier + entries) as u32);
        let error = sink.handle(manifest(earlier, bad)).unwrap_err();
        assert_eq!(error, SinkError::Duplicate { entry: duplicate });
        take_comparisons()
    }

    #[test]
    fn a_bad_manifest_costs_a_search_for_each_of_its_entries_whatever_was_announced_before() {
        let few = cost_of_a_bad_one(100, 100);
        assert!(few >= 100, "{few}: each path is looked for");
        // The depth of the tree is more than twice as large, and no more than four times.
        let many = cost_of_a_bad_one(40_000, 100);
        assert!(many < 4 * few, "{many} comparisons, {few} behind a hundred");
        let long = cost_of_a_bad_one(100, 10_000);
        assert!(long < 4 * 100 * few, "{long} comparisons, {few} for a hundredth");
    }
}
