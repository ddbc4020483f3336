use std::sync::atomic::{AtomicU64, Ordering};

use super::{SessionStatus, TotalsStatus};
use crate::ending::{Ending, Summary};

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Totals {
    done: AtomicU64,
    refused: AtomicU64,
    not_connected: AtomicU64,
    broken: AtomicU64,
    bytes: [AtomicU64; 2],
}

impl Totals {
    /// A session is over.
    pub fn note(&self, summary: &Summary, ending: &Ending) {
        let counter = match ending {
            Ending::Clean | Ending::Left(_) => &self.done,
            Ending::NotEntered(_) => &self.refused,
            Ending::NotConnected(_) => &self.not_connected,
            Ending::Reset(..) | Ending::Silent(_) | Ending::Stopped => &self.broken,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        for (all, bytes) in self.bytes.iter().zip(summary.bytes) {
            all.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The counts, with the bytes of the sessions that go on.
    pub(crate) fn with(&self, sessions: &[SessionStatus]) -> TotalsStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let there: u64 = sessions.iter().map(|session| session.bytes_there).sum();
        let back: u64 = sessions.iter().map(|session| session.bytes_back).sum();
        TotalsStatus {
            done: load(&self.done),
            refused: load(&self.refused),
            not_connected: load(&self.not_connected),
            broken: load(&self.broken),
            bytes_there: load(&self.bytes[0]) + there,
            bytes_back: load(&self.bytes[1]) + back,
        }
    }
}
