//! Losses by chance, which do not depend on the rate.

use super::Estimates;

/// The share that is lost by chance.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Chance {
    /// Packets of drains and of early start-up, and how many of them were lost: sent on purpose at a
    /// rate that cannot have been too high.
    measured: Tally,
    /// Packets of rounds without a queue, for controllers that measure nothing on purpose.
    quiet: Tally,
    /// Packets of late, whatever the rate was; of the lost, those that chance explains.
    late: Tally,
}

/// Outcome of packets; older ones count less and less.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    acked: u64,
    pub lost: u64,
}

impl Tally {
    pub const fn new() -> Self {
        Self { acked: 0, lost: 0 }
    }

    /// Adds some, and halves everything once there are more than `most`.
    pub fn add(&mut self, acked: u64, lost: u64, most: u64) {
        self.acked += acked;
        self.lost += lost;
        if self.all() > most {
            self.acked /= 2;
            self.lost /= 2;
        }
    }

    pub fn sum(tallies: &[Self]) -> Self {
        let acked = tallies.iter().map(|tally| tally.acked).sum();
        Self { acked, lost: tallies.iter().map(|tally| tally.lost).sum() }
    }

    pub fn all(&self) -> u64 {
        self.acked + self.lost
    }

    /// The share lost. Few packets prove little: it begins with some that arrived.
    pub fn ppm(&self) -> u64 {
        self.lost * 1_000_000 / (self.all() + PRIOR_PACKETS)
    }
}

impl Tally {
    /// The share that may have been lost: two standard deviations above what was.
    pub fn most_ppm(&self) -> u32 {
        let lost = self.lost + 2 * self.lost.isqrt() + 2;
        (lost * 1_000_000 / self.all().max(2)).min(1_000_000) as u32
    }
}

impl Chance {
    pub fn on_round(&mut self, acked: u64, lost: u64, quiet: bool) {
        // What chance does not explain was the queue, and no measure of chance.
        let by_chance = lost.min(1 + explained(acked, self.measured_ppm()));
        self.late.add(acked, by_chance, LATE_PACKETS);
        if quiet {
            self.quiet.add(acked, lost, LATE_PACKETS);
        }
    }

    fn learn(&mut self, acked: u64, lost: u64) {
        self.measured.add(acked, lost, MANY_PACKETS);
        self.late.add(acked, lost, LATE_PACKETS);
    }

    fn measured_ppm(&self) -> u32 {
        self.measured.ppm().min(self.most()).min(MAX_RANDOM_LOSS) as u32
    }

    /// Chance cannot have taken more than was lost in all, parts per million; two standard
    /// deviations above that. Where others filled the queue while chance was learnt, their losses
    /// were taken for it.
    fn most(&self) -> u64 {
        let lost = self.late.lost + 2 * self.late.lost.isqrt() + PRIOR_LOSSES;
        lost * 1_000_000 / self.late.all().max(1)
    }

    /// The most that chance can take, parts per million: what is lost on purpose at a low rate, in rounds
    /// without a queue, or of late, each with two standard deviations.
    pub fn most_ppm(&self) -> u32 {
        let tallies = [self.measured, self.quiet, self.late];
        tallies.iter().map(Tally::most_ppm).min().unwrap_or(u32::MAX)
    }

    /// Share that was measured on purpose, parts per million.
    pub fn on_purpose_ppm(&self) -> Option<u32> {
        (self.measured.all() > 0).then(|| self.measured_ppm())
    }

    /// Share that is known by any evidence, parts per million.
    pub fn known_ppm(&self) -> Option<u32> {
        let quiet = self.quiet.all() >= PRIOR_PACKETS;
        let quiet = quiet.then(|| self.quiet.ppm().min(MAX_RANDOM_LOSS) as u32);
        self.on_purpose_ppm().or(quiet)
    }
}

impl Estimates {
    /// Takes in what became of packets at a rate that cannot have been too high.
    pub(crate) fn learn_chance(&mut self, acked: u64, lost: u64) {
        self.chance.learn(acked, lost);
    }

    /// As [`Estimates::learn_chance`], where what was learnt before is known to be wrong.
    pub(crate) fn relearn_chance(&mut self, acked: u64, lost: u64) {
        self.chance = Chance { quiet: self.chance.quiet, ..Chance::default() };
        self.learn_chance(acked, lost);
    }

    /// Loss that does not depend on the rate, parts per million, as it was measured on purpose.
    pub(crate) fn random_loss_ppm(&self) -> u32 {
        self.chance.measured_ppm()
    }

    /// Returns whether it was measured on purpose with so many packets that one in a hundred would have shown well.
    pub(crate) fn knows_chance(&self) -> bool {
        self.chance.measured.all() >= ENOUGH_PACKETS
    }

    /// Loss that does not depend on the rate, parts per million, by the best evidence there is.
    pub fn chance_ppm(&self) -> Option<u32> {
        self.chance.known_ppm()
    }
}

/// So many of `all` packets may be lost by a chance of so many parts per million: twice the mean and
/// four standard deviations.
pub(crate) fn explained(all: u64, chance: u32) -> u64 {
    let expected = all * u64::from(chance) / 1_000_000;
    2 * expected + 4 * expected.isqrt()
}

/// More is an outage rather than a property of the path.
const MAX_RANDOM_LOSS: u64 = 100_000;
/// Packets that are remembered: enough to see a loss rate of one in a thousand.
const MANY_PACKETS: u64 = 8_192;
/// Of those, a quarter: twenty losses of one in a hundred.
const ENOUGH_PACKETS: u64 = MANY_PACKETS / 4;
/// So many of late: with fewer, the losses of one overflow would pass for a rate.
const LATE_PACKETS: u64 = 1 << 17;
/// Losses that may have been too few to show.
const PRIOR_LOSSES: u64 = 3;
/// Imagined packets that arrived.
const PRIOR_PACKETS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_chance_takes_is_what_the_best_evidence_leaves() {
        let mut chance = Chance::default();
        assert_eq!(chance.most_ppm(), 1_000_000, "nothing is known");
        chance.learn(1_000, 0);
        assert_eq!(chance.most_ppm(), 2_000, "two of a thousand may have been luck");
        chance.on_round(99_000, 0, true);
        assert_eq!(chance.most_ppm(), 20, "a round without a queue says more than a drain");
        chance.on_round(1_000, 900, false);
        assert_eq!(chance.most_ppm(), 20, "a full queue says nothing of chance");
    }
}
