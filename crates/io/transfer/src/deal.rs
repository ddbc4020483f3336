//! Dealing groups and pieces to the lanes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_connection::Order;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_units::{Duration, Extent};

use crate::buffer::{Buffer, lock};
use crate::carrier::{Command, Mailbox, wake_messages};

/// The lanes of a connection, as whoever has data for them sees them.
pub(crate) struct Dealer {
    mailboxes: Vec<Arc<Mailbox>>,
    /// Those that carry data.
    lanes: Mutex<Range<usize>>,
    /// None does yet.
    held: AtomicBool,
    /// A circuit is to begin before anything leaves them.
    awaits_circuit: AtomicBool,
}

impl Dealer {
    /// Deals to all of `mailboxes`.
    pub fn new(mailboxes: Vec<Arc<Mailbox>>) -> Self {
        let lanes = Mutex::new(0..mailboxes.len());
        let (held, awaits_circuit) = Default::default();
        Self { mailboxes, lanes, held, awaits_circuit }
    }

    /// Nothing is to be dealt before [`Self::deal_to`].
    pub fn hold(&self) {
        self.held.store(true, Ordering::Relaxed);
    }

    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether what is dealt waits for the begin of a circuit.
    pub fn set_awaits_circuit(&self, awaits: bool) {
        self.awaits_circuit.store(awaits, Ordering::Relaxed);
    }

    /// Whether nothing may leave before a circuit is booked or begins.
    pub fn awaits_circuit(&self) -> bool {
        self.is_held() || self.awaits_circuit.load(Ordering::Relaxed)
    }

    /// Deals to these lanes only.
    ///
    /// # Panics
    /// If there is none, or one of them does not exist: what is dealt there would be lost.
    pub fn deal_to(&self, lanes: Range<u16>) {
        let lanes = usize::from(lanes.start)..usize::from(lanes.end);
        assert!(!lanes.is_empty() && lanes.end <= self.mailboxes.len(), "{lanes:?}");
        *lock(&self.lanes) = lanes;
        self.held.store(false, Ordering::Relaxed);
    }

    /// Gives `bytes` to the lane that has least to send.
    pub fn deal(&self, extent: Extent, bytes: Arc<Buffer>) {
        let lanes = lock(&self.lanes).clone();
        let least = self.mailboxes[lanes].iter().min_by_key(|mailbox| mailbox.backlog());
        let least = least.expect("there is a lane to deal to");
        least.post(Command::Order(Order::Offer { extent, bytes }));
    }

    /// Bytes that the lanes that carry data have not sent yet.
    pub fn backlog(&self) -> u64 {
        self.waiting().0
    }

    /// Whether these lanes have enough for now.
    pub fn is_full(&self) -> bool {
        let (backlog, lanes) = self.waiting();
        backlog >= LANES_FULL * lanes
    }

    /// Whether they have sent so much of that that more is worth a wake-up.
    pub fn has_room(&self) -> bool {
        let (backlog, lanes) = self.waiting();
        backlog < LANES_FULL / 2 * lanes
    }

    /// Their backlog, and how many they are. What lanes still have that carried data before keeps
    /// nobody from dealing.
    fn waiting(&self) -> (u64, u64) {
        let lanes = &self.mailboxes[lock(&self.lanes).clone()];
        (lanes.iter().map(|mailbox| mailbox.backlog()).sum(), lanes.len() as u64)
    }

    /// How long a lane has had nothing to send: the mean of those that carry data.
    pub fn hungry(&self) -> Duration {
        let lanes = lock(&self.lanes).clone();
        let lanes = &self.mailboxes[lanes];
        let all = lanes.iter().map(|mailbox| mailbox.hungry()).sum::<Duration>();
        all / u32::try_from(lanes.len()).unwrap_or(u32::MAX).max(1)
    }

    /// See [`wake_messages`].
    pub fn wake_messages(&self) {
        wake_messages(&self.mailboxes);
    }

    /// No lane gets more for now.
    pub fn wake_all(&self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.wake());
    }
}

/// Bytes that wait in a lane before dealing pauses: enough for the time that reading and hashing the
/// next groups take, little enough to be in the cache still.
const LANES_FULL: u64 = 4 * GROUP_SIZE;
