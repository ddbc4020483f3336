//! One end of a connection after the handshake: lanes, their path, stream 0, and a source or sink.
//! This is what a driver does, without sockets and threads.

mod memory;
mod opening;
mod pace;
mod paths;

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_connection::{
    End as Ending, MoveAsked, News, NotSent, Order, Part, ReadBatch, Received, Transfer, Violation,
    Watch, Wish, Work,
};
use longhaul_engine::{Closed as EngineClosed, LaneStats, Suspension, What};
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_rate_control::{ChosenProfile, ChunkSizes, HostLimit, MemoryBudget, Profile, Repair};
use longhaul_session::Session;
use longhaul_units::{Bottleneck, Bytes, Duration, Instant, PathId};
use longhaul_wire::{
    Carrier, CloseCode, ConnectionId, Deletes, Direction, KeptAttributes, ListRequest, PipeRequest,
    PipeRole, Refused, Request, SourceReport,
};

use crate::driver::Driver;
use crate::environment::Env;
use crate::hashes;
use crate::lane::{Carrying, LaneState, Lanes, PathCell};
use crate::packet::{Arrived, Outgoing, wire_bytes};
use crate::scenario::{End, RefusedBecause, Scenario};
use crate::source::MEMORY;
use crate::staging::Half;
use crate::trace::Kind;
use crate::wires::Wires;
use memory::Memory;
use opening::Opening;
use paths::ConnectionPaths;

#[derive(Debug)]
pub(crate) struct Connection {
    pub id: ConnectionId,
    end: End,
    /// Lead of this host's clock over the world's.
    clock: Duration,
    lanes: Vec<LaneState>,
    paths: ConnectionPaths,
    pub half: Half,
    pub driver: Driver,
    pub closed: Option<Closed>,
    /// Times that the peer was suspended.
    orders: u64,
    batch: u16,
    interface_max: u16,
    /// Packets that its stack refused lately, and took none between them, by path.
    refused: BTreeMap<PathId, Vec<(Instant, u64)>>,
    /// Memory of a source or sink at first.
    memory: Bytes,
    repair: Repair,
    /// For messages and batches that are read, used again and again.
    messages: Box<[u8]>,
    datagrams: Vec<u8>,
}

/// End of a connection, as this end sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub code: CloseCode,
    pub reason: String,
    pub by_peer: bool,
}

/// Object bytes offered and not sent, and extents that are not at the peer.
pub(crate) type Left = (u64, usize);

impl Connection {
    /// Opens what the handshake agreed on: a session, over that carrier, and a profile, over a round trip
    /// as the control connection measured it.
    pub fn new(
        scenario: &Scenario,
        (session, carrier, chosen, round_trip): (
            &Session,
            Carrier,
            ChosenProfile,
            Option<Duration>,
        ),
        end: End,
        [now, start]: [Instant; 2],
        seed: u64,
    ) -> Self {
        let clock = scenario.clocks[usize::from(end == End::Server)];
        let local = now + clock;
        let repair = repair(chosen.profile, scenario.seed);
        let feedback = chosen.feedback();
        let opening = Opening { scenario, session, end, repair, feedback, seed };
        let lanes = opening.lanes([now, local], carrier);
        let round_trip = round_trip.unwrap_or(DEFAULT_ROUND_TRIP);
        let times = [now, local, start];
        let paths =
            ConnectionPaths::new(scenario, end, session.lanes, times, (chosen, round_trip, seed));
        let memory = if end == scenario.source() { Bytes::new(MEMORY) } else { scenario.capacity };
        let half = match end {
            End::Client => Half::client(&wish(scenario)),
            End::Server => Half::server(),
        };
        Self {
            id: session.connection,
            end,
            clock,
            lanes,
            paths,
            half,
            driver: Driver::None,
            closed: None,
            orders: 0,
            memory,
            repair,
            messages: vec![0; MESSAGES_READ].into(),
            datagrams: Vec::new(),
            batch: scenario.batch,
            refused: BTreeMap::new(),
            interface_max: if end == End::Client { scenario.interface_max } else { u16::MAX },
        }
    }

