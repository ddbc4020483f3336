//! Checkpoints, the record, names, and the end.

use alloc::boxed::Box;
use alloc::vec::Vec;

use longhaul_units::Instant;
use longhaul_wire::EntryEnd;

use super::checkpoints::{Begun, Covered};
use super::entries::{Slot, State};
use super::hard_links::Turn;
use super::recorder::Unstamped;
use super::{Kept, Sink, SourceKnows};
use crate::action::{Action, Answer, Checkpoint, Deletion, Publication};
use crate::entry::EntryId;
use crate::limits::{ACTION_ENTRIES_MAX, DELETING_MAX};
use crate::record::{Fsync, Stamp};

impl Sink {
    /// The next thing to do with the storage; see [`Action`].
    ///
    /// `None` until another method was called, or [`Sink::next_timeout`] has come.
    #[must_use]
    pub fn poll_action(&mut self, now: Instant) -> Option<Action> {
        if self.recorder.is_idle() {
            self.checkpoints.ended(now);
        }
        if self.is_dirty() {
            self.checkpoints.is_worth_it(now);
        } else {
            self.checkpoints.is_not_worth_it();
        }
        if self.ending.is_winding_up() {
            return self
                .publish_action()
                .or_else(|| self.staged.poll(&self.entries))
                .or_else(|| self.recorder.poll())
                .or_else(|| self.checkpoint_action(now));
        }
        self.setup_action()
            .or_else(|| self.publish_action())
            .or_else(|| self.staged.poll(&self.entries))
            .or_else(|| self.recorder.poll())
            .or_else(|| self.finish_action())
            .or_else(|| self.checkpoint_action(now))
            .or_else(|| self.setup.contents.poll(&self.entries))
            .or_else(|| self.earlier.poll(&self.entries))
    }

    /// The transfer ends early: from now on [`Sink::poll_action`] only makes durable what is verified
    /// and written, at once, so that a later run finds it. The driver hands over no more groups, and
    /// does what is asked until [`Sink::is_wound_up`].
    pub fn wind_up(&mut self) {
        self.ending.wind_up();
    }

    /// True if everything is durable that is to be, once it is to be wound up.
    pub fn is_wound_up(&self) -> bool {
        let is_written = self.credit.is_unused() && !self.recorder.has_action();
        let is_idle = is_written && self.publications.is_empty() && self.recorder.is_idle();
        is_idle && !self.is_dirty()
    }

    /// When [`Sink::poll_action`] has something to do though nothing else happens.
    pub fn next_timeout(&self) -> Option<Instant> {
        let is_due = self.recorder.is_idle() && self.is_dirty();
        self.checkpoints.due_at().filter(|_| is_due)
    }

    /// Takes in what came of an action.
    pub fn handle_answer(&mut self, answer: Answer) {
        match answer {
            Answer::DirectoriesMade(each) => {
                each.into_iter().for_each(|(id, made)| self.directory_made(id, made));
            }
            Answer::Prepared(id, prepared) => self.prepared(id, prepared),
            Answer::Rechecked { file, groups, wrong } => self.groups_rechecked(file, groups, wrong),
            Answer::Compared(each, cleared) => {
                self.deleted(cleared);
                each.into_iter().for_each(|(id, compared)| self.compared(id, compared));
            }
            Answer::ContentsCompared(each) => {
                each.into_iter().for_each(|compared| self.contents_compared(compared));
            }
            Answer::Mended(each) => {
                each.into_iter().for_each(|(id, code)| self.mended(id, code));
            }
            Answer::Checked(each) => {
                each.into_iter().for_each(|(id, checked)| self.checked(id, checked));
            }
            Answer::Published(each, cleared) => {
                self.deleted(cleared);
                each.into_iter().for_each(|(id, published)| self.published(id, published));
            }
            Answer::DirectoriesPlaced(each) => {
                each.into_iter().for_each(|(id, is_placed)| self.directory_placed(id, is_placed));
            }
            Answer::Synced(id) => self.checkpointed(id),
            Answer::Stamped(stamps) => self.files_stamped(&stamps),
            Answer::RecordAppended => self.publications.add(self.recorder.appended()),
            Answer::DirectoriesFinished(each) => {
                for (id, finished, deleted) in each {
                    self.deleted(deleted);
                    self.directory_finished(id, finished);
                }
            }
            Answer::Discarded | Answer::RecordRemoved => self.ending.closed(),
        }
    }

