//! Groups on their way in: where received bytes go.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::{GroupAssembly, ObjectTable};
use longhaul_units::{ObjectId, RangeSet};

use crate::Repair;

/// Groups that a lane is receiving into buffers of type `B`.
///
/// [`Self::slot`] may be asked for packets of anybody: it changes nothing. A group is begun, and its
/// memory taken, by [`Self::begin`] only, once bytes of it have proven to be the peer's.
#[derive(Debug)]
pub struct Incoming<B> {
    /// The group that bytes came for last: mostly that of the next ones, too.
    current: Option<Arriving<B>>,
    open: BTreeMap<(ObjectId, u32), Arriving<B>>,
    /// Groups handed on; what still comes of them is a repetition.
    done: BTreeMap<ObjectId, RangeSet>,
    /// As [`Groups::taken_below`] said last.
    taken_below: u32,
    placed: u64,
    spare: Vec<GroupAssembly>,
}

#[derive(Debug)]
struct Arriving<B> {
    key: (ObjectId, u32),
    assembly: GroupAssembly,
    buffer: B,
}

/// Where a lane gets memory for groups. Asked once per group.
pub trait Groups<B> {
    /// Memory for the group of `target`, of which the first authentic bytes have come.
    ///
    /// # Errors
    /// There is none now, or the peer may not send these bytes.
    fn begin(&mut self, target: &GroupPart) -> Result<Begun<B>, Unplaceable>;

    /// Groups below this number were taken, of whatever object: what still comes of them is a
    /// repetition. Never shrinks.
    fn taken_below(&self) -> u32;
}

/// Memory for a group.
#[derive(Debug)]
pub struct Begun<B> {
    /// At least [`Self::len`] bytes.
    pub buffer: B,
    /// Bytes of the group.
    pub len: u32,
}

/// Why authentic bytes cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplaceable {
    /// There is no memory for their group now.
    NoMemory,
    /// Nobody asked for them: there is no such object, or they are not within one of its groups.
    Unasked,
    /// Their group was never sent before, and is beyond the credit.
    BeyondCredit,
}

impl Unplaceable {
    /// How the peer broke the protocol, if it did (docs/protocol.md 7.2).
    pub fn violation(self) -> Option<&'static str> {
        match self {
            Self::NoMemory => None,
            Self::Unasked => Some("bytes that were not asked for"),
            Self::BeyondCredit => Some("bytes beyond the credit"),
        }
    }
}

/// A group of which all bytes have come. Nobody has looked at them yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeGroup<B> {
    /// Its object.
    pub object: ObjectId,
    /// Its number.
    pub group: u32,
    /// Its bytes.
    pub len: u32,
    /// They are at the start of this buffer.
    pub buffer: B,
}

/// Where received bytes go.
pub enum Slot<'a> {
    /// Straight to their place: nothing accepted is there.
    Place(&'a mut [u8]),
    /// Some or all of them are there already: they have to go elsewhere first.
    Repeated,
    /// Their group has not begun: elsewhere, until they are known to be authentic.
    New,
    /// They are not within their group.
    Outside,
}

/// Bytes of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPart {
    /// The object.
    pub object: ObjectId,
    /// Number of the group.
    pub group: u32,
    /// The first byte, within the group.
    pub start: u32,
    /// How many.
    pub len: u32,
}

impl GroupPart {
    /// `len` bytes at `offset` of `object`; `None` where there can be no group.
    pub fn new(object: ObjectId, offset: u64, len: u32) -> Option<Self> {
        let group = u32::try_from(offset / GROUP_SIZE).ok()?;
        Some(Self { object, group, start: (offset % GROUP_SIZE) as u32, len })
    }

    /// Of the first byte, in the object.
    pub fn offset(&self) -> u64 {
        u64::from(self.group) * GROUP_SIZE + u64::from(self.start)
    }

    /// Bytes of its group, by a table of objects.
    ///
    /// # Errors
    /// [`Unplaceable::Unasked`]: there is no such object, or group, or these bytes are not within it.
    pub fn group_len(&self, objects: &ObjectTable) -> Result<u32, Unplaceable> {
        let place = objects.place(self.object, self.offset(), self.len as usize);
        Ok(place.map_err(|_| Unplaceable::Unasked)?.group_len)
    }