    /// A datagram comes to the socket of its lane.
    pub fn arrive(&mut self, now: Instant, arrived: Arrived, scenario: &Scenario) {
        let Some(header) = arrived.packet.header() else { return };
        let lane = self.lanes.get_mut(usize::from(header.lane.0));
        if let Some(lane) = lane.and_then(LaneState::udp) {
            lane.arrive(now, arrived, scenario.socket_buffer.get());
        }
    }

    /// Does everything that can be done now. Packets to be sent go to `out`.
    pub fn run(
        &mut self,
        now: Instant,
        scenario: &Scenario,
        env: &mut Env<'_>,
        wires: &mut Wires,
        out: &mut Vec<Outgoing>,
    ) -> bool {
        let mut anything = false;
        let times = [now, now + self.clock];
        let takes = scenario.takes(now - self.paths.start());
        for lane in &mut self.lanes {
            let path = self.paths.of(lane);
            if let Some(lane) = lane.udp() {
                if self.end == scenario.sink() {
                    let (cause, until) = (Bottleneck::ReceiverCpu, times[1] + TAKES_LAST);
                    let limit = takes.map(|rate| HostLimit { rate, cause, until });
                    lane.half.set_limit(times[1], limit);
                }
                lane.half.handle_timeout(times[1], &mut path.borrow_mut());
            }
        }
        anything |=
            self.closed.is_none() && self.paths.look(scenario, times, &mut self.lanes, env.checks);
        for round in 0.. {
            let mut progress = self.drain_sockets(now, env) | wires.pump(now, self.end);
            progress |= self.drain_wires(now, wires, env);
            progress |= self.take_news(env, now);
            if self.closed.is_none() {
                progress |= self.read_stream(now, scenario, env);
                progress |= self.pump(now, env);
                progress |= self.write_stream(now, env);
            }
            progress |= self.transmit(now, scenario, env, out);
            progress |= self.write_wires(now, wires);
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
        let mut bytes = std::mem::take(&mut self.datagrams);
        for number in 0..self.lanes.len() {
            let ahead = self.clock;
            while let Some(batch) =
                self.lanes[number].udp().and_then(|lane| lane.read(ahead, &mut bytes))
            {
                progress = true;
                self.take_batch(now, number, &batch, &mut bytes, env);
                self.take_news(env, now);
            }
        }
        self.datagrams = bytes;
        progress
    }

    /// Reads TCP connections, as far as there is memory for what they bring.
    fn drain_wires(&mut self, now: Instant, wires: &mut Wires, env: &mut Env<'_>) -> bool {
        let mut progress = false;
        if wires.is_empty() {
            return false;
        }
        for number in 0..self.lanes.len() {
            loop {
                let bytes = wires.peek(number, now, self.end);
                if bytes.is_empty() || matches!(self.lanes[number].carrier, Carrying::Udp(_)) {
                    break;
                }
                let (is_open, driver) = (self.closed.is_none(), &mut self.driver);
                let memory = &mut Memory { is_open, half: &mut self.half, driver, env };
                let count = self.lanes[number].receive(bytes, memory);
                wires.consume(number, self.end, count);
                self.take_news(env, now);
                if count == 0 {
                    break;
                }
                progress = true;
            }
            if let Carrying::Tcp(half) = &mut self.lanes[number].carrier
                && half.is_open()
                && wires.is_broken(number, now, self.end)
            {
                let reason = "nothing was heard from the peer".into();
                half.close(EngineClosed { code: CloseCode::TIMEOUT, reason, by_peer: false });
                progress = true;
            }
        }
        progress
    }

    /// Writes to TCP connections what they have to say and have room for; whether that was anything.
    pub fn write_wires(&mut self, now: Instant, wires: &mut Wires) -> bool {
        let mut progress = false;
        if wires.is_empty() {
            return false;
        }
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let Carrying::Tcp(half) = &mut lane.carrier else { continue };
            loop {
                let sent = wires.send(number, now, self.end, half.poll_write(now + self.clock));
                half.handle_written(now + self.clock, sent);
                if sent == 0 {
                    break;
                }
                progress = true;
            }
        }
        progress | wires.pump(now, self.end)
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
        let path = self.paths.of(&self.lanes[number]);
        let Some(state) = self.lanes[number].udp() else { return };
        let LaneStats { packets_received: before, feedback_received, .. } =
            state.half.engine().stats();
        let (is_open, driver) = (self.closed.is_none(), &mut self.driver);
        let memory = &mut Memory { is_open, half: &mut self.half, driver, env };
        let path = &PathCell(path);
        let local = now + self.clock;
        state.half.handle_datagrams(local, batch, bytes, &mut state.open, memory, path);
        let accepted = state.half.engine().stats().packets_received - before;
        state.check_accepted(now, accepted, env);
        if state.half.engine().stats().feedback_received > feedback_received {
            let (path, limit) = (state.half.engine().path(), state.half.engine().receiver().limit);
            self.paths.note_limit(path, limit);
        }
    }

