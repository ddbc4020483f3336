//! What the way to a server and both hosts can do: a connection that carries nothing.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use longhaul_carriers::buffer::Buffer;
use longhaul_carriers::carrier::mailboxes;
use longhaul_carriers::host_monitor::with_priority;
use longhaul_carriers::upper_layer::{Mailbox, UpperLayer};
use longhaul_connection::{Begun, GroupPart, News, Unplaceable, Violation};
use longhaul_control::{ConnectError, Dialed, dial};
use longhaul_engine::{IPV4_UDP_HEADERS, IPV6_UDP_HEADERS, Role};
use longhaul_history::{Direction, PathKey, unix_time};
use longhaul_rate_control::PathMemory;
use longhaul_session::ClientConfig;
use longhaul_sys::clock;
use longhaul_sys::host::Machine;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_units::{Bytes, Duration, Rate, shown};
use longhaul_wire::{BASE_DATAGRAM, Carrier, CloseCode, ReceiveLimits};

use crate::endpoint::client::{Failure, Idle, profile, through_ssh, without_ports};
use crate::error::Error;
use crate::options::{ConnectOptions, Endpoint};

/// What was found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProbeReport {
    /// Who answered, with the TCP port.
    pub server: SocketAddr,
    /// Its name and version, as it says.
    pub implementation: Option<String>,
    /// Round trip of the TCP handshake.
    pub tcp_round_trip: Duration,
    /// The least over UDP; nothing where no UDP packet comes through.
    pub udp_round_trip: Option<Duration>,
    /// Largest IP packet that comes through to the server, as far as was tried.
    pub path_mtu: Option<u64>,
    /// Why packets as large as UDP needs them do not pass, if so.
    pub too_narrow: Option<String>,
    /// The reason why this host sends no UDP packet to the server, if so.
    pub no_udp: Option<String>,
    /// What this host's sockets ask for, and what they are granted; nothing where it gives none.
    pub buffer_here: Option<[Bytes; 2]>,
    /// What the server's are granted, as it says; it asks for as much by default.
    pub buffer_there: Option<Bytes>,
    /// What this host is.
    pub machine: Machine,
    /// What one of its processors encrypts, with AES-128-GCM in packets.
    pub encrypts: Rate,
    /// What `--host-priority` would do at this host, and what the system refuses of it: bits as in
    /// [`longhaul_wire::HostAccount::remedies`].
    pub with_priority: u64,
    /// What is known of the path from this host.
    pub known: Option<PathMemory>,
    /// What the user should know of this host's sockets.
    pub notices: Vec<String>,
}

/// Connects, lets a lane find out what the path is like, and says goodbye. Takes a second and a few round
/// trips; at the server nothing is read or written. Of `options` server, token, idle timeout and history
/// count.
///
/// ```no_run
/// use longhaul::{ConnectOptions, Endpoint, Stop};
///
/// let token = std::fs::read_to_string("token")?.trim().parse()?;
/// let options = ConnectOptions::new(Endpoint::new("dtn2.example", 7420), token);
/// let report = longhaul::probe(&options, &Stop::default())?;
/// println!("largest packet: {:?} bytes", report.path_mtu);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// There is no connection, or this host cannot go on. That UDP does not pass is no error.
pub fn probe(options: &ConnectOptions, stop: &Stop) -> Result<ProbeReport, Error> {
    let ConnectOptions { server: Endpoint { host, .. }, token, idle_timeout, history, .. } =
        options;
    let asked = Bytes::new(UdpOptions::default().receive_buffer as u64);
    let config = ClientConfig {
        carrier: Carrier::Udp,
        lanes: 1,
        implementation: Some(crate::implementation::IMPLEMENTATION.into()),
        receive_limits: Some(ReceiveLimits { socket_buffer: asked, credit: Bytes::ZERO }),
        ..ClientConfig::default()
    };
    let remote = options.remote(None);
    let dialed = dial(&remote, token, &config, *idle_timeout, stop);
    let dialed = dialed.map_err(|error| match error {
        ConnectError::Unreachable { .. } if options.ssh.is_none() => {
            Error::from(error).hint(TO_START)
        }
        error => error.into(),
    })?;
    let encrypts = encrypting();
    let failed = |failure| Error::of(failure, None);
    let Dialed { session, control, server, local, rtt, .. } = &dialed;
    let boxes = mailboxes(session.lanes).map_err(|error| Error::here(error.to_string()))?;
    let chosen = profile("auto", None, &[]).map_err(failed)?;
    let idle = Idle { dialed: &dialed, profile: &chosen, options };
    let seen = match over_udp(&idle, &boxes, stop) {
        Err(Failure::NoUdp(reason)) => Seen::nothing(&dialed, reason),
        seen => seen.map_err(failed)?,
    };
    control.close(CloseCode::DONE, "");
    if stop.is_requested() {
        return Err(Error::stopped());
    }
    let mut notices = seen.notices;
    let without = without_ports(options, &dialed);
    notices.extend(without.or_else(|| through_ssh(&dialed, false, false)));
    let key = PathKey {
        peer: host.clone(),
        local: *local,
        remote: server.ip(),
        direction: Direction::Push,
        token: String::new(),
    };
    let known = history.as_ref().map(|history| history.recall(&key, unix_time())).transpose();
    let known = known.map_err(|error| Error::here(error.to_string()))?;
    Ok(ProbeReport {
        server: *server,
        implementation: session.peer_implementation.as_deref().map(shown),
        tcp_round_trip: *rtt,
        udp_round_trip: seen.round_trip,
        path_mtu: seen.path_mtu,
        too_narrow: seen.too_narrow,
        no_udp: seen.no_udp,
        buffer_here: seen.buffer,
        buffer_there: session.peer_limits.map(|limits| limits.socket_buffer),
        machine: Machine::describe(),
        encrypts,
        with_priority: with_priority(),
        known: known.flatten(),
        notices,
    })
}

