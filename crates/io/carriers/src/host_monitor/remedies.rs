//! Remedies against late threads of the receiver, and which of them the system refused, as bits of
//! [`HostAccount::remedies`].

use longhaul_sys::host;
use longhaul_sys::threads;
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_units::Duration;
use longhaul_wire::HostAccount;

/// Scheduling of the threads that must not be late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// In short turns, which everybody may have.
    #[default]
    Usual,
    /// Before all that are scheduled normally; a refusal is reported.
    First,
    /// The same, where it is permitted: nobody has asked for it.
    Punctual,
}

impl Priority {
    /// The priority that the user wishes.
    pub fn wished(first: bool) -> Self {
        if first { Self::First } else { Self::Usual }
    }

    /// Takes it for the calling thread; returns what the system granted and refused, as [`HostAccount`] has it.
    pub fn take(self) -> u64 {
        let cores = if self == Self::First { keep_off_interrupts() } else { 0 };
        match self {
            Self::First | Self::Punctual if host::run_first().is_ok() => {
                return cores | HostAccount::RUNS_FIRST;
            }
            _ => {}
        }
        let refused = if self == Self::First { HostAccount::PRIORITY_REFUSED } else { 0 };
        match host::take_short_turns() {
            Ok(()) => cores | refused | HostAccount::SHORT_TURNS,
            Err(_) => cores | refused,
        }
    }
}

/// The calling thread writes: those that receive wait for its turns.
pub fn writers_in_short_turns() -> u64 {
    host::take_short_turns().map_or(0, |()| HostAccount::WRITERS_SHORT_TURNS)
}

/// Makes a thread that reads from `socket` poll its device for packets where there are none.
pub fn poll_device(socket: &UdpSocket) -> u64 {
    match socket.poll_device(POLLING) {
        Ok(()) => HostAccount::BUSY_POLLING,
        Err(_) => HostAccount::BUSY_POLLING_REFUSED,
    }
}

/// Tries what `--host-priority` would do here; returns what is granted and refused.
pub fn with_priority() -> u64 {
    // A thread that ends with what it took.
    let taken = threads::spawn("priority", || {
        let polled = UdpSocket::bind(([127, 0, 0, 1], 0).into(), &UdpOptions::default());
        Priority::First.take() | polled.map_or(0, |socket| poll_device(&socket))
    });
    taken.map_or(0, |taken| taken.join().unwrap_or(0))
}

/// The calling thread runs anywhere but where the network's interrupts are served, if that is one
/// place. Which of the others is the scheduler's business, who sees what else runs there.
fn keep_off_interrupts() -> u64 {
    let (Ok(allowed), Ok(served)) = (host::allowed_cpus(), host::network_interrupts()) else {
        return 0;
    };
    match others(&allowed, &served) {
        Ok(cores) => host::pin_thread(&cores).map_or(0, |()| HostAccount::OFF_INTERRUPTS),
        Err(reason) => reason,
    }
}

/// Those of `allowed` that do not serve most interrupts, or why there is no choice.
fn others(allowed: &[usize], served: &[(usize, u64)]) -> Result<Vec<usize>, u64> {
    // Threads that write, and other programs, need processors that the lanes leave free.
    if allowed.len() < 3 {
        return Err(HostAccount::FEW_PROCESSORS);
    }
    let all: u64 = served.iter().map(|(_, count)| count).sum();
    let most = served.iter().find(|(_, count)| *count > all / 2);
    let (busiest, _) = most.ok_or(HostAccount::INTERRUPTS_SPREAD)?;
    Ok(allowed.iter().copied().filter(|core| core != busiest).collect())
}

/// As Documentation/admin-guide/sysctl/net.rst recommends for `busy_read`.
const POLLING: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_keep_off_the_processor_of_the_interrupts_where_there_are_others() {
        let served = [(0, 10), (1, 700), (2, 20), (3, 0)];
        assert_eq!(others(&[0, 1, 2, 3], &served), Ok(vec![0, 2, 3]));
        assert_eq!(others(&[0, 2, 3], &served), Ok(vec![0, 2, 3]));
        assert_eq!(others(&[0, 1], &served), Err(HostAccount::FEW_PROCESSORS));
        let spread = [(0, 10), (1, 11), (2, 9)];
        assert_eq!(others(&[0, 1, 2], &spread), Err(HostAccount::INTERRUPTS_SPREAD));
        assert_eq!(others(&[0, 1, 2], &[]), Err(HostAccount::INTERRUPTS_SPREAD));
    }
}