    fn take_news(&mut self, env: &mut Env<'_>, now: Instant) -> bool {
        let mut progress = false;
        for number in 0..self.lanes.len() {
            while let Some(news) = self.lanes[number].poll_news() {
                progress = true;
                match &news {
                    News::Delivered(extent) | News::Withdrawn(extent) => {
                        let held = self.driver.delivered(extent);
                        env.checks.require(held, || {
                            format!("{extent:?} is done with and was not offered")
                        });
                    }
                    News::MoveAsked(asked) => {
                        self.paths.handle_move_asked(now + self.clock, *asked);
                    }
                    News::FitsNot(reason) => {
                        env.trace.note(now, || format!("{:?} lane {number}: {reason}", self.end));
                        let left = self.lanes[number]
                            .path()
                            .is_some_and(|path| self.paths.leave_out(path));
                        if !left {
                            let close = Order::Close(CloseCode::PATH_MTU, reason.clone());
                            self.lanes[number].handle_order(now + self.clock, close);
                        }
                    }
                    News::Closed(closed) => {
                        env.trace.note(now, || format!("{:?} lane {number} {closed:?}", self.end));
                        let EngineClosed { code, reason, by_peer } = closed.clone();
                        self.close(now, code, &reason, by_peer);
                    }
                    News::Arrived(_) => env
                        .checks
                        .require(self.receives(), || "a group arrived that nobody receives"),
                    News::Validated | News::GivenUp(_) | News::Lost(..) => {}
                }
                self.half.handle_news(now + self.clock, news);
            }
        }
        progress
    }

    /// Ends the connection on every lane. The first reason holds.
    pub fn close(&mut self, now: Instant, code: CloseCode, reason: &str, by_peer: bool) {
        if self.closed.is_none() {
            self.closed = Some(Closed { code, reason: reason.into(), by_peer });
        }
        for lane in &mut self.lanes {
            lane.handle_order(now + self.clock, Order::Close(code, reason.into()));
        }
    }

    fn fault(&mut self, now: Instant, error: &dyn std::fmt::Display) {
        self.close(now, CloseCode::PROTOCOL_VIOLATION, &error.to_string(), false);
    }

    fn read_stream(&mut self, now: Instant, scenario: &Scenario, env: &mut Env<'_>) -> bool {
        let mut progress = false;
        while self.half.wants_messages()
            && let count @ 1.. = self.lanes[0].messages().read_messages(&mut self.messages)
        {
            progress = true;
            self.half.handle_bytes(&self.messages[..count]);
            loop {
                let handled = match self.half.poll_received() {
                    Ok(Some(received)) => self.handle(now, received, scenario, env),
                    Ok(None) => break,
                    Err(error) => Err(error),
                };
                if let Err(error) = handled {
                    self.fault(now, &error);
                    return true;
                }
            }
        }
        if self.lanes[0].messages().poll_messages_end()
            && let Err(error) = self.half.handle_end()
        {
            self.fault(now, &error);
        }
        progress
    }

    fn handle(
        &mut self,
        now: Instant,
        received: Received,
        scenario: &Scenario,
        env: &mut Env<'_>,
    ) -> Result<(), Violation> {
        env.trace.event(now, Kind::Message, [self.end as u64, 0, 0]);
        env.trace.note(now, || format!("{:?} reads {:.200}", self.end, format!("{received:?}")));
        self.driver.note_received(&received, env.checks);
        if let Some(wish) = self.half.handle_received(received)? {
            let is_wished = wish == self::wish(scenario);
            env.checks.require(is_wished, || format!("another request comes: {wish:?}"));
            if scenario.granted {
                self.begin(now, wish.part().other(), scenario, env);
            } else {
                let reason = "this server is read-only".into();
                self.half.refuse(Refused { code: CloseCode::REFUSED, reason, part: None });
            }
        }
        if let (End::Client, Some(refused)) = (self.end, self.half.refused().cloned()) {
            self.close(now, refused.code, &refused.reason, true);
        }
        Ok(())
    }

