//! Placing one request on one step function, whatever that is.

use crate::capacity::{Capacity, Walk};
use crate::fill::{self, Run, Want};
use crate::request::{FileRequest, HoldRequest, Policy, Request};
use crate::vector::{Allocation, Runs};
use crate::window;

/// Limits of every request.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Idle ticks after each change of rate.
    pub guard: u64,
    /// One past the last tick that may be booked.
    pub horizon: u64,
}

/// Part of a request that would have fitted: channel ticks of a file, ticks of a hold.
pub(crate) struct Fitted(pub u64);

pub(crate) fn place<C: Capacity>(
    capacity: &C,
    request: &Request,
    limits: Limits,
) -> Result<Runs, Fitted> {
    match request {
        Request::File(file) => {
            let by = file.deadline.unwrap_or(u64::MAX).min(limits.horizon);
            place_file(capacity, file, by, limits.guard)
        }
        Request::Hold(hold) => place_hold(capacity, hold, limits),
    }
}

fn place_file<C: Capacity>(
    capacity: &C,
    file: &FileRequest,
    by: u64,
    guard: u64,
) -> Result<Runs, Fitted> {
    if by <= file.earliest {
        return Err(Fitted(0));
    }
    let FileRequest { volume, max_rate, earliest: from, .. } = *file;
    let want = Want { volume, max_rate, from, by, guard };
    match file.policy {
        Policy::Earliest => earliest(capacity, &want, None),
        // With guards, filling backwards can fail where filling forwards does not.
        Policy::Latest => latest(capacity, &want).or_else(|_| earliest(capacity, &want, None)),
        Policy::LeastPeak => least_peak(capacity, &want),
        Policy::Fixed => fixed(capacity, &want),
    }
}

pub(crate) fn earliest<C: Capacity>(
    capacity: &C,
    want: &Want,
    run: Option<Run>,
) -> Result<Runs, Fitted> {
    fill::earliest(capacity.walk(want.from), want, run).map_err(|left| Fitted(want.volume - left))
}

pub(crate) fn latest<C: Capacity>(capacity: &C, want: &Want) -> Result<Runs, Fitted> {
    fill::latest(capacity.walk(want.by - 1), want).map_err(|left| Fitted(want.volume - left))
}

/// The lowest cap under which the earliest finish still meets the end, by bisection.
fn least_peak<C: Capacity>(capacity: &C, want: &Want) -> Result<Runs, Fitted> {
    let mut high = want.max_rate.min(capacity.capacity()).max(1);
    let mut best = earliest(capacity, &Want { max_rate: high, ..*want }, None)?;
    let least = want.volume.div_ceil(want.by - want.from);
    let mut low = u32::try_from(least).unwrap_or(high).clamp(1, high);
    while low < high {
        let middle = low + (high - low) / 2;
        match earliest(capacity, &Want { max_rate: middle, ..*want }, None) {
            Ok(found) => {
                best = found;
                high = middle;
            }
            Err(_) => low = middle + 1,
        }
    }
    Ok(best)
}

fn fixed<C: Capacity>(capacity: &C, want: &Want) -> Result<Runs, Fitted> {
    let Want { volume, max_rate: rate, from, by, guard } = *want;
    let length = volume.div_ceil(u64::from(rate)).saturating_add(guard);
    match window::earliest(&mut capacity.walk(from), rate, length, from, by) {
        Ok(start) => Ok(Runs::of(start, start + length, rate)),
        Err(longest) => Err(Fitted(longest.saturating_sub(guard).saturating_mul(u64::from(rate)))),
    }
}

/// With guards the rate does not vary, so that no guard falls into the holding time.
fn place_hold<C: Capacity>(
    capacity: &C,
    hold: &HoldRequest,
    limits: Limits,
) -> Result<Runs, Fitted> {
    let length = hold.duration.saturating_add(limits.guard);
    let latest = hold.latest_start.unwrap_or(u64::MAX);
    let by = latest.saturating_add(length).min(limits.horizon);
    let from = hold.earliest;
    let start = window::earliest(&mut capacity.walk(from), hold.min_rate, length, from, by)
        .map_err(|longest| Fitted(longest.saturating_sub(limits.guard)))?;
    let out = capped(capacity, start, start + length, hold.max_rate);
    if limits.guard == 0 {
        return Ok(out);
    }
    let rate = out.merged().map(|r| r.rate).min().unwrap_or(hold.min_rate);
    Ok(Runs::of(start, start + length, rate))
}

/// Everything free in `[start, end)` up to `cap`; stretches without any are left out.
pub(crate) fn capped<C: Capacity>(capacity: &C, start: u64, end: u64, cap: u32) -> Runs {
    let mut out = Runs::default();
    let mut walk = capacity.walk(start);
    loop {
        let s = walk.segment();
        let range =
            Allocation { start: s.start.max(start), end: s.end.min(end), rate: s.free.min(cap) };
        if range.rate > 0 && range.start < range.end {
            out.push(range);
        }
        if s.end >= end || !walk.forward() {
            return out;
        }
    }
}
