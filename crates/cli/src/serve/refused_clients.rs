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
    /// Somebody was turned away: the lines to print now, first that of those that were left out.
    pub fn note(&mut self, now: Instant, line: String) -> impl Iterator<Item = String> + use<> {
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
        more.into_iter().chain(says.then_some(line))
    }

    /// A line for those that were left out.
    pub fn rest(&mut self) -> Option<String> {
        let count = std::mem::take(&mut self.left_out);
        (count > 0).then(|| format!("{count} more were refused, not listed one by one"))
    }
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
        let mut say = |after: u64| -> Vec<String> {
            refusals.note(start + Duration::from_secs(after), "x".into()).collect()
        };
        let first: usize = (0..1_000).map(|_| say(1).len()).sum();
        assert_eq!(first, 10);
        assert!(say(60).is_empty());
        assert_eq!(say(61), ["991 more were refused, not listed one by one", "x"]);
        assert_eq!(say(200), ["x"]);
        assert_eq!(refusals.rest(), None);
    }
}
