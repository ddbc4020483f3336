//! A Longhaul sender and receiver, as far as a controller can tell.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use longhaul_pathsim::{Ecn, Path};
use longhaul_rate_control::{
    Context, Controller, DeliveryMeter, DeliveryReport, Estimates, Feedback, Governor, Metrics,
    Pacer, ReceiverState, RttEstimator, Sent,
};
use longhaul_units::{Bytes, Duration, Instant, Rate};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::{Flow, PACKET};

/// What the application has to send.
#[derive(Clone, Copy, Debug)]
pub enum Offer {
    /// Always more.
    Endless,
    /// So many bytes in packets, resends not counted.
    Bytes(u64),
    /// Endless for the first time, nothing for the second, and again.
    OnOff(Duration, Duration),
}

/// The receiving host behind the path.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// What it reads from its socket.
    pub rate: Rate,
    /// Socket buffer.
    pub buffer: u64,
    /// Whether it tells its size.
    pub tells: bool,
    /// It reads nothing for the second time, once in the first.
    pub stalls: Option<(Duration, Duration)>,
    /// A batch arrives as one super-packet with one stamp.
    pub gro: bool,
}

#[derive(Clone, Copy)]
struct Packet {
    sent: Instant,
    bytes: u64,
    /// When the receiver has read it; none if it never does.
    read: Option<Instant>,
    /// When the receiver's kernel took it.
    stamp: Instant,
    socket_drop: bool,
    marked: bool,
    limited: bool,
    ping: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Out,
    Acked,
    Lost,
}

/// What a FEEDBACK frame carries, besides the ranges, which follow from `made`.
#[derive(Clone, Copy)]
struct Frame {
    arrives: Instant,
    made: Instant,
    largest: u64,
    stamp: Instant,
    bytes: u64,
    marked: u64,
}

/// A flow under a [`Controller`].
pub struct Longhaul {
    controller: Box<dyn Controller>,
    estimates: Estimates,
    governor: Governor,
    rng: Xoshiro256PlusPlus,
    offer: Offer,
    host: Option<Host>,
    way_back: Duration,
    /// The receiver's clock runs fast by so many parts per million.
    pub drift_ppm: i64,
    /// Packets are ECN-capable.
    pub ecn: bool,
    /// The sender has no turn for the second time, once in the first.
    pub stutters: Option<(Duration, Duration)>,
    /// No feedback arrives between these times.
    pub deaf: Option<(Instant, Instant)>,

    started: Option<Instant>,
    rtt: RttEstimator,
    pacer: Option<Pacer>,
    meter: DeliveryMeter,
    ledger: VecDeque<Packet>,
    first: u64,
    in_flight: u64,
    acked: u64,
    least_one_way: Option<i64>,
    marked_told: u64,
    last_news: Instant,
    probes: u32,
    finished: Option<Instant>,

    busy_until: Instant,
    arrivals: BinaryHeap<Reverse<(Instant, u64)>>,
    arrived: u64,
    marked: u64,
    largest: Option<u64>,
    unreported: bool,
    interval: Duration,
    last_feedback: Instant,
    frames: VecDeque<Frame>,
    sent_packets: u64,
    lost_packets: u64,
    /// Packets that the socket dropped.
    pub socket_drops: u64,
    /// Packets that were taken as lost and were not.
    pub spurious: u64,
    /// Called with time and figures at each feedback.
    pub trace: Option<Trace>,
}

/// Observes a flow: time, controller, estimates, feedback.
pub type Trace = Box<dyn FnMut(Instant, &dyn Controller, &Estimates, &Feedback)>;

impl Longhaul {
    /// A flow whose feedback takes `way_back`; the RTT is known from the handshake.
    pub fn new(
        (controller, estimates): (Box<dyn Controller>, Estimates),
        rtt: Duration,
        offer: Offer,
        seed: u64,
    ) -> Self {
        Self {
            controller,
            estimates,
            governor: Governor::new(Instant::ZERO + Duration::from_secs(1), true),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            offer,
            host: None,
            way_back: rtt / 2,
            drift_ppm: 0,
            ecn: false,
            stutters: None,
            deaf: None,
            started: None,
            rtt: RttEstimator::new(rtt),
            pacer: None,
            meter: DeliveryMeter::new(),
            ledger: VecDeque::new(),
            first: 0,
            in_flight: 0,
            acked: 0,
            least_one_way: None,
            marked_told: 0,
            last_news: Instant::ZERO,
            probes: 0,
            finished: None,
            busy_until: Instant::ZERO,
            arrivals: BinaryHeap::new(),
            arrived: 0,
            marked: 0,
            largest: None,
            unreported: false,
            interval: feedback_interval(rtt),
            last_feedback: Instant::ZERO,
            frames: VecDeque::new(),
            sent_packets: 0,
            lost_packets: 0,
            socket_drops: 0,
            spurious: 0,
            trace: None,
        }
    }

