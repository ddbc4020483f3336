mod accept;
mod checkpoints;
mod completion;
mod contents;
mod credit;
mod durable;
mod entries;
mod groups;
mod hard_links;
mod manifest;
mod messages;
mod objects;
mod offers;
mod publications;
mod recorder;
mod replies;
mod report;
mod resumed;
mod setup;
mod staged_directories;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::{ObjectId, RangeSet};
use longhaul_wire::{
    Entry, EntryEnd, EntryKind, HostAccount, KeptAttributes, SourceReport, Summary,
};

use self::checkpoints::Checkpoints;
use self::completion::Ending;
use self::credit::Credit;
use self::entries::{Entries, Failed};
use self::manifest::Manifest;
use self::objects::Objects;
use self::offers::Offers;
use self::publications::Publications;
use self::recorder::Recorder;
use self::replies::Answers;
use self::report::Report;
use self::resumed::Earlier;
use self::setup::Setup;
use self::staged_directories::StagedDirectories;
use crate::action::ExistingEntry;
use crate::carried::CarriedEntries;
use crate::changes::NamedChange;
use crate::ended::{Deletions, EndedEntry, Stayed};
use crate::entry::{EntryError, EntryId};
use crate::hash::ChainingValue;
use crate::limits::UNSETTLED_COST;
use crate::names::TopNames;
use crate::record::RecordWriter;
use crate::record::{Fsync, ResumeState};
use crate::table::ObjectTable;
use crate::tags::Tag;

/// The side that receives: says what is to be done with its storage, checks every group, and
/// tells the source what it has (docs/protocol.md section 7, docs/objects.md).
///
/// The driver
/// * hands what arrives on stream 0 to [`Sink::handle`], as long as [`Sink::wants_messages`], and
///   sends what [`Sink::poll_message`]
///   gives while the stream has room;
/// * does the actions of [`Sink::poll_action`], on any thread ([`crate::storage::perform`]), and
///   hands their outcomes to [`Sink::handle_answer`];
/// * calls [`Sink::group_received`] for each group that a lane has received whole, with its
///   chaining value, and follows the [`crate::action::Verdict`]; writes may be done in any order and at
///   the same time; each ends with [`Sink::group_written`];
/// * takes no memory for a group of an object that [`Sink::is_over`], and says so once with
///   [`Sink::group_dropped`];
/// * tells the peer [`Sink::credit`], and the lanes [`Sink::objects`], every group of
///   [`Sink::poll_unverified`] and every object of [`Sink::poll_unneeded`];
/// * calls `poll_action`, `poll_unverified`, `poll_unneeded` and `poll_message` again after any of these, and
///   at [`Sink::next_timeout`].
///
/// When storage fails as a whole (a sync fails, the record cannot be written) the driver ends
/// the transfer without answering; what is recorded stays valid.
///
/// Answers to actions that were not given are ignored.
///
/// Each part keeps its own state; the methods of the sink tell one what came of another.
#[derive(Debug)]
pub struct Sink {
    fsync: Fsync,
    manifest: Manifest,
    entries: Entries,
    setup: Setup,
    earlier: Earlier,
    staged: StagedDirectories,
    offers: Offers,
    /// Of the next HASHES.
    tags: Option<NextTags>,
    objects: Objects,
    credit: Credit,
    checkpoints: Checkpoints,
    recorder: Recorder,
    publications: Publications,
    answers: Answers,
    report: Report,
    ending: Ending,
    keeps: Keeps,
    deletes: bool,
    dry_run: bool,
    /// Entries that stay as they are, in objects that are not offered.
    unchanged: RangeSet,
}

/// Settings of a sink.
#[derive(Clone, Debug)]
pub struct SinkConfig {
    /// Bytes of memory for groups that are being received or written, at least four groups: what
    /// the source may have under way. See [`Sink::grow_capacity`].
    pub capacity: u64,
    /// When data is synced.
    pub fsync: Fsync,
    /// Identity of the request; see [`crate::record::replay`].
    pub transfer: [u8; 16],
    /// Places that the copy comes from, for people: the record names them.
    pub sources: Vec<u8>,
    /// Random, different in every run.
    pub nonce: [u8; 16],
    /// Names that the source may use.
    pub names: TopNames,
    /// The source is asked what it believes of the record of an earlier run: others may have written
    /// that. Who copies to himself believes his own.
    pub asks: bool,
    /// Files that are there and stay as they are: they are not sent.
    pub keeps: Keeps,
    /// Attributes that entries may have beside times and permission bits, since the request keeps them.
    pub attributes: KeptAttributes,
    /// The rest of a copied directory, which was not announced, is deleted at the end, if nothing failed.
    pub deletes: bool,
    /// Nothing is copied: of each entry the sink says what a copy would do. Its storage changes nothing,
    /// and answers for a directory with the code that this has in RESULT.
    pub dry_run: bool,
}

