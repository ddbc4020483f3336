//! Messages to the source.

use longhaul_units::shown;
use longhaul_wire::{EntryEnd, SinkMessage, SourceMessage};

use super::entries::{Slot, State};
use super::{Kept, NextTags, Sink, SinkError, SourceKnows};
use crate::entry::EntryId;

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
            SourceMessage::Tags { object, first_group, tags } => {
                self.tags = Some(NextTags { object, first: first_group, tags });
                Ok(())
            }
            SourceMessage::Believed { object, groups } => self.handle_believed(object, &groups),
            SourceMessage::EntryFailed { entry, end } => {
                if entry >= u64::from(self.entries.end()) {
                    return Err(SinkError::Failure { entry });
                }
                let entry = EntryId(entry as u32);
                // What has its name keeps it, though the source lost the file since; but for what an
                // earlier run named, and the source has not answered for.
                let object = self.entries.get(entry).map(Slot::object);
                if object.is_some_and(|object| object >= self.objects.accepted()) {
                    self.recorder.unpublish(self.entries.unfound(entry));
                }
                match self.entries.get(entry).map(Slot::state) {
                    Some(State::Found) => {
                        self.entries.waive(entry);
                        self.found_alone(entry);
                    }
                    Some(state) if state.is_publishing() => self.entries.waive(entry),
                    _ if self.ending.is_receiving() => {
                        let end = EntryEnd::new(end.code, &shown(&end.reason));
                        self.fail(entry, end, SourceKnows::Yes, Kept::Nothing);
                    }
                    _ => {}
                }
                Ok(())
            }
            SourceMessage::Compared(files) => self.handle_compared(&files),
            SourceMessage::Report(report) => {
                self.report.on_source_report(*report);
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
        let (offers, contents) = (&mut self.offers, &mut self.setup.contents);
        let asked = || offers.poll().or_else(|| contents.poll_message());
        let answer = self.answers.poll(self.objects.accepted(), asked);
        answer.or_else(|| {
            self.ending.take_result().then(|| SinkMessage::Result(self.summary().into()))
        })
    }
}
