//! Dealing groups and pieces to the lanes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_connection::{Dealing, Order};
use longhaul_units::{Duration, Extent};

use crate::buffer::{Buffer, lock};
use crate::carrier::{Command, Mailbox, wake_messages};

/// The lanes of a connection, as whoever has data for them sees them.
pub(crate) struct Dealer {
    mailboxes: Vec<Arc<Mailbox>>,
    dealing: Mutex<Dealing>,
    /// A circuit is to begin before anything leaves them.
    awaits_circuit: AtomicBool,
}

impl Dealer {
    /// Deals to all of `mailboxes`.
    pub fn new(mailboxes: Vec<Arc<Mailbox>>) -> Self {
        let lanes = u16::try_from(mailboxes.len()).unwrap_or(u16::MAX);
        let dealing = Mutex::new(Dealing::to_all(lanes));
        Self { mailboxes, dealing, awaits_circuit: AtomicBool::new(false) }
    }

    /// Nothing is to be dealt before [`Self::deal_to`].
    pub fn hold(&self) {
        lock(&self.dealing).hold();
    }

    pub fn is_held(&self) -> bool {
        lock(&self.dealing).is_held()
    }

    /// Whether what is dealt waits for the begin of a circuit.
    pub fn set_awaits_circuit(&self, awaits: bool) {
        self.awaits_circuit.store(awaits, Ordering::Relaxed);
    }

    /// Whether nothing may leave before a circuit is booked or begins.
    pub fn awaits_circuit(&self) -> bool {
        self.is_held() || self.awaits_circuit.load(Ordering::Relaxed)
    }

    /// Deals to these lanes only. See [`Dealing::deal_to`].
    pub fn deal_to(&self, lanes: Range<u16>) {
        lock(&self.dealing).deal_to(lanes);
    }

    /// Gives `bytes` to the lane that has least to send.
    pub fn deal(&self, extent: Extent, bytes: Arc<Buffer>) {
        let lane = lock(&self.dealing).next(|lane| self.backlog_of(lane));
        self.mailboxes[lane].post(Command::Order(Order::Offer { extent, bytes }));
    }

    /// Bytes that the lanes that carry data have not sent yet.
    pub fn backlog(&self) -> u64 {
        lock(&self.dealing).waiting(|lane| self.backlog_of(lane))
    }

    /// Whether these lanes have enough for now.
    pub fn is_full(&self) -> bool {
        lock(&self.dealing).is_full(|lane| self.backlog_of(lane))
    }

    /// Whether they have sent so much of that that more is worth a wake-up.
    pub fn has_room(&self) -> bool {
        lock(&self.dealing).has_room(|lane| self.backlog_of(lane))
    }

    fn backlog_of(&self, lane: usize) -> u64 {
        self.mailboxes[lane].backlog()
    }

    /// How long a lane has had nothing to send: the mean of those that carry data.
    pub fn hungry(&self) -> Duration {
        let lanes = &self.mailboxes[lock(&self.dealing).lanes()];
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
