//! Assignment of lanes to paths.

use alloc::vec::Vec;

use longhaul_units::PathId;

/// Where each lane is to be, given where it is `now` and how many each path is to have: as few move
/// as can be. The first lane is wherever `first` says, and counts there; a path that has more than it
/// gets loses its last lanes. Where all shares are taken a lane stays.
pub(crate) fn assign_lanes(now: &[PathId], first: PathId, shares: &[u16]) -> Vec<PathId> {
    let mut left = shares.to_vec();
    let mut take = |path: PathId| match left.get_mut(usize::from(path.0)) {
        Some(count @ 1..) => {
            *count -= 1;
            true
        }
        _ => false,
    };
    take(first);
    let stay: Vec<bool> = now.iter().skip(1).map(|path| take(*path)).collect();
    let mut free =
        (0u16..).zip(&left).flat_map(|(path, count)| (0..*count).map(move |_| PathId(path)));
    let others = now
        .iter()
        .skip(1)
        .zip(stay)
        .map(|(path, stays)| if stays { *path } else { free.next().unwrap_or(*path) });
    core::iter::once(first).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn paths(numbers: &[u16]) -> Vec<PathId> {
        numbers.iter().map(|number| PathId(*number)).collect()
    }

    #[test]
    fn as_few_lanes_move_as_can_be() {
        let assign = |now: &[u16], first, shares: &[u16]| {
            let lanes = assign_lanes(&paths(now), PathId(first), shares);
            lanes.iter().map(|path| path.0).collect::<Vec<_>>()
        };
        assert_eq!(assign(&[0, 0, 0], 0, &[3]), [0, 0, 0]);
        assert_eq!(assign(&[0, 0, 0], 0, &[1, 2]), [0, 1, 1], "to a circuit");
        assert_eq!(assign(&[0, 1, 1], 0, &[3, 0]), [0, 0, 0], "and back");
        assert_eq!(assign(&[0, 0, 1, 1], 0, &[1, 2, 1]), [0, 2, 1, 1]);
        assert_eq!(assign(&[1, 1, 1], 1, &[1, 2]), [1, 1, 0], "the last ones");
        assert_eq!(assign(&[0, 1], 1, &[0, 2]), [1, 1], "the first lane is moved by name");
        assert_eq!(assign(&[0, 0], 0, &[0, 0]), [0, 0], "nowhere to go");
    }

    proptest! {
        #[test]
        fn each_path_gets_its_share(
            now in prop::collection::vec(0u16..4, 1..20),
            weights in prop::collection::vec(0u64..5, 4),
        ) {
            let shares = crate::shares::shares(now.len() as u16, &weights);
            prop_assume!(shares.iter().any(|share| *share > 0));
            let first = PathId(shares.iter().position(|share| *share > 0).unwrap() as u16);
            let places = paths(&now);
            let then = assign_lanes(&places, first, &shares);
            let mut counts = vec![0; 4];
            then.iter().for_each(|path| counts[usize::from(path.0)] += 1);
            prop_assert_eq!(&counts, &shares);
            prop_assert_eq!(&assign_lanes(&then, first, &shares), &then, "settled");
        }
    }
}