    /// Answers [`Action::Checkpoint`]: everything is synced.
    fn checkpointed(&mut self, id: u64) {
        if let Some(covered) = self.recorder.synced(id) {
            self.became_durable(covered);
        }
    }

    /// Answers [`Action::StampFiles`], in its order.
    fn files_stamped(&mut self, stamps: &[Option<Stamp>]) {
        if let Some(unstamped) = self.recorder.stamped() {
            self.append_record(unstamped, stamps);
        }
    }

    /// Answers [`Action::Publish`] for one of its entries.
    fn published(&mut self, id: EntryId, result: Result<(), EntryEnd>) {
        if self.entries.in_state(id, State::Publishing).is_none() {
            return;
        }
        self.publications.ended();
        match result {
            Ok(()) => self.named(id),
            Err(end) => {
                let kept = if end.code.stays() { Kept::Untouched } else { Kept::Part };
                self.fail(id, end, SourceKnows::No, kept);
            }
        }
    }

    /// Things were deleted, or could not be, of which the source is to know.
    fn deleted(&mut self, deletions: Vec<Deletion>) {
        for deletion in deletions {
            self.report.deleted(&deletion);
            self.answers.deleted(deletion);
        }
    }

    /// Answers [`Action::FinishDirectories`] for one of its entries.
    fn directory_finished(&mut self, id: EntryId, result: Result<(), EntryEnd>) {
        if !self.ending.directory_finished() {
            return;
        }
        match result {
            Ok(()) => self.has_name(id),
            Err(end) if end.code.stays() && !self.dry_run => {
                // Who may not see what is there does not learn it.
                if self.keeps.directories {
                    self.ending.directory_stays(id, end.code);
                }
                self.has_name(id);
            }
            Err(end) => self.fail(id, end, SourceKnows::No, Kept::Nothing),
        }
    }

    /// The file has its name. An earlier run that gave it may have ended before it synced that, even
    /// for a file that it recorded: one that waited for its directory then.
    pub(super) fn named(&mut self, id: EntryId) {
        self.entries.got_name(id);
        self.publications.named(id);
        self.has_name(id);
    }

    fn has_name(&mut self, id: EntryId) {
        match self.fsync {
            Fsync::End => self.checkpoints.got_name(id),
            Fsync::Never { .. } => self.name_is_durable(id),
        }
    }

    fn name_is_durable(&mut self, id: EntryId) {
        if let Some(key) = self.entries.unrecorded(id) {
            self.recorder.published(key);
        }
        match self.ending.take_code(id) {
            Some(code) => {
                self.fail(id, EntryEnd::new(code, ""), SourceKnows::No, Kept::Untouched);
            }
            None => self.confirm(id),
        }
        self.forget();
    }

    /// True if there is something for a checkpoint to do.
    fn is_dirty(&self) -> bool {
        let to_record = self.checkpoints.has_claims() || self.recorder.has_files();
        self.checkpoints.has_names() || to_record && !self.drops_record()
    }

    /// True if the record is no longer needed: everything has its name.
    fn drops_record(&self) -> bool {
        self.ending.is_past_directories() && !self.report.has_failures()
    }

    fn publish_action(&mut self) -> Option<Action> {
        let mut batch = Vec::new();
        while batch.len() < ACTION_ENTRIES_MAX
            && let Some(id) = self.publications.poll()
        {
            let directory = self.entries.get(id).and_then(Slot::directory);
            if directory.is_some_and(|directory| self.staged.holds_up(directory, id)) {
                continue;
            }
            let first = match self.publications.hard_links.turn(id, &self.entries) {
                Turn::Own => None,
                Turn::Of(first) => Some(first),
                Turn::Waits => continue,
                Turn::First => {
                    self.begin_as_first(id);
                    continue;
                }
                Turn::Fails(end) => {
                    self.fail(id, end, SourceKnows::No, Kept::Nothing);
                    continue;
                }
            };
            if let Some(publication) = self.entries.begin_publishing(id) {
                self.publications.began();
                batch.push(Publication { first, ..publication });
            }
        }
        (!batch.is_empty()).then_some(Action::Publish(batch))
    }

