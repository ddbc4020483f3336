//! The end of a pipe that receives.

use alloc::collections::{BTreeMap, VecDeque};

use longhaul_units::{Bytes, RangeSet};
use longhaul_wire::{HostAccount, SinkMessage, SourceMessage, SourceReport, Summary};

use super::{Piece, PipeError, violation};
use crate::hash::ChainingValue;
use crate::limits::{GROUP_SIZE, PAIRS_MAX, REPAIRS_MAX};

/// Verifies pieces and gives them out in order.
///
/// The driver passes what arrives to [`piece_received`](Self::piece_received) and what the source
/// says to [`handle`](Self::handle), then does what [`poll_event`](Self::poll_event) says. It counts
/// the pieces whose memory is free again and tells by [`set_freed`](Self::set_freed). Once
/// [`is_at_end`](Self::is_at_end) and everything is where it should be, it calls
/// [`finish`](Self::finish).
#[derive(Debug)]
pub struct PipeSink {
    /// Pieces that fit into memory, and those whose memory was freed.
    capacity: u64,
    freed: u64,
    accept: bool,
    /// Hashes of the pieces from `next` on.
    hashes: VecDeque<ChainingValue>,
    arrived: BTreeMap<u32, Arrived>,
    repairs: BTreeMap<u32, u8>,
    /// Pieces below were given out.
    next: u32,
    bytes: u64,
    /// Verified, and not reported to the source.
    confirm: RangeSet,
    /// Damaged, until the driver polled them: at most the pieces that were promised.
    damaged: VecDeque<Piece>,
    /// And then, until the source is asked for them again.
    repair: VecDeque<Piece>,
    /// Pieces and bytes in all.
    end: Option<(u64, u64)>,
    summary: Option<Summary>,

    result_sent: bool,
    report: Option<SourceReport>,
}

#[derive(Clone, Copy, Debug)]
struct Arrived {
    len: u32,
    value: ChainingValue,
    verified: bool,
}

/// The next step with a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeSinkEvent {
    /// It comes next: pass it on, with its hash.
    Take(Piece, ChainingValue),
    /// It is damaged: drop it, and have the lanes receive it again. The source is asked for it only
    /// once this was given out.
    Drop(Piece),
}

impl PipeSink {
    /// A sink with room for `capacity` pieces.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            freed: 0,
            accept: false,
            hashes: VecDeque::new(),
            arrived: BTreeMap::new(),
            repairs: BTreeMap::new(),
            next: 0,
            bytes: 0,
            confirm: RangeSet::new(),
            damaged: VecDeque::new(),
            repair: VecDeque::new(),
            end: None,
            summary: None,

