//! The paths of an end: their rate control, and which lane is on which.

mod counts;
mod following;

use std::cell::RefCell;
use std::net::IpAddr;

use longhaul_connection::{Carrying, ConnectionLimits, MoveAsked, Offer, Order, PathSeen, Paths};
use longhaul_engine::{Onward, Path};
use longhaul_rate_control::{Controller, Governor, Profile, TimeRange, Trc, Vector};
use longhaul_units::{Bottleneck, Duration, Instant, PathId};

use super::lane::LaneState;
use super::pace::{self, Meter};
use crate::network::server;
use crate::scenario::{End, Scenario};
use crate::trace::Checks;

#[derive(Debug)]
pub(super) struct Lines {
    end: End,
    set: Paths,
    lines: Vec<Line>,
    looked: Instant,
    carrying: Carrying,
    /// When the circuit opens, changes or closes next, in the world's time.
    change: Option<Instant>,
    start: Instant,
    seed: u64,
    round_trip: Duration,
    /// How often a lane has gone to another path.
    moves: u64,
    limits: ConnectionLimits,
    /// The user's limit, over all paths that are not booked.
    limit: Option<Meter>,
}

#[derive(Debug)]
struct Line {
    path: RefCell<Path>,
    /// Its number in the network, as a client knows.
    route: u16,
    /// The client there, as a server knows once a lane has proven it.
    client: Option<IpAddr>,
    meter: Option<Meter>,
    is_booked: bool,
}

impl Lines {
    /// Those over IP, with so many lanes. `now` is the world's time, and `start` its beginning.
    pub fn new(
        scenario: &Scenario,
        end: End,
        lanes: u16,
        [now, local, start]: [Instant; 3],
        (round_trip, seed): (Duration, u64),
    ) -> Self {
        let homes = scenario.homes.iter().take(usize::from(lanes)).copied();
        let homes = homes.map(|home| PathId(if end == End::Client { home } else { 0 }));
        let set = Paths::new(local, homes.collect());
        let count = set.count();
        let mut lines = Self {
            end,
            set,
            lines: Vec::new(),
            looked: local,
            carrying: Carrying::default(),
            change: None,
            start,
            seed,
            round_trip,
            moves: 0,
            limits: ConnectionLimits::default(),
            limit: None,
        };
        for route in 0..count {
            lines.open(scenario, [now, local], route as u16, None);
        }
        if end == End::Client
            && let Some(circuit) = &scenario.circuit
        {
            let vector = Vector::new(
                circuit
                    .booked
                    .iter()
                    .map(|(from, until, rate)| {
                        let [from, until] = [*from, *until].map(|at| start + at + (local - now));
                        TimeRange { start: from, end: until, rate: *rate }
                    })
                    .collect(),
            );
            let trc = Trc::new(local, vector.expect("circuits are booked in order"), 1500);
            lines.set.add(local, Offer::Closed);
            lines.open(scenario, [now, local], scenario.ip_paths(), Some(Box::new(trc)));
            lines.change = Some(now);
        }
        lines.share(local);
        lines
    }

    fn open(
        &mut self,
        scenario: &Scenario,
        [now, local]: [Instant; 2],
        route: u16,
        booked: Option<Box<dyn Controller>>,
    ) {
        let chosen = Profile::wished(Some(scenario.profile), scenario.rate, [])
            .expect("scenarios name profiles, and have the rates needed");
        let seed = self.seed.wrapping_add(self.lines.len() as u64);
        let is_booked = booked.is_some();
        let profile_there = if is_booked { Profile::CIRCUIT } else { chosen.profile };
        let mut governor = Governor::new(local, profile_there.heeds_receiver);
        let controller = booked.unwrap_or_else(|| chosen.controller(local, 1500, None));
        if let Some(limit) = scenario.limit.filter(|_| !is_booked) {
            governor.set(Bottleneck::UserLimit, limit);
        }
        let path =
            Path::new(local, controller, governor, self.round_trip, seed).playing(profile_there);
        let meter = scenario.rate.map(|rate| {
            let is_circuit = scenario.profile == "trc";
            let burst = if is_circuit { pace::of_circuit(rate) } else { pace::of_fixed(rate) };
            Meter::new(now, rate, burst, burst)
        });
        self.lines.push(Line { path: RefCell::new(path), route, client: None, meter, is_booked });
        // Each path may have its burst, or a packet that is larger.
        let others = self.lines.iter().filter(|line| !line.is_booked).count() as u64 - 1;
        let packet = u64::from(scenario.datagram_max) + HEADERS_MAX;
        self.limit = scenario.limit.map(|limit| {
            let burst = pace::under_limit(limit);
            Meter::new(now, limit, burst + others * burst.max(packet), pace::LEAST_BURST)
        });
    }

