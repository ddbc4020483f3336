//! A server: admits clients and does what they ask for by its handlers of requests.

mod carriers;
mod client;
mod datagrams;
mod leftovers;
mod listening;
mod peer;

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use longhaul_session::ServerConfig;
use longhaul_sys::clock;
use longhaul_sys::descriptors::{self, MayBeShort, patiently};
use longhaul_sys::process::descriptor_limit;
use longhaul_sys::sync::lock;
use longhaul_sys::threads;
use longhaul_sys::udp::{Route as UdpRoute, UdpOptions, UdpSocket, Wait};
use longhaul_sys::wait::{self, Interest};
use longhaul_units::{Bytes, Duration};
use longhaul_wire::{Carrier, CloseCode, Hello, ReceiveLimits};
use rustix::io::Errno;

use crate::api::{ServeEvent, ServeFailure};
use crate::connection::attend::INTERVAL;
use crate::connection::ids::ConnectionIds;
use crate::endpoint::guests::{self, Guest, Guests};
use crate::endpoint::policy::Policy;
use crate::endpoint::request::Handlers;
use crate::endpoint::ssh::arrivals::SshArrivals;
use crate::error::Error;
use crate::memory::budget::{Budget, MEMORY_LEAST, NAMES_LEAST, memory_for_contents};
use crate::memory::descriptors::Descriptors;
use crate::memory::lease::{Lease, SharedMemory};
use crate::options::ServeOptions;
use client::{NotServed, sending};
use datagrams::Known;
use listening::{listen, listen_too, listen_within};
use longhaul_carriers::tcp::Joins;
use longhaul_carriers::udp::socket_notices;
use longhaul_control::pending::{ATTENDED_MAX, Pending, PendingConnection};
use longhaul_control::tunnel::Arrival;
use longhaul_control::{Accepted, Acceptor, PendingClient};
use longhaul_control::{Place, Places};
use longhaul_sys::stop::Stop;

/// Serves requests by `handlers`: see [`crate::serve()`].
pub(crate) fn run(
    options: &ServeOptions,
    policy: &Mutex<Arc<Policy>>,
    handlers: Handlers,
    events: &(dyn Fn(ServeEvent) + Sync),
    (stop, draining): (&Stop, &Stop),
) -> Result<(), Error> {
    let system = |error: io::Error| {
        Error::here(format!("cannot go on serving: {}", descriptors::explained(&error)))
    };
    let mut udp_options = UdpOptions::default();
    udp_options.reuse_port = true;
    if let Some(size) = options.socket_buffer {
        let size = usize::try_from(size.get()).unwrap_or(usize::MAX);
        (udp_options.receive_buffer, udp_options.send_buffer) = (size, size);
    }
    let (listener, udp) = match &options.listener {
        Some(listener) => listen_too(listener, &udp_options)?,
        None => match options.ports {
            None => listen(options.listen, &udp_options)?,
            Some(ports) => listen_within(options, ports, &udp_options)?,
        },
    };
    let (address, udp) = (listener.local_addr().map_err(system)?, Arc::new(udp));
    for notice in socket_notices(&udp) {
        events(ServeEvent::Notice(notice));
    }
    let socket_buffer = Bytes::new(udp.receive_buffer().obtained as u64);
    let memory = Budget::new(options.memory);
    let all_memory = memory_for_contents(options.memory);
    let config = ServerConfig {
        udp_port: Some(udp.local_addr().port()),
        implementation: Some(crate::implementation::IMPLEMENTATION.into()),
        receive_limits: Some(ReceiveLimits { socket_buffer, credit: memory.of_sink() }),
        ..ServerConfig::default()
    };
    let server = Running {
        options,
        policy,
        events,
        stop,
        draining,
        handlers,
        acceptor: Acceptor::new(config, stop.clone()).map_err(system)?,
        udp,
        lanes: Known::default(),
        joins: Joins::default(),
        // One client with one lane is served in any case.
        memory: SharedMemory::new(all_memory.max(MEMORY_LEAST + NAMES_LEAST + socket_buffer)),
        descriptors: Descriptors::new(descriptor_limit()),
        door: Pending::default(),
        attended: Places::default(),
        clients: Guests::new(options.excuse_timeout),
        ids: ConnectionIds::default(),
        served: Stop::default(),
        left: Stop::default(),
    };
    server.serve(&listener, address).map_err(system)
}

