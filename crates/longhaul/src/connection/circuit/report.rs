//! Report of a circuit.

use longhaul_units::Duration;

/// Outcome of a circuit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CircuitReport {
    /// Number of the booking at the service.
    pub booking: u64,
    /// IP-layer bytes that it can carry.
    pub booked_bytes: u64,
    /// IP-layer bytes that the vector allowed from when it was booked, or found, until the circuit
    /// was left.
    pub allowed_bytes: u64,
    /// IP-layer bytes sent on it.
    pub sent_bytes: u64,
    /// Packets sent on it.
    pub packets_sent: u64,
    /// Those of them known to be lost when it was left.
    pub packets_lost: u64,
    /// IP-layer bytes that the lanes sent over IP: messages, and data before and after the circuit.
    pub ip_bytes: u64,
    /// Until it opened, from the start of the copy.
    pub opened: Duration,
    /// Until it was left.
    pub left: Duration,
    /// Until the service took back what was left; `None` where the booking ran out, or
    /// could not be released.
    pub released: Option<Duration>,
    /// Until it was planned to be done.
    pub planned: Duration,
}
