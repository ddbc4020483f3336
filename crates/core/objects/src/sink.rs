mod answers;
mod aside;
mod credit;
mod durable;
mod groups;
mod manifest;
mod messages;
mod recheck;
mod report;
mod setup;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::{Duration, Instant, ObjectId};
use longhaul_wire::{Entry, EntryKind, SourceReport, Summary};

use self::answers::Answers;
use self::aside::Aside;
use self::credit::Credit;
use self::durable::{Phase, Step};
use self::groups::{Abandoned, Object};
use self::recheck::Recheck;
use self::report::Report;
use crate::record::{Claim, PartialFile, RecordWriter, Void};
use crate::window::Window;
use crate::{
    Action, ChainingValue, EntryError, EntryId, EntryKey, Failure, Fsync, NamedFile, ObjectTable,
    ResumeState, TempName, TopNames,
};

/// The side that receives: says what is to be done with its storage, checks every group, and
/// tells the source what it has (docs/protocol.md section 7, docs/objects.md).
///
/// The driver
/// * hands what arrives on stream 0 to [`Sink::handle`], as long as [`Sink::wants_messages`], and
///   sends what [`Sink::poll_message`]
///   gives while the stream has room;
/// * does what [`Sink::poll_action`] gives, on whatever thread ([`crate::storage::perform`]), and
///   hands what came of it to [`Sink::handle_answer`];
/// * calls [`Sink::group_received`] for each group that a lane has received whole, with its
///   chaining value, and follows the [`crate::Verdict`]; writes may be done in any order and at
///   the same time; each ends with [`Sink::group_written`];
/// * tells the peer [`Sink::credit`], and the lanes [`Sink::objects`] and every group of
///   [`Sink::poll_anew`];
/// * calls `poll_action`, `poll_anew` and `poll_message` again after any of these, and at
///   [`Sink::next_timeout`].
///
/// When storage fails as a whole (a sync fails, the record cannot be written) the driver ends
/// the transfer without answering; what is recorded stays valid.
///
/// Answers to actions that were not given are ignored.
#[derive(Debug)]
pub struct Sink {
    config: SinkConfig,
    resume: ResumeState,
    record: RecordWriter,

    slots: Window<Slot>,
    /// Every path that was announced, and the number of what is there if it is a directory.
    paths: BTreeMap<[u8; 16], Option<EntryId>>,
    /// The root of the copy is a file or link, so that nothing else can be.
    root_is_leaf: bool,
    /// Entries below have no contents or belong to an announced object.
    covered: u32,
    announced_bytes: u64,
    ended: bool,
    directory_count: u32,

    /// Actions that prepare for what was announced, in order.
    setup: VecDeque<Action>,
    /// Entries below are prepared.
    ready: u32,
    /// Claims about files that are being prepared.
    partials: BTreeMap<EntryId, PartialFile>,
    /// Those of them whose files may have been altered.
    rechecks: BTreeMap<EntryId, Recheck>,
    /// Recorded groups that were found wrong, to be recorded.
    void: Vec<Void>,
    /// Large files prepared and not complete.
    prepared: u32,
    /// Directories not made yet.
    unmade: u32,
    /// Directories that were made.
    directories: BTreeMap<EntryId, Arc<Entry>>,

    /// Directories that are not in their places, perhaps.
    asides: BTreeMap<EntryId, Aside>,
    /// The one of them that files may be announced in.
    open_directory: Option<EntryId>,
    /// Those of them that are complete.
    placeable: VecDeque<EntryId>,
    /// Groups with parts that are written straight into some of them.
    aside_writes: BTreeMap<(ObjectId, u32), Vec<EntryId>>,
    /// Those that were placed since the last checkpoint.
    placed: Vec<EntryId>,

    objects: Window<Object>,
    accepted: u32,
    table: ObjectTable,
    abandoned: BTreeMap<ObjectId, Abandoned>,
    credit: Credit,
    /// First-sent bytes that are written and whose hash has not come.
    unverified: u64,
    /// Hashes whose group has not come.
    waiting_hashes: u64,

    /// Files and links announced and not settled.
    unsettled: u32,
    /// Those of them that are not received whole.
    unfinished: u32,
    /// Those of them that do not have their names.
    unnamed: u32,

