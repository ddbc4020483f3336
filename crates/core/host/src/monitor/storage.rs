use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use crate::service::{rate, seconds};
use crate::signals::Disk;

/// Storage behind the readers, of the whole connection.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    disk: Option<Disk>,
    /// The least backlog since `looked`, and in the time of [`STANDS`] before.
    least: u64,
    standing: u64,
    looked: Instant,
    /// Sums of this interval.
    began: Instant,
    written: u64,
    /// Bytes that were written of late, in what time of work.
    bytes: f64,
    seconds: f64,
}

impl Storage {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            disk: None,
            least: u64::MAX,
            standing: 0,
            looked: now,
            began: now,
            written: 0,
            bytes: 0.0,
            seconds: 0.0,
        }
    }

    pub(super) fn on_disk(&mut self, now: Instant, disk: &Disk) {
        let was_idle = self.disk.is_none_or(|disk| disk.backlog == 0);
        if was_idle {
            // A disk that had nothing to do says nothing of how fast it is.
            (self.began, self.written) = (now, 0);
        } else {
            self.written = self.written.saturating_add(disk.written);
        }
        self.disk = Some(*disk);
        self.least = self.least.min(disk.backlog);
        if now - self.looked >= STANDS {
            self.looked = now;
            self.standing = core::mem::replace(&mut self.least, u64::MAX);
        }
        if now - self.began >= INTERVAL {
            self.bytes = self.bytes * KEPT + self.written as f64;
            self.seconds = self.seconds * KEPT + seconds(now - self.began);
            (self.began, self.written) = (now, 0);
        }
    }

    /// Returns the rate that the disk takes, where enough waits to show it: as much as it writes, and a little
    /// more or less, so that half of the memory is in use and neither disk nor sender has to wait.
    pub(super) fn limit(&self) -> Option<(Rate, Bottleneck)> {
        let Disk { memory, .. } = self.disk?;
        let backlog = self.standing.min(self.least);
        if memory == 0 || backlog < memory / 4 {
            return None;
        }
        let full = u128::from(backlog.min(memory)) * 256 / u128::from(memory);
        let correction = u32::try_from(256 + 128 - full).unwrap_or(256);
        let written = (self.seconds > 0.0).then(|| rate(self.bytes * 8.0 / self.seconds))?;
        Some((written.scale(correction, 256), Bottleneck::ReceiverDisk))
    }
}

/// Files are written in pieces of a megabyte, several at once: less time sees none or many.
const INTERVAL: Duration = Duration::from_millis(125);
/// Time for which a backlog stands, some turns of the scheduler: bytes that a writer leaves lying while
/// others have its processor are none.
const STANDS: Duration = Duration::from_millis(25);
/// Weights halve in 0.3 s: a new rate counts nine tenths within a second, and a pause of a sync, which is
/// as long, does not pass for the end of a disk.
const KEPT: f64 = 0.75;
