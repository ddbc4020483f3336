//! What a connection asks of the side that this host plays, be it of a copy or of a pipe.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use longhaul_connection::{Begun, Counts, GroupPart, Spent, Stages, Unplaceable, WholeGroup};
use longhaul_units::{Bytes, Duration};
use longhaul_wire::{Bottleneck, ReceiverBounds, SinkMessage, SourceMessage, SourceReport};

use crate::api::Failures;
use crate::buffer::Buffer;
use crate::hub::{Side, TransferHub};
use crate::sink::SinkDriver;
use crate::source::SourceDriver;

/// The side that has the data.
pub(crate) trait SourceSide: Send + Sync {
    /// Starts its threads; they end when it is stopped.
    fn start(self: Arc<Self>, hub: &Arc<TransferHub>) -> io::Result<Vec<JoinHandle<()>>>;
    /// The sink said something.
    fn handle(&self, message: SinkMessage) -> Result<(), String>;
    /// The next message for the sink.
    fn next_message(&self, out: &mut Vec<u8>) -> bool;
    /// The sink promised more.
    fn on_credit(&self, credit: u64);
    /// A lane has sent some of what it had.
    fn on_room(&self);
    /// Something that a lane was given is at the peer.
    fn on_delivered(&self);
    /// Whether everything dealt so far was all that may be dealt.
    fn is_drained(&self) -> bool;
    /// How long it was at each stage, and what its threads have spent.
    fn seen(&self) -> (Stages, Spent);
    /// There is so much memory for groups that are not settled.
    fn set_memory(&self, memory: Bytes);
    /// What grows while it goes on.
    fn counts(&self) -> Counts;
    /// Whether it waits for the begin of a booking.
    fn awaits_circuit(&self) -> bool;
    /// Whether nothing is to be expected of it now, however long that takes; `bound` is what seems to
    /// hold it up.
    fn idles(&self, bound: Bottleneck) -> bool;
    /// Tells the sink how sending goes.
    fn report(&self, sending: SourceReport);
    /// Bytes that were moved, once all is.
    fn done(&self) -> Option<u64>;
    /// What could not be copied.
    fn failures(&self) -> Failures;
    /// Ends all threads.
    fn stop(&self);
}

/// The side that gets the data.
pub(crate) trait SinkSide: Send + Sync {
    /// Starts its threads; they end when it is stopped.
    fn start(self: Arc<Self>, hub: &Arc<TransferHub>) -> io::Result<Vec<JoinHandle<()>>>;
    /// The source said something.
    fn handle(&self, message: SourceMessage) -> Result<(), String>;
    /// Whether more of what the source says is wanted; changes to `true` by `next_message` only.
    fn wants_messages(&self) -> bool {
        true
    }
    /// The next message for the source.
    fn next_message(&self, out: &mut Vec<u8>) -> bool;
    /// Groups below are of no use any more, whatever their object.
    fn taken_below(&self) -> u32;
    /// Memory for a group of which the first bytes have come, if it may come and there is any.
    fn begin_group(&self, part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable>;
    /// A group arrived whole.
    fn on_group(&self, whole: WholeGroup<Buffer>);
    /// A lane gave memory up whose group came on another one.
    fn on_given_up(&self, buffer: Buffer) {
        drop(buffer);
    }
    /// Object bytes that it takes in all.
    fn credit(&self) -> u64;
    /// What holds it up, for the source.
    fn bounds(&self) -> ReceiverBounds;
    /// Sets what the source is to be told.
    fn set_bounds(&self, bounds: ReceiverBounds);
    /// What its threads have spent, and how long any of them had something to do.
    fn seen(&self) -> (Spent, Duration);
    /// There is so much memory for groups that are being received or passed on.
    fn set_memory(&self, memory: Bytes);
    /// Bytes that were moved, once all is and the source was told.
    fn done(&self) -> Option<u64>;
    /// What could not be copied.
    fn failures(&self) -> Failures;
    /// What grows while it goes on.
    fn counts(&self) -> Counts;
    /// Whether nothing is to be expected of it now, however long that takes.
    fn idles(&self) -> bool;
    /// What holds sending up, as the source said last.
    fn source_bound(&self) -> Bottleneck;
    /// The transfer ends early: makes durable what has arrived, for a later run, but waits no longer
    /// than `patience` for that.
    fn wind_up(&self, _patience: Duration) {}
    /// Ends all threads.
    fn stop(&self);
}

impl SourceSide for SourceDriver {
    fn start(self: Arc<Self>, _: &Arc<TransferHub>) -> io::Result<Vec<JoinHandle<()>>> {
        let scanning = self.clone();
        let mut threads = vec![named("scan").spawn(move || scanning.scan())?];
        for _ in 0..WORKERS {
            let source = self.clone();
            threads.push(named("read").spawn(move || source.work())?);
        }
        Ok(threads)
    }

