//! Contents of the next checkpoint, and the time when it is due.

use alloc::vec::Vec;

use longhaul_units::{Duration, Instant};

use crate::entry::{EntryId, TempName};
use crate::limits::{
    CHECKPOINT_BYTES, CHECKPOINT_INTERVAL, CHECKPOINT_INTERVAL_MIN, CHECKPOINT_SHARE,
};
use crate::record::{Bundled, Claim};

#[derive(Debug)]
pub(super) struct Checkpoints {
    next: Pending,
    /// Bytes written since the last checkpoint.
    written: u64,
    /// When the first thing came to be that is worth one.
    since: Option<Instant>,
    /// Number of checkpoints that began.
    count: u64,
    /// When the one under way did.
    began: Option<Instant>,
    /// Duration of the last one, its record included.
    cost: Duration,
}

/// Files and directories since the last checkpoint.
#[derive(Debug, Default)]
struct Pending {
    /// Files that were written.
    dirty: Vec<(EntryId, TempName)>,
    /// Groups that were verified.
    claims: Vec<Claim>,
    /// Groups of small files that were.
    bundled: Vec<Bundled>,
    /// Files that became whole.
    whole: Vec<EntryId>,
    /// Entries that got their names.
    names: Vec<EntryId>,
    /// Directories that got theirs, or were made or found in their places.
    placed: Vec<EntryId>,
}

/// A checkpoint that begins.
pub(super) struct Begun {
    /// Files to sync, and directories that were placed.
    pub(super) files: Vec<(EntryId, TempName)>,
    pub(super) placed: Vec<EntryId>,
    pub(super) covered: Covered,
}

/// Files and directories that a checkpoint makes durable.
#[derive(Debug)]
pub(super) struct Covered {
    pub(super) id: u64,
    pub(super) claims: Vec<Claim>,
    pub(super) bundled: Vec<Bundled>,
    pub(super) whole: Vec<EntryId>,
    pub(super) names: Vec<EntryId>,
}

impl Checkpoints {
    pub(super) fn new() -> Self {
        Self {
            next: Pending::default(),
            written: 0,
            since: None,
            count: 0,
            began: None,
            cost: Duration::ZERO,
        }
    }

    /// The file was written to, unless that is known.
    pub(super) fn file_written(&mut self, file: Option<(EntryId, TempName)>) {
        self.next.dirty.extend(file);
    }

    /// A group of so many bytes was written, to these files and to some that are known.
    pub(super) fn group_written(
        &mut self,
        len: u32,
        files: impl Iterator<Item = (EntryId, TempName)>,
    ) {
        self.written += u64::from(len);
        self.next.dirty.extend(files);
    }

    /// A group was verified of which the record is to tell.
    pub(super) fn verified(&mut self, claim: Option<Claim>) {
        self.next.claims.extend(claim);
    }

    /// The same of a group of small files: of use where those are recorded.
    pub(super) fn bundle_verified(&mut self, group: Bundled) {
        self.next.bundled.push(group);
    }

    pub(super) fn became_whole(&mut self, id: EntryId) {
        self.next.whole.push(id);
    }

    pub(super) fn got_name(&mut self, id: EntryId) {
        self.next.names.push(id);
    }

    pub(super) fn directory_in_place(&mut self, id: EntryId) {
        self.next.placed.push(id);
    }

    /// The file failed, and nothing of it is to be found by a later run.
    pub(super) fn discarded(&mut self, temp: TempName) {
        self.next.claims.retain(|claim| claim.temp != temp);
    }

    /// True if files wait to get their names, or names to be durable.
    pub(super) fn has_names(&self) -> bool {
        self.has_whole() || !self.next.names.is_empty()
    }

    /// True if files wait to get their names.
    pub(super) fn has_whole(&self) -> bool {
        !self.next.whole.is_empty()
    }

    /// True if the record is to tell of groups.
    pub(super) fn has_claims(&self) -> bool {
        !self.next.claims.is_empty()
    }

    /// Something is worth a checkpoint.
    pub(super) fn is_worth_it(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Nothing is.
    pub(super) fn is_not_worth_it(&mut self) {
        self.since = None;
    }

    /// The one that was under way, if any, has ended, and its record is written.
    pub(super) fn ended(&mut self, now: Instant) {
        if let Some(began) = self.began.take() {
            self.cost = now - began;
        }
    }

    /// When the next one is due at the latest, if something is worth it.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.since.map(|since| since + self.wait())
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due_at().is_some_and(|due| now >= due) || self.written >= CHECKPOINT_BYTES
    }

    /// From the first thing worth a checkpoint to that. Files that wait for their names get them
    /// while others arrive, as often as costs little, and not all at the end.
    fn wait(&self) -> Duration {
        if !self.has_whole() {
            return CHECKPOINT_INTERVAL;
        }
        let wait = self.cost * CHECKPOINT_SHARE;
        wait.clamp(CHECKPOINT_INTERVAL_MIN, CHECKPOINT_INTERVAL)
    }

    pub(super) fn begin(&mut self, now: Instant) -> Begun {
        self.count += 1;
        self.since = None;
        self.began = Some(now);
        self.written = 0;
        let Pending { dirty, claims, bundled, whole, names, placed } =
            core::mem::take(&mut self.next);
        let covered = Covered { id: self.count, claims, bundled, whole, names };
        Begun { files: dirty, placed, covered }
    }
}
