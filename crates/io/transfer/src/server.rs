//! `longhaul serve`: lets clients copy from and to files below one directory, and joins their pipes.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_connection::{End, Silence, Transfer, Wish};
use longhaul_history::Direction as Asked;
use longhaul_objects::{Fsync, TopNames};
use longhaul_rate_control::{ChosenProfile, Profile, Unplayable};
use longhaul_session::ServerConfig;
use longhaul_sys::clock;
use longhaul_sys::files::ConfinedDir;
use longhaul_sys::host::Machine;
use longhaul_sys::process::raise_descriptor_limit;
use longhaul_sys::udp::{UdpOptions, UdpSocket, Wait};
use longhaul_sys::wait::{self, Interest};
use longhaul_units::{Bytes, Duration, LaneId};
use longhaul_wire::{
    Carrier, CloseCode, ConnectionId, Direction, Header, Hello, PipeRequest, PipeRole, Protect,
    ReceiveLimits, Refused, Request,
};
use rustix::io::Errno;

use crate::admission::{Place, Places};
use crate::api::{ServeEvent, ServeOptions, Served, Stop};
use crate::attend::{Attendant, INTERVAL};
use crate::budget::{Budget, MEMORY_LEAST};
use crate::buffer::lock;
use crate::carrier::{Mailbox, Stray, UpperLayer};
use crate::client::{path, socket_notices, tcp_options};
use crate::connection::{Duty, Hosting, LaneRules, Lanes, UdpLanes, mailboxes};
use crate::control::{Accepted, Acceptor, PendingClient};
use crate::copy::{Driver, UNCHECKED, receive, send, sink_config};
use crate::door::{ATTENDED_MAX, AtDoor, Door};
use crate::files::{
    Destination, SinkOptions, SinkTree, SourceTree, boot_id, is_hidden_name, transfer_id,
};
use crate::ids::{ConnectionIds, random_number};
use crate::lane::LaneSocket;
use crate::lease::{Lease, SharedMemory};
use crate::lines::{Opening, Owner};
use crate::mailboxes::Mailboxes;
use crate::monitor::Priority;
use crate::pipe::{Pipes, Seat};
use crate::recollection::Recollection;
use crate::shared::{Milestones, Shared, refuse};
use crate::sink::SinkDriver;
use crate::source::SourceDriver;
use crate::tcp::{Joins, TcpLanes};

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The directory cannot be served.
    #[error("cannot serve {root}: {reason}")]
    Root {
        /// The directory.
        root: String,
        /// Why.
        reason: String,
    },
    /// The address is in use or not ours.
    #[error("cannot listen at {address} ({transport}): {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// "TCP" or "UDP".
        transport: &'static str,
        /// What the operating system said.
        error: io::Error,
    },
    /// The operating system refuses something else.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Serves until `stop` is asked for, or, with [`ServeOptions::once`], until one client was served.
