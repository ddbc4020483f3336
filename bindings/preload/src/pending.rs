//! Sessions whose answer was not read yet.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_relay_client::{Attempt, SessionError, Step};

use crate::early::Early;
use crate::first_gateway;
use crate::fork::{Guard, Shared};
use crate::mark::Mark;
use crate::sys;

/// A session between `connect` and the first thing that is read.
pub(crate) struct Session {
    mark: Mark,
    state: Mutex<State>,
    /// Threads that sleep until the answer comes: others leave it to them.
    sleepers: AtomicUsize,
}

enum State {
    Waiting(Box<SetUp>),
    Stands,
    /// With this errno, which the program does not know yet.
    Failed(c_int),
}

struct SetUp {
    attempt: Attempt,
    /// By the gateway's clock, which is believed once.
    is_second: bool,
    /// Payload that the program has sent meanwhile.
    early: Early,
}

impl SetUp {
    const fn new(attempt: Attempt) -> Self {
        Self { attempt, is_second: false, early: Early::new() }
    }
}

/// How a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Stands,
    Waiting,
    Failed(c_int),
}

/// Nothing has to be looked for while this is zero: that is all that most calls cost.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static TABLE: Shared<Table> = Shared::new(Table { sessions: BTreeMap::new(), limit: LIMIT });

struct Table {
    sessions: BTreeMap<u64, Arc<Session>>,
    /// With so many sessions those are looked for whose sockets were closed meanwhile.
    limit: usize,
}

/// Notes a session that begins.
pub(crate) fn insert(mark: Mark, attempt: Attempt) -> Arc<Session> {
    let session = Arc::new(Session::new(mark, attempt));
    let full = {
        let table = table();
        table.sessions.len() >= table.limit
    };
    let open = if full { marks_of_open_sockets() } else { None };
    let mut table = table();
    if let Some(open) = open {
        table.sessions.retain(|id, _| open.contains(id));
        table.limit = LIMIT.max(2 * table.sessions.len());
    }
    table.sessions.insert(mark.id, session.clone());
    COUNT.store(table.sessions.len(), Ordering::Relaxed);
    session
}

fn forget(id: u64) {
    let mut table = table();
    table.sessions.remove(&id);
    COUNT.store(table.sessions.len(), Ordering::Relaxed);
}

/// The session of a socket whose answer was not read yet. Leaves `errno` as it is.
pub(crate) fn find(fd: c_int) -> Option<Arc<Session>> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let errno = sys::errno();
    let mark = Mark::read(fd);
    sys::set_errno(errno);
    let mark = mark?;
    if mark.answered {
        // Perhaps by another process, since a fork.
        forget(mark.id);
        return None;
    }
    table().sessions.get(&mark.id).cloned()
}

/// Takes the answer off the stream before the program reads. Where `wait` is set it waits as the
/// descriptor does.
pub(crate) fn before_read(fd: c_int, wait: bool) -> Result<(), c_int> {
    match find(fd) {
        Some(session) => session.settle(fd, wait, libc::SO_RCVTIMEO),
        None => Ok(()),
    }
}

/// Writes by `call`, after a look for a refusal. `sent` gives the bytes of a result, for as long as
/// they may have to be sent again; without it the answer is waited for, and once enough was sent.
pub(crate) fn write(
    fd: c_int,
    dont_wait: bool,
    sent: Option<impl Fn(isize) -> Vec<u8>>,
    call: impl Fn() -> isize,
) -> isize {
    let Some(session) = find(fd) else { return call() };
    match session.write(fd, dont_wait, sent, &call) {
        Ok(result) => result,
        Err(errno) => {
            sys::set_errno(errno);
            -1
        }
    }
}

/// Ends what the program sends, by `call`.
pub(crate) fn end(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let Some(session) = find(fd) else { return call() };
    let mut state = session.lock();
    let result = call();
    if let State::Waiting(set_up) = &mut *state
        && result == 0
    {
        set_up.early.ended = true;
    }
    result
}

