//! A client that may take either carrier: lanes begin, and TCP connections may take their place.

use longhaul_connection::{Part, Race, RaceStep, TcpProgress};
use longhaul_pathsim::PathConfig;
use longhaul_units::{Duration, Instant};
use longhaul_wire::{Carrier, CloseCode};

use super::{NO_UDP, World};
use crate::connection::Connection;
use crate::environment::Env;
use crate::host::Shaken;
use crate::scenario::{Choice, End, Meddling, TcpOpens};
use crate::wires::Wires;

/// The means by which a client decides.
#[derive(Debug)]
pub(super) struct Racing {
    race: Race,
    /// When the connections are open, or cannot be.
    opens: Option<Instant>,
    /// When the server sees that they join.
    joins: Option<Instant>,
}

impl World {
    /// The client's lanes begin.
    pub(super) fn begin_race(&mut self, round_trip: Duration) {
        let lately = self.data.swallowed.is_some_and(|at| self.now - at < REMEMBERED);
        let race = Race::new(self.now, round_trip, lately);
        self.data.racing = Some(Racing { race, opens: None, joins: None });
    }

    /// Both ends look which carrier it is to be; whether that changed anything.
    pub(super) fn run_race(&mut self) -> bool {
        self.server_joined() | self.client_decides()
    }

    fn client_decides(&mut self) -> bool {
        let now = self.now;
        let progress = self.tcp_progress();
        let [client, _] = &mut self.hosts;
        let (Some(racing), Some(connection)) = (&mut self.data.racing, &mut client.connection)
        else {
            return false;
        };
        if racing.joins.is_some() || client.stalled_until.is_some() || client.control_over {
            return false;
        }
        if let Some(closed) = &connection.closed {
            let narrow = closed.code == CloseCode::PATH_MTU && !connection.has_moved();
            match (narrow, self.scenario.tcp) {
                (false, _) => return false,
                (true, TcpOpens::Refused) => {
                    // Neither carrier is left.
                    self.data.racing = None;
                    return false;
                }
                (true, TcpOpens::After(_)) => self.client_takes_tcp(),
            }
            return true;
        }
        match racing.race.look(now, connection.has_received(), progress) {
            RaceStep::Wait | RaceStep::Udp => return false,
            RaceStep::Open => racing.opens = Some(now + opening(self.scenario.tcp)),
            RaceStep::Tcp => {
                self.data.swallowed = Some(now);
                if progress == TcpProgress::Failed {
                    connection.close(now, CloseCode::CANCELLED, NEITHER, false);
                } else {
                    self.check_that_udp_had_a_reason();
                    self.client_takes_tcp();
                }
            }
        }
        true
    }

    fn tcp_progress(&self) -> TcpProgress {
        match self.data.racing.as_ref().and_then(|racing| racing.opens) {
            None => TcpProgress::None,
            Some(at) if at > self.now => TcpProgress::Opening,
            Some(_) => match self.scenario.tcp {
                TcpOpens::After(time) if time < OPEN_MAX => TcpProgress::Open,
                _ => TcpProgress::Failed,
            },
        }
    }

    /// Where nothing holds packets up UDP is what carries.
    fn check_that_udp_had_a_reason(&mut self) {
        let scenario = &self.scenario;
        let is_clean = scenario.faults.is_empty()
            && scenario.refusals.is_empty()
            && !scenario.is_narrow
            && scenario.adversary == 0
            && scenario.meddling == Meddling::NONE
            && scenario.paths.iter().all(|path| {
                let lines = [&path.forward, &path.backward];
                let delay: Duration = lines.iter().map(|line| line.delay).sum();
                delay < SHORT && lines.iter().all(|line| is_clean(line))
            });
        self.checks.require(!is_clean, || "TCP carries, and nothing held UDP up");
    }

    fn client_takes_tcp(&mut self) {
        let now = self.now;
        self.trace.note(now, || "the client takes TCP".into());
        let Some(mut old) = self.hosts[0].connection.take() else { return };
        old.close(now, CloseCode::PATH_MTU, NO_UDP, false);
        let Some(mut connection) = self.connection_over_tcp(End::Client) else { return };
        let part = if self.scenario.source() == End::Client { Part::Source } else { Part::Sink };
        let mut env = Env {
            disk: &mut self.disk,
            files: &self.files,
            draw: &mut self.disk_draw,
            trace: &mut self.trace,
            checks: &mut self.checks,
        };
        connection.begin(now, part, &self.scenario, &mut env);
        let client = &mut self.hosts[0];
        client.closing.push(old);
        client.connection = Some(connection);
        self.data.wires = Wires::new(&self.scenario, &mut self.draw);
        if self.hosts[1].shaken.is_none() {
            // Its process is gone, or its host.
            self.data.wires.fall_silent(now, End::Server);
        }
        self.data.kind = Carrier::Tcp;
        self.idle.eventful = now;
        if let Some(racing) = &mut self.data.racing {
            racing.joins = Some(now + self.scenario.pipe_delay);
        }
    }