/// Transfers under way are then ended; what they have written is kept.
///
/// # Errors
/// See [`ServeError`]. What goes wrong with one client is told by `events` only.
pub fn serve(
    options: &ServeOptions,
    events: &(dyn Fn(ServeEvent) + Sync),
    stop: &Stop,
) -> Result<(), ServeError> {
    let root = ConfinedDir::open_root(&options.root);
    // What transfers keep for themselves is nobody else's.
    let root = root.map(|root| root.without(is_hidden_name)).map_err(|error| ServeError::Root {
        root: options.root.display().to_string(),
        reason: error.to_string(),
    })?;
    let mut udp_options = UdpOptions::default();
    udp_options.reuse_port = true;
    if let Some(size) = options.socket_buffer {
        let size = usize::try_from(size.get()).unwrap_or(usize::MAX);
        (udp_options.receive_buffer, udp_options.send_buffer) = (size, size);
    }
    // Where that is not allowed, strangers make room for clients sooner.
    let _ = raise_descriptor_limit();
    let (listener, udp) = listen(options.listen, &udp_options)?;
    let (address, udp) = (listener.local_addr()?, Arc::new(udp));
    for notice in socket_notices(&udp) {
        events(ServeEvent::Notice(notice));
    }
    let socket_buffer = Bytes::new(udp.receive_buffer().obtained as u64);
    let memory = Budget::new(options.memory);
    let all_memory = options.memory.unwrap_or_else(default_memory);
    let share = Share {
        root: Arc::new(root),
        read: options.allow_read,
        write: options.allow_write,
        direct: options.direct,
        memory,
        patience: options.stall_timeout,
        owner: None,
    };
    let config = ServerConfig {
        udp_port: Some(address.port()),
        implementation: Some(concat!("longhaul/", env!("CARGO_PKG_VERSION")).into()),
        receive_limits: Some(ReceiveLimits { socket_buffer, credit: memory.of_sink() }),
        ..ServerConfig::default()
    };
    let server = Server {
        options,
        events,
        stop,
        share,
        acceptor: Acceptor::new(&options.tokens, config, stop.clone())?,
        udp,
        lanes: Mutex::new(BTreeMap::new()),
        joins: Joins::default(),
        pipes: Arc::default(),
        // One client with one lane is served in any case.
        memory: SharedMemory::new(all_memory.max(MEMORY_LEAST + socket_buffer)),
        door: Door::default(),
        attended: Places::default(),
        clients: Places::default(),
        ids: ConnectionIds::default(),
        served: Stop::default(),
    };
    events(ServeEvent::Listening(address));
    std::thread::scope(|scope| {
        scope.spawn(|| server.pass_datagrams());
        server.accept(scope, &listener)
    })?;
    Ok(())
}

/// Listens for connections and for datagrams at one port. If the system may choose the port
/// (`address` has port 0), it is asked again while it chooses one that is taken for datagrams.
fn listen(
    address: SocketAddr,
    udp_options: &UdpOptions,
) -> Result<(TcpListener, UdpSocket), ServeError> {
    const CHOICES: usize = 100;
    let failed = |transport| move |error| ServeError::Listen { address, transport, error };
    let mut choices = if address.port() == 0 { CHOICES } else { 1 };
    loop {
        let listener = TcpListener::bind(address).map_err(failed("TCP"))?;
        listener.set_nonblocking(true)?;
        choices -= 1;
        match UdpSocket::bind(listener.local_addr()?, udp_options) {
            Ok(udp) => return Ok((listener, udp)),
            Err(error) if choices > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(failed("UDP")(error)),
        }
    }
}

struct Server<'a> {
    options: &'a ServeOptions,
    events: &'a (dyn Fn(ServeEvent) + Sync),
    stop: &'a Stop,
    share: Share,
    acceptor: Acceptor,
    udp: Arc<UdpSocket>,
    /// Lanes by connection and number: where datagrams go that come to the common socket.
    lanes: Mutex<BTreeMap<(u32, u16), Arc<Mailbox>>>,
    /// Sessions that wait for their TCP connections.
    joins: Joins,
    pipes: Arc<Pipes>,
    memory: SharedMemory,
    /// Connections that have not said who they are, and the threads that attend to them.
    door: Door,
    attended: Places,
    /// Proven clients, whom no number of strangers keeps out.
    clients: Places,
    ids: ConnectionIds,
    /// With `once`: a client was served.
    served: Stop,
}

