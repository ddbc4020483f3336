use longhaul_units::{Bottleneck, Bytes, Duration, Instant, Rate};

use crate::estimates::Estimates;
use crate::feedback::{Feedback, HostLimit, ReceiverState};
use crate::rtt::RttEstimator;

/// Bound by the receiving host, whatever the path would carry: no controller's business.
///
/// Bytes in flight beyond two round trips of arrivals have to fit a share of the socket buffer
/// that the receiver reported. Losses in the host take a quarter off that share, and cap the rate at what
/// arrived; both recover slowly. The limit that it announces before it loses anything caps the rate until
/// that expires or is lifted. No more leaves back to back than half of the buffer holds.
///
/// A sender that is *near* overruns a buffer before the host can say a word. So there less has to be
/// in flight beside what arrives, and from the start: a queue of milliseconds keeps any reader busy, and
/// one that is longer costs it the scheduler's favour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiverBound {
    buffer: Option<u64>,
    /// Share of the buffer that may be in use, in 1/1024.
    share: u64,
    /// After losses in the host: what it managed, rising slowly.
    cap: Option<Rate>,
    /// Time when either was last cut.
    cut: Instant,
    /// Most bytes in flight in this round, and in the last.
    flight: u64,
    last_flight: u64,
    limit: Option<HostLimit>,
    /// Least rate and window: nobody has to stop.
    least: (Rate, u64),
    window: Option<u64>,
    /// The same while the controller starts, where the sender is near.
    start_window: Option<u64>,
}

impl ReceiverBound {
    /// Bound by a receiver that has reported nothing.
    pub fn new(now: Instant) -> Self {
        Self {
            buffer: None,
            share: MOST_SHARE,
            cap: None,
            cut: now,
            flight: 0,
            last_flight: 0,
            limit: None,
            least: (Rate::ZERO, 0),
            window: None,
            start_window: None,
        }
    }

    /// A batch left, and so much is in flight.
    pub fn on_sent(&mut self, in_flight: u64) {
        self.flight = self.flight.max(in_flight);
    }

    /// Takes in feedback, which `estimates` have taken in before, and what the receiver says of
    /// itself.
    pub fn on_feedback(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        estimates: &Estimates,
        feedback: &Feedback,
        receiver: &ReceiverState,
    ) {
        self.buffer = receiver.socket_buffer.map(Bytes::get).or(self.buffer);
        self.limit = receiver.limit;
        self.expire(now);
        let round_is_over = estimates.completed.round.is_some();
        if round_is_over {
            self.last_flight = core::mem::take(&mut self.flight);
        }
        let recent = estimates.recent();
        if feedback.lost.socket + feedback.lost.host > 0
            && now - self.cut > estimates.round_time(rtt)
        {
            self.cut = now;
            self.share = (self.share * 3 / 4).max(LEAST_SHARE);
            // A few packets a round trip say nothing of what it takes.
            let tells = recent.bytes_in(rtt.smoothed()) >= TELLING_PACKETS * estimates.packet();
            self.cap = if tells { Some(recent.scale(9, 10)) } else { self.cap };
        } else if round_is_over {
            self.share = (self.share + 1).min(MOST_SHARE);
            let raised = self.cap.map(|cap| cap.scale(103, 100));
            self.cap = raised.filter(|cap| *cap <= recent.scale(3, 2));
        }
        let packet = estimates.packet();
        self.least = (Rate::from_bytes_over(2 * packet, rtt.smoothed()), 4 * packet);
        let is_near = rtt.min() < NEAR;
        let room = self.buffer.map(|buffer| {
            let room = buffer.min(MOST_BUFFER) / 1024 * self.share;
            let busy = recent.bytes_in(BUSY_TIME).max(BUSY_BYTES);
            if is_near { room.min(busy) } else { room }
        });
        self.start_window = self.buffer.zip(room).filter(|_| is_near).map(|(buffer, room)| {
            // What the first trains show of a rate is often too much.
            recent.bytes_in(rtt.min()).min(buffer / 4) + room
        });
        // Before anything was delivered nobody knows what the path itself holds.
        let known = room.filter(|_| recent > Rate::ZERO);
        self.window = known.map(|room| recent.bytes_in(rtt.smoothed()) * 2 + room);
    }

    /// It has announced a limit, apart from feedback of this path.
    pub fn heed(&mut self, limit: HostLimit) {
        self.limit = Some(limit);
    }

    /// Forgets a limit whose time is over; whether there was one.
    pub fn expire(&mut self, now: Instant) -> bool {
        let is_over = self.limit.is_some_and(|limit| limit.until <= now);
        self.limit = self.limit.filter(|_| !is_over);
        is_over
    }

