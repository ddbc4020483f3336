use core::fmt;

use longhaul_units::{Duration, Instant, Rate};

use crate::Pacing;

/// What can limit a transfer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bound {
    /// The controller is still looking for the rate of the path.
    Startup,
    /// The path, as the controller sees it.
    Network,
    /// The rate that the user allows.
    UserLimit,
    /// The rate that is booked.
    Reservation,
    /// The sending host's processor.
    SenderCpu,
    /// The disk that is read.
    SenderDisk,
    /// The sender's memory for data that is not acknowledged.
    SenderBuffer,
    /// The receiving host's processor.
    ReceiverCpu,
    /// The disk that is written.
    ReceiverDisk,
    /// The receiver's socket buffer or its memory for data not yet written.
    ReceiverBuffer,
    /// There is nothing to send.
    Application,
}

impl Bound {
    /// Every bound, in declaration order.
    pub const ALL: [Self; 11] = [
        Self::Startup,
        Self::Network,
        Self::UserLimit,
        Self::Reservation,
        Self::SenderCpu,
        Self::SenderDisk,
        Self::SenderBuffer,
        Self::ReceiverCpu,
        Self::ReceiverDisk,
        Self::ReceiverBuffer,
        Self::Application,
    ];

    /// A name for people and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Startup => "start-up",
            Self::Network => "network",
            Self::UserLimit => "user limit",
            Self::Reservation => "reservation",
            Self::SenderCpu => "sender CPU",
            Self::SenderDisk => "sender disk",
            Self::SenderBuffer => "sender buffer",
            Self::ReceiverCpu => "receiver CPU",
            Self::ReceiverDisk => "receiver disk",
            Self::ReceiverBuffer => "receiver buffer",
            Self::Application => "application",
        }
    }

    /// The code on the wire (docs/protocol.md 9.1).
    pub const fn code(self) -> u8 {
        match self {
            Self::Startup => 9,
            Self::Network => 1,
            Self::UserLimit => 7,
            Self::Reservation => 6,
            Self::SenderCpu => 2,
            Self::SenderDisk => 4,
            Self::SenderBuffer => 10,
            Self::ReceiverCpu => 3,
            Self::ReceiverDisk => 5,
            Self::ReceiverBuffer => 8,
            Self::Application => 0,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Takes the minimum of the controller's rate and all other bounds, and keeps account of which one
/// it was.
#[derive(Clone, Debug)]
pub struct Governor {
    limits: [Option<Rate>; Bound::ALL.len()],
    controller: Bound,
    active: Bound,
    since: Instant,
    spent: [Duration; Bound::ALL.len()],
}

impl Governor {
    /// No bounds but the controller's, which starts up.
    pub fn new(now: Instant) -> Self {
        Self {
            limits: [None; Bound::ALL.len()],
            controller: Bound::Startup,
            active: Bound::Startup,
            since: now,
            spent: [Duration::ZERO; Bound::ALL.len()],
        }
    }

    /// Limits the rate, in the name of `bound`.
    pub fn set(&mut self, bound: Bound, rate: Rate) {
        self.limits[bound as usize] = Some(rate);
    }

    /// Lifts the limit of that name.
    pub fn clear(&mut self, bound: Bound) {
        self.limits[bound as usize] = None;
    }

    /// Says what the controller's own rate stands for: `metrics().bound`.
    pub fn set_controller_bound(&mut self, bound: Bound) {
        self.controller = bound;
    }

    /// What may be sent, and which bound says so. At equal rates a limit that was set wins over the
    /// controller. No more may leave back to back than any limit's own rate makes in half a
    /// millisecond, even where the controller's rate is lower: its burst is made for a path that can
    /// carry more.
    pub fn allow(&self, controller: Pacing) -> (Pacing, Bound) {
        let mut least = (controller.rate, self.controller);
        let mut burst = controller.burst;
        for (bound, limit) in Bound::ALL.iter().zip(&self.limits) {
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
    /// `bound` is what [`Governor::allow`] named, or what the caller alone can see:
    /// [`Bound::Application`], [`Bound::SenderDisk`], [`Bound::ReceiverDisk`] when there is no data
    /// or no credit.
    pub fn account(&mut self, now: Instant, bound: Bound) {
        self.spent[self.active as usize] += now - self.since;
        self.since = now.max(self.since);
        self.active = bound;
    }

    /// The bound that is active.
    pub fn active(&self) -> Bound {
        self.active
    }

    /// How long `bound` was active, up to the last [`Governor::account`].
    pub fn time_limited_by(&self, bound: Bound) -> Duration {
        self.spent[bound as usize]
    }

    /// The bound that was active for the longest time.
    pub fn limited_by(&self) -> Bound {
        let mut longest = self.active;
        for bound in Bound::ALL {
            if self.time_limited_by(bound) > self.time_limited_by(longest) {
                longest = bound;
            }
        }
        longest
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
        assert_eq!(governor.allow(CONTROLLER), (CONTROLLER, Bound::Startup));
        governor.set_controller_bound(Bound::Network);
        governor.set(Bound::UserLimit, Rate::from_gbps(2));
        governor.set(Bound::ReceiverDisk, Rate::from_gbps(1));
        let (pacing, bound) = governor.allow(CONTROLLER);
        assert_eq!((pacing.rate, bound), (Rate::from_gbps(1), Bound::ReceiverDisk));
        assert_eq!(pacing.window, CONTROLLER.window);
        governor.clear(Bound::ReceiverDisk);
        assert_eq!(governor.allow(CONTROLLER).1, Bound::UserLimit);
        governor.set(Bound::UserLimit, CONTROLLER.rate);
        assert_eq!(governor.allow(CONTROLLER).1, Bound::UserLimit);
        governor.set(Bound::UserLimit, Rate::MAX);
        assert_eq!(governor.allow(CONTROLLER).1, Bound::Network);
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
            governor.set(Bound::UserLimit, limit);
            assert_eq!(governor.allow(controller).0.burst, burst, "{limit}");
        }
        // A controller below the limit may find it fit to send much at once; the limit does not.
        governor.set(Bound::UserLimit, Rate::from_gbps(1));
        let slower = Pacing { rate: Rate::from_mbps(900), ..controller };
        assert_eq!(governor.allow(slower), (Pacing { burst: 62_500, ..slower }, Bound::Startup));
        // A controller that is gentler still stays so.
        governor.set(Bound::UserLimit, Rate::from_gbps(4));
        assert_eq!(governor.allow(CONTROLLER).0.burst, CONTROLLER.burst);
    }

    #[test]
    fn time_is_booked_to_the_bound_that_was_active() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut governor = Governor::new(at(0));
        governor.account(at(10), Bound::Network);
        governor.account(at(40), Bound::ReceiverDisk);
        governor.account(at(100), Bound::Network);
        governor.account(at(120), Bound::Application);
        assert_eq!(governor.time_limited_by(Bound::Startup), Duration::from_millis(10));
        assert_eq!(governor.time_limited_by(Bound::Network), Duration::from_millis(50));
        assert_eq!(governor.limited_by(), Bound::ReceiverDisk);
        assert_eq!(governor.active(), Bound::Application);
    }

    #[test]
    fn codes_are_those_of_the_registry() {
        let mut codes = Bound::ALL.map(Bound::code);
        codes.sort_unstable();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }
}
