use longhaul_units::{Duration, Instant};

/// Cause for which a reader stood still.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StallCause {
    /// Others had its processor.
    Preempted,
    /// Its control group had used up its quota.
    Quota,
    /// The hypervisor ran something else.
    Stolen,
    /// It was at work itself, on what it had read.
    Busy,
    /// No signal explains it.
    Unknown,
}

impl StallCause {
    /// All of them, by their place.
    pub const ALL: [Self; 5] =
        [Self::Preempted, Self::Quota, Self::Stolen, Self::Busy, Self::Unknown];

    /// For people and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preempted => "preempted",
            Self::Quota => "quota",
            Self::Stolen => "stolen",
            Self::Busy => "busy",
            Self::Unknown => "unknown",
        }
    }
}

/// Finds the cause of stalls from reports of lost time, and sums them up.
#[derive(Clone, Debug, Default)]
pub struct Attribution {
    /// Time that each of the first causes explains of late, in the order of [`StallCause::ALL`].
    evidence: [Evidence; 3],
    stalls: [Causes; StallCause::ALL.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    reported: Instant,
    time: Duration,
}

impl Evidence {
    /// Time that is left: it fades, so that many short waits do not add up to an explanation of one long stall.
    fn left(&self, now: Instant) -> Duration {
        let age = (now - self.reported).min(FRESH);
        self.time.mul_f64(1.0 - age.as_nanos() as f64 / FRESH.as_nanos() as f64)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Causes {
    count: u64,
    total: Duration,
}

impl Attribution {
    /// Reports that so much time went to `cause` just now. The reader's own work is not reported here.
    pub fn tell(&mut self, now: Instant, cause: StallCause, time: Duration) {
        if let Some(evidence) = self.evidence.get_mut(cause as usize) {
            *evidence = Evidence { reported: now, time: evidence.left(now).saturating_add(time) };
        }
    }

    /// The cause of a stall that has just ended, during which the reader itself used so much processor
    /// time: what explains half of it or more, the most special cause first (whose quota is used up, or
    /// whose hypervisor is elsewhere, waits as well). What is used to explain it explains no other.
    pub fn attribute(&mut self, now: Instant, length: Duration, busy: Duration) -> StallCause {
        let explains = |cause: &StallCause| self.evidence[*cause as usize].left(now) * 2 >= length;
        let special = [StallCause::Quota, StallCause::Stolen, StallCause::Preempted];
        let cause = match special.into_iter().find(explains) {
            Some(cause) => cause,
            None if busy * 2 >= length => StallCause::Busy,
            None => StallCause::Unknown,
        };
        if let Some(evidence) = self.evidence.get_mut(cause as usize) {
            *evidence = Evidence { reported: now, time: evidence.left(now).saturating_sub(length) };
        }
        let sum = &mut self.stalls[cause as usize];
        sum.count += 1;
        sum.total = sum.total.saturating_add(length);
        cause
    }

    /// Number and time of the stalls of each cause.
    pub fn sums(&self) -> impl Iterator<Item = (StallCause, u64, Duration)> + '_ {
        StallCause::ALL
            .into_iter()
            .zip(&self.stalls)
            .map(|(cause, sum)| (cause, sum.count, sum.total))
    }
}

/// Samplers look every 10 to 50 ms; the kernel reports a quota once a period of 100 ms.
const FRESH: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_stall_has_the_cause_that_explains_half_of_it() {
        let mut attribution = Attribution::default();
        let ms = Duration::from_millis;
        let idle = Duration::ZERO;
        assert_eq!(attribution.attribute(at(0), ms(4), idle), StallCause::Unknown);
        assert_eq!(attribution.attribute(at(0), ms(4), ms(3)), StallCause::Busy);
        attribution.tell(at(10), StallCause::Preempted, ms(80));
        attribution.tell(at(10), StallCause::Quota, ms(60));
        assert_eq!(attribution.attribute(at(12), ms(70), idle), StallCause::Quota);
        assert_eq!(attribution.attribute(at(13), ms(70), idle), StallCause::Preempted, "used up");
        assert_eq!(attribution.attribute(at(14), ms(70), idle), StallCause::Unknown);
        attribution.tell(at(20), StallCause::Stolen, ms(5));
        assert_eq!(attribution.attribute(at(400), ms(5), idle), StallCause::Unknown, "old");
        for n in 0..500 {
            attribution.tell(at(500 + n), StallCause::Preempted, Duration::from_micros(50));
        }
        assert_eq!(
            attribution.attribute(at(1_000), ms(30), idle),
            StallCause::Unknown,
            "short waits"
        );
        let unknown = attribution.sums().find(|(cause, ..)| *cause == StallCause::Unknown);
        assert_eq!(unknown.map(|(_, count, total)| (count, total)), Some((4, ms(109))));
    }
}
