//! Joins of TCP connections to the carrier of a session.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;

use longhaul_control::tls_stream::{STOP_LATENCY, TlsStream, TlsStreamError, Until};
use longhaul_control::{ConnectError, PendingJoin, ServerIdentity, resolve, tls};
use longhaul_session::Session;
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_sys::tcp::{SEGMENT_LEAST, TcpOptions};
use longhaul_sys::threads;
use longhaul_sys::wait::Interest;
use longhaul_units::LaneId;
use longhaul_wire::{
    CloseCode, ConnectionId, Frame, JOIN_LEN, MAX_LANES, Protect, RecordHead, Writer,
};
use socket2::Socket;

use super::TcpCarrierOptions;
use super::link::Link;
use super::seal::Seals;

/// A TCP connection that has joined.
#[derive(Debug)]
pub struct DataConnection {
    pub(super) lane: LaneId,
    pub(super) link: Link,
    /// Authentication of records outside TLS.
    pub(super) seals: Option<Box<Seals>>,
}

impl DataConnection {
    /// Connection `lane` of `session`, over `link`.
    fn new(session: &Session, lane: LaneId, link: Link) -> Self {
        let bare = session.protect == Protect::Clear;
        let seals = bare.then(|| Box::new(Seals::new(session, lane)));
        Self { lane, link, seals }
    }
}

/// Opens the TCP connections of `session`, as many as the server granted, to `server`, which has
/// to be `identity` unless protection is `clear`. They are in the order of their lanes.
///
/// # Errors
/// A connection could not be made. That the server did not take one shows when it is used.
pub fn join(
    server: SocketAddr,
    identity: &ServerIdentity,
    session: &Session,
    options: &TcpCarrierOptions,
    stop: &Stop,
) -> Result<Vec<DataConnection>, JoinError> {
    let opened = open_all(server, identity, session, options, stop)?;
    join_opened(opened, server, session, options, stop)
}

