//! A transfer at one of its ends: one interface for copies, pipes and answers, sent and received.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::{
    CarriedEntries, Deletions, EndedEntry, NamedChange, PipeError, SinkError, SourceError,
};
use longhaul_units::{Bytes, Duration, Extent, Instant, ObjectId};
use longhaul_wire::{Bottleneck, HostAccount, Message, ReceiverBounds, SourceReport};

use crate::conversation::{Misspoken, Part, Received};
use crate::gate::{Gate, Lanes};
use crate::half_messages::WholeGroup;
use crate::half_messages::{CREDIT_STEP, Repair, Standing};
use crate::incoming::{Begun, GroupPart, Unplaceable};
use crate::incoming_answers::{AnswerError, IncomingAnswers};
use crate::incoming_copy::IncomingCopy;
use crate::incoming_pipe::IncomingPipe;
use crate::memory::Stored;
use crate::outgoing_answers::OutgoingAnswers;
use crate::outgoing_copy::OutgoingCopy;
use crate::outgoing_pipe::OutgoingPipe;
use crate::thread_time::Spent;
use crate::watch::{CarrierSeen, Watch};
use crate::watchdog::{Counts, Stalled};

/// A transfer at one of its ends. Groups to be sent are in buffers of type `O`, received ones in
/// buffers of type `I`.
#[derive(Debug)]
pub enum Transfer<O, I> {
    /// It has the files.
    OutgoingCopy(Box<OutgoingCopy>),
    /// It gets the files.
    IncomingCopy(Box<IncomingCopy<I>>),
    /// It sends into a pipe.
    OutgoingPipe(Box<OutgoingPipe<O>>),
    /// It receives from a pipe.
    IncomingPipe(Box<IncomingPipe<I>>),
    /// It answers a request without objects.
    OutgoingAnswers(OutgoingAnswers),
    /// It made one.
    IncomingAnswers(IncomingAnswers),
}

/// The peer broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// By a message out of turn.
    #[error(transparent)]
    Misspoken(#[from] Misspoken),
    /// By a message about a copy that it gets.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// By a message about a copy that it sends.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// By a message about a pipe.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// By an answer.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

/// Work of the threads of a transfer by some time, since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Their time.
    pub spent: Spent,
    /// Time in which any of them had something to do.
    pub busy: Duration,
    /// Of a pipe that goes on elsewhere: true if bytes wait for the program that takes its output.
    pub output_waits: bool,
}

use Transfer::{IncomingAnswers as AnswersIn, OutgoingAnswers as AnswersOut};
use Transfer::{IncomingCopy as CopyIn, IncomingPipe as PipeIn};
use Transfer::{OutgoingCopy as CopyOut, OutgoingPipe as PipeOut};

impl<O: Clone, I> Transfer<O, I> {
    /// The part of this end.
    pub fn part(&self) -> Part {
        match self {
            CopyOut(_) | PipeOut(_) | AnswersOut(_) => Part::Source,
            CopyIn(_) | PipeIn(_) | AnswersIn(_) => Part::Sink,
        }
    }

    // Messages.

    /// Takes in a message of the other end.
    pub(crate) fn handle(&mut self, received: Received) -> Result<(), Violation> {
        match (self, received) {
            (CopyOut(copy), Received::Sink(message)) => copy.handle_message(message)?,
            (PipeOut(pipe), Received::Sink(message)) => pipe.handle_message(message)?,
            (CopyIn(copy), Received::Source(message)) => copy.handle_message(message)?,
            (PipeIn(pipe), Received::Source(message)) => pipe.handle_message(message)?,
            (AnswersIn(answers), Received::Answer(message)) => answers.handle_message(message)?,
            (AnswersOut(answers), Received::Questions(more)) => answers.handle_questions(more)?,
            _ => return Err(Misspoken::OutOfTurn.into()),
        }
        Ok(())
    }

    /// True where more messages of the other end are wanted; may change with everything that happens.
    pub(crate) fn wants_messages(&self) -> bool {
        match self {
            CopyIn(copy) => copy.wants_messages(),
            AnswersIn(answers) => answers.wants_messages(),
            AnswersOut(answers) => answers.wants_messages(),
            CopyOut(_) | PipeOut(_) | PipeIn(_) => true,
        }
    }

    /// Its next message.
    pub(crate) fn poll_message(&mut self) -> Option<Message> {
        match self {
            CopyOut(copy) => copy.poll_message().map(Message::from),
            PipeOut(pipe) => pipe.poll_message().map(Message::from),
            CopyIn(copy) => copy.poll_message().map(Message::from),
            PipeIn(pipe) => pipe.poll_message().map(Message::from),
            AnswersOut(answers) => answers.poll_message().map(Message::from),
            AnswersIn(answers) => answers.poll_message().map(Message::from),
        }
    }

