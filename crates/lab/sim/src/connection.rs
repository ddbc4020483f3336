//! One end of a connection after the handshake: lanes, their path, stream 0, and a source or sink.
//! This is what a driver does, without sockets and threads.

mod pace;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_engine::{
    Arrival, Event, Lane, LaneConfig, LaneStats, Path, Plan, Role, Transmit, What,
};
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_rate_control::{Bound, Governor, MemoryBudget, Profile, Start};
use longhaul_session::Session;
use longhaul_units::{Bytes, Duration, Extent, Instant, LaneId, RangeSet, StreamId};
use longhaul_wire::{CloseCode, ConnectionId, Direction, Message, MessageReader, Refused, Request};

use crate::network::Arrived;
use crate::packet::{Body, Packet, object_tag};
use crate::scenario::{End, Scenario};
use crate::sink::{Env, Piece, SinkSide};
use crate::source::{MEMORY, SourceSide};
use crate::trace::Kind;
use pace::Meter;

#[derive(Debug)]
pub(crate) struct Connection {
    pub id: ConnectionId,
    end: End,
    /// How far this host's clock is ahead of the world's.
    clock: Duration,
    lanes: Vec<LaneState>,
    path: Path,
    plan: Plan,
    reader: MessageReader,
    /// Encoded messages that the stream has no room for yet.
    out: VecDeque<u8>,
    pub side: Side,
    finished: bool,
    meter: Option<Meter>,
    pub closed: Option<Closed>,
    batch: u16,
    interface_max: u16,
    memory: MemoryBudget,
}

#[derive(Debug)]
struct LaneState {
    lane: Lane,
    lane_id: LaneId,
    /// Packets in the socket buffer.
    socket: VecDeque<(Arrived, Instant)>,
    socket_bytes: u64,
    overflowed: bool,
    /// Numbers of packets that were accepted.
    accepted: RangeSet,
    /// IP-layer bytes sent, to compare with what the lane counts.
    sent_bytes: u64,
    /// When an authentic packet of the peer came last.
    heard: Instant,
}

