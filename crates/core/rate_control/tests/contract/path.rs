//! An honest path for one controller: a link with a queue, reports eight times a round trip, a
//! sender with always more to send.

use std::collections::VecDeque;

use longhaul_rate_control::{
    ChosenProfile, Context, Controller, DeliveryMeter, DeliveryReport, Estimates, Feedback, Known,
    Pacer, RttEstimator, Sent, SpanMeter,
};
use longhaul_units::{Duration, Instant, Losses, Rate};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::PACKET;

/// Time between two looks at the sender.
const STEP: Duration = Duration::from_micros(250);

pub struct Link {
    pub rate: Rate,
    pub round_trip: Duration,
    /// Bytes.
    pub queue: u64,
}

/// A packet under way: when it left, and when it arrives, if it does.
struct Packet {
    sent: Instant,
    arrives: Option<Instant>,
    bytes: u64,
}

pub struct Path {
    pub now: Instant,
    /// Bytes of a full packet.
    pub packet: u64,
    link: Link,
    pub controller: Box<dyn Controller>,
    pacer: Pacer,
    /// Packets that the controller judges as a whole.
    segment: Option<SpanMeter>,
    chunk: Option<SpanMeter>,
    rtt: RttEstimator,
    estimates: Estimates,
    meter: DeliveryMeter,
    rng: Xoshiro256PlusPlus,
    /// Packets without an answer, in the order of sending.
    packets: VecDeque<Packet>,
    /// Their bytes.
    in_flight: u64,
    /// Time when the link has worked off what was offered to it.
    link_free: Instant,
    /// Nothing passes until then.
    pub dark_until: Instant,
    next_report: Instant,
    next_probe: Instant,
    probes: u32,
    pub sent: u64,
    pub delivered: u64,
    pub lost: u64,
}

impl Path {
    pub fn new(chosen: &ChosenProfile, link: Link, known: Option<Known>) -> Self {
        let now = Instant::ZERO + Duration::from_secs(10);
        let controller = chosen.controller(now, PACKET, known);
        Self {
            now,
            packet: PACKET,
            pacer: Pacer::new(now, controller.pacing()),
            segment: controller.spans().segment.map(|packets| SpanMeter::new(now, packets)),
            chunk: controller.spans().chunk.map(|packets| SpanMeter::new(now, packets)),
            controller,
            rtt: RttEstimator::new(link.round_trip),
            estimates: Estimates::new(now, PACKET),
            meter: DeliveryMeter::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(5),
            packets: VecDeque::new(),
            in_flight: 0,
            link_free: now,
            dark_until: now,
            next_report: now + link.round_trip,
            next_probe: now + link.round_trip * 2,
            probes: 0,
            sent: 0,
            delivered: 0,
            lost: 0,
            link,
        }
    }

    /// Bytes that arrived in the next `time`.
    pub fn run(&mut self, time: Duration) -> u64 {
        let (before, end) = (self.delivered, self.now + time);
        while self.now < end {
            self.now += STEP;
            let due = self.controller.next_timeout().is_some_and(|at| at <= self.now);
            if due {
                self.tell(|controller, cx| controller.on_timeout(cx));
            }
            if self.now >= self.next_report {
                self.report();
            }
            if self.now >= self.next_probe {
                self.probes += 1;
                self.next_probe = self.now + self.link.round_trip * 2 * (1 << self.probes.min(5));
                let in_flight = self.in_flight;
                self.tell(|controller, cx| controller.on_probe_timeout(cx, in_flight));
                // The probe itself, which no window holds.
                self.offer();
            }
            self.send();
        }
        self.delivered - before
    }

    /// From now on packets pass over another link.
    pub fn set_link(&mut self, link: Link) {
        self.link = link;
    }

    fn tell(&mut self, what: impl FnOnce(&mut dyn Controller, &mut Context<'_>)) {
        let Self { now, controller, rtt, estimates, rng, .. } = self;
        what(&mut **controller, &mut Context { now: *now, rtt, estimates, rng });
        self.pacer.set(self.now, self.controller.pacing());
    }

    fn offer(&mut self) {
        let begins = self.link_free.max(self.now);
        let waits = self.link.rate.bytes_in(begins - self.now);
        let bytes = self.packet;
        let passes = self.now >= self.dark_until && waits + bytes <= self.link.queue;
        if passes {
            self.link_free = begins + self.link.rate.time_for(bytes);
        }
        let arrives = passes.then_some(self.link_free + self.link.round_trip / 2);
        self.packets.push_back(Packet { sent: self.now, arrives, bytes });
        self.sent += bytes;
        self.in_flight += bytes;
    }

    fn send(&mut self) {
        let (mut bytes, packet) = (0, self.packet);
        while self.pacer.earliest(self.now, packet).is_none()
            && self.controller.pacing().window.is_none_or(|window| self.in_flight < window)
        {
            self.pacer.on_sent(self.now, packet);
            self.offer();
            bytes += packet;
        }
        if bytes > 0 {
            let sent = Sent { bytes, in_flight: self.in_flight, ..Sent::default() };
            self.tell(|controller, cx| controller.on_sent(cx, &sent));
        }
    }

    /// Reports the packets that reached the receiver half a round trip ago.
    fn report(&mut self) {
        let seen = self.now.before(self.link.round_trip / 2);
        self.next_report = self.now + self.link.round_trip / 8;
        let arrived = |packet: &Packet| packet.arrives.is_some_and(|at| at <= seen);
        let Some(newest) = self.packets.iter().rposition(arrived) else { return };
        let known: Vec<Packet> = self.packets.drain(..=newest).collect();
        let acked = known.iter().filter(|packet| packet.arrives.is_some());
        let acked_packets = acked.clone().count() as u64;
        let acked_bytes = acked.map(|packet| packet.bytes).sum();
        let lost = known.len() as u64 - acked_packets;
        self.in_flight -= known.iter().map(|packet| packet.bytes).sum::<u64>();
        let lost_bytes = known.iter().map(|packet| packet.bytes).sum::<u64>() - acked_bytes;
        let Packet { sent, arrives, .. } = known[newest];
        let arrives = arrives.expect("the newest arrived");
        self.delivered += acked_bytes;
        self.lost += lost;
        let rtt = arrives - sent + self.link.round_trip / 2;
        self.rtt.update(self.now, rtt);
        let report = DeliveryReport {
            bytes: self.delivered,
            received: arrives.as_wire_micros(),
            sent: sent.as_wire_micros(),
            ..DeliveryReport::default()
        };
        let feedback = Feedback {
            acked_bytes,
            acked_packets,
            lost: Losses { unknown: lost, ..Losses::default() },
            lost_bytes,
            in_flight: self.in_flight,
            rtt: Some(rtt),
            one_way_delta: Some((rtt - self.link.round_trip).as_micros() as i64),
            delivery: self.meter.on_feedback(report),
            ..Feedback::default()
        };
        self.estimates.set_packet(self.packet);
        let classified = self.estimates.on_feedback(self.now, &self.rtt, &feedback);
        self.probes = 0;
        self.next_probe = self.now + self.link.round_trip * 2;
        self.tell(|controller, cx| controller.on_feedback(cx, &classified));
        let [segment, chunk] = [&mut self.segment, &mut self.chunk]
            .map(|meter| meter.as_mut().and_then(|meter| meter.on_feedback(self.now, &classified)));
        if let Some(segment) = segment {
            self.tell(|controller, cx| controller.on_segment(cx, &segment));
        }
        if let Some(chunk) = chunk {
            self.tell(|controller, cx| controller.on_chunk(cx, &chunk));
        }
    }
}