impl Server<'_> {
    fn is_over(&self) -> bool {
        self.stop.is_requested() || self.served.is_requested()
    }

    fn accept<'scope, 'env>(
        &'env self,
        scope: &'scope std::thread::Scope<'scope, 'env>,
        listener: &TcpListener,
    ) -> io::Result<()> {
        while !self.is_over() {
            let deadline = clock::now() + INTERVAL;
            if wait::wait(&[(listener.as_fd(), Interest::Readable)], Some(deadline))? == 0 {
                continue;
            }
            let (stream, from) = match listener.accept() {
                Ok(accepted) => accepted,
                // The client was gone before we came, or descriptors are short: others go on.
                Err(error) => {
                    if let Some(Errno::MFILE | Errno::NFILE) = Errno::from_io_error(&error) {
                        self.door.make_room();
                    }
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            let from = canonical(from);
            let Some(attended) = self.place_to_attend() else { continue };
            let Ok(at_door) = self.door.admit(&stream, from.ip()) else {
                self.door.make_room();
                continue;
            };
            let thread = std::thread::Builder::new().name("longhaul-client".into());
            let attend = move || {
                // The thread has told of a panic. Places come back, and others are served on.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    self.attend(stream, from, (attended, at_door));
                }));
            };
            if thread.spawn_scoped(scope, attend).is_err() {
                self.door.make_room();
            }
        }
        Ok(())
    }

    /// Those that had to go from the door need a moment when many come at once.
    fn place_to_attend(&self) -> Option<Place<'_>> {
        for _ in 0..MOMENTS {
            if let Some(place) = self.attended.take(ATTENDED_MAX) {
                return Some(place);
            }
            std::thread::sleep(MOMENT);
        }
        None
    }

    /// One TCP connection, to its end.
    fn attend(&self, stream: TcpStream, from: SocketAddr, stranger: (Place<'_>, AtDoor<'_>)) {
        let refused = |reason: String| (self.events)(ServeEvent::Refused { client: from, reason });
        let local = stream.local_addr().map_or(self.udp.local_addr(), canonical);
        match self.acceptor.accept(stream) {
            Ok(Accepted::Client(client)) => {
                let Some(_place) = self.clients.take(self.options.connections_max) else {
                    client.refuse(CloseCode::BUSY, "as many clients as allowed are being served");
                    return refused("too many clients".into());
                };
                let sending = match sending(client.client().hello()) {
                    Ok(sending) => sending,
                    Err(error) => {
                        let reason = error.to_string();
                        client.refuse(CloseCode::UNSUPPORTED_OPTION, &reason);
                        return refused(reason);
                    }
                };
                let Some(lease) = self.lease(client.client().hello()) else {
                    client.refuse(CloseCode::BUSY, NO_MEMORY);
                    return refused("no memory is left for another client".into());
                };
                drop(stranger);
                let outcome = match self.serve_client(*client, sending, lease, from, local) {
                    // Its request was turned away: nothing was served.
                    Err((CloseCode::REFUSED, reason)) => return refused(reason),
                    other => other.map_err(|(_, reason)| reason),
                };
                (self.events)(ServeEvent::Ended { client: from, outcome });
                if self.options.once {
                    self.served.request();
                }
            }
            Ok(Accepted::Data(join)) => {
                if let Err(error) = self.joins.hand_over(*join) {
                    refused(error.to_string());
                }
            }
            Err(_) if stranger.1.had_to_go() => refused(CROWDED.into()),
            Err(error) => refused(error.to_string()),
        }
    }

    /// Memory for a client, and for the sockets of its lanes.
    fn lease(&self, hello: &Hello) -> Option<Arc<Lease>> {
        let buffer = match hello.carrier {
            Carrier::Udp => self.udp.receive_buffer().obtained as u64,
            // The kernel bounds those of all connections together (tcp_mem).
            Carrier::Tcp => 0,
        };
        self.memory.lease(Bytes::new(u64::from(hello.lanes) * buffer))
    }

    fn serve_client(
        &self,
        client: PendingClient,
        profile: ChosenProfile,
        lease: Arc<Lease>,
        from: SocketAddr,
        local: SocketAddr,
    ) -> Result<Served, (CloseCode, String)> {
        let text = |error: io::Error| (CloseCode::INTERNAL, error.to_string());
        let own_id = self.ids.take(random_number).map_err(text)?;
        let id = own_id.get();
        // Before the client is welcomed: its data connections may follow at once.
        let expected = self.joins.expect(ConnectionId(id.get()));
        let hello = client.client().hello();
        // Each token's pushes are its own; a server that has but one serves one party.
        let owner = (self.options.tokens.len() > 1).then_some(hello.key_id);
        let lanes = if hello.carrier == Carrier::Tcp { hello.lanes } else { 0 };
        let coming = self.door.expect(from.ip(), lanes.into());
        let (session, control) = client.welcome(id, self.options.idle_timeout).map_err(text)?;
        let boxes = mailboxes(session.lanes).map_err(text)?;
        let granted = Arc::new(Granted::default());
        let share = Share { memory: lease.budget(), owner, ..self.share.clone() };
        let (pipes, place) = (self.pipes.clone(), granted.clone());
        let (protect, profile_name) = (session.protect, profile.profile.name);
        let opener = move |shared: &Arc<Shared>, wish: &Wish| match wish {
            Wish::Copy(request) if request.unhashed && protect == Protect::Clear => {
                Err(refuse(CloseCode::REFUSED, UNCHECKED))
            }
            Wish::Copy(request) => share.open(request, &place, shared),
            Wish::Pipe(request) => share.open_pipe(&pipes, request, &place, shared),
        };
        let shared = Shared::server(Box::new(opener), Mailboxes::new(boxes.clone()));
        let watched = shared.clone();
        control.on_end(move |end| watched.note_end(end));
        let idle = self.options.idle_timeout;
        let _known = KnownLanes { lanes: &self.lanes, connection: id };
        let lanes = if session.carrier == Carrier::Tcp {
            let tcp = tcp_options(profile.rate, idle);
            let joined = expected.collect(&session, &tcp, self.stop);
            drop(coming);
            let joined = joined.map_err(|error| (CloseCode::INTERNAL, error.to_string()))?;
            let upper: Arc<dyn UpperLayer> = shared.clone();
            TcpLanes::start(joined, &tcp, &upper, boxes).map(Lanes::Tcp)
        } else {
            drop((expected, coming));
            for (lane, mailbox) in boxes.iter().enumerate() {
                lock(&self.lanes).insert((id.get(), lane as u16), mailbox.clone());
            }
            let end = |lane| (LaneId(lane), LaneSocket::Shared(self.udp.clone(), local), None);
            let sockets = (0..session.lanes).map(end).collect();
            let first = path(&profile, INITIAL_RTT);
            let priority = Priority::wished(self.options.host_priority);
            let hosting = Hosting { monitors: profile.profile.monitors_host, priority };
            let Profile { feedback, needs_rate, .. } = *profile.profile;
            let repair = profile.repair();
            let rules = LaneRules { repair, feedback, idle_timeout: idle, duty: Duty::Any };
            // The rate that a profile needs is that of one controller.
            let open = move || (!needs_rate).then(|| path(&profile, INITIAL_RTT));
            let owner = Owner::Server(Opening(Box::new(open)));
            let upper = shared.clone();
            let (paths, upper) = ((owner, first), (upper as Arc<dyn UpperLayer>, boxes));
            let lanes = UdpLanes::start(&session, sockets, paths, |_| rules, hosting, upper, None);
            lanes.map(|lanes| Lanes::Udp(Box::new(lanes)))
        };
        let outcome = match lanes {
            Ok(mut lanes) => {
                // What is left behind by a panic is put in order as after any other end.
                let peer = Peer { from, local, profile: profile_name };
                let run = || self.run(&shared, &lanes, &control, &peer, &granted, &lease);
                let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
                    shared.stop();
                    Err((CloseCode::INTERNAL, "a fault of the server ended it".into()))
                });
                let (code, reason) = match &outcome {
                    Ok(_) => (CloseCode::DONE, String::new()),
                    Err((code, reason)) => (*code, reason.clone()),
                };
                lanes.close(code, &reason);
                control.close(code, &reason);
                lanes.join();
                outcome
            }
            Err(error) => Err(text(error)),
        };
        if let Some(seat) = granted.seat.get() {
            seat.leave(outcome.as_ref().err().map(|(_, reason)| reason.as_str()));
        }
        outcome
    }

    /// Until the client closes, or something ends the transfer.
    fn run(
        &self,
        shared: &Arc<Shared>,
        lanes: &Lanes,
        control: &crate::control::Control,
        peer: &Peer,
        granted: &Granted,
        lease: &Lease,
    ) -> Result<Served, (CloseCode, String)> {
        let Peer { from, local, profile } = *peer;
        let patience = self.options.stall_timeout;
        let mut attendant = Attendant::new(shared, lanes, control, Some(lease));
        let (mut has_begun, mut recollection) = (false, None);
        // Of a client that has not asked for anything that it was granted.
        let mut idle = Silence::since(clock::now());
        let outcome = loop {
            let end = attendant.round();
            let Milestones { begun, done, .. } = attendant.known();
            if begun && !std::mem::replace(&mut has_begun, true) {
                let what = granted.describe();
                (self.events)(ServeEvent::Began { client: from, what });
                if !granted.sends() {
                    lanes.tell_limits();
                }
                if let Some(history) = self.options.history.as_ref().filter(|_| granted.sends()) {
                    let (peer, ends) = (from.ip().to_string(), (local.ip(), from.ip()));
                    recollection = Recollection::begin(history, lanes, (&peer, Asked::Pull), ends);
                }
                if let Err(error) = granted.start(shared) {
                    break Err((CloseCode::INTERNAL, error.to_string()));
                }
            }
            recollection.iter_mut().for_each(Recollection::look);
            if let Some(end) = end {
                if let End::Stalled(reason) = &end {
                    // The client is told before a disk that hangs lets its threads go.
                    lanes.close(CloseCode::TIMEOUT, reason);
                    control.close(CloseCode::TIMEOUT, reason);
                }
                break served(shared, end);
            }
            if let Some(reason) = granted.seat.get().and_then(Seat::broken).filter(|_| !done) {
                break Err((CloseCode::CANCELLED, reason));
            }
            if !begun && idle.look(clock::now()) >= patience && !patience.is_zero() {
                let reason = format!("the client asked for nothing for {} s", patience.as_secs());
                let refused = shared.lock().refused().cloned();
                let refused = refused.map(|refused| (refused.code, refused.reason));
                break Err(refused.unwrap_or((CloseCode::TIMEOUT, reason)));
            }
            if self.stop.is_requested() {
                break Err((CloseCode::SHUTDOWN, "the server is stopping".into()));
            }
        };
        if let Some(recollection) = recollection {
            let (report, notices) = recollection.end(profile, &lanes.totals());
            let used = format!("{from}: the memory of this path: {}", report.used.name());
            for notice in notices.into_iter().chain([used]) {
                (self.events)(ServeEvent::Notice(notice));
            }
        }
        if !matches!(outcome, Ok(_) | Err((CloseCode::STORAGE, _))) {
            shared.wind_up();
        }
        shared.stop();
        shared.join();
        outcome
    }

    /// Hands datagrams that come to the common socket to their lanes: the first of each, those
    /// from a changed address, and those of strangers, which are dropped.
    fn pass_datagrams(&self) {
        let mut buffer = vec![0; 65_536];
        while !self.is_over() {
            let ready = self.udp.wait_readable(None, Some(clock::now() + INTERVAL));
            if !ready.is_ok_and(|ready| ready.socket) {
                continue;
            }
            let mut slices = [io::IoSliceMut::new(&mut buffer)];
            let Ok(Some(got)) = self.udp.recv(&mut slices, Wait::No) else { continue };
            let segment = usize::from(got.segment).max(1);
            let at = clock::now();
            for packet in buffer[..got.len].chunks(segment) {
                let Ok(header) = Header::parse(packet) else { continue };
                let key = (header.connection.0, header.lane.0);
                let mailbox = lock(&self.lanes).get(&key).cloned();
                if let Some(mailbox) = mailbox {
                    let (from, to, ecn, bytes) = (got.from, got.to, got.ecn(), packet.to_vec());
                    mailbox.post_datagram(Stray { from, to, at, ecn, bytes });
                }
            }
        }
    }
}

