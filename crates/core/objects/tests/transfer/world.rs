//! A source, a sink, and what is between them, driven in random order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::storage;
use longhaul_objects::testing::{MemoryStorage, Node};
use longhaul_objects::{
    Action, Belief, Comparison, EndedEntry, EntryId, Fsync, GroupTask, Keeps, Sink, SinkConfig,
    Source, TagKey, Verdict, WriteTask, record,
};
use longhaul_units::{Duration, Instant, ObjectId};
use longhaul_wire::{
    EntryCode, EntryEnd, EntryKind, Message, MessageReader, SinkMessage, SourceMessage,
};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::tree::{Item, below};

pub const TRANSFER: [u8; 16] = [3; 16];

/// Faults that may happen; each is one in so many, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub corrupt: u64,
    pub duplicate: u64,
    pub unreadable: u64,
    pub crash: u64,
    pub kill: u64,
    /// Somebody else changes a byte of an unpublished file between two runs.
    pub tamper: u64,
    /// A run of somebody else, under the identities of what is copied, with other contents.
    pub impostor: u64,
    /// The source has no secret, or another one than before.
    pub forgets: u64,
    /// Somebody else makes a directory that is to be copied.
    pub intruder: u64,
    pub space: Option<u64>,
}

pub struct World {
    pub seed: u64,
    pub rng: Xoshiro256PlusPlus,
    pub now: Instant,
    pub items: Vec<Item>,
    pub faults: Faults,
    pub fsync: Fsync,
    pub capacity: u64,
    pub disk: MemoryStorage,
    pub source: Source,
    pub sink: Sink,
    /// The sink compares contents.
    pub compares: bool,
    pub runs: u64,
    pub boot: u8,
    /// The run is somebody else's; and any was.
    pub is_impostor: bool,
    had_impostor: bool,
    /// Of the source, if it has one.
    pub secret: Option<u8>,
    pushed: usize,
    to_sink: VecDeque<SourceMessage>,
    to_source: VecDeque<SinkMessage>,
    /// Groups on the path.
    path: Vec<(GroupTask, Vec<u8>)>,
    /// Groups read and not yet hashed.
    unhashed: Vec<(GroupTask, Vec<u8>)>,
    writes: Vec<(WriteTask, Vec<u8>)>,
    setup: VecDeque<Action>,
    actions: Vec<Action>,
    /// Groups of which a lane has a part, and the rest never comes.
    begun: Vec<(ObjectId, u32)>,
    /// Groups that came at least once.
    delivered: BTreeSet<(ObjectId, u32)>,
    /// First-sent bytes that the sink answers for.
    first_sent: BTreeSet<(ObjectId, u32)>,
    unreadable: BTreeSet<u32>,
    pub confirmed: BTreeSet<u64>,
    /// Groups that were read, in all runs.
    pub reads: BTreeMap<(u64, ObjectId, u32), u32>,
}

