//! A client: connects to a server and has a task done over the connection, a copy or one end of a
//! pipe.

mod link;
mod reconnect;
mod rival;
mod routes;
mod running;

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_connection::{HostFailure, Part, Wish};
use longhaul_history::{History, unix_time};
use longhaul_rate_control::ChosenProfile;
use longhaul_session::ClientConfig;
use longhaul_sys::process::raise_descriptor_limit;
use longhaul_sys::udp::UdpOptions;
use longhaul_units::{Bytes, Duration, Instant, shown};
use longhaul_wire::{Carrier, CloseCode, ReceiveLimits, Refused};

use crate::api::{LinkReport, Snapshot};
use crate::connection::circuit::Errand;
use crate::connection::links::{self, LinkError};
use crate::connection::shared::Shared;
use crate::connection::steering::RateSchedule;
use crate::endpoint::ssh::started::NoServer;
use crate::memory::budget::{Budget, check_addresses};
use crate::memory::descriptors;
use crate::options::{CarrierChoice, ConnectOptions};
use crate::progress::Progress;
use longhaul_carriers::tcp::{JoinError, Opened, TcpCarrierOptions};
use longhaul_control::{ConnectError, Dialed, Via, dial};
use longhaul_files::DestinationError;
use longhaul_sys::stop::Stop;
use rival::Rival;
use running::Running;

pub(crate) use link::{Idle, profile, tcp_options};

/// What a client does over its connection.
pub(crate) trait Task {
    /// Its threads end when it is stopped; otherwise some may wait for whoever uses the data.
    const THREADS_END: bool;

    /// Starts its threads.
    ///
    /// # Errors
    /// None can be started.
    fn start(&self) -> std::io::Result<()>;
    /// What a circuit may carry; nothing where this host sends nothing.
    fn errand(&self) -> Option<Errand>;
    /// Bytes and files so far; `backlog` bytes are still in the lanes.
    fn so_far(&self, backlog: u64) -> Snapshot;
    /// The reason for the peer where this host failed for `reason`.
    fn reason_for_peer(&self, reason: &str) -> String {
        reason.to_owned()
    }
    /// This attempt ends. Whether another one can take its place: nothing is used up that cannot be had again.
    fn leave(&self) -> bool {
        true
    }
    /// Why it is given up, though it could go on.
    fn given_up(&self) -> Option<Failure> {
        None
    }
    /// The connection was looked at: whether its first lane may carry data.
    fn on_look(&mut self, _validated: bool, _progress: &Progress) {}
}

/// A task that is done.
pub(crate) struct Finished<T> {
    pub task: T,
    /// Start of the call to its end.
    pub elapsed: Duration,
    /// When the first lane could carry data.
    pub validated: Option<Instant>,
    pub link: LinkReport,
    /// Of several connections: bytes that had been there before the first.
    pub resumed_first: Option<u64>,
}

/// Why a task was not done. Servers are named as people know them: [`Client::server_name`].
#[derive(Debug)]
pub(crate) enum Failure {
    Usage(String),
    Connect(ConnectError),
    Join(JoinError),
    Destination(DestinationError),
    /// The connection was lost, and no other one was to be had.
    Gone {
        last: Box<Failure>,
        tried: Duration,
    },
    /// No server was started in the place of one that was lost.
    Ssh(NoServer),
    Refused {
        code: CloseCode,
        /// The server or a place there, and why.
        words: String,
    },
    /// The path to the server, or the server, is gone.
    Lost {
        server: String,
        reason: String,
        /// The task can be done over another connection.
        again: bool,
    },
    /// No route is left, and why, of each.
    NoRoute {
        reasons: Vec<String>,
        /// One of them led to the server.
        was_there: bool,
    },
    UdpBlocked {
        server: String,
    },
    TooNarrow(TooNarrow),
    /// This host lets no UDP be sent.
    NoUdp(String),
    Closed {
        server: String,
        code: CloseCode,
        by_peer: bool,
        reason: String,
    },
    Local(HostFailure),
    /// So many entries failed, and the user bears fewer.
    TooManyErrors {
        failed: u64,
        first: String,
    },
    Stopped,
}

