//! Groups on their way in: where received bytes go.

use std::collections::BTreeMap;

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::{GroupAssembly, ObjectTable};
use longhaul_units::{ObjectId, RangeSet};

use crate::buffer::{Buffer, Reuse};
use crate::carrier::{Hub, Unplaceable};

/// Groups that a carrier thread is receiving.
///
/// [`Self::slot`] may be asked for packets of anybody: it changes nothing. A group is begun, and its
/// memory taken, by [`Self::begin`] only, once bytes of it have proven to be the peer's.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// The group that bytes came for last: mostly that of the next ones, too.
    current: Option<Arriving>,
    open: BTreeMap<(ObjectId, u32), Arriving>,
    /// Groups handed on; what still comes of them is a repetition.
    done: BTreeMap<ObjectId, RangeSet>,
    /// As [`Hub::taken_below`] said last.
    taken_below: u32,
    table: ObjectTable,
    /// Bytes that were new when they were placed.
    placed: u64,
    spare: Vec<GroupAssembly>,
}

#[derive(Debug)]
struct Arriving {
    key: (ObjectId, u32),
    assembly: GroupAssembly,
    buffer: Buffer,
}

/// Where received bytes go.
pub(crate) enum Slot<'a> {
    /// Straight to their place: nothing accepted is there. How its memory goes round.
    Place(&'a mut [u8], Reuse),
    /// Some or all of them are there already: they have to go elsewhere first.
    Repeated,
    /// Their group has not begun: elsewhere, until they are known to be authentic.
    New,
    /// They are not within their group.
    Outside,
}

/// Bytes of one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub object: ObjectId,
    pub group: u32,
    pub start: u32,
    pub len: u32,
}

impl Target {
    /// `len` bytes at `offset` of `object`; `None` where there can be no group.
    pub fn new(object: ObjectId, offset: u64, len: u32) -> Option<Self> {
        let group = u32::try_from(offset / GROUP_SIZE).ok()?;
        Some(Self { object, group, start: (offset % GROUP_SIZE) as u32, len })
    }

    fn is_within(&self, group_len: u32) -> bool {
        self.len > 0 && self.start + self.len <= group_len
    }

    fn key(&self) -> (ObjectId, u32) {
        (self.object, self.group)
    }
}

impl Incoming {
    /// Where the bytes of `target` go.
    pub fn slot(&mut self, target: &Target) -> Slot<'_> {
        let key = target.key();
        let arriving = match &mut self.current {
            Some(current) if current.key == key => current,
            _ => match self.open.get_mut(&key) {
                Some(arriving) => arriving,
                None if is_done(&self.done, self.taken_below, key) => return Slot::Repeated,
                None => return Slot::New,
            },
        };
        let Arriving { assembly, buffer, .. } = arriving;
        if !target.is_within(assembly.len()) {
            return Slot::Outside;
        }
        if !assembly.is_vacant(target.start, target.len) {
            return Slot::Repeated;
        }
        let reuse = buffer.reuse();
        Slot::Place(&mut buffer[target.start as usize..][..target.len as usize], reuse)
    }

    /// Begins the group of `target`, whose bytes are authentic, if need be.
    pub fn begin<H: Hub + ?Sized>(&mut self, hub: &H, target: &Target) -> Result<(), Unplaceable> {
        self.forget_taken(hub);
        if self.make_current(target.key()) {
            let len = self.current.as_ref().map_or(0, |current| current.assembly.len());
            return if target.is_within(len) { Ok(()) } else { Err(Unplaceable::Unasked) };
        }
        if self.is_done(target.key()) {
            return Ok(());
        }
        let offset = u64::from(target.group) * GROUP_SIZE + u64::from(target.start);
        let len = target.len as usize;
        let mut placed = self.table.place(target.object, offset, len);
        if placed.is_err() {
            self.table = hub.objects();
            placed = self.table.place(target.object, offset, len);
        }
        let placed = placed.map_err(|_| Unplaceable::Unasked)?;
        let buffer = hub.begin_group(target.object, target.group)?;
        let mut assembly = self.spare.pop().unwrap_or_default();
        assembly.start(placed.group_len);
        self.set_current(Arriving { key: target.key(), assembly, buffer });
        Ok(())
    }

    /// The bytes of `target` are in their place, or in `elsewhere`, and authentic. Hands the
    /// group on when it is whole.
    pub fn accept<H: Hub + ?Sized>(&mut self, hub: &H, target: &Target, elsewhere: Option<&[u8]>) {
        if !self.make_current(target.key()) {
            return;
        }
        let Some(Arriving { assembly, buffer, .. }) = &mut self.current else { return };
        if let Some(bytes) = elsewhere {
            for gap in assembly.missing(target.start, target.len) {
                let from = (gap.start - target.start) as usize..(gap.end - target.start) as usize;
                buffer[gap.start as usize..gap.end as usize].copy_from_slice(&bytes[from]);
            }
        }
        let new = assembly.insert(target.start, target.len);
        self.placed += u64::from(new.unwrap_or(0));
        if assembly.is_complete()
            && let Some(Arriving { assembly, buffer, .. }) = self.current.take()
        {
            let len = assembly.len();
            self.spare.push(assembly);
            self.done.entry(target.object).or_default().insert_one(target.group.into());
            hub.on_group(target.object, target.group, len, buffer);
        }
    }

    /// Bytes placed so far, repetitions not counted.
    pub fn placed(&self) -> u64 {
        self.placed
    }

    /// The group is to be received anew.
    pub fn forget(&mut self, object: ObjectId, group: u32) {
        if let Some(groups) = self.done.get_mut(&object) {
            groups.remove(u64::from(group)..u64::from(group) + 1);
        }
    }

    /// Makes the group the current one, if it is open.
    fn make_current(&mut self, key: (ObjectId, u32)) -> bool {
        if self.current.as_ref().is_some_and(|current| current.key == key) {
            return true;
        }
        let Some(arriving) = self.open.remove(&key) else { return false };
        self.set_current(arriving);
        true
    }

    fn set_current(&mut self, arriving: Arriving) {
        if let Some(last) = self.current.replace(arriving) {
            self.open.insert(last.key, last);
        }
    }

    fn is_done(&self, key: (ObjectId, u32)) -> bool {
        is_done(&self.done, self.taken_below, key)
    }

    /// What is taken for good need not be known group by group.
    fn forget_taken<H: Hub + ?Sized>(&mut self, hub: &H) {
        let below = hub.taken_below();
        if below > self.taken_below {
            self.taken_below = below;
            self.done.retain(|_, groups| {
                groups.remove_below(below.into());
                !groups.is_empty()
            });
        }
    }
}

/// Whether the group was handed on.
fn is_done(
    done: &BTreeMap<ObjectId, RangeSet>,
    taken_below: u32,
    (object, group): (ObjectId, u32),
) -> bool {
    group < taken_below || done.get(&object).is_some_and(|groups| groups.contains(group.into()))
}
