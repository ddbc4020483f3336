//! A UDP lane on a thread of its own: the engine's plans become packets, packets become groups.

mod drops;
mod receive;
mod run;
mod send;
mod socket;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use longhaul_engine::{Event, Lane, LaneConfig, LaneStats, Path, Plan};
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_sys::clock::{self, WallOffset};
use longhaul_sys::host;
use longhaul_sys::udp::UdpSocket;
use longhaul_units::{Duration, Instant, ObjectId, StreamId};
use longhaul_wire::ReceiverBounds;

use crate::buffer::{Buffer, lock};
use crate::carrier::{Command, DATAGRAMS_MAX, Hub, Mailbox, Outgoing, Stray, Way};
use crate::crew::Crew;
use crate::protection::Protection;

use receive::Receiving;
use send::Sending;

pub(crate) use drops::HostDrops;
pub(crate) use socket::LaneSocket;

/// What a lane thread is made of.
pub(crate) struct LaneSetup {
    pub config: LaneConfig,
    pub path: Arc<Mutex<Path>>,
    pub socket: LaneSocket,
    pub seal: Protection,
    pub open: Protection,
    pub hub: Arc<dyn Hub>,
    pub mailbox: Arc<Mailbox>,
    /// Where the thread leaves its counters for others to read.
    pub shared: Arc<Mutex<LaneView>>,
    /// What the thread belongs to.
    pub crew: Arc<Crew>,
    /// What this host drops.
    pub drops: Arc<HostDrops>,
    /// The thread runs before others where it may.
    pub punctual: bool,
}

/// What others may know of a lane thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneView {
    pub stats: LaneStats,
    /// Object bytes that were received and placed, each once.
    pub placed: u64,
    /// Packets that the local stack refused: they count as lost.
    pub refused: u64,
    pub cpu: Duration,
    /// What the peer says holds it up in receiving.
    pub peer: ReceiverBounds,
    /// As it was when the lane left its first path.
    pub left: Option<LaneStats>,
}

/// Starts the thread; it ends when the lane is closed.
pub(crate) fn spawn(setup: LaneSetup) -> io::Result<JoinHandle<()>> {
    let name = format!("lane{}", setup.config.lane.0);
    std::thread::Builder::new().name(name).spawn(move || {
        let crew = setup.crew.clone();
        let _joined = crew.join();
        if setup.punctual {
            // Without the right to it the lane is late as often as other threads are.
            let _ = host::run_first();
        } else {
            // Where it is not heeded, lanes wait for their turn as all do.
            let _ = host::take_short_turns();
        }
        LaneThread::new(setup).run();
    })
}

struct LaneThread {
    lane: Lane,
    carries_streams: bool,
    path: Arc<Mutex<Path>>,
    socket: LaneSocket,
    /// At a server: the socket of all lanes.
    common: Option<Arc<UdpSocket>>,
    hub: Arc<dyn Hub>,
    mailbox: Arc<Mailbox>,
    shared: Arc<Mutex<LaneView>>,
    sending: Sending,
    receiving: Receiving,
    plan: Plan,
    commands: VecDeque<Command>,
    /// Datagrams that came to another socket.
    strays: VecDeque<Stray>,
    /// Groups that the engine was offered, until they are delivered.
    outgoing: BTreeMap<(ObjectId, u64), Arc<Buffer>>,
    /// Groups to be sent again as soon as they are delivered.
    repairs: Vec<Outgoing>,
    /// The part of a message that the stream has not taken yet.
    unwritten: Vec<u8>,
    finished: bool,
    /// The hub knows that the peer finished stream 0.
    end_told: bool,
    credit_told: u64,
    view_due: Instant,
    drops: Arc<HostDrops>,
    drops_due: Instant,
    /// Counters when the lane left its first path.
    left: Option<LaneStats>,
    /// Much arrived since the thread last slept.
    flooded: bool,
}

