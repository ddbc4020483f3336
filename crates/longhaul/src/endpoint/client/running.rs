//! A task under way.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_carriers::carrier::{Carrier, mailboxes};
use longhaul_carriers::mailboxes::Mailboxes;
use longhaul_carriers::udp::lane::KernelRefusal;
use longhaul_carriers::udp::paths::Ends;
use longhaul_connection::{End, Gate, HostFailure, Part, Silence, Transfer};
use longhaul_control::Dialed;
use longhaul_engine::{Closed, IPV4_UDP_HEADERS, IPV6_UDP_HEADERS, Role};
use longhaul_history::{Direction, PathKey};
use longhaul_objects::NamedChange;
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_units::{Duration, Instant, Rate, without_numbers};
use longhaul_wire::{BASE_DATAGRAM, CloseCode, Refused};

use super::link::{Link, udp_address};
use super::rival::Rival;
use super::{Begun, Client, Failure, Finished, Task, TooNarrow};
use crate::api::{Hosts, LinkReport, Snapshot};
use crate::connection::attend::{Attendant, INTERVAL};
use crate::connection::circuit::{Circuit, Followed};
use crate::connection::links::Links;
use crate::connection::path_history::{HistoryReport, Recollection};
use crate::connection::shared::Shared;
use crate::connection::steering::Steering;
use crate::options::ConnectOptions;
use crate::progress::{Packets, Progress};

pub(super) struct Running<'c, T> {
    dialed: &'c Dialed,
    circuit: Option<Circuit>,
    shared: Arc<Shared>,
    task: T,
    lanes: Box<dyn Carrier>,
    /// Those that the user named.
    links: Option<Links>,
    path_history: Option<Recollection>,
    profile: &'static str,
    started: Instant,
    part: Part,
    notices: Vec<String>,
    meter: Meter,
    steering: Option<Steering<'static>>,
}

impl<'c, T: Task> Running<'c, T> {
    pub fn start(
        client: &Client<'_>,
        begun: Begun<'c>,
        mut notices: Vec<String>,
        make: impl Fn(SocketAddr, &Arc<Shared>) -> Result<T, Failure>,
        stop: &Stop,
    ) -> Result<Self, Failure> {
        let Begun { dialed, via, over_tcp, opened, packet_max } = begun;
        let Dialed { ref session, ref control, server, ref identity, local, rtt, ref tunnel } =
            *dialed;
        let mailboxes = mailboxes(session.lanes)?;
        let shared = Shared::client(&client.wish, Mailboxes::new(mailboxes.clone()));
        let task = make(server, &shared)?;
        shared.end_with(control);
        let Client { options, ref profile, started, .. } = *client;
        let links = Links::find(&options.links, udp_address(server, session), local)?;
        let ends = links.first();
        let links = Some(links).filter(|_| !options.links.is_empty());
        let link = Link {
            session,
            identity,
            server,
            ends,
            links: links.as_ref(),
            rtt,
            profile,
            options,
            via,
            tunnel: tunnel.as_ref(),
            packet_max,
        };
        let lanes = match over_tcp {
            true => link.start_tcp(opened, &shared, &mailboxes, stop)?,
            false => {
                link.start_udp(options.circuit.is_some(), &shared, &mailboxes, &mut notices)?
            }
        };
        let mut path_history = None;
        match client.wish.part() {
            Part::Source => path_history = recollection(options, ends, &*lanes),
            Part::Sink => lanes.tell_limits(),
        }
        if let (Some(links), Some(_)) = (&links, lanes.paths()) {
            notices.extend(links.beyond(session.lanes));
        }
        let mut circuit = None;
        if let (Some(options), Some(paths)) = (&options.circuit, lanes.paths())
            && let Some(errand) = task.errand()
        {
            shared.direct(Gate::hold);
            circuit =
                Some(Circuit::start(link.follower(options, errand, &shared, paths, started))?);
        }
        task.start()?;
        Ok(Self {
            dialed,
            circuit,
            shared,
            task,
            lanes,
            links,
            path_history,
            profile: profile.profile.name,
            started,
            part: client.wish.part(),
            notices,
            meter: Meter::new(started),
            steering: Some(Steering::of_client(options.rate_schedule.clone(), profile.rate)),
        })
    }

