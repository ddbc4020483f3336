//! Preparing for what was announced.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use longhaul_units::EntryCode;
use longhaul_wire::{Entry, EntryEnd, EntryKind, EntryPath};

use super::contents::{Contents, compared_size};
use super::entries::{Entries, Slot, State};
use super::hard_links::first_cost;
use super::resumed::Earlier;
use super::{Keeps, Kept, Sink, SourceKnows};
use crate::action::{
    Action, Checked, Compared, Existing, Made, NamedEntry, Prepared, RecordedFile,
};
use crate::entry::{EntryId, TempName};
use crate::entry::{is_large, key};
use crate::limits::{ACTION_ENTRIES_MAX, BACKLOG_MAX};
use crate::record::{Fsync, Stamp};

/// Preparation for what was announced, in order.
#[derive(Debug)]
pub(super) struct Setup {
    queue: VecDeque<(EntryId, Step)>,
    /// Files that begin again, before all others: what is behind them waits for them.
    restarts: VecDeque<(EntryId, TempName)>,
    /// Large files that were compared, and are no longer to wait: before what is in the queue.
    compared: BTreeMap<EntryId, (TempName, Existing)>,
    /// Comparisons of contents.
    pub(super) contents: Contents,
    /// Large files that are compared first: what an earlier run left of them.
    existing: BTreeMap<EntryId, Existing>,
    /// Small files and links that may be there if their directory is, by that: it is not known yet.
    inside: BTreeMap<EntryId, Vec<EntryId>>,
    /// Entries that are being made, even those that failed meanwhile.
    making: BTreeSet<EntryId>,
    nonce: [u8; 16],
}

/// Looks at what may be there, and stay.
#[derive(Clone, Copy)]
pub(super) struct Looks {
    /// It is to be compared.
    pub(super) compared: bool,
    /// By its contents, whatever a record says.
    pub(super) contents: bool,
}

/// Step to be done for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Make,
    /// It may be there, and stay.
    Compare,
    Prepare(TempName, Existing),
    /// It may be there with this stamp.
    Check(Option<Stamp>),
}

impl Setup {
    pub(super) fn new(nonce: [u8; 16]) -> Self {
        Self {
            queue: VecDeque::new(),
            restarts: VecDeque::new(),
            compared: BTreeMap::new(),
            contents: Contents::default(),
            existing: BTreeMap::new(),
            inside: BTreeMap::new(),
            making: BTreeSet::new(),
            nonce,
        }
    }

    /// Begins the preparation of an entry that was just announced. Returns the name of its
    /// unpublished file, and whether it has to wait.
    pub(super) fn begin(
        &mut self,
        id: EntryId,
        entry: &Entry,
        Looks { compared, contents }: Looks,
        earlier: &mut Earlier,
    ) -> (TempName, State) {
        let (key, size, is_large) = (key(entry), entry.data_len(), is_large(entry));
        let small = TempName::of_small(key);
        if size == 0 && !compared {
            return (small, State::Open);
        }
        if let Some(stamp) = earlier.published(id, &key, size, is_large, contents) {
            self.queue.push_back((id, Step::Check(stamp)));
            return (small, State::Waiting);
        }
        if !is_large {
            if compared {
                self.compare(id);
            }
            return (small, if compared { State::Waiting } else { State::Open });
        }
        let (temp, existing) = earlier
            .begin(id, &key, size)
            .unwrap_or_else(|| (TempName::of_large(key, &self.nonce), Existing::Nothing));
        if compared {
            self.existing.insert(id, existing);
            self.compare(id);
        } else {
            self.queue.push_back((id, Step::Prepare(temp, existing)));
        }
        (temp, State::Waiting)
    }

    /// The file, which waits, is to be compared with what has its name.
    fn compare(&mut self, id: EntryId) {
        self.queue.push_back((id, Step::Compare));
    }

    /// It is to be compared if its directory is there already.
    pub(super) fn compare_inside(&mut self, directory: EntryId, id: EntryId) {
        self.inside.entry(directory).or_default().push(id);
    }

    /// Those of the directory, of which it is known now.
    pub(super) fn take_inside(&mut self, directory: EntryId) -> Vec<EntryId> {
        self.inside.remove(&directory).unwrap_or_default()
    }

    /// The same for a directory, which always has to wait.
    pub(super) fn begin_directory(&mut self, id: EntryId) {
        self.queue.push_back((id, Step::Make));
    }

    /// The file, which was compared, is to be received.
    pub(super) fn prepare(&mut self, id: EntryId, temp: TempName) {
        self.compared.insert(id, (temp, Existing::Nothing));
    }

    /// True where so many are to be prepared that no more should be announced meanwhile. It does not stop
    /// at files that wait for contents or hashes: for these the source has to speak.
    pub(super) fn is_behind(&self, entries: &Entries) -> bool {
        let is_next = matches!(self.queue.front(), Some((_, Step::Prepare(..))));
        let is_held = (is_next || !self.compared.is_empty()) && !entries.may_prepare();
        self.queue.len() >= BACKLOG_MAX && !is_held && !self.contents.is_awaited()
    }

