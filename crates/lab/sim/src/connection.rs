//! One end of a connection after the handshake: lanes, their path, stream 0, and a source or sink.
//! This is what a driver does, without sockets and threads.

mod lane;
mod pace;

use std::cell::RefCell;
use std::net::SocketAddr;

use longhaul_connection::{
    Conversation, Heard, LaneHalf, Misspoken, News, NotSent, Order, Part, ReadBatch, Sealer,
    Standing, Wish,
};
use longhaul_engine::{LaneConfig, LaneStats, Path, Role, What};
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_rate_control::{Governor, MemoryBudget, Profile, Start};
use longhaul_session::Session;
use longhaul_units::{Bottleneck, Bytes, Duration, Extent, Instant, LaneId, StreamId};
use longhaul_wire::{CloseCode, ConnectionId, Direction, Message, Refused, Request};

use crate::network::Arrived;
use crate::packet::wire_bytes;
use crate::protection::Protection;
use crate::scenario::{End, Scenario};
use crate::sink::{Env, SinkSide};
use crate::source::{MEMORY, SourceSide};
use crate::trace::Kind;
use lane::{Memory, PathCell};

pub(crate) use lane::LaneState;
use pace::Meter;

#[derive(Debug)]
pub(crate) struct Connection {
    pub id: ConnectionId,
    end: End,
    /// How far this host's clock is ahead of the world's.
    clock: Duration,
    lanes: Vec<LaneState>,
    path: RefCell<Path>,
    conversation: Conversation,
    /// Encoded messages that the stream has no room for yet.
    out: Vec<u8>,
    pub side: Side,
    meter: Option<Meter>,
    pub closed: Option<Closed>,
    batch: u16,
    interface_max: u16,
    memory: MemoryBudget,
}

/// What this end does.
#[derive(Debug)]
pub(crate) enum Side {
    /// A server that has granted nothing.
    None,
    Source(Box<SourceSide>),
    Sink(Box<SinkSide>),
}

/// How a connection ended, as this end sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub code: CloseCode,
    pub reason: String,
    pub by_peer: bool,
}

/// Object bytes offered and not sent, and extents that are not at the peer.
pub(crate) type Left = (u64, usize);

/// A datagram that leaves an end.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub to: SocketAddr,
    pub lane: LaneId,
    pub bytes: Vec<u8>,
}

impl Connection {
    /// Opens what the handshake agreed on. `round_trip` as the control connection measured it.
    pub fn new(
        scenario: &Scenario,
        session: &Session,
        end: End,
        server: SocketAddr,
        now: Instant,
        round_trip: Option<Duration>,
        seed: u64,
    ) -> Self {
        let clock = scenario.clocks[usize::from(end == End::Server)];
        let local = now + clock;
        let profile = Profile::by_name(scenario.profile).expect("scenarios name profiles");
        let start = Start { now: local, packet: 1500, rate: scenario.rate };
        let controller = profile.controller(&start).expect("scenarios have the rates needed");
        let role = if end == End::Client { Role::Client } else { Role::Server };
        let lanes: Vec<LaneState> = (0..session.lanes)
            .map(|number| {
                let seed = seed ^ u64::from(number) << 32;
                let mut config = LaneConfig::new(session.connection, LaneId(number), role, seed);
                config.remote = (end == End::Client).then_some(server);
                config.repair = profile.repair;
                config.feedback = profile.feedback;
                let lane = LaneId(number);
                let seal = Protection::new(session.send_keys(lane), session.protect);
                let open = Protection::new(session.receive_keys(lane), session.protect);
                config.object_tag = Sealer::object_tag(&seal);
                config.datagram_max = scenario.datagram_max;
                config.socket_buffer = Some(scenario.socket_buffer);
                LaneState::new(LaneHalf::new(local, config), lane, [seal, open], now)
            })
            .collect();
        let round_trip = round_trip.unwrap_or(DEFAULT_ROUND_TRIP);
        let mut path = Path::new(local, controller, Governor::new(local), round_trip, seed);
        if let Some(limit) = scenario.limit {
            path.govern(local, |governor| governor.set(Bottleneck::UserLimit, limit));
        }
        let fixed = scenario.rate.map(|rate| {
            let is_circuit = scenario.profile == "trc";
            let burst = if is_circuit { pace::of_circuit(rate) } else { pace::of_fixed(rate) };
            Meter::new(now, rate, burst, burst)
        });
        let limited = scenario
            .limit
            .map(|rate| Meter::new(now, rate, pace::under_limit(rate), pace::LEAST_BURST));
        let memory = if end == scenario.source() { Bytes::new(MEMORY) } else { scenario.capacity };
        let conversation = match end {
            End::Client => Conversation::client(&wish(scenario)),
            End::Server => Conversation::server(),
        };
        Self {
            id: session.connection,
            end,
            clock,
            lanes,
            path: RefCell::new(path),
            conversation,
            out: Vec::new(),
            side: Side::None,
            meter: fixed.or(limited),
            closed: None,
            memory: MemoryBudget::new(local, memory, MEMORY_MAX),
            batch: scenario.batch,
            interface_max: if end == End::Client { scenario.interface_max } else { u16::MAX },
        }
    }

