//! Network between the two hosts: paths, on each of which a lane has its route, address
//! translation, and an adversary.

mod adversary;
mod route;

use std::net::{IpAddr, SocketAddr};

use longhaul_pathsim::{DuplexConfig, Fate};
use longhaul_units::Instant;

use crate::draw::Draw;
use crate::packet::{Arrived, Datagram, Outgoing};
use crate::scenario::{End, Scenario};
use crate::trace::{Checks, Kind, Trace};
use adversary::Adversary;
use route::Route;

#[derive(Debug)]
pub(crate) struct Network {
    /// Of each lane, over each path.
    lanes: Vec<Vec<Route>>,
    scenario: Scenario,
    start: Instant,
    adversary: Adversary,
    draw: Draw,
    ports: u16,
}

impl Network {
    pub fn new(scenario: &Scenario, now: Instant) -> Self {
        let mut network = Self {
            lanes: Vec::new(),
            scenario: scenario.clone(),
            start: now,
            adversary: Adversary::new(scenario.seed, scenario.adversary, scenario.ipv6),
            draw: Draw::new(scenario.seed, 2),
            ports: 40_000,
        };
        let mut homes = Vec::new();
        for (line, home) in scenario.paths.iter().zip(&scenario.homes) {
            let addresses = (network.new_client_address(*home), network.server(*home));
            homes.push(Route::new(line, addresses, &mut network.draw, now));
        }
        // What every other path is for a lane that goes there.
        let lines: Vec<&DuplexConfig> = (0..scenario.ip_paths())
            .filter_map(|path| scenario.homes.iter().position(|home| *home == path))
            .filter_map(|lane| scenario.paths.get(lane))
            .chain(scenario.circuit.as_ref().map(|circuit| &circuit.line))
            .collect();
        let draw = &mut Draw::new(scenario.seed, OTHER_PATHS);
        for (route, home) in homes.into_iter().zip(&scenario.homes) {
            let mut route = Some(route);
            let routes = (0..).zip(&lines).map(|(path, line)| {
                let own = if path == *home { route.take() } else { None };
                own.unwrap_or_else(|| {
                    let addresses = (network.new_client_address(path), network.server(path));
                    Route::new(line, addresses, draw, now)
                })
            });
            let routes = routes.collect();
            network.lanes.push(routes);
        }
        network
    }

    fn new_client_address(&mut self, path: u16) -> SocketAddr {
        self.ports += 1;
        SocketAddr::new(host(self.scenario.ipv6, client_host(path)), self.ports)
    }

    /// Where the server listens, on `path`.
    pub fn server(&self, path: u16) -> SocketAddr {
        server(&self.scenario, path)
    }

    /// A new process at the client has new ports.
    pub fn renew_client(&mut self) {
        for number in 0..self.lanes.len() {
            for path in 0..self.lanes[number].len() {
                self.lanes[number][path].client = self.new_client_address(path as u16);
            }
        }
    }

    pub fn reroute(&mut self, lane: u16, line: &DuplexConfig, now: Instant) {
        let home = self.scenario.homes.get(usize::from(lane)).copied().unwrap_or_default();
        let Some(routes) = self.lanes.get_mut(usize::from(lane)) else { return };
        let route = &mut routes[usize::from(home)];
        let addresses = (route.client, route.server);
        route.go_on(Route::new(line, addresses, &mut self.draw, now));
    }

    /// Takes a datagram from the host at `from`.
    pub fn send(
        &mut self,
        now: Instant,
        from: End,
        Outgoing { to, lane, route, ecn, bytes }: Outgoing,
        trace: &mut Trace,
        checks: &mut Checks,
    ) {
        let Some(routes) = self.lanes.get_mut(usize::from(lane.0)) else { return };
        // A server goes by the client's address.
        let known = routes.iter().position(|route| route.client == to);
        let path = if from == End::Client { Some(usize::from(route)) } else { known };
        let (route, reaches) = match path {
            Some(path) => {
                let route = &mut routes[path];
                let reaches = from == End::Server || route.server == to;
                (route, reaches)
            }
            None => (&mut routes[0], false),
        };
        let source = if from == End::Client { route.client } else { route.server };
        let packet = Datagram { from: source, bytes };
        let wire = packet.wire_bytes();
        trace.event(now, Kind::Sent, [packet.number(), wire, u64::from(lane.0)]);
        trace.note(now, || format!("{from:?} sends {} to {to}", packet.brief()));
        if !reaches {
            return self.adversary.receive(to, wire, &packet, checks);
        }
        let path = path.unwrap_or_default() as u16;
        if self.scenario.is_silent(path, from, now - self.start) {
            return trace.note(now, || format!("    path {path} swallows it"));
        }
        let Some(ecn) = self.scenario.meddling.pass(ecn, from, now - self.start) else {
            return trace.note(now, || format!("    path {path} drops {ecn:?}"));
        };
        let link = route.link(from);
        if let Some(idea) = self.adversary.idea(&packet, from.peer()) {
            let fate = link.push(now, idea.wire_bytes() as u32, ecn, idea.clone());
            trace.note(now, || format!("adversary: {} from {}", idea.brief(), idea.from));
            if fate.arrival().is_some() {
                self.adversary.count(&idea);
            }
        }
        let fate = link.push(now, wire as u32, ecn, packet);
        trace.note(now, || match fate {
            Fate::Deliver(arrival) => format!("    arrives at {:?}", arrival.at),
            Fate::Drop(reason) => format!("    is lost: {reason:?}"),
        });
    }

    /// The next packet that has arrived.
    pub fn poll(&mut self, now: Instant) -> Option<Arrived> {
        for number in 0..self.lanes.len() {
            for path in 0..self.lanes[number].len() {
                if self.lanes[number][path].poll_rebinding(now) {
                    self.lanes[number][path].client = self.new_client_address(path as u16);
                }
                let Some((at, delivery)) = self.lanes[number][path].poll(now) else { continue };
                let mut packet = delivery.item;
                if let Some(flip) = delivery.corrupted {
                    packet.corrupt(flip);
                }
                return Some(Arrived { at, packet, ecn: delivery.ecn });
            }
        }
        None
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.lanes.iter().flatten().filter_map(Route::next_timeout).min()
    }
}

/// Where the server of `scenario` listens on `path`: a circuit leads to an address of its own.
pub(crate) fn server(scenario: &Scenario, path: u16) -> SocketAddr {
    let number = if path < scenario.ip_paths() { 2 } else { 3 };
    SocketAddr::new(host(scenario.ipv6, number), 7420)
}

/// The client's end of `path`.
fn client_host(path: u16) -> u8 {
    if path == 0 { 1 } else { 9 + path as u8 }
}

/// Number of the stream of choices of the links that no lane begins on.
const OTHER_PATHS: u64 = 34;

fn host(ipv6: bool, number: u8) -> IpAddr {
    if ipv6 {
        IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)])
    } else {
        IpAddr::from([10, 0, 0, number])
    }
}
