//! A thread that carries sessions: it waits for readiness by epoll, edges only, and gives each
//! ready session a turn.

use longhaul_sys::sync::lock;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use longhaul_relay::Side;
use longhaul_sys::clock;
use longhaul_sys::random;
use longhaul_sys::wait::Waker;
use longhaul_units::{Duration, Instant};
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::clocks;
use crate::ending::Ending;
use crate::event::{Event, Report};
use crate::listener::EntryListener;
use crate::pump::Pool;
use crate::resolver::{Lookup, Resolver};
use crate::session::{Context, Session, Turn, is_exhausted};
use crate::shared::Shared;
use crate::status::SessionStatus;

/// Wakes a worker, and brings it addresses.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub waker: Waker,
    resolved: Mutex<VecDeque<(Token, io::Result<Vec<SocketAddr>>)>>,
    /// Listeners in place of those that are open.
    listeners: Mutex<Option<Arc<Vec<EntryListener>>>>,
    /// Those who want to know of all sessions.
    asking: Mutex<Vec<Sender<Vec<SessionStatus>>>>,
    /// End when the last session has; who comes meanwhile is answered.
    pub draining: AtomicBool,
    /// End now.
    pub stopping: AtomicBool,
}

impl Mailbox {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            waker: Waker::new()?,
            resolved: Mutex::default(),
            listeners: Mutex::default(),
            asking: Mutex::default(),
            draining: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        })
    }

    /// Opens these listeners, in place of those that are open.
    pub fn open(&self, listeners: Arc<Vec<EntryListener>>) {
        *lock(&self.listeners) = Some(listeners);
        self.waker.wake();
    }

    /// Sends `answer` the state of all sessions, soon.
    pub fn ask(&self, answer: Sender<Vec<SessionStatus>>) {
        lock(&self.asking).push(answer);
        self.waker.wake();
    }

    fn new_listeners(&self) -> Option<Arc<Vec<EntryListener>>> {
        lock(&self.listeners).take()
    }
}

/// Names a session of a worker: a slot that was used before has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    slot: u32,
    generation: u32,
}

pub(crate) struct Worker {
    poll: OwnedFd,
    shared: Arc<Shared>,
    listeners: Arc<Vec<EntryListener>>,
    mailbox: Arc<Mailbox>,
    resolver: Resolver,
    report: Report,
    /// Looks after the gateway's spare connections.
    keeps_spares: bool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Sessions that can go on at once.
    ready: VecDeque<Token>,
    pool: Pool,
    next_look: Instant,
    /// Listeners are closed for a moment, since descriptors are used up.
    closed_until: Option<Instant>,
    draining: bool,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    session: Option<Session>,
    is_queued: bool,
}