    /// Returns when [`Self::expire`] has something to do.
    pub fn expires(&self) -> Option<Instant> {
        self.limit.map(|limit| limit.until)
    }

    /// Limit that the receiver announced for the whole connection.
    pub fn announced(&self) -> Option<Rate> {
        self.limit.map(|limit| limit.rate)
    }

    /// The rates that it takes from a path that has so many parts per million of the connection's,
    /// as far as they are known to be limited, and by what.
    pub fn rates(&self, share: u32) -> impl Iterator<Item = (Bottleneck, Rate)> {
        let limit = self.limit.map(|limit| (limit.cause, limit.rate.scale(share, 1_000_000)));
        let cpu = self.cap.map(|rate| (Bottleneck::ReceiverCpu, rate));
        let least = self.least.0;
        [limit, cpu].into_iter().flatten().map(move |(bound, rate)| (bound, rate.max(least)))
    }

    /// Most bytes that may come back to back: half of its buffer, for something may be there already.
    pub fn burst(&self) -> Option<u64> {
        self.buffer.map(|buffer| (buffer / 2).max(self.least.1 / 2))
    }

    /// Most bytes in flight, where that is limited, and whether as many are. A controller that `starts`
    /// has a small window of its own, and what is delivered says little yet of what a long path holds.
    pub fn window(&self, starts: bool) -> Option<(u64, bool)> {
        let window = if starts { self.start_window } else { self.window }?.max(self.least.1);
        Some((window, self.flight.max(self.last_flight) >= window / 4 * 3))
    }
}

/// 1400-byte packets cost 1.65 times their size in the buffer, and the kernel gives memory back in
/// quarters.
const MOST_SHARE: u64 = 384;
const LEAST_SHARE: u64 = 32;
/// A shorter round trip is over before the receiver's sentinel has seen anything and spoken.
const NEAR: Duration = Duration::from_millis(4);
/// Queue of a reader that is to stay busy: some turns of a scheduler and wake-ups.
const BUSY_TIME: Duration = Duration::from_millis(2);
const BUSY_BYTES: u64 = 768 << 10;
const TELLING_PACKETS: u64 = 32;
/// More than any kernel grants, so that products stay in range whatever a peer claims.
const MOST_BUFFER: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Delivery;

    const BUFFER: u64 = 212_992;

    /// Bound on a sender `round_trip` away, once the receiver has reported its buffer, and `rate` is delivered.
    fn bound_of(round_trip: Duration, rate: Rate) -> ReceiverBound {
        let start = Instant::from_nanos(1);
        let (mut rtt, mut estimates) =
            (RttEstimator::new(round_trip), Estimates::new(start, 1_500));
        let mut bound = ReceiverBound::new(start);
        let interval = Duration::from_millis(5);
        let delivery = Delivery { rate, interval, sent_over: interval, application_limited: false };
        for tick in 1..=8 {
            let now = start + interval * tick;
            rtt.update(now, round_trip);
            let delivery = (rate > Rate::ZERO).then_some(delivery);
            let feedback = Feedback { rtt: Some(round_trip), delivery, ..Feedback::default() };
            let feedback = estimates.on_feedback(now, &rtt, &feedback);
            let state =
                ReceiverState { socket_buffer: Some(Bytes::new(BUFFER)), ..Default::default() };
            bound.on_feedback(now, &rtt, &estimates, &feedback, &state);
        }
        bound
    }

    #[test]
    fn a_sender_nearby_keeps_to_the_buffer_from_the_start() {
        let window = |bound: ReceiverBound, starts| bound.window(starts).map(|(most, _)| most);
        let near = Duration::from_micros(200);
        let room = BUFFER / 1_024 * MOST_SHARE;
        let nothing_came = bound_of(near, Rate::ZERO);
        assert_eq!((window(nothing_came, true), window(nothing_came, false)), (Some(room), None));
        // A first train often shows too much: a quarter of the buffer at most.
        assert_eq!(window(bound_of(near, Rate::from_gbps(1)), true), Some(room + 25_000));
        assert_eq!(window(bound_of(near, Rate::from_gbps(40)), true), Some(room + BUFFER / 4));
        assert_eq!(window(bound_of(near, Rate::from_gbps(1)), false), Some(room + 50_000));
        let far = bound_of(Duration::from_millis(20), Rate::from_gbps(1));
        assert_eq!((window(far, true), window(far, false)), (None, Some(room + 5_000_000)));
    }

    #[test]
    fn no_more_comes_back_to_back_than_half_of_the_buffer() {
        let bound = bound_of(Duration::from_millis(20), Rate::ZERO);
        assert_eq!(bound.burst(), Some(BUFFER / 2));
        assert_eq!(ReceiverBound::new(Instant::ZERO).burst(), None, "no buffer was reported");
    }
}