/// The first step: the connections are there, and the server knows nothing of what they are for.
pub fn open_all(
    server: SocketAddr,
    identity: &ServerIdentity,
    session: &Session,
    options: &TcpCarrierOptions,
    stop: &Stop,
) -> Result<Vec<Opened>, JoinError> {
    thread::scope(|scope| {
        let open = || open(server, identity, session, options, stop);
        let threads = (0..session.lanes).map(|_| threads::spawn_scoped(scope, "open", open));
        let opened = threads.collect::<io::Result<Vec<_>>>()?;
        opened
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// The second one: they join the session.
pub fn join_opened(
    opened: Vec<Opened>,
    server: SocketAddr,
    session: &Session,
    options: &TcpCarrierOptions,
    stop: &Stop,
) -> Result<Vec<DataConnection>, JoinError> {
    let until = Until { deadline: clock::now() + options.join_timeout, stop };
    let join = |(lane, opened): (u16, Opened)| opened.join(server, session, LaneId(lane), until);
    (0..).zip(opened).map(join).collect()
}

/// A connection of which the server does not know yet what it is for.
#[derive(Debug)]
pub enum Opened {
    /// In the clear.
    Bare(TcpStream),
    /// Under TLS.
    Tls(Box<TlsStream>),
}

impl Opened {
    fn join(
        self,
        server: SocketAddr,
        session: &Session,
        lane: LaneId,
        until: Until<'_>,
    ) -> Result<DataConnection, JoinError> {
        let mut join = [0; JOIN_LEN];
        session.join(lane).emit(&mut join);
        let link = match self {
            Self::Bare(stream) => {
                let mut link = Link::new(stream, None)?;
                let mut sent = 0;
                while sent < JOIN_LEN {
                    sent += link.write(&join[sent..], &[])?;
                    if sent < JOIN_LEN {
                        let waited = until.wait(&link.stream, Interest::Writable);
                        waited.map_err(|error| failed(server, error))?;
                    }
                }
                link
            }
            Self::Tls(mut pipe) => {
                pipe.write_all(&join, until).map_err(|error| failed(server, error))?;
                Link::new(pipe.stream, Some(pipe.tls))?
            }
        };
        Ok(DataConnection::new(session, lane, link))
    }
}

fn failed(server: SocketAddr, error: TlsStreamError) -> JoinError {
    match error {
        TlsStreamError::Stopped => JoinError::Stopped,
        TlsStreamError::Io(error) => JoinError::Io(error),
        TlsStreamError::TimedOut => JoinError::Silent { server },
        error => JoinError::Tls { server, reason: error.to_string() },
    }
}

/// Why the carrier could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// No connection to the server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server at the other end is not the one of the control connection, or TLS failed.
    #[error("TLS with {server} failed: {reason}")]
    Tls {
        /// The address that answered.
        server: SocketAddr,
        /// The failure.
        reason: String,
    },
    /// The server is there, and what it says does not come through.
    #[error(
        "a data connection to {server} gets no answer, as where a router drops large packets and says nothing"
    )]
    Silent {
        /// The address it leads to.
        server: SocketAddr,
    },
    /// The congestion control is not known here, or not for everybody.
    #[error("cannot use the congestion control {name}: {source}")]
    CongestionControl {
        /// Its name.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The client's connections did not come in time.
    #[error("{missing} of {lanes} data connections did not come in time")]
    Missing {
        /// Connections that are not there.
        missing: usize,
        /// Connections that were agreed on.
        lanes: u16,
    },
    /// A socket failed.
    #[error("a data connection broke: {0}")]
    Io(#[from] io::Error),
    /// A stop was asked for.
    #[error("stopped")]
    Stopped,
}

fn open(
    server: SocketAddr,
    identity: &ServerIdentity,
    session: &Session,
    options: &TcpCarrierOptions,
    stop: &Stop,
) -> Result<Opened, JoinError> {
    let until = Until { deadline: clock::now() + options.join_timeout, stop };
    let mut segments = TcpOptions::default();
    segments.segment_max = options.packet_max.map(segment);
    let prepare = |socket: &Socket| segments.apply(socket);
    let stream = match (&options.tunnel, &options.via) {
        (Some(tunnel), _) => tunnel.connect()?,
        // By the address that the control connection went to: a name may have several.
        (None, Some(via)) => via.connect(&server.into(), options.join_timeout, stop)?.stream,
        (None, None) => {
            resolve::connect_with(&[server], options.join_timeout, stop, &prepare)?.stream
        }
    };
    apply(options, &stream)?;
    if session.protect == Protect::Clear {
        return Ok(Opened::Bare(stream));
    }
    let tls = tls::data_client(server.ip(), identity, session.cipher)
        .map_err(|error| failed(server, error.into()))?;
    let mut pipe = TlsStream::new(tls, stream)?;
    pipe.handshake(until).map_err(|error| failed(server, error))?;
    Ok(Opened::Tls(Box::new(pipe)))
}

/// Payload bytes of a segment whose IP packet has at most so many: IPv6 has the longer header.
fn segment(packet: u64) -> u32 {
    u32::try_from(packet).unwrap_or(u32::MAX).saturating_sub(HEADERS).max(SEGMENT_LEAST)
}

/// Sets the options of a connection of the carrier.
fn apply(options: &TcpCarrierOptions, stream: &TcpStream) -> Result<(), JoinError> {
    let mut wished = TcpOptions::default();
    wished.nodelay = true;
    wished.user_timeout = Some(options.idle_timeout);
    wished.unsent_max = Some(UNSENT_MAX);
    wished.apply(stream)?;
    if let Some(name) = &options.congestion_control {
        let mut wished = TcpOptions::default();
        wished.congestion_control = Some(name.clone());
        wished
            .apply(stream)
            .map_err(|source| JoinError::CongestionControl { name: name.clone(), source })?;
    }
    Ok(())
}

/// A server's sessions that wait for their TCP connections. Shared by reference among threads.
#[derive(Debug, Default)]
pub struct Joins {
    waiting: Mutex<BTreeMap<ConnectionId, SyncSender<PendingJoin>>>,
}

impl Joins {
    /// Lets connections for `connection` come from now on: to be called before the client is
    /// welcomed, for they may follow at once.
    pub fn expect(&self, connection: ConnectionId) -> Expected<'_> {
        let (sender, arrived) = sync_channel(usize::from(MAX_LANES));
        lock(&self.waiting).insert(connection, sender);
        Expected { joins: self, connection, arrived, first: None }
    }

    /// Gives a connection to the session that waits for it; turns it away if none does.
    ///
    /// # Errors
    /// It was turned away, and where it came from.
    pub fn hand_over(&self, join: PendingJoin) -> Result<(), UnknownJoin> {
        // Under the lock, so that nothing arrives at a session that has just stopped waiting.
        let waiting = lock(&self.waiting);
        let unknown = match waiting.get(&join.join().connection) {
            Some(session) => match session.try_send(join) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(join) | TrySendError::Disconnected(join)) => join,
            },
            None => join,
        };
        drop(waiting);
        let from = unknown.address();
        refuse(unknown);
        Err(UnknownJoin { from })
    }
}

