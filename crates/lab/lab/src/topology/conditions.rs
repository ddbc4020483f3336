use std::str::FromStr;
use std::time::Duration;

use longhaul_pathsim::{
    ConfigError, Duplication, EcnMarking, GilbertElliott, Jitter, PathConfig, PeriodicOutage,
    Policer, Probability, RateSchedule, Reordering,
};
use longhaul_units::{Bytes, Rate};
use serde::Deserialize;

use super::quantity::{optional, optional_time, required, time};

/// Effects of one direction of a link on packets; nothing of what is not set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Conditions {
    /// One-way delay, without queue and transmission.
    #[serde(deserialize_with = "optional_time")]
    pub delay: Option<Duration>,
    /// IP-layer bits per second, headers included.
    #[serde(deserialize_with = "optional")]
    pub rate: Option<Rate>,
    /// Later rates.
    pub rates: Option<Vec<RateChange>>,
    /// Bytes that may wait for the line; without it what the line carries in a round trip, but at
    /// least a hundred packets.
    #[serde(deserialize_with = "optional")]
    pub queue: Option<Bytes>,
    /// Congestion marks instead of losses.
    pub ecn: Option<Marking>,
    /// Drops what exceeds a token bucket, before the queue.
    pub policer: Option<PolicerSpec>,
    /// A firewall swallows the datagrams of UDP from that time of the testbed on.
    #[serde(deserialize_with = "optional_time")]
    pub swallows_udp: Option<Duration>,
    /// Longest packet that passes; longer ones are dropped and answered with ICMP.
    pub path_mtu: Option<u32>,
    /// Loss of each packet independently.
    #[serde(deserialize_with = "optional")]
    pub loss: Option<Probability>,
    /// Loss of several packets in a row.
    pub burst_loss: Option<BurstLoss>,
    /// Delay that varies.
    pub jitter: Option<JitterSpec>,
    /// Single packets are held back.
    pub reorder: Option<Reorder>,
    /// Single packets arrive twice.
    pub duplicate: Option<Duplicate>,
    /// Single packets arrive with a wrong bit.
    #[serde(deserialize_with = "optional")]
    pub corrupt: Option<Probability>,
    /// Times at which everything is lost.
    pub outages: Option<Vec<Outage>>,
}

/// Another rate from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateChange {
    /// Since the start of the testbed.
    #[serde(deserialize_with = "time")]
    pub at: Duration,
    /// The rate; zero holds packets in the queue.
    #[serde(deserialize_with = "required")]
    pub rate: Rate,
}

/// Congestion marks: none up to `from`, all above `to`, and in between with a probability that
/// rises up to `probability`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marking {
    /// Bytes in the queue.
    #[serde(deserialize_with = "required")]
    pub from: Bytes,
    /// Bytes in the queue; like `from` by default.
    #[serde(default, deserialize_with = "optional")]
    pub to: Option<Bytes>,
    /// Just below `to`; certainty by default.
    #[serde(default, deserialize_with = "optional")]
    pub probability: Option<Probability>,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicerSpec {
    /// IP-layer bits per second in the long run.
    #[serde(deserialize_with = "required")]
    pub rate: Rate,
    /// Depth of the bucket.
    #[serde(deserialize_with = "required")]
    pub burst: Bytes,
}

/// Losses in a row, all packets of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstLoss {
    /// Probability that a burst begins, at each packet.
    #[serde(deserialize_with = "required")]
    pub begin: Probability,
    /// Packets of a burst, on average.
    pub mean: u32,
}

impl FromStr for BurstLoss {
    type Err = String;

    /// Reads `0.01%,20`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once(',').and_then(|(begin, mean)| {
            let mean = mean.parse().ok().filter(|mean| *mean > 0)?;
            Some(Self { begin: begin.parse().ok()?, mean })
        });
        parts.ok_or_else(|| format!("expected something like 0.01%,20, not {text:?}"))
    }
}

/// Delay that varies up to a maximum; order is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JitterSpec {
    /// The most that is added; less is as likely.
    #[serde(deserialize_with = "time")]
    pub max: Duration,
    /// Time for which a value lasts; 1 ms by default.
    #[serde(default, deserialize_with = "optional_time")]
    pub hold: Option<Duration>,
}

/// Packets that are overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Of each packet.
    #[serde(deserialize_with = "required")]
    pub probability: Probability,
    /// Further delay of such a packet.
    #[serde(deserialize_with = "time")]
    pub by: Duration,
}

