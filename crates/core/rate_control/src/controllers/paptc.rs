//! Profile `paptc`: towards the rate that the receiver predicts it can process.

use alloc::boxed::Box;

use longhaul_units::{Duration, Instant, Rate};

use super::opening::{Found, LEAST, MOST};
use super::power::{EXPONENT_BITS, power_of};
use super::stepped::{INTERVAL, Stepped, Steps, interval_of};
use crate::controller::{Context, Controller, ControllerConfig, Start};
use crate::feedback::Feedback;
use crate::parameters::{Parameter, Parameters, Unit};
use crate::spans::Span;

/// Values of [`PARAMETERS`].
#[derive(Clone, Copy, Debug)]
struct Figures {
    interval: Duration,
    acknowledge: Duration,
    first: u32,
    beta: u64,
    b: u64,
    gamma: u64,
    floor: u64,
    measured: bool,
}

impl Figures {
    fn of(chosen: &Parameters) -> Self {
        Self {
            interval: chosen.time("interval"),
            acknowledge: chosen.time("acknowledge"),
            first: chosen.share("first"),
            beta: chosen.get("beta"),
            b: chosen.get("b"),
            gamma: chosen.get("gamma"),
            floor: chosen.get("floor"),
            measured: chosen.get("measured") == 1,
        }
    }
}

/// PAPTC's sender (Lu, Wu, Rao, Wang, section 4): stochastic approximation (Robbins-Monro) of the
/// receiver's bottleneck rate.
///
/// Equation 11 makes of the rate r, the share x that has to be sent again and the rate mu that the
/// receiver processes an estimate mu* = (r (1 - x))^beta mu^(1 - beta). Here mu is the capacity that the receiver
/// predicts (equation 6), and r steps towards mu*: r <- r - rho (r - mu*), rho = b / k^gamma. As
/// printed, equation 12 steps by what was measured to arrive instead, r <- r - rho (mu - mu*): below the
/// bottleneck that is no step at all.
#[derive(Clone, Debug)]
struct Paptc {
    figures: Figures,
    link: Rate,
    rate: Rate,
    since: Instant,
    span: Span,
    bytes: u64,
    capacity: Option<Rate>,
    /// Something was lost in the last period.
    loses: bool,
    /// k.
    steps: u64,
}

impl Paptc {
    fn new(figures: Figures, now: Instant) -> Self {
        let (rate, span) = (LEAST, Span::default());
        let (bytes, capacity, steps, loses) = (0, None, 0, false);
        Self { figures, link: LEAST, rate, since: now, span, bytes, capacity, loses, steps }
    }

    /// A period is over in which so much arrived.
    fn step(&mut self, lost_ppm: u32, arrived: Rate) {
        self.steps += 1;
        self.loses = lost_ppm > 0;
        // No receiver takes more than the link brings; one that says nothing takes all of that.
        let capacity = self.capacity.unwrap_or(self.link).min(self.link);
        let mu = if self.figures.measured { arrived } else { capacity };
        let used = self.rate.scale(WHOLE as u32 - lost_ppm.min(WHOLE as u32), WHOLE as u32);
        let target = mean(used, mu, self.figures.beta);
        let from = if self.figures.measured { mu } else { self.rate };
        let share = self.step_size();
        let step = |difference: Rate| {
            let bps = u128::from(difference.as_bps()) * u128::from(share) / u128::from(WHOLE);
            Rate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
        };
        self.rate = if target >= from {
            self.rate + step(target - from)
        } else {
            self.rate - step(from - target)
        }
        .clamp(self.link.scale(1, LEAST_PART).max(LEAST), MOST);
    }

    /// rho_k, parts per million: b / k^gamma, no less than the floor.
    fn step_size(&self) -> u64 {
        let k = u128::from(self.steps.min(MOST_STEPS)) << 32;
        let divisor = power_of(k, exponent(self.figures.gamma)).max(1);
        let rho = (u128::from(self.figures.b) << 32) / divisor;
        u64::try_from(rho).unwrap_or(WHOLE).max(self.figures.floor).min(WHOLE)
    }
}

/// a^beta b^(1 - beta), beta in parts per million.
fn mean(a: Rate, b: Rate, beta: u64) -> Rate {
    let megabits = |rate: Rate| (u128::from(rate.clamp(LEAST, MOST).as_bps()) << 32) / 1_000_000;
    let power = |rate, share| power_of(megabits(rate), exponent(share));
    let product = (power(a, beta) * power(b, WHOLE - beta)) >> 32;
    Rate::from_bps(u64::try_from((product * 1_000_000) >> 32).unwrap_or(u64::MAX))
}

