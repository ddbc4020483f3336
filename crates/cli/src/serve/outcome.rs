use longhaul::{ServeFailure, Served};
use longhaul_units::without_numbers;

use crate::figures;

/// End of a transfer, in words.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// It came to its end, perhaps without some entries.
    pub is_whole: bool,
    /// Bytes that are now at the destination.
    pub bytes: u64,
    /// Entries that could not be copied.
    pub failed: u64,
    /// Entries that are not to be copied.
    pub skipped: u64,
    /// Why it failed, or some of its entries.
    pub reason: Option<String>,
}

impl Outcome {
    pub fn of(ended: &Result<Served, ServeFailure>) -> Self {
        match ended {
            Ok(Served { bytes, failures, skipped, .. }) => {
                let reason = failures.sample.first().map(|first| {
                    format!("{} not copied, first {first}", figures::entries(failures.count))
                });
                let (failed, skipped) = (failures.count, skipped.count);
                Self { is_whole: true, bytes: *bytes, failed, skipped, reason }
            }
            Err(failure) => {
                let reason = Some(without_numbers(&failure.to_string()));
                Self { reason, ..Self::default() }
            }
        }
    }

    /// In a word, for logs and metrics.
    pub fn name(&self) -> &'static str {
        match (self.is_whole, self.failed) {
            (false, _) => "failed",
            (true, 0) => "done",
            (true, _) => "incomplete",
        }
    }
}