impl World {
    pub fn new(seed: u64, items: Vec<Item>, faults: Faults) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let capacity = (4 << 20) + below(&mut rng, 8 << 20);
        let fsync = Fsync::End;
        let mut world = Self {
            seed,
            rng,
            now: Instant::ZERO,
            items,
            faults,
            fsync,
            capacity,
            disk: MemoryStorage::new(),
            source: Source::default(),
            sink: Sink::new(SinkConfig::default(), Default::default()),
            compares: false,
            runs: 0,
            boot: 1,
            is_impostor: false,
            had_impostor: false,
            secret: Some(1),
            pushed: 0,
            to_sink: VecDeque::new(),
            to_source: VecDeque::new(),
            path: Vec::new(),
            unhashed: Vec::new(),
            writes: Vec::new(),
            setup: VecDeque::new(),
            actions: Vec::new(),
            begun: Vec::new(),
            delivered: BTreeSet::new(),
            first_sent: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            reads: BTreeMap::new(),
        };
        world.disk.limit_space(faults.space);
        world.start();
        world
    }

    /// Begins a run with what the disk holds.
    pub fn start(&mut self) {
        self.runs += 1;
        if let Fsync::Never { boot } = &mut self.fsync {
            *boot = [self.boot; 16];
        }
        if self.chance(self.faults.tamper) {
            self.disk.tamper(&mut self.rng);
        }
        let resume = record::replay(&self.disk.read_record(), &TRANSFER, self.fsync);
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.runs.to_be_bytes());
        let config = SinkConfig {
            capacity: self.capacity,
            fsync: self.fsync,
            transfer: TRANSFER,
            nonce,
            keeps: Keeps { equal: self.compares, ..Keeps::default() },
            ..SinkConfig::default()
        };
        // The last run is an honest one.
        self.is_impostor = self.runs < 6 && self.chance(self.faults.impostor);
        self.had_impostor |= self.is_impostor;
        if self.chance(self.faults.forgets) {
            self.secret = Some(below(&mut self.rng, 4) as u8).filter(|secret| *secret > 0);
        }
        let secret = if self.is_impostor { Some(99) } else { self.secret };
        let key = secret.map(|secret| TagKey::new(&[secret; 32], b"server"));
        self.source = Source::new(key.map_or(Belief::Nothing, Belief::Tags));
        if self.compares {
            self.source.allow_comparisons();
        }
        self.sink = Sink::new(config, resume);
        self.pushed = 0;
        self.to_sink.clear();
        self.to_source.clear();
        self.path.clear();
        self.unhashed.clear();
        self.writes.clear();
        self.setup.clear();
        self.actions.clear();
        self.begun.clear();
        self.delivered.clear();
        self.first_sent.clear();
        self.unreadable.clear();
        self.confirmed.clear();
    }

    pub fn crash(&mut self) {
        self.disk.crash(&mut self.rng);
        self.boot += 1;
        if self.fsync == Fsync::End && !self.had_impostor && !self.compares {
            self.check_names();
        }
        self.start();
    }

    /// The user stops the sink's process: what was asked of the disk is done, and then what winding
    /// up takes. Returns the bytes that were verified and written, or resumed.
    pub fn stop(&mut self) -> u64 {
        while !self.writes.is_empty() {
            self.write();
        }
        while let Some(action) = self.setup.pop_front() {
            self.sink.handle_answer(storage::perform(&mut self.disk, action).unwrap());
        }
        for action in std::mem::take(&mut self.actions) {
            self.sink.handle_answer(storage::perform(&mut self.disk, action).unwrap());
        }
        self.sink.wind_up();
        while let Some(action) = self.sink.poll_action(self.now) {
            self.sink.handle_answer(storage::perform(&mut self.disk, action).unwrap());
        }
        assert!(self.sink.is_wound_up(), "seed {}", self.seed);
        let stats = self.sink.stats();
        stats.verified_bytes + stats.resumed_bytes
    }

    /// Runs to the end, through all faults.
    pub fn run(&mut self) {
        for _ in 0..2_000_000 {
            if self.is_done() && self.is_impostor {
                self.start();
            } else if self.is_done() {
                self.check_credit();
                return self.check_end();
            }
            if self.chance(self.faults.crash) && self.runs < 6 {
                self.crash();
            } else if self.chance(self.faults.kill) && self.runs < 6 {
                if self.runs.is_multiple_of(2) {
                    self.stop();
                }
                self.start();
            } else {
                if self.chance(self.faults.intruder) {
                    self.intrude();
                }
                self.step();
            }
        }
        panic!(
            "seed {}: does not end\n{:?}\n{:?}",
            self.seed,
            self.source.stats(),
            self.sink.stats()
        );
    }

    pub fn is_done(&self) -> bool {
        self.source.is_done() && self.sink.is_done()
    }

    pub fn step(&mut self) {
        match below(&mut self.rng, 12) {
            0 => self.scan(),
            1 => {
                if self.to_sink.len() < 4
                    && let Some(message) = self.source.poll_message()
                {
                    self.to_sink.push_back(through_wire(message));
                }
            }
            2 => {
                if let Some(message) = self.to_sink.pop_front() {
                    let what = format!("{message:?}");
                    self.sink
                        .handle(message)
                        .unwrap_or_else(|error| panic!("seed {}: {error}: {what:.300}", self.seed));
                }
            }
            3 => {
                while self.sink.poll_unverified().is_some() {}
                while self.sink.poll_unneeded().is_some() {}
                if self.to_source.len() < 4
                    && let Some(message) = self.sink.poll_message()
                {
                    self.check_message(&message);
                    self.to_source.push_back(through_wire(message));
                }
            }
            4 => {
                if let Some(message) = self.to_source.pop_front() {
                    let what = format!("{message:?}");
                    self.source
                        .handle(message)
                        .unwrap_or_else(|error| panic!("seed {}: {error}: {what:.300}", self.seed));
                }
            }
            5 => self.read(),
            6 => self.hash(),
            7 => self.deliver(),
            8 => self.write(),
            9 => {
                if let Some(action) = self.sink.poll_action(self.now) {
                    match action {
                        Action::MakeDirectories(_)
                        | Action::PrepareFile { .. }
                        | Action::CheckPublished(_) => self.setup.push_back(action),
                        _ => self.actions.push(action),
                    }
                }
            }
            10 => self.act(),
            _ => self.now += Duration::from_micros(below(&mut self.rng, 30_000)),
        }
        assert!(self.first_sent_bytes() <= self.capacity, "seed {}: more than promised", self.seed);
    }

    fn intrude(&mut self) {
        let index = below(&mut self.rng, self.items.len() as u64) as usize;
        let entry = &self.items[index].entry;
        if entry.kind == EntryKind::Directory {
            self.disk.intrude([entry.path.as_bytes()]);
        }
    }

    fn scan(&mut self) {
        if self.pushed < self.items.len() {
            if self.source.wants_entries() {
                self.source.push_entry(self.items[self.pushed].entry.clone()).unwrap();
                self.pushed += 1;
            }
        } else if !self.source.stats().complete {
            self.source.finish_entries();
        }
    }

    fn read(&mut self) {
        let credit = self.sink.credit();
        let Some(task) = self.source.next_group(credit) else {
            return;
        };
        let stats = self.source.stats();
        assert!(stats.sent_bytes - stats.withdrawn_bytes <= credit);
        if task.compare != Some(Comparison::Files) {
            *self.reads.entry((self.runs, task.object, task.group)).or_default() += 1;
        }
        let mut data = vec![0; task.len as usize];
        for piece in &task.pieces {
            let number = piece.id.0;
            if self.faults.unreadable > 0 && below(&mut self.rng, self.faults.unreadable) == 0 {
                self.unreadable.insert(number);
            }
            if self.unreadable.contains(&number) {
                self.source.entry_failed(piece.id, end_of(number));
                continue;
            }
            let from = &self.items[number as usize].data[piece.file_offset as usize..];
            let to = &mut data[piece.group_offset as usize..][..piece.len as usize];
            to.copy_from_slice(&from[..piece.len as usize]);
            if self.is_impostor {
                to[0] ^= 1;
            }
        }
        self.unhashed.push((task, data));
    }

    fn hash(&mut self) {
        if self.unhashed.is_empty() {
            return;
        }
        let index = below(&mut self.rng, self.unhashed.len() as u64) as usize;
        let (task, mut data) = self.unhashed.swap_remove(index);
        if task.compare == Some(Comparison::Files) {
            return self.source.files_hashed(task.file_hashes(&data));
        }
        let value = group_chaining_value(&data, task.group, task.only);
        self.source.group_hashed(task.object, task.group, value);
        if task.compare.is_some() {
            return;
        }
        if !self.source.is_wanted(task.object) {
            return self.source.group_withdrawn(task.object, task.group, task.len);
        }
        if self.chance(self.faults.corrupt) {
            let at = below(&mut self.rng, data.len() as u64) as usize;
            data[at] ^= 1;
        }
        if !task.repair {
            self.first_sent.insert((task.object, task.group));
        }
        self.path.push((task, data));
    }

    /// Of an object that nobody needs any more some groups stay at the source; of some a part has left.
    fn withdraw(&mut self) {
        while let Some(object) = self.source.poll_withdrawn() {
            for (task, data) in std::mem::take(&mut self.path) {
                let group = (task.object, task.group);
                if task.object != object || self.rng.next_u64() & 1 == 0 {
                    self.path.push((task, data));
                } else if !task.repair
                    && (self.delivered.contains(&group) || self.rng.next_u64() & 1 == 0)
                {
                    self.begun.push(group);
                } else {
                    self.source.group_withdrawn(task.object, task.group, task.len);
                    self.first_sent.remove(&group);
                }
            }
        }
        let given_up = self.begun.extract_if(.., |(object, _)| self.sink.is_over(*object));
        for (object, group) in given_up.collect::<Vec<_>>() {
            self.sink.group_dropped(object, group);
            self.first_sent.remove(&(object, group));
        }
    }

    fn deliver(&mut self) {
        self.withdraw();
        if self.path.is_empty() {
            return;
        }
        let index = below(&mut self.rng, self.path.len() as u64) as usize;
        let (task, data) = if self.chance(self.faults.duplicate) {
            self.path[index].clone()
        } else {
            self.path.swap_remove(index)
        };
        assert!(self.sink.objects().place(task.object, task.offset, data.len()).is_ok());
        self.delivered.insert((task.object, task.group));
        let value = group_chaining_value(&data, task.group, task.only);
        match self.sink.group_received(task.object, task.group, value) {
            Verdict::Write(write) => self.writes.push((write, data)),
            Verdict::Discard => {
                self.first_sent.remove(&(task.object, task.group));
            }
            Verdict::Duplicate => {}
            Verdict::Unknown => panic!("seed {}: {task:?}", self.seed),
        }
    }

    fn write(&mut self) {
        if self.writes.is_empty() {
            return;
        }
        let index = below(&mut self.rng, self.writes.len() as u64) as usize;
        let (task, data) = self.writes.swap_remove(index);
        self.sink.group_written(&task, &storage::write(&mut self.disk, &task, &data));
        self.first_sent.remove(&(task.object, task.group));
    }

    fn act(&mut self) {
        let action = if self.actions.is_empty() || self.rng.next_u64() & 1 == 0 {
            self.setup.pop_front()
        } else {
            let index = below(&mut self.rng, self.actions.len() as u64) as usize;
            Some(self.actions.swap_remove(index))
        };
        if let Some(action) = action {
            self.sink.handle_answer(storage::perform(&mut self.disk, action).unwrap());
        }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        one_in > 0 && below(&mut self.rng, one_in) == 0
    }

    fn first_sent_bytes(&self) -> u64 {
        let table = self.sink.objects();
        self.first_sent
            .iter()
            .map(|(object, group)| {
                let size = table.size(*object).unwrap();
                u64::from(longhaul_objects::hash::group_len(size, *group))
            })
            .sum()
    }

    fn check_message(&mut self, message: &SinkMessage) {
        if let SinkMessage::Confirm { entries } = message {
            for number in entries.iter().cloned().flatten() {
                assert!(self.confirmed.insert(number), "seed {}: confirmed twice", self.seed);
                if self.is_impostor {
                    continue;
                }
                let item = &self.items[number as usize];
                let path = item.entry.path.as_bytes();
                self.check_item(item);
                if self.fsync == Fsync::End {
                    assert!(self.disk.is_durable(path), "seed {}: {}", self.seed, item.entry.path);
                }
            }
        }
    }

    /// Whatever is under a final name is whole and right.
    pub fn check_names(&self) {
        for item in &self.items {
            if self.disk.contents(item.entry.path.as_bytes()).is_some() {
                self.check_item(item);
            }
        }
    }

    fn check_item(&self, item: &Item) {
        let node = self.disk.node(item.entry.path.as_bytes());
        let right = match (&item.entry.kind, node) {
            (EntryKind::Directory, Some(Node::Directory { mode, modified, .. })) => {
                (*mode, *modified) == (item.entry.mode, item.entry.modified)
            }
            (EntryKind::Link { target }, Some(Node::Link { target: made })) => {
                target[..] == made[..]
            }
            (EntryKind::File, Some(Node::File { mode, modified, .. })) => {
                (*mode, *modified) == (item.entry.mode, item.entry.modified)
                    && self.disk.contents(item.entry.path.as_bytes()) == Some(&item.data[..])
            }
            _ => false,
        };
        assert!(right, "seed {}: {:?} is {node:?}", self.seed, item.entry);
    }

    /// Once nothing is under way, both ends have counted the same.
    fn check_credit(&mut self) {
        while !(self.unhashed.is_empty() && self.path.is_empty() && self.writes.is_empty()) {
            self.hash();
            self.deliver();
            self.write();
        }
        self.withdraw();
        assert!(self.begun.is_empty(), "seed {}", self.seed);
        let stats = self.source.stats();
        let counted = stats.sent_bytes - stats.withdrawn_bytes;
        assert_eq!(self.sink.credit(), self.capacity + counted, "seed {}", self.seed);
    }

    fn check_end(&self) {
        let result = self.source.result().unwrap();
        assert_eq!(*result, self.sink.summary());
        assert_eq!(result.confirmed, self.confirmed.len() as u64, "seed {}", self.seed);
        let ended = result.confirmed + result.failed + result.skipped + result.unchanged;
        assert_eq!(ended, self.items.len() as u64);
        for (number, item) in self.items.iter().enumerate() {
            let settled = self.confirmed.contains(&(number as u64));
            let stays = self.compares && result.failed + result.skipped == 0;
            if settled || stays {
                self.check_item(item);
            } else if self.runs == 1 && !self.had_impostor && !self.compares {
                let node = self.disk.node(item.entry.path.as_bytes());
                assert!(node.is_none() || matches!(node, Some(Node::Directory { .. })), "{node:?}");
            }
        }
        let codes = |ended: &[EndedEntry]| -> BTreeMap<EntryId, EntryCode> {
            ended.iter().map(|entry| (entry.id, entry.end.code)).collect()
        };
        assert_eq!(codes(self.source.failures()), codes(self.sink.failures()), "{}", self.seed);
        assert_eq!(codes(self.source.skipped()), codes(self.sink.skipped()), "{}", self.seed);
        if result.failed == 0 {
            assert_eq!(self.disk.temp_count(), 0, "seed {}", self.seed);
            assert!(self.disk.read_record().is_empty());
        }
        if self.faults.space.is_none() && self.faults.unreadable == 0 && self.faults.corrupt == 0 {
            assert_eq!(result.failed, 0, "seed {}: {:?}", self.seed, self.sink.failures());
        }
        assert_eq!(self.sink.next_timeout(), None);
        self.check_bytes_there();
    }

    /// Bytes of files that failed count where a later run goes on from them, and no others.
    fn check_bytes_there(&self) {
        let stats = self.source.stats();
        let settled = stats.confirmed_bytes + stats.unchanged_bytes;
        let there = [settled + stats.held_bytes, self.sink.bytes_there()];
        let kept = match self.faults.space.is_none() && self.faults.corrupt == 0 {
            true => 0,
            false => self.items.iter().map(|item| item.entry.size).sum(),
        };
        let range = settled..=settled + kept;
        assert!(
            there.iter().all(|it| range.contains(it)),
            "seed {}: {there:?} {range:?}",
            self.seed
        );
    }
}

/// The end of an entry that cannot be read.
fn end_of(number: u32) -> EntryEnd {
    let codes = [EntryCode::ReadError, EntryCode::Skipped, EntryCode::Changed];
    EntryEnd::new(codes[number as usize % codes.len()], "input/output error")
}

/// The message as the other side reads it.
fn through_wire<M>(message: M) -> M
where
    M: Into<Message> + FromMessage,
{
    let mut bytes = Vec::new();
    message.into().encode(&mut bytes).unwrap();
    let mut reader = MessageReader::new();
    reader.push(&bytes);
    M::from_message(reader.next_message().unwrap().unwrap())
}

trait FromMessage {
    fn from_message(message: Message) -> Self;
}

impl FromMessage for SourceMessage {
    fn from_message(message: Message) -> Self {
        match message {
            Message::Source(message) => message,
            other => panic!("{other:?}"),
        }
    }
}

impl FromMessage for SinkMessage {
    fn from_message(message: Message) -> Self {
        match message {
            Message::Sink(message) => message,
            other => panic!("{other:?}"),
        }
    }
}