    /// Until the task is done or cannot be, and its report.
    pub fn attend(
        mut self,
        (client, mut rival): (&Client<'_>, Option<&mut Rival>),
        progress: &Progress,
        stop: &Stop,
    ) -> Result<Finished<T>, Failure> {
        let (shared, server) = (self.shared.clone(), client.server_name(self.dialed.server));
        // Of UDP, since packets could come.
        let mut silence = Silence::since(clock::now());
        let mut attendant = Attendant::new(&shared, &*self.lanes, &self.dialed.control, None);
        attendant.remember(self.path_history.take());
        self.steering.take().into_iter().for_each(|steering| attendant.steer(steering));
        let end = loop {
            let end = attendant.round();
            let validated = attendant.known().validated;
            self.task.on_look(validated, progress);
            self.meter.show(&shared, &self.task, &*self.lanes, progress);
            if progress.has_room() {
                progress.keep_changes(taken_changes(&shared));
            }
            for notice in self.lanes.take_left_out() {
                progress.tell(&notice);
                self.notices.push(notice);
            }
            match end {
                Some(End::Closed(Closed { code: CloseCode::PATH_MTU, reason, .. })) => {
                    let reason = match &self.links {
                        Some(_) => format!("{reason}; {NO_LINK_LEFT}"),
                        None => reason,
                    };
                    let reason = match self.mtu_here() {
                        Some(mtu) if !reason.contains(&mtu.to_string()) => {
                            format!("{reason} (the client's interface or route takes {mtu})")
                        }
                        _ => reason,
                    };
                    let by_tcp = self.lanes.may_send_smaller();
                    let passed = self.lanes.passed();
                    let moved = self.lanes.have_moved() || !self.task.leave();
                    let narrow = TooNarrow { server, reason, passed, moved, by_tcp };
                    break Err(Failure::TooNarrow(narrow));
                }
                Some(End::Closed(closed))
                    if closed.is_silence()
                        && self.lanes.refusal().is_none()
                        && let Some(advice) = self.lanes.advice_on_silence() =>
                {
                    let reason = format!("{}; {advice}", closed.reason);
                    break outcome(client, &server, End::Closed(Closed { reason, ..closed }));
                }
                Some(end) => break self.ended(client, &server, end),
                None => {}
            }
            if let Some(failure) = self.given_up(&server, stop) {
                break Err(failure);
            }
            let blocked = match &mut rival {
                Some(rival) => rival.look(self.dialed, validated || attendant.has_received()),
                None => !validated && silence.look(clock::now()) > UDP_PATIENCE,
            };
            if blocked {
                break Err(Failure::UdpBlocked { server });
            }
        };
        let elapsed = clock::now() - self.started;
        attendant.conclude();
        self.path_history = attendant.path_history();
        let may_go_on = rival.is_some() && self.dialed.control.ended().is_none();
        self.finish(end, may_go_on, elapsed, progress)
    }

    /// Why this end gives up, though the other is there.
    fn given_up(&self, server: &str, stop: &Stop) -> Option<Failure> {
        if stop.is_requested() {
            return Some(Failure::Stopped);
        }
        let refusal = self.lanes.refusal().filter(|it| it.is_lasting(clock::now()));
        let refused = |refusal| self.refused(server, refusal);
        self.task.given_up().or_else(|| refusal.map(refused))
    }

    /// The connection came to that end.
    fn ended(&self, client: &Client<'_>, server: &str, end: End) -> Result<(), Failure> {
        match end {
            // Of a few entries all may have ended by then.
            End::Done => self.task.given_up().map_or(Ok(()), Err),
            end => outcome(client, server, self.lanes.explain(end, Role::Client)),
        }
    }

    /// MTU of the interface or route of this host to the server, where that is why UDP does not fit.
    fn mtu_here(&self) -> Option<u32> {
        let server = self.dialed.server;
        let ends = Ends { local: self.dialed.local, remote: server };
        let mtu = ends.socket().ok()?.route_mtu().ok()?;
        let headers = if server.is_ipv4() { IPV4_UDP_HEADERS } else { IPV6_UDP_HEADERS };
        (u64::from(mtu) < BASE_DATAGRAM as u64 + headers).then_some(mtu)
    }

    /// This host's kernel takes no packets, for good.
    fn refused(&self, server: &str, refusal: KernelRefusal) -> Failure {
        if !self.lanes.have_moved() && self.task.leave() {
            return Failure::NoUdp(refusal.in_words(Role::Client));
        }
        let (code, reason) = (CloseCode::TIMEOUT, refusal.with_advice(Role::Client));
        Failure::Closed { server: server.into(), code, by_peer: false, reason }
    }

    fn finish(
        mut self,
        end: Result<(), Failure>,
        may_go_on: bool,
        elapsed: Duration,
        progress: &Progress,
    ) -> Result<Finished<T>, Failure> {
        let goes_on = may_go_on && end.as_ref().is_err_and(Failure::leaves_tcp);
        let (code, reason) = match &end {
            Ok(()) => (CloseCode::DONE, String::new()),
            Err(Failure::Stopped) => (CloseCode::CANCELLED, "stopped by the user".into()),
            Err(Failure::Local(HostFailure::Destination { reason, .. })) => {
                (CloseCode::CANCELLED, reason.clone())
            }
            Err(Failure::Local(failure)) => {
                (CloseCode::STORAGE, self.task.reason_for_peer(&failure.to_string()))
            }
            // It does not come back.
            Err(Failure::TooNarrow(narrow)) if narrow.by_tcp && narrow.moved => {
                (CloseCode::TIMEOUT, narrow.reason.clone())
            }
            Err(Failure::TooNarrow(narrow)) => (CloseCode::PATH_MTU, narrow.reason.clone()),
            Err(Failure::Closed { code: CloseCode::TIMEOUT, by_peer: false, reason, .. }) => {
                (CloseCode::TIMEOUT, reason.clone())
            }
            Err(Failure::UdpBlocked { .. } | Failure::NoUdp(_)) if goes_on => {
                (CloseCode::PATH_MTU, "no UDP packet comes through".into())
            }
            Err(_) => (CloseCode::CANCELLED, "given up by the client".into()),
        };
        let stalled = matches!(self.shared.lock().end(), Some(End::Stalled(_)));
        self.show(progress);
        let circuit = self.circuit.take().map(Circuit::finish).unwrap_or_default();
        self.notices.extend(circuit.notices);
        let history = self.path_history.take().map(|path_history| {
            let (report, notices) = path_history.end(self.profile, &self.lanes.totals());
            notices.iter().for_each(|notice| progress.tell(notice));
            self.notices.extend(notices);
            report
        });
        self.lanes.close(code, &reason);
        if !goes_on {
            self.dialed.control.close(code, &reason);
        }
        // A failure of the local storage leaves nothing to be made durable.
        if !matches!(end, Ok(()) | Err(Failure::Local(_))) {
            self.shared.wind_up();
            self.show(progress);
        }
        self.shared.stop();
        self.lanes.join();
        let hangs = stalled && !self.end_soon();
        if T::THREADS_END && !hangs || end.is_ok() {
            self.shared.join();
        }
        if end.is_err() {
            let sending = self.shared.lock().sending(self.lanes.totals().sending);
            progress.connection_ended(Packets::of(&sending));
        }
        match end {
            Ok(()) => Ok(self.report(elapsed, circuit.followed, history, progress)),
            Err(Failure::Closed { server, code: CloseCode::TIMEOUT, by_peer: false, reason })
                if !stalled =>
            {
                Err(Failure::Lost { server, reason, again: self.task.leave() })
            }
            Err(failure) => Err(failure),
        }
    }

    fn show(&mut self, progress: &Progress) {
        self.meter.show(&self.shared, &self.task, &*self.lanes, progress);
        progress.keep_changes(taken_changes(&self.shared));
    }

    /// Whether the threads come to their end before long: what hangs in a disk's system calls cannot.
    fn end_soon(&self) -> bool {
        let deadline = clock::now() + DISK_PATIENCE;
        while !self.shared.threads_ended() && clock::now() < deadline {
            std::thread::sleep(INTERVAL / 10);
        }
        self.shared.threads_ended()
    }

    fn report(
        self,
        elapsed: Duration,
        circuit: Option<Followed>,
        history: Option<HistoryReport>,
        progress: &Progress,
    ) -> Finished<T> {
        let links = match (&self.links, self.lanes.paths()) {
            (Some(links), Some(paths)) => links.carried(paths, &self.lanes.accounts()),
            _ => Vec::new(),
        };
        let here = self.shared.host_account();
        let half = self.shared.lock();
        let there = half.transfer().and_then(Transfer::host_there);
        let hosts = match self.part {
            Part::Source => Hosts { sender: Some(here), receiver: there },
            Part::Sink => Hosts { sender: there, receiver: Some(here) },
        };
        let counts = self.lanes.totals().sending;
        let counts = history.as_ref().map_or(counts, |known| known.tell_in(counts));
        let sending = half.sending(counts);
        let packets = Packets::of(&sending).plus(progress.packets_before());
        let link = LinkReport {
            carrier: self.lanes.name(),
            profile: self.profile.into(),
            protect: self.dialed.session.protect,
            rtt: sending.rtt_min,
            packets_sent: packets.sent,
            packets_resent: packets.resent,
            lost: packets.lost,
            bottleneck: sending.bottleneck,
            cpu_local: clock::process_cpu_time(),
            cpu_remote: there.map(|host| host.cpu_time),
            hosts,
            circuit: circuit.map(|followed| followed.counted(&self.lanes.accounts())),
            memory: (sending.memory, sending.remembered),
            links,
            history,
            via: Vec::new(),
            reconnects: 0,
            notices: self.notices.iter().map(|notice| without_numbers(notice)).collect(),
        };
        let validated = half.validated();
        drop(half);
        Finished { task: self.task, elapsed, validated, link, resumed_first: None }
    }
}

fn taken_changes(shared: &Shared) -> (Vec<NamedChange>, u64) {
    shared.lock().transfer_mut().map(Transfer::take_changes).unwrap_or_default()
}

/// Knowledge of this host, which sends between `ends`, of that path. A booked circuit is none that anything
/// is to be found out about.
fn recollection(options: &ConnectOptions, ends: Ends, lanes: &dyn Carrier) -> Option<Recollection> {
    let history = options.history.as_ref().filter(|_| options.circuit.is_none())?;
    let key = PathKey {
        peer: options.server.host.clone(),
        local: ends.local,
        remote: ends.remote.ip(),
        direction: Direction::Push,
        token: String::new(),
    };
    Recollection::begin(history, lanes, key)
}

/// How a connection ended, for the user of `server`.
fn outcome(client: &Client<'_>, server: &str, end: End) -> Result<(), Failure> {
    Err(match end {
        End::Done => return Ok(()),
        End::Refused(refused) => client.refused(server, &refused),
        End::Failed(failure) => Failure::Local(failure),
        End::Stalled(stalled) => Failure::Closed {
            server: server.into(),
            code: CloseCode::TIMEOUT,
            by_peer: false,
            reason: stalled.to_string(),
        },
        // It had granted the request, and found out why it cannot be.
        End::Closed(Closed { code: code @ CloseCode::REFUSED, reason, by_peer: true }) => {
            client.refused(server, &Refused { code, reason, part: None })
        }
        End::Closed(Closed { code, reason, by_peer }) => {
            let reason = if reason.is_empty() { code.to_string() } else { reason };
            Failure::Closed { server: server.into(), code, by_peer, reason }
        }
    })
}

/// How far it is, with the goodput over about the last second.
struct Meter {
    started: Instant,
    points: VecDeque<(Instant, u64)>,
}

impl Meter {
    fn new(started: Instant) -> Self {
        Self { started, points: [(started, 0)].into() }
    }