    /// Files written since the last checkpoint.
    dirty: Vec<NamedFile>,
    written: u64,
    /// Groups verified since the last checkpoint.
    claims: Vec<Claim>,
    /// Files that became whole since the last checkpoint.
    whole: Vec<EntryId>,
    /// Entries that got their names since the last checkpoint.
    names: Vec<EntryId>,
    /// When the first of these came to be.
    dirty_since: Option<Instant>,
    checkpoints: u64,
    checkpoint_began: Option<Instant>,
    /// How long the last checkpoint took, its record included.
    checkpoint_cost: Duration,
    step: Step,
    /// The transfer ends early.
    winding_up: bool,
    /// The next action of the step.
    recording: Option<Action>,
    publishable: VecDeque<EntryId>,
    publishing: u32,
    /// Published and durable, to be recorded.
    published: Vec<EntryKey>,
    /// Whole and durable in directories that have to wait, to be recorded.
    kept: Vec<EntryId>,
    discard: Vec<TempName>,
    phase: Phase,

    answers: Answers,
    digests: BTreeMap<EntryId, ChainingValue>,
    report: Report,
}

/// What a sink is told at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkConfig {
    /// Bytes of memory for groups that are being received or written, at least four groups: what
    /// the source may have under way. See [`Sink::grow_capacity`].
    pub capacity: u64,
    /// When data is synced.
    pub fsync: Fsync,
    /// What identifies the request; see [`crate::record::replay`].
    pub transfer: [u8; 16],
    /// Random, different in every run.
    pub nonce: [u8; 16],
    /// What the source may call what it sends.
    pub names: TopNames,
}

impl Default for SinkConfig {
    fn default() -> Self {
        Self {
            capacity: 64 << 20,
            fsync: Fsync::End,
            transfer: [0; 16],
            nonce: [0; 16],
            names: TopNames::Any,
        }
    }
}

/// What a sink has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Entries announced.
    pub entries: u32,
    /// Bytes announced.
    pub bytes: u64,
    /// Whether the manifest is complete, so that both are final.
    pub complete: bool,
    /// Bytes that were received for the first time and written.
    pub received_bytes: u64,
    /// Bytes that were verified against the source's hashes.
    pub verified_bytes: u64,
    /// Bytes that were durable from an earlier run.
    pub resumed_bytes: u64,
    /// Entries confirmed.
    pub confirmed: u32,
    /// Bytes of the confirmed files.
    pub confirmed_bytes: u64,
    /// Entries that failed at the source or were refused here.
    pub failed: u32,
    /// Groups that did not verify.
    pub repairs: u64,
    /// Groups of an earlier run that were read and compared.
    pub rechecked: u64,
    /// Groups that were received more than once.
    pub duplicates: u64,
    /// Checkpoints begun.
    pub checkpoints: u64,
}

/// What the source said is not true or not allowed. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// An entry that is not allowed.
    #[error("{entry:?}: {error}")]
    Entry {
        /// The entry.
        entry: EntryId,
        /// Why.
        error: EntryError,
    },
    /// Two entries have one path.
    #[error("{entry:?} has the path of an earlier one")]
    Duplicate {
        /// The later one.
        entry: EntryId,
    },
    /// An entry has a name at the top that [`SinkConfig::names`] does not admit.
    #[error("it sends {name}, which was not asked for")]
    NotAskedFor {
        /// The name, escaped.
        name: String,
    },
    /// What an entry is in was not announced before it as a directory.
    #[error("{entry:?} is in no directory")]
    Orphan {
        /// The entry.
        entry: EntryId,
    },
    /// Entries are not numbered on.
    #[error("entries are not numbered on")]
    Order,
    /// More than [`crate::limits`] allow.
    #[error("too many entries, directories or unsettled files")]
    TooMany,
    /// An object that is not numbered on, does not begin with the first file that belongs to
    /// none, does not end with a file, is too large, or has another size than its files.
    #[error("{object:?} is not what its entries say")]
    Object {
        /// The object.
        object: ObjectId,
    },
    /// MANIFEST_END with other counts, or before every file belongs to an object.
    #[error("the totals of the manifest are wrong")]
    Totals,
    /// MANIFEST or MANIFEST_END after MANIFEST_END.
    #[error("the manifest had ended")]
    AfterEnd,
    /// Hashes of groups that are not, of an object that is not accepted, or of too many groups
    /// that have not come.
    #[error("hashes of {object:?} are not possible")]
    Hashes {
        /// The object.
        object: ObjectId,
    },
    /// ENTRY_FAILED for an entry that was not announced.
    #[error("failure of entry {entry}, which was not announced")]
    Failure {
        /// The entry.
        entry: u64,
    },
}

