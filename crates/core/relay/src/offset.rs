use crate::gatekeeper::MAX_CLOCK_ERROR;
use crate::header::Clock;

/// How far another host's clock is ahead of ours, as far as that has proven it (docs/relay.md section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// Microseconds, by the first proof; `None`: nothing is known.
    first: Option<i64>,
    now: i64,
}

impl ClockOffset {
    /// The other clock's time, where ours is `ours`.
    pub const fn at(&self, ours: Clock) -> Clock {
        ours.moved_by(self.now)
    }

    /// The other host has proven that its time is `theirs`. `false` where it is not believed: it differs
    /// by more than [`MAX_CLOCK_ERROR`] both from what it proved first and from our own time.
    pub fn believe(&mut self, theirs: Clock, ours: Clock) -> bool {
        let now = theirs.ahead_of(ours);
        let first = *self.first.get_or_insert(now);
        let is_near = |other: i64| now.abs_diff(other) <= MAX_CLOCK_ERROR;
        let believed = is_near(first) || is_near(0);
        if believed {
            self.now = now;
        }
        believed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_believed_once_and_then_near_what_it_was_or_near_our_own() {
        let at = |seconds: u64| Clock::from_micros(seconds * 1_000_000);
        let mut clock = ClockOffset::default();
        assert_eq!(clock.at(at(1000)), at(1000));
        assert!(clock.believe(at(500), at(1000)));
        assert_eq!(clock.at(at(1001)), at(501));
        assert!(clock.believe(at(560), at(1000)));
        for false_time in [561, 439, 90_000] {
            assert!(!clock.believe(at(false_time), at(1000)), "{false_time}");
        }
        assert_eq!(clock.at(at(1000)), at(560));
        // Our own clock was set right meanwhile.
        assert!(clock.believe(at(1002), at(1000)));
        assert_eq!(clock.at(at(2000)), at(2002));
        assert!(!clock.believe(at(1061), at(1000)));
    }
}
