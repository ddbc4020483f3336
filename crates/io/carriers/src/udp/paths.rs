//! The paths of a connection's UDP lanes, and which lane is on which: feeds what lanes have seen to a
//! [`Paths`], and moves the lanes as that decides.

mod ends;
mod server;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use longhaul_connection::{
    Carrying, ConnectionLimits, MoveAsked, Offer, Order, PathSeen, Paths, Times,
};
use longhaul_engine::{Carried, Path, Suspension};
use longhaul_rate_control::HostLimit;
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_units::{Bottleneck, Duration, Instant, LaneId, Losses, PathId, Rate};

use crate::udp::path_lock::PathLock;
use crate::upper_layer::{Command, Mailbox, PathSwitch};

pub use ends::Ends;

/// The end that the paths belong to.
pub enum Owner {
    /// A client's: it opens paths, and moves lanes to them. Its lanes begin here.
    Client(Ends),
    /// A server's: its lanes are where the client takes them.
    Server(Opening),
}

/// Makes rate control when a client takes a lane of a server to a new path; nothing where all lanes are to
/// have one rate together.
pub struct Opening(pub Box<dyn Fn() -> Option<Path> + Send + Sync>);

/// The paths of a connection. No path is locked while the set is.
pub struct ConnectionPaths {
    owner: Owner,
    mailboxes: Vec<Arc<Mailbox>>,
    set: Mutex<Set>,
    carrying: Mutex<Carrying>,
    limits: Mutex<ConnectionLimits>,
    /// Paths that are left out, and why, for people.
    left_out: Mutex<Vec<String>>,
}

struct Set {
    paths: Paths,
    entries: Vec<PathEntry>,
    looked: Instant,
}

struct PathEntry {
    path: Arc<Mutex<Path>>,
    peer: Peer,
}

/// The other end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    Server(Ends),
    Client {
        /// The address of this host that it sends to.
        to: IpAddr,
        /// Its own.
        from: IpAddr,
    },
    /// A client of which no lane has been proven yet.
    Unknown,
}

/// The peer host's limits, as its monitor announced them last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeerHost {
    /// The peer is not to be sent to, for so long.
    pub suspension: Option<Suspension>,
    /// The rate that the peer's host takes.
    pub limit: Option<HostLimit>,
}

/// Counts of what a lane has sent over each path it was on.
pub type Account = Vec<(PathId, Carried)>;

impl ConnectionPaths {
    /// One path, and all lanes on it.
    pub fn new(owner: Owner, path: Path, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        let now = clock::now();
        let peer = match owner {
            Owner::Client(ends) => Peer::Server(ends),
            Owner::Server(_) => Peer::Unknown,
        };
        let entry = PathEntry { path: Arc::new(Mutex::new(path)), peer };
        let paths = Paths::new(now, vec![FIRST; mailboxes.len()]);
        let set = Mutex::new(Set { paths, entries: vec![entry], looked: now });
        let (carrying, limits, left_out) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { owner, mailboxes, set, carrying, limits, left_out }
    }

    /// Rate control of a path.
    pub fn path(&self, number: PathId) -> Arc<Mutex<Path>> {
        lock(&self.set).entries[usize::from(number.0)].path.clone()
    }

    /// All paths, and how many lanes are on each.
    fn all(&self) -> Vec<(Arc<Mutex<Path>>, u32)> {
        let set = lock(&self.set);
        let paths = set.entries.iter().map(|entry| entry.path.clone());
        paths.zip(set.paths.counts()).collect()
    }

    /// One more path, of a client, which nothing goes over yet.
    pub fn add(&self, path: Path, ends: Ends) -> PathId {
        let mut set = lock(&self.set);
        let (path, peer) = (Arc::new(Mutex::new(path)), Peer::Server(ends));
        set.entries.push(PathEntry { path, peer });
        set.paths.add(clock::now(), Offer::Closed)
    }

