use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_sys::wait::{Interest, Waker, wait};
use longhaul_sys::{clock, host};
use longhaul_units::Instant;

use super::{Link, lock};

/// The loop of an emulator's thread.
pub(super) struct Worker {
    links: Vec<Arc<Link>>,
    stop: Arc<Stop>,
}

/// Ends an emulator's threads.
#[derive(Debug)]
pub(super) struct Stop {
    requested: AtomicBool,
    waker: Waker,
}

impl Stop {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { requested: AtomicBool::new(false), waker: Waker::new()? })
    }

    /// For all who wait: nobody takes it back.
    pub(super) fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl Worker {
    pub(super) fn new(links: Vec<Arc<Link>>, stop: Arc<Stop>) -> Self {
        Self { links, stop }
    }

    /// Carries packets until it is stopped.
    pub(super) fn run(self) -> io::Result<()> {
        // Where that is not possible packets are some 50 us later, which the lateness shows.
        let _ = clock::use_precise_timers();
        // A network does not wait for the hosts' schedulers. Without the privilege it does, and
        // the lateness shows that too.
        let _ = host::run_first();
        let mut sources: Vec<(BorrowedFd<'_>, Interest)> = Vec::new();
        while !self.stop.requested.load(Ordering::Relaxed) {
            let mut worked = false;
            let mut next: Option<Instant> = None;
            sources.clear();
            sources.push((self.stop.as_fd(), Interest::Readable));
            for link in &self.links {
                for direction in 0..2 {
                    let turn = carry(link, direction)?;
                    worked |= turn.moved;
                    next = next.into_iter().chain(turn.next).min();
                    if turn.listens {
                        sources.push((link.ends[direction].tun.as_fd(), Interest::Readable));
                    }
                }
            }
            if !worked {
                wait(&sources, next.map(|at| at.before(LEAD)))?;
            }
        }
        Ok(())
    }
}

/// Outcome of one turn of one direction.
struct Turn {
    /// Something was read or written.
    moved: bool,
    /// When the next is due.
    next: Option<Instant>,
    /// Packets that come before that are to be read at once.
    listens: bool,
}

fn carry(link: &Link, direction: usize) -> io::Result<Turn> {
    let (from, to) = (&link.ends[direction].tun, &link.ends[1 - direction].tun);
    let mut line = lock(&link.lines[direction]);
    let mut moved = false;
    for _ in 0..TURN {
        let taken = line.take(from)?;
        let delivered = line.deliver(to, clock::now());
        moved |= taken | delivered;
        if !(taken | delivered) {
            break;
        }
    }
    // Nothing depends on when exactly it looks again, so that there is no need to wake up before.
    let look = line.next_look(clock::now()).map(|at| at + LEAD);
    let next = line.next_timeout().into_iter().chain(look).min();
    Ok(Turn { moved, next, listens: look.is_none() })
}

/// Time that waking up takes on a virtual machine. The rest of it is spent looking for packets.
const LEAD: Duration = Duration::from_micros(40);
/// Packets of one direction before the others have their turn.
const TURN: usize = 16;
