//! Profile `fobs-state`: green, yellow and red, chosen after each segment.

use alloc::boxed::Box;

use longhaul_units::Rate;

use super::{CHUNK, HOSTS, OVERLAP, SEGMENT, WHOLE};
use crate::controller::{Context, Controller, ControllerConfig, Start};
use crate::controllers::opening::{Found, LEAST, share};
use crate::controllers::stepped::{Stepped, Steps, is_used};
use crate::parameters::{Parameter, Parameters};
use crate::spans::{Span, SpanSizes};

/// Conditions of the path and the hosts (FOBS section 2.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Excellent.
    Green,
    /// Moderate.
    Yellow,
    /// Poor.
    Red,
}

/// Bounds of a state, in parts per million of the link: "its own minimum and maximum sending
/// rates and amounts by which this rate can be increased or decreased".
#[derive(Clone, Copy, Debug)]
struct Bounds {
    floor: u32,
    ceiling: u32,
    up: u32,
    down: u32,
}

/// Values of [`PARAMETERS`].
#[derive(Clone, Copy, Debug)]
struct Figures {
    segment: u64,
    first: u32,
    negligible: u32,
    moderate: u32,
    massive: u32,
    green: Bounds,
    yellow: Bounds,
    red: Bounds,
    hosts: bool,
}

impl Figures {
    fn of(chosen: &Parameters) -> Self {
        let bounds = |[floor, ceiling, up, down]: [&str; 4]| Bounds {
            floor: chosen.share(floor),
            ceiling: chosen.share(ceiling),
            up: chosen.share(up),
            down: chosen.share(down),
        };
        Self {
            segment: chosen.get("segment"),
            first: chosen.share("first"),
            negligible: chosen.share("negligible"),
            moderate: chosen.share("moderate"),
            massive: chosen.share("massive"),
            green: bounds(["green-floor", "green-ceiling", "green-up", "green-down"]),
            yellow: bounds(["yellow-floor", "yellow-ceiling", "yellow-up", "yellow-down"]),
            red: bounds(["red-floor", "red-ceiling", "red-up", "red-down"]),
            hosts: chosen.get("hosts") == 1,
        }
    }

    fn bounds(&self, state: State) -> Bounds {
        match state {
            State::Green => self.green,
            State::Yellow => self.yellow,
            State::Red => self.red,
        }
    }

    /// Loss up to which a state gets better, and the rate rises.
    fn good(&self, state: State) -> u32 {
        match state {
            State::Green | State::Yellow => self.negligible,
            State::Red => self.moderate,
        }
    }

    /// The conditions of change: a state is left for a worse one by its own threshold, and for a
    /// better one by what is good for it.
    fn next(&self, state: State, loss: u32) -> State {
        match state {
            _ if loss > self.massive => State::Red,
            State::Green if loss > self.moderate => State::Yellow,
            State::Yellow if loss <= self.good(state) => State::Green,
            State::Red if loss <= self.good(state) => State::Yellow,
            same => same,
        }
    }
}

/// The aggressive member of FOBS (section 2.2.2), which "attempts to capture all otherwise unused
/// bandwidth": state and loss of the last segment alone decide.
#[derive(Clone, Debug)]
struct ByState {
    figures: Figures,
    state: State,
    link: Rate,
    rate: Rate,
    /// The last segment had massive loss.
    massive: bool,
}

impl ByState {
    fn new(figures: Figures) -> Self {
        Self { figures, state: State::Green, link: LEAST, rate: LEAST, massive: false }
    }

    fn judge(&mut self, loss: u32, used: bool) {
        let (up, good) = (self.figures.bounds(self.state).up, self.figures.good(self.state));
        self.state = self.figures.next(self.state, loss);
        let massive = loss > self.figures.massive;
        if core::mem::replace(&mut self.massive, massive) && massive {
            // No spike: all bounds are shares of a link that is not there.
            self.link = self.link.scale(1, 2).max(LEAST);
        }
        if loss > self.figures.moderate {
            // Where it hurts, by as much as the state that it brings says.
            let down = self.figures.bounds(self.state).down;
            self.rate = self.rate - share(self.link, down);
        } else if loss <= good && used {
            self.rate = self.rate + share(self.link, up).max(LEAST);
        }
        let Bounds { floor, ceiling, .. } = self.figures.bounds(self.state);
        let [floor, ceiling] = [floor, ceiling].map(|part| share(self.link, part).max(LEAST));
        self.rate = self.rate.clamp(floor, ceiling.max(floor));
    }
}

impl Steps for ByState {
    const NAME: &'static str = "fobs-state";

    fn begin(&mut self, found: Found) {
        (self.link, self.rate) = (found.link, found.rate);
    }

    fn spans(&self) -> SpanSizes {
        SpanSizes { segment: Some(self.figures.segment), ..SpanSizes::default() }
    }

