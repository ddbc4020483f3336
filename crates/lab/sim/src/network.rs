//! What is between the two hosts: a path for each lane, address translation, and an adversary.

mod adversary;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use longhaul_pathsim::{DuplexConfig, Ecn, Fate, Link};
use longhaul_units::Instant;

use crate::connection::Outgoing;
use crate::draw::Draw;
use crate::packet::Datagram;
use crate::scenario::{End, Scenario};
use crate::trace::{Checks, Kind, Trace};
use adversary::Adversary;

#[derive(Debug)]
pub(crate) struct Network {
    lanes: Vec<Lane>,
    ipv6: bool,
    adversary: Adversary,
    draw: Draw,
    ports: u16,
}

/// The route of one lane, which outlives connections.
#[derive(Debug)]
struct Lane {
    /// The present route is the last; older ones deliver what is under way.
    up: Vec<Link<Datagram>>,
    down: Vec<Link<Datagram>>,
    /// Where the client's packets seem to come from, and are answered to.
    client: SocketAddr,
}

/// A packet that arrived at a host.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub at: End,
    pub packet: Datagram,
    pub marked: bool,
}

impl Network {
    pub fn new(scenario: &Scenario, now: Instant) -> Self {
        let mut network = Self {
            lanes: Vec::new(),
            ipv6: scenario.ipv6,
            adversary: Adversary::new(scenario.seed, scenario.adversary, scenario.ipv6),
            draw: Draw::new(scenario.seed, 2),
            ports: 40_000,
        };
        for path in &scenario.paths {
            let client = network.new_client_address();
            let lane = Lane {
                up: vec![network.link(&path.forward, now)],
                down: vec![network.link(&path.backward, now)],
                client,
            };
            network.lanes.push(lane);
        }
        network
    }

    fn link(&mut self, path: &longhaul_pathsim::PathConfig, now: Instant) -> Link<Datagram> {
        Link::new(path, self.draw.word(), now).expect("scenarios have possible paths")
    }

    fn new_client_address(&mut self) -> SocketAddr {
        self.ports += 1;
        SocketAddr::new(host(self.ipv6, 1), self.ports)
    }

    /// Where the server listens.
    pub fn server(&self) -> SocketAddr {
        SocketAddr::new(host(self.ipv6, 2), 7420)
    }

    /// A new process at the client has new ports.
    pub fn renew_client(&mut self) {
        for number in 0..self.lanes.len() {
            self.lanes[number].client = self.new_client_address();
        }
    }

    pub fn reroute(&mut self, lane: u16, path: &DuplexConfig, now: Instant) {
        let (up, down) = (self.link(&path.forward, now), self.link(&path.backward, now));
        if let Some(lane) = self.lanes.get_mut(usize::from(lane)) {
            lane.up.push(up);
            lane.down.push(down);
        }
    }

    /// Takes a datagram from the host at `from`.
    pub fn send(
        &mut self,
        now: Instant,
        from: End,
        Outgoing { to, lane, bytes }: Outgoing,
        trace: &mut Trace,
        checks: &mut Checks,
    ) {
        let server = self.server();
        let Some(route) = self.lanes.get_mut(usize::from(lane.0)) else { return };
        let source = if from == End::Client { route.client } else { server };
        let packet = Datagram { from: source, bytes: Arc::new(bytes) };
        let wire = packet.wire_bytes();
        trace.event(now, Kind::Sent, [packet.number(), wire, u64::from(lane.0)]);
        trace.note(now, || format!("{from:?} sends {} to {to}", packet.brief()));
        let reaches = if from == End::Client { to == server } else { to == route.client };
        if !reaches {
            return self.adversary.receive(to, wire, &packet, checks);
        }
        let links = if from == End::Client { &mut route.up } else { &mut route.down };
        let link = links.last_mut().expect("a lane has a route");
        if let Some(idea) = self.adversary.idea(&packet, from.peer()) {
            let fate = link.push(now, idea.wire_bytes() as u32, Ecn::Ect0, idea.clone());
            trace.note(now, || format!("adversary: {} from {}", idea.brief(), idea.from));
            if fate.arrival().is_some() {
                self.adversary.count(&idea);
            }
        }
        let fate = link.push(now, wire as u32, Ecn::Ect0, packet);
        trace.note(now, || match fate {
            Fate::Deliver(arrival) => format!("    arrives at {:?}", arrival.at),
            Fate::Drop(reason) => format!("    is lost: {reason:?}"),
        });
    }

    /// The next packet that has arrived.
    pub fn poll(&mut self, now: Instant) -> Option<Arrived> {
        for lane in &mut self.lanes {
            if lane.up.iter_mut().any(|link| link.poll_rebinding(now)) {
                self.ports += 1;
                lane.client = SocketAddr::new(host(self.ipv6, 1), self.ports);
            }
            for (links, at) in [(&mut lane.up, End::Server), (&mut lane.down, End::Client)] {
                let Some(delivery) = links.iter_mut().find_map(|link| link.poll(now)) else {
                    continue;
                };
                let mut packet = delivery.item;
                if let Some(flip) = delivery.corrupted {
                    packet.corrupt(flip);
                }
                return Some(Arrived { at, packet, marked: delivery.ecn == Ecn::Ce });
            }
            for links in [&mut lane.up, &mut lane.down] {
                let newest = links.len() - 1;
                let mut index = 0;
                links.retain(|link| {
                    index += 1;
                    index > newest || link.in_flight() > 0
                });
            }
        }
        None
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        let links = self.lanes.iter().flat_map(|lane| lane.up.iter().chain(&lane.down));
        links.filter_map(Link::next_timeout).min()
    }
}

fn host(ipv6: bool, number: u8) -> IpAddr {
    if ipv6 {
        IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)])
    } else {
        IpAddr::from([10, 0, 0, number])
    }
}
