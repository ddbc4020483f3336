//! Accepting objects, once everything in them is prepared, and it is settled what an earlier run left
//! of them (docs/objects.md section "Belief").

use alloc::vec::Vec;

use longhaul_units::{ObjectId, RangeSet};

use super::Sink;
use super::entries::{Slot, State};
use super::offers::Settled;
use super::resumed::Wrong;
use crate::entry::EntryId;
use crate::record::Recorded;
use crate::tags::contents;

impl Sink {
    /// Passes what is prepared, asks the source what it believes of it, and accepts what is settled.
    pub(super) fn advance(&mut self) {
        self.publications.add(self.entries.pass_prepared());
        while let Some(object) = self.objects.offer_next(self.entries.ready()) {
            self.objects.leave_out(object, &mut self.unchanged);
            let is_known = self.is_taken_over(self.objects.file_ids(object).next());
            let recorded = self.recorded_groups(object);
            self.offers.begin(object, recorded, is_known);
        }
        while let Some(object) = self.objects.next().filter(|object| self.is_settled(*object)) {
            let right = self.apply(object);
            // One that begins again has to be prepared.
            if self.has_files_in(object, |state| state == State::Waiting) {
                break;
            }
            self.objects.accept_next();
            self.accept(object, right);
        }
        self.forget();
    }

    /// True where the source has answered, or nobody needs its answer.
    fn is_settled(&self, object: ObjectId) -> bool {
        !self.offers.is_pending(object)
            || !self.has_files_in(object, |state| state != State::Settled)
    }

    fn has_files_in(&self, object: ObjectId, is_so: impl Fn(State) -> bool) -> bool {
        let states = self.objects.file_ids(object).filter_map(|id| self.entries.get(id));
        states.map(Slot::state).any(is_so)
    }

    /// Groups of an object that is prepared, of which the record tells.
    fn recorded_groups(&mut self, object: ObjectId) -> Vec<Recorded> {
        let files = self.objects.files(object);
        let end = self.objects.groups(object).unwrap_or(0);
        if let [(id, _)] = files[..]
            && self.objects.is_large(object)
        {
            let mut groups = self.earlier.take_groups(id);
            groups.retain(|(group, ..)| *group < end);
            return groups;
        }
        if !self.has_files_in(object, |state| state == State::Found) {
            return Vec::new();
        }
        let is_found = |group| {
            let mut parts = self.objects.parts(object, group);
            parts.any(|part| self.entries.in_state(part.entry, State::Found).is_some())
        };
        let recorded = |group| {
            let (value, tag) = self.earlier.bundled(&self.contents(object, group)?)?;
            Some((group, value, tag))
        };
        (0..end).filter(|group| is_found(*group)).filter_map(recorded).collect()
    }

    /// Contents of a group, while all of it is known.
    pub(super) fn contents(&self, object: ObjectId, group: u32) -> Option<[u8; 32]> {
        contents(self.objects.parts(object, group), |part| self.entries.identity(part.entry))
    }

    /// Small files that were found under their names stay so where all of their groups are among these:
    /// what was verified of them then is what the source has. Others are received.
    fn keep_sound(&mut self, object: ObjectId, groups: &[Recorded]) {
        let is_right = |group| groups.binary_search_by_key(&group, |(n, ..)| *n).is_ok();
        for (id, mut range) in self.objects.files(object) {
            if !range.all(is_right) {
                self.recorder.unpublish(self.entries.unfound(id));
            }
        }
    }

    /// Begins again what the source does not believe. Returns the groups that it does.
    fn apply(&mut self, object: ObjectId) -> Vec<Recorded> {
        let Settled { mut right, wrong, renewed } = self.offers.take(object);
        let large = self.objects.file_ids(object).next().filter(|_| self.objects.is_large(object));
        let Some(id) = large else {
            self.keep_sound(object, &right);
            return right;
        };
        match self.entries.get(id).map(Slot::state) {
            Some(State::Found) if !wrong.is_empty() => {
                right.clear();
                self.recorder.unpublish(self.entries.unfound(id));
                self.prepare_anew(id);
            }
            Some(State::Open) => {
                for group in renewed {
                    self.checkpoints.verified(self.entries.claim(id, group));
                }
                if let Some(slot) = self.entries.get(id)
                    && let Some(entry) = slot.entry()
                {
                    self.recorder.void(entry, Wrong { temp: slot.temp(), groups: wrong });
                }
            }
            _ => {}
        }
        right
    }

    fn accept(&mut self, object: ObjectId, right: Vec<Recorded>) {
        let files = self.objects.files(object);
        for (id, groups) in &files {
            self.settle_where(*id, groups.len() as u32);
        }
        // Groups that no open file has a part in need not be sent.
        let mut awaited = RangeSet::new();
        let mut resumed = Vec::new();
        for (id, groups) in &files {
            match self.entries.get(*id).map(Slot::state) {
                Some(State::Open) => {
                    self.entries.await_groups(*id, groups.len() as u32);
                    awaited.insert(u64::from(groups.start)..u64::from(groups.end));
                }
                Some(State::Found) => resumed.push((*id, groups.clone())),
                _ => {}
            }
        }
        self.objects.await_only(object, &awaited);
        let is_needed = !awaited.is_empty() || !resumed.is_empty();
        // A resumed file is confirmed when the source has sent, or need not send, its groups.
        let mut confirmed = Vec::new();
        for (id, groups) in resumed {
            self.report.resumed(self.entries.get(id).map_or(0, Slot::size));
            let left = groups.filter(|group| awaited.contains(u64::from(*group))).count() as u32;
            self.entries.await_groups(id, left);
            if left == 0 {
                confirmed.push(id);
            }
        }
        if let [(id, _)] = files[..]
            && self.entries.in_state(id, State::Open).is_some()
        {
            self.take_over(object, id, right);
        }
        // The source knows itself what failed.
        if is_needed {
            self.answers.have(object, self.objects.done(object));
        }
        if let [(id, _)] = files[..]
            && self.objects.is_over(object)
            && self.entries.in_state(id, State::Open).is_some()
        {
            self.became_whole(id);
        }
        // The last, since an object of which everything is confirmed is forgotten.
        confirmed.into_iter().for_each(|id| self.named(id));
    }

    /// Takes over what an earlier run has written of a large file.
    fn take_over(&mut self, object: ObjectId, id: EntryId, groups: Vec<Recorded>) {
        if self.objects.is_large(object) {
            let (count, bytes) = self.objects.resume(object, groups);
            self.report.resumed(bytes);
            self.entries.groups_resumed(id, count);
        }
    }
}
