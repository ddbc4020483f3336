//! The algorithms against a scheduler that goes tick by tick.

use alloc::vec;
use alloc::vec::Vec;

use longhaul_units::{Bytes, Duration, Rate};
use proptest::prelude::*;

use crate::place::{self, Limits};
use crate::testing::NaiveProfile;
use crate::*;

const END: u64 = 400;

fn file(volume: u64, max_rate: u32, earliest: u64) -> FileRequest {
    FileRequest::new(volume, max_rate, earliest)
}

fn free_from(bookings: &[(u64, u64, u32)], capacity: u32) -> (Profile, NaiveProfile, Vec<u32>) {
    let mut profile = Profile::new(capacity, 0);
    let mut naive = NaiveProfile::new(capacity, 0);
    let mut ticks = vec![capacity; END as usize];
    for (start, len, rate) in bookings.iter().copied() {
        let taken = profile.reserve(start, start + len, rate);
        assert_eq!(taken, naive.reserve(start, start + len, rate));
        if taken.is_ok() {
            for tick in &mut ticks[start as usize..(start + len) as usize] {
                *tick -= rate;
            }
        }
    }
    (profile, naive, ticks)
}

fn bookings() -> impl Strategy<Value = Vec<(u64, u64, u32)>> {
    prop::collection::vec((0u64..200, 1u64..50, 1u32..6), 0..60)
}

/// Load of each tick, by going through ticks one at a time, at most `max_rate` in each; and
/// what is left over at `by`.
fn tick_by_tick(
    ticks: impl Iterator<Item = (u64, u32)>,
    max_rate: u32,
    volume: u64,
) -> (Vec<(u64, u32)>, u64) {
    let mut left = volume;
    let mut out = Vec::new();
    for (tick, free) in ticks {
        let rate = free.min(max_rate);
        if left == 0 {
            break;
        }
        if rate > 0 {
            out.push((tick, rate));
            left = left.saturating_sub(u64::from(rate));
        }
    }
    (out, left)
}

fn unrolled(ranges: &[Allocation]) -> Vec<(u64, u32)> {
    ranges.iter().flat_map(|r| (r.start..r.end).map(|tick| (tick, r.rate))).collect()
}

fn place<C: Capacity>(capacity: &C, request: FileRequest, guard: u64) -> Option<Vec<Allocation>> {
    let limits = Limits { guard, horizon: FOREVER - 1 };
    place::place(capacity, &Request::File(request), limits).ok().map(|runs| runs.ranges().collect())
}

fn one_link(profile: &Profile) -> LinkSet {
    links_of(core::slice::from_ref(profile), 0)
}

fn links_of(profiles: &[Profile], guard: u64) -> LinkSet {
    let mut links = LinkSet::new(guard);
    for profile in profiles {
        let id = links.add(profile.capacity(), profile.floor());
        let path = Path::single(id);
        let booked = profile.segments(0, 2 * END).filter(|s| s.free < profile.capacity());
        let booked = booked.map(|s| Allocation {
            start: s.start,
            end: s.end,
            rate: profile.capacity() - s.free,
        });
        let booked: Vec<Allocation> = booked.collect();
        links.take(&path, booked.into_iter());
    }
    links
}

