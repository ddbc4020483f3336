//! Profile `fobs-linear`: one linear step after each whole chunk, and a memory of which steps were
//! too much.

use alloc::boxed::Box;

use longhaul_units::Rate;

use super::{CHUNK, HOSTS, OVERLAP, SEGMENT, WHOLE};
use crate::controller::{Context, Controller, ControllerConfig, Start};
use crate::controllers::opening::{Found, LEAST, share};
use crate::controllers::stepped::{Stepped, Steps, is_used};
use crate::parameters::{Parameter, Parameters};
use crate::spans::{Span, SpanSizes};

/// Values of [`PARAMETERS`].
#[derive(Clone, Copy, Debug)]
struct Figures {
    chunk: u64,
    first: u32,
    threshold: u32,
    step: u32,
    climb: u32,
    significant: u32,
    trust: u64,
    forget: u64,
    hosts: bool,
}

impl Figures {
    fn of(chosen: &Parameters) -> Self {
        Self {
            chunk: chosen.get("chunk"),
            first: chosen.share("first"),
            threshold: chosen.share("threshold"),
            step: chosen.share("step"),
            climb: chosen.share("climb"),
            significant: chosen.share("significant"),
            trust: chosen.get("trust"),
            forget: chosen.get("forget"),
            hosts: chosen.get("hosts") == 1,
        }
    }
}

/// The non-aggressive member of FOBS (section 2.2.1), which "attempts to find and remain within a
/// sending range that allows it to maintain a data loss rate very close to zero".
///
/// The mean loss of a whole chunk decides: above the threshold the rate falls by a step, else it
/// rises by one, unless the history of that band of rates says that this would cost packets.
#[derive(Clone, Debug)]
struct Linear {
    figures: Figures,
    link: Rate,
    rate: Rate,
    chunks: u64,
    bands: [Band; BANDS],
    /// The band that the last chunk tried, and the loss of the one before it, parts per million.
    attempt: Option<(usize, u32)>,
    /// True if history kept the rate where it is.
    held: bool,
}

/// Rates that differ by less than a step.
#[derive(Clone, Copy, Default, Debug)]
struct Band {
    /// Number of times that the rate was raised into it, and that this brought significantly more loss.
    attempts: u64,
    worse: u64,
    /// The chunk at which that was last true.
    known: u64,
}

impl Linear {
    fn new(figures: Figures) -> Self {
        let bands = [Band::default(); BANDS];
        let (link, rate) = (LEAST, LEAST);
        Self { figures, link, rate, chunks: 0, bands, attempt: None, held: false }
    }

    fn judge(&mut self, loss: u32, used: bool) {
        let figures = self.figures;
        self.chunks += 1;
        self.remember(loss);
        self.held = false;
        let step = share(self.link, figures.step).max(LEAST);
        if loss > figures.threshold {
            self.rate = (self.rate - step).max(step);
            return;
        }
        if !used {
            return;
        }
        let next = self.rate + share(self.link, figures.climb).max(LEAST);
        let band = ((next.as_bps() / step.as_bps()) as usize).min(BANDS - 1);
        self.held = self.bands[band].is_too_much(self.chunks, &figures);
        if !self.held {
            self.attempt = Some((band, loss));
            self.rate = next;
            self.relearn();
        }
    }

    /// "tracking the number of attempts made to move into a higher operational band, and the number
    /// of times such a move has resulted in a significant increase in packet loss"
    fn remember(&mut self, loss: u32) {
        if let Some((band, before)) = self.attempt.take() {
            let more = loss > before.saturating_add(self.figures.significant);
            let band = &mut self.bands[band];
            band.attempts += 1;
            band.worse += u64::from(more);
            band.known = self.chunks;
        }
    }

    /// The path carries twice of what was taken for its link: steps were too small, and bands as
    /// well.
    fn relearn(&mut self) {
        if self.rate >= self.link.scale(2, 1) {
            self.begin(Found { link: self.rate, rate: self.rate });
        }
    }
}

impl Band {
    /// "the new boundaries tend to remain fixed long enough", but not forever: half is forgotten
    /// when nothing was tried for a while.
    fn is_too_much(&mut self, chunks: u64, figures: &Figures) -> bool {
        if chunks - self.known >= figures.forget {
            (self.attempts, self.worse) = (self.attempts / 2, self.worse / 2);
            self.known = chunks;
        }
        self.attempts > 0 && self.worse * WHOLE >= self.attempts * figures.trust
    }
}

impl Steps for Linear {
    const NAME: &'static str = "fobs-linear";

