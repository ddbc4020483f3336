use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::testing::NaiveProfile;
use crate::vector::Allocation;

fn all<C: Capacity>(capacity: &C) -> Vec<Segment> {
    let mut walk = capacity.walk(0);
    let mut out: Vec<Segment> = Vec::new();
    loop {
        let s = walk.segment();
        match out.last_mut() {
            // A floor inside a segment may leave two equal neighbours apart.
            Some(last) if last.free == s.free => last.end = s.end,
            _ => out.push(s),
        }
        if !walk.forward() {
            return out;
        }
    }
}

fn backwards<C: Capacity>(capacity: &C) -> Vec<u64> {
    let mut walk = capacity.walk(FOREVER - 1);
    let mut out = Vec::new();
    loop {
        out.push(walk.segment().start);
        if !walk.back() {
            return out;
        }
    }
}

/// Puts what is noted into a list.
fn noted(out: &mut Vec<u64>) -> impl FnMut(u64, &[u32]) + '_ {
    |first, lows| out.extend(lows.iter().map(|low| block::tick(first, *low)))
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u64, u64, u32),
    Release(u64, u64, u32),
    Forget(u64),
}

fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let interval = || (0u64..300, 1u64..60, 0u32..7);
    let step = prop_oneof![
        8 => interval().prop_map(|(start, len, rate)| Step::Reserve(start, start + len, rate)),
        6 => interval().prop_map(|(start, len, rate)| Step::Release(start, start + len, rate)),
        1 => (0u64..40).prop_map(Step::Forget),
    ];
    prop::collection::vec(step, 1..count)
}

/// The same with so much more time between that no block holds many breakpoints.
fn far_apart(step: Step) -> Step {
    let far = |tick: u64| (tick << 29) + tick % 3;
    match step {
        Step::Reserve(start, end, rate) => Step::Reserve(far(start), far(end), rate),
        Step::Release(start, end, rate) => Step::Release(far(start), far(end), rate),
        Step::Forget(tick) => Step::Forget(far(tick)),
    }
}

fn apply<C: Calendar>(calendar: &mut C, step: &Step) -> Result<(), ReserveError> {
    match *step {
        Step::Reserve(start, end, rate) => calendar.reserve(start, end, rate),
        Step::Release(start, end, rate) => calendar.release(start, end, rate),
        Step::Forget(tick) => {
            calendar.forget_before(tick);
            Ok(())
        }
    }
}

