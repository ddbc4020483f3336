//! Report of the progress, for RESULT and for people.

use longhaul_units::{Bytes, EntryCode};
use longhaul_wire::{Entry, EntryEnd, HostAccount, SourceReport, Summary};

use super::SinkStats;
use crate::action::Deletion;
use crate::changes::Changes;
use crate::ended::{Deletions, EndedEntries, EndedEntry};
use crate::entry::EntryId;

/// Counts, and what failed.
#[derive(Debug)]
pub(super) struct Report {
    stats: SinkStats,
    /// Of the bytes received and resumed those that nothing is kept of.
    lost: u64,
    ended: EndedEntries,
    deletions: Deletions,
    pub(super) changes: Changes,
    host: HostAccount,
    notes: u64,
    not_kept: u64,
    /// The source's last report of its sending.
    source: Option<SourceReport>,
}

impl Report {
    pub(super) fn new() -> Self {
        let (stats, ended) = (SinkStats::default(), EndedEntries::default());
        let (deletions, changes) = (Deletions::default(), Changes::default());
        let host = HostAccount::default();
        Self {
            stats,
            lost: 0,
            ended,
            deletions,
            changes,
            host,
            notes: 0,
            not_kept: 0,
            source: None,
        }
    }

    pub(super) fn stats(&self) -> &SinkStats {
        &self.stats
    }

    pub(super) fn failures(&self) -> &[EndedEntry] {
        &self.ended.failed
    }

    pub(super) fn deletions(&self) -> &Deletions {
        &self.deletions
    }

    pub(super) fn deleted(&mut self, deletion: &Deletion) {
        self.deletions.note(deletion);
        if deletion.result.is_ok() {
            self.changes.deleted(&deletion.path);
        }
    }

    pub(super) fn skipped(&self) -> &[EndedEntry] {
        &self.ended.skipped
    }

    pub(super) fn source(&self) -> Option<&SourceReport> {
        self.source.as_ref()
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            confirmed: u64::from(self.stats.confirmed),
            failed: u64::from(self.stats.failed),
            skipped: u64::from(self.stats.skipped),
            unchanged: u64::from(self.stats.unchanged),
            bytes: Bytes::new(self.stats.confirmed_bytes),
            resumed: Bytes::new(self.stats.resumed_bytes),
            notes: self.notes,
            not_kept: self.not_kept,
            host: self.host,
        }
    }

    /// True if the run leaves something to a later one.
    pub(super) fn has_failures(&self) -> bool {
        self.stats.failed > 0
    }

    pub(super) fn set_host(&mut self, host: HostAccount) {
        self.host = host;
    }

    pub(super) fn set_notes(&mut self, notes: u64, not_kept: u64) {
        (self.notes, self.not_kept) = (notes, not_kept);
    }

    pub(super) fn on_source_report(&mut self, report: SourceReport) {
        self.source = Some(report);
    }

    /// So many more entries were announced, and `bytes` in all.
    pub(super) fn announced(&mut self, entries: usize, bytes: u64) {
        self.stats.entries += entries as u32;
        self.stats.bytes = bytes;
    }

    pub(super) fn manifest_ended(&mut self) {
        self.stats.complete = true;
    }

    /// Bytes were received for the first time and written.
    pub(super) fn received(&mut self, bytes: u32) {
        self.stats.received_bytes += u64::from(bytes);
    }

    /// So many of them, or of those of an earlier run, are of no file, or of one that is discarded.
    pub(super) fn lost(&mut self, bytes: u64) {
        self.lost += bytes;
    }

    /// Bytes that are there, also in incomplete files that are kept.
    pub(super) fn bytes_there(&self) -> u64 {
        let SinkStats { received_bytes, resumed_bytes, unchanged_bytes, .. } = self.stats;
        let kept = (received_bytes + resumed_bytes).saturating_sub(self.lost);
        // What came damaged is not counted when it comes again.
        kept.max(self.stats.confirmed_bytes) + unchanged_bytes
    }

    pub(super) fn verified(&mut self, bytes: u32) {
        self.stats.verified_bytes += u64::from(bytes);
    }

    pub(super) fn resumed(&mut self, bytes: u64) {
        self.stats.resumed_bytes += bytes;
    }

    pub(super) fn rechecked(&mut self, groups: usize) {
        self.stats.rechecked += groups as u64;
    }

    /// The source has answered for so many groups of an earlier run.
    pub(super) fn answered(&mut self, groups: u64) {
        self.stats.answered += groups;
    }

    /// A group came once more.
    pub(super) fn repeated(&mut self) {
        self.stats.duplicates += 1;
    }

    /// A group did not verify.
    pub(super) fn rejected(&mut self) {
        self.stats.repairs += 1;
    }

    pub(super) fn checkpoint_began(&mut self) {
        self.stats.checkpoints += 1;
    }

    /// An entry of so many bytes was confirmed.
    pub(super) fn confirmed(&mut self, size: u64) {
        self.stats.confirmed += 1;
        self.stats.confirmed_bytes += size;
    }

    /// So many bytes are there under another name, unchanged.
    pub(super) fn stays_elsewhere(&mut self, bytes: u64) {
        self.stats.unchanged_bytes += bytes;
    }

    pub(super) fn ended(&mut self, id: EntryId, entry: &Entry, end: &EntryEnd) {
        self.ended.note(id, &entry.path, end);
        if self.changes.was_carried(entry, end.code) {
            self.stats.carried.0 += 1;
            self.stats.carried.1 += entry.data_len();
        }
        self.changes.ended(entry, end.code);
        match end.code {
            EntryCode::Skipped => self.stats.skipped += 1,
            code if code.stays() => {
                self.stats.unchanged += 1;
                self.stats.unchanged_bytes += entry.data_len();
                self.stats.stayed.count(code);
                if code.would_change() {
                    let (entries, bytes) = &mut self.stats.would_change;
                    (*entries, *bytes) = (*entries + 1, *bytes + entry.data_len());
                }
            }
            _ => self.stats.failed += 1,
        }
    }
}
