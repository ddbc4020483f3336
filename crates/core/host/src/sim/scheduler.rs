use core::fmt::Debug;

use longhaul_units::{Duration, Instant};

use crate::interactivity::Account;

mod eevdf;
mod o1;
mod ule;

pub use eevdf::Eevdf;
pub use o1::O1;
pub use ule::Ule;

/// A task, by its place.
pub type Task = usize;

/// Decides which task has the processor: one processor, tasks of equal weight (nice 0).
///
/// The host calls [`Scheduler::charge`] before anything else that it tells at an instant.
pub trait Scheduler: Debug {
    /// Between two ticks of its clock.
    fn tick_length(&self) -> Duration;

    /// There is one more task, asleep.
    fn add(&mut self, now: Instant);

    /// The running task ran for so long.
    fn charge(&mut self, task: Task, ran: Duration);

    /// The task has something to do; whether it should have the processor at once.
    fn wake(&mut self, now: Instant, task: Task, running: Option<Task>) -> bool;

    /// The task has nothing to do any more.
    fn sleep(&mut self, now: Instant, task: Task);

    /// A tick while a task runs; whether another one should be looked for.
    fn tick(&mut self, now: Instant, running: Task) -> bool;

    /// Picks the next task; the one that ran until now may be asleep.
    fn pick(&mut self, now: Instant, ran: Option<Task>) -> Option<Task>;

    /// Its account of how interactive a task is, where it keeps one.
    fn account(&self, _task: Task) -> Option<Account> {
        None
    }
}
