//! Model of what the path carries: section 5.5 of the draft.

use longhaul_units::{Duration, Instant, Rate};

use super::samples::RateSample;
use crate::feedback::Feedback;
use crate::filter::MaxFilter;

/// Bandwidth and volume in flight, for the long and for the short term.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    /// Best rate of the present cycle, and of the one before (MaxBwFilter).
    cycles: (Rate, Rate),
    /// Bounds from losses since the last probe (bw_shortterm, inflight_shortterm).
    short: Option<Short>,
    /// The most in flight that brought no more loss than is borne (inflight_longterm).
    pub(super) longterm: Option<u64>,
    /// Best of the present round (bw_latest, inflight_latest).
    latest: (Rate, u64),
    /// Bytes that were lost, or marked, in the present round.
    lost: u64,
    lost_packets: u64,
    acked_packets: u64,
    extra: ExtraAcked,
}

#[derive(Clone, Copy, Debug)]
struct Short {
    rate: Rate,
    in_flight: u64,
}

/// By how much reports run ahead of the bandwidth.
#[derive(Clone, Copy, Debug)]
struct ExtraAcked {
    since: Instant,
    delivered: u64,
    most: MaxFilter,
}

impl Network {
    pub(super) fn new(now: Instant, known: Rate) -> Self {
        Self {
            cycles: (known, Rate::ZERO),
            short: None,
            longterm: None,
            latest: (Rate::ZERO, 0),
            lost: 0,
            lost_packets: 0,
            acked_packets: 0,
            extra: ExtraAcked { since: now, delivered: 0, most: MaxFilter::new() },
        }
    }

    pub(super) fn max_bandwidth(&self) -> Rate {
        self.cycles.0.max(self.cycles.1)
    }

    pub(super) fn bandwidth(&self) -> Rate {
        let best = self.max_bandwidth();
        self.short.map_or(best, |short| best.min(short.rate))
    }

    /// The short-term bound of what may be in flight.
    pub(super) fn shortterm(&self) -> Option<u64> {
        self.short.map(|short| short.in_flight)
    }

    pub(super) fn on_sample(&mut self, sample: &RateSample) {
        if sample.rate >= self.max_bandwidth() || !sample.limited {
            self.cycles.0 = self.cycles.0.max(sample.rate);
        }
        self.latest.0 = self.latest.0.max(sample.rate);
        self.latest.1 = self.latest.1.max(sample.delivered);
    }

    /// Takes in what became of packets of so many bytes. A mark is a loss that was spared.
    pub(super) fn on_fate(&mut self, feedback: &Feedback, packet: u64) {
        let lost = feedback.lost.network() + feedback.marked_packets;
        self.lost = self.lost.saturating_add(lost * packet);
        self.lost_packets = self.lost_packets.saturating_add(lost);
        self.acked_packets = self.acked_packets.saturating_add(feedback.acked_packets);
    }

    /// Bytes and packets that the present round lost.
    pub(super) fn lost(&self) -> (u64, u64) {
        (self.lost, self.lost_packets)
    }

    /// Most that was delivered within a round trip of the present round.
    pub(super) fn delivered(&self) -> u64 {
        self.latest.1
    }

    /// Packets whose fate the present round showed.
    pub(super) fn settled(&self) -> u64 {
        self.acked_packets.saturating_add(self.lost_packets)
    }

    /// A round is over. More losses in it than so many, which chance explains, lower the short-term
    /// bounds, unless they were provoked.
    pub(super) fn on_round(&mut self, is_probing: bool, by_chance: u64, window: u64) {
        if self.lost_packets > by_chance && !is_probing {
            let short =
                self.short.unwrap_or(Short { rate: self.max_bandwidth(), in_flight: window });
            let in_flight = short.in_flight / BETA.1 * BETA.0;
            self.short = Some(Short {
                rate: self.latest.0.max(short.rate.scale(BETA.0 as u32, BETA.1 as u32)),
                in_flight: self.latest.1.max(in_flight),
            });
        }
        self.forget_round();
    }

    pub(super) fn forget_round(&mut self) {
        (self.latest, self.lost, self.lost_packets) = ((Rate::ZERO, 0), 0, 0);
        self.acked_packets = 0;
    }

    pub(super) fn forget_short_term(&mut self) {
        self.short = None;
    }

    /// A cycle is over: what was measured before the last is forgotten.
    pub(super) fn next_cycle(&mut self) {
        self.cycles = (Rate::ZERO, self.cycles.0.max(LEAST_RATE));
    }

    /// `acked` bytes arrived: section 5.5.9.
    pub(super) fn on_acked(&mut self, now: Instant, acked: u64, window: u64, memory: Duration) {
        let extra = &mut self.extra;
        let bandwidth = self.cycles.0.max(self.cycles.1);
        let mut expected = bandwidth.bytes_in(now - extra.since);
        if extra.delivered <= expected {
            (extra.since, extra.delivered, expected) = (now, 0, 0);
        }
        extra.delivered = extra.delivered.saturating_add(acked);
        extra.most.update(now, (extra.delivered - expected).min(window), memory);
    }

    pub(super) fn extra_acked(&self) -> u64 {
        self.extra.most.get().unwrap_or(0)
    }
}

/// Factor by which losses lower a bound.
pub(super) const BETA: (u64, u64) = (7, 10);
/// A path that delivered nothing for a whole cycle is there still.
const LEAST_RATE: Rate = Rate::from_kbps(1);

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Losses;

    fn round(network: &mut Network, mbps: u64, lost: u64, by_chance: u64) -> (Rate, Option<u64>) {
        let sample =
            RateSample { rate: Rate::from_mbps(mbps), delivered: mbps * 1_000, limited: false };
        network.on_sample(&sample);
        let lost = Losses { unknown: lost, ..Losses::default() };
        network.on_fate(&Feedback { lost, acked_packets: 90, ..Feedback::default() }, 1_500);
        network.on_round(false, by_chance, 1_000_000);
        (network.bandwidth(), network.shortterm())
    }

    #[test]
    fn losses_lower_the_short_term_to_what_still_arrived() {
        let mut network = Network::new(Instant::ZERO, Rate::ZERO);
        assert_eq!(round(&mut network, 100, 0, 0), (Rate::from_mbps(100), None));
        assert_eq!(round(&mut network, 60, 9, 10), (Rate::from_mbps(100), None), "by chance");
        assert_eq!(round(&mut network, 60, 11, 10), (Rate::from_mbps(70), Some(700_000)));
        assert_eq!(round(&mut network, 60, 1, 0), (Rate::from_mbps(60), Some(490_000)));
        network.forget_short_term();
        assert_eq!(network.bandwidth(), Rate::from_mbps(100));
    }

    #[test]
    fn the_best_of_two_cycles_counts() {
        let mut network = Network::new(Instant::ZERO, Rate::ZERO);
        round(&mut network, 100, 0, 0);
        network.next_cycle();
        round(&mut network, 40, 0, 0);
        assert_eq!(network.max_bandwidth(), Rate::from_mbps(100));
        network.next_cycle();
        assert_eq!(network.max_bandwidth(), Rate::from_mbps(40));
    }
}
