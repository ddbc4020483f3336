//! The side that has the files: reads and hashes groups on threads of its own and deals them to
//! the lanes.

use std::fs::File;
use std::io;
use std::sync::Arc;

use longhaul_carriers::buffer::Buffer;
use longhaul_connection::OutgoingCopy;
use longhaul_files::{Again, CopiedHashes, Scan, ScanFailure, Scanned, SourceTree, stood_for};
use longhaul_objects::{
    ChainingValue, Comparison, EntryId, GroupTask, NameList, PushError, SourceStats, hash,
};
use longhaul_sys::clock;
use longhaul_units::{Duration, Extent, shortened, shown_path};
use longhaul_wire::{Entry, EntryCode, EntryEnd};

use crate::connection::shared::Shared;
use crate::transfers::due::DueNames;

/// Drives the [`OutgoingCopy`] of a connection over a file tree.
pub(crate) struct SourceDriver {
    tree: SourceTree,
    /// Contents are hashed.
    verify: bool,
    /// Of those whose hashes the user wants.
    hashes: Option<Arc<CopiedHashes>>,
    /// The sink sends the list of names that it wants.
    awaits_names: bool,
    /// Paths that are to be found.
    due: Vec<Vec<u8>>,
    /// Some names are excluded.
    has_rules: bool,
}

/// Entries found that are worth a wake-up of the lane that tells of them, where they make no object.
const ENTRIES_ANNOUNCED: u32 = 256;
/// Workers look again after this long, whatever they missed.
const PATIENCE: Duration = Duration::from_millis(20);
/// Characters of a path beside the one that a failure is reported by: a reason holds 1024 bytes.
const PATH_MOST: usize = 200;
/// Threads that read and hash, or hash and write.
pub(crate) const WORKERS: u32 = 2;

impl SourceDriver {
    pub fn new(tree: SourceTree, verify: bool) -> Self {
        let (hashes, due) = (None, Vec::new());
        Self { tree, verify, hashes, awaits_names: false, due, has_rules: false }
    }

    /// Hashes of files go to `hashes`.
    pub fn hashing(self, hashes: Option<Arc<CopiedHashes>>) -> Self {
        Self { hashes, ..self }
    }

    /// Nothing is looked for before the names have come that the sink wants, if it lists them.
    pub fn awaiting_names(self, awaits_names: bool) -> Self {
        Self { awaits_names, ..self }
    }

    /// Those of these paths fail that are not found; beside rules perhaps because of these.
    pub fn expecting(self, due: &[Vec<u8>], has_rules: bool) -> Self {
        Self { due: due.to_vec(), has_rules, ..self }
    }

    /// Opens a file that was copied, to read it once more.
    pub fn reopen(&self, path: &[u8], was: &[u8; 16]) -> io::Result<File> {
        self.tree.reopen(path, was)
    }

