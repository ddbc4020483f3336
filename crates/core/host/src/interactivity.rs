use longhaul_units::Duration;

/// Account of a scheduler of how interactive a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Account {
    /// Linux 2.6's O(1) scheduler.
    Linux26(SleepAverage),
    /// FreeBSD's ULE.
    Ule(RunAndSleep),
}

impl Account {
    /// Favour that the task has, in steps; higher is better. 2.6's dynamic priority (-5 to 5), and for
    /// ULE the tens that its score is below 100 (0 to 10).
    pub fn level(&self) -> i32 {
        match self {
            Self::Linux26(average) => average.dynamic(),
            Self::Ule(history) => ((RunAndSleep::MOST - history.score()) / 10) as i32,
        }
    }

    /// The sleep that made it so.
    pub fn sleep(&self) -> Duration {
        match self {
            Self::Linux26(average) => average.get(),
            Self::Ule(history) => history.sleep,
        }
    }

    /// The task ran.
    pub fn ran(&mut self, time: Duration) {
        match self {
            Self::Linux26(average) => average.ran(time),
            Self::Ule(history) => history.ran(time),
        }
    }

    /// It slept.
    pub fn slept(&mut self, time: Duration) {
        match self {
            Self::Linux26(average) => average.slept(time),
            Self::Ule(history) => history.slept(time),
        }
    }
}

/// The account from which Linux 2.6.12 tells interactive tasks from others: its sleep average.
///
/// Sleep is credited, times the bonus that the task lacks, and running is charged, divided by the
/// bonus that it has; the bonus, 0 to 10, is the share of the average of its maximum, a second. Five less is what is added
/// to the priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SleepAverage(Duration);

impl SleepAverage {
    /// The largest average: NS_MAX_SLEEP_AVG.
    pub const MOST: Duration = Duration::from_secs(1);
    /// The largest bonus: MAX_BONUS.
    pub const MOST_BONUS: u32 = 10;
    /// At nice 0 a task with this bonus or more is interactive: two priorities above its own.
    pub const INTERACTIVE_BONUS: u32 = 7;

    /// An average.
    pub fn new(average: Duration) -> Self {
        Self(average.min(Self::MOST))
    }

    /// The average itself.
    pub const fn get(self) -> Duration {
        self.0
    }

    /// 0 to 10: CURRENT_BONUS.
    pub const fn bonus(self) -> u32 {
        (self.0.as_nanos() * Self::MOST_BONUS as u128 / Self::MOST.as_nanos()) as u32
    }

    /// Bonus on the priority: -5 to 5, higher is better (the kernel's own numbers are inverted).
    pub const fn dynamic(self) -> i32 {
        self.bonus() as i32 - Self::MOST_BONUS as i32 / 2
    }

    /// Returns whether its time slices do not send it behind all others.
    pub const fn is_interactive(self) -> bool {
        self.bonus() >= Self::INTERACTIVE_BONUS
    }

    /// It slept: recalc_task_prio. Who slept for long is idle rather than interactive, and gets 900 ms.
    pub fn slept(&mut self, time: Duration) {
        if time > LONG_SLEEP {
            self.0 = IDLE;
        } else {
            let credit = time * (Self::MOST_BONUS - self.bonus()).max(1);
            self.0 = self.0.saturating_add(credit).min(Self::MOST);
        }
    }

    /// It ran: schedule().
    pub fn ran(&mut self, time: Duration) {
        let charge = time.min(Self::MOST) / self.bonus().max(1);
        self.0 = self.0.saturating_sub(charge);
    }
}

/// Times that a task ran and slept of late, and the score that ULE gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunAndSleep {
    run: Duration,
    sleep: Duration,
}

impl RunAndSleep {
    /// The worst score.
    pub const MOST: u32 = 100;
    /// A task with less is interactive.
    pub const INTERACTIVE: u32 = 30;

    /// Ran for so long.
    pub fn ran(&mut self, time: Duration) {
        self.run = self.run.saturating_add(time);
        self.forget();
    }

    /// Slept for so long.
    pub fn slept(&mut self, time: Duration) {
        self.sleep = self.sleep.saturating_add(time.min(HISTORY));
        self.forget();
    }

    /// 0 to 100, lower is more interactive: m run / sleep where it slept more than it ran, else
    /// 2m - m sleep / run, with m = 50 (RAPID 3.2; the second case is misprinted there).
    pub fn score(&self) -> u32 {
        let half = u128::from(Self::MOST / 2);
        let (run, sleep) = (self.run.as_nanos(), self.sleep.as_nanos());
        let score = match sleep > run {
            true => half * run / sleep,
            false if run == 0 => 0,
            false => 2 * half - half * sleep / run,
        };
        score as u32
    }

    /// Takes a fifth off both once they exceed five seconds together.
    fn forget(&mut self) {
        if self.run + self.sleep > HISTORY {
            self.run = self.run * 4 / 5;
            self.sleep = self.sleep * 4 / 5;
        }
    }
}

/// INTERACTIVE_SLEEP at nice 0 and HZ=1000.
const LONG_SLEEP: Duration = Duration::from_millis(799);
/// MAX_SLEEP_AVG less a time slice.
const IDLE: Duration = Duration::from_millis(900);

/// SCHED_SLP_RUN_MAX.
const HISTORY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_costs_less_and_sleep_brings_less_the_better_the_bonus() {
        let ms = Duration::from_millis;
        let mut average = SleepAverage::new(ms(900));
        assert_eq!((average.bonus(), average.dynamic()), (9, 4));
        average.ran(ms(9));
        assert_eq!(average.get(), ms(899));
        average.slept(ms(10));
        assert_eq!(average.get(), ms(919), "times two at a bonus of eight");
        let mut average = SleepAverage::new(ms(0));
        average.ran(ms(50));
        assert_eq!((average.get(), average.dynamic()), (ms(0), -5));
        average.slept(ms(100));
        assert_eq!(average.get(), ms(1_000), "100 ms make anybody interactive");
        average.slept(ms(800));
        assert_eq!(average.get(), ms(900), "idle");
    }

    #[test]
    fn a_level_takes_a_tenth_of_a_second_times_the_bonus() {
        let mut average = SleepAverage::new(Duration::from_millis(999));
        let mut levels = [0u32; 10];
        while average.bonus() > 0 {
            levels[average.bonus() as usize] += 1;
            average.ran(Duration::from_millis(1));
        }
        for bonus in 1..10u32 {
            let expected = 100 * bonus;
            assert!(levels[bonus as usize].abs_diff(expected) <= bonus + 1, "{levels:?}");
        }
    }

    #[test]
    fn the_score_is_fifty_where_run_and_sleep_are_equal() {
        let score = |run, sleep| {
            let ms = Duration::from_millis;
            RunAndSleep { run: ms(run), sleep: ms(sleep) }.score()
        };
        assert_eq!(score(0, 0), 0);
        assert_eq!(score(10, 100), 5);
        assert_eq!(score(100, 101), 49);
        assert_eq!(score(100, 100), 50);
        assert_eq!(score(100, 10), 95);
        assert_eq!(score(100, 0), 100);
    }
}
