//! The half of a connection that all its threads share.

use longhaul_engine::Closed;
use longhaul_units::{Bytes, Duration, Instant, ObjectId};
use longhaul_wire::{Bottleneck, CloseCode, Message, Refused, SourceReport};

use crate::conversation::{Conversation, Misspoken, Part, Received, Wish};
use crate::gate::Lanes;
use crate::half_messages::GivenUp;
use crate::half_messages::{News, Repair, Standing};
use crate::incoming::{Begun, GroupPart, Unplaceable};
use crate::incoming_answers::IncomingAnswers;
use crate::incoming_copy::IncomingCopy;
use crate::incoming_pipe::IncomingPipe;
use crate::outgoing_answers::OutgoingAnswers;
use crate::outgoing_copy::OutgoingCopy;
use crate::outgoing_pipe::OutgoingPipe;
use crate::transfer::{End, HostFailure, Transfer, Violation, Work};
use crate::watch::{CarrierSeen, Watch};

/// State that all threads of a connection share: the messages of stream 0, the transfer, and its
/// progress. Locked for a group, a message or a read batch, never for a packet.
///
/// - *Messages*: [`handle_bytes`](Self::handle_bytes) while it
///   [`wants_messages`](Self::wants_messages), then [`poll_received`](Self::poll_received) until `None`, each
///   given to [`handle_received`](Self::handle_received); [`poll_message`](Self::poll_message).
/// - *Lanes*: [`handle_news`](Self::handle_news), [`handle_credit`](Self::handle_credit),
///   [`begin_group`](Self::begin_group); after each call [`poll_repair`](Self::poll_repair) until
///   `None`, before messages are polled, [`poll_withdrawn`](Self::poll_withdrawn) until `None`, and then
///   [`standing`](Self::standing) for all of them.
/// - *Transfer*: [`begin`](Self::begin), or [`refuse`](Self::refuse) at a server; then its driver
///   works with [`transfer`](Self::transfer).
/// - *Time*: [`look`](Self::look) when [`is_look_due`](Self::is_look_due),
///   [`report`](Self::report) when [`is_report_due`](Self::is_report_due), until there is an
///   [`end`](Self::end). Once the transfer [`is_done`](Self::is_done): a last look and report, and
///   [`finish`](Self::finish).
#[derive(Debug)]
pub struct SharedHalf<O, I> {
    conversation: Conversation,
    /// The transfer, once it is known, and its watch.
    at_work: Option<(Transfer<O, I>, Watch)>,
    /// The sink's credit, perhaps before the request came.
    credit: u64,
    /// When the first lane could carry data.
    validated: Option<Instant>,
    refused: Option<Refused>,
    closed: Option<Closed>,
    failed: Option<HostFailure>,
}

impl<O: Clone, I> SharedHalf<O, I> {
    /// That of a client, which begins with `wish`.
    pub fn client(wish: &Wish) -> Self {
        Self::new(Conversation::client(wish))
    }

    /// That of a server.
    pub fn server() -> Self {
        Self::new(Conversation::server())
    }

    fn new(conversation: Conversation) -> Self {
        Self {
            conversation,
            at_work: None,
            credit: 0,
            validated: None,
            refused: None,
            closed: None,
            failed: None,
        }
    }

    // What this end does.

    /// This end does that from now on; a server grants what was asked for with it.
    pub fn begin(&mut self, transfer: Transfer<O, I>, watch: Watch) {
        self.conversation.grant();
        self.at_work = Some((transfer, watch));
        self.handle_credit(self.credit);
    }

    /// A server does not do what was asked.
    pub fn refuse(&mut self, refused: Refused) {
        self.refused = Some(refused.clone());
        self.conversation.refuse(refused);
    }

    /// The client's request was not granted, for that reason.
    pub fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// The transfer: at a client from the start, at a server since it granted it.
    pub fn transfer(&self) -> Option<&Transfer<O, I>> {
        self.at_work.as_ref().map(|(transfer, _)| transfer)
    }

    /// The same, for its driver.
    pub fn transfer_mut(&mut self) -> Option<&mut Transfer<O, I>> {
        self.at_work.as_mut().map(|(transfer, _)| transfer)
    }

    /// The copy that this end sends, if that is what it does.
    pub fn outgoing_copy(&mut self) -> Option<&mut OutgoingCopy> {
        match self.transfer_mut()? {
            Transfer::OutgoingCopy(copy) => Some(copy),
            _ => None,
        }
    }

    /// The copy that it gets.
    pub fn incoming_copy(&mut self) -> Option<&mut IncomingCopy<I>> {
        match self.transfer_mut()? {
            Transfer::IncomingCopy(copy) => Some(copy),
            _ => None,
        }
    }

    /// The pipe that it sends into.
    pub fn outgoing_pipe(&mut self) -> Option<&mut OutgoingPipe<O>> {
        match self.transfer_mut()? {
            Transfer::OutgoingPipe(pipe) => Some(pipe),
            _ => None,
        }
    }

