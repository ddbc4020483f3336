//! Driver of an end, beside its shared half: reads, hashes, writes, keeps memory, and takes time.

use std::sync::Arc;

use longhaul_connection::{
    Begun, GroupPart, HostFailure, IncomingAnswers, IncomingPipe, OutgoingAnswers, OutgoingCopy,
    OutgoingPipe, Part, Received, Repair, Transfer, Unplaceable, buffers,
};
use longhaul_objects::{Belief, TagKey};
use longhaul_units::{Bytes, Extent, Instant};
use longhaul_wire::{Message, SinkMessage, SourceMessage};

use crate::answers::{AskingDriver, ListingDriver};
use crate::drain::DrainDriver;
use crate::draw::Draw;
use crate::environment::Env;
use crate::feed::FeedDriver;
use crate::hashes::{self, ComparingDriver, HashingDriver};
use crate::lane::LaneState;
use crate::scenario::{End, Scenario};
use crate::sink::SinkDriver;
use crate::source::SourceDriver;
use crate::staging::{Half, Staged};
use crate::trace::Checks;

/// Belief of the source about the record of an earlier run, in a run behind so many.
fn belief(scenario: &Scenario, runs: u64) -> Belief {
    if !scenario.push {
        return Belief::Everything;
    }
    let draw = &mut Draw::new(scenario.seed ^ runs << 32, SECRET_STREAM);
    match if scenario.forgets { draw.below(3) as u8 } else { 1 } {
        0 => Belief::Nothing,
        secret => Belief::Tags(TagKey::new(&[secret; 32], b"server")),
    }
}

/// Number of the stream of choices of who has lost his secret.
const SECRET_STREAM: u64 = 62;

#[derive(Debug)]
pub(crate) enum Driver {
    /// That of a server that has granted nothing.
    None,
    Source(Box<SourceDriver>),
    Sink(Box<SinkDriver>),
    Feed(Box<FeedDriver>),
    Drain(Box<DrainDriver>),
    Listing(ListingDriver),
    Asking(AskingDriver),
    Hashing(HashingDriver),
    Comparing(ComparingDriver),
}

impl Driver {
    /// That of an end which plays `part`, over so many lanes, and what it drives.
    pub fn new(
        scenario: &Scenario,
        part: Part,
        [now, local]: [Instant; 2],
        lanes: usize,
        env: &mut Env<'_>,
    ) -> (Self, Transfer<Arc<Vec<u8>>, Staged>) {
        let lanes = u16::try_from(lanes).unwrap_or(u16::MAX);
        match part {
            Part::Source if scenario.hashes => {
                let driver = Self::Hashing(HashingDriver::new(scenario));
                (driver, Transfer::OutgoingAnswers(OutgoingAnswers::to(hashes::first())))
            }
            Part::Sink if scenario.hashes => {
                let driver = Self::Comparing(ComparingDriver::new(scenario, now));
                (driver, Transfer::IncomingAnswers(IncomingAnswers::default()))
            }
            Part::Source if scenario.listing => {
                let driver = Self::Listing(ListingDriver::new(scenario));
                (driver, Transfer::OutgoingAnswers(OutgoingAnswers::default()))
            }
            Part::Sink if scenario.listing => {
                let driver = Self::Asking(AskingDriver::new(scenario, now));
                (driver, Transfer::IncomingAnswers(IncomingAnswers::default()))
            }
            Part::Source if scenario.pipe => {
                let pipe = OutgoingPipe::new(local, lanes);
                let driver = Box::new(FeedDriver::new(scenario));
                (Self::Feed(driver), Transfer::OutgoingPipe(Box::new(pipe)))
            }
            Part::Sink if scenario.pipe => {
                let mut pipe = IncomingPipe::new(buffers(scenario.capacity) as u64);
                if scenario.sink() == End::Client {
                    pipe.accept();
                }
                let driver = Box::new(DrainDriver::new(scenario, now, env.draw));
                (Self::Drain(driver), Transfer::IncomingPipe(Box::new(pipe)))
            }
            Part::Source => {
                let belief = belief(scenario, env.disk.runs);
                let mut copy = OutgoingCopy::new(local, lanes, belief);
                if scenario.dry_run {
                    copy.begin_dry_run();
                }
                copy.want_changes();
                if scenario.deletes {
                    copy.expect_deletions();
                }
                if scenario.lists_names {
                    copy.expect_names();
                }
                if scenario.keeps.newer {
                    copy.keep_newer();
                }
                if scenario.keeps.equal {
                    copy.allow_comparisons();
                }
                let (latency, hashing) = (scenario.disk_latency, scenario.hash_delay);
                let driver = Box::new(SourceDriver::new(latency, hashing, scenario.lists_names));
                (Self::Source(driver), Transfer::OutgoingCopy(Box::new(copy)))
            }
            Part::Sink => {
                let (driver, mut copy) = SinkDriver::new(scenario, env.files, env.disk);
                copy.want_changes();
                (Self::Sink(Box::new(driver)), Transfer::IncomingCopy(Box::new(copy)))
            }
        }
    }

    /// The other end says something.
    pub fn note_received(&mut self, received: &Received, checks: &mut Checks) {
        match received {
            Received::Source(SourceMessage::EntryFailed { entry, end }) => {
                checks.check_end(Part::Source, *entry, end.code);
            }
            Received::Sink(SinkMessage::EntryRefused { entry, end }) => {
                checks.check_end(Part::Sink, *entry, end.code);
            }
            _ => {}
        }
        if let (Self::Sink(driver), Received::Source(message)) = (self, received) {
            driver.note_message(message);
        }
    }

