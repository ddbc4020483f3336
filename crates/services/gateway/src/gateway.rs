//! A gateway: its doors, its threads, and how it ends.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use longhaul_relay::{Clock, Gatekeeper, Hop, Route, Target};
use longhaul_session::{Keyring, TokenKey};
use longhaul_sys::clock::WallTime;

use crate::Event;
use crate::entry::{Entry, Forward, HeaderEntry, Passwords, Socks};
use crate::policy::{Destinations, Prefix};
use crate::resolver::Resolver;
use crate::shared::Shared;
use crate::transport::tcp::Tcp;
use crate::transport::{Listener, SegmentSettings, Transport};
use crate::worker::{Mailbox, Worker};

/// Takes what a gateway reports, from any of its threads.
pub type Report = Arc<dyn Fn(Event) + Send + Sync>;

/// The work of a gateway.
#[derive(Debug)]
pub struct GatewaySettings {
    /// Where clients and gateways that speak docs/relay.md arrive.
    pub listen: Vec<SocketAddr>,
    /// Where SOCKS5 clients arrive.
    pub socks: Vec<SocketAddr>,
    /// Ports whose clients all go to one target.
    pub forwards: Vec<(SocketAddr, Target)>,
    /// Its name in headers; without one, the address that is dialled.
    pub name: Option<String>,
    /// Tokens of those who may use it.
    pub keys: Keyring,
    /// Proves it to the next gateway.
    pub via_key: Option<TokenKey>,
    /// Gateways through which SOCKS and forwarded clients are led.
    pub via: Vec<Hop>,
    /// Where it may go.
    pub destinations: Destinations,
    /// Passwords of SOCKS clients; without them, their address decides.
    pub passwords: Option<Passwords>,
    /// Addresses from which SOCKS and forwarded clients may come, besides this host's loopback.
    pub from: Vec<Prefix>,
    /// Settings of all segments.
    pub segment: SegmentSettings,
    /// Most sessions at a time.
    pub max_sessions: usize,
    /// Threads that carry sessions.
    pub threads: usize,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            socks: Vec::new(),
            forwards: Vec::new(),
            name: None,
            keys: Keyring::default(),
            via_key: None,
            via: Vec::new(),
            destinations: Destinations::default(),
            passwords: None,
            from: Vec::new(),
            segment: SegmentSettings::default(),
            max_sessions: 1024,
            threads: thread::available_parallelism().map_or(1, usize::from).min(8),
        }
    }
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is nowhere to arrive.
    #[error("nothing to do: say where to listen (--listen, --socks or --forward)")]
    NoDoor,
    /// Nobody may use it.
    #[error("no token may use this gateway: name a file with --token-file")]
    NoToken,
    /// It may go nowhere.
    #[error("no destination is allowed: name some with --allow PREFIX[:PORT]")]
    NoDestination,
    /// A port without credentials would be open to everybody.
    #[error(
        "{address} is open to everybody who reaches it: name who may come with --from PREFIX{}, or listen on loopback",
        if *.passwords { " or --socks-password-file" } else { "" }
    )]
    Open {
        /// The address.
        address: SocketAddr,
        /// Passwords would do, too.
        passwords: bool,
    },
    /// An address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The system refuses a thread or a descriptor.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// A place where clients arrive, and how.
#[derive(Debug)]
pub(crate) struct Door {
    pub listener: Box<dyn Listener>,
    kind: Kind,
    /// Addresses from which clients may come; without any, from everywhere.
    from: Vec<Prefix>,
}

#[derive(Debug)]
enum Kind {
    Header,
    Socks { passwords: Option<Passwords>, via: Vec<Hop> },
    Forward(Route),
}

impl Door {
    /// A client with this address may come in.
    pub fn admits(&self, from: IpAddr) -> bool {
        self.from.is_empty()
            || from.to_canonical().is_loopback()
            || self.from.iter().any(|prefix| prefix.contains(from))
    }

    /// The way in of one client.
    pub fn entry(&self) -> Box<dyn Entry> {
        match &self.kind {
            Kind::Header => Box::new(HeaderEntry::default()),
            Kind::Socks { passwords, via } => Box::new(Socks::new(passwords.clone(), via.clone())),
            Kind::Forward(route) => Box::new(Forward::new(route.clone())),
        }
    }
}