    // Lanes.

    /// Of a source: what lets data out.
    pub fn gate(&mut self) -> Option<&mut Gate> {
        match self {
            CopyOut(copy) => Some(&mut copy.gate),
            PipeOut(pipe) => Some(&mut pipe.gate),
            CopyIn(_) | PipeIn(_) | AnswersOut(_) | AnswersIn(_) => None,
        }
    }

    /// The state that holds for the lanes.
    pub(crate) fn standing(&self) -> Standing {
        let sends = |drained| Standing { drained, ..Standing::default() };
        let takes = |credit, capacity: u64, bounds, over| {
            // Of little memory each group matters.
            let credit_step = (capacity / 4).min(CREDIT_STEP);
            Standing { credit, credit_step, bounds, drained: false, over }
        };
        match self {
            CopyOut(copy) => sends(copy.is_drained()),
            // Nobody knows when more comes: what was dealt is all there is.
            PipeOut(_) => sends(true),
            CopyIn(copy) => takes(copy.credit(), copy.capacity(), copy.bounds(), copy.over()),
            PipeIn(pipe) => takes(pipe.credit(), pipe.capacity(), pipe.bounds(), pipe.over()),
            AnswersOut(_) | AnswersIn(_) => Standing::default(),
        }
    }

    /// An object that every lane is to send no more of.
    pub(crate) fn poll_withdrawn(&mut self) -> Option<ObjectId> {
        match self {
            CopyOut(copy) => copy.poll_withdrawn(),
            _ => None,
        }
    }

    /// A lane sends nothing of a group that was withdrawn.
    pub(crate) fn handle_withdrawn(&mut self, extent: Extent) {
        if let CopyOut(copy) = self {
            copy.handle_withdrawn(extent);
        }
    }

    /// The next notice for every lane.
    pub(crate) fn poll_repair(&mut self) -> Option<Repair> {
        match self {
            CopyIn(copy) => copy.poll_repair(),
            PipeIn(pipe) => pipe.poll_repair(),
            CopyOut(_) | PipeOut(_) | AnswersOut(_) | AnswersIn(_) => None,
        }
    }

    /// `memory` for a group of which the first authentic bytes have come, if it may come.
    pub(crate) fn begin_group(
        &mut self,
        part: &GroupPart,
        memory: impl FnOnce() -> Option<I>,
    ) -> Result<Begun<I>, Unplaceable> {
        match self {
            CopyIn(copy) => copy.begin(part, memory),
            PipeIn(pipe) => pipe.begin(part, memory),
            CopyOut(_) | PipeOut(_) | AnswersOut(_) | AnswersIn(_) => Err(Unplaceable::Unasked),
        }
    }

    /// A group came whole.
    pub(crate) fn handle_arrived(&mut self, whole: WholeGroup<I>) {
        match self {
            CopyIn(copy) => copy.handle_arrived(whole),
            PipeIn(pipe) => pipe.handle_piece(whole),
            // No lane begins a group for one that takes none.
            CopyOut(_) | PipeOut(_) | AnswersOut(_) | AnswersIn(_) => {}
        }
    }

    /// A lane gave up what it had of a group.
    pub(crate) fn handle_given_up(&mut self, object: ObjectId, group: u32) {
        match self {
            CopyIn(copy) => copy.handle_given_up(object, group),
            PipeIn(pipe) => pipe.handle_given_up(),
            CopyOut(_) | PipeOut(_) | AnswersOut(_) | AnswersIn(_) => {}
        }
    }

    // Looking.

    /// Of a sink: what it may use for groups from now on.
    pub(crate) fn grow_memory(&mut self, memory: Bytes) {
        match self {
            CopyIn(copy) => copy.grow_memory(memory),
            PipeIn(pipe) => pipe.grow_memory(memory.get() / GROUP_SIZE),
            CopyOut(_) | PipeOut(_) | AnswersOut(_) | AnswersIn(_) => {}
        }
    }

    /// Of a copy: memory that it would have for names, if that is more than it has.
    pub(crate) fn name_memory_wanted(&self) -> Option<u64> {
        match self {
            CopyIn(copy) => copy.name_memory_wanted(),
            CopyOut(copy) => copy.name_memory_wanted(),
            PipeOut(_) | PipeIn(_) | AnswersOut(_) | AnswersIn(_) => None,
        }
    }

    /// It has so much of that from now on.
    pub(crate) fn grow_name_memory(&mut self, capacity: u64) {
        match self {
            CopyIn(copy) => copy.grow_name_memory(capacity),
            CopyOut(copy) => copy.grow_name_memory(capacity),
            PipeOut(_) | PipeIn(_) | AnswersOut(_) | AnswersIn(_) => {}
        }
    }

