//! What a server says of those that it turns away: a flood of them may not fill a log.

use std::time::{Duration, Instant};

/// Lets so many lines of a minute through and counts the rest.
#[derive(Debug, Default)]
pub(crate) struct RefusedClients {
    minute: Option<Instant>,
    printed: u32,
    left_out: u64,
}

impl RefusedClients {
    /// Somebody was turned away: how many were left out before, and whether this one has a line.
    pub fn note(&mut self, now: Instant) -> (Option<u64>, bool) {
        let mut more = None;
        if self.minute.is_none_or(|minute| now.saturating_duration_since(minute) >= MINUTE) {
            more = self.rest();
            (self.minute, self.printed) = (Some(now), 0);
        }
        let says = self.printed < LINES_MAX;
        if says {
            self.printed += 1;
        } else {
            self.left_out += 1;
        }
        (more, says)
    }

    /// Those that were left out since the last time.
    pub fn rest(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.left_out)).filter(|count| *count > 0)
    }
}

/// A line for people.
pub(crate) fn left_out(count: u64) -> String {
    format!("refused, and not listed one by one: {count} more")
}

const MINUTE: Duration = Duration::from_secs(60);
/// Enough to see who comes and why.
const LINES_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_not_printed_one_by_one() {
        let mut refusals = RefusedClients::default();
        let start = Instant::now();
        let mut note = |after: u64| refusals.note(start + Duration::from_secs(after));
        let first = (0..1_000).filter(|_| note(1).1).count();
        assert_eq!(first, 10);
        assert_eq!(note(60), (None, false));
        assert_eq!(note(61), (Some(991), true));
        assert_eq!(note(200), (None, true));
        assert_eq!(refusals.rest(), None);
    }
}
