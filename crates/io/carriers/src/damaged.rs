//! Datagrams that a host drops because the network has damaged them: their UDP checksum is wrong. A
//! socket counts them among its own drops.

use longhaul_sys::host::ChecksumErrorsSampler;
use longhaul_units::{Duration, Instant};

/// Separates them from those that found a socket full. The counts are of the whole namespace, so some may
/// have been for another socket; but no more are taken off a socket's drops than were damaged.
#[derive(Debug)]
pub struct Damaged {
    sampler: ChecksumErrorsSampler,
    account: Account,
}

#[derive(Debug, Default)]
struct Account {
    looked: Instant,
    /// Count at the last look.
    count: u64,
    /// Those that no socket has reported among its own drops yet, and the end of the time in which one may: its
    /// count comes with the next datagram.
    unreported: u64,
    until: Instant,
}

impl Damaged {
    /// Those from now on.
    pub fn since_now() -> Self {
        let sampler = ChecksumErrorsSampler::new();
        let count = sampler.sample().unwrap_or(0);
        Self { sampler, account: Account { count, ..Account::default() } }
    }

    /// Of the `dropped` datagrams that a socket has newly counted, those that had a wrong checksum: the
    /// network lost them, not the socket.
    pub fn among(&mut self, now: Instant, dropped: u64) -> u64 {
        let account = &mut self.account;
        if account.unreported < dropped
            && now >= account.looked + LOOK_INTERVAL
            && let Ok(count) = self.sampler.sample()
        {
            account.look(now, count);
        }
        account.take(dropped)
    }
}

impl Account {
    fn look(&mut self, now: Instant, count: u64) {
        let old = if now < self.until { self.unreported } else { 0 };
        self.unreported = old + count.saturating_sub(self.count);
        self.count = count;
        self.looked = now;
        self.until = now + REPORTED_WITHIN;
    }

    fn take(&mut self, dropped: u64) -> u64 {
        let reported = dropped.min(self.unreported);
        self.unreported -= reported;
        reported
    }
}

/// A socket that overflows reports drops with every batch, and a look takes some 50 us.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Long beside the time until the next datagram comes to a lane that is in use.
const REPORTED_WITHIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_damaged_than_the_host_counted_lately() {
        let mut account = Account::default();
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        account.look(at(0), 3);
        assert_eq!((account.take(2), account.take(2)), (2, 1));
        account.look(at(10), 5);
        account.look(at(40), 6);
        assert_eq!(account.take(2), 2, "of two sockets, the second a little later");
        account.look(at(90), 6);
        assert_eq!(account.take(1), 0, "it was for a socket that is not ours");
    }
}
