use alloc::vec::Vec;

use longhaul_units::{Duration, Instant};

use super::{Scheduler, Task};

/// Earliest eligible virtual deadline first (Stoica and Abdel-Wahab, 1995), as Linux has it since 6.6.
///
/// A task is eligible that has had no more than its share; of those the one with the earliest deadline
/// runs. Who has begun a slice, and is eligible, is protected until the slice is used (RUN_TO_PARITY). That
/// is noticed at a tick, or when some other task wakes up, so beside a loop a turn lasts a tick
/// rather than a slice: 4.1 ms measured at HZ=250, where a slice is 1.4 ms. A reader has the processor as
/// soon as it wakes up while it is owed time; but that is frozen while it sleeps, so once it has run for what it was owed it
/// waits again, for a tick of each loop that comes first, however little it uses.
#[derive(Clone, Debug)]
pub struct Eevdf {
    tick: Duration,
    slice: i64,
    tasks: Vec<Entity>,
    /// Virtual time where nobody runs.
    idle_at: i64,
}

/// Virtual times in nanoseconds; all weights are one.
#[derive(Clone, Copy, Debug)]
struct Entity {
    runs_at: i64,
    deadline: i64,
    awake: bool,
    /// Lag when it went to sleep, and when that was.
    lag: i64,
    slept_at: i64,
}

impl Eevdf {
    /// Scheduler of a kernel with this tick, and slices of `slice`.
    pub fn new(tick: Duration, slice: Duration) -> Self {
        Self { tick, slice: slice.as_nanos() as i64, tasks: Vec::new(), idle_at: 0 }
    }

    /// As measured on Linux 6.18 with two processors: HZ=250, 1.4 ms.
    pub fn linux() -> Self {
        Self::new(Duration::from_millis(4), Duration::from_micros(1_400))
    }

    /// Mean virtual time of those that are awake, and their number.
    fn mean(&self) -> (i64, i64) {
        let awake = self.tasks.iter().filter(|task| task.awake);
        let (sum, count) =
            awake.fold((0i128, 0i64), |(sum, n), task| (sum + i128::from(task.runs_at), n + 1));
        match count {
            0 => (self.idle_at, 0),
            _ => ((sum / i128::from(count)) as i64, count),
        }
    }

    /// Begins the next slice where this one is used; whether it was.
    fn renew(&mut self, task: Task) -> bool {
        let task = &mut self.tasks[task];
        let used = task.runs_at >= task.deadline;
        if used {
            task.deadline = task.runs_at + self.slice;
        }
        used
    }

    /// The mean is rounded down: who is at it is eligible.
    fn is_eligible(&self, task: Task) -> bool {
        self.tasks[task].runs_at <= self.mean().0 + 1
    }

    fn best(&self) -> Option<Task> {
        let awake = (0..self.tasks.len()).filter(|task| self.tasks[*task].awake);
        let eligible = awake.filter(|task| self.is_eligible(*task));
        eligible.min_by_key(|task| (self.tasks[*task].deadline, *task))
    }
}

impl Scheduler for Eevdf {
    fn tick_length(&self) -> Duration {
        self.tick
    }

    fn add(&mut self, _now: Instant) {
        let runs_at = self.mean().0;
        self.tasks.push(Entity {
            runs_at,
            deadline: runs_at + self.slice,
            awake: false,
            lag: 0,
            slept_at: runs_at,
        });
    }

    fn charge(&mut self, task: Task, ran: Duration) {
        self.tasks[task].runs_at += ran.as_nanos() as i64;
    }

    fn wake(&mut self, _now: Instant, task: Task, running: Option<Task>) -> bool {
        let (mean, count) = self.mean();
        // Lag is kept over a sleep (PLACE_LAG): at most two slices or a tick that the task is owed; what it
        // owes is paid by waiting (DELAY_DEQUEUE, DELAY_ZERO). Its own weight moves the mean.
        let Entity { lag, slept_at, .. } = self.tasks[task];
        let most = (2 * self.slice).max(self.tick.as_nanos() as i64);
        let lag = if lag > 0 { lag.min(most) } else { (lag + mean - slept_at).min(0) };
        let placed = mean - if count > 0 { lag * (count + 1) / count } else { lag };
        let entity = &mut self.tasks[task];
        (entity.runs_at, entity.deadline, entity.awake) = (placed, placed + self.slice, true);
        match running {
            Some(running) => {
                let protected = !self.renew(running) && self.is_eligible(running);
                !protected && self.best() == Some(task)
            }
            None => true,
        }
    }

    fn sleep(&mut self, _now: Instant, task: Task) {
        let (mean, _) = self.mean();
        self.idle_at = self.idle_at.max(mean);
        let entity = &mut self.tasks[task];
        (entity.lag, entity.slept_at, entity.awake) = (mean - entity.runs_at, mean, false);
    }

    fn tick(&mut self, _now: Instant, running: Task) -> bool {
        self.renew(running)
    }

    fn pick(&mut self, _now: Instant, _ran: Option<Task>) -> Option<Task> {
        self.best()
    }
}