    /// The pipe that it receives from.
    pub fn incoming_pipe(&mut self) -> Option<&mut IncomingPipe<I>> {
        match self.transfer_mut()? {
            Transfer::IncomingPipe(pipe) => Some(pipe),
            _ => None,
        }
    }

    /// The answers that it gives.
    pub fn outgoing_answers(&mut self) -> Option<&mut OutgoingAnswers> {
        match self.transfer_mut()? {
            Transfer::OutgoingAnswers(answers) => Some(answers),
            _ => None,
        }
    }

    /// The answers that it gets.
    pub fn incoming_answers(&mut self) -> Option<&mut IncomingAnswers> {
        match self.transfer_mut()? {
            Transfer::IncomingAnswers(answers) => Some(answers),
            _ => None,
        }
    }

    /// The part that this end plays: at a server once it has granted the request.
    pub fn part(&self) -> Option<Part> {
        self.conversation.part()
    }

    // Messages.

    /// Takes in bytes of stream 0, in order.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        self.conversation.handle_bytes(bytes);
    }

    /// True if more of them are wanted; else they stay in their lane, and hold the peer back.
    pub fn wants_messages(&self) -> bool {
        self.transfer().is_none_or(Transfer::wants_messages)
    }

    /// The peer's next message.
    ///
    /// # Errors
    /// The peer broke the rules: the connection is to be closed for that.
    pub fn poll_received(&mut self) -> Result<Option<Received>, Violation> {
        Ok(self.conversation.poll_received()?)
    }

    /// Acts on a message. A wish is for the driver, which answers it by [`Self::begin`] or
    /// [`Self::refuse`] before the next message is polled.
    ///
    /// # Errors
    /// The peer broke the rules: the connection is to be closed for that.
    pub fn handle_received(&mut self, received: Received) -> Result<Option<Wish>, Violation> {
        match received {
            Received::Wish(wish) => return Ok(Some(wish)),
            Received::Refused(refused) => self.refused = Some(refused),
            received => match self.transfer_mut() {
                Some(transfer) => transfer.handle(received)?,
                None => return Err(Misspoken::OutOfTurn.into()),
            },
        }
        Ok(None)
    }

    /// The peer ended stream 0, and everything was taken in.
    ///
    /// # Errors
    /// It stopped in the middle of a message.
    pub fn handle_end(&mut self) -> Result<(), Violation> {
        Ok(self.conversation.handle_end()?)
    }

    /// The next message for the peer.
    #[must_use]
    pub fn poll_message(&mut self) -> Option<Message> {
        let first = self.conversation.poll_first();
        first.or_else(|| self.transfer_mut()?.poll_message())
    }

    /// True if nothing follows the messages that were polled: stream 0 is to be ended behind them.
    pub fn has_sent_all(&self) -> bool {
        self.conversation.has_sent_all()
    }

    /// Nothing follows the messages that there are.
    pub fn finish(&mut self) {
        self.conversation.finish();
    }

    // Lanes.

    /// Takes in what a lane has to tell. Memory that a lane gave up is free after this call.
    pub fn handle_news(&mut self, now: Instant, news: News<I>) {
        match news {
            News::Validated => {
                self.validated.get_or_insert(now);
            }
            News::Closed(closed) => self.handle_closed(closed),
            News::Arrived(whole) => {
                if let Some(transfer) = self.transfer_mut() {
                    transfer.handle_arrived(whole);
                }
            }
            News::Withdrawn(extent) => {
                if let Some(transfer) = self.transfer_mut() {
                    transfer.handle_withdrawn(extent);
                }
            }
            News::GivenUp(GivenUp { object, group, buffer }) => {
                if let Some(transfer) = self.transfer_mut() {
                    transfer.handle_given_up(object, group);
                }
                drop(buffer);
            }
            // The keeper of the bytes forgets them, and the owner of the paths moves lanes.
            News::Delivered(_) | News::MoveAsked(_) | News::Lost(..) | News::FitsNot(_) => {}
        }
    }

    /// A lane or the control connection closed. The first reason holds.
    pub fn handle_closed(&mut self, closed: Closed) {
        self.closed.get_or_insert(closed);
    }

    /// The sink promised room for so many object bytes in all.
    pub fn handle_credit(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
        if let Some(gate) = self.transfer_mut().and_then(Transfer::gate) {
            gate.handle_credit(credit);
        }
    }

    /// The state that holds for the lanes.
    pub fn standing(&self) -> Standing {
        self.transfer().map_or_else(Standing::default, Transfer::standing)
    }

    /// An object that every lane is to send no more of: [`Order::Withdraw`](crate::half_messages::Order::Withdraw).
    #[must_use]
    pub fn poll_withdrawn(&mut self) -> Option<ObjectId> {
        self.transfer_mut()?.poll_withdrawn()
    }

    /// The next notice for every lane.
    #[must_use]
    pub fn poll_repair(&mut self) -> Option<Repair> {
        self.transfer_mut()?.poll_repair()
    }

    /// `memory` for a group of which the first authentic bytes have come, if it may come.
    ///
    /// # Errors
    /// See [`Unplaceable`]; nothing was taken then.
    pub fn begin_group(
        &mut self,
        part: &GroupPart,
        memory: impl FnOnce() -> Option<I>,
    ) -> Result<Begun<I>, Unplaceable> {
        self.transfer_mut().ok_or(Unplaceable::Unasked)?.begin_group(part, memory)
    }

    // Looking.

    /// When this end is to be looked at next.
    pub fn next_look(&self) -> Option<Instant> {
        self.at_work.as_ref().map(|(_, watch)| watch.next_timeout())
    }

    /// True if it is time to look.
    pub fn is_look_due(&self, now: Instant) -> bool {
        self.at_work.as_ref().is_some_and(|(_, watch)| watch.is_due(now))
    }

    /// Looks at the transfer, given the counts of the carrier and the work of its threads: finds its
    /// bottleneck, and if it goes on. Returns the memory that it may take.
    pub fn look(
        &mut self,
        now: Instant,
        seen: &CarrierSeen,
        work: Work,
        lanes: &impl Lanes,
    ) -> Option<Bytes> {
        let (transfer, watch) = self.at_work.as_mut()?;
        let memory = transfer.look(now, watch, seen, work, lanes);
        transfer.look_for_life(now, watch, seen, lanes);
        Some(memory)
    }

    /// Time in which the transfer has not moved, whatever it waits for.
    pub fn still(&self) -> Duration {
        self.at_work.as_ref().map_or(Duration::ZERO, |(_, watch)| watch.still())
    }

    /// A sink may use so much memory from now on; less than before changes nothing.
    pub fn grow_memory(&mut self, memory: Bytes) {
        if let Some(transfer) = self.transfer_mut() {
            transfer.grow_memory(memory);
        }
    }

    /// Memory that a copy would have for names, if that is more than it has.
    pub fn name_memory_wanted(&self) -> Option<u64> {
        self.transfer().and_then(Transfer::name_memory_wanted)
    }

    /// It has so much of that from now on; when that is not more, it goes on with what it has.
    pub fn grow_name_memory(&mut self, capacity: u64) {
        if let Some(transfer) = self.transfer_mut() {
            transfer.grow_name_memory(capacity);
        }
    }

    /// True if it is time for a source to report its sending; then the next time is later.
    pub fn is_report_due(&mut self, now: Instant) -> bool {
        self.at_work.as_mut().is_some_and(|(_, watch)| watch.is_report_due(now))
    }

    /// A source tells the sink how sending goes, by the carrier's `counts`.
    pub fn report(&mut self, counts: SourceReport) {
        if let Some((transfer, watch)) = &mut self.at_work {
            let bound = watch.bound(transfer.awaits_circuit());
            transfer.report(SourceReport { bound, ..watch.report(counts) });
        }
    }

    /// Report of the sending: of a source by its carrier's `counts`, of a sink the source's last one.
    pub fn sending(&self, counts: SourceReport) -> SourceReport {
        match &self.at_work {
            Some((transfer, watch)) => match transfer.part() {
                Part::Source => watch.report(counts),
                Part::Sink => transfer.source_report().copied().unwrap_or_default(),
            },
            None => {
                let (bound, bottleneck) = (Bottleneck::StartUp, Bottleneck::StartUp);
                SourceReport { bound, bottleneck, ..counts }
            }
        }
    }

    // How far it is.

    /// When the first lane could carry data.
    pub fn validated(&self) -> Option<Instant> {
        self.validated
    }

    /// True if everything is done, as far as this end knows.
    pub fn is_done(&self) -> bool {
        self.transfer().is_some_and(|transfer| transfer.done().is_some())
    }

    /// This host cannot go on. The first reason holds.
    pub fn fail(&mut self, failure: HostFailure) {
        self.failed.get_or_insert(failure);
    }

    /// Why this end may close, if it may. A client closes first, once all is done or it was refused; a
    /// server once its client has.
    pub fn end(&self) -> Option<End> {
        let is_client = self.conversation.is_client();
        let knows = if is_client {
            self.conversation.may_close() || self.closed.is_some()
        } else {
            self.closed.as_ref().is_some_and(|closed| closed.code == CloseCode::DONE)
        };
        if knows && self.is_done() {
            return Some(End::Done);
        }
        if let Some(refused) = &self.refused
            && (is_client || self.closed.is_some())
        {
            return Some(End::Refused(refused.clone()));
        }
        if let Some(failure) = &self.failed {
            return Some(End::Failed(failure.clone()));
        }
        if let Some(closed) = &self.closed {
            return Some(End::Closed(closed.clone()));
        }
        let (_, watch) = self.at_work.as_ref()?;
        watch.stalled().cloned().map(End::Stalled)
    }
}

#[cfg(test)]
mod tests;
