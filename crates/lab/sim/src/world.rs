mod accidents;
mod dry_run;
mod race;
mod verdict;

use std::num::NonZeroU32;

use longhaul_connection::Part;
use longhaul_engine::LaneStats;
use longhaul_objects::limits::REPAIRS_MAX;
use longhaul_objects::testing::MemoryStorage;
use longhaul_pathsim::{PathConfig, Probability};
use longhaul_units::{Bytes, Duration, Instant, Rate};
use longhaul_wire::{Carrier, CloseCode, ControlMessage};

use crate::connection::{Connection, Left};
use crate::draw::Draw;
use crate::environment::{Disk, Env};
use crate::files::Files;
use crate::host::{Control, Handshake, Outcome, Shaken, close_in};
use crate::network::Network;
use crate::packet::{Arrived, Outgoing};
use crate::prepared;
use crate::scenario::{Accident, Choice, End, Fault, Scenario};
use crate::tls::Piece;
use crate::trace::{Checks, Kind, Trace};
use crate::wires::Wires;
use dry_run::DryRun;
use race::{JOINS_MAX, Racing};

/// Two hosts, what is between them, and a clock that moves from one thing that happens to the
/// next. Equal scenarios give equal worlds.
#[derive(Debug)]
pub struct World {
    scenario: Scenario,
    now: Instant,
    start: Instant,
    files: Files,
    disk: Disk,
    network: Network,
    control: Option<Control>,
    data: DataCarrier,
    hosts: [Host; 2],
    faults: Vec<Fault>,
    draw: Draw,
    disk_draw: Draw,
    trace: Trace,
    checks: Checks,
    report: Report,
    dry_run: DryRun,
    connections: u32,
    redial_at: Option<Instant>,
    /// Since when the client has been able to close, and what both ends had left to send then.
    done_since: Option<(Instant, [Option<Left>; 2])>,
    idle: Idle,
}

/// Result of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Error that ended it, if the scenario explains one.
    pub gave_up: Option<String>,
    /// End of each run of the client.
    pub runs: Vec<CloseCode>,
    /// Entries that the last run could not copy.
    pub failed: u64,
    /// Bytes that the last run found durable.
    pub resumed_bytes: u64,
    /// Groups that the last run read.
    pub groups_read: usize,
    /// Groups that did not verify, in all runs.
    pub repairs: u64,
    /// Most bytes of contents that the source and the sink kept in memory, in any run.
    pub memory: [Bytes; 2],
    /// Virtual time it took.
    pub took: Duration,
    /// Number of moves of a lane to another path by the client, in all runs.
    pub moves: u64,
    /// Counts of the source's lanes in the last run.
    pub lanes: Vec<LaneCounts>,
    /// Depends on everything that happened.
    pub trace_hash: u64,
    /// Number of things that happened.
    pub events: u64,
}

/// Some counts of a lane of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounts {
    /// Packets sent.
    pub packets_sent: u64,
    /// Object bytes that were sent for the first time.
    pub fresh_bytes: u64,
    /// Packets that carried bytes sent before.
    pub packets_resent: u64,
    /// Packets taken as lost that arrived.
    pub spurious: u64,
    /// UDP payload bytes known to pass.
    pub datagram: u16,
    /// Blast rounds.
    pub rounds: u64,
}

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The seed of the scenario.
    pub seed: u64,
    /// Virtual time since the start.
    pub at: Duration,
    /// The fault.
    pub what: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {}: at {:?}: {}", self.seed, self.at, self.what)
    }
}

impl std::error::Error for Broken {}

/// A process at one end.
#[derive(Debug, Default)]
struct Host {
    handshake: Option<Handshake>,
    connection: Option<Connection>,
    /// Connections that only say that they are closed.
    closing: Vec<Connection>,
    stalled_until: Option<Instant>,
    /// It is down until then.
    down_until: Option<Instant>,
    /// The control connection's bytes behind the handshake.
    control_bytes: Vec<u8>,
    /// The terms that were agreed there, until it ends.
    shaken: Option<Shaken>,
    /// It has ended.
    control_over: bool,
    /// A server's lanes are over, and TCP connections may join until then.
    joins_until: Option<Instant>,
}

