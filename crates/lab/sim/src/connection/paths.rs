//! The paths of an end: their rate control, and which lane is on which.

mod checks;
mod counts;
mod following;

use std::cell::RefCell;
use std::net::IpAddr;

use longhaul_connection::{
    Carrying, ConnectionLimits, Move, MoveAsked, Offer, Order, PathSeen, Paths,
};
use longhaul_engine::{Onward, Path};
use longhaul_rate_control::{ChosenProfile, Controller, Governor, Profile, TimeRange, Trc, Vector};
use longhaul_units::{Bottleneck, Duration, Instant, PathId};

use checks::{Watched, under_way_or_arrived};

use super::pace::{self, Meter};
use crate::lane::LaneState;
use crate::network::server;
use crate::scenario::{End, Scenario};
use crate::trace::Checks;

#[derive(Debug)]
pub(super) struct ConnectionPaths {
    end: End,
    set: Paths,
    entries: Vec<PathEntry>,
    looked: Instant,
    carrying: Carrying,
    /// When the circuit opens, changes or closes next, in the world's time.
    change: Option<Instant>,
    start: Instant,
    chosen: ChosenProfile,
    seed: u64,
    round_trip: Duration,
    /// Number of moves of lanes to another path.
    moves: u64,
    limits: ConnectionLimits,
    watched: Watched,
    /// The user's limit, over all paths that are not booked.
    limit: Option<Meter>,
}

#[derive(Debug)]
struct PathEntry {
    path: RefCell<Path>,
    /// Its number in the network, as a client knows.
    route: u16,
    /// The client there, as a server knows once a lane has proven it.
    client: Option<IpAddr>,
    meter: Option<Meter>,
    is_booked: bool,
}

impl ConnectionPaths {
    /// Those over IP, with so many lanes. `now` is the world's time, and `start` its beginning.
    pub fn new(
        scenario: &Scenario,
        end: End,
        lanes: u16,
        [now, local, start]: [Instant; 3],
        (chosen, round_trip, seed): (ChosenProfile, Duration, u64),
    ) -> Self {
        let homes = scenario.homes.iter().take(usize::from(lanes)).copied();
        let homes = homes.map(|home| PathId(if end == End::Client { home } else { 0 }));
        let set = Paths::new(local, homes.collect());
        let count = set.count();
        let mut paths = Self {
            end,
            set,
            entries: Vec::new(),
            looked: local,
            carrying: Carrying::default(),
            change: None,
            start,
            chosen,
            seed,
            round_trip,
            moves: 0,
            limits: ConnectionLimits::default(),
            watched: Watched::default(),
            limit: None,
        };
        for route in 0..count {
            paths.open(scenario, [now, local], route as u16, None);
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
            paths.set.add(local, Offer::Closed);
            paths.open(scenario, [now, local], scenario.ip_paths(), Some(Box::new(trc)));
            paths.change = Some(now);
        }
        paths.share(local);
        paths
    }

    fn open(
        &mut self,
        scenario: &Scenario,
        [now, local]: [Instant; 2],
        route: u16,
        booked: Option<Box<dyn Controller>>,
    ) {
        let seed = self.seed.wrapping_add(self.entries.len() as u64);
        let is_booked = booked.is_some();
        let profile_there = if is_booked { Profile::CIRCUIT } else { self.chosen.profile };
        let mut governor = Governor::new(local, profile_there.heeds_receiver);
        let controller = booked.unwrap_or_else(|| self.chosen.controller(local, 1500, None));
        // What a controller sends at by the user's wish is a limit, too.
        let is_reserved = !is_booked && controller.metrics().bound == Bottleneck::Reservation;
        if let Some(limit) = self.chosen.rate.filter(|_| !is_reserved) {
            governor.set(Bottleneck::UserLimit, limit);
        }
        let mut path =
            Path::new(local, controller, governor, self.round_trip, seed).playing(profile_there);
        let memory = scenario.memory.filter(|_| !is_booked && self.end == scenario.source());
        if let Some(memory) = memory {
            path.recall(local, &memory);
        }
        let packet = u64::from(scenario.datagram_max) + HEADERS_MAX;
        let least_burst = self.least_burst(scenario);
        let booked_meter = scenario.circuit.as_ref().filter(|_| is_booked);
        let booked_meter =
            booked_meter.map(|circuit| Meter::booked(now, circuit, self.start, least_burst));
        let meter = scenario.rate.map(|rate| {
            let burst = match scenario.profile {
                "trc" => pace::of_circuit(rate),
                // In steps: two full packets at least.
                "tsunami" | "paptc" => pace::of_fixed(rate).max(2 * packet),
                _ => pace::of_fixed(rate),
            };
            // Below its rate that is a limit, with a limit's burst.
            let within = if is_reserved { u64::MAX } else { pace::under_limit(rate) };
            Meter::new(now, rate, burst, burst.min(least_burst).min(within))
        });
        let meter = booked_meter.or(meter);
        self.entries.push(PathEntry {
            path: RefCell::new(path),
            route,
            client: None,
            meter,
            is_booked,
        });
        // Each path may have its burst, or a packet that is larger.
        let others = self.entries.iter().filter(|entry| !entry.is_booked).count() as u64 - 1;
        self.limit = scenario.limit.map(|limit| {
            let burst = match scenario.profile {
                // They take it for the link's rate, and may go at exactly that with a burst of their own.
                "fobs" | "fobs-linear" | "fobs-state" | "lambdastream" | "sabul" => {
                    pace::under_limit(limit).max(2 * packet)
                }
                _ => pace::under_limit(limit),
            };
            Meter::new(now, limit, burst + others * burst.max(packet), pace::LEAST_BURST)
        });
    }

