//! What a running copy or pipe shows.

use std::mem;
use std::sync::Mutex;

use longhaul_objects::NamedChange;
use longhaul_sys::sync::lock;
use longhaul_units::{Losses, without_numbers};
use longhaul_wire::SourceReport;

use crate::api::Snapshot;

/// Where a running copy or pipe leaves its state for a display on another thread.
#[derive(Debug, Default)]
pub struct Progress {
    snapshot: Mutex<Snapshot>,
    /// The last one of the connections that were lost.
    before: Mutex<Snapshot>,
    news: Mutex<Vec<String>>,
    changes: Mutex<(Vec<NamedChange>, u64)>,
    /// Packets of the connection that ended last, and of those that were lost before.
    packets: Mutex<(Packets, Packets)>,
}

/// Packets of connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packets {
    pub sent: u64,
    pub resent: u64,
    pub lost: Losses,
}

impl Packets {
    /// Those that the sender reports.
    pub fn of(report: &SourceReport) -> Self {
        Self { sent: report.packets_sent, resent: report.packets_resent, lost: report.lost }
    }

    pub fn plus(self, more: Self) -> Self {
        let (sent, resent) = (self.sent + more.sent, self.resent + more.resent);
        Self { sent, resent, lost: self.lost.plus(&more.lost) }
    }
}

impl Progress {
    /// The state now.
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.snapshot).clone()
    }

    /// What has happened since the last call that everybody should know at once, as that TCP
    /// carries because UDP does not pass. What still matters at the end is in
    /// [`crate::api::LinkReport::notices`] too.
    pub fn take_news(&self) -> Vec<String> {
        mem::take(&mut *lock(&self.news))
    }

    /// Changes at the destination since the last call, where they were
    /// [asked for](crate::CopyRecords::changes), and how many were left out: those of more than 65,536
    /// at once.
    pub fn take_changes(&self) -> (Vec<NamedChange>, u64) {
        mem::take(&mut *lock(&self.changes))
    }

    /// True if there is room for more changes.
    pub(crate) fn has_room(&self) -> bool {
        lock(&self.changes).0.len() < CHANGES_MAX
    }

    /// More changes, and how many were left out.
    pub(crate) fn keep_changes(&self, (changes, left_out): (Vec<NamedChange>, u64)) {
        let mut kept = lock(&self.changes);
        kept.0.extend(changes);
        kept.1 += left_out;
    }

    /// A connection has ended, and had sent so much.
    pub(crate) fn connection_ended(&self, packets: Packets) {
        lock(&self.packets).0 = packets;
    }

    /// That connection was lost, and another one goes on.
    pub(crate) fn connection_lost(&self) {
        *lock(&self.before) = self.snapshot();
        let mut packets = lock(&self.packets);
        let (ended, earlier) = mem::take(&mut *packets);
        packets.1 = earlier.plus(ended);
    }

    /// Packets of the connections that were lost.
    pub(crate) fn packets_before(&self) -> Packets {
        lock(&self.packets).1
    }

    /// The state of the connection that runs now. What was reached over one that was lost stays shown until this
    /// one has come as far.
    pub(crate) fn set(&self, snapshot: Snapshot) {
        let before = lock(&self.before);
        *lock(&self.snapshot) = Snapshot {
            bytes_named: snapshot.bytes_named.max(before.bytes_named),
            bytes_done: snapshot.bytes_done.max(before.bytes_done),
            bytes_total: snapshot.bytes_total.or(before.bytes_total),
            files_named: snapshot.files_named.max(before.files_named),
            files_done: snapshot.files_done.max(before.files_done),
            files_total: snapshot.files_total.or(before.files_total),
            ..snapshot
        };
    }

    pub(crate) fn tell(&self, news: &str) {
        lock(&self.news).push(without_numbers(news));
    }
}

/// Changes that wait to be taken, before those that come wait elsewhere.
const CHANGES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_does_not_run_backwards_behind_a_lost_connection() {
        let progress = Progress::default();
        let at = |bytes_done, bytes_total| Snapshot {
            bytes_named: bytes_done,
            bytes_done,
            bytes_total,
            files_done: bytes_done,
            files_total: bytes_total,
            packets_sent: bytes_done,
            ..Snapshot::default()
        };
        progress.set(at(70, Some(100)));
        progress.connection_lost();
        for (bytes, total) in [(0, None), (60, None), (60, Some(100))] {
            progress.set(at(bytes, total));
            let shown = progress.snapshot();
            let done = (shown.bytes_named, shown.bytes_done, shown.files_done);
            assert_eq!(done, (70, 70, 70));
            assert_eq!((shown.bytes_total, shown.files_total), (Some(100), Some(100)));
            assert_eq!(shown.packets_sent, bytes, "counted on by the connection");
        }
        // Over one connection they may become fewer: those of files that fail.
        for bytes in [80, 75] {
            progress.set(at(bytes, Some(100)));
            assert_eq!(progress.snapshot().bytes_done, bytes);
        }
    }

    #[test]
    fn packets_of_lost_connections_are_counted_on() {
        let progress = Progress::default();
        let packets =
            |sent| Packets { sent, resent: 1, lost: Losses { random: 2, ..Losses::default() } };
        // By another route, which was tried before: of no connection that was lost.
        progress.connection_ended(packets(5));
        progress.connection_ended(packets(100));
        progress.connection_lost();
        progress.connection_lost();
        progress.connection_ended(packets(30));
        progress.connection_lost();
        let before = progress.packets_before();
        assert_eq!((before.sent, before.resent, before.lost.total()), (130, 2, 4));
    }
}
