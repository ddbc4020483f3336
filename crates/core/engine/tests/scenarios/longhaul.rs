//! A Longhaul sender and receiver: two lanes of the engine, joined by the world's path.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use longhaul_engine::{Arrival, Event, Lane, LaneConfig, Path as Rated, Plan, Role, What};
use longhaul_pathsim::{DropReason, Ecn, Fate, Path};
use longhaul_rate_control::{
    ChosenProfile, Governor, HostLimit, Metrics, PathMemory, Profile, Repair,
};
use longhaul_units::{Bottleneck, Bytes, Cause, Duration, Extent, Instant, LaneId, ObjectId, Rate};
use longhaul_wire::ConnectionId;

use super::{Flow, PACKET};

/// Data that the application has to send.
#[derive(Clone, Copy, Debug)]
pub enum Offer {
    /// Always more.
    Endless,
    /// So many object bytes.
    Bytes(u64),
    /// Endless for the first time, nothing for the second, and again.
    OnOff(Duration, Duration),
}

/// The receiving host behind the path.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Rate at which it reads from its socket.
    pub rate: Rate,
    /// Socket buffer.
    pub buffer: u64,
    /// True if it reports its size.
    pub tells: bool,
    /// It reads nothing for the second time, once in the first.
    pub stalls: Option<(Duration, Duration)>,
    /// In which batches its kernel takes packets.
    pub batches: Batches,
}

/// Packets that a kernel takes at one time, with one stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batches {
    /// Each by itself.
    None,
    /// Those that the sender sent at once, when the last of them is there (GRO).
    SuperPackets,
    /// Those that came since the last interrupt, which come so often (interrupt moderation, then GRO).
    Interrupts(Duration),
}

impl Batches {
    /// When the kernel takes a packet that came at `at`, `last` being the last of its super-packet.
    fn taken(self, at: Instant, last: Instant) -> Instant {
        match self {
            Self::None => at,
            Self::SuperPackets => last,
            Self::Interrupts(every) => {
                let past = Duration::from_nanos(at.as_nanos() % every.as_nanos() as u64);
                at + (every - past)
            }
        }
    }
}

/// On its way, or in the receiver's socket.
struct Packet {
    number: u64,
    send_time: u32,
    wire: u64,
    /// When the receiver's kernel took it.
    stamp: Instant,
    ecn: Ecn,
    /// The socket dropped packets before this one.
    overflowed: bool,
    /// Frames of a CONTROL packet.
    frames: Option<Vec<u8>>,
}

/// One lane and what it sends by.
struct End {
    lane: Lane,
    rated: Rated,
}

/// A flow under a profile's controller and governor.
pub struct Longhaul {
    played: ChosenProfile,
    offer: Offer,
    host: Option<Host>,
    rtt: Duration,
    seed: u64,
    /// The receiver's clock runs fast by so many parts per million.
    pub drift_ppm: i64,
    /// Instead of the profile's way of repair.
    pub repair: Option<Repair>,
    /// The path keeps the codepoint of ECN-capable packets.
    pub ecn: bool,
    /// The sender has no turn for the second time, once in the first.
    pub stutters: Option<(Duration, Duration)>,
    /// That is over by this time.
    pub rested: Instant,
    /// Time from one turn of the sender to the next, at least: a timer and a system call.
    pub wake_up: Duration,
    /// A device on the sender's side of the bottleneck lets nothing through for the second time, once in the
    /// first, and then all at once.
    pub holds: Option<(Duration, Duration)>,
    /// From those times on the receiving host says that it takes no more.
    pub limits: VecDeque<(Instant, HostLimit)>,
    /// Its feedback takes longer than half of the round trip by so much.
    pub longer: Duration,
    /// A path of its own behind that of all.
    pub own: Option<Path>,
    /// No feedback arrives between these times.
    pub feedback_outage: Option<(Instant, Instant)>,
    /// Called with time and rate control at each feedback.
    pub trace: Option<Trace>,
    /// Where every loss goes, with its cause.
    pub losses: Option<Rc<RefCell<LossLog>>>,
    /// History of the path from earlier transfers.
    pub memory: Option<PathMemory>,
    /// Another profile's controller takes over at this time.
    pub successor: Option<(Instant, ChosenProfile)>,