    /// The server sees connections join, whatever its lanes are at; or has waited in vain.
    fn server_joined(&mut self) -> bool {
        let now = self.now;
        let server = &mut self.hosts[1];
        if server.stalled_until.is_some() {
            return false;
        }
        if server.joins_until.is_some_and(|until| until <= now) {
            server.joins_until = None;
            if let Some(control) = &mut self.control {
                control.down.close(now);
            }
            return true;
        }
        let due =
            self.data.racing.as_ref().and_then(|racing| racing.joins).is_some_and(|at| at <= now);
        if !due || server.control_over {
            return false;
        }
        self.data.racing = None;
        server.joins_until = None;
        let old = server.connection.take();
        let Some(connection) = self.connection_over_tcp(End::Server) else { return true };
        let server = &mut self.hosts[1];
        server.connection = Some(connection);
        if let Some(mut old) = old {
            old.close(now, CloseCode::PATH_MTU, "TCP connections take the place of UDP", false);
            server.closing.push(old);
        }
        true
    }

    /// The same session, over TCP.
    fn connection_over_tcp(&mut self, end: End) -> Option<Connection> {
        let (times, seed) = ([self.now, self.start], self.draw.word());
        let Shaken { session, chosen, round_trip } =
            self.hosts[usize::from(end == End::Server)].shaken.as_ref()?;
        let shaken = (&**session, Carrier::Tcp, (**chosen).clone(), *round_trip);
        Some(Connection::new(&self.scenario, shaken, end, times, seed))
    }

    /// True where what ends the server's lanes leaves its client to TCP.
    pub(super) fn awaits_joins(&self, end: End) -> bool {
        let host = &self.hosts[usize::from(end == End::Server)];
        // What a server sends moves when its client says so: that one does not join.
        let sends = self.scenario.source() == End::Server;
        let narrow = |connection: &Connection| {
            let closed = connection.closed.as_ref();
            closed.is_some_and(|closed| closed.code == CloseCode::PATH_MTU)
                && !(sends && connection.has_moved())
                && connection.is_udp()
        };
        end == End::Server
            && self.scenario.carrier == Choice::Auto
            && !host.control_over
            && host.connection.as_ref().is_some_and(narrow)
    }

    pub(super) fn race_timeout(&self) -> Option<Instant> {
        let [client, server] = &self.hosts;
        let racing = self.data.racing.as_ref();
        let of_client = racing.filter(|racing| racing.joins.is_none()).and_then(|racing| {
            let progress = self.tcp_progress();
            let silent = !client.connection.as_ref()?.has_received();
            let look = racing.race.next_timeout(progress).filter(|_| silent);
            let opens = racing.opens.filter(|_| progress == TcpProgress::Opening && silent);
            let at = look.into_iter().chain(opens).min()?;
            Some(at.max(client.stalled_until.unwrap_or(at)))
        });
        let joins = racing.and_then(|racing| racing.joins).filter(|_| !server.control_over);
        let of_server = joins.into_iter().chain(server.joins_until).min();
        let of_server = of_server.map(|at| at.max(server.stalled_until.unwrap_or(at)));
        of_client.into_iter().chain(of_server).min()
    }
}

fn is_clean(line: &PathConfig) -> bool {
    let PathConfig { loss, burst_loss, corruption, firewall, outages, policer, .. } = line;
    loss.as_ppb() == 0
        && corruption.as_ppb() == 0
        && burst_loss.is_none()
        && policer.is_none()
        && *firewall == Default::default()
        && *outages == Default::default()
}

/// Until the connections are open, or it is known that they cannot be.
fn opening(tcp: TcpOpens) -> Duration {
    match tcp {
        TcpOpens::After(time) => time.min(OPEN_MAX),
        TcpOpens::Refused => Duration::ZERO,
    }
}

/// Time for which it is remembered that UDP was swallowed.
const REMEMBERED: Duration = Duration::from_secs(3_600);
/// The time that connections may take to be open.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// Time for which a server waits for joins.
pub(super) const JOINS_MAX: Duration = Duration::from_secs(10);
/// Round trips in which lanes have time for several in 300 ms.
const SHORT: Duration = Duration::from_millis(60);
/// Why a client gives up that can take no carrier.
pub(super) const NEITHER: &str =
    "no UDP packet comes through, and TCP connections cannot be opened";
