//! The paths of a lane: which packets went over which path, and what each path has shown.

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

/// Counts of a lane over one path: sent over it, and received while the lane was there.
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
    /// Those of them that the local stack refused, and not for their size: it may know no route there.
    pub refused: u64,
    /// IP-layer bytes received.
    pub bytes_received: u64,
}

#[derive(Debug)]
pub(crate) struct LanePaths {
    /// One for each path that the lane was ever on.
    visits: Vec<PathVisit>,
    /// Oldest first. The last one grows.
    number_ranges: VecDeque<NumberRange>,
    /// Least reordering extent.
    reordering: Duration,
    ecn: Account,
}

/// Packets with consecutive numbers, all on one path.
#[derive(Debug)]
struct NumberRange {
    first: u64,
    visit: usize,
}

#[derive(Debug)]
struct PathVisit {
    path: PathId,
    /// Reordering extent: a packet sent so much later may overtake an earlier one (protocol.md 5.4.1).
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

impl PathVisit {
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

impl LanePaths {
    /// Of a lane that begins on `path`.
    pub fn new(path: PathId, reordering: Duration) -> Self {
        let number_ranges = VecDeque::from([NumberRange { first: 0, visit: 0 }]);
        let visits = vec![PathVisit::new(path, reordering)];
        Self { visits, number_ranges, reordering, ecn: Account::default() }
    }

    /// The path that packets take now.
    pub fn path(&self) -> PathId {
        self.visits[self.now()].path
    }

    /// Number of the first packet since the lane came to that path.
    pub fn since(&self) -> u64 {
        self.number_ranges.back().map_or(0, |range| range.first)
    }

    fn now(&self) -> usize {
        self.number_ranges.back().map_or(0, |range| range.visit)
    }

    /// Packets from number `first` on go over `path`. The path before takes `round_trip` and keeps
    /// `mtu`; returns what was known of the MTU of the other one.
    pub fn go(
        &mut self,
        first: u64,
        round_trip: Duration,
        mtu: MtuSearch,
        path: PathId,
    ) -> Option<MtuSearch> {
        let left = self.now();
        self.visits[left].round_trip = round_trip;
        self.visits[left].mtu = Some(mtu);
        let known = self.visits.iter().position(|visit| visit.path == path);
        let visit = known.unwrap_or_else(|| {
            self.visits.push(PathVisit::new(path, self.reordering));
            self.visits.len() - 1
        });
        // Where nothing was sent there is nothing to be remembered.
        self.number_ranges.pop_back_if(|range| range.first == first);
        self.number_ranges.push_back(NumberRange { first, visit });
        self.visits[visit].mtu.take()
    }

    /// Nothing below `floor` is asked for any more.
    pub fn forget(&mut self, floor: u64) {
        while self.number_ranges.get(1).is_some_and(|next| next.first <= floor) {
            self.number_ranges.pop_front();
        }
    }

    fn visit_of(&self, number: u64) -> usize {
        let after = self.number_ranges.partition_point(|range| range.first <= number);
        self.number_ranges.get(after.saturating_sub(1)).map_or(0, |range| range.visit)
    }

    /// Packets of these numbers have arrived, of which `largest` is the highest.
    pub fn on_arrived(
        &mut self,
        ledger: &Ledger,
        largest: u64,
        ranges: impl Iterator<Item = Range<u64>>,
    ) {
        let now = self.visit_of(largest);
        self.note_arrived(now, ledger.sent_by(largest));
        if self.number_ranges.len() < 2 {
            return;
        }
        for range in ranges {
            for index in 0..self.number_ranges.len() {
                let end = self.number_ranges.get(index + 1).map_or(u64::MAX, |next| next.first);
                let NumberRange { first, visit } = self.number_ranges[index];
                if range.start.max(first) < range.end.min(end) {
                    self.note_arrived(visit, ledger.sent_by(range.end.min(end) - 1));
                }
            }
        }
    }