    /// Puts a receiving host behind the path.
    #[must_use]
    pub fn host(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }

    fn packet(&self, number: u64) -> &Packet {
        &self.ledger[(number - self.first) as usize]
    }

    /// What the application would send now.
    fn available(&self, now: Instant) -> u64 {
        match self.offer {
            Offer::Endless => u64::MAX,
            Offer::Bytes(total) => total.saturating_sub(self.acked + self.in_flight),
            Offer::OnOff(on, off) => {
                let at = now.since(self.started.unwrap_or(now)).as_nanos() % (on + off).as_nanos();
                if at < on.as_nanos() { u64::MAX } else { 0 }
            }
        }
    }

    fn send(&mut self, now: Instant, path: &mut Path) -> Option<Instant> {
        if let Some((every, length)) = self.stutters {
            let phase = Duration::from_nanos(now.as_nanos() % every.as_nanos() as u64);
            if phase < length {
                return Some(now + (length - phase));
            }
        }
        loop {
            self.governor.set_controller_bound(self.controller.metrics().bound);
            let (pacing, _) = self.governor.allow(self.controller.pacing());
            assert!(pacing.burst >= PACKET, "a packet must fit the burst: {pacing:?}");
            let mut pacer = self.pacer.unwrap_or_else(|| Pacer::new(now, pacing));
            pacer.set(now, pacing);
            self.pacer = Some(pacer);
            if pacing.window.is_some_and(|window| self.in_flight >= window) {
                return None;
            }
            let quantum = pacing.rate.bytes_in(Duration::from_micros(250)).min(pacing.burst);
            let batch = (quantum / PACKET).clamp(1, 43) * PACKET;
            if let Some(at) = pacer.earliest(now, batch) {
                return (at < Instant::FAR_FUTURE).then_some(at);
            }
            let available = self.available(now);
            if available == 0 {
                return match self.offer {
                    Offer::OnOff(..) => Some(now + Duration::from_millis(1)),
                    _ => None,
                };
            }
            let packets = (batch.min(available)).div_ceil(PACKET);
            let limited = available < batch;
            pacer.on_sent(now, packets * PACKET);
            self.pacer = Some(pacer);
            self.offer_batch(now, path, packets, PACKET, limited, false);
            let sent = Sent {
                bytes: packets * PACKET,
                in_flight: self.in_flight,
                application_limited: limited,
            };
            let mut cx =
                Context { now, rtt: &self.rtt, estimates: &mut self.estimates, rng: &mut self.rng };
            self.controller.on_sent(&mut cx, &sent);
            self.governor.on_sent(self.in_flight);
        }
    }

    fn offer_batch(
        &mut self,
        now: Instant,
        path: &mut Path,
        packets: u64,
        bytes: u64,
        limited: bool,
        ping: bool,
    ) {
        let ecn = if self.ecn { Ecn::Ect0 } else { Ecn::NotEct };
        let begin = self.ledger.len();
        for _ in 0..packets {
            let arrival = path.offer(now, bytes as u32, ecn).arrival();
            self.sent_packets += 1;
            self.lost_packets += u64::from(arrival.is_none());
            self.ledger.push_back(Packet {
                sent: now,
                bytes,
                read: arrival.map(|arrival| arrival.at),
                stamp: arrival.map_or(now, |arrival| arrival.at),
                socket_drop: false,
                marked: arrival.is_some_and(|arrival| arrival.marked),
                limited,
                ping,
                state: State::Out,
            });
            self.in_flight += bytes;
        }
        if let Some(host) = self.host {
            self.through_host(host, begin);
        }
        for i in begin..self.ledger.len() {
            if let Some(read) = self.ledger[i].read {
                self.arrivals.push(Reverse((read, self.first + i as u64)));
            }
        }
    }

