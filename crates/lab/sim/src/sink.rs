//! Drives an `IncomingCopy`: memory for groups, hashes, and its storage.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use longhaul_connection::{
    ArrivedGroup, Begun, GroupPart, IncomingCopy, Repair, SinkMemory, Unplaceable, WholeGroup,
};
use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::storage::{self, Storage};
use longhaul_objects::testing::DryMemory;
use longhaul_objects::{
    Action, Answer, Fsync, Publication, ResumeState, SinkConfig, TopNames, Verdict, WriteTask,
    record,
};
use longhaul_units::{Bytes, Duration, Instant, ObjectId, Rate};
use longhaul_wire::{Entry, KeptAttributes, Protect, SinkMessage, SourceMessage};

use crate::draw::Draw;
use crate::environment::{Disk, Env};
use crate::files::Files;
use crate::scenario::Scenario;
use crate::staging::{Half, Staged, Staging};
use crate::trace::Kind;

#[derive(Debug)]
pub(crate) struct SinkDriver {
    fsync: Fsync,
    memory: SinkMemory,
    protect: Protect,
    deletes: bool,
    /// Its destination is looked at and not changed.
    dry_run: bool,
    /// When it has the source change its rate, if it does.
    steers: Option<Instant>,
    staging: Rc<Staging>,
    /// The most that was staged.
    pub peak: u64,
    /// Groups handed to the sink and not asked for again.
    received: BTreeSet<(ObjectId, u32)>,
    /// Those that ever were asked for again.
    repaired: BTreeSet<(ObjectId, u32)>,
    /// Work of the disk, by the time when it will be done.
    operations: BTreeMap<(Instant, u64), Operation>,
    sequence: u64,
    latency: Duration,
    /// As announced, by number.
    entries: Vec<Entry>,
    confirmed: BTreeSet<u64>,
    /// Why the storage failed as a whole.
    pub failed: Option<String>,
}

#[derive(Debug)]
enum Operation {
    Do(Action),
    /// The sync is done already; only the answer is late.
    Answer(u64),
    Write(WriteTask, Staged),
}