/// Summaries agree with the breakpoints, and the form is canonical.
fn check_summaries(profile: &Profile) {
    for (index, entry) in profile.entries.iter().enumerate() {
        assert_eq!(entry.first, entry.start(0));
        assert_eq!((entry.min, entry.max), entry.extremes(0, entry.len()));
        let starts = (0..entry.len()).map(|at| entry.start(at));
        let starts: Vec<u64> = starts.chain([entry_end(&profile.entries, index)]).collect();
        assert!(starts.is_sorted_by(|a, b| a < b));
    }
    let segments: Vec<Segment> = profile.segments(profile.floor, FOREVER).collect();
    assert!(segments.windows(2).all(|w| w[0].end == w[1].start && w[0].free != w[1].free));
    assert_eq!(segments.len(), profile.segment_count());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn equals_the_naive_profile(steps in steps(120)) {
        let mut profile = Profile::new(12, 0);
        let mut naive = NaiveProfile::new(12, 0);
        for step in &steps {
            prop_assert_eq!(apply(&mut profile, step), apply(&mut naive, step));
            check_summaries(&profile);
        }
        prop_assert_eq!(all(&profile), all(&naive));
        prop_assert_eq!(backwards(&profile), backwards(&naive));
        for at in (0..380).step_by(7) {
            prop_assert_eq!(profile.free_at(at), naive.free_at(at));
            for rate in [1, 6, 12] {
                let (mut a, mut b) = (profile.walk(at), naive.walk(at));
                prop_assert_eq!(a.to_at_least(rate), b.to_at_least(rate));
                prop_assert_eq!(a.segment(), b.segment());
                let (mut a, mut b) = (profile.walk(at), naive.walk(at));
                let found = a.back_to_at_least(rate);
                prop_assert_eq!(found, b.back_to_at_least(rate));
                if found {
                    prop_assert_eq!(a.segment(), b.segment());
                }
                for limit in [at, at + 5, at + 60, FOREVER] {
                    let (mut a, mut b) = (profile.walk(at), naive.walk(at));
                    prop_assert_eq!(a.to_below(rate, limit), b.to_below(rate, limit));
                    prop_assert_eq!(a.segment(), b.segment());
                    let (mut a, mut b) = (profile.walk(at), naive.walk(at));
                    let (mut passed, mut expected) = (Vec::new(), Vec::new());
                    a.to_below_noting(rate, limit, &mut noted(&mut passed));
                    b.to_below_noting(rate, limit, &mut noted(&mut expected));
                    prop_assert_eq!(passed, expected);
                    prop_assert_eq!(a.segment(), b.segment());
                }
                for end in [at + 1, at + 33, 400] {
                    let least = (at..end).map(|t| naive.free_at(t)).min();
                    prop_assert_eq!(profile.min_free(at, end), least.unwrap_or(0));
                }
            }
        }
    }

    #[test]
    fn equals_the_naive_profile_where_breakpoints_are_far_apart(steps in steps(120)) {
        let mut profile = Profile::new(12, 0);
        let mut naive = NaiveProfile::new(12, 0);
        for step in steps.into_iter().map(far_apart) {
            prop_assert_eq!(apply(&mut profile, &step), apply(&mut naive, &step));
            check_summaries(&profile);
        }
        prop_assert_eq!(all(&profile), all(&naive));
        prop_assert_eq!(backwards(&profile), backwards(&naive));
        for at in (0..380).step_by(7).map(|at| (at << 29) + 1) {
            prop_assert_eq!(profile.free_at(at), naive.free_at(at));
            for limit in [at + 5, at + (60 << 29), FOREVER] {
                let (mut a, mut b) = (profile.walk(at), naive.walk(at));
                let (mut passed, mut expected) = (Vec::new(), Vec::new());
                a.to_below_noting(6, limit, &mut noted(&mut passed));
                b.to_below_noting(6, limit, &mut noted(&mut expected));
                prop_assert_eq!(passed, expected);
                prop_assert_eq!(a.segment(), b.segment());
            }
            let least = naive.walk(at).segment().free;
            prop_assert_eq!(profile.min_free(at, at + 1), if at < naive.floor() { 0 } else { least });
        }
    }

    #[test]
    fn a_snapshot_stays_as_it_was(before in steps(60), after in steps(60)) {
        let mut profile = Profile::new(12, 0);
        for step in &before {
            let _ = apply(&mut profile, step);
        }
        let snapshot = profile.clone();
        let expected = all(&profile);
        for step in &after {
            let _ = apply(&mut profile, step);
        }
        prop_assert_eq!(all(&snapshot), expected);
        check_summaries(&snapshot);
        check_summaries(&profile);
    }

    #[test]
    fn many_ranges_at_once_are_the_same_as_one_by_one(
        before in steps(60),
        ranges in prop::collection::vec((0u64..6, 1u64..12, 1u32..4), 1..30),
        far in any::<bool>(),
    ) {
        let mut profile = Profile::new(12, 0);
        for step in before {
            let _ = apply(&mut profile, &if far { far_apart(step) } else { step });
        }
        let mut at = profile.floor();
        let mut vector: Vec<Allocation> = Vec::new();
        for (gap, len, rate) in ranges {
            let times = if far { 1 << 29 } else { 1 };
            let (start, end) = (at + gap * times, at + (gap + len) * times);
            at = end;
            if profile.min_free(start, end) >= rate {
                vector.push(Allocation { start, end, rate });
            }
        }
        let untouched = profile.clone();
        let mut singly = profile.clone();
        for r in &vector {
            prop_assert_eq!(singly.reserve(r.start, r.end, r.rate), Ok(()));
        }
        profile.change(Way::Take, vector.iter().copied());
        check_summaries(&profile);
        prop_assert_eq!(&profile, &singly);
        profile.change(Way::Give, vector.iter().copied());
        check_summaries(&profile);
        prop_assert_eq!(&profile, &untouched);
    }

    #[test]
    fn reserving_then_releasing_in_any_order_restores(
        intervals in prop::collection::vec((0u64..500, 1u64..90, 1u32..4, any::<u16>()), 1..80),
    ) {
        let mut profile = Profile::new(40, 0);
        let mut held = Vec::new();
        for (start, len, rate, order) in intervals {
            if profile.reserve(start, start + len, rate).is_ok() {
                held.push((order, start, start + len, rate));
            }
        }
        held.sort();
        for (_, start, end, rate) in held {
            prop_assert_eq!(profile.release(start, end, rate), Ok(()));
            check_summaries(&profile);
        }
        prop_assert_eq!(&profile, &Profile::new(40, 0));
        prop_assert_eq!(profile.segment_count(), 1);
    }
}

#[test]
fn two_equal_bookings_at_one_instant_count_twice() {
    let mut profile = Profile::new(4, 0);
    assert_eq!(profile.reserve(10, 20, 2), Ok(()));
    assert_eq!(profile.reserve(10, 20, 2), Ok(()));
    assert_eq!(profile.reserve(10, 20, 1), Err(ReserveError::Overbooked { free: 0 }));
}

#[test]
fn bookings_back_to_back_do_not_meet() {
    let mut profile = Profile::new(4, 0);
    assert_eq!(profile.reserve(10, 20, 4), Ok(()));
    assert_eq!(profile.reserve(20, 30, 4), Ok(()));
    assert_eq!(profile.reserve(0, 10, 4), Ok(()));
    assert_eq!(profile.segments(0, 40).count(), 2);
    // The peak counts, not the sum over the window.
    assert_eq!(profile.release(10, 20, 2), Ok(()));
    assert_eq!(profile.min_free(10, 20), 2);
}

#[test]
fn bad_intervals() {
    let mut profile = Profile::new(4, 5);
    assert_eq!(profile.reserve(10, 10, 1), Err(ReserveError::BadInterval));
    assert_eq!(profile.reserve(10, FOREVER, 1), Err(ReserveError::BadInterval));
    assert_eq!(profile.reserve(4, 10, 1), Err(ReserveError::Past));
    assert_eq!(profile.release(5, 10, 1), Err(ReserveError::NotReserved));
    assert_eq!(profile.release(0, 5, 1), Ok(()));
    assert_eq!(profile, Profile::new(4, 5));
}

#[test]
fn capacities_above_two_to_the_31() {
    let mut profile = Profile::new(u32::MAX, 0);
    assert_eq!(profile.reserve(10, 20, u32::MAX), Ok(()));
    check_summaries(&profile);
    assert_eq!(profile.reserve(15, 16, 1), Err(ReserveError::Overbooked { free: 0 }));
    assert_eq!(profile.release(10, 20, u32::MAX), Ok(()));
    assert_eq!(profile, Profile::new(u32::MAX, 0));
}