/// Waits for the answer, whatever it is, since the descriptor blocks from now on.
pub(crate) fn before_blocking(fd: c_int) {
    let Some(session) = find(fd) else { return };
    while session.advance(fd) == Progress::Waiting {
        match session.sleep(fd, libc::SO_RCVTIMEO) {
            Ok(()) | Err(libc::EINTR) => {}
            Err(_) => break,
        }
    }
}

impl Session {
    fn new(mark: Mark, attempt: Attempt) -> Self {
        let state = Mutex::new(State::Waiting(Box::new(SetUp::new(attempt))));
        Self { mark, state, sleepers: AtomicUsize::new(0) }
    }

    /// Goes on as far as that is possible without waiting.
    pub fn advance(&self, fd: c_int) -> Progress {
        self.advance_in(&mut self.lock(), fd)
    }

    fn advance_in(&self, state: &mut State, fd: c_int) -> Progress {
        loop {
            let set_up = match state {
                State::Stands => return Progress::Stands,
                State::Failed(errno) => return Progress::Failed(*errno),
                State::Waiting(set_up) => set_up,
            };
            let step = set_up.attempt.advance(
                |bytes| sys::send(fd, bytes),
                |buffer| sys::receive(fd, buffer, libc::MSG_DONTWAIT),
            );
            let next = match step {
                Step::Waiting => return Progress::Waiting,
                Step::Connected(_) => {
                    // Without room for it only other processes do not learn of it.
                    let _ = Mark { answered: true, ..self.mark }.write(fd);
                    forget(self.mark.id);
                    State::Stands
                }
                Step::WrongClock(clock, failure) if !set_up.is_second => {
                    match first_gateway::again(fd, self.mark.peer, clock, &set_up.early) {
                        Ok(attempt) => {
                            let early = std::mem::replace(&mut set_up.early, Early::new());
                            let again = SetUp::new(attempt);
                            State::Waiting(Box::new(SetUp { is_second: true, early, ..again }))
                        }
                        Err(None) => self.fail(fd, &failure),
                        Err(Some(failure)) => self.fail(fd, &failure),
                    }
                }
                Step::WrongClock(_, failure) => self.fail(fd, &failure),
                Step::Failed(failure) if failure.no_gateway => {
                    if set_up.attempt.until() <= Instant::now() {
                        first_gateway::note_silence();
                    }
                    self.without_gateway(fd, set_up, &failure)
                }
                Step::Failed(failure) => self.fail(fd, &failure),
            };
            *state = next;
        }
    }

    /// The same for who does not read: sleepers come first.
    pub fn look(&self, fd: c_int) -> Progress {
        self.look_in(&mut self.lock(), fd)
    }

    fn look_in(&self, state: &mut State, fd: c_int) -> Progress {
        match self.sleepers.load(Ordering::Relaxed) {
            0 => self.advance_in(state, fd),
            _ => Progress::Waiting,
        }
    }

    /// Goes on until the outcome is there, as long as the descriptor blocks, within its limit of
    /// time `limit`, and no signal comes.
    pub fn settle(&self, fd: c_int, wait: bool, limit: c_int) -> Result<(), c_int> {
        loop {
            match self.advance(fd) {
                Progress::Stands => return Ok(()),
                Progress::Failed(errno) => {
                    self.report(fd);
                    return Err(errno);
                }
                Progress::Waiting if !wait => return Err(libc::EAGAIN),
                Progress::Waiting => self.sleep(fd, limit)?,
            }
        }
    }

    /// Sleeps until something comes or the answer is given up, as the program's own call would: by
    /// the descriptor's mode and limit of time, and by what it wants of signals.
    fn sleep(&self, fd: c_int, limit: c_int) -> Result<(), c_int> {
        if sys::is_nonblocking(fd) {
            return Err(libc::EAGAIN);
        }
        let Some(until) = self.until() else { return Ok(()) };
        let own = sys::time_limit(fd, limit).map(|limit| Instant::now() + limit);
        let end = own.map_or(until, |own| own.min(until));
        let came = self.asleep(|| sys::sleep(fd, end, own.is_none()));
        match own {
            Some(own) if !came? && own < until => Err(libc::EAGAIN),
            _ => came.map(|_| ()),
        }
    }

