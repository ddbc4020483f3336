use alloc::vec::Vec;

use longhaul_units::{Duration, Instant, Rate};

/// Divides the limit of a connection among its paths, by what they deliver.
///
/// A path that delivers seven eighths of its share may deliver more: all such paths have equal
/// shares. Any other has what it delivers and a quarter more, and a hundredth of the limit at least,
/// so that it can begin. What is left over is added in proportion. So the shares are never more than
/// the limit, and one path that carries everything has nearly all of it.
#[derive(Clone, Debug, Default)]
pub struct Division {
    paths: Vec<Divided>,
    /// Time when the present shares began.
    since: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Divided {
    /// Bytes delivered when the present share began.
    before: u64,
    /// Parts per million of the limit: now, and before.
    share: u32,
    earlier: u32,
}

impl Division {
    /// Divides `limit` again, if it is time: `delivered` has the bytes that each path has delivered so
    /// far, `round_trip` is the longest among them. Gives the shares in parts per million, in the order
    /// of the paths. Where their number changes they begin with equal shares.
    pub fn update(
        &mut self,
        now: Instant,
        limit: Rate,
        delivered: &[u64],
        round_trip: Duration,
    ) -> Vec<u32> {
        let elapsed = now - self.since;
        if self.paths.len() != delivered.len() {
            let count = u32::try_from(delivered.len()).unwrap_or(u32::MAX);
            let share = WHOLE / count.max(1);
            let begin = |before: &u64| Divided { before: *before, share, earlier: share };
            self.paths = delivered.iter().map(begin).collect();
            self.since = now;
        } else if elapsed >= (round_trip * 2).max(LEAST_TIME) {
            let wanted: Vec<u32> = self
                .paths
                .iter()
                .zip(delivered)
                .map(|(path, delivered)| {
                    let bytes = delivered.saturating_sub(path.before);
                    path.wanted(Rate::from_bytes_over(bytes, elapsed), limit)
                })
                .collect();
            for ((path, share), delivered) in
                self.paths.iter_mut().zip(divide(&wanted)).zip(delivered)
            {
                *path = Divided { before: *delivered, share, earlier: path.share };
            }
            self.since = now;
        }
        self.paths.iter().map(|path| path.share).collect()
    }
}

impl Divided {
    /// The share that a path can use which delivered at this rate.
    fn wanted(&self, rate: Rate, limit: Rate) -> u32 {
        let used = u128::from(rate.as_bps()) * u128::from(WHOLE);
        let used = used.checked_div(u128::from(limit.as_bps())).unwrap_or(0);
        let used = used.min(u128::from(WHOLE)) as u32;
        // What was sent under a new share arrives a round trip later.
        let is_short = used >= self.share.min(self.earlier) / 8 * 7;
        if is_short { WHOLE } else { (used / 4 * 5).clamp(LEAST_SHARE, WHOLE) }
    }
}

/// Shares of `wanted`, all in parts per million: who wants least is served first, with no more than
/// an equal part of what is left.
fn divide(wanted: &[u32]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|path| wanted[*path]);
    let (mut left, mut waiting) = (WHOLE, u32::try_from(wanted.len()).unwrap_or(u32::MAX));
    let mut shares = alloc::vec![0; wanted.len()];
    for path in order {
        shares[path] = wanted[path].min(left / waiting.max(1));
        left -= shares[path];
        waiting -= 1;
    }
    let given = u64::from(WHOLE - left);
    let more = |share: u32| (u64::from(left) * u64::from(share)).checked_div(given).unwrap_or(0);
    shares.iter().map(|share| share + more(*share) as u32).collect()
}

