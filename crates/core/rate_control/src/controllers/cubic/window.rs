//! The window of CUBIC (RFC 9438), for profile `cubic` and for `auto` among flows that fill queues.

use longhaul_units::{Duration, Instant};

use crate::controllers::paced::MOST_WINDOW;

/// A window that grows by the cube of the time since it was last cut.
///
/// Counts as the RFC does in packets and seconds: C = 0.4, beta = 0.7, and 0.85 where packets were
/// marked and none lost (RFC 8511).
#[derive(Clone, Debug)]
pub(in crate::controllers) struct CubicWindow {
    packet: u64,
    bytes: u64,
    least: u64,
    /// Packets, at the last congestion event (W_max).
    max: u64,
    epoch: Instant,
    /// Milliseconds from the epoch until the window is back at `max`.
    k: u64,
    /// Window that Reno would have (W_est), in 1/1024 packets.
    friendly: u64,
}

impl CubicWindow {
    /// A window of `bytes` that was never cut, and never falls below `least` packets.
    pub(in crate::controllers) fn new(now: Instant, packet: u64, bytes: u64, least: u64) -> Self {
        let bytes = bytes.clamp(least * packet, MOST_WINDOW);
        let mut window =
            Self { packet, bytes, least: least * packet, max: 0, epoch: now, k: 0, friendly: 0 };
        window.begin(now);
        window
    }

    pub(in crate::controllers) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Milliseconds that it takes from a cut until the window is back where it was.
    pub(in crate::controllers) fn k(&self) -> Duration {
        Duration::from_millis(self.k)
    }

    /// Congestion avoidance begins with the present window: section 4.2.
    pub(in crate::controllers) fn begin(&mut self, now: Instant) {
        let packets = self.bytes / self.packet;
        self.max = self.max.max(packets);
        self.epoch = now;
        // K = cbrt((max - window) / 0.4) seconds.
        self.k = cbrt((self.max - packets).saturating_mul(2_500_000_000));
        self.friendly = packets << 10;
    }

    /// Packets were lost, or only marked: sections 4.6 and 4.7.
    pub(in crate::controllers) fn on_congestion(&mut self, now: Instant, marked: bool) {
        let packets = self.bytes / self.packet;
        // Fast convergence.
        self.max = if packets < self.max { packets * 17 / 20 } else { packets };
        let percent = if marked { 85 } else { 70 };
        self.set(self.bytes * percent / 100);
        self.begin(now);
    }

    /// So much of the window, and of where it is to come back to, is left to others.
    pub(in crate::controllers) fn give_way(&mut self, now: Instant, percent: u64) {
        let left = 100 - percent.min(100);
        self.max = self.max * left / 100;
        self.set(self.bytes * left / 100);
        self.begin(now);
    }

    /// `acked` bytes arrived: sections 4.3 to 4.5.
    pub(in crate::controllers) fn on_acked(
        &mut self,
        now: Instant,
        round_trip: Duration,
        acked: u64,
    ) {
        let packets = (self.bytes / self.packet).max(1);
        // Whole packets: what is not full is control.
        let acked = u128::from(acked.min(MOST_WINDOW) / self.packet);
        let t = (now - self.epoch + round_trip).as_millis().min(MOST_MILLIS) as i64;
        let offset = i128::from(t - self.k as i64);
        let cubic = i128::from(self.max) + offset * offset * offset * 4 / 10_000_000_000;
        let target = cubic.clamp(i128::from(packets), i128::from(packets) * 3 / 2) as u64;
        // 0.53 packets a round trip.
        let friendly = ((acked * 543) << 10) / u128::from(self.friendly.max(1024));
        self.friendly += friendly as u64;
        let growth =
            u128::from(target - packets) * acked * u128::from(self.packet) / u128::from(packets);
        let growth = growth.min(u128::from(MOST_WINDOW)) as u64;
        self.set((self.bytes + growth).max((self.friendly >> 10).saturating_mul(self.packet)));
    }

    /// Sets the window, whatever the law says.
    pub(in crate::controllers) fn set(&mut self, bytes: u64) {
        self.bytes = bytes.clamp(self.least, MOST_WINDOW);
        self.friendly = self.friendly.min((MOST_WINDOW / self.packet) << 10);
    }

