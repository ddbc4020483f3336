//! The end of a pipe that receives: pieces are verified, and passed on in order.

use alloc::collections::{BTreeMap, VecDeque};

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::{ChainingValue, ObjectTable, Piece, PipeError, PipeSink, PipeSinkEvent};
use longhaul_wire::{
    Bottleneck, HostAccount, ReceiverBounds, SinkMessage, SourceMessage, SourceReport,
};

use crate::half_messages::WholeGroup;
use crate::half_messages::{Over, Repair, Repairs};
use crate::incoming::{Begun, GroupPart, Unplaceable};
use crate::watchdog::Counts;

/// A [`PipeSink`] over a connection. Pieces are in buffers of type `I`.
///
/// - *Pieces*: those that came whole go to [`handle_piece`](Self::handle_piece);
///   [`poll_step`](Self::poll_step) gives the next step for them.
/// - *Memory*: the driver says how many buffers were given back, for any reason, by
///   [`set_given_back`](Self::set_given_back).
/// - *Lanes*: after each call, [`poll_repair`](Self::poll_repair) until `None`, before messages are
///   polled. All lanes get each, in this order.
/// - *Messages*: [`handle_message`](Self::handle_message), [`poll_message`](Self::poll_message).
#[derive(Debug)]
pub struct IncomingPipe<I> {
    sink: PipeSink,
    repairs: Repairs,
    /// Repairs that the lanes have not polled.
    repair_queue: VecDeque<Repair>,
    /// Whole pieces that nobody looked at.
    arrived: VecDeque<(Piece, I)>,
    /// Pieces whose turn has not come.
    buffers: BTreeMap<u32, I>,
    /// Buffers given back, or about to be, whose pieces come again or were there already.
    wasted: u64,
    /// The program that takes the output is there.
    is_joined: bool,
    /// The end was passed on.
    ended: bool,
    bounds: ReceiverBounds,
}

/// A step of the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum PipeStep<I> {
    /// Hash this piece and say what came out, with [`IncomingPipe::handle_hashed`].
    Hash(Piece, I),
    /// Pass this piece on; it has this hash.
    Pass(Piece, ChainingValue, I),
    /// Give this memory back: its piece was damaged, or there already.
    Waste(I),
    /// All pieces were passed on: once they are where they should be,
    /// [`IncomingPipe::finish`].
    End,
}

impl<I> IncomingPipe<I> {
    /// One with memory for so many pieces, at least 1, whose output is not there yet.
    pub fn new(pieces: u64) -> Self {
        Self {
            sink: PipeSink::new(pieces),
            repairs: Repairs::default(),
            repair_queue: VecDeque::new(),
            arrived: VecDeque::new(),
            buffers: BTreeMap::new(),
            wasted: 0,
            is_joined: false,
            ended: false,
            bounds: ReceiverBounds::NONE,
        }
    }

    /// The program that takes the output is there: the source may begin.
    pub fn accept(&mut self) {
        self.is_joined = true;
        self.sink.accept();
    }

    // Pieces.

    /// `memory` for a piece of which the first authentic bytes have come, if the source may send it.
    ///
    /// # Errors
    /// See [`Unplaceable`]; nothing was taken then.
    pub fn begin(
        &self,
        part: &GroupPart,
        memory: impl FnOnce() -> Option<I>,
    ) -> Result<Begun<I>, Unplaceable> {
        let len = part.group_len(&ObjectTable::of_pieces())?;
        if (u64::from(part.group) + 1) * GROUP_SIZE > self.credit() {
            return Err(Unplaceable::BeyondCredit);
        }
        let buffer = memory().ok_or(Unplaceable::NoMemory)?;
        Ok(Begun::Memory { buffer, len })
    }

    /// A piece came whole.
    pub fn handle_piece(&mut self, whole: WholeGroup<I>) {
        let WholeGroup { object, group, len, buffer } = whole;
        debug_assert_eq!(object.0, len, "a piece is an object of its length");
        self.arrived.push_back((Piece { number: group, len }, buffer));
    }

    /// The next step, if there is one.
    ///
    /// # Errors
    /// The pieces do not fit the end that the source announced.
    pub fn poll_step(&mut self) -> Result<Option<PipeStep<I>>, PipeError> {
        while let Some(event) = self.sink.poll_event() {
            match event {
                PipeSinkEvent::Take(piece, value) => {
                    if let Some(buffer) = self.buffers.remove(&piece.number) {
                        return Ok(Some(PipeStep::Pass(piece, value, buffer)));
                    }
                }
                PipeSinkEvent::Drop(piece) => {
                    self.repair_queue.push_back(self.repairs.ask(piece.object(), piece.number));
                    if let Some(buffer) = self.buffers.remove(&piece.number) {
                        self.wasted += 1;
                        return Ok(Some(PipeStep::Waste(buffer)));
                    }
                }
            }
        }
        if let Some((piece, buffer)) = self.arrived.pop_front() {
            return Ok(Some(PipeStep::Hash(piece, buffer)));
        }
        if !self.ended && self.sink.is_at_end()? {
            self.ended = true;
            return Ok(Some(PipeStep::End));
        }
        Ok(None)
    }

