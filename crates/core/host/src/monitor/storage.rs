use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use crate::signals::Disk;

/// Storage behind the readers, of the whole connection.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    disk: Option<Disk>,
    began: Instant,
    written: u64,
    rate: Option<Rate>,
}

impl Storage {
    pub(super) fn new(now: Instant) -> Self {
        Self { disk: None, began: now, written: 0, rate: None }
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
        if now - self.began >= INTERVAL {
            let newest = Rate::from_bytes_over(self.written, now - self.began);
            self.rate =
                Some(self.rate.map_or(newest, |rate| rate.scale(1, 2) + newest.scale(1, 2)));
            (self.began, self.written) = (now, 0);
        }
    }

    /// What the disk takes, where enough waits for it to say so: as much as it writes, and a little more
    /// or less, so that half of the memory is in use and neither disk nor sender has to wait.
    pub(super) fn limit(&self) -> Option<(Rate, Bottleneck)> {
        let Disk { backlog, memory, .. } = self.disk?;
        if memory == 0 || backlog < memory / 4 {
            return None;
        }
        let full = u128::from(backlog.min(memory)) * 256 / u128::from(memory);
        let correction = u32::try_from(256 + 128 - full).unwrap_or(256);
        Some((self.rate?.scale(correction, 256), Bottleneck::ReceiverDisk))
    }
}

/// Files are written in pieces of a megabyte, several at once: less time sees none or many.
const INTERVAL: Duration = Duration::from_millis(250);
