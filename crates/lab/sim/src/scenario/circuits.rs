//! A circuit beside the paths over IP: when it is open, at which rates, and what it leads over.

use longhaul_pathsim::DuplexConfig;
use longhaul_units::{Duration, Rate};

use super::line::{Line, duplex};
use super::{Choice, Scenario};
use crate::draw::Draw;

/// A booked circuit. The client takes lanes there when it opens, and back when it closes.
#[derive(Clone, Debug)]
pub struct Circuit {
    /// Links that it leads over.
    pub line: DuplexConfig,
    /// Rates booked: from, until, both since the start of the world, and how much. In order, and
    /// disjoint.
    pub booked: Vec<(Duration, Duration, Rate)>,
    /// Data goes over IP too while it is open.
    pub beside_ip: bool,
    /// From the beginning of what is booked until the network has set it up.
    pub set_up: Duration,
}

impl Circuit {
    /// True if something is booked `since` the start of the world.
    pub(crate) fn is_booked(&self, since: Duration) -> bool {
        self.booked.iter().any(|(from, until, _)| (*from..*until).contains(&since))
    }

    /// Booked rate `since` the start of the world.
    pub(crate) fn rate(&self, since: Duration) -> Rate {
        let mut booked = self.booked.iter();
        let now = booked.find(|(from, until, _)| (*from..*until).contains(&since));
        now.map_or(Rate::ZERO, |(_, _, rate)| *rate)
    }

    /// True if it leads anywhere.
    pub(crate) fn leads(&self, since: Duration) -> bool {
        self.booked.iter().any(|(from, until, _)| (*from + self.set_up..*until).contains(&since))
    }

    /// When it opens, changes or closes next.
    pub(crate) fn next_change(&self, since: Duration) -> Option<Duration> {
        let times = self.booked.iter().flat_map(|(from, until, _)| [*from, *until]);
        times.filter(|at| *at > since).min()
    }
}

/// In a sixth of the worlds that find their rate and may be carried by UDP.
pub(super) fn draw(scenario: &mut Scenario, horizon: u64) {
    let draw = &mut Draw::new(scenario.seed, STREAM);
    if !draw.one_in(6) || scenario.rate.is_some() || scenario.carrier != Choice::Udp {
        return;
    }
    // The booked rate may be more than the line carries, or much less.
    let line = Line::drawn(draw);
    let line = duplex(draw, &line);
    let carries = line.forward.bottleneck.as_ref().map_or(Rate::from_mbps(1), |b| b.rate.initial);
    let mut booked = Vec::new();
    let mut at = Duration::from_micros(draw.below(horizon));
    for _ in 0..draw.between(1, 4) {
        let until = at + Duration::from_micros(draw.scaled(1_000, horizon.max(2_000) * 2));
        let rate = carries.scale(draw.between(20, 110) as u32, 100);
        booked.push((at, until, rate));
        // Often the next one follows at once: then the rate changes.
        let pause = if draw.one_in(2) { Duration::ZERO } else { draw.micros(100, 500_000) };
        at = until + pause;
    }
    // Rarely it is set up late, or so late that it is taken for dead.
    let set_up = if draw.one_in(4) { draw.micros(1_000, 8_000_000) } else { Duration::ZERO };
    scenario.circuit = Some(Circuit { line, booked, beside_ip: draw.one_in(3), set_up });
}

/// Number of the stream of choices: apart, so that all else of a seed stays as it was.
const STREAM: u64 = 32;
