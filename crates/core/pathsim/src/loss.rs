use crate::probability::Probability;
use crate::random::{Element, Geometric, Stream};

/// Bursty loss: a chain of a good and a bad state, each with its own loss probability
/// (Gilbert 1960, Elliott 1963). The chain starts in the good state and may change state before
/// each packet but the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GilbertElliott {
    /// Probability, at each packet, of going from good to bad.
    pub enter_bad: Probability,
    /// Probability, at each packet, of going from bad to good.
    pub leave_bad: Probability,
    /// Loss in the good state.
    pub loss_good: Probability,
    /// Loss in the bad state.
    pub loss_bad: Probability,
}

impl GilbertElliott {
    /// Bursts of `mean_burst` packets on average, all of them lost, that begin with probability
    /// `enter_bad` at each packet (the simple Gilbert model).
    pub const fn bursts(enter_bad: Probability, mean_burst: u32) -> Self {
        Self {
            enter_bad,
            leave_bad: Probability::one_in(mean_burst),
            loss_good: Probability::ZERO,
            loss_bad: Probability::ONE,
        }
    }

    /// Share of packets lost in the long run.
    pub const fn stationary_loss(&self) -> Probability {
        let (enter, leave) = (self.enter_bad.as_ppb() as u128, self.leave_bad.as_ppb() as u128);
        if enter == 0 {
            return self.loss_good;
        }
        let good = self.loss_good.as_ppb() as u128 * leave;
        let bad = self.loss_bad.as_ppb() as u128 * enter;
        Probability::from_ppb(((good + bad) / (enter + leave)) as u32)
    }
}

/// The chain in motion. Times spent in a state and gaps between losses are drawn whole.
#[derive(Clone, Debug)]
pub(crate) struct Bursts {
    /// For the good and for the bad state.
    leave: [Geometric; 2],
    loss: [Geometric; 2],
    bad: bool,
    state_stream: Stream,
    loss_stream: Stream,
    next_change: u64,
    next_loss: u64,
}

impl Bursts {
    pub(crate) fn new(config: &GilbertElliott, seed: u64) -> Self {
        let mut bursts = Self {
            leave: [config.enter_bad, config.leave_bad].map(Geometric::new),
            loss: [config.loss_good, config.loss_bad].map(Geometric::new),
            bad: false,
            state_stream: Stream::new(seed, Element::BurstState),
            loss_stream: Stream::new(seed, Element::BurstLoss),
            next_change: 0,
            next_loss: 0,
        };
        bursts.enter(false, 0);
        bursts
    }

    /// Number of the next packet that meets a loss or a change of state.
    pub(crate) fn next(&self) -> u64 {
        self.next_change.min(self.next_loss)
    }

    /// True if packet `number` is lost. Numbers are asked in order, [`Self::next`] never left out.
    pub(crate) fn take(&mut self, number: u64) -> bool {
        if number == self.next_change {
            self.enter(!self.bad, number);
        }
        if number != self.next_loss {
            return false;
        }
        self.draw_loss(number + 1);
        true
    }

    fn enter(&mut self, bad: bool, number: u64) {
        self.bad = bad;
        let stay = self.leave[usize::from(bad)].gap(&mut self.state_stream);
        self.next_change = stay.map_or(u64::MAX, |stay| number.saturating_add(stay + 1));
        self.draw_loss(number);
    }

    fn draw_loss(&mut self, number: u64) {
        let gap = self.loss[usize::from(self.bad)].gap(&mut self.loss_stream);
        self.next_loss = gap.map_or(u64::MAX, |gap| number.saturating_add(gap));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const PACKETS: u64 = 1_000_000;

    fn lost(config: &GilbertElliott, seed: u64) -> Vec<u64> {
        let mut bursts = Bursts::new(config, seed);
        (0..PACKETS).filter(|&number| bursts.take(number)).collect()
    }

    #[test]
    fn stationary_loss_is_met() {
        let config = GilbertElliott {
            enter_bad: Probability::from_percent(1),
            leave_bad: Probability::from_percent(20),
            loss_good: Probability::from_ppm(1_000),
            loss_bad: Probability::from_percent(50),
        };
        // 1/21 of the packets in the bad state: (20 * 0.001 + 1 * 0.5) / 21 = 2.476 %.
        assert_eq!(config.stationary_loss(), Probability::from_ppb(24_761_904));
        let share = lost(&config, 11).len() as f64 / PACKETS as f64;
        assert!((share - 0.02476).abs() < 0.001, "{share}");
    }

    #[test]
    fn bursts_have_the_asked_mean_length() {
        let config = GilbertElliott::bursts(Probability::from_ppm(500), 8);
        let lost = lost(&config, 3);
        let bursts = lost.chunk_by(|a, b| a + 1 == *b).count();
        let mean = lost.len() as f64 / bursts as f64;
        assert!((mean - 8.0).abs() < 1.2, "{mean}");
        assert!((350..650).contains(&bursts), "{bursts}");
    }

    #[test]
    fn degenerate_chains() {
        let never = Probability::ZERO;
        let always = Probability::ONE;
        let chain = |enter_bad, leave_bad| GilbertElliott {
            enter_bad,
            leave_bad,
            loss_good: never,
            loss_bad: always,
        };
        assert!(lost(&chain(never, never), 1).is_empty());
        assert_eq!(lost(&chain(always, never), 1).len() as u64, PACKETS - 1);
        let alternating = lost(&chain(always, always), 1);
        assert!(alternating.iter().all(|number| number % 2 == 1));
        assert_eq!(alternating.len() as u64, PACKETS / 2);
        assert_eq!(chain(never, never).stationary_loss(), never);
    }
}