    /// Takes the part of source or sink.
    pub fn begin(&mut self, now: Instant, part: Part, scenario: &Scenario, env: &mut Env<'_>) {
        let local = now + self.clock;
        let (driver, transfer) = Driver::new(scenario, part, [now, local], self.lanes.len(), env);
        let memory = MemoryBudget::new(local, self.memory, MEMORY_MAX, self.repair);
        self.driver = driver;
        self.half.begin(transfer, Watch::new(local, memory, PATIENCE));
    }

    /// True if it gets the data.
    fn receives(&self) -> bool {
        self.half.transfer().is_some_and(|transfer| transfer.part() == Part::Sink)
    }

    fn pump(&mut self, now: Instant, env: &mut Env<'_>) -> bool {
        let times = [now, now + self.clock];
        self.driver.refresh(&mut self.half);
        self.half.handle_credit(Lanes::at(times[1], &self.lanes).credit());
        self.look(now, env);
        let mut progress = self.driver.pump(times, &mut self.half, &mut self.lanes, env);
        progress |= self.pass_repairs() | self.pass_withdrawn(times[1]);
        if let Some(Ending::Failed(failure)) = self.half.end() {
            self.close(now, CloseCode::STORAGE, &failure.to_string(), false);
            return progress;
        }
        let standing = self.half.standing();
        for state in &mut self.lanes {
            state.handle_standing(&standing);
            state.note_backlog(times[1]);
        }
        progress
    }

    /// Tells the lanes of groups that were found to be wrong; whether there were any.
    fn pass_repairs(&mut self) -> bool {
        let mut progress = false;
        while let Some(repair) = self.half.poll_repair() {
            progress = true;
            self.driver.note_repair(repair);
            for state in &mut self.lanes {
                state.handle_repair(repair);
            }
        }
        progress
    }

    /// Tells the lanes of objects that they are to send no more of; whether there were any.
    fn pass_withdrawn(&mut self, local: Instant) -> bool {
        let mut progress = false;
        while let Some(object) = self.half.poll_withdrawn() {
            progress = true;
            for state in &mut self.lanes {
                state.handle_order(local, Order::Withdraw(object));
            }
        }
        progress
    }

    /// Looks at what this end does, if it is time. Nothing here is a thread, so none is too slow.
    fn look(&mut self, now: Instant, env: &mut Env<'_>) {
        let local = now + self.clock;
        if self.half.is_look_due(local) {
            let seen = self.paths.seen(&self.lanes);
            let lanes = &Lanes::at(local, &self.lanes);
            let memory = self.half.look(local, &seen, Work::default(), lanes);
            if let Some(memory) = memory {
                self.driver.set_memory(memory, &mut self.half);
            }
            if let Some(wanted) = self.half.name_memory_wanted() {
                self.half.grow_name_memory(wanted);
            }
            if let Some(Ending::Stalled(why)) = self.half.end() {
                env.checks.require(false, || format!("{:?} would give up: {why}", self.end));
            }
        }
        // Behind the last words none is to follow.
        if self.half.is_report_due(local) && !self.is_done() {
            self.half.report(SourceReport::default());
        }
    }

    /// When this end looks at what it does though nothing happens.
    pub fn next_look(&self) -> Option<Instant> {
        let next = self.half.next_look().filter(|_| self.closed.is_none())?;
        Some(next.min(self.paths.next_look(self.clock)).before(self.clock))
    }