    /// A datagram comes to the socket of its lane.
    pub fn arrive(&mut self, now: Instant, arrived: Arrived, scenario: &Scenario) {
        let Some(header) = arrived.packet.header() else { return };
        if let Some(lane) = self.lanes.get_mut(usize::from(header.lane.0)) {
            lane.arrive(now, arrived, scenario.socket_buffer.get());
        }
    }

    /// Does everything that can be done now. Packets to be sent go to `out`.
    pub fn run(
        &mut self,
        now: Instant,
        scenario: &Scenario,
        env: &mut Env<'_>,
        out: &mut Vec<Outgoing>,
    ) -> bool {
        let mut anything = false;
        for lane in &mut self.lanes {
            lane.half.handle_timeout(now + self.clock, self.path.get_mut());
        }
        for round in 0.. {
            let mut progress = self.drain_sockets(now, env);
            progress |= self.take_news(env, now);
            if self.closed.is_none() {
                progress |= self.read_stream(now, scenario, env);
                progress |= self.pump(now, env);
                progress |= self.write_stream(now, env);
                self.end_of_stream();
            }
            progress |= self.transmit(now, env, out);
            progress |= self.take_news(env, now);
            anything |= progress;
            if !progress {
                break;
            }
            env.checks.require(round < ROUNDS_MAX, || "work without end at one instant");
            if round >= ROUNDS_MAX {
                break;
            }
        }
        self.check(env);
        anything
    }

    fn drain_sockets(&mut self, now: Instant, env: &mut Env<'_>) -> bool {
        let mut progress = false;
        for number in 0..self.lanes.len() {
            while let Some((batch, mut bytes)) = self.lanes[number].read(self.clock) {
                progress = true;
                self.take_batch(now, number, &batch, &mut bytes, env);
                self.take_news(env, now);
            }
        }
        progress
    }

    fn take_batch(
        &mut self,
        now: Instant,
        number: usize,
        batch: &ReadBatch,
        bytes: &mut [u8],
        env: &mut Env<'_>,
    ) {
        env.trace.event(now, Kind::Arrived, [number as u64, bytes.len() as u64, 0]);
        let state = &mut self.lanes[number];
        let before = state.half.engine().stats().packets_received;
        let sink = match &mut self.side {
            Side::Sink(sink) if self.closed.is_none() => Some(&mut **sink),
            _ => None,
        };
        let (memory, path) = (&mut Memory { sink, env }, &PathCell(&self.path));
        let local = now + self.clock;
        state.half.handle_datagrams(local, batch, bytes, &mut state.open, memory, path);
        let accepted = state.half.engine().stats().packets_received - before;
        state.check_accepted(now, accepted, env);
    }

    fn take_news(&mut self, env: &mut Env<'_>, now: Instant) -> bool {
        let mut progress = false;
        for number in 0..self.lanes.len() {
            while let Some(news) = self.lanes[number].half.poll_news() {
                progress = true;
                match (news, &mut self.side) {
                    (News::Validated, _) => {}
                    (News::Delivered(extent), _) => self.delivered(&extent, env),
                    (News::Arrived(whole), Side::Sink(sink)) => sink.complete(now, whole, env),
                    (News::Arrived(_), _) => {
                        env.checks.require(false, || "a group arrived that nobody receives");
                    }
                    (News::Closed(closed), _) => {
                        env.trace.note(now, || format!("{:?} lane {number} {closed:?}", self.end));
                        let longhaul_engine::Closed { code, reason, by_peer } = closed;
                        self.close(now, code, &reason, by_peer);
                    }
                }
            }
        }
        progress
    }

    fn delivered(&mut self, extent: &Extent, env: &mut Env<'_>) {
        if let Side::Source(source) = &mut self.side {
            let held = source.delivered(extent);
            env.checks.require(held, || format!("{extent:?} is delivered and was not offered"));
        }
    }

