//! One line of a network, as it is drawn: both directions alike, or nearly.

use longhaul_pathsim::{DuplexConfig, EcnMarking, GilbertElliott, Jitter, PathConfig, Probability};
use longhaul_units::{Bytes, Duration, Rate};

use crate::draw::Draw;

/// Properties that both directions of a path have in common.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) delay: Duration,
    pub(super) rate: Rate,
    pub(super) hostile: bool,
}

impl Line {
    pub(super) fn drawn(draw: &mut Draw) -> Self {
        Self {
            delay: draw.micros(50, 150_000),
            rate: Rate::from_kbps(draw.scaled(4_000, 4_000_000)),
            hostile: draw.one_in(2),
        }
    }
}

pub(super) fn duplex(draw: &mut Draw, line: &Line) -> DuplexConfig {
    let back = if draw.one_in(3) { draw.between(10, 100) as u32 } else { 100 };
    let slower = Line { rate: line.rate.scale(back, 100), ..line.clone() };
    let (mut forward, mut backward) = (path(draw, line), path(draw, &slower));
    if draw.one_in(2) {
        core::mem::swap(&mut forward, &mut backward);
    }
    if draw.one_in(6) {
        forward = forward.rebinding(draw.micros(1_000, 3_000_000));
    }
    DuplexConfig { forward, backward }
}

fn path(draw: &mut Draw, line: &Line) -> PathConfig {
    let round_trip = line.rate.bytes_in(line.delay * 2);
    let queue = (round_trip * draw.between(20, 200) / 100).clamp(20_000, 50_000_000);
    let mut path = PathConfig::default().delay(line.delay).rate(line.rate, Bytes::new(queue));
    if draw.one_in(4) {
        let from = Bytes::new(queue / draw.between(2, 10));
        let marking = if draw.one_in(2) {
            EcnMarking::step(from)
        } else {
            EcnMarking::ramp(from, Bytes::new(queue), Probability::from_percent(20))
        };
        path = path.ecn(marking).expect("a rate is set");
    }
    if draw.one_in(6) {
        path = path.mtu(*draw.pick(&[1_280, 1_300, 1_500, 4_100, 9_000]));
    }
    if !line.hostile {
        return path;
    }
    if draw.one_in(3) {
        path = path.jitter(Jitter::uniform(draw.micros(10, 20_000)));
    }
    if draw.one_in(12) {
        path = path.policer(line.rate.scale(9, 10), Bytes::new(queue));
    }
    if draw.one_in(2) {
        path = path.loss(Probability::from_ppm(draw.scaled(100, 80_000) as u32));
    }
    if draw.one_in(5) {
        let enter = Probability::from_ppm(draw.scaled(100, 5_000) as u32);
        path = path.burst_loss(GilbertElliott::bursts(enter, draw.between(2, 10) as u32));
    }
    if draw.one_in(4) {
        let probability = Probability::from_ppm(draw.scaled(100, 50_000) as u32);
        path = path.reordering(probability, draw.micros(10, 100_000));
    }
    if draw.one_in(5) {
        let probability = Probability::from_ppm(draw.scaled(100, 50_000) as u32);
        path = path.duplication(probability, draw.micros(1, 100_000));
    }
    if draw.one_in(4) {
        path = path.corruption(Probability::from_ppm(draw.scaled(10, 10_000) as u32));
    }
    if draw.one_in(6) {
        let at = draw.micros(100, 3_000_000);
        path = path.outage(at, draw.micros(1_000, 6_000_000));
    }
    path
}
