//! Liveness of the peer: when to ask it, and when to give it up.

use longhaul_units::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Liveness {
    last_received: Instant,
    /// Time of the last acknowledgement of an ack-eliciting packet, while one is unsettled.
    waiting_since: Option<Instant>,
    /// Probe timeouts since then.
    timeouts: u32,

    /// A PING is to ask the peer for a sign of life.
    ping_wanted: bool,
    /// Time of the last PING to a peer that did not answer.
    pinged: Instant,
}

impl Liveness {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            last_received: now,
            waiting_since: None,
            timeouts: 0,
            ping_wanted: false,
            pinged: now,
        }
    }

    /// A packet of the peer authenticated.
    pub(super) fn on_received(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// An ack-eliciting packet went out.
    #[inline]
    pub(super) fn on_asked(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    /// A packet that went out has arrived.
    pub(super) fn on_arrived(&mut self) {
        self.timeouts = 0;
    }

    /// The peer has reported; packets still in flight are to be acknowledged.
    pub(super) fn on_report(&mut self, now: Instant, is_unsettled: bool) {
        self.waiting_since = is_unsettled.then_some(now);
    }

    /// The peer did not answer in time.
    pub(super) fn on_probe_timeout(&mut self, now: Instant) {
        self.timeouts += 1;
        self.waiting_since = Some(now);
        self.ask_again(now);
    }

    /// The time of [`Liveness::ask_again_due`] has come.
    pub(super) fn ask_again(&mut self, now: Instant) {
        self.ping_wanted = true;
        self.pinged = now;
    }

    /// When a peer that does not answer is asked again. Probe timeouts become rare, as all that is sent
    /// into a silence has to; but a path that was dark for some seconds is to be found again in a round
    /// trip or two. One small packet in more than a round trip is no load (RFC 8085, section 3.1.3).
    pub(super) fn ask_again_due(&self, first: Duration) -> Option<Instant> {
        let silent = self.timeouts > 0 && self.waiting_since.is_some() && !self.ping_wanted;
        let due = self.pinged + first.max(ASKED_APART);
        (silent && due < self.last_received + ASKED_FOR).then_some(due)
    }

    /// The lane moves to another path. A peer that was silent on the last one gets its full time here, and
    /// learns of the new path by a PING over it.
    pub(super) fn on_moved(&mut self, now: Instant) {
        self.timeouts = 0;
        self.waiting_since = self.waiting_since.map(|_| now);
        self.ping_wanted = true;
    }

    pub(super) fn want_ping(&mut self) {
        self.ping_wanted = true;
    }

    pub(super) fn wants_ping(&self) -> bool {
        self.ping_wanted
    }

    pub(super) fn take_ping(&mut self) -> bool {
        core::mem::take(&mut self.ping_wanted)
    }

    /// When the next probe timeout falls, while something is unsettled; the `first` falls after so
    /// long.
    pub(super) fn probe_timeout(&self, first: Duration) -> Option<Instant> {
        let first = first.max(PROBE_TIMEOUT_MIN);
        let doubled = first * (1 << self.timeouts.min(8));
        self.waiting_since.map(|since| since + doubled.min(PROBE_TIMEOUT_MAX.max(first)))
    }

    /// A peer that has nothing to say must still be able to show that it lives: when to ask it,
    /// while nothing that is unsettled asks already.
    pub(super) fn keep_alive_due(&self, idle_timeout: Duration) -> Option<Instant> {
        let due = self.last_received + idle_timeout / 3;
        (!self.ping_wanted && self.waiting_since.is_none()).then_some(due)
    }

    /// When the peer is given up.
    pub(super) fn idle_at(&self, idle_timeout: Duration) -> Instant {
        self.last_received + idle_timeout
    }
}

/// A silence that lasts longer may last for ever.
const ASKED_FOR: Duration = Duration::from_secs(5);
const ASKED_APART: Duration = Duration::from_millis(25);
const PROBE_TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// A busy host runs a thread this much later than it should.
const PROBE_TIMEOUT_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_is_asked_again_for_some_seconds() {
        let (begin, first) = (Instant::ZERO + Duration::from_secs(1), Duration::from_millis(80));
        let mut liveness = Liveness::new(begin);
        liveness.on_asked(begin);
        assert_eq!(liveness.ask_again_due(first), None, "no probe timeout yet");
        liveness.on_probe_timeout(begin + first);
        assert!(liveness.take_ping());
        let mut asked = 0;
        while let Some(due) = liveness.ask_again_due(first) {
            liveness.ask_again(due);
            assert_eq!(liveness.ask_again_due(first), None, "one at a time");
            assert!(liveness.take_ping());
            asked += 1;
        }
        assert_eq!(asked, 61, "each 80 ms up to 5 s");
        liveness.on_arrived();
        liveness.on_received(begin + Duration::from_secs(9));
        assert_eq!(liveness.ask_again_due(first), None);
    }
}