    /// Ends the connection on every lane. The first reason holds.
    pub fn close(&mut self, now: Instant, code: CloseCode, reason: &str, by_peer: bool) {
        if self.closed.is_none() {
            self.closed = Some(Closed { code, reason: reason.into(), by_peer });
        }
        for lane in &mut self.lanes {
            lane.half.handle_order(now + self.clock, Order::Close(code, reason.into()));
        }
    }

    fn fault(&mut self, now: Instant, error: &dyn std::fmt::Display) {
        self.close(now, CloseCode::PROTOCOL_VIOLATION, &error.to_string(), false);
    }

    fn read_stream(&mut self, now: Instant, scenario: &Scenario, env: &mut Env<'_>) -> bool {
        let mut buffer = [0; 4096];
        let mut progress = false;
        while self.wants_stream()
            && let count @ 1.. = self.lanes[0].half.read_messages(&mut buffer)
        {
            progress = true;
            self.conversation.handle_bytes(&buffer[..count]);
            loop {
                match self.conversation.poll_heard() {
                    Ok(Some(heard)) => self.handle(now, heard, scenario, env),
                    Ok(None) => break,
                    Err(error) => {
                        self.fault(now, &error);
                        return true;
                    }
                }
            }
        }
        if self.lanes[0].half.poll_messages_end()
            && let Err(error) = self.conversation.handle_end()
        {
            self.fault(now, &error);
        }
        progress
    }

    fn wants_stream(&self) -> bool {
        match &self.side {
            Side::Sink(sink) => sink.sink.wants_messages(),
            _ => true,
        }
    }

    fn handle(&mut self, now: Instant, heard: Heard, scenario: &Scenario, env: &mut Env<'_>) {
        env.trace.event(now, Kind::Message, [self.end as u64, 0, 0]);
        env.trace.note(now, || format!("{:?} reads {:.200}", self.end, format!("{heard:?}")));
        let result = match (&mut self.side, heard) {
            (Side::Source(source), Heard::Sink(message)) => {
                source.source.handle(message).map_err(|error| error.to_string())
            }
            (Side::Sink(sink), Heard::Source(message)) => {
                sink.handle(message).map_err(|error| error.to_string())
            }
            (_, Heard::Wish(_)) => {
                self.answer(scenario, env);
                Ok(())
            }
            (_, Heard::Refused(Refused { code, reason })) => {
                self.close(now, code, &reason, true);
                Ok(())
            }
            (_, Heard::Source(_) | Heard::Sink(_)) => Err(Misspoken::OutOfTurn.to_string()),
        };
        if let Err(error) = result {
            self.fault(now, &error);
        }
    }

    fn answer(&mut self, scenario: &Scenario, env: &mut Env<'_>) {
        if !scenario.granted {
            let reason = "this server is read-only".into();
            return self.conversation.refuse(&Refused { code: CloseCode::REFUSED, reason });
        }
        self.conversation.grant();
        self.begin(scenario, env);
    }

    /// Takes the part of source or sink that the conversation gives it.
    pub fn begin(&mut self, scenario: &Scenario, env: &mut Env<'_>) {
        self.side = match self.conversation.part() {
            Some(Part::Source) => {
                let lanes = u16::try_from(self.lanes.len()).unwrap_or(u16::MAX);
                let side = SourceSide::new(lanes, scenario.disk_latency, scenario.hash_delay);
                Side::Source(Box::new(side))
            }
            Some(Part::Sink) => Side::Sink(Box::new(SinkSide::new(scenario, env.disk))),
            None => Side::None,
        };
    }

    fn pump(&mut self, now: Instant, env: &mut Env<'_>) -> bool {
        let memory = self.update_memory(now);
        let local = now + self.clock;
        let (progress, standing) = match &mut self.side {
            Side::None => (false, Standing::default()),
            Side::Source(source) => {
                source.set_memory(memory);
                let progress = source.pump(now, local, env.files, &mut self.lanes, env.draw);
                let drained = source.is_drained();
                (progress, Standing { drained, ..Standing::default() })
            }
            Side::Sink(sink) => {
                sink.set_memory(memory);
                let mut progress = sink.pump(now, env);
                while let Some(repair) = sink.poll_repair() {
                    progress = true;
                    for state in &mut self.lanes {
                        state.half.handle_repair(repair);
                    }
                }
                if let Some(reason) = sink.failed.clone() {
                    self.close(now, CloseCode::STORAGE, &reason, false);
                    return progress;
                }
                (progress, sink.standing())
            }
        };
        for state in &mut self.lanes {
            state.half.handle_standing(&standing);
        }
        progress
    }

