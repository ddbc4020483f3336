use alloc::collections::VecDeque;
use alloc::vec::Vec;

use longhaul_units::{Duration, Instant};

use super::{Scheduler, Task};
use crate::interactivity::{Account, SleepAverage};

/// The O(1) scheduler of Linux 2.6.12 at nice 0 and HZ=1000, the one that RAPID's authors ran: two arrays of queues, and
/// priorities that depend on how much a task sleeps.
///
/// The best priority of the active array runs. Whose time slice of 100 ms is used up goes to the expired
/// array, until the active one is empty; who is interactive does not. Modelled: sleep_avg with its
/// bonus, time slices, preemption on wake-up, the credit for waiting after an interrupt, granularity,
/// and the limit for starvation of the expired.
#[derive(Clone, Debug)]
pub struct O1 {
    tasks: Vec<Entity>,
    /// Queues by priority, the best first, of the active and the expired array.
    active: Queues,
    expired: Queues,
    /// Time when the first task expired.
    expired_since: Option<Instant>,
}

type Queues = Vec<VecDeque<Task>>;

#[derive(Clone, Copy, Debug)]
struct Entity {
    average: SleepAverage,
    /// Time when it last began to run, or to wait.
    timestamp: Instant,
    /// Ticks left of its slice.
    slice: u32,
    /// 0 to 10, 0 the best.
    priority: usize,
    /// Where it is, while awake.
    queue: Option<Which>,
    /// It was woken by an interrupt, and its wait for the processor counts as sleep.
    just_woken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    Active,
    Expired,
}

impl O1 {
    /// With no task.
    pub fn new() -> Self {
        let queues = || (0..=SleepAverage::MOST_BONUS).map(|_| VecDeque::new()).collect();
        Self { tasks: Vec::new(), active: queues(), expired: queues(), expired_since: None }
    }

    fn put(&mut self, task: Task, which: Which) {
        let entity = &mut self.tasks[task];
        entity.queue = Some(which);
        let queues = if which == Which::Active { &mut self.active } else { &mut self.expired };
        queues[entity.priority].push_back(task);
    }

    fn remove(&mut self, task: Task) {
        let entity = &mut self.tasks[task];
        let queues = match entity.queue.take() {
            Some(Which::Active) => &mut self.active,
            Some(Which::Expired) => &mut self.expired,
            None => return,
        };
        queues[entity.priority].retain(|other| *other != task);
    }

    fn is_starving(&self, now: Instant) -> bool {
        let awake = self.tasks.iter().filter(|task| task.queue.is_some()).count() as u32;
        self.expired_since.is_some_and(|since| now - since >= STARVATION * awake)
    }

    fn next(&self) -> Option<Task> {
        self.active.iter().find_map(|queue| queue.front().copied())
    }
}

impl Entity {
    fn recompute(&mut self) {
        self.priority = (SleepAverage::MOST_BONUS - self.average.bonus()) as usize;
    }
}

impl Default for O1 {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheduler for O1 {
    fn tick_length(&self) -> Duration {
        TICK
    }

    fn add(&mut self, now: Instant) {
        let mut entity = Entity {
            // A child of a shell that slept: 95 % of its parent's bonus (wake_up_new_task), which was 10.
            average: SleepAverage::new(Duration::from_millis(900)),
            timestamp: now,
            slice: SLICE,
            priority: 0,
            queue: None,
            just_woken: false,
        };
        entity.recompute();
        self.tasks.push(entity);
    }

    fn charge(&mut self, _task: Task, _ran: Duration) {}

    fn wake(&mut self, now: Instant, task: Task, running: Option<Task>) -> bool {
        let entity = &mut self.tasks[task];
        let slept = now - entity.timestamp;
        if !slept.is_zero() {
            entity.average.slept(slept.min(SleepAverage::MOST));
        }
        entity.recompute();
        entity.just_woken = true;
        entity.timestamp = now;
        self.put(task, Which::Active);
        running.is_none_or(|running| self.tasks[task].priority < self.tasks[running].priority)
    }

    fn sleep(&mut self, _now: Instant, task: Task) {
        self.remove(task);
    }

    fn tick(&mut self, now: Instant, running: Task) -> bool {
        let starving = self.is_starving(now);
        let entity = &mut self.tasks[running];
        if entity.queue == Some(Which::Expired) {
            return true;
        }
        entity.slice -= 1;
        let interactive = |entity: &Entity| {
            SleepAverage::MOST_BONUS - entity.priority as u32 >= SleepAverage::INTERACTIVE_BONUS
        };
        if entity.slice == 0 {
            self.remove(running);
            let entity = &mut self.tasks[running];
            entity.recompute();
            entity.slice = SLICE;
            let stays = interactive(entity) && !starving;
            if !stays {
                self.expired_since.get_or_insert(now);
            }
            self.put(running, if stays { Which::Active } else { Which::Expired });
            return true;
        }
        // Interactive tasks of one priority take turns that are shorter than a slice.
        let lacking = SleepAverage::MOST_BONUS - entity.average.bonus();
        let granularity = GRANULARITY << (lacking.max(1) - 1);
        let used = SLICE - entity.slice;
        if interactive(entity) && used.is_multiple_of(granularity) && entity.slice >= granularity {
            self.remove(running);
            self.put(running, Which::Active);
            return true;
        }
        false
    }

    fn pick(&mut self, now: Instant, ran: Option<Task>) -> Option<Task> {
        if let Some(ran) = ran {
            let entity = &mut self.tasks[ran];
            entity.average.ran(now - entity.timestamp);
            entity.timestamp = now;
        }
        if self.next().is_none() {
            core::mem::swap(&mut self.active, &mut self.expired);
            self.expired_since = None;
            for task in &mut self.tasks {
                task.queue = task.queue.map(|_| Which::Active);
            }
        }
        let next = self.next()?;
        let entity = &mut self.tasks[next];
        if core::mem::take(&mut entity.just_woken) {
            let waited = now - entity.timestamp;
            if !waited.is_zero() {
                entity.average.slept(waited.min(SleepAverage::MOST));
                self.remove(next);
                self.tasks[next].recompute();
                self.put(next, Which::Active);
            }
        }
        self.tasks[next].timestamp = now;
        Some(next)
    }

    fn account(&self, task: Task) -> Option<Account> {
        Some(Account::Linux26(self.tasks[task].average))
    }
}

const TICK: Duration = Duration::from_millis(1);
/// DEF_TIMESLICE at nice 0.
const SLICE: u32 = 100;
/// GRANULARITY; doubled for each bonus that is lacking.
const GRANULARITY: u32 = 10;
/// STARVATION_LIMIT, for each task that is awake.
const STARVATION: Duration = Duration::from_secs(1);
