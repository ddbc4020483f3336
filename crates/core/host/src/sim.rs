//! Hosts as pure models (hostsim): a processor with its scheduler, loads that compete for it, a socket
//! buffer, a reader, writers. They give the samples that a [`crate::monitor::Monitor`] takes, and drop what
//! a real host would.
//!
//! One processor is modelled: the one on which the reader runs, with the interrupts that its packets bring and whatever
//! competes there. Samples that a sentinel takes come from another one, which is free.
//!
//! ```
//! use longhaul_host::sim::{Eevdf, Flow, Host, HostConfig, Load};
//! use longhaul_units::{Duration, Instant, Rate};
//!
//! let run = |loops| {
//!     let mut host = Host::new(Box::new(Eevdf::linux()), HostConfig::default());
//!     (0..loops).for_each(|_| host.add_load(Load::Loop));
//!     let mut flow = Flow::new(Rate::from_mbps(500), Duration::ZERO);
//!     flow.run(&mut host, Duration::from_secs(2), &mut ());
//!     host.counts().lost_share()
//! };
//! assert_eq!(run(0), 0.0);
//! assert!(run(2) > 0.01);
//! ```

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use longhaul_units::{Duration, Instant};

use crate::announcement::Announcement;
use crate::interactivity::Account;
use crate::monitor::Monitor;
use crate::rapid::Rapid;
use crate::signals::{Batch, Socket, ThreadId, Turn};

mod flow;
mod load;
mod scheduler;
mod socket;

pub use flow::{Control, Flow};
pub use load::Load;
pub use scheduler::{Eevdf, O1, Scheduler, Task, Ule};
pub use socket::{Packet, SocketBuffer};

use load::Progress;

/// Configuration of a [`Host`].
#[derive(Clone, PartialEq, Debug)]
pub struct HostConfig {
    /// `SK_MEMINFO_RCVBUF`.
    pub socket_buffer: u64,
    /// Processor time for each byte that the reader reads: 0.1 ns for one that only counts, 0.8 for one
    /// that decrypts.
    pub read_ns_per_byte: f64,
    /// And for each read.
    pub read_call: Duration,
    /// Bytes that one read takes at most.
    pub batch: u64,
    /// Processor time for each byte that is hashed and written, by a thread of its own.
    pub write_ns_per_byte: f64,
    /// Bytes that a writer takes at once.
    pub group: u64,
    /// Processor time of interrupts and protocols, for each packet or super-packet.
    pub interrupt: Duration,
    /// Packets that wait for a processor in front of the protocols (`netdev_max_backlog`).
    pub backlog: u32,
    /// Processor time of a change of tasks.
    pub switch: Duration,
    /// A control group with reader and writers has so much processor time, in each period of so long.
    pub quota: Option<(Duration, Duration)>,
    /// Time between looks of the sentinel, if there is one.
    pub sentinel: Option<Duration>,
}

impl HostConfig {
    /// A receiver that only counts what it reads, in reads of 64 KiB: the probe of
    /// docs/results/host-awareness.md.
    pub fn counting() -> Self {
        Self {
            read_ns_per_byte: 0.08,
            write_ns_per_byte: 0.0,
            group: u64::MAX,
            batch: 64 << 10,
            interrupt: Duration::from_micros(6),
            ..Self::default()
        }
    }
}

impl Default for HostConfig {
    /// A receiver that decrypts, verifies and writes to memory, behind 208 KiB: all in all 1.5 CPU-s/GB, as
    /// the measured 4.65 Gb/s on a processor of its own have it.
    fn default() -> Self {
        Self {
            socket_buffer: 212_992,
            read_ns_per_byte: 0.6,
            read_call: Duration::from_micros(2),
            batch: 256 << 10,
            write_ns_per_byte: 0.7,
            group: 1 << 20,
            interrupt: Duration::from_micros(10),
            backlog: 1_000,
            switch: Duration::from_micros(1),
            quota: None,
            sentinel: Some(Duration::from_millis(1)),
        }
    }
}

/// Outcome of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Read, and their bytes.
    pub datagrams: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Lost at the socket.
    pub socket_drops: u64,
    /// Lost in front of the protocols.
    pub backlog_drops: u64,
}

impl Counts {
    /// Lost of all that came.
    pub fn lost_share(&self) -> f64 {
        let lost = self.socket_drops + self.backlog_drops;
        match lost + self.datagrams {
            0 => 0.0,
            all => lost as f64 / all as f64,
        }
    }
}