    fn on_segment(&mut self, cx: &mut Context<'_>, segment: &Span) {
        let used = is_used(self.rate, segment, cx.estimates.packet());
        // Bounds are shares of the link, which must be able to turn out faster, or slower.
        let forgotten = if used { self.link.scale(1, FORGET) } else { Rate::ZERO };
        self.link = (self.link - forgotten).max(cx.estimates.recent());
        self.judge(segment.loss_ppm(self.figures.hosts), used);
    }

    fn rate(&self) -> Rate {
        self.rate
    }

    fn state(&self) -> &'static str {
        match self.state {
            State::Green => "green",
            State::Yellow => "yellow",
            State::Red => "red",
        }
    }
}

/// Makes the controller of `fobs-state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FobsStateConfig;

impl ControllerConfig for FobsStateConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &PARAMETERS
    }

    fn ordered(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("negligible", "moderate"),
            ("moderate", "massive"),
            ("green-floor", "green-ceiling"),
            ("yellow-floor", "yellow-ceiling"),
            ("red-floor", "red-ceiling"),
        ]
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        let figures = Figures::of(&start.parameters);
        Box::new(Stepped::new(start, figures.first, ByState::new(figures)))
    }
}

/// Segments after which a link that was never reached is forgotten.
const FORGET: u32 = 64;

/// Reasons for each value: docs/rate-control.md.
static PARAMETERS: [Parameter; 20] = {
    const fn rate(name: &'static str, about: &'static str, default: u64) -> Parameter {
        Parameter::ppm(name, about, (10_000, default, 2 * WHOLE))
    }
    [
        SEGMENT,
        CHUNK,
        OVERLAP,
        rate("first", "first rate, of the link", 900_000),
        Parameter::ppm(
            "negligible",
            "loss up to which a state gets better and the rate rises",
            (0, 1_000, WHOLE),
        ),
        Parameter::ppm(
            "moderate",
            "loss above which green turns yellow and the rate falls",
            (0, 5_000, WHOLE),
        ),
        Parameter::ppm("massive", "loss above which any state turns red", (0, 100_000, WHOLE)),
        rate("green-floor", "least rate when green, of the link", 500_000),
        rate("green-ceiling", "greatest", 1_030_000),
        Parameter::ppm("green-up", "by how much it rises", (0, 50_000, WHOLE)),
        Parameter::ppm("green-down", "by how much it falls", (0, 50_000, WHOLE)),
        rate("yellow-floor", "least rate when yellow, of the link", 250_000),
        rate("yellow-ceiling", "greatest", 950_000),
        Parameter::ppm("yellow-up", "by how much it rises", (0, 50_000, WHOLE)),
        Parameter::ppm("yellow-down", "by how much it falls", (0, 100_000, WHOLE)),
        rate("red-floor", "least rate when red, of the link", 50_000),
        rate("red-ceiling", "greatest", 750_000),
        Parameter::ppm("red-up", "by how much it rises", (0, 200_000, WHOLE)),
        Parameter::ppm("red-down", "by how much it falls", (0, 250_000, WHOLE)),
        HOSTS,
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mbps: u64) -> ByState {
        let mut steps = ByState::new(Figures::of(&Parameters::of(&PARAMETERS)));
        steps.begin(Found { link: Rate::from_mbps(100), rate: Rate::from_mbps(mbps) });
        steps
    }

    #[test]
    fn massive_loss_is_answered_at_once_and_nothing_lost_soon_makes_up_for_it() {
        let mut steps = at(100);
        let mut after = |loss| {
            steps.judge(loss, true);
            (steps.state(), steps.rate.as_bps() / 1_000_000)
        };
        assert_eq!(after(500_000), ("red", 75));
        assert_eq!(after(0), ("yellow", 95));
        for rate in [100, 103, 103] {
            assert_eq!(after(0), ("green", rate), "up to the ceiling");
        }
        assert_eq!(after(48_000), ("yellow", 93));
        assert_eq!(after(3_000), ("yellow", 93), "neither negligible nor too much");
    }

    #[test]
    fn a_rate_never_leaves_the_bounds_of_its_state() {
        let mut steps = at(6);
        steps.judge(1_000_000, true);
        assert_eq!(steps.rate, Rate::from_mbps(5));
        steps.judge(0, true);
        assert_eq!((steps.state(), steps.rate), ("yellow", Rate::from_mbps(25)));
        steps.judge(0, false);
        assert_eq!((steps.state(), steps.rate), ("green", Rate::from_mbps(50)));
    }

    #[test]
    fn loss_that_stays_massive_tells_of_another_link() {
        let mut steps = at(100);
        let capacity = Rate::from_mbps(10);
        let mut segments = 0;
        while steps.rate > capacity {
            steps.judge(900_000, true);
            segments += 1;
        }
        assert_eq!((segments, steps.link), (4, Rate::from_bps(12_500_000)));
    }
}