    fn begin(&mut self, found: Found) {
        *self = Self { link: found.link, rate: found.rate, ..Self::new(self.figures) };
    }

    fn spans(&self) -> SpanSizes {
        SpanSizes { chunk: Some(self.figures.chunk), ..SpanSizes::default() }
    }

    fn on_chunk(&mut self, cx: &mut Context<'_>, chunk: &Span) {
        let used = is_used(self.rate, chunk, cx.estimates.packet());
        self.judge(chunk.loss_ppm(self.figures.hosts), used);
    }

    fn rate(&self) -> Rate {
        self.rate
    }

    fn state(&self) -> &'static str {
        if self.held { "held by history" } else { "stepping" }
    }
}

/// Makes the controller of `fobs-linear`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FobsLinearConfig;

impl ControllerConfig for FobsLinearConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &PARAMETERS
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        let figures = Figures::of(&start.parameters);
        Box::new(Stepped::new(start, figures.first, Linear::new(figures)))
    }
}

/// Bands of the history. At the least step there are so many up to twice the link, where it begins
/// again.
const BANDS: usize = 201;

/// Reasons for each value: docs/rate-control.md.
static PARAMETERS: [Parameter; 11] = [
    SEGMENT,
    CHUNK,
    OVERLAP,
    Parameter::ppm("first", "first rate, of the link", (10_000, 800_000, WHOLE)),
    Parameter::ppm(
        "threshold",
        "mean loss of a chunk above which the rate falls",
        (0, 5_000, 500_000),
    ),
    Parameter::ppm("step", "by how much it falls, of the link", (10_000, 50_000, 500_000)),
    Parameter::ppm("climb", "by how much it rises, of the link", (1_000, 50_000, 500_000)),
    Parameter::ppm(
        "significant",
        "more loss than before that tells against a band",
        (0, 1_000, WHOLE),
    ),
    Parameter::ppm("trust", "share of such moves that tells against the next", (1, 500_000, WHOLE)),
    Parameter::count(
        "forget",
        "chunks after which half of what a band's history says is forgotten",
        (1, 100, 1_000_000),
    ),
    HOSTS,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(link: u64) -> Linear {
        let (link, rate) = (Rate::from_mbps(link), Rate::from_mbps(link * 9 / 10));
        let mut steps = Linear::new(Figures::of(&Parameters::of(&PARAMETERS)));
        steps.begin(Found { link, rate });
        steps
    }

    #[test]
    fn a_chunk_of_more_than_half_a_percent_takes_five_megabits_of_a_hundred() {
        let mut steps = steps(100);
        steps.judge(5_001, true);
        assert_eq!(steps.rate, Rate::from_mbps(85));
        steps.judge(900_000, true);
        assert_eq!(steps.rate, Rate::from_mbps(80), "constant, however much was lost");
        steps.judge(5_000, true);
        assert_eq!(steps.rate, Rate::from_mbps(85), "at the threshold it rises");
        for _ in 0..100 {
            steps.judge(1_000_000, true);
        }
        assert_eq!(steps.rate, Rate::from_mbps(5), "never zero");
    }

    #[test]
    fn a_band_that_cost_packets_is_left_alone_until_that_is_forgotten() {
        let mut steps = steps(100);
        let mut above = 0;
        for _ in 0..220 {
            let full = steps.rate > Rate::from_mbps(100);
            above += u32::from(full);
            steps.judge(if full { 47_000 } else { 0 }, true);
        }
        assert_eq!(above, 3, "at once, and each hundred chunks");
        assert_eq!(steps.rate, Rate::from_mbps(100));
        assert!(steps.held);
    }

    #[test]
    fn a_move_that_cost_nothing_more_tells_nothing_against_its_band() {
        let mut steps = steps(100);
        for loss in [4_000, 4_900, 4_900] {
            steps.judge(loss, true);
        }
        assert_eq!(steps.rate, Rate::from_mbps(105));
    }

    #[test]
    fn a_rate_that_nobody_used_is_not_raised() {
        let mut steps = steps(100);
        steps.judge(0, false);
        assert_eq!(steps.rate, Rate::from_mbps(90));
        steps.judge(6_000, false);
        assert_eq!(steps.rate, Rate::from_mbps(85), "but loss is loss");
    }

    #[test]
    fn a_link_taken_for_less_than_it_is_is_found_out() {
        let mut steps = steps(10);
        for _ in 0..120 {
            steps.judge(0, true);
        }
        assert!(steps.rate >= Rate::from_mbps(500), "{}", steps.rate);
    }
}
