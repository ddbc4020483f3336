//! Neighbours: flows that behave like kernel TCP, acknowledged packet by packet, always with more
//! to send.

use std::collections::VecDeque;

use longhaul_pathsim::{Ecn, Path};
use longhaul_units::{Duration, Instant};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::{Flow, PACKET};

/// Congestion control of a [`Tcp`] flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpKind {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    Cubic,
    /// BBR version 1: N. Cardwell et al., "BBR: Congestion-Based Congestion Control", 2016.
    Bbr,
}

#[derive(Clone, Copy)]
struct Packet {
    sent: Instant,
    /// When its acknowledgement is back; none if it is lost.
    acked: Option<Instant>,
    /// Delivered bytes when it left, and when that count was reached.
    delivered: u64,
    delivered_at: Instant,
}

/// A TCP flow.
pub struct Tcp {
    kind: TcpKind,
    way_back: Duration,
    packets: VecDeque<Packet>,
    in_flight: u64,
    delivered: u64,
    delivered_at: Instant,
    /// Packets.
    window: f64,
    threshold: f64,
    /// Packets sent before this are part of the present recovery.
    recovery: Instant,
    min_rtt: Duration,
    cubic: Cubic,
    bbr: Bbr,
    next_send: Instant,
    /// Acknowledgements are delayed a little at random, or flows fall into step with the queue
    /// (Floyd and Jacobson, "On Traffic Phase Effects in Packet-Switched Gateways", 1992).
    rng: Xoshiro256PlusPlus,
    last_ack: Instant,
    sent_packets: u64,
    lost_packets: u64,
}

#[derive(Default)]
struct Cubic {
    max: f64,
    epoch: Option<Instant>,
    k: f64,
    friendly: f64,
}

struct Bbr {
    /// Bytes per second of the last ten rounds, newest last.
    rounds: VecDeque<f64>,
    round_end: u64,
    full: f64,
    stale: u32,
    started: bool,
    drained: bool,
    phase: usize,
    phase_since: Instant,
    probe_rtt: Option<Instant>,
    min_seen: Instant,
}

impl Tcp {
    /// A flow whose acknowledgements take half of `rtt`.
    pub fn new(kind: TcpKind, rtt: Duration, seed: u64) -> Self {
        Self {
            kind,
            way_back: rtt / 2,
            packets: VecDeque::new(),
            in_flight: 0,
            delivered: 0,
            delivered_at: Instant::ZERO,
            window: 10.0,
            threshold: f64::MAX,
            recovery: Instant::ZERO,
            min_rtt: Duration::MAX,
            cubic: Cubic::default(),
            bbr: Bbr {
                rounds: VecDeque::from([0.0]),
                round_end: 0,
                full: 0.0,
                stale: 0,
                started: false,
                drained: false,
                phase: 2,
                phase_since: Instant::ZERO,
                probe_rtt: None,
                min_seen: Instant::ZERO,
            },
            next_send: Instant::ZERO,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            last_ack: Instant::ZERO,
            sent_packets: 0,
            lost_packets: 0,
        }
    }

    fn on_ack(&mut self, now: Instant, packet: Packet) {
        self.delivered += PACKET;
        self.delivered_at = now;
        let rtt = now - packet.sent;
        if rtt <= self.min_rtt {
            self.min_rtt = rtt;
            self.bbr.min_seen = now;
        }
        match self.kind {
            TcpKind::Bbr => self.bbr_ack(now, packet, rtt),
            _ if self.window < self.threshold => {
                self.window += 1.0;
                // HyStart: the queue grows.
                if rtt > self.min_rtt + (self.min_rtt / 8).max(Duration::from_millis(4)) {
                    self.threshold = self.window;
                }
            }
            TcpKind::Reno => self.window += 1.0 / self.window,
            TcpKind::Cubic => self.cubic_ack(now, rtt),
        }
    }

    fn cubic_ack(&mut self, now: Instant, rtt: Duration) {
        let cubic = &mut self.cubic;
        let epoch = *cubic.epoch.get_or_insert_with(|| {
            cubic.max = cubic.max.max(self.window);
            cubic.k = ((cubic.max - self.window) / 0.4).cbrt();
            cubic.friendly = self.window;
            now
        });
        let t = (now - epoch + rtt).as_secs_f64();
        let target =
            (0.4 * (t - cubic.k).powi(3) + cubic.max).clamp(self.window, self.window * 1.5);
        self.window += (target - self.window) / self.window;
        cubic.friendly += 0.53 / cubic.friendly;
        self.window = self.window.max(cubic.friendly);
    }

    fn on_loss(&mut self, now: Instant, sent: Instant) {
        if sent < self.recovery || self.kind == TcpKind::Bbr {
            return;
        }
        self.recovery = now;
        let beta = if self.kind == TcpKind::Cubic { 0.7 } else { 0.5 };
        // Fast convergence, RFC 9438 section 4.7.
        let converges = self.window < self.cubic.max;
        self.cubic.max = if converges { self.window * 0.85 } else { self.window };
        self.cubic.epoch = None;
        self.window = (self.window * beta).max(2.0);
        self.threshold = self.window;
        if self.cubic.max < self.window {
            self.cubic.max = self.window;
        }
    }