/// Parts per million as an exponent of [`power_of`].
fn exponent(ppm: u64) -> u32 {
    ((ppm.min(WHOLE) << EXPONENT_BITS) / WHOLE) as u32
}

impl Steps for Paptc {
    const NAME: &'static str = "paptc";

    fn begin(&mut self, found: Found) {
        (self.link, self.rate) = (found.link, found.rate);
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        self.capacity = feedback.capacity.or(self.capacity);
        self.span.add(feedback);
        self.bytes = self.bytes.saturating_add(feedback.acked_bytes);
        let took = cx.now - self.since;
        let interval = interval_of(self.figures.interval, LEAST_INTERVAL, cx).max(LEAST_INTERVAL);
        if took < interval || self.span.acked_packets + self.span.lost.total() == 0 {
            return;
        }
        let span = Span { took, ..core::mem::take(&mut self.span) };
        let arrived = Rate::from_bytes_over(core::mem::take(&mut self.bytes), took);
        self.since = cx.now;
        self.step(span.loss_ppm(true), arrived);
    }

    fn rate(&self) -> Rate {
        self.rate
    }

    fn reports_wait(&self) -> Duration {
        self.figures.acknowledge
    }

    /// It steps towards the link, which no receiver and no loss makes less.
    fn is_bound_by_link(&self) -> bool {
        !self.loses && self.capacity.is_none_or(|capacity| capacity >= self.link)
    }

    fn state(&self) -> &'static str {
        match self.capacity {
            Some(_) => "predicted",
            None => "link",
        }
    }
}

/// Makes the controller of `paptc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PaptcConfig;

impl ControllerConfig for PaptcConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &PARAMETERS
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        let figures = Figures::of(&start.parameters);
        Box::new(Stepped::new(start, figures.first, Paptc::new(figures, start.now)))
    }
}

/// Parts per million.
const WHOLE: u64 = 1_000_000;
/// Of the link, the least first rate: what next to nothing arrived in says nothing of the next period, and equation 12 as printed
/// does not come back from no rate at all.
const LEAST_PART: u32 = 100;
/// A step is of no less time: the usual turn of a scheduler.
const LEAST_INTERVAL: Duration = Duration::from_millis(4);
/// In range for [`power_of`]; the step is the floor long before.
const MOST_STEPS: u64 = 1 << 16;

