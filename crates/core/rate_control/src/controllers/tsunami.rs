//! Profile `tsunami`: the user's rate, and slower while more is missing than the user tolerates.

use alloc::boxed::Box;

use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use super::opening::{LEAST, MOST};
use super::stepped::{FIRST_ROUND_TRIP, paced};
use crate::controller::{Context, Controller, ControllerConfig, Metrics, Pacing, Start};
use crate::feedback::Feedback;
use crate::parameters::Parameter;

/// Tsunami UDP of 2007 (`config.c`, `protocol.c` of client and server): the gap between packets is
/// three times the target's at first, grows while the receiver's smoothed *error rate* is above a
/// threshold, and else shrinks by a sixth down to the target's.
#[derive(Clone, Debug)]
struct Tsunami {
    packet: u64,
    target: Rate,
    /// Picoseconds.
    gap: u64,
    /// Thousandths of Tsunami's error rate, in which 100,000 are all.
    error: u64,
    threshold: u64,
    /// The way to the target was without a step back so far.
    starts: bool,
    since: Instant,
    acked: u64,
    lost: u64,
    pacing: Pacing,
}

impl Tsunami {
    fn new(start: &Start) -> Self {
        let target = start.rate.unwrap_or(DEFAULT_RATE).clamp(LEAST, MOST);
        let least = gap_of(target, start.packet);
        let (gap, round_trip) = match start.known {
            Some(known) => (gap_of(known.rate.clamp(LEAST, MOST), start.packet), known.round_trip),
            None => ((least * 3).min(MOST_GAP), FIRST_ROUND_TRIP),
        };
        let gap = gap.max(least);
        Self {
            packet: start.packet,
            target,
            gap,
            error: 0,
            // A share of what Tsunami multiplies by 50,000: its 100,000 are two.
            threshold: start.parameters.get("threshold") * ERROR_OF_ALL / WHOLE,
            starts: start.known.is_none(),
            since: start.now,
            acked: 0,
            lost: 0,
            pacing: paced(rate_of(gap, start.packet), u64::MAX, round_trip, start.packet),
        }
    }

    /// `ttp_update_stats` of the client, and what the server makes of it.
    fn update(&mut self) {
        let (acked, lost) = (core::mem::take(&mut self.acked), core::mem::take(&mut self.lost));
        self.error = self.error / 4 + ERROR_OF_ALL * 3 / 4 * lost / (1 + lost + acked);
        let least = gap_of(self.target, self.packet);
        let gap = match self.error > self.threshold {
            // gap x (1 + (25/24 - 1) x (1 + error - threshold) / (100,000 - threshold))
            true => {
                let above = u128::from(1_000 + self.error - self.threshold);
                let all = u128::from(24 * (MOST_ERROR - self.threshold));
                let more = u128::from(self.gap) * above / all;
                self.gap.saturating_add(more as u64)
            }
            false => self.gap / 6 * 5,
        };
        self.gap = gap.min(MOST_GAP).max(least);
        self.starts &= self.error <= self.threshold && self.gap > least;
    }
}

fn gap_of(rate: Rate, packet: u64) -> u64 {
    packet * 8 * PICOSECONDS / rate.as_bps()
}

fn rate_of(gap: u64, packet: u64) -> Rate {
    Rate::from_bps((packet * 8 * PICOSECONDS).checked_div(gap).unwrap_or(u64::MAX))
}

impl Controller for Tsunami {
    fn name(&self) -> &'static str {
        "tsunami"
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        self.acked += feedback.acked_packets;
        self.lost += feedback.lost.total();
        let packet = cx.estimates.packet();
        if packet != self.packet {
            let rate = rate_of(self.gap, self.packet);
            (self.packet, self.gap) = (packet, gap_of(rate.clamp(LEAST, MOST), packet));
        }
        if cx.now - self.since >= UPDATE {
            self.since = cx.now;
            self.update();
        }
        let rate = rate_of(self.gap, packet).min(self.target);
        self.pacing = paced(rate, u64::MAX, cx.rtt.smoothed(), packet);
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn metrics(&self) -> Metrics {
        let (state, bound) = if self.error > self.threshold {
            ("slower", Bottleneck::Network)
        } else if self.gap > gap_of(self.target, self.packet) {
            let bound = if self.starts { Bottleneck::StartUp } else { Bottleneck::Network };
            ("faster", bound)
        } else {
            ("target", Bottleneck::UserLimit)
        };
        Metrics { state, bound }
    }
}

/// Makes the controller of `tsunami`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TsunamiConfig;

impl ControllerConfig for TsunamiConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &PARAMETERS
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        Box::new(Tsunami::new(start))
    }
}

