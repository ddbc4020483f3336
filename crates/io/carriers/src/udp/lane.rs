//! A UDP lane on a thread of its own: moves bytes and time between a socket and the lane half of a
//! connection, and passes orders and news between that half and the transfer.

mod drops;
mod kernel_refusal;
mod reading;
mod socket;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use longhaul_connection::{LaneHalf, News, NotSent, Order, ReadBatch, SILENCE};
use longhaul_engine::{LaneConfig, LaneStats, Onward, Path};
use longhaul_sys::clock;
use longhaul_sys::udp::{SendError, UdpSocket, Wait};
use longhaul_units::{Duration, Instant, LaneId, PathId};
use longhaul_wire::{CloseCode, ReceiverBounds};

use crate::buffer::Buffer;
use crate::host_monitor::{Priority, Sentinel, Watch, poll_device};
use crate::losses::{LossLog, ReportedLoss};
use crate::protection::Protection;
use crate::thread_group::ThreadGroup;
use crate::udp::path_lock::PathLock;
use crate::udp::paths::{Account, ConnectionPaths, PeerHost};
use crate::upper_layer::{
    self, Command, ForwardQueue, ForwardedDatagram, Mailbox, PathSwitch, UpperLayer,
};
use longhaul_sys::sync::lock;
use longhaul_sys::threads;
use reading::Reading;

pub use drops::HostDrops;
pub use kernel_refusal::KernelRefusal;
pub use socket::{LaneSocket, SocketSize};

/// Everything that a lane thread needs.
pub struct LaneSetup {
    /// The engine's.
    pub config: LaneConfig,
    /// The paths of the connection.
    pub paths: Arc<ConnectionPaths>,
    /// The one of them that it begins on; that of the monitor has one of its own.
    pub path: Arc<Mutex<Path>>,
    /// The socket that it sends and receives with.
    pub socket: LaneSocket,
    /// For what it sends.
    pub seal: Protection,
    /// For what it receives.
    pub open: Protection,
    /// The layer that its groups and messages go to.
    pub upper: Arc<dyn UpperLayer>,
    /// Orders for it.
    pub mailbox: Arc<Mailbox>,
    /// Counters that the thread leaves for others to read.
    pub shared: Arc<Mutex<LaneView>>,
    /// The group that the thread belongs to.
    pub thread_group: Arc<ThreadGroup>,
    /// Drops of this host, if those explain gaps.
    pub drops: Option<Arc<HostDrops>>,
    /// Scheduling of the thread.
    pub priority: Priority,
    /// The watch that logs its work, and has the limits of this host that it sends.
    pub monitor: Option<Watch>,
    /// The monitor itself, whose lane this is.
    pub sentinel: Option<Box<Sentinel>>,
    /// Log of each loss, if wanted.
    pub losses: Option<Arc<LossLog>>,
}

/// Counters of a lane thread for others.
#[derive(Clone, Debug, Default)]
pub struct LaneView {
    /// The engine's counts.
    pub stats: LaneStats,
    /// IP-layer bytes of a packet of the full size.
    pub packet: u64,
    /// Those of the largest that is known to have passed.
    pub passed: Option<u64>,
    /// Processor time of its thread.
    pub cpu: Duration,
    /// Object bytes that were received and placed, each once.
    pub placed: u64,
    /// The bounds on receiving that the peer announces.
    pub peer: ReceiverBounds,
    /// Counts of what it has sent over each path.
    pub carried: Account,
    /// The kernel takes none of its packets.
    pub refusal: Option<KernelRefusal>,
}

impl LaneView {
    /// Takes in the counts of `half`.
    fn count(&mut self, half: &Half) {
        self.stats = half.engine().stats();
        self.placed = half.placed();
        self.carried.clear();
        self.carried.extend(half.engine().all_carried());
    }
}

type Half = LaneHalf<Arc<Buffer>, Buffer>;

/// Starts the thread; it ends when the lane is closed.
pub fn spawn(setup: LaneSetup) -> io::Result<JoinHandle<()>> {
    let name = match setup.sentinel {
        Some(_) => "sentinel".into(),
        None => format!("lane{}", setup.config.lane.0),
    };
    threads::spawn(name, move || {
        let thread_group = setup.thread_group.clone();
        let _joined = thread_group.join();
        // Without the right to it the lane is late as often as other threads are.
        let remedies = setup.priority.take();
        if let Some(watch) = &setup.monitor {
            watch.join(remedies);
        }
        let mut setup = setup;
        if let Some(sentinel) = &mut setup.sentinel {
            sentinel.note(remedies);
        }
        LaneThread::new(setup).run();
    })
}

