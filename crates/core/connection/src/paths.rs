//! The paths of a connection: which of them live, and which lanes belong to which.

use crate::path_liveness::PathSeen;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use longhaul_units::{Instant, LaneId, PathId};

use crate::lane_assignment::assign_lanes;
use crate::path_liveness::PathLiveness;
use crate::shares::shares;

/// The use of a path that its opener wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Nothing goes there: a circuit that has not begun, or is over.
    Closed,
    /// The messages beside the data, and the data too where no other path carries it.
    Standby,
    /// Lanes by this weight among those that carry data; not zero.
    Share(u64),
}

/// A lane is to go on over another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The lane.
    pub lane: LaneId,
    /// Where to.
    pub path: PathId,
}

/// A server asks its client to move a lane (protocol.md 5.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveAsked {
    /// Of two for one lane the one with the higher order holds.
    pub order: u64,
    /// The lane.
    pub lane: LaneId,
    /// Another one, on the path that it is to go to.
    pub beside: LaneId,
}

/// The set of paths of a connection, at one of its ends.
///
/// Its driver looks at each path now and then ([`look`](Self::look)). A client moves lanes as
/// [`poll_move`](Self::poll_move) says; a server, whose lanes are where the client has taken them
/// ([`note_place`](Self::note_place)), asks for the moves of [`poll_ask`](Self::poll_ask). Messages of the
/// others may come late, twice, or out of turn.
#[derive(Debug)]
pub struct Paths {
    paths: Vec<Known>,
    /// Where each lane is.
    lanes: Vec<PathId>,
    /// True if each is where it belongs, and nothing has changed since.
    settled: bool,
    /// The highest order of the server for each lane.
    last_orders: Vec<Option<u64>>,
    /// Moves that a server is to ask for, and its last order.
    asks: VecDeque<MoveAsked>,
    order: u64,
}

#[derive(Debug)]
struct Known {
    offer: Offer,
    liveness: PathLiveness,
    /// Packets of the base size do not pass.
    is_narrow: bool,
    /// Number of times that this was found while all lanes were on such paths.
    stuck: u8,
}

/// So often a server asks for lanes that its client leaves on a path that UDP does not fit: it knows as much
/// of the other ones.
const STUCK_MAX: u8 = 4;

impl Known {
    fn new(now: Instant, offer: Offer) -> Self {
        Self { offer, liveness: PathLiveness::new(now), is_narrow: false, stuck: 0 }
    }

    /// True where it is believed to live, and carries data.
    fn carries(&self) -> bool {
        self.liveness.beats() && !self.is_narrow
    }

    fn is_open(&self) -> bool {
        self.offer != Offer::Closed && !self.is_narrow
    }
}

impl Paths {
    /// Lanes that begin on these paths, each of which carries data alike.
    ///
    /// # Panics
    /// If there is no lane.
    pub fn new(now: Instant, lanes: Vec<PathId>) -> Self {
        let count = lanes.iter().map(|path| path.0).max().expect("a connection has a lane") + 1;
        let known = || Known::new(now, Offer::Share(1));
        let last_orders = vec![None; lanes.len()];
        let paths = (0..count).map(|_| known()).collect();
        Self { paths, lanes, settled: false, last_orders, asks: VecDeque::new(), order: 0 }
    }

    /// One more path.
    pub fn add(&mut self, now: Instant, offer: Offer) -> PathId {
        self.settled = false;
        self.paths.push(Known::new(now, offer));
        PathId(u16::try_from(self.paths.len() - 1).unwrap_or(u16::MAX))
    }

    /// Number of paths.
    pub fn count(&self) -> usize {
        self.paths.len()
    }