    /// Looks at it; returns the memory that it may take.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        watch: &mut Watch,
        seen: &CarrierSeen,
        work: Work,
        lanes: &impl Lanes,
    ) -> Bytes {
        if let Some(gate) = self.gate() {
            let stages = gate.stages(now, lanes);
            return watch.look_at_source(now, seen, stages, work.spent);
        }
        let (memory, bounds) = watch.look_at_sink(now, seen, work.spent, work.busy);
        if let Some(bounds) = bounds {
            self.set_bounds(bounds, work.output_waits);
        }
        memory
    }

    /// Of a copy that comes in: groups that wait for storage. Pieces of a pipe wait for the program that
    /// takes its output, of which a rate says nothing.
    pub fn stored(&self) -> Option<Stored> {
        match self {
            CopyIn(copy) => Some(copy.stored()),
            _ => None,
        }
    }

    fn set_bounds(&mut self, bounds: ReceiverBounds, output_waits: bool) {
        match self {
            CopyIn(copy) => copy.set_bounds(bounds),
            PipeIn(pipe) => pipe.set_bounds(bounds, output_waits),
            CopyOut(_) | PipeOut(_) | AnswersOut(_) | AnswersIn(_) => {}
        }
    }

    /// Looks if it goes on.
    pub(crate) fn look_for_life(
        &mut self,
        now: Instant,
        watch: &mut Watch,
        seen: &CarrierSeen,
        lanes: &impl Lanes,
    ) {
        let counts = self.counts();
        let bound = watch.bound(self.awaits_circuit());
        let there = self.source_report().map_or(Bottleneck::Unknown, |report| report.bound);
        match self {
            CopyOut(copy) => {
                let idles = copy.idles(bound, lanes);
                watch.look_for_life_of_source(now, seen, counts, bound, idles);
            }
            PipeOut(pipe) => {
                let idles = pipe.idles(bound, lanes);
                watch.look_for_life_of_source(now, seen, counts, bound, idles);
            }
            // A copy always has something to expect, of its disk if of nobody else.
            CopyIn(copy) => {
                let bounds = (copy.bounds().storage, there);
                watch.look_for_life_of_sink(now, seen, counts, bounds, false);
            }
            PipeIn(pipe) => {
                let bounds = (pipe.bounds().storage, there);
                watch.look_for_life_of_sink(now, seen, counts, bounds, pipe.idles());
            }
            AnswersOut(_) => watch.look_for_life_of_source(now, seen, counts, bound, false),
            AnswersIn(answers) => {
                let bounds = (Bottleneck::Unknown, there);
                watch.look_for_life_of_sink(now, seen, counts, bounds, answers.idles());
            }
        }
    }

    /// Reports to the other end how sending goes.
    pub(crate) fn report(&mut self, sending: SourceReport) {
        match self {
            CopyOut(copy) => copy.report(sending),
            PipeOut(pipe) => pipe.report(sending),
            CopyIn(_) | PipeIn(_) | AnswersOut(_) | AnswersIn(_) => {}
        }
    }

    /// True while nothing may leave before a circuit is booked or begins.
    pub fn awaits_circuit(&mut self) -> bool {
        self.gate().is_some_and(|gate| gate.awaits_circuit())
    }

    // How far it is.

    /// The other end's last report of its sending.
    pub fn source_report(&self) -> Option<&SourceReport> {
        match self {
            CopyIn(copy) => copy.source_report(),
            PipeIn(pipe) => pipe.source_report(),
            CopyOut(_) | PipeOut(_) | AnswersOut(_) | AnswersIn(_) => None,
        }
    }

    /// Account of the other end's host, as last reported.
    pub fn host_there(&self) -> Option<HostAccount> {
        match self {
            CopyOut(copy) => copy.result().map(|result| result.host),
            PipeOut(pipe) => pipe.result().map(|result| result.host),
            CopyIn(_) | PipeIn(_) => self.source_report().map(|report| report.host),
            AnswersOut(_) | AnswersIn(_) => None,
        }
    }

    /// Bytes of contents that this connection has begun to move, each once: not those of a copy that still wait for a
    /// lane, so many.
    pub fn moved(&self, waiting: u64) -> u64 {
        match self {
            CopyOut(copy) => {
                let stats = copy.stats();
                (stats.sent_bytes - stats.withdrawn_bytes).saturating_sub(waiting)
            }
            PipeOut(pipe) => pipe.bytes(),
            CopyIn(copy) => copy.begun(),
            PipeIn(pipe) => pipe.bytes(),
            AnswersOut(_) | AnswersIn(_) => 0,
        }
    }

    /// Bytes that were moved, or things that were listed, once all is and this end knows, or has reported it.
    pub fn done(&self) -> Option<u64> {
        match self {
            CopyOut(copy) => copy.result().map(|result| result.bytes.get()),
            PipeOut(pipe) => pipe.done(),
            CopyIn(copy) => copy.is_done().then(|| copy.stats().confirmed_bytes),
            PipeIn(pipe) => pipe.is_done().then(|| pipe.bytes()),
            AnswersOut(answers) => answers.is_done().then_some(0),
            AnswersIn(answers) => answers.done(),
        }
    }

    /// Number of entries that could not be copied, and the first of them. A pipe comes whole, or not at all.
    pub fn failures(&self) -> (u64, &[EndedEntry]) {
        match self {
            CopyOut(copy) => (copy.stats().failed.into(), copy.failures()),
            CopyIn(copy) => (copy.stats().failed.into(), copy.failures()),
            PipeOut(_) | PipeIn(_) | AnswersOut(_) | AnswersIn(_) => (0, &[]),
        }
    }

    /// The same of entries that are not to be copied.
    pub fn skipped(&self) -> (u64, &[EndedEntry]) {
        match self {
            CopyOut(copy) => (copy.stats().skipped.into(), copy.skipped()),
            CopyIn(copy) => (copy.stats().skipped.into(), copy.skipped()),
            PipeOut(_) | PipeIn(_) | AnswersOut(_) | AnswersIn(_) => (0, &[]),
        }
    }

    /// Names that the sink of a copy was to delete.
    pub fn deletions(&self) -> Option<&Deletions> {
        match self {
            CopyOut(copy) => Some(copy.deletions()),
            CopyIn(copy) => Some(copy.deletions()),
            PipeOut(_) | PipeIn(_) | AnswersOut(_) | AnswersIn(_) => None,
        }
    }

    /// Changes at the destination of a copy since the last call, where its end
    /// [wants](IncomingCopy::want_changes) them, and how many were left out.
    pub fn take_changes(&mut self) -> (Vec<NamedChange>, u64) {
        match self {
            CopyOut(copy) => copy.take_changes(),
            CopyIn(copy) => copy.take_changes(),
            PipeOut(_) | PipeIn(_) | AnswersOut(_) | AnswersIn(_) => (Vec::new(), 0),
        }
    }

    /// Of a copy: what it has brought, for the next connection of the command.
    pub fn take_carried(&mut self) -> Option<CarriedEntries> {
        match self {
            CopyOut(copy) => Some(copy.take_carried()),
            CopyIn(copy) => Some(copy.take_carried()),
            PipeOut(_) | PipeIn(_) | AnswersOut(_) | AnswersIn(_) => None,
        }
    }

    /// Of a source: true if everything was given to the lanes, and these have sent it.
    pub fn is_sent(&self, lanes: &impl Lanes) -> bool {
        match self {
            CopyOut(copy) => copy.is_sent(lanes),
            PipeOut(pipe) => pipe.is_sent(lanes),
            AnswersOut(answers) => answers.is_done(),
            CopyIn(_) | PipeIn(_) | AnswersIn(_) => false,
        }
    }

    /// Counts that grow while it goes on.
    fn counts(&self) -> Counts {
        match self {
            CopyOut(copy) => copy.counts(),
            PipeOut(pipe) => pipe.counts(),
            CopyIn(copy) => copy.counts(),
            PipeIn(pipe) => pipe.counts(),
            AnswersOut(answers) => answers.counts(),
            AnswersIn(answers) => answers.counts(),
        }
    }
}

/// End of a transfer, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything is done, and the other end knows.
    Done,
    /// The server did not grant the request.
    Refused(longhaul_wire::Refused),
    /// This host cannot go on.
    Failed(HostFailure),
    /// A lane or the control connection closed.
    Closed(longhaul_engine::Closed),
    /// It stood still for too long.
    Stalled(Stalled),
}

/// Part of this host that cannot go on, and why, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostFailure {
    /// The destination of a copy as a whole: disk full, moved, ...
    #[error("{0}")]
    Storage(String),
    /// Something is at the destination of a copy that is none for this one.
    #[error("{reason}")]
    Destination {
        /// The destination.
        path: String,
        /// The reason, with the path.
        reason: String,
    },
    /// Standard input of a pipe, or its output.
    #[error("{0}")]
    Pipe(String),
    /// There is no circuit, and the user wants nothing else.
    #[error("no circuit: {0}")]
    NoCircuit(String),
    /// The system refuses threads, sockets, descriptors or memory.
    #[error("{0}")]
    System(String),
}
