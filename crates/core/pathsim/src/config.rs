use alloc::vec::Vec;
use longhaul_units::{Bytes, Duration, Rate};

use crate::jitter::Jitter;
use crate::loss::GilbertElliott;
use crate::probability::Probability;
use crate::queue::{Bottleneck, EcnMarking, Policer};
use crate::schedule::{Outages, PeriodicOutage, RateSchedule, Rebindings};

/// One direction of a path. The default is ideal: everything arrives at once.
///
/// A packet meets the elements in this order, and the first that drops it gives the reason: firewall, MTU,
/// policer, queue of the bottleneck, outage, scripted loss, burst loss, random loss; then delay,
/// jitter, reordering, duplication and corruption. So what is lost at random has used its share
/// of the bottleneck, as on a real line.
///
/// ```
/// use longhaul_pathsim::{PathConfig, Probability};
/// use longhaul_units::{Bytes, Duration, Rate};
///
/// let config = PathConfig::default()
///     .delay(Duration::from_millis(50))
///     .rate(Rate::from_gbps(1), Bytes::new(12_500_000))
///     .loss("0.1%".parse::<Probability>()?);
/// assert!(config.validate().is_ok());
/// # Ok::<(), longhaul_pathsim::ParseProbabilityError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathConfig {
    /// One-way delay of the line, without queue and transmission.
    pub delay: Duration,
    /// Jitter that is added to the delay.
    pub jitter: Option<Jitter>,
    /// When a firewall swallows the datagrams of UDP, and nothing else.
    pub firewall: Outages,
    /// Rate, queue and marking; `None` transmits in no time.
    pub bottleneck: Option<Bottleneck>,
    /// Drops what exceeds a token bucket, before the bottleneck.
    pub policer: Option<Policer>,
    /// Packets with more IP-layer bytes vanish silently: a path whose ICMP is filtered.
    pub mtu: Option<u32>,
    /// Loss of each packet independently.
    pub loss: Probability,
    /// Loss in bursts.
    pub burst_loss: Option<GilbertElliott>,
    /// Numbers of packets to lose, in any order; the first packet offered has number 0.
    pub scripted_loss: Vec<u64>,
    /// Holds single packets back behind later ones.
    pub reordering: Option<Reordering>,
    /// Delivers single packets twice.
    pub duplication: Option<Duplication>,
    /// Flips one bit of a packet.
    pub corruption: Probability,
    /// When everything that leaves the bottleneck is lost.
    pub outages: Outages,
    /// When the address translation forgets.
    pub rebindings: Rebindings,
}

/// Single packets arrive later than their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reordering {
    /// Of each packet.
    pub probability: Probability,
    /// Delay added to such a packet; those behind it do not wait.
    pub extra: Duration,
}

/// Single packets arrive twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Duplication {
    /// Of each packet.
    pub probability: Probability,
    /// From the packet to its copy.
    pub lag: Duration,
}

/// Why a path cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The rate at the end of the schedule is zero, so the queue would never empty.
    #[error("the last rate of the bottleneck is zero")]
    NoRate,
    /// The times of the rate schedule do not rise.
    #[error("the times of the rate schedule do not rise")]
    ScheduleOrder,
    /// A queue or bucket above [`Bottleneck::MAX_QUEUE`].
    #[error("a queue or bucket is larger than 2 GiB")]
    QueueTooLarge,
    /// The ECN ramp ends below its start.
    #[error("the ECN ramp ends below its start")]
    EcnRamp,
    /// Marking was asked for without a rate, so that there is no queue.
    #[error("ECN marking needs a rate")]
    EcnWithoutRate,
    /// An outage ends before it starts.
    #[error("an outage ends before it starts")]
    OutageOrder,
    /// A periodic outage that is as long as its period or longer.
    #[error("a periodic outage is not shorter than its period")]
    OutagePeriod,
    /// A rebinding period of zero.
    #[error("the rebinding period is zero")]
    RebindingPeriod,
}

impl PathConfig {
    /// Sets the one-way delay.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Sets the jitter.
    #[must_use]
    pub fn jitter(self, jitter: Jitter) -> Self {
        Self { jitter: Some(jitter), ..self }
    }

    /// Sets the rate, fixed or a schedule, and the queue in front of it; see [`Bottleneck`].
    #[must_use]
    pub fn rate(self, rate: impl Into<RateSchedule>, queue: Bytes) -> Self {
        let ecn = self.bottleneck.and_then(|bottleneck| bottleneck.ecn);
        Self { bottleneck: Some(Bottleneck { rate: rate.into(), queue, ecn }), ..self }
    }

    /// Sets ECN marking.
    ///
    /// # Errors
    /// [`ConfigError::EcnWithoutRate`] if no rate was set before.
    pub fn ecn(mut self, ecn: EcnMarking) -> Result<Self, ConfigError> {
        self.bottleneck.as_mut().ok_or(ConfigError::EcnWithoutRate)?.ecn = Some(ecn);
        Ok(self)
    }

    /// Sets the policer.
    #[must_use]
    pub fn policer(self, rate: Rate, burst: Bytes) -> Self {
        Self { policer: Some(Policer { rate, burst }), ..self }
    }

    /// Sets the largest packet that passes, in IP-layer bytes.
    #[must_use]
    pub fn mtu(self, mtu: u32) -> Self {
        Self { mtu: Some(mtu), ..self }
    }

