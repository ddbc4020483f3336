//! The rate of a class, divided among its segments: who needs less than an equal part leaves the
//! rest to the others (max-min fairness).
//!
//! A segment may send faster only by what others have given up before, so the sum of all parts never
//! exceeds the rate; only those who come while nothing is free get more, a sixteenth of it together,
//! until the others have looked.

use std::collections::BTreeMap;

use longhaul_units::{Duration, Instant};

/// Parts of one rate, in bits per second.
#[derive(Debug, Default)]
pub(super) struct Division {
    parts: BTreeMap<u64, Part>,
    next: u64,
    /// Sum of all parts.
    given: u64,
    /// Most for each, and what is left over for each when nobody needs that.
    level: u64,
    surplus: u64,
    divided_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    rate: u64,
    /// [`u64::MAX`]: all that it gets.
    needs: u64,
}

impl Division {
    /// A new segment, and its part of `all` until it has shown what it needs.
    pub fn join(&mut self, all: u64) -> (u64, u64) {
        let count = self.parts.len() as u64 + 1;
        let least = least(all, count);
        let free = all.saturating_sub(self.given).min(all / count);
        let extra = (all + all / RESERVE).saturating_sub(self.given).min(least);
        let rate = free.max(extra).max(all / TRICKLE).max(1);
        let id = self.next;
        self.next += 1;
        self.parts.insert(id, Part { rate, needs: least });
        self.given += rate;
        (id, rate)
    }

    /// A segment has sent at the rate `used`: its part from now on.
    pub fn look(&mut self, id: u64, all: u64, used: u64, most: u64, now: Instant) -> u64 {
        let least = least(all, self.parts.len() as u64);
        let Some(part) = self.parts.get_mut(&id) else { return least };
        let is_full = used >= part.rate - part.rate / 8;
        part.needs = if is_full { most } else { (used + used / 4).max(least).min(most) };
        if self.divided_at.is_none_or(|at| now.since(at) >= INTERVAL) {
            self.divided_at = Some(now);
            self.divide(all);
        }
        let Some(part) = self.parts.get_mut(&id) else { return least };
        let target = part.needs.min(self.level).saturating_add(self.surplus).min(most);
        let free = all.saturating_sub(self.given - part.rate);
        let rate = if target > part.rate { target.min(free.max(part.rate)) } else { target };
        let rate = rate.max(1);
        self.given = self.given - part.rate + rate;
        part.rate = rate;
        rate
    }

    pub fn leave(&mut self, id: u64) {
        if let Some(part) = self.parts.remove(&id) {
            self.given -= part.rate;
        }
    }

    fn divide(&mut self, all: u64) {
        let mut needs: Vec<u64> = self.parts.values().map(|part| part.needs).collect();
        needs.sort_unstable();
        let (mut left, mut count) = (all, needs.len() as u64);
        (self.level, self.surplus) = (u64::MAX, 0);
        for need in needs {
            if need > left / count {
                self.level = left / count;
                return;
            }
            left -= need;
            count -= 1;
        }
        self.surplus = left / (self.parts.len() as u64).max(1);
    }
}

/// The part of a segment that sends nothing: enough to show that it wants more.
const fn least(all: u64, count: u64) -> u64 {
    all / RESERVE / count
}

const RESERVE: u64 = 16;
/// Part of the rate for one more where many come at once.
const TRICKLE: u64 = 1 << 16;
/// Between divisions.
const INTERVAL: Duration = Duration::from_millis(100);