    /// A piece hashes to `value`. Gives its memory back if it is of no use.
    ///
    /// # Errors
    /// It was damaged too often.
    pub fn handle_hashed(
        &mut self,
        piece: Piece,
        value: ChainingValue,
        buffer: I,
    ) -> Result<Option<I>, PipeError> {
        if !self.sink.piece_received(piece, value)? {
            self.wasted += 1;
            return Ok(Some(buffer));
        }
        self.buffers.insert(piece.number, buffer);
        self.repair_queue.extend(self.repairs.take(piece.object(), piece.number));
        Ok(None)
    }

    /// A lane gave memory up whose piece came on another one: it is given back after this call.
    pub fn handle_given_up(&mut self) {
        self.wasted += 1;
    }

    /// The next notice for every lane.
    #[must_use]
    pub fn poll_repair(&mut self) -> Option<Repair> {
        self.repair_queue.pop_front()
    }

    /// So many buffers were given back in all, for any reason. Read before the call, so that
    /// none is counted whose waste is not.
    pub fn set_given_back(&mut self, buffers: u64) {
        self.sink.set_freed(buffers.saturating_sub(self.wasted));
    }

    /// Everything is where it should be: the result goes to the source, with this host's account.
    pub fn finish(&mut self, host: HostAccount) {
        self.sink.finish(host);
    }

    // Messages.

    /// Takes in what the source says.
    ///
    /// # Errors
    /// It makes no sense, or a piece was damaged too often.
    pub fn handle_message(&mut self, message: SourceMessage) -> Result<(), PipeError> {
        self.sink.handle(message)
    }

    /// The next message for the source.
    #[must_use]
    pub fn poll_message(&mut self) -> Option<SinkMessage> {
        self.sink.poll_message()
    }

    /// The source's last report of its sending.
    pub fn source_report(&self) -> Option<&SourceReport> {
        self.sink.source_report()
    }

    // Promises.

    /// The credit for the source (docs/protocol.md section 7.6).
    pub fn credit(&self) -> u64 {
        self.sink.credit()
    }

    /// There is memory for so many pieces from now on; less than before changes nothing.
    pub fn grow_memory(&mut self, pieces: u64) {
        self.sink.grow_capacity(pieces);
    }

    /// Bytes of memory that it promises.
    pub fn capacity(&self) -> u64 {
        self.sink.capacity().saturating_mul(GROUP_SIZE)
    }

    /// Sets this side's bottlenecks, as its threads show them. It has no disk: the program that takes its
    /// output is slow, also if it `has_more` to take.
    pub fn set_bounds(&mut self, bounds: ReceiverBounds, has_more: bool) {
        let storage = match bounds.storage {
            Bottleneck::ReceiverDisk => Bottleneck::Output,
            _ if has_more => Bottleneck::Output,
            other => other,
        };
        self.bounds = ReceiverBounds { storage, ..bounds };
    }

    /// This side's bottlenecks, for the source.
    pub fn bounds(&self) -> ReceiverBounds {
        self.bounds
    }

    // How far it is.

    /// Pieces that are of no use any more when they come: they were passed on.
    pub fn over(&self) -> Over {
        Over { objects: 0, groups: self.sink.taken_below() }
    }

    /// Groups that were asked for again and have not come.
    pub fn repairs(&self) -> usize {
        self.repairs.len()
    }

    /// Bytes that were passed on.
    pub fn bytes(&self) -> u64 {
        self.sink.bytes()
    }

    /// True if all was passed on.
    pub fn is_at_end(&self) -> bool {
        self.ended
    }

    /// True if everything is where it should be, and the source has the result.
    pub fn is_done(&self) -> bool {
        self.sink.is_done()
    }

    /// True if nothing is to be expected of it now, however long that takes: it waits for the program
    /// that takes its output to come, or to take it.
    pub fn idles(&self) -> bool {
        !self.is_joined || self.bounds.storage == Bottleneck::Output
    }

    /// Counts that grow while it goes on.
    pub fn counts(&self) -> Counts {
        Counts { moved: self.bytes(), ..Counts::default() }
    }
}

#[cfg(test)]
mod tests;