/// Bytes that make it worth telling a waiting peer of new credit.
const CREDIT_STEP: u64 = 8 * GROUP_SIZE;
/// Super-packets taken in before something is sent again.
const RECEIVE_BURST: usize = 8;
/// Batches sent before the socket is looked at again.
const SEND_BURST: usize = 4;
const VIEW_INTERVAL: Duration = Duration::from_millis(50);
/// A full socket buffer is taken in in less.
const STRAYS_WAIT: Duration = Duration::from_millis(200);

impl LaneThread {
    fn new(setup: LaneSetup) -> Self {
        let LaneSetup { config, path, socket, seal, open, hub, mailbox, shared, drops, .. } = setup;
        let now = clock::now();
        Self {
            carries_streams: config.lane.0 == 0,
            sending: Sending::new(&config, seal),
            receiving: Receiving::new(&config, open, WallOffset::sample(), now),
            lane: Lane::new(now, config),
            path,
            common: match &socket {
                LaneSocket::Shared(common, _) => Some(common.clone()),
                LaneSocket::Own(..) => None,
            },
            socket,
            hub,
            mailbox,
            shared,
            plan: Plan::default(),
            commands: VecDeque::new(),
            strays: VecDeque::new(),
            outgoing: BTreeMap::new(),
            repairs: Vec::new(),
            unwritten: Vec::new(),
            finished: false,
            end_told: false,
            credit_told: 0,
            view_due: now,
            drops,
            drops_due: now,
            left: None,
            flooded: false,
        }
    }

    fn run(mut self) {
        // Without precise timers pacing is coarser; nothing else depends on it.
        let _ = clock::use_precise_timers();
        while !self.lane.is_closed() {
            let mut busy = self.take_commands();
            self.tell_credit();
            let received = self.receive();
            busy |= received | self.take_strays(received);
            let now = clock::now();
            self.lane.handle_timeout(now, &mut lock(&self.path));
            busy |= self.handle_events();
            busy |= self.move_stream();
            busy |= self.transmit();
            if now >= self.view_due {
                self.publish(now);
            }
            if now >= self.drops_due {
                self.explain_gaps(now);
            }
            if !busy {
                self.sleep();
            }
        }
        self.handle_events();
        self.publish(clock::now());
    }

    fn take_commands(&mut self) -> bool {
        let mut commands = std::mem::take(&mut self.commands);
        let any = self.mailbox.drain(&mut commands);
        for command in commands.drain(..) {
            match command {
                Command::Offer(outgoing) => self.offer(outgoing),
                Command::Close(code, reason) => self.lane.close(clock::now(), code, &reason),
                Command::Datagram(stray) if self.strays.len() < DATAGRAMS_MAX => {
                    self.strays.push_back(stray);
                }
                Command::Datagram(_) => {}
                Command::Move(way) => self.go(*way),
            }
        }
        self.commands = commands;
        self.forget_repaired();
        if self.hub.is_drained() && self.lane.backlog() == 0 {
            self.lane.flush();
        }
        any
    }

    fn forget_repaired(&mut self) {
        let incoming = &mut self.receiving.incoming;
        self.mailbox.take_anew(|object, group| incoming.forget(object, group));
    }

    /// What came another way is newer than what the own socket still holds, and than its account of
    /// what it dropped: it waits while there is `more`, for a moment at most.
    fn take_strays(&mut self, more: bool) -> bool {
        let until = clock::now().before(if more { STRAYS_WAIT } else { Duration::ZERO });
        let mut any = false;
        while let Some(stray) = self.strays.pop_front_if(|stray| stray.at <= until) {
            any = true;
            self.take_stray(stray);
        }
        any
    }

