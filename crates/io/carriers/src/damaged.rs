//! Datagrams that a host drops because the network has damaged them: their UDP checksum is wrong. A
//! socket counts them among its own drops.

use longhaul_sys::host::ChecksumErrorsSampler;
use longhaul_units::{Duration, Instant};

/// Tells them from those that found a socket full. The counts are of the whole namespace, so some may
/// have been for another socket; but no more are told than were dropped for that.
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
    /// Those that no socket has told as its own drops yet, and until when it may: it finds out with
    /// the next datagram that comes to it.
    untold: u64,
    until: Instant,
}

impl Damaged {
    /// Those from now on.
    pub fn since_now() -> Self {
        let sampler = ChecksumErrorsSampler::new();
        let count = sampler.sample().unwrap_or(0);
        Self { sampler, account: Account { count, ..Account::default() } }
    }

    /// How many of the `dropped` datagrams that a socket has newly counted had a wrong checksum: the
    /// network lost them, not the socket.
    pub fn among(&mut self, now: Instant, dropped: u64) -> u64 {
        let account = &mut self.account;
        if account.untold < dropped
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
        let old = if now < self.until { self.untold } else { 0 };
        self.untold = old + count.saturating_sub(self.count);
        self.count = count;
        self.looked = now;
        self.until = now + TOLD_WITHIN;
    }

    fn take(&mut self, dropped: u64) -> u64 {
        let told = dropped.min(self.untold);
        self.untold -= told;
        told
    }
}

/// A socket that overflows tells of drops with every batch, and a look takes some 50 us.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Long beside what passes until a lane that is in use hears of the next datagram.
const TOLD_WITHIN: Duration = Duration::from_millis(50);

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