    /// The window was not used for this time, which does not count: section 5.8.
    pub(in crate::controllers) fn hold(&mut self, time: Duration) {
        self.epoch += time;
    }

    /// The size of packets has changed.
    pub(in crate::controllers) fn set_packet(&mut self, packet: u64) {
        if packet != self.packet {
            let same = |packets: u64| packets * self.packet / packet;
            (self.max, self.friendly) = (same(self.max), same(self.friendly >> 10) << 10);
            self.least = self.least / self.packet * packet;
            self.packet = packet;
            self.set(self.bytes);
        }
    }
}

/// Integer cube root, rounded down.
fn cbrt(value: u64) -> u64 {
    let (mut low, mut high) = (0u64, 2_642_245);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if middle * middle * middle <= value { low = middle } else { high = middle - 1 }
    }
    low
}

/// Some months; its cube fits the sums.
const MOST_MILLIS: u128 = 1 << 34;

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1_500;
    const ROUND: Duration = Duration::from_millis(50);

    /// Packets of the window, a round trip at a time.
    fn rounds(window: &mut CubicWindow, from: Instant, count: u32) -> u64 {
        for round in 0..count {
            window.on_acked(from + ROUND * round, ROUND, window.bytes());
        }
        window.bytes() / PACKET
    }

    /// W_cubic(K) = W_max, and W_cubic(2 K) is as far above as the cut went below.
    #[test]
    fn it_is_back_after_k_and_as_far_above_after_twice_that() {
        let now = Instant::from_nanos(1);
        let mut window = CubicWindow::new(now, PACKET, 1_000 * PACKET, 2);
        window.on_congestion(now, false);
        assert_eq!(window.bytes(), 700 * PACKET);
        // cbrt(300 / 0.4) s
        let k = window.k();
        assert_eq!(k, Duration::from_millis(9_085));
        let rounds_of = |time: Duration| (time.as_millis() / ROUND.as_millis()) as u32;
        let back = rounds(&mut window, now, rounds_of(k));
        assert!((990..=1_001).contains(&back), "{back}");
        let above = rounds(&mut window, now + k, rounds_of(k));
        assert!((1_270..=1_305).contains(&above), "{above}");
    }

    #[test]
    fn where_cubic_is_slower_it_is_reno() {
        let now = Instant::from_nanos(1);
        let mut window = CubicWindow::new(now, PACKET, 20 * PACKET, 2);
        window.on_congestion(now, false);
        assert_eq!(window.bytes(), 14 * PACKET);
        // 0.53 packets a round trip: as Reno on average.
        let after = rounds(&mut window, now, 20);
        assert!((23..=25).contains(&after), "{after}");
    }

    #[test]
    fn who_is_cut_before_it_was_back_makes_room() {
        let now = Instant::from_nanos(1);
        let mut window = CubicWindow::new(now, PACKET, 1_000 * PACKET, 2);
        window.on_congestion(now, false);
        window.on_congestion(now, true);
        assert_eq!(window.bytes(), 595 * PACKET);
        // Fast convergence: 700 x 0.85 packets, which is where it is.
        assert_eq!(window.k(), Duration::ZERO);
    }

    #[test]
    fn who_gives_way_does_not_come_back_to_where_it_was() {
        let now = Instant::from_nanos(1);
        let mut window = CubicWindow::new(now, PACKET, 1_000 * PACKET, 2);
        window.on_congestion(now, false);
        let k = window.k();
        window.give_way(now, 40);
        assert_eq!(window.bytes(), 420 * PACKET);
        // cbrt((600 - 420) / 0.4) s
        assert!(window.k() < k && window.k() == Duration::from_millis(7_663));
    }

    #[test]
    fn larger_packets_make_no_larger_window() {
        let mut window = CubicWindow::new(Instant::ZERO, PACKET, 600 * PACKET, 2);
        window.on_congestion(Instant::ZERO, false);
        let before = window.bytes();
        window.set_packet(9_000);
        window.begin(Instant::ZERO);
        assert_eq!(window.bytes(), before);
        // cbrt(30 / 0.4) s
        assert_eq!(window.k(), Duration::from_millis(4_217));
    }
}
