//! Drives an `OutgoingCopy`: reads, hashes, gives groups to lanes, keeps them until they arrived.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use longhaul_connection::{Order, OutgoingCopy};
use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::{Comparison, EntryId, GroupTask};
use longhaul_units::{Bytes, Duration, EntryCode, Extent, Instant, ObjectId};
use longhaul_wire::EntryEnd;

use crate::draw::Draw;
use crate::environment::Env;
use crate::files::{Files, Links};
use crate::lane::{LaneState, Lanes};

#[derive(Debug)]
pub(crate) struct SourceDriver {
    links: Links,
    next_item: usize,
    has_scanned: bool,
    /// The list of names has not come yet.
    awaits_names: bool,
    reads: VecDeque<(Instant, GroupTask)>,
    hashes: Vec<(Instant, GroupTask, Arc<Vec<u8>>)>,
    /// Read, not yet offered.
    ready: VecDeque<(GroupTask, Arc<Vec<u8>>)>,
    /// Offered, not yet delivered: how often each, and in all.
    held: BTreeMap<(ObjectId, u32), usize>,
    held_count: usize,
    latency: Duration,
    /// Time that a hash takes beyond that.
    hash_delay: Duration,
    /// Groups that it may keep, and the most that it kept.
    allowed: usize,
    pub peak: usize,
    /// Every group that was read, for tests.
    pub reads_done: Vec<(ObjectId, u32)>,
}

impl SourceDriver {
    pub fn new(latency: Duration, hash_delay: Duration, awaits_names: bool) -> Self {
        Self {
            links: Links::default(),
            next_item: 0,
            has_scanned: false,
            awaits_names,
            reads: VecDeque::new(),
            hashes: Vec::new(),
            ready: VecDeque::new(),
            held: BTreeMap::new(),
            held_count: 0,
            latency,
            hash_delay,
            allowed: (MEMORY / GROUP_SIZE) as usize,
            peak: 0,
            reads_done: Vec::new(),
        }
    }

    /// Does what can be done now; returns whether it was anything.
    pub fn pump(
        &mut self,
        [now, local]: [Instant; 2],
        copy: &mut OutgoingCopy,
        lanes: &mut [LaneState],
        env: &mut Env<'_>,
    ) -> bool {
        let mut progress = self.scan(copy, env.files);
        progress |= self.start_reads(now, copy, &Lanes::at(local, lanes), env.draw);
        progress |= self.finish_reads(now, copy, env);
        progress |= self.finish_hashes(now, copy);
        progress |= self.offer(local, copy, lanes);
        progress
    }

    fn scan(&mut self, copy: &mut OutgoingCopy, files: &Files) -> bool {
        self.awaits_names = self.awaits_names && copy.take_names().is_none();
        if self.awaits_names || self.has_scanned {
            return false;
        }
        let mut left = SCAN_BATCH;
        while left > 0 && self.next_item < files.len() && copy.wants_entries() {
            let id = copy.stats().entries as usize;
            if let Some(entry) = files.announce(self.next_item, id, &mut self.links) {
                let id = copy.push_entry(entry).expect("scenarios have possible entries");
                if let Some((end, id)) = files.broken_end(self.next_item).zip(id) {
                    copy.entry_failed(id, end.clone());
                }
            }
            self.next_item += 1;
            left -= 1;
        }
        if self.next_item == files.len() {
            copy.finish_entries();
            self.has_scanned = true;
        }
        true
    }

    fn start_reads(
        &mut self,
        now: Instant,
        copy: &mut OutgoingCopy,
        lanes: &Lanes<'_>,
        draw: &mut Draw,
    ) -> bool {
        let mut progress = false;
        loop {
            let has_memory = self.groups() < self.allowed;
            let memory = || has_memory.then_some(());
            let Some((task, ())) = copy.next_group(lanes.local, lanes, memory) else { break };
            let taken = Duration::from_nanos(draw.below(self.latency.as_nanos() as u64 + 1));
            let last = self.reads.back().map_or(Instant::ZERO, |(at, _)| *at);
            self.reads.push_back(((now + taken).max(last), task));
            progress = true;
        }
        progress
    }