    /// Starts its threads; they end when the transfer is stopped.
    pub fn start(self: &Arc<Self>, shared: &Arc<Shared>) -> io::Result<()> {
        let source = self.clone();
        shared.count_missed(move |would_change| source.tree.missed_attributes(would_change));
        let source = self.clone();
        shared.spawn("scan", move |shared| {
            source.scan(shared);
            Ok(())
        })?;
        for _ in 0..WORKERS {
            let source = self.clone();
            shared.spawn("read", move |shared| {
                source.work(shared);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Bytes of all entries, by a scan of its own.
    pub fn sum(&self) -> u64 {
        let mut scan = self.tree.scan();
        let mut sum = 0;
        while let Some(found) = scan.next() {
            if let Scanned::Entry(entry) = found {
                sum += entry.data_len();
                scan.pass();
            }
        }
        sum
    }

    /// Finds the entries.
    fn scan(&self, shared: &Shared) {
        if self.awaits_names {
            let Some(names) = await_names(shared) else { return };
            self.tree.list_names(Arc::new(names));
        }
        let mut announced = SourceStats::default();
        let mut due = DueNames::new(&self.due);
        let mut scan = self.tree.scan();
        while let Some(found) = scan.next() {
            due.meet(&found);
            let now = match found {
                Scanned::Entry(entry) => {
                    self.hashes.iter().for_each(|hashes| hashes.note_file(&entry));
                    push(shared, entry, &mut scan)
                }
                Scanned::Failed(failure) => note_scan_failure(shared, failure),
            };
            let Some(now) = now else { return };
            if now.objects > announced.objects
                || now.entries >= announced.entries + ENTRIES_ANNOUNCED
            {
                announced = now;
                shared.mailboxes.wake_messages();
            }
        }
        due.missed().for_each(|(name, why)| {
            shared.note_failure(&shown_path(name), &why.end("on this host", self.has_rules));
        });
        shared.change(|half| half.outgoing_copy().map(OutgoingCopy::finish_entries));
    }

    fn hash(&self, task: &GroupTask, data: &[u8]) -> Hashed {
        match task.compare {
            Some(Comparison::Files) => Hashed::Files(task.file_hashes(data)),
            _ if self.verify => {
                Hashed::Group(hash::group_chaining_value(data, task.group, task.only))
            }
            _ => Hashed::Group(hash::UNHASHED),
        }
    }

    /// Keeps what it knows of the hashes of files by now.
    fn note(&self, task: &GroupTask, data: &[u8], hashed: &Hashed) {
        let Some(hashes) = &self.hashes else { return };
        match hashed {
            Hashed::Group(value) => {
                let pieces = task.pieces.iter().map(|piece| {
                    let bytes = &data[piece.group_offset as usize..][..piece.len as usize];
                    (&*piece.entry, piece.file_offset, bytes)
                });
                hashes.note_group(pieces, task.group, *value, Again::Same);
            }
            Hashed::Files(values) => values.iter().for_each(|(id, group, value)| {
                let piece = task.pieces.iter().find(|piece| piece.id == *id);
                piece.into_iter().for_each(|piece| hashes.note_value(&piece.entry, *group, *value));
            }),
        }
    }

    /// Reads, hashes and deals groups until the transfer is stopped. Any number of threads.
    fn work(&self, shared: &Shared) {
        while let Some((task, mut buffer)) = next_task(shared) {
            let len = task.len as usize;
            let failures = self.tree.read_group(&task, &mut buffer[..len]);
            let hashed = self.hash(&task, &buffer[..len]);
            if failures.is_empty() {
                self.note(&task, &buffer[..len], &hashed);
            }
            shared.change(|half| {
                let copy = half.outgoing_copy()?;
                for (entry, end) in failures {
                    copy.entry_failed(entry, end);
                }
                match hashed {
                    Hashed::Group(value) => copy.group_hashed(task.object, task.group, value),
                    Hashed::Files(values) => copy.files_hashed(values),
                }
                let lane = copy.deal(&task, &shared.mailboxes)?;
                let GroupTask { object, offset, len, .. } = task;
                let extent = Extent { object, offset, len: len.into() };
                // Under the lock: an order to withdraw it comes behind.
                shared.mailboxes.offer(lane, extent, Arc::new(buffer));
                Some(())
            });
        }
    }
}

/// Chaining values of what was read.
enum Hashed {
    Group(ChainingValue),
    Files(Vec<(EntryId, u32, ChainingValue)>),
}

/// Waits for the list of names that the sink wants; `None` when the transfer is stopped.
fn await_names(shared: &Shared) -> Option<NameList> {
    let mut half = shared.lock();
    while !shared.is_stopped() {
        if let Some(names) = half.outgoing_copy()?.take_names() {
            return Some(names);
        }
        half = shared.rest(half, PATIENCE);
    }
    None
}

/// Waits until another entry is wanted; what was found by then, `None` when the transfer is stopped.
fn push(shared: &Shared, entry: Entry, scan: &mut Scan<'_>) -> Option<SourceStats> {
    let mut half = shared.lock();
    while !half.outgoing_copy()?.wants_entries() {
        if shared.is_stopped() {
            return None;
        }
        half = shared.rest(half, PATIENCE);
    }
    let copy = half.outgoing_copy()?;
    let path = entry.path.clone();
    match copy.push_entry(entry) {
        Ok(id) => id.into_iter().for_each(|id| scan.number(id)),
        Err(PushError::NoMemory) => {
            drop(half);
            return note_scan_failure(shared, scan.leave_out_directory(path));
        }
        Err(error) => {
            let code = match error {
                PushError::TooMany => EntryCode::OutOfResources,
                _ => EntryCode::Name,
            };
            let end = EntryEnd::new(code, &error.to_string());
            shared.note_failure(&path.to_string(), &end);
        }
    }
    (!shared.is_stopped()).then(|| *copy.stats())
}

fn note_scan_failure(shared: &Shared, failure: ScanFailure) -> Option<SourceStats> {
    let mut half = shared.lock();
    let copy = half.outgoing_copy()?;
    let path = shown_path(&failure.path);
    // The sink knows no path but the stand-in's.
    let is_named = |entry: &Entry| {
        let own = entry.path.as_bytes();
        own == failure.path || stood_for(own) == Some(&failure.path)
    };
    let end = match &failure.stand_in {
        Some(entry) if !is_named(entry) => {
            let real = shortened(&path, PATH_MOST);
            EntryEnd::new(failure.end.code, &format!("{}: {real}", failure.end))
        }
        _ => failure.end,
    };
    match failure.stand_in.and_then(|entry| copy.push_entry(entry).ok().flatten()) {
        Some(entry) => copy.entry_failed(entry, end),
        None => shared.note_failure(&path, &end),
    }
    Some(*copy.stats())
}

/// A group to read, and memory for it; `None` when the transfer is stopped.
fn next_task(shared: &Shared) -> Option<(GroupTask, Buffer)> {
    let mut half = shared.lock();
    loop {
        if shared.is_stopped() {
            return None;
        }
        let next = shared.update(&mut half, |half| {
            let memory = || shared.pool.try_take();
            half.outgoing_copy()?.next_group(clock::now(), &shared.mailboxes, memory)
        });
        if next.is_some() {
            return next;
        }
        half = shared.rest(half, PATIENCE);
    }
}