    /// Shows it, with packets of the connections that were lost before.
    fn show(
        &mut self,
        shared: &Shared,
        task: &impl Task,
        lanes: &dyn Carrier,
        progress: &Progress,
    ) {
        let before = progress.packets_before();
        let mut reached = self.snapshot(shared, task, lanes);
        reached.packets_sent += before.sent;
        reached.packets_lost += before.lost.total();
        progress.set(reached);
    }

    fn snapshot(&mut self, shared: &Shared, task: &impl Task, lanes: &dyn Carrier) -> Snapshot {
        let now = clock::now();
        let so_far = task.so_far(shared.mailboxes.waiting());
        let moved = so_far.bytes_done.saturating_sub(so_far.resumed_bytes);
        let sending = shared.lock().sending(lanes.totals().sending);
        Snapshot {
            rate: self.update(now, moved),
            rtt: sending.rtt,
            packets_sent: sending.packets_sent,
            packets_lost: sending.lost.total(),
            bound: sending.bound,
            elapsed: now - self.started,
            ..so_far
        }
    }

    fn update(&mut self, now: Instant, bytes: u64) -> Rate {
        self.points.push_back((now, bytes));
        while self.points.len() > 2 && now - self.points[1].0 > Duration::from_secs(1) {
            self.points.pop_front();
        }
        let (then, before) = self.points[0];
        Rate::from_bytes_over(bytes.saturating_sub(before), (now - then).max(INTERVAL / 10))
    }
}

/// Where links were named.
const NO_LINK_LEFT: &str = "no --link is left that carries, and links are for UDP: leave them out";
/// How long a disk that got nothing done may take to let its threads go.
const DISK_PATIENCE: Duration = Duration::from_secs(2);
/// How long UDP may stay silent once the server let us in.
const UDP_PATIENCE: Duration = Duration::from_secs(5);