    /// The socket of the receiving host: a queue in bytes, read at the host's rate.
    fn through_host(&mut self, host: Host, begin: usize) {
        let batch = self.ledger.range(begin..);
        let last = batch.filter_map(|packet| packet.read).max();
        for i in begin..self.ledger.len() {
            let Some(arrival) = self.ledger[i].read else { continue };
            let stamp = if host.gro { last.unwrap_or(arrival) } else { arrival };
            let bytes = self.ledger[i].bytes;
            let charge = if host.gro { bytes } else { bytes * 8 / 5 };
            let waiting = host.rate.bytes_in(self.busy_until - stamp) * charge / bytes;
            if waiting + charge > host.buffer {
                self.ledger[i].read = None;
                self.ledger[i].socket_drop = true;
                self.socket_drops += 1;
                self.lost_packets += 1;
                continue;
            }
            let mut begins = self.busy_until.max(stamp);
            if let Some((every, length)) = host.stalls {
                let phase = Duration::from_nanos(begins.as_nanos() % every.as_nanos() as u64);
                if phase < length {
                    begins += length - phase;
                }
            }
            self.busy_until = begins + host.rate.time_for(bytes);
            self.ledger[i].read = Some(self.busy_until);
            self.ledger[i].stamp = stamp;
        }
    }

    /// When the receiver sends feedback next, as far as packets under way tell.
    fn next_feedback(&self) -> Option<Instant> {
        let arrival = self.arrivals.peek().map(|Reverse((at, _))| *at);
        let regular = self.last_feedback + self.interval;
        let due = if self.unreported { Some(regular) } else { arrival.map(|at| at.max(regular)) }?;
        // 512 KiB of unreported data bring one, after 50 us.
        let much = self.largest.map_or(self.first, |largest| largest + 1) + (512 << 10) / PACKET;
        let soon = match much.checked_sub(self.first) {
            Some(i) => self.ledger.get(i as usize).and_then(|packet| packet.read),
            None => None,
        };
        let soon = soon.map(|at| at.max(self.last_feedback + Duration::from_micros(50)));
        // A ping is answered at once.
        let ping = self.ledger.back().filter(|packet| packet.ping).and_then(|packet| packet.read);
        let ping = ping.filter(|at| *at > self.last_feedback);
        [Some(due), soon, ping].into_iter().flatten().min()
    }

    fn make_feedback(&mut self, now: Instant) {
        while let Some(&Reverse((at, number))) = self.arrivals.peek() {
            if at > now {
                break;
            }
            self.arrivals.pop();
            self.arrived += if number < self.first { PACKET } else { self.packet(number).bytes };
            if number >= self.first {
                self.marked += u64::from(self.packet(number).marked);
                self.largest = self.largest.max(Some(number));
            }
            self.unreported = true;
        }
        if !self.unreported {
            return;
        }
        let Some(largest) = self.largest else { return };
        self.unreported = false;
        self.last_feedback = now;
        if largest < self.first || self.deaf.is_some_and(|(from, to)| now >= from && now < to) {
            return;
        }
        self.frames.push_back(Frame {
            arrives: now + self.way_back,
            made: now,
            largest,
            stamp: self.packet(largest).stamp,
            bytes: self.arrived,
            marked: self.marked,
        });
    }