/// Files under their names that a sink keeps (docs/protocol.md section 7.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeps {
    /// Those with the size and modification time of the source's.
    pub unchanged: bool,
    /// Those that were modified later.
    pub newer: bool,
    /// Of files those with the contents of the source's, whenever they were modified.
    pub equal: bool,
    /// Directories that are there, whatever of these is so: they count as unchanged, or mended.
    pub directories: bool,
}

impl Keeps {
    /// True if files are to be compared with what has their names.
    pub fn compares(self) -> bool {
        self.unchanged || self.newer || self.equal
    }

    /// The entry, to be compared with what has its name.
    fn existing(self, id: EntryId, entry: Arc<Entry>) -> ExistingEntry {
        ExistingEntry { id, stays: self.stays_unchanged(&entry), newer_stays: self.newer, entry }
    }

    /// True if an entry stays where what has its name has its size and modification time. A later name of a file is
    /// looked at when it is its turn, and contents are compared for themselves.
    fn stays_unchanged(self, entry: &Entry) -> bool {
        let by_contents = self.equal && entry.kind == EntryKind::File;
        (self.unchanged || self.equal) && !by_contents && entry.linked_to().is_none()
    }
}

/// Tags of groups whose hashes come next.
#[derive(Debug)]
struct NextTags {
    object: ObjectId,
    first: u64,
    tags: Vec<Tag>,
}

impl Default for SinkConfig {
    fn default() -> Self {
        Self {
            capacity: 64 << 20,
            fsync: Fsync::End,
            transfer: [0; 16],
            sources: Vec::new(),
            nonce: [0; 16],
            names: TopNames::Any,
            asks: true,
            keeps: Keeps::default(),
            attributes: KeptAttributes::default(),
            deletes: false,
            dry_run: false,
        }
    }
}

/// Counters of a sink so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Entries announced.
    pub entries: u32,
    /// Bytes announced.
    pub bytes: u64,
    /// True if the manifest is complete, so that both are final.
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
    /// Entries that failed, at the source or here.
    pub failed: u32,
    /// Entries that the source has skipped.
    pub skipped: u32,
    /// Entries that stay as they were: unchanged, or newer ones.
    pub unchanged: u32,
    /// Their bytes.
    pub unchanged_bytes: u64,
    /// Kinds of them.
    pub stayed: Stayed,
    /// In a dry run: those of them that a copy would change, and their bytes.
    pub would_change: (u32, u64),
    /// Those of them that earlier connections of the command have brought, and their bytes.
    pub carried: (u32, u64),
    /// Groups that did not verify.
    pub repairs: u64,
    /// Groups of an earlier run that were read and compared.
    pub rechecked: u64,
    /// Groups of an earlier run that the source has answered for.
    pub answered: u64,
    /// Groups that were received more than once.
    pub duplicates: u64,
    /// Checkpoints begun.
    pub checkpoints: u64,
}

impl SinkStats {
    /// Entries of which nothing more is to come.
    pub fn settled(&self) -> u32 {
        self.confirmed + self.failed + self.skipped + self.unchanged
    }
}

/// A message of the source is not true or not allowed. Nothing was changed.
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
    /// The parent of an entry was not announced before it as a directory.
    #[error("{entry:?} is in no directory")]
    Orphan {
        /// The entry.
        entry: EntryId,
    },
    /// Entries are not numbered on.
    #[error("entries are not numbered on")]
    Order,
    /// More than [`crate::limits`] allow.
    #[error("too many entries, directories, or names of unsettled files")]
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
    /// COMPARE of groups that were not asked for, or are answered.
    #[error("hashes of entry {entry} are not possible")]
    Compared {
        /// The entry.
        entry: u64,
    },
    /// BELIEVED of groups that were not offered, or are answered.
    #[error("belief of {object:?} is not possible")]
    Believed {
        /// The object.
        object: ObjectId,
    },
    /// A later name of what was not announced before as having several.
    #[error("{entry:?} is to be a name of an entry that was not announced as having several")]
    HardLink {
        /// The entry.
        entry: EntryId,
    },
    /// ENTRY_FAILED for an entry that was not announced.
    #[error("failure of entry {entry}, which was not announced")]
    Failure {
        /// The entry.
        entry: u64,
    },
}

