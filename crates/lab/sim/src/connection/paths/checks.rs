//! Checks of paths that do not rely on the program's view: they use what lanes carry, what was
//! booked, and what the other end did.

use longhaul_connection::MoveAsked;
use longhaul_engine::{Carried, Suspension};
use longhaul_rate_control::HostLimit;
use longhaul_units::{Bottleneck, Duration, Instant, LaneId, PathId, Rate};

use super::{ConnectionPaths, HEADERS_MAX};
use crate::lane::LaneState;
use crate::scenario::{Circuit, End, Scenario};
use crate::trace::Checks;

/// Observations of all paths.
#[derive(Debug, Default)]
pub(super) struct Watched {
    paths: Vec<WatchedPath>,
    looked: Option<Instant>,
    /// The wish that holds everybody, and the fresh bytes and packets of resends sent by then.
    hold: Option<(Suspension, [u64; 2])>,
    /// The highest order of each lane that a client has received; what came since the last look.
    received: Vec<Option<u64>>,
    to_heed: Vec<(Instant, LaneId, [PathId; 2])>,
    /// Moves that a server has asked for.
    asked: Vec<Asked>,
}

/// A move that a server has asked its client for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    what: MoveAsked,
    /// Packets with the order that can have arrived, of those that the lane had sent.
    arrived: u64,
    /// Since when it is late.
    late: Option<Instant>,
}

/// Observations of one path.
#[derive(Clone, Copy, Debug, Default)]
struct WatchedPath {
    arrived: u64,
    /// Time in which nothing has arrived of what lanes there have under way, while another path
    /// lives.
    silent: Duration,
    lived: bool,
    /// Looks at which it had failed since it was last opened: one at most if that was once.
    failures: u32,
    /// Time in which it has been wanted and had no lane, while others could spare one.
    away: Duration,
    /// The last limit of its host that the peer sent over it, and whether its last report had one.
    limit: Option<HostLimit>,
    is_limited: bool,
}

impl Watched {
    /// The server asks; `from` and `to` are the paths of the lane and of the other one. A client that does
    /// not know by now that `to` lives need not heed it.
    pub fn handle_move_asked(
        &mut self,
        local: Instant,
        asked: MoveAsked,
        [from, to]: [PathId; 2],
        to_lives: bool,
    ) {
        let lane = usize::from(asked.lane.0);
        self.received.resize(self.received.len().max(lane + 1), None);
        if self.received[lane] < Some(asked.order) {
            self.received[lane] = Some(asked.order);
            if to_lives {
                self.to_heed.push((local, asked.lane, [from, to]));
            }
        }
    }

    /// A server asks over a lane of which so many packets have arrived.
    pub fn asks(&mut self, local: Instant, asked: MoveAsked, arrived: u64) {
        self.asked.retain(|before| before.what.lane != asked.lane);
        self.asked.push(Asked { at: local, what: asked, arrived, late: None });
    }
}

impl ConnectionPaths {
    /// Looks at all paths, behind a look of the program.
    pub(super) fn watch(
        &mut self,
        scenario: &Scenario,
        [now, local]: [Instant; 2],
        lanes: &mut [LaneState],
        checks: &mut Checks,
    ) {
        let Some(places) = lanes.iter().map(LaneState::path).collect::<Option<Vec<_>>>() else {
            return;
        };
        let since = now - self.start;
        let circuit = scenario.circuit.as_ref().filter(|_| self.end == End::Client);
        self.check_places(&places, checks);
        if let Some(circuit) = circuit {
            self.check_circuit((circuit, scenario), since, &places, checks);
        }
        self.check_pulses((circuit, scenario, since), local, &places, lanes, checks);
        self.check_heeded(local, &places, checks);
        self.check_hold(local, lanes, checks);
        self.check_shares(circuit, since, checks);
        self.check_limit(local, scenario, checks);
        self.watched.looked = Some(local);
    }

    /// The set knows where its lanes are.
    fn check_places(&self, places: &[PathId], checks: &mut Checks) {
        for (lane, place) in (0..).map(LaneId).zip(places) {
            let known = self.set.place(lane);
            checks.require(known == *place, || {
                format!("{:?}: {lane:?} is on {place:?}, believed on {known:?}", self.end)
            });
        }
    }