    /// What this end may use for what is under way.
    fn update_memory(&mut self, now: Instant) -> Bytes {
        let path = self.path.borrow();
        let rtt = path.rtt();
        let round_trip = if rtt.has_sample() { rtt.min() } else { Duration::ZERO };
        let stats = self.lanes.iter().map(|state| state.half.engine().stats());
        let passed = stats.map(|stats| match &self.side {
            Side::Source(_) => stats.bytes_delivered,
            _ => stats.bytes_received,
        });
        self.memory.update(now + self.clock, passed.sum(), round_trip)
    }

    fn write_stream(&mut self, now: Instant, env: &mut Env<'_>) -> bool {
        let mut progress = self.lanes[0].half.write_messages();
        while self.lanes[0].half.wants_messages() {
            if self.conversation.poll_first(&mut self.out) || !self.out.is_empty() {
                let bytes = std::mem::take(&mut self.out);
                progress |= self.lanes[0].half.push_messages(&bytes);
                continue;
            }
            let message = match &mut self.side {
                Side::Source(source) => source.source.poll_message().map(Message::from),
                Side::Sink(sink) => {
                    let message = sink.sink.poll_message();
                    if let Some(message) = &message {
                        sink.check_message(message, env);
                    }
                    message.map(Message::from)
                }
                Side::None => None,
            };
            let Some(message) = message else { return progress };
            env.trace.note(now, || format!("{:?} says {:.200}", self.end, format!("{message:?}")));
            message.encode(&mut self.out).expect("our messages are within their limits");
        }
        progress
    }

    /// Half-closes when everything is said (docs/protocol.md section 7.5).
    fn end_of_stream(&mut self) {
        if self.is_done() {
            self.conversation.finish();
        }
        let (said_all, lane) = (self.conversation.has_said_all(), &mut self.lanes[0].half);
        if said_all && self.out.is_empty() && lane.wants_messages() {
            lane.finish_messages();
        }
    }

    /// Whether the transfer is done, as this end sees it.
    pub fn is_done(&self) -> bool {
        match &self.side {
            Side::None => false,
            Side::Source(source) => source.source.is_done(),
            Side::Sink(sink) => sink.sink.is_done(),
        }
    }

    /// Whether the client may close, everything being done.
    pub fn may_close(&self) -> bool {
        self.is_done() && self.conversation.may_close()
    }

    /// Whether nothing is under way or waits for an answer.
    pub fn is_at_rest(&self) -> bool {
        self.path.borrow().in_flight() == 0
            && self.lanes.iter().all(|state| state.half.engine().undelivered() == 0)
            && self.lanes[0].half.engine().stream_sent(STREAM)
    }

    /// What this end has still to bring to the other: at the end both numbers only fall.
    pub fn left(&self) -> Left {
        let lanes = || self.lanes.iter().map(|state| state.half.engine());
        (lanes().map(|lane| lane.backlog()).sum(), lanes().map(|lane| lane.undelivered()).sum())
    }

    /// Whether a lane has heard nothing for longer than keep-alives are apart: its packets do not
    /// get through, and the idle timeout will end the connection.
    pub fn is_cut_off(&self, now: Instant) -> bool {
        self.lanes.iter().any(|state| now - state.heard > KEEP_ALIVE_MAX)
    }

    /// Whether nothing will ever be sent again.
    pub fn is_over(&self) -> bool {
        self.lanes.iter().all(|state| state.half.engine().is_closed())
    }

    fn transmit(&mut self, now: Instant, env: &mut Env<'_>, out: &mut Vec<Outgoing>) -> bool {
        let local = now + self.clock;
        let mut progress = false;
        for state in &mut self.lanes {
            let planned = state.half.poll_transmit(local, self.path.get_mut(), self.batch);
            let Some(transmit) = planned else { continue };
            progress = true;
            let before = out.len();
            let datagrams = state.half.seal(&transmit, &mut state.seal);
            let segment = datagrams.segment.map_or(datagrams.bytes.len(), usize::from);
            let to = datagrams.to;
            let made = datagrams.bytes.chunks(segment.max(1)).map(<[u8]>::to_vec);
            let lane = state.lane_id;
            out.extend(made.map(|bytes| Outgoing { to, lane, bytes }));
            let sent = &out[before..];
            env.checks.require(sent.len() == usize::from(transmit.packets), || {
                format!("{} packets were planned, {} made", transmit.packets, sent.len())
            });
            let bytes: u64 = sent.iter().map(|one| wire_bytes(to, one.bytes.len())).sum();
            state.sent_bytes += bytes;
            // Reports and probes are few and not held back.
            if let Some(meter) = &mut self.meter
                && matches!(transmit.what, What::Objects { .. })
            {
                meter.sent(now, transmit.packets, bytes, env.checks);
            }
            // The kernel refuses what the interface cannot send.
            if segment > usize::from(self.interface_max) {
                let path = self.path.get_mut();
                state.half.not_sent(local, path, &transmit, Err(NotSent::TooLarge));
                out.truncate(before);
            }
        }
        progress
    }

