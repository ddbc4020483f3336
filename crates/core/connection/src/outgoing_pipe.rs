//! The end of a pipe that sends: which piece goes next, on which lane, and what is kept of it.

use alloc::collections::{BTreeMap, VecDeque};

use longhaul_objects::{ChainingValue, Piece, PipeError, PipeSource, PipeSourceEvent};
use longhaul_units::{Extent, Instant};
use longhaul_wire::{Bottleneck, SinkMessage, SourceMessage, SourceReport, Summary};

use crate::diagnosis::Stage;
use crate::gate::{Gate, Lanes};
use crate::watchdog::Counts;

/// A [`PipeSource`] over a connection. Pieces are in buffers of type `O`, which are kept until they
/// are verified at the sink.
///
/// - *Pieces*: [`push`](Self::push) and [`finish`](Self::finish). A driver that reads them from somewhere
///   asks [`next_buffer`](Self::next_buffer) first.
/// - *Lanes*: after each call, [`poll_offer`](Self::poll_offer) until `None`.
/// - *Messages*: [`handle_message`](Self::handle_message), [`poll_message`](Self::poll_message).
#[derive(Debug)]
pub struct OutgoingPipe<O> {
    source: PipeSource,
    /// Where pieces go.
    pub gate: Gate,
    /// Pieces without a number.
    waiting: VecDeque<(O, u32, ChainingValue)>,
    /// Pieces that may have to be sent again.
    kept: BTreeMap<u32, O>,
    /// Those that have to be.
    again: VecDeque<Piece>,
    /// No piece follows those that wait.
    ended: bool,
    /// Somebody reads the pieces from somewhere.
    is_read: bool,
    /// The sink closed as one that has everything.
    concluded: bool,
}

/// A piece for a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceOffer<O> {
    /// The lane.
    pub lane: usize,
    /// Which bytes.
    pub extent: Extent,
    /// They are at the start of this buffer.
    pub bytes: O,
}

impl<O: Clone> OutgoingPipe<O> {
    /// One whose other end is not there yet, over so many lanes.
    pub fn new(now: Instant, lanes: u16) -> Self {
        Self {
            source: PipeSource::new(),
            gate: Gate::new(now, lanes),
            waiting: VecDeque::new(),
            kept: BTreeMap::new(),
            again: VecDeque::new(),
            ended: false,
            is_read: false,
            concluded: false,
        }
    }

    // Pieces.

    /// `memory` for the next piece, once one may be sent and nothing waits. Asked again after credit,
    /// a message, room, or memory.
    ///
    /// # Errors
    /// There are no numbers left for another piece.
    pub fn next_buffer<B>(
        &mut self,
        now: Instant,
        lanes: &impl Lanes,
        memory: impl FnOnce() -> Option<B>,
    ) -> Result<Option<B>, PipeFull> {
        if self.source.is_full() {
            return Err(PipeFull);
        }
        self.is_read = true;
        let may = self.waiting.is_empty() && self.may_deal(lanes);
        let buffer = if may { memory() } else { None };
        let stage = match &buffer {
            _ if !self.source.is_accepted() || self.gate.is_held() => Stage::Answer,
            Some(_) => Stage::Input,
            None if may => Stage::Memory,
            None => self.stage_of_waiting(),
        };
        self.gate.enter(now, stage, lanes);
        Ok(buffer)
    }

    /// The buffer that [`Self::next_buffer`] gave is filled: it is hashed now.
    pub fn begin_hashing(&mut self, now: Instant, lanes: &impl Lanes) {
        self.gate.enter(now, Stage::Reading, lanes);
    }

    /// Takes the next piece.
    pub fn push(&mut self, bytes: O, len: u32, value: ChainingValue) {
        self.waiting.push_back((bytes, len, value));
    }