    /// From now on `path` carries data. The first path stays beside it, any other is closed; lanes move
    /// at once.
    ///
    /// # Errors
    /// A lane cannot send there.
    pub fn carry_over(&self, path: PathId) -> std::io::Result<()> {
        let (mut set, now) = (lock(&self.set), clock::now());
        for other in 0..set.entries.len() {
            let other = PathId(other as u16);
            let offer = match other {
                _ if other == path => Offer::Share(1),
                FIRST => Offer::Standby,
                _ => Offer::Closed,
            };
            set.paths.offer(now, other, offer);
        }
        let settled = self.settle(&mut set, now);
        drop(set);
        self.hold_limits(now);
        settled
    }

    /// Data goes over `path` as it is offered there; lanes move at once.
    pub fn offer(&self, path: PathId, offer: Offer) {
        let (mut set, now) = (lock(&self.set), clock::now());
        set.paths.offer(now, path, offer);
        // A host without a route there now may have one later.
        let _ = self.settle(&mut set, now);
        drop(set);
        self.hold_limits(now);
    }

    /// UDP does not fit `path`, for that `reason`: it is left out where another one carries. Otherwise,
    /// and then false, the connection is to be closed.
    pub fn leave_out(&self, path: PathId, reason: &str) -> bool {
        let (mut set, now) = (lock(&self.set), clock::now());
        let lived = set.paths.lives(path);
        if !set.paths.leave_out(path) {
            return false;
        }
        if let Some(PathEntry { peer: Peer::Server(ends), .. }) =
            set.entries.get(usize::from(path.0))
            && lived
        {
            let Ends { local, remote } = ends;
            let remote = remote.ip();
            let notice = format!("the link from {local} to {remote} is left out: {reason}");
            lock(&self.left_out).push(notice);
        }
        // A host without a route there now may have one later.
        let _ = self.settle(&mut set, now);
        drop(set);
        self.hold_limits(now);
        true
    }