#[derive(Debug)]
struct Slot {
    /// `None` when settled, and for directories.
    entry: Option<Arc<Entry>>,
    size: u64,
    temp: TempName,
    /// The directory that holds it, if that is one of [`Sink::asides`].
    directory: EntryId,
    /// Written straight into it.
    aside: bool,
    /// Recorded as published, by an earlier run or while its directory had to wait.
    recorded: bool,
    object: u32,
    /// Groups not verified and written.
    left: u32,
    state: State,
    /// In [`Sink::dirty`].
    dirty: bool,
    /// Counted in [`Sink::prepared`].
    prepared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not prepared.
    Waiting,
    /// Prepared; contents are missing.
    Open,
    /// Under its name, where an earlier run or the check of this one has put it, and perhaps not
    /// durable there; its object is not accepted or its groups are awaited.
    Found,
    /// Received whole.
    Whole,
    /// Durable in its directory, which is not in its place.
    Aside,
    /// About to get its name.
    Publishing,
    /// Has its name.
    Named,
    /// Confirmed, failed, or a directory that was made and is kept elsewhere.
    Settled,
}

impl Sink {
    /// A sink that goes on from `resume` ([`crate::record::replay`] of the record, or the default
    /// value where there is none).
    pub fn new(config: SinkConfig, resume: ResumeState) -> Self {
        let credit = Credit::new(config.capacity);
        Self {
            record: RecordWriter::new(&resume, config.transfer, config.fsync),
            config,
            resume,
            slots: Window::new(),
            paths: BTreeMap::new(),
            root_is_leaf: false,
            covered: 0,
            announced_bytes: 0,
            ended: false,
            directory_count: 0,
            setup: VecDeque::new(),
            ready: 0,
            partials: BTreeMap::new(),
            rechecks: BTreeMap::new(),
            void: Vec::new(),
            prepared: 0,
            unmade: 0,
            directories: BTreeMap::new(),
            asides: BTreeMap::new(),
            open_directory: None,
            placeable: VecDeque::new(),
            aside_writes: BTreeMap::new(),
            placed: Vec::new(),
            objects: Window::new(),
            accepted: 0,
            table: ObjectTable::default(),
            abandoned: BTreeMap::new(),
            credit,
            unverified: 0,
            waiting_hashes: 0,
            unsettled: 0,
            unfinished: 0,
            unnamed: 0,
            dirty: Vec::new(),
            written: 0,
            claims: Vec::new(),
            whole: Vec::new(),
            names: Vec::new(),
            dirty_since: None,
            checkpoints: 0,
            checkpoint_began: None,
            checkpoint_cost: Duration::ZERO,
            step: Step::Idle,
            winding_up: false,
            recording: None,
            publishable: VecDeque::new(),
            publishing: 0,
            published: Vec::new(),
            kept: Vec::new(),
            discard: Vec::new(),
            phase: Phase::Receiving,
            answers: Answers::new(),
            digests: BTreeMap::new(),
            report: Report::new(),
        }
    }

    /// What RESULT will say of the sink's CPU time. The driver keeps it up to date.
    pub fn set_cpu_time(&mut self, cpu_time: Duration) {
        self.report.set_cpu_time(cpu_time);
    }

    /// Sizes of the accepted objects. Grows after [`Sink::handle`] and the answers to actions.
    pub fn objects(&self) -> &ObjectTable {
        &self.table
    }

    /// Object bytes that may ever be sent for the first time (docs/protocol.md section 5.4).
    /// Never shrinks.
    pub fn credit(&self) -> u64 {
        self.credit.promised(self.unverified)
    }

    /// Answers that the source has not taken. They are bounded whatever it announces and however
    /// little it reads, since [`Sink::wants_messages`], credit and preparations stop at
    /// [`crate::limits::ANSWERS_MAX`]: what waits beyond is about entries that were announced before.
    pub fn answers_waiting(&self) -> usize {
        self.answers.waiting()
    }

    /// Whether the next message of the source is to be taken in. Looked at before each is read from
    /// its stream, and again after [`Sink::poll_message`].
    pub fn wants_messages(&self) -> bool {
        self.answers.have_room()
    }

    /// Credit stands still while too many answers wait.
    fn hold_credit(&mut self) {
        match self.answers.have_room() {
            true => self.credit.thaw(),
            false => self.credit.freeze(self.unverified),
        }
    }

