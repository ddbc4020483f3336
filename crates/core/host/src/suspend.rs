use longhaul_units::{Duration, Instant};

use crate::announcement::Announcement;

/// The suspends announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Suspends {
    /// Times that one began; repeats do not count.
    pub count: u64,
    /// Time asked for, less what was lifted.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

/// Suspend that is in force at the other end, and the announcement that is to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct SuspendState {
    on: Option<On>,
    pending: Option<Announcement>,
    summary: Suspends,
}

#[derive(Clone, Copy, Debug)]
struct On {
    since: Instant,
    announced: Instant,
    until: Instant,
}

impl SuspendState {
    pub(crate) fn is_on(&self, now: Instant) -> bool {
        self.on.is_some_and(|on| now < on.until)
    }

    /// Silence is needed for so long, if at all; and what it was asked for goes on or is over.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        round_trip: Duration,
        needed: Option<Duration>,
        goes_on: bool,
    ) {
        self.expire(now);
        match (self.on, needed) {
            (None, Some(left)) => {
                self.summary.count += 1;
                self.say(now, now, round_trip, left);
            }
            (Some(on), Some(left)) if (now - on.announced) * 2 >= on.until - on.announced => {
                self.say(on.since, now, round_trip, left);
            }
            (Some(on), None) if !goes_on => {
                self.end(on.since, now);
                // A suspend that was never announced needs no end.
                let unsent = matches!(self.pending, Some(Announcement::Suspend { .. }));
                self.pending = (!unsent || on.announced > on.since).then_some(Announcement::Resume);
            }
            _ => {}
        }
    }

    fn say(&mut self, since: Instant, now: Instant, round_trip: Duration, left: Duration) {
        let lasts = left.clamp(SHORTEST, LONGEST.max(round_trip.saturating_mul(4)));
        self.on = Some(On { since, announced: now, until: now + lasts });
        self.pending = Some(Announcement::Suspend { lasts });
    }

    fn end(&mut self, since: Instant, until: Instant) {
        self.on = None;
        self.summary.total = self.summary.total.saturating_add(until - since);
        self.summary.longest = self.summary.longest.max(until - since);
    }

    pub(crate) fn poll(&mut self, now: Instant) -> Option<Announcement> {
        self.pending.take().filter(|say| *say == Announcement::Resume || self.is_on(now))
    }

    /// Books what another part says.
    pub(crate) fn note(&mut self, now: Instant, announcement: &Announcement) {
        let Announcement::Suspend { lasts } = announcement else { return };
        self.expire(now);
        self.summary.count += u64::from(self.on.is_none());
        let since = self.on.map_or(now, |on| on.since);
        self.on = Some(On { since, announced: now, until: now + *lasts });
    }

    fn expire(&mut self, now: Instant) {
        if let Some(On { since, until, .. }) = self.on
            && now >= until
        {
            self.end(since, until);
        }
    }

    pub(crate) fn summary(&self, now: Instant) -> Suspends {
        let mut ended = self.clone();
        if let Some(On { since, until, .. }) = self.on {
            ended.end(since, until.min(now));
        }
        ended.summary
    }
}

/// The kernel's turns are 4 ms: a shorter silence is over before it has an effect.
const SHORTEST: Duration = Duration::from_millis(4);
/// Suspends expire (end-system.md 1.3 rule 5: 4 RTT), so that a lost end hangs nobody; on short paths
/// after the period of a quota.
const LONGEST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspend_that_replaces_one_makes_it_longer() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut state = SuspendState::default();
        for (ms, lasts) in [(0, 50), (20, 60), (200, 10)] {
            let lasts = Duration::from_millis(lasts);
            state.note(at(ms), &Announcement::Suspend { lasts });
        }
        assert!(state.is_on(at(205)) && !state.is_on(at(210)));
        let summary = state.summary(at(300));
        assert_eq!(
            (summary.count, summary.longest, summary.total),
            (2, at(80) - at(0), at(90) - at(0))
        );
    }
}
