//! Checkpoints, the record, names, and the end.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::{Duration, Instant};

use super::{Kept, Sink, State, Told};
use crate::entry::key;
use crate::limits::{
    ACTION_ENTRIES_MAX, CHECKPOINT_BYTES, CHECKPOINT_INTERVAL, CHECKPOINT_INTERVAL_MIN,
    CHECKPOINT_SHARE,
};
use crate::record::{Claim, News};
use crate::{
    Action, Answer, Checkpoint, EntryId, EntryKey, Fsync, NamedEntry, NamedFile, Publication,
    Stamp, TempName,
};

/// Where the chain sync, record, publish stands. One runs at a time.
#[derive(Debug)]
pub(super) enum Step {
    Idle,
    Syncing(Covered),
    /// It is asked how these files are, of which the record is to tell.
    Stamping(Unstamped),
    /// The record is being written; these files can be published then.
    Appending(Vec<EntryId>),
}

/// What a checkpoint makes durable.
#[derive(Debug)]
pub(super) struct Covered {
    id: u64,
    claims: Vec<Claim>,
    whole: Vec<EntryId>,
    names: Vec<EntryId>,
}

/// What the record is to tell once its files have their stamps.
#[derive(Debug)]
pub(super) struct Unstamped {
    claims: Vec<Claim>,
    /// The files that those are about, and whole ones in directories that wait: in the order of the
    /// stamps.
    large: Vec<(EntryKey, TempName)>,
    kept: Vec<EntryId>,
    then: Vec<EntryId>,
}

/// How far the transfer as a whole is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Entries are announced, received and published.
    Receiving,
    /// All entries have their names; this many directories get their times.
    Finishing(usize),
    /// The last names are made durable.
    Syncing,
    /// The record is removed, or kept where something failed.
    Closing,
    /// RESULT can be sent.
    Finished,
    Done,
}

impl Sink {
    /// The next thing to do with the storage; see [`Action`].
    ///
    /// `None` until another method was called, or [`Sink::next_timeout`] has come.
    #[must_use]
    pub fn poll_action(&mut self, now: Instant) -> Option<Action> {
        if matches!(self.step, Step::Idle)
            && let Some(began) = self.checkpoint_began.take()
        {
            self.checkpoint_cost = now - began;
        }
        self.dirty_since = self.is_dirty().then(|| self.dirty_since.unwrap_or(now));
        let setup = if self.winding_up { None } else { self.setup_action() };
        setup
            .or_else(|| self.publish_action())
            .or_else(|| self.place_action())
            .or_else(|| self.recording.take())
            .or_else(|| if self.winding_up { None } else { self.finish_action() })
            .or_else(|| self.checkpoint_action(now))
            .or_else(|| if self.winding_up { None } else { self.recheck_action() })
    }

    /// The transfer ends early: from now on [`Sink::poll_action`] only makes durable what is verified
    /// and written, at once, so that a later run finds it. The driver hands over no more groups, and
    /// does what is asked until [`Sink::is_wound_up`].
    pub fn wind_up(&mut self) {
        self.winding_up = true;
    }

    /// Whether everything is durable that is to be, once it is to be wound up.
    pub fn is_wound_up(&self) -> bool {
        let is_named = self.publishable.is_empty() && self.publishing == 0;
        let is_written = self.credit.is_unused() && self.recording.is_none();
        is_written && is_named && matches!(self.step, Step::Idle) && !self.is_dirty()
    }

    /// When [`Sink::poll_action`] has something to do though nothing else happens.
    pub fn next_timeout(&self) -> Option<Instant> {
        let is_due = matches!(self.step, Step::Idle) && self.is_dirty();
        let since = self.dirty_since.filter(|_| is_due)?;
        Some(since + self.checkpoint_wait())
    }

    /// From the first thing worth a checkpoint to that. Files that wait for their names get them
    /// while others arrive, as often as costs little, and not all at the end.
    fn checkpoint_wait(&self) -> Duration {
        if self.whole.is_empty() {
            return CHECKPOINT_INTERVAL;
        }
        let wait = self.checkpoint_cost * CHECKPOINT_SHARE;
        wait.clamp(CHECKPOINT_INTERVAL_MIN, CHECKPOINT_INTERVAL)
    }

    /// Takes in what came of an action.
    pub fn handle_answer(&mut self, answer: Answer) {
        match answer {
            Answer::DirectoriesMade(each) => {
                each.into_iter().for_each(|(id, made)| self.directory_made(id, made));
            }
            Answer::Prepared(id, prepared) => self.prepared(id, prepared),
            Answer::Rechecked { file, groups, wrong } => self.groups_rechecked(file, groups, wrong),
            Answer::Checked(each) => {
                each.into_iter().for_each(|(id, checked)| self.checked(id, checked));
            }
            Answer::Published(each) => {
                each.into_iter().for_each(|(id, published)| self.published(id, published));
            }
            Answer::DirectoriesPlaced(each) => {
                each.into_iter().for_each(|(id, is_placed)| self.directory_placed(id, is_placed));
            }
            Answer::Synced(id) => self.checkpointed(id),
            Answer::Stamped(stamps) => self.files_stamped(stamps),
            Answer::RecordAppended => self.record_appended(),
            Answer::DirectoriesFinished(each) => {
                each.into_iter().for_each(|(id, finished)| self.directory_finished(id, finished));
            }
            Answer::Discarded => {}
            Answer::RecordRemoved => self.record_removed(),
        }
    }

