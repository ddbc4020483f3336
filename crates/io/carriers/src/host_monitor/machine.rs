//! Signals that concern all threads of this host: one sampler for all connections of the process, since
//! each look costs a few system calls, and pressure is not to be looked at often.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use longhaul_sys::host::{PressureSampler, ProcessorTicks, ThrottlingSampler};
use longhaul_units::{Duration, Instant};

/// Time so far, since whenever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Somebody on this host waited for a processor.
    pub waited: Duration,
    /// The control group of this process was held back for its quota.
    pub throttled: Duration,
    /// The hypervisor ran something else.
    pub stolen: Duration,
    /// Somebody in the control group of this process, or on this host, waited for memory to be freed.
    pub freeing: Duration,
}

impl Totals {
    pub fn since(&self, before: &Self) -> Self {
        Self {
            waited: self.waited.saturating_sub(before.waited),
            throttled: self.throttled.saturating_sub(before.throttled),
            stolen: self.stolen.saturating_sub(before.stolen),
            freeing: self.freeing.saturating_sub(before.freeing),
        }
    }
}

/// Those of this host, which are at most 50 ms old. Does not wait.
pub fn totals(now: Instant) -> Totals {
    static MACHINE: LazyLock<Machine<Samplers>> = LazyLock::new(|| Machine::of(Samplers::open()));
    MACHINE.totals(now)
}

/// A source of the totals.
trait Sample {
    fn sample(&mut self) -> Totals;
}

/// Totals, sampled by the first thread that finds them old.
struct Machine<S> {
    sampler: Mutex<S>,
    /// Time of the next look, and what the last one found, in nanoseconds.
    due: AtomicU64,
    found: [AtomicU64; 4],
}

impl<S: Sample> Machine<S> {
    fn of(sampler: S) -> Self {
        Self { sampler: Mutex::new(sampler), due: AtomicU64::new(0), found: Default::default() }
    }

    fn totals(&self, now: Instant) -> Totals {
        // The thread that samples may lose its processor meanwhile: for the others the totals stand still.
        if now.as_nanos() >= self.due.load(Ordering::Relaxed)
            && let Ok(mut sampler) = self.sampler.try_lock()
        {
            let Totals { waited, throttled, stolen, freeing } = sampler.sample();
            for (to, time) in self.found.iter().zip([waited, throttled, stolen, freeing]) {
                to.store(time.as_nanos() as u64, Ordering::Relaxed);
            }
            self.due.store((now + INTERVAL).as_nanos(), Ordering::Relaxed);
        }
        let [waited, throttled, stolen, freeing] =
            self.found.each_ref().map(|time| Duration::from_nanos(time.load(Ordering::Relaxed)));
        Totals { waited, throttled, stolen, freeing }
    }
}

/// The kernel's counts; one that cannot be read adds nothing.
struct Samplers {
    pressure: Option<PressureSampler>,
    memory: Option<PressureSampler>,
    throttling: Option<ThrottlingSampler>,
    /// Ticks that were stolen, and after how many samples to look again.
    stolen: u64,
    stolen_due: u32,
}

impl Samplers {
    fn open() -> Self {
        Self {
            pressure: PressureSampler::of_cpu().ok(),
            memory: PressureSampler::of_memory().ok(),
            throttling: ThrottlingSampler::new(),
            stolen: 0,
            stolen_due: 0,
        }
    }
}

impl Sample for Samplers {
    fn sample(&mut self) -> Totals {
        let total = |sampler: &Option<PressureSampler>| {
            sampler.as_ref().and_then(|sampler| sampler.sample().ok()).unwrap_or_default()
        };
        let throttling = self.throttling.as_ref().and_then(|sampler| sampler.sample().ok());
        self.stolen_due = match self.stolen_due {
            0 => {
                self.stolen = ProcessorTicks::now().map_or(self.stolen, |ticks| ticks.stolen);
                STOLEN_EVERY - 1
            }
            more => more - 1,
        };
        Totals {
            waited: total(&self.pressure),
            throttled: throttling.unwrap_or_default().time,
            stolen: STEAL_TICK.saturating_mul(u32::try_from(self.stolen).unwrap_or(u32::MAX)),
            freeing: total(&self.memory),
        }
    }
}

/// Pressure is weighed by whole jiffies (4 ms and more): a look is to be many of them.
const INTERVAL: Duration = Duration::from_millis(50);
/// The kernel writes a line for each interrupt before that of stolen ticks: dearer than all else.
const STOLEN_EVERY: u32 = 4;
/// In which /proc/stat counts, on all machines that matter (USER_HZ).
const STEAL_TICK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(AtomicU64);

    impl Sample for Counting {
        fn sample(&mut self) -> Totals {
            let count = self.0.fetch_add(1, Ordering::Relaxed) + 1;
            Totals { waited: Duration::from_millis(count), ..Totals::default() }
        }
    }

    #[test]
    fn totals_that_many_look_at_are_sampled_once_in_a_while() {
        let machine = Machine::of(Counting(AtomicU64::new(0)));
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        for ms in 0..100 {
            let waited = (0..3).map(|_| machine.totals(at(ms)).waited.as_millis());
            let expected = if ms < 50 { 1 } else { 2 };
            assert!(waited.into_iter().all(|waited| waited == expected), "{ms}");
        }
    }

    #[test]
    fn a_thread_that_samples_without_a_processor_holds_up_no_other() {
        let machine = Machine::of(Counting(AtomicU64::new(0)));
        machine.totals(Instant::ZERO);
        let sampling = machine.sampler.lock().unwrap();
        let later = Instant::ZERO + Duration::from_secs(1);
        assert_eq!(machine.totals(later).waited, Duration::from_millis(1));
        drop(sampling);
        assert_eq!(machine.totals(later).waited, Duration::from_millis(2));
    }

    #[test]
    fn this_host_tells_totals_that_only_grow() {
        let before = totals(Instant::ZERO);
        let after = totals(Instant::FAR_FUTURE);
        assert_eq!(after.since(&before).throttled, after.throttled - before.throttled);
        assert!(after.waited >= before.waited && after.stolen >= before.stolen);
    }
}