    /// The least burst that a path keeps to because of what a host takes: the receiving one says so, the
    /// sending one's stack refuses packets.
    fn least_burst(&self, scenario: &Scenario) -> u64 {
        if !scenario.refusals.is_empty() {
            return pace::LEAST_BURST;
        }
        let heeded = scenario.takings.iter().filter(|_| self.chosen.profile.heeds_receiver);
        let bursts =
            heeded.filter_map(|taking| taking.rate).map(|rate| match scenario.paths.len() {
                1 => pace::under_limit(rate),
                // Each has a share.
                _ => pace::LEAST_BURST,
            });
        bursts.min().unwrap_or(u64::MAX)
    }

    /// The path that `lane` is on.
    pub fn of(&self, lane: &LaneState) -> &RefCell<Path> {
        &self.entries[self.index(lane)].path
    }

    fn index(&self, lane: &LaneState) -> usize {
        lane.path().map_or(0, |path| usize::from(path.0))
    }

    /// Its number in the network, if this is the client.
    pub fn route(&self, lane: &LaneState) -> u16 {
        self.entries[self.index(lane)].route
    }

    /// Checks that what was sent over the path of `lane` is no more than it allows.
    pub fn check(
        &mut self,
        path: PathId,
        now: Instant,
        (packets, bytes): (u16, u64),
        checks: &mut Checks,
    ) {
        let entry = &mut self.entries[usize::from(path.0)];
        let limit = self.limit.as_mut().filter(|_| !entry.is_booked);
        for meter in entry.meter.as_mut().into_iter().chain(limit) {
            meter.sent(now, packets, bytes, checks);
        }
    }

    /// The beginning of the world.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Takes a move that the server asks for.
    pub fn handle_move_asked(&mut self, local: Instant, asked: MoveAsked) {
        let paths = [asked.lane, asked.beside].map(|lane| self.set.place(lane));
        let to_lives = self.set.lives(paths[1]);
        self.watched.handle_move_asked(local, asked, paths, to_lives);
        self.set.handle_move_asked(local, asked);
    }

    /// UDP does not fit `path`: whether another one carries in its place.
    pub fn leave_out(&mut self, path: PathId) -> bool {
        self.set.leave_out(path)
    }

    /// Looks which paths live, and makes the moves that follow. Whether anything moved.
    pub fn look(
        &mut self,
        scenario: &Scenario,
        [now, local]: [Instant; 2],
        lanes: &mut [LaneState],
        checks: &mut Checks,
    ) -> bool {
        let mut moved = self.follow_booking(scenario, [now, local]);
        if self.end == End::Server {
            moved |= self.follow_client(scenario, [now, local], lanes);
        }
        let is_due = local >= self.looked + LOOK;
        if is_due {
            self.looked = local;
            self.hold_limits(local);
            for (path, entry) in (0..).map(PathId).zip(&self.entries) {
                let carried = lanes.iter_mut().filter_map(LaneState::udp);
                let carried = carried.map(|lane| lane.half.engine().carried(path));
                let (mut arrived, mut refused) = (0, 0);
                carried.for_each(|lane| {
                    arrived += lane.packets_arrived;
                    refused += lane.refused;
                });
                let path_now = entry.path.borrow();
                let round_trip = path_now.rtt().smoothed();
                let in_flight = path_now.in_flight();
                let seen = PathSeen { arrived, refused, in_flight, round_trip };
                self.set.look(local, path, &seen);
            }
        }
        // A path that cannot be gone to moves lanes no more than once in all.
        for _ in 0..lanes.len() + self.entries.len() {
            let Some(one) = self.poll_move() else { break };
            let lane = &mut lanes[usize::from(one.lane.0)];
            let route = self.entries[usize::from(one.path.0)].route;
            if !scenario.has_link(route, now - self.start) {
                let left = PathId(self.index(lane) as u16);
                self.set.stay(local, one.lane, left, one.path);
                continue;
            }
            self.go(local, lane, one.path, Some(server(scenario, route)), scenario);
            moved = true;
        }
        while self.end == End::Server
            && let Some(asked) = self.set.poll_ask()
        {
            let beside = &mut lanes[usize::from(asked.beside.0)];
            self.watched.asks(local, asked, under_way_or_arrived(beside));
            beside.handle_order(local, Order::AskToMove(asked));
            moved = true;
        }
        if moved {
            self.share(local);
        }
        if moved || is_due {
            self.watch(scenario, [now, local], lanes, checks);
        }
        moved
    }

    /// A server asks for its moves.
    fn poll_move(&mut self) -> Option<Move> {
        if self.end == End::Client { self.set.poll_move() } else { None }
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
        udp.half.leave_path(local, self.entries[left].path.get_mut(), onward);
    }

    /// True if nothing is under way.
    pub fn are_empty(&self) -> bool {
        self.entries.iter().all(|entry| entry.path.borrow().in_flight() == 0)
    }

    /// When it is to be looked at next, in the host's time.
    pub fn next_look(&self, clock: Duration) -> Instant {
        let look = self.looked + LOOK;
        self.change.map_or(look, |change| look.min(change + clock))
    }

    /// State of the controllers, for people.
    pub fn controllers(&self) -> String {
        let states = self.entries.iter().map(|entry| {
            let path = entry.path.borrow();
            let (allowed, in_flight) = (path.allowed(), path.in_flight());
            format!("{allowed:?}, {in_flight} in flight, {:?}, {:?}", path.metrics(), path.rtt())
        });
        states.collect::<Vec<_>>().join("; ")
    }
}

/// Of IPv6 and UDP, before a datagram.
const HEADERS_MAX: u64 = 48;
/// Interval of the looks whether paths live.
const LOOK: Duration = Duration::from_millis(100);