const PICOSECONDS: u64 = 1_000_000_000_000;
/// "make sure the IPD is still in range": 10 ms.
const MOST_GAP: u64 = 10_000_000_000;
/// `UPDATE_PERIOD` of the client.
const UPDATE: Duration = Duration::from_millis(350);
/// Where the profile is taken for another without a rate: `DEFAULT_TARGET_RATE`.
const DEFAULT_RATE: Rate = Rate::from_mbps(650);
/// Thousandths of the error rate where all is missing: 500 x 100 x 1.
const ERROR_OF_ALL: u64 = 50_000_000;
/// Thousandths of what Tsunami takes for the greatest error rate.
const MOST_ERROR: u64 = 100_000_000;
/// Parts per million.
const WHOLE: u64 = 1_000_000;

static PARAMETERS: [Parameter; 1] = [Parameter::ppm(
    "threshold",
    "smoothed share of packets asked for again above which it goes slower",
    // DEFAULT_ERROR_RATE: 7,500 of 50,000.
    (0, 150_000, WHOLE),
)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Known, Parameters};

    fn tsunami(mbps: u64, known: Option<Known>) -> Tsunami {
        let parameters = Parameters::of(&PARAMETERS);
        let rate = Some(Rate::from_mbps(mbps));
        Tsunami::new(&Start { now: Instant::ZERO, packet: 1_500, rate, known, parameters })
    }

    #[test]
    fn it_begins_at_a_third_and_is_at_the_target_after_seven_updates() {
        let mut tsunami = tsunami(120, None);
        assert_eq!(tsunami.pacing().rate, Rate::from_mbps(40));
        let rates = [0; 7].map(|_| {
            assert_eq!(tsunami.metrics().bound, Bottleneck::StartUp);
            tsunami.acked = 1_000;
            tsunami.update();
            rate_of(tsunami.gap, 1_500).as_bps() / 1_000_000
        });
        assert_eq!(rates, [48, 57, 69, 82, 99, 119, 120]);
        assert_eq!(tsunami.metrics().state, "target");
        assert_eq!(tsunami.metrics().bound, Bottleneck::UserLimit);
        for (acked, lost) in [(500, 500), (1_000, 0), (1_000, 0)] {
            (tsunami.acked, tsunami.lost) = (acked, lost);
            tsunami.update();
            let bound = if tsunami.gap > gap_of(tsunami.target, 1_500) {
                Bottleneck::Network
            } else {
                Bottleneck::UserLimit
            };
            assert_eq!(tsunami.metrics().bound, bound);
        }
    }

    #[test]
    fn the_gap_grows_by_tsunamis_arithmetic() {
        let mut tsunami = tsunami(120, None);
        (tsunami.acked, tsunami.lost) = (499, 500);
        tsunami.update();
        // 0.75 x 500 x 100 x 500 / 1000
        assert_eq!(tsunami.error, 18_750_000);
        // 300 us x (1 + (18,750 - 7,499) / (24 x 92,500))
        assert_eq!(tsunami.gap, 300_000_000 + 300_000_000 * 11_251 / (24 * 92_500));
        (tsunami.acked, tsunami.lost) = (999, 0);
        tsunami.update();
        assert_eq!((tsunami.error, tsunami.metrics().state), (4_687_500, "faster"));
        for _ in 0..1_000_000 {
            (tsunami.acked, tsunami.lost) = (0, 1_000);
            tsunami.update();
        }
        assert_eq!(tsunami.gap, MOST_GAP);
    }

    /// The design's: a target half above the link still loses 24 % after 20 s.
    #[test]
    fn a_third_that_is_lost_lengthens_the_gap_by_four_thousandths() {
        let mut tsunami = tsunami(150, None);
        tsunami.gap = gap_of(tsunami.target, 1_500);
        // In 350 ms the link carries 2,916 packets.
        let mut lose = || {
            let sent = 350_000_000_000 / tsunami.gap;
            (tsunami.acked, tsunami.lost) = (2_916, sent - 2_916);
            let before = tsunami.gap;
            tsunami.update();
            let grown = (tsunami.gap - before) * 10_000 / before;
            (grown, (sent - 2_916) * 1_000 / sent)
        };
        let all = [0; 57].map(|_| lose());
        assert!((38..=42).contains(&all[4].0), "{} ten-thousandths", all[4].0);
        assert!((220..=250).contains(&all[56].1), "{} per mille after 20 s", all[56].1);
    }

    #[test]
    fn one_that_takes_over_goes_on_where_the_other_was() {
        let round_trip = Duration::from_millis(50);
        let at = |mbps| Some(Known { rate: Rate::from_mbps(mbps), round_trip });
        assert_eq!(tsunami(120, at(90)).pacing().rate.as_bps() / 1_000_000, 90);
        assert_eq!(tsunami(120, at(500)).pacing().rate, Rate::from_mbps(120), "the user's at most");
    }
}