    /// Answers [`Action::Checkpoint`]: everything is synced.
    pub(super) fn checkpointed(&mut self, id: u64) {
        match core::mem::replace(&mut self.step, Step::Idle) {
            Step::Syncing(covered) if covered.id == id => self.became_durable(covered),
            other => self.step = other,
        }
    }

    /// Answers [`Action::StampFiles`], in its order.
    pub(super) fn files_stamped(&mut self, stamps: Vec<Option<Stamp>>) {
        match core::mem::replace(&mut self.step, Step::Idle) {
            Step::Stamping(unstamped) => self.append_record(unstamped, &stamps),
            other => self.step = other,
        }
    }

    /// Answers [`Action::AppendRecord`].
    pub(super) fn record_appended(&mut self) {
        if let Step::Appending(whole) = &mut self.step {
            self.publishable.extend(core::mem::take(whole));
            self.step = Step::Idle;
        }
    }

    /// Answers [`Action::Publish`] for one of its entries.
    pub(super) fn published(&mut self, id: EntryId, result: Result<(), String>) {
        let slot = self.slots.get_mut(id.0);
        let Some(slot) = slot.filter(|slot| slot.state == State::Publishing) else {
            return;
        };
        self.publishing -= 1;
        if let Err(reason) = result {
            return self.fail(id, &reason, Told::No, Kept::Part);
        }
        slot.state = State::Named;
        self.unnamed -= 1;
        self.got_name(id);
    }

    /// Answers [`Action::FinishDirectories`] for one of its entries.
    pub(super) fn directory_finished(&mut self, id: EntryId, result: Result<(), String>) {
        let Phase::Finishing(left) = &mut self.phase else {
            return;
        };
        *left = left.saturating_sub(1);
        match result {
            Ok(()) => self.got_name(id),
            Err(reason) => self.fail(id, &reason, Told::No, Kept::Nothing),
        }
    }

    /// Answers [`Action::RemoveRecord`].
    pub(super) fn record_removed(&mut self) {
        if self.phase == Phase::Closing {
            self.phase = Phase::Finished;
        }
    }

    pub(super) fn got_name(&mut self, id: EntryId) {
        match self.config.fsync {
            Fsync::End => self.names.push(id),
            Fsync::Never { .. } => self.name_is_durable(id),
        }
    }

    fn name_is_durable(&mut self, id: EntryId) {
        if let Some(slot) = self.slots.get(id.0)
            && let Some(entry) = slot.entry.as_ref().filter(|entry| entry.size > 0)
            && !slot.recorded
        {
            self.published.push(key(entry));
        }
        self.confirm(id);
        self.forget();
    }

    /// Whether there is something for a checkpoint to do.
    fn is_dirty(&self) -> bool {
        let to_record =
            !self.claims.is_empty() || !self.published.is_empty() || !self.kept.is_empty();
        !self.whole.is_empty() || !self.names.is_empty() || to_record && !self.drops_record()
    }

    /// Whether the record is no longer needed: everything has its name.
    fn drops_record(&self) -> bool {
        !matches!(self.phase, Phase::Receiving | Phase::Finishing(_)) && !self.report.has_failures()
    }

    fn publish_action(&mut self) -> Option<Action> {
        let mut batch = Vec::new();
        while batch.len() < ACTION_ENTRIES_MAX
            && let Some(id) = self.publishable.pop_front()
        {
            if self.waits_for_directory(id) {
                continue;
            }
            // It may have failed meanwhile.
            let slot = self.slots.get_mut(id.0).filter(|slot| slot.state == State::Whole);
            if let Some(slot) = slot
                && let Some(entry) = &slot.entry
            {
                slot.state = State::Publishing;
                let (temp, aside) = (slot.temp, slot.aside);
                batch.push(Publication { id, entry: Arc::clone(entry), temp, aside });
            }
        }
        self.publishing += batch.len() as u32;
        (!batch.is_empty()).then_some(Action::Publish(batch))
    }