    /// Notices of paths that were left out since the last call.
    pub fn take_left_out(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.left_out))
    }

    /// `lane`, which was to go from `left` to `path`, could not.
    pub fn stay(&self, lane: LaneId, left: PathId, path: PathId) {
        lock(&self.set).paths.stay(clock::now(), lane, left, path);
    }

    /// True if `path` is believed to live.
    pub fn lives(&self, path: PathId) -> bool {
        lock(&self.set).paths.lives(path)
    }

    /// The server asks for something.
    pub fn handle_move_asked(&self, asked: MoveAsked) {
        let (mut set, now) = (lock(&self.set), clock::now());
        set.paths.handle_move_asked(now, asked);
        // Lanes that cannot go there stay.
        let _ = self.settle(&mut set, now);
    }

    /// All of them together carry at most `rate` from now on.
    pub fn limit(&self, rate: Option<Rate>) {
        let now = clock::now();
        for (path, _) in self.all() {
            lock(&path).govern(now, |governor| match rate {
                Some(rate) => governor.set(Bottleneck::UserLimit, rate),
                None => governor.clear(Bottleneck::UserLimit),
            });
        }
        self.hold_limits(now);
    }

    /// Checks, if it is time, which paths live, by the lanes' `accounts` of what they have sent.
    pub fn look(&self, accounts: impl Fn() -> Vec<Account>) {
        let now = clock::now();
        let mut set = lock(&self.set);
        if now < set.looked + LOOK {
            return;
        }
        set.looked = now;
        drop(set);
        let accounts = accounts();
        let seen = self.all().into_iter().zip(0..).map(|((path, _), number)| {
            let Carried { packets_arrived: arrived, refused, .. } = sum(&accounts, PathId(number));
            let path = lock(&path);
            let (in_flight, round_trip) = (path.in_flight(), path.rtt().smoothed());
            PathSeen { arrived, refused, in_flight, round_trip }
        });
        let seen: Vec<PathSeen> = seen.collect();
        let mut set = lock(&self.set);
        for (number, seen) in (0..).zip(&seen) {
            set.paths.look(now, PathId(number), seen);
        }
        // Lanes that cannot go there stay.
        let _ = self.settle(&mut set, now);
        drop(set);
        self.hold_limits(now);
    }

    /// Moves lanes to the paths they belong to; at a server asks the client to. A lane for which there is no
    /// route now stays where it is.
    fn settle(&self, set: &mut Set, now: Instant) -> std::io::Result<()> {
        let mut result = Ok(());
        let Owner::Client(_) = self.owner else {
            while let Some(asked) = set.paths.poll_ask() {
                let beside = &self.mailboxes[usize::from(asked.beside.0)];
                beside.post(Command::Order(Order::AskToMove(asked)));
            }
            return result;
        };
        // A path that cannot be gone to moves lanes no more than once in all.
        for _ in 0..self.mailboxes.len() + set.entries.len() {
            let places: Vec<PathId> = (0..self.mailboxes.len() as u16)
                .map(|lane| set.paths.place(LaneId(lane)))
                .collect();
            let Some(one) = set.paths.poll_move() else { break };
            let lane = usize::from(one.lane.0);
            let left = set.entries[usize::from(places[lane].0)].peer;
            let entry = &set.entries[usize::from(one.path.0)];
            let Peer::Server(ends) = entry.peer else { break };
            match ends::socket(left, ends) {
                Ok(socket) => {
                    let (path, remote) = (entry.path.clone(), ends.remote);
                    let switch = PathSwitch { number: one.path, path, remote, socket };
                    self.mailboxes[lane].post(Command::Move(Box::new(switch)));
                }
                Err(error) => {
                    set.paths.stay(now, one.lane, places[lane], one.path);
                    result = Err(error);
                }
            }
        }
        result
    }

    /// Divides the connection's limits among all of its paths.
    fn hold_limits(&self, now: Instant) {
        let paths = self.all();
        let paths: Vec<_> = paths.iter().map(|(path, lanes)| (PathLock(path), *lanes)).collect();
        lock(&self.limits).look(now, &paths);
    }

    /// Applies what the peer's host announced on the lane of its monitor to all paths at once.
    pub fn heed(&self, now: Instant, peer_host: &PeerHost) {
        for (path, _) in self.all() {
            let mut path = lock(&path);
            peer_host.suspension.into_iter().for_each(|suspension| path.suspend(now, suspension));
            peer_host.limit.into_iter().for_each(|limit| path.heed(now, limit));
        }
    }

    /// Losses over all paths.
    pub fn losses(&self) -> Losses {
        let losses = self.all().into_iter().map(|(path, _)| lock(&path).losses());
        losses.fold(Losses::default(), |sum, more| sum.plus(&more))
    }

    /// Time by what limited the lanes that carry data, whichever path they were on.
    pub fn times(&self) -> Times {
        let last = LaneId((self.mailboxes.len() - 1) as u16);
        let mut carrying = lock(&self.carrying);
        let (before, now) = (carrying.path(), lock(&self.set).paths.place(last));
        let of = |number| Times::of_path(&lock(&self.path(number)));
        let times = carrying.look(of(before));
        if now != before {
            carrying.go(now, of(now));
        }
        times
    }

    /// The longest of the least round trips of late, of paths that lanes are on; zero if unknown.
    pub fn round_trip(&self) -> Duration {
        let trips = self.all().into_iter().filter(|(_, lanes)| *lanes > 0).map(|(path, _)| {
            let path = lock(&path);
            if path.rtt().has_sample() { path.rtt().min() } else { Duration::ZERO }
        });
        trips.max().unwrap_or_default()
    }
}

/// Sum of what lanes have sent over `path`.
pub fn sum(accounts: &[Account], path: PathId) -> Carried {
    let mut sum = Carried::default();
    for (_, carried) in accounts.iter().flatten().filter(|(number, _)| *number == path) {
        sum.packets_sent += carried.packets_sent;
        sum.bytes_sent += carried.bytes_sent;
        sum.packets_arrived += carried.packets_arrived;
        sum.lost += carried.lost;
        sum.refused += carried.refused;
        sum.bytes_received += carried.bytes_received;
    }
    sum
}

/// The path that all lanes begin on.
pub const FIRST: PathId = PathId(0);
/// Interval of looks at which paths live.
const LOOK: Duration = Duration::from_millis(100);
/// Paths that a client may open; beyond them lanes share the first.
const PATHS_MAX: usize = 64;

#[cfg(test)]
mod tests;
