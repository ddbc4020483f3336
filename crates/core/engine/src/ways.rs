//! The ways of a lane: which packets went over which path, and what each path has shown.

mod ecn;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use longhaul_units::{Ecn, EcnCounts, Instant, PathId};

use crate::ledger::{Entry, Ledger};
use crate::mtu::MtuSearch;
use ecn::{Account, PathEcn};

pub(crate) use ecn::Arrived;

/// What a lane has sent over one path, and received while it was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets sent, of every kind.
    pub packets_sent: u64,
    /// Their IP-layer bytes.
    pub bytes_sent: u64,
    /// Those of them that are known to have arrived, as far as it was asked.
    pub packets_arrived: u64,
    /// Those of them that were taken as lost, or refused by the local stack.
    pub lost: u64,
    /// Those of them that the local stack refused, and not for their size: it may know no way there.
    pub refused: u64,
    /// IP-layer bytes received.
    pub bytes_received: u64,
}

#[derive(Debug)]
pub(crate) struct Ways {
    /// One for each path that the lane was ever on.
    ways: Vec<Way>,
    /// Oldest first. The last one grows.
    stretches: VecDeque<Stretch>,
    /// Least reordering extent.
    reordering: Duration,
    ecn: Account,
}

/// Packets with consecutive numbers, all of one way.
#[derive(Debug)]
struct Stretch {
    first: u64,
    way: usize,
}

#[derive(Debug)]
struct Way {
    path: PathId,
    /// How much later than a packet another one was sent that overtakes it (protocol.md 5.4.1).
    reordering: Duration,
    /// Smoothed RTT when the lane last left.
    round_trip: Duration,
    /// When the newest packet was sent that arrived.
    newest_arrived: Instant,
    /// The search for its MTU, while the lane is elsewhere.
    mtu: Option<MtuSearch>,
    ecn: PathEcn,
    carried: Carried,
}

impl Way {
    fn new(path: PathId, reordering: Duration) -> Self {
        Self {
            path,
            reordering,
            round_trip: Duration::ZERO,
            newest_arrived: Instant::ZERO,
            mtu: None,
            ecn: PathEcn::new(),
            carried: Carried::default(),
        }
    }
}

impl Ways {
    /// Of a lane that begins on `path`.
    pub fn new(path: PathId, reordering: Duration) -> Self {
        let stretches = VecDeque::from([Stretch { first: 0, way: 0 }]);
        let ways = vec![Way::new(path, reordering)];
        Self { ways, stretches, reordering, ecn: Account::default() }
    }

    /// The path that packets take now.
    pub fn path(&self) -> PathId {
        self.ways[self.now()].path
    }

    /// Number of the first packet since the lane came to that path.
    pub fn since(&self) -> u64 {
        self.stretches.back().map_or(0, |stretch| stretch.first)
    }

    fn now(&self) -> usize {
        self.stretches.back().map_or(0, |stretch| stretch.way)
    }

    /// Packets from number `first` on go over `path`. The way before takes `round_trip` and keeps
    /// `mtu`; returns what was known of the MTU of the other one.
    pub fn go(
        &mut self,
        first: u64,
        round_trip: Duration,
        mtu: MtuSearch,
        path: PathId,
    ) -> Option<MtuSearch> {
        let left = self.now();
        self.ways[left].round_trip = round_trip;
        self.ways[left].mtu = Some(mtu);
        let known = self.ways.iter().position(|way| way.path == path);
        let way = known.unwrap_or_else(|| {
            self.ways.push(Way::new(path, self.reordering));
            self.ways.len() - 1
        });
        // Where nothing was sent there is nothing to be remembered.
        self.stretches.pop_back_if(|stretch| stretch.first == first);
        self.stretches.push_back(Stretch { first, way });
        self.ways[way].mtu.take()
    }

    /// Nothing below `floor` is asked for any more.
    pub fn forget(&mut self, floor: u64) {
        while self.stretches.get(1).is_some_and(|next| next.first <= floor) {
            self.stretches.pop_front();
        }
    }

    fn way_of(&self, number: u64) -> usize {
        let after = self.stretches.partition_point(|stretch| stretch.first <= number);
        self.stretches.get(after.saturating_sub(1)).map_or(0, |stretch| stretch.way)
    }