/// The socket of the path that the lane was on before. Datagrams under way to it may still come.
struct Former {
    socket: UdpSocket,
    reading: Reading,
    until: Instant,
}

struct LaneThread {
    half: Half,
    number: LaneId,
    paths: Arc<ConnectionPaths>,
    /// The one that it is on.
    path: Arc<Mutex<Path>>,
    socket: LaneSocket,
    /// This host's address that the peer reaches, and the peer's, as proven last.
    peer: Option<(IpAddr, SocketAddr)>,
    /// At a server: the socket of all lanes.
    common: Option<Arc<UdpSocket>>,
    seal: Protection,
    open: Protection,
    upper: Arc<dyn UpperLayer>,
    mailbox: Arc<Mailbox>,
    shared: Arc<Mutex<LaneView>>,
    reading: Reading,
    former: Option<Former>,
    commands: VecDeque<Command>,
    /// Datagrams that came to another socket.
    forwarded: ForwardQueue,
    /// Messages on their way from the upper layer to the lane.
    message: Vec<u8>,
    view_due: Instant,
    drops: Option<Arc<HostDrops>>,
    drops_due: Instant,
    /// Much arrived since the thread last slept.
    flooded: bool,
    monitor: Option<Watch>,
    polls_device: bool,
    sentinel: Option<Box<Sentinel>>,
    /// The last announcement of the peer's monitor on its lane.
    peer_host: PeerHost,
    losses: Option<Arc<LossLog>>,
    /// The kernel took nothing of the last batch.
    is_refused: bool,
}

/// Super-packets taken in before something is sent again.
const RECEIVE_BURST: usize = 8;
/// Batches sent before the socket is looked at again.
const SEND_BURST: usize = 4;
/// Packets of one batch: one ledger entry of the engine.
const BATCH_MAX: u16 = 64;
const VIEW_INTERVAL: Duration = Duration::from_millis(50);
/// A full socket buffer is taken in in less.
const FORWARDED_WAIT: Duration = Duration::from_millis(200);

impl LaneThread {
    fn new(setup: LaneSetup) -> Self {
        let LaneSetup { mut config, paths, path, socket, seal, open, upper, .. } = setup;
        let LaneSetup { mailbox, shared, drops, priority, monitor, sentinel, losses, .. } = setup;
        config.tells_losses = losses.is_some();
        let now = clock::now();
        Self {
            number: config.lane,
            path,
            half: LaneHalf::new(now, config),
            paths,
            peer: None,
            common: match &socket {
                LaneSocket::Shared(common, _) => Some(common.clone()),
                LaneSocket::Own(..) => None,
            },
            socket,
            seal,
            open,
            upper,
            mailbox,
            shared,
            reading: Reading::new(now, drops.clone()),
            former: None,
            commands: VecDeque::new(),
            forwarded: ForwardQueue::default(),
            message: Vec::new(),
            view_due: now,
            drops,
            drops_due: now,
            flooded: false,
            monitor,
            polls_device: priority == Priority::First && sentinel.is_none(),
            sentinel,
            peer_host: PeerHost::default(),
            losses,
            is_refused: false,
        }
    }