/// A sample, as samplers of a real host take it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sample {
    /// For [`Monitor::handle_turn`].
    Turn(Turn),
    /// For [`Monitor::handle_batch`].
    Batch(Batch),
    /// For [`Monitor::handle_socket`].
    Socket(Socket),
    /// For [`Monitor::handle_absence`].
    Absence(Instant),
    /// For [`Monitor::handle_return`].
    Return,
    /// For [`Monitor::handle_throttled`].
    Throttled(Duration),
    /// For [`Rapid::handle_account`], where the scheduler keeps one.
    Account(Account),
}

impl Sample {
    /// Tells it.
    pub fn tell(&self, now: Instant, monitor: &mut Monitor) {
        match *self {
            Self::Turn(turn) => monitor.handle_turn(now, READER_THREAD, turn),
            Self::Batch(batch) => monitor.handle_batch(now, READER_THREAD, batch),
            Self::Socket(socket) => monitor.handle_socket(now, READER_THREAD, socket),
            Self::Absence(since) => monitor.handle_absence(now, READER_THREAD, since),
            Self::Return => monitor.handle_return(now, READER_THREAD),
            Self::Throttled(time) => monitor.handle_throttled(now, time),
            Self::Account(_) => {}
        }
    }
}

/// A host. It takes packets ([`Host::handle_packet`]) and time ([`Host::handle_timeout`], at
/// [`Host::next_timeout`]), and gives samples ([`Host::poll_sample`]).
#[derive(Debug)]
pub struct Host {
    config: HostConfig,
    scheduler: Box<dyn Scheduler>,
    tasks: Vec<TaskState>,
    running: Option<Task>,
    now: Instant,
    next_tick: Instant,
    next_look: Option<Instant>,
    /// Interrupts and changes of tasks that the processor has yet to work off.
    overhead: Duration,
    socket: SocketBuffer,
    /// Read, and waiting for a writer.
    unwritten: u64,
    quota: Option<Quota>,
    reader: ReaderState,
    samples: VecDeque<(Instant, Sample)>,
    counts: Counts,
    /// Turns of other tasks that are over, and times without loss, for figures.
    record: Record,
}

/// Raw data for figures.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Turns of loads: begin and length.
    pub turns: Vec<(Instant, Duration)>,
    /// Times when datagrams were lost.
    pub drops: Vec<Instant>,
}

#[derive(Clone, Debug)]
struct TaskState {
    work: Work,
    /// Of the present piece of work.
    left: Duration,
    is_awake: bool,
    /// Asleep until then.
    wakes: Option<Instant>,
    /// Awake, and not on the processor, since then.
    waits_since: Instant,
    runs_since: Instant,
    /// Sums that are never reset.
    run: Duration,
    wait: Duration,
    turns: u64,
}

#[derive(Clone, Debug)]
enum Work {
    Reader,
    Writer,
    Load { progress: Progress, pause: Duration },
}

#[derive(Clone, Copy, Debug)]
struct Quota {
    of: Duration,
    period: Duration,
    used: Duration,
    ends: Instant,
    throttled_since: Option<Instant>,
}

/// Samples of the reader that were reported, and an absence whose end is still to be reported.
#[derive(Clone, Copy, Debug, Default)]
struct ReaderState {
    cpu_at_batch: Duration,
    last_turn: Instant,
    run_reported: Duration,
    wait_reported: Duration,
    turns_reported: u64,
    drops_reported: u64,
    absence_reported: bool,
}

const READER: Task = 0;
const WRITER: Task = 1;
/// The reader, for a [`Monitor`].
const READER_THREAD: ThreadId = ThreadId(0);
/// The reader looks at its schedstat that often (end-system.md 1.2: 5 to 10 ms).
const TURN_LOOK: Duration = Duration::from_millis(10);
/// A sentinel says that a reader is away when it has been for this.
const LEAST_ABSENCE: Duration = Duration::from_micros(500);
/// Figures show the first so many.
const MOST_RECORDED: usize = 100_000;