    fn note_arrived(&mut self, visit: usize, sent_at: Option<Instant>) {
        let newest = &mut self.visits[visit].newest_arrived;
        *newest = sent_at.map_or(*newest, |sent_at| sent_at.max(*newest));
    }

    /// True if the missing packets of `entry` are lost; `smoothed` is the RTT of the present path.
    pub fn is_lost(&self, entry: &Entry, smoothed: Duration) -> bool {
        let number = self.visit_of(entry.first);
        let visit = &self.visits[number];
        let round_trip = if number == self.now() { smoothed } else { visit.round_trip };
        let extent = visit.reordering.max(round_trip / 16);
        if entry.sent_at + extent <= visit.newest_arrived {
            return true;
        }
        // Another path may be shorter: packets sent there later may have overtaken.
        let extent = extent.max(visit.round_trip);
        let others = self.visits.iter().enumerate().filter(|(other, _)| *other != number);
        others.into_iter().any(|(_, other)| entry.sent_at + extent <= other.newest_arrived)
    }

    /// Packets of the present path that were taken as lost have arrived: its packets overtake each
    /// other by more than was thought.
    pub fn on_spurious(&mut self, smoothed: Duration) {
        let (now, least) = (self.now(), self.reordering);
        let reordering = &mut self.visits[now].reordering;
        *reordering = ((*reordering).max(smoothed / 16) * 2).min((smoothed / 2).max(least));
    }

    /// The codepoint for packets that are ECN-capable, by `asked`, if the path is.
    pub fn codepoint(&mut self, asked: Ecn) -> Ecn {
        let now = self.now();
        self.visits[now].ecn.codepoint(asked)
    }

    /// Packets leave, all with that codepoint.
    pub fn on_sent(&mut self, packets: u64, bytes: u64, ecn: Ecn) {
        let now = self.now();
        let visit = &mut self.visits[now];
        visit.carried.packets_sent += packets;
        visit.carried.bytes_sent += bytes;
        if ecn.is_markable() {
            self.ecn.on_sent(&mut visit.ecn, ecn, packets);
        }
    }

    /// The peer counts `counts`, in a report at that time that shows `arrived` packets of the present path,
    /// whose smoothed RTT it is. Returns how many marks are new, where they are believed.
    pub fn on_counted(
        &mut self,
        time: (Instant, Duration),
        counts: &EcnCounts,
        arrived: Arrived,
    ) -> u64 {
        let now = self.now();
        self.ecn.on_report(&mut self.visits[now].ecn, time, counts, arrived)
    }

    /// Nothing is acknowledged any more.
    pub fn on_probe_timeout(&mut self) {
        let now = self.now();
        self.visits[now].ecn.on_probe_timeout();
    }

    /// So many packets, `number` among them, are lost.
    pub fn on_lost(&mut self, number: u64, packets: u64) {
        let visit = self.visit_of(number);
        self.visits[visit].carried.lost += packets;
    }

    /// So many packets, `number` among them, were refused by the local stack.
    pub fn on_refused(&mut self, number: u64, packets: u64) {
        let visit = self.visit_of(number);
        self.visits[visit].carried.refused += packets;
    }

    /// So many bytes came, over the present path as far as is known.
    pub fn on_received(&mut self, bytes: u64) {
        let now = self.now();
        self.visits[now].carried.bytes_received += bytes;
    }

    /// So many packets, `number` among them, are at the peer.
    pub fn on_acked(&mut self, number: u64, packets: u64) {
        let visit = self.visit_of(number);
        self.visits[visit].carried.packets_arrived += packets;
    }

    /// Each path that it was ever on, with its counts.
    pub fn all_carried(&self) -> impl Iterator<Item = (PathId, Carried)> + '_ {
        self.visits.iter().map(|visit| (visit.path, visit.carried))
    }

    /// Counts over `path`.
    pub fn carried(&self, path: PathId) -> Carried {
        let visit = self.visits.iter().find(|visit| visit.path == path);
        visit.map_or(Carried::default(), |visit| visit.carried)
    }
}

#[cfg(test)]
mod tests;