    fn is_within(&self, group_len: u32) -> bool {
        self.len > 0 && self.start + self.len <= group_len
    }

    fn key(&self) -> (ObjectId, u32) {
        (self.object, self.group)
    }
}

impl<B> Default for Incoming<B> {
    fn default() -> Self {
        Self {
            current: None,
            open: BTreeMap::new(),
            done: BTreeMap::new(),
            taken_below: 0,
            placed: 0,
            spare: Vec::new(),
        }
    }
}

impl<B: AsMut<[u8]>> Incoming<B> {
    /// Where the bytes of `target` go.
    pub fn slot(&mut self, target: &GroupPart) -> Slot<'_> {
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
        Slot::Place(&mut buffer.as_mut()[target.start as usize..][..target.len as usize])
    }

    /// Begins the group of `target`, whose bytes are authentic, if need be.
    ///
    /// # Errors
    /// See [`Unplaceable`].
    pub fn begin<G: Groups<B> + ?Sized>(
        &mut self,
        groups: &mut G,
        target: &GroupPart,
    ) -> Result<(), Unplaceable> {
        self.forget_taken(groups.taken_below());
        if self.make_current(target.key()) {
            let len = self.current.as_ref().map_or(0, |current| current.assembly.len());
            return if target.is_within(len) { Ok(()) } else { Err(Unplaceable::Unasked) };
        }
        if is_done(&self.done, self.taken_below, target.key()) {
            return Ok(());
        }
        let Begun { buffer, len } = groups.begin(target)?;
        let mut assembly = self.spare.pop().unwrap_or_default();
        assembly.start(len);
        self.set_current(Arriving { key: target.key(), assembly, buffer });
        Ok(())
    }

    /// The bytes of `target` are in their place, or in `elsewhere`, and authentic. Hands the
    /// group on when it is whole.
    pub fn accept(
        &mut self,
        target: &GroupPart,
        elsewhere: Option<&[u8]>,
    ) -> Option<WholeGroup<B>> {
        if !self.make_current(target.key()) {
            return None;
        }
        let Arriving { assembly, buffer, .. } = self.current.as_mut()?;
        if let Some(bytes) = elsewhere {
            let buffer = buffer.as_mut();
            for gap in assembly.missing(target.start, target.len) {
                let from = (gap.start - target.start) as usize..(gap.end - target.start) as usize;
                buffer[gap.start as usize..gap.end as usize].copy_from_slice(&bytes[from]);
            }
        }
        self.placed += u64::from(assembly.insert(target.start, target.len).unwrap_or(0));
        if !assembly.is_complete() {
            return None;
        }
        let Arriving { assembly, buffer, .. } = self.current.take()?;
        let len = assembly.len();
        self.spare.push(assembly);
        self.done.entry(target.object).or_default().insert_one(target.group.into());
        Some(WholeGroup { object: target.object, group: target.group, len, buffer })
    }

    /// Does what the shared half says of a group that was found to be wrong. Gives back memory that
    /// is of no use any more.
    #[must_use]
    pub fn handle_repair(&mut self, repair: Repair) -> Option<B> {
        match repair {
            Repair::ReceiveAnew(object, group) => {
                self.forget(object, group);
                None
            }
            Repair::Taken(object, group) => self.give_up(object, group),
        }
    }

    fn forget(&mut self, object: ObjectId, group: u32) {
        if let Some(groups) = self.done.get_mut(&object) {
            groups.remove(u64::from(group)..u64::from(group) + 1);
        }
    }

    fn give_up(&mut self, object: ObjectId, group: u32) -> Option<B> {
        self.done.entry(object).or_default().insert_one(group.into());
        if !self.make_current((object, group)) {
            return None;
        }
        let Arriving { assembly, buffer, .. } = self.current.take()?;
        self.spare.push(assembly);
        Some(buffer)
    }

    /// Bytes that came to their place for the first time, in all.
    pub fn placed(&self) -> u64 {
        self.placed
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

    fn set_current(&mut self, arriving: Arriving<B>) {
        if let Some(last) = self.current.replace(arriving) {
            self.open.insert(last.key, last);
        }
    }

    /// What is taken for good need not be known group by group.
    fn forget_taken(&mut self, below: u32) {
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
