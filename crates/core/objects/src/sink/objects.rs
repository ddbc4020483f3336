//! The objects that were announced, and what is known of their groups.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::{ObjectId, RangeSet};

use crate::entry::EntryId;
use crate::hash::ChainingValue;
use crate::hash::RootHasher;
use crate::layout::{Layout, Part};
use crate::limits::REPAIRS_MAX;
use crate::record::Recorded;
use crate::table::ObjectTable;
use crate::tags::Tag;
use crate::window::Window;

#[derive(Debug)]
pub(super) struct Objects {
    window: Window<Object>,
    /// Objects below are prepared, and the source is asked what it believes of them.
    offered: u32,
    /// Objects below are accepted.
    accepted: u32,
    table: ObjectTable,
    abandoned: BTreeMap<ObjectId, Abandoned>,
    /// BLAKE3 of large files that are whole.
    digests: BTreeMap<EntryId, ChainingValue>,
    /// First-sent bytes that are written and whose hash has not come.
    unverified: u64,
    /// Hashes whose group has not come.
    waiting_hashes: u64,
}

#[derive(Debug)]
pub(super) struct Object {
    layout: Layout,
    /// Groups that are verified and written, or not needed.
    done: RangeSet,
    remaining: u32,
    groups: BTreeMap<u32, Group>,
    root: RootHasher,
    /// Chaining values behind a gap.
    beyond: BTreeMap<u32, ChainingValue>,
}

/// A group of which something is known and that is not done.
#[derive(Debug, Default)]
struct Group {
    stage: Stage,
    /// That of its hash, if that had one.
    tag: Option<Tag>,
    repairs: u8,
}

/// Stage of a group. Its bytes and its hash come in any order.
#[derive(Debug, Default)]
enum Stage {
    /// Neither has come, or what came did not verify.
    #[default]
    Missing,
    /// Its hash has come: counted in [`Objects::waiting_hashes`].
    Hashed(ChainingValue),
    /// Its bytes, of this value, are being written; its hash has to come.
    Writing(ChainingValue),
    /// They are being written, and are what the source says.
    WritingRight(ChainingValue),
    /// They are being written, and are not. That write must not come after that of the repair.
    WritingWrong,
    /// They are written, its hash has to come; and its share of [`Objects::unverified`].
    Written(ChainingValue, u32),
    /// They are written, and are what the source says.
    Right(ChainingValue),
}

/// An object whose files failed while groups of it were under way.
#[derive(Debug)]
struct Abandoned {
    size: u64,
    /// Groups counted against credit.
    received: RangeSet,
}

/// A group that a lane has received whole, with the number of its bytes that are `new`: all, if it
/// came for the first time, or none.
pub(super) enum Arrival {
    /// It cannot be.
    Unknown,
    /// It is there, or on its way to storage.
    Repeated,
    /// All that it belongs to has failed.
    Unneeded { new: u32 },
    /// It is not what the source says.
    Wrong { new: u32 },
    /// It is right, as far as is known, and taken as being written from now on.
    Awaited { new: u32 },
}

/// Result for a group that was compared to its hash, or was not.
pub(super) enum Verification {
    /// Its hash, its bytes or the end of its write have to come.
    Pending,
    /// It is written and verified.
    Right,
    Wrong,
}

/// Treatment of a group that did not verify.
pub(super) enum Rejection {
    /// Nobody needs it any more.
    Unneeded,
    /// It is to be sent again.
    Again,
    /// It was sent often enough.
    Final,
}

/// A group that is done.
pub(super) struct Finished {
    pub(super) len: u32,
    /// `None` if it was not received, or did not verify.
    pub(super) value: Option<ChainingValue>,
    pub(super) tag: Option<Tag>,
}

impl Objects {
    pub(super) fn new() -> Self {
        Self {
            window: Window::new(),
            offered: 0,
            accepted: 0,
            table: ObjectTable::default(),
            abandoned: BTreeMap::new(),
            digests: BTreeMap::new(),
            unverified: 0,
            waiting_hashes: 0,
        }
    }

    /// Number that the next object gets.
    pub(super) fn end(&self) -> u32 {
        self.window.end()
    }

    /// Objects below are accepted.
    pub(super) fn accepted(&self) -> u32 {
        self.accepted
    }

    /// Sizes of the accepted objects.
    pub(super) fn table(&self) -> &ObjectTable {
        &self.table
    }

    pub(super) fn digest(&self, id: EntryId) -> Option<&ChainingValue> {
        self.digests.get(&id)
    }

    /// First-sent bytes that are written and whose hash has not come.
    pub(super) fn unverified(&self) -> u64 {
        self.unverified
    }

    /// Hashes whose group has not come.
    pub(super) fn waiting_hashes(&self) -> u64 {
        self.waiting_hashes
    }

