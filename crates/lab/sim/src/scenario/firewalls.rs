//! Firewalls that swallow UDP, and what TCP does beside it.

use longhaul_pathsim::DuplexConfig;
use longhaul_units::Duration;

use super::{Accident, Choice, Fault, Scenario};
use crate::draw::Draw;

/// Opening of TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOpens {
    /// After that time.
    After(Duration),
    /// Never.
    Refused,
}

impl Scenario {
    /// True where connections may not be open in time.
    pub(crate) fn tcp_may_fail(&self) -> bool {
        match self.tcp {
            TcpOpens::After(time) => time >= SLOWEST,
            TcpOpens::Refused => true,
        }
    }
}

/// Where a client may take either carrier: in three quarters of the worlds UDP is swallowed, for good, for a
/// time or late, one way or both, and TCP may be slow or refused.
pub(super) fn draw(scenario: &mut Scenario, horizon: u64) {
    let draw = &mut Draw::new(scenario.seed, STREAM);
    if scenario.carrier != Choice::Auto {
        return;
    }
    scenario.tcp = match draw.below(8) {
        0 => TcpOpens::Refused,
        1 | 2 => TcpOpens::After(draw.micros(100_000, 15_000_000)),
        _ => TcpOpens::After(scenario.pipe_delay * 6),
    };
    let (from, length) = match draw.below(8) {
        0..3 => (Duration::ZERO, Duration::MAX),
        3 => (Duration::ZERO, draw.micros(50_000, 8_000_000)),
        4 => (Duration::from_micros(draw.below(horizon)), draw.micros(50_000, 8_000_000)),
        5 => (Duration::from_micros(draw.below(horizon)), Duration::MAX),
        _ => return,
    };
    let until = from.saturating_add(length);
    let [up, down] = *draw.pick(&[[true, true], [true, true], [true, false], [false, true]]);
    let swallow = |path: &mut DuplexConfig, from: Duration, length: Duration| {
        let DuplexConfig { forward, backward } = path.clone();
        path.forward = if up { forward.swallowing_udp(from, length) } else { forward };
        path.backward = if down { backward.swallowing_udp(from, length) } else { backward };
    };
    scenario.paths.iter_mut().for_each(|path| swallow(path, from, length));
    // It stands on every route; the clock of a new one begins with it.
    for Fault { at, what } in &mut scenario.faults {
        if let Accident::Reroute(_, path) = what
            && until > *at
        {
            swallow(path, from.saturating_sub(*at), until - from.max(*at));
        }
    }
}

/// Connections that take as long are given up.
const SLOWEST: Duration = Duration::from_secs(10);
/// Number of the stream of choices: apart, so that all else of a seed stays as it was.
const STREAM: u64 = 84;