/// Datagrams for a connection find their lanes until this is dropped.
struct KnownLanes<'s> {
    lanes: &'s Mutex<BTreeMap<(u32, u16), Arc<Mailbox>>>,
    connection: NonZeroU32,
}

impl Drop for KnownLanes<'_> {
    fn drop(&mut self) {
        lock(self.lanes).retain(|(connection, _), _| *connection != self.connection.get());
    }
}

/// For all clients together, unless the user says: half of this host's memory.
fn default_memory() -> Bytes {
    Bytes::new(Machine::describe().memory.get() / 2)
}

/// What a client hears that finds no memory left.
const NO_MEMORY: &str =
    "the memory of this server is in use (serve --memory); try again later, or with fewer lanes";

/// An IPv4 address as one, also where an IPv6 socket took the connection.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// How this host sends to the client: under the profile of the connection, and within its limit.
fn sending(hello: &Hello) -> Result<ChosenProfile, Unplayable> {
    let parameters = hello.parameters.as_deref().unwrap_or_default().split_whitespace();
    Profile::wished(hello.profile.as_deref(), hello.rate, parameters)
}

/// Who is served.
struct Peer {
    from: SocketAddr,
    /// This host's address towards it.
    local: SocketAddr,
    profile: &'static str,
}

/// What a client was granted. Written before the transfer begins, so that whoever sees that it has
/// finds it.
#[derive(Default)]
struct Granted {
    /// Of a pipe.
    seat: OnceLock<Seat>,
    /// Of a copy.
    driver: OnceLock<Driver>,
}