    started: Option<Instant>,
    ends: Option<(End, End)>,
    plan: Plan,
    /// Object bytes offered, and acknowledged.
    offered: u64,
    delivered: u64,
    /// By when the receiver reads them, and the order in which they were sent.
    arriving: BTreeMap<(Instant, u64), Packet>,
    returning: VecDeque<(Instant, Packet)>,
    order: u64,
    /// The sender has no other turn before this time.
    next_turn: Instant,
    /// Packets in the receiver's socket: when each packet is read, and what it costs there.
    socket: VecDeque<(Instant, u64)>,
    /// All of it is read by then.
    busy_until: Instant,
    overflowed: bool,
    received: u64,
    sent_packets: u64,
    lost_packets: u64,
}

/// Losses by packet number.
#[derive(Debug, Default)]
pub struct LossLog {
    /// Why the packet was lost indeed.
    pub truth: BTreeMap<u64, Cause>,
    /// The sender's judgements.
    pub judged: BTreeMap<u64, Cause>,
}

/// Observes a flow.
pub type Trace = Box<dyn FnMut(Instant, &Rated)>;

impl Longhaul {
    /// A flow whose feedback takes half of `rtt`, and whose addresses are proven before it starts.
    pub fn new(played: ChosenProfile, rtt: Duration, offer: Offer, seed: u64) -> Self {
        Self {
            played,
            offer,
            host: None,
            rtt,
            seed,
            drift_ppm: 0,
            repair: None,
            ecn: false,
            stutters: None,
            wake_up: Duration::ZERO,
            holds: None,
            rested: Instant::FAR_FUTURE,
            limits: VecDeque::new(),
            longer: Duration::ZERO,
            own: None,
            feedback_outage: None,
            trace: None,
            losses: None,
            memory: None,
            successor: None,
            started: None,
            ends: None,
            plan: Plan::default(),
            offered: 0,
            delivered: 0,
            arriving: BTreeMap::new(),
            returning: VecDeque::new(),
            order: 0,
            next_turn: Instant::ZERO,
            socket: VecDeque::new(),
            busy_until: Instant::ZERO,
            overflowed: false,
            received: 0,
            sent_packets: 0,
            lost_packets: 0,
        }
    }

    /// Puts a receiving host behind the path.
    #[must_use]
    pub fn host(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }

    /// Both lanes, a few round trips before `now`: what they say to each other first does not go over
    /// the world's path.
    fn open(&mut self, now: Instant) {
        let round_trip = self.rtt + self.longer;
        let begin = now.before(round_trip * 3);
        let end = |role, chosen: &ChosenProfile| {
            let mut config = LaneConfig::new(ConnectionId(7), LaneId(0), role, self.seed);
            config.repair = self.repair.unwrap_or(chosen.repair());
            config.feedback = chosen.profile.feedback;
            config.remote = (role == Role::Client).then(|| address(Role::Server));
            config.idle_timeout = Duration::from_secs(3_600);
            config.tells_losses = self.losses.is_some();
            let telling = self.host.filter(|host| host.tells && role == Role::Server);
            config.socket_buffer = telling.map(|host| Bytes::new(host.buffer));
            let profile = chosen.profile;
            let controller = chosen.controller(begin, PACKET, None);
            let mut governor = Governor::new(begin, profile.heeds_receiver);
            if let Some(rate) = chosen.rate.filter(|_| !chosen.is_reserved()) {
                governor.set(Bottleneck::UserLimit, rate);
            }
            let rated =
                Rated::new(begin, controller, governor, round_trip, self.seed).playing(profile);
            End { lane: Lane::new(begin, config), rated }
        };
        let receiving = Profile::wished(Some("unlimited"), None, []).expect("a known profile");
        let mut sender = end(Role::Client, &self.played);
        if let Some(memory) = &self.memory {
            sender.rated.recall(begin, memory);
        }
        self.ends = Some((sender, end(Role::Server, &receiving)));
        let mut at = begin;
        while at < now {
            at = self.turn(at, None).unwrap_or(now);
        }
    }