    fn run(mut self) {
        // Without precise timers pacing is coarser; nothing else depends on it.
        let _ = clock::use_precise_timers();
        self.follow_socket();
        while !self.half.engine().is_closed() {
            self.look_at_host();
            let mut busy = self.take_commands();
            self.pass_on_limits();
            self.half.handle_standing(&self.upper.standing());
            let received = self.receive();
            busy |= received | self.take_forwarded(received);
            let now = clock::now();
            self.half.handle_timeout(now, &mut lock(&self.path));
            busy |= self.pass_news();
            self.heed_peer(now);
            self.upper.on_credit(self.half.engine().credit());
            self.follow_peer();
            busy |= self.read_messages();
            busy |= upper_layer::write_messages(&mut self.half, &*self.upper, &mut self.message);
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
        self.pass_news();
        self.publish(clock::now());
        if let Some(watch) = &mut self.monitor {
            watch.leave();
        }
        if let Some(sentinel) = &self.sentinel {
            sentinel.tell_account(clock::now());
        }
    }

    fn take_commands(&mut self) -> bool {
        let mut commands = std::mem::take(&mut self.commands);
        let any =
            self.mailbox.drain(&mut commands) | self.mailbox.drain_forwarded(&mut self.forwarded);
        for command in commands.drain(..) {
            match command {
                Command::Order(order) => self.half.handle_order(clock::now(), order),
                Command::Move(switch) => self.go(*switch),
                // Paths have the limit.
                Command::Limit(_) => {}
            }
        }
        self.commands = commands;
        let half = &mut self.half;
        self.mailbox.take_repairs(|repair| half.handle_repair(repair));
        any
    }

    /// Takes in forwarded datagrams. They are newer than what our own socket holds, and than its count of drops:
    /// they wait while there is `more` in it, for a moment at most.
    fn take_forwarded(&mut self, more: bool) -> bool {
        let until = clock::now().before(if more { FORWARDED_WAIT } else { Duration::ZERO });
        let mut any = false;
        while let Some(datagram) = self.forwarded.pop_until(until) {
            any = true;
            self.take_forwarded_datagram(datagram);
        }
        any
    }

    fn take_forwarded_datagram(&mut self, datagram: ForwardedDatagram) {
        let ForwardedDatagram { from, to, at, ecn, mut bytes } = datagram;
        let before = self.half.engine().received_to();
        let batch = ReadBatch::single(from, at, bytes.len(), ecn);
        self.handle_datagrams(&batch, &mut bytes);
        if let (Some(local), Some(common)) = (to, self.common.clone())
            && self.half.engine().received_to() > before
        {
            // Datagrams that the socket of the path before still holds are not to be lost.
            while self.receive() {}
            self.socket.answer_from(local, &common);
            self.follow_socket();
        }
    }

    fn handle_datagrams(&mut self, batch: &ReadBatch, bytes: &mut [u8]) {
        let (upper, path) = (&mut &*self.upper, &PathLock(&self.path));
        self.half.handle_datagrams(clock::now(), batch, bytes, &mut self.open, upper, path);
        self.pass_news();
    }

    fn go(&mut self, switch: PathSwitch) {
        let PathSwitch { number, path, remote, socket } = switch;
        let now = clock::now();
        match self.socket.go_to(remote, socket) {
            Ok(None) => {}
            Ok(Some(left)) => {
                let reading =
                    std::mem::replace(&mut self.reading, Reading::new(now, self.drops.clone()));
                self.former = Some(Former { socket: left, reading, until: now + SILENCE });
            }
            // There may be a route later.
            Err(_) => return self.paths.stay(self.number, self.half.engine().path(), number),
        }
        self.follow_socket();
        self.leave_path(now, number, path, Some(remote));
    }

    fn leave_path(
        &mut self,
        now: Instant,
        number: PathId,
        path: Arc<Mutex<Path>>,
        remote: Option<SocketAddr>,
    ) {
        let left = std::mem::replace(&mut self.path, path);
        let datagram_max = self.socket.datagram_max();
        let onward = Onward { path: number, remote, datagram_max };
        self.half.leave_path(now, &mut lock(&left), onward);
        self.publish(now);
    }

    fn receive(&mut self) -> bool {
        let mut any = self.receive_late();
        let mut full = false;
        for _ in 0..RECEIVE_BURST {
            full = false;
            let Some(socket) = self.socket.own() else { break };
            // An error ends a burst: the idle timeout decides whether the peer is gone.
            let Ok(Some((batch, bytes))) = self.reading.read(socket) else { break };
            any = true;
            self.flooded |= bytes.len() > LARGE * batch.segment;
            if let Some(watch) = &mut self.monitor {
                watch.read(&batch, bytes.len());
            }
            // Again, now that these packets are here: one may answer a repair.
            let half = &mut self.half;
            self.mailbox.take_repairs(|repair| half.handle_repair(repair));
            let (upper, path) = (&mut &*self.upper, &PathLock(&self.path));
            half.handle_datagrams(clock::now(), &batch, bytes, &mut self.open, upper, path);
            self.pass_news();
            full = true;
        }
        if let Some(watch) = &mut self.monitor {
            watch.end_batch(full);
        }
        any
    }

    /// Passes the announcements of this host's monitor on to the peer.
    fn pass_on_limits(&mut self) {
        let Some(watch) = &mut self.monitor else { return };
        let now = clock::now();
        let Some(announced) = watch.news(now) else { return };
        self.half.set_limit(now, announced.limit);
        self.half.set_capacity(announced.capacity);
        if let Some(suspension) = announced.suspension {
            self.half.suspend_peer(now, suspension);
        }
    }

    /// Looks at the other lanes, if this is the monitor's and it is time.
    fn look_at_host(&mut self) {
        if let Some(sentinel) = &mut self.sentinel
            && sentinel.due() <= clock::now()
        {
            sentinel.look(clock::now());
        }
    }

    /// Applies what the peer announces on the lane of its monitor to the paths of the data.
    fn heed_peer(&mut self, now: Instant) {
        if self.sentinel.is_some() {
            let limit = self.half.engine().receiver().limit;
            let peer_host = PeerHost { suspension: lock(&self.path).suspension(), limit };
            if std::mem::replace(&mut self.peer_host, peer_host) != peer_host {
                self.paths.heed(now, &peer_host);
            }
        }
    }

    /// The lane may have another socket.
    fn follow_socket(&self) {
        if let Some(watch) = &self.monitor {
            watch.receive_from(self.socket.own());
        }
        if self.polls_device
            && let Some(socket) = self.socket.own()
        {
            let done = poll_device(socket);
            self.monitor.iter().for_each(|watch| watch.note_remedies(done));
        }
    }

    /// Receives datagrams that were under way to the path that the lane has left.
    fn receive_late(&mut self) -> bool {
        let Some(mut former) = self.former.take() else { return false };
        let mut any = false;
        for _ in 0..RECEIVE_BURST {
            let Ok(Some((batch, bytes))) = former.reading.read(&former.socket) else { break };
            any = true;
            let half = &mut self.half;
            self.mailbox.take_repairs(|repair| half.handle_repair(repair));
            self.handle_datagrams(&batch, bytes);
        }
        self.former = Some(former).filter(|former| any || clock::now() < former.until);
        any
    }

    fn pass_news(&mut self) -> bool {
        let Self { half, paths, upper, losses, number: lane, .. } = self;
        upper_layer::pass_news(&**upper, || {
            loop {
                match half.poll_news() {
                    Some(News::MoveAsked(asked)) => paths.handle_move_asked(asked),
                    Some(News::FitsNot(reason)) => {
                        if !paths.leave_out(half.engine().path(), &reason) {
                            let close = Order::Close(CloseCode::PATH_MTU, reason);
                            half.handle_order(clock::now(), close);
                        }
                    }
                    Some(News::Lost(number, cause)) => {
                        let (at, lane) = (clock::now(), *lane);
                        losses
                            .iter()
                            .for_each(|log| log.add(ReportedLoss { at, lane, number, cause }));
                    }
                    news => return news,
                }
            }
        })
    }

    /// The peer's address was learnt, or changed: connects the lane's socket to it.
    fn follow_peer(&mut self) {
        if let Some(remote) = self.half.engine().remote()
            && self.half.engine().is_validated()
        {
            // On failure the server's socket goes on passing datagrams on; tried again next time.
            let size = match self.sentinel {
                Some(_) => SocketSize::Messages,
                None => SocketSize::Data,
            };
            if self.socket.follow(remote, size).is_ok_and(|new| new) {
                self.follow_socket();
            }
            if self.sentinel.is_some() {
                // No data depends on its path.
                return;
            }
            let on = self.half.engine().path();
            let to = self.socket.local_ip();
            if self.peer.replace((to, remote)) != Some((to, remote))
                && let Some((number, path)) = self.paths.follow(self.number, (to, remote.ip()), on)
            {
                self.leave_path(clock::now(), number, path, None);
            }
        }
    }

    fn read_messages(&mut self) -> bool {
        let count = |half: &Half| lock(&self.shared).count(half);
        upper_layer::read_messages(&mut self.half, &*self.upper, count).unwrap_or_else(
            |violation| {
                self.half.handle_order(clock::now(), upper_layer::close_for(&violation));
                true
            },
        )
    }

    fn transmit(&mut self) -> bool {
        let mut any = false;
        for _ in 0..SEND_BURST {
            let now = clock::now();
            let planned = self.half.poll_transmit(now, &mut lock(&self.path), BATCH_MAX);
            let Some(transmit) = planned else { break };
            any = true;
            // Count before sending: the confirmation may come before the next publish.
            lock(&self.shared).count(&self.half);
            let datagrams = self.half.seal(&transmit, &mut self.seal);
            let (socket, route) = self.socket.route(datagrams.to, transmit.traffic_class());
            let slices = [IoSlice::new(datagrams.bytes)];
            let sent = socket.send(&route, &slices, datagrams.segment, Wait::UntilReady);
            if sent.is_err() || self.is_refused {
                self.is_refused = sent.is_err();
                let refusal = &mut lock(&self.shared).refusal;
                KernelRefusal::note(refusal, now, datagrams.to, sent.as_ref().err());
            }
            if sent.as_ref().ok() != Some(&datagrams.bytes.len()) {
                let sent = sent.map_err(|error| not_sent(&error));
                self.half.not_sent(now, &mut lock(&self.path), &transmit, sent);
            }
        }
        self.mailbox.set_backlog(self.half.engine().backlog());
        any
    }

    fn sleep(&mut self) {
        let may_sleep = self.mailbox.announce_sleep();
        let now = clock::now();
        let due = self.half.next_timeout(now, &lock(&self.path));
        let mut deadline = due.unwrap_or(now).min(now + SLEEP_MAX);
        let soon = now + MODERATION;
        // Waking for each datagram costs more than handling it. Datagrams that come before something is due
        // anyway, or in the wake of a flood, wait in the socket.
        let coalesce = (deadline <= soon || self.flooded) && self.socket.is_roomy();
        if coalesce {
            deadline = deadline.min(soon);
        }
        self.flooded = false;
        if deadline > self.view_due {
            self.publish(now);
        }
        if may_sleep && deadline > now {
            if let Some(watch) = &self.monitor {
                watch.rest();
            }
            self.wait(deadline, coalesce);
            if let Some(watch) = &self.monitor {
                watch.woke(deadline);
            }
        }
        self.mailbox.end_sleep();
    }

    /// Sleeps until `deadline` or something to do. The monitor looks at its host meanwhile; its announcements
    /// wake its own lane, too.
    fn wait(&mut self, deadline: Instant, coalesce: bool) {
        loop {
            let until =
                self.sentinel.as_ref().map_or(deadline, |sentinel| sentinel.due().min(deadline));
            let former = self.former.as_ref().map(|former| &former.socket);
            let ready = self.socket.wait(former, self.mailbox.waker(), until, coalesce);
            if ready.is_err() {
                // It would make a busy loop; it can only fail for want of kernel memory.
                std::thread::sleep(Duration::from_millis(1));
            }
            self.look_at_host();
            if ready.unwrap_or(true) || until == deadline {
                break;
            }
        }
    }

    fn explain_gaps(&mut self, now: Instant) {
        self.drops_due = now + drops::SAMPLE_INTERVAL;
        if let Some(drops) = &self.drops {
            self.half.explain_missing(|missing| drops.explain(now, missing));
        }
    }

    fn publish(&mut self, now: Instant) {
        self.view_due = now + VIEW_INTERVAL;
        if let Some(watch) = &self.monitor {
            watch.set_round_trip(self.half.engine().round_trip_there());
        }
        let mut view = lock(&self.shared);
        view.count(&self.half);
        view.packet = self.half.engine().packet();
        view.passed = self.half.engine().passed();
        view.cpu = clock::thread_cpu_time();
        view.peer = self.half.engine().peer_bounds();
    }
}

fn not_sent(error: &SendError) -> NotSent {
    match error {
        SendError::TooLarge => NotSent::TooLarge,
        _ => NotSent::Refused,
    }
}

/// Datagrams of a batch beyond which more came than feedback or a single packet.
const LARGE: usize = 4;
/// Time that datagrams may wait in the socket: the shortest interval of feedback.
const MODERATION: Duration = Duration::from_micros(250);
/// The thread looks at the upper layer at least so often.
const SLEEP_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
