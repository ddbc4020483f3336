//! The pace of a disk.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_units::{Instant, Rate};

/// The head: everything that is read or written passes it, one after the other.
#[derive(Debug)]
pub(super) struct Head {
    rate: Rate,
    /// When it is slow: not before [`Head::slow_down`].
    slow: Mutex<Option<(Instant, Option<Instant>)>>,
    /// When it will have done all that was asked for.
    free: Mutex<Instant>,
    passed: AtomicU64,
    /// CPU time, in nanoseconds.
    spent: AtomicU64,
    stopped: AtomicBool,
}

impl Head {
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            slow: Mutex::new(None),
            free: Mutex::new(Instant::ZERO),
            passed: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// It is slow from then on, until `until` if there is one.
    pub fn slow_down(&self, from: Instant, until: Option<Instant>) {
        *lock(&self.slow) = Some((from, until));
    }

    /// Nothing waits any longer.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Bytes read and written, and the CPU time for it.
    pub fn account(&self) -> (u64, Duration) {
        let spent = Duration::from_nanos(self.spent.load(Ordering::Relaxed));
        (self.passed.load(Ordering::Relaxed), spent)
    }

    /// Does `work`, once so many bytes had the time that they take.
    pub fn pass(&self, bytes: u64, work: impl FnOnce()) {
        let before = clock::thread_cpu_time();
        if let Some(due) = self.due(clock::now(), bytes) {
            while clock::now() < due && !self.stopped.load(Ordering::Relaxed) {
                clock::sleep_until(due.min(clock::now() + GLANCE));
            }
        }
        work();
        self.passed.fetch_add(bytes, Ordering::Relaxed);
        let spent = clock::thread_cpu_time().saturating_sub(before).as_nanos();
        self.spent.fetch_add(u64::try_from(spent).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When so many more bytes will have passed; `None` while it is fast.
    fn due(&self, now: Instant, bytes: u64) -> Option<Instant> {
        let (from, until) = (*lock(&self.slow))?;
        if now < from || until.is_some_and(|until| now >= until) {
            return None;
        }
        let mut free = lock(&self.free);
        *free = (*free).max(now) + self.rate.time_for(bytes);
        Some(*free)
    }
}

/// Longest time until a stop is noticed.
const GLANCE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_one_after_the_other_while_it_is_slow() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let head = Head::new(Rate::from_mbps(8));
        assert_eq!(head.due(at(5), 1000), None, "it has not begun");
        head.slow_down(at(10), Some(at(20)));
        assert_eq!(head.due(at(9), 1000), None);
        assert_eq!(head.due(at(10), 1000), Some(at(11)));
        assert_eq!(head.due(at(10), 2000), Some(at(13)));
        assert_eq!(head.due(at(18), 1000), Some(at(19)), "idle time is lost");
        assert_eq!(head.due(at(20), 1000), None, "fast again");
    }
}
