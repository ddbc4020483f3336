//! Memory of a path at the side that sends.

use longhaul_rate_control::PathMemory;
use longhaul_units::{Duration, Rate};

use super::Scenario;
use crate::draw::Draw;

/// In half of the worlds: right, old, another path's or poisoned. The `rate` and `round_trip` are the line's.
pub(super) fn draw(scenario: &mut Scenario, rate: Rate, round_trip: Duration) {
    let draw = &mut Draw::new(scenario.seed, STREAM);
    if !draw.one_in(2) {
        return;
    }
    let rate = if draw.one_in(3) { rate } else { wrong(draw, rate) };
    let most = if draw.one_in(2) { rate } else { wrong(draw, rate).max(rate) };
    let apart = if draw.one_in(4) { draw.scaled(10, 300) } else { 100 };
    scenario.memory = Some(PathMemory {
        band: (rate, most),
        round_trip: round_trip * apart as u32 / 100,
        chance_ppm: if draw.one_in(3) { 0 } else { draw.scaled(100, 100_000) as u32 },
        packet: *draw.pick(&[1_500, 1_500, 9_000, 1_228]),
        age: Duration::from_secs(draw.scaled(1, 2_500_000)),
        best_profile: None,
    });
}

/// From a hundredth to a hundred times as much.
fn wrong(draw: &mut Draw, rate: Rate) -> Rate {
    let percent = draw.scaled(1, 10_000);
    Rate::from_bps((u128::from(rate.as_bps()) * u128::from(percent) / 100) as u64)
}

/// Number of the stream of choices: apart, so that all else of a seed stays as it was.
const STREAM: u64 = 85;