    pub(super) fn announce(&mut self, object: Object) {
        self.window.push(object);
    }

    /// The next object that is prepared: entries below `ready` are.
    pub(super) fn offer_next(&mut self, ready: u32) -> Option<ObjectId> {
        let object = self.window.get(self.offered)?;
        object.layout.files().next_back().filter(|last| last.0 < ready)?;
        self.offered += 1;
        Some(ObjectId(self.offered - 1))
    }

    /// Leaves these entries out of an object that is prepared: nothing of them is sent.
    pub(super) fn leave_out(&mut self, id: ObjectId, unchanged: &mut RangeSet) {
        let Some(object) = self.window.get_mut(id.0) else { return };
        let mut files = object.layout.files();
        let (Some(first), last) = (files.next(), files.next_back()) else { return };
        let entries = u64::from(first.0)..u64::from(last.unwrap_or(first).0) + 1;
        drop(files);
        object.layout.leave_out(entries, unchanged);
        object.remaining = object.layout.groups();
    }

    /// The one that is accepted next, if it is prepared.
    pub(super) fn next(&self) -> Option<ObjectId> {
        (self.accepted < self.offered).then_some(ObjectId(self.accepted))
    }

    /// Accepts that.
    pub(super) fn accept_next(&mut self) {
        if let Some(object) = self.window.get(self.accepted) {
            self.table.push(object.layout.size());
            self.accepted += 1;
        }
    }

    /// True where it is a large file, not small ones.
    pub(super) fn is_large(&self, id: ObjectId) -> bool {
        self.get(id).is_some_and(|object| object.layout.is_large())
    }

    /// The object, while it is not over or those before it are not.
    fn get(&self, id: ObjectId) -> Option<&Object> {
        self.window.get(id.0)
    }

    /// Files in the object, each with its groups.
    pub(super) fn files(&self, id: ObjectId) -> Vec<(EntryId, Range<u32>)> {
        let Some(Object { layout, .. }) = self.get(id) else {
            return Vec::new();
        };
        layout.files().enumerate().map(|(index, file)| (file, layout.groups_of(index))).collect()
    }

