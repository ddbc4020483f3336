//! A connection at work: its lanes, and the threads of the side that this host plays.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use longhaul_engine::{LaneConfig, LaneStats, Path, Role};
use longhaul_rate_control::{Bound, LossCounts};
use longhaul_session::Session;
use longhaul_sys::clock;
use longhaul_units::{Bytes, Duration, LaneId, Rate};
use longhaul_wire::{Bottleneck, CloseCode};

use crate::buffer::lock;
use crate::carrier::{Hub, Mailbox, close_all, join_all};
use crate::control::Control;
use crate::hub::{Side, TransferHub};
use crate::lane::{self, LaneSetup, LaneSocket, LaneView};
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
                Totals {
                    packets_sent: u64::from(info.segments_sent),
                    packets_resent: resent,
                    received: info.bytes_received + info.bytes_acknowledged,
                    // The kernel does not tell why it resent.
                    lost: LossCounts { network: resent, ..LossCounts::default() },
                    rtt: info.rtt,
                    rtt_min: info.rtt_min,
                    bound: Some(Bound::Network),
                    limited_by: Some(Bound::Network),
                    ..Totals::default()
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
        let mut lanes = Self { mailboxes, path, views: Vec::new(), threads: Vec::new() };
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
        for view in &self.views {
            let view = lock(view).clone();
            totals.add(&view.stats);
            totals.send_failures += view.send_failures;
        }
        let path = lock(&self.path);
        totals.rtt = path.rtt().smoothed();
        totals.rtt_min = path.rtt().min();
        let (rate, bound) = path.allowed();
        totals.allowed = rate;
        totals.bound = Some(bound);
        totals.limited_by = Some(path.governor().limited_by());
        totals
    }
}

/// Sums over the lanes of a connection, and the state of their path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub packets_sent: u64,
    pub packets_resent: u64,
    /// Grows while the peer shows that it lives.
    pub received: u64,
    pub lost: LossCounts,
    pub send_failures: u64,
    pub rtt: Duration,
    pub rtt_min: Duration,
    pub allowed: Rate,
    pub bound: Option<Bound>,
    pub limited_by: Option<Bound>,
}

impl Totals {
    fn add(&mut self, stats: &LaneStats) {
        self.packets_sent += stats.packets_sent;
        self.packets_resent += stats.packets_resent;
        self.received += stats.packets_received;
        self.lost.network += stats.lost.network;
        self.lost.socket += stats.lost.socket;
        self.lost.host += stats.lost.host;
    }

    /// What limited the rate for the longest time, for reports.
    pub fn bottleneck(&self) -> Bottleneck {
        self.limited_by.map_or(Bottleneck::Unknown, |bound| Bottleneck::from_code(bound.code()))
    }
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

/// Threads that read and hash, or hash and write.
const WORKERS: usize = 2;
