//! Checking what the source announces.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::ObjectId;
use longhaul_wire::{Entry, EntryKind, ManifestObject};

use super::aside::NOWHERE;
use super::{Sink, SinkError, Slot, State};
use crate::entry::{check, parent, path_key};
use crate::limits::{BUNDLE_MAX, DIRECTORIES_MAX, ENTRIES_MAX, LARGE_FILE_MIN, UNSETTLED_MAX};
use crate::names::shown_top;
use crate::sink::groups::Object;
use crate::{EntryId, TempName};

impl Sink {
    pub(super) fn handle_manifest(
        &mut self,
        first_entry: u64,
        entries: Vec<Entry>,
        objects: &[ManifestObject],
    ) -> Result<(), SinkError> {
        if self.ended {
            return Err(SinkError::AfterEnd);
        }
        let first = EntryId(self.slots.end());
        if first_entry != first.as_wire() {
            return Err(SinkError::Order);
        }
        let directories =
            entries.iter().filter(|entry| entry.kind == EntryKind::Directory).count() as u64;
        let bytes = entries
            .iter()
            .try_fold(self.announced_bytes, |sum, entry| sum.checked_add(entry.size))
            .ok_or(SinkError::TooMany)?;
        let others = entries.len() as u64 - directories;
        if u64::from(first.0) + entries.len() as u64 > u64::from(ENTRIES_MAX)
            || u64::from(self.directory_count) + directories > u64::from(DIRECTORIES_MAX)
            || u64::from(self.unsettled) + others > 2 * u64::from(UNSETTLED_MAX)
        {
            return Err(SinkError::TooMany);
        }
        let coverage = self.check_objects(first, &entries, objects)?;
        let Paths { taken, parents, root_is_leaf } = self.check_paths(first, &entries)?;

        self.paths.extend(taken);
        self.root_is_leaf = root_is_leaf;
        self.announced_bytes = bytes;
        self.directory_count += directories as u32;
        self.unmade += directories as u32;
        self.unsettled += others as u32;
        self.unfinished += others as u32;
        self.unnamed += others as u32;
        self.report.announced(entries.len(), bytes);
        for ((number, entry), parent) in (first.0..).zip(entries).zip(parents) {
            let entry = Arc::new(entry);
            self.slots.push(Slot {
                entry: Some(Arc::clone(&entry)),
                size: entry.size,
                temp: TempName([0; 16]),
                directory: NOWHERE,
                aside: false,
                recorded: false,
                object: u32::MAX,
                left: 0,
                state: State::Open,
                dirty: false,
                prepared: false,
            });
            self.set_up(EntryId(number), &entry);
            if entry.kind == EntryKind::Directory {
                self.begin_directory(EntryId(number), parent, &entry);
            } else {
                self.join_directory(EntryId(number), parent);
            }
        }
        for spec in objects {
            let mut object = Object::new();
            let past = spec.first_entry + spec.entries;
            for number in spec.first_entry as u32..past as u32 {
                if let Some(slot) = self.slots.get_mut(number).filter(|slot| slot.size > 0) {
                    slot.object = spec.id.0;
                    object.push(EntryId(number), slot.size);
                }
            }
            self.objects.push(object);
        }
        self.covered = coverage;
        self.advance();
        Ok(())
    }

    pub(super) fn handle_manifest_end(
        &mut self,
        entries: u64,
        objects: u64,
        bytes: u64,
    ) -> Result<(), SinkError> {
        if self.ended {
            return Err(SinkError::AfterEnd);
        }
        let announced =
            (u64::from(self.slots.end()), u64::from(self.objects.end()), self.announced_bytes);
        if (entries, objects, bytes) != announced || self.covered != self.slots.end() {
            return Err(SinkError::Totals);
        }
        self.ended = true;
        self.close_directory();
        self.report.manifest_ended();
        Ok(())
    }

    /// Checks `objects`; returns what [`Sink::covered`] is after them.
    fn check_objects(
        &self,
        first: EntryId,
        entries: &[Entry],
        objects: &[ManifestObject],
    ) -> Result<u32, SinkError> {
        let size_of = |number: u32| match number.checked_sub(first.0) {
            Some(index) => entries.get(index as usize).map(|entry| entry.size),
            None => self.slots.get(number).map(|slot| slot.size),
        };
        let end = first.0 + entries.len() as u32;
        let skip = |mut number: u32| {
            while number < end && size_of(number) == Some(0) {
                number += 1;
            }
            number
        };
        let mut covered = skip(self.covered);
        for (number, spec) in (self.objects.end()..).zip(objects) {
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
                let more = size_of(number).ok_or_else(error)?;
                let fits = spec.entries == 1 || more < LARGE_FILE_MIN && size + more <= BUNDLE_MAX;
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

    /// Checks the entries and where they are. Nothing is taken before all of them are known to be
    /// right, so a bad one costs no more than those before it, whatever was announced earlier.
    fn check_paths(&self, first: EntryId, entries: &[Entry]) -> Result<Paths, SinkError> {
        let mut paths = Paths {
            taken: BTreeMap::new(),
            parents: Vec::with_capacity(entries.len()),
            root_is_leaf: self.root_is_leaf,
        };
        for (number, entry) in (first.0..).zip(entries) {
            self.check_path(EntryId(number), entry, &mut paths)?;
        }
        Ok(paths)
    }

    fn check_path(&self, id: EntryId, entry: &Entry, new: &mut Paths) -> Result<(), SinkError> {
        check(entry).map_err(|error| SinkError::Entry { entry: id, error })?;
        if !self.config.names.admit(entry) {
            return Err(SinkError::NotAskedFor { name: shown_top(entry) });
        }
        let known = |key: &[u8; 16]| self.paths.get(key).or_else(|| new.taken.get(key)).copied();
        // The root comes first, and nothing is in it unless it is a directory.
        let is_root = entry.path.is_empty();
        let path = parent(entry);
        let holder = known(&path_key(path.unwrap_or_default())).flatten();
        let holder = holder.filter(|_| !is_root);
        if path.is_some() && holder.is_none() || new.root_is_leaf || is_root && id.0 > 0 {
            return Err(SinkError::Orphan { entry: id });
        }
        let is_directory = entry.kind == EntryKind::Directory;
        let key = path_key(entry.path.as_bytes());
        if known(&key).is_some() {
            return Err(SinkError::Duplicate { entry: id });
        }
        new.taken.insert(key, is_directory.then_some(id));
        new.parents.push(holder);
        new.root_is_leaf = is_root && !is_directory;
        Ok(())
    }
}

/// Where the entries of one message are.
struct Paths {
    /// As [`Sink::paths`].
    taken: BTreeMap<[u8; 16], Option<EntryId>>,
    /// The directory that holds each.
    parents: Vec<Option<EntryId>>,
    root_is_leaf: bool,
}
