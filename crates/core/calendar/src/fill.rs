//! Varying-Bandwidth List Scheduling (the VBLS paper, section 3.2) over any step function.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use crate::capacity::{Mirror, Walk};
use crate::vector::Allocation;

/// What to place.
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
/// Appends ranges to `out`; the error is the volume for which there was no room.
pub(crate) fn earliest<W: Walk>(
    mut walk: W,
    want: &Want,
    run: Option<Run>,
    out: &mut Vec<Allocation>,
) -> Result<(), u64> {
    match want.guard {
        0 => plain(walk, want, out),
        _ => guarded(&mut walk, want, run, out),
    }
}

/// Places `want` as late as possible; `walk` holds the tick `want.by - 1`.
pub(crate) fn latest<W: Walk>(walk: W, want: &Want, out: &mut Vec<Allocation>) -> Result<(), u64> {
    let mark = out.len();
    let mirrored = Want { from: u64::MAX - want.by, by: u64::MAX - want.from, ..*want };
    let placed = earliest(Mirror(walk), &mirrored, None, out);
    for range in &mut out[mark..] {
        (range.start, range.end) = (u64::MAX - range.end, u64::MAX - range.start);
    }
    out[mark..].reverse();
    placed
}

/// The paper's loop with its four cases: 1 and 3 finish in this round, 2 and 4 go on; the paper's
/// Rmax caps 3 and 4. In 2 and 4 the size carried is subtracted before time moves on; in the
/// printed order the interval would be empty by then.
fn plain<W: Walk>(walk: W, want: &Want, out: &mut Vec<Allocation>) -> Result<(), u64> {
    let mut left = want.volume;
    walk.visit(1, |segment| {
        let start = segment.start.max(want.from);
        let end = segment.end.min(want.by);
        if start >= end {
            return ControlFlow::Break(());
        }
        let rate = segment.free.min(want.max_rate);
        let room = (end - start).saturating_mul(u64::from(rate));
        if room >= left {
            out.push(Allocation { start, end: start + left.div_ceil(u64::from(rate)), rate });
            left = 0;
            return ControlFlow::Break(());
        }
        out.push(Allocation { start, end, rate });
        left -= room;
        ControlFlow::Continue(())
    });
    if left == 0 { Ok(()) } else { Err(left) }
}

/// The same with idle guards. Works in stretches of equal attainable rate, because a stretch that
/// is no longer than its guard is worthless, and a higher rate is worth a new guard only if it
/// then carries more than going on at the old one.
fn guarded<W: Walk>(
    walk: &mut W,
    want: &Want,
    mut run: Option<Run>,
    out: &mut Vec<Allocation>,
) -> Result<(), u64> {
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
        let mark = out.len();
        let start = at;
        let rate = walk.segment().free.min(want.max_rate);
        let before = run.filter(|r| r.end == start && r.rate <= rate);
        let slowest = before.map_or(rate, |r| r.rate);
        let enough = left.div_ceil(u64::from(slowest)).saturating_add(want.guard);
        let more = loop {
            let end = walk.segment().end.min(want.by);
            out.push(Allocation { start: at, end, rate });
            at = end;
            if at >= want.by || at - start >= enough {
                break true;
            }
            if !walk.forward() {
                break false;
            }
            if walk.segment().free.min(want.max_rate) != rate {
                break true;
            }
        };
        let fresh = Choice { start, rate, idle: want.guard };
        let choice = match before {
            None => fresh,
            Some(r) => {
                let idle = (r.start + want.guard).saturating_sub(start);
                fresh.or_stay(Choice { start: r.start, rate: r.rate, idle }, left, at - start)
            }
        };
        for range in &mut out[mark..] {
            range.rate = choice.rate;
        }
        let carried = choice.carries(at - start);
        if carried >= left {
            cut(out, mark, start + choice.time_for(left));
            return Ok(());
        }
        left -= carried;
        run = Some(Run { start: choice.start, end: at, rate: choice.rate });
        if carried == 0 && choice.start == start {
            out.truncate(mark);
            run = None;
        }
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

/// Ends the ranges from `mark` on at `end`.
fn cut(out: &mut Vec<Allocation>, mark: usize, end: u64) {
    while out.len() > mark + 1 && out[out.len() - 1].start >= end {
        out.pop();
    }
    if let Some(last) = out.last_mut() {
        last.end = last.end.min(end);
    }
}