    /// Checks that a message that this end sends is true.
    pub fn check_sent(&mut self, message: &Message, env: &mut Env<'_>) {
        match message {
            Message::Source(SourceMessage::EntryFailed { entry, end }) => {
                env.checks.note_end(Part::Source, *entry, end.code);
            }
            Message::Sink(SinkMessage::EntryRefused { entry, end }) => {
                env.checks.note_end(Part::Sink, *entry, end.code);
            }
            _ => {}
        }
        match (self, message) {
            (Self::Sink(driver), Message::Sink(message)) => driver.check_message(message, env),
            (Self::Drain(driver), Message::Sink(message)) => driver.check_message(message, env),
            _ => {}
        }
    }

    /// Tells the half what it cannot see: memory that was given back.
    pub fn refresh(&self, half: &mut Half) {
        if let (Self::Drain(driver), Some(pipe)) = (self, half.incoming_pipe()) {
            pipe.set_given_back(driver.given_back());
        }
    }

    /// Does what can be done now; returns whether it was anything.
    pub fn pump(
        &mut self,
        times: [Instant; 2],
        half: &mut Half,
        lanes: &mut [LaneState],
        env: &mut Env<'_>,
    ) -> bool {
        let (progress, failed) = match (self, half.transfer_mut()) {
            (Self::Source(driver), Some(Transfer::OutgoingCopy(copy))) => {
                (driver.pump(times, copy, lanes, env), None)
            }
            (Self::Feed(driver), Some(Transfer::OutgoingPipe(pipe))) => {
                (driver.pump(times, pipe, lanes, env.draw), None)
            }
            (Self::Sink(driver), Some(Transfer::IncomingCopy(copy))) => {
                (driver.pump(times[0], copy, env), driver.failed.clone())
            }
            (Self::Drain(driver), Some(Transfer::IncomingPipe(pipe))) => {
                (driver.pump(times[0], pipe, env), driver.failed.clone())
            }
            (Self::Listing(driver), Some(Transfer::OutgoingAnswers(answers))) => {
                (driver.pump(times[0], answers, env.draw), None)
            }
            (Self::Asking(driver), Some(Transfer::IncomingAnswers(answers))) => {
                (driver.pump(times[0], answers, env), None)
            }
            (Self::Hashing(driver), Some(Transfer::OutgoingAnswers(answers))) => {
                (driver.pump(times[0], answers, env.draw), None)
            }
            (Self::Comparing(driver), Some(Transfer::IncomingAnswers(answers))) => {
                (driver.pump(times[0], answers, env), None)
            }
            _ => (false, None),
        };
        failed.into_iter().for_each(|reason| half.fail(HostFailure::Storage(reason)));
        progress
    }

    /// Tells all lanes of a group that was found to be wrong.
    pub fn note_repair(&mut self, repair: Repair) {
        if let Self::Sink(driver) = self {
            driver.note_repair(repair);
        }
    }

    /// It may use so much memory from now on.
    pub fn set_memory(&mut self, memory: Bytes, half: &mut Half) {
        match self {
            Self::None
            | Self::Listing(_)
            | Self::Asking(_)
            | Self::Hashing(_)
            | Self::Comparing(_) => {}
            Self::Source(driver) => driver.set_memory(memory),
            Self::Feed(driver) => driver.set_memory(memory),
            Self::Sink(driver) => driver.set_memory(memory),
            Self::Drain(driver) => driver.set_memory(memory),
        }
        half.grow_memory(memory);
    }

    /// A lane is done with `extent`. Whether it was offered.
    pub fn delivered(&mut self, extent: &Extent) -> bool {
        match self {
            Self::Source(driver) => driver.delivered(extent),
            Self::Feed(driver) => driver.delivered(extent),
            _ => false,
        }
    }

    /// Bytes of a copy that were given out to be read, and are not offered yet.
    pub fn reading(&self) -> u64 {
        match self {
            Self::Source(driver) => driver.reading(),
            _ => 0,
        }
    }

    /// Memory for a group of which a lane has the first bytes.
    pub fn begin_group(
        &mut self,
        part: &GroupPart,
        half: &mut Half,
        env: &mut Env<'_>,
    ) -> Result<Begun<Staged>, Unplaceable> {
        match self {
            Self::Sink(driver) => driver.begin(part, half, env),
            Self::Drain(driver) => driver.begin(part, half),
            _ => half.begin_group(part, || None),
        }
    }

    /// When [`Self::pump`] has something to do next.
    pub fn next_timeout(&self, half: &Half) -> Option<Instant> {
        match (self, half.transfer()) {
            (Self::Source(driver), _) => driver.next_timeout(),
            (Self::Feed(driver), _) => driver.next_timeout(),
            (Self::Sink(driver), Some(Transfer::IncomingCopy(copy))) => driver.next_timeout(copy),
            (Self::Drain(driver), _) => driver.next_timeout(),
            (Self::Listing(driver), _) => driver.next_timeout(),
            (Self::Asking(driver), Some(Transfer::IncomingAnswers(answers))) => {
                driver.next_timeout(answers)
            }
            (Self::Hashing(driver), _) => driver.next_timeout(),
            (Self::Comparing(driver), Some(Transfer::IncomingAnswers(answers))) => {
                driver.next_timeout(answers)
            }
            _ => None,
        }
    }
}
