//! Paths that fall silent, and speak again.

use longhaul_units::Duration;

use super::{Choice, End, Scenario};
use crate::draw::Draw;

/// A time in which a path swallows what is sent over it.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// Number of the path; that of a circuit is one past the others.
    pub path: u16,
    /// From when, since the start of the world.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
    /// Directions that are swallowed.
    pub directions: Directions,
}

/// Directions of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// Both of them.
    Both,
    /// Packets that the host at that end sends.
    Of(End),
}

impl Silence {
    /// True if it swallows what `from` sends over `path` `since` the start of the world.
    pub(crate) fn swallows(&self, path: u16, from: End, since: Duration) -> bool {
        let matches =
            self.directions == Directions::Both || self.directions == Directions::Of(from);
        matches && self.path == path && (self.from..self.until).contains(&since)
    }
}

impl Scenario {
    /// Number of paths over IP.
    pub(crate) fn ip_paths(&self) -> u16 {
        self.homes.iter().max().map_or(1, |path| path + 1)
    }

    /// True if what `from` sends over `path` is swallowed.
    pub(crate) fn is_silent(&self, path: u16, from: End, since: Duration) -> bool {
        let circuit = self.circuit.as_ref().filter(|_| path == self.ip_paths());
        circuit.is_some_and(|circuit| !circuit.leads(since))
            || self.silences.iter().any(|silence| silence.swallows(path, from, since))
    }

    /// When no path falls silent or changes any more.
    pub(crate) fn paths_settled(&self) -> Duration {
        let silences = self.silences.iter().map(|silence| silence.until);
        let silences = silences.chain(self.refusals.iter().map(|refusal| refusal.until));
        let booked = self.circuit.iter().flat_map(|circuit| &circuit.booked);
        silences.chain(booked.map(|(_, until, _)| *until)).max().unwrap_or_default()
    }
}

/// In a quarter of the worlds of several paths.
pub(super) fn draw(scenario: &mut Scenario, horizon: u64) {
    let draw = &mut Draw::new(scenario.seed, STREAM);
    let paths = u64::from(scenario.ip_paths()) + u64::from(scenario.circuit.is_some());
    if !draw.one_in(4) || paths < 2 || scenario.carrier != Choice::Udp {
        return;
    }
    for _ in 0..draw.between(1, 3) {
        let from = Duration::from_micros(draw.below(horizon));
        let directions = *draw.pick(&[
            Directions::Both,
            Directions::Both,
            Directions::Of(End::Client),
            Directions::Of(End::Server),
        ]);
        let until = from + draw.micros(100_000, LONGEST_US);
        let path = draw.below(paths) as u16;
        scenario.silences.push(Silence { path, from, until, directions });
    }
}

/// Less than an idle timeout, and more than it takes to find another path.
const LONGEST_US: u64 = 20_000_000;
/// Number of the stream of choices: apart, so that all else of a seed stays as it was.
const STREAM: u64 = 33;