impl Worker {
    pub fn new(
        shared: Arc<Shared>,
        listeners: Arc<Vec<EntryListener>>,
        mailbox: Arc<Mailbox>,
        resolver: Resolver,
        report: Report,
        keeps_spares: bool,
    ) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, mailbox.waker.as_fd(), EventData::new_u64(WAKER), EventFlags::IN)?;
        let worker = Self {
            poll,
            shared,
            listeners,
            mailbox,
            resolver,
            report,
            keeps_spares,
            slots: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            pool: Pool::default(),
            next_look: clock::now() + LOOK,
            closed_until: None,
            draining: false,
        };
        worker.open_listeners()?;
        Ok(worker)
    }

    fn open_listeners(&self) -> io::Result<()> {
        for (i, listener) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENER | i as u64);
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            if let Some(fd) = listener.socket.readiness() {
                epoll::add(&self.poll, fd, data, flags)?;
            }
        }
        Ok(())
    }

    fn close_listeners(&self) {
        for listener in self.listeners.iter() {
            if let Some(fd) = listener.socket.readiness() {
                // One that is closed already is no fault.
                let _ = epoll::delete(&self.poll, fd);
            }
        }
    }

    /// Carries sessions until it is stopped.
    ///
    /// # Errors
    /// The kernel refuses what was possible before.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let now = clock::now();
            if self.mailbox.stopping.load(Ordering::Acquire) {
                self.cut();
                return Ok(());
            }
            if self.mailbox.draining.load(Ordering::Acquire) && !self.draining {
                self.draining = true;
            }
            if let Some(listeners) = self.mailbox.new_listeners() {
                self.close_listeners();
                self.listeners = listeners;
                if self.closed_until.is_none() {
                    self.open_listeners()?;
                }
            }
            if self.draining && self.has_drained() {
                return Ok(());
            }
            if self.closed_until.is_some_and(|until| now >= until) {
                self.closed_until = None;
                self.open_listeners()?;
            }
            if now >= self.next_look {
                self.look();
                self.next_look = now + LOOK;
            }
            let wait = if self.ready.is_empty() {
                self.next_look.since(clock::now())
            } else {
                Duration::ZERO
            };
            let timeout = rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: wait.as_nanos().min(LOOK.as_nanos()) as _,
            };
            events.clear();
            match epoll::wait(
                &self.poll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                // The structure is packed: it is copied out before it is looked at.
                let (data, flags) = ({ event.data }.u64(), { event.flags });
                self.handle(data, flags);
            }
            for _ in 0..self.ready.len() {
                if let Some(token) = self.ready.pop_front() {
                    if let Some(slot) = self.slots.get_mut(token.slot as usize) {
                        slot.is_queued = false;
                    }
                    self.turn(token, Session::run);
                }
            }
        }
    }

    /// No worker has a session, and nobody here waits for an answer. A worker that left while others
    /// have sessions would reset the clients that it has accepted and not yet answered.
    fn has_drained(&self) -> bool {
        let mut sessions = self.slots.iter().filter_map(|slot| slot.session.as_ref());
        self.shared.sessions() == 0 && !sessions.any(Session::has_entered)
    }

    fn handle(&mut self, data: u64, flags: EventFlags) {
        if data == WAKER {
            self.mailbox.waker.clear();
            self.answer_status();
            loop {
                let resolved = &self.mailbox.resolved;
                let next = lock(resolved).pop_front();
                let Some((token, addresses)) = next else { return };
                self.turn(token, move |session, cx| session.resolved(addresses, cx));
            }
        }
        if data & LISTENER != 0 {
            return self.accept((data & !LISTENER) as usize);
        }
        let (token, side) = unpack(data);
        let Some(session) = self.session(token) else { return };
        if let Some(link) = session.link(side) {
            let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            link.readable |= broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
            link.writable |= broken || flags.contains(EventFlags::OUT);
        }
        self.queue(token);
    }

    /// Answers those who ask for the state of all sessions.
    fn answer_status(&self) {
        let asking = &self.mailbox.asking;
        let asking = std::mem::take(&mut *lock(asking));
        for answer in asking {
            let sessions = self.slots.iter().filter_map(|slot| slot.session.as_ref());
            let now = clock::now();
            // Nobody waits any more where it does not arrive.
            let _ = answer.send(sessions.filter_map(|session| session.status(now)).collect());
        }
    }

    fn queue(&mut self, token: Token) {
        if let Some(slot) = self.slots.get_mut(token.slot as usize)
            && slot.generation == token.generation
            && !slot.is_queued
        {
            slot.is_queued = true;
            self.ready.push_back(token);
        }
    }

    fn session(&mut self, token: Token) -> Option<&mut Session> {
        let slot = self.slots.get_mut(token.slot as usize)?;
        slot.session.as_mut().filter(|_| slot.generation == token.generation)
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(listener) = self.listeners.get(listener) else { return };
            let (segment, peer) = match listener.socket.accept() {
                Ok(None) => return,
                Ok(Some(accepted)) => accepted,
                Err(error) => {
                    if is_exhausted(&error) {
                        self.shared.make_room();
                        self.close_listeners();
                        self.closed_until = Some(clock::now() + CLOSED);
                    }
                    (self.report)(Event::AcceptFailed { error });
                    return;
                }
            };
            if !listener.admits(peer.ip()) {
                (self.report)(Event::Stranger { from: peer });
                continue;
            }
            let admission = self.shared.arrive(peer.ip());
            let session =
                match Session::new(admission, listener.entry(), segment, peer, clock::now()) {
                    Ok(session) => session,
                    Err(_) => continue,
                };
            let token = self.place(session);
            self.watch(token, Side::Near);
            self.queue(token);
        }
    }

    fn place(&mut self, session: Session) -> Token {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.session = Some(session);
        Token { slot, generation: place.generation }
    }

    fn watch(&mut self, token: Token, side: Side) {
        let poll = self.poll.as_fd();
        let slot = self.slots.get_mut(token.slot as usize);
        let session = slot.and_then(|slot| slot.session.as_mut());
        let Some(link) = session.and_then(|session| session.link(side)) else { return };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if let Some(fd) = link.segment.readiness() {
            // Without it the session would wait for its deadline, which ends it.
            let _ = epoll::add(poll, fd, EventData::new_u64(pack(token, side)), flags);
        }
    }

    /// Gives a session a turn, and does what it asks for.
    fn turn(&mut self, token: Token, step: impl FnOnce(&mut Session, &mut Context<'_>) -> Turn) {
        let Some(slot) = self.slots.get_mut(token.slot as usize) else { return };
        let Some(session) = slot.session.as_mut().filter(|_| slot.generation == token.generation)
        else {
            return;
        };
        let mut cx = Context {
            now: clock::now(),
            clock: clocks::ours(),
            random: random::bytes,
            pool: &mut self.pool,
        };
        let was_inside = session.is_inside();
        let turn = step(session, &mut cx);
        if session.is_inside() && !was_inside {
            (self.report)(Event::Entered);
        }
        match turn {
            Turn::Waiting => {}
            Turn::More => self.queue(token),
            Turn::Dialled => {
                self.watch(token, Side::Far);
                self.queue(token);
            }
            Turn::Resolve(place) => {
                let mailbox = self.mailbox.clone();
                let done = Box::new(move |addresses| {
                    let mut resolved = lock(&mailbox.resolved);
                    resolved.push_back((token, addresses));
                    drop(resolved);
                    mailbox.waker.wake();
                });
                self.resolver.ask(Lookup { place, done });
            }
            Turn::Over(ending) => {
                let slot = &mut self.slots[token.slot as usize];
                slot.generation = slot.generation.wrapping_add(1);
                let session = slot.session.take();
                slot.is_queued = false;
                self.free.push(token.slot);
                if let Some(session) = session {
                    self.ended(&session, ending);
                }
            }
        }
    }

    fn ended(&self, session: &Session, ending: Ending) {
        let ending = session.settled(ending);
        self.shared.totals.note(&session.summary, &ending);
        (self.report)(Event::Ended { summary: session.summary.clone(), ending });
    }

    /// Resets what has not ended, and reports it.
    fn cut(&mut self) {
        for slot in std::mem::take(&mut self.slots) {
            if let Some(session) = slot.session.filter(Session::has_entered) {
                self.ended(&session, session.stopped());
            }
        }
    }

    fn look(&mut self) {
        if self.keeps_spares && !self.draining {
            let shared = &self.shared;
            let transport = |name: &str| shared.transport(name);
            shared.spares.keep(&shared.policy(), transport, clock::now());
        }
        for slot in 0..self.slots.len() as u32 {
            let generation = self.slots[slot as usize].generation;
            self.turn(Token { slot, generation }, Session::look);
        }
    }
}

const fn pack(token: Token, side: Side) -> u64 {
    let side = match side {
        Side::Near => 0,
        Side::Far => 1,
    };
    (token.generation as u64) << 32 | (token.slot as u64) << 1 | side
}

const fn unpack(data: u64) -> (Token, Side) {
    let side = if data & 1 == 0 { Side::Near } else { Side::Far };
    // Slots stay far below the bit of listeners.
    let slot = (data as u32 & !(LISTENER as u32)) >> 1;
    (Token { slot, generation: (data >> 32) as u32 }, side)
}

/// Marks of what is no session: slots have 30 bits.
const LISTENER: u64 = 1 << 31;
const WAKER: u64 = u64::MAX;

/// Interval between looks at deadlines and silent peers.
const LOOK: Duration = Duration::from_millis(100);
/// Time that listeners stay closed when descriptors are used up.
const CLOSED: Duration = Duration::from_millis(200);
const EVENTS: usize = 256;
const ACCEPTED_AT_ONCE: usize = 64;
