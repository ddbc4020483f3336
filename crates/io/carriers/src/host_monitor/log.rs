//! The log that a lane thread leaves for the sentinel.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};

use longhaul_host::Batch;
use longhaul_sys::clock;
use longhaul_sys::host::{SchedulingSampler, SwitchRecorder};
use longhaul_sys::udp::{MemorySampler, UdpSocket};
use longhaul_units::{Duration, Instant};

/// Written by one lane's thread, read by the sentinel.
#[derive(Debug, Default)]
pub struct LaneLog {
    /// Time at which it was last seen at work, in nanoseconds of the monotonic clock; 0 while it sleeps.
    beat: AtomicU64,
    /// Round trip of the peer's packets, in nanoseconds; 0 if unknown.
    round_trip: AtomicU64,
    /// Remedies that the lane got of those that it asked for.
    remedies: AtomicU64,
    missed: Missed,
    batches: Ring,
    samplers: OnceLock<Samplers>,
    memory: Mutex<Option<MemorySampler>>,
}

/// Samplers of the kernel's counts of the lane's thread; each where the kernel has them.
#[derive(Debug)]
pub(super) struct Samplers {
    pub scheduling: Option<SchedulingSampler>,
    pub switches: Mutex<Option<SwitchRecorder>>,
}

/// Timers that woke the lane too late.
#[derive(Debug, Default)]
struct Missed {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl LaneLog {
    // By the lane.

    /// The thread that writes here is this one; `remedies` are in force for it.
    pub fn join(&self, remedies: u64) {
        self.note_remedies(remedies);
        // There is one thread for each log: the cell is empty.
        let _ = self.samplers.set(Samplers {
            scheduling: SchedulingSampler::of_this_thread().ok(),
            switches: Mutex::new(SwitchRecorder::of_this_thread().ok()),
        });
    }

    /// These are in force, or were refused, as well.
    pub fn note_remedies(&self, remedies: u64) {
        self.remedies.fetch_or(remedies, Ordering::Relaxed);
    }

    /// The lane receives from `socket` from now on; from none of its own if none.
    pub fn receive_from(&self, socket: Option<&UdpSocket>) {
        let memory = socket.and_then(|socket| socket.memory_sampler().ok());
        // The sentinel has it for a microsecond.
        *longhaul_sys::sync::lock(&self.memory) = memory;
    }

