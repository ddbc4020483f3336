use alloc::collections::VecDeque;
use alloc::vec::Vec;

use longhaul_units::{Duration, Instant};

use super::{Scheduler, Task};
use crate::interactivity::{Account, RunAndSleep};

/// FreeBSD 5's ULE at nice 0 (Roberson, BSDCon 2003): a current and a next queue, and a score of how
/// interactive a task is.
#[derive(Clone, Debug, Default)]
pub struct Ule {
    tasks: Vec<Entity>,
    /// The best score first.
    current: VecDeque<Task>,
    next: VecDeque<Task>,
}

#[derive(Clone, Copy, Debug)]
struct Entity {
    history: RunAndSleep,
    since: Instant,
    /// Ticks left.
    slice: u32,
}

impl Ule {
    /// With no task.
    pub fn new() -> Self {
        Self::default()
    }

    fn is_interactive(&self, task: Task) -> bool {
        self.tasks[task].history.score() < RunAndSleep::INTERACTIVE
    }

    /// Behind all of its score or a better one in the current queue, or at the end of the next.
    fn put(&mut self, task: Task, to_current: bool) {
        if !to_current {
            self.next.push_back(task);
            return;
        }
        let score = self.tasks[task].history.score();
        let before = |other: &Task| self.tasks[*other].history.score() <= score;
        let place = self.current.iter().take_while(|other| before(other)).count();
        self.current.insert(place, task);
    }

    fn remove(&mut self, task: Task) {
        self.current.retain(|other| *other != task);
        self.next.retain(|other| *other != task);
    }
}

impl Scheduler for Ule {
    fn tick_length(&self) -> Duration {
        TICK
    }

    fn add(&mut self, now: Instant) {
        let history = RunAndSleep::default();
        self.tasks.push(Entity { history, since: now, slice: INTERACTIVE_SLICE });
    }

    fn charge(&mut self, task: Task, ran: Duration) {
        self.tasks[task].history.ran(ran);
    }

    fn wake(&mut self, now: Instant, task: Task, running: Option<Task>) -> bool {
        let entity = &mut self.tasks[task];
        entity.history.slept(now - entity.since);
        entity.slice = if entity.history.score() < RunAndSleep::INTERACTIVE {
            INTERACTIVE_SLICE
        } else {
            SLICE
        };
        let interactive = self.is_interactive(task);
        self.put(task, interactive);
        let score = |task: Task| self.tasks[task].history.score();
        running.is_none_or(|running| interactive && score(task) < score(running))
    }

    fn sleep(&mut self, now: Instant, task: Task) {
        self.remove(task);
        self.tasks[task].since = now;
    }

    fn tick(&mut self, _now: Instant, running: Task) -> bool {
        let entity = &mut self.tasks[running];
        entity.slice -= 1;
        if entity.slice > 0 {
            return false;
        }
        let interactive = self.is_interactive(running);
        self.tasks[running].slice = if interactive { INTERACTIVE_SLICE } else { SLICE };
        self.remove(running);
        self.put(running, interactive);
        true
    }

    fn pick(&mut self, _now: Instant, _ran: Option<Task>) -> Option<Task> {
        if self.current.is_empty() {
            core::mem::swap(&mut self.current, &mut self.next);
        }
        self.current.front().copied()
    }

    fn account(&self, task: Task) -> Option<Account> {
        Some(Account::Ule(self.tasks[task].history))
    }
}

/// HZ=100.
const TICK: Duration = Duration::from_millis(10);
/// SCHED_SLICE_MIN: 10 ms; SCHED_SLICE_MAX: 140 ms.
const INTERACTIVE_SLICE: u32 = 1;
const SLICE: u32 = 14;