impl SinkDriver {
    /// One over `disk`, and its copy, which goes on from what is there.
    pub fn new(
        scenario: &Scenario,
        files: &Files,
        disk: &mut Disk,
    ) -> (Self, IncomingCopy<Staged>) {
        disk.runs += 1;
        (disk.is_tidy, disk.cut_when_tidy) = (false, false);
        let boot = [disk.boot; 16];
        let memory = SinkMemory { promised: scenario.capacity, spare: scenario.spare };
        let fsync = if scenario.fsync { Fsync::End } else { Fsync::Never { boot } };
        let dry_run = scenario.dry_run;
        if scenario.tampers && !dry_run {
            let draw = &mut Draw::new(scenario.seed ^ disk.runs << 32, TAMPER_STREAM);
            disk.storage.tamper(draw.rng());
        }
        let resume = match dry_run {
            true => ResumeState::default(),
            false => record::replay(&disk.storage.read_record(), &TRANSFER, fsync),
        };
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&disk.runs.to_be_bytes());
        let capacity = memory.promised.get();
        // A client believes its own record.
        let asks = scenario.push;
        let transfer = TRANSFER;
        let (keeps, deletes) = (scenario.keeps, scenario.deletes);
        let list = scenario.lists_names.then(|| Arc::new(files.list()));
        let names = list.clone().map_or(TopNames::Any, TopNames::Listed);
        let attributes = KeptAttributes::ALL;
        let config = SinkConfig {
            capacity,
            fsync,
            transfer,
            sources: SOURCES.to_vec(),
            nonce,
            names,
            asks,
            keeps,
            attributes,
            deletes,
            dry_run,
        };
        let mut copy = IncomingCopy::new(config, resume);
        list.into_iter().for_each(|list| copy.ask_names(list));
        let driver = Self {
            fsync,
            memory,
            protect: scenario.protect,
            deletes,
            dry_run,
            steers: scenario.steers.then_some(Instant::ZERO),
            staging: Staging::new(memory.buffers()),
            peak: 0,
            received: BTreeSet::new(),
            repaired: BTreeSet::new(),
            operations: BTreeMap::new(),
            sequence: 0,
            latency: scenario.disk_latency,
            entries: Vec::new(),
            confirmed: BTreeSet::new(),
            failed: None,
        };
        (driver, copy)
    }

    /// Does what can be done now; returns whether it was anything.
    pub fn pump(
        &mut self,
        now: Instant,
        copy: &mut IncomingCopy<Staged>,
        env: &mut Env<'_>,
    ) -> bool {
        let mut progress = false;
        if let Some(due) = self.steers.filter(|due| *due <= now) {
            let rate =
                env.draw.one_in(3).then(|| Rate::from_bps(env.draw.scaled(1_000_000, 1 << 40)));
            copy.steer(None, rate);
            self.steers = Some(due.max(now) + STEERED);
        }
        while let Some(group) = copy.poll_arrived() {
            self.hash(now, group, copy, env);
            progress = true;
        }
        while let Some(entry) = self.operations.first_entry().filter(|e| e.key().0 <= now) {
            let operation = entry.remove();
            self.perform(now, operation, copy, env);
            progress = true;
        }
        while self.failed.is_none()
            && let Some(action) = copy.poll_action(now)
        {
            self.plan(now, action, env);
            progress = true;
        }
        progress
    }

    /// Tells all lanes of a group that was found to be wrong.
    pub fn note_repair(&mut self, repair: Repair) {
        if let Repair::ReceiveAgain(object, group) = repair {
            self.received.remove(&(object, group));
            self.repaired.insert((object, group));
        }
    }

    fn plan(&mut self, now: Instant, action: Action, env: &mut Env<'_>) {
        let at = now + self.taken(env.draw);
        let operation = match action {
            // A sync covers what was answered before it was asked for, and may cover no more.
            Action::Checkpoint(checkpoint) if env.draw.one_in(2) => {
                if self.sync(env) && !self.dry_run {
                    let _ = env.disk.storage.sync(&checkpoint);
                }
                Operation::Answer(checkpoint.id)
            }
            _ => Operation::Do(action),
        };
        self.schedule(at, operation);
    }

    fn taken(&self, draw: &mut Draw) -> Duration {
        Duration::from_nanos(draw.below(self.latency.as_nanos() as u64 + 1))
    }

    fn schedule(&mut self, at: Instant, operation: Operation) {
        self.sequence += 1;
        self.operations.insert((at, self.sequence), operation);
    }

    /// True if a sync works.
    fn sync(&mut self, env: &mut Env<'_>) -> bool {
        if core::mem::take(&mut env.disk.sync_fails) {
            self.failed = Some("input/output error while syncing".into());
        }
        self.failed.is_none()
    }

    fn perform(
        &mut self,
        now: Instant,
        operation: Operation,
        copy: &mut IncomingCopy<Staged>,
        env: &mut Env<'_>,
    ) {
        if self.failed.is_some() {
            return;
        }
        env.trace.event(now, Kind::Storage, [self.sequence, 0, 0]);
        let action = match operation {
            Operation::Answer(id) => return copy.handle_answer(Answer::Synced(id)),
            Operation::Write(task, data) => {
                env.checks.require(!self.dry_run, || format!("a dry run writes {task:?}"));
                let failed = storage::write(&mut env.disk.storage, &task, &data);
                return copy.group_written(&task, &failed);
            }
            Operation::Do(action) => action,
        };
        if matches!(action, Action::Checkpoint(_)) && !self.sync(env) {
            return;
        }
        if self.dry_run {
            let Ok(answer) = storage::perform(&mut DryMemory(&env.disk.storage), action);
            return copy.handle_answer(answer);
        }
        let published = match &action {
            Action::Publish(batch) => batch.clone(),
            _ => Vec::new(),
        };
        let places = matches!(action, Action::PlaceDirectories(_));
        let Ok(answer) = storage::perform(&mut env.disk.storage, action);
        copy.handle_answer(answer);
        if places
            && !env.disk.lost_unsynced
            && let Some(fault) = env.files.fault_of_names(&env.disk.storage)
        {
            env.checks.require(false, || format!("placed: {fault}"));
        }
        for publication in published {
            let refused = || copy.failures().iter().any(|f| f.id == publication.id);
            let Publication { entry, first, .. } = &publication;
            if let Some(first) = first {
                let disk = &env.disk.storage;
                let is_same = disk.node(entry.path.as_bytes()) == disk.node(first.path.as_bytes());
                env.checks
                    .require(is_same || refused(), || format!("{entry:?} is no name of {first:?}"));
            }
            if let Some(fault) = env.files.fault_of(&env.disk.storage, &publication.entry) {
                env.checks.require(refused(), || format!("published: {fault}"));
            }
        }
    }

    /// The source says something.
    pub fn note_message(&mut self, message: &SourceMessage) {
        if let SourceMessage::Manifest { entries, .. } = message {
            self.entries.extend(entries.iter().cloned());
        }
    }

    /// Memory for a group of which a lane has the first bytes.
    pub fn begin(
        &mut self,
        part: &GroupPart,
        half: &mut Half,
        env: &mut Env<'_>,
    ) -> Result<Begun<Staged>, Unplaceable> {
        let staging = &self.staging;
        let mut begun = half.begin_group(part, || staging.take())?;
        if let Begun::Memory { buffer, len } = &mut begun {
            buffer.hold(*len, self.repaired.contains(&(part.object, part.group)));
        }
        self.peak = self.peak.max(staging.bytes());
        let SinkMemory { promised, spare } = self.memory;
        env.checks.require(staging.first() <= promised.get(), || {
            format!("{} bytes are staged, {promised} were promised", staging.first())
        });
        let taken = staging.buffers() as u64 * GROUP_SIZE;
        env.checks.require(taken <= (promised + spare).get(), || {
            format!("{taken} bytes are taken, there are {promised} and {spare}")
        });
        Ok(begun)
    }

    /// A group arrived whole.
    fn hash(
        &mut self,
        now: Instant,
        arrived: ArrivedGroup<Staged>,
        copy: &mut IncomingCopy<Staged>,
        env: &mut Env<'_>,
    ) {
        let ArrivedGroup { whole: WholeGroup { object, group, buffer, .. }, only } = arrived;
        let key = (object, group);
        self.received.insert(key);
        let value = group_chaining_value(&buffer, group, only);
        match copy.handle_hashed(object, group, value) {
            Verdict::Write(task) => {
                let at = now + self.taken(env.draw);
                self.schedule(at, Operation::Write(task, buffer));
            }
            Verdict::Unknown => env.checks.require(false, || format!("{key:?} is unknown")),
            Verdict::Discard | Verdict::Duplicate => {}
        }
    }

    /// A message that goes out: what it promises must be so.
    pub fn check_message(&mut self, message: &SinkMessage, env: &mut Env<'_>) {
        match message {
            SinkMessage::Repair { object, group } => {
                let key = (*object, *group as u32);
                env.checks.require(!self.received.contains(&key), || {
                    format!("{key:?} is asked for, and the lanes would take it for a repetition")
                });
                env.checks.require(self.protect == Protect::Clear, || {
                    format!("{key:?} does not verify, though every packet was authentic")
                });
            }
            // Of what is copied by links one that leads nowhere fails each time: nothing is deleted.
            SinkMessage::Result(_) if env.files.broken().next().is_some() => {
                if let Some(fault) = env.files.fault_of_extra(&env.disk.storage, false) {
                    env.checks.require(false, || fault);
                }
            }
            SinkMessage::Result(summary) if summary.failed == 0 && !self.dry_run => {
                if let Some(fault) = env.files.fault_of_extra(&env.disk.storage, self.deletes) {
                    env.checks.require(false, || fault);
                }
                let temps = env.disk.storage.temp_count();
                env.checks.require(temps == 0, || format!("{temps} unpublished files are left"));
                env.disk.is_tidy = true;
            }
            SinkMessage::Confirm { entries } => {
                for number in entries.iter().cloned().flatten() {
                    let new = self.confirmed.insert(number);
                    env.checks.require(new, || format!("entry {number} is confirmed twice"));
                    self.check_confirmed(number, env);
                }
            }
            _ => {}
        }
    }

    fn check_confirmed(&self, number: u64, env: &mut Env<'_>) {
        let Some(entry) = self.entries.get(number as usize) else {
            return env.checks.require(false, || format!("entry {number} was never announced"));
        };
        if let Some(fault) = env.files.fault_of(&env.disk.storage, entry) {
            env.checks.require(false, || format!("confirmed: {fault}"));
        }
        if self.fsync == Fsync::End {
            let durable = env.disk.storage.is_durable(entry.path.as_bytes());
            env.checks.require(durable, || format!("confirmed and not durable: {}", entry.path));
        }
    }

    /// It may use so much memory from now on.
    pub fn set_memory(&mut self, memory: Bytes) {
        self.memory.promised = self.memory.promised.max(memory);
        self.staging.grow(self.memory.buffers());
    }

    /// Bytes in memory that are not written.
    pub fn staged_bytes(&self) -> u64 {
        self.staging.bytes()
    }

    pub fn next_timeout(&self, copy: &IncomingCopy<Staged>) -> Option<Instant> {
        let operation = self.operations.first_key_value().map(|((at, _), _)| *at);
        operation.into_iter().chain(copy.next_timeout()).min()
    }
}

/// Number of the stream of choices of what is altered between runs.
const TAMPER_STREAM: u64 = 7;
/// Time between two rates.
const STEERED: Duration = Duration::from_millis(300);
/// All runs in a world are of one request.
pub(crate) const TRANSFER: [u8; 16] = [3; 16];

/// Sources, for people.
const SOURCES: &[u8] = b"lh://source/tree";
