//! Waiting for sockets and for wake-ups from other threads, up to a deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use longhaul_units::Instant;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::clock;

/// Wakes a thread that waits in this module (an `eventfd`). Shared by reference or `Arc`.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
}

impl Waker {
    /// A waker that nobody has used yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Makes the next or the present wait return. Many calls before it returns count as one.
    pub fn wake(&self) {
        // The only failure is a full counter, and then the waker is awake already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Takes back all wake-ups so far and tells whether there were any. Look for work after
    /// this call, not before it, or a wake-up between the two is lost.
    pub fn clear(&self) -> bool {
        rustix::io::read(&self.event, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Event that a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something can be read, or an error be fetched.
    Readable,
    /// There is room for writing.
    Writable,
}

/// Waits until one of `sources` is ready or `deadline` passes (never, when there is none).
/// Returns a bit per ready source, in order; zero when the deadline passed.
///
/// One `ppoll`, with nanosecond timeout; see [`clock::use_precise_timers`]. No allocation.
///
/// # Errors
/// Those of `ppoll`, and `InvalidInput` for more than sixteen sources.
pub fn wait(sources: &[(BorrowedFd<'_>, Interest)], deadline: Option<Instant>) -> io::Result<u16> {
    let Some(&(first, _)) = sources.first().filter(|_| sources.len() <= SOURCES_MAX) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut polled: [PollFd<'_>; SOURCES_MAX] =
        std::array::from_fn(|_| PollFd::from_borrowed_fd(first, PollFlags::empty()));
    for (slot, (fd, interest)) in polled.iter_mut().zip(sources) {
        let events = match interest {
            Interest::Readable => PollFlags::IN,
            Interest::Writable => PollFlags::OUT,
        };
        *slot = PollFd::from_borrowed_fd(*fd, events);
    }
    let polled = &mut polled[..sources.len()];
    loop {
        let timeout = deadline.map(|at| clock::timespec(at.since(clock::now()).as_nanos() as u64));
        match poll(polled, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => break,
        }
    }
    let ready = polled.iter().enumerate().filter(|(_, slot)| !slot.revents().is_empty());
    Ok(ready.fold(0, |mask, (index, _)| mask | 1 << index))
}

/// A thread waits for a few sockets and one waker; each further source costs every call.
const SOURCES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn wakes_across_threads_and_clears() {
        let waker = Waker::new().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            let ready = wait(&[(waker.as_fd(), Interest::Readable)], None).unwrap();
            assert_eq!(ready, 1);
        });
        waker.wake();
        assert!(waker.clear());
        assert!(!waker.clear());
    }

    #[test]
    fn deadline_ends_the_wait() {
        let waker = Waker::new().unwrap();
        let deadline = clock::now() + Duration::from_millis(2);
        let sources = [(waker.as_fd(), Interest::Readable)];
        assert_eq!(wait(&sources, Some(deadline)).unwrap(), 0);
        assert!(clock::now() >= deadline);
        assert_eq!(wait(&sources, Some(Instant::ZERO)).unwrap(), 0);
    }

    #[test]
    fn each_source_has_its_bit() {
        let (idle, busy) = (Waker::new().unwrap(), Waker::new().unwrap());
        busy.wake();
        let sources = [
            (idle.as_fd(), Interest::Readable),
            (busy.as_fd(), Interest::Readable),
            (idle.as_fd(), Interest::Writable),
        ];
        assert_eq!(wait(&sources, None).unwrap(), 0b110);
    }

    #[test]
    fn number_of_sources_is_bounded() {
        let waker = Waker::new().unwrap();
        assert!(wait(&[], None).is_err());
        let many = vec![(waker.as_fd(), Interest::Writable); SOURCES_MAX + 1];
        assert!(wait(&many, None).is_err());
        assert_eq!(wait(&many[1..], None).unwrap(), u16::MAX);
    }
}
