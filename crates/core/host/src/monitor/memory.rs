use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use crate::service::seconds;

/// Threads of this host that wait for memory (PSI), and the rate at which they need not.
///
/// What arrives takes memory: socket buffers, groups, the page cache of what is written. Where the
/// kernel has to find some first, everybody on the host waits, readers too.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    began: Instant,
    waited: Duration,
    limit: Option<Rate>,
    /// The most that arrived since the limit began: others may be why memory is short, and no less than
    /// half of this is taken.
    whole: Rate,
    /// When much was waited for last.
    pressed: Instant,
}

impl Memory {
    pub(super) const fn new(now: Instant) -> Self {
        Self { began: now, waited: Duration::ZERO, limit: None, whole: Rate::ZERO, pressed: now }
    }

    /// Somebody waited so long since the last look; so much arrives.
    pub(super) fn on_pressure(&mut self, now: Instant, waited: Duration, arrives: Rate) {
        self.waited = self.waited.saturating_add(waited);
        let interval = now - self.began;
        if interval < INTERVAL {
            return;
        }
        let share = (seconds(self.waited) / seconds(interval)).min(1.0);
        (self.began, self.waited) = (now, Duration::ZERO);
        if share > MUCH {
            self.pressed = now;
            self.whole = self.limit.map_or(arrives, |_| self.whole.max(arrives));
            self.limit = Some(self.whole.scale(1, 2));
        } else if now - self.pressed >= OVER {
            self.limit = None;
        } else {
            self.limit = self.limit.map(|limit| limit.scale(17, 16));
        }
    }

    pub(super) fn limit(&self) -> Option<(Rate, Bottleneck)> {
        self.limit.map(|rate| (rate, Bottleneck::ReceiverMemory))
    }
}

/// Some looks at the totals, which come each 50 ms.
const INTERVAL: Duration = Duration::from_millis(200);
/// Of the time. A control group whose page cache fills its limit waits for a fifth of it, and works: a
/// limit from there on cost a fifth of the rate and gained nothing.
const MUCH: f64 = 0.5;
/// Behind so long without pressure the limit is over.
const OVER: Duration = Duration::from_secs(3);