/// Findings of a lane, as in the [`ProbeReport`].
#[derive(Debug, Default)]
struct Seen {
    round_trip: Option<Duration>,
    path_mtu: Option<u64>,
    too_narrow: Option<String>,
    no_udp: Option<String>,
    buffer: Option<[Bytes; 2]>,
    notices: Vec<String>,
}

impl Seen {
    /// There is no lane, for this reason.
    fn nothing(dialed: &Dialed, reason: String) -> Self {
        // Without a peer it gets a socket all the same.
        let here = SocketAddr::new(dialed.local, 0);
        let size = UdpSocket::bind(here, &UdpOptions::default()).map(|it| it.receive_buffer());
        let buffer = size.map(|size| [size.asked, size.obtained].map(|it| Bytes::new(it as u64)));
        Self { no_udp: Some(reason), buffer: buffer.ok(), ..Self::default() }
    }
}

/// Has a lane look for as long as that may take.
fn over_udp(idle: &Idle<'_>, boxes: &[Arc<Mailbox>], stop: &Stop) -> Result<Seen, Failure> {
    let Dialed { server, rtt, .. } = idle.dialed;
    let silent = Arc::new(Silent::default());
    let (mut lanes, notices) = idle.start(silent.clone(), boxes)?;
    let begun = clock::now();
    let patience = MOST + rtt.saturating_mul(ROUND_TRIPS);
    while clock::now() - begun < patience && !stop.is_requested() {
        std::thread::sleep(LOOK);
        if silent.closed.load(Ordering::Relaxed) {
            break;
        }
    }
    let round_trip = lanes.totals().sending.rtt_min;
    let (account, packet, refusal) = (lanes.host().account(), lanes.passed(), lanes.refusal());
    lanes.close(CloseCode::DONE, "");
    lanes.join();
    let passes = silent.validated.load(Ordering::Relaxed);
    let path_mtu = packet.filter(|_| passes);
    let closed = lock(&silent.too_narrow).take();
    Ok(Seen {
        round_trip: Some(round_trip).filter(|rtt| passes && !rtt.is_zero()),
        path_mtu,
        too_narrow: closed.or_else(|| too_narrow(*server, path_mtu)),
        no_udp: refusal.filter(|_| !passes).map(|refusal| refusal.in_words(Role::Client)),
        buffer: Some([account.buffer_asked, account.buffer_granted]),
        notices,
    })
}

/// Why packets do not pass that are as large as UDP needs them, if the largest that passes is smaller.
fn too_narrow(server: SocketAddr, path_mtu: Option<u64>) -> Option<String> {
    let is_ipv4 = server.ip().to_canonical().is_ipv4();
    let headers = if is_ipv4 { IPV4_UDP_HEADERS } else { IPV6_UDP_HEADERS };
    let least = BASE_DATAGRAM as u64 + headers;
    let passed = path_mtu.filter(|mtu| *mtu < least)?;
    Some(format!("UDP needs IP packets of {least} bytes, and only {passed} pass"))
}

/// How fast a processor seals packets. Not at all where there is no randomness, as nothing else would be.
fn encrypting() -> Rate {
    let Ok(key) = UnboundKey::new(&AES_128_GCM, &[7; 16]).map(LessSafeKey::new) else {
        return Rate::ZERO;
    };
    let mut packet = vec![0; 1_408];
    let (start, mut bytes) = (clock::thread_cpu_time(), 0);
    loop {
        for count in 0u64..64 {
            let mut nonce = [0; 12];
            nonce[..8].copy_from_slice(&count.to_le_bytes());
            let nonce = Nonce::assume_unique_for_key(nonce);
            // What is sealed goes nowhere, and no packet is too long.
            let sealed = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut packet);
            bytes += if sealed.is_ok() { packet.len() as u64 } else { 0 };
        }
        let used = clock::thread_cpu_time().saturating_sub(start);
        if used >= SEALING {
            return Rate::from_bytes_over(bytes, used);
        }
    }
}

/// A transfer that is none.
#[derive(Debug, Default)]
struct Silent {
    validated: AtomicBool,
    closed: AtomicBool,
    too_narrow: Mutex<Option<String>>,
}

impl UpperLayer for Silent {
    fn on_news(&self, news: News<Buffer>) {
        match news {
            News::Validated => self.validated.store(true, Ordering::Relaxed),
            News::Closed(closed) => {
                if closed.code == CloseCode::PATH_MTU {
                    *lock(&self.too_narrow) = Some(shown(&closed.reason));
                }
                self.closed.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    fn on_stream_bytes(&self, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn begin_group(&self, _: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        Ok(Begun::Unneeded)
    }
}

/// Next step where no server answers.
const TO_START: &str = "start `longhaul serve` there, or let ssh start it: `longhaul probe HOST:`";
/// The search for the path MTU takes a few round trips; what is lost of it is tried again.
const ROUND_TRIPS: u32 = 12;
const MOST: Duration = Duration::from_millis(800);
const LOOK: Duration = Duration::from_millis(20);
/// Beside the time of the round trips nobody notices.
const SEALING: Duration = Duration::from_millis(20);
