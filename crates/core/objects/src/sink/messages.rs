//! What goes to the source.

use alloc::string::String;
use alloc::vec::Vec;

use longhaul_units::shown;
use longhaul_wire::{SinkMessage, SourceMessage};

use super::durable::Phase;
use super::{Kept, Sink, SinkError, Told};
use crate::EntryId;
use crate::limits::PAIRS_MAX;

impl Sink {
    /// Takes in what the source says.
    ///
    /// # Errors
    /// When it cannot be true; nothing is changed then, and the connection should be closed
    /// with `protocol-violation`.
    pub fn handle(&mut self, message: SourceMessage) -> Result<(), SinkError> {
        match message {
            SourceMessage::Manifest { first_entry, entries, objects } => {
                self.handle_manifest(first_entry, entries, &objects)
            }
            SourceMessage::ManifestEnd { entries, objects, bytes } => {
                self.handle_manifest_end(entries, objects, bytes.get())
            }
            SourceMessage::Hashes { object, first_group, values } => {
                self.handle_hashes(object, first_group, &values)
            }
            SourceMessage::EntryFailed { entry, reason } => {
                if entry >= u64::from(self.slots.end()) {
                    return Err(SinkError::Failure { entry });
                }
                let entry = EntryId(entry as u32);
                // What has its name keeps it, though the source lost the file since.
                if self.phase == Phase::Receiving && !self.is_publishing(entry) {
                    self.fail(entry, &shown(&reason), Told::Yes, Kept::Nothing);
                }
                Ok(())
            }
            SourceMessage::Report(report) => {
                self.source_report = Some(report);
                Ok(())
            }
        }
    }

    /// The next message for stream 0. Polled only while the stream has room, so that what is
    /// waiting stays here, where it is bounded.
    #[must_use]
    pub fn poll_message(&mut self) -> Option<SinkMessage> {
        let message = self.next_message();
        self.hold_credit();
        message
    }

    fn next_message(&mut self) -> Option<SinkMessage> {
        if let Some((entry, reason)) = self.refused.pop_front() {
            let reason = String::from(&*reason);
            return Some(SinkMessage::EntryRefused { entry: entry.as_wire(), reason });
        }
        // What need not be sent comes before the permission to send.
        if let Some(have) = self.haves.pop_front() {
            return Some(have);
        }
        if self.announced_accept < self.accepted {
            self.announced_accept = self.accepted;
            return Some(SinkMessage::Accept { objects: u64::from(self.accepted) });
        }
        if let Some((object, group)) = self.repairs.pop_front() {
            return Some(SinkMessage::Repair { object, group: u64::from(group) });
        }
        let mut entries = Vec::new();
        while entries.len() < PAIRS_MAX
            && let Some(range) = self.confirmed.take_first(u64::MAX)
        {
            entries.push(range);
        }
        if !entries.is_empty() {
            return Some(SinkMessage::Confirm { entries });
        }
        if self.phase == Phase::Finished {
            self.phase = Phase::Done;
            return Some(SinkMessage::Result(self.summary()));
        }
        None
    }
}
