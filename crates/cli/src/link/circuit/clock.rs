//! How the service's clock and this host's stand to each other.

use jiff::Timestamp;
use longhaul_circuits::client::{Client, ClientError};
use longhaul_sys::clock;
use longhaul_units::{Duration, Instant};

/// The service's time less this host's monotonic time: known to lie between two bounds.
///
/// Each answer of the service tells its time at some moment between question and answer, to a tick;
/// all answers together bound the offset from both sides (K. Marzullo, 1984, as in NTP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceClock {
    /// Nanoseconds.
    least: i128,
    most: i128,
}

impl ServiceClock {
    /// Measures anew, with ticks of `tick` nanoseconds: what was measured earlier has drifted since.
    ///
    /// # Errors
    /// The service does not answer.
    pub fn measure(&mut self, client: &Client, tick: u64) -> Result<(), ClientError> {
        let mut bounds = None;
        let begun = clock::now();
        for _ in 0..QUESTIONS {
            let asked = clock::now();
            // A service that takes so long for each answer tells no better time by more of them.
            if bounds.is_some() && asked - begun > PATIENCE {
                break;
            }
            let stated = client.health()?.now;
            let answered = clock::now();
            let new = Self::between(stated, tick, asked, answered);
            bounds = Some(match bounds {
                None => new,
                Some(known) => new.within(known),
            });
        }
        *self = bounds.unwrap_or(*self);
        Ok(())
    }

    fn between(stated: Timestamp, tick_nanos: u64, asked: Instant, answered: Instant) -> Self {
        let stated = stated.as_nanosecond();
        let (asked, answered) = (i128::from(asked.as_nanos()), i128::from(answered.as_nanos()));
        Self { least: stated - answered, most: stated + i128::from(tick_nanos) - asked }
    }

    /// What both say; the newer alone where they contradict each other, since then a clock was set.
    fn within(self, known: Self) -> Self {
        let both = Self { least: self.least.max(known.least), most: self.most.min(known.most) };
        if both.least <= both.most { both } else { self }
    }

    /// The service's `time` in this host's clock.
    pub fn here(&self, time: Timestamp) -> Instant {
        let nanos = time.as_nanosecond() - (self.least + self.most) / 2;
        Instant::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// By how much [`Self::here`] may be wrong.
    pub fn error(&self) -> Duration {
        let half = (self.most - self.least + 1) / 2;
        Duration::from_nanos(u64::try_from(half).unwrap_or(u64::MAX))
    }
}

/// Their answers fall into different parts of a tick, which narrows the bounds to less than one.
const QUESTIONS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_bound_the_offset_from_both_sides() {
        let stated = |ms: i64| Timestamp::from_millisecond(1_000_000 + ms).unwrap();
        let at = |us: u64| Instant::from_nanos(us * 1000);
        let tick = 1_000_000;
        // Asked at 300 us, answered at 700 us: the service was somewhere in millisecond 5.
        let first = ServiceClock::between(stated(5), tick, at(300), at(700));
        assert_eq!(first.error(), Duration::from_micros(700));
        let second = ServiceClock::between(stated(6), tick, at(900), at(1_100));
        let both = second.within(first);
        // The offset is 4.9 to 5.7 ms more than a thousand seconds.
        assert_eq!(both.error(), Duration::from_micros(400));
        assert_eq!(both.here(stated(8)), at(2_700));
        // A clock that was set: the older answer is no longer true.
        let set = ServiceClock::between(stated(900), tick, at(1_300), at(1_400));
        assert_eq!(set.within(both), set);
    }
}