/// The carrier of the data of the present run.
#[derive(Debug)]
struct DataCarrier {
    /// The one of the client's connection now.
    kind: Carrier,
    /// The data connections, over TCP.
    wires: Wires,
    /// The means by which a client that may choose decides.
    racing: Option<Racing>,
    /// When it found that UDP is swallowed.
    swallowed: Option<Instant>,
}

/// Steps in which nothing happened.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    since: Instant,
    steps: u32,
    /// When a run or an accident began last: from then on there is a bound.
    eventful: Instant,
}

impl World {
    /// The world of `scenario` before anything happened. `verbose` tells what happens on standard
    /// error.
    pub fn new(scenario: Scenario, verbose: bool) -> Self {
        let start = Instant::from_nanos(1_000_000_000);
        let mut tree = Draw::new(scenario.seed, 4);
        let mut disk = Disk {
            storage: MemoryStorage::new(),
            boot: 1,
            sync_fails: false,
            runs: 0,
            is_tidy: false,
            cut_when_tidy: false,
            lost_unsynced: false,
        };
        let mut files = match &scenario.sizes[..] {
            [] => Files::new(&mut tree, &scenario),
            sizes => Files::of_sizes(&mut tree, sizes),
        };
        // Who pulls has a record of his own.
        if scenario.prepared && scenario.push && !scenario.pipe {
            prepared::prepare(&scenario, &files, &mut disk);
            files.has_foreign = true;
        }
        if scenario.copied_before {
            prepared::copy_before(&scenario, &mut files, &mut disk);
        }
        let mut faults = scenario.faults.clone();
        faults.sort_by_key(|fault| core::cmp::Reverse(fault.at));
        Self {
            files,
            network: Network::new(&scenario, start),
            control: None,
            data: DataCarrier {
                wires: Wires::None,
                kind: match scenario.carrier {
                    Choice::Tcp => Carrier::Tcp,
                    Choice::Udp | Choice::Auto => Carrier::Udp,
                },
                racing: None,
                swallowed: None,
            },
            hosts: Default::default(),
            faults,
            disk,
            draw: Draw::new(scenario.seed, 5),
            disk_draw: Draw::new(scenario.seed, 6),
            trace: Trace::new(verbose),
            checks: Checks::default(),
            report: Report::default(),
            dry_run: DryRun::default(),
            connections: 0,
            redial_at: Some(start),
            done_since: None,
            idle: Idle { eventful: start, ..Idle::default() },
            now: start,
            start,
            scenario,
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// The first rule that was broken.
    pub fn run(mut self) -> Result<Report, Broken> {
        let bound = self.bound();
        while !self.is_over() {
            self.step();
            if self.now - self.idle.eventful > bound && !self.is_over() {
                self.checks.require(false, || "does not end".to_owned());
            }
            if let Some(what) = self.checks.broken() {
                let at = self.now - self.start;
                let what = format!("{what}; ends that are open: {:?}", self.states());
                return Err(Broken { seed: self.scenario.seed, at, what });
            }
        }
        self.finish()
    }

    /// Time in which everything must have ended when nothing goes wrong any more.
    fn bound(&self) -> Duration {
        let paths = self.scenario.all_paths();
        let rates = paths.flat_map(|path| [&path.forward, &path.backward]);
        let least = rates.filter_map(|path| Some(path.bottleneck.as_ref()?.rate.initial)).min();
        let taken = self.scenario.takings.iter().filter_map(|taking| taking.rate);
        let limits = self.scenario.rate.into_iter().chain(self.scenario.limit).chain(taken);
        let rate = least.into_iter().chain(limits).min();
        let bytes = self.files.bytes().max(self.scenario.bytes);
        let moving = rate.map_or(Duration::ZERO, |rate| rate.time_for(bytes));
        BOUND + moving * 10 + self.scenario.paths_settled() + self.crawling(bytes)
    }

    /// Time that `bytes` take at two packets a round trip, where losses and marks are taken for
    /// congestion and a path that has them by chance leaves no more; as much again for what is
    /// lost. What comes damaged under `clear` is sent again so many times.
    fn crawling(&self, bytes: u64) -> Duration {
        let heeds = match self.scenario.profile {
            "cubic" | "pcc" | "sabul" | "scavenger" | "udt" => true,
            "bbr" => self.any_way(|way| way.loss >= LOSS_MAX),
            // One step a chunk, from what start-up found of a path that was another one by then, in a
            // burst of losses, on a path that loses as much as ends start-up by chance, or beside a circuit
            // that carried the data.
            "fobs" | "fobs-linear" | "fobs-state" => {
                let reroutes = |fault: &Fault| matches!(fault.what, Accident::Reroute(..));
                self.bursts()
                    || self.any_way(|way| way.loss >= LOSS_MAX)
                    || self.scenario.circuit.is_some()
                    || self.scenario.faults.iter().any(reroutes)
            }
            // Equation 12 as printed stays where it is below the bottleneck: at a hundredth of the link.
            "paptc" if self.scenario.parameters.iter().any(|set| set == "measured=1") => {
                let rate = self.scenario.rate.unwrap_or(Rate::MAX).scale(1, 100);
                return rate.time_for(bytes) * 2;
            }
            _ => false,
        };
        if !heeds {
            return Duration::ZERO;
        }
        let bytes = bytes * if self.damages() { 1 + u64::from(REPAIRS_MAX) } else { 1 };
        let delays = self.scenario.all_paths().map(|path| path.forward.delay + path.backward.delay);
        let round_trips = u32::try_from(bytes / (2 * LEAST_PACKET) + 1).unwrap_or(u32::MAX);
        (delays.max().unwrap_or_default() + QUEUED_MAX) * round_trips * 2
    }

    /// True if some path is so, one way or the other.
    fn any_way(&self, is: impl Fn(&PathConfig) -> bool) -> bool {
        self.scenario.all_paths().any(|path| is(&path.forward) || is(&path.backward))
    }

    fn step(&mut self) {
        let now = self.now;
        let mut effect = self.accidents();
        effect |= self.dial();
        effect |= self.read_control();
        while let Some(arrived) = self.network.poll(now) {
            self.deliver(arrived);
            effect = true;
        }
        effect |= self.run_hosts();
        if self.run_race() {
            // Messages that came to the other carrier wait for their reader.
            self.run_hosts();
            effect = true;
        }
        if let [Host { connection: Some(client), .. }, Host { connection: Some(server), .. }] =
            &mut self.hosts
        {
            let overdue = server.overdue_move(now, client);
            self.checks.require(overdue.is_none(), || format!("not asked again: {overdue:?}"));
        }
        self.close_when_done();
        effect |= self.reap(End::Client) | self.reap(End::Server);
        self.watch_idleness(effect);
        let next = self.next_timeout().unwrap_or(Instant::FAR_FUTURE);
        self.checks.require(
            next < Instant::FAR_FUTURE || self.is_over(),
            || "nothing will ever happen again",
        );
        // An end that looks at itself again and again makes nothing happen by that.
        let next = self.next_look().map_or(next, |look| look.min(next));
        // A time that is past means "again"; a driver takes a while to come back.
        self.now = next.max(now + Duration::from_nanos(200));
    }

    /// A driver must not be woken for nothing over and over.
    fn watch_idleness(&mut self, effect: bool) {
        if effect {
            self.idle = Idle { since: self.now, steps: 0, ..self.idle };
            return;
        }
        self.idle.steps += 1;
        let (steps, time) = (self.idle.steps, self.now - self.idle.since);
        if time > Duration::from_millis(1) {
            self.idle = Idle { since: self.now, steps: 0, ..self.idle };
        }
        let timers = |host: &Host| {
            let timers = host.connection.iter().flat_map(|c| c.timers(self.now));
            timers.collect::<Vec<String>>().join(", ")
        };
        self.checks.require(steps < IDLE_STEPS_MAX, || {
            let [client, server] = &self.hosts;
            let (client, server) = (timers(client), timers(server));
            format!("{steps} wake-ups in {time:?} without effect: {client} | {server}")
        });
    }

    fn host(&mut self, end: End) -> &mut Host {
        &mut self.hosts[usize::from(end == End::Server)]
    }

    fn deliver(&mut self, arrived: Arrived) {
        let (scenario, now) = (&self.scenario, self.now);
        let host = &mut self.hosts[usize::from(arrived.at == End::Server)];
        let Some(header) = arrived.packet.header() else { return };
        let mut connections = host.connection.iter_mut().chain(&mut host.closing);
        let of_it = |one: &&mut Connection| one.id == header.connection && one.is_udp();
        if let Some(connection) = connections.find(of_it) {
            connection.arrive(now, arrived, scenario);
        }
    }

    /// Lets both ends do what they can at this instant. One that had nothing to do has nothing more
    /// until something comes to it, and at one instant only TCP connections bring anything.
    fn run_hosts(&mut self) -> bool {
        let mut effect = false;
        let mut works = [true; 2];
        while works != [false; 2] {
            for (at, end) in [End::Client, End::Server].into_iter().enumerate() {
                works[at] = works[at] && self.run_host(end);
            }
            let any = works[0] || works[1];
            effect |= any;
            if any && !self.data.wires.is_empty() {
                works = [true; 2];
            }
        }
        effect
    }

    fn run_host(&mut self, end: End) -> bool {
        let now = self.now;
        let host = &mut self.hosts[usize::from(end == End::Server)];
        if host.stalled_until.is_some_and(|until| until > now) {
            return false;
        }
        host.stalled_until = None;
        let mut env = Env {
            disk: &mut self.disk,
            files: &self.files,
            draw: &mut self.disk_draw,
            trace: &mut self.trace,
            checks: &mut self.checks,
        };
        let mut out: Vec<Outgoing> = Vec::new();
        let mut progress = false;
        // Those that only say that they are closed have lost theirs to the next run.
        let wires = &mut self.data.wires;
        for connection in &mut host.closing {
            progress |= connection.run(now, &self.scenario, &mut env, &mut Wires::None, &mut out);
        }
        if let Some(connection) = &mut host.connection {
            progress |= connection.run(now, &self.scenario, &mut env, wires, &mut out);
        }
        for datagram in out {
            self.network.send(now, end, datagram, &mut self.trace, &mut self.checks);
        }
        progress
    }

    /// Starts the client, or starts it again.
    fn dial(&mut self) -> bool {
        let now = self.now;
        if self.redial_at.is_none_or(|at| at > now) {
            return false;
        }
        if self.host(End::Server).down_until.is_some() {
            // Nobody answers; the user tries again.
            self.redial_at = Some(now + REDIAL);
            return true;
        }
        self.redial_at = None;
        self.idle.eventful = now;
        self.trace.event(now, Kind::Run, [0; 3]);
        self.trace.note(now, || "the client dials".into());
        self.network.renew_client();
        self.look_before();
        let mut control = Control::new(&self.scenario, &mut self.draw);
        self.data.racing = None;
        let carrier = match (self.scenario.carrier, self.data.kind) {
            (Choice::Auto, _) => {
                self.data.kind = Carrier::Udp;
                Carrier::Either
            }
            (_, carrier) => carrier,
        };
        let handshake =
            Handshake::client(&self.scenario, carrier, &mut control, now, &mut self.draw);
        self.data.wires = Wires::None;
        if carrier == Carrier::Tcp {
            self.data.wires = Wires::new(&self.scenario, &mut self.draw);
        }
        for host in &mut self.hosts {
            (host.shaken, host.control_over, host.joins_until) = (None, false, None);
        }
        self.host(End::Client).handshake = Some(handshake);
        let server = Handshake::server(&self.scenario, &control, now);
        self.host(End::Server).handshake = Some(server);
        // The server drops what it had under way for the same transfer: one writer at a time.
        if let Some(mut old) = self.host(End::Server).connection.take() {
            old.close(now, CloseCode::SHUTDOWN, "the same transfer began anew", false);
            self.host(End::Server).closing.push(old);
        }
        self.control = Some(control);
        true
    }

    /// Hands what the control connection brings to both ends.
    fn read_control(&mut self) -> bool {
        let mut effect = false;
        for end in [End::Server, End::Client] {
            loop {
                let now = self.now;
                if self.host(end).stalled_until.is_some_and(|until| until > now) {
                    break;
                }
                let Some(control) = &mut self.control else { break };
                let pipe = if end == End::Server { &mut control.up } else { &mut control.down };
                let Some(piece) = pipe.poll(now) else { break };
                effect = true;
                self.control_piece(end, &piece);
            }
            effect |= self.handshake_timeout(end);
        }
        effect
    }

    fn control_piece(&mut self, end: End, piece: &Piece) {
        let now = self.now;
        let Some(control) = &mut self.control else { return };
        let host = &mut self.hosts[usize::from(end == End::Server)];
        if let Some(handshake) = &mut host.handshake {
            let number = NonZeroU32::MIN.saturating_add(self.connections);
            let outcome = handshake.handle(piece, control, now, number, &mut self.draw);
            return self.shaken(end, outcome);
        }
        let (code, reason) = match piece {
            Piece::Bytes(bytes) => {
                host.control_bytes.extend(bytes);
                let Some(close) = close_in(&host.control_bytes) else { return };
                close
            }
            Piece::End => (CloseCode::INTERNAL, "the control connection broke".into()),
        };
        (host.control_over, host.joins_until) = (true, None);
        if let Some(connection) = &mut host.connection {
            connection.close(now, code, &reason, true);
        }
    }

    fn handshake_timeout(&mut self, end: End) -> bool {
        let now = self.now;
        let Some(handshake) = &mut self.host(end).handshake else { return false };
        let outcome = handshake.handle_timeout(now);
        let effect = !matches!(outcome, Outcome::Pending);
        self.shaken(end, outcome);
        effect
    }

    fn shaken(&mut self, end: End, outcome: Outcome) {
        let now = self.now;
        match outcome {
            Outcome::Pending => {}
            Outcome::Failed(code, reason) => {
                self.host(end).handshake = None;
                self.trace.note(now, || format!("{end:?}: handshake failed: {reason}"));
                if end == End::Client {
                    self.ended(code, &reason);
                }
            }
            Outcome::Done(agreed) => {
                self.host(end).handshake = None;
                self.host(end).control_bytes.clone_from(&agreed.session.rest);
                self.connections += u32::from(end == End::Server);
                let (times, seed) = ([now, self.start], self.draw.word());
                let Shaken { session, chosen, round_trip } = &agreed;
                let carrier = session.carrier;
                let shaken = (&**session, carrier, (**chosen).clone(), *round_trip);
                let mut connection = Connection::new(&self.scenario, shaken, end, times, seed);
                if end == End::Client && carrier == Carrier::Either {
                    self.begin_race(round_trip.unwrap_or_default());
                }
                self.host(end).shaken = Some(agreed);
                if end == End::Client {
                    let mut env = Env {
                        disk: &mut self.disk,
                        files: &self.files,
                        draw: &mut self.disk_draw,
                        trace: &mut self.trace,
                        checks: &mut self.checks,
                    };
                    let part =
                        if self.scenario.source() == end { Part::Source } else { Part::Sink };
                    connection.begin(now, part, &self.scenario, &mut env);
                }
                self.host(end).connection = Some(connection);
            }
        }
    }

    /// The client closes when everything is done, and perhaps only when all is quiet too.
    fn close_when_done(&mut self) {
        let now = self.now;
        let [client, server] = &mut self.hosts;
        let Some(client) = &mut client.connection else { return };
        if !client.may_close() || client.closed.is_some() {
            return;
        }
        let server = server.connection.as_ref();
        let quiet = client.is_at_rest() && server.is_none_or(Connection::is_at_rest);
        // What was offered of files that failed may take its time, and a lane that nothing gets
        // through to has its idle timeout.
        let left = [Some(client.left()), server.map(Connection::left)];
        let cut_off = client.is_cut_off(now) || server.is_some_and(|end| end.is_cut_off(now));
        let (mut since, before) = self.done_since.unwrap_or((now, left));
        if left != before || cut_off {
            since = now;
        }
        self.done_since = Some((since, left));
        if quiet && client.is_udp() {
            let counted = [client.counted(), server.and_then(Connection::counted)];
            self.checks.require(counted[1].is_none() || counted[0] == counted[1], || {
                format!("the ends have counted {counted:?} bytes against the credit")
            });
        }
        if quiet || !self.scenario.rest {
            client.close(now, CloseCode::DONE, "", false);
        }
        self.checks.require(now - since < REST_MAX, || {
            let rest = |c: &Connection| (c.is_at_rest(), c.stats());
            let server = server.map(rest);
            format!("done, and something is under way: {:?} {server:?}", rest(client))
        });
    }

    /// Takes down what has closed.
    fn reap(&mut self, end: End) -> bool {
        let now = self.now;
        self.host(end).closing.retain(|connection| !connection.is_over());
        if self.awaits_joins(end) {
            let Some(old) = self.host(end).connection.take() else { return false };
            self.host(end).closing.push(old);
            self.host(end).joins_until = Some(now + JOINS_MAX);
            return true;
        }
        let closed = |c: &Connection| c.closed.is_some();
        if !self.host(end).connection.as_ref().is_some_and(closed) {
            return false;
        }
        let Some(mut connection) = self.host(end).connection.take() else { return false };
        let Some(why) = connection.closed.clone() else { return false };
        self.trace.note(now, || format!("{end:?} has closed: {why:?}"));
        connection.write_wires(now, &mut self.data.wires);
        if let Some(control) = &mut self.control {
            let mut bytes = Vec::new();
            let message = ControlMessage::Close { code: why.code, reason: &why.reason };
            let _ = message.encode(&mut bytes);
            let pipe = if end == End::Client { &mut control.up } else { &mut control.down };
            if !why.by_peer {
                pipe.send(now, &bytes, &mut self.draw);
            }
            pipe.close(now);
        }
        self.host(end).control_over = true;
        self.examine(end, &connection, &why);
        if end == End::Client && why.code == CloseCode::DONE {
            self.compare_with_dry_run(&mut connection);
        }
        // Over TCP CLOSE is sent once; delivery is not required.
        if !connection.is_over() {
            self.host(end).closing.push(connection);
        }
        if end == End::Client {
            self.ended(why.code, &why.reason);
        }
        true
    }

    fn next_timeout(&self) -> Option<Instant> {
        let now = self.now;
        let hosts = self.hosts.iter().flat_map(|host| {
            let connections = host.connection.iter().chain(&host.closing);
            let work = connections.filter_map(|c| c.next_timeout(now)).min();
            let work = work.map(|at| at.max(host.stalled_until.unwrap_or(at)));
            let handshake = host.handshake.as_ref().and_then(Handshake::next_timeout);
            [work, handshake, host.down_until, host.stalled_until]
        });
        let others = [
            self.network.next_timeout(),
            self.control_timeout(),
            self.faults.last().map(|fault| self.start + fault.at),
            self.redial_at,
            self.race_timeout(),
        ];
        let hosts = hosts.chain([End::Client, End::Server].into_iter().map(|end| {
            let host = &self.hosts[usize::from(end == End::Server)];
            let at = self.data.wires.next_timeout(now, end)?;
            host.connection.as_ref()?;
            Some(at.max(host.stalled_until.unwrap_or(at)))
        }));
        hosts.chain(others).flatten().min()
    }

    fn next_look(&self) -> Option<Instant> {
        let looks = self.hosts.iter().filter_map(|host| {
            let look = host.connection.as_ref()?.next_look()?;
            Some(look.max(host.stalled_until.unwrap_or(look)))
        });
        looks.min()
    }

    /// When the control connection brings something to a process that runs.
    fn control_timeout(&self) -> Option<Instant> {
        let control = self.control.as_ref()?;
        let pipes = [&control.down, &control.up].into_iter().zip(&self.hosts);
        let times = pipes.filter_map(|(pipe, host)| {
            let at = pipe.next_timeout()?;
            Some(at.max(host.stalled_until.unwrap_or(at)))
        });
        times.min()
    }

    fn states(&self) -> Vec<(String, Vec<LaneStats>)> {
        let connections = self.hosts.iter().flat_map(|host| &host.connection);
        connections.map(|connection| (connection.controller(), connection.stats())).collect()
    }
}

/// From the last thing that went wrong to the end, beside the time that moving the bytes takes.
const BOUND: Duration = Duration::from_secs(150);
/// Loss that `bbr` takes for congestion (draft-ietf-ccwg-bbr-06: BBRLossThresh), and that ends our start-up.
const LOSS_MAX: Probability = Probability::from_ppm(20_000);
/// Object bytes in a small packet.
const LEAST_PACKET: u64 = 1_000;
/// Longer than packets wait in a queue while two are under way.
const QUEUED_MAX: Duration = Duration::from_millis(100);
/// Why a client gave UDP up.
const NO_UDP: &str = "no UDP packet comes through";
/// From the end of a run to the next.
const REDIAL: Duration = Duration::from_millis(700);
/// Nothing is under way this long after everything was done and the last bytes got through.
const REST_MAX: Duration = Duration::from_secs(30);
/// Steps without effect within a millisecond.
const IDLE_STEPS_MAX: u32 = 100;
