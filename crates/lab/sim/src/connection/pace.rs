//! Checks that no more is sent than the rate allows.

use longhaul_units::{Duration, Instant, Rate};

use crate::scenario::Circuit;
use crate::trace::Checks;

/// Rate that carries away what was sent.
#[derive(Debug)]
enum Carrier {
    /// The same rate all the time.
    Rate(Rate),
    /// Bookings: from when, until when, and how much.
    Booked(Vec<(Instant, Instant, Rate)>),
}

impl Carrier {
    /// The rate at a time.
    fn rate(&self, now: Instant) -> Rate {
        match self {
            Self::Rate(rate) => *rate,
            Self::Booked(ranges) => {
                let range = ranges.iter().find(|(from, until, _)| (*from..*until).contains(&now));
                range.map_or(Rate::ZERO, |(.., rate)| *rate)
            }
        }
    }

    /// Bits carried from one time to another, as [`Meter::level`]; all, if nothing was booked
    /// meanwhile: each booking begins with a full bucket.
    fn carried(&self, from: Instant, until: Instant) -> u128 {
        match self {
            Self::Rate(rate) => u128::from(rate.as_bps()) * (until - from).as_nanos(),
            Self::Booked(ranges) => {
                let (mut booked, mut carried) = (Duration::ZERO, 0);
                for (begin, end, rate) in ranges {
                    let (begin, end) = (from.max(*begin), until.min(*end));
                    booked += end - begin;
                    carried += u128::from(rate.as_bps()) * (end - begin).as_nanos();
                }
                if booked < until - from { u128::MAX } else { carried }
            }
        }
    }
}

/// A token bucket beside the engine's: over any time t, rate * t + burst and no more may leave.
#[derive(Debug)]
pub(super) struct Meter {
    carrier: Carrier,
    burst: u64,
    /// The controller's own burst is no smaller.
    least: u64,
    /// Bits that were sent and not carried away by the rate, at a time: a second has a thousand
    /// million, so that no division rounds.
    level: u128,
    at: Instant,
    /// Batches since all was carried away: the engine's bucket rounds the time of each down.
    batches: u64,
}

impl Meter {
    /// `burst`: bytes that may leave back to back. The controller's own burst may be smaller, and is
    /// `least` then.
    pub fn new(now: Instant, rate: Rate, burst: u64, least: u64) -> Self {
        let carrier = Carrier::Rate(rate);
        Self { carrier, burst, least, level: 0, at: now, batches: 0 }
    }

    /// Of what is booked since the `start` of the world: rates may follow each other at once. Hosts may keep
    /// the burst to no more than `least_burst`.
    pub fn booked(now: Instant, circuit: &Circuit, start: Instant, least_burst: u64) -> Self {
        let bursts = circuit.booked.iter().map(|(_, _, rate)| of_circuit(*rate));
        let ranges =
            circuit.booked.iter().map(|(from, until, rate)| (start + *from, start + *until, *rate));
        let carrier = Carrier::Booked(ranges.collect());
        let (burst, least) = (bursts.max().unwrap_or(0), least_burst.min(4 * PACKET));
        Self { carrier, burst, least, level: 0, at: now, batches: 0 }
    }

    /// From now on as if nothing had been sent.
    pub fn restart(&mut self) {
        (self.level, self.batches) = (0, 0);
    }

    /// A batch of `packets` and `bytes` leaves. Only one packet can be larger than the controller's
    /// burst: it waits until that is full, which leaves room for it in the rest of this one.
    pub fn sent(&mut self, now: Instant, packets: u16, bytes: u64, checks: &mut Checks) {
        let (carried, rate) = (self.carrier.carried(self.at, now), self.carrier.rate(now));
        self.batches = if carried >= self.level { 1 } else { self.batches + 1 };
        self.level = self.level.saturating_sub(carried) + u128::from(bytes) * BYTE;
        self.at = now;
        let level = (self.level / BYTE) as u64;
        let over = if packets == 1 { bytes.saturating_sub(self.least) } else { 0 };
        let rounding = rate.bytes_in(Duration::from_nanos(self.batches)) + 1;
        let allowed = self.burst + over + rounding;
        checks.require(level <= allowed, || {
            format!("{level} bytes ahead of {rate}, a burst is {}", self.burst)
        });
        checks.require(rate > Rate::ZERO, || "bytes were sent while nothing is booked");
    }
}

/// The burst of `fixed` and `rbudp`: what the rate carries in half a millisecond, ten packets at
/// least.
pub(super) fn of_fixed(rate: Rate) -> u64 {
    rate.bytes_in(Duration::from_micros(500)).max(10 * PACKET)
}

/// The burst of `trc`: a millisecond, up to 64 KiB or what a tenth of that carries.
pub(super) fn of_circuit(rate: Rate) -> u64 {
    let most = rate.bytes_in(Duration::from_micros(100)).max(64 << 10);
    rate.bytes_in(Duration::from_millis(1)).clamp(4 * PACKET, most)
}

/// The burst of any controller under a user's limit: half a millisecond; of a low one two, up to ten
/// packets, or four, up to four packets; two packets at least.
pub(super) fn under_limit(rate: Rate) -> u64 {
    let within = |us, packets| rate.bytes_in(Duration::from_micros(us)).min(packets * PACKET);
    within(500, u64::MAX / PACKET).max(within(2_000, 10)).max(within(4_000, 4)).max(2 * PACKET)
}

/// Two packets of the least size, datagrams of 1232 bytes over IPv4: no controller has a smaller burst.
pub(super) const LEAST_BURST: u64 = 2 * 1260;

const PACKET: u64 = 1500;
/// Of [`Meter::level`].
const BYTE: u128 = 8 * 1_000_000_000;
