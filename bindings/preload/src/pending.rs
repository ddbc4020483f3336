//! Sessions whose answer was not read yet.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_relay_client::{Attempt, Failure, Step};

use crate::connect;
use crate::fork::{Guard, Shared};
use crate::mark::Mark;
use crate::sys;

/// A session between `connect` and the first thing that is read.
pub(crate) struct Session {
    mark: Mark,
    state: Mutex<State>,
    /// The program has sent something, which would be lost with the connection.
    written: AtomicBool,
    /// Threads that sleep until the answer comes: others leave it to them.
    sleepers: AtomicUsize,
}

enum State {
    /// The set-up, and that it is the second one, by the gateway's clock.
    Waiting(Attempt, bool),
    Stands,
    /// With this errno, which the program does not know yet.
    Failed(c_int),
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
    let session = Arc::new(Session {
        mark,
        state: Mutex::new(State::Waiting(attempt, false)),
        written: AtomicBool::new(false),
        sleepers: AtomicUsize::new(0),
    });
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
        Some(session) => session.settle(fd, wait),
        None => Ok(()),
    }
}

/// Looks for a refusal before the program writes; `true` where the answer is still to come.
pub(crate) fn before_write(fd: c_int) -> Result<bool, c_int> {
    let Some(session) = find(fd) else { return Ok(false) };
    match session.look(fd) {
        Progress::Stands => Ok(false),
        Progress::Waiting => {
            session.written.store(true, Ordering::Relaxed);
            Ok(true)
        }
        Progress::Failed(errno) => {
            session.report(fd);
            Err(errno)
        }
    }
}

/// The errno of a refusal that has come, where a write failed because of it.
pub(crate) fn after_failed_write(fd: c_int) {
    let errno = sys::errno();
    let broken = [libc::EPIPE, libc::ECONNRESET, libc::ENOTCONN].contains(&errno);
    match before_write(fd) {
        Err(refused) if broken => sys::set_errno(refused),
        _ => sys::set_errno(errno),
    }
}

/// Waits for the answer, whatever it is, since the descriptor blocks from now on.
pub(crate) fn before_blocking(fd: c_int) {
    let Some(session) = find(fd) else { return };
    while session.advance(fd) == Progress::Waiting {
        match session.sleep(fd) {
            Ok(()) | Err(libc::EINTR) => {}
            Err(_) => break,
        }
    }
}

impl Session {
    /// Goes on as far as that is possible without waiting.
    pub fn advance(&self, fd: c_int) -> Progress {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (attempt, again) = match &mut *state {
                State::Stands => return Progress::Stands,
                State::Failed(errno) => return Progress::Failed(*errno),
                State::Waiting(attempt, again) => (attempt, *again),
            };
            let step = attempt.advance(
                |bytes| sys::send(fd, bytes),
                |buffer| sys::receive(fd, buffer, libc::MSG_DONTWAIT),
            );
            *state = match step {
                Step::Waiting => return Progress::Waiting,
                Step::Connected(_) => {
                    // Without room for it only other processes do not learn of it.
                    let _ = Mark { answered: true, ..self.mark }.write(fd);
                    forget(self.mark.id);
                    State::Stands
                }
                Step::WrongClock(clock, failure) if !again && self.may_begin_again() => {
                    match connect::again(fd, self.mark.peer, clock) {
                        Ok(attempt) => State::Waiting(attempt, true),
                        Err(None) => self.fail(fd, &failure),
                        Err(Some(failure)) => self.fail(fd, &failure),
                    }
                }
                Step::WrongClock(_, failure) => self.fail(fd, &failure),
                Step::Failed(failure) if failure.no_gateway && self.may_begin_again() => {
                    match connect::directly(fd, self.mark.peer, &failure) {
                        Some(Ok(())) => {
                            Mark::remove(fd);
                            forget(self.mark.id);
                            State::Stands
                        }
                        Some(Err(errno)) => State::Failed(errno),
                        None => self.fail(fd, &failure),
                    }
                }
                Step::Failed(failure) => self.fail(fd, &failure),
            };
        }
    }

    /// The same for who does not read: sleepers come first.
    pub fn look(&self, fd: c_int) -> Progress {
        match self.sleepers.load(Ordering::Relaxed) {
            0 => self.advance(fd),
            _ => Progress::Waiting,
        }
    }

    /// Goes on until the outcome is there, as long as the descriptor blocks and no signal comes.
    pub fn settle(&self, fd: c_int, wait: bool) -> Result<(), c_int> {
        loop {
            match self.advance(fd) {
                Progress::Stands => return Ok(()),
                Progress::Failed(errno) => {
                    self.report(fd);
                    return Err(errno);
                }
                Progress::Waiting if !wait => return Err(libc::EAGAIN),
                Progress::Waiting => self.sleep(fd)?,
            }
        }
    }

    /// Sleeps until something comes, as the program's own call would: by the descriptor's mode and
    /// timeout, and by what it wants of signals.
    fn sleep(&self, fd: c_int) -> Result<(), c_int> {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let came = sys::receive(fd, &mut [0], libc::MSG_PEEK);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        match came.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)) {
            Ok(_) => Ok(()),
            Err(errno @ (libc::EINTR | libc::EAGAIN)) => Err(errno),
            Err(errno) => {
                let words = std::io::Error::from_raw_os_error(errno).to_string();
                let words = words.split(" (os error").next().unwrap_or_default();
                let failed = self.fail(fd, &Failure::lost(errno, words));
                *self.state.lock().unwrap_or_else(PoisonError::into_inner) = failed;
                Ok(())
            }
        }
    }

    /// The program learns of the failure now: from here on the socket is one that never connected.
    pub fn report(&self, fd: c_int) {
        forget(self.mark.id);
        Mark::remove(fd);
    }

    fn may_begin_again(&self) -> bool {
        !self.written.load(Ordering::Relaxed)
    }

    fn fail(&self, fd: c_int, failure: &Failure) -> State {
        if !failure.by_target {
            sys::write_words(&failure.words);
        }
        sys::disconnect(fd);
        State::Failed(failure.errno)
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