    /// The path that `lane` is on.
    pub fn of(&self, lane: &LaneState) -> &RefCell<Path> {
        &self.lines[self.index(lane)].path
    }

    fn index(&self, lane: &LaneState) -> usize {
        lane.path().map_or(0, |path| usize::from(path.0))
    }

    /// Its number in the network, if this is the client.
    pub fn route(&self, lane: &LaneState) -> u16 {
        self.lines[self.index(lane)].route
    }

    /// What was sent over the path of `lane` is no more than it allows.
    pub fn check(
        &mut self,
        path: PathId,
        now: Instant,
        (packets, bytes): (u16, u64),
        checks: &mut Checks,
    ) {
        let line = &mut self.lines[usize::from(path.0)];
        let limit = self.limit.as_mut().filter(|_| !line.is_booked);
        for meter in line.meter.as_mut().into_iter().chain(limit) {
            meter.sent(now, packets, bytes, checks);
        }
    }

    /// What the server asks for.
    pub fn handle_move_asked(&mut self, local: Instant, asked: MoveAsked) {
        self.set.handle_move_asked(local, asked);
    }

    /// Looks which paths live, and makes the moves that follow. Whether anything moved.
    pub fn look(
        &mut self,
        scenario: &Scenario,
        [now, local]: [Instant; 2],
        lanes: &mut [LaneState],
    ) -> bool {
        let mut moved = self.follow_booking(scenario, [now, local]);
        if self.end == End::Server {
            moved |= self.follow_client(scenario, [now, local], lanes);
        }
        if local >= self.looked + LOOK {
            self.looked = local;
            self.hold_limits(local);
            for (path, line) in (0..).map(PathId).zip(&self.lines) {
                let carried = lanes.iter_mut().filter_map(LaneState::udp);
                let carried = carried.map(|lane| lane.half.engine().carried(path).packets_arrived);
                let path_now = line.path.borrow();
                let round_trip = path_now.rtt().smoothed();
                let in_flight = path_now.in_flight();
                self.set.look(
                    local,
                    path,
                    &PathSeen { arrived: carried.sum(), in_flight, round_trip },
                );
            }
        }
        while self.end == End::Client
            && let Some(one) = self.set.poll_move()
        {
            let remote = server(scenario, self.lines[usize::from(one.path.0)].route);
            self.go(local, &mut lanes[usize::from(one.lane.0)], one.path, Some(remote), scenario);
            moved = true;
        }
        while self.end == End::Server
            && let Some(asked) = self.set.poll_ask()
        {
            lanes[usize::from(asked.beside.0)].handle_order(local, Order::AskToMove(asked));
            moved = true;
        }
        if moved {
            self.share(local);
        }
        moved
    }

    fn go(
        &mut self,
        local: Instant,
        lane: &mut LaneState,
        path: PathId,
        remote: Option<std::net::SocketAddr>,
        scenario: &Scenario,
    ) {
        let left = self.index(lane);
        self.moves += 1;
        // The bucket of a path that lanes go to is full.
        self.limit.iter_mut().for_each(Meter::restart);
        let Some(udp) = lane.udp() else { return };
        let onward = Onward { path, remote, datagram_max: scenario.datagram_max };
        udp.half.leave_path(local, self.lines[left].path.get_mut(), onward);
    }

    /// Whether nothing is under way.
    pub fn are_empty(&self) -> bool {
        self.lines.iter().all(|line| line.path.borrow().in_flight() == 0)
    }

    /// When it is to be looked at next, in the host's time.
    pub fn next_look(&self, clock: Duration) -> Instant {
        let look = self.looked + LOOK;
        self.change.map_or(look, |change| look.min(change + clock))
    }

    /// What the controllers think, for people.
    pub fn controllers(&self) -> String {
        let told = self.lines.iter().map(|line| {
            let path = line.path.borrow();
            let (allowed, in_flight) = (path.allowed(), path.in_flight());
            format!("{allowed:?}, {in_flight} in flight, {:?}, {:?}", path.metrics(), path.rtt())
        });
        told.collect::<Vec<_>>().join("; ")
    }
}

/// Of IPv6 and UDP, before a datagram.
const HEADERS_MAX: u64 = 48;
/// How often it is looked whether paths live.
const LOOK: Duration = Duration::from_millis(100);