/// What this end does.
#[derive(Debug)]
pub(crate) enum Side {
    /// A server before the request.
    Waiting,
    Source(Box<SourceSide>),
    Sink(Box<SinkSide>),
    /// A server that says no.
    Refusing,
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

/// A packet and where it goes.
pub(crate) type Outgoing = (SocketAddr, Packet);

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
                config.object_tag = object_tag(session.protect);
                config.datagram_max = scenario.datagram_max;
                config.socket_buffer = Some(scenario.socket_buffer);
                LaneState::new(Lane::new(local, config), LaneId(number), now)
            })
            .collect();
        let round_trip = round_trip.unwrap_or(DEFAULT_ROUND_TRIP);
        let mut path = Path::new(local, controller, Governor::new(local), round_trip, seed);
        if let Some(limit) = scenario.limit {
            path.govern(local, |governor| governor.set(Bound::UserLimit, limit));
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
        let mut connection = Self {
            id: session.connection,
            end,
            clock,
            lanes,
            path,
            plan: Plan::default(),
            reader: MessageReader::new(),
            out: VecDeque::new(),
            side: Side::Waiting,
            finished: false,
            meter: fixed.or(limited),
            closed: None,
            memory: MemoryBudget::new(local, memory, MEMORY_MAX),
            batch: scenario.batch,
            interface_max: if end == End::Client { scenario.interface_max } else { u16::MAX },
        };
        if end == End::Client {
            connection.request(scenario);
        }
        connection
    }

    fn request(&mut self, scenario: &Scenario) {
        let lane = &mut self.lanes[0].lane;
        lane.open_stream(STREAM).expect("a client may open stream 0");
        self.queue(&Message::Request(Request {
            direction: if scenario.push { Direction::Push } else { Direction::Pull },
            destination_is_directory: false,
            sync_at_end: scenario.fsync,
            copy_contents: false,
            unhashed: false,
            label: [7; 16],
            paths: vec![b"tree".to_vec()],
        }));
    }

    fn queue(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).expect("our messages are within their limits");
        self.out.extend(bytes);
    }

    /// A packet comes to the socket of its lane.
    pub fn arrive(&mut self, now: Instant, arrived: Arrived, scenario: &Scenario) {
        let known = arrived.packet.connection == self.id;
        let Some(lane) = self.lanes.get_mut(usize::from(arrived.packet.lane.0)) else { return };
        if !known {
            return;
        }
        let bytes = arrived.packet.wire_bytes(scenario.protect);
        if lane.socket_bytes + bytes > scenario.socket_buffer.get() {
            lane.overflowed = true;
            return;
        }
        lane.socket_bytes += bytes;
        lane.socket.push_back((arrived, now));
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
            lane.lane.handle_timeout(now + self.clock, &mut self.path);
        }
        for round in 0.. {
            let mut progress = self.drain_sockets(now, scenario, env);
            progress |= self.take_events(env, now);
            if self.closed.is_none() {
                progress |= self.read_stream(now, scenario, env);
                progress |= self.pump(now, env);
                progress |= self.write_stream(now, env);
                self.end_of_stream();
            }
            progress |= self.transmit(now, scenario, env, out);
            progress |= self.take_events(env, now);
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

    fn drain_sockets(&mut self, now: Instant, scenario: &Scenario, env: &mut Env<'_>) -> bool {
        let mut progress = false;
        for number in 0..self.lanes.len() {
            while let Some((arrived, at)) = self.lanes[number].socket.pop_front() {
                let bytes = arrived.packet.wire_bytes(scenario.protect);
                self.lanes[number].socket_bytes -= bytes;
                progress = true;
                let Arrived { packet, marked, .. } = arrived;
                env.trace.event(now, Kind::Arrived, [packet.number, packet.authentic.into(), 0]);
                if !self.lanes[number].lane.accepts(packet.number) || !packet.authentic {
                    continue;
                }
                let mut arrival = Arrival {
                    numbers: packet.number..packet.number + 1,
                    at: at + self.clock,
                    send_time: packet.send_time,
                    wire_bytes: bytes,
                    marked: marked.into(),
                    overflowed: core::mem::take(&mut self.lanes[number].overflowed),
                };
                let from = packet.from;
                let mut packets = vec![packet];
                while let Some(next) = self.followed(number, &packets, scenario) {
                    arrival.numbers.end += 1;
                    arrival.wire_bytes += next.packet.wire_bytes(scenario.protect);
                    arrival.marked += u32::from(next.marked);
                    packets.push(next.packet);
                }
                self.receive(now, number, from, &arrival, &packets, env);
            }
        }
        progress
    }

    /// Takes the next packet of object bytes where it belongs to the same train, as a kernel that
    /// gathers them does.
    fn followed(
        &mut self,
        number: usize,
        packets: &[Packet],
        scenario: &Scenario,
    ) -> Option<Arrived> {
        let state = &mut self.lanes[number];
        let (next, _) = state.socket.front()?;
        let last = packets.last()?;
        let same_train = next.packet.number == last.number + 1
            && next.packet.from == last.from
            && next.packet.send_time == last.send_time
            && next.packet.authentic
            && matches!(
                (&last.body, &next.packet.body),
                (Body::Object { .. }, Body::Object { .. })
            );
        if !same_train || packets.len() == TRAIN_MAX || !state.lane.accepts(last.number + 1) {
            return None;
        }
        let (arrived, _) = state.socket.pop_front()?;
        state.socket_bytes -= arrived.packet.wire_bytes(scenario.protect);
        Some(arrived)
    }

    /// Packets with consecutive numbers, all authentic, come up from the socket.
    fn receive(
        &mut self,
        now: Instant,
        number: usize,
        from: SocketAddr,
        arrival: &Arrival,
        packets: &[Packet],
        env: &mut Env<'_>,
    ) {
        let local = now + self.clock;
        let state = &mut self.lanes[number];
        let before = state.lane.stats().packets_received;
        if let [Packet { body: Body::Control(frames), .. }] = packets {
            state.lane.handle_control(local, &mut self.path, from, arrival, frames);
        } else {
            let usable = state.lane.handle_objects(local, from, arrival);
            let wanted = usable && self.closed.is_none();
            if let Side::Sink(sink) = &mut self.side
                && wanted
            {
                for packet in packets {
                    if let Body::Object { object, offset, data, part, flipped } = &packet.body {
                        let data = &data[part.clone()];
                        let piece =
                            Piece { object: *object, offset: *offset, data, flipped: *flipped };
                        sink.receive(now, &piece, env);
                    }
                }
            }
        }
        let state = &mut self.lanes[number];
        let accepted = state.lane.stats().packets_received - before;
        if accepted > 0 {
            state.heard = now;
            let numbers = arrival.numbers.clone();
            let new = state.accepted.insert(numbers.clone());
            env.checks.require(new == accepted && new == packets.len() as u64, || {
                format!("{numbers:?} were accepted, {new} of them for the first time")
            });
            env.trace.event(now, Kind::Accepted, [numbers.start, new, number as u64]);
        }
    }

    fn take_events(&mut self, env: &mut Env<'_>, now: Instant) -> bool {
        let mut progress = false;
        for number in 0..self.lanes.len() {
            while let Some(event) = self.lanes[number].lane.poll_event() {
                progress = true;
                match event {
                    Event::Delivered(extent) => self.delivered(&extent, env),
                    Event::Closed(closed) => {
                        env.trace.note(now, || format!("{:?} lane {number} {closed:?}", self.end));
                        let longhaul_engine::Closed { code, reason, by_peer } = closed;
                        self.close(now, code, &reason, by_peer);
                    }
                    _ => {}
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
            lane.lane.close(now + self.clock, code, reason);
        }
    }

    fn fault(&mut self, now: Instant, error: &dyn std::fmt::Display) {
        self.close(now, CloseCode::PROTOCOL_VIOLATION, &error.to_string(), false);
    }

    fn read_stream(&mut self, now: Instant, scenario: &Scenario, env: &mut Env<'_>) -> bool {
        let mut buffer = [0; 4096];
        let mut progress = false;
        while self.wants_stream()
            && let Ok(count @ 1..) = self.lanes[0].lane.stream_read(STREAM, &mut buffer)
        {
            progress = true;
            self.reader.push(&buffer[..count]);
            loop {
                match self.reader.next_message() {
                    Ok(Some(message)) => self.handle(now, message, scenario, env),
                    Ok(None) => break,
                    Err(error) => {
                        self.fault(now, &error);
                        return true;
                    }
                }
            }
        }
        progress
    }

    fn wants_stream(&self) -> bool {
        match &self.side {
            Side::Sink(sink) => sink.sink.wants_messages(),
            _ => true,
        }
    }

    fn handle(&mut self, now: Instant, message: Message, scenario: &Scenario, env: &mut Env<'_>) {
        env.trace.event(now, Kind::Message, [self.end as u64, 0, 0]);
        env.trace.note(now, || format!("{:?} reads {:.200}", self.end, format!("{message:?}")));
        let result = match (&mut self.side, message) {
            (Side::Source(source), Message::Sink(message)) => {
                source.source.handle(message).map_err(|error| error.to_string())
            }
            (Side::Sink(sink), Message::Source(message)) => {
                sink.handle(message).map_err(|error| error.to_string())
            }
            (Side::Waiting, Message::Request(request)) if self.end == End::Server => {
                self.take_request(&request, scenario, env);
                Ok(())
            }
            (_, Message::Refused(Refused { code, reason })) if self.end == End::Client => {
                self.close(now, code, &reason, true);
                Ok(())
            }
            // A client may speak before it knows that it is refused.
            (Side::Refusing, _) => Ok(()),
            (_, message) => Err(format!("{message:?} is not allowed here")),
        };
        if let Err(error) = result {
            self.fault(now, &error);
        }
    }

    fn take_request(&mut self, request: &Request, scenario: &Scenario, env: &mut Env<'_>) {
        if !scenario.granted {
            self.side = Side::Refusing;
            let reason = "this server is read-only".into();
            self.queue(&Message::Refused(Refused { code: CloseCode::REFUSED, reason }));
            return;
        }
        let end = if request.direction == Direction::Push { End::Client } else { End::Server };
        self.begin(end, scenario, env);
    }

    /// Takes the role of source or sink.
    pub fn begin(&mut self, source: End, scenario: &Scenario, env: &mut Env<'_>) {
        self.side = if source == self.end {
            Side::Source(Box::new(SourceSide::new(scenario.disk_latency, scenario.hash_delay)))
        } else {
            Side::Sink(Box::new(SinkSide::new(scenario, env.disk)))
        };
    }

    fn pump(&mut self, now: Instant, env: &mut Env<'_>) -> bool {
        let memory = self.update_memory(now);
        match &mut self.side {
            Side::Waiting | Side::Refusing => false,
            Side::Source(source) => {
                source.set_memory(memory);
                let mut lanes: Vec<&mut Lane> =
                    self.lanes.iter_mut().map(|state| &mut state.lane).collect();
                source.pump(now, env.files, &mut lanes, env.draw)
            }
            Side::Sink(sink) => {
                sink.set_memory(memory);
                let progress = sink.pump(now, env);
                if let Some(credit) = sink.new_credit() {
                    for state in &mut self.lanes {
                        state.lane.set_credit(credit);
                    }
                    self.lanes[0].lane.announce();
                }
                if let Some(reason) = sink.failed.clone() {
                    self.close(now, CloseCode::STORAGE, &reason, false);
                }
                progress
            }
        }
    }

    /// What this end may use for what is under way.
    fn update_memory(&mut self, now: Instant) -> Bytes {
        let rtt = self.path.rtt();
        let round_trip = if rtt.has_sample() { rtt.min() } else { Duration::ZERO };
        let stats = self.lanes.iter().map(|state| state.lane.stats());
        let passed = stats.map(|stats| match &self.side {
            Side::Source(_) => stats.bytes_delivered,
            _ => stats.bytes_received,
        });
        self.memory.update(now + self.clock, passed.sum(), round_trip)
    }

    fn write_stream(&mut self, now: Instant, env: &mut Env<'_>) -> bool {
        let mut progress = false;
        loop {
            let (front, _) = self.out.as_slices();
            if !front.is_empty() {
                let written = self.lanes[0].lane.stream_write(STREAM, front).unwrap_or(0);
                self.out.drain(..written);
                progress |= written > 0;
                if written == 0 {
                    return progress;
                }
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
                Side::Waiting | Side::Refusing => None,
            };
            let Some(message) = message else { return progress };
            env.trace.note(now, || format!("{:?} says {:.200}", self.end, format!("{message:?}")));
            self.queue(&message);
        }
    }

    /// Half-closes when everything is said, and the client closes when everything is done
    /// (docs/protocol.md section 7.5).
    fn end_of_stream(&mut self) {
        let said_all = match &self.side {
            Side::Waiting => false,
            Side::Refusing => true,
            Side::Source(source) => source.source.is_done(),
            Side::Sink(sink) => sink.sink.is_done(),
        };
        if said_all && self.out.is_empty() && !self.finished {
            self.finished = self.lanes[0].lane.stream_finish(STREAM).is_ok();
        }
    }

    /// Whether both halves of stream 0 are closed.
    pub fn is_done(&self) -> bool {
        self.finished && self.lanes[0].lane.stream_at_end(STREAM)
    }

    /// Whether nothing is under way or waits for an answer.
    pub fn is_at_rest(&self) -> bool {
        self.path.in_flight() == 0
            && self.lanes.iter().all(|state| state.lane.undelivered() == 0)
            && self.lanes[0].lane.stream_sent(STREAM)
    }

    /// What this end has still to bring to the other: at the end both numbers only fall.
    pub fn left(&self) -> Left {
        let lanes = || self.lanes.iter().map(|state| &state.lane);
        (lanes().map(Lane::backlog).sum(), lanes().map(Lane::undelivered).sum())
    }

    /// Whether a lane has heard nothing for longer than keep-alives are apart: its packets do not
    /// get through, and the idle timeout will end the connection.
    pub fn is_cut_off(&self, now: Instant) -> bool {
        self.lanes.iter().any(|state| now - state.heard > KEEP_ALIVE_MAX)
    }

    /// Whether nothing will ever be sent again.
    pub fn is_over(&self) -> bool {
        self.lanes.iter().all(|state| state.lane.is_closed())
    }

    fn transmit(
        &mut self,
        now: Instant,
        scenario: &Scenario,
        env: &mut Env<'_>,
        out: &mut Vec<Outgoing>,
    ) -> bool {
        let local = now + self.clock;
        let mut progress = false;
        for state in &mut self.lanes {
            let planned =
                state.lane.poll_transmit(local, &mut self.path, self.batch, &mut self.plan);
            let Some(transmit) = planned else { continue };
            progress = true;
            let before = out.len();
            packets(self.id, &transmit, &self.plan, state.lane_id, &self.side, out, env);
            let sent = &out[before..];
            env.checks.require(sent.len() == usize::from(transmit.packets), || {
                format!("{} packets were planned, {} made", transmit.packets, sent.len())
            });
            let bytes: u64 = sent.iter().map(|(_, p)| p.wire_bytes(scenario.protect)).sum();
            state.sent_bytes += bytes;
            // Reports and probes are few and not held back.
            if let Some(meter) = &mut self.meter
                && matches!(transmit.what, What::Objects { .. })
            {
                meter.sent(now, transmit.packets, bytes, env.checks);
            }
            // The kernel refuses what the interface cannot send.
            let most = usize::from(self.interface_max);
            let too_big = sent.iter().map(|(_, p)| p.datagram(scenario.protect)).max();
            if let Some(size) = too_big.filter(|size| *size > most) {
                state.lane.on_datagram_too_big(size as u16);
                out.truncate(before);
            }
        }
        progress
    }

    fn check(&mut self, env: &mut Env<'_>) {
        for state in &self.lanes {
            let stats = state.lane.stats();
            env.checks.require(stats.bytes_sent == state.sent_bytes, || {
                format!("{} bytes were sent, {} counted", state.sent_bytes, stats.bytes_sent)
            });
            let tracked = state.lane.tracked();
            env.checks.require(tracked <= TRACKED_MAX, || {
                format!("a lane tracks {tracked} entries: {stats:?}")
            });
        }
        if let Side::Source(source) = &mut self.side {
            let within = source.is_within_memory();
            env.checks.require(within, || format!("{} groups in memory", source.groups()));
            let sent: u64 = self.lanes.iter().map(|s| s.lane.stats().fresh_bytes_sent).sum();
            let credit = self.lanes.iter().map(|s| s.lane.credit()).max().unwrap_or(0);
            let again = source.source.stats().repairs * GROUP_SIZE;
            env.checks.require(sent <= credit + again, || {
                format!("{sent} bytes were sent and {credit} allowed")
            });
        }
    }

    /// When [`Connection::run`] has something to do next. Not after `now` means again.
    pub fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let local = now + self.clock;
        let lanes = self.lanes.iter().filter_map(|s| s.lane.next_timeout(local, &self.path));
        let lanes = lanes.min().filter(|at| *at < Instant::FAR_FUTURE);
        let side = match &self.side {
            _ if self.closed.is_some() => None,
            Side::Waiting | Side::Refusing => None,
            Side::Source(source) => source.next_timeout(),
            Side::Sink(sink) => sink.next_timeout(),
        };
        lanes.map(|at| at.before(self.clock)).into_iter().chain(side).min()
    }

    /// What [`Connection::next_timeout`] is made of, for people: time from now.
    pub fn timers(&self, now: Instant) -> impl Iterator<Item = String> + '_ {
        let local = now + self.clock;
        let path = self.path.next_timeout().map(|at| format!("path {:?}", at - local));
        let lanes = self.lanes.iter().filter_map(move |s| {
            let at = s.lane.next_timeout(local, &self.path)?;
            Some(format!("{:?} in {:?}", s.lane_id, at - local))
        });
        path.into_iter().chain(lanes)
    }

    /// Asks the peer for silence on all lanes.
    pub fn suspend_peer(&mut self, duration: Duration) {
        for state in &mut self.lanes {
            state.lane.suspend_peer(duration);
        }
    }

    /// What the controller thinks, for people.
    pub fn controller(&self) -> String {
        let (allowed, in_flight) = (self.path.allowed(), self.path.in_flight());
        format!(
            "{allowed:?}, {in_flight} in flight, {:?}, {:?}",
            self.path.metrics(),
            self.path.rtt()
        )
    }

    /// Counts of each lane.
    pub fn stats(&self) -> Vec<LaneStats> {
        self.lanes.iter().map(|state| state.lane.stats()).collect()
    }
}

