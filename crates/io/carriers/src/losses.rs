//! A log of single losses, to be compared with what a path is known to have done to each packet.

use std::sync::Mutex;

use longhaul_sys::sync::lock;
use longhaul_units::{Cause, Instant, LaneId, PacketNumber};

/// A packet that the sender takes as lost. It may arrive after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedLoss {
    /// Time at which it was taken as lost.
    pub at: Instant,
    /// The lane that it was sent on.
    pub lane: LaneId,
    /// Its number there.
    pub number: PacketNumber,
    /// The cause, as far as the evidence goes.
    pub cause: Cause,
}

/// Losses that the lanes of this host find, in memory until they are taken out.
#[derive(Debug, Default)]
pub struct LossLog(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    losses: Vec<ReportedLoss>,
    left_out: u64,
}

impl LossLog {
    /// One more.
    pub fn add(&self, loss: ReportedLoss) {
        let mut kept = lock(&self.0);
        if kept.losses.len() < KEPT_MAX {
            kept.losses.push(loss);
        } else {
            kept.left_out += 1;
        }
    }

    /// The losses found since the last call, and the count of those left out: no more than four million
    /// are kept.
    pub fn take(&self) -> (Vec<ReportedLoss>, u64) {
        let mut kept = lock(&self.0);
        (std::mem::take(&mut kept.losses), std::mem::take(&mut kept.left_out))
    }
}

/// 128 MB: more than a measurement loses.
const KEPT_MAX: usize = 4 << 20;
