//! Accepting objects, once everything in them is prepared.

use alloc::vec::Vec;

use longhaul_units::{ObjectId, RangeSet};

use super::Sink;
use super::entries::{Slot, State};
use crate::EntryId;

impl Sink {
    /// Passes what is prepared, and accepts objects all of whose entries are.
    pub(super) fn advance(&mut self) {
        self.publications.add(self.entries.pass_prepared());
        while let Some(object) = self.objects.accept_next(self.entries.ready()) {
            self.accept(object);
        }
        self.forget();
    }

    fn accept(&mut self, object: ObjectId) {
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
        if let [(id, _)] = files[..] {
            self.take_claims(object, id);
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
    fn take_claims(&mut self, object: ObjectId, id: EntryId) {
        if let Some(groups) = self.earlier.take_groups(id) {
            let (count, bytes) = self.objects.resume(object, groups);
            self.report.resumed(bytes);
            self.entries.groups_resumed(id, count);
        }
    }
}