impl LaneState {
    fn new(lane: Lane, lane_id: LaneId, now: Instant) -> Self {
        Self {
            lane,
            lane_id,
            socket: VecDeque::new(),
            socket_bytes: 0,
            overflowed: false,
            accepted: RangeSet::new(),
            sent_bytes: 0,
            heard: now,
        }
    }
}

/// Makes the packets of a plan.
fn packets(
    connection: ConnectionId,
    transmit: &Transmit,
    plan: &Plan,
    lane: LaneId,
    side: &Side,
    out: &mut Vec<Outgoing>,
    env: &mut Env<'_>,
) {
    let mut number = transmit.first.get();
    let mut push = |body| {
        let packet = Packet {
            connection,
            lane,
            from: transmit.to,
            number,
            send_time: transmit.send_time,
            authentic: true,
            body,
        };
        out.push((transmit.to, packet));
        number += 1;
    };
    let What::Objects { payload } = transmit.what else {
        return push(Body::Control(Arc::new(plan.frames.clone())));
    };
    let Side::Source(source) = side else {
        return env.checks.require(false, || "a sink sends object bytes");
    };
    for run in &plan.runs {
        let Extent { object, offset, .. } = run.extent;
        let Some(data) = source.data(object, offset) else {
            return env.checks.require(false, || format!("{:?} is not held", run.extent));
        };
        let mut at = offset;
        while at < run.extent.end() {
            let end = run.extent.end().min(at + u64::from(payload));
            let start = (at % GROUP_SIZE) as usize;
            let part = start..start + (end - at) as usize;
            let data = Arc::clone(data);
            push(Body::Object { object, offset: at, data, part, flipped: None });
            at = end;
        }
    }
}

/// The stream of messages.
const STREAM: StreamId = StreamId(0);
/// Round trip that a server assumes before it has measured one.
const DEFAULT_ROUND_TRIP: Duration = Duration::from_millis(100);
/// Packets that a kernel gathers into one.
const TRAIN_MAX: usize = 44;
/// A lane that has nothing to say is asked after a third of its idle timeout; half of it leaves time
/// for the answer.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(15);
/// More than the longest path here can hold.
const TRACKED_MAX: usize = 20_000;
/// No path here needs more.
const MEMORY_MAX: Bytes = Bytes::from_mib(256);
/// Rounds of work at one instant.
const ROUNDS_MAX: u32 = 100_000;
