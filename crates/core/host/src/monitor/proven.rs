//! Rate that a reader has proven to take.

use longhaul_units::{Duration, Instant, Rate};

/// Not every stall overflows the buffer that is too small for its length: what waits in front of the
/// socket (in a device, in the kernel's backlog) has an age, too. The socket counts what it drops: what
/// comes and is not dropped is taken, whatever the lengths say, and a little more is tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Proven {
    rate: Rate,
    /// Rate that came when too much was dropped last; none once as much was not.
    failed: Rate,
    /// Time when too much was dropped last, and whether the rate was cut for it.
    dropped: Option<Instant>,
    is_cut: bool,
    /// Bytes that may be dropped yet, where some were: negative where more were than may.
    budget: f64,
}

/// Arrivals of an interval.
pub(super) struct Came {
    pub(super) bytes: u64,
    /// Bytes that the socket dropped.
    pub(super) dropped: u64,
    pub(super) passed: Duration,
    /// Rate of the interval before.
    pub(super) before: Rate,
}

impl Proven {
    /// The rate at most, where its buffer would bridge the reader's stalls at `bridged`: that, or what
    /// it has proven to take. Behind drops the latter only: they come of what no stall tells.
    pub(super) fn bound(&self, bridged: Option<Rate>) -> Option<Rate> {
        match self.failed {
            Rate::ZERO => bridged.map(|bridged| bridged.max(self.rate)),
            _ => Some(self.rate),
        }
    }

    /// Weighs an interval, where `overflow` is the share of all bytes that may be dropped.
    pub(super) fn end_interval(
        &mut self,
        now: Instant,
        came: &Came,
        bridged: Option<Rate>,
        overflow: f64,
    ) {
        let Came { bytes, dropped, passed, before } = *came;
        let arrived = Rate::from_bytes_over(bytes, passed);
        let second = overflow * arrived.bytes_in(Duration::from_secs(1)) as f64;
        let allowed = overflow * (bytes as f64 + dropped as f64);
        self.budget = (self.budget + allowed - dropped as f64).clamp(-second, second);
        match (dropped > 0, self.budget < 0.0) {
            (true, true) => {
                // What happens once a second at most is repaired: to be slower for it costs more. And in
                // the interval behind a cut packets are still dropped that were sent before the limit arrived.
                let last = self.dropped.replace(now);
                let again = last.is_some_and(|last| now - last <= REPEATED.max(passed * 2));
                self.is_cut = again && !self.is_cut;
                if self.is_cut {
                    // How little comes while silence was asked for says nothing.
                    self.cut(arrived.max(before), bridged);
                }
            }
            (false, false) => {
                self.is_cut = false;
                self.grow(arrived, bridged);
            }
            _ => self.is_cut = false,
        }
    }

    fn cut(&mut self, took: Rate, bridged: Option<Rate>) {
        let most = if self.rate > Rate::ZERO { self.rate.min(took) } else { took };
        // Whatever drops, it is not all the rate's doing.
        let least = match bridged {
            Some(bridged) if bridged < took => bridged,
            _ => bridged.unwrap_or_default().scale(1, 4),
        };
        self.rate = most.scale(3, 4).max(least);
        self.failed = took;
    }

    fn grow(&mut self, arrived: Rate, bridged: Option<Rate>) {
        let bound = self.bound(bridged);
        self.rate = self.rate.max(arrived);
        if self.rate > self.failed {
            self.failed = Rate::ZERO;
        }
        if bound.is_some_and(|bound| bound < arrived.scale(5, 4)) {
            let near = self.failed > Rate::ZERO && self.rate > self.failed.scale(15, 16);
            let (more, of) = match self.dropped {
                None => (5, 4),
                // What failed last is gone up to with care.
                Some(_) if near => (65, 64),
                Some(_) => (17, 16),
            };
            self.rate = self.rate.scale(more, of);
        }
    }
}

/// Drops that are further apart are no part of a schedule.
const REPEATED: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);
    const BRIDGED: Option<Rate> = Some(Rate::from_mbps(400));

    /// Returns the rate after intervals in which `mbps` came, with a hundredth dropped where that is more
    /// than `most`.
    fn after(proven: &mut Proven, from: u64, rates: &[u64], most: u64) -> Rate {
        for (interval, mbps) in (from..).zip(rates) {
            let bytes = Rate::from_mbps(*mbps).bytes_in(INTERVAL);
            let dropped = if *mbps > most { bytes / 100 } else { 0 };
            let came = Came { bytes, dropped, passed: INTERVAL, before: Rate::ZERO };
            let now = Instant::ZERO + INTERVAL * (interval as u32 + 1);
            proven.end_interval(now, &came, BRIDGED, 0.0005);
        }
        proven.bound(BRIDGED).unwrap()
    }

    #[test]
    fn what_comes_and_is_not_dropped_is_taken_and_more_is_tried() {
        let mut proven = Proven::default();
        assert_eq!(
            after(&mut proven, 0, &[100], 2_000),
            Rate::from_mbps(400),
            "far below the bound"
        );
        assert_eq!(after(&mut proven, 1, &[400], 2_000), Rate::from_mbps(500));
        assert_eq!(after(&mut proven, 2, &[500], 2_000), Rate::from_mbps(625));
        assert_eq!(after(&mut proven, 3, &[300], 2_000), Rate::from_mbps(625), "it stays proven");
    }

    #[test]
    fn drops_that_go_on_cut_it_and_it_comes_back_with_care() {
        let mut proven = Proven::default();
        after(&mut proven, 0, &[800], 2_000);
        assert_eq!(
            after(&mut proven, 1, &[1_000], 900),
            Rate::from_mbps(1_000),
            "once is no schedule"
        );
        assert_eq!(after(&mut proven, 2, &[1_000], 900), Rate::from_mbps(750));
        assert_eq!(after(&mut proven, 3, &[1_000], 900), Rate::from_mbps(750), "sent before that");
        // Twice a hundredth was dropped, more than may in a second: for that long nothing is tried.
        let rates = [750; 9];
        assert_eq!(after(&mut proven, 4, &rates, 900), Rate::from_mbps(750));
        let rate = after(&mut proven, 13, &[750, 750, 797, 846, 900], 900);
        assert!((Rate::from_mbps(840)..Rate::from_mbps(960)).contains(&rate), "{rate}");
    }

    #[test]
    fn drops_once_in_a_while_cost_no_rate() {
        let mut proven = Proven::default();
        after(&mut proven, 0, &[800], 2_000);
        let before = proven.bound(BRIDGED).unwrap();
        for second in 1..20 {
            let mut rates = [800; 12];
            rates[0] = 1_000;
            assert!(after(&mut proven, second * 12, &rates, 900) >= before);
        }
    }

    #[test]
    fn drops_that_no_rate_ends_leave_what_the_buffer_bridges() {
        let mut proven = Proven::default();
        assert_eq!(after(&mut proven, 0, &[1_000; 100], 900), Rate::from_mbps(400));
    }
}
