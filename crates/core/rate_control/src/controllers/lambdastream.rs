//! Profile `lambdastream`: packets that arrive further apart than they left tell of congestion before
//! any is lost.

use alloc::boxed::Box;

use longhaul_units::{Duration, Instant, Rate};

use super::fobs::HOSTS;
use super::opening::{Found, LEAST, share};
use super::stepped::{INTERVAL, Stepped, Steps, interval_of, is_used};
use crate::controller::{Context, Controller, ControllerConfig, Start};
use crate::feedback::Feedback;
use crate::parameters::{Parameter, Parameters};
use crate::spans::Span;

/// Values of [`PARAMETERS`].
#[derive(Clone, Copy, Debug)]
struct Figures {
    interval: Duration,
    first: u32,
    tolerance: u32,
    drain: u32,
    margin: u32,
    step: u32,
    patience: u64,
    threshold: u32,
    hosts: bool,
}

impl Figures {
    fn of(chosen: &Parameters) -> Self {
        Self {
            interval: chosen.time("interval"),
            first: chosen.share("first"),
            tolerance: chosen.share("tolerance"),
            drain: chosen.share("drain"),
            margin: chosen.share("margin"),
            step: chosen.share("step"),
            patience: chosen.get("patience"),
            threshold: chosen.share("threshold"),
            hosts: chosen.get("hosts") == 1,
        }
    }
}

/// LambdaStream, by its published descriptions: it watches "the inter-packet receiving time interval" (RAPID
/// section 1), "avoids deliberately provoking packet loss", keeps "a constant sending rate whenever
/// possible" and "differentiates packet loss" (the abstract). The figures are ours.
#[derive(Clone, Debug)]
struct LambdaStream {
    figures: Figures,
    rate: Rate,
    /// Time when the present interval began; none has before the first feedback.
    since: Option<Instant>,
    seen: Seen,
    /// The least one-way delay since the rate last changed, microseconds.
    reference: Option<i64>,
    draining: Option<Draining>,
    /// Loss that stayed when the rate fell, and half as much again, parts per million.
    chance: u64,
    /// Intervals since the last change, and how many are to pass before the next rise.
    calm: u64,
    hold: u64,
}

/// The rate is below what arrives.
#[derive(Clone, Copy, Debug)]
struct Draining {
    /// Time when the queue that had gathered is gone, and the fate of what was sent since is known.
    until: Instant,
    /// The rate behind that,
    resume: Rate,
    /// and the one that was too high.
    before: Rate,
    /// Share that was lost then, parts per million.
    lost: u64,
}

impl Draining {
    /// Returns whether as much is lost at a rate that cannot be too high: then it was not the rate's doing.
    fn is_chance(&self, lost: u64) -> bool {
        let as_before = self.lost / 2..=self.lost / 4 * 5;
        lost > 0 && lost <= MOST_CHANCE && as_before.contains(&lost)
    }
}

/// Arrivals and losses of an interval.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    span: Span,
    /// Bytes received, and the receiver's time that they took.
    bytes: u64,
    arriving: Duration,
    /// The least one-way delay, microseconds above the least of late. Less jitters upwards than down.
    delay: Option<i64>,
}

impl Seen {
    fn add(&mut self, feedback: &Feedback) {
        self.span.add(feedback);
        if let Some(delivery) = feedback.delivery {
            let bytes = delivery.rate.bytes_in(delivery.interval);
            self.bytes = self.bytes.saturating_add(bytes);
            self.arriving = self.arriving.saturating_add(delivery.interval);
        }
        if let Some(delay) = feedback.one_way_delta {
            self.delay = Some(self.delay.map_or(delay, |least| least.min(delay)));
        }
    }

    /// Returns the rate that arrived.
    fn received(&self) -> Option<Rate> {
        (self.bytes > 0).then(|| Rate::from_bytes_over(self.bytes, self.arriving))
    }
}

impl LambdaStream {
    fn new(figures: Figures) -> Self {
        let (since, seen, reference) = (None, Seen::default(), None);
        let (draining, chance, calm, hold) = (None, 0, 0, 1);
        Self { figures, rate: LEAST, since, seen, reference, draining, chance, calm, hold }
    }

    /// An interval of nominal length `interval` is over. Packets that arrived further apart than they
    /// left had waited for ever longer: the sum of those differences is what their delay grew by.
    fn judge(&mut self, now: Instant, interval: Duration, seen: &Seen, packet: u64) {
        let figures = self.figures;
        let lost = lost_ppm(&seen.span, figures.hosts);
        let least = seen.delay.or(self.reference);
        let grown = match (least, self.reference) {
            (Some(now), Some(before)) => u64::try_from(now.saturating_sub(before)).unwrap_or(0),
            _ => 0,
        };
        let grown = Duration::from_micros(grown.min(MOST_GROWN));
        self.reference = self.reference.into_iter().chain(least).min();
        let mut resumed = false;
        if let Some(draining) = self.draining {
            if now < draining.until {
                return;
            }
            self.draining = None;
            (self.reference, self.calm) = (least, 0);
            if draining.is_chance(lost) {
                (self.rate, self.chance) = (draining.before, lost * 3 / 2);
                return;
            }
            self.rate = draining.resume;
            resumed = true;
        }
        self.chance -= self.chance / FORGET;
        let lossy = lost > u64::from(figures.threshold) + self.chance_of(seen.span.packets());
        // Behind a slow link a packet or two more or less are a delay by themselves.
        let borne = interval * figures.tolerance / WHOLE as u32 + self.rate.time_for(2 * packet);
        if lossy || (grown > borne && !resumed) {
            // What packets that left before it lost is known an interval later.
            let known = if lossy { interval * 2 } else { interval };
            self.slow_down(now + known, grown, lost, seen.received());
            return;
        }
        if resumed {
            return;
        }
        self.calm += 1;
        if self.calm >= self.hold && is_used(self.rate, &seen.span, packet) {
            self.rate = self.rate + share(self.rate, figures.step).max(LEAST);
            self.calm = 0;
            // The last rise was borne.
            self.hold = (self.hold / 2).max(1);
        }
    }