    fn write_stream(&mut self, now: Instant, env: &mut Env<'_>) -> bool {
        let mut progress = self.lanes[0].messages().write_messages();
        while self.lanes[0].messages().wants_messages() {
            self.driver.refresh(&mut self.half);
            let Some(message) = self.half.poll_message() else { break };
            // The lanes get the repairs first, before the peer is asked for them.
            self.pass_repairs();
            self.driver.check_sent(&message, env);
            env.trace.note(now, || format!("{:?} says {:.200}", self.end, format!("{message:?}")));
            let mut bytes = Vec::new();
            message.encode(&mut bytes).expect("our messages are within their limits");
            progress |= self.lanes[0].messages().push_messages(&bytes);
        }
        // Behind the last words the messages end (docs/protocol.md section 7.5).
        if self.is_done() && !self.half.has_sent_all() {
            self.half.report(SourceReport::default());
            self.half.finish();
            return true;
        }
        if self.half.has_sent_all() {
            progress |= self.lanes[0].messages().finish_messages();
        }
        progress
    }

    /// True if the transfer is done, as this end sees it.
    pub fn is_done(&self) -> bool {
        self.half.is_done()
    }

    /// True if the client may close, everything being done.
    pub fn may_close(&self) -> bool {
        self.half.end() == Some(Ending::Done)
    }

    /// True where anything of the peer has come by a lane.
    pub fn has_received(&self) -> bool {
        self.lanes.iter().any(|lane| lane.stats().packets_received > 0)
    }

    /// True where object bytes have arrived at the peer or here.
    pub fn has_moved(&self) -> bool {
        self.lanes.iter().any(|lane| lane.stats().fresh_bytes_delivered + lane.placed() > 0)
    }

    /// True where lanes carry it.
    pub fn is_udp(&self) -> bool {
        self.lanes.iter().all(|lane| matches!(lane.carrier, Carrying::Udp(_)))
    }

    /// True if nothing is under way or waits for an answer.
    pub fn is_at_rest(&self) -> bool {
        self.paths.are_empty()
            && self.lanes.iter().all(|state| state.undelivered() == 0)
            && self.lanes[0].has_sent_all()
    }

    /// Bytes of a copy that count against the credit, as this end sees it once all is done: what a source
    /// still reads then is of files that failed, and will be withdrawn.
    pub fn counted(&self) -> Option<u64> {
        match self.half.transfer()? {
            Transfer::OutgoingCopy(copy) => {
                let stats = copy.stats();
                Some(stats.sent_bytes - stats.withdrawn_bytes - self.driver.reading())
            }
            Transfer::IncomingCopy(copy) => Some(copy.begun()),
            _ => None,
        }
    }

    /// Work that is left for this end to bring to the other: at the end both numbers only fall.
    pub fn left(&self) -> Left {
        let lanes = || self.lanes.iter();
        (lanes().map(|lane| lane.backlog()).sum(), lanes().map(|lane| lane.undelivered()).sum())
    }

    /// True if a lane has received nothing for longer than keep-alives are apart: its packets do
    /// not get through, and the idle timeout will end the connection.
    pub fn is_cut_off(&self, now: Instant) -> bool {
        self.lanes.iter().any(|lane| lane.is_cut_off(now, KEEP_ALIVE_MAX))
    }

    /// True if nothing will ever be sent again.
    pub fn is_over(&self) -> bool {
        self.lanes.iter().all(|state| state.is_closed())
    }

