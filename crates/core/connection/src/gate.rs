//! What lets data out to the lanes, and how long what held it up.

use longhaul_units::{Duration, Instant};

use crate::{Dealing, Stage, Stages};

/// The lanes of a connection, as whoever deals to them sees them. What they say may be out of date.
pub trait Lanes {
    /// Object bytes that wait to be sent there.
    fn backlog(&self, lane: usize) -> u64;
    /// How long it has had nothing to send, in all ([`Hunger`]).
    fn hungry(&self, lane: usize) -> Duration;
}

/// How long a lane has had nothing to send.
#[derive(Clone, Copy, Debug)]
pub struct Hunger {
    since: Option<Instant>,
    before: Duration,
}

impl Hunger {
    /// Of a lane that has nothing yet.
    pub fn new(now: Instant) -> Self {
        Self { since: Some(now), before: Duration::ZERO }
    }

    /// Whether the lane has nothing to send from `now` on.
    pub fn set(&mut self, now: Instant, hungry: bool) {
        self.before = self.lasted(now);
        self.since = hungry.then_some(now);
    }

    /// In all, up to `now`.
    pub fn lasted(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

/// What becomes of data that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing is dealt: nobody knows yet where it goes.
    Held,
    /// It waits in the lanes for a circuit to begin.
    Awaited,
    /// It leaves.
    Open,
}

/// What lets data out: the lanes that carry it, and the sink's credit.
#[derive(Debug)]
pub struct Gate {
    dealing: Dealing,
    /// Bytes that the sink takes in all.
    credit: u64,
    outlook: Outlook,
    /// Whoever looked last found the lanes full, or all memory under way.
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

    /// The sink promised room for so many object bytes in all. Whether that is more than before.
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

    /// Whether nothing is dealt yet.
    pub fn is_held(&self) -> bool {
        self.outlook == Outlook::Held
    }

    /// What becomes of data from now on.
    pub fn set_outlook(&mut self, outlook: Outlook) {
        self.outlook = outlook;
    }

    /// Whether nothing may leave before a circuit is booked or begins.
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

    /// Whether somebody waits for the lanes to send, or for memory: to be asked again once
    /// [`Dealing::has_room`].
    pub fn wants_room(&self) -> bool {
        self.wants_room
    }

    pub(crate) fn set_wants_room(&mut self, wants: bool) {
        self.wants_room = wants;
    }

    /// How long the source was at each stage.
    pub fn stages(&mut self, now: Instant, lanes: &impl Lanes) -> Stages {
        self.stages.update(now, self.hungry(lanes));
        self.stages
    }

    pub(crate) fn credit(&self) -> u64 {
        self.credit
    }

    pub(crate) fn enter(&mut self, now: Instant, stage: Stage, lanes: &impl Lanes) {
        self.stages.enter(now, stage, self.hungry(lanes));
    }

    pub(crate) fn next_lane(&self, lanes: &impl Lanes) -> usize {
        self.dealing.next(|lane| lanes.backlog(lane))
    }

    pub(crate) fn is_full(&self, lanes: &impl Lanes) -> bool {
        self.dealing.is_full(|lane| lanes.backlog(lane))
    }

    /// How long a lane has had nothing to send: the mean of those that carry data.
    fn hungry(&self, lanes: &impl Lanes) -> Duration {
        let carrying = self.dealing.lanes();
        let count = u32::try_from(carrying.len()).unwrap_or(u32::MAX).max(1);
        carrying.map(|lane| lanes.hungry(lane)).sum::<Duration>() / count
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

        fn hungry(&self, _: usize) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn hunger_counts_while_it_lasts() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut hunger = Hunger::new(at(10));
        assert_eq!(hunger.lasted(at(30)), Duration::from_millis(20));
        hunger.set(at(40), false);
        hunger.set(at(90), true);
        hunger.set(at(95), true);
        assert_eq!(hunger.lasted(at(100)), Duration::from_millis(40));
    }

    #[test]
    fn credit_that_comes_late_takes_nothing_back() {
        let mut gate = Gate::new(Instant::ZERO, 1);
        assert!(gate.handle_credit(9) && !gate.handle_credit(9) && !gate.handle_credit(3));
        assert_eq!(gate.credit(), 9);
    }
}
