//! What the two halves of a connection tell each other.

use alloc::collections::BTreeSet;
use alloc::string::String;

use longhaul_engine::Closed;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_units::{Extent, ObjectId};
use longhaul_wire::{CloseCode, ReceiverBounds};

use crate::{MoveAsked, WholeGroup};

/// What the shared half tells a lane, once.
#[derive(Clone, Debug)]
pub enum Order<O> {
    /// Send this group, or this part of one. It must not overlap bytes on their way to the peer, unless
    /// it is the whole of the same bytes again: a repair, which waits until those have arrived.
    Offer {
        /// Which bytes of the object.
        extent: Extent,
        /// They are at the start of this buffer.
        bytes: O,
    },
    /// At a server: ask the client to move a lane, which may be another one.
    AskToMove(MoveAsked),
    /// Say goodbye and end.
    Close(CloseCode, String),
}

/// What the shared half tells every lane of a group that was found to be wrong. Taken in as it was
/// said, between receiving and placing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The group did not verify: what comes of it is no repetition. Said before the peer is asked
    /// for it.
    ReceiveAnew(ObjectId, u32),
    /// The group that was to be received anew has come, perhaps on another lane: what comes of it is a
    /// repetition, and what has come here is of no use.
    Taken(ObjectId, u32),
}

/// What the shared half says that holds until it says otherwise. Lanes may see it late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Object bytes that this end takes in all. Never shrinks.
    pub credit: u64,
    /// Bytes of new credit that are worth telling a peer that may wait for them; less of it goes with
    /// the next report.
    pub credit_step: u64,
    /// What holds this end up in receiving.
    pub bounds: ReceiverBounds,
    /// Everything that may be sent now was offered: a round of repair may end.
    pub drained: bool,
}

/// A step of new credit ([`Standing::credit_step`]) for sinks that promise several times as much.
pub const CREDIT_STEP: u64 = 8 * GROUP_SIZE;

/// What a lane tells the shared half.
#[derive(Debug, PartialEq, Eq)]
pub enum News<I> {
    /// The peer's address is proven: the lane may carry data.
    Validated,
    /// Every byte that was offered so is at the peer.
    Delivered(Extent),
    /// A group arrived whole.
    Arrived(WholeGroup<I>),
    /// Memory of a group that came on another lane: it is of no use here, and still counts as taken.
    GivenUp(I),
    /// The server asks that a lane moves.
    MoveAsked(MoveAsked),
    /// The lane is closed.
    Closed(Closed),
}

/// Groups that are to be received anew.
#[derive(Clone, Debug, Default)]
pub struct Repairs(BTreeSet<(ObjectId, u32)>);

impl Repairs {
    /// The group did not verify: what every lane is to know.
    pub fn ask(&mut self, object: ObjectId, group: u32) -> Repair {
        self.0.insert((object, group));
        Repair::ReceiveAnew(object, group)
    }

    /// The group came whole, and is taken: what every lane is to know, if it is anything.
    pub fn take(&mut self, object: ObjectId, group: u32) -> Option<Repair> {
        self.0.remove(&(object, group)).then_some(Repair::Taken(object, group))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
