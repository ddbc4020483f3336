use longhaul_sys::sync::lock;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longhaul_pathsim::DropReason;
use longhaul_sys::netns::{DeviceCount, DeviceCounters, Namespace};
use longhaul_sys::traffic_control::{Change, Class, Egress, QueueCounters, burst};
use longhaul_units::Rate;

use super::stats::{DirectionStats, LineStats};

/// A direction's rate and queue by the kernel's HTB, at a switch between the sending node and the
/// emulation of all else.
#[derive(Debug)]
pub(crate) struct KernelLine {
    /// The switch. HTB is on its device towards the emulation.
    pub(crate) switch: Namespace,
    pub(crate) egress: Mutex<Egress>,
    pub(crate) queue: QueueCounters,
    /// The veth pair between node and switch, which has this name on both sides.
    pub(crate) device: String,
    pub(crate) at_node: DeviceCounters,
    pub(crate) at_switch: DeviceCounters,
    /// Later rates.
    pub(crate) changes: Vec<(Duration, Rate)>,
    pub(crate) mtu: u32,
    /// Nanoseconds by which the latest change of rate was late.
    pub(crate) latest: AtomicU64,
}

impl KernelLine {
    pub(super) fn set_rate(&self, rate: Rate) -> io::Result<()> {
        let mut egress = lock(&self.egress);
        egress.apply(&[Change::ChangeClass(class(rate, self.mtu))]).into_iter().collect()
    }

    pub(super) fn was_late(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.latest.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Completes what the emulation knows of the direction with what happened before it.
    pub(super) fn complete(&self, stats: &mut DirectionStats) -> io::Result<()> {
        let queue = self.queue.read()?;
        stats.path.add_dropped_before(DropReason::Queue, queue.dropped);
        stats.queue_bytes = queue.waiting;
        stats.device_full += self.count(&self.at_switch)?.receive_dropped;
        let changes_late = Duration::from_nanos(self.latest.load(Ordering::Relaxed));
        stats.line = LineStats::Kernel { changes_late };
        Ok(())
    }

    /// Packets of the other direction that did not get from the switch to the node.
    pub(super) fn refused(&self) -> io::Result<u64> {
        Ok(self.count(&self.at_node)?.receive_dropped)
    }

    fn count(&self, counters: &DeviceCounters) -> io::Result<DeviceCount> {
        counters.of(&self.device)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The one class of a line of that rate.
pub(crate) fn class(rate: Rate, mtu: u32) -> Class {
    Class { number: 1, parent: 0, rate, ceiling: rate, burst: burst(rate, mtu), priority: 0 }
}
