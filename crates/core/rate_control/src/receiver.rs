use longhaul_units::{Bottleneck, Bytes, Instant, Rate};

use crate::{Estimates, Feedback, HostLimit, ReceiverState, RttEstimator};

/// What the receiving host takes, whatever the path would carry: no controller's business.
///
/// What is in flight beyond two round trips of what arrives has to fit a share of the socket buffer
/// that the receiver told. Losses in the host take a quarter off that share, and cap the rate at what
/// arrived; both recover slowly. The limit that it announces before it loses anything caps the rate until
/// that expires or is lifted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiverBound {
    buffer: Option<u64>,
    /// Share of the buffer that may be in use, in 1/1024.
    share: u64,
    /// After losses in the host: what it managed, rising slowly.
    cap: Option<Rate>,
    /// When either was last cut.
    cut: Instant,
    /// Most bytes in flight in this round, and in the last.
    flight: u64,
    last_flight: u64,
    limit: Option<HostLimit>,
    /// Least rate and window: nobody has to stop.
    least: (Rate, u64),
    window: Option<u64>,
}

impl ReceiverBound {
    /// Of a receiver that has told nothing.
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
        }
    }

    /// So much is in flight, now that a batch left.
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
        // Before anything was delivered nobody knows what the path itself holds.
        let known = self.buffer.filter(|_| recent > Rate::ZERO);
        self.window = known.map(|buffer| {
            recent.bytes_in(rtt.smoothed()) * 2 + buffer.min(MOST_BUFFER) / 1024 * self.share
        });
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

    /// When [`Self::expire`] has something to do.
    pub fn expires(&self) -> Option<Instant> {
        self.limit.map(|limit| limit.until)
    }

    /// What it says that it takes, of the whole connection.
    pub fn told(&self) -> Option<Rate> {
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

    /// Most bytes in flight, where that is limited, and whether as many are.
    pub fn window(&self) -> Option<(u64, bool)> {
        let window = self.window?.max(self.least.1);
        Some((window, self.flight.max(self.last_flight) >= window / 4 * 3))
    }
}

/// 1400-byte packets cost 1.65 times their size in the buffer, and the kernel gives memory back in
/// quarters.
const MOST_SHARE: u64 = 384;
const LEAST_SHARE: u64 = 32;
const TELLING_PACKETS: u64 = 32;
/// More than any kernel grants, so that products stay in range whatever a peer claims.
const MOST_BUFFER: u64 = 1 << 40;
