//! Clocks: monotonic time for the protocol, wall time for kernel stamps, CPU time for accounts.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::time::Duration;

use longhaul_units::Instant;
use rustix::thread::ClockId;
use rustix::time::Timespec;

/// The monotonic clock (`CLOCK_MONOTONIC`). The origin is the same for all processes of a host.
///
/// Read through the vDSO: some 20 ns, no system call.
pub fn now() -> Instant {
    Instant::from_nanos(nanos(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic)))
}

/// Nanoseconds since the Unix epoch on `CLOCK_REALTIME`: what kernel stamps are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime(u64);

impl WallTime {
    /// The time `nanos` nanoseconds after the Unix epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The wall clock's reading now.
    pub fn now() -> Self {
        Self(nanos(rustix::time::clock_gettime(rustix::time::ClockId::Realtime)))
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`, zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Lead of the wall clock over the monotonic clock, to place kernel stamps on the latter.
///
/// The wall clock may be stepped or slewed: sample again for each batch, or at least each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallOffset(i128);

impl WallOffset {
    /// Reads both clocks, as close together as two reads allow: of a few readings the one that took
    /// least, for in between another thread may have had the processor for milliseconds.
    pub fn sample() -> Self {
        let mut best = (Duration::MAX, Self(0));
        for _ in 0..READINGS {
            let before = now();
            let wall = WallTime::now();
            let took = now().since(before);
            if took < best.0 {
                let middle = before.as_nanos() + took.as_nanos() as u64 / 2;
                best = (took, Self(i128::from(wall.0) - i128::from(middle)));
            }
        }
        best.1
    }

    /// Where `stamp` lies on the monotonic clock, limited to what an [`Instant`] can hold.
    pub fn to_instant(self, stamp: WallTime) -> Instant {
        let nanos = i128::from(stamp.0) - self.0;
        Instant::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// Change since `earlier`: more than some milliseconds means that the wall clock was stepped
    /// between the two, so that ages of stamps taken in between are worthless.
    pub fn drift_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from((self.0 - earlier.0).abs()).unwrap_or(u64::MAX))
    }
}

/// CPU time used, in user code and in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user code.
    pub user: Duration,
    /// In the kernel on behalf of the user.
    pub system: Duration,
}

impl CpuTime {
    /// Of the calling thread, in ticks of the scheduler's accounting (exact in the sum).
    pub fn of_thread() -> Self {
        Self::usage(libc::RUSAGE_THREAD)
    }

    /// Of all threads of this process, past and present.
    pub fn of_process() -> Self {
        Self::usage(libc::RUSAGE_SELF)
    }

    /// Of all children that were waited for.
    pub fn of_children() -> Self {
        Self::usage(libc::RUSAGE_CHILDREN)
    }

    /// User and system time together.
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// Time used since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }

    fn usage(who: libc::c_int) -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes one `rusage` to memory of that size; all zeroes, which is
        // what remains should the call fail, is a valid `rusage`.
        let usage = unsafe {
            libc::getrusage(who, usage.as_mut_ptr());
            usage.assume_init()
        };
        Self::from_usage(&usage)
    }

    pub(crate) fn from_usage(usage: &libc::rusage) -> Self {
        let time = |value: libc::timeval| {
            Duration::from_secs(value.tv_sec as u64) + Duration::from_micros(value.tv_usec as u64)
        };
        Self { user: time(usage.ru_utime), system: time(usage.ru_stime) }
    }
}

/// CPU time of the calling thread, to the nanosecond; one system call.
pub fn thread_cpu_time() -> Duration {
    Duration::from_nanos(nanos(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)))
}

/// CPU time of this process, to the nanosecond; one system call.
pub fn process_cpu_time() -> Duration {
    Duration::from_nanos(nanos(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime)))
}

/// Lets the calling thread's timers fire on time instead of up to 50 us late (`PR_SET_TIMERSLACK`
/// of 1 ns). Affects [`sleep_until`] and the waits of [`crate::wait`]; no privilege is needed.
pub fn use_precise_timers() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

/// Sleeps until `deadline`; returns at once when that has passed.
///
/// Wakes late by what the kernel and a hypervisor need to get the thread running, typically 5 to
/// 60 us, and by the timer slack unless [`use_precise_timers`] was called in this thread.
pub fn sleep_until(deadline: Instant) {
    let request = timespec(deadline.as_nanos());
    // Interrupted by a signal: the deadline is absolute, so the same call goes on.
    while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request)
        == Err(rustix::io::Errno::INTR)
    {}
}

/// Sleeps until `spin` before `deadline` and watches the clock for the rest: exact to well under
/// a microsecond while the thread keeps its core, at the price of that core for `spin`.
pub fn sleep_until_spinning(deadline: Instant, spin: Duration) {
    sleep_until(deadline.before(spin));
    while now() < deadline {
        std::hint::spin_loop();
    }
}

pub(crate) fn timespec(nanos: u64) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ }
}

fn nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// Of both clocks, of which the closest counts.
const READINGS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_run_backwards() {
        let mut last = now();
        for _ in 0..1000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn sleep_lasts_until_the_deadline() {
        use_precise_timers().unwrap();
        let deadline = now() + Duration::from_micros(500);
        sleep_until(deadline);
        assert!(now() >= deadline);
        let deadline = now() + Duration::from_micros(300);
        sleep_until_spinning(deadline, Duration::from_micros(100));
        assert!(now() >= deadline);
        sleep_until(Instant::ZERO);
    }

    #[test]
    fn stamps_land_between_reads_of_the_monotonic_clock() {
        let offset = WallOffset::sample();
        let before = now();
        let stamp = offset.to_instant(WallTime::now());
        let after = now();
        // A slewed wall clock drifts by at most a few hundred parts per million.
        let margin = Duration::from_millis(1);
        assert!(stamp + margin >= before && after + margin >= stamp);
        assert_eq!(offset.to_instant(WallTime::from_nanos(0)), Instant::ZERO);
        assert_eq!(offset.drift_since(offset), Duration::ZERO);
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let (thread, process) = (thread_cpu_time(), process_cpu_time());
        let usage = CpuTime::of_thread();
        let mut sum = 0u64;
        while thread_cpu_time() < thread + Duration::from_millis(12) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(process_cpu_time() >= process + Duration::from_millis(12));
        assert!(CpuTime::of_thread().since(usage).total() > Duration::ZERO);
        assert!(CpuTime::of_process().total() >= usage.total());
    }
}
