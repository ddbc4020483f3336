//! What an end does: that of a copy or a pipe, which sends or receives.

use longhaul_connection::{
    Begun, CarrierSeen, GroupPart, Heard, Misspoken, Part, Repair, Spent, Standing, Unplaceable,
    Watch, WholeGroup,
};
use longhaul_units::{Bytes, Duration, Extent, Instant};
use longhaul_wire::{Bottleneck, Message, SourceReport};

use crate::connection::{LaneState, Lanes};
use crate::drain::DrainSide;
use crate::feed::FeedSide;
use crate::scenario::Scenario;
use crate::sink::{Env, SinkSide};
use crate::source::SourceSide;
use crate::staging::Staged;

#[derive(Debug)]
pub(crate) enum Side {
    /// A server that has granted nothing.
    None,
    Source(Box<SourceSide>),
    Sink(Box<SinkSide>),
    Feed(Box<FeedSide>),
    Drain(Box<DrainSide>),
}

impl Side {
    /// That which plays `part`, over so many lanes.
    pub fn new(
        scenario: &Scenario,
        part: Option<Part>,
        [now, local]: [Instant; 2],
        lanes: usize,
        env: &mut Env<'_>,
    ) -> Self {
        let lanes = u16::try_from(lanes).unwrap_or(u16::MAX);
        match part {
            None => Self::None,
            Some(Part::Source) if scenario.pipe => {
                Self::Feed(Box::new(FeedSide::new(scenario, local, lanes)))
            }
            Some(Part::Sink) if scenario.pipe => {
                Self::Drain(Box::new(DrainSide::new(scenario, now, env.draw)))
            }
            Some(Part::Source) => {
                let (latency, hashing) = (scenario.disk_latency, scenario.hash_delay);
                Self::Source(Box::new(SourceSide::new(local, lanes, latency, hashing)))
            }
            Some(Part::Sink) => Self::Sink(Box::new(SinkSide::new(scenario, env.disk))),
        }
    }

    /// Whether it has the data.
    pub fn sends(&self) -> bool {
        matches!(self, Self::Source(_) | Self::Feed(_))
    }

    /// Takes in what the other end says of the transfer.
    pub fn handle(&mut self, heard: Heard) -> Result<(), String> {
        match (self, heard) {
            (Self::Source(side), Heard::Sink(message)) => {
                side.copy.handle_message(message).map_err(|error| error.to_string())
            }
            (Self::Feed(side), Heard::Sink(message)) => {
                side.pipe.handle_message(message).map_err(|error| error.to_string())
            }
            (Self::Sink(side), Heard::Source(message)) => {
                side.handle(message).map_err(|error| error.to_string())
            }
            (Self::Drain(side), Heard::Source(message)) => {
                side.pipe.handle_message(message).map_err(|error| error.to_string())
            }
            _ => Err(Misspoken::OutOfTurn.to_string()),
        }
    }

    /// Whether more of what the other end says is wanted.
    pub fn wants_messages(&self) -> bool {
        match self {
            Self::Sink(sink) => sink.copy.wants_messages(),
            _ => true,
        }
    }

    /// What it says next.
    pub fn poll_message(&mut self, env: &mut Env<'_>) -> Option<Message> {
        match self {
            Self::None => None,
            Self::Source(side) => side.copy.poll_message().map(Message::from),
            Self::Feed(side) => side.pipe.poll_message().map(Message::from),
            Self::Sink(side) => {
                let message = side.copy.poll_message()?;
                side.check_message(&message, env);
                Some(message.into())
            }
            Self::Drain(side) => {
                let message = side.pipe.poll_message()?;
                side.check_message(&message, env);
                Some(message.into())
            }
        }
    }

    /// Does what can be done now; returns whether it was anything.
    pub fn pump(
        &mut self,
        [now, local]: [Instant; 2],
        lanes: &mut [LaneState],
        env: &mut Env<'_>,
    ) -> bool {
        match self {
            Self::None => false,
            Self::Source(side) => side.pump(now, local, env.files, lanes, env.draw),
            Self::Feed(side) => side.pump(now, local, lanes, env.draw),
            Self::Sink(side) => side.pump(now, env),
            Self::Drain(side) => side.pump(now, env),
        }
    }

    /// What every lane is to know next of a group that was found to be wrong.
    pub fn poll_repair(&mut self) -> Option<Repair> {
        match self {
            Self::Sink(side) => side.poll_repair(),
            Self::Drain(side) => side.pipe.poll_repair(),
            Self::None | Self::Source(_) | Self::Feed(_) => None,
        }
    }

    /// What holds for the lanes.
    pub fn standing(&self) -> Standing {
        let sending = |drained| Standing { drained, ..Standing::default() };
        match self {
            Self::None => Standing::default(),
            Self::Source(side) => sending(side.copy.is_drained()),
            // Nobody knows when more comes: what was dealt is all there is.
            Self::Feed(_) => sending(true),
            Self::Sink(side) => side.standing(),
            Self::Drain(side) => side.standing(),
        }
    }