impl Sink {
    /// A sink that goes on from `resume` ([`crate::record::replay`] of the record, or the default
    /// value where there is none).
    pub fn new(config: SinkConfig, resume: ResumeState) -> Self {
        let SinkConfig { capacity, fsync, transfer, sources, nonce, .. } = config;
        let writer = RecordWriter::new(&resume, transfer, fsync).of_sources(sources);
        let SinkConfig { names, asks, keeps, attributes, deletes, dry_run, .. } = config;
        let mut publications = Publications::default();
        publications.hard_links.are_compared = keeps.equal;
        Self {
            fsync,
            manifest: Manifest::new(names, attributes),
            entries: Entries::new(),
            setup: Setup::new(nonce),
            recorder: Recorder::new(writer, fsync),
            earlier: Earlier::new(resume),
            staged: StagedDirectories::default(),
            offers: Offers::new(asks),
            tags: None,
            objects: Objects::new(),
            credit: Credit::new(capacity),
            checkpoints: Checkpoints::new(),
            publications,
            answers: Answers::new(),
            report: Report::new(),
            ending: Ending::new(),
            keeps,
            deletes,
            dry_run,
            unchanged: RangeSet::new(),
        }
    }

    /// True if RESULT comes next.
    pub fn is_result_due(&self) -> bool {
        self.ending.is_result_due()
    }

    /// Sets the account of the sink's host for RESULT: when that [is due](Self::is_result_due).
    pub fn set_host(&mut self, host: HostAccount) {
        self.report.set_host(host);
    }

    /// Sets the notes for the source's user, for RESULT ([`Summary::notes`], [`Summary::not_kept`]).
    pub fn set_notes(&mut self, notes: u64, not_kept: u64) {
        self.report.set_notes(notes, not_kept);
    }

    /// Sizes of the accepted objects. Grows after [`Sink::handle`] and the answers to actions.
    pub fn objects(&self) -> &ObjectTable {
        self.objects.table()
    }

    /// True if the object is over: no group of it is awaited, so whatever still comes of it is of no
    /// use.
    pub fn is_over(&self, id: ObjectId) -> bool {
        self.objects.is_over(id)
    }

    /// All objects below this number are over. Never shrinks; behind an object that is not over
    /// others may be.
    pub fn over_below(&self) -> u32 {
        self.objects.over_below()
    }

    /// Object bytes that may ever be sent for the first time (docs/protocol.md section 5.4).
    /// Never shrinks.
    pub fn credit(&self) -> u64 {
        self.credit.promised(self.objects.unverified())
    }

    /// Answers that the source has not taken. They are bounded whatever it announces and however
    /// little it reads, since [`Sink::wants_messages`], credit and preparations stop at
    /// [`crate::limits::ANSWERS_MAX`]: what waits beyond is about entries that were announced before.
    pub fn answers_waiting(&self) -> usize {
        self.answers.waiting()
    }

    /// True if the next message of the source is to be taken in. Looked at before each is read from
    /// its stream, and again after [`Sink::poll_message`], [`Sink::handle_answer`] and
    /// [`Sink::grow_name_memory`]. What it waits for comes without another message.
    pub fn wants_messages(&self) -> bool {
        let has_names = !self.entries.names.is_awaited() && self.entries.held() <= UNSETTLED_COST;
        self.answers.have_room() && has_names && !self.setup.is_behind(&self.entries)
    }

    /// Memory for names of directories that it would have, if that is more than it has.
    pub fn name_memory_wanted(&self) -> Option<u64> {
        self.entries.names.wanted()
    }

    /// There is so much of that from now on. If it is not more than there was, and none is left,
    /// directories are refused until it is.
    pub fn grow_name_memory(&mut self, capacity: u64) {
        self.entries.names.grow(capacity);
    }

