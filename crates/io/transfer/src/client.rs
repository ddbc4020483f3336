//! `longhaul cp`: a copy between this host and a server.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use longhaul_engine::Path;
use longhaul_objects::{Fsync, SinkConfig};
use longhaul_rate_control::{Bound, Governor, Profile, Start};
use longhaul_session::{ClientConfig, Session};
use longhaul_sys::clock;
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_units::{Bytes, Duration, Instant, LaneId, Rate};
use longhaul_wire::{Carrier, CloseCode, Direction, ReceiveLimits, Request, SourceReport};

use crate::api::{CarrierChoice, CopyOptions, CopyReport, LinkReport, Location, Snapshot, Stop};
use crate::budget::SINK_MEMORY;
use crate::carrier::{Hub, Mailbox, join_all};
use crate::circuit::{Circuit, CircuitOptions, CircuitReport, Errand, Follower};
use crate::connection::{LaneEnd, LaneRules, Lanes, UdpLanes, mailboxes};
use crate::control::{ConnectError, Control, ControlEnd, Dialed, ServerIdentity, dial};
use crate::files::{
    Destination, DestinationError, SinkOptions, SinkTree, SourceTree, source_label, transfer_id,
};
use crate::hub::{Side, State, TransferHub};
use crate::lane::LaneSocket;
use crate::progress::Progress;
use crate::sink::SinkDriver;
use crate::source::SourceDriver;
use crate::tcp::{self, JoinError, TcpCarrierOptions, TcpLanes};
use crate::watch::Watch;

/// Why a copy did not come to its end. What is durable stays, and a rerun goes on from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// Nothing to do it with: both sides local, both remote, several servers, an unknown profile.
    #[error("{0}")]
    Usage(String),
    /// The server cannot be reached or does not let us in.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connections of the TCP carrier cannot be made.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The local destination cannot be used.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// The server does not grant the request.
    #[error("{server} refuses: {reason}")]
    Refused {
        /// The server.
        server: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// No packet came through.
    #[error(
        "no UDP packet comes through to {server} (blocked by a firewall?); what is kept: nothing \
         was sent; try --carrier tcp"
    )]
    UdpBlocked {
        /// The server.
        server: SocketAddr,
    },
    /// The connection ended before the copy was complete.
    #[error(
        "the connection to {server} ended: {reason}; what was written is kept, run the same command again to go on"
    )]
    Lost {
        /// The server.
        server: SocketAddr,
        /// Why.
        reason: String,
    },
    /// The server failed: disk full, ...
    #[error(
        "{server} cannot go on: {reason}; what was written is kept, run the same command again to \
         go on"
    )]
    Server {
        /// The server.
        server: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// This host failed: disk full, ...
    #[error("{0}; what was written is kept, run the same command again to go on")]
    Local(String),
    /// The user stopped it.
    #[error("stopped; what was written is kept, run the same command again to go on")]
    Stopped,
}

/// Copies as `options` say. Blocks until everything is durable at the destination, or failed.
///
/// # Errors
/// See [`CopyError`]. A copy of which some entries failed is no error; see
/// [`CopyReport::failures`].
pub fn copy(
    options: &CopyOptions,
    progress: &Progress,
    stop: &Stop,
) -> Result<CopyReport, CopyError> {
    let started = clock::now();
    let job = Job::new(options)?;
    if options.circuit.is_some() && job.direction == Direction::Pull {
        return Err(CopyError::Usage(
            "the side with the files books the circuit: run this at the server, as a copy to here"
                .into(),
        ));
    }
    let profile = profile(&options.profile, options.rate).map_err(CopyError::Usage)?;
    let mut notices = Vec::new();
    let first = match options.carrier {
        CarrierChoice::Tcp if options.circuit.is_some() => {
            return Err(CopyError::Usage(
                "a circuit carries UDP lanes, not TCP connections".into(),
            ));
        }
        CarrierChoice::Tcp => Carrier::Tcp,
        CarrierChoice::Auto | CarrierChoice::Udp => Carrier::Udp,
    };
    let attempt = Attempt { options, job: &job, profile, started };
    match attempt.run(first, &notices, progress, stop) {
        Err(CopyError::UdpBlocked { server })
            if options.carrier == CarrierChoice::Auto && options.circuit.is_none() =>
        {
            let notice = format!("no UDP packet comes through to {server}: TCP carries instead");
            progress.tell(&notice);
            notices.push(notice);
            attempt.run(Carrier::Tcp, &notices, progress, stop)
        }
        result => result,
    }
}