/// A gateway at work. Dropping it resets its sessions.
#[derive(Debug)]
pub struct Gateway {
    doors: Arc<Vec<Door>>,
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Gateway {
    /// Opens the doors and starts the threads.
    ///
    /// # Errors
    /// The settings are of no use or open to everybody, or an address cannot be had.
    pub fn start(settings: GatewaySettings, report: Report) -> Result<Self, StartError> {
        let transports: Vec<Arc<dyn Transport>> = vec![Arc::new(Tcp)];
        let doors = Arc::new(open(&settings, &Tcp)?);
        let now = Clock::from_micros(WallTime::now().as_nanos() / 1000);
        let gatekeeper = Gatekeeper::new(settings.keys, settings.name.clone(), now);
        let mut shared = Shared::new(
            settings.name,
            gatekeeper,
            settings.via_key,
            settings.destinations,
            transports,
            settings.segment,
        );
        shared.max_sessions = settings.max_sessions;
        let shared = Arc::new(shared);
        let resolver = Resolver::start()?;
        let mut gateway = Self {
            doors: doors.clone(),
            shared: shared.clone(),
            mailboxes: vec![],
            threads: vec![],
        };
        for i in 0..settings.threads.max(1) {
            let mailbox = Arc::new(Mailbox::new()?);
            let (shared, doors) = (shared.clone(), doors.clone());
            let worker =
                Worker::new(shared, doors, mailbox.clone(), resolver.clone(), report.clone())?;
            let thread = thread::Builder::new().name(format!("gateway-{i}"));
            gateway.mailboxes.push(mailbox);
            gateway.threads.push(thread.spawn(move || worker.run())?);
        }
        Ok(gateway)
    }

    /// The addresses of the doors, in the order of the settings: headers, SOCKS, forwards.
    ///
    /// # Errors
    /// A listener broke.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.doors.iter().map(|door| door.listener.local_address()).collect()
    }

    /// Sessions at present.
    pub fn sessions(&self) -> usize {
        self.shared.sessions()
    }

    /// Lets no more clients in. [`Self::join`] returns when the last session has ended.
    pub fn drain(&self) {
        self.signal(|mailbox| &mailbox.draining);
    }

    /// Ends at once: sessions are reset.
    pub fn stop(&self) {
        self.signal(|mailbox| &mailbox.stopping);
    }

    fn signal(&self, flag: fn(&Mailbox) -> &std::sync::atomic::AtomicBool) {
        for mailbox in &self.mailboxes {
            flag(mailbox).store(true, Ordering::Release);
            mailbox.waker.wake();
        }
    }

    /// Waits until all threads have ended.
    ///
    /// # Errors
    /// One of them failed.
    pub fn join(&mut self) -> io::Result<()> {
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    }

    /// All threads have ended.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            // Its failure has nobody left to hear it.
            let _ = thread.join();
        }
    }
}

fn open(settings: &GatewaySettings, transport: &dyn Transport) -> Result<Vec<Door>, StartError> {
    if settings.listen.is_empty() && settings.socks.is_empty() && settings.forwards.is_empty() {
        return Err(StartError::NoDoor);
    }
    if !settings.listen.is_empty() && settings.keys.is_empty() {
        return Err(StartError::NoToken);
    }
    if settings.destinations.is_empty() {
        return Err(StartError::NoDestination);
    }
    let from = &settings.from;
    let mut doors = Vec::new();
    let mut open = |address: SocketAddr, kind, from: &[Prefix]| -> Result<(), StartError> {
        let listener = transport
            .listen(address, &settings.segment)
            .map_err(|source| StartError::Listen { address, source })?;
        doors.push(Door { listener, kind, from: from.to_vec() });
        Ok(())
    };
    for address in &settings.listen {
        open(*address, Kind::Header, &[])?;
    }
    for address in &settings.socks {
        let passwords = settings.passwords.clone();
        if passwords.is_none() && from.is_empty() && !address.ip().is_loopback() {
            return Err(StartError::Open { address: *address, passwords: true });
        }
        open(*address, Kind::Socks { passwords, via: settings.via.clone() }, from)?;
    }
    for (address, target) in &settings.forwards {
        if from.is_empty() && !address.ip().is_loopback() {
            return Err(StartError::Open { address: *address, passwords: false });
        }
        let mut route = Route::new([0; 16], target.clone());
        route.hops = settings.via.clone();
        open(*address, Kind::Forward(route), from)?;
    }
    Ok(doors)
}
