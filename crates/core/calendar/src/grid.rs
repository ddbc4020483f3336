use core::fmt;

use longhaul_units::{Bytes, Duration, Instant, Rate};

/// Size of a tick and a channel: time and rate made discrete (the VBLS paper, section 3.4).
///
/// Volumes are whole channel ticks, rounded up, so that a booking carries at least the bytes
/// asked for and less than one tick of its last range more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    tick_nanos: u64,
    channel: Rate,
}

impl Grid {
    /// Ticks of `tick` and channels of `channel`; `None` if either is zero or the tick is longer
    /// than 64 bits of nanoseconds.
    pub fn new(tick: Duration, channel: Rate) -> Option<Self> {
        let tick_nanos = u64::try_from(tick.as_nanos()).ok()?;
        (tick_nanos > 0 && channel > Rate::ZERO).then_some(Self { tick_nanos, channel })
    }

    /// The length of a tick.
    pub const fn tick(&self) -> Duration {
        Duration::from_nanos(self.tick_nanos)
    }

    /// The rate of a channel.
    pub const fn channel(&self) -> Rate {
        self.channel
    }

    /// Channel ticks that carry `bytes` and the margin, rounded up; `None` above 64 bits.
    pub fn volume(&self, bytes: Bytes, margin: Margin) -> Option<u64> {
        let bytes = margin.applied_to(bytes);
        let bits = bytes.checked_mul(8 * 1_000_000_000)?;
        u64::try_from(bits.div_ceil(self.channel_tick())).ok()
    }

    /// Bytes that `volume` channel ticks carry, rounded down, saturating.
    pub fn bytes(&self, volume: u64) -> Bytes {
        let bits = u128::from(volume).saturating_mul(self.channel_tick());
        Bytes::new(u64::try_from(bits / (8 * 1_000_000_000)).unwrap_or(u64::MAX))
    }

    /// The rate of `channels` channels, saturating.
    pub const fn rate(&self, channels: u32) -> Rate {
        self.channel.scale(channels, 1)
    }

    /// The most channels that together do not exceed `rate`.
    pub fn channels_within(&self, rate: Rate) -> u32 {
        u32::try_from(rate.as_bps() / self.channel.as_bps()).unwrap_or(u32::MAX)
    }

    /// The first tick that starts at or after `instant`: for starts.
    pub const fn tick_from(&self, instant: Instant) -> u64 {
        instant.as_nanos().div_ceil(self.tick_nanos)
    }

    /// The tick that holds `instant`, which is also one past the last that ends by then: for
    /// deadlines.
    pub const fn tick_by(&self, instant: Instant) -> u64 {
        instant.as_nanos() / self.tick_nanos
    }

    /// When `tick` starts; [`Instant::FAR_FUTURE`] past the end of the clock.
    pub const fn instant(&self, tick: u64) -> Instant {
        Instant::from_nanos(tick.saturating_mul(self.tick_nanos))
    }

    /// Whole ticks that cover `duration`: for guards and holding times.
    pub fn ticks(&self, duration: Duration) -> u64 {
        let ticks = duration.as_nanos().div_ceil(u128::from(self.tick_nanos));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Bit nanoseconds per second in one channel tick.
    const fn channel_tick(&self) -> u128 {
        self.channel.as_bps() as u128 * self.tick_nanos as u128
    }
}

/// Extra volume for what is expected to be sent again: F' = F (1 + m) (the VBLS paper, section
/// 4.3), in parts per million.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Margin(u32);

impl Margin {
    /// Nothing is sent again.
    pub const NONE: Self = Self(0);

    /// `ppm` parts per million of the bytes.
    pub const fn from_ppm(ppm: u32) -> Self {
        Self(ppm)
    }

    /// Parts per million.
    pub const fn ppm(self) -> u32 {
        self.0
    }

    /// `bytes` and the margin, rounded up.
    fn applied_to(self, bytes: Bytes) -> u128 {
        let bytes = u128::from(bytes.get());
        bytes + (bytes * u128::from(self.0)).div_ceil(1_000_000)
    }
}

impl fmt::Debug for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ppm", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ten_gigabit_channels_and_tenths_of_a_second() {
        let grid = Grid::new(Duration::from_millis(100), Rate::from_gbps(10)).unwrap();
        assert_eq!(grid.volume(Bytes::new(5_000_000_000), Margin::NONE), Some(40));
        assert_eq!(grid.volume(Bytes::new(5_000_000_001), Margin::NONE), Some(41));
        let tenth = Margin::from_ppm(100_000);
        assert_eq!(grid.volume(Bytes::new(5_000_000_000), tenth), Some(44));
        assert_eq!(grid.bytes(40), Bytes::new(5_000_000_000));
        assert_eq!(grid.rate(3), Rate::from_gbps(30));
        assert_eq!(grid.channels_within(Rate::from_gbps(39)), 3);
        assert_eq!(grid.tick_from(Instant::from_nanos(100_000_001)), 2);
        assert_eq!(grid.tick_by(Instant::from_nanos(199_999_999)), 1);
        assert_eq!(grid.instant(2), Instant::from_nanos(200_000_000));
        assert_eq!(grid.ticks(Duration::from_millis(101)), 2);
    }

    #[test]
    fn extremes() {
        assert_eq!(Grid::new(Duration::ZERO, Rate::from_gbps(1)), None);
        assert_eq!(Grid::new(Duration::from_secs(1), Rate::ZERO), None);
        let fine = Grid::new(Duration::from_nanos(1), Rate::from_bps(1)).unwrap();
        assert_eq!(fine.volume(Bytes::new(u64::MAX), Margin::NONE), None);
        let coarse = Grid::new(Duration::from_secs(1), Rate::MAX).unwrap();
        assert_eq!(coarse.bytes(u64::MAX), Bytes::new(u64::MAX));
        assert_eq!(coarse.volume(Bytes::new(1), Margin::from_ppm(u32::MAX)), Some(1));
    }

    proptest! {
        #[test]
        fn a_volume_is_the_least_that_carries_the_bytes(
            bytes in 1u64..1 << 45,
            tick in 1u64..1_000_000_000,
            channel in 1_000_000u64..100_000_000_000,
            ppm in 0u32..500_000,
        ) {
            let grid = Grid::new(Duration::from_nanos(tick), Rate::from_bps(channel)).unwrap();
            let margin = Margin::from_ppm(ppm);
            let needed = margin.applied_to(Bytes::new(bytes)) * 8_000_000_000;
            if let Some(volume) = grid.volume(Bytes::new(bytes), margin) {
                prop_assert!(u128::from(volume) * grid.channel_tick() >= needed);
                prop_assert!(u128::from(volume - 1) * grid.channel_tick() < needed);
            }
        }
    }
}