    /// Returns the losses that chance may cost `packets` in parts per million: of few it takes now more and now less.
    fn chance_of(&self, packets: u64) -> u64 {
        let expected = self.chance.saturating_mul(packets);
        let spread = expected.saturating_mul(WHOLE).isqrt();
        (expected + 2 * spread).checked_div(packets).unwrap_or(0)
    }

    /// The sending interval becomes the receiving one, and longer for as long as what has gathered
    /// takes to go beyond `known`.
    fn slow_down(&mut self, known: Instant, grown: Duration, lost: u64, received: Option<Rate>) {
        let Figures { drain, margin, patience, .. } = self.figures;
        let before = self.rate;
        // A receiver that paused is no slow path.
        let least = before.scale(1, 2).max(LEAST);
        let path = received.unwrap_or(before).min(before).max(least);
        self.rate = (path - share(path, drain)).max(LEAST);
        let gone = grown * WHOLE as u32 / drain.max(1);
        let resume = (path - share(path, margin)).max(LEAST);
        self.draining = Some(Draining { until: known + gone, resume, before, lost });
        self.hold = (self.hold * 2).min(patience);
    }
}

/// Packets lost, parts per million of all, but for those that chance explains.
fn lost_ppm(span: &Span, with_hosts: bool) -> u64 {
    let lost = &span.lost;
    let hosts = if with_hosts { lost.socket + lost.host } else { 0 };
    let counted = lost.network() - lost.random + hosts;
    (counted * WHOLE).checked_div(span.packets()).unwrap_or(0)
}

impl Steps for LambdaStream {
    const NAME: &'static str = "lambdastream";

    fn begin(&mut self, found: Found) {
        *self = Self { rate: found.rate, ..Self::new(self.figures) };
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        let packet = cx.estimates.packet();
        let nominal = interval_of(self.figures.interval, LEAST_INTERVAL, cx);
        let nominal = nominal.max(self.rate.time_for(LEAST_PACKETS * packet)).min(MOST_INTERVAL);
        let since = *self.since.get_or_insert(cx.now);
        self.seen.add(feedback);
        let took = cx.now - since;
        if took < nominal {
            return;
        }
        let mut seen = core::mem::take(&mut self.seen);
        seen.span.took = took;
        self.since = Some(cx.now);
        // A silence says nothing of how fast a path is that carries.
        if took <= nominal * 2 {
            self.judge(cx.now, nominal, &seen, packet);
        }
    }

    fn rate(&self) -> Rate {
        self.rate
    }

    fn state(&self) -> &'static str {
        match self.draining {
            Some(_) => "draining",
            None if self.hold > 1 => "constant",
            None => "rising",
        }
    }
}

/// Makes the controller of `lambdastream`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LambdaStreamConfig;

impl ControllerConfig for LambdaStreamConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &PARAMETERS
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        let figures = Figures::of(&start.parameters);
        Box::new(Stepped::new(start, figures.first, LambdaStream::new(figures)))
    }
}

/// Parts per million.
const WHOLE: u64 = 1_000_000;
/// A batch leaves at once, and what it carries arrives as a lump: a train is to be many of them long.
const LEAST_INTERVAL: Duration = Duration::from_millis(20);
/// Fewer do not make a mean.
const LEAST_PACKETS: u64 = 16;
const MOST_INTERVAL: Duration = Duration::from_secs(60);
/// Parts per million: what loses more is no path to be filled.
const MOST_CHANCE: u64 = 250_000;
/// Intervals: a path that lost more once is not to be trusted with that for ever.
const FORGET: u64 = 256;
/// Microseconds: longer than any queue.
const MOST_GROWN: u64 = 60_000_000;

/// Reasons for each value: docs/rate-control.md.
static PARAMETERS: [Parameter; 9] = [
    Parameter { about: "time between two decisions; 0s: a round trip, at least 20 ms", ..INTERVAL },
    Parameter::ppm("first", "first rate, of the link", (10_000, 950_000, WHOLE)),
    Parameter::ppm(
        "tolerance",
        "growth of delay that is borne, of an interval",
        (1_000, 20_000, WHOLE),
    ),
    Parameter::ppm("drain", "below what arrives while a queue drains", (10_000, 100_000, 500_000)),
    Parameter::ppm("margin", "below what arrived behind that", (0, 20_000, 500_000)),
    Parameter::ppm("step", "by how much the rate rises", (1_000, 20_000, 500_000)),
    Parameter::count(
        "patience",
        "most intervals of constant rate before it rises",
        (1, 64, 100_000),
    ),
    Parameter::ppm(
        "threshold",
        "loss beyond chance above which the rate falls",
        (0, 10_000, 500_000),
    ),
    HOSTS,
];

#[cfg(test)]
mod tests;
