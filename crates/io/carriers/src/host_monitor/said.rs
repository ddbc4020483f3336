//! What the sentinel has to say, for all lanes.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use longhaul_engine::Suspension;
use longhaul_rate_control::HostLimit;
use longhaul_units::{Bottleneck, Instant, Rate};

/// The last word; written by the sentinel alone. Reading it never waits: who comes while it changes
/// looks again later.
#[derive(Debug, Default)]
pub struct Said {
    /// Odd while the words change.
    version: AtomicU64,
    /// Rate, cause and end of the limit, order and end of the suspend, and the capacity.
    words: [AtomicU64; 6],
}

/// What is to be told to the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// This end takes no more.
    pub limit: Option<HostLimit>,
    /// The last order to be silent, or to go on.
    pub suspension: Option<Suspension>,
    /// What this end will process, where a controller goes by that.
    pub capacity: Option<Rate>,
}

impl Said {
    /// How often it has changed, to tell whether a look is worth while.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The word, and its version; nothing while it changes.
    pub fn read(&self) -> Option<(u64, Word)> {
        let before = self.version.load(Ordering::Acquire);
        let words = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if !before.is_multiple_of(2) || self.version.load(Ordering::Relaxed) != before {
            return None;
        }
        let [rate, cause, until, order, silent, capacity] = words;
        let limit = (until > 0).then(|| HostLimit {
            rate: Rate::from_bps(rate),
            cause: Bottleneck::from_code(cause as u8),
            until: Instant::from_nanos(until),
        });
        let suspension =
            (order > 0).then(|| Suspension { order, until: Instant::from_nanos(silent) });
        let capacity = (capacity > 0).then(|| Rate::from_bps(capacity));
        Some((before, Word { limit, suspension, capacity }))
    }

    /// By the sentinel.
    pub(super) fn write(&self, word: &Word) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let limit = word.limit.map_or([0; 3], |limit| {
            [limit.rate.as_bps(), limit.cause as u64, limit.until.as_nanos()]
        });
        let order = word.suspension.map_or([0; 2], |told| [told.order, told.until.as_nanos()]);
        let capacity = word.capacity.unwrap_or(Rate::ZERO).as_bps();
        let values = limit.into_iter().chain(order).chain([capacity]);
        for (to, value) in self.words.iter().zip(values) {
            to.store(value, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(n: u64) -> Word {
        let until = Instant::from_nanos(n);
        let limit = HostLimit { rate: Rate::from_bps(n), cause: Bottleneck::ReceiverDisk, until };
        let suspension = Some(Suspension { order: n, until });
        Word { limit: Some(limit), suspension, capacity: Some(Rate::from_bps(n)) }
    }

    #[test]
    fn what_is_written_is_read() {
        let said = Said::default();
        assert_eq!(said.read(), Some((0, Word::default())));
        for (version, word) in [(2, word(7)), (4, Word { limit: None, ..word(9) })] {
            said.write(&word);
            assert_eq!(said.read(), Some((version, word)));
            assert_eq!(said.version(), version);
        }
    }

    #[test]
    fn no_word_is_half_of_one_and_half_of_another() {
        let said = Said::default();
        said.write(&word(1));
        std::thread::scope(|scope| {
            scope.spawn(|| (2..20_000).for_each(|n| said.write(&word(n))));
            let mut last = 0;
            while last < 19_999 {
                if let Some((_, read)) = said.read() {
                    let order = read.suspension.unwrap().order;
                    assert_eq!(read, word(order));
                    assert!(order >= last);
                    last = order;
                }
            }
        });
    }
}