    /// Why it cannot go on.
    pub fn failed(&self) -> Option<String> {
        match self {
            Self::Sink(side) => side.failed.clone(),
            Self::Drain(side) => side.failed.clone(),
            Self::None | Self::Source(_) | Self::Feed(_) => None,
        }
    }

    /// It may use so much memory from now on.
    pub fn set_memory(&mut self, memory: Bytes) {
        match self {
            Self::None => {}
            Self::Source(side) => side.set_memory(memory),
            Self::Feed(side) => side.set_memory(memory),
            Self::Sink(side) => side.set_memory(memory),
            Self::Drain(side) => side.set_memory(memory),
        }
    }

    /// Looks at it: the memory that it may take, what holds it up, and whether it goes on. Nothing here
    /// is a thread, so none is too slow.
    pub fn look(
        &mut self,
        local: Instant,
        watch: &mut Watch,
        seen: &CarrierSeen,
        lanes: &[LaneState],
    ) {
        let lanes = &Lanes::at(local, lanes);
        if self.sends() {
            let stages = match self {
                Self::Source(side) => side.copy.gate.stages(local, lanes),
                Self::Feed(side) => side.pipe.gate.stages(local, lanes),
                _ => return,
            };
            let memory = watch.look_at_source(local, seen, stages, Spent::default());
            self.set_memory(memory);
            let bound = watch.bound(false);
            let (counts, idles) = match self {
                Self::Source(side) => (side.copy.counts(), side.copy.idles(bound, lanes)),
                Self::Feed(side) => (side.pipe.counts(), side.pipe.idles(bound, lanes)),
                _ => return,
            };
            return watch.look_for_life_of_source(local, seen, counts, bound, idles);
        }
        let (memory, bounds) = watch.look_at_sink(local, seen, Spent::default(), Duration::ZERO);
        self.set_memory(memory);
        let bounds = bounds.unwrap_or_default();
        let (counts, bounds, report, idles) = match self {
            Self::Sink(side) => {
                side.copy.set_bounds(bounds);
                (side.copy.counts(), side.copy.bounds(), side.copy.source_report(), false)
            }
            Self::Drain(side) => {
                side.pipe.set_bounds(bounds);
                let idles = side.waits();
                (side.pipe.counts(), side.pipe.bounds(), side.pipe.source_report(), idles)
            }
            _ => return,
        };
        let there = report.map_or(Bottleneck::Unknown, |report| report.bound);
        watch.look_for_life_of_sink(local, seen, counts, (bounds.storage, there), idles);
    }

    /// Tells the sink how sending goes.
    pub fn report(&mut self, watch: &Watch) {
        let report = watch.report(SourceReport::default());
        match self {
            Self::Source(side) => side.copy.report(report),
            Self::Feed(side) => side.pipe.report(report),
            Self::None | Self::Sink(_) | Self::Drain(_) => {}
        }
    }

    /// The peer has every byte of `extent`. Whether it was offered.
    pub fn delivered(&mut self, extent: &Extent) -> bool {
        match self {
            Self::Source(side) => side.delivered(extent),
            Self::Feed(side) => side.delivered(extent),
            Self::None | Self::Sink(_) | Self::Drain(_) => false,
        }
    }

    /// Memory for a group of which a lane has the first bytes.
    pub fn begin_group(
        &mut self,
        part: &GroupPart,
        env: &mut Env<'_>,
    ) -> Result<Begun<Staged>, Unplaceable> {
        match self {
            Self::Sink(side) => side.begin(part, env),
            Self::Drain(side) => side.begin(part),
            Self::None | Self::Source(_) | Self::Feed(_) => Err(Unplaceable::NoMemory),
        }
    }

    /// Groups below are of no use any more, whatever their object.
    pub fn taken_below(&self) -> u32 {
        match self {
            Self::Drain(side) => side.pipe.taken_below(),
            _ => 0,
        }
    }

    /// A group arrived whole.
    pub fn complete(&mut self, now: Instant, whole: WholeGroup<Staged>, env: &mut Env<'_>) {
        match self {
            Self::Sink(side) => side.complete(now, whole, env),
            Self::Drain(side) => side.pipe.handle_piece(whole),
            _ => env.checks.require(false, || "a group arrived that nobody receives"),
        }
    }

    /// A lane gave memory up whose group came on another one.
    pub fn handle_given_up(&mut self, buffer: Staged) {
        if let Self::Drain(side) = self {
            side.pipe.handle_given_up();
        }
        drop(buffer);
    }

    /// Whether the transfer is done, as this end sees it.
    pub fn is_done(&self) -> bool {
        match self {
            Self::None => false,
            Self::Source(side) => side.copy.is_done(),
            Self::Feed(side) => side.pipe.result().is_some(),
            Self::Sink(side) => side.copy.is_done(),
            Self::Drain(side) => side.pipe.is_done(),
        }
    }

    /// When [`Self::pump`] has something to do next.
    pub fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::None => None,
            Self::Source(side) => side.next_timeout(),
            Self::Feed(side) => side.next_timeout(),
            Self::Sink(side) => side.next_timeout(),
            Self::Drain(side) => side.next_timeout(),
        }
    }
}
