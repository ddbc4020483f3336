//! The driver of a `Source`: reads, hashes, deals groups to lanes, keeps them until they arrived.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use longhaul_engine::Lane;
use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::{GroupTask, Source};
use longhaul_units::{Bytes, Duration, Extent, Instant, ObjectId};

use crate::draw::Draw;
use crate::files::Files;

#[derive(Debug)]
pub(crate) struct SourceSide {
    pub source: Source,
    /// Version and name number of each entry, by entry number.
    pushed: Vec<(usize, [u8; 16])>,
    next_item: usize,
    reads: VecDeque<(Instant, GroupTask)>,
    hashes: Vec<(Instant, GroupTask, Arc<Vec<u8>>)>,
    /// Read, not yet offered.
    ready: VecDeque<(GroupTask, Arc<Vec<u8>>)>,
    /// Offered, not yet delivered.
    held: BTreeMap<(ObjectId, u32), Held>,
    /// Lane that a group went on, for its repair.
    lanes: BTreeMap<(ObjectId, u32), usize>,
    latency: Duration,
    /// What a hash takes beyond that.
    hash_delay: Duration,
    /// Groups that it may keep, and the most that it kept.
    allowed: usize,
    pub peak: usize,
    /// Every group that was read, for tests.
    pub reads_done: Vec<(ObjectId, u32)>,
}

#[derive(Debug)]
struct Held {
    data: Arc<Vec<u8>>,
}

impl SourceSide {
    pub fn new(latency: Duration, hash_delay: Duration) -> Self {
        Self {
            source: Source::new(),
            pushed: Vec::new(),
            next_item: 0,
            reads: VecDeque::new(),
            hashes: Vec::new(),
            ready: VecDeque::new(),
            held: BTreeMap::new(),
            lanes: BTreeMap::new(),
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
        now: Instant,
        files: &Files,
        lanes: &mut [&mut Lane],
        draw: &mut Draw,
    ) -> bool {
        let mut progress = self.scan(files);
        progress |= self.start_reads(now, lanes, draw);
        progress |= self.finish_reads(now, files, draw);
        progress |= self.finish_hashes(now);
        progress |= self.offer(lanes);
        if self.reads.is_empty() && self.ready.is_empty() {
            lanes.iter_mut().for_each(|lane| lane.flush());
        }
        progress
    }

    fn scan(&mut self, files: &Files) -> bool {
        if self.source.stats().complete {
            return false;
        }
        let mut left = SCAN_BATCH;
        while left > 0 && self.next_item < files.len() && self.source.wants_entries() {
            if let Some(version) = files.get(self.next_item) {
                let entry = version.entry.clone();
                self.pushed.push((self.next_item, entry.identity));
                self.source.push_entry(entry).expect("scenarios have possible entries");
            }
            self.next_item += 1;
            left -= 1;
        }
        if self.next_item == files.len() {
            self.source.finish_entries();
        }
        true
    }

    fn start_reads(&mut self, now: Instant, lanes: &[&mut Lane], draw: &mut Draw) -> bool {
        let credit = lanes.iter().map(|lane| lane.credit()).max().unwrap_or(0);
        let mut progress = false;
        while self.groups() < self.allowed
            && let Some(task) = self.source.next_group(credit)
        {
            let taken = Duration::from_nanos(draw.below(self.latency.as_nanos() as u64 + 1));
            let last = self.reads.back().map_or(Instant::ZERO, |(at, _)| *at);
            self.reads.push_back(((now + taken).max(last), task));
            progress = true;
        }
        progress
    }

    fn finish_reads(&mut self, now: Instant, files: &Files, draw: &mut Draw) -> bool {
        let mut progress = false;
        while self.reads.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, task)) = self.reads.pop_front()
        {
            let data = Arc::new(self.read(&task, files));
            self.reads_done.push((task.object, task.group));
            let taken = Duration::from_nanos(draw.below(self.latency.as_nanos() as u64 + 1));
            self.hashes.push((now + taken + self.hash_delay, task.clone(), Arc::clone(&data)));
            self.ready.push_back((task, data));
            progress = true;
        }
        progress
    }

    fn read(&mut self, task: &GroupTask, files: &Files) -> Vec<u8> {
        let mut data = vec![0; task.len as usize];
        for piece in &task.pieces {
            let (item, identity) = self.pushed[piece.id.0 as usize];
            match files.get(item) {
                None => self.source.entry_failed(piece.id, "no such file or directory"),
                Some(version) if version.entry.identity != identity => {
                    self.source.entry_failed(piece.id, "changed while it was read");
                }
                Some(version) => {
                    let from = &version.data[piece.file_offset as usize..][..piece.len as usize];
                    data[piece.group_offset as usize..][..from.len()].copy_from_slice(from);
                }
            }
        }
        data
    }

    fn finish_hashes(&mut self, now: Instant) -> bool {
        let due: Vec<_> = self.hashes.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, task, data) in &due {
            let value = group_chaining_value(data, task.group, task.only);
            self.source.group_hashed(task.object, task.group, value);
        }
        !due.is_empty()
    }

    /// Deals groups to the lanes that have the least to do; repairs to the lane of the first try,
    /// when that has arrived.
    fn offer(&mut self, lanes: &mut [&mut Lane]) -> bool {
        let mut progress = false;
        for _ in 0..self.ready.len() {
            let Some((task, data)) = self.ready.pop_front() else { break };
            let key = (task.object, task.group);
            if self.held.contains_key(&key) {
                self.ready.push_back((task, data));
                continue;
            }
            let idlest = (0..lanes.len()).min_by_key(|lane| lanes[*lane].backlog()).unwrap_or(0);
            let lane = *self.lanes.entry(key).or_insert(idlest);
            let offset = u64::from(task.group) * GROUP_SIZE;
            lanes[lane].offer(Extent { object: task.object, offset, len: u64::from(task.len) });
            self.held.insert(key, Held { data });
            progress = true;
        }
        progress
    }

    /// Bytes of a group under way, to be sent.
    pub fn data(&self, object: ObjectId, offset: u64) -> Option<&Arc<Vec<u8>>> {
        self.held.get(&(object, (offset / GROUP_SIZE) as u32)).map(|held| &held.data)
    }

    /// The peer has every byte of `extent`.
    pub fn delivered(&mut self, extent: &Extent) -> bool {
        self.held.remove(&(extent.object, (extent.offset / GROUP_SIZE) as u32)).is_some()
    }

    /// It may use so much memory from now on.
    pub fn set_memory(&mut self, memory: Bytes) {
        self.allowed = self.allowed.max((memory.get() / GROUP_SIZE) as usize);
    }

    /// Whether it keeps no more than it may.
    pub fn is_within_memory(&mut self) -> bool {
        self.peak = self.peak.max(self.groups());
        self.groups() <= self.allowed
    }

    /// Groups in memory.
    pub fn groups(&self) -> usize {
        self.reads.len() + self.ready.len() + self.held.len()
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        let reads = self.reads.front().map(|(at, _)| *at);
        reads.into_iter().chain(self.hashes.iter().map(|(at, ..)| *at)).min()
    }
}

/// Names found in one go.
const SCAN_BATCH: usize = 16;
/// What a source keeps in memory before it knows its path.
pub(crate) const MEMORY: u64 = 6 * GROUP_SIZE;
