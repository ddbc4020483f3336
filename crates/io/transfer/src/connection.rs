//! A connection at work: its lanes, and the threads of the side that this host plays.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use longhaul_engine::{LaneConfig, Path, Role};
use longhaul_rate_control::Bound;
use longhaul_session::Session;
use longhaul_sys::clock;
use longhaul_units::{Bytes, Duration, Instant, LaneId};
use longhaul_wire::{Bottleneck, CloseCode, Losses, SourceReport};

use crate::buffer::lock;
use crate::carrier::{Hub, Mailbox, close_all, join_all};
use crate::control::Control;
use crate::hub::{Side, TransferHub};
use crate::lane::{self, LaneSetup, LaneSocket, LaneView};
use crate::losses::{LossJudge, LossSums};
use crate::protection::{Protection, object_tag_len};
use crate::tcp::TcpLanes;

/// What carries a connection: one or the other, with one face.
pub(crate) enum Lanes {
    Udp(UdpLanes),
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
                    bound: Bottleneck::Network,
                    bottleneck: Bottleneck::Network,
                    cpu_time: Duration::ZERO,
                };
                Totals { sending, received: info.bytes_received + info.bytes_acknowledged }
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
    threads: Vec<JoinHandle<()>>,
    belief: Mutex<Belief>,
}

/// What of a path is known by having looked at it again and again.
#[derive(Debug, Default)]
struct Belief {
    judge: LossJudge,
    rtt_min: Option<Duration>,
}

/// Mailboxes for `count` lanes.
pub(crate) fn mailboxes(count: u16) -> io::Result<Vec<Arc<Mailbox>>> {
    (0..count).map(|_| Mailbox::new().map(Arc::new)).collect()
}

impl UdpLanes {
    /// Starts a lane per socket.
    pub fn start(
        session: &Session,
        sockets: Vec<(LaneSocket, Option<SocketAddr>)>,
        path: Path,
        repair: longhaul_rate_control::Repair,
        idle_timeout: Duration,
        hub: Arc<dyn Hub>,
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> io::Result<Self> {
        let path = Arc::new(Mutex::new(path));
        let mut lanes = Self {
            mailboxes,
            path,
            views: Vec::new(),
            threads: Vec::new(),
            belief: Mutex::default(),
        };
        for (i, (socket, remote)) in sockets.into_iter().enumerate() {
            let lane = LaneId(i as u16);
            let role = match session.role {
                longhaul_session::Role::Client => Role::Client,
                longhaul_session::Role::Server => Role::Server,
            };
            let mut config = LaneConfig::new(session.connection, lane, role, random_seed());
            config.remote = remote;
            config.repair = repair;
            config.object_tag = object_tag_len(session.protect);
            config.idle_timeout = idle_timeout;
            let receiving = match &socket {
                LaneSocket::Own(socket, _) => socket,
                LaneSocket::Shared(socket, _) => socket,
            };
            let buffer = receiving.receive_buffer().obtained;
            config.socket_buffer = Some(Bytes::new(buffer as u64));
            config.datagram_max = datagram_max(receiving, remote);
            let view = Arc::new(Mutex::new(LaneView::default()));
            lanes.views.push(view.clone());
            lanes.threads.push(lane::spawn(LaneSetup {
                config,
                path: lanes.path.clone(),
                socket,
                seal: Protection::new(session.send_keys(lane), session.cipher, session.protect),
                open: Protection::new(session.receive_keys(lane), session.cipher, session.protect),
                hub: hub.clone(),
                mailbox: lanes.mailboxes[i].clone(),
                shared: view,
            })?);
        }
        Ok(lanes)
    }

    /// Says goodbye on all lanes.
    pub fn close(&self, code: CloseCode, reason: &str) {
        close_all(&self.mailboxes, code, reason);
    }

    /// Waits for the lanes to end; they do once closed.
    pub fn join(&mut self) {
        join_all(&mut self.threads);
    }

    /// Counters of all lanes together.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let mut sums = LossSums::default();
        for view in &self.views {
            let view = lock(view).clone();
            sums.add(&view.stats, view.refused);
            totals.received += view.stats.packets_received;
            totals.sending.packets_resent += view.stats.packets_resent;
        }
        let mut belief = lock(&self.belief);
        let Belief { judge, rtt_min } = &mut *belief;
        let path = lock(&self.path);
        let (_, bound) = path.allowed();
        judge.observe(sums.sent, &path.metrics());
        if path.rtt().has_sample() {
            let min = path.rtt().min();
            totals.sending.rtt = path.rtt().smoothed();
            totals.sending.rtt_min = *rtt_min.insert(rtt_min.map_or(min, |least| least.min(min)));
        }
        totals.sending.packets_sent = sums.sent;
        totals.sending.lost = judge.divide(&sums);
        totals.sending.bound = bottleneck(bound);
        totals.sending.bottleneck = bottleneck(path.governor().limited_by());
        totals
    }
}

