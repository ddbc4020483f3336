//! A gateway: its listeners, its threads, and its end.

mod listeners;

use longhaul_pages::Pages;
use longhaul_sys::sync::lock;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use longhaul_relay::{Gatekeeper, Hop, MAX_CLOCK_LEAD, Prefix, Target};
use longhaul_session::{KeyId, Keyring, TokenKey};
use longhaul_sys::host::memory_limit;
use longhaul_sys::process::{descriptor_limit, raise_descriptor_limit};
use longhaul_sys::reasons::unbound;
use longhaul_sys::threads;
use longhaul_units::Bytes;

use crate::clocks;
use crate::entry::Passwords;
use crate::event::Report;
use crate::http;
use crate::listener::EntryListener;
use crate::policy::{Destinations, Policy};
use crate::resolver::Resolver;
use crate::routes::{Route, Routes};
use crate::segments::{SegmentClass, Segments};
use crate::shared::Shared;
use crate::status::Status;
use crate::status_source::StatusSource;
use crate::transport::tcp::Tcp;
use crate::transport::{SegmentSettings, Transport};
use crate::worker::{Mailbox, Worker};

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
    /// The tokens of gateways among them, which are believed about their clients.
    pub neighbours: BTreeSet<KeyId>,
    /// Proves it to the next gateway.
    pub via_key: Option<TokenKey>,
    /// Gateways through which SOCKS and forwarded clients are led whom no route leads elsewhere.
    pub via: Vec<Hop>,
    /// Where it may go.
    pub destinations: Destinations,
    /// Passwords of SOCKS clients; without them, their address decides.
    pub passwords: Option<Passwords>,
    /// Addresses from which SOCKS and forwarded clients may come, besides this host's loopback.
    pub from: Vec<Prefix>,
    /// Further gateways by target.
    pub routes: Vec<Route>,
    /// Settings of segments, unless a class has others.
    pub segment: SegmentSettings,
    /// Settings of some segments, by the address at their other end.
    pub classes: Vec<SegmentClass>,
    /// Most sessions at a time.
    pub max_sessions: usize,
    /// Most sessions of one client.
    pub max_sessions_per_client: usize,
    /// Most memory that all sessions may hold, that in the kernel included; without it, a quarter of
    /// what this process may have.
    pub memory: Option<Bytes>,
    /// Connections kept open to each next gateway of late, so that set-up is a round trip faster.
    pub spares: usize,
    /// Where status and metrics are to be had.
    pub metrics: Option<SocketAddr>,
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
            neighbours: BTreeSet::new(),
            via_key: None,
            via: Vec::new(),
            destinations: Destinations::default(),
            passwords: None,
            from: Vec::new(),
            routes: Vec::new(),
            segment: SegmentSettings::default(),
            classes: Vec::new(),
            max_sessions: 1024,
            max_sessions_per_client: usize::MAX,
            memory: None,
            spares: 0,
            metrics: None,
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
    NoListener,
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
    #[error("cannot listen on {address}: {}", unbound(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// There is no room for a session.
    #[error(
        "no session could pass: {descriptors} descriptors and --memory are enough for none; \
         raise the limit (ulimit -n) to 1024 or more"
    )]
    NoRoom {
        /// Most that this process may have open.
        descriptors: usize,
    },
    /// The system refuses a thread or a descriptor.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl GatewaySettings {
    /// Refuses settings of no use, and listeners that everybody could use.
    ///
    /// # Errors
    /// Something is missing, or open.
    pub fn judge(&self) -> Result<(), StartError> {
        if self.listen.is_empty() && self.socks.is_empty() && self.forwards.is_empty() {
            return Err(StartError::NoListener);
        }
        if !self.listen.is_empty() && self.keys.is_empty() {
            return Err(StartError::NoToken);
        }
        if self.destinations.is_empty() {
            return Err(StartError::NoDestination);
        }
        let is_open = |at: &SocketAddr| self.from.is_empty() && !at.ip().is_loopback();
        if self.passwords.is_none()
            && let Some(address) = self.socks.iter().find(|at| is_open(at))
        {
            return Err(StartError::Open { address: *address, passwords: true });
        }
        match self.forwards.iter().find(|(at, _)| is_open(at)) {
            Some((address, _)) => Err(StartError::Open { address: *address, passwords: false }),
            None => Ok(()),
        }
    }

    /// The part that holds for sessions, and may change while they go on.
    fn policy(&mut self) -> Policy {
        Policy {
            name: self.name.clone(),
            neighbours: std::mem::take(&mut self.neighbours),
            via_key: self.via_key.take(),
            destinations: std::mem::take(&mut self.destinations),
            via: std::mem::take(&mut self.via),
            routes: Routes::new(std::mem::take(&mut self.routes)),
            segments: Segments::new(std::mem::take(&mut self.classes), self.segment.clone()),
            max_sessions: self.max_sessions,
            max_sessions_per_client: self.max_sessions_per_client,
            spares: self.spares,
            memory: self.memory.unwrap_or_else(|| Bytes::new(memory_limit().get() / 4)).get(),
        }
    }
}