    fn take_stray(&mut self, stray: Stray) {
        let Stray { from, to, at, mut bytes } = stray;
        let before = self.lane.received_to();
        let mut batch = receive::Batch::single(from, at, &mut bytes);
        self.receiving.take(&mut self.lane, &self.path, &*self.hub, &mut batch);
        if let (Some(local), Some(common)) = (to, self.common.clone())
            && self.lane.received_to() > before
        {
            // What the socket of the way before still holds is not to be lost.
            while self.receive() {}
            self.socket.answer_from(local, &common);
        }
    }

    fn go(&mut self, way: Way) {
        let Way { path, remote, socket } = way;
        let now = clock::now();
        if let Err(error) = self.socket.go_to(remote, socket) {
            let reason = format!("cannot send to {remote}: {error}");
            self.lane.close(now, longhaul_wire::CloseCode::INTERNAL, &reason);
            return;
        }
        self.left = Some(self.lane.stats());
        let left = std::mem::replace(&mut self.path, path);
        self.lane.leave_path(now, &mut lock(&left), remote, self.socket.datagram_max());
        self.publish(now);
    }

    fn offer(&mut self, outgoing: Outgoing) {
        let extent = outgoing.extent;
        if self.outgoing.contains_key(&(extent.object, extent.offset)) {
            // A repair, asked for before the report that the group had arrived.
            self.repairs.push(outgoing);
            return;
        }
        self.outgoing.insert((extent.object, extent.offset), outgoing.bytes);
        self.lane.offer(extent);
    }

    fn tell_credit(&mut self) {
        let credit = self.hub.credit();
        self.lane.set_credit(credit);
        self.lane.set_bounds(self.hub.bounds());
        if credit >= self.credit_told + CREDIT_STEP {
            self.credit_told = credit;
            self.lane.announce();
        }
    }

    fn receive(&mut self) -> bool {
        let mut any = false;
        let Some(socket) = self.socket.own() else { return false };
        for _ in 0..RECEIVE_BURST {
            match self.receiving.receive(socket) {
                Ok(Some(mut batch)) => {
                    any = true;
                    self.flooded |= batch.is_large();
                    let incoming = &mut self.receiving.incoming;
                    // Again, now that these packets are here: one may answer a repair.
                    self.mailbox.take_anew(|object, group| incoming.forget(object, group));
                    self.receiving.take_buffered(
                        &mut self.lane,
                        &self.path,
                        &*self.hub,
                        &mut batch,
                    );
                }
                Ok(None) => break,
                // An unreachable port or route, told about an earlier datagram: the idle timeout
                // decides whether the peer is gone.
                Err(_) => break,
            }
        }
        any
    }

