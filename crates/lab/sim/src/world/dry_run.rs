//! Dry runs: nothing is changed, and what they announce is what the copy behind them does.

use std::collections::BTreeSet;

use longhaul_connection::Transfer;
use longhaul_objects::testing::MemoryStorage;
use longhaul_objects::{ChangeKind, NamedChange};

use super::World;
use crate::connection::Connection;
use crate::scenario::{Accident, Fault};

#[derive(Debug, Default)]
pub(super) struct DryRun {
    /// The destination as it was when the present one began, or when an accident has changed it.
    untouched: Option<MemoryStorage>,
    account: Option<Account>,
    /// Runs of the client until that, and of the sink.
    runs: Option<(usize, u64)>,
}

/// The words of a run for its user.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    changes: BTreeSet<(Vec<u8>, bool, &'static str)>,
    /// Entries that change, and their bytes.
    changed: (u32, u64),
    /// Entries that stay, and their bytes.
    stay: (u32, u64),
    failed: u32,
    newer: u32,
    mended: u32,
}

impl DryRun {
    /// True once one was done.
    pub fn is_over(&self) -> bool {
        self.runs.is_some()
    }

    /// True where the client has done a dry run in so many runs, and its sink: the copy is next.
    pub fn begins_copy(&mut self, runs: (usize, u64)) -> bool {
        let is_dry = self.account.is_some() && self.runs.is_none();
        if is_dry {
            (self.runs, self.untouched) = (Some(runs), None);
        }
        is_dry
    }
}

impl World {
    /// Notes what the destination of a dry run is like.
    pub(super) fn look_before(&mut self) {
        self.dry_run.untouched = self.scenario.dry_run.then(|| self.disk.storage.clone());
    }

    /// A dry run changes nothing.
    pub(super) fn check_untouched(&mut self) {
        let is_so = self.dry_run.untouched.as_ref().is_none_or(|it| *it == self.disk.storage);
        self.checks.require(is_so, || "a dry run has changed the destination");
    }

    /// The client's run is done: it has done what a dry run before it has announced, or is that.
    pub(super) fn compare_with_dry_run(&mut self, connection: &mut Connection) {
        let is_dry = self.scenario.dry_run;
        let Some(account) = account(connection, is_dry) else { return };
        if is_dry {
            self.dry_run.account = Some(account);
            return;
        }
        // Another carrier may have begun it.
        let is_first =
            self.dry_run.runs == Some((self.report.runs.len(), self.disk.runs.saturating_sub(1)));
        let alters = |fault: &Fault| {
            matches!(
                fault.what,
                Accident::Vanish | Accident::Change | Accident::DiskFull(_) | Accident::PowerCut(_)
            )
        };
        // No dry run knows of what an interrupted copy has left, or somebody has changed.
        let is_alike = is_first && !self.scenario.faults.iter().any(alters);
        if let Some(before) = self.dry_run.account.as_ref().filter(|_| is_alike) {
            let damaged = self.damages() && account.failed > before.failed;
            self.checks.require(*before == account || damaged, || {
                format!("the dry run announced {before:?}, and the copy has done {account:?}")
            });
        }
    }
}

fn account(connection: &mut Connection, is_dry: bool) -> Option<Account> {
    let (changes, [confirmed, unchanged, would], failed, stayed) =
        match connection.half.transfer_mut()? {
            Transfer::OutgoingCopy(copy) => {
                let (changes, stats) = (copy.take_changes().0, copy.stats());
                let confirmed = (stats.confirmed, stats.confirmed_bytes);
                let unchanged = (stats.unchanged, stats.unchanged_bytes);
                let counts = [confirmed, unchanged, stats.would_change];
                (changes, counts, stats.failed, stats.stayed)
            }
            Transfer::IncomingCopy(copy) => {
                let (changes, stats) = (copy.take_changes().0, copy.stats());
                let confirmed = (stats.confirmed, stats.confirmed_bytes);
                let unchanged = (stats.unchanged, stats.unchanged_bytes);
                let counts = [confirmed, unchanged, stats.would_change];
                (changes, counts, stats.failed, stats.stayed)
            }
            _ => return None,
        };
    let named = |change: NamedChange| {
        let word = match change.kind {
            ChangeKind::Copied | ChangeKind::New | ChangeKind::Differs => "copied",
            ChangeKind::Mended => "mended",
            ChangeKind::Deleted => "deleted",
        };
        (change.path, change.is_directory, word)
    };
    let changes = changes.into_iter().map(named).collect();
    let stay = (unchanged.0 - would.0, unchanged.1 - would.1);
    let changed = if is_dry { would } else { confirmed };
    Some(Account { changes, changed, stay, failed, newer: stayed.newer, mended: stayed.mended })
}