impl Host {
    /// With a reader and a writer, and nothing beside them.
    pub fn new(scheduler: Box<dyn Scheduler>, config: HostConfig) -> Self {
        let now = Instant::ZERO;
        let quota = config.quota.map(|(of, period)| Quota {
            of,
            period,
            used: Duration::ZERO,
            ends: now + period,
            throttled_since: None,
        });
        let mut host = Self {
            next_tick: now + scheduler.tick_length(),
            next_look: config.sentinel.map(|every| now + every),
            socket: SocketBuffer::new(config.socket_buffer),
            config,
            scheduler,
            tasks: Vec::new(),
            running: None,
            now,
            overhead: Duration::ZERO,
            unwritten: 0,
            quota,
            reader: ReaderState::default(),
            samples: VecDeque::new(),
            counts: Counts::default(),
            record: Record::default(),
        };
        host.add(Work::Reader);
        host.add(Work::Writer);
        host
    }

    /// Another task, which begins now.
    pub fn add_load(&mut self, load: Load) {
        let mut progress = Progress::new(load);
        let (compute, pause) = progress.next();
        let task = self.add(Work::Load { progress, pause });
        self.tasks[task].left = compute;
        self.wake(task);
        self.settle();
    }

    fn add(&mut self, work: Work) -> Task {
        self.scheduler.add(self.now);
        self.tasks.push(TaskState {
            work,
            left: Duration::ZERO,
            is_awake: false,
            wakes: None,
            waits_since: self.now,
            runs_since: self.now,
            run: Duration::ZERO,
            wait: Duration::ZERO,
            turns: 0,
        });
        self.tasks.len() - 1
    }

    /// Outcome of datagrams so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Turns of loads and times of drops, the first of them.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The scheduler's account of the reader, where it keeps one (RAPID's authors patched their kernel to see it).
    pub fn account_of_reader(&self) -> Option<Account> {
        self.scheduler.account(READER)
    }

    /// Run and wait of the reader so far.
    pub fn reader_time(&self) -> (Duration, Duration) {
        let reader = &self.tasks[READER];
        let waits = reader.is_awake && self.running != Some(READER);
        let waiting = if waits { self.now - reader.waits_since } else { Duration::ZERO };
        (reader.run, reader.wait + waiting)
    }

    /// A packet came from the network, now.
    pub fn handle_packet(&mut self, now: Instant, datagrams: u32, size: u32) {
        self.advance(now);
        self.overhead += self.config.interrupt;
        if self.overhead > self.config.interrupt * self.config.backlog {
            self.overhead -= self.config.interrupt;
            self.counts.backlog_drops += u64::from(datagrams);
            self.record_drop();
            return;
        }
        if !self.socket.push(Packet { stamp: now, datagrams, size }) {
            self.counts.socket_drops += u64::from(datagrams);
            self.record_drop();
        } else if !self.tasks[READER].is_awake && !self.is_throttled() {
            self.wake(READER);
        }
        self.settle();
    }

    fn record_drop(&mut self) {
        if self.record.drops.len() < MOST_RECORDED {
            self.record.drops.push(self.now);
        }
    }

