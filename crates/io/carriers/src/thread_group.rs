//! Threads of one kind, and where their time goes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use longhaul_connection::Spent;
use longhaul_sys::clock;
use longhaul_sys::host::{Scheduling, SchedulingSampler};
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, Instant};

/// Threads that do the same work. The kernel counts their processor time; they themselves only note when they
/// have nothing to do.
#[derive(Debug, Default)]
pub struct ThreadGroup {
    members: Mutex<Members>,
    idle_times: Mutex<IdleTimes>,
}

#[derive(Debug, Default)]
struct Members {
    present: BTreeMap<u64, Member>,
    joined: u64,
    /// Time that threads had spent that have left.
    left: Spent,
}

#[derive(Debug)]
struct Member {
    sampler: SchedulingSampler,
    begin: Scheduling,
    since: Instant,
    /// The kernel's last sample, and the time since which it has been the same.
    last: (Scheduling, Instant),
}

/// Time that threads waited for work, up to now: if it counted only once it is over, all of it would
/// fall into the span in which it ends.
#[derive(Debug, Default)]
struct IdleTimes {
    total: Duration,
    until: Instant,
    /// Threads that rest now.
    present: u32,
    /// All threads, and the time in which any of them had something to do.
    members: u32,
    busy: Duration,
}

impl IdleTimes {
    fn update(&mut self, now: Instant) -> Duration {
        let passed = now - self.until;
        self.total += passed * self.present;
        if self.members > self.present {
            self.busy += passed;
        }
        self.until = self.until.max(now);
        self.total
    }

    fn join(&mut self, now: Instant) {
        self.update(now);
        self.members += 1;
    }

    fn leave(&mut self, now: Instant) {
        self.update(now);
        self.members -= 1;
    }

    fn begin(&mut self, now: Instant) {
        self.update(now);
        self.present += 1;
    }

    fn end(&mut self, now: Instant) {
        self.update(now);
        self.present -= 1;
    }
}

impl ThreadGroup {
    /// The calling thread belongs to it until the guard is dropped. Where the kernel keeps no
    /// account of its scheduling, it does not count.
    pub fn join(&self) -> Membership<'_> {
        let sampler = SchedulingSampler::of_this_thread();
        let member = sampler.and_then(|sampler| {
            let (begin, since) = (sampler.sample()?, clock::now());
            Ok(Member { sampler, begin, since, last: (begin, since) })
        });
        lock(&self.idle_times).join(clock::now());
        let mut members = lock(&self.members);
        members.joined += 1;
        let number = members.joined;
        if let Ok(member) = member {
            members.present.insert(number, member);
        }
        Membership { thread_group: self, number }
    }

    /// Waits for work: by `wait`.
    pub fn rest<T>(&self, wait: impl FnOnce() -> T) -> T {
        lock(&self.idle_times).begin(clock::now());
        let result = wait();
        lock(&self.idle_times).end(clock::now());
        result
    }

    /// The time that its threads have spent so far.
    pub fn spent(&self) -> Spent {
        let now = clock::now();
        let mut members = lock(&self.members);
        let mut spent = members.left;
        for member in members.present.values_mut() {
            spent += member.spent(now);
        }
        spent.idle = lock(&self.idle_times).update(clock::now());
        spent
    }

    /// Total time in which any of its threads had something to do.
    pub fn busy(&self) -> Duration {
        let mut idle_times = lock(&self.idle_times);
        idle_times.update(clock::now());
        idle_times.busy
    }
}

impl Member {
    fn spent(&mut self, now: Instant) -> Spent {
        // A thread that cannot be sampled any more is about to leave.
        let sample = self.sampler.sample().unwrap_or(self.last.0);
        if sample != self.last.0 {
            self.last = (sample, now);
        }
        // The kernel adds the time of a wait for a processor when the wait is over.
        let waits = match self.sampler.is_ready() {
            Ok(true) => now - self.last.1,
            Ok(false) | Err(_) => Duration::ZERO,
        };
        let used = sample.since(self.begin);
        let ready = used.wait + waits;
        Spent { alive: now - self.since, run: used.run, ready, idle: Duration::ZERO }
    }
}

/// Membership of a thread in a group, until it is dropped.
#[derive(Debug)]
pub struct Membership<'c> {
    thread_group: &'c ThreadGroup,
    number: u64,
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        lock(&self.thread_group.idle_times).leave(clock::now());
        let mut members = lock(&self.thread_group.members);
        if let Some(mut member) = members.present.remove(&self.number) {
            members.left += member.spent(clock::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn rest_counts_while_it_lasts() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut idle_times = IdleTimes::default();
        idle_times.begin(at(1000));
        idle_times.begin(at(1010));
        assert_eq!(idle_times.update(at(1020)), ms(30));
        idle_times.end(at(1030));
        assert_eq!(idle_times.update(at(1130)), ms(150));
        idle_times.end(at(1130));
        assert_eq!(idle_times.update(at(9000)), ms(150));
        // Of two threads one reads the clock first, and is the second to note it.
        idle_times.begin(at(8990));
        assert_eq!(idle_times.update(at(9010)), ms(160));
    }

    #[test]
    fn a_thread_group_is_busy_while_any_of_its_threads_is() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut idle_times = IdleTimes::default();
        for change in [IdleTimes::join, IdleTimes::join, IdleTimes::begin] {
            change(&mut idle_times, at(1000));
        }
        idle_times.begin(at(1010));
        idle_times.end(at(1030));
        idle_times.begin(at(1035));
        idle_times.update(at(2000));
        assert_eq!(idle_times.busy, ms(15));
    }

    #[test]
    fn time_is_counted_while_threads_live_and_kept_when_they_leave() {
        let thread_group = ThreadGroup::default();
        let before = thread_group.spent();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _joined = thread_group.join();
                thread_group.rest(|| std::thread::sleep(std::time::Duration::from_millis(20)));
                let start = clock::thread_cpu_time();
                while clock::thread_cpu_time() < start + ms(20) {}
            });
        });
        let spent = thread_group.spent().since(before);
        assert!(spent.idle >= ms(20) && spent.alive >= ms(40), "{spent:?}");
        // The kernel brings its account up to date at each tick.
        assert!(spent.run >= ms(10), "{spent:?}");
        assert_eq!(thread_group.spent().since(before), spent, "nobody is left");
    }
}
