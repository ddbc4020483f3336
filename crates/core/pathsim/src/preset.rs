use core::fmt;
use core::str::FromStr;
use longhaul_units::{Bytes, Duration, Rate};

use crate::config::PathConfig;
use crate::duplex::DuplexConfig;
use crate::jitter::Jitter;
use crate::loss::GilbertElliott;
use crate::probability::Probability;

/// Well-known kinds of path, by name.
///
/// Round-trip times are split evenly between the directions, and queues are those of the
/// bottleneck in each direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Preset {
    /// 10 Gb/s, round trip 0.2 ms, queue 1 MB (0.8 ms), no loss.
    Lan,
    /// 10 Gb/s, round trip 4 ms, queue 5 MB (one round trip), no loss.
    Metro,
    /// 1 Gb/s, round trip 50 ms, queue 6.25 MB (one round trip), loss 0.001 %.
    Continental,
    /// 1 Gb/s, round trip 150 ms, queue 18.75 MB (one round trip), loss 0.01 %.
    Intercontinental,
    /// Geostationary: 50 Mb/s down (forward) and 10 Mb/s up, round trip 600 ms, a queue of 300 ms,
    /// bursts of 20 packets on average that lose 0.1 % of all, jitter up to 4 ms.
    Satellite,
    /// 200 Mb/s, round trip 4 ms and what the jitter adds (3 ms on average each way), a queue of
    /// 100 ms, bursts of 5 packets on average that lose 1 % of all, 0.1 % reordered by 2 ms.
    LossyWifi,
    /// The edge of a reserved circuit: 1 Gb/s, round trip 50 ms, no loss of its own, but a queue of
    /// 128 KiB (1 ms) only: a sender that is faster or sends larger bursts than reserved loses.
    CircuitEdge,
}

impl Preset {
    /// All presets, from near to far and then the special ones.
    pub const ALL: [Self; 7] = [
        Self::Lan,
        Self::Metro,
        Self::Continental,
        Self::Intercontinental,
        Self::Satellite,
        Self::LossyWifi,
        Self::CircuitEdge,
    ];

    /// The name by which the preset is asked for.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lan => "lan",
            Self::Metro => "metro",
            Self::Continental => "continental",
            Self::Intercontinental => "intercontinental",
            Self::Satellite => "satellite",
            Self::LossyWifi => "lossy-wifi",
            Self::CircuitEdge => "circuit-edge",
        }
    }

    /// Both directions.
    pub fn config(self) -> DuplexConfig {
        let gbps = Rate::from_gbps;
        match self {
            Self::Lan => symmetric(us(200), gbps(10), 1_000_000),
            Self::Metro => symmetric(us(4_000), gbps(10), 5_000_000),
            Self::Continental => DuplexConfig::symmetric(
                line(us(50_000), gbps(1), 6_250_000).loss(Probability::from_ppm(10)),
            ),
            Self::Intercontinental => DuplexConfig::symmetric(
                line(us(150_000), gbps(1), 18_750_000).loss(Probability::from_ppm(100)),
            ),
            Self::Satellite => {
                let sky = |mbps, queue| {
                    line(us(600_000), Rate::from_mbps(mbps), queue)
                        .jitter(Jitter::uniform(us(4_000)))
                        // 50 ppm x 20 packets: 0.1 %.
                        .burst_loss(GilbertElliott::bursts(Probability::from_ppm(50), 20))
                };
                DuplexConfig { forward: sky(50, 1_875_000), backward: sky(10, 375_000) }
            }
            Self::LossyWifi => DuplexConfig::symmetric(
                line(us(4_000), Rate::from_mbps(200), 2_500_000)
                    .jitter(Jitter::bell(us(1_000)))
                    // 0.2 % x 5 packets: 1 %.
                    .burst_loss(GilbertElliott::bursts(Probability::from_ppm(2_020), 5))
                    .reordering(Probability::from_ppm(1_000), us(2_000)),
            ),
            Self::CircuitEdge => symmetric(us(50_000), gbps(1), 128 << 10),
        }
    }
}

fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

fn line(round_trip: Duration, rate: Rate, queue: u64) -> PathConfig {
    PathConfig::default().delay(round_trip / 2).rate(rate, Bytes::new(queue))
}

fn symmetric(round_trip: Duration, rate: Rate, queue: u64) -> DuplexConfig {
    DuplexConfig::symmetric(line(round_trip, rate, queue))
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No preset has the name asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no such path; known are lan, metro, continental, intercontinental, satellite, lossy-wifi \
     and circuit-edge"
)]
pub struct UnknownPreset;

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|preset| preset.name() == text).ok_or(UnknownPreset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn presets_are_possible_and_have_names() {
        for preset in Preset::ALL {
            let config = preset.config();
            assert_eq!(config.forward.validate(), Ok(()));
            assert_eq!(config.backward.validate(), Ok(()));
            assert_eq!(preset.to_string().parse(), Ok(preset));
            assert!(UnknownPreset.to_string().contains(preset.name()));
        }
        assert_eq!("moon".parse::<Preset>(), Err(UnknownPreset));
    }

    #[test]
    fn loss_is_as_documented() {
        let burst = |preset: Preset| preset.config().forward.burst_loss.unwrap().stationary_loss();
        let near = |actual: Probability, ppb: u32| actual.as_ppb().abs_diff(ppb) < ppb / 500;
        assert!(near(burst(Preset::Satellite), 1_000_000));
        assert!(near(burst(Preset::LossyWifi), 10_000_000));
    }
}
