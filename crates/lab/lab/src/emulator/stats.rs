use std::time::Duration;

use longhaul_pathsim::{DropReason, PathStats, QueueStats};
use longhaul_units::Bytes;

use super::lateness::LatenessSummary;

/// Counts of one direction of a link since its start.
///
/// Every packet sent is delivered, or counted in `path` with the reason, or, if something was wrong
/// with the emulation itself, in one of the counters of [`DirectionStats::unasked`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DirectionStats {
    /// Segments offered to the path, delivered and dropped, with reasons. What the queue of a line of
    /// the kernel's holds is not yet offered, and bytes of what it dropped are not known: see
    /// [`DirectionStats::offered_bytes`].
    pub path: PathStats,
    /// Of the bottleneck.
    pub line: LineStats,
    /// IP-layer bytes in its queue now.
    pub queue_bytes: Bytes,
    /// Packets and super-packets that came from the sender's stack.
    pub packets_read: u64,
    /// Packets and super-packets that went to the receiver's stack.
    pub packets_written: u64,
    /// ICMP errors sent for packets above the path's MTU.
    pub too_big_sent: u64,
    /// Multicast and link-local packets, which routers do not forward: in no other counter.
    pub kept_on_link: u64,
    /// Lateness of deliveries.
    pub lateness: LatenessSummary,
    /// Of the packets that the queue dropped, those that were fetched when the emulator was more than
    /// a millisecond late: when these came is an estimate. None of a line of the kernel's.
    pub queue_while_late: u64,
    /// Super-packets that the sender's device dropped because the emulator was too slow, or the
    /// sender faster than any network card.
    pub device_full: u64,
    /// Super-packets dropped for want of memory in the emulator.
    pub overrun: u64,
    /// Packets that the receiver's stack or device refused.
    pub refused: u64,
    /// Frames that were no IP packet, or a super-packet of an unknown kind.
    pub malformed: u64,
}

impl DirectionStats {
    /// IP-layer bytes sent; not known where the line is the kernel's.
    pub fn offered_bytes(&self) -> Option<u64> {
        self.queue().map(|_| self.path.offered_bytes)
    }

    /// The bottleneck's queue, where the line is emulated.
    pub fn queue(&self) -> Option<QueueStats> {
        match self.line {
            LineStats::Emulated(queue) => Some(queue),
            LineStats::Kernel { .. } => None,
        }
    }

    /// Lateness of the latest change of rate, where the line is the kernel's.
    pub fn changes_late(&self) -> Option<Duration> {
        match self.line {
            LineStats::Emulated(_) => None,
            LineStats::Kernel { changes_late } => Some(changes_late),
        }
    }

    /// Drops that nobody asked for, by name: a run in which one is not zero measures the emulator.
    pub fn unasked(&self) -> [(&'static str, u64); 4] {
        [
            ("device", self.device_full),
            ("overrun", self.overrun),
            ("refused", self.refused),
            ("malformed", self.malformed),
        ]
    }

    /// Everything that did not arrive, by name, without what is zero.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let asked = DropReason::ALL.map(|reason| (reason.name(), self.path.dropped(reason)));
        asked.into_iter().chain(self.unasked()).filter(|(_, count)| *count > 0)
    }
}

/// Counts of a line that only a line of that kind has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LineStats {
    /// Emulated, or there is no bottleneck: its queue.
    Emulated(QueueStats),
    /// The kernel's, which counts neither the waits of packets nor the lengths of those that it
    /// drops.
    Kernel {
        /// Lateness of the latest change of rate.
        changes_late: Duration,
    },
}

impl Default for LineStats {
    fn default() -> Self {
        Self::Emulated(QueueStats::default())
    }
}

/// Both directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkStats {
    /// From the first end to the second.
    pub forward: DirectionStats,
    /// From the second end to the first.
    pub backward: DirectionStats,
}
