//! Files that an earlier run left, and their comparison where they may have been altered since
//! (docs/objects.md section "Altered files").

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::Sink;
use super::entries::{Entries, State};
use crate::action::{Action, Existing, NamedEntry};
use crate::entry::{EntryId, EntryKey, TempName};
use crate::hash::ChainingValue;
use crate::hash::group_count;
use crate::limits::RECHECK_GROUPS;
use crate::record::{PartialFile, Recorded};
use crate::record::{ResumeState, Stamp};
use crate::tags::Tag;

#[derive(Debug)]
pub(super) struct Earlier {
    resume: ResumeState,
    /// Claims about large files that are being prepared, or are published.
    partials: BTreeMap<EntryId, PartialFile>,
    /// Those of them that this run makes: groups that are taken from the file that has the name.
    taken: BTreeSet<EntryId>,
    /// Those whose files may have been altered.
    rechecks: BTreeMap<EntryId, Recheck>,
}

/// Progress of the comparison of a file's recorded groups.
#[derive(Debug, Default)]
struct Recheck {
    /// Groups that were given out, and actions that are not answered.
    given: usize,
    under_way: u32,
    wrong: BTreeSet<u32>,
}

/// Groups that are not what the record says.
pub(super) struct Wrong {
    pub(super) temp: TempName,
    pub(super) groups: Vec<u32>,
}

impl Earlier {
    pub(super) fn new(resume: ResumeState) -> Self {
        Self {
            resume,
            partials: BTreeMap::new(),
            taken: BTreeSet::new(),
            rechecks: BTreeMap::new(),
        }
    }

    /// Some where the record says that the file is published, or kept with this stamp; of a large one,
    /// with the value of every group. Where contents are compared only the stamp counts.
    pub(super) fn published(
        &mut self,
        id: EntryId,
        key: &EntryKey,
        size: u64,
        is_large: bool,
        compares_contents: bool,
    ) -> Option<Option<Stamp>> {
        if compares_contents {
            return self.resume.stamp_of_kept(key).map(Some);
        }
        if is_large {
            let file = self.resume.take_whole(key)?;
            let is_whole = file.groups.len() as u64 == u64::from(group_count(size));
            return is_whole.then(|| {
                self.partials.insert(id, file);
                None
            });
        }
        let stamp = self.resume.stamp_of_kept(key);
        (stamp.is_some() || self.resume.is_published(key)).then_some(stamp)
    }

    /// Value and tag that are recorded of a group of small files.
    pub(super) fn bundled(&self, contents: &[u8; 32]) -> Option<(ChainingValue, Option<Tag>)> {
        self.resume.bundled(contents)
    }

    /// The large file is about to be prepared: what there should be of it, if anything.
    pub(super) fn begin(
        &mut self,
        id: EntryId,
        key: &EntryKey,
        size: u64,
    ) -> Option<(TempName, Existing)> {
        let partial = self.resume.take_partial(key)?;
        let (temp, stamp) = (partial.temp, partial.stamp);
        let whole = partial.groups.len() as u64 >= u64::from(group_count(size));
        self.partials.insert(id, partial);
        Some((temp, if whole { Existing::Whole(stamp) } else { Existing::Part(stamp) }))
    }

    /// These groups of a large file are to be copied from the one that has its name.
    pub(super) fn take_over(&mut self, id: EntryId, temp: TempName, groups: Vec<Recorded>) {
        if !groups.is_empty() {
            self.taken.insert(id);
            self.partials.insert(id, PartialFile { temp, groups, stamp: None });
        }
    }

    /// True where groups of the file are so.
    pub(super) fn takes_over(&self, id: EntryId) -> bool {
        self.taken.contains(&id)
    }

    /// Those groups.
    pub(super) fn taken(&self, id: EntryId) -> Vec<Recorded> {
        let partial = self.partials.get(&id).filter(|_| self.takes_over(id));
        partial.map(|partial| partial.groups.clone()).unwrap_or_default()
    }

    /// Drops the claims of the file, which are of no use.
    pub(super) fn forget(&mut self, id: EntryId) {
        self.partials.remove(&id);
        self.taken.remove(&id);
        self.rechecks.remove(&id);
    }

    /// The groups that are claimed of a prepared or published file.
    pub(super) fn take_groups(&mut self, id: EntryId) -> Vec<Recorded> {
        self.taken.remove(&id);
        self.partials.remove(&id).map(|partial| partial.groups).unwrap_or_default()
    }

    /// The groups of the file are believed once they are compared; until then it is not prepared.
    pub(super) fn begin_recheck(&mut self, id: EntryId) {
        if self.partials.contains_key(&id) {
            self.rechecks.insert(id, Recheck::default());
        }
    }

    /// The next [`Action::RecheckGroups`].
    pub(super) fn poll(&mut self, entries: &Entries) -> Option<Action> {
        let partials = &self.partials;
        let (id, recheck, partial) = self.rechecks.iter_mut().find_map(|(id, recheck)| {
            let partial = partials.get(id)?;
            (recheck.given < partial.groups.len()).then_some((*id, recheck, partial))
        })?;
        let left = partial.groups.get(recheck.given..)?;
        let left = left.get(..RECHECK_GROUPS).unwrap_or(left);
        let groups: Vec<_> = left.iter().map(|(group, value, _)| (*group, *value)).collect();
        recheck.given += groups.len();
        recheck.under_way += 1;
        let file = NamedEntry { id, entry: entries.get(id)?.entry()?.clone() };
        let taken = self.taken.contains(&id);
        Some(Action::RecheckGroups { file, temp: partial.temp, groups, taken })
    }

    /// Some groups were compared; these are wrong. Returns all that are, once the last is compared,
    /// and believes the others.
    fn compared(&mut self, id: EntryId, wrong: Vec<u32>) -> Option<Wrong> {
        // It failed meanwhile, where these are gone.
        let (recheck, partial) = (self.rechecks.get_mut(&id)?, self.partials.get_mut(&id)?);
        recheck.wrong.extend(wrong);
        recheck.under_way = recheck.under_way.saturating_sub(1);
        if recheck.given < partial.groups.len() || recheck.under_way > 0 {
            return None;
        }
        let wrong = self.rechecks.remove(&id)?.wrong;
        partial.groups.retain(|(group, ..)| !wrong.contains(group));
        Some(Wrong { temp: partial.temp, groups: wrong.into_iter().collect() })
    }
}

impl Sink {
    /// True if files of an earlier run are being compared: until that is over, nothing behind them can
    /// be sent.
    pub fn is_rechecking(&self) -> bool {
        !self.earlier.rechecks.is_empty() || self.setup.contents.is_reading()
    }

    /// Answers [`Action::RecheckGroups`]: `count` groups were compared, and `wrong` are those of them
    /// that are not what was recorded, or cannot be read.
    pub(super) fn groups_rechecked(&mut self, id: EntryId, count: usize, wrong: Vec<u32>) {
        self.report.rechecked(count);
        let Some(wrong) = self.earlier.compared(id, wrong) else {
            return;
        };
        let Some(slot) = self.entries.in_state(id, State::Waiting) else {
            return;
        };
        if let Some(entry) = slot.entry()
            && !self.earlier.takes_over(id)
        {
            self.recorder.void(entry, wrong);
        }
        self.entries.open(id);
        self.claim_taken(id);
        // Its writer may not have synced what is right again now.
        self.sync_later(id);
        self.advance();
    }
}
