//! Monitor intervals: what became of packets that were sent at one rate.

use longhaul_units::{Duration, Instant, Rate};

use crate::feedback::Feedback;

/// Up to four intervals, sent one after another, whose results come a round trip later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Monitor {
    intervals: [Interval; MOST_INTERVALS],
    count: usize,
    /// The one that is being sent; `count` when all are.
    sending: usize,
    /// Bytes whose fate is known.
    settled: u64,
    in_flight: u64,
}

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Interval {
    /// Rate that was asked for.
    pub(super) rate: Rate,
    begun: Instant,
    until: Instant,
    sent: u64,
    /// Its packets are those whose fate is known after `from` bytes, up to `to`.
    from: u64,
    to: u64,
    acked_packets: u64,
    lost_packets: u64,
    slope: Slope,
}

impl Monitor {
    pub(super) fn new() -> Self {
        Self {
            intervals: [Interval::default(); MOST_INTERVALS],
            count: 0,
            sending: 0,
            settled: 0,
            in_flight: 0,
        }
    }

    /// Begins to send at these rates, one after another. What was sent before is of no interest.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        rates: &[Rate],
        packet: u64,
        round_trip: Duration,
    ) {
        self.count = rates.len().min(MOST_INTERVALS);
        for (interval, rate) in self.intervals.iter_mut().zip(rates) {
            *interval = Interval { rate: *rate, ..Interval::default() };
        }
        self.sending = 0;
        self.open(now, packet, round_trip);
    }

    fn open(&mut self, now: Instant, packet: u64, round_trip: Duration) {
        let mark = self.settled.saturating_add(self.in_flight);
        if let Some(interval) = self.intervals[..self.count].get_mut(self.sending) {
            let packets = interval.rate.time_for(LEAST_PACKETS * packet).min(LONGEST);
            interval.begun = now;
            interval.until = now + round_trip.max(packets).max(SHORTEST);
            interval.from = mark;
        }
    }

    /// Time has passed: the next interval may have begun.
    pub(super) fn see(&mut self, now: Instant, packet: u64, round_trip: Duration) {
        if self.next_change().is_none_or(|at| now < at) {
            return;
        }
        let interval = &mut self.intervals[self.sending];
        interval.to = self.settled.saturating_add(self.in_flight).max(interval.from + 1);
        interval.until = now;
        self.sending += 1;
        self.open(now, packet, round_trip);
    }

    /// Returns when the present interval is over.
    pub(super) fn next_change(&self) -> Option<Instant> {
        (self.sending < self.count).then(|| self.intervals[self.sending].until)
    }

    /// The rate of the present interval.
    pub(super) fn rate(&self) -> Option<Rate> {
        (self.sending < self.count).then(|| self.intervals[self.sending].rate)
    }

    /// No result is waited for.
    pub(super) fn is_idle(&self) -> bool {
        self.count == 0
    }

    pub(super) fn on_sent(&mut self, bytes: u64, in_flight: u64) {
        self.in_flight = in_flight;
        if let Some(interval) = self.intervals[..self.count].get_mut(self.sending) {
            interval.sent = interval.sent.saturating_add(bytes);
        }
    }

    /// Takes in a report; gives the results once all are known.
    pub(super) fn on_feedback(&mut self, now: Instant, feedback: &Feedback) -> Option<&[Interval]> {
        let settled = feedback.acked_bytes.saturating_add(feedback.lost_bytes);
        let middle = self.settled.saturating_add(settled / 2);
        self.settled = self.settled.saturating_add(settled);
        self.in_flight = feedback.in_flight;
        // An interval that is still being sent has no end yet.
        let sending = self.sending;
        let begun = self.count.min(sending + 1);
        let known = self.intervals[..begun].iter_mut().enumerate();
        let mut of = known.filter(|(i, interval)| {
            middle >= interval.from && (middle < interval.to || *i >= sending)
        });
        if let Some((_, interval)) = of.next_back() {
            interval.acked_packets += feedback.acked_packets;
            // A mark is a loss that was spared.
            interval.lost_packets += feedback.lost.network() + feedback.marked_packets;
            feedback.rtt.into_iter().for_each(|rtt| interval.slope.add(now - interval.begun, rtt));
        }
        let last = self.intervals[..self.count].last()?;
        let all = sending == self.count && (self.settled >= last.to || feedback.in_flight == 0);
        all.then(|| &self.intervals[..core::mem::take(&mut self.count)])
    }
}

impl Interval {
    /// The rate that was sent at. Batches make it uncertain; what is far below what was asked for is
    /// of a sender that had too little to send, or of another bound.
    pub(super) fn rate_sent(&self) -> Rate {
        let sent = Rate::from_bytes_over(self.sent, self.until - self.begun);
        if sent < self.rate.scale(9, 10) { sent } else { self.rate }
    }

