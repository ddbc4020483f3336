//! The lanes of a client, or its TCP connections.

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_carriers::carrier::Carrier;
use longhaul_carriers::host_monitor::{Priority, part_of};
use longhaul_carriers::tcp::{self, JoinError, Opened, TcpCarrierOptions, TcpLanes};
use longhaul_carriers::udp::lane::{LaneSocket, SocketSize};
use longhaul_carriers::udp::lanes::{Duty, Hosting, LaneEnd, LaneRules, Monitoring, UdpLanes};
use longhaul_carriers::udp::paths::{ConnectionPaths, Ends, Owner};
use longhaul_carriers::udp::{self, path, socket_notices};
use longhaul_carriers::upper_layer::{Mailbox, UpperLayer};
use longhaul_connection::HostFailure;
use longhaul_control::tunnel::Tunnel;
use longhaul_control::{Dialed, ServerIdentity, Via};
use longhaul_rate_control::{ChosenProfile, Profile};
use longhaul_session::Session;
use longhaul_sys::stop::Stop;
use longhaul_units::{Duration, Instant, LaneId, Rate};

use super::{Failure, UNKNOWN};
use crate::connection::circuit::{CircuitOptions, Errand, Follower};
use crate::connection::links::Links;
use crate::connection::shared::Shared;
use crate::options::ConnectOptions;

/// What a client's lanes are made of.
pub(super) struct Link<'a> {
    pub session: &'a Arc<Session>,
    pub identity: &'a ServerIdentity,
    pub server: SocketAddr,
    /// The path that lanes begin on.
    pub ends: Ends,
    /// Those that the user named.
    pub links: Option<&'a Links>,
    pub rtt: Duration,
    pub profile: &'a ChosenProfile,
    pub options: &'a ConnectOptions,
    /// The gateways on the path.
    pub via: Option<&'a Via>,
    /// Where TCP connections go in.
    pub tunnel: Option<&'a Arc<Tunnel>>,
    /// Over TCP, where no larger packets pass.
    pub packet_max: Option<u64>,
}

impl Link<'_> {
    /// What books a circuit for `errand`, and takes all lanes but the first to it.
    pub fn follower(
        &self,
        options: &CircuitOptions,
        errand: Errand,
        shared: &Arc<Shared>,
        paths: &Arc<ConnectionPaths>,
        started: Instant,
    ) -> Follower {
        Follower {
            options: options.clone(),
            session: self.session.clone(),
            connection: shared.clone(),
            errand,
            lines: paths.clone(),
            ip: self.ends,
            started,
            shared: Arc::default(),
        }
    }

    /// Starts TCP connections, those that are `opened` already or new ones.
    pub fn start_tcp(
        &self,
        opened: Option<Result<Vec<Opened>, JoinError>>,
        shared: &Arc<Shared>,
        mailboxes: &[Arc<Mailbox>],
        stop: &Stop,
    ) -> Result<Box<dyn Carrier>, Failure> {
        let Self { session, identity, server, options, via, tunnel, packet_max, .. } = *self;
        let tcp = tcp_options(self.profile.rate, options.idle_timeout, packet_max);
        let tcp = TcpCarrierOptions { via: via.cloned(), tunnel: tunnel.cloned(), ..tcp };
        let opened = match opened {
            Some(opened) => opened,
            None => tcp::open_all(server, identity, session, &tcp, stop),
        };
        let joined =
            opened.and_then(|opened| tcp::join_opened(opened, server, session, &tcp, stop));
        let upper: Arc<dyn UpperLayer> = shared.clone();
        let lanes =
            TcpLanes::start(joined.map_err(Failure::Join)?, &tcp, &upper, mailboxes.to_vec());
        let refused = |error| {
            Failure::Local(HostFailure::System(format!("cannot use a TCP connection: {error}")))
        };
        let lanes = lanes.map_err(refused)?;
        Ok(Box::new(if tunnel.is_some() { lanes.in_tunnel() } else { lanes }))
    }

    /// Starts UDP lanes; `booked` says that a circuit is to carry the data.
    pub fn start_udp(
        &self,
        booked: bool,
        shared: &Arc<Shared>,
        mailboxes: &[Arc<Mailbox>],
        notices: &mut Vec<String>,
    ) -> Result<Box<dyn Carrier>, Failure> {
        let Self { session, ends, rtt, profile, options, .. } = *self;
        let idle_timeout = options.idle_timeout;
        let sockets = sockets(ends, session.lanes, options.tunnel(), notices)?;
        let path = path(profile, rtt);
        let feedback = profile.feedback();
        let any = LaneRules { repair: profile.repair(), feedback, idle_timeout, duty: Duty::Any };
        let Profile { repair, feedback, .. } = *Profile::CIRCUIT;
        let rules = |lane: LaneId| match (booked, lane.0) {
            (true, 0) if session.lanes > 1 => LaneRules { duty: Duty::Messages, ..any },
            (true, _) if session.lanes > 1 => {
                LaneRules { repair, feedback, duty: Duty::Booked, ..any }
            }
            _ => any,
        };
        let upper: Arc<dyn UpperLayer> = shared.clone();
        let upper = (upper, mailboxes.to_vec());
        let priority = Priority::wished(options.host_priority);
        let hosting = Hosting { monitor: self.monitoring()?, priority };
        let lines = ConnectionPaths::new(Owner::Client(ends), path, mailboxes.to_vec());
        // Before a lane finds that its path is too small: another one may carry.
        if let Some(links) = self.links {
            links.open(&lines, || udp::path(profile, rtt));
        }
        let losses = options.losses.as_ref();
        let lanes = UdpLanes::start(session, sockets, lines, rules, hosting, upper, losses)?;
        Ok(Box::new(lanes))
    }

    /// What is needed of this host's monitor, where the profile has one.
    fn monitoring(&self) -> Result<Option<Monitoring>, Failure> {
        let Some(part) = part_of(self.profile) else { return Ok(None) };
        let socket = self.ends.socket_with(&SocketSize::Messages.options());
        let socket = socket.map_err(|error| no_udp(self.ends, &error))?;
        let remote = self.ends.remote;
        Ok(Some(Monitoring {
            part,
            mailbox: Arc::new(Mailbox::new()?),
            socket: LaneSocket::Own(socket, remote),
            remote: Some(remote),
            path: path(self.profile, self.rtt),
        }))
    }
}

