//! Paths and interfaces that take no packets as large as UDP needs them.

use longhaul_pathsim::DuplexConfig;
use longhaul_units::Duration;

use super::{Accident, Choice, Fault, Scenario};
use crate::draw::Draw;

/// In a twentieth of the worlds that begin with UDP: from the start, or in the middle.
pub(super) fn draw(scenario: &mut Scenario, horizon: u64) {
    let draw = &mut Draw::new(scenario.seed, STREAM);
    let by_tcp_too = scenario.carrier != Choice::Tcp && scenario.circuit.is_none();
    if !draw.one_in(20) || !by_tcp_too {
        return;
    }
    if draw.one_in(2) {
        scenario.carrier = Choice::Auto;
    }
    scenario.is_narrow = true;
    let headers = if scenario.ipv6 { 48 } else { 28 };
    let datagram = draw.between(548, 1199) as u16;
    let mtu = u32::from(datagram) + headers;
    let both = draw.one_in(2);
    let narrow = |line: &DuplexConfig| {
        let DuplexConfig { forward, backward } = line.clone();
        let backward = if both { backward.mtu(mtu) } else { backward };
        DuplexConfig { forward: forward.mtu(mtu), backward }
    };
    if Draw::new(scenario.seed, QUEUED_STREAM).one_in(5) {
        scenario.queued_max = datagram;
        return;
    }
    // Of several paths one alone in a third of them.
    let apart = &mut Draw::new(scenario.seed, ALONE_STREAM);
    let paths = scenario.homes.iter().max().map_or(1, |last| u64::from(*last) + 1);
    let alone = (paths > 1 && apart.one_in(3)).then(|| apart.below(paths) as u16);
    let homes = scenario.homes.clone();
    let is_narrow =
        |lane: usize| alone.is_none_or(|path| homes.get(lane).is_some_and(|home| *home == path));
    match draw.below(4) {
        0 => {
            let lines = scenario.paths.iter_mut().enumerate().filter(|(lane, _)| is_narrow(*lane));
            lines.for_each(|(_, line)| *line = narrow(line));
        }
        1 => {
            let at = Duration::from_micros(draw.below(horizon));
            let lines = (0..).zip(&scenario.paths);
            let lines = lines.filter(|(lane, _)| is_narrow(usize::from(*lane)));
            let faults = lines.map(|(lane, line)| Fault {
                at,
                what: Accident::Reroute(lane, Box::new(narrow(line))),
            });
            scenario.faults.extend(faults.collect::<Vec<_>>());
            scenario.faults.sort_by_key(|fault| fault.at);
        }
        2 => (scenario.datagram_max, scenario.interface_max) = (datagram, datagram),
        _ => scenario.interface_max = datagram,
    }
}

/// Number of the stream of choices: apart, so that all else of a seed stays as it was.
const STREAM: u64 = 82;
const QUEUED_STREAM: u64 = 86;
const ALONE_STREAM: u64 = 87;