    fn transmit(
        &mut self,
        now: Instant,
        scenario: &Scenario,
        env: &mut Env<'_>,
        out: &mut Vec<Outgoing>,
    ) -> bool {
        let local = now + self.clock;
        let since = now - self.paths.start();
        let mut progress = false;
        for lane in &mut self.lanes {
            let (path, route) = (self.paths.of(lane), self.paths.route(lane));
            let Some(state) = lane.udp() else { continue };
            let planned = state.half.poll_transmit(local, &mut path.borrow_mut(), self.batch);
            let Some(transmit) = planned else { continue };
            progress = true;
            let before = out.len();
            let on = state.half.engine().path();
            let datagrams = state.half.seal(&transmit, &mut state.seal);
            let segment = datagrams.segment.map_or(datagrams.bytes.len(), usize::from);
            let to = datagrams.to;
            let made = datagrams.bytes.chunks(segment.max(1)).map(Arc::from);
            let (lane, ecn) = (state.lane_id, transmit.ecn);
            out.extend(made.map(|bytes| Outgoing { to, lane, route, ecn, bytes }));
            let sent = &out[before..];
            env.checks.require(sent.len() == usize::from(transmit.packets), || {
                let (planned, made) = (transmit.packets, sent.len());
                format!("{planned} packets were planned, {made} made: {:?}", transmit.what)
            });
            let bytes: u64 = sent.iter().map(|one| wire_bytes(to, one.bytes.len())).sum();
            state.sent_bytes += bytes;
            // The kernel refuses what the interface cannot send.
            if segment > usize::from(self.interface_max) {
                let path = &mut path.borrow_mut();
                state.half.not_sent(local, path, &transmit, Err(NotSent::TooLarge));
                out.truncate(before);
            } else if let Some(why) = scenario.refuses(self.end, route, since, segment) {
                let taken = match why {
                    RefusedBecause::LinkDown(_)
                    | RefusedBecause::Forbidden
                    | RefusedBecause::TooLong => 0,
                    RefusedBecause::BuffersFull => env.draw.below(transmit.packets.into()) as usize,
                };
                out.truncate(before + taken);
                if taken > 0 {
                    self.refused.remove(&on);
                } else if why != RefusedBecause::BuffersFull {
                    let refused = self.refused.entry(on).or_default();
                    refused.retain(|(at, _)| now - *at < REFUSED_SPAN);
                    refused.push((now, transmit.packets.into()));
                    let offered: u64 = refused.iter().map(|(_, packets)| packets).sum();
                    env.checks.require(offered <= REFUSED_MAX, || {
                        format!("{offered} packets in a second are offered to {why:?}")
                    });
                }
                let taken = if taken > 0 { Ok(taken * segment) } else { Err(NotSent::Refused) };
                state.half.not_sent(local, &mut path.borrow_mut(), &transmit, taken);
            } else {
                // Full batches may go to a stack that takes them.
                self.refused.remove(&on);
            }
            // Reports and probes are few and not held back.
            if matches!(transmit.what, What::Objects { .. }) {
                let path = state.half.engine().path();
                self.paths.check(path, now, (transmit.packets, bytes), env.checks);
            }
        }
        progress
    }

    fn check(&mut self, env: &mut Env<'_>) {
        for state in self.lanes.iter_mut().filter_map(LaneState::udp) {
            let stats = state.half.engine().stats();
            env.checks.require(stats.bytes_sent == state.sent_bytes, || {
                format!("{} bytes were sent, {} counted", state.sent_bytes, stats.bytes_sent)
            });
            let tracked = state.half.engine().tracked();
            env.checks.require(tracked <= TRACKED_MAX, || {
                format!("a lane tracks {tracked} entries: {stats:?}")
            });
        }
        if let Driver::Feed(feed) = &mut self.driver {
            let within = feed.is_within_memory();
            env.checks.require(within, || format!("{} pieces in memory", feed.kept()));
        }
        if let (Driver::Source(source), Some(copy)) = (&mut self.driver, self.half.outgoing_copy())
        {
            let within = source.is_within_memory();
            env.checks.require(within, || format!("{} groups in memory", source.groups()));
            let sent: u64 = self.lanes.iter().map(|lane| lane.stats().fresh_bytes_sent).sum();
            let credit = self.lanes.iter().map(LaneState::credit).max().unwrap_or(0);
            let again = copy.stats().repairs * GROUP_SIZE;
            env.checks.require(sent <= credit + again, || {
                format!("{sent} bytes were sent and {credit} allowed")
            });
        }
    }