    /// Returns when something happens next.
    pub fn next_timeout(&self) -> Instant {
        let done = self.running.map(|task| self.now + self.overhead + self.tasks[task].left);
        let tick = self.running.map(|_| self.next_tick);
        let wakes = self.tasks.iter().filter_map(|task| task.wakes);
        let quota = self.quota.map(|quota| quota.ends);
        let next = [done, tick, quota, self.next_look, self.quota_used()];
        wakes.chain(next.into_iter().flatten()).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns when the group will have used its quota, if it goes on as now.
    fn quota_used(&self) -> Option<Instant> {
        let quota = self.quota.filter(|quota| quota.throttled_since.is_none())?;
        let runs = self.running.is_some_and(is_of_group);
        runs.then(|| self.now + (quota.of - quota.used.min(quota.of)))
    }

    fn is_throttled(&self) -> bool {
        self.quota.is_some_and(|quota| quota.throttled_since.is_some())
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        for task in 0..self.tasks.len() {
            if self.tasks[task].wakes.is_some_and(|wakes| wakes <= now) {
                self.tasks[task].wakes = None;
                self.wake(task);
            }
        }
        self.enforce_quota();
        if self.next_tick <= now {
            // Ticks that nobody ran through do not count.
            while self.next_tick <= now {
                self.next_tick += self.scheduler.tick_length();
            }
            if let Some(running) = self.running
                && self.scheduler.tick(now, running)
            {
                self.reschedule();
            }
        }
        self.settle();
        self.look();
    }

    /// The next sample, and when it was taken.
    pub fn poll_sample(&mut self) -> Option<(Instant, Sample)> {
        self.samples.pop_front()
    }

    /// The processor works from the last instant to this one.
    fn advance(&mut self, now: Instant) {
        let passed = now - self.now;
        self.now = now;
        let overhead = self.overhead.min(passed);
        self.overhead -= overhead;
        let Some(running) = self.running else { return };
        // As in most kernels interrupts are charged to whom they hit.
        let task = &mut self.tasks[running];
        task.left = task.left.saturating_sub(passed - overhead);
        task.run += passed;
        self.scheduler.charge(running, passed);
        if let Some(quota) = &mut self.quota
            && is_of_group(running)
        {
            quota.used += passed;
        }
    }

    fn wake(&mut self, task: Task) {
        if self.is_throttled() && is_of_group(task) {
            return;
        }
        self.tasks[task].is_awake = true;
        self.tasks[task].waits_since = self.now;
        if self.scheduler.wake(self.now, task, self.running) {
            self.reschedule();
        }
    }

    fn put_to_sleep(&mut self, task: Task) {
        self.tasks[task].is_awake = false;
        self.scheduler.sleep(self.now, task);
        if self.running == Some(task) {
            self.reschedule();
        }
    }

    fn reschedule(&mut self) {
        let next = self.scheduler.pick(self.now, self.running);
        if next == self.running {
            return;
        }
        self.overhead += self.config.switch;
        if let Some(last) = self.running {
            let task = &mut self.tasks[last];
            task.waits_since = self.now;
            let turn = (task.runs_since, self.now - task.runs_since);
            if last > WRITER && self.record.turns.len() < MOST_RECORDED {
                self.record.turns.push(turn);
            }
        }
        if let Some(next) = next {
            let task = &mut self.tasks[next];
            task.wait += self.now - task.waits_since;
            task.runs_since = self.now;
            task.turns += 1;
            if next == READER && core::mem::take(&mut self.reader.absence_reported) {
                self.samples.push_back((self.now, Sample::Return));
            }
        }
        self.running = next;
    }

    /// Gives the running task its next piece of work, until one has some, or nobody runs.
    fn settle(&mut self) {
        while let Some(running) = self.running
            && self.tasks[running].left.is_zero()
        {
            match &mut self.tasks[running].work {
                Work::Reader => self.read(),
                Work::Writer => self.write(),
                Work::Load { progress, pause } => {
                    let pause = core::mem::replace(pause, Duration::ZERO);
                    if pause.is_zero() {
                        let (compute, then) = progress.next();
                        *self.tasks[running].pause_mut() = then;
                        self.tasks[running].left = compute;
                        if compute.is_zero() && then.is_zero() {
                            self.tasks[running].left = Duration::from_micros(1);
                        }
                    } else {
                        self.tasks[running].wakes = Some(self.now + pause);
                        self.put_to_sleep(running);
                    }
                }
            }
        }
    }

    fn read(&mut self) {
        if self.unwritten >= self.config.group && !self.tasks[WRITER].is_awake {
            self.wake(WRITER);
            if self.running != Some(READER) {
                return;
            }
        }
        if self.socket.is_empty() {
            self.put_to_sleep(READER);
            return;
        }
        let (mut bytes, mut packets, mut oldest) = (0, 0, None);
        self.socket.read(self.config.batch, |packet| {
            bytes += packet.bytes();
            packets += u64::from(packet.datagrams);
            oldest.get_or_insert(packet.stamp);
        });
        let cpu = self.tasks[READER].run - self.reader.cpu_at_batch;
        self.reader.cpu_at_batch = self.tasks[READER].run;
        let age = oldest.map(|oldest| self.now - oldest);
        let full = !self.socket.is_empty();
        let batch = Batch { bytes, packets, age, cpu: Some(cpu), full };
        self.samples.push_back((self.now, Sample::Batch(batch)));
        self.report_turn();
        self.counts.bytes += bytes;
        self.counts.datagrams += packets;
        self.unwritten += bytes;
        self.tasks[READER].left = self.config.read_call + cost(bytes, self.config.read_ns_per_byte);
    }

    fn write(&mut self) {
        if self.unwritten < self.config.group {
            self.put_to_sleep(WRITER);
            return;
        }
        self.unwritten -= self.config.group;
        let cost = cost(self.config.group, self.config.write_ns_per_byte);
        self.tasks[WRITER].left = cost.max(Duration::from_nanos(1));
    }

    fn report_turn(&mut self) {
        if self.now - self.reader.last_turn < TURN_LOOK {
            return;
        }
        let TaskState { run, wait, turns, .. } = self.tasks[READER];
        let reader = &mut self.reader;
        let turn = Turn {
            run: run - reader.run_reported,
            wait: wait - reader.wait_reported,
            turns: turns - reader.turns_reported,
        };
        (reader.last_turn, reader.run_reported, reader.wait_reported) = (self.now, run, wait);
        reader.turns_reported = turns;
        self.samples.push_back((self.now, Sample::Turn(turn)));
    }

    /// The sentinel looks.
    fn look(&mut self) {
        let (Some(due), Some(every)) = (self.next_look, self.config.sentinel) else { return };
        if due > self.now {
            return;
        }
        self.next_look = Some(self.now + every);
        let reader = &self.tasks[READER];
        let has_work = reader.is_awake || !self.socket.is_empty();
        let away = self.running != Some(READER) && has_work;
        if away && self.now - reader.waits_since >= LEAST_ABSENCE {
            let since = self.tasks[READER].waits_since;
            self.samples.push_back((self.now, Sample::Absence(since)));
            self.reader.absence_reported = true;
        }
        let drops = self.counts.socket_drops;
        let queued = self.socket.charged();
        let socket = Socket {
            queued,
            limit: self.socket.limit(),
            drops: drops - self.reader.drops_reported,
        };
        self.reader.drops_reported = drops;
        self.samples.push_back((self.now, Sample::Socket(socket)));
        let account = self.scheduler.account(READER);
        self.samples.extend(account.map(|account| (self.now, Sample::Account(account))));
    }

    /// Holds the group back when its quota is used, and lets it go in the next period.
    fn enforce_quota(&mut self) {
        let Some(quota) = &mut self.quota else { return };
        if quota.ends <= self.now {
            quota.ends = self.now + quota.period;
            quota.used = Duration::ZERO;
            if let Some(since) = quota.throttled_since.take() {
                let throttled = self.now - since;
                self.samples.push_back((self.now, Sample::Throttled(throttled)));
                if self.tasks[WRITER].left > Duration::ZERO || self.unwritten >= self.config.group {
                    self.wake(WRITER);
                }
                if self.tasks[READER].left > Duration::ZERO || !self.socket.is_empty() {
                    self.wake(READER);
                }
            }
        } else if quota.throttled_since.is_none() && quota.used >= quota.of {
            quota.throttled_since = Some(self.now);
            for task in [READER, WRITER] {
                if self.tasks[task].is_awake {
                    self.put_to_sleep(task);
                    self.tasks[task].waits_since = self.now;
                }
            }
        }
    }
}

impl TaskState {
    /// Pause of a load after computing.
    fn pause_mut(&mut self) -> &mut Duration {
        match &mut self.work {
            Work::Load { pause, .. } => pause,
            _ => unreachable!("only loads pause"),
        }
    }
}

fn is_of_group(task: Task) -> bool {
    task <= WRITER
}

fn cost(bytes: u64, ns_per_byte: f64) -> Duration {
    Duration::from_nanos((bytes as f64 * ns_per_byte) as u64)
}

impl Control for Rapid {
    fn handle_sample(&mut self, now: Instant, sample: &Sample) {
        match sample {
            Sample::Batch(_) => self.handle_read(),
            Sample::Turn(turn) => self.handle_turn(now, turn),
            Sample::Socket(socket) => self.handle_socket(socket),
            Sample::Account(account) => self.handle_account(*account),
            _ => {}
        }
    }

    fn poll_announcement(&mut self, now: Instant) -> Option<Announcement> {
        Self::poll_announcement(self, now)
    }

    fn next_timeout(&self) -> Option<Instant> {
        Self::next_timeout(self)
    }
}

impl Control for Monitor {
    fn handle_sample(&mut self, now: Instant, sample: &Sample) {
        sample.tell(now, self);
    }

    fn poll_announcement(&mut self, now: Instant) -> Option<Announcement> {
        Self::poll_announcement(self, now)
    }

    fn next_timeout(&self) -> Option<Instant> {
        Self::next_timeout(self)
    }
}

#[cfg(test)]
mod tests;
