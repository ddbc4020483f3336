//! Shares of paths in the user's limit, and observations of all paths together.

use longhaul_connection::{CarrierSeen, Times};
use longhaul_units::{Duration, Instant, PathId};
use longhaul_wire::ReceiverBounds;

use super::ConnectionPaths;
use crate::lane::{LaneState, PathCell};

impl ConnectionPaths {
    /// Divides what holds for all paths, and sees which of them carries data: what most lanes are on.
    pub(super) fn share(&mut self, local: Instant) {
        self.hold_limits(local);
        let counts = self.set.counts();
        let most = (0..counts.len()).rev().max_by_key(|path| counts[*path]).unwrap_or(0);
        let path = PathId(most as u16);
        if path != self.carrying.path() {
            self.times();
            self.carrying.go(path, Times::of_path(&self.entries[most].path.borrow()));
        }
    }

    pub(super) fn hold_limits(&mut self, local: Instant) {
        let paths = self.entries.iter().zip(self.set.counts());
        let paths = paths.map(|(entry, lanes)| (PathCell(&entry.path), lanes));
        self.limits.look(local, &paths.collect::<Vec<_>>());
    }

    /// Time by what held the pace of those who carry data.
    fn times(&mut self) -> Times {
        let path = &self.entries[usize::from(self.carrying.path().0)].path;
        self.carrying.look(Times::of_path(&path.borrow()))
    }

    /// Observations of the lanes by now.
    pub fn seen(&mut self, lanes: &[LaneState]) -> CarrierSeen {
        let trips = self.entries.iter().map(|entry| {
            let path = entry.path.borrow();
            if path.rtt().has_sample() { path.rtt().min() } else { Duration::ZERO }
        });
        let mut seen = CarrierSeen {
            round_trip: trips.max().unwrap_or_default(),
            times: self.times(),
            ..CarrierSeen::default()
        };
        for lane in lanes {
            let stats = lane.stats();
            seen.delivered += stats.bytes_delivered;
            seen.received += stats.bytes_received;
            seen.moved += stats.fresh_bytes_delivered + lane.placed();
            // Any lane gets the same, sooner or later.
            if seen.peer == ReceiverBounds::NONE {
                seen.peer = lane.peer_bounds();
            }
        }
        seen
    }

    /// Number of moves of lanes to another path.
    pub fn moves(&self) -> u64 {
        self.moves
    }
}