    /// No lane is on a closed circuit while another path lives; while it is open and lives, one at most
    /// is on IP beside.
    fn check_circuit(
        &self,
        (circuit, scenario): (&Circuit, &Scenario),
        since: Duration,
        places: &[PathId],
        checks: &mut Checks,
    ) {
        let path = PathId(self.entries.len() as u16 - 1);
        let there = places.iter().filter(|place| **place == path).count();
        let booked = circuit.is_booked(since);
        let has_other_path = (0..).map(PathId).zip(&self.entries).any(|(id, entry)| {
            !entry.is_booked && self.set.lives(id) && scenario.has_link(entry.route, since)
        });
        checks.require(booked || there == 0 || !has_other_path, || {
            format!("{there} lanes on a closed circuit")
        });
        if booked && !circuit.beside_ip && self.set.lives(path) {
            let elsewhere = places.len() - there;
            let most = usize::from(places.len() > 1);
            checks.require(elsewhere <= most, || {
                format!("{elsewhere} lanes are not on the circuit that is open")
            });
        }
    }

    /// Lanes leave a path over which nothing arrives, or are asked to, and one comes back to look
    /// (docs/connection.md, Paths).
    fn check_pulses(
        &mut self,
        (circuit, scenario, since): (Option<&Circuit>, &Scenario, Duration),
        local: Instant,
        places: &[PathId],
        lanes: &mut [LaneState],
        checks: &mut Checks,
    ) {
        let is_booked = circuit.is_some_and(|circuit| circuit.is_booked(since));
        let beside = circuit.is_none_or(|circuit| circuit.beside_ip || !is_booked);
        let on = |path: usize| places.iter().filter(|place| usize::from(place.0) == path).count();
        let elapsed = self.watched.looked.map_or(Duration::ZERO, |looked| local - looked);
        let elapsed = elapsed.min(LOOK_MAX);
        self.watched.paths.resize(self.entries.len(), WatchedPath::default());
        for path in 0..self.entries.len() {
            let id = PathId(path as u16);
            let (is_open, is_wanted) = match self.entries[path].is_booked {
                true => (is_booked, is_booked),
                false => (true, beside),
            };
            let others = (0..self.entries.len()).filter(|other| *other != path);
            let others = others.filter(|other| {
                self.set.lives(PathId(*other as u16))
                    && (is_booked || !self.entries[*other].is_booked)
            });
            let others: Vec<usize> = others.map(on).collect();
            let carried = lanes.iter_mut().filter_map(LaneState::udp);
            let carried = carried.map(|lane| lane.half.engine().carried(id).packets_arrived);
            let arrived: u64 = carried.sum();
            let path_now = self.entries[path].path.borrow();
            let patience = SILENCE.max(path_now.rtt().smoothed() * 4) + SLACK;
            let in_flight = path_now.in_flight();
            drop(path_now);
            let lives = self.set.lives(id);
            let seen = &mut self.watched.paths[path];
            let has_news = std::mem::replace(&mut seen.arrived, arrived) < arrived;
            let died = std::mem::replace(&mut seen.lived, lives) && !lives;
            // One that is looked at and still silent has failed again; so has one that no lane can go to.
            let has_link = scenario.has_link(self.entries[path].route, since);
            let failed = died || !lives && (on(path) > 0 || !has_link);
            seen.failures = if is_open { seen.failures + u32::from(failed) } else { 0 };
            // A server's lanes are where its client wants them: it can but ask.
            let stays = self.end == End::Client || lives;
            let counts = on(path) > 0 && in_flight > 0 && !has_news && stays;
            seen.silent =
                if counts && !others.is_empty() { seen.silent + elapsed } else { Duration::ZERO };
            checks.require(seen.silent <= patience, || {
                format!("{:?} has {} lanes on {id:?}, which carries nothing", self.end, on(path))
            });
            if died && self.end == End::Server && others.iter().any(|lanes| *lanes > 0) {
                let is_asked = |lane: usize| {
                    let mut asked = self.watched.asked.iter();
                    asked.any(|it| it.at == local && usize::from(it.what.lane.0) == lane)
                };
                let left = (0..places.len()).find(|lane| places[*lane] == id && !is_asked(*lane));
                checks
                    .require(left.is_none(), || format!("nobody asks for lane {left:?} of {id:?}"));
            }
            let seen = &mut self.watched.paths[path];
            let spare = others.iter().any(|lanes| *lanes > 1) && self.end == End::Client;
            let is_wanted = is_wanted && !self.set.is_left_out(id);
            let misses = is_wanted && spare && !lives && has_link && on(path) == 0;
            seen.away = if misses { seen.away + elapsed } else { Duration::ZERO };
            let rest = if seen.failures > 1 { REST_MAX } else { REST_FIRST };
            checks.require(seen.away <= rest + SLACK, || {
                format!("no lane looks whether {id:?} lives")
            });
        }
    }