    /// The same, without their groups.
    pub(super) fn file_ids(&self, id: ObjectId) -> impl Iterator<Item = EntryId> + '_ {
        self.get(id).into_iter().flat_map(|object| object.layout.files())
    }

    /// Parts of the group.
    pub(super) fn parts(&self, id: ObjectId, group: u32) -> impl Iterator<Item = Part> + '_ {
        self.get(id).into_iter().flat_map(move |object| object.layout.parts(group))
    }

    /// Groups that need not be sent.
    pub(super) fn done(&self, id: ObjectId) -> impl Iterator<Item = Range<u64>> + '_ {
        self.get(id).into_iter().flat_map(|object| object.done.iter())
    }

    /// Number of its groups, unless it is over and forgotten.
    pub(super) fn groups(&self, id: ObjectId) -> Option<u32> {
        self.get(id).map(|object| object.layout.groups())
    }

    /// True if no group is awaited, and none will be.
    pub(super) fn is_over(&self, id: ObjectId) -> bool {
        id.0 < self.over_below() || self.get(id).is_some_and(Object::is_over)
    }

    /// All objects below are over.
    pub(super) fn over_below(&self) -> u32 {
        self.window.base()
    }

    pub(super) fn is_abandoned(&self, id: ObjectId) -> bool {
        self.abandoned.contains_key(&id)
    }

    /// Of the groups of an accepted object only these are needed.
    pub(super) fn await_only(&mut self, id: ObjectId, awaited: &RangeSet) {
        if let Some(object) = self.window.get_mut(id.0) {
            for idle in awaited.gaps(0..u64::from(object.layout.groups())) {
                object.finish_range(idle);
            }
        }
    }

    /// These groups were verified and written by an earlier run. Returns how many, and their bytes.
    pub(super) fn resume(&mut self, id: ObjectId, groups: Vec<Recorded>) -> (u32, u64) {
        let (mut count, mut bytes) = (0, 0);
        let Some(object) = self.window.get_mut(id.0) else {
            return (count, bytes);
        };
        for (group, value, _) in groups {
            object.finish_range(u64::from(group)..u64::from(group) + 1);
            object.hash(group, value);
            count += 1;
            bytes += u64::from(object.layout.group_len(group));
        }
        (count, bytes)
    }

    /// A lane has received the group whole, with this chaining value. One that is awaited goes on with
    /// [`Objects::end_write`], or is finished if nobody needs it.
    pub(super) fn receive(&mut self, id: ObjectId, group: u32, value: ChainingValue) -> Arrival {
        if id.0 >= self.accepted {
            return Arrival::Unknown;
        }
        if let Some(abandoned) = self.abandoned.get_mut(&id) {
            return Arrival::Unneeded { new: abandoned.receive(group) };
        }
        let Some(object) = self.window.get_mut(id.0) else {
            return Arrival::Repeated;
        };
        let len = object.layout.group_len(group);
        if len == 0 {
            return Arrival::Unknown;
        }
        if object.done.contains(u64::from(group)) {
            return Arrival::Repeated;
        }
        let state = object.groups.entry(group).or_default();
        let new = if state.was_received() { 0 } else { len };
        match state.stage {
            Stage::Missing => state.stage = Stage::Writing(value),
            Stage::Hashed(expected) => {
                self.waiting_hashes -= 1;
                if expected != value {
                    state.stage = Stage::Missing;
                    return Arrival::Wrong { new };
                }
                state.stage = Stage::WritingRight(value);
            }
            _ => return Arrival::Repeated,
        }
        Arrival::Awaited { new }
    }

    /// No lane hands over this group of an object that is over, of which bytes came. Returns how many of
    /// its bytes count as new.
    pub(super) fn drop_group(&mut self, id: ObjectId, group: u32) -> u32 {
        self.abandoned.get_mut(&id).map_or(0, |abandoned| abandoned.receive(group))
    }

    /// That write has ended, of so many `new` bytes. Returns the length of the group and whether it is
    /// right, unless nobody needs it any more.
    pub(super) fn end_write(
        &mut self,
        id: ObjectId,
        group: u32,
        new: u32,
    ) -> Option<(u32, Verification)> {
        let object = self.window.get_mut(id.0)?;
        let state = object.groups.get_mut(&group)?;
        let verification = match state.stage {
            Stage::Writing(value) => {
                state.stage = Stage::Written(value, new);
                self.unverified += u64::from(new);
                Verification::Pending
            }
            Stage::WritingRight(value) => {
                state.stage = Stage::Right(value);
                Verification::Right
            }
            Stage::WritingWrong => Verification::Wrong,
            _ => return None,
        };
        Some((object.layout.group_len(group), verification))
    }

    /// The hash of a group has come. `None` if the object is over and forgotten.
    pub(super) fn expect(
        &mut self,
        id: ObjectId,
        group: u32,
        value: ChainingValue,
        tag: Option<Tag>,
    ) -> Option<Verification> {
        let object = self.window.get_mut(id.0)?;
        // One that was abandoned, by a hash before this one perhaps, has nothing done and is over.
        if object.is_over() || object.done.contains(u64::from(group)) {
            return Some(Verification::Pending);
        }
        let state = object.groups.entry(group).or_default();
        let is_settled = matches!(state.stage, Stage::WritingRight(_) | Stage::Right(_));
        if !is_settled {
            state.tag = tag;
        }
        match state.stage {
            Stage::Missing | Stage::Hashed(_) => {
                self.waiting_hashes += u64::from(!state.awaits_bytes());
                state.stage = Stage::Hashed(value);
            }
            Stage::Writing(actual) if actual == value => state.stage = Stage::WritingRight(actual),
            Stage::Writing(_) => state.stage = Stage::WritingWrong,
            Stage::Written(actual, unverified) if actual == value => {
                self.unverified -= u64::from(unverified);
                state.stage = Stage::Right(actual);
                return Some(Verification::Right);
            }
            Stage::Written(..) => return Some(Verification::Wrong),
            // The group is settled by the hash it was first compared to.
            Stage::WritingRight(_) | Stage::WritingWrong | Stage::Right(_) => {}
        }
        Some(Verification::Pending)
    }

    /// Ends what is known of a group that did not verify.
    pub(super) fn reject(&mut self, id: ObjectId, group: u32) -> Rejection {
        let object = self.window.get_mut(id.0);
        let Some(state) = object.and_then(|object| object.groups.get_mut(&group)) else {
            return Rejection::Unneeded;
        };
        self.unverified -= u64::from(state.unverified());
        state.stage = Stage::Missing;
        state.repairs += 1;
        if state.repairs <= REPAIRS_MAX { Rejection::Again } else { Rejection::Final }
    }

    /// The group is verified and written, or nobody needs it.
    pub(super) fn finish(&mut self, id: ObjectId, group: u32) -> Option<Finished> {
        let object = self.window.get_mut(id.0)?;
        let Group { stage, tag, .. } = object.groups.remove(&group).unwrap_or_default();
        let value = match stage {
            Stage::Right(value) => Some(value),
            _ => None,
        };
        object.finish_range(u64::from(group)..u64::from(group) + 1);
        if let Some(value) = value.filter(|_| object.layout.is_large()) {
            object.hash(group, value);
        }
        Some(Finished { len: object.layout.group_len(group), value, tag })
    }

    /// The large file that the object is has become whole.
    pub(super) fn finish_digest(&mut self, number: u32, id: EntryId) {
        if let Some(object) = self.window.get_mut(number) {
            self.digests.insert(id, core::mem::take(&mut object.root).finish());
        }
    }

    /// Ends an object if no file awaits groups of it, and others failed. The source may send no more of
    /// it, though some may be under way. Returns the object that ended so.
    pub(super) fn abandon_if_idle(
        &mut self,
        number: u32,
        awaits: impl Fn(EntryId) -> bool,
    ) -> Option<ObjectId> {
        let object = self.window.get_mut(number).filter(|object| {
            number < self.accepted && !object.is_over() && !object.layout.files().any(awaits)
        })?;
        let mut received = core::mem::take(&mut object.done);
        for (group, state) in core::mem::take(&mut object.groups) {
            self.unverified -= u64::from(state.unverified());
            self.waiting_hashes -= u64::from(state.awaits_bytes());
            if state.was_received() {
                received.insert_one(u64::from(group));
            }
        }
        object.remaining = 0;
        let abandoned = Abandoned { size: object.layout.size(), received };
        self.abandoned.insert(ObjectId(number), abandoned);
        Some(ObjectId(number))
    }

    /// Bytes of the file that were written, in this run or an earlier one.
    pub(super) fn written(&self, number: u32, file: EntryId) -> u64 {
        let Some(object) = self.window.get(number) else { return 0 };
        object.layout.bytes_of(file, |group| {
            object.done.contains(u64::from(group))
                || object.groups.get(&group).is_some_and(Group::was_written)
        })
    }

    /// Forgets what is over at the front.
    pub(super) fn forget(&mut self) {
        let accepted = self.accepted;
        self.window.forget_while(|number, object| number < accepted && object.is_over());
    }
}