/// One try with one carrier.
struct Attempt<'a> {
    options: &'a CopyOptions,
    job: &'a Job,
    profile: &'static Profile,
    started: Instant,
}

impl Attempt<'_> {
    fn run(
        &self,
        carrier: Carrier,
        notices: &[String],
        progress: &Progress,
        stop: &Stop,
    ) -> Result<CopyReport, CopyError> {
        let options = self.options;
        let socket_buffer = Bytes::new(UdpOptions::default().receive_buffer as u64);
        let credit = SINK_MEMORY;
        let config = ClientConfig {
            protect: options.protect,
            carrier,
            // The first stays on IP.
            lanes: options.lanes.max(1) + u16::from(options.circuit.is_some()),
            implementation: Some(IMPLEMENTATION.into()),
            receive_limits: Some(ReceiveLimits { socket_buffer, credit }),
            profile: Some(options.profile.clone()),
            rate: options.rate.filter(|_| self.job.direction == Direction::Pull),
            ..ClientConfig::default()
        };
        let Job { host, port, .. } = self.job;
        let idle = options.idle_timeout;
        let dialed = dial(host, *port, &options.token, &config, idle, stop)?;
        let mut running = Running::start(self, dialed, notices.to_vec(), stop)?;
        let end = running.watch(progress, stop);
        running.finish(end, options, progress)
    }
}

/// What is to be done, sorted out.
struct Job {
    host: String,
    port: u16,
    direction: Direction,
    /// Here.
    local: Vec<PathBuf>,
    /// There.
    remote: Vec<Vec<u8>>,
}

impl Job {
    fn new(options: &CopyOptions) -> Result<Self, CopyError> {
        let usage = |text: &str| Err(CopyError::Usage(text.into()));
        let mut local = Vec::new();
        let mut remote = Vec::new();
        let mut server = None;
        for source in &options.sources {
            match source {
                Location::Local(path) => local.push(path.clone()),
                Location::Remote { host, port, path } => {
                    if *server.get_or_insert((host, port)) != (host, port) {
                        return usage("all sources have to be at one server");
                    }
                    remote.push(path.clone());
                }
            }
        }
        match (&options.destination, server) {
            _ if options.sources.is_empty() => usage("nothing to copy"),
            (Location::Remote { host, port, path }, None) => Ok(Self {
                host: host.clone(),
                port: *port,
                direction: Direction::Push,
                local,
                remote: vec![path.clone()],
            }),
            (Location::Local(path), Some((host, port))) if local.is_empty() => Ok(Self {
                host: host.clone(),
                port: *port,
                direction: Direction::Pull,
                local: vec![path.clone()],
                remote,
            }),
            (Location::Local(_), None) => {
                usage("both sides are on this host: one has to be lh://HOST/PATH")
            }
            _ => usage("one side has to be on this host"),
        }
    }

    fn request(&self, options: &CopyOptions) -> Request {
        let label = match self.direction {
            Direction::Push => source_label(&self.local, options.copy_contents),
            Direction::Pull => [0; 16],
        };
        Request {
            direction: self.direction,
            destination_is_directory: options.destination_is_directory,
            sync_at_end: options.fsync == Fsync::End,
            copy_contents: options.copy_contents,
            label,
            paths: self.remote.clone(),
        }
    }
}

/// The profile of that name, if `rate` is what it needs.
pub(crate) fn profile(name: &str, rate: Option<Rate>) -> Result<&'static Profile, String> {
    let profile = Profile::by_name(name).ok_or_else(|| {
        let names: Vec<_> = Profile::names().collect();
        let names = names.join(", ");
        format!("no profile {name:?}; there are {names}")
    })?;
    if profile.needs_rate && rate.is_none() {
        return Err(format!("profile {name} needs --rate"));
    }
    Ok(profile)
}

/// Rate control for a connection of this host.
pub(crate) fn path(profile: &Profile, rate: Option<Rate>, rtt: Duration) -> Result<Path, String> {
    let now = clock::now();
    let start = Start { now, packet: 1500, rate };
    let controller = profile.controller(&start).map_err(|error| error.to_string())?;
    let mut governor = Governor::new(now);
    if let Some(rate) = rate.filter(|_| !profile.needs_rate) {
        governor.set(Bound::UserLimit, rate);
    }
    Ok(Path::new(now, controller, governor, rtt, now.as_nanos()))
}