    fn checkpoint_action(&mut self, now: Instant) -> Option<Action> {
        if !self.recorder.is_idle() || !self.is_checkpoint_due(now) || !self.is_dirty() {
            return None;
        }
        self.report.checkpoint_began();
        let Begun { files, placed, covered } = self.checkpoints.begin(now);
        let files = files.into_iter().map(|file| self.entries.begin_sync(file)).collect();
        match self.fsync {
            Fsync::End => {
                let names = placed.iter().chain(&covered.names);
                let names = names.filter_map(|id| self.entries.named(*id)).collect();
                let checkpoint = Checkpoint { id: covered.id, files, names };
                self.recorder.begin_sync(covered);
                Some(Action::Checkpoint(Box::new(checkpoint)))
            }
            Fsync::Never { .. } => {
                self.became_durable(covered);
                self.recorder.poll()
            }
        }
    }

    fn is_checkpoint_due(&self, now: Instant) -> bool {
        // When nothing more will come, waiting is of no use.
        let is_idle = self.manifest.has_ended()
            && self.entries.are_received()
            && self.publications.are_over();
        self.checkpoints.is_due(now)
            || is_idle && (self.checkpoints.has_whole() || self.ending.is_syncing())
            || self.ending.is_winding_up() && self.credit.is_unused()
    }

    fn became_durable(&mut self, covered: Covered) {
        // A user reads them in this order.
        let mut names = covered.names;
        names.sort_unstable();
        for id in names {
            self.name_is_durable(id);
        }
        let whole = self.keep(covered.whole);
        if self.drops_record() {
            return self.publications.add(whole);
        }
        let mut claims = covered.claims;
        claims.sort_unstable();
        let (entries, is_last) = (&self.entries, self.ending.is_winding_up());
        let kept_file = |id| entries.kept_file(id);
        let groups = (claims, covered.bundled);
        if let Some(unstamped) = self.recorder.begin_record(groups, whole, kept_file, is_last) {
            self.append_record(unstamped, &[]);
        }
    }

    fn append_record(&mut self, unstamped: Unstamped, stamps: &[Option<Stamp>]) {
        let recorded = |id| self.entries.recorded(id);
        self.publications.add(self.recorder.append(unstamped, stamps, recorded));
    }

    /// Action that remains when all entries but the directories are named or have failed.
    fn finish_action(&mut self) -> Option<Action> {
        if !self.recorder.is_idle() {
            return None;
        }
        if self.ending.is_receiving()
            && self.manifest.has_ended()
            && self.entries.are_named()
            && !self.setup.is_making()
            && self.staged.are_placed()
            && self.objects.accepted() == self.objects.end()
        {
            self.ending.finish_directories(EntryId(self.entries.end()));
        }
        // Names of what is deleted wait until the source takes them.
        if let Some(bound) = self.ending.next_directories()
            && self.answers.have_room()
        {
            // Of a source that failed somewhere nobody knows what it has.
            let deletes = self.deletes && !self.report.has_failures();
            let announced = deletes.then(|| self.manifest.paths());
            let most = if deletes { DELETING_MAX } else { ACTION_ENTRIES_MAX };
            let directories = self.entries.directories_below(bound, most);
            self.ending.directories_given(&directories);
            if !directories.is_empty() {
                return Some(Action::FinishDirectories { directories, announced });
            }
        }
        // A group of a file that failed may still be written.
        if !self.ending.is_syncing() || self.is_dirty() || !self.credit.is_unused() {
            return None;
        }
        if !self.report.has_failures() {
            self.ending.close();
            return Some(Action::RemoveRecord);
        }
        self.ending.close();
        let temps = self.entries.take_discarded();
        let keeps_record = !self.keeps.compares() && self.report.stats().confirmed > 0;
        Some(Action::Discard { temps, keeps_record })
    }
}
