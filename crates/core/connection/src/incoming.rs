//! Incoming groups: the places where received bytes go.

use crate::half_messages::{GivenUp, WholeGroup};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::{GroupAssembly, ObjectTable};
use longhaul_units::{ObjectId, RangeSet};

use crate::half_messages::{Over, Repair};

/// Groups that a lane is receiving into buffers of type `B`.
///
/// [`Self::slot`] may be asked for packets of anybody: it changes nothing. A group is begun, and its
/// memory taken, by [`Self::begin`] only, once bytes of it have proven to be the peer's.
#[derive(Debug)]
pub struct Incoming<B> {
    /// The group that bytes came for last: mostly that of the next ones, too.
    current: Option<Arriving<B>>,
    open: BTreeMap<(ObjectId, u32), Arriving<B>>,
    /// Groups handed on that are not [`Over`]; what still comes of them is a repetition.
    done: BTreeMap<ObjectId, RangeSet>,
    over: Over,
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
}

/// The place for a group of which the first authentic bytes have come.
#[derive(Debug, PartialEq, Eq)]
pub enum Begun<B> {
    /// Memory.
    Memory {
        /// At least `len` bytes.
        buffer: B,
        /// Bytes of the group.
        len: u32,
    },
    /// None: its object is over, so these bytes are a repetition, or of no use any more.
    Unneeded,
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
    /// The breach of the protocol, if the peer broke it (docs/protocol.md 7.2).
    pub fn violation(self) -> Option<&'static str> {
        match self {
            Self::NoMemory => None,
            Self::Unasked => Some("bytes that were not asked for"),
            Self::BeyondCredit => Some("bytes beyond the credit"),
        }
    }
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
    /// Their number.
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
            over: Over::default(),
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
                None if is_done(&self.done, self.over, key) => return Slot::Repeated,
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

    /// Begins the group of `target`, whose bytes are authentic, if need be. Whether they have a place:
    /// otherwise they are a repetition, or of no use.
    ///
    /// # Errors
    /// See [`Unplaceable`].
    pub fn begin<G: Groups<B> + ?Sized>(
        &mut self,
        groups: &mut G,
        target: &GroupPart,
    ) -> Result<bool, Unplaceable> {
        if self.make_current(target.key()) {
            let len = self.current.as_ref().map_or(0, |current| current.assembly.len());
            return if target.is_within(len) { Ok(true) } else { Err(Unplaceable::Unasked) };
        }
        if is_done(&self.done, self.over, target.key()) {
            return Ok(false);
        }
        let Begun::Memory { buffer, len } = groups.begin(target)? else { return Ok(false) };
        let mut assembly = self.spare.pop().unwrap_or_default();
        assembly.start(len);
        self.set_current(Arriving { key: target.key(), assembly, buffer });
        Ok(true)
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
        self.note_done(target.object, target.group);
        Some(WholeGroup { object: target.object, group: target.group, len, buffer })
    }

    /// Does what the shared half says of groups that do not simply arrive. Gives back what is of no use
    /// any more.
    #[must_use]
    pub fn handle_repair(&mut self, repair: Repair) -> Vec<GivenUp<B>> {
        match repair {
            Repair::ReceiveAgain(object, group) => {
                self.forget(object, group);
                Vec::new()
            }
            Repair::Taken(object, group) => {
                self.note_done(object, group);
                self.give_up((object, group)).into_iter().collect()
            }
            Repair::Unneeded(object) => {
                self.done.remove(&object);
                let current = self.current.iter().map(|arriving| arriving.key);
                let others = self.open.range((object, 0)..=(object, u32::MAX)).map(|(key, _)| *key);
                let keys: Vec<_> = current.filter(|key| key.0 == object).chain(others).collect();
                keys.into_iter().filter_map(|key| self.give_up(key)).collect()
            }
        }
    }

    fn forget(&mut self, object: ObjectId, group: u32) {
        if let Some(groups) = self.done.get_mut(&object) {
            groups.remove(u64::from(group)..u64::from(group) + 1);
        }
    }

    fn give_up(&mut self, key: (ObjectId, u32)) -> Option<GivenUp<B>> {
        if !self.make_current(key) {
            return None;
        }
        let Arriving { assembly, buffer, .. } = self.current.take()?;
        self.spare.push(assembly);
        let (object, group) = key;
        Some(GivenUp { object, group, buffer })
    }

    /// Goes by what the shared half says is over: that need not be known here, group by group.
    pub fn handle_over(&mut self, over: Over) {
        if over.objects > self.over.objects {
            self.over.objects = over.objects;
            self.done = self.done.split_off(&ObjectId(over.objects));
        }
        if over.groups > self.over.groups {
            self.over.groups = over.groups;
            self.done.retain(|_, groups| {
                groups.remove_below(over.groups.into());
                !groups.is_empty()
            });
        }
    }

    /// Objects of which groups are remembered that were handed on.
    pub fn remembered(&self) -> usize {
        self.done.len()
    }

    fn note_done(&mut self, object: ObjectId, group: u32) {
        if object.0 >= self.over.objects {
            self.done.entry(object).or_default().insert_one(group.into());
        }
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
}

/// True if the group was handed on. One of an object that is over may be another's that never came, so
/// the owner of the objects is asked.
fn is_done(
    done: &BTreeMap<ObjectId, RangeSet>,
    over: Over,
    (object, group): (ObjectId, u32),
) -> bool {
    group < over.groups || done.get(&object).is_some_and(|groups| groups.contains(group.into()))
}