/// A connection that asks to join what does not wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no session waits for a data connection from {from}")]
pub struct UnknownJoin {
    /// The address it came from.
    pub from: SocketAddr,
}

/// The TCP connections of a session, on their way. Dropping it lets no more come.
#[derive(Debug)]
pub struct Expected<'j> {
    joins: &'j Joins,
    connection: ConnectionId,
    arrived: Receiver<PendingJoin>,
    /// A connection that has come already.
    first: Option<PendingJoin>,
}

impl Expected<'_> {
    /// True where one has come that proves to be of `session`.
    pub fn has_begun(&mut self, session: &Session) -> bool {
        while self.first.is_none()
            && let Ok(join) = self.arrived.try_recv()
        {
            if is_good(&join, session) {
                self.first = Some(join);
            } else {
                refuse(join);
            }
        }
        self.first.is_some()
    }

    /// Waits for all connections of `session`, until `is_over`; those with a wrong proof, outside TLS
    /// when it is agreed on, or for a lane that is taken are turned away.
    ///
    /// # Errors
    /// They did not come in time, or an option could not be set.
    pub fn collect(
        mut self,
        session: &Session,
        options: &TcpCarrierOptions,
        is_over: impl Fn() -> bool,
    ) -> Result<Vec<DataConnection>, JoinError> {
        let deadline = clock::now() + options.join_timeout;
        let mut joined: BTreeMap<LaneId, DataConnection> = BTreeMap::new();
        while joined.len() < usize::from(session.lanes) {
            let now = clock::now();
            if is_over() {
                return Err(JoinError::Stopped);
            }
            if now >= deadline {
                let missing = usize::from(session.lanes) - joined.len();
                return Err(JoinError::Missing { missing, lanes: session.lanes });
            }
            let next = match self.first.take() {
                Some(join) => Ok(join),
                None => self.arrived.recv_timeout(STOP_LATENCY.min(deadline - now)),
            };
            let join = match next {
                Ok(join) => join,
                Err(RecvTimeoutError::Timeout) => continue,
                // The sender is in the map as long as this lives, unless the id was used twice.
                Err(RecvTimeoutError::Disconnected) => return Err(JoinError::Stopped),
            };
            let lane = join.join().lane;
            let good = is_good(&join, session) && !joined.contains_key(&lane);
            if !good {
                refuse(join);
                continue;
            }
            apply(options, &join.stream)?;
            let link = Link::new(join.stream, join.tls)?;
            joined.insert(lane, DataConnection::new(session, lane, link));
        }
        Ok(joined.into_values().collect())
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        lock(&self.joins.waiting).remove(&self.connection);
        self.first.take().into_iter().chain(self.arrived.try_iter()).for_each(refuse);
    }
}

/// True where it has the proof of `session`, in the protection that was agreed on.
fn is_good(join: &PendingJoin, session: &Session) -> bool {
    session.verify_join(join.join()) && join.is_encrypted() == (session.protect != Protect::Clear)
}

/// Refuses a connection, without waiting for the client. Outside TLS the client could not
/// believe the refusal, so there the connection just ends.
fn refuse(join: PendingJoin) {
    if !join.is_encrypted() {
        return;
    }
    let frame = Frame::Close { code: CloseCode::UNAUTHORIZED, reason: "no such connection" };
    let (mut frames, mut record) = (Vec::new(), Vec::new());
    // Appending to a vector cannot fail.
    let _ = frame.encode(&mut Writer::append(&mut frames));
    let head = RecordHead::Frames { len: frames.len() };
    let _ = head.encode(&mut Writer::append(&mut record));
    if let Ok(mut link) = Link::new(join.stream, join.tls) {
        // A fresh socket has room for it; if not, the end of the connection says enough.
        let _ = link.write(&record, &frames);
    }
}

/// Headers of IPv6 and TCP, in bytes, without options.
pub(super) const HEADERS: u32 = 60;
/// Bytes in a socket that TCP has not sent yet: little enough that a slow connection is not given
/// what a fast one could send, enough for the time that a thread needs to come back.
const UNSENT_MAX: u32 = 1 << 20;
