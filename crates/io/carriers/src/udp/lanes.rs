//! The UDP lanes of a connection, and the threads of the side that this host plays.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use longhaul_connection::CarrierSeen;
use longhaul_engine::{LaneConfig, Path, Role};
use longhaul_host::Part;
use longhaul_rate_control::{FeedbackSchedule, Repair};
use longhaul_session::Session;
use longhaul_sys::random;
use longhaul_sys::sync::lock;
use longhaul_sys::udp::BufferSize;
use longhaul_units::{Bytes, Duration, LaneId, Rate};
use longhaul_wire::{CloseCode, MONITOR_LANE, ReceiverBounds};

use super::lane::{self, HostDrops, KernelRefusal, LaneSetup, LaneSocket, LaneView};
use super::paths::{Account, ConnectionPaths, FIRST};
use crate::carrier::{Carrier, HostView, Totals};
use crate::host_monitor::{HostMonitor, NullUpperLayer, Priority, Sentinel};
use crate::losses::LossLog;
use crate::protection::{Protection, object_tag_len};
use crate::thread_group::ThreadGroup;
use crate::upper_layer::{Mailbox, UpperLayer, close_all, join_all};

/// The UDP lanes of a connection.
pub struct UdpLanes {
    mailboxes: Vec<Arc<Mailbox>>,
    /// The mailbox of the monitor's lane.
    own: Option<Arc<Mailbox>>,
    paths: Arc<ConnectionPaths>,
    views: Vec<Arc<Mutex<LaneView>>>,
    threads: Vec<JoinHandle<()>>,
    /// Those that carry data.
    thread_group: Arc<ThreadGroup>,
    /// The least round trip that was seen.
    rtt_min: Mutex<Option<Duration>>,
    monitor: Option<HostMonitor>,
    /// Receive buffers, as they were asked for and granted.
    buffers: Option<BufferSize>,
    /// Packets that this host drops.
    drops: Arc<HostDrops>,
}

/// A lane to be started: its number, its socket, and where the peer is, if known.
pub type LaneEnd = (LaneId, LaneSocket, Option<SocketAddr>);

/// Rules for a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneRules {
    /// Repair of losses.
    pub repair: Repair,
    /// Schedule of the receiver's reports.
    pub feedback: FeedbackSchedule,
    /// Without a packet for so long the lane is given up.
    pub idle_timeout: Duration,
    /// Which data it carries.
    pub duty: Duty,
}

/// Purpose of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Data and, on the first lane, messages.
    Any,
    /// Messages, beside a circuit that carries the data.
    Messages,
    /// Data, on a circuit for a while: capacity that its thread does not use in time is lost, so it runs
    /// before others where it may.
    Booked,
}

impl Duty {
    /// Priority of its thread, where that of the others is `usual`.
    fn priority(self, usual: Priority) -> Priority {
        match (self, usual) {
            (Self::Booked, Priority::Usual) => Priority::Punctual,
            (_, priority) => priority,
        }
    }
}

/// Measures against this host's own faults.
pub struct Hosting {
    /// The profile wants to know what this host can take.
    pub monitor: Option<Monitoring>,
    /// Scheduling of the threads of lanes and of the monitor.
    pub priority: Priority,
}

/// The part that announces what this host can take, and the lane for that (docs/protocol.md 4.7).
pub struct Monitoring {
    /// The part that speaks for the host.
    pub part: Part,
    /// The messages of its lane.
    pub mailbox: Arc<Mailbox>,
    /// The socket of its lane.
    pub socket: LaneSocket,
    /// The peer's address, if known.
    pub remote: Option<SocketAddr>,
    /// It shares nothing with those of the data, whose locks others may hold.
    pub path: Path,
}