impl Granted {
    /// What the client does, for the log.
    fn describe(&self) -> String {
        match (self.seat.get(), self.driver.get()) {
            (Some(seat), _) => seat.describe(),
            (None, Some(Driver::Source(_))) => "copies from here".into(),
            (None, _) => "copies to here".into(),
        }
    }

    /// Whether contents go from here to the client.
    fn sends(&self) -> bool {
        let seat = self.seat.get().is_some_and(|seat| seat.role() == PipeRole::Receive);
        seat || matches!(self.driver.get(), Some(Driver::Source(_)))
    }

    /// Starts the threads that do it.
    fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        self.seat.get().map_or(Ok(()), |seat| seat.start(shared))?;
        self.driver.get().map_or(Ok(()), |driver| driver.start(shared))
    }
}

/// The directory that is served, and what clients may do with it.
#[derive(Clone)]
struct Share {
    root: Arc<ConfinedDir>,
    read: bool,
    write: bool,
    direct: bool,
    memory: Budget,
    /// How long a transfer may stand still; zero is for ever.
    patience: Duration,
    /// Whose pushes these are, where that is to be told: they are gone on with under the same token
    /// only.
    owner: Option<[u8; 8]>,
}

impl Share {
    /// Starts what the client asks for.
    fn open(&self, request: &Request, place: &Granted, shared: &Shared) -> Result<(), Refused> {
        let verify = !request.unhashed;
        let refused = |what| Err(refuse(CloseCode::REFUSED, what));
        match request.direction {
            Direction::Pull if !self.read => {
                return refused("this server does not let anyone copy from it");
            }
            Direction::Push if !self.write => {
                return refused("this server does not let anyone copy to it");
            }
            Direction::Pull => {
                let root = self.root.clone();
                let tree = SourceTree::below(root, &request.paths, request.copy_contents);
                let tree = tree.direct(self.direct);
                let driver = Driver::Source(Arc::new(SourceDriver::new(tree, verify)));
                let _ = place.driver.set(driver);
                send(shared, self.memory, self.patience);
            }
            Direction::Push => {
                let path = request.paths.first().map_or(&[][..], Vec::as_slice);
                let owner = self.owner.as_ref().map_or(&[][..], |id| id);
                let transfer = transfer_id(&[&request.label, owner], path, verify);
                let fsync = fsync(request.sync_at_end);
                let is_directory = request.destination_is_directory;
                let direct = self.direct;
                // The client chooses the names, as it may.
                let options =
                    SinkOptions { is_directory, transfer, fsync, direct, only_empty: false };
                let destination = Destination::Below { root: &self.root, path };
                let (tree, resume) = SinkTree::open(destination, &options)
                    .map_err(|error| refuse(CloseCode::REFUSED, error.to_string()))?;
                let config = sink_config(fsync, transfer, self.memory, TopNames::Any);
                let driver = Driver::Sink(Arc::new(SinkDriver::new(tree, verify)));
                let _ = place.driver.set(driver);
                receive(shared, config, resume, self.memory, self.patience);
            }
        }
        Ok(())
    }