    /// Bytes of memory that it promises.
    pub fn capacity(&self) -> u64 {
        self.credit.capacity()
    }

    /// There is so much memory for groups from now on: more than before, or it stays as it was.
    pub fn grow_capacity(&mut self, capacity: u64) {
        self.credit.grow(capacity);
    }

    /// The entry, while it is not settled.
    pub fn entry(&self, id: EntryId) -> Option<&Arc<Entry>> {
        self.directories.get(&id).or_else(|| self.slots.get(id.0)?.entry.as_ref())
    }

    /// BLAKE3 of the contents of a large file, once it is whole and verified.
    pub fn digest(&self, id: EntryId) -> Option<&ChainingValue> {
        self.digests.get(&id)
    }

    /// Whether every entry is settled, and RESULT was given out. Stream 0 can be closed.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// What RESULT says, so far.
    pub fn summary(&self) -> Summary {
        self.report.summary()
    }

    /// What the source said last of its sending, if it did. Nothing here depends on it.
    pub fn source_report(&self) -> Option<&SourceReport> {
        self.report.source()
    }

    /// Counts so far.
    pub fn stats(&self) -> &SinkStats {
        self.report.stats()
    }

    /// Entries that failed or were refused: the first [`crate::limits::FAILURES_MAX`] of them.
    pub fn failures(&self) -> &[Failure] {
        self.report.failures()
    }

    /// Ends an entry that is not published. `told` says that the source knows.
    fn fail(&mut self, id: EntryId, reason: &str, told: Told, kept: Kept) {
        let reason = crate::source::cut(reason);
        if let Some(entry) = self.directories.remove(&id) {
            return self.note_failure(id, &entry, reason, told);
        }
        let Some(slot) = self.slots.get_mut(id.0) else {
            return;
        };
        let was = slot.state;
        if !matches!(was, State::Waiting | State::Open | State::Whole | State::Publishing) {
            return;
        }
        slot.state = State::Settled;
        self.prepared -= u32::from(core::mem::take(&mut slot.prepared));
        let (object, temp, large) = (slot.object, slot.temp, slot.is_large());
        let aside = core::mem::take(&mut slot.aside).then_some(slot.directory);
        let Some(entry) = slot.entry.take() else {
            return;
        };
        if entry.kind == EntryKind::Directory {
            self.unmade -= 1;
        } else {
            self.unsettled -= 1;
            self.unnamed -= 1;
            self.unfinished -= u32::from(matches!(was, State::Waiting | State::Open));
            if kept == Kept::Nothing || !large {
                self.discard.push(temp);
                self.claims.retain(|claim| claim.temp != temp);
            }
        }
        self.note_failure(id, &entry, reason, told);
        if let Some(directory) = aside {
            self.spoil(directory, &entry);
        }
        if large {
            self.partials.remove(&id);
            self.rechecks.remove(&id);
        }
        self.abandon_if_idle(object);
        self.advance();
    }

    fn note_failure(&mut self, id: EntryId, entry: &Entry, reason: String, told: Told) {
        self.report.failed(id, entry, &reason);
        if told == Told::No {
            self.answers.refuse(id, reason);
            self.hold_credit();
        }
    }

    /// Ends an entry that is durable under its name.
    fn confirm(&mut self, id: EntryId) {
        let entry = match self.slots.get_mut(id.0) {
            Some(slot) if slot.entry.is_some() => {
                slot.state = State::Settled;
                slot.entry.take()
            }
            _ => self.directories.remove(&id),
        };
        let Some(entry) = entry else {
            return;
        };
        if entry.kind != EntryKind::Directory {
            self.unsettled -= 1;
        }
        self.report.confirmed(&entry);
        self.answers.confirm(id);
    }

    /// Forgets what is settled at the front.
    fn forget(&mut self) {
        let bound = self.covered.min(self.ready);
        self.slots.forget_while(|number, slot| number < bound && slot.state == State::Settled);
        let accepted = self.accepted;
        self.objects.forget_while(|number, object| number < accepted && object.is_over());
    }
}

impl State {
    /// Whether the file is settled no sooner than its groups.
    fn awaits_groups(self) -> bool {
        matches!(self, Self::Open | Self::Found)
    }
}

impl Slot {
    fn is_large(&self) -> bool {
        self.size >= crate::limits::LARGE_FILE_MIN
    }
}

/// Whether the source knows of a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Yes,
    No,
}

/// What stays of a failed file for a later run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Nothing,
    Part,
}
