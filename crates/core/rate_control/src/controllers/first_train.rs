//! The first flight as a packet train: how far a start-up may double.

use longhaul_units::{Duration, Rate};

use crate::controller::Sent;
use crate::feedback::Feedback;

/// The first flight, which leaves at once, and the narrowest link that the spread of trains has shown since.
///
/// A start-up that doubles finds out a round trip later that it has sent twice what the path carries, which a short
/// queue drops. The spread of packets sent back to back shows the link before that (Keshav, SIGCOMM 1991;
/// Hoe, SIGCOMM 1996, has slow start end there). It may be wrong, where others send or a host was late: beyond it
/// start-up goes on, by an eighth a round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstTrain {
    /// Bytes of the first flight whose fate is open.
    open: u64,
    /// Data has left.
    has_left: bool,
    narrowest: Option<Rate>,
}

impl FirstTrain {
    /// A flight of so many bytes.
    pub(super) const fn new(bytes: u64) -> Self {
        Self { open: bytes, has_left: false, narrowest: None }
    }

    pub(super) fn on_sent(&mut self, sent: &Sent) {
        self.has_left |= !sent.control;
    }

    pub(super) fn on_feedback(&mut self, feedback: &Feedback) {
        let settled = feedback.acked_bytes.saturating_add(feedback.lost_bytes);
        // A few control messages come before the data; as many bytes of them as the flight has are a flight, too.
        let over = self.has_left && feedback.in_flight == 0;
        self.open = if over { 0 } else { self.open.saturating_sub(settled) };
        if let Some(train) = feedback.delivery.filter(|train| train.is_spread()) {
            self.narrowest = self.narrowest.max(Some(train.rate));
        }
    }

    /// Returns whether the first flight goes on: until all of it is reported nothing is known.
    pub(super) fn is_under_way(&self) -> bool {
        self.open > 0
    }

    /// A silence ends the first flight.
    pub(super) fn end(&mut self) {
        self.open = 0;
    }

    /// The rate for a start-up that wants `wanted`, and has seen `arrived` get through.
    pub(super) fn bounded(&self, wanted: Rate, arrived: Rate) -> Rate {
        self.narrowest.map_or(wanted, |narrowest| wanted.min(narrowest.max(arrived.scale(9, 8))))
    }

    /// Returns by how many bytes a window may grow for `acked` bytes that arrived.
    pub(super) fn growth(&self, window: u64, round_trip: Duration, acked: u64) -> u64 {
        let doubles = self.product(round_trip).saturating_sub(window).min(acked);
        doubles + (acked - doubles) / CAREFUL
    }

    /// Returns whether slow start is over: the window has filled the narrowest link, and `queue` shows it. The
    /// bounds are those by which HyStart++ suspects it (RFC 9406 section 4.3).
    pub(super) fn is_filled(&self, window: u64, round_trip: Duration, queue: Duration) -> bool {
        let least = (round_trip / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
        window >= self.product(round_trip) && queue >= least
    }

    /// Bytes that fill the narrowest link, where one was shown.
    fn product(&self, round_trip: Duration) -> u64 {
        self.narrowest.map_or(u64::MAX, |narrowest| narrowest.bytes_in(round_trip))
    }
}

/// Part of a round trip's packets by which a window grows that has filled the narrowest link.
const CAREFUL: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feedback::Delivery;

    const RTT: Duration = Duration::from_millis(40);

    fn report(acked_bytes: u64, in_flight: u64, spread: Option<(u64, bool)>) -> Feedback {
        let delivery = spread.map(|(mbps, is_spread)| Delivery {
            rate: Rate::from_mbps(mbps),
            interval: Duration::from_millis(1),
            sent_over: Duration::from_millis(u64::from(!is_spread)),
            application_limited: false,
        });
        Feedback { acked_bytes, in_flight, delivery, ..Feedback::default() }
    }

    #[test]
    fn the_first_flight_lasts_until_all_of_it_is_reported() {
        let mut train = FirstTrain::new(15_000);
        train.on_sent(&Sent { control: true, ..Sent::default() });
        train.on_feedback(&report(300, 0, None));
        assert!(train.is_under_way(), "that was control");
        let mut messages = train;
        messages.on_feedback(&report(15_000, 0, None));
        assert!(!messages.is_under_way(), "a long message has a window, too");
        train.on_sent(&Sent::default());
        train.on_feedback(&report(13_500, 15_000, None));
        assert!(train.is_under_way());
        train.on_feedback(&report(1_500, 15_000, None));
        assert!(!train.is_under_way());
        let mut short = FirstTrain::new(15_000);
        short.on_sent(&Sent::default());
        short.on_feedback(&report(1_500, 0, None));
        assert!(!short.is_under_way(), "there was no more to send");
        assert!(!FirstTrain::new(0).is_under_way(), "behind a takeover");
    }

    #[test]
    fn beyond_the_narrowest_link_a_start_up_grows_by_an_eighth() {
        let mbps = Rate::from_mbps;
        let mut train = FirstTrain::new(0);
        train.on_sent(&Sent::default());
        train.on_feedback(&report(15_000, 15_000, Some((500, false))));
        assert_eq!(train.bounded(mbps(900), mbps(1)), mbps(900), "as it was sent");
        assert_eq!(train.growth(1 << 40, RTT, 800), 800);
        assert!(!train.is_filled(1 << 40, RTT, RTT));
        train.on_feedback(&report(15_000, 15_000, Some((160, true))));
        train.on_feedback(&report(15_000, 15_000, Some((200, true))));
        train.on_feedback(&report(15_000, 15_000, Some((40, true))));
        assert_eq!(train.bounded(mbps(150), mbps(100)), mbps(150));
        assert_eq!(train.bounded(mbps(300), mbps(150)), mbps(200));
        assert_eq!(train.bounded(mbps(600), mbps(240)), mbps(270));
        // 200 Mb/s for 40 ms are 1 MB.
        assert_eq!(train.growth(500_000, RTT, 8_000), 8_000);
        assert_eq!(train.growth(999_200, RTT, 8_000), 800 + 900);
        assert_eq!(train.growth(2_000_000, RTT, 8_000), 1_000);
        assert!(!train.is_filled(999_999, RTT, RTT));
        assert!(!train.is_filled(1_000_000, RTT, Duration::from_micros(4_999)));
        assert!(train.is_filled(1_000_000, RTT, Duration::from_millis(5)));
    }
}
