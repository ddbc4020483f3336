//! Progress of the transfer as a whole.

use alloc::collections::BTreeMap;

use longhaul_units::EntryCode;

use crate::action::NamedEntry;
use crate::entry::EntryId;

#[derive(Debug)]
pub(super) struct Ending {
    phase: Phase,
    aim: Aim,
    /// Codes of directories that were there before, until what is in them is durable.
    codes: BTreeMap<EntryId, EntryCode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Entries are announced, received and published.
    Receiving,
    /// All entries have their names. So many directories are getting their times, and those below
    /// `next` do after them.
    Finishing {
        left: usize,
        next: EntryId,
    },
    /// The last names are made durable.
    Syncing,
    /// The record is being removed, or what it is not to keep where something failed.
    Closing,
    /// RESULT can be sent.
    Finished,
    Done,
}

/// Aim of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// That everything is copied.
    Whole,
    /// That what is there is durable: the transfer ends early.
    WindUp,
}

impl Ending {
    pub(super) fn new() -> Self {
        Self { phase: Phase::Receiving, aim: Aim::Whole, codes: BTreeMap::new() }
    }

    pub(super) fn wind_up(&mut self) {
        self.aim = Aim::WindUp;
    }

    pub(super) fn is_winding_up(&self) -> bool {
        self.aim == Aim::WindUp
    }

    /// True if entries still may fail at the source.
    pub(super) fn is_receiving(&self) -> bool {
        self.phase == Phase::Receiving
    }

    /// True if every directory has its time, or failed.
    pub(super) fn is_past_directories(&self) -> bool {
        !matches!(self.phase, Phase::Receiving | Phase::Finishing { .. })
    }

    /// True if the last names are being made durable.
    pub(super) fn is_syncing(&self) -> bool {
        self.phase == Phase::Syncing
    }

    /// RESULT was given out.
    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// All entries have their names; the directories below `end` get their times.
    pub(super) fn finish_directories(&mut self, end: EntryId) {
        self.phase = Phase::Finishing { left: 0, next: end };
    }

    /// Below which number directories are to get their times next.
    pub(super) fn next_directories(&self) -> Option<EntryId> {
        match self.phase {
            Phase::Finishing { left: 0, next } => Some(next),
            _ => None,
        }
    }

    /// These are getting theirs. When there are none, goes on to the last names.
    pub(super) fn directories_given(&mut self, directories: &[NamedEntry]) {
        self.phase = match directories.last() {
            Some(last) => Phase::Finishing { left: directories.len(), next: last.id },
            None => Phase::Syncing,
        };
    }

    /// A directory has its time, or cannot have it. Returns whether that was asked for.
    pub(super) fn directory_finished(&mut self) -> bool {
        let Phase::Finishing { left, .. } = &mut self.phase else {
            return false;
        };
        *left = left.saturating_sub(1);
        true
    }

    /// The directory was there before.
    pub(super) fn directory_stays(&mut self, id: EntryId, code: EntryCode) {
        self.codes.insert(id, code);
    }

    /// Code of an entry of which all is durable, if it was there before.
    pub(super) fn take_code(&mut self, id: EntryId) -> Option<EntryCode> {
        self.codes.remove(&id)
    }

    /// The last names are durable; the record, or what it is not to keep, is being removed.
    pub(super) fn close(&mut self) {
        self.phase = Phase::Closing;
    }

    /// The record was removed, or what it is not to keep.
    pub(super) fn closed(&mut self) {
        if self.phase == Phase::Closing {
            self.phase = Phase::Finished;
        }
    }

    /// True if RESULT is to be given out next.
    pub(super) fn is_result_due(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// True if RESULT is to be given out now; then it is.
    pub(super) fn take_result(&mut self) -> bool {
        let is_due = self.is_result_due();
        if is_due {
            self.phase = Phase::Done;
        }
        is_due
    }
}
