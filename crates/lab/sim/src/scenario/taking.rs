//! Limits that the receiving host reports.

use longhaul_units::{Duration, Rate};

use super::{Choice, Scenario};
use crate::draw::Draw;

/// Limit that the sink's host reports from a time on.
#[derive(Clone, Copy, Debug)]
pub struct Taking {
    /// Since the start of the world.
    pub from: Duration,
    /// Rate that it takes, of the whole connection; `None`: it reports no limit any more.
    pub rate: Option<Rate>,
}

impl Scenario {
    /// Limit that the sink's host reports `since` the start of the world.
    pub(crate) fn takes(&self, since: Duration) -> Option<Rate> {
        self.takings.iter().rev().find(|taking| taking.from <= since)?.rate
    }
}

/// In a fifth of the worlds carried by UDP, once or up to four times: about as much as the slowest line
/// carries, since what is more bounds nothing and what is less ends late.
pub(super) fn draw(scenario: &mut Scenario, slowest: Rate, horizon: u64) {
    let draw = &mut Draw::new(scenario.seed, STREAM);
    if !draw.one_in(5) || scenario.carrier != Choice::Udp {
        return;
    }
    let mut from = if draw.one_in(2) { 0 } else { draw.below(horizon) };
    for _ in 0..draw.between(1, 4) {
        let rate = slowest.scale(draw.between(15, 150) as u32, 100);
        let rate = (!draw.one_in(5)).then_some(rate);
        scenario.takings.push(Taking { from: Duration::from_micros(from), rate });
        from += draw.below(horizon) + 1;
    }
}

/// Number of the stream of choices: apart, so that all else of a seed stays as it was.
const STREAM: u64 = 73;