/// Sums over the lanes of a connection, and the state of their path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// How sending goes; CPU time is not known here.
    pub sending: SourceReport,
    /// Grows while the peer shows that it lives.
    pub received: u64,
}

/// A bound, as the peer is told.
fn bottleneck(bound: Bound) -> Bottleneck {
    Bottleneck::from_code(bound.code())
}

/// UDP payload that the device towards `remote` takes; that of Ethernet where it is not known.
fn datagram_max(socket: &longhaul_sys::udp::UdpSocket, remote: Option<SocketAddr>) -> u16 {
    let headers = if remote.is_some_and(|remote| remote.is_ipv6()) { 48 } else { 28 };
    let mtu = socket.device_mtu().unwrap_or(JUMBO_MTU);
    u16::try_from(mtu).unwrap_or(u16::MAX).saturating_sub(headers)
}

/// Where the device is not known, sizes up to jumbo frames are tried.
const JUMBO_MTU: u32 = 9000;

fn random_seed() -> u64 {
    let mut seed = [0; 8];
    // Without randomness TLS would have failed long before.
    let _ = aws_lc_rs::rand::fill(&mut seed);
    u64::from_ne_bytes(seed)
}

/// Threads of a side: they end when the side is stopped.
pub(crate) fn start_side(side: &Side, hub: &Arc<TransferHub>) -> io::Result<Vec<JoinHandle<()>>> {
    let named = |name: &str| std::thread::Builder::new().name(name.into());
    let mut threads = Vec::new();
    match side {
        Side::Source(source) => {
            let scanning = source.clone();
            threads.push(named("scan").spawn(move || scanning.scan())?);
            for _ in 0..WORKERS {
                let source = source.clone();
                threads.push(named("read").spawn(move || source.work())?);
            }
        }
        Side::Sink(sink) => {
            for _ in 0..WORKERS {
                let (sink, hub) = (sink.clone(), hub.clone());
                threads.push(named("write").spawn(move || {
                    if let Err(reason) = sink.work() {
                        hub.fail(reason);
                    }
                })?);
            }
        }
    }
    Ok(threads)
}

/// When the sink is told how sending goes.
pub(crate) struct Reports {
    due: Instant,
}

impl Reports {
    pub fn new() -> Self {
        Self { due: clock::now() + REPORT_INTERVAL }
    }

    /// Tells the peer of `side`, if it is the source and it is time.
    pub fn tell(&mut self, side: &Side, lanes: &Lanes) {
        let now = clock::now();
        if now >= self.due {
            self.due = now + REPORT_INTERVAL;
            self.tell_now(side, lanes);
        }
    }

    /// The same, whatever the time.
    pub fn tell_now(&self, side: &Side, lanes: &Lanes) {
        if let Side::Source(source) = side {
            source.report(lanes.totals().sending);
        }
    }
}

/// Often enough for a progress display, and next to nothing beside the data.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// Threads that read and hash, or hash and write.
const WORKERS: usize = 2;