    /// Packets of these numbers have arrived, of which `largest` is the highest.
    pub fn on_arrived(
        &mut self,
        ledger: &Ledger,
        largest: u64,
        ranges: impl Iterator<Item = Range<u64>>,
    ) {
        let now = self.way_of(largest);
        self.note_arrived(now, ledger.sent_by(largest));
        if self.stretches.len() < 2 {
            return;
        }
        for range in ranges {
            for index in 0..self.stretches.len() {
                let end = self.stretches.get(index + 1).map_or(u64::MAX, |next| next.first);
                let Stretch { first, way } = self.stretches[index];
                if range.start.max(first) < range.end.min(end) {
                    self.note_arrived(way, ledger.sent_by(range.end.min(end) - 1));
                }
            }
        }
    }

    fn note_arrived(&mut self, way: usize, sent_at: Option<Instant>) {
        let newest = &mut self.ways[way].newest_arrived;
        *newest = sent_at.map_or(*newest, |sent_at| sent_at.max(*newest));
    }

    /// Whether what is missing of `entry` is lost; `smoothed` is the RTT of the present path.
    pub fn is_lost(&self, entry: &Entry, smoothed: Duration) -> bool {
        let number = self.way_of(entry.first);
        let way = &self.ways[number];
        let round_trip = if number == self.now() { smoothed } else { way.round_trip };
        let extent = way.reordering.max(round_trip / 16);
        if entry.sent_at + extent <= way.newest_arrived {
            return true;
        }
        // Another way may be shorter: what was sent there later may have overtaken.
        let extent = extent.max(way.round_trip);
        let others = self.ways.iter().enumerate().filter(|(other, _)| *other != number);
        others.into_iter().any(|(_, other)| entry.sent_at + extent <= other.newest_arrived)
    }

    /// Packets of the present way that were taken as lost have arrived: its packets overtake each
    /// other by more than was thought.
    pub fn on_spurious(&mut self, smoothed: Duration) {
        let (now, least) = (self.now(), self.reordering);
        let reordering = &mut self.ways[now].reordering;
        *reordering = ((*reordering).max(smoothed / 16) * 2).min((smoothed / 2).max(least));
    }

    /// The codepoint for packets that are ECN-capable, by `asked`, if the path is.
    pub fn codepoint(&mut self, asked: Ecn) -> Ecn {
        let now = self.now();
        self.ways[now].ecn.codepoint(asked)
    }

    /// Packets leave, all with that codepoint.
    pub fn on_sent(&mut self, packets: u64, bytes: u64, ecn: Ecn) {
        let now = self.now();
        let way = &mut self.ways[now];
        way.carried.packets_sent += packets;
        way.carried.bytes_sent += bytes;
        if ecn.is_markable() {
            self.ecn.on_sent(&mut way.ecn, ecn, packets);
        }
    }

    /// The peer counts `counts`, in a report at that time that tells of `arrived` packets of the present way,
    /// whose smoothed RTT it is. Returns how many marks are new, where they are believed.
    pub fn on_counted(
        &mut self,
        time: (Instant, Duration),
        counts: &EcnCounts,
        arrived: Arrived,
    ) -> u64 {
        let now = self.now();
        self.ecn.on_report(&mut self.ways[now].ecn, time, counts, arrived)
    }

    /// Nothing is acknowledged any more.
    pub fn on_probe_timeout(&mut self) {
        let now = self.now();
        self.ways[now].ecn.on_probe_timeout();
    }

    /// So many packets, `number` among them, are lost.
    pub fn on_lost(&mut self, number: u64, packets: u64) {
        let way = self.way_of(number);
        self.ways[way].carried.lost += packets;
    }

    /// So many packets, `number` among them, were refused by the local stack.
    pub fn on_refused(&mut self, number: u64, packets: u64) {
        let way = self.way_of(number);
        self.ways[way].carried.refused += packets;
    }

    /// So many bytes came, over the present way as far as can be told.
    pub fn on_received(&mut self, bytes: u64) {
        let now = self.now();
        self.ways[now].carried.bytes_received += bytes;
    }

    /// So many packets, `number` among them, are at the peer.
    pub fn on_acked(&mut self, number: u64, packets: u64) {
        let way = self.way_of(number);
        self.ways[way].carried.packets_arrived += packets;
    }

    /// Each path that it was ever on, and what went over it.
    pub fn all_carried(&self) -> impl Iterator<Item = (PathId, Carried)> + '_ {
        self.ways.iter().map(|way| (way.path, way.carried))
    }

    /// What went over `path`.
    pub fn carried(&self, path: PathId) -> Carried {
        let way = self.ways.iter().find(|way| way.path == path);
        way.map_or(Carried::default(), |way| way.carried)
    }
}

#[cfg(test)]
mod tests;