/// A gateway at work. Dropping it resets its sessions.
#[derive(Debug)]
pub struct Gateway {
    listeners: Mutex<Arc<Vec<EntryListener>>>,
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    http: Option<Pages>,
}

impl Gateway {
    /// Opens the listeners and starts the threads.
    ///
    /// # Errors
    /// The settings are of no use or open to everybody, or an address cannot be had.
    pub fn start(mut settings: GatewaySettings, report: Report) -> Result<Self, StartError> {
        let transports: Vec<Arc<dyn Transport>> = vec![Arc::new(Tcp)];
        let since = clocks::ours().plus(MAX_CLOCK_LEAD);
        if !settings.listen.is_empty() {
            // Nobody connects in the meantime: a header of now would be refused for its time.
            thread::sleep(std::time::Duration::from_micros(MAX_CLOCK_LEAD));
        }
        let listeners = Arc::new(listeners::open(&settings, &Tcp, &[])?);
        let policy = settings.policy();
        let gatekeeper = Gatekeeper::new(settings.keys, settings.name, since);
        // Where that is not allowed, there are places for fewer sessions.
        let _ = raise_descriptor_limit();
        let descriptors = descriptor_limit();
        let shared = Arc::new(Shared::new(policy, gatekeeper, transports, descriptors));
        if shared.max_sessions() == 0 {
            return Err(StartError::NoRoom { descriptors });
        }
        let resolver = Resolver::start()?;
        let mut gateway = Self {
            listeners: Mutex::new(listeners.clone()),
            shared: shared.clone(),
            mailboxes: vec![],
            threads: vec![],
            http: None,
        };
        for i in 0..settings.threads.max(1) {
            let mailbox = Arc::new(Mailbox::new()?);
            let (shared, listeners) = (shared.clone(), listeners.clone());
            let worker = Worker::new(
                shared,
                listeners,
                mailbox.clone(),
                resolver.clone(),
                report.clone(),
                i == 0,
            )?;
            gateway.mailboxes.push(mailbox);
            let thread = threads::spawn(format!("gateway-{i}"), move || worker.run())?;
            gateway.threads.push(thread);
        }
        if let Some(address) = settings.metrics {
            let source = gateway.source();
            let http = Pages::start(address, move |from| http::router(source.clone(), from));
            let http = http.map_err(|source| StartError::Listen { address, source })?;
            gateway.http = Some(http);
        }
        Ok(gateway)
    }

    /// The state of everything, soon.
    pub fn status(&self) -> Status {
        self.source().status()
    }

    fn source(&self) -> StatusSource {
        StatusSource::new(self.shared.clone(), self.mailboxes.clone())
    }

    /// Where status and metrics are to be had.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Pages::address)
    }

    /// Most sessions at a time: fewer than was wished for where descriptors or memory are short.
    pub fn max_sessions(&self) -> usize {
        self.shared.max_sessions()
    }

    /// Works by other settings from now on, except for the address of its metrics and its number of
    /// threads. Sessions that stand go on, and listeners that are open at the same addresses stay
    /// open.
    ///
    /// # Errors
    /// As with [`Self::start`]; the old settings hold then.
    pub fn reload(&self, mut settings: GatewaySettings) -> Result<(), StartError> {
        let mut listeners = lock(&self.listeners);
        let new = Arc::new(listeners::open(&settings, &Tcp, &listeners)?);
        self.shared.set_policy(settings.policy());
        let mut gatekeeper = lock(&self.shared.gatekeeper);
        gatekeeper.replace(settings.keys, settings.name);
        drop(gatekeeper);
        for mailbox in &self.mailboxes {
            mailbox.open(new.clone());
        }
        *listeners = new;
        Ok(())
    }

    /// The addresses of the listeners, in the order of the settings: headers, SOCKS, forwards.
    ///
    /// # Errors
    /// A listener broke.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let listeners = lock(&self.listeners);
        listeners.iter().map(|listener| listener.socket.local_address()).collect()
    }

    /// Sessions at present.
    pub fn sessions(&self) -> usize {
        self.shared.sessions()
    }

    /// Lets no more clients in, and answers them so. [`Self::join`] returns when the last session has
    /// ended.
    pub fn drain(&self) {
        self.shared.drain();
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
            // Nobody is left to take its failure.
            let _ = thread.join();
        }
    }
}
