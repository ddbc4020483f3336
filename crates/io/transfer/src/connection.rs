//! A connection at work: its lanes, and the threads of the side that this host plays.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use longhaul_connection::{CarrierSeen, ConnectionLimits, Spent, Times};
use longhaul_engine::{LaneConfig, LaneStats, Path, Role};
use longhaul_rate_control::{FeedbackSchedule, Repair};
use longhaul_session::Session;
use longhaul_sys::clock;
use longhaul_sys::udp::UdpSocket;
use longhaul_units::{Bytes, Duration, LaneId};
use longhaul_wire::{CloseCode, Losses, ReceiverBounds, SourceReport};

use crate::buffer::lock;
use crate::carrier::{Command, Hub, Mailbox, Way, close_all, join_all};
use crate::control::Control;
use crate::crew::Crew;
use crate::lane::{self, HostDrops, LaneSetup, LaneSocket, LaneView, PathLock};
use crate::protection::{Protection, object_tag_len};
use crate::tcp::TcpLanes;

/// What carries a connection: one or the other, with one face.
pub(crate) enum Lanes {
    Udp(Box<UdpLanes>),
    Tcp(TcpLanes),
}

impl Lanes {
    /// Says goodbye on all lanes.
    pub fn close(&self, code: CloseCode, reason: &str) {
        match self {
            Self::Udp(lanes) => lanes.close(code, reason),
            Self::Tcp(lanes) => lanes.close(code, reason),
        }
    }

    /// Waits for the lanes to end; they do once closed.
    pub fn join(&mut self) {
        match self {
            Self::Udp(lanes) => lanes.join(),
            Self::Tcp(lanes) => lanes.join(),
        }
    }

    /// Counters of all lanes together.
    pub fn totals(&self) -> Totals {
        match self {
            Self::Udp(lanes) => lanes.totals(),
            Self::Tcp(lanes) => {
                let info = lanes.view().info;
                let resent = u64::from(info.segments_resent);
                let sending = SourceReport {
                    packets_sent: u64::from(info.segments_sent),
                    packets_resent: resent,
                    // The kernel does not tell why it resent.
                    lost: Losses { unknown: resent, ..Losses::default() },
                    rtt: info.rtt,
                    rtt_min: info.rtt_min,
                    ..SourceReport::default()
                };
                Totals { sending, received: info.bytes_received + info.bytes_acknowledged }
            }
        }
    }

    /// What it has seen by now.
    pub fn seen(&self) -> CarrierSeen {
        match self {
            Self::Udp(lanes) => {
                let (delivered, received) = lanes.passed();
                CarrierSeen {
                    delivered,
                    received,
                    moved: lanes.moved(),
                    round_trip: lanes.round_trip(),
                    times: lanes.times(),
                    spent: lanes.spent(),
                    peer: lanes.peer(),
                }
            }
            Self::Tcp(lanes) => {
                let view = lanes.view();
                CarrierSeen {
                    delivered: view.info.bytes_acknowledged,
                    received: view.info.bytes_received,
                    moved: view.moved,
                    round_trip: view.info.rtt_min,
                    times: view.times(),
                    spent: lanes.spent(),
                    peer: view.peer,
                }
            }
        }
    }

    /// Tells the control connection that the peer lives, if the carrier brought anything since
    /// `before`; returns what to pass next time.
    pub fn vouch(&self, control: &Control, before: u64) -> u64 {
        let received = self.totals().received;
        if received != before {
            control.heard(clock::now());
        }
        received
    }

    /// Sees to it that the connection's limits hold over all of its paths together. The kernel does
    /// that for TCP.
    pub fn hold_limits(&self) {
        if let Self::Udp(lanes) = self {
            lanes.hold_limits();
        }
    }

    /// "udp" or "tcp".
    pub fn name(&self) -> &'static str {
        match self {
            Self::Udp(_) => "udp",
            Self::Tcp(_) => "tcp",
        }
    }
}

/// The UDP lanes of a connection.
pub(crate) struct UdpLanes {
    mailboxes: Vec<Arc<Mailbox>>,
    path: Arc<Mutex<Path>>,
    views: Vec<Arc<Mutex<LaneView>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    crew: Arc<Crew>,
    /// The least round trip that was seen.
    rtt_min: Mutex<Option<Duration>>,
    /// The connection's lanes on a circuit, once there are any.
    circuit: Arc<OnceLock<UdpLanes>>,
    /// Of lanes on a circuit: the path that they went on over, and its times before.
    onward: OnceLock<(Arc<Mutex<Path>>, Times)>,
    limits: Mutex<ConnectionLimits>,
}

