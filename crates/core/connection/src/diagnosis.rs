//! The bottleneck of a transfer: one rule for pushes and pulls, over UDP and TCP.
//!
//! A transfer is a line of stages: reading, sending, the path, receiving, writing. Where one is too
//! slow, those before it wait for it, and those behind it for data. So the middle tells most: while
//! the carrier has something to send, it, the path or the receiving threads are the bottleneck; and
//! while it has nothing, what the source waits for. Only then the threads of that stage are looked
//! at, and what the receiver says of its own.

use longhaul_engine::Path;
use longhaul_units::{Duration, Instant};
use longhaul_wire::{Bottleneck, ReceiverBounds};

use crate::thread_time::Spent;

/// A stage of a source's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It lists, reads and hashes files, or waits until there is less to send.
    Reading,
    /// All memory holds what is not acknowledged.
    Memory,
    /// The receiver takes no more.
    Credit,
    /// There is nothing to read before the sink accepts more, or all is read.
    Answer,
    /// It waits for the program that makes the data.
    Input,
}

impl Stage {
    const ALL: [Self; 5] = [Self::Reading, Self::Memory, Self::Credit, Self::Answer, Self::Input];
}

/// Time of a source at each stage while the carrier had nothing to send, and time in which the
/// carrier had something.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    now: Stage,
    since: Instant,
    idle_before: Duration,
    idle_time: [Duration; Stage::ALL.len()],
    sending: Duration,
}

impl Stages {
    /// A source that has nothing yet.
    pub fn new(now: Instant) -> Self {
        Self {
            now: Stage::Answer,
            since: now,
            idle_before: Duration::ZERO,
            idle_time: Default::default(),
            sending: Duration::ZERO,
        }
    }

    /// It is at `stage` from now on. The carrier has had nothing to send for `idle_time` in all.
    pub fn enter(&mut self, now: Instant, stage: Stage, idle_time: Duration) {
        self.update(now, idle_time);
        self.now = stage;
    }

    /// Counts the time of the present stage up to now.
    pub fn update(&mut self, now: Instant, idle_time: Duration) {
        let time = now - self.since;
        let without = idle_time.saturating_sub(self.idle_before).min(time);
        self.idle_time[self.now as usize] += without;
        self.sending += time - without;
        self.idle_before = idle_time;
        self.since = now.max(self.since);
    }
}

/// Time by what it was lost to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times([Duration; Bottleneck::COUNT]);

impl Times {
    /// Times by bottleneck of the lanes that share `path`, since it began.
    pub fn of_path(path: &Path) -> Self {
        let mut times = Self::default();
        for bound in Bottleneck::ALL {
            times.add(bound, path.governor().time_limited_by(bound));
        }
        times
    }

    /// Books `time` to `bound`.
    pub fn add(&mut self, bound: Bottleneck, time: Duration) {
        self.0[bound as usize] += time;
    }

    /// Times booked since `earlier`.
    pub fn since(mut self, earlier: &Self) -> Self {
        for (time, before) in self.0.iter_mut().zip(&earlier.0) {
            *time = time.saturating_sub(*before);
        }
        self
    }

    /// These and those of `other`.
    pub fn plus(mut self, other: &Self) -> Self {
        for (time, more) in self.0.iter_mut().zip(&other.0) {
            *time += *more;
        }
        self
    }

    /// The bottleneck with the longest time, if any has one.
    fn longest(&self) -> Option<Bottleneck> {
        let codes = 0..Bottleneck::COUNT;
        let code = codes.rev().max_by_key(|code| self.0[*code])?;
        (self.0[code] > Duration::ZERO).then(|| Bottleneck::from_code(code as u8))
    }
}

/// Counts of a sending side by some time, since its start.
#[derive(Clone, Copy, Debug)]
pub struct SendingSide {
    /// Stages of the source, and time in which the carrier had nothing to send.
    pub stages: Stages,
    /// Threads that read.
    pub readers: Spent,
    /// Times of the carrier by bottleneck.
    pub carrier: Times,
    /// Threads that send.
    pub lanes: Spent,
    /// The receiver's own report at that time.
    pub receiver: ReceiverBounds,
}

/// Names what holds a transfer up, at the side that sends.
#[derive(Debug)]
pub struct Diagnosis {
    last: SendingSide,
    times: Times,
    now: Bottleneck,
}