    fn check(&mut self, env: &mut Env<'_>) {
        for state in &self.lanes {
            let stats = state.half.engine().stats();
            env.checks.require(stats.bytes_sent == state.sent_bytes, || {
                format!("{} bytes were sent, {} counted", state.sent_bytes, stats.bytes_sent)
            });
            let tracked = state.half.engine().tracked();
            env.checks.require(tracked <= TRACKED_MAX, || {
                format!("a lane tracks {tracked} entries: {stats:?}")
            });
        }
        if let Side::Source(source) = &mut self.side {
            let within = source.is_within_memory();
            env.checks.require(within, || format!("{} groups in memory", source.groups()));
            let sent: u64 =
                self.lanes.iter().map(|s| s.half.engine().stats().fresh_bytes_sent).sum();
            let credit = self.lanes.iter().map(|s| s.half.engine().credit()).max().unwrap_or(0);
            let again = source.source.stats().repairs * GROUP_SIZE;
            env.checks.require(sent <= credit + again, || {
                format!("{sent} bytes were sent and {credit} allowed")
            });
        }
    }

    /// When [`Connection::run`] has something to do next. Not after `now` means again.
    pub fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let local = now + self.clock;
        let path = &self.path.borrow();
        let lanes = self.lanes.iter().filter_map(|s| s.half.next_timeout(local, path));
        let lanes = lanes.min().filter(|at| *at < Instant::FAR_FUTURE);
        let side = match &self.side {
            _ if self.closed.is_some() => None,
            Side::None => None,
            Side::Source(source) => source.next_timeout(),
            Side::Sink(sink) => sink.next_timeout(),
        };
        lanes.map(|at| at.before(self.clock)).into_iter().chain(side).min()
    }

    /// What [`Connection::next_timeout`] is made of, for people: time from now.
    pub fn timers(&self, now: Instant) -> impl Iterator<Item = String> + '_ {
        let local = now + self.clock;
        let path = self.path.borrow().next_timeout().map(|at| format!("path {:?}", at - local));
        let lanes = self.lanes.iter().filter_map(move |s| {
            let at = s.half.next_timeout(local, &self.path.borrow())?;
            Some(format!("{:?} in {:?}", s.lane_id, at - local))
        });
        path.into_iter().chain(lanes)
    }

    /// Asks the peer for silence on all lanes.
    pub fn suspend_peer(&mut self, duration: Duration) {
        for state in &mut self.lanes {
            state.half.suspend_peer(duration);
        }
    }

    /// What the controller thinks, for people.
    pub fn controller(&self) -> String {
        let path = self.path.borrow();
        let (allowed, in_flight) = (path.allowed(), path.in_flight());
        format!("{allowed:?}, {in_flight} in flight, {:?}, {:?}", path.metrics(), path.rtt())
    }

    /// Counts of each lane.
    pub fn stats(&self) -> Vec<LaneStats> {
        self.lanes.iter().map(|state| state.half.engine().stats()).collect()
    }
}

/// What the client asks for.
fn wish(scenario: &Scenario) -> Wish {
    Wish::Copy(Request {
        direction: if scenario.push { Direction::Push } else { Direction::Pull },
        destination_is_directory: false,
        sync_at_end: scenario.fsync,
        copy_contents: false,
        unhashed: false,
        label: [7; 16],
        paths: vec![b"tree".to_vec()],
    })
}

/// The stream of messages.
const STREAM: StreamId = StreamId(0);
/// Round trip that a server assumes before it has measured one.
const DEFAULT_ROUND_TRIP: Duration = Duration::from_millis(100);
/// A lane that has nothing to say is asked after a third of its idle timeout; half of it leaves time
/// for the answer.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(15);
/// More than the longest path here can hold.
const TRACKED_MAX: usize = 20_000;
/// No path here needs more.
const MEMORY_MAX: Bytes = Bytes::from_mib(256);
/// Rounds of work at one instant.
const ROUNDS_MAX: u32 = 100_000;