/// The side of a copy that this host plays.
#[derive(Clone)]
enum Part {
    Source(Arc<SourceDriver>),
    Sink(Arc<SinkDriver>),
}

impl Part {
    fn side(&self) -> Side {
        match self {
            Self::Source(source) => Side::Source(source.clone()),
            Self::Sink(sink) => Side::Sink(sink.clone()),
        }
    }
}

/// A copy under way.
struct Running {
    server: SocketAddr,
    session: Arc<Session>,
    circuit: Option<Circuit>,
    control: Control,
    hub: Arc<TransferHub>,
    part: Part,
    lanes: Lanes,
    mailboxes: Vec<Arc<Mailbox>>,
    workers: Vec<JoinHandle<()>>,
    started: Instant,
    /// Since when packets could come.
    connected: Instant,
    notices: Vec<String>,
    rates: RateMeter,
    watch: Watch,
}

/// How a copy ended.
enum End {
    Done,
    Failed(CopyError),
}

impl Running {
    fn start(
        attempt: &Attempt<'_>,
        dialed: Dialed,
        mut notices: Vec<String>,
        stop: &Stop,
    ) -> Result<Self, CopyError> {
        let local = |error: std::io::Error| CopyError::Local(error.to_string());
        let Attempt { options, job, profile, started } = attempt;
        let Dialed { session, control, server, identity, local: address, rtt } = dialed;
        let session = Arc::new(session);
        let mut circuit = None;
        let boxes = mailboxes(session.lanes).map_err(local)?;
        let part = make_part(options, job, server, &boxes)?;
        let request = job.request(options).into();
        let hub = Arc::new(TransferHub::client(&request, boxes.clone()));
        hub.play(part.side());
        let watched = hub.clone();
        control.on_end(move |end| watched.change(|state| note_end(state, end)));
        let of_ip = if options.circuit.is_some() { 1 } else { session.lanes };
        let link = Link {
            session: &session,
            identity: &identity,
            server,
            local: address,
            rtt,
            profile,
            rate: options.rate,
            idle_timeout: options.idle_timeout,
        };
        let lanes = link.start(of_ip, &hub, &boxes, &mut notices, stop)?;
        if let (Some(options), Lanes::Udp(lanes), Part::Source(source)) =
            (&options.circuit, &lanes, &part)
        {
            source.hold();
            let errand = Errand::Copy(source.clone());
            let follower = link.follower(options, errand, &hub, &boxes, lanes, *started);
            circuit = Some(Circuit::start(follower).map_err(local)?);
        }
        let workers = part.side().start(&hub).map_err(local)?;
        Ok(Self {
            server,
            session,
            circuit,
            control,
            hub,
            part,
            lanes,
            mailboxes: boxes,
            workers,
            started: *started,
            connected: clock::now(),
            notices,
            rates: RateMeter::new(*started),
            watch: Watch::new(),
        })
    }

    /// Until the copy is done or cannot be.
    fn watch(&mut self, progress: &Progress, stop: &Stop) -> End {
        let server = self.server;
        let mut received = 0;
        loop {
            let state = self.hub.wait(INTERVAL, |state| self.judge(state).is_some());
            self.watch.look(&self.part.side(), &self.lanes);
            progress.set(self.snapshot());
            received = self.lanes.vouch(&self.control, received);
            if let Some(end) = self.judge(&state) {
                return end;
            }
            if stop.is_requested() {
                return End::Failed(CopyError::Stopped);
            }
            if state.validated.is_none() && clock::now() - self.connected > UDP_PATIENCE {
                return End::Failed(CopyError::UdpBlocked { server });
            }
        }
    }

    /// Whether the copy is at its end.
    fn judge(&self, state: &State) -> Option<End> {
        let server = self.server;
        if self.is_done(state) {
            return Some(End::Done);
        }
        if let Some(refused) = &state.refused {
            let reason = refused.reason.clone();
            return Some(End::Failed(CopyError::Refused { server, reason }));
        }
        if let Some(reason) = &state.failed {
            return Some(End::Failed(CopyError::Local(reason.clone())));
        }
        let closed = state.closed.as_ref()?;
        let reason = match closed.reason.as_str() {
            "" => closed.code.to_string(),
            reason => reason.to_string(),
        };
        Some(End::Failed(match closed.code {
            CloseCode::STORAGE if closed.by_peer => CopyError::Server { server, reason },
            _ => CopyError::Lost { server, reason },
        }))
    }