    /// Sets the independent loss.
    #[must_use]
    pub fn loss(self, loss: Probability) -> Self {
        Self { loss, ..self }
    }

    /// Sets the bursty loss.
    #[must_use]
    pub fn burst_loss(self, model: GilbertElliott) -> Self {
        Self { burst_loss: Some(model), ..self }
    }

    /// Adds numbers of packets to lose.
    #[must_use]
    pub fn scripted_loss(mut self, numbers: impl IntoIterator<Item = u64>) -> Self {
        self.scripted_loss.extend(numbers);
        self
    }

    /// Sets the reordering.
    #[must_use]
    pub fn reordering(self, probability: Probability, extra: Duration) -> Self {
        Self { reordering: Some(Reordering { probability, extra }), ..self }
    }

    /// Sets the duplication.
    #[must_use]
    pub fn duplication(self, probability: Probability, lag: Duration) -> Self {
        Self { duplication: Some(Duplication { probability, lag }), ..self }
    }

    /// Sets the corruption.
    #[must_use]
    pub fn corruption(self, corruption: Probability) -> Self {
        Self { corruption, ..self }
    }

    /// Adds an outage of `length`, `at` after the start of the path.
    #[must_use]
    pub fn outage(mut self, at: Duration, length: Duration) -> Self {
        self.outages.windows.push(at..at.saturating_add(length));
        self
    }

    /// Adds a time of `length`, `at` after the start of the path, in which UDP is swallowed.
    #[must_use]
    pub fn swallowing_udp(mut self, at: Duration, length: Duration) -> Self {
        self.firewall.windows.push(at..at.saturating_add(length));
        self
    }

    /// Sets the outage that comes back.
    #[must_use]
    pub fn periodic_outage(mut self, outage: PeriodicOutage) -> Self {
        self.outages.periodic = Some(outage);
        self
    }

    /// Adds a rebinding, `at` after the start of the path.
    #[must_use]
    pub fn rebinding(mut self, at: Duration) -> Self {
        self.rebindings.at.push(at);
        self
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// The first fault found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Some(bottleneck) = &self.bottleneck {
            validate_bottleneck(bottleneck)?;
        }
        if self.policer.is_some_and(|policer| policer.burst > Bottleneck::MAX_QUEUE) {
            return Err(ConfigError::QueueTooLarge);
        }
        for outages in [&self.firewall, &self.outages] {
            if outages.windows.iter().any(|window| window.end < window.start) {
                return Err(ConfigError::OutageOrder);
            }
            if outages.periodic.is_some_and(|outage| outage.length >= outage.every) {
                return Err(ConfigError::OutagePeriod);
            }
        }
        if self.rebindings.every == Some(Duration::ZERO) {
            return Err(ConfigError::RebindingPeriod);
        }
        Ok(())
    }
}

fn validate_bottleneck(bottleneck: &Bottleneck) -> Result<(), ConfigError> {
    let RateSchedule { initial, changes } = &bottleneck.rate;
    if changes.last().map_or(*initial, |last| last.1) == Rate::ZERO {
        return Err(ConfigError::NoRate);
    }
    if !changes.is_sorted_by(|earlier, later| earlier.0 < later.0) {
        return Err(ConfigError::ScheduleOrder);
    }
    if bottleneck.queue > Bottleneck::MAX_QUEUE {
        return Err(ConfigError::QueueTooLarge);
    }
    if bottleneck.ecn.is_some_and(|ecn| ecn.to < ecn.from) {
        return Err(ConfigError::EcnRamp);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn impossible_paths_are_refused() {
        let base = PathConfig::default;
        let queue = Bytes::new(10_000);
        let mbps = Rate::from_mbps;
        let back = RateSchedule::constant(mbps(1)).then(MS, mbps(2)).then(MS, mbps(3));
        let dead = RateSchedule::constant(mbps(1)).then(MS, Rate::ZERO);
        let ramp = EcnMarking::ramp(queue, Bytes::ZERO, Probability::ONE);
        let outage = PeriodicOutage { first: MS, every: MS, length: MS };
        let mut never = base();
        never.rebindings.every = Some(Duration::ZERO);
        let mut reversed = base();
        reversed.outages.windows.push(MS * 2..MS);
        let mut closed = base();
        closed.firewall.windows.push(MS * 2..MS);
        for (config, error) in [
            (base().rate(Rate::ZERO, queue), ConfigError::NoRate),
            (base().rate(dead, queue), ConfigError::NoRate),
            (base().rate(back, queue), ConfigError::ScheduleOrder),
            (base().rate(mbps(1), Bytes::from_mib(2_049)), ConfigError::QueueTooLarge),
            (base().policer(mbps(1), Bytes::from_mib(2_049)), ConfigError::QueueTooLarge),
            (base().rate(mbps(1), queue).ecn(ramp).unwrap(), ConfigError::EcnRamp),
            (base().periodic_outage(outage), ConfigError::OutagePeriod),
            (reversed, ConfigError::OutageOrder),
            (closed, ConfigError::OutageOrder),
            (never, ConfigError::RebindingPeriod),
        ] {
            assert_eq!(config.validate(), Err(error), "{config:?}");
        }
        let step = EcnMarking::step(queue);
        assert_eq!(base().ecn(step), Err(ConfigError::EcnWithoutRate));
        assert_eq!(base().validate(), Ok(()));
    }
}
