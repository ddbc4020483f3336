//! The mailboxes of a connection's lanes, as whoever has data or messages for them sees them.

use std::sync::Arc;

use longhaul_connection::{Lanes, Order, Repair};
use longhaul_units::{Duration, Extent};

use crate::buffer::Buffer;
use crate::carrier::{Command, Mailbox};

/// One for each lane, by number.
pub(crate) struct Mailboxes(Vec<Arc<Mailbox>>);

impl Mailboxes {
    pub fn new(boxes: Vec<Arc<Mailbox>>) -> Self {
        Self(boxes)
    }

    /// How many there are.
    pub fn count(&self) -> u16 {
        u16::try_from(self.0.len()).unwrap_or(u16::MAX)
    }

    /// What each lane has to send.
    pub fn backlogs(&self) -> impl Fn(usize) -> u64 {
        |lane| self.0[lane].backlog()
    }

    /// Gives `bytes` to a lane.
    pub fn offer(&self, lane: usize, extent: Extent, bytes: Arc<Buffer>) {
        self.0[lane].post(Command::Order(Order::Offer { extent, bytes }));
    }

    /// Passes a repair on to all lanes.
    pub fn post_repair(&self, repair: Repair) {
        self.0.iter().for_each(|mailbox| mailbox.post_repair(repair));
    }

    /// There is something to tell the peer: the first lane carries messages.
    pub fn wake_messages(&self) {
        if let Some(first) = self.0.first() {
            first.wake();
        }
    }

    /// There is something to know for all lanes.
    pub fn wake_all(&self) {
        self.0.iter().for_each(|mailbox| mailbox.wake());
    }
}

impl Lanes for Mailboxes {
    fn backlog(&self, lane: usize) -> u64 {
        self.0[lane].backlog()
    }

    fn hungry(&self, lane: usize) -> Duration {
        self.0[lane].hungry()
    }
}