    /// A client does what it was asked at once: the path behind it rests for seconds.
    fn check_heeded(&mut self, local: Instant, places: &[PathId], checks: &mut Checks) {
        for (at, lane, [from, to]) in std::mem::take(&mut self.watched.to_heed) {
            let is_soon = local - at < Duration::from_secs(2);
            let could = from != to && self.set.lives(to) && !self.set.is_closed(to) && is_soon;
            let place = places[usize::from(lane.0)];
            checks.require(!could || place != from, || format!("{lane:?} was asked off {place:?}"));
        }
    }

    /// SUSPEND holds every path, from a look of the program on.
    fn check_hold(&mut self, local: Instant, lanes: &[LaneState], checks: &mut Checks) {
        let latest = self.entries.iter().filter_map(|entry| entry.path.borrow().suspension()).max();
        let sent = lanes.iter().map(|lane| {
            let stats = lane.stats();
            [stats.fresh_bytes_sent, stats.packets_resent]
        });
        let sent =
            sent.fold([0, 0], |[bytes, packets], [more, again]| [bytes + more, packets + again]);
        let hold = latest.filter(|latest| latest.until > local).map(|latest| (latest, sent));
        if let (Some((earlier, before)), Some((still, _))) = (self.watched.hold, hold)
            && earlier == still
        {
            let [fresh, again] = [sent[0] - before[0], sent[1] - before[1]];
            checks.require(fresh == 0, || format!("{fresh} fresh bytes were sent while suspended"));
            checks.require(again == 0, || format!("{again} packets were resent while suspended"));
        }
        self.watched.hold = hold;
    }

    /// Checks that paths share what the user's limit leaves beside what is booked once, and whole.
    fn check_shares(&self, circuit: Option<&Circuit>, since: Duration, checks: &mut Checks) {
        // Less of it, if the receiving host takes less, see below; never more.
        let host_limit = self.watched.paths.iter().filter_map(|seen| Some(seen.limit?.rate)).min();
        let user = self.chosen.rate;
        let takes_less = host_limit.is_some_and(|host| user.is_some_and(|limit| host < limit));
        let used = self.entries.iter().zip(self.set.counts()).filter(|(_, lanes)| *lanes > 0);
        let (booked, others): (Vec<_>, Vec<_>) = used.partition(|(entry, _)| entry.is_booked);
        let reserved = circuit.filter(|_| !booked.is_empty());
        let reserved = reserved.map_or(Rate::ZERO, |circuit| circuit.rate(since));
        let limits = others.iter().filter_map(|(entry, _)| {
            let path = entry.path.borrow();
            let limit = path.governor().connection_limit()?;
            (path.allowed().1 == Bottleneck::UserLimit).then(|| (path.allowed().0, limit))
        });
        let limits: Vec<(Rate, Rate)> = limits.collect();
        let lowest = limits.iter().map(|(_, limit)| *limit).min();
        // A path has its share of the host's limit at the next look.
        let Some(limit) = lowest.map(|limit| user.filter(|_| takes_less).unwrap_or(limit)) else {
            return;
        };
        let sum = limits.iter().fold(Rate::ZERO, |sum, (rate, _)| sum + *rate);
        let left = (limit - reserved).max(limit.scale(1, 100));
        // Half a percent of what is booked is not used.
        let most =
            (limit - reserved.scale(99, 100)).max(limit.scale(1, 100)) + limit.scale(1, 1_000);
        let is_whole = limits.len() == others.len() && !takes_less;
        let least = if is_whole { left.scale(97, 100) } else { Rate::ZERO };
        checks.require((least..=most + Rate::from_kbps(10)).contains(&sum), || {
            format!("{} paths have {sum} of {limit}, {reserved} of which is booked", limits.len())
        });
    }