impl UdpLanes {
    /// Starts a lane per socket, all of them on the first path of `paths`; a mailbox for each, in their
    /// order. Each loss is reported to `losses`.
    pub fn start(
        session: &Session,
        sockets: Vec<LaneEnd>,
        paths: ConnectionPaths,
        rules: impl Fn(LaneId) -> LaneRules,
        hosting: Hosting,
        (upper, mailboxes): (Arc<dyn UpperLayer>, Vec<Arc<Mailbox>>),
        losses: Option<&Arc<LossLog>>,
    ) -> io::Result<Self> {
        let (monitor, own) = match hosting.monitor {
            Some(monitoring) => {
                let stores = upper.clone();
                let stored = Box::new(move || stores.stored());
                let Monitoring { part, mailbox, .. } = &monitoring;
                let (monitor, sentinel) = HostMonitor::new(&mailboxes, mailbox, *part, stored);
                (Some(monitor), Some((monitoring, sentinel)))
            }
            None => (None, None),
        };
        let mut lanes = Self {
            mailboxes,
            own: None,
            paths: Arc::new(paths),
            views: Vec::new(),
            threads: Vec::new(),
            thread_group: Arc::default(),
            rtt_min: Mutex::default(),
            monitor,
            buffers: None,
            drops: Arc::new(HostDrops::since_now()),
        };
        let beside = Arc::new(ThreadGroup::default());
        for (i, (lane, socket, remote)) in sockets.into_iter().enumerate() {
            let rules = rules(lane);
            let buffer = socket.receive_buffer();
            lanes.buffers = Some(buffer);
            let mut config = configure(session, lane, remote, &rules);
            config.socket_buffer = Some(Bytes::new(buffer.obtained as u64));
            config.datagram_max = socket.datagram_max();
            let view = Arc::new(Mutex::new(LaneView::default()));
            lanes.views.push(view.clone());
            let thread = lane::spawn(LaneSetup {
                config,
                paths: lanes.paths.clone(),
                path: lanes.paths.path(FIRST),
                socket,
                seal: Protection::new(session.send_keys(lane), session.cipher, session.protect),
                open: Protection::new(session.receive_keys(lane), session.cipher, session.protect),
                upper: upper.clone(),
                mailbox: lanes.mailboxes[i].clone(),
                shared: view,
                thread_group: match rules.duty {
                    Duty::Messages => beside.clone(),
                    _ => lanes.thread_group.clone(),
                },
                drops: Some(lanes.drops.clone()),
                priority: rules.duty.priority(hosting.priority),
                monitor: lanes.monitor.as_ref().map(|monitor| monitor.watch(i)),
                sentinel: None,
                losses: losses.cloned(),
            })?;
            lanes.threads.push(thread);
        }
        if let Some((monitoring, sentinel)) = own {
            lanes.start_monitor(session, monitoring, sentinel, hosting.priority, &upper)?;
        }
        Ok(lanes)
    }

    /// Starts the lane of the monitor. Nothing that it locks is held by another thread for longer than a
    /// few instructions while the connection lives.
    fn start_monitor(
        &mut self,
        session: &Session,
        monitoring: Monitoring,
        sentinel: Sentinel,
        priority: Priority,
        upper: &Arc<dyn UpperLayer>,
    ) -> io::Result<()> {
        let Monitoring { mailbox, socket, remote, path, .. } = monitoring;
        let lane = MONITOR_LANE;
        let mut config = LaneConfig::new(session.connection, lane, role(session), random_seed());
        config.remote = remote;
        config.object_tag = object_tag_len(session.protect);
        // Messages are small: this lane does not probe for larger packets.
        config.only_messages = true;
        let thread = lane::spawn(LaneSetup {
            config,
            paths: self.paths.clone(),
            path: Arc::new(Mutex::new(path)),
            socket,
            seal: Protection::new(session.send_keys(lane), session.cipher, session.protect),
            open: Protection::new(session.receive_keys(lane), session.cipher, session.protect),
            upper: Arc::new(NullUpperLayer(upper.clone())),
            mailbox: mailbox.clone(),
            shared: Arc::default(),
            thread_group: Arc::default(),
            drops: None,
            priority,
            monitor: self.monitor.as_ref().map(HostMonitor::listen),
            sentinel: Some(Box::new(sentinel)),
            losses: None,
        })?;
        self.threads.push(thread);
        self.own = Some(mailbox);
        Ok(())
    }

