//! Admits data to lanes (credit, circuit), and counts how long each cause blocked it.

use longhaul_units::{Duration, Instant};

use crate::dealing::Dealing;
use crate::diagnosis::{Stage, Stages};

/// The lanes of a connection, as the dealer sees them. Their figures may be out of date.
pub trait Lanes {
    /// Object bytes that wait to be sent there.
    fn backlog(&self, lane: usize) -> u64;
    /// Total time in which it has had nothing to send ([`IdleTime`]).
    fn idle_time(&self, lane: usize) -> Duration;
}

/// Time in which a lane has had nothing to send.
#[derive(Clone, Copy, Debug)]
pub struct IdleTime {
    since: Option<Instant>,
    before: Duration,
}

impl IdleTime {
    /// Of a lane that has nothing yet.
    pub fn new(now: Instant) -> Self {
        Self { since: Some(now), before: Duration::ZERO }
    }

    /// From `now` on the lane has nothing to send, or has something.
    pub fn set(&mut self, now: Instant, is_idle: bool) {
        self.before = self.lasted(now);
        self.since = is_idle.then_some(now);
    }

    /// In all, up to `now`.
    pub fn lasted(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

/// The state of the gate for data that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing is dealt: nobody knows yet where it goes.
    Held,
    /// It waits in the lanes for a circuit to begin.
    Awaited,
    /// It leaves.
    Open,
}

/// Admits data to the lanes that carry it, as far as the sink's credit goes.
#[derive(Debug)]
pub struct Gate {
    dealing: Dealing,
    /// Bytes that the sink takes in all.
    credit: u64,
    outlook: Outlook,
    /// At the last look the lanes were full, or all memory was in flight.
    wants_room: bool,
    stages: Stages,
}

impl Gate {
    /// One to so many lanes.
    pub(crate) fn new(now: Instant, lanes: u16) -> Self {
        Self {
            dealing: Dealing::to_all(lanes),
            credit: 0,
            outlook: Outlook::Open,
            wants_room: false,
            stages: Stages::new(now),
        }
    }

    /// The sink promised room for so many object bytes in all. Returns true if that is more than before.
    pub fn handle_credit(&mut self, credit: u64) -> bool {
        let more = credit > self.credit;
        self.credit = self.credit.max(credit);
        more
    }

    /// A circuit is to be found: nothing is dealt before, and then to all lanes but the first, which
    /// stays with the messages. Before anything was dealt.
    pub fn hold(&mut self) {
        self.dealing = self.dealing.clone().but_first();
        self.outlook = Outlook::Held;
    }

    /// True while nothing is dealt.
    pub fn is_held(&self) -> bool {
        self.outlook == Outlook::Held
    }

    /// Sets the state for data from now on.
    pub fn set_outlook(&mut self, outlook: Outlook) {
        self.outlook = outlook;
    }

    /// True while nothing may leave before a circuit is booked or begins.
    pub fn awaits_circuit(&self) -> bool {
        self.outlook != Outlook::Open
    }

    /// Bytes that the lanes which carry data have not sent yet.
    pub fn backlog(&self, lanes: &impl Lanes) -> u64 {
        self.dealing.waiting(|lane| lanes.backlog(lane))
    }

    /// Which lanes carry data.
    pub fn dealing(&self) -> &Dealing {
        &self.dealing
    }

    /// True if the source waits for the lanes to send, or for memory: to be asked again once
    /// [`Dealing::has_room`].
    pub fn wants_room(&self) -> bool {
        self.wants_room
    }

    pub(crate) fn set_wants_room(&mut self, wants: bool) {
        self.wants_room = wants;
    }

    /// Time of the source at each stage.
    pub fn stages(&mut self, now: Instant, lanes: &impl Lanes) -> Stages {
        self.stages.update(now, self.idle_time(lanes));
        self.stages
    }

    pub(crate) fn credit(&self) -> u64 {
        self.credit
    }

    pub(crate) fn enter(&mut self, now: Instant, stage: Stage, lanes: &impl Lanes) {
        self.stages.enter(now, stage, self.idle_time(lanes));
    }

    pub(crate) fn next_lane(&self, lanes: &impl Lanes) -> usize {
        self.dealing.next(|lane| lanes.backlog(lane))
    }

    pub(crate) fn is_full(&self, lanes: &impl Lanes) -> bool {
        self.dealing.is_full(|lane| lanes.backlog(lane))
    }

    /// Time in which a lane has had nothing to send: the mean of those that carry data.
    fn idle_time(&self, lanes: &impl Lanes) -> Duration {
        let carrying = self.dealing.lanes();
        let count = u32::try_from(carrying.len()).unwrap_or(u32::MAX).max(1);
        carrying.map(|lane| lanes.idle_time(lane)).sum::<Duration>() / count
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Backlogs of lanes that have had something to send all the time.
    #[derive(Debug, Default)]
    pub(crate) struct Backlogs(pub alloc::vec::Vec<u64>);

    impl Lanes for Backlogs {
        fn backlog(&self, lane: usize) -> u64 {
            self.0[lane]
        }

        fn idle_time(&self, _: usize) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn idle_time_counts_while_it_lasts() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut idle = IdleTime::new(at(10));
        assert_eq!(idle.lasted(at(30)), Duration::from_millis(20));
        idle.set(at(40), false);
        idle.set(at(90), true);
        idle.set(at(95), true);
        assert_eq!(idle.lasted(at(100)), Duration::from_millis(40));
    }

    #[test]
    fn credit_that_comes_late_takes_nothing_back() {
        let mut gate = Gate::new(Instant::ZERO, 1);
        assert!(gate.handle_credit(9) && !gate.handle_credit(9) && !gate.handle_credit(3));
        assert_eq!(gate.credit(), 9);
    }
}
