//! Varying-Bandwidth List Scheduling (the VBLS paper, section 3.2) over any step function.

use alloc::vec::Vec;

use crate::capacity::{Mirror, Walk};
use crate::vector::Runs;

/// The request to place.
#[derive(Clone, Copy)]
pub(crate) struct Want {
    /// Channel ticks, the paper's φ.
    pub volume: u64,
    /// The paper's Rmax, in channels.
    pub max_rate: u32,
    /// First tick that may be used, the paper's Treq.
    pub from: u64,
    /// One past the last tick that may be used.
    pub by: u64,
    /// Idle ticks at the start of each stretch of one rate.
    pub guard: u64,
}

/// A stretch of one rate that has begun and may be continued without a new guard.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub start: u64,
    pub end: u64,
    pub rate: u32,
}

/// Places `want` as early as possible from the position of `walk`, which holds `want.from`.
/// The error is the volume for which there was no room.
pub(crate) fn earliest<W: Walk>(mut walk: W, want: &Want, run: Option<Run>) -> Result<Runs, u64> {
    match want.guard {
        0 => plain(&mut walk, want),
        _ => guarded(&mut walk, want, run),
    }
}

/// Places `want` as late as possible; `walk` holds the tick `want.by - 1`.
pub(crate) fn latest<W: Walk>(walk: W, want: &Want) -> Result<Runs, u64> {
    let mirrored = Want { from: u64::MAX - want.by, by: u64::MAX - want.from, ..*want };
    earliest(Mirror(walk), &mirrored, None).map(|runs| runs.mirrored())
}

/// The paper's loop with its four cases: 1 and 3 finish in this round, 2 and 4 go on; the paper's
/// Rmax caps 3 and 4. In 2 and 4 the size carried is subtracted before time moves on; in the
/// printed order the interval would be empty by then. Rounds at Rmax that follow each other are
/// gone through in one.
fn plain<W: Walk>(walk: &mut W, want: &Want) -> Result<Runs, u64> {
    let mut out = Runs::roomy();
    let mut left = want.volume;
    let mut more = true;
    while left > 0 && more && walk.to_at_least(1) {
        let segment = walk.segment();
        let start = segment.start.max(want.from);
        if start >= want.by {
            break;
        }
        let rate = segment.free.min(want.max_rate);
        let ticks = left.div_ceil(u64::from(rate));
        let limit = start.saturating_add(ticks).min(want.by);
        out.open(start, rate);
        more = if rate == want.max_rate {
            walk.to_below_noting(rate, limit, &mut |first, lows| out.cut_all(first, lows))
        } else {
            walk.forward()
        };
        let end = if more { walk.segment().start } else { walk.segment().end }.min(limit);
        out.close(end);
        left = left.saturating_sub((end - start).saturating_mul(u64::from(rate)));
    }
    if left == 0 { Ok(out) } else { Err(left) }
}

/// The same with idle guards. Works in stretches of equal attainable rate, because a stretch that
/// is no longer than its guard is worthless, and a higher rate is worth a new guard only if it
/// then carries more than going on at the old one.
fn guarded<W: Walk>(walk: &mut W, want: &Want, mut run: Option<Run>) -> Result<Runs, u64> {
    let mut out = Runs::roomy();
    let mut cuts = Vec::new();
    let mut left = want.volume;
    let mut at = want.from.max(walk.segment().start);
    while at < want.by {
        if walk.segment().free.min(want.max_rate) == 0 {
            if !walk.to_at_least(1) {
                break;
            }
            at = walk.segment().start.max(at);
            continue;
        }
        let start = at;
        let rate = walk.segment().free.min(want.max_rate);
        let before = run.filter(|r| r.end == start && r.rate <= rate);
        let slowest = before.map_or(rate, |r| r.rate);
        let enough = left.div_ceil(u64::from(slowest)).saturating_add(want.guard);
        cuts.clear();
        let more = loop {
            at = walk.segment().end.min(want.by);
            if at >= want.by || at - start >= enough {
                break true;
            }
            if !walk.forward() {
                break false;
            }
            if walk.segment().free.min(want.max_rate) != rate {
                break true;
            }
            cuts.push(at);
        };
        let fresh = Choice { start, rate, idle: want.guard };
        let choice = match before {
            None => fresh,
            Some(r) => {
                let idle = (r.start + want.guard).saturating_sub(start);
                fresh.or_stay(Choice { start: r.start, rate: r.rate, idle }, left, at - start)
            }
        };
        let carried = choice.carries(at - start);
        run = if carried == 0 && choice.start == start {
            None
        } else {
            let end = at.min(start.saturating_add(choice.time_for(left)));
            out.open(start, choice.rate);
            cuts.iter().filter(|cut| **cut < end).for_each(|cut| out.cut(*cut));
            out.close(end);
            Some(Run { start: choice.start, end, rate: choice.rate })
        };
        if carried >= left {
            return Ok(out);
        }
        left -= carried;
        if !more {
            break;
        }
    }
    Err(left)
}

/// A way to use a stretch: at this rate, after so many idle ticks.
#[derive(Clone, Copy)]
struct Choice {
    /// Start of the run it belongs to.
    start: u64,
    rate: u32,
    idle: u64,
}

impl Choice {
    fn carries(&self, ticks: u64) -> u64 {
        ticks.saturating_sub(self.idle).saturating_mul(u64::from(self.rate))
    }

    fn time_for(&self, volume: u64) -> u64 {
        volume.div_ceil(u64::from(self.rate)).saturating_add(self.idle)
    }

    /// This, or going on with an earlier run if that finishes no later or carries no less.
    fn or_stay(self, stay: Self, left: u64, ticks: u64) -> Self {
        let finishes = self.time_for(left).min(stay.time_for(left)) <= ticks;
        let better = if finishes {
            stay.time_for(left) <= self.time_for(left)
        } else {
            stay.carries(ticks) >= self.carries(ticks)
        };
        if better { stay } else { self }
    }
}
