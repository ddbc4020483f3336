use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use crate::announcement::Announcement;

/// The limits announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Times that one was announced where none was in force.
    pub count: u64,
    /// Time for which one was in force, by [`Bottleneck`] code.
    pub time: [Duration; Bottleneck::COUNT],
    /// The least rate announced.
    pub least: Option<Rate>,
}

impl Limits {
    /// Time for which one was in force.
    pub fn total(&self) -> Duration {
        self.time.iter().fold(Duration::ZERO, |sum, time| sum.saturating_add(*time))
    }
}

/// Limit of this end now, and the one in force at the other end.
#[derive(Clone, Debug)]
pub(super) struct LimitState {
    pub(super) wanted: Option<(Rate, Bottleneck)>,
    in_force: Option<InForce>,
    /// Until when time was booked.
    booked: Instant,
    summary: Limits,
}

#[derive(Clone, Copy, Debug)]
struct InForce {
    rate: Rate,
    cause: Bottleneck,
    at: Instant,
    until: Instant,
}

impl LimitState {
    pub(super) fn new(now: Instant) -> Self {
        let summary = Limits { count: 0, time: [Duration::ZERO; Bottleneck::COUNT], least: None };
        Self { wanted: None, in_force: None, booked: now, summary }
    }

    /// This end takes no more than that; all there is if nothing.
    pub(super) fn set(&mut self, wanted: Option<(Rate, Bottleneck)>) {
        self.wanted = wanted.map(|(rate, cause)| (rate.max(LEAST), cause));
    }

    pub(super) fn poll(&mut self, now: Instant, round_trip: Duration) -> Option<Announcement> {
        self.book(now);
        let Some((rate, cause)) = self.wanted else {
            // A limit that outlives its reason holds down what the next one is measured from.
            let InForce { rate, cause, .. } = self.in_force.take()?;
            return Some(Announcement::Limit { rate, cause, lasts: Duration::ZERO });
        };
        let lasts = LASTS.max(round_trip.saturating_mul(4));
        if let Some(last) = self.in_force {
            let differs = rate.as_bps().abs_diff(last.rate.as_bps()) > last.rate.as_bps() / 16;
            // Half of the messages with the last one may be lost before it expires.
            if !(differs || cause != last.cause || now - last.at >= lasts / 4) {
                return None;
            }
        } else {
            self.summary.count += 1;
        }
        self.in_force = Some(InForce { rate, cause, at: now, until: now + lasts });
        self.summary.least = Some(self.summary.least.map_or(rate, |least| least.min(rate)));
        Some(Announcement::Limit { rate, cause, lasts })
    }

    pub(super) fn summary(&self, now: Instant) -> Limits {
        let mut booked = self.clone();
        booked.book(now);
        booked.summary
    }

    /// Books the time that the limit was in force, and drops it once it has expired.
    fn book(&mut self, now: Instant) {
        if let Some(last) = self.in_force {
            let time = &mut self.summary.time[last.cause as usize];
            *time = time.saturating_add(now.min(last.until) - self.booked);
            if now >= last.until {
                self.in_force = None;
            }
        }
        self.booked = self.booked.max(now);
    }
}

/// Lifetime of a limit: a few periods of any schedule, and a disk is followed within a second.
const LASTS: Duration = Duration::from_millis(500);
/// No limit stops anybody: suspends and credit are for that.
const LEAST: Rate = Rate::from_mbps(1);
