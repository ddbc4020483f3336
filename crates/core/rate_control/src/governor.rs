use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use crate::Pacing;

/// Takes the minimum of the controller's rate and all other bounds, and keeps account of which one
/// it was.
#[derive(Clone, Debug)]
pub struct Governor {
    limits: [Option<Rate>; Bottleneck::COUNT],
    controller: Bottleneck,
    active: Bottleneck,
    since: Instant,
    spent: [Duration; Bottleneck::COUNT],
}

impl Governor {
    /// No bounds but the controller's, which starts up.
    pub fn new(now: Instant) -> Self {
        Self {
            limits: [None; Bottleneck::COUNT],
            controller: Bottleneck::StartUp,
            active: Bottleneck::StartUp,
            since: now,
            spent: [Duration::ZERO; Bottleneck::COUNT],
        }
    }

    /// Limits the rate, in the name of `bound`.
    pub fn set(&mut self, bound: Bottleneck, rate: Rate) {
        self.limits[bound as usize] = Some(rate);
    }

    /// Lifts the limit of that name.
    pub fn clear(&mut self, bound: Bottleneck) {
        self.limits[bound as usize] = None;
    }

    /// Says what the controller's own rate stands for: `metrics().bound`.
    pub fn set_controller_bound(&mut self, bound: Bottleneck) {
        self.controller = bound;
    }

    /// What may be sent, and which bound says so. At equal rates a limit that was set wins over the
    /// controller. No more may leave back to back than any limit's own rate makes in half a
    /// millisecond, even where the controller's rate is lower: its burst is made for a path that can
    /// carry more.
    pub fn allow(&self, controller: Pacing) -> (Pacing, Bottleneck) {
        let mut least = (controller.rate, self.controller);
        let mut burst = controller.burst;
        for (bound, limit) in Bottleneck::ALL.iter().zip(&self.limits) {
            let Some(rate) = limit else { continue };
            burst = burst.min(rate.bytes_in(BURST_TIME).max(MIN_BURST));
            if *rate < least.0 || *rate == least.0 && least.1 == self.controller {
                least = (*rate, *bound);
            }
        }
        let (rate, bound) = least;
        (Pacing { rate, burst, ..controller }, bound)
    }

    /// Books the time since the last call to the bound that was active, and makes `bound` the
    /// active one.
    ///
    /// `bound` is what [`Governor::allow`] named, or what the caller alone can see: a sender that was
    /// late is [`Bottleneck::SenderCpu`].
    pub fn account(&mut self, now: Instant, bound: Bottleneck) {
        self.spent[self.active as usize] += now - self.since;
        self.since = now.max(self.since);
        self.active = bound;
    }

    /// How long `bound` was active, up to the last [`Governor::account`].
    pub fn time_limited_by(&self, bound: Bottleneck) -> Duration {
        self.spent[bound as usize]
    }
}

/// A timer of the operating system fires up to half a millisecond late; the burst makes up for it.
const BURST_TIME: Duration = Duration::from_micros(500);
/// Two packets of the usual size.
const MIN_BURST: u64 = 3_000;

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROLLER: Pacing =
        Pacing { rate: Rate::from_gbps(5), burst: 64_000, window: Some(1_000_000) };

    #[test]
    fn the_least_bound_is_named() {
        let mut governor = Governor::new(Instant::ZERO);
        assert_eq!(governor.allow(CONTROLLER), (CONTROLLER, Bottleneck::StartUp));
        governor.set_controller_bound(Bottleneck::Network);
        governor.set(Bottleneck::UserLimit, Rate::from_gbps(2));
        governor.set(Bottleneck::ReceiverDisk, Rate::from_gbps(1));
        let (pacing, bound) = governor.allow(CONTROLLER);
        assert_eq!((pacing.rate, bound), (Rate::from_gbps(1), Bottleneck::ReceiverDisk));
        assert_eq!(pacing.window, CONTROLLER.window);
        governor.clear(Bottleneck::ReceiverDisk);
        assert_eq!(governor.allow(CONTROLLER).1, Bottleneck::UserLimit);
        governor.set(Bottleneck::UserLimit, CONTROLLER.rate);
        assert_eq!(governor.allow(CONTROLLER).1, Bottleneck::UserLimit);
        governor.set(Bottleneck::UserLimit, Rate::MAX);
        assert_eq!(governor.allow(CONTROLLER).1, Bottleneck::Network);
    }

    #[test]
    fn the_burst_under_a_limit_fits_its_rate() {
        let controller = Pacing { burst: 512 << 10, ..CONTROLLER };
        let mut governor = Governor::new(Instant::ZERO);
        for (limit, burst) in [
            (Rate::from_mbps(1), 3_000),
            (Rate::from_mbps(100), 6_250),
            (Rate::from_gbps(4), 250_000),
            (Rate::from_gbps(6), 375_000),
            (Rate::from_gbps(9), 512 << 10),
        ] {
            governor.set(Bottleneck::UserLimit, limit);
            assert_eq!(governor.allow(controller).0.burst, burst, "{limit}");
        }
        // A controller below the limit may find it fit to send much at once; the limit does not.
        governor.set(Bottleneck::UserLimit, Rate::from_gbps(1));
        let slower = Pacing { rate: Rate::from_mbps(900), ..controller };
        assert_eq!(
            governor.allow(slower),
            (Pacing { burst: 62_500, ..slower }, Bottleneck::StartUp)
        );
        // A controller that is gentler still stays so.
        governor.set(Bottleneck::UserLimit, Rate::from_gbps(4));
        assert_eq!(governor.allow(CONTROLLER).0.burst, CONTROLLER.burst);
    }

    #[test]
    fn time_is_booked_to_the_bound_that_was_active() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut governor = Governor::new(at(0));
        governor.account(at(10), Bottleneck::Network);
        governor.account(at(40), Bottleneck::ReceiverDisk);
        governor.account(at(100), Bottleneck::Network);
        governor.account(at(120), Bottleneck::SenderCpu);
        assert_eq!(governor.time_limited_by(Bottleneck::StartUp), Duration::from_millis(10));
        assert_eq!(governor.time_limited_by(Bottleneck::Network), Duration::from_millis(50));
        assert_eq!(governor.time_limited_by(Bottleneck::ReceiverDisk), Duration::from_millis(60));
        assert_eq!(governor.time_limited_by(Bottleneck::SenderCpu), Duration::ZERO, "until booked");
    }
}