    /// Both ends do what they can; says when they can do more.
    fn turn(&mut self, now: Instant, path: Option<&mut Path>) -> Option<Instant> {
        let (mut sender, mut receiver) = self.ends.take()?;
        let there = self.receive(now, &mut receiver);
        let until = within(self.stutters.filter(|_| now < self.rested), now)
            .or((now < self.next_turn).then_some(self.next_turn));
        let here = match until {
            Some(until) => Some(until),
            None => {
                self.next_turn = now + self.wake_up;
                self.send(now, &mut sender, path)
            }
        };
        self.ends = Some((sender, receiver));
        let arrival = self.arriving.first_key_value().map(|((at, _), _)| *at + READ_TIME);
        let news = self.returning.front().map(|(at, _)| until.unwrap_or(*at).max(*at));
        let next = [here, there, arrival, news].into_iter().flatten().min();
        next.map(|at| at.max(now + Duration::from_nanos(1)))
    }

    fn send(
        &mut self,
        now: Instant,
        end: &mut End,
        mut path: Option<&mut Path>,
    ) -> Option<Instant> {
        while self.returning.front().is_some_and(|(at, _)| *at <= now) {
            let Some((at, packet)) = self.returning.pop_front() else { break };
            if self.feedback_outage.is_none_or(|(from, to)| at < from || at >= to) {
                let arrival = packet.arrival();
                let frames = packet.frames.unwrap_or_default();
                let from = address(Role::Server);
                end.lane.handle_control(now, &mut end.rated, from, &arrival, &frames);
                if let Some(trace) = &mut self.trace {
                    trace(now, &end.rated);
                }
            }
        }
        if let Some((_, chosen)) = self.successor.take_if(|(at, _)| *at <= now) {
            let known = Some(end.rated.known());
            end.rated.set_controller(now, chosen.controller(now, PACKET, known));
        }
        while let Some((_, limit)) = self.limits.pop_front_if(|(at, _)| *at <= now) {
            end.rated.heed(now, limit);
        }
        end.lane.handle_timeout(now, &mut end.rated);
        end.rated.handle_timeout(now);
        while let Some(event) = end.lane.poll_event() {
            match (event, &self.losses) {
                (Event::Delivered(extent), _) => self.delivered += extent.len,
                (Event::Lost { number, cause }, Some(log)) => {
                    log.borrow_mut().judged.insert(number.get(), cause);
                }
                _ => {}
            }
        }
        let offered_until = self.refill(now, &mut end.lane);
        while let Some(batch) = end.lane.poll_transmit(now, &mut end.rated, 44, &mut self.plan) {
            self.leave(now, &batch, path.as_deref_mut());
            self.refill(now, &mut end.lane);
        }
        let timers = [end.lane.next_timeout(now, &end.rated), end.rated.next_timeout()];
        timers.into_iter().flatten().chain(offered_until).min()
    }

    /// Keeps the lane fed; says when that changes by itself.
    fn refill(&mut self, now: Instant, lane: &mut Lane) -> Option<Instant> {
        let started = self.started?;
        let (most, changes) = match self.offer {
            Offer::Endless => (u64::MAX, None),
            Offer::Bytes(total) => (total - self.offered, None),
            Offer::OnOff(on, off) => {
                let at = (now - started).as_nanos() % (on + off).as_nanos();
                let at = Duration::from_nanos(at as u64);
                if at < on {
                    (u64::MAX, Some(now + (on - at)))
                } else {
                    (0, Some(now + (on + off - at)))
                }
            }
        };
        let mut left = most;
        while lane.backlog() < BACKLOG && left > 0 {
            let len = left.min(GROUP);
            lane.offer(Extent { object: ObjectId(0), offset: self.offered, len });
            self.offered += len;
            left -= len;
        }
        if most < u64::MAX && left == 0 {
            lane.flush();
        }
        changes
    }