    fn bbr_ack(&mut self, now: Instant, packet: Packet, rtt: Duration) {
        let bbr = &mut self.bbr;
        let elapsed = (now - packet.delivered_at).as_secs_f64();
        let rate = (self.delivered - packet.delivered) as f64 / elapsed.max(1e-9);
        let newest = bbr.rounds.back_mut().expect("never empty");
        *newest = newest.max(rate);
        if packet.delivered >= bbr.round_end {
            bbr.round_end = self.delivered;
            let best = bbr.rounds.iter().copied().fold(0.0, f64::max);
            if best > bbr.full * 1.25 {
                bbr.full = best;
                bbr.stale = 0;
            } else {
                bbr.stale += 1;
            }
            bbr.started |= bbr.stale >= 3;
            bbr.rounds.push_back(0.0);
            if bbr.rounds.len() > 10 {
                bbr.rounds.pop_front();
            }
        }
        if now - bbr.min_seen > Duration::from_secs(10) && bbr.probe_rtt.is_none() {
            bbr.probe_rtt = Some(now + Duration::from_millis(200) + rtt);
            self.min_rtt = rtt;
        }
        if bbr.probe_rtt.is_some_and(|until| now >= until) {
            bbr.probe_rtt = None;
            bbr.min_seen = now;
        }
        let bdp = self.bdp();
        let bbr = &mut self.bbr;
        if bbr.started && !bbr.drained {
            bbr.drained = (self.in_flight as f64) <= bdp;
        } else if bbr.drained {
            let since = now - bbr.phase_since;
            let stays = bbr.phase == 0 && (self.in_flight as f64) < 1.25 * bdp;
            if since > self.min_rtt && !(stays && since < self.min_rtt * 3) {
                bbr.phase = (bbr.phase + 1) % 8;
                bbr.phase_since = now;
            }
        }
    }

    fn bandwidth(&self) -> f64 {
        self.bbr.rounds.iter().copied().fold(0.0, f64::max)
    }

    fn bdp(&self) -> f64 {
        self.bandwidth() * self.min_rtt.as_secs_f64()
    }

    /// Bytes that may be in flight, and bytes per second.
    fn allowed(&self) -> (u64, f64) {
        if self.kind != TcpKind::Bbr {
            return ((self.window as u64) * PACKET, f64::MAX);
        }
        if self.min_rtt == Duration::MAX {
            return (10 * PACKET, f64::MAX);
        }
        let gain = match (self.bbr.started, self.bbr.drained) {
            (false, _) => 2.89,
            (true, false) => 0.35,
            (true, true) => [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0][self.bbr.phase],
        };
        let window = if self.bbr.probe_rtt.is_some() {
            4 * PACKET
        } else {
            let gain = if self.bbr.started { 2.0 } else { 2.89 };
            ((gain * self.bdp()) as u64).max(10 * PACKET)
        };
        (window, gain * self.bandwidth())
    }
}

impl Flow for Tcp {
    fn wake(&mut self, now: Instant, path: &mut Path) -> Option<Instant> {
        // Acknowledgements come in the order of sending: the path keeps it.
        while let Some(&front) = self.packets.front() {
            match front.acked {
                Some(at) if at <= now => {
                    self.packets.pop_front();
                    self.in_flight -= PACKET;
                    self.on_ack(now, front);
                }
                Some(_) => break,
                None => {
                    // Known from the third later packet; here from any.
                    let later = self.packets.iter().find_map(|packet| packet.acked);
                    let timeout = front.sent + Duration::from_secs(1);
                    if later.is_some_and(|at| at <= now) || later.is_none() && timeout <= now {
                        self.packets.pop_front();
                        self.in_flight -= PACKET;
                        self.lost_packets += 1;
                        self.on_loss(now, front.sent);
                    } else {
                        break;
                    }
                }
            }
        }
        loop {
            let (window, rate) = self.allowed();
            if self.in_flight + PACKET > window || self.next_send > now {
                break;
            }
            let arrival = path.offer(now, PACKET as u32, Ecn::NotEct).arrival();
            if self.in_flight == 0 {
                self.delivered_at = now;
            }
            let delay = Duration::from_nanos(u64::from(self.rng.next_u32()) % ACK_JITTER);
            let acked = arrival.map(|arrival| arrival.at + self.way_back + delay);
            let acked = acked.map(|at| at.max(self.last_ack));
            self.last_ack = acked.unwrap_or(self.last_ack);
            self.packets.push_back(Packet {
                sent: now,
                acked,
                delivered: self.delivered,
                delivered_at: self.delivered_at,
            });
            self.in_flight += PACKET;
            self.sent_packets += 1;
            let gap = Duration::from_secs_f64((PACKET as f64 / rate).min(1.0));
            self.next_send = self.next_send.max(now.before(gap)) + gap;
        }
        let ack = self.packets.iter().find_map(|packet| packet.acked);
        let timeout = self.packets.front().map(|packet| packet.sent + Duration::from_secs(1));
        let (window, _) = self.allowed();
        let send = (self.in_flight + PACKET <= window).then_some(self.next_send);
        [ack.or(timeout), send]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.max(now + Duration::from_nanos(1)))
    }

    fn received(&self) -> u64 {
        self.delivered
    }

    fn sent_and_lost(&self) -> (u64, u64) {
        (self.sent_packets, self.lost_packets)
    }
}

/// Nanoseconds: two packets at 100 Mb/s.
const ACK_JITTER: u64 = 240_000;