/// The path takes no packets as large as UDP needs them, or as TCP sends them.
#[derive(Debug)]
pub(crate) struct TooNarrow {
    pub server: String,
    pub reason: String,
    /// Bytes of the largest IP packet that is known to pass.
    pub passed: Option<u64>,
    /// Data had moved before.
    pub moved: bool,
    /// It is TCP that sends larger ones.
    pub by_tcp: bool,
}

impl Failure {
    /// True where TCP may carry in the place of UDP, on the same connection: nothing has moved.
    fn leaves_tcp(&self) -> bool {
        match self {
            Self::UdpBlocked { .. } | Self::NoUdp(_) => true,
            Self::TooNarrow(narrow) => !narrow.moved && !narrow.by_tcp,
            _ => false,
        }
    }
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Local(HostFailure::System(format!(
            "cannot set up the connection at this host: {}",
            longhaul_sys::descriptors::explained(&error)
        )))
    }
}

/// A connection that is wanted, and what for.
pub(crate) struct Client<'a> {
    pub options: &'a ConnectOptions,
    pub profile: ChosenProfile,
    pub memory: Budget,
    pub wish: Wish,
    pub started: Instant,
}

impl<'a> Client<'a> {
    /// Of a transfer that started at `started`.
    ///
    /// # Errors
    /// There is no such profile, or it needs a rate.
    pub fn new(options: &'a ConnectOptions, wish: Wish, started: Instant) -> Result<Self, Failure> {
        let now = options.rate_schedule.as_ref().map_or(options.rate, RateSchedule::now);
        let profile = profile(&options.profile, now, &options.parameters)?;
        if options.rate_schedule.is_some() && profile.profile.needs_rate {
            return Err(Failure::Usage(format!(
                "the profile {} sends at one rate, and --rate has several",
                profile.profile.name
            )));
        }
        Ok(Self { options, profile, memory: Budget::new(options.memory), wish, started })
    }