    /// A report came over `path`, in which the peer says that it takes so much, or nothing of that.
    pub fn note_limit(&mut self, path: PathId, limit: Option<HostLimit>) {
        self.watched.paths.resize(self.entries.len(), WatchedPath::default());
        let seen = &mut self.watched.paths[usize::from(path.0)];
        seen.limit = limit.or(seen.limit);
        seen.is_limited = limit.is_some();
    }

    /// Paths that heed what the receiving host says that it takes have no more than that together; each
    /// has two packets a round trip in any case.
    fn check_limit(&self, local: Instant, scenario: &Scenario, checks: &mut Checks) {
        let entries = self.entries.iter().zip(&self.watched.paths).zip(self.set.counts());
        let used = entries.filter(|((entry, _), lanes)| {
            *lanes > 0 && !entry.is_booked && self.chosen.profile.heeds_receiver
        });
        let packet = u64::from(scenario.datagram_max) + HEADERS_MAX;
        let (mut most, mut sum, mut least) = (Rate::ZERO, Rate::ZERO, Rate::ZERO);
        for ((entry, seen), _) in used {
            let path = entry.path.borrow();
            // A path over which no limit was sent does not know it.
            let holds = |limit: &HostLimit| seen.is_limited && limit.until > local;
            let Some(limit) = seen.limit.filter(holds) else { return };
            most = most.max(limit.rate);
            sum = sum + path.allowed().0;
            least = least + Rate::from_bytes_over(2 * packet, path.rtt().smoothed());
        }
        checks.require(sum <= most.scale(1001, 1000) + least, || {
            format!("{sum} are sent at to a host that takes {most}")
        });
    }

    /// A move that was asked for, has not come to the client, and was not repeated in time.
    pub fn overdue_move(
        &mut self,
        local: Instant,
        lanes: &mut [LaneState],
        client: &Self,
    ) -> Option<MoveAsked> {
        let received = &client.watched.received;
        self.watched.asked.retain(|asked| {
            let last = received.get(usize::from(asked.what.lane.0));
            last.is_none_or(|last| *last < Some(asked.what.order))
        });
        self.watched.asked.iter_mut().find_map(|asked| {
            let now = arrived_over(&mut lanes[usize::from(asked.what.beside.0)]);
            let is_late = local - asked.at > ASK_TIME && now > asked.arrived + ASK_PACKETS;
            asked.late = asked.late.or(is_late.then_some(local));
            let since = asked.late?;
            (local - since > ASK_AGAIN).then_some(asked.what)
        })
    }
}

/// Packets of a lane that have arrived.
fn arrived_over(lane: &mut LaneState) -> u64 {
    carried(lane, |carried| carried.packets_arrived)
}

/// Packets of a lane that have arrived, or may arrive.
pub(super) fn under_way_or_arrived(lane: &mut LaneState) -> u64 {
    carried(lane, |carried| carried.packets_sent.saturating_sub(carried.lost))
}

fn carried(lane: &mut LaneState, count: impl Fn(&Carried) -> u64) -> u64 {
    let carried = lane.udp().map(|lane| lane.half.engine().all_carried());
    carried.into_iter().flatten().map(|(_, carried)| count(&carried)).sum()
}

/// Of docs/connection.md: how long nothing arrives over a path that is given up, and how long it rests
/// at first, and later.
const SILENCE: Duration = Duration::from_secs(3);
const REST_FIRST: Duration = Duration::from_secs(5);
const REST_MAX: Duration = Duration::from_secs(60);
/// Some looks.
const SLACK: Duration = Duration::from_millis(500);
/// Most that counts between two looks: a host that stalls sees nothing.
const LOOK_MAX: Duration = Duration::from_millis(200);
/// A lost message was repeated when so many packets have arrived in so long a time.
const ASK_TIME: Duration = Duration::from_secs(5);
const ASK_PACKETS: u64 = 100;
/// The last of them may have come all at once: the loss of a packet that repeated it is known
/// later.
const ASK_AGAIN: Duration = Duration::from_secs(1);
