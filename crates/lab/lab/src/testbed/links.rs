//! The devices at the ends of links, and what the emulation is to do between them.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use longhaul_pathsim::PathConfig;
use longhaul_sys::netns::Namespace;

use super::place::{DEVICE_QUEUE, Place};
use super::{TestbedError, addresses, routes, step, switch};
use crate::emulator::{End, LinkSetup};
use crate::topology::{LineKind, LinkSpec};

/// Makes link `number` between two nodes.
pub(super) fn make(
    link: &LinkSpec,
    number: usize,
    nodes: [&Namespace; 2],
    seed: u64,
    ipv6: bool,
) -> Result<LinkSetup, TestbedError> {
    let mut path = link.paths()?;
    let memory = [&path.forward, &path.backward].map(memory);
    let end = |end: usize, path: &mut PathConfig| {
        let pair =
            |address: fn(usize, usize) -> _| [address(number, end), address(number, 1 - end)];
        let v4 = (pair(addresses::link_v4), addresses::LINK_V4);
        let v6 = (pair(addresses::link_v6), addresses::LINK_V6);
        let place = Place {
            node: nodes[end],
            device: routes::device(number),
            mtu: link.mtu,
            ipv6,
            addresses: if ipv6 { vec![v4, v6] } else { vec![v4] },
        };
        match path.bottleneck.take_if(|_| link.line == LineKind::Htb) {
            Some(line) => switch::make(place, line),
            None => plain(place),
        }
    };
    let ends = [end(0, &mut path.forward)?, end(1, &mut path.backward)?];
    // Links differ in what is random, also with equal conditions.
    let seed = seed.wrapping_add((number as u64) << 32);
    Ok(LinkSetup { path, answers: !link.black_hole, seed, memory, ends })
}

/// Joins two nodes by a veth pair in place of link `number`.
pub(super) fn join(number: usize, nodes: [&Namespace; 2], mtu: u32, ipv6: bool) -> io::Result<()> {
    let pair = |address: fn(usize, usize) -> IpAddr| [address(number, 0), address(number, 1)];
    let mut addresses = vec![(pair(addresses::link_v4), addresses::LINK_V4)];
    if ipv6 {
        addresses.push((pair(addresses::link_v6), addresses::LINK_V6));
    }
    nodes[0].join(nodes[1], &routes::device(number), mtu, &addresses)
}

/// The node's device is the emulation's.
fn plain(place: Place<'_>) -> Result<End, TestbedError> {
    let Place { node, device, mtu, addresses, .. } = place;
    let tun = node.add_tun(&device, mtu, DEVICE_QUEUE).map_err(step("make a TUN device"))?;
    for ([here, _], prefix) in addresses {
        node.add_address(&device, here, prefix).map_err(step("give a device an address"))?;
    }
    let counters = node.counters().map_err(step("read the devices' counters"))?;
    Ok(End { tun, counters, device, line: None })
}

/// Bytes that a direction may have under way: what its rate puts on the line in its delay, what may
/// be held back, and its queue.
fn memory(path: &PathConfig) -> usize {
    let Some(bottleneck) = &path.bottleneck else { return MEMORY_MAX };
    let changes = bottleneck.rate.changes.iter().map(|change| change.1);
    let fastest = changes.chain([bottleneck.rate.initial]).max().unwrap_or_default();
    let held_back = path.reordering.map_or(Duration::ZERO, |late| late.extra)
        + path.duplication.map_or(Duration::ZERO, |copy| copy.lag);
    let under_way = fastest.bytes_in(path.delay + held_back + SLACK);
    let bytes = under_way.saturating_add(bottleneck.queue.get()).saturating_mul(2);
    usize::try_from(bytes).unwrap_or(MEMORY_MAX).min(MEMORY_MAX)
}

/// For jitter, and for deliveries that are late.
const SLACK: Duration = Duration::from_millis(200);
/// Address space that is taken only as far as it is used.
const MEMORY_MAX: usize = 4 << 30;
