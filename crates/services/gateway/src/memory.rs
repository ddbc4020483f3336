//! Memory of all sessions: one amount, of which nothing is granted twice.
//!
//! Each place has [`SESSION_MEMORY`](crate::shared::SESSION_MEMORY) that nobody can take from it. What is left of the cap is lent:
//! a session gets at most a quarter of what the others have not borrowed, so that something is left
//! for those who come. What it holds stays borrowed until it holds less, whatever its part is by then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are lent.
#[derive(Debug, Default)]
pub(crate) struct Lent(AtomicU64);

/// A session's memory beyond the least. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Loan {
    lent: Arc<Lent>,
    bytes: u64,
}

impl Loan {
    /// Nothing, yet.
    pub fn new(lent: &Arc<Lent>) -> Self {
        Self { lent: lent.clone(), bytes: 0 }
    }

    /// Bytes that are borrowed.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Borrows as much of `wanted` as a session may have of `all`, and says how much that is. Where it
    /// is less than what is borrowed already, that stays so until [`Self::give_back`].
    pub fn ask(&mut self, all: u64, wanted: u64) -> u64 {
        let part = |lent: u64| {
            let others = lent - self.bytes;
            (wanted.min(all.saturating_sub(others) / QUARTER), others)
        };
        let more = |lent: u64| {
            let (part, others) = part(lent);
            (part > self.bytes).then_some(others + part)
        };
        let lent = &self.lent.0;
        match lent.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(before) => {
                self.bytes = part(before).0;
                self.bytes
            }
            Err(lent) => part(lent).0,
        }
    }

    /// Keeps no more than `bytes`.
    pub fn give_back(&mut self, bytes: u64) {
        let back = self.bytes.saturating_sub(bytes);
        self.bytes -= back;
        self.lent.0.fetch_sub(back, Ordering::AcqRel);
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.give_back(0);
    }
}

const QUARTER: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loans_never_exceed_what_there_is_and_what_is_held_stays_lent() {
        let lent = Arc::new(Lent::default());
        let mut loans: Vec<Loan> = (0..30).map(|_| Loan::new(&lent)).collect();
        let parts: Vec<u64> = loans.iter_mut().map(|loan| loan.ask(1 << 20, u64::MAX)).collect();
        assert_eq!(parts[..2], [1 << 18, (3 << 20) / 16]);
        assert!(parts.iter().all(|part| *part > 0), "something is left for those who come");
        // The first holds all of it: nothing becomes free before it does less.
        assert!(loans[0].ask(1 << 20, u64::MAX) < loans[0].bytes());
        let sum = |loans: &[Loan]| loans.iter().map(Loan::bytes).sum::<u64>();
        for _ in 0..100 {
            for loan in &mut loans[1..] {
                let part = loan.ask(1 << 20, u64::MAX);
                loan.give_back(part);
            }
            assert!(sum(&loans) <= 1 << 20);
        }
        assert_eq!(loans[0].bytes(), 1 << 18);
        let fair = (3 << 18) / 32;
        assert!(loans[1..].iter().all(|loan| loan.bytes().abs_diff(fair) < 100));
        drop(loans);
        assert_eq!(lent.0.load(Ordering::Acquire), 0);
        assert_eq!(Loan::new(&lent).ask(1 << 20, 1000), 1000, "no more than is wanted");
    }
}
