//! Profile `trc`: the rate is that of a booking, which varies over time.

mod vector;

use alloc::boxed::Box;
use alloc::vec;

use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use crate::controller::{Context, Controller, ControllerConfig, Metrics, Pacing, Sent, Start};
use crate::feedback::Feedback;

pub use vector::{TimeRange, Vector, VectorError};

/// Follows a time-range-capacity vector, and sends nothing outside of its ranges.
///
/// The rate-based flow control of VBTP (VBLS paper, sections 4.1 and 4.3): the rate of the circuit
/// is known beforehand, so nothing is measured and no loss slows it down; "the sending rate higher at
/// a burst level than the allocated circuit rate" overflows the circuit's edge, so bursts are small.
/// The rate changes at the boundary itself; a batch that was planned before is all that spills over.
/// Half a percent is left unused.
#[derive(Clone, Debug)]
pub struct Trc {
    vector: Vector,
    /// Of the usual size: a burst that grew with the path MTU would be long at low rates.
    packet: u64,
    /// Rate that was in force when the clock was last updated.
    rate: Rate,
    next: Option<Instant>,
}

impl Trc {
    /// Follows `vector` with packets of up to `packet` bytes.
    pub fn new(now: Instant, vector: Vector, packet: u64) -> Self {
        let (rate, next) = (vector.rate_at(now), vector.next_change(now));
        Self { vector, packet, rate, next }
    }

    fn see(&mut self, now: Instant) {
        if self.next.is_some_and(|next| next <= now) {
            self.rate = self.vector.rate_at(now);
            self.next = self.vector.next_change(now);
        }
    }
}

impl Controller for Trc {
    fn name(&self) -> &'static str {
        "trc"
    }

    fn on_sent(&mut self, cx: &mut Context<'_>, _sent: &Sent) {
        self.see(cx.now);
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, _feedback: &Feedback) {
        self.see(cx.now);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.next
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.see(cx.now);
    }

    fn pacing(&self) -> Pacing {
        let most = self.rate.bytes_in(LARGE_BURST_TIME).clamp(BURST_MAX, LARGE_BURST_MAX);
        let burst = self.rate.bytes_in(BURST_TIME).clamp(MIN_BURST_PACKETS * self.packet, most);
        Pacing { rate: self.rate.scale(SHARE.0, SHARE.1), burst, window: None }
    }

    fn metrics(&self) -> Metrics {
        let state = match (self.rate, self.next) {
            (Rate::ZERO, None) => "over",
            (Rate::ZERO, Some(_)) => "waiting",
            _ => "following",
        };
        Metrics { state, bound: Bottleneck::Reservation }
    }
}

/// Makes [`Trc`] for a circuit that was arranged by other means: the user's rate, from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrcConfig {
    /// Used when the user chose no rate. Default: 100 Mb/s.
    pub rate: Rate,
}

impl TrcConfig {
    /// 100 Mb/s.
    pub const DEFAULT: Self = Self { rate: Rate::from_mbps(100) };
}

impl Default for TrcConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl ControllerConfig for TrcConfig {
    fn is_reserved(&self) -> bool {
        true
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        let rate = start.rate.unwrap_or(self.rate);
        let forever = TimeRange { start: Instant::ZERO, end: Instant::FAR_FUTURE, rate };
        // One range is always a vector.
        let vector = Vector::new(vec![forever]).unwrap_or_default();
        Box::new(Trc::new(start.now, vector, start.packet))
    }
}

/// A circuit's edge that is fed at exactly its rate never works off what has once gathered there:
/// control packets, which are not paced, and what a late sender catches up.
const SHARE: (u32, u32) = (995, 1000);
/// Makes up for wake-ups of a busy host that are so late; what is lost beyond it stays lost.
const BURST_TIME: Duration = Duration::from_millis(1);
/// Half of a shallow buffer at the edge of a circuit (128 KiB in the lab's topology).
const BURST_MAX: u64 = 64 << 10;
/// At rates at which that is less than a timer's precision, so much time instead.
const LARGE_BURST_TIME: Duration = Duration::from_micros(100);
/// Bounds what one late wake-up may pour into the circuit.
const LARGE_BURST_MAX: u64 = 1 << 20;
/// A batch is half a burst: two packets.
const MIN_BURST_PACKETS: u64 = 4;

#[cfg(test)]
mod tests;