            result_sent: false,
            report: None,
        }
    }

    /// The other end is there: the source may send.
    pub fn accept(&mut self) {
        self.accept = true;
    }

    /// Pieces that it promises memory for at a time.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// There is room for so many pieces now; less than before changes nothing.
    pub fn grow_capacity(&mut self, capacity: u64) {
        self.capacity = self.capacity.max(capacity);
    }

    /// The memory of so many pieces, in all, was used and is free again.
    pub fn set_freed(&mut self, freed: u64) {
        self.freed = self.freed.max(freed);
    }

    /// Credit that the source may be promised (docs/protocol.md section 7.6).
    pub fn credit(&self) -> u64 {
        self.pieces_promised() * GROUP_SIZE
    }

    fn pieces_promised(&self) -> u64 {
        (self.freed + self.capacity).min(u32::MAX.into())
    }

    /// A piece came whole; `value` is the BLAKE3 hash of what came. `false`: it is of no use.
    ///
    /// # Errors
    /// It was damaged too often.
    pub fn piece_received(
        &mut self,
        piece: Piece,
        value: ChainingValue,
    ) -> Result<bool, PipeError> {
        let unwanted = piece.number < self.next
            || u64::from(piece.number) >= self.pieces_promised()
            || self.arrived.contains_key(&piece.number)
            // The lanes do not know yet that it is damaged: it was sent before the repair.
            || self.damaged.iter().any(|damaged| damaged.number == piece.number);
        if unwanted {
            return Ok(false);
        }
        self.arrived.insert(piece.number, Arrived { len: piece.len, value, verified: false });
        self.verify(piece.number)?;
        Ok(true)
    }

    /// Compares a piece with its hash, if both are there.
    fn verify(&mut self, number: u32) -> Result<(), PipeError> {
        let Some(arrived) = self.arrived.get_mut(&number) else { return Ok(()) };
        let Some(announced) = self.hashes.get((number - self.next) as usize) else { return Ok(()) };
        if *announced == arrived.value {
            arrived.verified = true;
            self.confirm.insert_one(number.into());
            self.repairs.remove(&number);
        } else {
            let piece = Piece { number, len: arrived.len };
            self.arrived.remove(&number);
            let repairs = self.repairs.entry(number).or_default();
            *repairs += 1;
            if *repairs > REPAIRS_MAX {
                return Err(PipeError::Damaged(number));
            }
            self.damaged.push_back(piece);
        }
        Ok(())
    }

    /// Takes in what the source says.
    ///
    /// # Errors
    /// It makes no sense, or a piece was damaged too often.
    pub fn handle(&mut self, message: SourceMessage) -> Result<(), PipeError> {
        match message {
            SourceMessage::Hashes { object, first_group, values } => {
                let known = u64::from(self.next) + self.hashes.len() as u64;
                let end = known + values.len() as u64;
                if object.0 != 0 || first_group != known || end > self.pieces_promised() {
                    return violation("HASHES of pieces that are not next");
                }
                if self.end.is_some() {
                    return violation("HASHES behind the end");
                }
                self.hashes.extend(values);
                for number in known as u32..end as u32 {
                    self.verify(number)?;
                }
            }
            SourceMessage::ManifestEnd { entries: 0, objects, bytes } => {
                let known = u64::from(self.next) + self.hashes.len() as u64;
                if self.end.is_some() || objects != known {
                    return violation("an end that does not fit the pieces");
                }
                self.end = Some((objects, bytes.get()));
            }
            SourceMessage::Report(report) => self.report = Some(*report),
            _ => return violation("a message that has no place in a pipe"),
        }
        Ok(())
    }

    /// The next step now.
    pub fn poll_event(&mut self) -> Option<PipeSinkEvent> {
        if let Some(piece) = self.damaged.pop_front() {
            self.repair.push_back(piece);
            return Some(PipeSinkEvent::Drop(piece));
        }
        let arrived = *self.arrived.get(&self.next).filter(|arrived| arrived.verified)?;
        let piece = Piece { number: self.next, len: arrived.len };
        self.arrived.remove(&self.next);
        self.hashes.pop_front();
        self.next += 1;
        self.bytes += u64::from(arrived.len);
        Some(PipeSinkEvent::Take(piece, arrived.value))
    }

    /// True if the source announced the end, and all was given out.
    ///
    /// # Errors
    /// These are not as many bytes as it announced.
    pub fn is_at_end(&self) -> Result<bool, PipeError> {
        match self.end {
            Some((pieces, bytes)) if pieces == u64::from(self.next) => match bytes == self.bytes {
                true => Ok(true),
                false => violation("an end that does not fit the bytes"),
            },
            _ => Ok(false),
        }
    }

    /// Everything is where it should be: the result goes to the source, with this host's account.
    pub fn finish(&mut self, host: HostAccount) {
        self.summary = Some(Summary {
            confirmed: self.next.into(),
            failed: 0,
            skipped: 0,
            unchanged: 0,
            bytes: Bytes::new(self.bytes),
            resumed: Bytes::new(0),
            notes: 0,
            not_kept: 0,
            host,
        });
    }

    /// The next message for the source.
    pub fn poll_message(&mut self) -> Option<SinkMessage> {
        if core::mem::take(&mut self.accept) {
            return Some(SinkMessage::Accept { objects: 1 << 32 });
        }
        if let Some(piece) = self.repair.pop_front() {
            return Some(SinkMessage::Repair {
                object: piece.object(),
                group: piece.number.into(),
            });
        }
        if !self.confirm.is_empty() {
            let entries = core::iter::from_fn(|| self.confirm.take_first(u64::MAX));
            let entries = entries.take(PAIRS_MAX).collect();
            return Some(SinkMessage::Confirm { entries });
        }
        let summary = self.summary.take()?;
        self.result_sent = true;
        Some(SinkMessage::Result(summary.into()))
    }

    /// Everything is where it should be, and the source has the result.
    pub fn is_done(&self) -> bool {
        self.result_sent
    }

    /// Pieces below this number were given out; what still comes of them is a repetition.
    pub fn taken_below(&self) -> u32 {
        self.next
    }

    /// Bytes given out.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The source's last report of its sending.
    pub fn source_report(&self) -> Option<&SourceReport> {
        self.report.as_ref()
    }
}