    /// Waits for the answer though the descriptor does not: a program that found it writable would look
    /// again at once, or never.
    fn await_answer(&self, fd: c_int) -> Result<(), c_int> {
        loop {
            match self.advance(fd) {
                Progress::Stands => return Ok(()),
                Progress::Failed(errno) => {
                    self.report(fd);
                    return Err(errno);
                }
                Progress::Waiting => {
                    let Some(until) = self.until() else { continue };
                    self.asleep(|| {
                        sys::wait_for(
                            fd,
                            libc::POLLIN,
                            until.saturating_duration_since(Instant::now()),
                        )
                    });
                }
            }
        }
    }

    /// When the answer is given up, as long as it is waited for.
    fn until(&self) -> Option<Instant> {
        match &*self.lock() {
            State::Waiting(set_up) => Some(set_up.attempt.until()),
            _ => None,
        }
    }

    /// Others leave the answer to this thread meanwhile.
    fn asleep<T>(&self, sleep: impl FnOnce() -> T) -> T {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let slept = sleep();
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        slept
    }

    fn write(
        &self,
        fd: c_int,
        dont_wait: bool,
        sent: Option<impl Fn(isize) -> Vec<u8>>,
        call: &impl Fn() -> isize,
    ) -> Result<isize, c_int> {
        if !dont_wait && !sys::is_nonblocking(fd) {
            // The call may last, and must not keep others from the answer meanwhile.
            self.settle(fd, true, libc::SO_SNDTIMEO)?;
            return Ok(call());
        }
        let Some(sent) = sent else {
            self.await_answer(fd)?;
            return Ok(call());
        };
        if matches!(&*self.lock(), State::Waiting(set_up) if set_up.early.is_full()) {
            self.await_answer(fd)?;
        }
        let mut state = self.lock();
        let mut progress = self.look_in(&mut state, fd);
        for is_last in [false, true] {
            match progress {
                Progress::Stands => {
                    drop(state);
                    return Ok(call());
                }
                Progress::Failed(errno) => {
                    self.report(fd);
                    return Err(errno);
                }
                Progress::Waiting => {}
            }
            let (result, errno) = (call(), sys::errno());
            if let State::Waiting(set_up) = &mut *state
                && result >= 0
            {
                set_up.early.add(sent(result));
            }
            if result >= 0 {
                return Ok(result);
            }
            if is_last || ![libc::EPIPE, libc::ECONNRESET, libc::ENOTCONN].contains(&errno) {
                return Err(errno);
            }
            // A refusal may have come meanwhile.
            progress = self.look_in(&mut state, fd);
        }
        Ok(-1)
    }

    /// The program learns of the failure now: from here on the socket is one that never connected.
    pub fn report(&self, fd: c_int) {
        forget(self.mark.id);
        Mark::remove(fd);
    }

    /// A gateway cannot be reached: directly, where that is allowed.
    fn without_gateway(&self, fd: c_int, set_up: &SetUp, failure: &SessionError) -> State {
        match first_gateway::directly(fd, self.mark.peer, failure, &set_up.early) {
            Some(Ok(())) => {
                Mark::remove(fd);
                forget(self.mark.id);
                State::Stands
            }
            Some(Err(errno)) => State::Failed(errno),
            None => self.fail(fd, failure),
        }
    }

    fn fail(&self, fd: c_int, failure: &SessionError) -> State {
        if !failure.by_target {
            sys::write_words(&failure.words);
        }
        sys::disconnect(fd);
        State::Failed(failure.errno)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn table() -> Guard<'static, Table> {
    TABLE.lock()
}

/// From now on no child begins with the table locked by a thread that it does not have.
#[cfg(not(test))]
pub(crate) fn survive_forks() {
    extern "C" fn before() {
        TABLE.hold();
    }
    extern "C" fn after() {
        TABLE.release();
    }
    // SAFETY: the three take no arguments, and may be called at every fork. Without memory for them
    // forks are as before.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
}

/// `None` where this process cannot see its descriptors: then nothing is forgotten.
fn marks_of_open_sockets() -> Option<BTreeSet<u64>> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Some(numbers.filter_map(|fd: RawFd| Some(Mark::read(fd)?.id)).collect())
}

/// Looking through all descriptors is not worth it for fewer.
const LIMIT: usize = 64;
