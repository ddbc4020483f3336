//! Routes between nodes: each by the shortest chain of links.

use std::io;

use longhaul_sys::netns::{self, Namespace, RouteEntry};

use super::addresses;
use crate::topology::Topology;

/// Gives a node its own addresses, and the ways to all others.
pub(super) fn lay(
    topology: &Topology,
    node: usize,
    namespace: &Namespace,
    ipv6: bool,
) -> io::Result<()> {
    namespace.add_address("lo", addresses::node_v4(node), addresses::NODE_V4)?;
    if ipv6 {
        namespace.add_address("lo", addresses::node_v6(node), addresses::NODE_V6)?;
    }
    for (other, link) in topology.next_hops(node).into_iter().enumerate() {
        let Some(link) = link.filter(|_| other != node) else { continue };
        namespace.add_route(&device(link), &route_v4(topology, node, other, link))?;
        if ipv6 {
            let route = RouteEntry {
                to: addresses::node_v6(other),
                prefix: addresses::NODE_V6,
                via: Some(addresses::link_v6(link, far_end(topology, node, link))),
                source: Some(addresses::node_v6(node)),
                congestion_control: None,
            };
            namespace.add_route(&device(link), &route)?;
        }
    }
    Ok(())
}

/// The route from a node to another by IPv4, and the device that it begins at.
pub(super) fn between(topology: &Topology, node: usize, other: usize) -> (String, RouteEntry) {
    match topology.next_hops(node)[other] {
        Some(link) => (device(link), route_v4(topology, node, other, link)),
        // The hosts of a direct testbed are neighbours without a link.
        None => {
            let route = RouteEntry {
                to: addresses::node_v4(other),
                prefix: addresses::NODE_V4,
                via: None,
                source: Some(addresses::node_v4(node)),
                congestion_control: None,
            };
            (netns::DEVICE.to_owned(), route)
        }
    }
}

/// The device of a link, at both of its ends.
pub(super) fn device(link: usize) -> String {
    format!("link{link}")
}

fn route_v4(topology: &Topology, node: usize, other: usize, link: usize) -> RouteEntry {
    RouteEntry {
        to: addresses::node_v4(other),
        prefix: addresses::NODE_V4,
        via: Some(addresses::link_v4(link, far_end(topology, node, link))),
        source: Some(addresses::node_v4(node)),
        congestion_control: None,
    }
}

/// Which end of a link is not at `node`.
fn far_end(topology: &Topology, node: usize, link: usize) -> usize {
    usize::from(topology.ends(link)[0] == node)
}
