//! Profile `udt`: a rate that rises by what is left of the link and falls by an eighth of the gap.

mod capacity;

use alloc::boxed::Box;

use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use super::first_train::FirstTrain;
use super::stepped::{burst, power_of_ten};
use crate::controller::{Context, Controller, ControllerConfig, Metrics, Pacing, Sent, Start};
use crate::feedback::Feedback;
use capacity::Capacity;

/// The congestion control of UDT 4 (`CUDTCC` in `ccc.cpp`; Gu and Grossman, "UDT: UDP-based data
/// transfer for high-speed wide area networks"): additive increase that shrinks as the rate comes
/// near the link's, and multiplicative decrease.
#[derive(Clone, Debug)]
struct Udt {
    packet: u64,
    rate: Rate,
    /// Packets.
    window: u64,
    slow_start: bool,
    capacity: Capacity,
    train: FirstTrain,
    /// Time when the rate was last reconsidered, and what arrived since.
    considered: Instant,
    last_feedback: Instant,
    acked: u64,
    /// Time when data last left of which there was more.
    used: Option<Instant>,
    /// Something was lost since.
    lost: bool,
    epoch: Epoch,
    pacing: Pacing,
}

/// Losses of one event: those of packets that were sent before the rate was lowered.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Time when the rate was last lowered, and the rate before the first cut.
    cut: Option<Instant>,
    before: Rate,
    /// Reports of losses, in this one and on average, and those that were looked at.
    naks: u64,
    average: u64,
    cuts: u64,
    /// Every so many reports the rate falls again.
    random: u64,
}

impl Udt {
    fn new(start: &Start) -> Self {
        let (slow_start, rate, window) = match start.known {
            None => (true, Rate::from_bytes_over(start.packet, MICROSECOND), FIRST_WINDOW),
            Some(known) => {
                let rate = known.rate.clamp(LEAST, MOST);
                (false, rate, window(rate, known.round_trip, start.packet))
            }
        };
        let mut udt = Self {
            packet: start.packet,
            rate,
            window,
            slow_start,
            capacity: Capacity::new(),
            train: FirstTrain::new(0),
            considered: start.now,
            last_feedback: start.now,
            acked: 0,
            used: None,
            lost: false,
            epoch: Epoch { cut: None, before: MOST, naks: 0, average: 0, cuts: 0, random: 1 },
            pacing: Pacing { rate, burst: FIRST_WINDOW * start.packet, window: None },
        };
        udt.decide();
        udt
    }

    /// `onACK`, at most once in each SYN; time in which no feedback came is not made up for.
    fn on_acks(&mut self, cx: &mut Context<'_>) {
        let passed = (cx.now - self.considered).as_nanos() / SYN.as_nanos();
        let times = passed.min(MOST_AT_ONCE) as u32;
        if times == 0 {
            return;
        }
        let behind = passed > MOST_AT_ONCE;
        self.considered = if behind { cx.now } else { self.considered + SYN * times };
        let acked = core::mem::take(&mut self.acked);
        if self.slow_start {
            let round_trip = cx.estimates.min_rtt().unwrap_or(cx.rtt.smoothed());
            let bytes = self.window * self.packet;
            self.window += self.train.growth(bytes, round_trip, acked * self.packet) / self.packet;
            if self.window > MOST_WINDOW
                || self.train.is_filled(bytes, round_trip, cx.estimates.queue())
            {
                self.end_slow_start(cx);
            }
        } else {
            self.window = window(cx.estimates.recent(), cx.rtt.smoothed(), self.packet);
        }
        if self.slow_start || core::mem::take(&mut self.lost) {
            return;
        }
        let capacity = self.capacity.median().unwrap_or(cx.estimates.capacity());
        for _ in 0..times {
            self.rate = (self.rate + self.increase(capacity)).min(MOST);
        }
    }

    /// "max(10^ceil(log10(8 B MSS)) beta / MSS, 1/100)" packets more in each SYN, beta = 1.5e-6,
    /// where B is what is left of the link: as bits per second, which the size of a packet is not
    /// part of.
    fn increase(&self, capacity: Rate) -> Rate {
        let mut left = capacity - self.rate;
        if self.rate < self.epoch.before {
            left = left.min(capacity.scale(1, 9));
        }
        let power = power_of_ten(left.as_bps().min(MOST.as_bps()));
        let by_capacity = if left == Rate::ZERO { 0 } else { power * 12 / 10_000 };
        Rate::from_bps(by_capacity.max(self.packet * 8))
    }