    fn checkpoint_action(&mut self, now: Instant) -> Option<Action> {
        if !matches!(self.step, Step::Idle) {
            return None;
        }
        // When nothing more will come, waiting is of no use.
        let idle = self.ended && self.unfinished == 0 && self.publishing == 0;
        let last_step = idle && (!self.whole.is_empty() || self.phase == Phase::Syncing);
        let due = self.dirty_since.is_some_and(|since| now >= since + self.checkpoint_wait())
            || self.written >= CHECKPOINT_BYTES
            || last_step
            || self.winding_up && self.credit.is_unused();
        if !due || !self.is_dirty() {
            return None;
        }
        self.checkpoints += 1;
        self.report.checkpoint_began();
        self.dirty_since = None;
        self.checkpoint_began = Some(now);
        self.written = 0;
        let covered = Covered {
            id: self.checkpoints,
            claims: core::mem::take(&mut self.claims),
            whole: core::mem::take(&mut self.whole),
            names: core::mem::take(&mut self.names),
        };
        let files = core::mem::take(&mut self.dirty);
        for file in &files {
            if let Some(slot) = self.slots.get_mut(file.id.0) {
                slot.dirty = false;
            }
        }
        let mut checkpoint = Checkpoint { id: covered.id, files, names: Vec::new() };
        let placed = core::mem::take(&mut self.placed);
        for id in placed.iter().chain(&covered.names) {
            if let Some(entry) = self.entry(*id) {
                checkpoint.names.push(NamedEntry { id: *id, entry: Arc::clone(entry) });
            }
        }
        match self.config.fsync {
            Fsync::End => {
                self.step = Step::Syncing(covered);
                Some(Action::Checkpoint(Box::new(checkpoint)))
            }
            Fsync::Never { .. } => {
                self.became_durable(covered);
                self.recording.take()
            }
        }
    }

    fn became_durable(&mut self, covered: Covered) {
        for id in covered.names {
            self.name_is_durable(id);
        }
        let mut claims = covered.claims;
        claims.sort_unstable();
        let whole = self.keep(covered.whole);
        if self.drops_record() {
            self.publishable.extend(whole);
        } else {
            self.begin_record(claims, whole);
        }
    }

    fn begin_record(&mut self, claims: Vec<Claim>, then: Vec<EntryId>) {
        let (mut large, mut files) = (Vec::new(), Vec::new());
        for claims in claims.chunk_by(|a, b| a.temp == b.temp) {
            let Claim { id, key, temp, .. } = claims[0];
            large.push((key, temp));
            files.push(NamedFile { id, temp, aside: None });
        }
        let mut kept = core::mem::take(&mut self.kept);
        kept.retain(|id| {
            let slot = self.slots.get(id.0).filter(|slot| slot.state == State::Aside);
            let Some((slot, entry)) = slot.and_then(|slot| Some((slot, slot.entry.as_ref()?)))
            else {
                return false;
            };
            files.push(NamedFile { id: *id, temp: slot.temp, aside: Some(Arc::clone(entry)) });
            true
        });
        let unstamped = Unstamped { claims, large, kept, then };
        if files.is_empty() {
            return self.append_record(unstamped, &[]);
        }
        // Others go on being written to, or get their names next.
        let settle = self.winding_up || !unstamped.kept.is_empty();
        self.recording = Some(Action::StampFiles { files, settle });
        self.step = Step::Stamping(unstamped);
    }

    fn append_record(&mut self, unstamped: Unstamped, stamps: &[Option<Stamp>]) {
        let Unstamped { claims, large, kept, then } = unstamped;
        let (of_large, of_kept) = stamps.split_at(large.len().min(stamps.len()));
        let stamps = large.iter().zip(of_large);
        let stamps = stamps.filter_map(|((key, temp), stamp)| Some((*key, *temp, (*stamp)?)));
        let mut news = News {
            claims,
            stamps: stamps.collect(),
            published: core::mem::take(&mut self.published),
            ..News::default()
        };
        // What has no stamp is recorded once it has its name.
        for (id, stamp) in kept.iter().zip(of_kept) {
            if let Some(stamp) = stamp
                && let Some(slot) = self.slots.get_mut(id.0)
                && let Some(entry) = &slot.entry
            {
                slot.recorded = true;
                news.kept.push((key(entry), *stamp));
            }
        }
        if news.claims.is_empty() && news.published.is_empty() && news.kept.is_empty() {
            self.publishable.extend(then);
            return;
        }
        news.void = core::mem::take(&mut self.void);
        let (offset, bytes) = self.record.append(&news);
        let sync = self.config.fsync == Fsync::End;
        self.recording = Some(Action::AppendRecord { offset, bytes, sync });
        self.step = Step::Appending(then);
    }

    /// What remains to be done when all entries but the directories are named or have failed.
    fn finish_action(&mut self) -> Option<Action> {
        if !matches!(self.step, Step::Idle) {
            return None;
        }
        if self.phase == Phase::Receiving
            && self.ended
            && self.unnamed == 0
            && self.unmade == 0
            && self.asides.is_empty()
            && self.accepted == self.objects.end()
        {
            self.phase = Phase::Finishing(self.directories.len());
            let named =
                |(id, entry): (&EntryId, &Arc<_>)| NamedEntry { id: *id, entry: Arc::clone(entry) };
            let directories: Vec<NamedEntry> = self.directories.iter().rev().map(named).collect();
            if !directories.is_empty() {
                return Some(Action::FinishDirectories(directories));
            }
        }
        if self.phase == Phase::Finishing(0) {
            self.phase = Phase::Syncing;
        }
        if self.phase == Phase::Syncing && !self.is_dirty() {
            self.phase = Phase::Closing;
            if !self.report.has_failures() {
                return Some(Action::RemoveRecord);
            }
            self.phase = Phase::Finished;
            if !self.discard.is_empty() {
                return Some(Action::Discard(core::mem::take(&mut self.discard)));
            }
        }
        None
    }
}
