//! Why packets were lost: one account of what the receiver tells, the local stack refuses and the
//! controller believes.

use longhaul_engine::LaneStats;
use longhaul_rate_control::{LossCounts, Metrics};
use longhaul_wire::{Bottleneck, Losses};

/// What of the losses of a path is down to chance, as its controller believes over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossJudge {
    /// Packets sent when the controller was last asked.
    sent: u64,
    /// Those of them that were sent while it had a belief.
    judged: u64,
    /// Losses by chance that it expected among those, times a million.
    expected_ppm: u128,
}

/// What the lanes of a path counted together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossSums {
    pub sent: u64,
    /// Taken as lost, by where the receiver says.
    pub lost: LossCounts,
    /// Taken as lost, and arrived after all.
    pub spurious: u64,
    /// Refused by the local stack; the receiver misses them like any other.
    pub refused: u64,
}

impl LossSums {
    pub fn add(&mut self, stats: &LaneStats, refused: u64) {
        self.sent += stats.packets_sent;
        self.lost.network += stats.lost.network;
        self.lost.socket += stats.lost.socket;
        self.lost.host += stats.lost.host;
        self.spurious += stats.spurious;
        self.refused += refused;
    }
}

impl LossJudge {
    /// Takes in what the controller believes by the time that `sent` packets have left.
    pub fn observe(&mut self, sent: u64, metrics: &Metrics) {
        let fresh = sent.saturating_sub(self.sent);
        self.sent += fresh;
        // One that estimates no path, or does not know it yet, cannot tell chance from congestion.
        if metrics.bandwidth.is_some() && metrics.bound != Bottleneck::StartUp {
            self.judged += fresh;
            self.expected_ppm += u128::from(fresh) * u128::from(metrics.random_loss_ppm);
        }
    }

    /// The losses by cause.
    pub fn divide(&self, sums: &LossSums) -> Losses {
        let mut left = sums.lost.network.saturating_sub(sums.spurious);
        let mut take = |most: u64| {
            let taken = left.min(most);
            left -= taken;
            taken
        };
        let sender = take(sums.refused);
        let (random, congestion) = match self.chance(sums.sent) {
            Some(chance) => (take(chance), take(u64::MAX)),
            None => (0, 0),
        };
        let (socket, host) = (sums.lost.socket, sums.lost.host);
        Losses { congestion, random, socket, host, sender, unknown: left }
    }

    /// The most of `sent` packets that may be lost by chance, given that the estimate errs too.
    fn chance(&self, sent: u64) -> Option<u64> {
        if self.judged == 0 {
            return None;
        }
        let ppm = self.expected_ppm / u128::from(self.judged);
        let expected = u64::try_from(u128::from(sent) * ppm / 1_000_000).unwrap_or(u64::MAX);
        Some(expected.saturating_add(expected / 8).saturating_add(2 * expected.isqrt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::{Duration, Rate};

    fn metrics(random_loss_ppm: u32) -> Metrics {
        Metrics {
            state: "cruise",
            bound: Bottleneck::Network,
            bandwidth: Some(Rate::from_gbps(1)),
            min_rtt: None,
            queue: Duration::ZERO,
            random_loss_ppm,
        }
    }

    fn lost(network: u64) -> LossSums {
        let lost = LossCounts { network, socket: 5, host: 6 };
        LossSums { sent: 100_000, lost, spurious: 0, refused: 0 }
    }

    const ELSEWHERE: Losses =
        Losses { congestion: 0, random: 0, socket: 5, host: 6, sender: 0, unknown: 0 };

    #[test]
    fn a_controller_that_models_no_path_knows_no_cause() {
        let mut judge = LossJudge::default();
        judge.observe(50_000, &Metrics { bandwidth: None, ..metrics(0) });
        judge.observe(100_000, &Metrics { bound: Bottleneck::StartUp, ..metrics(0) });
        assert_eq!(judge.divide(&lost(90)), Losses { unknown: 90, ..ELSEWHERE });
    }

    #[test]
    fn chance_takes_its_share_and_congestion_the_rest() {
        let mut judge = LossJudge::default();
        // Before it knows, and after: what it learns holds for the whole path.
        judge.observe(20_000, &Metrics { bound: Bottleneck::StartUp, ..metrics(0) });
        judge.observe(60_000, &metrics(9_000));
        judge.observe(100_000, &metrics(11_000));
        // 1 % of 100 000, an eighth more, and two standard deviations.
        let most = 1_000 + 125 + 62;
        assert_eq!(judge.divide(&lost(1_050)), Losses { random: 1_050, ..ELSEWHERE });
        let much = Losses { random: most, congestion: 3_000 - most, ..ELSEWHERE };
        assert_eq!(judge.divide(&lost(3_000)), much);
        let mut clean = LossJudge::default();
        clean.observe(100_000, &metrics(0));
        assert_eq!(clean.divide(&lost(40)), Losses { congestion: 40, ..ELSEWHERE });
    }

    #[test]
    fn what_never_left_is_the_senders_and_what_arrived_late_is_not_lost() {
        let judge = LossJudge::default();
        let sums = LossSums { spurious: 10, refused: 64, ..lost(100) };
        assert_eq!(judge.divide(&sums), Losses { sender: 64, unknown: 26, ..ELSEWHERE });
        // Refused and not missed yet, or twice.
        let sums = LossSums { spurious: 10, refused: 640, ..lost(100) };
        assert_eq!(judge.divide(&sums), Losses { sender: 90, ..ELSEWHERE });
    }
}