    /// It is at work.
    pub fn beat(&self, now: Instant) {
        self.beat.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// It has nothing to do.
    pub fn rest(&self) {
        self.beat.store(0, Ordering::Relaxed);
    }

    /// It was to wake at `deadline`.
    pub fn woke(&self, deadline: Instant) {
        let late = clock::now() - deadline;
        if late >= MISSED {
            self.missed.count.fetch_add(1, Ordering::Relaxed);
            self.missed.nanos.fetch_add(late.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// It has read something.
    pub fn read(&self, at: Instant, batch: &Batch) {
        self.batches.push(at, batch);
    }

    /// The peer's round trip, as that says.
    pub fn set_round_trip(&self, round_trip: Option<Duration>) {
        let nanos = round_trip.unwrap_or_default().as_nanos() as u64;
        self.round_trip.store(nanos, Ordering::Relaxed);
    }

    // By the sentinel.

    /// Time since which it has been silent though it has not gone to sleep.
    pub(super) fn last_beat(&self) -> Option<Instant> {
        match self.beat.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    pub(super) fn samplers(&self) -> Option<&Samplers> {
        self.samplers.get()
    }

    /// Looks at what the kernel holds for its socket, unless the lane is exchanging that.
    pub(super) fn memory<T>(&self, look: impl FnOnce(&MemorySampler) -> T) -> Option<T> {
        let memory = match self.memory.try_lock() {
            Ok(memory) => memory,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        memory.as_ref().map(look)
    }

    pub(super) fn poll_batch(&self) -> Option<(Instant, Batch)> {
        self.batches.pop()
    }

    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip.load(Ordering::Relaxed))
    }

    pub(super) fn remedies(&self) -> u64 {
        self.remedies.load(Ordering::Relaxed)
    }

    /// Number and sum of what it missed.
    pub(super) fn missed(&self) -> (u64, Duration) {
        let nanos = self.missed.nanos.load(Ordering::Relaxed);
        (self.missed.count.load(Ordering::Relaxed), Duration::from_nanos(nanos))
    }
}

/// Batches on their way from one thread to one other. A batch that finds no room is left out: the sentinel
/// was away for longer than the monitor looks back.
#[derive(Debug)]
struct Ring {
    slots: Box<[Slot]>,
    /// Batches pushed, and popped.
    pushed: AtomicU32,
    popped: AtomicU32,
}

/// Time, bytes, packets with the mark of a full batch, age and processor time, the last two plus one.
type Slot = [AtomicU64; 5];

impl Default for Ring {
    fn default() -> Self {
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Self { slots, pushed: AtomicU32::new(0), popped: AtomicU32::new(0) }
    }
}

impl Ring {
    fn push(&self, at: Instant, batch: &Batch) {
        let pushed = self.pushed.load(Ordering::Relaxed);
        if pushed.wrapping_sub(self.popped.load(Ordering::Acquire)) >= SLOTS {
            return;
        }
        let time = |time: Option<Duration>| time.map_or(0, |time| time.as_nanos() as u64 + 1);
        let packets = batch.packets << 1 | u64::from(batch.full);
        let words = [at.as_nanos(), batch.bytes, packets, time(batch.age), time(batch.cpu)];
        for (word, value) in self.slots[(pushed % SLOTS) as usize].iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.pushed.store(pushed.wrapping_add(1), Ordering::Release);
    }

    fn pop(&self) -> Option<(Instant, Batch)> {
        let popped = self.popped.load(Ordering::Relaxed);
        if self.pushed.load(Ordering::Acquire) == popped {
            return None;
        }
        let slot = &self.slots[(popped % SLOTS) as usize];
        let [at, bytes, packets, age, cpu] =
            slot.each_ref().map(|word| word.load(Ordering::Relaxed));
        self.popped.store(popped.wrapping_add(1), Ordering::Release);
        let time = |nanos: u64| nanos.checked_sub(1).map(Duration::from_nanos);
        let batch = Batch {
            bytes,
            packets: packets >> 1,
            full: packets & 1 != 0,
            age: time(age),
            cpu: time(cpu),
        };
        Some((Instant::from_nanos(at), batch))
    }
}

/// Bursts of reading in 100 ms, and 40 KiB of memory a lane. A power of two, as the counts wrap.
const SLOTS: u32 = 1024;
/// Timers of a host with a processor to spare are late by less.
const MISSED: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_come_through_in_order_and_those_that_find_no_room_are_left_out() {
        let ring = Ring::default();
        assert_eq!(ring.pop(), None);
        let batch = |n: u64| Batch {
            bytes: n * 3,
            packets: n,
            age: n.is_multiple_of(2).then_some(Duration::from_nanos(n)),
            cpu: n.is_multiple_of(3).then_some(Duration::ZERO),
            full: n.is_multiple_of(5),
        };
        let at = Instant::from_nanos;
        for round in 0..3 {
            let first = round * 10_000;
            for n in 0..u64::from(SLOTS) + 7 {
                ring.push(at(first + n), &batch(n));
            }
            for n in 0..u64::from(SLOTS) {
                assert_eq!(ring.pop(), Some((at(first + n), batch(n))));
            }
            assert_eq!(ring.pop(), None);
        }
    }

    #[test]
    fn another_thread_gets_what_one_pushes() {
        let ring = Ring::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=100 {
                    ring.push(Instant::from_nanos(n), &Batch { bytes: n, ..Batch::default() });
                }
            });
            let mut expected = 1;
            while expected <= 100 {
                if let Some((at, batch)) = ring.pop() {
                    assert_eq!((at.as_nanos(), batch.bytes), (expected, expected));
                    expected += 1;
                }
            }
        });
    }

    #[test]
    fn a_timer_that_is_early_or_in_time_counts_as_no_miss() {
        let log = LaneLog::default();
        log.woke(Instant::FAR_FUTURE);
        log.woke(clock::now());
        assert_eq!(log.missed().0, 0);
        log.woke(clock::now().before(Duration::from_millis(20)));
        let (count, time) = log.missed();
        assert!(count == 1 && time >= Duration::from_millis(20), "{time:?}");
    }
}