struct Running<'a> {
    options: &'a ServeOptions,
    /// The rules in force: they may change.
    policy: &'a Mutex<Arc<Policy>>,
    events: &'a (dyn Fn(ServeEvent) + Sync),
    stop: &'a Stop,
    /// Clients that are here stay, and no others are let in.
    draining: &'a Stop,
    handlers: Handlers,
    acceptor: Acceptor,
    udp: Arc<UdpSocket>,
    /// Where datagrams go that come to the common socket.
    lanes: Known,
    /// Sessions that wait for their TCP connections.
    joins: Joins,
    memory: SharedMemory,
    descriptors: Descriptors,
    /// Connections that have not proven a token, and the threads that attend to them.
    door: Pending,
    attended: Places,
    /// Proven clients, whom no number of strangers keeps out.
    clients: Guests,
    ids: ConnectionIds,
    /// With `once`: a transfer was served.
    served: Stop,
    /// Nobody is let in any more, and all clients have left.
    left: Stop,
}

impl Running<'_> {
    fn is_over(&self) -> bool {
        let is_empty = || self.clients.count() == 0;
        self.stop.is_requested()
            || self.served.is_requested()
            || self.draining.is_requested() && is_empty()
    }

    /// Serves until it is over, with threads beside the clients'.
    fn serve(&self, listener: &TcpListener, address: SocketAddr) -> io::Result<()> {
        let after = self.options.discard_after;
        let discards = !after.is_zero() && !self.options.once && self.options.grant.is_none();
        std::thread::scope(|scope| {
            let datagrams = threads::spawn_scoped(scope, "datagrams", || self.pass_datagrams());
            let leftovers = || leftovers::attend(self.policy, after, self.events, &self.left);
            let begun = datagrams.and_then(|_| match discards {
                true => threads::spawn_scoped(scope, "leftovers", leftovers).map(drop),
                false => Ok(()),
            });
            let accepted = begun.and_then(|()| {
                (self.events)(ServeEvent::Listening(address));
                // Clients that are still there need their datagrams.
                std::thread::scope(|clients| self.accept(clients, listener))
            });
            // The threads above end with that, also where one of them could not be made.
            self.left.request();
            accepted
        })
    }

    fn accept<'scope, 'env>(
        &'env self,
        scope: &'scope std::thread::Scope<'scope, 'env>,
        listener: &TcpListener,
    ) -> io::Result<()> {
        if let Some(arrivals) = &self.options.ssh {
            threads::spawn_scoped(scope, "longhaul-ssh", move || self.take(scope, arrivals))?;
        }
        let (mut refused, mut lacked) = (None, false);
        while !self.is_over() {
            let deadline = clock::now() + INTERVAL;
            if wait::wait(&[(listener.as_fd(), Interest::Readable)], Some(deadline))? == 0 {
                continue;
            }
            // Descriptors are waited for: who is not let in hears nothing, or a reset.
            let (stream, from) = match self.with_room(|| listener.accept()) {
                Ok(accepted) => {
                    refused = None;
                    accepted
                }
                // The client was gone before we came, or descriptors are short: others go on.
                Err(error) => {
                    // Each reason once, until somebody is let in again.
                    let number = error.raw_os_error();
                    if is_own_fault(&error) && std::mem::replace(&mut refused, number) != number {
                        let why = descriptors::explained(&error);
                        let notice = format!("cannot let clients in: {why}");
                        (self.events)(ServeEvent::Notice(notice));
                    }
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            let local = stream.local_addr().map_or(self.udp.local_addr(), canonical);
            if let Err(error) = self.let_in(scope, stream, (canonical(from), local)) {
                if !std::mem::replace(&mut lacked, true) {
                    let notice = format!("cannot let clients in: {error}");
                    (self.events)(ServeEvent::Notice(notice));
                }
                self.door.make_room();
            } else {
                lacked = false;
            }
        }
        Ok(())
    }

    /// Attends to a connection between these ends on a thread of its own, if there is room at the door.
    fn let_in<'scope, 'env>(
        &'env self,
        scope: &'scope std::thread::Scope<'scope, 'env>,
        stream: TcpStream,
        (from, local): (SocketAddr, SocketAddr),
    ) -> io::Result<()> {
        let Some(attended) = self.place_to_attend() else { return Ok(()) };
        let Ok(at_door) = self.with_room(|| self.door.admit(&stream, from.ip())) else {
            return Ok(());
        };
        let attend = move || {
            // The thread has reported a panic. Places come back, and others are served on.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.attend(stream, (from, local), (attended, at_door));
            }));
        };
        threads::spawn_scoped(scope, "longhaul-client", attend).map(drop)
    }

    /// Takes what the client sends through ssh, as if it came to this host by the network.
    fn take<'scope, 'env>(
        &'env self,
        scope: &'scope std::thread::Scope<'scope, 'env>,
        arrivals: &SshArrivals,
    ) {
        let own = self.udp.local_addr();
        let (from, local) = match arrivals.ends() {
            Some(ends) => (ends.client, SocketAddr::new(ends.server, own.port())),
            None => (own, own),
        };
        while !self.is_over() {
            match arrivals.next(INTERVAL) {
                Some(Arrival::Connection(stream)) => {
                    if let Err(error) = self.let_in(scope, stream, (from, local)) {
                        self.note_refused(from, error.to_string());
                    }
                }
                Some(Arrival::Ports(ports)) if arrivals.ends().is_some() => {
                    self.send_first(from.ip(), local.ip(), &ports);
                }
                Some(Arrival::Ports(_)) | None => {}
            }
        }
    }

    /// Sends a packet to where lanes begin, which opens a firewall of this end's to them.
    fn send_first(&self, to: IpAddr, local: IpAddr, ports: &[u16]) {
        for port in ports {
            let to = SocketAddr::new(to, *port);
            let route = UdpRoute::to(to).from(Some(local));
            // What is not sent is as lost as one that does not pass.
            let _ = self.udp.send(&route, &[IoSlice::new(&[0])], None, Wait::No);
        }
    }

    /// Does `open`; where descriptors are short, when what is kept is closed and strangers have gone.
    fn with_room<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        // One who is being answered goes by itself.
        let soon = clock::now() + ANSWERING;
        let short = |error: &io::Error| {
            if error.is_short() && clock::now() >= soon {
                self.door.make_room();
            }
        };
        patiently(|| open().inspect_err(short))
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

    /// One TCP connection between these ends, to its own.
    fn attend(
        &self,
        stream: TcpStream,
        (from, local): (SocketAddr, SocketAddr),
        stranger: (Place<'_>, PendingConnection<'_>),
    ) {
        let from = match self.options.trust_proxy.contains(&from.ip()) {
            false => from,
            true => match self.acceptor.behind_proxy(&stream) {
                Ok(client) => {
                    let client = client.map_or(from, canonical);
                    stranger.1.comes_from(client.ip());
                    client
                }
                Err(error) => return self.note_refused(from, error.to_string()),
            },
        };
        let policy = lock(self.policy).clone();
        match self.acceptor.accept(stream, from, &policy.keyring, |stage| stranger.1.reach(stage)) {
            Ok(Accepted::Client(client)) => {
                self.attend_client(*client, (from, local), &policy, stranger);
            }
            Ok(Accepted::Data(join)) => {
                if let Err(error) = self.joins.hand_over(*join) {
                    self.note_refused(from, error.to_string());
                }
            }
            Err(_) if stranger.1.had_to_go() => self.note_refused(from, CROWDED.into()),
            // As a client closes the TCP connections that it needs no more, since UDP carries.
            Err(error) if error.is_parting() && self.door.knows(from.ip()) => {}
            Err(error) => self.note_refused(from, error.to_string()),
        }
    }

    fn note_refused(&self, client: SocketAddr, reason: String) {
        (self.events)(ServeEvent::Refused { client, reason });
    }

    fn turn_away(&self, client: PendingClient, code: CloseCode, reason: String) {
        let from = client.address();
        client.refuse(code, &reason);
        self.note_refused(from, reason);
    }

    /// A client that holds a token, from one address to another: it is served if there is room.
    fn attend_client(
        &self,
        client: PendingClient,
        (from, local): (SocketAddr, SocketAddr),
        policy: &Policy,
        stranger: (Place<'_>, PendingConnection<'_>),
    ) {
        self.door.prove(from.ip());
        let hello = client.client().hello();
        if self.draining.is_requested() {
            return self.turn_away(client, CloseCode::SHUTDOWN, self.options.why_it_stops().into());
        }
        let Some(rights) = policy.rights(hello.key_id) else { return };
        let places = guests::Places { all: policy.clients_max, own: rights.clients_max };
        let guest = match self.clients.admit(places, hello.key_id, from.ip()) {
            Ok(guest) => guest,
            Err(none) => return self.turn_away(client, CloseCode::BUSY, none.to_string()),
        };
        let sending = match sending(hello, policy.profiles.as_deref()) {
            Ok(sending) => sending,
            Err(error) => {
                let reason = error.to_string();
                client.refuse(CloseCode::UNSUPPORTED_OPTION, &reason);
                return self.note_refused(from, reason);
            }
        };
        let lanes = hello.lanes;
        let Some(lease) = self.lease_of_others(hello, &guest) else {
            client.refuse(CloseCode::BUSY, &later(NO_MEMORY, lanes));
            return self.note_refused(from, "no memory is left for another client".into());
        };
        // Who waits for these holds some.
        let Some(_descriptors) = self.descriptors.lease(lanes) else {
            let reason = later(NO_DESCRIPTORS, lanes);
            client.refuse(CloseCode::BUSY, &reason);
            return self.note_refused(from, reason);
        };
        drop(stranger);
        let account = Cell::default();
        let (begun, outcome) = match self.serve_client(
            client,
            sending,
            (&guest, lease),
            (policy, rights),
            (from, local),
            &account,
        ) {
            Ok(served) => (true, Ok(served)),
            // Its request was turned away: nothing was served.
            Err(NotServed { code: CloseCode::REFUSED, reason, begun: false }) => {
                return self.note_refused(from, reason);
            }
            Err(NotServed { code: CloseCode::DONE, begun: false, .. }) => {
                let notice = format!("{from}: asked for nothing, as a probe does");
                return (self.events)(ServeEvent::Notice(notice));
            }
            // It may come back, with the other carrier.
            Err(NotServed { code: code @ CloseCode::PATH_MTU, reason, .. }) => {
                (false, Err(ServeFailure { code, reason }))
            }
            Err(NotServed { code, begun, reason }) => (begun, Err(ServeFailure { code, reason })),
        };
        (self.events)(ServeEvent::Ended { client: from, account: account.take(), outcome });
        if self.options.once && begun {
            self.served.request();
        }
    }

    /// Memory for a client, also that of one that has to make room for it.
    fn lease_of_others(&self, hello: &Hello, guest: &Guest<'_>) -> Option<Arc<Lease>> {
        let lease = || self.lease(hello);
        if let Some(lease) = lease() {
            return Some(lease);
        }
        let patience = if guest.make_room() { MAKING_ROOM } else { ENDING };
        let deadline = clock::now() + patience;
        while clock::now() < deadline && !self.is_over() {
            std::thread::sleep(LEAVING);
            if let Some(lease) = lease() {
                return Some(lease);
            }
        }
        None
    }

    /// Memory for a client, and for the sockets of its lanes.
    fn lease(&self, hello: &Hello) -> Option<Arc<Lease>> {
        let buffer = match hello.carrier {
            Carrier::Udp | Carrier::Either => self.udp.receive_buffer().obtained as u64,
            // The kernel bounds those of all connections together (tcp_mem).
            Carrier::Tcp => 0,
        };
        self.memory.lease(Bytes::new(u64::from(hello.lanes) * buffer))
    }
}