    fn on_frame(&mut self, now: Instant, frame: Frame) {
        if frame.largest < self.first {
            return;
        }
        let largest = *self.packet(frame.largest);
        let mut feedback = Feedback::default();
        let extent = (self.rtt.smoothed() / 16).max(Duration::from_micros(250));
        let count = (frame.largest - self.first + 1) as usize;
        for packet in self.ledger.iter_mut().take(count) {
            let has_arrived = packet.read.is_some_and(|at| at <= frame.made);
            match packet.state {
                State::Out if has_arrived => {
                    packet.state = State::Acked;
                    feedback.acked_bytes += packet.bytes;
                    feedback.acked_packets += 1;
                }
                State::Out if largest.sent - packet.sent >= extent => {
                    packet.state = State::Lost;
                    feedback.lost_bytes += packet.bytes;
                    if packet.socket_drop {
                        feedback.lost.socket += 1;
                    } else {
                        feedback.lost.unknown += 1;
                    }
                }
                State::Lost if has_arrived => {
                    packet.state = State::Acked;
                    feedback.spurious_packets += 1;
                }
                _ => {}
            }
        }
        self.in_flight -= feedback.acked_bytes + feedback.lost_bytes;
        self.acked += feedback.acked_bytes;
        self.spurious += feedback.spurious_packets;
        while let Some(front) = self.ledger.front() {
            let waits = front.state == State::Lost && front.read.is_some();
            if front.state == State::Out || waits || self.ledger.len() == 1 {
                break;
            }
            self.ledger.pop_front();
            self.first += 1;
        }
        let sample = (now - largest.sent).saturating_sub(frame.made - frame.stamp);
        self.rtt.update(now, sample);
        feedback.rtt = Some(sample);
        let clock = frame.stamp.as_nanos() as i64 / 1_000;
        let clock = clock + clock / 1_000_000 * self.drift_ppm;
        let one_way = clock - largest.sent.as_nanos() as i64 / 1_000;
        let least = self.least_one_way.map_or(one_way, |least| least.min(one_way));
        self.least_one_way = Some(least);
        feedback.one_way_delta = Some(one_way - least);
        feedback.delivery = self.meter.on_feedback(DeliveryReport {
            bytes: frame.bytes,
            received: clock as u32,
            sent: largest.sent.as_wire_micros(),
            application_limited: largest.limited,
            late: false,
        });
        feedback.marked_packets = frame.marked - self.marked_told;
        self.marked_told = frame.marked;
        feedback.in_flight = self.in_flight;
        let told = self.host.filter(|host| host.tells).map(|host| Bytes::new(host.buffer));
        let receiver = ReceiverState { socket_buffer: told, capacity: None };
        let news = feedback.lost.total() + feedback.acked_packets;
        if news + feedback.spurious_packets > 0 {
            let told = self.estimates.on_feedback(now, &self.rtt, &feedback);
            let mut cx =
                Context { now, rtt: &self.rtt, estimates: &mut self.estimates, rng: &mut self.rng };
            self.controller.on_feedback(&mut cx, &told);
            let wanted = self.controller.pacing().rate;
            let Self { governor, estimates, rtt, .. } = self;
            governor.on_feedback(now, rtt, estimates, (&told, &receiver), wanted);
            if let Some(trace) = &mut self.trace {
                trace(now, &*self.controller, &self.estimates, &feedback);
            }
            self.last_news = now;
            self.probes = 0;
        }
        // The receiver learns the round trip from STATE.
        self.interval = feedback_interval(self.rtt.smoothed());
        if matches!(self.offer, Offer::Bytes(total) if self.acked >= total) {
            self.finished.get_or_insert(now);
        }
    }

    fn probe_at(&self) -> Option<Instant> {
        let timeout = self.rtt.probe_timeout(self.interval) * (1 << self.probes.min(10));
        (self.in_flight > 0).then(|| self.last_news + timeout.min(Duration::from_secs(2)))
    }
}

impl Flow for Longhaul {
    fn wake(&mut self, now: Instant, path: &mut Path) -> Option<Instant> {
        if self.started.is_none() {
            self.started = Some(now);
            self.last_news = now;
        }
        if self.next_feedback().is_some_and(|at| at <= now) {
            self.make_feedback(now);
        }
        while self.frames.front().is_some_and(|frame| frame.arrives <= now) {
            if let Some(frame) = self.frames.pop_front() {
                self.on_frame(now, frame);
            }
        }
        if self.controller.next_timeout().is_some_and(|at| at <= now) {
            let mut cx =
                Context { now, rtt: &self.rtt, estimates: &mut self.estimates, rng: &mut self.rng };
            self.controller.on_timeout(&mut cx);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            let mut cx =
                Context { now, rtt: &self.rtt, estimates: &mut self.estimates, rng: &mut self.rng };
            self.controller.on_probe_timeout(&mut cx, self.in_flight);
            self.probes += 1;
            self.last_news = now;
            self.offer_batch(now, path, 1, 100, true, true);
        }
        if self.done() {
            return None;
        }
        if self.in_flight == 0 {
            self.last_news = now;
        }
        let send = self.send(now, path);
        let frame = self.frames.front().map(|frame| frame.arrives);
        let timers = [send, self.next_feedback(), frame, self.probe_at()];
        let timers = timers.into_iter().chain([self.controller.next_timeout()]);
        timers.flatten().min().map(|at| at.max(now + Duration::from_nanos(1)))
    }

    fn received(&self) -> u64 {
        self.arrived
    }

    fn sent_and_lost(&self) -> (u64, u64) {
        (self.sent_packets, self.lost_packets)
    }

    fn done(&self) -> bool {
        self.finished.is_some()
    }

    fn metrics(&self) -> Option<Metrics> {
        Some(self.controller.metrics())
    }
}

/// docs/protocol.md 5.4.
fn feedback_interval(rtt: Duration) -> Duration {
    (rtt / 8).min(Duration::from_millis(10)).max(Duration::from_micros(250))
}
