//! Windows in which a rate is free throughout: FBLS, and the start of holding-time requests.

use crate::capacity::{FOREVER, Walk};

/// The start of the earliest window of `length` ticks within `[from, by)` that has `rate` free
/// throughout. The error is the longest window that starts early enough, 0 if there is none.
pub(crate) fn earliest<W: Walk>(
    walk: &mut W,
    rate: u32,
    length: u64,
    from: u64,
    by: u64,
) -> Result<u64, u64> {
    let mut longest = 0;
    let mut at = from;
    let Some(last_start) = by.checked_sub(length) else {
        return Err(longest_before(walk, rate, from, by));
    };
    while walk.to_at_least(rate) {
        at = at.max(walk.segment().start);
        if at > last_start {
            break;
        }
        let closed = walk.to_below(rate, at + length);
        let end = if closed { walk.segment().start } else { FOREVER };
        let end = end.min(by);
        if end - at >= length {
            return Ok(at);
        }
        longest = longest.max(end - at);
        at = end;
    }
    Err(longest)
}

/// The longest window with `rate` free within `[from, by)`.
fn longest_before<W: Walk>(walk: &mut W, rate: u32, from: u64, by: u64) -> u64 {
    let mut longest = 0;
    let mut at = from;
    while walk.to_at_least(rate) {
        at = at.max(walk.segment().start);
        if at >= by {
            break;
        }
        let closed = walk.to_below(rate, by);
        let end = if closed { walk.segment().start } else { FOREVER };
        longest = longest.max(end.min(by) - at);
        at = end.min(by);
    }
    longest
}