    fn finish_reads(&mut self, now: Instant, copy: &mut OutgoingCopy, env: &mut Env<'_>) -> bool {
        let mut progress = false;
        while self.reads.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, task)) = self.reads.pop_front()
        {
            let data = Arc::new(self.read(&task, copy, env.files));
            self.reads_done.push((task.object, task.group));
            let taken = Duration::from_nanos(env.draw.below(self.latency.as_nanos() as u64 + 1));
            self.hashes.push((now + taken + self.hash_delay, task.clone(), Arc::clone(&data)));
            self.ready.push_back((task, data));
            progress = true;
        }
        progress
    }

    fn read(&mut self, task: &GroupTask, copy: &mut OutgoingCopy, files: &Files) -> Vec<u8> {
        let mut data = Vec::with_capacity(task.len as usize);
        for piece in &task.pieces {
            match files.at(piece.entry.path.as_bytes()) {
                None => copy.entry_failed(piece.id, end(piece.id, "no such file or directory")),
                Some(version) if version.entry.identity != piece.entry.identity => {
                    copy.entry_failed(piece.id, end(piece.id, "changed while it was read"));
                }
                Some(version) => {
                    let from = &version.data[piece.file_offset as usize..][..piece.len as usize];
                    data.resize(piece.group_offset as usize, 0);
                    data.extend_from_slice(from);
                }
            }
        }
        data.resize(task.len as usize, 0);
        data
    }

    fn finish_hashes(&mut self, now: Instant, copy: &mut OutgoingCopy) -> bool {
        let due: Vec<_> = self.hashes.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, task, data) in &due {
            if task.compare == Some(Comparison::Files) {
                copy.files_hashed(task.file_hashes(data));
                continue;
            }
            let value = group_chaining_value(data, task.group, task.only);
            copy.group_hashed(task.object, task.group, value);
        }
        !due.is_empty()
    }

    /// Deals groups, repairs too.
    fn offer(&mut self, local: Instant, copy: &mut OutgoingCopy, lanes: &mut [LaneState]) -> bool {
        let mut progress = false;
        while let Some((task, bytes)) = self.ready.pop_front() {
            let (object, offset) = (task.object, u64::from(task.group) * GROUP_SIZE);
            let extent = Extent { object, offset, len: u64::from(task.len) };
            progress = true;
            let Some(lane) = copy.deal(&task, &Lanes::at(local, lanes)) else { continue };
            lanes[lane].handle_order(local, Order::Offer { extent, bytes });
            *self.held.entry((object, task.group)).or_default() += 1;
            self.held_count += 1;
        }
        progress
    }

    /// The lane is done with `extent`. Whether it was offered.
    pub fn delivered(&mut self, extent: &Extent) -> bool {
        let key = (extent.object, (extent.offset / GROUP_SIZE) as u32);
        let Some(times) = self.held.get_mut(&key) else { return false };
        *times -= 1;
        self.held_count -= 1;
        if *times == 0 {
            self.held.remove(&key);
        }
        true
    }

    /// It may use so much memory from now on.
    pub fn set_memory(&mut self, memory: Bytes) {
        self.allowed = self.allowed.max((memory.get() / GROUP_SIZE) as usize);
    }

    /// True if it keeps no more than it may.
    pub fn is_within_memory(&mut self) -> bool {
        self.peak = self.peak.max(self.groups());
        self.groups() <= self.allowed
    }

    /// Groups in memory.
    pub fn groups(&self) -> usize {
        self.reads.len() + self.ready.len() + self.held_count
    }

    /// Bytes of groups that are given out for the first time, and read.
    pub fn reading(&self) -> u64 {
        let tasks = self.reads.iter().map(|(_, task)| task);
        let tasks = tasks.chain(self.ready.iter().map(|(task, _)| task));
        tasks.filter(|task| !task.repair).map(|task| u64::from(task.len)).sum()
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        let reads = self.reads.front().map(|(at, _)| *at);
        reads.into_iter().chain(self.hashes.iter().map(|(at, ..)| *at)).min()
    }
}

/// The end of an entry that is not what it was: by its number with one code or another.
fn end(entry: EntryId, reason: &str) -> EntryEnd {
    let code = EntryCode::ALL[entry.0 as usize % EntryCode::ALL.len()];
    EntryEnd::new(code.of_source(), reason)
}

/// Names found in one go.
const SCAN_BATCH: usize = 16;
/// Bytes that a source keeps in memory before it knows its path.
pub(crate) const MEMORY: u64 = 6 * GROUP_SIZE;