    /// Parts per million.
    pub(super) fn loss(&self) -> u64 {
        let all = self.acked_packets + self.lost_packets;
        (self.lost_packets.min(1 << 40) * 1_000_000).checked_div(all).unwrap_or(0)
    }

    /// Of the round trip over time, parts per million; nothing below `noise`.
    pub(super) fn rtt_gradient(&self, noise: i64) -> i64 {
        let slope = self.slope.ppm();
        if slope.abs() < noise { 0 } else { slope }
    }
}

/// Linear regression of round trips over time, in microseconds.
#[derive(Clone, Copy, Default, Debug)]
struct Slope {
    count: i128,
    times: i128,
    trips: i128,
    products: i128,
    squares: i128,
}

impl Slope {
    fn add(&mut self, time: Duration, trip: Duration) {
        let micros = |time: Duration| time.as_micros().min(MOST_MICROS) as i128;
        let (time, trip) = (micros(time), micros(trip));
        self.count += 1;
        self.times += time;
        self.trips += trip;
        self.products += time * trip;
        self.squares += time * time;
    }

    /// Parts per million, at most as much as time passes.
    fn ppm(&self) -> i64 {
        if self.count < LEAST_SAMPLES {
            return 0;
        }
        let above = self.count * self.products - self.times * self.trips;
        let below = self.count * self.squares - self.times * self.times;
        let slope = (above * 1_000_000).checked_div(below).unwrap_or(0);
        slope.clamp(-1_000_000, 1_000_000) as i64
    }
}

const MOST_INTERVALS: usize = 4;
/// An interval has so many packets at least.
const LEAST_PACKETS: u64 = 10;
const LONGEST: Duration = Duration::from_secs(2);
/// Eight reports at the least time between them.
const SHORTEST: Duration = Duration::from_millis(2);
/// Of a slope.
const LEAST_SAMPLES: i128 = 3;
/// Thirteen days: squares of as many samples as there can be fit.
const MOST_MICROS: u128 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Losses;

    const MS: Duration = Duration::from_millis(1);
    const PACKET: u64 = 1_000;

    #[test]
    fn a_slope_is_that_of_a_line_through_all() {
        let mut slope = Slope::default();
        for (ms, us) in [(0, 40_100), (10, 40_400), (20, 41_100), (30, 41_400)] {
            slope.add(MS * ms, Duration::from_micros(us));
        }
        assert_eq!(slope.ppm(), 46_000);
        assert_eq!(Slope::default().ppm(), 0);
    }

    /// Reports of what was under way when an interval began are of the one before.
    #[test]
    fn an_interval_knows_its_own_packets() {
        let at = |ms| Instant::ZERO + MS * ms;
        let feedback = |acked_packets, lost, in_flight| Feedback {
            acked_packets,
            acked_bytes: acked_packets * PACKET,
            lost: Losses { unknown: lost, ..Losses::default() },
            lost_bytes: lost * PACKET,
            in_flight: in_flight * PACKET,
            rtt: Some(MS * 40),
            ..Feedback::default()
        };
        let mut monitor = Monitor::new();
        monitor.on_sent(50 * PACKET, 50 * PACKET);
        let rates = [Rate::from_mbps(8), Rate::from_mbps(16)];
        monitor.begin(at(0), &rates, PACKET, MS * 40);
        assert_eq!(monitor.rate(), Some(rates[0]));
        assert!(monitor.on_feedback(at(20), &feedback(40, 10, 20)).is_none());
        monitor.on_sent(40 * PACKET, 40 * PACKET);
        assert_eq!(monitor.next_change(), Some(at(40)));
        assert!(monitor.on_feedback(at(39), &feedback(18, 2, 20)).is_none());
        monitor.see(at(40), PACKET, MS * 40);
        assert_eq!(monitor.rate(), Some(rates[1]));
        assert!(monitor.on_feedback(at(60), &feedback(20, 0, 50)).is_none());
        monitor.on_sent(20 * PACKET, 50 * PACKET);
        monitor.see(at(80), PACKET, MS * 40);
        assert_eq!(monitor.rate(), None);
        let results = monitor.on_feedback(at(120), &feedback(40, 10, 0)).unwrap();
        assert_eq!([results[0].loss(), results[1].loss()], [50_000, 200_000]);
        assert_eq!(results[0].rate_sent(), rates[0]);
        assert_eq!(results[1].rate_sent(), Rate::from_mbps(4), "it had too little to send");
        assert!(monitor.on_feedback(at(130), &feedback(1, 0, 0)).is_none());
    }
}