    /// Credit stands still while too many answers wait.
    fn hold_credit(&mut self) {
        match self.answers.have_room() {
            true => self.credit.thaw(),
            false => self.credit.freeze(self.objects.unverified()),
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

    /// BLAKE3 of the contents of a large file, once it is whole and verified.
    pub fn digest(&self, id: EntryId) -> Option<&ChainingValue> {
        self.objects.digest(id)
    }

    /// True if every entry is settled, and RESULT was given out. Stream 0 can be closed.
    pub fn is_done(&self) -> bool {
        self.ending.is_done()
    }

    /// Values of RESULT, so far.
    pub fn summary(&self) -> Summary {
        self.report.summary()
    }

    /// The source's last report of its sending, if there was one. Nothing here depends on it.
    pub fn source_report(&self) -> Option<&SourceReport> {
        self.report.source()
    }

    /// Counts so far.
    pub fn stats(&self) -> &SinkStats {
        self.report.stats()
    }

    /// Bytes that are there, also in incomplete files that are kept for a later run.
    pub fn bytes_there(&self) -> u64 {
        self.report.bytes_there()
    }

    /// Entries that failed, at the source or here: the first [`crate::limits::FAILURES_MAX`] of them.
    pub fn failures(&self) -> &[EndedEntry] {
        self.report.failures()
    }

    /// Names that were not announced and were to be deleted.
    pub fn deletions(&self) -> &Deletions {
        self.report.deletions()
    }

    /// From now on each change at the destination is kept for [`Sink::take_changes`].
    pub fn want_changes(&mut self) {
        self.report.changes.want();
    }

    /// Changes since the last call, and how many of them were left out, since there were too many at once.
    pub fn take_changes(&mut self) -> (Vec<NamedChange>, u64) {
        self.report.changes.take()
    }

    /// See [`crate::Source::carry`].
    pub fn carry(&mut self, earlier: CarriedEntries) {
        self.report.changes.carried = earlier;
    }

    /// See [`crate::Source::take_carried`].
    pub fn take_carried(&mut self) -> CarriedEntries {
        core::mem::take(&mut self.report.changes.carried).after_connection()
    }

    /// Entries that the source has skipped: as many.
    pub fn skipped(&self) -> &[EndedEntry] {
        self.report.skipped()
    }

    /// Ends an entry that is not published.
    fn fail(&mut self, id: EntryId, end: EntryEnd, source: SourceKnows, kept: Kept) {
        if let Some(entry) = self.entries.fail_made(id) {
            return self.note_ended(id, &entry, end, source);
        }
        let Some(Failed { entry, object, aside, discarded, whole }) = self.entries.fail(id, kept)
        else {
            return;
        };
        if let Some(temp) = discarded {
            self.checkpoints.discarded(temp);
            self.report.lost(whole.unwrap_or_else(|| self.objects.written(object, id)));
        }
        self.note_ended(id, &entry, end, source);
        if entry.kind == EntryKind::Directory {
            self.note_made(id, None);
            self.setup.take_inside(id);
        }
        if let Some(directory) = aside {
            self.staged.spoil(directory, &entry);
        }
        self.earlier.forget(id);
        self.setup.contents.forget(id);
        self.abandon_if_idle(object);
        self.advance();
    }

    /// Ends an object of which no file awaits groups any more, though some have not come: those of
    /// files that failed.
    fn abandon_if_idle(&mut self, object: u32) {
        let entries = &self.entries;
        let abandoned = self.objects.abandon_if_idle(object, |file| {
            entries.get(file).is_some_and(|slot| slot.state().awaits_groups())
        });
        if let Some(abandoned) = abandoned {
            self.answers.give_up(abandoned);
        }
    }

    fn note_ended(&mut self, id: EntryId, entry: &Entry, end: EntryEnd, source: SourceKnows) {
        self.publications.entry_ended(id, end.code);
        self.report.ended(id, entry, &end);
        if source == SourceKnows::No {
            self.answers.refuse(id, &end);
            self.hold_credit();
        }
    }

    /// Ends an entry that is durable under its name.
    fn confirm(&mut self, id: EntryId) {
        if self.report.changes.count_entries()
            && let Some(named) = self.entries.named(id)
        {
            self.report.changes.copied(&named.path(), named.is_directory());
        }
        if let Some(size) = self.entries.confirm(id) {
            self.report.confirmed(size);
            self.answers.confirm(id);
        }
    }

    /// Forgets what is settled at the front.
    fn forget(&mut self) {
        self.entries.forget(self.manifest.covered());
        self.objects.forget();
    }
}

/// The source knows of a failure, or does not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceKnows {
    Yes,
    No,
}

/// Part of a failed file that stays for a later run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Nothing,
    Part,
    /// Nothing was done for it.
    Untouched,
}