    /// A batch goes over the path, or, before the flow starts, straight to the receiver.
    fn leave(
        &mut self,
        now: Instant,
        batch: &longhaul_engine::Transmit,
        mut path: Option<&mut Path>,
    ) {
        let sent = if self.ecn { batch.ecn } else { Ecn::NotEct };
        // Each seed meets other pauses.
        let phase = Duration::from_millis(97) * (self.seed as u32 % 64);
        let now = within(self.holds, now + phase).map_or(now, |until| until.before(phase));
        let mut packets = Vec::new();
        for (number, (wire, frames)) in (batch.first.get()..).zip(contents(batch, &self.plan)) {
            let arrival = match path.as_deref_mut() {
                Some(path) => {
                    let fate = path.offer(now, wire as u32, sent);
                    self.sent_packets += 1;
                    if let Fate::Drop(reason) = fate {
                        self.lose(number, network_cause(reason), frames.is_none());
                    }
                    fate.arrival().map(|arrival| {
                        let own =
                            self.own.as_mut().map(|own| own.offer(arrival.at, wire as u32, sent));
                        let at =
                            own.and_then(|fate| fate.arrival()).map_or(arrival.at, |own| own.at);
                        (at, if arrival.marked { Ecn::Ce } else { sent })
                    })
                }
                None => Some((now + self.rtt / 2, sent)),
            };
            let Some((stamp, ecn)) = arrival else { continue };
            let send_time = batch.send_time;
            let overflowed = false;
            packets.push(Packet { number, send_time, wire, stamp, ecn, overflowed, frames });
        }
        match self.host {
            Some(host) => self.through_host(host, packets),
            None => packets.into_iter().for_each(|packet| self.arrive(packet.stamp, packet)),
        }
    }

    /// Other packets than objects may never be missed.
    fn lose(&mut self, number: u64, cause: Cause, is_object: bool) {
        self.lost_packets += 1;
        if let Some(log) = self.losses.as_ref().filter(|_| is_object) {
            log.borrow_mut().truth.insert(number, cause);
        }
    }

    fn arrive(&mut self, read: Instant, packet: Packet) {
        self.arriving.insert((read, self.order), packet);
        self.order += 1;
    }

    /// The socket of the receiving host: a queue in bytes, read at the host's rate.
    fn through_host(&mut self, host: Host, packets: Vec<Packet>) {
        let last = packets.iter().map(|packet| packet.stamp).max();
        for mut packet in packets {
            packet.stamp = host.batches.taken(packet.stamp, last.unwrap_or(packet.stamp));
            let bytes = packet.wire;
            let charge = if host.batches != Batches::None { bytes } else { bytes * 8 / 5 };
            while self.socket.front().is_some_and(|(read, _)| *read <= packet.stamp) {
                self.socket.pop_front();
            }
            let waiting: u64 = self.socket.iter().map(|(_, charge)| charge).sum();
            if waiting + charge > host.buffer {
                self.lose(packet.number, Cause::Socket, packet.frames.is_none());
                self.overflowed = true;
                continue;
            }
            let mut begins = self.busy_until.max(packet.stamp);
            if let Some((every, length)) = host.stalls {
                let phase = Duration::from_nanos(begins.as_nanos() % every.as_nanos() as u64);
                if phase < length {
                    begins += length - phase;
                }
            }
            self.busy_until = begins + host.rate.time_for(bytes);
            self.socket.push_back((self.busy_until, charge));
            packet.overflowed = core::mem::take(&mut self.overflowed);
            if host.batches != Batches::None {
                self.join_batch(packet.stamp);
            }
            self.arrive(self.busy_until, packet);
        }
    }

    /// A batch that the kernel took at one time is read at one time, that of its last packet.
    fn join_batch(&mut self, stamp: Instant) {
        let newest = self.arriving.last_entry().map(|entry| entry.get().stamp);
        if newest != Some(stamp) {
            return;
        }
        let first =
            self.arriving.iter().rev().take_while(|(_, packet)| packet.stamp == stamp).last();
        let Some((&(read, order), _)) = first else { return };
        for (key, packet) in self.arriving.split_off(&(read, order)) {
            self.arriving.insert((self.busy_until, key.1), packet);
        }
    }