    fn is_done(&self, state: &State) -> bool {
        match &self.part {
            Part::Source(source) => source.result().is_some(),
            Part::Sink(sink) => {
                if !sink.is_done() {
                    return false;
                }
                // RESULT is on its way; the source half-closes when it has read it.
                self.hub.finish();
                state.stream_ended || state.closed.is_some()
            }
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let now = clock::now();
        let mut snapshot = match &self.part {
            Part::Source(source) => {
                let stats = source.stats();
                let done = stats.confirmed_bytes.max(
                    stats.sent_bytes.saturating_sub(self.lanes_backlog()) + stats.resumed_bytes,
                );
                Snapshot {
                    bytes_done: done.min(stats.bytes),
                    bytes_total: stats.complete.then_some(stats.bytes),
                    files_done: stats.confirmed.into(),
                    files_total: stats.complete.then_some(stats.entries.into()),
                    resumed_bytes: stats.resumed_bytes,
                    ..Snapshot::default()
                }
            }
            Part::Sink(sink) => {
                let stats = sink.stats();
                Snapshot {
                    bytes_done: stats.received_bytes + stats.resumed_bytes,
                    bytes_total: stats.complete.then_some(stats.bytes),
                    files_done: stats.confirmed.into(),
                    files_total: stats.complete.then_some(stats.entries.into()),
                    resumed_bytes: stats.resumed_bytes,
                    ..Snapshot::default()
                }
            }
        };
        snapshot.rate =
            self.rates.update(now, snapshot.bytes_done.saturating_sub(snapshot.resumed_bytes));
        let sending = self.sending();
        snapshot.rtt = sending.rtt;
        snapshot.packets_sent = sending.packets_sent;
        snapshot.packets_lost = sending.lost.total();
        snapshot.bound = sending.bound;
        snapshot.elapsed = now - self.started;
        snapshot
    }

    /// How sending goes, as the side that sends says.
    fn sending(&self) -> SourceReport {
        match &self.part {
            Part::Source(_) => self.watch.sending(&self.lanes),
            Part::Sink(sink) => sink.source_report().unwrap_or_default(),
        }
    }

    fn lanes_backlog(&self) -> u64 {
        self.mailboxes.iter().map(|mailbox| mailbox.backlog()).sum()
    }

    fn finish(
        mut self,
        end: End,
        options: &CopyOptions,
        progress: &Progress,
    ) -> Result<CopyReport, CopyError> {
        let (code, reason) = match &end {
            End::Done => (CloseCode::DONE, String::new()),
            End::Failed(CopyError::Stopped) => (CloseCode::CANCELLED, "stopped by the user".into()),
            End::Failed(CopyError::Local(reason)) => (CloseCode::STORAGE, reason.clone()),
            End::Failed(_) => (CloseCode::CANCELLED, "given up by the client".into()),
        };
        let elapsed = clock::now() - self.started;
        self.watch.look_last(&self.part.side(), &self.lanes);
        progress.set(self.snapshot());
        let circuit = self.circuit.take().map(Circuit::finish).unwrap_or_default();
        self.notices.extend(circuit.notices);
        self.hub.finish();
        self.lanes.close(code, &reason);
        self.control.close(code, &reason);
        self.part.side().stop();
        self.lanes.join();
        join_all(&mut self.workers);
        match end {
            End::Done => Ok(self.report(elapsed, options, circuit.report)),
            End::Failed(error) => Err(error),
        }
    }

    fn report(
        self,
        elapsed: Duration,
        options: &CopyOptions,
        circuit: Option<CircuitReport>,
    ) -> CopyReport {
        let sending = self.sending();
        let state = self.hub.state();
        let setup = state.validated.map_or(elapsed, |at| at - self.started);
        let (bytes, files, resumed, cpu_remote, failures) = match &self.part {
            Part::Source(source) => {
                let result = source.result();
                let told = result.as_ref();
                (
                    told.map_or(0, |r| r.bytes.get()),
                    told.map_or(0, |r| r.confirmed),
                    told.map_or(0, |r| r.resumed.get()),
                    told.map(|r| r.cpu_time),
                    source.failures(),
                )
            }
            Part::Sink(sink) => {
                let stats = sink.stats();
                (
                    stats.confirmed_bytes,
                    stats.confirmed.into(),
                    stats.resumed_bytes,
                    sink.source_report().map(|report| report.cpu_time),
                    sink.failures(),
                )
            }
        };
        CopyReport {
            bytes,
            files,
            elapsed,
            setup,
            resumed_bytes: resumed,
            verified: failures.is_empty(),
            failures,
            link: LinkReport {
                cpu_remote,
                circuit,
                notices: self.notices,
                ..link_report(&self.lanes, &self.session, &options.profile, &sending)
            },
        }
    }
}

/// What is known of a connection that a profile drove, and of how the side with the data sent.
pub(crate) fn link_report(
    lanes: &Lanes,
    session: &Session,
    profile: &str,
    sending: &SourceReport,
) -> LinkReport {
    LinkReport {
        carrier: lanes.name(),
        profile: profile.into(),
        protect: session.protect,
        rtt: sending.rtt_min,
        packets_sent: sending.packets_sent,
        packets_resent: sending.packets_resent,
        lost: sending.lost,
        bottleneck: sending.bottleneck,
        cpu_local: clock::process_cpu_time(),
        cpu_remote: None,
        circuit: None,
        notices: Vec::new(),
    }
}

/// What a client's lanes are made of.
pub(crate) struct Link<'a> {
    pub session: &'a Arc<Session>,
    pub identity: &'a ServerIdentity,
    pub server: SocketAddr,
    /// This host's address towards it.
    pub local: IpAddr,
    pub rtt: Duration,
    pub profile: &'static Profile,
    pub rate: Option<Rate>,
    pub idle_timeout: Duration,
}