    /// Bytes that arrived at the peer, and here.
    fn arrived(&self) -> (u64, u64) {
        self.views.iter().fold((0, 0), |(there, here), view| {
            let stats = lock(view).stats;
            (there + stats.bytes_delivered, here + stats.bytes_received)
        })
    }

    /// See [`CarrierSeen::moved`].
    fn moved(&self) -> u64 {
        let moved = self.views.iter().map(|view| {
            let view = lock(view);
            view.stats.fresh_bytes_delivered + view.placed
        });
        moved.sum()
    }

    /// The peer's bounds: all lanes get the same, sooner or later.
    fn peer(&self) -> ReceiverBounds {
        let mut views = self.views.iter().map(|view| lock(view).peer);
        views.find(|peer| *peer != ReceiverBounds::NONE).unwrap_or_default()
    }
}

impl Carrier for UdpLanes {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn close(&self, code: CloseCode, reason: &str) {
        close_all(self.mailboxes.iter().chain(&self.own), code, reason);
    }

    fn join(&mut self) {
        join_all(&mut self.threads);
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for view in &self.views {
            let stats = lock(view).stats;
            totals.received += stats.packets_received;
            totals.sending.packets_sent += stats.packets_sent;
            totals.sending.packets_resent += stats.packets_resent;
        }
        totals.sending.lost = self.paths.losses();
        // The first path is the one over IP.
        let path = self.paths.path(FIRST);
        let path = lock(&path);
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

    fn seen(&self) -> CarrierSeen {
        let (delivered, received) = self.arrived();
        CarrierSeen {
            delivered,
            received,
            moved: self.moved(),
            round_trip: self.paths.round_trip(),
            times: self.paths.times(),
            spent: self.thread_group.spent(),
            peer: self.peer(),
        }
    }

    fn have_moved(&self) -> bool {
        self.moved() > 0
    }

    fn look(&self) {
        self.paths.look(|| self.accounts());
    }

    fn limit(&self, rate: Option<Rate>) {
        self.paths.limit(rate);
    }

    fn tell_limits(&self) {
        if let Some(monitor) = &self.monitor {
            monitor.speak();
        }
    }

    fn host(&self) -> HostView {
        HostView {
            monitored: self.monitor.as_ref().map(HostMonitor::account),
            views: self.views.clone(),
            drops: Some(self.drops.clone()),
            buffers: self.buffers,
        }
    }

    fn paths(&self) -> Option<&Arc<ConnectionPaths>> {
        Some(&self.paths)
    }

    fn accounts(&self) -> Vec<Account> {
        self.views.iter().map(|view| lock(view).carried.clone()).collect()
    }

    fn take_left_out(&self) -> Vec<String> {
        self.paths.take_left_out()
    }

    fn passed(&self) -> Option<u64> {
        self.views.iter().filter_map(|view| lock(view).passed).min()
    }

    fn refusal(&self) -> Option<KernelRefusal> {
        self.views.iter().find_map(|view| lock(view).refusal)
    }

    fn advice_on_silence(&self) -> Option<&'static str> {
        Some("if a firewall swallows UDP by now, --carrier tcp passes")
    }
}

/// A lane, but for its socket.
fn configure(
    session: &Session,
    lane: LaneId,
    remote: Option<SocketAddr>,
    rules: &LaneRules,
) -> LaneConfig {
    let mut config = LaneConfig::new(session.connection, lane, role(session), random_seed());
    config.path = FIRST;
    config.remote = remote;
    config.repair = rules.repair;
    config.feedback = rules.feedback;
    config.object_tag = object_tag_len(session.protect);
    config.idle_timeout = rules.idle_timeout;
    config
}

fn role(session: &Session) -> Role {
    match session.role {
        longhaul_session::Role::Client => Role::Client,
        longhaul_session::Role::Server => Role::Server,
    }
}

fn random_seed() -> u64 {
    // Without randomness TLS would have failed long before.
    u64::from_ne_bytes(random::bytes().unwrap_or_default())
}