/// The example of the paper's section 3.2 and figures 1 and 2.
#[test]
fn worked_example_of_the_paper() {
    let grid = Grid::new(Duration::from_millis(100), Rate::from_gbps(10)).unwrap();
    let mut book = Book::new(BookConfig::default(), 50);
    let link = book.add_link(4);
    let paths = [Path::single(link)];
    // Others leave 1 channel free on [50,60), 2 on [60,70), 3 on [70,80), 4 after.
    for (end, rate) in [(60, 1), (70, 1), (80, 1)] {
        let hold = HoldRequest {
            duration: end - 50,
            min_rate: rate,
            max_rate: rate,
            earliest: 50,
            latest_start: Some(50),
        };
        book.book(&Request::Hold(hold), &paths).unwrap();
    }
    let free: Vec<_> = book.links().profile(link).unwrap().segments(50, 90).collect();
    let expected = [(50, 60, 1), (60, 70, 2), (70, 80, 3), (80, 90, 4)];
    assert_eq!(free, expected.map(|(start, end, free)| Segment { start, end, free }));

    let volume = grid.volume(Bytes::new(5_000_000_000), Margin::NONE).unwrap();
    let id = book.book(&Request::File(file(volume, 2, 50)), &paths).unwrap();
    let vector = &book.get(id).unwrap().vector;
    let expected = [(50, 60, 1), (60, 70, 2), (70, 75, 2)].map(|(start, end, rate)| Allocation {
        start,
        end,
        rate,
    });
    assert_eq!(vector.ranges().collect::<Vec<_>>(), expected);
    assert_eq!(vector.len(), 3);
    let merged: Vec<_> = vector.merged().collect();
    let expected =
        [(50, 60, 1), (60, 75, 2)].map(|(start, end, rate)| Allocation { start, end, rate });
    assert_eq!(merged, expected);
    assert_eq!(grid.bytes(vector.delivered()), Bytes::new(5_000_000_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn vbls_is_what_goes_tick_by_tick(
        bookings in bookings(), volume in 1u64..300, max_rate in 1u32..12, from in 0u64..220,
    ) {
        let (profile, naive, ticks) = free_from(&bookings, 10);
        let request = file(volume, max_rate, from);
        let found = place(&profile, request, 0).unwrap();
        prop_assert_eq!(&place(&naive, request, 0).unwrap(), &found);
        let ahead = (from..).zip(ticks[from as usize..].iter().copied());
        let (expected, left) = tick_by_tick(ahead, max_rate, volume);
        if left == 0 {
            prop_assert_eq!(unrolled(&found), expected);
        }
        let area: u64 = found.iter().map(Allocation::area).sum();
        let last = found[found.len() - 1];
        prop_assert!(area >= volume && area - volume < u64::from(last.rate));
        prop_assert!(found.iter().all(|r| r.rate <= max_rate && r.start >= from));
        // One range for each stretch between change points.
        for r in &found {
            let s = profile.walk(r.start).segment();
            prop_assert!(r.end == s.end || *r == last);
        }
    }

    #[test]
    fn latest_mirrors_earliest(
        bookings in bookings(), volume in 1u64..300, max_rate in 1u32..12,
        from in 0u64..100, window in 1u64..150,
    ) {
        let (profile, naive, ticks) = free_from(&bookings, 10);
        let by = from + window;
        let request = file(volume, max_rate, from).by(by, Policy::Latest);
        let found = place(&profile, request, 0);
        prop_assert_eq!(&place(&naive, request, 0), &found);
        let back = (from..by).rev().map(|t| (t, ticks[t as usize]));
        let (mut expected, left) = tick_by_tick(back, max_rate, volume);
        expected.reverse();
        match found {
            None => prop_assert!(left > 0),
            Some(found) => prop_assert_eq!(unrolled(&found), expected),
        }
        let early = place(&profile, file(volume, max_rate, from).by(by, Policy::Earliest), 0);
        prop_assert_eq!(early.is_some(), left == 0);
    }

    #[test]
    fn least_peak_cannot_be_lowered(
        bookings in bookings(), volume in 1u64..300, max_rate in 1u32..12,
        from in 0u64..100, window in 1u64..150,
    ) {
        let (profile, _, _) = free_from(&bookings, 10);
        let request = file(volume, max_rate, from).by(from + window, Policy::LeastPeak);
        let feasible = place(&profile, FileRequest { policy: Policy::Earliest, ..request }, 0);
        let found = place(&profile, request, 0);
        prop_assert_eq!(feasible.is_some(), found.is_some());
        if let Some(found) = found {
            let peak = found.iter().map(|r| r.rate).max().unwrap();
            prop_assert!(found[found.len() - 1].end <= from + window && peak <= max_rate);
            if peak > 1 {
                let lower = FileRequest { max_rate: peak - 1, policy: Policy::Earliest, ..request };
                prop_assert_eq!(place(&profile, lower, 0), None);
            }
        }
    }

    #[test]
    fn fbls_takes_the_first_window(
        bookings in bookings(), volume in 1u64..200, rate in 1u32..10, from in 0u64..220,
    ) {
        let (profile, naive, ticks) = free_from(&bookings, 10);
        let request = FileRequest { policy: Policy::Fixed, ..file(volume, rate, from) };
        let found = place(&profile, request, 0).unwrap();
        prop_assert_eq!(&place(&naive, request, 0).unwrap(), &found);
        let length = volume.div_ceil(u64::from(rate));
        let free = |t: u64| ticks.get(t as usize).copied().unwrap_or(10);
        let start = (from..).find(|s| (*s..s + length).all(|t| free(t) >= rate)).unwrap();
        prop_assert_eq!(found, vec![Allocation { start, end: start + length, rate }]);
    }

    #[test]
    fn holds_stay_between_their_rates(
        bookings in bookings(), duration in 1u64..80, min in 1u32..10, more in 0u32..5,
        from in 0u64..200, wait in 0u64..100,
    ) {
        let (profile, _, ticks) = free_from(&bookings, 10);
        let hold = HoldRequest {
            duration,
            min_rate: min,
            max_rate: min + more,
            earliest: from,
            latest_start: Some(from + wait),
        };
        let limits = Limits { guard: 0, horizon: FOREVER - 1 };
        let found = place::place(&profile, &Request::Hold(hold), limits).ok();
        let found: Option<Vec<_>> = found.map(|runs| runs.ranges().collect());
        let free = |t: u64| ticks.get(t as usize).copied().unwrap_or(10);
        let start = (from..=from + wait).find(|s| (*s..s + duration).all(|t| free(t) >= min));
        prop_assert_eq!(found.as_ref().map(|f| f[0].start), start);
        for (tick, rate) in unrolled(&found.unwrap_or_default()) {
            prop_assert_eq!(rate, free(tick).min(min + more));
        }
    }

    #[test]
    fn a_path_is_the_pointwise_minimum(
        bookings in prop::collection::vec(bookings(), 2..5),
        volume in 1u64..200, max_rate in 1u32..10, from in 0u64..220,
        fixed in any::<bool>(), late in any::<bool>(),
    ) {
        let all: Vec<_> = bookings.iter().map(|b| free_from(b, 10)).collect();
        let mut least = NaiveProfile::new(10, 0);
        for t in 0..END {
            let free = all.iter().map(|(_, _, ticks)| ticks[t as usize]).min().unwrap();
            least.reserve(t, t + 1, 10 - free).unwrap();
        }
        let path = PathCapacity::new(all.iter().map(|(profile, _, _)| profile).collect());
        let mut request = file(volume, max_rate, from);
        if late {
            request = request.by(from + 150, Policy::Latest);
        } else if fixed {
            request.policy = Policy::Fixed;
        }
        let a = place(&path, request, 0).map(|f| unrolled(&f));
        prop_assert_eq!(a, place(&least, request, 0).map(|f| unrolled(&f)));
        let (mut a, mut b) = (path.walk(from), least.walk(from));
        prop_assert_eq!(a.to_below(max_rate, from + 90), b.to_below(max_rate, from + 90));
        if a.segment().free < max_rate {
            prop_assert_eq!(a.segment().start.max(from), b.segment().start.max(from));
        }
    }

    #[test]
    fn guards_are_paid_for(
        bookings in bookings(), volume in 1u64..300, max_rate in 1u32..10, from in 0u64..220,
        guard in 1u64..6, late in any::<bool>(), fixed in any::<bool>(), window in 20u64..200,
    ) {
        let (profile, _, ticks) = free_from(&bookings, 10);
        let mut request = file(volume, max_rate, from);
        if late {
            request = request.by(from + window, Policy::Latest);
        } else if fixed {
            request.policy = Policy::Fixed;
        }
        if let Some(found) = place(&profile, request, guard) {
            let vector = TrcVector::new(found, guard).unwrap();
            for (tick, rate) in unrolled(&vector.ranges().collect::<Vec<_>>()) {
                let free = ticks.get(tick as usize).copied().unwrap_or(10);
                prop_assert!(rate <= free.min(max_rate) && tick >= from);
            }
            let peak = vector.ranges().map(|r| r.rate).max().unwrap();
            let extra = vector.delivered() - volume;
            prop_assert!(extra < u64::from(peak), "{vector:?} for {volume}");
            prop_assert!(vector.merged().all(|r| r.end - r.start > guard));
        } else {
            prop_assert!(late);
        }
    }

    #[test]
    fn every_alternative_is_accepted_and_smallest(
        bookings in prop::collection::vec(bookings(), 1..4),
        volume in 1u64..400, max_rate in 1u32..10, from in 0u64..150, window in 1u64..60,
        policy in 0u8..4, guard in 0u64..3,
    ) {
        let profiles: Vec<_> = bookings.iter().map(|b| free_from(b, 10).0).collect();
        let links = links_of(&profiles, guard);
        let ids: Vec<LinkId> = (0..profiles.len() as u32).map(LinkId).collect();
        let paths = [Path::new(&ids).unwrap(), Path::single(ids[0])];
        let request = Request::File(file(volume, max_rate, from).by(
            from + window,
            [Policy::Earliest, Policy::Latest, Policy::LeastPeak, Policy::Fixed][policy as usize],
        ));
        let explained = links.explain(&request, &paths).unwrap();
        let plan = links.plan(&request, &paths);
        prop_assert_eq!(explained.finish, plan.as_ref().ok().map(Plan::finish));
        if plan.is_ok() {
            prop_assert!(explained.alternatives.is_empty());
        }
        for alternative in explained.alternatives {
            let changed = alternative.apply(&request);
            prop_assert!(links.plan(&changed, &paths).is_ok(), "{alternative:?}");
            let smaller = match alternative {
                Alternative::Deadline(tick) => Alternative::Deadline(tick - 1),
                Alternative::Volume(volume) => Alternative::Volume(volume + 1),
                Alternative::MaxRate(rate) => Alternative::MaxRate(rate - 1),
                _ => continue,
            };
            // With guards, filling is a heuristic and need not be monotone.
            if guard == 0 {
                let refused = links.plan(&smaller.apply(&request), &paths).is_err();
                let rounding = matches!(alternative, Alternative::Volume(_));
                prop_assert!(refused || rounding && policy == 3, "{alternative:?}");
            }
        }
        if let Some(binding) = explained.binding {
            let profile = links.profile(binding.link).unwrap();
            prop_assert!(binding.free < max_rate);
            let mut segments = profile.segments(binding.start, binding.end);
            prop_assert!(segments.all(|segment| segment.free == binding.free), "{binding:?}");
        } else if let Some(finish) = explained.finish.filter(|_| policy == 0) {
            prop_assert_eq!(finish, explained.unimpeded);
        }
    }

    #[test]
    fn refused_holds_learn_what_would_do(
        bookings in bookings(), duration in 1u64..80, min in 1u32..11, from in 0u64..200,
        wait in 0u64..10,
    ) {
        let (profile, _, _) = free_from(&bookings, 10);
        let links = one_link(&profile);
        let paths = [Path::single(LinkId(0))];
        let latest_start = Some(from + wait);
        let request = Request::Hold(HoldRequest {
            duration, min_rate: min, max_rate: 12, earliest: from, latest_start,
        });
        let explained = links.explain(&request, &paths).unwrap();
        prop_assert_eq!(explained.finish.is_some(), explained.alternatives.is_empty() && {
            links.plan(&request, &paths).is_ok()
        });
        for alternative in explained.alternatives {
            prop_assert!(links.plan(&alternative.apply(&request), &paths).is_ok());
            let smaller = match alternative {
                Alternative::LatestStart(tick) => Alternative::LatestStart(tick - 1),
                Alternative::Duration(ticks) => Alternative::Duration(ticks + 1),
                Alternative::MinRate(rate) => Alternative::MinRate(rate + 1),
                _ => continue,
            };
            prop_assert!(links.plan(&smaller.apply(&request), &paths).is_err());
        }
    }
}

#[test]
fn the_binding_link_and_stretch_are_named() {
    let mut links = LinkSet::new(0);
    let (a, b) = (links.add(10, 0), links.add(10, 0));
    let taken = |start, end, rate| [Allocation { start, end, rate }];
    links.take(&Path::single(a), taken(10, 12, 10).into_iter());
    links.take(&Path::single(b), taken(20, 50, 9).into_iter());
    links.take(&Path::single(b), taken(30, 40, 1).into_iter());
    let path = [Path::new(&[a, b]).unwrap()];
    let request = Request::File(file(400, 10, 0).by(45, Policy::Earliest));
    assert_eq!(links.plan(&request, &path), Err(PlanError::NoRoom));
    let explained = links.explain(&request, &path).unwrap();
    assert_eq!(explained.unimpeded, 40);
    assert_eq!(explained.binding, Some(Binding { link: b, start: 30, end: 40, free: 0 }));
    // 8 + 12 free stretches of 10 channels, then one channel but for [30, 40).
    let carried = 100 + 80 + 10 + 5;
    assert_eq!(
        explained.alternatives,
        [Alternative::Deadline(50 + (400 - carried - 5) / 10), Alternative::Volume(carried)]
    );
}

#[test]
fn the_best_of_several_paths_is_taken() {
    let mut links = LinkSet::new(0);
    let ids: Vec<LinkId> = (0..3).map(|_| links.add(4, 0)).collect();
    let taken = |start, end, rate| [Allocation { start, end, rate }];
    links.take(&Path::single(ids[0]), taken(0, 10, 4).into_iter());
    let paths = [Path::single(ids[0]), Path::new(&[ids[1], ids[2]]).unwrap()];
    let plan = links.plan(&Request::File(file(20, 2, 0)), &paths).unwrap();
    assert_eq!((plan.path, plan.vector.finish()), (paths[1].clone(), Some(10)));
    links.take(&paths[1], taken(0, 30, 4).into_iter());
    let plan = links.plan(&Request::File(file(20, 2, 0)), &paths).unwrap();
    assert_eq!((plan.path, plan.vector.finish()), (paths[0].clone(), Some(20)));
}

#[test]
fn faults_of_a_request() {
    let mut links = LinkSet::new(0);
    let path = [Path::single(links.add(4, 100))];
    links.set_horizon(1_000);
    let hold =
        HoldRequest { duration: 10, min_rate: 2, max_rate: 3, earliest: 100, latest_start: None };
    for (request, error) in [
        (Request::File(file(0, 1, 100)), PlanError::ZeroVolume),
        (Request::File(file(1, 0, 100)), PlanError::ZeroRate),
        (Request::File(file(1, 1, 99)), PlanError::Past(100)),
        (Request::File(file(1, 1, 1_000)), PlanError::BeyondHorizon(1_000)),
        (Request::File(file(u64::MAX, 1, 100)), PlanError::NoRoom),
        (Request::File(file(3_601, 9, 100)), PlanError::NoRoom),
        (
            Request::File(FileRequest { policy: Policy::Latest, ..file(1, 1, 100) }),
            PlanError::DeadlineRequired,
        ),
        (Request::File(file(1, 1, 100).by(100, Policy::Earliest)), PlanError::DeadlineBeforeStart),
        (Request::Hold(HoldRequest { duration: 0, ..hold }), PlanError::ZeroDuration),
        (Request::Hold(HoldRequest { min_rate: 0, ..hold }), PlanError::ZeroRate),
        (Request::Hold(HoldRequest { min_rate: 4, ..hold }), PlanError::MinAboveMax),
        (Request::Hold(HoldRequest { duration: u64::MAX, ..hold }), PlanError::NoRoom),
        (
            Request::Hold(HoldRequest { latest_start: Some(99), ..hold }),
            PlanError::DeadlineBeforeStart,
        ),
    ] {
        assert_eq!(links.plan(&request, &path), Err(error), "{request:?}");
        assert!(links.explain(&request, &path).is_ok() == (error == PlanError::NoRoom));
    }
    let request = Request::Hold(hold);
    assert_eq!(links.plan(&request, &[]), Err(PlanError::NoPath));
    let unknown = LinkId(7);
    assert_eq!(
        links.plan(&request, &[Path::single(unknown)]),
        Err(PlanError::UnknownLink(unknown))
    );
    assert_eq!(Path::new(&[]), None);
    assert_eq!(Path::new(&[LinkId(1), LinkId(1)]), None);
    assert!(links.plan(&request, &path).is_ok());
}
