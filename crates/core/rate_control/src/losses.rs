use longhaul_units::Losses;

use crate::Feedback;

/// The losses of a path by cause: a label when they are found, and the sum.
///
/// Chance takes as many of those in the network as it should have taken, congestion the rest. What
/// was lost before anything was known of chance gets its label in the sum then.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LossAccount {
    /// Packets whose fate is known, and those of them of a time when chance was known.
    settled: u64,
    judged: u64,
    /// Losses by chance expected among the judged, times a million.
    expected_ppm: u128,
    /// In the network, but for those that arrived after all.
    network: u64,
    /// By causes that are told, not estimated.
    told: Losses,
}

impl LossAccount {
    /// Takes in what became of packets while `chance` parts per million of them were lost by chance;
    /// gives the losses with their labels.
    pub(crate) fn label(&mut self, feedback: &Feedback, chance: Option<u32>) -> Losses {
        let lost = feedback.lost;
        let network = lost.network();
        let packets = feedback.acked_packets + network;
        self.settled += packets;
        if let Some(ppm) = chance {
            self.judged += packets;
            self.expected_ppm += u128::from(packets) * u128::from(ppm);
        }
        let before = self.by_chance();
        self.network = (self.network + network).saturating_sub(feedback.spurious_packets);
        let labels = match chance {
            Some(_) => {
                let random = (self.by_chance() - before.min(self.by_chance())).min(network);
                Losses { random, congestion: network - random, ..Losses::default() }
            }
            None => Losses { unknown: network, ..Losses::default() },
        };
        let told = Losses { socket: lost.socket, host: lost.host, ..Losses::default() };
        self.told = self.told.plus(&told);
        labels.plus(&told)
    }

    /// Takes in losses that need no label.
    pub(crate) fn book(&mut self, lost: &Losses) {
        self.told = self.told.plus(lost);
    }

    /// All losses.
    pub(crate) fn losses(&self) -> Losses {
        let random = self.by_chance();
        let rest = self.network - random;
        let network = match self.judged {
            0 => Losses { unknown: rest, ..Losses::default() },
            _ => Losses { random, congestion: rest, ..Losses::default() },
        };
        network.plus(&self.told)
    }

    /// Losses that chance explains, given that the estimate errs too.
    fn by_chance(&self) -> u64 {
        let ppm = self.expected_ppm.checked_div(u128::from(self.judged)).unwrap_or(0);
        let expected =
            u64::try_from(u128::from(self.settled) * ppm / 1_000_000).unwrap_or(u64::MAX);
        let most = expected.saturating_add(expected / 8).saturating_add(2 * expected.isqrt());
        self.network.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(acked: u64, network: u64) -> Feedback {
        let lost = Losses { unknown: network, ..Losses::default() };
        Feedback { acked_packets: acked, lost, ..Feedback::default() }
    }

    #[test]
    fn where_nothing_is_known_of_chance_nobody_knows_why() {
        let mut account = LossAccount::default();
        let lost = Losses { unknown: 90, socket: 5, host: 6, ..Losses::default() };
        let feedback = Feedback { lost, ..fate(50_000, 0) };
        assert_eq!(account.label(&feedback, None), lost);
        assert_eq!(account.losses(), lost);
    }

    #[test]
    fn chance_takes_its_share_and_congestion_the_rest() {
        let mut account = LossAccount::default();
        account.label(&fate(20_000, 0), None);
        // 1 % on average, an eighth more, and two standard deviations.
        account.label(&fate(40_000, 0), Some(9_000));
        let label = account.label(&fate(38_950, 1_050), Some(11_000));
        assert_eq!(label, Losses { random: 1_050, ..Losses::default() });
        let label = account.label(&fate(0, 2_000), Some(10_000));
        let sum = account.losses();
        assert_eq!((label.random + label.congestion, label.unknown), (2_000, 0));
        assert_eq!(sum.random, 1_050 + label.random);
        assert!((1_187..1_250).contains(&sum.random), "{sum:?}");
        assert_eq!(sum.total(), 3_050);
        let mut clean = LossAccount::default();
        let label = clean.label(&fate(100_000, 40), Some(0));
        assert_eq!(label, Losses { congestion: 40, ..Losses::default() });
    }

    #[test]
    fn losses_of_before_get_their_label_once_chance_is_known() {
        let mut account = LossAccount::default();
        account.label(&fate(9_900, 100), None);
        assert_eq!(account.losses(), Losses { unknown: 100, ..Losses::default() });
        let label = account.label(&fate(10_000, 0), Some(10_000));
        assert_eq!(label, Losses::default(), "nothing new was lost");
        assert_eq!(account.losses(), Losses { random: 100, ..Losses::default() });
    }

    #[test]
    fn what_arrived_late_was_not_lost() {
        let mut account = LossAccount::default();
        account.label(&fate(1_000, 30), Some(0));
        let late = Feedback { spurious_packets: 10, ..fate(0, 0) };
        assert_eq!(account.label(&late, Some(0)), Losses::default());
        let sender = Losses { sender: 64, ..Losses::default() };
        account.book(&sender);
        assert_eq!(account.losses(), Losses { congestion: 20, ..sender });
        let more = Feedback { spurious_packets: 1_000, ..fate(0, 0) };
        account.label(&more, Some(0));
        assert_eq!(account.losses(), sender, "told of more than was lost");
    }
}
