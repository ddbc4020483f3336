use alloc::collections::{BTreeMap, BTreeSet};

use crate::header::Clock;

/// The nonces of headers, for as long as their times can be accepted (docs/relay.md section 3).
#[derive(Debug, Default)]
pub(crate) struct Nonces {
    used: Kept,
    /// Of headers that were refused because their times are to come.
    refused: Kept,
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
    /// Notes the nonce of a header whose time is right.
    pub(crate) fn insert(&mut self, nonce: [u8; 16], now: Clock) -> Inserted {
        self.used.forget_before(now);
        self.refused.forget_before(now);
        if self.used.until.contains_key(&nonce) || self.refused.until.contains_key(&nonce) {
            return Inserted::Repeated;
        }
        if self.used.until.len() >= MAX_NONCES {
            return Inserted::Full;
        }
        self.used.keep(nonce, now.plus(KEPT));
        Inserted::New
    }

    /// Notes the nonce of a header whose time is to come, until it is over.
    pub(crate) fn refuse(&mut self, nonce: [u8; 16], until: Clock, now: Clock) {
        self.refused.forget_before(now);
        self.refused.keep(nonce, until);
        // Those with the latest times go first: before those times the gateway may have started again.
        if self.refused.until.len() > MAX_REFUSED {
            self.refused.forget_last();
        }
    }
}

/// Nonces with the time at which each may be forgotten.
#[derive(Debug, Default)]
struct Kept {
    until: BTreeMap<[u8; 16], Clock>,
    order: BTreeSet<(Clock, [u8; 16])>,
}

impl Kept {
    fn keep(&mut self, nonce: [u8; 16], until: Clock) {
        if let Some(before) = self.until.insert(nonce, until) {
            self.order.remove(&(before, nonce));
        }
        self.order.insert((until, nonce));
    }

    /// The clock of the host may jump back: then they are kept longer, never shorter.
    fn forget_before(&mut self, now: Clock) {
        while let Some((until, nonce)) = self.order.first().copied()
            && until < now
        {
            self.order.remove(&(until, nonce));
            self.until.remove(&nonce);
        }
    }

    fn forget_last(&mut self) {
        if let Some((_, nonce)) = self.order.pop_last() {
            self.until.remove(&nonce);
        }
    }
}

/// Microseconds that a nonce is kept: longer than a header's time can be accepted.
const KEPT: u64 = 120_000_000;
/// Some 1,000 sessions a second; at most 16 MiB.
const MAX_NONCES: usize = 1 << 17;
/// Of holders of tokens only; at most 2 MiB.
const MAX_REFUSED: usize = 1 << 14;

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
        assert_eq!(nonces.used.order.len(), 1);
        for i in 0..=MAX_REFUSED as u64 {
            nonces.refuse(u128::from(i).to_be_bytes(), later.plus(i), later);
        }
        assert_eq!(nonces.refused.order.len(), MAX_REFUSED);
        assert_eq!(nonces.insert([0; 16], later), Inserted::Repeated);
    }
}
