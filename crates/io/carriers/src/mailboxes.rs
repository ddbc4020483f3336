//! The mailboxes of a connection's lanes, for the threads that have data or messages for them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_connection::{Dealing, Gate, Lanes, Order, Repair};
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, Extent, ObjectId};

use crate::buffer::Buffer;
use crate::upper_layer::{Command, Mailbox};

/// One for each lane, by number.
pub struct Mailboxes(Vec<Arc<Mailbox>>);

impl Mailboxes {
    /// Those of all lanes, in order.
    pub fn new(boxes: Vec<Arc<Mailbox>>) -> Self {
        Self(boxes)
    }

    /// Their number.
    pub fn count(&self) -> u16 {
        u16::try_from(self.0.len()).unwrap_or(u16::MAX)
    }

    /// Object bytes that wait to be sent in all of them.
    pub fn waiting(&self) -> u64 {
        self.0.iter().map(|mailbox| mailbox.backlog()).sum()
    }

    /// Gives `bytes` to a lane.
    pub fn offer(&self, lane: usize, extent: Extent, bytes: Arc<Buffer>) {
        self.0[lane].post(Command::Order(Order::Offer { extent, bytes }));
    }

    /// Tells all lanes to send no more of the object.
    pub fn withdraw(&self, object: ObjectId) {
        self.0.iter().for_each(|mailbox| mailbox.post(Command::Order(Order::Withdraw(object))));
    }

    /// Passes a repair on to all lanes.
    pub fn post_repair(&self, repair: Repair) {
        self.0.iter().for_each(|mailbox| mailbox.post_repair(repair));
    }

    /// There is a message for the peer: the first lane carries messages.
    pub fn wake_messages(&self) {
        if let Some(first) = self.0.first() {
            first.wake();
        }
    }

    /// Commands the first lane, which carries messages.
    pub fn post_first(&self, command: Command) {
        if let Some(first) = self.0.first() {
            first.post(command);
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

    fn idle_time(&self, lane: usize) -> Duration {
        self.0[lane].idle_time()
    }
}

/// A gate as it was last, for lanes, which ask again and again and do not wait for its lock.
#[derive(Default)]
pub struct GateSeen {
    credit: AtomicU64,
    wants_room: AtomicBool,
    dealing: Mutex<Option<Dealing>>,
}

impl GateSeen {
    /// It may have changed.
    pub fn note(&self, gate: &Gate) {
        self.wants_room.store(gate.wants_room(), Ordering::Relaxed);
        let mut dealing = lock(&self.dealing);
        if dealing.as_ref() != Some(gate.dealing()) {
            *dealing = Some(gate.dealing().clone());
        }
    }

    /// True if so much credit is more than before.
    pub fn is_more(&self, credit: u64) -> bool {
        self.credit.fetch_max(credit, Ordering::Relaxed) < credit
    }

    /// True if a thread waits for room in `lanes`, and there is some.
    pub fn has_room(&self, lanes: &Mailboxes) -> bool {
        self.wants_room.load(Ordering::Relaxed)
            && lock(&self.dealing)
                .as_ref()
                .is_some_and(|dealing| dealing.has_room(|lane| lanes.backlog(lane)))
    }

    /// The caller handles that next.
    pub fn take_room(&self) {
        self.wants_room.store(false, Ordering::Relaxed);
    }
}
