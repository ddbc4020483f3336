use longhaul_pathsim::DropReason;
use longhaul_units::Instant;

use crate::packet::Flow;

/// One packet that was lost on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When it was sent, on the monotonic clock of the machine.
    pub at: Instant,
    /// Its number among all packets of its direction.
    pub number: u64,
    /// Why.
    pub reason: DropReason,
    /// IP-layer bytes.
    pub bytes: u32,
    /// Its flow.
    pub flow: Flow,
    /// The first bytes of a datagram, for those who know what a protocol writes there; zeroes for
    /// what is none.
    pub head: [u8; HEAD],
}

/// As many as the header of Longhaul's packets has (protocol.md section 4.1).
pub const HEAD: usize = 20;

/// Losses until they are taken out.
#[derive(Debug)]
pub(super) struct LossLog {
    losses: Vec<Loss>,
    limit: usize,
    left_out: u64,
}

impl LossLog {
    pub(super) fn new(limit: usize) -> Self {
        Self { losses: Vec::new(), limit, left_out: 0 }
    }

    pub(super) fn add(&mut self, loss: impl FnOnce() -> Loss) {
        if self.losses.len() < self.limit {
            self.losses.push(loss());
        } else {
            self.left_out += 1;
        }
    }

    /// Losses that were logged since the last call, and the number of those that were not.
    pub(super) fn take(&mut self) -> (Vec<Loss>, u64) {
        (std::mem::take(&mut self.losses), std::mem::take(&mut self.left_out))
    }
}
