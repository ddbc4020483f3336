//! Threads of one kind, and what their time goes into.

use std::collections::BTreeMap;
use std::sync::Mutex;

use longhaul_connection::Spent;
use longhaul_sys::clock;
use longhaul_sys::host::{Scheduling, SchedulingSampler};
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, Instant};

/// Threads that do the same work. Whoever wants to know asks the kernel about them; they
/// themselves only say when they have nothing to do.
#[derive(Debug, Default)]
pub struct Crew {
    members: Mutex<Members>,
    rests: Mutex<Rests>,
}

#[derive(Debug, Default)]
struct Members {
    present: BTreeMap<u64, Member>,
    joined: u64,
    /// What those who have left had spent.
    left: Spent,
}

#[derive(Debug)]
struct Member {
    sampler: SchedulingSampler,
    begin: Scheduling,
    since: Instant,
    /// What the kernel told last, and when that was new.
    told: (Scheduling, Instant),
}

/// Time that threads waited for work, up to now: if it counted only once it is over, all of it would
/// fall into the span in which it ends.
#[derive(Debug, Default)]
struct Rests {
    total: Duration,
    until: Instant,
    /// How many rest now.
    present: u32,
    /// How many there are, and how long any of them had something to do.
    members: u32,
    busy: Duration,
}

impl Rests {
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

impl Crew {
    /// The calling thread belongs to it until the guard is dropped. Where the kernel does not tell
    /// how it schedules, it does not count.
    pub fn join(&self) -> Membership<'_> {
        let sampler = SchedulingSampler::of_this_thread();
        let member = sampler.and_then(|sampler| {
            let (begin, since) = (sampler.sample()?, clock::now());
            Ok(Member { sampler, begin, since, told: (begin, since) })
        });
        lock(&self.rests).join(clock::now());
        let mut members = lock(&self.members);
        members.joined += 1;
        let number = members.joined;
        if let Ok(member) = member {
            members.present.insert(number, member);
        }
        Membership { crew: self, number }
    }

    /// Waits for work: by `wait`.
    pub fn rest<T>(&self, wait: impl FnOnce() -> T) -> T {
        lock(&self.rests).begin(clock::now());
        let result = wait();
        lock(&self.rests).end(clock::now());
        result
    }

    /// What it has spent so far.
    pub fn spent(&self) -> Spent {
        let now = clock::now();
        let mut members = lock(&self.members);
        let mut spent = members.left;
        for member in members.present.values_mut() {
            spent += member.spent(now);
        }
        spent.idle = lock(&self.rests).update(clock::now());
        spent
    }

    /// How long any of its threads had something to do, in all.
    pub fn busy(&self) -> Duration {
        let mut rests = lock(&self.rests);
        rests.update(clock::now());
        rests.busy
    }
}

impl Member {
    fn spent(&mut self, now: Instant) -> Spent {
        // One that cannot be asked any more is about to leave.
        let told = self.sampler.sample().unwrap_or(self.told.0);
        if told != self.told.0 {
            self.told = (told, now);
        }
        // Of the time that it waits for a processor the kernel tells when it has got one.
        let waits = match self.sampler.is_ready() {
            Ok(true) => now - self.told.1,
            Ok(false) | Err(_) => Duration::ZERO,
        };
        let used = told.since(self.begin);
        let ready = used.wait + waits;
        Spent { alive: now - self.since, run: used.run, ready, idle: Duration::ZERO }
    }
}

/// That a thread belongs to a crew.
#[derive(Debug)]
pub struct Membership<'c> {
    crew: &'c Crew,
    number: u64,
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        lock(&self.crew.rests).leave(clock::now());
        let mut members = lock(&self.crew.members);
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
        let mut rests = Rests::default();
        rests.begin(at(1000));
        rests.begin(at(1010));
        assert_eq!(rests.update(at(1020)), ms(30));
        rests.end(at(1030));
        assert_eq!(rests.update(at(1130)), ms(150));
        rests.end(at(1130));
        assert_eq!(rests.update(at(9000)), ms(150));
        // Of two threads one reads the clock first, and is the second to tell.
        rests.begin(at(8990));
        assert_eq!(rests.update(at(9010)), ms(160));
    }

    #[test]
    fn a_crew_is_busy_while_any_of_its_threads_is() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut rests = Rests::default();
        for change in [Rests::join, Rests::join, Rests::begin] {
            change(&mut rests, at(1000));
        }
        rests.begin(at(1010));
        rests.end(at(1030));
        rests.begin(at(1035));
        rests.update(at(2000));
        assert_eq!(rests.busy, ms(15));
    }

    #[test]
    fn time_is_counted_while_threads_live_and_kept_when_they_leave() {
        let crew = Crew::default();
        let before = crew.spent();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _joined = crew.join();
                crew.rest(|| std::thread::sleep(std::time::Duration::from_millis(20)));
                let start = clock::thread_cpu_time();
                while clock::thread_cpu_time() < start + ms(20) {}
            });
        });
        let spent = crew.spent().since(before);
        assert!(spent.idle >= ms(20) && spent.alive >= ms(40), "{spent:?}");
        // The kernel brings its account up to date at each tick.
        assert!(spent.run >= ms(10), "{spent:?}");
        assert_eq!(crew.spent().since(before), spent, "nobody is left");
    }
}
