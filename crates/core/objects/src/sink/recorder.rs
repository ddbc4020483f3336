//! News for the record, and the chain of steps to it: sync, stamp, append. One runs at a time.

use alloc::vec::Vec;

use longhaul_wire::Entry;

use super::checkpoints::Covered;
use super::resumed::Wrong;
use crate::action::{Action, NamedFile};
use crate::entry::key;
use crate::entry::{EntryId, EntryKey, TempName};
use crate::record::{Bundled, Claim, News, RecordWriter, Void};
use crate::record::{Fsync, Stamp};

#[derive(Debug)]
pub(super) struct Recorder {
    writer: RecordWriter,
    fsync: Fsync,
    /// Recorded groups that were found wrong.
    void: Vec<Void>,
    /// Recorded as published, or kept, and not what is copied.
    unpublished: Vec<EntryKey>,
    /// Groups of small files, which the record tells of no sooner than of a file.
    bundled: Vec<Bundled>,
    /// Published and durable.
    published: Vec<EntryKey>,
    /// Whole and durable in directories that have to wait.
    kept: Vec<EntryId>,
    step: Step,
    /// The next action of the step.
    action: Option<Action>,
}

/// Where the chain stands.
#[derive(Debug)]
enum Step {
    Idle,
    Syncing(Covered),
    /// It is asked how these files are, of which the record is to tell.
    Stamping(Unstamped),
    /// The record is being written; these files can be published then.
    Appending(Vec<EntryId>),
}

/// News for the record that wait for the stamps of their files.
#[derive(Debug)]
pub(super) struct Unstamped {
    claims: Vec<Claim>,
    /// The files that those are about, and whole ones in directories that wait: in the order of the
    /// stamps.
    large: Vec<(EntryKey, TempName)>,
    kept: Vec<EntryId>,
    /// They can be published then.
    then: Vec<EntryId>,
}

impl Recorder {
    pub(super) fn new(writer: RecordWriter, fsync: Fsync) -> Self {
        Self {
            writer,
            fsync,
            void: Vec::new(),
            unpublished: Vec::new(),
            bundled: Vec::new(),
            published: Vec::new(),
            kept: Vec::new(),
            step: Step::Idle,
            action: None,
        }
    }

    /// True if no checkpoint is under way.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.step, Step::Idle)
    }

    /// True if an action waits to be given out.
    pub(super) fn has_action(&self) -> bool {
        self.action.is_some()
    }

    pub(super) fn poll(&mut self) -> Option<Action> {
        self.action.take()
    }

    /// True if files are published or kept of which it does not tell yet.
    pub(super) fn has_files(&self) -> bool {
        !self.published.is_empty() || !self.kept.is_empty()
    }

    /// Groups of the file are not what it tells.
    pub(super) fn void(&mut self, entry: &Entry, wrong: Wrong) {
        if !wrong.groups.is_empty() {
            self.void.push((key(entry), wrong.temp, wrong.groups));
        }
    }

    /// A file that it tells to be under its name is not what is copied.
    pub(super) fn unpublish(&mut self, key: Option<EntryKey>) {
        self.unpublished.extend(key);
    }

    /// The file is durable under its name.
    pub(super) fn published(&mut self, key: EntryKey) {
        self.published.push(key);
    }

    /// These files are durable in a directory that has to wait.
    pub(super) fn keep(&mut self, files: impl Iterator<Item = EntryId>) {
        self.kept.extend(files);
    }

    /// The first step: what is covered is being synced.
    pub(super) fn begin_sync(&mut self, covered: Covered) {
        self.step = Step::Syncing(covered);
    }

    /// The checkpoint of this number is durable.
    pub(super) fn synced(&mut self, id: u64) -> Option<Covered> {
        match core::mem::replace(&mut self.step, Step::Idle) {
            Step::Syncing(covered) if covered.id == id => Some(covered),
            other => {
                self.step = other;
                None
            }
        }
    }

    /// The second step: the record is to tell of these groups, and then these files can be published.
    /// `kept` finds the file of one that was kept, if it still is. Whether the driver is to wait for
    /// stamps where the last write was too short a time ago depends on whether this `is_last`.
    pub(super) fn begin_record(
        &mut self,
        (claims, bundled): (Vec<Claim>, Vec<Bundled>),
        then: Vec<EntryId>,
        kept_file: impl Fn(EntryId) -> Option<NamedFile>,
        is_last: bool,
    ) -> Option<Unstamped> {
        let (mut large, mut files) = (Vec::new(), Vec::new());
        for claims in claims.chunk_by(|a, b| a.temp == b.temp) {
            let Claim { id, key, temp, .. } = claims[0];
            large.push((key, temp));
            files.push(NamedFile { id, temp, aside: None });
        }
        let mut kept = core::mem::take(&mut self.kept);
        kept.retain(|id| {
            let file = kept_file(*id);
            let is_kept = file.is_some();
            files.extend(file);
            is_kept
        });
        self.bundled.extend(bundled);
        let unstamped = Unstamped { claims, large, kept, then };
        if files.is_empty() {
            return Some(unstamped);
        }
        // Others go on being written to, or get their names next.
        let settle = is_last || !unstamped.kept.is_empty();
        self.action = Some(Action::StampFiles { files, settle });
        self.step = Step::Stamping(unstamped);
        None
    }

    /// The files have their stamps.
    pub(super) fn stamped(&mut self) -> Option<Unstamped> {
        match core::mem::replace(&mut self.step, Step::Idle) {
            Step::Stamping(unstamped) => Some(unstamped),
            other => {
                self.step = other;
                None
            }
        }
    }

    /// The third step: the stamps are added to what the record holds. `recorded` is called for every file
    /// that was kept and that the record holds from then on. Returns what can be published at once.
    pub(super) fn append(
        &mut self,
        unstamped: Unstamped,
        stamps: &[Option<Stamp>],
        mut recorded: impl FnMut(EntryId) -> Option<EntryKey>,
    ) -> Vec<EntryId> {
        let Unstamped { claims, large, kept, then } = unstamped;
        let (of_large, of_kept) = stamps.split_at(large.len().min(stamps.len()));
        let stamps = large.iter().zip(of_large);
        let stamps = stamps.filter_map(|((key, temp), stamp)| Some((*key, *temp, (*stamp)?)));
        // What has no stamp is recorded once it has its name.
        let kept = kept.iter().zip(of_kept);
        let kept =
            kept.filter_map(|(id, stamp)| stamp.and_then(|stamp| Some((recorded(*id)?, stamp))));
        let mut news = News {
            claims,
            stamps: stamps.collect(),
            published: core::mem::take(&mut self.published),
            kept: kept.collect(),
            ..News::default()
        };
        let has_files = !news.published.is_empty() || !news.kept.is_empty();
        // What takes the place of a recorded file may not have its name before the record says so.
        if news.claims.is_empty() && !has_files && self.unpublished.is_empty() {
            return then;
        }
        news.bundled = core::mem::take(&mut self.bundled);
        news.void = core::mem::take(&mut self.void);
        news.unpublished = core::mem::take(&mut self.unpublished);
        let (offset, bytes) = self.writer.append(&news);
        let sync = self.fsync == Fsync::End;
        self.action = Some(Action::AppendRecord { offset, bytes, sync });
        self.step = Step::Appending(then);
        Vec::new()
    }

    /// The record is written. Returns what can be published now.
    pub(super) fn appended(&mut self) -> Vec<EntryId> {
        match core::mem::replace(&mut self.step, Step::Idle) {
            Step::Appending(then) => then,
            other => {
                self.step = other;
                Vec::new()
            }
        }
    }
}
