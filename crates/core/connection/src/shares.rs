//! The number of lanes for each path.

use alloc::vec;
use alloc::vec::Vec;

/// So many of `lanes` for each path as its weight is of all; a path of any weight gets one while there
/// are enough. All weights zero: none gets any.
pub(crate) fn shares(lanes: u16, weights: &[u64]) -> Vec<u16> {
    let mut shares = vec![0; weights.len()];
    for _ in 0..lanes {
        // The highest averages method: the path that would have the most weight for each of its lanes. A
        // lane more or less moves no other.
        let wanting = (0..weights.len()).filter(|path| weights[*path] > 0);
        let next = wanting.max_by(|a, b| {
            let worth = |path: usize, other: usize| {
                u128::from(weights[path]) * (u128::from(shares[other]) + 1)
            };
            let first = (shares[*a] == 0).cmp(&(shares[*b] == 0));
            first.then(worth(*a, *b).cmp(&worth(*b, *a))).then(b.cmp(a))
        });
        if let Some(path) = next {
            shares[path] += 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lanes_follow_weights() {
        assert_eq!(shares(4, &[1]), [4]);
        assert_eq!(shares(4, &[0, 7]), [0, 4]);
        assert_eq!(shares(4, &[1, 1]), [2, 2]);
        assert_eq!(shares(3, &[1, 1]), [2, 1], "the first of equals");
        assert_eq!(shares(8, &[100, 300]), [2, 6]);
        assert_eq!(shares(4, &[1, 1000]), [1, 3], "each that carries anything has a lane");
        assert_eq!(shares(1, &[1, 1000]), [0, 1], "but for want of lanes");
        assert_eq!(shares(3, &[0, 0]), [0, 0]);
    }

    proptest! {
        #[test]
        fn all_lanes_are_given_out_and_none_to_who_weighs_nothing(
            lanes in 0u16..70,
            weights in prop::collection::vec(prop_oneof![Just(0), 1u64..1000, any::<u64>()], 1..6),
        ) {
            let all = shares(lanes, &weights);
            let some = weights.iter().any(|weight| *weight > 0);
            prop_assert_eq!(all.iter().sum::<u16>(), if some { lanes } else { 0 });
            let mut without = 0;
            for (share, weight) in all.iter().zip(&weights) {
                prop_assert!(*weight > 0 || *share == 0);
                without += u16::from(*weight > 0 && *share == 0);
            }
            let wanting = weights.iter().filter(|weight| **weight > 0).count() as u16;
            prop_assert_eq!(without, wanting.saturating_sub(lanes));
            // One lane more takes none from anybody.
            let more = shares(lanes + 1, &weights);
            prop_assert!(all.iter().zip(&more).all(|(before, after)| before <= after));
        }
    }
}
