use longhaul_units::{Duration, Instant};

/// For how long a reader left its socket alone while something waited there, and how often: a
/// histogram that forgets.
///
/// The weight of a stall halves every 40 s; so does the time that was watched. Classes are a
/// sixteenth of a power of two wide, so a length is known to 6 %, and never taken as too short.
#[derive(Clone, Debug)]
pub struct Stalls {
    /// Weight of the stalls in each class, and that of the time watched in seconds.
    counts: [f64; CLASSES],
    watched: f64,
    /// Until when weights have been lowered, and the time was counted.
    as_of: Instant,
    count: u64,
    longest: Duration,
    total: Duration,
}

/// Stalls since the start, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StallSummary {
    /// Stalls of at least [`Stalls::NOTABLE`].
    pub count: u64,
    /// The longest.
    pub longest: Duration,
    /// Time in them.
    pub total: Duration,
    /// Length that 99.9 % of the gaps of late did not exceed.
    pub p999: Duration,
}

impl Stalls {
    /// A gap of less is how readers work, not a stall; it still counts for quantiles.
    pub const NOTABLE: Duration = Duration::from_millis(1);

    /// Nothing was seen before `now`.
    pub const fn new(now: Instant) -> Self {
        Self {
            counts: [0.0; CLASSES],
            watched: 0.0,
            as_of: now,
            count: 0,
            longest: Duration::ZERO,
            total: Duration::ZERO,
        }
    }

    /// A gap of this length ended at `now`.
    pub fn add(&mut self, now: Instant, length: Duration) {
        self.advance(now);
        self.counts[class(length)] += 1.0;
        if length >= Self::NOTABLE {
            self.count += 1;
            self.total = self.total.saturating_add(length);
        }
        self.longest = self.longest.max(length);
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: Instant) {
        let passed = now - self.as_of;
        if passed < STEP {
            return;
        }
        let weight = power_of_half(seconds(passed) / seconds(HALF_LIFE));
        for count in &mut self.counts {
            *count *= weight;
        }
        self.watched = self.watched * weight + seconds(passed);
        self.as_of = now;
    }

    /// The length that this share of the gaps of late did not exceed, rounded up; none before any.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let all: f64 = self.counts.iter().sum();
        let mut beyond = all * (1.0 - share);
        if all < FAINT {
            return None;
        }
        for (class, count) in self.counts.iter().enumerate().rev() {
            beyond -= count;
            if beyond < 0.0 {
                return Some(length(class + 1).min(self.longest));
            }
        }
        Some(length(0))
    }

    /// The least time for which a buffer has to last so that at most `share` of all that arrives
    /// overflows, by the gaps of late: the least x with sum (S - x)+ / time <= share. A length that is
    /// reached no more than once a second is no part of a schedule: what it costs is repaired, for a rate at
    /// which a buffer would bridge it costs more all the time. None where even an empty buffer would do.
    pub fn to_bridge(&self, now: Instant, share: f64) -> Option<Duration> {
        let watched = (self.watched + seconds(now - self.as_of)).max(LEAST_WATCHED);
        let allowed = watched * share;
        // Going down from the longest, each nanosecond less costs one for each stall that is longer.
        let (mut longer, mut lost) = (0.0, 0.0);
        for (class, count) in self.counts.iter().enumerate().rev() {
            let (low, high) = (length_ns(class), length_ns(class + 1).min(ns(self.longest)));
            longer += count;
            if longer > 0.0 && low < high {
                let rare = longer <= watched * RARE;
                let more = if rare { 0.0 } else { longer * (high - low) / 1e9 };
                if lost + more > allowed {
                    return Some(Duration::from_nanos(
                        (high - (allowed - lost) / longer * 1e9) as u64,
                    ));
                }
                lost += more;
            }
        }
        None
    }

    /// Returns the time that a stall which has lasted `so_far` is expected to last still: as those of late did
    /// that lasted so long, and once more where none did.
    pub fn left_after(&self, so_far: Duration) -> Duration {
        let from = class(so_far);
        let mut beyond = (0.0, 0.0);
        for (class, count) in self.counts.iter().enumerate().skip(from + 1) {
            beyond.0 += count;
            beyond.1 += count * (length_ns(class + 1).min(ns(self.longest)) - ns(so_far)).max(0.0);
        }
        if beyond.0 < FAINT {
            return so_far;
        }
        Duration::from_nanos((beyond.1 / beyond.0) as u64)
    }

    /// For the report.
    pub fn summary(&self) -> StallSummary {
        StallSummary {
            count: self.count,
            longest: self.longest,
            total: self.total,
            p999: self.quantile(0.999).unwrap_or_default(),
        }
    }
}

fn class(length: Duration) -> usize {
    let units = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX) / UNIT;
    if units < PARTS {
        return units as usize;
    }
    let power = units.ilog2() - PARTS.ilog2();
    let part = (units >> power) - PARTS;
    ((u64::from(power) + 1) * PARTS + part).min(CLASSES as u64 - 1) as usize
}

/// The least length in a class.
fn length(class: usize) -> Duration {
    Duration::from_nanos(length_ns(class) as u64)
}

fn length_ns(class: usize) -> f64 {
    let class = class as u64;
    let units = match class / PARTS {
        0 => class,
        power => (PARTS + class % PARTS) << (power - 1).min(40),
    };
    (units * UNIT) as f64
}