    /// Does the task that `make` makes for a server and connection, by the first of the routes that can be
    /// had and is not lost; over each one makes it again.
    pub fn run<T: Task>(
        &self,
        make: impl Fn(SocketAddr, &Arc<Shared>) -> Result<T, Failure>,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<Finished<T>, Failure> {
        self.check_links()?;
        self.check_carrier()?;
        check_addresses().map_err(Failure::Local)?;
        // Where that is not allowed, files are opened more often.
        let _ = raise_descriptor_limit();
        descriptors::check().map_err(Failure::Local)?;
        self.reconnecting(&make, progress, stop)
    }

    /// A refusal by the server of that name, in words for people: places are as the user has written them.
    fn refused(&self, server: &str, refused: &Refused) -> Failure {
        let reason = shown(&refused.reason);
        let place = refused.part.and_then(|part| self.options.named(&self.wish, part));
        let words = match place {
            Some(place) => format!("{place}: {reason}"),
            None => format!("{server} refuses: {reason}"),
        };
        Failure::Refused { code: refused.code, words }
    }

    /// The server at that address for people: by its address, or where ssh has started it, so that it may have none
    /// that leads there, by the user's word.
    fn server_name(&self, address: SocketAddr) -> String {
        match &self.options.ssh {
            Some(ssh) => shown(ssh.destination()),
            None => address.to_string(),
        }
    }

    /// The carrier by a route.
    fn carrier(&self, via: Option<&Via>) -> Carrier {
        let ConnectOptions { carrier, circuit, links, .. } = self.options;
        match carrier {
            _ if via.is_some() => Carrier::Tcp,
            CarrierChoice::Tcp => Carrier::Tcp,
            CarrierChoice::Auto if self.options.taken().is_some() => Carrier::Tcp,
            CarrierChoice::Auto if circuit.is_none() && links.is_empty() => Carrier::Either,
            CarrierChoice::Auto | CarrierChoice::Udp => Carrier::Udp,
        }
    }

    /// Does the task by one route; where packets do not pass makes it once more, over TCP if the user
    /// leaves the choice to us, and by TCP with smaller ones.
    fn by_route<T: Task>(
        &self,
        via: Option<&Via>,
        make: impl Fn(SocketAddr, &Arc<Shared>) -> Result<T, Failure>,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<Finished<T>, Failure> {
        let failure = match self.carry(via, &make, progress, stop) {
            // The segments of others are those that a gateway sends.
            Err(failure) if via.is_none() => failure,
            result => return result,
        };
        let reason = match &failure {
            Failure::TooNarrow(narrow) if narrow.by_tcp && !narrow.moved => narrow.reason.clone(),
            // The first packet of a server's TLS is as large as they come.
            Failure::Join(error @ JoinError::Silent { .. }) => error.to_string(),
            _ => return Err(failure),
        };
        let notices = vec![format!("{reason}; no packet is larger than {PACKET_LEAST} bytes now")];
        // Another connection, as that one is over at the server.
        let dialed = self.dial(Carrier::Tcp, via, stop)?;
        let packet_max = Some(PACKET_LEAST);
        let begun = Begun { dialed: &dialed, via, over_tcp: true, opened: None, packet_max };
        self.attempt(begun, None, notices, make, progress, stop)
    }

    /// The same by one connection.
    fn carry<T: Task>(
        &self,
        via: Option<&Via>,
        make: impl Fn(SocketAddr, &Arc<Shared>) -> Result<T, Failure>,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<Finished<T>, Failure> {
        let first = self.carrier(via);
        let (free, over_tcp) = (first == Carrier::Either, first == Carrier::Tcp);
        let dialed = self.dial(first, via, stop)?;
        let begun = Begun { dialed: &dialed, via, over_tcp, opened: None, packet_max: None };
        let mut rival = free.then(|| self.rival(&dialed));
        let relayed = self.options.ssh.as_ref().is_some_and(|ssh| ssh.is_of_another());
        let notice = without_ports(self.options, &dialed);
        let notices = notice.or_else(|| through_ssh(&dialed, over_tcp, relayed));
        // Names and hashes alone are as fast without a port.
        let moves_data = matches!(self.wish, Wish::Copy(_) | Wish::Pipe(_));
        let notices = notices.into_iter().filter(|_| moves_data).collect();
        let tried = match dialed.server.ip().is_unspecified() {
            true if free => Err(Failure::NoUdp(UNKNOWN.into())),
            _ => self.attempt(begun, rival.as_mut(), notices, &make, progress, stop),
        };
        let failure = match tried {
            Err(failure) if free && failure.leaves_tcp() && dialed.control.ended().is_none() => {
                failure
            }
            result => return result,
        };
        let (mut opened, mut packet_max) = (None, None);
        let why = match &failure {
            Failure::UdpBlocked { .. } => {
                let server = dialed.server;
                self.note_swallowed(&dialed);
                opened = rival.as_mut().and_then(Rival::take);
                match dialed.tunnel {
                    None => format!("no UDP packet comes through to {server}"),
                    Some(_) => format!("neither TCP nor UDP comes through to {server}"),
                }
            }
            Failure::TooNarrow(narrow) => {
                packet_max = Some(narrow.passed.unwrap_or(PACKET_LEAST));
                narrow.reason.clone()
            }
            Failure::NoUdp(reason) => reason.clone(),
            _ => return Err(failure),
        };
        let instead = match dialed.tunnel {
            None => "TCP carries instead",
            Some(_) if relayed => DATA_THROUGH_CLIENT,
            Some(_) => DATA_THROUGH_SSH,
        };
        let notices = vec![format!("{why}: {instead}")];
        let begun = Begun { dialed: &dialed, via, over_tcp: true, opened, packet_max };
        match self.attempt(begun, None, notices, &make, progress, stop) {
            // At the server data had moved before: it takes no connections any more.
            Err(Failure::Closed { code: CloseCode::UNAUTHORIZED, by_peer: true, .. }) => {
                Err(failure)
            }
            result => result,
        }
    }

    fn check_carrier(&self) -> Result<(), Failure> {
        let ConnectOptions { carrier, circuit, links, ssh, .. } = self.options;
        let needs_udp = *carrier == CarrierChoice::Udp || circuit.is_some() || !links.is_empty();
        if let Some(reason) = ssh.as_ref().and_then(|ssh| ssh.lacks_ports()).filter(|_| needs_udp) {
            return Err(Failure::NoUdp(reason));
        }
        let reason = match carrier {
            CarrierChoice::Udp if self.uses_gateways() => {
                "gateways carry TCP connections (--via), not UDP lanes (--carrier udp)"
            }
            _ if self.uses_gateways() && circuit.is_some() => {
                "a circuit carries UDP lanes, gateways TCP connections (--via)"
            }
            CarrierChoice::Tcp if circuit.is_some() => {
                "a circuit carries UDP lanes, not TCP connections"
            }
            _ => return Ok(()),
        };
        Err(Failure::Usage(reason.into()))
    }

    /// Some route leads through gateways.
    fn uses_gateways(&self) -> bool {
        self.options.routes.iter().any(|route| route.via().is_some())
    }

    fn check_links(&self) -> Result<(), LinkError> {
        let ConnectOptions { links, carrier, circuit, .. } = self.options;
        match &links[..] {
            [] => Ok(()),
            _ if *carrier == CarrierChoice::Tcp || self.uses_gateways() => Err(LinkError::Tcp),
            _ if circuit.is_some() => Err(LinkError::Circuit),
            [_, _, ..] if self.profile.is_reserved() => Err(LinkError::Reserved),
            _ => links::check(links),
        }
    }

    /// What the user asked for that the TCP carrier does not do.
    fn of_no_effect(&self) -> Option<String> {
        let limit = if self.profile.rate.is_some() { " below --rate" } else { "" };
        let name = self.profile.profile.name;
        let chosen = name != UNNAMED || self.profile.parameters.for_peer().is_some();
        chosen.then(|| {
            format!(
                "over TCP the kernel repairs losses and sets the rate{limit}: profile {name} has \
                 no effect"
            )
        })
    }

    /// Connects to the server, and agrees with it on `carrier`.
    fn dial(&self, carrier: Carrier, via: Option<&Via>, stop: &Stop) -> Result<Dialed, Failure> {
        let socket_buffer = Bytes::new(UdpOptions::default().receive_buffer as u64);
        // The server has little to send to a source: no limit, but what its profile needs.
        let ChosenProfile { profile, rate, parameters } = &self.profile;
        let sends_rate = profile.needs_rate || self.wish.part() == Part::Sink;
        let ConnectOptions { token, idle_timeout, .. } = self.options;
        let config = ClientConfig {
            protect: self.options.protect,
            carrier,
            // The first stays on IP, and each link has one.
            lanes: self.options.lanes.max(self.options.links.len() as u16).max(1)
                + u16::from(self.options.circuit.is_some()),
            implementation: Some(crate::implementation::IMPLEMENTATION.into()),
            receive_limits: Some(ReceiveLimits { socket_buffer, credit: self.memory.of_sink() }),
            profile: Some(profile.name.into()),
            rate: rate.filter(|_| sends_rate),
            parameters: parameters.for_peer(),
            ..ClientConfig::default()
        };
        let remote = self.options.remote(via);
        dial(&remote, token, &config, *idle_timeout, stop).map_err(Failure::Connect)
    }

    /// One try with one carrier, of which there are `notices` to tell.
    fn attempt<T: Task>(
        &self,
        begun: Begun<'_>,
        rival: Option<&mut Rival>,
        mut notices: Vec<String>,
        make: impl Fn(SocketAddr, &Arc<Shared>) -> Result<T, Failure>,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<Finished<T>, Failure> {
        if begun.over_tcp {
            notices.extend(self.of_no_effect());
        }
        notices.iter().for_each(|notice| progress.tell(notice));
        Running::start(self, begun, notices, make, stop)?.attend((self, rival), progress, stop)
    }

    /// The connections that may take the place of lanes that begin now.
    fn rival(&self, dialed: &Dialed) -> Rival {
        let ConnectOptions { server, history, idle_timeout, .. } = self.options;
        let known = |history: &Arc<History>| {
            history.is_udp_swallowed(&server.host, dialed.server.ip(), unix_time())
        };
        // Without a memory UDP is given its time.
        let was_swallowed = history.as_ref().is_some_and(|all| known(all).unwrap_or(false));
        let options = tcp_options(self.profile.rate, *idle_timeout, None);
        let options = TcpCarrierOptions { tunnel: dialed.tunnel.clone(), ..options };
        Rival::new(dialed, was_swallowed, options)
    }

    fn note_swallowed(&self, dialed: &Dialed) {
        if let Some(history) = &self.options.history {
            let (host, ip) = (&self.options.server.host, dialed.server.ip());
            // Without it the next copy waits a moment longer.
            let _ = history.note_udp_swallowed(host, ip, unix_time());
        }
    }
}

/// A connection on which an attempt begins.
struct Begun<'a> {
    dialed: &'a Dialed,
    /// The gateways that it goes through.
    via: Option<&'a Via>,
    over_tcp: bool,
    /// TCP connections that are there already, or why they cannot be.
    opened: Option<Result<Vec<Opened>, JoinError>>,
    /// Over TCP, where no larger packets pass.
    packet_max: Option<u64>,
}

/// The notice of a connection to a server without ports, and how data goes there.
pub(crate) fn without_ports(options: &ConnectOptions, dialed: &Dialed) -> Option<String> {
    let instead = if dialed.tunnel.is_some() { DATA_THROUGH_SSH } else { "TCP carries instead" };
    options.ssh.as_ref()?.lacks_ports().map(|reason| format!("{reason}: {instead}"))
}

/// The notice of a connection that goes through ssh; of its data too, where that is TCP's. It may be `relayed` by
/// the host that asked for it.
pub(crate) fn through_ssh(dialed: &Dialed, over_tcp: bool, relayed: bool) -> Option<String> {
    let Dialed { tunnel: Some(_), server, .. } = dialed else { return None };
    let what = match (over_tcp, relayed) {
        (true, false) => DATA_THROUGH_SSH,
        (true, true) => DATA_THROUGH_CLIENT,
        (false, false) => "the control connection goes through ssh",
        (false, true) => "the control connection goes through the host of this command, by ssh",
    };
    Some(match server.ip().is_unspecified() {
        true => format!("{UNKNOWN}: {what}"),
        false => format!("no TCP connection comes through to {server}: {what}"),
    })
}

const DATA_THROUGH_SSH: &str = "data goes through ssh, and as fast as that (open ports there, TCP and UDP, as of --ports A-B, for more)";
const DATA_THROUGH_CLIENT: &str = "data goes through the host of this command, by ssh to both others, and as fast as that (let the \
     one reach ports of the other, TCP and UDP, as of --ports A-B, for more)";
const UNKNOWN: &str = "the address of the server is not known here";
/// Bytes of an IP packet that every path takes (RFC 791).
const PACKET_LEAST: u64 = 576;
/// The profile of those who name none.
const UNNAMED: &str = "auto";
