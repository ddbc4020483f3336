use longhaul_units::{Duration, Instant};

use crate::announcement::Announcement;
use crate::interactivity::{Account, SleepAverage};
use crate::signals::{Socket, Turn};
use crate::suspend::Suspends;

/// RAPID's task priority monitoring process (figure 4 of the paper): it learns at which level of
/// interactivity the reader stops reading, and asks the sender for silence one level before.
///
/// The account is the scheduler's own where one has it ([`Rapid::handle_account`]). Today's kernels have none; then a
/// shadow of Linux 2.6.12's account is kept here, fed with the samples of today's schedstat
/// ([`Rapid::handle_turn`]): sleep is the time that was neither run nor run delay.
#[derive(Clone, Debug)]
pub struct Rapid {
    config: RapidConfig,
    round_trip: Duration,
    account: Account,
    /// `account` is the scheduler's own.
    is_scheduler_account: bool,
    next_poll: Instant,
    last_turn: Instant,
    /// The best level and the longest average sleep seen: MAX_PRIO and MAX_AVG_SLEEP.
    best: Option<(i32, Duration)>,
    /// ERROR_PRIO.
    error: Option<i32>,
    /// The level at the last poll, when it was entered, and the time that a level took going down.
    level: Option<(i32, Instant)>,
    level_time: Option<Duration>,
    /// Something was read since the last poll.
    has_read: bool,
    /// Something has come at all.
    receiving: bool,
    /// Something waited in the socket at the last look; nobody knows where nobody looks.
    waiting: Option<bool>,
    /// Until then silence is of our own making, and nothing more is asked for.
    silent_until: Instant,
    suspends: Suspends,
}

/// Configuration of [`Rapid`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RapidConfig {
    /// POLLING_TIME. The paper gives none. Silence is seen only where a turn of others lasts longer: they last 4 ms
    /// today, and lasted 10 ms on its kernel.
    pub polling: Duration,
    /// Account with which the shadow begins.
    pub account: Account,
}

impl Default for RapidConfig {
    /// Linux 2.6, whose tasks begin with nine tenths of the bonus.
    fn default() -> Self {
        let average = SleepAverage::new(Duration::from_millis(900));
        Self { polling: Duration::from_millis(2), account: Account::Linux26(average) }
    }
}

impl Rapid {
    /// A process that has learnt nothing.
    pub fn new(now: Instant, config: RapidConfig) -> Self {
        Self {
            config,
            round_trip: Duration::ZERO,
            account: config.account,
            is_scheduler_account: false,
            next_poll: now + config.polling,
            last_turn: now,
            best: None,
            error: None,
            level: None,
            level_time: None,
            has_read: false,
            receiving: false,
            waiting: None,
            silent_until: now,
            suspends: Suspends::default(),
        }
    }

    /// Sets the time after which an announcement shows.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }

    /// Takes the reader's run time and waits since the last such sample; for the shadow.
    pub fn handle_turn(&mut self, now: Instant, turn: &Turn) {
        let elapsed = now - self.last_turn;
        self.last_turn = now;
        if self.is_scheduler_account {
            return;
        }
        let sleep = elapsed.saturating_sub(turn.run).saturating_sub(turn.wait);
        if !sleep.is_zero() {
            self.account.slept(sleep);
        }
        self.account.ran(turn.run);
    }

    /// The scheduler's own account of the reader.
    pub fn handle_account(&mut self, account: Account) {
        self.account = account;
        self.is_scheduler_account = true;
    }

    /// The reader read: the bit that it sets for the monitor.
    pub fn handle_read(&mut self) {
        self.has_read = true;
        self.receiving = true;
    }

    /// A look at the reader's socket. Silence with nothing in it is the sender's: between two rounds, or
    /// since it was late.
    pub fn handle_socket(&mut self, socket: &Socket) {
        self.waiting = Some(socket.queued > 0);
    }

    /// Returns when to poll: every POLLING_TIME.
    pub fn next_timeout(&self) -> Option<Instant> {
        Some(self.next_poll)
    }

    /// The level at which the reader was found not to read, once it was.
    pub fn error_level(&self) -> Option<i32> {
        self.error
    }

    /// Suspends that were announced so far.
    pub fn suspends(&self) -> Suspends {
        self.suspends
    }

    /// Step 2 of the algorithm, where its time has come.
    pub fn poll_announcement(&mut self, now: Instant) -> Option<Announcement> {
        if now < self.next_poll {
            return None;
        }
        self.next_poll = now + self.config.polling;
        let (level, sleep) = (self.account.level(), self.account.sleep());
        self.time_levels(now, level);
        // (b)
        let (best, most) = self.best.unwrap_or((level, sleep));
        let (best, most) = (best.max(level), most.max(sleep));
        self.best = Some((best, most));
        let has_read = core::mem::take(&mut self.has_read);
        if now < self.silent_until {
            return None;
        }
        // (c), (d)
        if !has_read && self.receiving && self.waiting != Some(false) {
            self.error = Some(level);
        } else if !self.is_near(now, level) {
            return None;
        }
        // (e): by how much the average fell with each level.
        let levels = u32::try_from(best - level).ok().filter(|levels| *levels > 0)?;
        let lasts = most.checked_sub(sleep).filter(|lost| !lost.is_zero())? / levels;
        // A packet that is sent when the silence is over comes a round trip behind the announcement; one
        // poll has to pass without it.
        self.silent_until = now + lasts + self.round_trip + self.config.polling;
        self.suspends.count += 1;
        self.suspends.total = self.suspends.total.saturating_add(lasts);
        self.suspends.longest = self.suspends.longest.max(lasts);
        Some(Announcement::Suspend { lasts })
    }