    /// No piece follows.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// The next piece for a lane.
    #[must_use]
    pub fn poll_offer(&mut self, now: Instant, lanes: &impl Lanes) -> Option<PieceOffer<O>> {
        while let Some(piece) = self.again.pop_front() {
            if let Some(bytes) = self.kept.get(&piece.number) {
                let (lane, bytes) = (self.gate.next_lane(lanes), bytes.clone());
                return Some(PieceOffer { lane, extent: piece.extent(), bytes });
            }
        }
        if !self.waiting.is_empty()
            && self.may_deal(lanes)
            && let Some((bytes, len, value)) = self.waiting.pop_front()
        {
            let piece = self.source.push(len, value);
            self.kept.insert(piece.number, bytes.clone());
            let lane = self.gate.next_lane(lanes);
            return Some(PieceOffer { lane, extent: piece.extent(), bytes });
        }
        let no_more = self.ended && self.waiting.is_empty();
        if no_more {
            self.source.finish();
        }
        if self.waiting.is_empty() {
            let full = self.gate.wants_room() && self.gate.is_full(lanes);
            self.gate.set_wants_room(full);
        }
        if no_more {
            self.gate.enter(now, Stage::Answer, lanes);
        } else if !self.is_read {
            let waits = !self.waiting.is_empty();
            let stage = if waits { self.stage_of_waiting() } else { Stage::Input };
            self.gate.enter(now, stage, lanes);
        }
        None
    }

    fn may_deal(&mut self, lanes: &impl Lanes) -> bool {
        let full = self.gate.is_full(lanes);
        self.gate.set_wants_room(full);
        !full && !self.gate.is_held() && self.source.may_send(self.gate.credit())
    }

    /// Of a piece that may not go.
    fn stage_of_waiting(&self) -> Stage {
        if self.gate.wants_room() { Stage::Reading } else { Stage::Credit }
    }

    // Messages.

    /// Takes in what the sink says.
    ///
    /// # Errors
    /// It makes no sense: the peer broke the protocol.
    pub fn handle_message(&mut self, message: SinkMessage) -> Result<(), PipeError> {
        self.source.handle(message)?;
        while let Some(event) = self.source.poll_event() {
            match event {
                PipeSourceEvent::Forget(piece) => drop(self.kept.remove(&piece.number)),
                PipeSourceEvent::Resend(piece) => self.again.push_back(piece),
            }
        }
        Ok(())
    }

    /// The next message for the sink.
    #[must_use]
    pub fn poll_message(&mut self) -> Option<SourceMessage> {
        self.source.poll_message()
    }

    /// The sink has closed with `done`: it has everything, though its RESULT did not come.
    pub fn conclude(&mut self) {
        self.concluded = self.ended && self.waiting.is_empty();
    }

    /// Tells the sink how sending goes.
    pub fn report(&mut self, sending: SourceReport) {
        self.source.report(sending);
    }

    // How far it is.

    /// True once the other end is there.
    pub fn is_joined(&self) -> bool {
        self.source.is_accepted()
    }

    /// True if the sink has to act next: take a piece, or the end.
    pub fn is_under_way(&self) -> bool {
        !self.waiting.is_empty() || self.source.unconfirmed() > 0 || self.ended
    }

    /// True if no piece follows, and the lanes have sent all there are.
    pub fn is_sent(&self, lanes: &impl Lanes) -> bool {
        self.ended && self.waiting.is_empty() && self.gate.backlog(lanes) == 0
    }

    /// Bytes that are verified at the sink.
    pub fn confirmed(&self) -> u64 {
        self.source.bytes() - self.source.unconfirmed()
    }

    /// The sink's result.
    pub fn result(&self) -> Option<&Summary> {
        self.source.result()
    }

    /// Bytes that went through, once the sink has reported that it has them all.
    pub fn done(&self) -> Option<u64> {
        let result = self.result().map(|result| result.bytes.get());
        result.or_else(|| self.concluded.then(|| self.source.bytes()))
    }

    /// Bytes that were dealt to lanes.
    pub fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// Counts that grow while it goes on.
    pub fn counts(&self) -> Counts {
        Counts { moved: self.source.bytes(), settled: self.confirmed(), ..Counts::default() }
    }

    /// True if nothing is to be expected of it now, however long that takes: it waits for the other
    /// end to come, or for its input. `bound` is what seems to hold it up.
    pub fn idles(&self, bound: Bottleneck, lanes: &impl Lanes) -> bool {
        !self.is_joined()
            || !self.is_under_way()
            || self.gate.awaits_circuit()
            || bound == Bottleneck::Reservation && self.gate.backlog(lanes) > 0
    }
}

/// A pipe has no number for another piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pipe ends after 2^32 - 1 pieces, and there is more to send")]
pub struct PipeFull;

#[cfg(test)]
mod tests;
