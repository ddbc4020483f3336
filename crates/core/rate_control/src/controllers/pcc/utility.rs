//! Utility of a sender: Vivace, section 4 of the paper.

use longhaul_units::Rate;

use crate::controllers::power::power_of;

/// The coefficients of the utility.
#[derive(Clone, Copy, Debug)]
pub(super) struct Utility {
    /// Of a round trip that grows (b).
    pub(super) latency: u64,
    /// Of loss (c), parts per million.
    pub(super) loss_ppm: u64,
}

impl Utility {
    /// u(x) = x^0.9 - b x dRTT/dt - c x L, with x in Mb/s; gradient and loss in parts per million, u
    /// in millionths.
    pub(super) fn of(&self, rate: Rate, rtt_gradient: i64, loss: u64) -> i64 {
        let x = i128::from(rate.min(MOST_RATE).as_bps());
        let gradient = i128::from(rtt_gradient.clamp(-MILLION, MILLION));
        let share = i128::from(loss.min(MILLION as u64));
        let latency = x * i128::from(self.latency) * gradient / 1_000_000;
        let loss = x * i128::from(self.loss_ppm) / 1_000_000 * share / 1_000_000;
        let utility = i128::from(power(rate)) - latency - loss;
        utility.clamp(i128::from(-MOST), i128::from(MOST)) as i64
    }
}

/// The rate in Mb/s to the power of 0.9, in millionths.
fn power(rate: Rate) -> u64 {
    let base = (u128::from(rate.min(MOST_RATE).as_bps()) << 32) / 1_000_000;
    ((power_of(base, EXPONENT) * 1_000_000) >> 32) as u64
}

/// 0.9 times 2^24.
const EXPONENT: u32 = 15_099_494;
const MILLION: i64 = 1_000_000;
const MOST_RATE: Rate = Rate::from_gbps(10_000);
/// In range for differences, products and what is divided by rates.
const MOST: i64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    const VIVACE: Utility = Utility { latency: 900, loss_ppm: 11_350_000 };

    #[test]
    fn the_power_is_exact_to_six_digits() {
        for (mbps, power_of) in
            [(1, 1_000_000), (10, 7_943_282), (200, 117_740_596), (10_000, 3_981_071_706)]
        {
            let got = power(Rate::from_mbps(mbps));
            assert!(got.abs_diff(power_of) <= power_of / 500_000, "{mbps}: {got}");
        }
        assert_eq!(power(Rate::ZERO), 0);
        // 0.001^0.9 = 0.00199526
        assert!((1_990..=1_996).contains(&power(Rate::from_kbps(1))));
        assert_eq!(power(Rate::MAX), power(MOST_RATE));
    }

    #[test]
    fn a_queue_costs_more_than_a_rate_gains_and_one_percent_of_loss_less() {
        let (at, more) = (Rate::from_mbps(200), Rate::from_mbps(210));
        assert!(VIVACE.of(more, 0, 0) > VIVACE.of(at, 0, 0));
        assert!(VIVACE.of(more, 50_000, 0) < VIVACE.of(at, 0, 0));
        assert!(VIVACE.of(more, 0, 10_000) > VIVACE.of(at, 0, 10_000));
        assert!(VIVACE.of(more, 0, 60_000) < VIVACE.of(at, 0, 12_000));
        assert!(VIVACE.of(Rate::MAX, i64::MAX, u64::MAX) < 0);
        assert!(VIVACE.of(Rate::MAX, i64::MIN, 0) > 0);
    }
}