    /// `onLoss`; packets have no numbers here, so an epoch is over when feedback may have come of packets
    /// that were sent behind its last cut.
    fn on_loss(&mut self, cx: &mut Context<'_>) {
        let known = cx.rtt.smoothed() + SYN;
        // An end that has next to nothing to send, as a receiver has, does not send at its rate: that
        // something is lost is no reason to lower it.
        if self.used.is_none_or(|at| cx.now - at > known * 2) {
            return;
        }
        if self.slow_start {
            self.end_slow_start(cx);
        }
        self.lost = true;
        let epoch = &mut self.epoch;
        if epoch.cut.is_none_or(|cut| cx.now - cut > known) {
            epoch.before = self.rate;
            epoch.average = (epoch.average * 7 + epoch.naks).div_ceil(8);
            (epoch.naks, epoch.cuts) = (1, 1);
            let random = u128::from(epoch.average) * u128::from(cx.rng.next_u32());
            epoch.random = (random >> 32) as u64 + 1;
        } else {
            let looked_at = epoch.cuts < MOST_CUTS;
            epoch.cuts += 1;
            if !looked_at {
                return;
            }
            epoch.naks += 1;
            if !epoch.naks.is_multiple_of(epoch.random) {
                return;
            }
        }
        epoch.cut = Some(cx.now);
        self.rate = self.rate.scale(8, 9).max(LEAST);
    }

    fn end_slow_start(&mut self, cx: &mut Context<'_>) {
        self.slow_start = false;
        cx.estimates.lengthen_slices();
        let time = cx.rtt.smoothed() + SYN;
        self.rate = match cx.estimates.recent() {
            Rate::ZERO => Rate::from_bytes_over(self.window * self.packet, time),
            arrived => arrived,
        };
        self.rate = self.rate.clamp(LEAST, MOST);
        self.window = window(self.rate, cx.rtt.smoothed(), self.packet);
    }

    fn decide(&mut self) {
        let burst = burst(self.rate, self.packet);
        let window = Some(self.window * self.packet);
        self.pacing = Pacing { rate: self.rate, burst, window };
    }
}

/// Packets that arrive in a round trip and a SYN, and sixteen.
fn window(arrival: Rate, round_trip: Duration, packet: u64) -> u64 {
    arrival.bytes_in(round_trip + SYN) / packet + FIRST_WINDOW
}

impl Controller for Udt {
    fn name(&self) -> &'static str {
        "udt"
    }

    fn on_sent(&mut self, cx: &mut Context<'_>, sent: &Sent) {
        self.train.on_sent(sent);
        if !sent.control && !sent.application_limited {
            self.used = Some(cx.now);
        }
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        self.packet = cx.estimates.packet();
        self.last_feedback = cx.now;
        self.train.on_feedback(feedback);
        self.acked += feedback.acked_packets;
        if let Some(train) = feedback.delivery.filter(|train| train.is_spread()) {
            self.capacity.add(train.rate);
        }
        if feedback.lost.total() > 0 {
            self.on_loss(cx);
        }
        if feedback.acked_packets > 0 {
            self.on_acks(cx);
        }
        self.decide();
    }

    fn on_probe_timeout(&mut self, cx: &mut Context<'_>, _in_flight: u64) {
        if self.slow_start && self.used.is_some() && cx.now - self.last_feedback > EXPIRY {
            self.end_slow_start(cx);
            self.decide();
        }
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn metrics(&self) -> Metrics {
        match self.slow_start {
            true => Metrics { state: "slow start", bound: Bottleneck::StartUp },
            false => Metrics { state: "DAIMD", bound: Bottleneck::Network },
        }
    }
}

/// Makes the controller of `udt`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdtConfig;

impl ControllerConfig for UdtConfig {
    fn build(&self, start: &Start) -> Box<dyn Controller> {
        Box::new(Udt::new(start))
    }
}

/// The constant interval between two decisions.
const SYN: Duration = Duration::from_millis(10);
/// The gap between packets in slow start.
const MICROSECOND: Duration = Duration::from_micros(1);
/// The least of UDT's EXP timer.
const EXPIRY: Duration = Duration::from_millis(300);
/// Packets.
const FIRST_WINDOW: u64 = 16;
/// Packets: the flow window that UDT announces by default.
const MOST_WINDOW: u64 = 25_600;
/// "rate should not be decreased by more than half within a congestion period"
const MOST_CUTS: u64 = 5;
/// SYNs that may pass between two reports.
const MOST_AT_ONCE: u128 = 4;
/// A packet of 1500 bytes in 12 s: there is no slower path.
const LEAST: Rate = super::opening::LEAST;
const MOST: Rate = super::opening::MOST;

#[cfg(test)]
mod tests;
