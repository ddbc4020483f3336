//! Units as they stand on the wire.

use longhaul_units::Duration;

/// Whole microseconds of `duration`.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
