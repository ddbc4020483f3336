//! Probing for bandwidth: section 5.3.3 of the draft.

use longhaul_units::{Duration, Instant};

use super::network::BETA;

/// Time when the next probe is due, and what the last one showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycle {
    /// Time when the cycle began.
    begun: Instant,
    wait: Duration,
    rounds: u64,
    pub(super) phase: Phase,
    /// Relation of reports to a probe.
    acks: Acks,
    /// Losses are still those of a probe (bw_probe_samples).
    judged: bool,
    /// The last probe lost too much (prev_probe_too_high).
    too_high: bool,
    /// The last probe was cut short by that (prev_probe_precautionary).
    precautionary: bool,
    /// Rounds in which inflight_longterm was raised.
    raised: u32,
}

/// Phases of a cycle, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Less than arrives, to empty the queue.
    Down,
    /// Sends at the rate that arrives.
    Cruise,
    /// A round at the whole bandwidth, without short-term bounds.
    Refill,
    /// A quarter more.
    Up,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Acks {
    Starting,
    Feedback,
    Stopping,
    Refilling,
}

impl Cycle {
    /// In a phase without a probe.
    pub(super) fn new(now: Instant, phase: Phase, random: u32) -> Self {
        let mut cycle = Self {
            begun: now,
            wait: Duration::ZERO,
            rounds: 0,
            phase,
            acks: Acks::Stopping,
            judged: false,
            too_high: false,
            precautionary: false,
            raised: 0,
        };
        cycle.pick_wait(now, random);
        cycle
    }

    /// Two to three seconds, or as many round trips as Reno would take to grow by a probe.
    fn pick_wait(&mut self, now: Instant, random: u32) {
        self.begun = now;
        self.rounds = u64::from(random & 1);
        self.wait = LEAST_WAIT + Duration::from_micros(u64::from(random >> 1) % MORE_WAIT_US);
    }

    pub(super) fn is_due(&self, now: Instant, target_packets: u64) -> bool {
        now - self.begun > self.wait || self.rounds >= target_packets.min(MOST_ROUNDS)
    }

    pub(super) fn down(&mut self, now: Instant, random: u32) {
        self.pick_wait(now, random);
        (self.phase, self.acks) = (Phase::Down, Acks::Stopping);
    }

    pub(super) fn refill(&mut self) {
        (self.phase, self.acks) = (Phase::Refill, Acks::Refilling);
        self.precautionary = false;
        self.raised = 0;
    }

    pub(super) fn up(&mut self) {
        (self.phase, self.acks, self.judged) = (Phase::Up, Acks::Starting, true);
    }

    /// The least round trip is looked for: no probe goes on.
    pub(super) fn interrupt(&mut self) {
        self.acks = Acks::Stopping;
    }

    /// Returns whether short-term bounds do not apply.
    pub(super) fn is_probing(&self) -> bool {
        matches!(self.phase, Phase::Refill | Phase::Up)
    }

    pub(super) fn is_judged(&self) -> bool {
        self.judged
    }

    /// Too much was lost: enough is known.
    pub(super) fn end_judgement(&mut self) {
        (self.judged, self.too_high) = (false, true);
    }

    /// A probe ends that found its end without losing too much, so far.
    pub(super) fn was_borne(&mut self) {
        self.too_high = false;
    }

    /// As much is in flight as when the last probe lost too much: whether this one is to end at once,
    /// rather than to stay there for a round trip (section 5.3.3.6).
    pub(super) fn is_cut_short(&mut self) -> bool {
        self.precautionary = self.too_high;
        core::mem::take(&mut self.too_high)
    }

    /// Returns whether the packets of a probe that was cut short are known, and nothing speaks against the next
    /// one, which may stay.
    pub(super) fn goes_on(&self) -> bool {
        self.precautionary && !self.too_high
    }

    /// A round is over; whether a cycle of bandwidth samples is.
    pub(super) fn on_round(&mut self) -> bool {
        self.rounds += 1;
        match self.acks {
            Acks::Starting => self.acks = Acks::Feedback,
            Acks::Stopping => {
                // Reports of what was sent in the probe have come.
                (self.acks, self.judged) = (Acks::Refilling, false);
                return true;
            }
            Acks::Feedback | Acks::Refilling => {}
        }
        false
    }

    /// By how much `acked` bytes raise what may be in flight: a packet a round trip, then two, four
    /// (sections 5.3.3.5 and 5.3.3.9).
    pub(super) fn raise(&mut self, acked: u64, window: u64, packet: u64, round: bool) -> u64 {
        let slope = u128::from(packet << self.raised.min(MOST_RAISED));
        let raise = u128::from(acked) * slope / u128::from(window.max(packet));
        if round {
            self.raised += 1;
        }
        u64::try_from(raise).unwrap_or(u64::MAX)
    }

    /// Returns the bytes that may be in flight behind a probe that lost too much.
    pub(super) fn after_loss(tried: u64, target: u64) -> u64 {
        tried.max(target / BETA.1 * BETA.0)
    }
}

const LEAST_WAIT: Duration = Duration::from_secs(2);
const MORE_WAIT_US: u64 = 1_000_000;
const MOST_ROUNDS: u64 = 63;
/// The largest packet times so much is a window of four terabytes.
const MOST_RAISED: u32 = 26;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_comes_after_seconds_or_so_many_rounds_as_packets() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut cycle = Cycle::new(at(0), Phase::Cruise, 0);
        assert!(!cycle.is_due(at(2_000), 500) && cycle.is_due(at(2_001), 500));
        for _ in 0..20 {
            cycle.on_round();
        }
        assert!(cycle.is_due(at(900), 20) && !cycle.is_due(at(900), 21));
        cycle.down(at(3_000), u32::MAX);
        assert!(!cycle.is_due(at(5_000), 20) && cycle.is_due(at(6_001), 20));
    }

    #[test]
    fn behind_a_probe_that_lost_too_much_the_next_is_short_and_the_one_after_follows_at_once() {
        let mut cycle = Cycle::new(Instant::ZERO, Phase::Refill, 0);
        cycle.up();
        assert!(!cycle.is_cut_short() && !cycle.goes_on(), "nothing was lost before");
        cycle.end_judgement();
        cycle.down(Instant::ZERO, 0);
        assert!(!cycle.goes_on());
        cycle.refill();
        cycle.up();
        assert!(cycle.is_cut_short());
        cycle.down(Instant::ZERO, 0);
        assert!(cycle.on_round() && cycle.goes_on(), "what it sent is known");
        cycle.refill();
        cycle.up();
        assert!(!cycle.is_cut_short() && !cycle.goes_on(), "this one may stay");
        // Losses of a short one tell against it.
        cycle.end_judgement();
        cycle.refill();
        cycle.up();
        assert!(cycle.is_cut_short());
        cycle.down(Instant::ZERO, 0);
        cycle.end_judgement();
        assert!(cycle.on_round() && !cycle.goes_on());
    }

    /// A round at the largest window raises it by a packet, then by two, by four.
    #[test]
    fn what_may_be_in_flight_is_raised_faster_and_faster() {
        let (window, packet) = (1_000_000, 1_500);
        let mut cycle = Cycle::new(Instant::ZERO, Phase::Refill, 0);
        cycle.up();
        let raised = [0; 4].map(|_| cycle.raise(window, window, packet, true));
        assert_eq!(raised, [1, 2, 4, 8].map(|packets| packets * packet));
    }
}