/// A lane to be started: its number, its socket, and where the peer is, if known.
pub(crate) type LaneEnd = (LaneId, LaneSocket, Option<SocketAddr>);

/// What holds for all lanes of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneRules {
    pub repair: Repair,
    pub feedback: FeedbackSchedule,
    pub idle_timeout: Duration,
    /// Their threads run before others where they may: what they do not send in time is lost.
    pub punctual: bool,
}

/// Mailboxes for `count` lanes.
pub(crate) fn mailboxes(count: u16) -> io::Result<Vec<Arc<Mailbox>>> {
    (0..count).map(|_| Mailbox::new().map(Arc::new)).collect()
}

impl UdpLanes {
    /// Starts a lane per socket; a mailbox for each, in their order.
    pub fn start(
        session: &Session,
        sockets: Vec<LaneEnd>,
        path: Path,
        rules: LaneRules,
        hub: Arc<dyn Hub>,
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> io::Result<Self> {
        let path = Arc::new(Mutex::new(path));
        let mut lanes = Self {
            mailboxes,
            path,
            views: Vec::new(),
            threads: Mutex::default(),
            crew: Arc::default(),
            rtt_min: Mutex::default(),
            circuit: Arc::default(),
            onward: OnceLock::new(),
            limits: Mutex::default(),
        };
        let drops = Arc::new(HostDrops::new());
        for (i, (lane, socket, remote)) in sockets.into_iter().enumerate() {
            let role = match session.role {
                longhaul_session::Role::Client => Role::Client,
                longhaul_session::Role::Server => Role::Server,
            };
            let mut config = LaneConfig::new(session.connection, lane, role, random_seed());
            config.remote = remote;
            config.repair = rules.repair;
            config.feedback = rules.feedback;
            config.object_tag = object_tag_len(session.protect);
            config.idle_timeout = rules.idle_timeout;
            let receiving = match &socket {
                LaneSocket::Own(socket, _) => socket,
                LaneSocket::Shared(socket, _) => socket,
            };
            let buffer = receiving.receive_buffer().obtained;
            config.socket_buffer = Some(Bytes::new(buffer as u64));
            config.datagram_max = socket.datagram_max();
            let view = Arc::new(Mutex::new(LaneView::default()));
            lanes.views.push(view.clone());
            let thread = lane::spawn(LaneSetup {
                config,
                path: lanes.path.clone(),
                socket,
                seal: Protection::new(session.send_keys(lane), session.cipher, session.protect),
                open: Protection::new(session.receive_keys(lane), session.cipher, session.protect),
                hub: hub.clone(),
                mailbox: lanes.mailboxes[i].clone(),
                shared: view,
                crew: lanes.crew.clone(),
                drops: drops.clone(),
                punctual: rules.punctual,
            })?;
            lock(&lanes.threads).push(thread);
        }
        Ok(lanes)
    }

    /// Says goodbye on all lanes.
    pub fn close(&self, code: CloseCode, reason: &str) {
        close_all(&self.mailboxes, code, reason);
        if let Some(circuit) = self.circuit.get() {
            circuit.close(code, reason);
        }
    }

    /// Waits for the lanes to end; they do once closed.
    pub fn join(&self) {
        join_all(&mut lock(&self.threads));
        if let Some(circuit) = self.circuit.get() {
            circuit.join();
        }
    }

    /// Their path.
    pub fn path(&self) -> &Arc<Mutex<Path>> {
        &self.path
    }

    /// Where lanes on a circuit are put, to be counted and closed with these.
    pub fn circuit(&self) -> &Arc<OnceLock<UdpLanes>> {
        &self.circuit
    }

    /// Makes all lanes go on over `path`, to `remote`; by sockets of `socket`, where it gives any.
    pub fn go(
        &self,
        path: &Arc<Mutex<Path>>,
        remote: SocketAddr,
        socket: impl Fn() -> Option<UdpSocket>,
    ) {
        let times = Times::of_path(&lock(path));
        let _ = self.onward.set((path.clone(), times));
        for mailbox in &self.mailboxes {
            let way = Way { path: path.clone(), remote, socket: socket() };
            mailbox.post(Command::Move(Box::new(way)));
        }
    }

    fn hold_limits(&self) {
        let circuit = self.circuit.get().filter(|circuit| circuit.onward.get().is_none());
        let paths = [Some(&*self.path), circuit.map(|circuit| &*circuit.path)];
        let paths: Vec<PathLock<'_>> = paths.into_iter().flatten().map(PathLock).collect();
        lock(&self.limits).look(clock::now(), &paths);
    }

    /// Packets that the lanes received.
    pub fn received(&self) -> u64 {
        self.views.iter().map(|view| lock(view).stats.packets_received).sum()
    }

    /// What the lanes did on their first path, and since.
    pub fn split(&self) -> (LaneStats, LaneStats) {
        let (mut first, mut all) = (LaneStats::default(), LaneStats::default());
        for view in &self.views {
            let view = lock(view).clone();
            for (sum, stats) in
                [(&mut first, view.left.unwrap_or(view.stats)), (&mut all, view.stats)]
            {
                sum.bytes_sent += stats.bytes_sent;
                sum.packets_sent += stats.packets_sent;
                sum.packets_resent += stats.packets_resent;
                sum.packets_received += stats.packets_received;
                sum.lost += stats.lost;
            }
        }
        all.bytes_sent -= first.bytes_sent;
        all.packets_sent -= first.packets_sent;
        (first, all)
    }

    /// Counters of all lanes together.
    pub fn totals(&self) -> Totals {
        let own = self.own_totals();
        let Some(circuit) = self.circuit.get() else { return own };
        let beside = circuit.own_totals();
        let (mut sending, other) = (own.sending, beside.sending);
        sending.packets_sent += other.packets_sent;
        sending.packets_resent += other.packets_resent;
        sending.lost = sending.lost.plus(&other.lost);
        Totals { sending, received: own.received + beside.received }
    }

    fn own_totals(&self) -> Totals {
        let mut totals = Totals::default();
        for view in &self.views {
            let stats = lock(view).stats;
            totals.received += stats.packets_received;
            totals.sending.packets_sent += stats.packets_sent;
            totals.sending.packets_resent += stats.packets_resent;
        }
        let path = lock(&self.path);
        totals.sending.lost = path.losses();
        if path.rtt().has_sample() {
            let mut least = lock(&self.rtt_min);
            let min = path.rtt().min();
            let min = least.map_or(min, |least| least.min(min));
            *least = Some(min);
            totals.sending.rtt = path.rtt().smoothed();
            totals.sending.rtt_min = min;
        }
        totals
    }

    /// Time by what held the pace of those who carry groups: those on the circuit, once there are
    /// any.
    fn times(&self) -> Times {
        if let Some(circuit) = self.circuit.get() {
            return circuit.times();
        }
        let first = Times::of_path(&lock(&self.path));
        match self.onward.get() {
            Some((path, before)) => first.plus(&Times::of_path(&lock(path)).since(before)),
            None => first,
        }
    }

    /// What the threads have spent that carry groups.
    fn spent(&self) -> Spent {
        self.circuit.get().map_or_else(|| self.crew.spent(), |circuit| circuit.crew.spent())
    }

    /// Bytes that arrived at the peer, and here, also over a circuit.
    fn passed(&self) -> (u64, u64) {
        let beside = self.circuit.get().map_or((0, 0), Self::passed);
        self.views.iter().fold(beside, |(there, here), view| {
            let stats = lock(view).stats;
            (there + stats.bytes_delivered, here + stats.bytes_received)
        })
    }

    /// See [`CarrierSeen::moved`].
    fn moved(&self) -> u64 {
        let beside = self.circuit.get().map_or(0, Self::moved);
        self.views.iter().fold(beside, |sum, view| {
            let view = lock(view);
            sum + view.stats.fresh_bytes_delivered + view.placed
        })
    }

    /// The least of late, that of the circuit if it is longer.
    fn round_trip(&self) -> Duration {
        let beside = self.circuit.get().map_or(Duration::ZERO, Self::round_trip);
        let path = lock(&self.path);
        if path.rtt().has_sample() { path.rtt().min().max(beside) } else { beside }
    }

    /// Any lane is told the same, sooner or later.
    fn peer(&self) -> ReceiverBounds {
        let mut views = self.views.iter().map(|view| lock(view).peer);
        views.find(|peer| *peer != ReceiverBounds::NONE).unwrap_or_default()
    }
}

/// Sums over the lanes of a connection, and the state of their path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// How sending goes; what bounds it, and CPU time, are not known here.
    pub sending: SourceReport,
    /// Grows while the peer shows that it lives.
    pub received: u64,
}

fn random_seed() -> u64 {
    let mut seed = [0; 8];
    // Without randomness TLS would have failed long before.
    let _ = aws_lc_rs::rand::fill(&mut seed);
    u64::from_ne_bytes(seed)
}