    /// True while something may still be made: what failed meanwhile, too.
    pub(super) fn is_making(&self) -> bool {
        !self.making.is_empty()
    }

    /// Starts a large file again: what an earlier run left of it is gone. Returns the name of the
    /// new one.
    fn begin_anew(&mut self, id: EntryId, entry: &Entry) -> TempName {
        let temp = TempName::of_large(key(entry), &self.nonce);
        self.restarts.push_back((id, temp));
        temp
    }

    /// The next action.
    pub(super) fn poll(&mut self, entries: &mut Entries, keeps: Keeps) -> Option<Action> {
        while let Some((id, temp)) = self.restarts.pop_front() {
            if entries.in_state(id, State::Waiting).is_some() {
                return self.prepare_action(id, (temp, Existing::Nothing), entries);
            }
        }
        // Files are few that may be prepared at a time: one that is still compared may be needed first.
        while let Some((id, (temp, existing))) = self.compared.pop_first() {
            if entries.in_state(id, State::Waiting).is_none() {
                continue;
            }
            if self.contents.is_before(id) || !entries.may_prepare() {
                self.compared.insert(id, (temp, existing));
                break;
            }
            return self.prepare_action(id, (temp, existing), entries);
        }
        if !self.compared.is_empty() && !entries.may_prepare() {
            return None;
        }
        loop {
            let (id, step) = *self.queue.front()?;
            if entries.in_state(id, State::Waiting).is_none() {
                // It failed meanwhile.
                self.queue.pop_front();
                continue;
            }
            let known = &*entries;
            return match step {
                Step::Make => {
                    let batch = self.batch(known, |id, step| match step {
                        Step::Make => {
                            let entry = known.directory(id).map(|directory| directory.entry());
                            Some(entry.map(|entry| NamedEntry { id, entry }))
                        }
                        _ => None,
                    });
                    self.making.extend(batch.iter().map(|directory| directory.id));
                    Some(Action::MakeDirectories(batch))
                }
                Step::Compare => {
                    let batch = self.batch(known, |id, step| match step {
                        Step::Compare => {
                            let entry = known.get(id).and_then(Slot::entry).cloned();
                            Some(entry.map(|entry| keeps.existing(id, entry)))
                        }
                        _ => None,
                    });
                    Some(Action::CompareExisting(batch))
                }
                Step::Check(_) => {
                    let batch = self.batch(known, |id, step| match step {
                        Step::Check(stamp) => {
                            let entry = known.get(id).and_then(Slot::entry).cloned();
                            Some(entry.map(|entry| RecordedFile { id, entry, stamp }))
                        }
                        _ => None,
                    });
                    Some(Action::CheckPublished(batch))
                }
                Step::Prepare(temp, existing) => {
                    if !entries.may_prepare() {
                        return None;
                    }
                    self.queue.pop_front();
                    self.prepare_action(id, (temp, existing), entries)
                }
            };
        }
    }

    fn prepare_action(
        &mut self,
        id: EntryId,
        (temp, existing): (TempName, Existing),
        entries: &mut Entries,
    ) -> Option<Action> {
        entries.begin_preparing(id);
        let entry = entries.get(id).and_then(Slot::entry).cloned()?;
        self.making.insert(id);
        let file = NamedEntry { id, entry };
        Some(Action::PrepareFile { file, temp, existing })
    }

    /// As many from the front as are of one kind; of those that failed meanwhile `of` gives nothing.
    fn batch<T>(
        &mut self,
        entries: &Entries,
        of: impl Fn(EntryId, Step) -> Option<Option<T>>,
    ) -> Vec<T> {
        let mut batch = Vec::new();
        while batch.len() < ACTION_ENTRIES_MAX
            && let Some((id, step)) = self.queue.front().copied()
            && let Some(next) = of(id, step)
        {
            self.queue.pop_front();
            batch.extend(next.filter(|_| entries.in_state(id, State::Waiting).is_some()));
        }
        batch
    }
}

impl Sink {
    pub(super) fn setup_action(&mut self) -> Option<Action> {
        // Whatever else holds messages up may wait for what is prepared here.
        if !self.answers.have_room() {
            return None;
        }
        self.setup.poll(&mut self.entries, self.keeps)
    }

    /// Answers [`Action::MakeDirectories`] for one of its entries.
    pub(super) fn directory_made(&mut self, id: EntryId, result: Result<Made, EntryEnd>) {
        self.setup.making.remove(&id);
        self.note_made(id, result.as_ref().ok().copied());
        let inside = self.setup.take_inside(id);
        match result {
            Err(end) => self.fail(id, end, SourceKnows::No, Kept::Nothing),
            Ok(made) => {
                if made == Made::InPlace && self.fsync == Fsync::End {
                    // An earlier run may have made it and ended before a sync.
                    self.checkpoints.directory_in_place(id);
                }
                self.entries.directory_made(id);
                for id in inside.into_iter().filter(|_| made == Made::InPlace) {
                    if self.entries.wait_again(id) {
                        self.setup.compare(id);
                    }
                }
                self.advance();
            }
        }
    }