    /// Number of lanes on each.
    pub fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.paths.len()];
        for path in &self.lanes {
            counts[usize::from(path.0)] += 1;
        }
        counts
    }

    /// Changes what is wanted of `path`. One that opens is believed to live.
    pub fn offer(&mut self, now: Instant, path: PathId, offer: Offer) {
        self.settled = false;
        let Some(known) = self.paths.get_mut(usize::from(path.0)) else { return };
        if known.offer == Offer::Closed && offer != Offer::Closed {
            known.liveness = PathLiveness::new(now);
        }
        known.offer = offer;
    }

    /// Packets of the base size do not pass `path` (protocol.md 4.6): from now on it is left out, if
    /// another one carries. Otherwise, and then false, the end that found it out closes: so does a server that
    /// has asked for its lanes several times, of which none came to another path.
    pub fn leave_out(&mut self, path: PathId) -> bool {
        let others = (0..).zip(&self.paths).filter(|(number, _)| PathId(*number) != path);
        let is_left = others.clone().any(|(_, other)| other.is_open() && other.carries());
        let is_stuck = self.lanes.iter().all(|place| *place == path || self.is_left_out(*place));
        let known = self.paths.get_mut(usize::from(path.0)).filter(|_| is_left);
        let Some(known) = known else { return false };
        known.stuck = if is_stuck { known.stuck.saturating_add(1) } else { 0 };
        if known.stuck > STUCK_MAX {
            return false;
        }
        known.is_narrow = true;
        self.settled = false;
        self.ask_off(path);
        true
    }

    /// Looks whether `path` lives.
    pub fn look(&mut self, now: Instant, path: PathId, seen: &PathSeen) {
        self.settled = false;
        let Some(known) = self.paths.get_mut(usize::from(path.0)) else { return };
        let before = known.liveness.clone();
        known.liveness.look(now, seen);
        let (lived, lives) = (before.beats() || before.is_tried(), known.liveness.beats());
        if lived && !lives && !known.liveness.is_tried() && !known.is_narrow {
            self.ask_off(path);
        }
    }

    /// True where `path` is believed to live, and carries data.
    pub fn lives(&self, path: PathId) -> bool {
        self.paths.get(usize::from(path.0)).is_some_and(Known::carries)
    }

    /// True where UDP does not fit `path`, and another one stands in for it.
    pub fn is_left_out(&self, path: PathId) -> bool {
        self.paths.get(usize::from(path.0)).is_some_and(|known| known.is_narrow)
    }

    /// True where no lane goes to `path` any more: a circuit that was left.
    pub fn is_closed(&self, path: PathId) -> bool {
        self.paths.get(usize::from(path.0)).is_some_and(|known| known.offer == Offer::Closed)
    }

    /// Where `lane` is.
    pub fn place(&self, lane: LaneId) -> PathId {
        self.lanes.get(usize::from(lane.0)).copied().unwrap_or_default()
    }

    /// A client has taken `lane` to `path`, as its server sees.
    pub fn note_place(&mut self, lane: LaneId, path: PathId) {
        self.settled = false;
        if let Some(place) = self.lanes.get_mut(usize::from(lane.0)) {
            *place = path;
        }
    }

    /// The server asks for a move: over the path where that lane is nothing comes through to it.
    pub fn handle_move_asked(&mut self, now: Instant, asked: MoveAsked) {
        let MoveAsked { order, lane, beside } = asked;
        let Some(last) = self.last_orders.get_mut(usize::from(lane.0)) else { return };
        if last.is_some_and(|last| order <= last) {
            return;
        }
        *last = Some(order);
        self.settled = false;
        let (from, to) = (self.place(lane), self.place(beside));
        // Where nothing is known to live here, a peer that gets through knows better.
        if from != to && (self.lives(to) || !self.lives(from)) {
            self.paths[usize::from(from.0)].liveness.fall_silent(now);
        }
    }

    /// The next lane that is to move; it counts as moved.
    pub fn poll_move(&mut self) -> Option<Move> {
        if self.settled {
            return None;
        }
        let then = self.belonging();
        let lane = then.iter().zip(&self.lanes).position(|(then, now)| then != now);
        self.settled = lane.is_none();
        let lane = lane?;
        self.lanes[lane] = then[lane];
        Some(Move { lane: LaneId(u16::try_from(lane).ok()?), path: then[lane] })
    }

    /// A client's `lane` could not go to `path`, for this host has no route there now: it stays on `left`,
    /// and the path is left alone as one over which nothing arrives.
    pub fn stay(&mut self, now: Instant, lane: LaneId, left: PathId, path: PathId) {
        self.settled = false;
        // What came after that order holds.
        if self.place(lane) == path {
            self.note_place(lane, left);
        }
        if let Some(known) = self.paths.get_mut(usize::from(path.0)) {
            known.liveness.fall_silent(now);
        }
    }

    /// The next move to ask the client for, over the lane that the other is to go beside.
    pub fn poll_ask(&mut self) -> Option<MoveAsked> {
        self.asks.pop_front()
    }

    fn ask_off(&mut self, silent: PathId) {
        let Some(beside) = self.lanes.iter().position(|path| self.lives(*path)) else { return };
        for lane in (0..self.lanes.len()).filter(|lane| self.lanes[*lane] == silent) {
            self.order += 1;
            let [lane, beside] = [lane, beside].map(|lane| LaneId(lane as u16));
            self.asks.push_back(MoveAsked { order: self.order, lane, beside });
        }
    }

    /// Where each lane belongs.
    fn belonging(&self) -> Vec<PathId> {
        let is = |known: &Known, offer: fn(&Offer) -> bool| offer(&known.offer);
        let shared = |known: &Known| match known.offer {
            Offer::Share(weight) if known.carries() => weight.max(1),
            _ => 0,
        };
        let standby = |known: &Known| {
            u64::from(is(known, |offer| *offer == Offer::Standby) && known.carries())
        };
        // Where none lives one is as good as another, but for those that are closed.
        let any = |known: &Known| u64::from(known.is_open());
        let rules: [&dyn Fn(&Known) -> u64; 3] = [&shared, &standby, &any];
        let weights = rules.into_iter().map(|rule| self.paths.iter().map(rule).collect::<Vec<_>>());
        let Some(weights) = weights.into_iter().find(|all| all.iter().any(|weight| *weight > 0))
        else {
            return self.lanes.clone();
        };
        if !self.paths.iter().any(|known| known.carries() && known.is_open()) {
            return self.stranded(&weights);
        }
        let first = self.first(&weights);
        let lanes = self.lanes.len() as u16;
        let mut all = shares(lanes, &weights);
        if weights[usize::from(first.0)] == 0 || all[usize::from(first.0)] == 0 {
            // The first lane is there, whatever the others weigh.
            all = shares(lanes - 1, &weights);
            all[usize::from(first.0)] += 1;
        }
        for (path, known) in self.paths.iter().enumerate() {
            // One lane finds out if a silent path lives again.
            let most = (0..all.len()).max_by_key(|path| all[*path]).unwrap_or(0);
            let wanted = is(known, |offer| matches!(offer, Offer::Share(_))) && known.is_open();
            if wanted && known.liveness.is_tried() && all[most] > 1 {
                all[most] -= 1;
                all[path] += 1;
            }
        }
        assign_lanes(&self.lanes, first, &all)
    }

    /// None lives: lanes are where one is tried, or stay, unless their path is closed.
    fn stranded(&self, weights: &[u64]) -> Vec<PathId> {
        let tried = |path: &usize| weights[*path] > 0 && self.paths[*path].liveness.is_tried();
        let open = |path: &usize| weights[*path] > 0;
        let other = (0..weights.len()).find(tried).or_else(|| (0..weights.len()).find(open));
        let place = |now: &PathId| {
            let path = usize::from(now.0);
            if tried(&path) || open(&path) && !other.is_some_and(|other| tried(&other)) {
                return *now;
            }
            other.map_or(*now, |path| PathId(path as u16))
        };
        self.lanes.iter().map(place).collect()
    }

    /// Where the first lane belongs, which carries messages: where it is while that lives, a single
    /// one where data goes. It goes back to the first path as soon as that lives.
    fn first(&self, weights: &[u64]) -> PathId {
        let may = |path: &usize| {
            let known = &self.paths[*path];
            known.carries() && known.is_open() && (self.lanes.len() > 1 || weights[*path] > 0)
        };
        let first = (0..self.paths.len()).find(may);
        first.map_or(self.lanes[0], |path| PathId(path as u16))
    }
}

#[cfg(test)]
mod tests;
