//! What an earlier run left of a file that may have been altered since (docs/objects.md section
//! "Altered files").

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::groups::sync_later;
use super::{Sink, State};
use crate::entry::key;
use crate::limits::RECHECK_GROUPS;
use crate::{Action, EntryId, NamedEntry};

/// How far the recorded groups of a file are compared.
#[derive(Debug, Default)]
pub(super) struct Recheck {
    /// Groups that were given out, and actions that are not answered.
    given: usize,
    under_way: u32,
    wrong: BTreeSet<u32>,
}

impl Sink {
    /// The groups of the file are believed once they are compared; until then it is not prepared.
    pub(super) fn begin_recheck(&mut self, id: EntryId) {
        if self.partials.contains_key(&id) {
            self.rechecks.insert(id, Recheck::default());
        }
    }

    /// Whether files of an earlier run are being compared: until that is over, nothing behind them can
    /// be sent.
    pub fn is_rechecking(&self) -> bool {
        !self.rechecks.is_empty()
    }

    pub(super) fn recheck_action(&mut self) -> Option<Action> {
        let partials = &self.partials;
        let (id, recheck, partial) = self.rechecks.iter_mut().find_map(|(id, recheck)| {
            let partial = partials.get(id)?;
            (recheck.given < partial.groups.len()).then_some((*id, recheck, partial))
        })?;
        let left = partial.groups.get(recheck.given..)?;
        let groups = left.get(..RECHECK_GROUPS).unwrap_or(left).to_vec();
        recheck.given += groups.len();
        recheck.under_way += 1;
        let entry = self.slots.get(id.0)?.entry.clone()?;
        let file = NamedEntry { id, entry };
        Some(Action::RecheckGroups { file, temp: partial.temp, groups })
    }

    /// Answers [`Action::RecheckGroups`]: `count` groups were compared, and `wrong` are those of them
    /// that are not what was recorded, or cannot be read.
    pub(super) fn groups_rechecked(&mut self, id: EntryId, count: usize, wrong: Vec<u32>) {
        self.report.rechecked(count);
        let (Some(recheck), Some(partial)) =
            (self.rechecks.get_mut(&id), self.partials.get_mut(&id))
        else {
            // It failed meanwhile.
            return;
        };
        recheck.wrong.extend(wrong);
        recheck.under_way = recheck.under_way.saturating_sub(1);
        if recheck.given < partial.groups.len() || recheck.under_way > 0 {
            return;
        }
        let wrong = core::mem::take(&mut recheck.wrong);
        self.rechecks.remove(&id);
        let Some(slot) = self.slots.get_mut(id.0).filter(|slot| slot.state == State::Waiting)
        else {
            return;
        };
        slot.state = State::Open;
        if let Some(entry) = slot.entry.as_ref().filter(|_| !wrong.is_empty()) {
            partial.groups.retain(|(group, _)| !wrong.contains(group));
            let groups = wrong.into_iter().collect();
            self.void.push((key(entry), partial.temp, groups));
        }
        // Whoever wrote to it may not have synced what is right again now.
        sync_later(&mut self.slots, &mut self.dirty, id);
        self.advance();
    }
}