    fn handle(&self, message: SinkMessage) -> Result<(), String> {
        self.handle(message)
    }

    fn next_message(&self, out: &mut Vec<u8>) -> bool {
        self.next_message(out)
    }

    fn on_credit(&self, credit: u64) {
        self.on_credit(credit);
    }

    fn on_room(&self) {
        self.on_room();
    }

    fn on_delivered(&self) {}

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn seen(&self) -> (Stages, Spent) {
        self.seen()
    }

    fn set_memory(&self, memory: Bytes) {
        self.set_memory(memory);
    }

    fn counts(&self) -> Counts {
        self.counts()
    }

    fn awaits_circuit(&self) -> bool {
        self.awaits_circuit()
    }

    fn idles(&self, bound: Bottleneck) -> bool {
        self.idles(bound)
    }

    fn report(&self, sending: SourceReport) {
        self.report(sending);
    }

    fn done(&self) -> Option<u64> {
        self.result().map(|result| result.bytes.get())
    }

    fn failures(&self) -> Failures {
        self.failures()
    }

    fn stop(&self) {
        self.stop();
    }
}

impl SinkSide for SinkDriver {
    fn start(self: Arc<Self>, hub: &Arc<TransferHub>) -> io::Result<Vec<JoinHandle<()>>> {
        let mut threads = Vec::new();
        for _ in 0..WORKERS {
            let (sink, hub) = (self.clone(), hub.clone());
            threads.push(named("write").spawn(move || {
                if let Err(reason) = sink.work() {
                    hub.fail(reason);
                }
            })?);
        }
        Ok(threads)
    }

    fn handle(&self, message: SourceMessage) -> Result<(), String> {
        self.handle(message)
    }

    fn wants_messages(&self) -> bool {
        self.wants_messages()
    }

    fn next_message(&self, out: &mut Vec<u8>) -> bool {
        self.next_message(out)
    }

    fn taken_below(&self) -> u32 {
        0
    }

    fn begin_group(&self, part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        self.begin_group(part)
    }

    fn on_group(&self, whole: WholeGroup<Buffer>) {
        self.on_group(whole);
    }

    fn credit(&self) -> u64 {
        self.credit()
    }

    fn bounds(&self) -> ReceiverBounds {
        self.bounds()
    }

    fn set_bounds(&self, bounds: ReceiverBounds) {
        self.set_bounds(bounds);
    }

    fn seen(&self) -> (Spent, Duration) {
        self.seen()
    }

    fn set_memory(&self, memory: Bytes) {
        self.set_memory(memory);
    }

    fn done(&self) -> Option<u64> {
        self.is_done().then(|| self.stats().confirmed_bytes)
    }

    fn failures(&self) -> Failures {
        self.failures()
    }

    fn counts(&self) -> Counts {
        self.counts()
    }

    /// A copy always has something to expect, of its disk if of nobody else.
    fn idles(&self) -> bool {
        false
    }

    fn source_bound(&self) -> Bottleneck {
        self.source_report().map_or(Bottleneck::Unknown, |report| report.bound)
    }

    fn wind_up(&self, patience: Duration) {
        self.wind_up(patience);
    }

    fn stop(&self) {
        self.stop();
    }
}

impl Side {
    /// Starts its threads; they end when the side is stopped.
    pub fn start(&self, hub: &Arc<TransferHub>) -> io::Result<Vec<JoinHandle<()>>> {
        match self {
            Self::Source(source) => source.clone().start(hub),
            Self::Sink(sink) => sink.clone().start(hub),
        }
    }

    /// Bytes that were moved, once all is.
    pub fn done(&self) -> Option<u64> {
        match self {
            Self::Source(source) => source.done(),
            Self::Sink(sink) => sink.done(),
        }
    }

    /// What could not be copied.
    pub fn failures(&self) -> Failures {
        match self {
            Self::Source(source) => source.failures(),
            Self::Sink(sink) => sink.failures(),
        }
    }

    /// The transfer ends early, its storage being sound: what has arrived is kept.
    pub fn wind_up(&self) {
        if let Self::Sink(sink) = self {
            sink.wind_up(WIND_UP_PATIENCE);
        }
    }

    /// Ends its threads.
    pub fn stop(&self) {
        match self {
            Self::Source(source) => source.stop(),
            Self::Sink(sink) => sink.stop(),
        }
    }
}

pub(crate) fn named(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.into())
}

/// What a last checkpoint may take beyond the sync that cannot be interrupted. A user who does not
/// want to wait for it asks once more.
const WIND_UP_PATIENCE: Duration = Duration::from_secs(10);
/// Threads that read and hash, or hash and write.
pub(crate) const WORKERS: u32 = 2;
