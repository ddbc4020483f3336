//! Figures as people and scripts read them, the same in every command.

use longhaul_units::Duration;
use longhaul_wire::Losses;
use serde_json::Value;

/// A part of a whole, with two significant decimals.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.2} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// Milliseconds with three digits or so.
pub(crate) fn milliseconds(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}

/// Hours, minutes and seconds, as many as needed.
pub(crate) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m}:{s:02}"),
        (h, m, s) => format!("{h}:{m:02}:{s:02}"),
    }
}

/// To the microsecond.
pub(crate) fn seconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

/// A round trip in milliseconds, where it is known.
pub(crate) fn round_trip(rtt: Duration) -> Option<f64> {
    (!rtt.is_zero()).then(|| seconds(rtt) * 1e3)
}

/// So many files, directories and links.
pub(crate) fn entries(count: u64) -> String {
    if count == 1 { "1 entry".into() } else { format!("{count} entries") }
}

/// Packets lost, by cause.
pub(crate) fn lost(lost: &Losses) -> Value {
    let counts = lost.by_cause().map(|(cause, count)| (cause.name().to_owned(), count.into()));
    Value::Object(counts.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!([1, 2].map(entries), ["1 entry", "2 entries"]);
    }

    #[test]
    fn times() {
        assert_eq!(clock(Duration::from_secs(59)), "59 s");
        assert_eq!(clock(Duration::from_secs(61)), "1:01");
        assert_eq!(clock(Duration::from_secs(36_000)), "10:00:00");
        assert_eq!(milliseconds(Duration::from_micros(250)), "0.25 ms");
        assert_eq!(milliseconds(Duration::from_micros(101_400)), "101 ms");
    }
}