    /// When [`Connection::run`] has something to do next. Not after `now` means again.
    pub fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let local = now + self.clock;
        let lanes = self.lanes.iter();
        let lanes = lanes.filter_map(|s| s.next_timeout(local, &self.paths.of(s).borrow()));
        let lanes = lanes.min().filter(|at| *at < Instant::FAR_FUTURE);
        let driver = self.driver.next_timeout(&self.half).filter(|_| self.closed.is_none());
        lanes.map(|at| at.before(self.clock)).into_iter().chain(driver).min()
    }

    /// Timers behind [`Connection::next_timeout`], for people: time from now.
    pub fn timers(&self, now: Instant) -> impl Iterator<Item = String> + '_ {
        let local = now + self.clock;
        self.lanes.iter().filter_map(move |s| {
            let path = self.paths.of(s).borrow();
            let (at, of_path) = (s.next_timeout(local, &path)?, path.next_timeout());
            Some(format!(
                "a lane in {:?}, its path in {:?}",
                at - local,
                of_path.map(|at| at - local)
            ))
        })
    }

    /// Asks the peer for silence on all lanes.
    pub fn suspend_peer(&mut self, now: Instant, duration: Duration) {
        let local = now + self.clock;
        self.orders += 1;
        let suspension = Suspension { order: self.orders, until: local + duration };
        for state in &mut self.lanes {
            state.suspend_peer(local, suspension);
        }
    }

    /// State of the controller, for people.
    pub fn controller(&self) -> String {
        self.paths.controllers()
    }

    /// A move that this end, a server, has asked for and `client` has not received in time.
    pub fn overdue_move(&mut self, now: Instant, client: &Self) -> Option<MoveAsked> {
        let both = self.id == client.id && self.is_udp() && client.is_udp();
        if !both || self.closed.is_some() || client.closed.is_some() {
            return None;
        }
        self.paths.overdue_move(now + self.clock, &mut self.lanes, &client.paths)
    }

    /// Number of moves of lanes to another path.
    pub fn moves(&self) -> u64 {
        self.paths.moves()
    }

    /// Counts of each lane.
    pub fn stats(&self) -> Vec<LaneStats> {
        self.lanes.iter().map(LaneState::stats).collect()
    }
}

/// Repair that the client asks for. A world carries megabytes, which would not fill a chunk: chunks
/// are as much smaller. Nothing about them depends on what sets the rate, so an eighth of all
/// worlds repair by them.
fn repair(profile: &Profile, seed: u64) -> Repair {
    let by_chunks = Repair::Chunks(ChunkSizes { segment: 100, chunk: 680, overlap: seed / 8 % 3 });
    match profile.repair {
        Repair::Chunks(_) => by_chunks,
        Repair::Continuous if seed.is_multiple_of(8) => by_chunks,
        other => other,
    }
}

fn wish(scenario: &Scenario) -> Wish {
    if scenario.hashes {
        return Wish::Verify(hashes::first());
    }
    if scenario.listing {
        return Wish::List(ListRequest { recursive: true, path: b"tree".to_vec() });
    }
    if scenario.pipe {
        let role = if scenario.push { PipeRole::Send } else { PipeRole::Receive };
        return Wish::Pipe(PipeRequest { role, name: b"pipe".to_vec() });
    }
    let direction = if scenario.push { Direction::Push } else { Direction::Pull };
    Wish::Copy(Request {
        sync_at_end: scenario.fsync,
        keeps_unchanged: scenario.keeps.unchanged,
        keeps_newer: scenario.keeps.newer,
        compares_contents: scenario.keeps.equal,
        deletes: scenario.deletes.then(Deletes::default),
        dry_run: scenario.dry_run,
        keeps_attributes: match scenario.follows {
            true => KeptAttributes::FOLLOW,
            false => KeptAttributes::default(),
        },
        names_follow: scenario.lists_names,
        label: [7; 16],
        ..Request::new(direction, vec![b"tree".to_vec()])
    })
}

/// Round trip that a server assumes before it has measured one.
const DEFAULT_ROUND_TRIP: Duration = Duration::from_millis(100);
/// A lane that has nothing to say is asked after a third of its idle timeout; half of it leaves time
/// for the answer.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(15);
/// More than the longest path here can hold.
const TRACKED_MAX: usize = 20_000;
/// No path here needs more.
const MEMORY_MAX: Bytes = Bytes::from_mib(256);
/// Time for which nothing may move: longer than any accident here lasts, and an idle timeout.
const PATIENCE: Duration = Duration::from_secs(100);
/// Bytes of messages that are read at once.
const MESSAGES_READ: usize = 4096;
/// Most packets that are offered over a path in such a time to a stack that takes none.
const REFUSED_MAX: u64 = 100;
const REFUSED_SPAN: Duration = Duration::from_secs(1);
/// Rounds of work at one instant.
const ROUNDS_MAX: u32 = 100_000;
/// For how long a limit of the receiving host is good: so that some expire in outages.
const TAKES_LAST: Duration = Duration::from_secs(1);