    /// Gives the client its end of a pipe.
    fn open_pipe(
        &self,
        pipes: &Arc<Pipes>,
        request: &PipeRequest,
        place: &Granted,
        shared: &Arc<Shared>,
    ) -> Result<(), Refused> {
        let refused = |what| Err(refuse(CloseCode::REFUSED, what));
        match request.role {
            PipeRole::Send if !self.write => refused("this server does not let anyone send to it"),
            PipeRole::Receive if !self.read => {
                refused("this server does not let anyone receive from it")
            }
            _ => pipes.enter(request, &place.seat, shared, self.memory, self.patience),
        }
    }
}

/// The policy that a request asks for.
fn fsync(sync_at_end: bool) -> Fsync {
    if sync_at_end {
        return Fsync::End;
    }
    // Where the boot cannot be told, random bytes make sure that nothing unsynced is trusted.
    let mut boot = [0; 16];
    let _ = aws_lc_rs::rand::fill(&mut boot);
    Fsync::Never { boot: boot_id().unwrap_or(boot) }
}

/// How a connection ended, for the log.
fn served(shared: &Shared, end: End) -> Result<Served, (CloseCode, String)> {
    match end {
        End::Done => {
            let bytes = shared.lock().transfer().and_then(Transfer::done).unwrap_or(0);
            Ok(Served { bytes, failures: shared.failures() })
        }
        End::Refused(refused) => Err((refused.code, refused.reason)),
        End::Failed(reason) => Err((CloseCode::STORAGE, reason)),
        End::Stalled(reason) => Err((CloseCode::TIMEOUT, reason)),
        End::Closed(closed) if closed.reason.is_empty() => {
            Err((closed.code, closed.code.to_string()))
        }
        End::Closed(closed) => Err((closed.code, closed.reason)),
    }
}