impl Diagnosis {
    /// Of a transfer that begins now.
    pub fn new(now: Instant) -> Self {
        let last = SendingSide {
            stages: Stages::new(now),
            readers: Spent::default(),
            carrier: Times::default(),
            lanes: Spent::default(),
            receiver: ReceiverBounds::NONE,
        };
        Self { last, times: Times::default(), now: Bottleneck::StartUp }
    }

    /// Takes in what is seen some time later: a tenth of a second or more, to mean something.
    pub fn observe(&mut self, seen: SendingSide) {
        let last = core::mem::replace(&mut self.last, seen);
        let span = Span {
            readers: seen.readers.since(last.readers),
            carrier: seen.carrier.since(&last.carrier).longest(),
            lanes: seen.lanes.since(last.lanes),
            receiver: seen.receiver,
        };
        let mut times = Times::default();
        let (stages, before) = (&seen.stages, &last.stages);
        let sending = stages.sending.saturating_sub(before.sending);
        if span.carrier.is_some() || span.lanes.is_saturated() {
            times.add(span.sending(), sending);
        } else {
            // The carrier has not reported its bottleneck yet: this time is judged when it does.
            self.last.stages.sending = before.sending;
        }
        for stage in Stage::ALL {
            let idle_time = stages.idle_time[stage as usize];
            let bound = span.waiting(stage);
            times.add(bound, idle_time.saturating_sub(before.idle_time[stage as usize]));
        }
        self.now = times.longest().unwrap_or(self.now);
        for (total, time) in self.times.0.iter_mut().zip(times.0) {
            *total += time;
        }
    }

    /// The bottleneck at the last look.
    pub fn now(&self) -> Bottleneck {
        self.now
    }

    /// The bottleneck of the longest time.
    pub fn longest(&self) -> Bottleneck {
        self.times.longest().unwrap_or(self.now)
    }
}

/// Differences between two looks.
struct Span {
    readers: Spent,
    carrier: Option<Bottleneck>,
    lanes: Spent,
    receiver: ReceiverBounds,
}

impl Span {
    /// The bottleneck of a source that waits at `stage`.
    fn waiting(&self, stage: Stage) -> Bottleneck {
        let stored = reported(self.receiver.storage);
        match stage {
            Stage::Reading if self.readers.is_blocked() => Bottleneck::SenderDisk,
            Stage::Reading => Bottleneck::SenderCpu,
            Stage::Input => Bottleneck::Input,
            Stage::Memory => Bottleneck::SenderBuffer,
            Stage::Credit => stored.unwrap_or(Bottleneck::ReceiverBuffer),
            Stage::Answer => stored.unwrap_or_else(|| self.sending()),
        }
    }

    /// The bottleneck of the carrier while it has something to send.
    fn sending(&self) -> Bottleneck {
        match self.carrier.unwrap_or(Bottleneck::Network) {
            // It goes as fast as it may: then nobody is too slow.
            limit @ (Bottleneck::UserLimit | Bottleneck::Reservation) => limit,
            _ if self.lanes.is_saturated() => Bottleneck::SenderCpu,
            Bottleneck::ReceiverBuffer => {
                let ReceiverBounds { intake, storage } = self.receiver;
                reported(intake).or(reported(storage)).unwrap_or(Bottleneck::ReceiverBuffer)
            }
            named => reported(self.receiver.intake).unwrap_or(named),
        }
    }
}

fn reported(bound: Bottleneck) -> Option<Bottleneck> {
    (bound != Bottleneck::Unknown).then_some(bound)
}

/// Counts of a receiving side by some time, since its start.
#[derive(Clone, Copy, Debug)]
pub struct ReceivingSide {
    /// When it was seen.
    pub at: Instant,
    /// Threads that receive.
    pub lanes: Spent,
    /// Threads that verify and write.
    pub writers: Spent,
    /// Time that any of these had something to do.
    pub writing: Duration,
}

impl ReceivingSide {
    /// Its bottlenecks since `earlier`, as it reports them to the sender.
    pub fn bounds(&self, earlier: &Self) -> ReceiverBounds {
        let lanes = self.lanes.since(earlier.lanes);
        let writers = self.writers.since(earlier.writers);
        let writing = self.writing.saturating_sub(earlier.writing);
        let intake = match lanes.is_saturated() {
            true => Bottleneck::ReceiverCpu,
            false => Bottleneck::Unknown,
        };
        let storage = match writing * 2 > self.at - earlier.at {
            false => Bottleneck::Unknown,
            true if writers.is_blocked() => Bottleneck::ReceiverDisk,
            true => Bottleneck::ReceiverCpu,
        };
        ReceiverBounds { intake, storage }
    }
}

#[cfg(test)]
mod tests;
