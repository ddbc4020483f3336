//! Profile `sabul`: a constant decrease for each interval with too much loss.

use alloc::boxed::Box;

use longhaul_units::{Duration, Instant, Rate};

use super::opening::{Found, LEAST, share};
use super::stepped::{INTERVAL, Stepped, Steps, interval_of, is_used, power_of_ten};
use crate::controller::{Context, Controller, ControllerConfig, Start};
use crate::feedback::Feedback;
use crate::parameters::{Parameter, Parameters, Unit};
use crate::spans::Span;

/// Values of [`PARAMETERS`].
#[derive(Clone, Copy, Debug)]
struct Figures {
    interval: Duration,
    first: u32,
    threshold: u32,
    weight: u64,
    decrease: u32,
    block: u64,
    hosts: bool,
}

impl Figures {
    fn of(chosen: &Parameters) -> Self {
        Self {
            interval: chosen.time("interval"),
            first: chosen.share("first"),
            threshold: chosen.share("threshold"),
            weight: chosen.get("weight"),
            decrease: chosen.share("decrease"),
            block: chosen.get("block"),
            hosts: chosen.get("hosts") == 1,
        }
    }
}

/// SABUL as FOBS describes it (section 5): "a feedback control interval on the order of a single
/// round trip time", and it "reduces its sending rate by a constant amount when the loss rate exceeds
/// a given threshold". How it rises, smooths and fills its buffer is of SABUL 2.2, `sender.cpp`.
#[derive(Clone, Debug)]
struct Sabul {
    figures: Figures,
    link: Rate,
    rate: Rate,
    since: Instant,
    span: Span,
    /// Smoothed loss, parts per million.
    loss: u64,
    easing: bool,
}

impl Sabul {
    fn new(figures: Figures, now: Instant) -> Self {
        let (link, rate, span) = (LEAST, LEAST, Span::default());
        Self { figures, link, rate, since: now, span, loss: 0, easing: false }
    }

    fn judge(&mut self, span: &Span, packet: u64) {
        let Figures { weight, threshold, decrease, hosts, .. } = self.figures;
        let loss = u64::from(span.loss_ppm(hosts));
        self.loss = (self.loss * weight + loss * (WHOLE - weight)) / WHOLE;
        self.easing = self.loss > u64::from(threshold);
        if self.easing {
            let step = share(self.link, decrease).max(LEAST);
            self.rate = (self.rate - step).max(step);
        } else if is_used(self.rate, span, packet) {
            self.rate = self.rate + rise(self.rate, span.took, packet);
        }
    }
}

/// `10^ceil(log10(packets of an interval)) / 1000` packets more, at least one of 1500.
fn rise(rate: Rate, interval: Duration, packet: u64) -> Rate {
    let packets = rate.bytes_in(interval).div_ceil(packet);
    let bytes = power_of_ten(packets).saturating_mul(packet) / 1_000;
    Rate::from_bytes_over(bytes.max(packet / 1_500).max(1), interval)
}

impl Steps for Sabul {
    const NAME: &'static str = "sabul";

    fn begin(&mut self, found: Found) {
        (self.link, self.rate) = (found.link, found.rate);
    }

    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback) {
        self.span.add(feedback);
        let took = cx.now - self.since;
        let interval = interval_of(self.figures.interval, LEAST_INTERVAL, cx);
        if took < interval {
            return;
        }
        let span = Span { took, ..core::mem::take(&mut self.span) };
        self.since = cx.now;
        self.judge(&span, cx.estimates.packet());
    }

    fn rate(&self) -> Rate {
        self.rate
    }

    fn window(&self) -> u64 {
        self.figures.block.saturating_mul(BLOCKS)
    }

    fn state(&self) -> &'static str {
        if self.easing { "losing" } else { "rising" }
    }
}

/// Makes the controller of `sabul`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SabulConfig;

impl ControllerConfig for SabulConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &PARAMETERS
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        let figures = Figures::of(&start.parameters);
        Box::new(Stepped::new(start, figures.first, Sabul::new(figures, start.now)))
    }
}

/// Parts per million.
const WHOLE: u64 = 1_000_000;
/// Feedback is no denser.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);
/// A buffer of 40.96 MB takes no sixth.
const BLOCKS: u64 = 5;

/// Reasons for each value: docs/rate-control.md.
static PARAMETERS: [Parameter; 7] = [
    INTERVAL,
    Parameter::ppm("first", "first rate, of the link", (0, 800_000, WHOLE)),
    Parameter::ppm("threshold", "smoothed loss above which the rate falls", (0, 1_000, WHOLE)),
    Parameter::ppm("weight", "of the intervals before in that", (0, 100_000, WHOLE)),
    Parameter::ppm("decrease", "by how much it falls, of the link", (0, 50_000, WHOLE)),
    Parameter {
        name: "block",
        about: "bytes read at once, of which five may be unacknowledged",
        unit: Unit::Size,
        default: 7_340_000,
        least: 100_000,
        most: 1_000_000_000_000,
    },
    super::fobs::HOSTS,
];

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Losses;

    fn sabul() -> Sabul {
        let mut sabul = Sabul::new(Figures::of(&Parameters::of(&PARAMETERS)), Instant::ZERO);
        let link = Rate::from_mbps(120);
        sabul.begin(Found { link, rate: link });
        sabul
    }

    fn span(acked_packets: u64, lost: u64) -> Span {
        let lost = Losses { unknown: lost, ..Losses::default() };
        Span { acked_packets, lost, took: Duration::from_millis(50) }
    }

    #[test]
    fn each_interval_above_the_threshold_costs_the_same() {
        let mut sabul = sabul();
        for rate in [114, 108, 102] {
            sabul.judge(&span(450, 50), 1_500);
            assert_eq!(sabul.rate, Rate::from_mbps(rate));
        }
        for _ in 0..40 {
            sabul.judge(&span(10, 400), 1_500);
        }
        assert_eq!(sabul.rate, Rate::from_mbps(6), "never zero");
    }

    #[test]
    fn it_rises_by_a_thousandth_of_a_power_of_ten_packets() {
        let mut sabul = sabul();
        // 500 packets in 50 ms: one more in each 50 ms.
        sabul.judge(&span(500, 0), 1_500);
        assert_eq!(sabul.rate, Rate::from_bps(120_240_000));
        sabul.judge(&span(100, 0), 1_500);
        assert_eq!(sabul.rate, Rate::from_bps(120_240_000), "nobody used it");
        assert_eq!(rise(LEAST, Duration::from_millis(1), 1_500), Rate::from_kbps(8));
    }

    #[test]
    fn one_bad_interval_is_soon_forgotten() {
        let mut sabul = sabul();
        // 10 % of loss weigh 9 %, then 0.9, then 0.09 %.
        for (lost, easing) in [(50, true), (0, true), (0, false)] {
            sabul.judge(&span(500 - lost, lost), 1_500);
            assert_eq!(sabul.easing, easing);
        }
    }
}