/// Packets that come twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duplicate {
    /// Of each packet.
    #[serde(deserialize_with = "required")]
    pub probability: Probability,
    /// Further delay of the copy.
    #[serde(deserialize_with = "time")]
    pub by: Duration,
}

/// Everything is lost for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Since the start of the testbed.
    #[serde(deserialize_with = "time")]
    pub at: Duration,
    /// Its length.
    #[serde(deserialize_with = "time")]
    pub length: Duration,
    /// Again and again, from start to start. Only one outage of a link may have this.
    #[serde(default, deserialize_with = "optional_time")]
    pub every: Option<Duration>,
}

/// Why conditions cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    NeedsRate(&'static str),
    Path(ConfigError),
}

impl Conditions {
    /// These, with what is set in `own` in place of what is set here.
    #[must_use]
    pub fn overlaid(self, own: &Self) -> Self {
        let own = own.clone();
        Self {
            delay: own.delay.or(self.delay),
            rate: own.rate.or(self.rate),
            rates: own.rates.or(self.rates),
            queue: own.queue.or(self.queue),
            ecn: own.ecn.or(self.ecn),
            policer: own.policer.or(self.policer),
            swallows_udp: own.swallows_udp.or(self.swallows_udp),
            path_mtu: own.path_mtu.or(self.path_mtu),
            loss: own.loss.or(self.loss),
            burst_loss: own.burst_loss.or(self.burst_loss),
            jitter: own.jitter.or(self.jitter),
            reorder: own.reorder.or(self.reorder),
            duplicate: own.duplicate.or(self.duplicate),
            corrupt: own.corrupt.or(self.corrupt),
            outages: own.outages.or(self.outages),
        }
    }

    /// In the terms of the emulation, on a link of that round trip and MTU.
    pub(super) fn config(&self, rtt: Duration, mtu: u32) -> Result<PathConfig, Fault> {
        let mut config = PathConfig {
            delay: self.delay.unwrap_or_default(),
            policer: self.policer.map(|spec| Policer { rate: spec.rate, burst: spec.burst }),
            mtu: self.path_mtu,
            loss: self.loss.unwrap_or_default(),
            burst_loss: self.burst_loss.map(|spec| GilbertElliott::bursts(spec.begin, spec.mean)),
            reordering: self
                .reorder
                .map(|spec| Reordering { probability: spec.probability, extra: spec.by }),
            duplication: self
                .duplicate
                .map(|spec| Duplication { probability: spec.probability, lag: spec.by }),
            corruption: self.corrupt.unwrap_or_default(),
            jitter: self.jitter.map(|spec| {
                let jitter = Jitter::uniform(spec.max);
                spec.hold.map_or(jitter, |hold| jitter.hold(hold))
            }),
            ..PathConfig::default()
        };
        if let Some(rate) = self.rate {
            let mut schedule = RateSchedule::constant(rate);
            for change in self.rates.iter().flatten() {
                schedule = schedule.then(change.at, change.rate);
            }
            let least = Bytes::new(QUEUE_PACKETS * u64::from(mtu));
            let queue = self.queue.unwrap_or_else(|| Bytes::new(rate.bytes_in(rtt)).max(least));
            config = config.rate(schedule, queue);
        } else if let Some(what) = self.what_needs_a_rate() {
            return Err(Fault::NeedsRate(what));
        }
        if let Some(spec) = self.ecn {
            let marking = EcnMarking::ramp(
                spec.from,
                spec.to.unwrap_or(spec.from),
                spec.probability.unwrap_or(Probability::ONE),
            );
            config = config.ecn(marking).map_err(Fault::Path)?;
        }
        if let Some(at) = self.swallows_udp {
            config = config.swallowing_udp(at, Duration::MAX);
        }
        for outage in self.outages.iter().flatten() {
            config = match outage.every {
                None => config.outage(outage.at, outage.length),
                Some(every) => config.periodic_outage(PeriodicOutage {
                    first: outage.at,
                    every,
                    length: outage.length,
                }),
            };
        }
        config.validate().map_err(Fault::Path)?;
        Ok(config)
    }

    fn what_needs_a_rate(&self) -> Option<&'static str> {
        if self.queue.is_some() {
            Some("a queue")
        } else if self.rates.is_some() {
            Some("a change of rate")
        } else if self.ecn.is_some() {
            Some("congestion marking")
        } else {
            None
        }
    }
}

/// Of the shortest queue that is made without being asked for.
const QUEUE_PACKETS: u64 = 100;