    /// The first name stays as a newer file: the later name, which has no contents, is one in its place.
    pub(super) fn begin_as_first(&mut self, id: EntryId) {
        if let Some(entry) = self.entries.become_first(id) {
            self.entries.names.take(first_cost(&entry));
            self.setup.compare(id);
        }
    }

    /// Answers [`Action::CompareExisting`] for one of its entries.
    pub(super) fn compared(&mut self, id: EntryId, compared: Compared) {
        let existing = self.setup.existing.remove(&id);
        let Some(slot) = self.entries.in_state(id, State::Waiting) else {
            return;
        };
        let is_file = slot.entry().is_some_and(|entry| entry.kind == EntryKind::File);
        let same_size = match compared {
            Compared::Other { same_size } | Compared::Newer { same_size } => same_size,
            Compared::Unchanged | Compared::Mended => true,
            Compared::Missing | Compared::Blocked(_) | Compared::Elsewhere(_) => false,
        };
        // What an interrupted run has left of it is gone on with.
        let is_new = matches!(existing, None | Some(Existing::Nothing));
        let is_newer = matches!(compared, Compared::Newer { .. }) && self.keeps.newer;
        // A later name may be there and another file: that is seen when it is its turn.
        let is_own = slot.entry().is_some_and(|entry| entry.linked_to().is_none());
        let by_contents = self.keeps.equal && is_file && is_own;
        if by_contents
            && same_size
            && is_new
            && !is_newer
            && let Some(size) = slot.entry().and_then(|entry| compared_size(entry))
        {
            return self.compare_contents(id, size);
        }
        let unchanged = slot.entry().is_some_and(|entry| self.keeps.stays_unchanged(entry));
        if let Compared::Elsewhere(other) = compared {
            return self.found_elsewhere(id, other);
        }
        let of_code = |code| Some(EntryEnd::new(code, ""));
        let end = match compared {
            Compared::Unchanged if unchanged => of_code(EntryCode::Unchanged),
            Compared::Mended if unchanged => of_code(EntryCode::Mended),
            Compared::Newer { .. } if self.keeps.newer => of_code(EntryCode::Newer),
            _ if !self.dry_run || !is_own => None,
            Compared::Missing => of_code(EntryCode::New),
            Compared::Blocked(end) => Some(*end),
            _ => of_code(EntryCode::Differs),
        };
        if let Some(end) = end {
            if end.code.stays() {
                self.unchanged.insert_one(u64::from(id.0));
            }
            return self.fail(id, end, SourceKnows::No, Kept::Untouched);
        }
        match existing {
            // What was announced behind it may be under way already.
            Some(existing) => {
                self.setup.compared.insert(id, (slot.temp(), existing));
            }
            None => {
                self.entries.open(id);
                self.advance();
            }
        }
    }

    /// The file or link is there, unchanged, under another of its names: no contents are needed.
    fn found_elsewhere(&mut self, id: EntryId, other: EntryPath) {
        self.publications.hard_links.found_elsewhere(id, other);
        let bytes = self.entries.found_elsewhere(id);
        if bytes > 0 {
            self.unchanged.insert_one(u64::from(id.0));
            self.report.stays_elsewhere(bytes);
            self.answers.elsewhere(id);
            self.hold_credit();
        }
        self.earlier.forget(id);
        self.advance();
    }

    /// Answers [`Action::PrepareFile`].
    pub(super) fn prepared(&mut self, id: EntryId, result: Result<Prepared, EntryEnd>) {
        self.setup.making.remove(&id);
        let Some(slot) = self.entries.get(id) else {
            return;
        };
        if slot.state() != State::Waiting {
            // It failed meanwhile.
            let temp = slot.temp();
            return self.entries.discard(temp);
        }
        match result {
            Err(end) => self.fail(id, end, SourceKnows::No, Kept::Part),
            Ok(Prepared::Ready) if self.earlier.takes_over(id) => self.earlier.begin_recheck(id),
            Ok(Prepared::Ready) => {
                self.entries.open(id);
                self.advance();
            }
            Ok(Prepared::Altered) => self.earlier.begin_recheck(id),
            Ok(Prepared::Missing) => {
                self.earlier.forget(id);
                self.prepare_anew(id);
            }
            Ok(Prepared::Published) => {
                self.entries.found(id);
                self.advance();
            }
        }
    }

    /// Answers [`Action::CheckPublished`] for one of its entries.
    pub(super) fn checked(&mut self, id: EntryId, checked: Checked) {
        let Some(slot) = self.entries.in_state(id, State::Waiting) else {
            return;
        };
        match checked {
            Checked::There => {
                self.entries.recorded(id);
                self.entries.found(id);
                self.advance();
            }
            Checked::Missing if slot.is_large() => {
                self.earlier.forget(id);
                self.prepare_anew(id);
            }
            Checked::Missing => {
                self.entries.open(id);
                self.advance();
            }
        }
    }

    pub(super) fn prepare_anew(&mut self, id: EntryId) {
        if let Some(entry) = self.entries.get(id).and_then(Slot::entry) {
            let temp = self.setup.begin_anew(id, entry);
            self.entries.prepare_anew(id, temp);
        }
    }
}
