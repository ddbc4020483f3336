//! Compares what a service says that it booked with what was asked for: it may say anything.

use jiff::Timestamp;
use longhaul_circuits::api::{BookRequest, FileWant, HoldWant, Range};
use longhaul_rate_control::{Profile, Vector};
use longhaul_units::{Bytes, Instant, Rate};

/// Conditions for a booking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// Slower ranges count for nothing.
    least: Rate,
    most: Rate,
    /// IP-layer bytes.
    bytes: u64,
    finish: Option<Timestamp>,
    start: Option<Timestamp>,
}

/// A condition that a booking does not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error("{} of the {} that were asked for", Bytes::new(*carried), Bytes::new(*wanted))]
    Small { carried: u64, wanted: u64 },
    #[error("nothing of {LEAST} or more: what is slower carries no data")]
    Slow,
    #[error("{peak}, more than the {most} that this host may send")]
    Fast { peak: Rate, most: Rate },
    #[error("what begins or ends later than was asked for")]
    Late,
    #[error("{0} changes of rate, more than can be followed")]
    Restless(usize),
}

impl Fit {
    /// For the answer to `request`.
    pub fn of(request: &BookRequest) -> Self {
        let any = Self::of_any(Profile::RATE_MOST);
        match (&request.file, &request.hold) {
            (Some(FileWant { bytes, max_rate_bps, deadline, .. }), _) => {
                Self { bytes: *bytes, finish: *deadline, ..any }.up_to(*max_rate_bps)
            }
            (None, Some(hold)) => {
                let HoldWant { duration_ms, min_rate_bps, max_rate_bps, latest_start } = hold;
                let least = Rate::from_bps(*min_rate_bps);
                let bytes = u128::from(*min_rate_bps) * u128::from(*duration_ms) / 8_000;
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                Self { least: least.max(LEAST), bytes, start: *latest_start, ..any }
                    .up_to(*max_rate_bps)
            }
            (None, None) => any,
        }
    }

    /// One that was made before, by who knows what for, for a host that may send at `most`.
    pub fn of_any(most: Rate) -> Self {
        Self { least: LEAST, most, bytes: 0, finish: None, start: None }
    }

    fn up_to(self, max_rate_bps: u64) -> Self {
        Self { most: Rate::from_bps(max_rate_bps).min(self.most), ..self }
    }

    /// The same for what is left of it later.
    pub fn of_the_rest(self) -> Self {
        Self { bytes: 0, ..self }
    }

    /// Before anything is made of the ranges.
    pub fn check(&self, ranges: &[Range]) -> Result<(), Unfit> {
        if ranges.len() > RANGES_MOST {
            return Err(Unfit::Restless(ranges.len()));
        }
        let rates = || ranges.iter().map(|range| Rate::from_bps(range.rate_bps));
        if let Some(peak) = rates().max().filter(|peak| *peak > self.most) {
            return Err(Unfit::Fast { peak, most: self.most });
        }
        let is_late = |time: Option<Timestamp>, limit: Option<Timestamp>| {
            time.zip(limit).is_some_and(|(time, limit)| time > limit)
        };
        if is_late(ranges.first().map(|range| range.start), self.start)
            || is_late(ranges.last().map(|range| range.end), self.finish)
        {
            return Err(Unfit::Late);
        }
        // An empty vector is refused elsewhere.
        if !ranges.is_empty() && rates().all(|rate| rate < LEAST) {
            return Err(Unfit::Slow);
        }
        Ok(())
    }

    /// `vector` has to carry the bytes, but for what is lost where rates and times are rounded.
    pub fn check_bytes(&self, vector: &Vector) -> Result<(), Unfit> {
        let useful = vector.ranges().iter().filter(|range| range.rate >= self.least.scale(99, 100));
        let useful = useful.copied().collect();
        let carried = Vector::new(useful)
            .map_or(0, |useful| useful.bytes_within(Instant::ZERO, Instant::FAR_FUTURE));
        match carried < self.bytes - self.bytes / 100 {
            true => Err(Unfit::Small { carried, wanted: self.bytes }),
            false => Ok(()),
        }
    }
}