/// A connection that carries nothing.
pub(crate) struct Idle<'a> {
    pub dialed: &'a Dialed,
    pub profile: &'a ChosenProfile,
    pub options: &'a ConnectOptions,
}

impl Idle<'_> {
    /// Starts its lanes; what the user should know of them comes along.
    pub fn start(
        &self,
        upper: Arc<dyn UpperLayer>,
        mailboxes: &[Arc<Mailbox>],
    ) -> Result<(Box<dyn Carrier>, Vec<String>), Failure> {
        let Self { dialed, profile, options } = *self;
        let idle_timeout = options.idle_timeout;
        let Dialed { session, server, local, rtt, .. } = dialed;
        if server.ip().is_unspecified() {
            return Err(Failure::NoUdp(UNKNOWN.into()));
        }
        let ends = Ends { local: *local, remote: udp_address(*server, session) };
        let mut notices = Vec::new();
        let sockets = sockets(ends, session.lanes, options.tunnel(), &mut notices)?;
        let Profile { feedback, .. } = *profile.profile;
        let rules = LaneRules { repair: profile.repair(), feedback, idle_timeout, duty: Duty::Any };
        let hosting = Hosting { monitor: None, priority: Priority::Usual };
        let path = path(profile, *rtt);
        let lines = ConnectionPaths::new(Owner::Client(ends), path, mailboxes.to_vec());
        let upper = (upper, mailboxes.to_vec());
        let lanes = UdpLanes::start(session, sockets, lines, |_| rules, hosting, upper, None)?;
        Ok((Box::new(lanes), notices))
    }
}

/// Where the server's UDP lanes are.
pub(super) fn udp_address(server: SocketAddr, session: &Session) -> SocketAddr {
    // With the link of a link-local address.
    let mut address = server;
    address.set_port(session.udp_port.unwrap_or(address.port()));
    address
}

/// Where lanes begin, which the server learns by `tunnel`; what the user should know of the first socket goes
/// to `notices`.
fn sockets(
    ends: Ends,
    count: u16,
    tunnel: Option<&Arc<Tunnel>>,
    notices: &mut Vec<String>,
) -> Result<Vec<LaneEnd>, Failure> {
    let remote = ends.remote;
    let mut ports = Vec::new();
    let bind = |lane| {
        let socket = ends.socket().map_err(|error| no_udp(ends, &error))?;
        if lane == 0 {
            notices.extend(socket_notices(&socket));
        }
        ports.push(socket.local_addr().port());
        Ok((LaneId(lane), LaneSocket::Own(socket, remote), Some(remote)))
    };
    let sockets = (0..count).map(bind).collect::<Result<_, Failure>>()?;
    if let Some(tunnel) = tunnel {
        // Where ssh has gone, the server has.
        let _ = tunnel.announce(ports);
    }
    Ok(sockets)
}

/// This host refuses a socket for lanes.
fn no_udp(ends: Ends, error: &std::io::Error) -> Failure {
    let Ends { local, remote } = ends;
    Failure::NoUdp(format!("cannot send UDP from {local} to {}: {error}", remote.ip()))
}

/// How this program uses the TCP carrier.
pub(crate) fn tcp_options(
    rate: Option<Rate>,
    idle_timeout: Duration,
    packet_max: Option<u64>,
) -> TcpCarrierOptions {
    TcpCarrierOptions {
        congestion_control: None,
        rate,
        join_timeout: JOIN_TIMEOUT,
        via: None,
        tunnel: None,
        packet_max,
        idle_timeout,
    }
}

/// The profile of that name with those parameters, if `rate` is what it needs.
pub(crate) fn profile(
    name: &str,
    rate: Option<Rate>,
    parameters: &[String],
) -> Result<ChosenProfile, Failure> {
    Profile::wished(Some(name), rate, parameters.iter().map(String::as_str))
        .map_err(|error| Failure::Usage(error.to_string()))
}

/// How long the connections of the TCP carrier may take.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