    /// Returns whether the level at which errors occur is so near that it is time to speak: the next one, or a
    /// round trip away where levels change faster than that (section 3.4).
    fn is_near(&self, now: Instant, level: i32) -> bool {
        let Some(error) = self.error else { return false };
        if level - 1 <= error {
            return true;
        }
        let Some((level_time, (_, since))) = self.level_time.zip(self.level) else { return false };
        let left = u32::try_from(level - error).unwrap_or(u32::MAX);
        let until = level_time.saturating_mul(left).saturating_sub(now - since);
        self.round_trip > level_time && until <= self.round_trip
    }

    /// Measures how long a level lasts on the way down.
    fn time_levels(&mut self, now: Instant, level: i32) {
        let Some((last, since)) = self.level else {
            self.level = Some((level, now));
            return;
        };
        if level == last {
            return;
        }
        if level < last && self.receiving {
            let each = (now - since) / (last - level).unsigned_abs();
            self.level_time = Some(self.level_time.map_or(each, |mean| (mean * 3 + each) / 4));
        }
        self.level = Some((level, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn average(ms: u64) -> Account {
        Account::Linux26(SleepAverage::new(Duration::from_millis(ms)))
    }

    /// Polls at `ms` with this average; reads before that if `has_read`.
    fn poll(rapid: &mut Rapid, at_ms: u64, sleep_ms: u64, has_read: bool) -> Option<Announcement> {
        rapid.handle_account(average(sleep_ms));
        if has_read {
            rapid.handle_read();
        }
        rapid.poll_announcement(at(at_ms))
    }

    #[test]
    fn the_first_silence_teaches_the_level_and_the_next_is_prevented_one_level_before() {
        let mut rapid = Rapid::new(at(0), RapidConfig::default());
        assert_eq!(poll(&mut rapid, 10, 950, false), None, "nothing has come yet");
        assert_eq!(poll(&mut rapid, 20, 900, true), None);
        assert_eq!(poll(&mut rapid, 30, 450, true), None, "nothing is known of errors");
        // Level -1 after 4: 550 ms of average were lost over five levels.
        let announcement = poll(&mut rapid, 40, 400, false);
        assert_eq!(announcement, Some(Announcement::Suspend { lasts: ms(550) / 5 }));
        assert_eq!(rapid.error_level(), Some(-1));
        assert_eq!(poll(&mut rapid, 100, 390, false), None, "silent because it was asked for");
        assert_eq!(rapid.error_level(), Some(-1));
        assert_eq!(poll(&mut rapid, 200, 700, true), None);
        let announcement = poll(&mut rapid, 210, 590, true);
        assert_eq!(
            announcement,
            Some(Announcement::Suspend { lasts: ms(360) / 4 }),
            "one level early"
        );
    }

    #[test]
    fn silence_between_rounds_and_at_the_best_level_asks_for_nothing() {
        let mut rapid = Rapid::new(at(0), RapidConfig::default());
        poll(&mut rapid, 10, 900, true);
        rapid.handle_socket(&Socket::default());
        assert_eq!(poll(&mut rapid, 20, 300, false), None);
        assert_eq!(rapid.error_level(), None);
        rapid.handle_socket(&Socket { queued: 1, ..Socket::default() });
        assert_eq!(poll(&mut rapid, 30, 900, true), None);
        assert_eq!(
            poll(&mut rapid, 40, 900, false),
            None,
            "no sleep was lost: nothing to divide by"
        );
        assert_eq!(rapid.error_level(), Some(4));
    }

    #[test]
    fn on_a_long_path_it_speaks_a_round_trip_before_the_level_is_reached() {
        let mut rapid = Rapid::new(at(0), RapidConfig::default());
        rapid.set_round_trip(ms(250));
        rapid.error = Some(-4);
        // A level each 100 ms, going down from 4.
        let first = (1..100).find_map(|tick| {
            let sleep = 999 - tick * 10;
            poll(&mut rapid, tick * 10, sleep, true).map(|_| (tick * 10, sleep))
        });
        let (when, sleep) = first.unwrap();
        // Level -4 is entered at an average of 199 ms, at 800 ms.
        assert!((540..=560).contains(&when), "{when} at {sleep}");
    }

    #[test]
    fn the_shadow_sinks_while_the_reader_runs_and_recovers_while_it_sleeps() {
        let mut rapid = Rapid::new(at(0), RapidConfig::default());
        let busy = Turn { run: ms(9), wait: ms(1), turns: 1 };
        (1..=400).for_each(|tick| rapid.handle_turn(at(tick * 10), &busy));
        assert_eq!(rapid.account.level(), -4, "{:?}", rapid.account);
        rapid.handle_turn(at(4_100), &Turn::default());
        assert!(rapid.account.level() >= 3, "{:?}", rapid.account);
    }
}