/// At this rate a packet of 1,500 bytes takes 0.12 s.
const LEAST: Rate = Rate::from_kbps(100);
/// Many bookings beside it cut one into some hundred.
const RANGES_MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    use longhaul_rate_control::TimeRange;
    use longhaul_units::Duration;

    use super::*;

    fn range(from: i64, to: i64, rate_bps: u64) -> Range {
        let at = |second| Timestamp::from_second(second).unwrap();
        Range { start: at(from), end: at(to), rate_bps }
    }

    /// As the checks come, of ranges in whole seconds.
    fn check(fit: &Fit, ranges: &[Range]) -> Result<(), Unfit> {
        fit.check(ranges)?;
        let at = |time: Timestamp| Instant::ZERO + Duration::from_secs(time.as_second() as u64);
        let ranges = ranges.iter().map(|range| TimeRange {
            start: at(range.start),
            end: at(range.end),
            rate: Rate::from_bps(range.rate_bps),
        });
        fit.check_bytes(&Vector::new(ranges.collect()).unwrap())
    }

    #[test]
    fn what_cannot_carry_the_file_is_refused() {
        let by = Some(Timestamp::from_second(100).unwrap());
        let file = FileWant {
            bytes: 10_000_000,
            max_rate_bps: 10_000_000,
            deadline: by,
            ..FileWant::default()
        };
        let request = BookRequest { file: Some(file), ..BookRequest::default() };
        let fit = Fit::of(&request);
        assert_eq!(check(&fit, &[range(10, 18, 10_000_000)]), Ok(()));
        assert_eq!(check(&fit, &[range(10, 14, 9_950_000), range(20, 24, 10_000_000)]), Ok(()));
        for (ranges, why) in [
            (&[][..], "0 B of the 10.0 MB"),
            (&[range(10, 17, 10_000_000)], "8.75 MB of the 10.0 MB"),
            (&[range(10, 90, 1)], "nothing of 100 kb/s"),
            (&[range(10, 11, 10_000_000), range(11, 99, 98_000)], "1.25 MB of the 10.0 MB"),
            (&[range(10, 18, 10_000_001)], "more than the 10.0 Mb/s"),
            (&[range(10, 18, u64::MAX)], "more than the 10.0 Mb/s"),
            (&[range(93, 101, 10_000_000)], "later than was asked for"),
        ] {
            let refused = check(&fit, ranges).unwrap_err().to_string();
            assert!(refused.contains(why), "{ranges:?}: {refused}");
        }
        let many = vec![range(10, 18, 10_000_000); RANGES_MOST + 1];
        assert_eq!(fit.check(&many), Err(Unfit::Restless(RANGES_MOST + 1)));
        // Later less of it is left.
        assert_eq!(check(&fit.clone().of_the_rest(), &[range(10, 11, 5_000_000)]), Ok(()));
    }

    #[test]
    fn what_is_shorter_slower_or_later_than_a_circuit_that_was_asked_for_is_refused() {
        let hold = HoldWant {
            duration_ms: 10_000,
            min_rate_bps: 1_000_000,
            max_rate_bps: 4_000_000,
            latest_start: Some(Timestamp::from_second(60).unwrap()),
        };
        let request = BookRequest { hold: Some(hold), ..BookRequest::default() };
        let fit = Fit::of(&request);
        assert_eq!(check(&fit, &[range(60, 70, 1_000_000)]), Ok(()));
        assert_eq!(check(&fit, &[range(50, 55, 1_000_000), range(55, 60, 4_000_000)]), Ok(()));
        assert_eq!(check(&fit, &[range(61, 71, 1_000_000)]), Err(Unfit::Late));
        for ranges in [&[range(10, 18, 1_000_000)][..], &[range(10, 30, 900_000)]] {
            let refused = check(&fit, ranges).unwrap_err();
            assert!(matches!(refused, Unfit::Small { .. }), "{ranges:?}: {refused}");
        }
    }

    #[test]
    fn a_booking_made_before_is_followed_at_any_rate_that_this_host_may_send() {
        let fit = Fit::of_any(Profile::RATE_MOST);
        assert_eq!(check(&fit, &[range(10, 11, 100_000)]), Ok(()));
        assert_eq!(check(&fit, &[range(10, 11, 99_999)]), Err(Unfit::Slow));
        let refused = check(&fit, &[range(10, 11, 2_000_000_000_000)]).unwrap_err();
        assert!(matches!(refused, Unfit::Fast { .. }), "{refused}");
    }
}
