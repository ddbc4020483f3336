//! Packet switching with finite buffers, where TCP recovers from losses: the comparison that the
//! paper left for later.
//!
//! The model is a fluid in steps of an eighth of the base round-trip time. All flows cross one
//! drop-tail queue. A flow of window w sends at w / RTT, at most at Rmax, where the RTT is the
//! base plus the queueing delay. What does not fit into the buffer is dropped in proportion to the
//! rates; a flow that sent n packets in a step of drop ratio p sees a loss event with probability
//! 1 - exp(-pn), at most one a round trip, and sends the dropped bytes again. A window that is not
//! used, because Rmax binds, does not grow. Slow start doubles from ten packets to the first loss.
//! Left out: connection set-up, propagation of the last byte, timeouts, pacing, ECN. Each of the
//! first three would make TCP look worse.

use super::workload::{Arrival, CHANNEL_BPS, CHANNELS, Draw};

/// Congestion control of the TCP reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Standard: one packet more a round trip, half on loss (RFC 5681).
    Reno,
    /// Improved: CUBIC (RFC 9438).
    Cubic,
}

/// The path that the TCP reference crosses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpPath {
    /// Base round-trip time, seconds.
    pub rtt: f64,
    /// Buffer, as a fraction of link rate times base round-trip time.
    pub buffer: f64,
}

impl Default for TcpPath {
    fn default() -> Self {
        Self { rtt: 0.02, buffer: 0.25 }
    }
}

/// Delays of `files` under TCP; `seed` decides which flows see a loss.
pub fn tcp(files: &[Arrival], control: Control, path: TcpPath, seed: u64) -> Vec<f64> {
    let link = f64::from(CHANNELS) * CHANNEL_BPS / 8.0;
    let buffer = path.buffer * path.rtt * link;
    let step = path.rtt / 8.0;
    let mut draw = Draw::new(seed ^ 0x7463_7000);
    let mut delays = vec![0.0; files.len()];
    let mut flows: Vec<Flow> = Vec::new();
    let mut queue = 0.0;
    let mut now: f64 = 0.0;
    let mut next = 0;
    while next < files.len() || !flows.is_empty() {
        if flows.is_empty() && queue == 0.0 {
            now = now.max(files[next].at);
        }
        while next < files.len() && files[next].at <= now {
            flows.push(Flow::new(next, &files[next]));
            next += 1;
        }
        let rtt = path.rtt + queue / link;
        let offered: f64 = flows.iter().map(|f| f.rate(rtt) * step).sum();
        let level = (queue + offered - link * step).max(0.0);
        let dropped = (level - buffer).max(0.0);
        let ratio = if offered > 0.0 { (dropped / offered).min(1.0) } else { 0.0 };
        queue = level.min(buffer);
        let moment = Moment { now, rtt, step, ratio };
        flows.retain_mut(|flow| {
            let through = flow.rate(rtt) * step * (1.0 - ratio);
            if flow.left <= through {
                // The rest of the step it did not need, and the queue in front of its last byte.
                let part = if through > 0.0 { flow.left / through } else { 1.0 };
                delays[flow.index] = now + part * step - files[flow.index].at + queue / link;
                return false;
            }
            flow.left -= through;
            flow.react(control, &moment, through, &mut draw);
            true
        });
        now += step;
    }
    delays
}

/// State of the link in a step.
struct Moment {
    now: f64,
    rtt: f64,
    step: f64,
    ratio: f64,
}

struct Flow {
    index: usize,
    left: f64,
    max_rate: f64,
    window: f64,
    threshold: f64,
    /// Window before the last loss, packets, and when that was.
    peak: f64,
    loss_at: f64,
    recovery_until: f64,
}

impl Flow {
    fn new(index: usize, file: &Arrival) -> Self {
        Self {
            index,
            left: file.bytes,
            max_rate: f64::from(file.max_rate) * CHANNEL_BPS / 8.0,
            window: 10.0 * PACKET,
            threshold: f64::INFINITY,
            peak: 0.0,
            loss_at: 0.0,
            recovery_until: 0.0,
        }
    }

    fn rate(&self, rtt: f64) -> f64 {
        (self.window / rtt).min(self.max_rate)
    }

    fn react(&mut self, control: Control, m: &Moment, through: f64, draw: &mut Draw) {
        if m.ratio > 0.0 && m.now >= self.recovery_until {
            let packets = self.rate(m.rtt) * m.step / PACKET;
            if draw.unit() < 1.0 - (-m.ratio * packets).exp() {
                self.lose(control, m);
                return;
            }
        }
        if m.now < self.recovery_until {
            return;
        }
        if self.window < self.threshold {
            // Compounded over the steps of a round trip, this doubles.
            self.window += through * std::f64::consts::LN_2;
        } else {
            let reno = self.window + PACKET * through / self.window;
            self.window = match control {
                Control::Reno => reno,
                Control::Cubic => reno.max(self.cubic(m.now + m.rtt - self.loss_at) * PACKET),
            };
        }
        self.window = self.window.min(self.max_rate * m.rtt);
    }

    fn lose(&mut self, control: Control, m: &Moment) {
        let kept = match control {
            Control::Reno => 0.5,
            Control::Cubic => CUBIC_BETA,
        };
        self.peak = self.window / PACKET;
        self.loss_at = m.now;
        self.window = (self.window * kept).max(2.0 * PACKET);
        self.threshold = self.window;
        self.recovery_until = m.now + m.rtt;
    }

    /// The window, in packets, so long after the last loss (RFC 9438, section 4.2).
    fn cubic(&self, since: f64) -> f64 {
        let k = (self.peak * (1.0 - CUBIC_BETA) / CUBIC_C).cbrt();
        CUBIC_C * (since - k).powi(3) + self.peak
    }
}

/// Bytes of a packet, the paper's.
const PACKET: f64 = 1_500.0;
/// Part of its window that CUBIC keeps on loss.
const CUBIC_BETA: f64 = 0.7;
/// CUBIC's aggressiveness, packets per second cubed.
const CUBIC_C: f64 = 0.4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::workload::arrivals;

    #[test]
    fn a_lone_flow_pays_for_slow_start_only() {
        let files = [Arrival { at: 0.0, bytes: 10e9, max_rate: 10 }];
        let path = TcpPath::default();
        for control in [Control::Reno, Control::Cubic] {
            let delay = tcp(&files, control, path, 1)[0];
            // log2(250 MB / 15 kB) = 14 round trips, in which half a window's time is not lost.
            assert!(delay > files[0].ideal() + 10.0 * path.rtt);
            assert!(delay < files[0].ideal() + 16.0 * path.rtt, "{delay}");
        }
    }

    #[test]
    fn losses_cost_standard_tcp_more() {
        let files = arrivals(0.9, 2_000, 3);
        let mean = |d: Vec<f64>| d.iter().sum::<f64>() / d.len() as f64;
        let path = TcpPath::default();
        let reno = mean(tcp(&files, Control::Reno, path, 1));
        let cubic = mean(tcp(&files, Control::Cubic, path, 1));
        let ideal = files.iter().map(Arrival::ideal).sum::<f64>() / files.len() as f64;
        assert!(reno >= cubic && cubic > ideal, "{reno} {cubic} {ideal}");
    }
}