/// Why lanes cannot be started.
#[derive(Debug)]
pub(crate) enum LinkError {
    Usage(String),
    Join(JoinError),
    Local(String),
}

impl From<std::io::Error> for LinkError {
    fn from(error: std::io::Error) -> Self {
        Self::Local(error.to_string())
    }
}

impl From<LinkError> for CopyError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Usage(reason) => Self::Usage(reason),
            LinkError::Join(error) => Self::Join(error),
            LinkError::Local(reason) => Self::Local(reason),
        }
    }
}

impl Link<'_> {
    /// Where the server's UDP lanes are.
    pub fn udp_address(&self) -> SocketAddr {
        SocketAddr::new(self.server.ip(), self.session.udp_port.unwrap_or(self.server.port()))
    }

    /// What books a circuit for `errand`, and takes all lanes but the first to it.
    pub fn follower(
        &self,
        options: &CircuitOptions,
        errand: Errand,
        hub: &Arc<TransferHub>,
        mailboxes: &[Arc<Mailbox>],
        lanes: &UdpLanes,
        started: Instant,
    ) -> Follower {
        Follower {
            options: options.clone(),
            session: self.session.clone(),
            hub: hub.clone(),
            errand,
            mailboxes: mailboxes[1..].to_vec(),
            ip: lanes.path().clone(),
            place: lanes.circuit().clone(),
            server: self.udp_address(),
            local: self.local,
            idle_timeout: self.idle_timeout,
            started,
            shared: Arc::default(),
        }
    }

    /// Starts the carrier that was agreed on: of UDP lanes the first `count`.
    pub fn start(
        &self,
        count: u16,
        hub: &Arc<TransferHub>,
        mailboxes: &[Arc<Mailbox>],
        notices: &mut Vec<String>,
        stop: &Stop,
    ) -> Result<Lanes, LinkError> {
        let Self { session, identity, server, rtt, profile, rate, idle_timeout, .. } = *self;
        if session.carrier == Carrier::Tcp {
            let tcp = tcp_options(rate, idle_timeout);
            let joined = tcp::join(server, identity, session, &tcp, stop);
            let hub: Arc<dyn Hub> = hub.clone();
            let lanes =
                TcpLanes::start(joined.map_err(LinkError::Join)?, &tcp, &hub, mailboxes.to_vec());
            return Ok(Lanes::Tcp(lanes?));
        }
        let sockets = sockets(self.local, self.udp_address(), count)?;
        if let Some((_, LaneSocket::Own(socket, _), _)) = sockets.first() {
            notices.extend(socket_notices(socket));
        }
        let path = path(profile, rate, rtt).map_err(LinkError::Usage)?;
        let rules = LaneRules { repair: profile.repair, idle_timeout, punctual: false };
        let mailboxes = mailboxes[..count.into()].to_vec();
        let lanes = UdpLanes::start(session, sockets, path, rules, hub.clone(), mailboxes)?;
        Ok(Lanes::Udp(Box::new(lanes)))
    }
}

