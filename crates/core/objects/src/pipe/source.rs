//! The end of a pipe that sends.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::mem::take;
use core::ops::Range;

use longhaul_units::{Bytes, ObjectId};
use longhaul_wire::{SinkMessage, SourceMessage, SourceReport, Summary};

use super::{Piece, PipeError, violation};
use crate::hash::ChainingValue;
use crate::limits::{GROUP_SIZE, HASHES_MAX};

/// Numbers pieces, tells of them, and says when one may be forgotten or goes again.
///
/// The driver asks [`may_send`](Self::may_send), calls [`push`](Self::push) and keeps the bytes
/// until [`poll_event`](Self::poll_event) says [`PipeSourceEvent::Forget`]. It sends what
/// [`poll_message`](Self::poll_message) gives and passes answers to [`handle`](Self::handle).
#[derive(Debug, Default)]
pub struct PipeSource {
    accepted: bool,
    ended: bool,
    end_announced: bool,
    next: u32,
    bytes: u64,
    /// Hashes that were not announced: those of the last pieces.
    unannounced: Vec<ChainingValue>,
    /// Lengths of the pieces that are not confirmed.
    kept: BTreeMap<u32, u32>,
    events: VecDeque<PipeSourceEvent>,
    report: Option<SourceReport>,
    result: Option<Summary>,
}

/// Result of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeSourceEvent {
    /// It is verified at the sink.
    Forget(Piece),
    /// It arrived damaged: send it again.
    Resend(Piece),
}

impl PipeSource {
    /// The source of a pipe whose other end is not there yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// True if the other end is there.
    pub fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// True if the next piece may go, with so much credit from the sink.
    pub fn may_send(&self, credit: u64) -> bool {
        let room = (u64::from(self.next) + 1) * GROUP_SIZE <= credit;
        self.accepted && room && !self.is_full()
    }

    /// No further piece has a number: after 4 PiB, or less in shorter pieces.
    pub fn is_full(&self) -> bool {
        self.next == u32::MAX
    }

    /// The next `len` bytes, at least 1 and at most [`GROUP_SIZE`], of which `value` is the BLAKE3
    /// hash.
    pub fn push(&mut self, len: u32, value: ChainingValue) -> Piece {
        let piece = Piece { number: self.next, len };
        self.next += 1;
        self.bytes += u64::from(len);
        self.unannounced.push(value);
        self.kept.insert(piece.number, len);
        piece
    }

    /// No piece follows.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// Tells the sink how sending goes.
    pub fn report(&mut self, report: SourceReport) {
        self.report = Some(report);
    }

    /// Takes in what the sink says.
    ///
    /// # Errors
    /// It makes no sense at this time.
    pub fn handle(&mut self, message: SinkMessage) -> Result<(), PipeError> {
        match message {
            SinkMessage::Accept { .. } => self.accepted = true,
            SinkMessage::Repair { object, group } => {
                let known = u32::try_from(group).ok().and_then(|number| {
                    let len = *self.kept.get(&number)?;
                    Some(Piece { number, len })
                });
                let Some(piece) = known.filter(|piece| piece.object() == object) else {
                    return violation("REPAIR of a piece that was not sent");
                };
                self.events.push_back(PipeSourceEvent::Resend(piece));
            }
            SinkMessage::Confirm { entries } => {
                for number in entries.into_iter().flat_map(numbers(self.next)) {
                    let Some(len) = self.kept.remove(&number) else {
                        return violation("CONFIRM of a piece that was not sent");
                    };
                    self.events.push_back(PipeSourceEvent::Forget(Piece { number, len }));
                }
            }
            SinkMessage::Result(result) => {
                let all = (u64::from(self.next), Bytes::new(self.bytes));
                if !self.end_announced
                    || !self.kept.is_empty()
                    || (result.confirmed, result.bytes) != all
                {
                    return violation("RESULT that does not fit what was sent");
                }
                self.result = Some(*result);
            }
            _ => return violation("a message that has no place in a pipe"),
        }
        Ok(())
    }

    /// Result of a piece.
    pub fn poll_event(&mut self) -> Option<PipeSourceEvent> {
        self.events.pop_front()
    }

    /// The next message for the sink.
    pub fn poll_message(&mut self) -> Option<SourceMessage> {
        if !self.unannounced.is_empty() {
            let first_group = u64::from(self.next) - self.unannounced.len() as u64;
            let mut values = take(&mut self.unannounced);
            self.unannounced = values.split_off(values.len().min(HASHES_MAX));
            return Some(SourceMessage::Hashes { object: ObjectId(0), first_group, values });
        }
        if self.ended && !self.end_announced {
            self.end_announced = true;
            let objects = u64::from(self.next);
            let bytes = Bytes::new(self.bytes);
            return Some(SourceMessage::ManifestEnd { entries: 0, objects, bytes });
        }
        self.report.take().map(|report| SourceMessage::Report(report.into()))
    }

    /// Bytes of all pieces so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of pieces that are not confirmed.
    pub fn unconfirmed(&self) -> u64 {
        self.kept.values().map(|len| u64::from(*len)).sum()
    }

    /// The sink's result: everything was taken.
    pub fn result(&self) -> Option<&Summary> {
        self.result.as_ref()
    }
}

/// Numbers of a range, and one that was not sent where it goes beyond `next`.
fn numbers(next: u32) -> impl Fn(Range<u64>) -> Range<u32> {
    move |range| {
        let end = range.end.min(u64::from(next) + 1) as u32;
        (range.start.min(next.into()) as u32)..end
    }
}
