//! Messages between the two halves of a connection.

use alloc::collections::BTreeSet;
use alloc::string::String;

use longhaul_engine::Closed;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_units::{Cause, Extent, ObjectId, PacketNumber};
use longhaul_wire::{CloseCode, ReceiverBounds};

use crate::paths::MoveAsked;

/// An order of the shared half to a lane, given once.
#[derive(Clone, Debug)]
pub enum Order<O> {
    /// Send this group, or this part of one. It must not overlap bytes in flight to the peer, unless
    /// it is the whole of the same bytes again: a repair, which waits until those have arrived.
    Offer {
        /// Which bytes of the object.
        extent: Extent,
        /// They are at the start of this buffer.
        bytes: O,
    },
    /// Nothing of this object is wanted any more: what was not sent stays here. Nothing of it is offered
    /// behind this order.
    Withdraw(ObjectId),
    /// At a server: ask the client to move a lane, which may be another one.
    AskToMove(MoveAsked),
    /// Say goodbye and end.
    Close(CloseCode, String),
}

/// A notice of the shared half to every lane about groups that are withdrawn, repeated or no longer
/// needed. Lanes take notices in their order, between receiving and placing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The group did not verify: what comes of it is no repetition. Sent to the lanes before the peer is
    /// asked for it.
    ReceiveAgain(ObjectId, u32),
    /// The group that was to be received again has come, perhaps on another lane: what comes of it is a
    /// repetition, and what has come here is of no use.
    Taken(ObjectId, u32),
    /// The files of the object failed: what has come here is of no use, and the rest may never come.
    Unneeded(ObjectId),
}

/// State of the shared half that every lane reads. Lanes may see it late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Object bytes that this end takes in all. Never shrinks.
    pub credit: u64,
    /// Bytes of new credit that are worth a report to a peer that may wait for them; less of it goes with
    /// the next report.
    pub credit_step: u64,
    /// Bottlenecks of this end in receiving.
    pub bounds: ReceiverBounds,
    /// Everything that may be sent now was offered: a round of repair may end.
    pub drained: bool,
    /// Groups that are of no use any more when they come.
    pub over: Over,
}

/// Groups that were taken for good, or that nobody needs: what still comes of them is of no use. Never
/// shrinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Over {
    /// Of a copy: objects below this number.
    pub objects: u32,
    /// Of a pipe: groups below this number, of any object.
    pub groups: u32,
}

/// A step of new credit ([`Standing::credit_step`]) for sinks that promise several times as much.
pub const CREDIT_STEP: u64 = 8 * GROUP_SIZE;

/// News of a lane for the shared half.
#[derive(Debug, PartialEq, Eq)]
pub enum News<I> {
    /// The peer's address is proven: the lane may carry data.
    Validated,
    /// Every byte that was offered so is at the peer, or some of what was withdrawn.
    Delivered(Extent),
    /// Of a group that was withdrawn nothing was sent, and nothing will be.
    Withdrawn(Extent),
    /// A group arrived whole.
    Arrived(WholeGroup<I>),
    /// Memory of a group that came on another lane, or that nobody needs: it is of no use here, and still
    /// counts as taken.
    GivenUp(GivenUp<I>),
    /// The server asks that a lane moves.
    MoveAsked(MoveAsked),
    /// A packet is taken as lost; only where the lane was asked to report it.
    Lost(PacketNumber, Cause),
    /// UDP does not fit the path that the lane is on, for this reason: [`Paths::leave_out`] says what is to
    /// become of it.
    ///
    /// [`Paths::leave_out`]: crate::Paths::leave_out
    FitsNot(String),
    /// The lane is closed.
    Closed(Closed),
}

/// Groups that are to be received again.
#[derive(Clone, Debug, Default)]
pub struct Repairs(BTreeSet<(ObjectId, u32)>);

impl Repairs {
    /// The group did not verify: the notice for every lane.
    pub fn ask(&mut self, object: ObjectId, group: u32) -> Repair {
        self.0.insert((object, group));
        Repair::ReceiveAgain(object, group)
    }

    /// The group came whole, and is taken: the notice for every lane, if they need one.
    pub fn take(&mut self, object: ObjectId, group: u32) -> Option<Repair> {
        self.0.remove(&(object, group)).then_some(Repair::Taken(object, group))
    }

    /// Nothing of the object is awaited any more.
    pub fn forget(&mut self, object: ObjectId) {
        self.0.retain(|(other, _)| *other != object);
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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

/// A group of which a lane had a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp<B> {
    /// Its object.
    pub object: ObjectId,
    /// Its number.
    pub group: u32,
    /// Its memory.
    pub buffer: B,
}