/// Reasons for each value: docs/rate-control.md.
static PARAMETERS: [Parameter; 8] = [
    Parameter { about: "time between two steps, at least 4 ms; 0s: a round trip", ..INTERVAL },
    Parameter {
        name: "acknowledge",
        about: "time between two acknowledgements; 0s: a quarter of a round trip, 1 to 40 ms",
        unit: Unit::Time,
        default: 0,
        least: 0,
        most: 1_000_000_000,
    },
    Parameter::ppm("first", "first rate, of the link", (10_000, 500_000, WHOLE)),
    Parameter::ppm("beta", "weight of what the sender sees in equation 11", (0, 500_000, WHOLE)),
    Parameter::ppm("b", "step of the first period", (1_000, 1_000_000, WHOLE)),
    Parameter::ppm(
        "gamma",
        "by which power of the number of periods the step falls",
        (500_000, 700_000, WHOLE),
    ),
    Parameter::ppm(
        "floor",
        "least step, so that a bottleneck that moves is followed",
        (0, 50_000, WHOLE),
    ),
    Parameter::count(
        "measured",
        "1: equation 12 as printed, with what was measured to arrive",
        (0, 0, 1),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Bottleneck;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    const BOTTLENECK: f64 = 500e6;

    /// A hundred periods from this part of the bottleneck; the rate as a part of it. The receiver's
    /// prediction is up to 10 % off; what is lost is sent again, and known, a period later.
    fn after_a_hundred(from: f64, measured: bool, seed: u64) -> f64 {
        let mut parameters = Parameters::of(&PARAMETERS);
        parameters.set("paptc", &alloc::format!("measured={}", u8::from(measured))).unwrap();
        let mut paptc = Paptc::new(Figures::of(&parameters), Instant::ZERO);
        let rate = Rate::from_bps((BOTTLENECK * from) as u64);
        paptc.begin(Found { link: Rate::from_gbps(2), rate });
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut lost_before = 0.0;
        for _ in 0..100 {
            let error = 0.9 + 0.2 * (rng.next_u32() as f64 / f64::from(u32::MAX));
            paptc.capacity = Some(Rate::from_bps((BOTTLENECK * error) as u64));
            let sent = paptc.rate.as_bps() as f64;
            let arrived = sent.min(BOTTLENECK);
            let lost = core::mem::replace(&mut lost_before, 1.0 - arrived / sent);
            paptc.step((lost * 1e6) as u32, Rate::from_bps(arrived as u64));
        }
        paptc.rate.as_bps() as f64 / BOTTLENECK
    }

    #[test]
    fn periods_in_which_nothing_arrives_leave_a_rate() {
        let mut parameters = Parameters::of(&PARAMETERS);
        parameters.set("paptc", "measured=1").unwrap();
        let mut paptc = Paptc::new(Figures::of(&parameters), Instant::ZERO);
        paptc.begin(Found { link: Rate::from_mbps(600), rate: Rate::from_mbps(300) });
        // Feedback comes in clumps: a period too short for anything to arrive, and one with all of it.
        for _ in 0..1_000 {
            paptc.step(0, Rate::ZERO);
            paptc.step(0, Rate::from_gbps(600));
        }
        assert!(paptc.rate >= Rate::from_mbps(6), "{}", paptc.rate);
    }

    #[test]
    fn after_a_hundred_periods_it_is_at_the_bottleneck_wherever_it_began() {
        for from in [0.3, 1.2, 2.0] {
            let near =
                (0..400).filter(|seed| (after_a_hundred(from, false, *seed) - 1.0).abs() <= 0.02);
            let near = near.count();
            assert!(near >= 380, "from {from}: {near} of 400 seeds within 2 %");
        }
    }

    #[test]
    fn the_equation_as_printed_stays_below_the_bottleneck_and_rises_above_it() {
        let below = after_a_hundred(0.3, true, 1);
        assert!((0.29..0.31).contains(&below), "no step below the bottleneck: {below}");
        for from in [1.2, 2.0] {
            let above = after_a_hundred(from, true, 1);
            assert!(above >= from, "from {from} to {above}");
        }
    }

    #[test]
    fn a_bottleneck_that_moves_is_followed() {
        let mut paptc = Paptc::new(Figures::of(&Parameters::of(&PARAMETERS)), Instant::ZERO);
        let link = Rate::from_gbps(1);
        paptc.begin(Found { link, rate: link });
        paptc.steps = 1_000_000;
        for mbps in [800, 300, 600] {
            paptc.capacity = Some(Rate::from_mbps(mbps));
            (0..200).for_each(|_| paptc.step(0, Rate::from_mbps(mbps)));
            let off = paptc.rate.as_bps().abs_diff(Rate::from_mbps(mbps).as_bps());
            assert!(off <= Rate::from_mbps(mbps).as_bps() / 50, "{mbps}: {}", paptc.rate);
        }
    }

    #[test]
    fn the_user_bounds_it_where_neither_receiver_nor_loss_does() {
        let bound = |rate: Option<Rate>| {
            let parameters = Parameters::of(&PARAMETERS);
            let start = Start { now: Instant::ZERO, packet: 1_500, rate, known: None, parameters };
            PaptcConfig.build(&start).metrics().bound
        };
        assert_eq!(bound(Some(Rate::from_mbps(100))), Bottleneck::StartUp, "half of it is first");
        assert_eq!(bound(None), Bottleneck::StartUp);
        let mut paptc = Paptc::new(Figures::of(&Parameters::of(&PARAMETERS)), Instant::ZERO);
        let link = Rate::from_mbps(100);
        paptc.begin(Found { link, rate: link.scale(1, 2) });
        assert!(paptc.is_bound_by_link());
        paptc.step(1, link);
        assert!(!paptc.is_bound_by_link(), "the network loses");
        paptc.step(0, link);
        paptc.capacity = Some(Rate::from_mbps(99));
        assert!(!paptc.is_bound_by_link(), "the receiver takes less");
        paptc.capacity = Some(link);
        assert!(paptc.is_bound_by_link());
    }

    #[test]
    fn equation_11_is_a_weighted_geometric_mean() {
        let mean = |a, b, beta| mean(Rate::from_mbps(a), Rate::from_mbps(b), beta).as_bps();
        for (a, b, beta, expected) in
            [(400, 900, 500_000, 600), (400, 900, 0, 900), (400, 900, WHOLE, 400)]
        {
            let got = mean(a, b, beta);
            assert!(got.abs_diff(expected * 1_000_000) < 5_000, "{a} {b} {beta}: {got}");
        }
    }
}