/// Why a stranger was sent away.
const CROWDED: &str = "it did not say who it is, and made room for others that came";
/// How often, and how many times, is looked for a thread to attend to a stranger.
const MOMENT: Duration = Duration::from_millis(1);
const MOMENTS: usize = 1000;
/// Until the first sample.
const INITIAL_RTT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Rate;
    use longhaul_wire::{Bottleneck, Cipher};

    fn hello(profile: &str, rate: Option<Rate>) -> Hello {
        Hello {
            versions: vec![1],
            key_id: [0; 8],
            proof: [0; 32],
            protect: Protect::Aead,
            ciphers: vec![Cipher::Aes128Gcm],
            carrier: Carrier::Udp,
            lanes: 1,
            implementation: None,
            receive_limits: None,
            profile: Some(profile.into()),
            rate,
            parameters: None,
        }
    }

    #[test]
    fn the_server_sends_within_the_clients_limit_and_under_its_profile() {
        let limit = Rate::from_mbps(3);
        for (wished, rate) in [
            // Start-up begins faster than that.
            ("auto", Rate::from_bps(500)),
            ("fixed", limit),
            ("rbudp", limit),
        ] {
            let chosen = sending(&hello(wished, Some(rate))).unwrap();
            assert_eq!(chosen.profile.name, wished);
            let path = super::path(&chosen, INITIAL_RTT);
            assert_eq!(path.allowed(), (rate, Bottleneck::UserLimit));
        }
    }

    #[test]
    fn a_profile_that_the_server_cannot_play_is_refused_by_name() {
        let refused = |name| sending(&hello(name, None)).unwrap_err().to_string();
        assert!(refused("of another version").contains("no profile of another version"));
        assert!(refused("rbudp").contains("profile rbudp"));
        let strange = Hello { parameters: Some("warp=9".into()), ..hello("auto", None) };
        assert!(sending(&strange).unwrap_err().to_string().contains("so no warp either"));
        let unnamed = Hello { profile: None, ..hello("", None) };
        assert_eq!(sending(&unnamed).unwrap().profile.name, "auto");
    }
}
