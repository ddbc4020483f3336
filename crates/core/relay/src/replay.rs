use alloc::collections::{BTreeSet, VecDeque};

use crate::header::Clock;

/// The nonces of headers that were accepted, for as long as their times are (docs/relay.md
/// section 3).
#[derive(Debug, Default)]
pub(crate) struct Nonces {
    seen: BTreeSet<[u8; 16]>,
    /// In the order in which they came, with the time at which each may be forgotten.
    order: VecDeque<(Clock, [u8; 16])>,
}

/// Outcome of [`Nonces::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    New,
    Repeated,
    /// So many came that one more would have to displace one that can still be replayed.
    Full,
}

impl Nonces {
    pub(crate) fn insert(&mut self, nonce: [u8; 16], now: Clock) -> Inserted {
        // The clock of the host may jump back: then they are kept longer, never shorter.
        while let Some((until, old)) = self.order.front()
            && *until < now
        {
            self.seen.remove(old);
            self.order.pop_front();
        }
        if self.seen.contains(&nonce) {
            return Inserted::Repeated;
        }
        if self.order.len() >= MAX_NONCES {
            return Inserted::Full;
        }
        self.seen.insert(nonce);
        self.order.push_back((Clock::from_micros(now.as_micros() + KEPT), nonce));
        Inserted::New
    }
}

/// Microseconds that a nonce is kept: a header's time may lie 60 s on either side of the clock.
const KEPT: u64 = 120_000_000;
/// Some 1,000 sessions a second; at most 8 MiB.
const MAX_NONCES: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_new_once_in_two_minutes() {
        let mut nonces = Nonces::default();
        let at = |seconds: u64| Clock::from_micros(seconds * 1_000_000);
        assert_eq!(nonces.insert([1; 16], at(1000)), Inserted::New);
        assert_eq!(nonces.insert([2; 16], at(1060)), Inserted::New);
        assert_eq!(nonces.insert([1; 16], at(1120)), Inserted::Repeated);
        assert_eq!(nonces.insert([1; 16], at(1121)), Inserted::New);
        assert_eq!(nonces.insert([2; 16], at(1121)), Inserted::Repeated);
    }

    #[test]
    fn memory_is_bounded_and_none_is_displaced() {
        let mut nonces = Nonces::default();
        let now = Clock::from_micros(0);
        for i in 0..MAX_NONCES as u128 {
            assert_eq!(nonces.insert(i.to_be_bytes(), now), Inserted::New);
        }
        assert_eq!(nonces.insert([0xff; 16], now), Inserted::Full);
        assert_eq!(nonces.insert([0; 16], now), Inserted::Repeated);
        let later = Clock::from_micros(KEPT + 1);
        assert_eq!(nonces.insert([0xff; 16], later), Inserted::New);
        assert_eq!(nonces.order.len(), 1);
    }
}