fn sockets(local: IpAddr, to: SocketAddr, count: u16) -> std::io::Result<Vec<LaneEnd>> {
    (0..count)
        .map(|lane| {
            let socket = UdpSocket::bind(SocketAddr::new(local, 0), &UdpOptions::default())?;
            socket.connect(to)?;
            Ok((LaneId(lane), LaneSocket::Own(socket, to), Some(to)))
        })
        .collect()
}

/// How this program uses the TCP carrier.
pub(crate) fn tcp_options(rate: Option<Rate>, idle_timeout: Duration) -> TcpCarrierOptions {
    TcpCarrierOptions { congestion_control: None, rate, join_timeout: JOIN_TIMEOUT, idle_timeout }
}

fn make_part(
    options: &CopyOptions,
    job: &Job,
    server: SocketAddr,
    mailboxes: &[Arc<Mailbox>],
) -> Result<Part, CopyError> {
    if job.direction == Direction::Push {
        let tree = SourceTree::local(&job.local, options.copy_contents);
        return Ok(Part::Source(Arc::new(SourceDriver::new(tree, mailboxes.to_vec()))));
    }
    let destination = job.local.first().map_or(FilePath::new("."), PathBuf::as_path);
    let place = server.to_string();
    let mut source = vec![place.as_bytes()];
    source.extend(job.remote.iter().map(Vec::as_slice));
    let label = OsStr::as_bytes(destination.as_os_str());
    let transfer = transfer_id(&source, label);
    let several = job.remote.len() > 1;
    let sink_options = SinkOptions {
        is_directory: options.destination_is_directory || several,
        transfer,
        fsync: options.fsync,
    };
    let (tree, resume) = SinkTree::open(Destination::Local(destination), &sink_options)?;
    let config = sink_config(options.fsync, transfer);
    Ok(Part::Sink(Arc::new(SinkDriver::new(tree, config, resume, mailboxes.to_vec()))))
}

/// What a sink of this program is told.
pub(crate) fn sink_config(fsync: Fsync, transfer: [u8; 16]) -> SinkConfig {
    let mut nonce = [0; 16];
    // Without randomness TLS would have failed before.
    let _ = aws_lc_rs::rand::fill(&mut nonce);
    SinkConfig { capacity: SINK_MEMORY.get(), fsync, transfer, nonce }
}

/// The control connection ended: so does the transfer.
pub(crate) fn note_end(state: &mut State, end: &ControlEnd) {
    let closed = match end {
        ControlEnd::Closed { code, reason, by_peer } => {
            longhaul_engine::Closed { code: *code, reason: reason.clone(), by_peer: *by_peer }
        }
        ControlEnd::Lost(reason) => longhaul_engine::Closed {
            code: CloseCode::TIMEOUT,
            reason: reason.clone(),
            by_peer: false,
        },
    };
    state.closed.get_or_insert(closed);
}

/// What the user should know of a socket.
pub(crate) fn socket_notices(socket: &UdpSocket) -> Vec<String> {
    let mut notices = Vec::new();
    let buffer = socket.receive_buffer();
    if let Some(sysctl) = buffer.sysctl_to_raise() {
        notices.push(format!(
            "the socket buffer is {} bytes instead of {}: raise sysctl {sysctl} to {}",
            buffer.obtained,
            buffer.asked,
            buffer.asked * 2
        ));
    }
    notices.extend(socket.capabilities().missing().map(str::to_string));
    notices
}

/// Goodput over about the last second.
pub(crate) struct RateMeter {
    points: std::collections::VecDeque<(Instant, u64)>,
}

impl RateMeter {
    pub fn new(now: Instant) -> Self {
        Self { points: [(now, 0)].into() }
    }

    pub fn update(&mut self, now: Instant, bytes: u64) -> Rate {
        self.points.push_back((now, bytes));
        while self.points.len() > 2 && now - self.points[1].0 > Duration::from_secs(1) {
            self.points.pop_front();
        }
        let (then, before) = self.points[0];
        Rate::from_bytes_over(bytes.saturating_sub(before), (now - then).max(INTERVAL / 10))
    }
}

pub(crate) const IMPLEMENTATION: &str = concat!("longhaul/", env!("CARGO_PKG_VERSION"));
/// How often the state is looked at when nothing happens.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// How long UDP may stay silent once the server let us in.
pub(crate) const UDP_PATIENCE: Duration = Duration::from_secs(5);
/// How long the connections of the TCP carrier may take.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