/// Parts per million.
const WHOLE: u32 = 1_000_000;
const LEAST_SHARE: u32 = WHOLE / 100;
/// So long that turns which a busy host gave late do not look like rates.
const LEAST_TIME: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Paths that carry so much at most, and have so much to send, under a limit.
    fn settled(limit: Rate, paths: &[Rate], looks: u32) -> Vec<Rate> {
        let mut division = Division::default();
        let mut delivered = alloc::vec![0; paths.len()];
        let mut sent = Vec::new();
        for look in 0..looks {
            let now = Instant::ZERO + LEAST_TIME * look;
            let shares = division.update(now, limit, &delivered, Duration::from_millis(100));
            let shares = shares.into_iter().map(|share| limit.scale(share, WHOLE));
            sent = shares.zip(paths).map(|(share, path)| share.min(*path)).collect();
            for (delivered, rate) in delivered.iter_mut().zip(&sent) {
                *delivered += rate.bytes_in(LEAST_TIME);
            }
        }
        sent
    }

    #[test]
    fn what_one_path_cannot_use_another_has() {
        let limit = Rate::from_mbps(400);
        let (fast, slow) = (Rate::from_gbps(1), Rate::from_mbps(50));
        let [first, second] = settled(limit, &[fast, slow], 10)[..] else { unreachable!() };
        assert_eq!(second, slow);
        assert!(first >= Rate::from_mbps(330), "{first}");
        assert_eq!(settled(limit, &[fast, fast], 10), [Rate::from_mbps(200); 2]);
        let [all, none] = settled(limit, &[fast, Rate::ZERO], 10)[..] else { unreachable!() };
        assert!(all >= Rate::from_mbps(396) && none == Rate::ZERO, "{all}");
        assert_eq!(settled(limit, &[fast], 3), [limit]);
    }

    #[test]
    fn a_path_that_begins_late_comes_to_its_share() {
        let (limit, time) = (Rate::from_mbps(400), LEAST_TIME);
        let mut division = Division::default();
        let (mut delivered, mut shares) = ([0, 0], [0; 2]);
        for look in 0..20u32 {
            let now = Instant::ZERO + time * look;
            let given = division.update(now, limit, &delivered, Duration::from_millis(1));
            shares.iter_mut().zip(given).for_each(|(share, given)| *share = given);
            let idle = look < 10;
            for (path, share) in shares.iter().enumerate() {
                let rate = if idle && path == 1 { Rate::ZERO } else { limit.scale(*share, WHOLE) };
                delivered[path] += rate.bytes_in(time);
            }
            let nearly_all = shares[0] > 980_000;
            assert_eq!(nearly_all, (1..=10).contains(&look), "{look}: {shares:?}");
        }
        assert!(shares.iter().all(|share| share.abs_diff(WHOLE / 2) < WHOLE / 20), "{shares:?}");
    }

    #[test]
    fn shares_last_two_round_trips() {
        let mut division = Division::default();
        let (limit, round_trip) = (Rate::from_mbps(8), Duration::from_secs(1));
        let mut at = |ms: u64, delivered: [u64; 2]| {
            let now = Instant::ZERO + Duration::from_millis(ms);
            division.update(now, limit, &delivered, round_trip)
        };
        assert_eq!(at(0, [0, 0]), [500_000; 2]);
        assert_eq!(at(1_999, [999_500, 0]), [500_000; 2]);
        assert!(at(2_000, [1_000_000, 0])[0] >= 980_000);
    }

    proptest! {
        /// Whatever paths deliver, the limit holds over all of them, nobody is shut out, and nothing of
        /// it is kept back.
        #[test]
        fn the_shares_are_the_whole(
            limit in 1u64..200_000_000_000,
            looks in prop::collection::vec((0u64..5_000, prop::collection::vec(any::<u32>(), 3)), 1..40),
        ) {
            let mut division = Division::default();
            let (mut now, mut delivered) = (Instant::ZERO, [0u64; 3]);
            for (ms, more) in looks {
                now += Duration::from_millis(ms);
                delivered.iter_mut().zip(more).for_each(|(sum, more)| *sum += u64::from(more));
                let shares = division.update(now, Rate::from_bps(limit), &delivered, Duration::from_millis(30));
                let sum: u32 = shares.iter().sum();
                prop_assert!((WHOLE - 8..=WHOLE).contains(&sum), "{shares:?}");
                prop_assert!(shares.iter().all(|share| *share >= LEAST_SHARE), "{shares:?}");
            }
        }
    }
}