    fn receive(&mut self, now: Instant, end: &mut End) -> Option<Instant> {
        let local = self.local(now);
        let mut train: Option<Arrival> = None;
        while self.arriving.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
            let Some((_, mut packet)) = self.arriving.pop_first() else { break };
            self.received += packet.wire;
            packet.stamp = self.local(packet.stamp);
            let arrival = packet.arrival();
            if let Some(frames) = packet.frames {
                place(local, end, train.take());
                let from = address(Role::Client);
                end.lane.handle_control(local, &mut end.rated, from, &arrival, &frames);
                continue;
            }
            match &mut train {
                Some(train)
                    if (train.numbers.end, train.ecn) == (packet.number, packet.ecn)
                        && !packet.overflowed =>
                {
                    train.numbers.end += 1;
                    (train.at, train.send_time) = (arrival.at, arrival.send_time);
                    train.wire_bytes += arrival.wire_bytes;
                }
                _ => {
                    place(local, end, train.replace(arrival));
                }
            }
        }
        place(local, end, train);
        end.lane.handle_timeout(local, &mut end.rated);
        while end.lane.poll_event().is_some() {}
        while let Some(batch) = end.lane.poll_transmit(local, &mut end.rated, 44, &mut self.plan) {
            let at = now + self.rtt / 2 + self.longer;
            let packets = (batch.first.get()..).zip(contents(&batch, &self.plan));
            for (number, (wire, frames)) in packets {
                let (send_time, stamp) = (batch.send_time, at);
                let (ecn, overflowed) = (batch.ecn, false);
                let packet = Packet { number, send_time, wire, stamp, ecn, overflowed, frames };
                self.returning.push_back((at, packet));
            }
        }
        end.lane.next_timeout(local, &end.rated).map(|at| self.world(at))
    }

    /// The receiver's clock.
    fn local(&self, now: Instant) -> Instant {
        let drift = now.as_nanos() as i64 / 1_000_000 * self.drift_ppm;
        Instant::from_nanos((now.as_nanos() as i64 + drift) as u64)
    }

    /// The world's, of a time by the receiver's; rather late than early.
    fn world(&self, local: Instant) -> Instant {
        if self.drift_ppm == 0 || local >= Instant::FAR_FUTURE {
            return local;
        }
        let drift = local.as_nanos() as i64 / 1_000_000 * self.drift_ppm;
        Instant::from_nanos((local.as_nanos() as i64 - drift) as u64) + Duration::from_micros(1)
    }
}

impl Packet {
    fn arrival(&self) -> Arrival {
        Arrival {
            numbers: self.number..self.number + 1,
            at: self.stamp,
            send_time: self.send_time,
            wire_bytes: self.wire,
            ecn: self.ecn,
            overflowed: self.overflowed,
        }
    }
}

/// IP-layer bytes, and frames, of each packet of a batch.
fn contents(batch: &longhaul_engine::Transmit, plan: &Plan) -> Vec<(u64, Option<Vec<u8>>)> {
    let What::Objects { payload } = batch.what else {
        return vec![(28 + 20 + 16 + plan.frames.len() as u64, Some(plan.frames.clone()))];
    };
    let payload = u64::from(payload);
    let of_run =
        |len: u64| (0..len.div_ceil(payload)).map(move |i| (len - i * payload).min(payload));
    let lengths = plan.runs.iter().flat_map(|run| of_run(run.extent.len));
    lengths.map(|len| (28 + 32 + 16 + len, None)).collect()
}

/// The end of the pause in which `now` is, of those that last the second time, once in the first.
fn within(pauses: Option<(Duration, Duration)>, now: Instant) -> Option<Instant> {
    let (every, length) = pauses?;
    let phase = Duration::from_nanos(now.as_nanos() % every.as_nanos() as u64);
    (phase < length).then(|| now + (length - phase))
}

/// Objects arrive.
fn place(now: Instant, end: &mut End, train: Option<Arrival>) {
    if let Some(train) = train {
        end.lane.handle_objects(now, address(Role::Client), &train);
    }
}

fn network_cause(reason: DropReason) -> Cause {
    match reason {
        DropReason::Queue | DropReason::Policer => Cause::Congestion,
        _ => Cause::Random,
    }
}

fn address(role: Role) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], if role == Role::Client { 1000 } else { 7420 }))
}

impl Flow for Longhaul {
    fn wake(&mut self, now: Instant, path: &mut Path) -> Option<Instant> {
        if self.started.is_none() {
            self.open(now);
            self.started = Some(now);
        }
        let next = self.turn(now, Some(path));
        if self.done() { None } else { next }
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn sent_and_lost(&self) -> (u64, u64) {
        (self.sent_packets, self.lost_packets)
    }

    fn done(&self) -> bool {
        matches!(self.offer, Offer::Bytes(total) if self.delivered >= total)
    }

    fn metrics(&self) -> Option<Metrics> {
        self.ends.as_ref().map(|(sender, _)| sender.rated.metrics())
    }
}

/// Packets that came within that time the receiver reads at once.
const READ_TIME: Duration = Duration::from_micros(50);
/// Object bytes that the lane is given ahead.
const BACKLOG: u64 = 4 << 20;
const GROUP: u64 = 1 << 20;