/// True where this host is why nobody was let in, and not a client that has gone again.
fn is_own_fault(error: &io::Error) -> bool {
    let gone = [Errno::CONNABORTED, Errno::PROTO, Errno::AGAIN, Errno::INTR];
    !Errno::from_io_error(error).is_some_and(|error| gone.contains(&error))
}

/// What a client hears that finds no memory left.
const NO_MEMORY: &str = "the memory of this server is in use (serve --memory)";

/// The same of one that finds no descriptors.
const NO_DESCRIPTORS: &str =
    "the descriptors of this server are in use (ulimit -n, LimitNOFILE= of its unit)";

/// `reason`, and a way out for a client with so many lanes.
fn later(reason: &str, lanes: u16) -> String {
    let fewer = if lanes > 1 { ", or with fewer lanes" } else { "" };
    format!("{reason}; try again later{fewer}")
}

/// An IPv4 address as one, also where an IPv6 socket took the connection.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Why a stranger was sent away.
const CROWDED: &str = "it did not say who it is, and made room for others that came";
/// How long a client waits for the memory of another that has to go, which makes durable first what
/// has arrived; less than the time of a handshake. And how often is looked for it.
const MAKING_ROOM: Duration = Duration::from_secs(5);
const LEAVING: Duration = Duration::from_millis(10);
/// Time for which it waits where nobody has to go: a client whose copy is done knows that before its threads here
/// have ended, and often comes again at once.
const ENDING: Duration = Duration::from_secs(1);
/// How long a stranger may take to be answered before one has to make room for descriptors.
const ANSWERING: Duration = Duration::from_millis(50);
/// How often, and how many times, is looked for a thread to attend to a stranger.
const MOMENT: Duration = Duration::from_millis(1);
const MOMENTS: usize = 1000;