impl Object {
    pub(super) fn new() -> Self {
        Self {
            layout: Layout::new(),
            done: RangeSet::new(),
            remaining: 0,
            groups: BTreeMap::new(),
            root: RootHasher::default(),
            beyond: BTreeMap::new(),
        }
    }

    /// A file of so many bytes, which is in it alone if it is large.
    pub(super) fn push(&mut self, id: EntryId, size: u64, is_large: bool) {
        match is_large {
            true => self.layout = Layout::of_large(id, size),
            false => self.layout.push(id, size),
        }
        self.remaining = self.layout.groups();
    }

    fn is_over(&self) -> bool {
        self.remaining == 0
    }

    fn finish_range(&mut self, groups: Range<u64>) {
        self.remaining -= self.done.insert(groups) as u32;
    }

    /// Takes the chaining value of a verified group into the root hash.
    fn hash(&mut self, group: u32, value: ChainingValue) {
        if group != self.root.pushed() {
            self.beyond.insert(group, value);
            return;
        }
        self.root.push(value);
        while let Some(value) = self.beyond.remove(&self.root.pushed()) {
            self.root.push(value);
        }
    }
}

impl Group {
    /// Counted in [`Objects::waiting_hashes`].
    fn awaits_bytes(&self) -> bool {
        matches!(self.stage, Stage::Hashed(_))
    }

    /// Its share of [`Objects::unverified`].
    fn unverified(&self) -> u32 {
        match self.stage {
            Stage::Written(_, unverified) => unverified,
            _ => 0,
        }
    }

    /// At least once, so that it is counted against credit: a repair follows what came.
    fn was_received(&self) -> bool {
        self.repairs > 0 || !matches!(self.stage, Stage::Missing | Stage::Hashed(_))
    }

    /// At least once.
    fn was_written(&self) -> bool {
        self.repairs > 0 || matches!(self.stage, Stage::Written(..) | Stage::Right(_))
    }
}

impl Abandoned {
    /// Returns how many bytes came for the first time.
    fn receive(&mut self, group: u32) -> u32 {
        let is_new = self.received.insert_one(u64::from(group));
        if is_new { crate::hash::group_len(self.size, group) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::GROUP_SIZE;

    #[test]
    fn hashes_of_an_abandoned_object_wait_for_nothing() {
        let mut objects = Objects::new();
        for number in 0..2 {
            let mut object = Object::new();
            object.push(EntryId(number), 3 * GROUP_SIZE, true);
            objects.announce(object);
            assert_eq!(objects.offer_next(number + 1), Some(ObjectId(number)));
            objects.accept_next();
        }
        let id = ObjectId(1);
        assert!(objects.expect(id, 0, [1; 32], None).is_some());
        assert_eq!(objects.waiting_hashes(), 1);
        objects.abandon_if_idle(id.0, |_| false);
        // It is kept for the one before it.
        objects.forget();
        assert!(objects.expect(id, 1, [1; 32], None).is_some());
        assert_eq!(objects.waiting_hashes(), 0);
    }
}
