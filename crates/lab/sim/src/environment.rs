//! Devices that the driver of an end works with, and those that outlive it.

use longhaul_objects::testing::MemoryStorage;

use crate::draw::Draw;
use crate::files::Files;
use crate::trace::{Checks, Trace};

/// The disk at the sink; it outlives the process.
#[derive(Debug)]
pub(crate) struct Disk {
    pub storage: MemoryStorage,
    /// Identity of the boot: what an earlier boot did not sync is lost.
    pub boot: u8,
    /// The next sync fails.
    pub sync_fails: bool,
    /// Runs of the sink so far.
    pub runs: u64,
    /// The last run has reported that everything is copied: it left nothing unpublished.
    pub is_tidy: bool,
    /// The power was cut since, so that what it removed may be there again.
    pub cut_when_tidy: bool,
    /// A power cut took what was never synced, because the user asked for no sync.
    pub lost_unsynced: bool,
}

/// Environment of a driver.
pub(crate) struct Env<'a> {
    pub disk: &'a mut Disk,
    pub files: &'a Files,
    pub draw: &'a mut Draw,
    pub trace: &'a mut Trace,
    pub checks: &'a mut Checks,
}