/// 2^-x for x >= 0: by halves, and a polynomial (Taylor's) for what is left, to 0.2 %.
fn power_of_half(x: f64) -> f64 {
    let mut left = x.min(64.0);
    let mut power = 1.0;
    while left >= 1.0 {
        power /= 2.0;
        left -= 1.0;
    }
    power
        * (1.0
            - left
                * (core::f64::consts::LN_2
                    - left * (0.240_227 - left * (0.055_504 - left * 0.009_618))))
}

fn seconds(time: Duration) -> f64 {
    ns(time) / 1e9
}

fn ns(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// The stalls of a minute ago count half (end-system.md: "decaying over about 60 s"): long enough
/// to know a stall that comes every ten seconds, short enough to forget a load that has left.
const HALF_LIFE: Duration = Duration::from_secs(40);
/// Weights are lowered in steps of this, so that a batch costs an addition.
const STEP: Duration = Duration::from_millis(100);
/// Shortest length that is distinguished: 16 us.
const UNIT: u64 = 16_384;
/// Classes for each power of two.
const PARTS: u64 = 16;
/// Up to 33 s; what is longer counts as that.
const CLASSES: usize = 16 * 18;
/// Less weight than this is a stall that was forgotten: after ten half-lives.
const FAINT: f64 = 0.001;
/// Stalls of a schedule come more often than so many times a second.
const RARE: f64 = 1.0;
/// Before a second was watched, one stall would say that all is lost.
const LEAST_WATCHED: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_class_holds_its_lengths() {
        for ns in [0, 1, 16_383, 16_384, 300_000, 4_000_000, 125_000_000, 3_000_000_000] {
            let class = class(Duration::from_nanos(ns));
            assert!(length_ns(class) <= ns as f64 && (ns as f64) < length_ns(class + 1), "{ns}");
        }
        assert_eq!(class(Duration::MAX), CLASSES - 1);
    }

    #[test]
    fn the_longest_of_a_thousand_is_the_quantile_until_it_is_forgotten() {
        let mut stalls = Stalls::new(at(0));
        assert_eq!(stalls.quantile(0.999), None);
        for n in 0..100 {
            stalls.add(at(n), Duration::from_micros(100));
        }
        stalls.add(at(100), Duration::from_millis(40));
        assert_eq!(stalls.summary().p999, Duration::from_millis(40));
        for n in 0..100 {
            stalls.add(at(60_000 + n), Duration::from_micros(100));
        }
        let p999 = stalls.summary().p999;
        assert!(p999 > Duration::from_millis(30), "a third of one in 135: {p999:?}");
        for n in 0..100 {
            stalls.add(at(600_000 + n), Duration::from_micros(100));
        }
        assert!(stalls.summary().p999 < Duration::from_micros(120));
        assert_eq!(stalls.summary().longest, Duration::from_millis(40), "of the report");
    }

    #[test]
    fn regular_stalls_have_to_be_bridged_and_rare_ones_not() {
        // A competitor takes every second slice of 4 ms.
        let mut stalls = Stalls::new(at(0));
        for n in 0..1000 {
            stalls.add(at(8 * n), Duration::from_millis(4));
        }
        let bridge = stalls.to_bridge(at(8000), 0.000_5).unwrap();
        assert!(bridge > Duration::from_micros(3_900), "{bridge:?}");
        // Somewhat longer ones too, some of them twice as long.
        for n in 0..16 {
            stalls.add(at(8_000), Duration::from_millis(if n < 7 { 10 } else { 5 }));
        }
        let bridge = stalls.to_bridge(at(8_000), 0.000_5).unwrap();
        assert!(
            (4_500..5_100).contains(&bridge.as_micros()),
            "not the 10 ms that come less than once a second: {bridge:?}"
        );
        // 120 ms once in eight seconds, or in the first one.
        let mut stalls = Stalls::new(at(0));
        stalls.add(at(500), Duration::from_millis(120));
        for seconds in [1, 8, 60] {
            assert_eq!(stalls.to_bridge(at(1_000 * seconds), 0.000_5), None, "{seconds} s");
        }
    }

    #[test]
    fn what_is_left_of_a_stall_is_what_it_was_before() {
        let mut stalls = Stalls::new(at(0));
        assert_eq!(stalls.left_after(Duration::from_millis(8)), Duration::from_millis(8));
        for n in 0..100 {
            stalls.add(at(100 * n), Duration::from_millis(4));
            stalls.add(at(100 * n + 50), Duration::from_millis(50));
        }
        let left = stalls.left_after(Duration::from_millis(10));
        assert!((39..=41).contains(&left.as_millis()), "{left:?}");
    }

    proptest! {
        #[test]
        fn quantiles_and_bridges_are_ordered_and_bounded(
            gaps in prop::collection::vec((0u64..2_000, 0u64..200_000), 1..200),
        ) {
            let mut stalls = Stalls::new(at(0));
            let mut now = 0;
            for (pause, micros) in gaps {
                now += pause;
                stalls.add(at(now), Duration::from_micros(micros));
            }
            let longest = stalls.summary().longest;
            let quantiles = [0.5, 0.9, 0.99, 0.999].map(|share| stalls.quantile(share));
            prop_assert!(quantiles.is_sorted());
            prop_assert!(quantiles.iter().flatten().all(|length| *length <= longest));
            let bridges = [0.1, 0.01, 0.001, 0.0].map(|share| stalls.to_bridge(at(now), share));
            prop_assert!(bridges.is_sorted(), "{bridges:?}");
            prop_assert!(bridges.iter().flatten().all(|length| *length <= longest));
        }
    }
}