    fn handle_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.lane.poll_event() {
            any = true;
            match event {
                Event::Validated => self.hub.on_validated(),
                Event::Delivered(extent) => {
                    self.outgoing.remove(&(extent.object, extent.offset));
                    self.hub.on_delivered(extent);
                    for repair in std::mem::take(&mut self.repairs) {
                        self.offer(repair);
                    }
                }
                Event::Closed(closed) => {
                    self.outgoing.clear();
                    self.hub.on_closed(&closed);
                }
                _ => {}
            }
        }
        self.hub.on_credit(self.lane.credit());
        self.follow_peer();
        any
    }

    /// The peer's address was learnt, or changed: what it sends is to come to this socket.
    fn follow_peer(&mut self) {
        if let Some(remote) = self.lane.remote()
            && self.lane.is_validated()
        {
            // On failure the server's socket goes on passing datagrams on; tried again next time.
            let _ = self.socket.follow(remote);
        }
    }

    /// Stream 0, both ways (lane 0 only).
    fn move_stream(&mut self) -> bool {
        if !self.carries_streams {
            return false;
        }
        self.read_stream() | self.write_stream()
    }

    fn read_stream(&mut self) -> bool {
        let mut any = false;
        let mut bytes = [0; 16 << 10];
        while self.hub.wants_stream()
            && let Ok(count @ 1..) = self.lane.stream_read(STREAM, &mut bytes)
        {
            any = true;
            if let Err(reason) = self.hub.on_stream_bytes(&bytes[..count]) {
                let code = longhaul_wire::CloseCode::PROTOCOL_VIOLATION;
                self.lane.close(clock::now(), code, &reason);
                return true;
            }
        }
        if !self.end_told && self.lane.stream_at_end(STREAM) {
            self.end_told = true;
            self.hub.on_stream_end();
        }
        any
    }

    fn write_stream(&mut self) -> bool {
        if self.finished {
            return false;
        }
        let mut any = false;
        loop {
            if self.unwritten.is_empty() && !self.hub.next_message(&mut self.unwritten) {
                break;
            }
            // The client opens the stream with its first message; the server's is open by then.
            if self.lane.stream_write(STREAM, &[]).is_err()
                && self.lane.open_stream(STREAM).is_err()
            {
                break;
            }
            let written = self.lane.stream_write(STREAM, &self.unwritten).unwrap_or(0);
            self.unwritten.drain(..written);
            any |= written > 0;
            if !self.unwritten.is_empty() {
                break;
            }
        }
        if self.unwritten.is_empty() && self.hub.is_finished() {
            self.finished = self.lane.stream_finish(STREAM).is_ok();
            any |= self.finished;
        }
        any
    }

    fn transmit(&mut self) -> bool {
        let mut any = false;
        for _ in 0..SEND_BURST {
            let now = clock::now();
            let most = self.sending.packets_max(self.lane.stats().datagram);
            let mut path = lock(&self.path);
            let planned = self.lane.poll_transmit(now, &mut path, most, &mut self.plan);
            drop(path);
            let Some(transmit) = planned else { break };
            any = true;
            let (socket, route) = self.socket.route(transmit.to);
            let sent = self.sending.send(socket, &route, &transmit, &self.plan, &self.outgoing);
            if let Err(too_large) = sent
                && let Some(size) = too_large
            {
                self.lane.on_datagram_too_big(size);
            }
        }
        self.mailbox.set_backlog(self.lane.backlog());
        any
    }

    fn sleep(&mut self) {
        let may_sleep = self.mailbox.announce_sleep();
        let now = clock::now();
        let due = self.lane.next_timeout(now, &lock(&self.path));
        let mut deadline = due.unwrap_or(now).min(now + SLEEP_MAX);
        let soon = now + MODERATION;
        // Waking for each datagram costs more than handling it. What comes before something is due
        // anyway, or in the wake of a flood, waits in the socket.
        let deaf = (deadline <= soon || self.flooded) && self.socket.is_roomy();
        if deaf {
            deadline = deadline.min(soon);
        }
        self.flooded = false;
        if deadline > soon {
            self.publish(now);
        }
        if may_sleep && deadline > now {
            // A failing wait would make a busy loop; it can only fail for want of kernel memory.
            if self.socket.wait(self.mailbox.waker(), deadline, deaf).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.mailbox.end_sleep();
    }

    fn explain_gaps(&mut self, now: Instant) {
        self.drops_due = now + drops::SAMPLE_INTERVAL;
        let missing = self.lane.take_missing();
        self.lane.add_host_drops(self.drops.explain(now, missing));
    }

    fn publish(&mut self, now: Instant) {
        self.view_due = now + VIEW_INTERVAL;
        *lock(&self.shared) = LaneView {
            stats: self.lane.stats(),
            placed: self.receiving.incoming.placed(),
            refused: self.sending.refused,
            cpu: clock::thread_cpu_time(),
            peer: self.lane.peer_bounds(),
            left: self.left,
        };
    }
}

/// The stream that carries messages.
const STREAM: StreamId = StreamId(0);
/// How long datagrams may wait in the socket: as long as the shortest interval of feedback.
const MODERATION: Duration = Duration::from_micros(250);
/// The hub is looked at at least so often.
const SLEEP_MAX: Duration = Duration::from_millis(100);
