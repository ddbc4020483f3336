use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::*;

const CAPACITY: u32 = 10;

fn earliest(volume: u64, max_rate: u32, earliest: u64) -> Request {
    Request::File(FileRequest::new(volume, max_rate, earliest))
}

fn book_of(links: usize, config: BookConfig) -> (Book, Vec<LinkId>) {
    let mut book = Book::new(config, 0);
    let ids = (0..links).map(|_| book.add_link(CAPACITY)).collect();
    (book, ids)
}

/// Capacity is kept, every booking keeps its rates, its volume and its promise, and nothing lies
/// beyond the horizon.
fn check(book: &Book) {
    let now = book.now();
    let end = book.iter().map(|(_, b)| b.finish()).max().unwrap_or(now);
    check_capacity(book);
    for profile in book.links().profiles() {
        assert_eq!(profile.free_at(end), CAPACITY);
    }
    let guarded = book.config().guard > 0;
    for (id, booking) in book.iter() {
        assert!(booking.finish() <= booking.promise, "{id:?} {booking:?}");
        assert!(booking.finish() <= book.links().horizon());
        let max = booking.request.max_rate();
        assert!(booking.vector.peak() <= max);
        match booking.request {
            Request::File(file) => {
                let carried = booking.vector.delivered();
                assert!(carried >= file.volume, "{id:?} {booking:?}");
                assert!(file.deadline.is_none_or(|by| booking.finish() <= by));
                let last = booking.vector.ranges().last().unwrap().rate;
                // Only a plan that is never cut, filled forwards, is exact to its last range.
                let slack = if guarded || file.policy != Policy::Earliest { max } else { last };
                if file.policy != Policy::Fixed && !guarded {
                    assert!(carried - file.volume < u64::from(slack), "{id:?} {booking:?}");
                }
            }
            Request::Hold(hold) => {
                let held: u64 = booking.vector.ranges().map(|r| r.end - r.start).sum();
                assert_eq!(held, hold.duration + book.config().guard);
                assert!(booking.vector.ranges().all(|r| r.rate >= hold.min_rate));
            }
        }
    }
}

/// Free plus booked is the capacity at every tick of every link.
fn check_capacity(book: &Book) {
    for (index, profile) in book.links().profiles().iter().enumerate() {
        let mut expected = Profile::new(CAPACITY, book.now());
        for (_, booking) in book.iter() {
            if booking.path.links().contains(&LinkId(index as u32)) {
                for r in booking.vector.ranges().filter(|r| r.end > book.now()) {
                    expected
                        .reserve(r.start.max(book.now()), r.end, r.rate)
                        .expect("never overbooked");
                }
            }
        }
        assert_eq!(*profile, expected);
    }
}

#[derive(Clone, Debug)]
enum Step {
    File { volume: u64, rate: u32, wait: u64, window: Option<u64>, policy: u8, paths: u8 },
    Hold { duration: u64, min: u32, more: u32, wait: u64, paths: u8 },
    Release { which: usize },
    Extend { which: usize, by: u64 },
    Modify { which: usize, by: u64, paths: u8 },
    Replan(bool),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1u64..120, 1u32..12, 0u64..30, prop::option::of(1u64..80), 0u8..4, any::<u8>())
            .prop_map(|(volume, rate, wait, window, policy, paths)| {
                Step::File { volume, rate, wait, window, policy, paths }
            }),
        3 => (1u64..40, 1u32..8, 0u32..5, 0u64..30, any::<u8>())
            .prop_map(|(duration, min, more, wait, paths)| {
                Step::Hold { duration, min, more, wait, paths }
            }),
        3 => any::<usize>().prop_map(|which| Step::Release { which }),
        3 => (any::<usize>(), 1u64..40).prop_map(|(which, by)| Step::Extend { which, by }),
        3 => (any::<usize>(), 1u64..40, any::<u8>())
            .prop_map(|(which, by, paths)| Step::Modify { which, by, paths }),
        2 => any::<bool>().prop_map(Step::Replan),
        4 => (0u64..15).prop_map(Step::Advance),
    ]
}

fn paths_of(links: &[LinkId], choice: u8) -> Vec<Path> {
    let all = [
        Path::single(links[0]),
        Path::single(links[1]),
        Path::new(&[links[0], links[1]]).unwrap(),
        Path::new(&[links[1], links[2]]).unwrap(),
    ];
    (0..all.len()).filter(|i| choice >> i & 1 == 1).map(|i| all[i].clone()).collect()
}

fn apply(book: &mut Book, links: &[LinkId], step: &Step) {
    let now = book.now();
    let nth =
        |book: &Book, which: usize| book.iter().nth(which % book.len().max(1)).map(|(id, _)| id);
    match *step {
        Step::File { volume, rate, wait, window, policy, paths } => {
            let policies = [Policy::Earliest, Policy::Latest, Policy::LeastPeak, Policy::Fixed];
            let request = Request::File(FileRequest {
                volume,
                max_rate: rate,
                earliest: now + wait,
                deadline: window.map(|w| now + wait + w),
                policy: policies[policy as usize],
            });
            let _ = book.book(&request, &paths_of(links, paths));
        }
        Step::Hold { duration, min, more, wait, paths } => {
            let request = Request::Hold(HoldRequest {
                duration,
                min_rate: min,
                max_rate: min + more,
                earliest: now + wait,
                latest_start: None,
            });
            let _ = book.book(&request, &paths_of(links, paths));
        }
        Step::Release { which } => {
            if let Some(id) = nth(book, which) {
                book.release(id).unwrap();
                assert_eq!(book.release(id), Err(BookError::Unknown(id)));
            }
        }
        Step::Extend { which, by } => {
            if let Some(id) = nth(book, which) {
                let before = book.get(id).unwrap().clone();
                let result = match before.request {
                    Request::File(_) => book.extend_file(id, by),
                    Request::Hold(_) => book.extend_hold(id, by),
                };
                if result.is_err() {
                    assert_eq!(book.get(id), Some(&before));
                }
            }
        }
        Step::Modify { which, by, paths } => {
            if let Some(id) = nth(book, which) {
                let before = book.get(id).unwrap().clone();
                let request = match before.request {
                    Request::File(file) => Request::File(FileRequest {
                        volume: file.volume + by,
                        max_rate: file.max_rate + by as u32 % 3,
                        deadline: file.deadline.map(|deadline| deadline + by),
                        ..file
                    }),
                    Request::Hold(hold) => {
                        Request::Hold(HoldRequest { duration: hold.duration + by, ..hold })
                    }
                };
                let result = book.modify(id, &request, &paths_of(links, paths));
                let expected = if result.is_ok() { request } else { before.request };
                assert_eq!(book.get(id).unwrap().request, expected);
                if result.is_err() {
                    assert_eq!(book.get(id), Some(&before));
                }
            }
        }
        Step::Replan(shortest) => {
            let before: Vec<_> = book.iter().map(|(id, b)| (id, b.clone())).collect();
            let order = if shortest { Order::ShortestFirst } else { Order::PromiseFirst };
            let moved = book.replan(order);
            for (id, old) in before {
                let new = book.get(id).unwrap();
                assert_eq!((new.promise, new.request), (old.promise, old.request));
                let listed = moved.iter().find(|m| m.id == id);
                assert_eq!(listed.map_or(old.finish(), |m| m.to), new.finish());
                for tick in old.vector.start().unwrap_or(now)..now {
                    assert_eq!(new.vector.rate_at(tick), old.vector.rate_at(tick), "past");
                }
            }
        }
        Step::Advance(by) => {
            for (_, booking) in book.advance(now + by) {
                assert!(booking.finish() <= now + by);
            }
            assert!(by == 0 || book.iter().all(|(_, booking)| booking.finish() > now + by));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_lives_of_a_book(
        steps in prop::collection::vec(step(), 1..60),
        guard in 0u64..3,
        slack_ppm in prop::sample::select(alloc::vec![0u32, 500_000, 3_000_000]),
        horizon in prop::sample::select(alloc::vec![120u64, FOREVER]),
    ) {
        let (mut book, links) = book_of(3, BookConfig { guard, horizon, slack_ppm });
        for step in &steps {
            apply(&mut book, &links, step);
            check(&book);
        }
        // Releasing everything gives the empty calendar back.
        let ids: Vec<BookingId> = book.iter().map(|(id, _)| id).collect();
        for id in ids {
            book.release(id).unwrap();
        }
        for profile in book.links().profiles() {
            prop_assert_eq!(profile, &Profile::new(CAPACITY, book.now()));
        }
    }

    #[test]
    fn a_replayed_book_is_the_same(steps in prop::collection::vec(step(), 1..60)) {
        let (mut book, links) = book_of(3, BookConfig::default());
        for step in &steps {
            apply(&mut book, &links, step);
        }
        let mut again = Book::new(BookConfig::default(), book.now());
        for _ in &links {
            again.add_link(CAPACITY);
        }
        for (id, booking) in book.iter() {
            prop_assert_eq!(again.restore(id, booking.clone()), Ok(()));
            prop_assert_eq!(again.restore(id, booking.clone()), Err(BookError::Exists(id)));
        }
        prop_assert_eq!(book.links().profiles(), again.links().profiles());
        prop_assert!(book.iter().eq(again.iter()));
    }

    #[test]
    fn without_slack_replanning_delays_nobody(steps in prop::collection::vec(step(), 1..60)) {
        let (mut book, links) = book_of(3, BookConfig::default());
        for step in &steps {
            apply(&mut book, &links, step);
            let ids: Vec<BookingId> = book.iter().map(|(id, _)| id).collect();
            for id in ids {
                book.tighten(id).unwrap();
            }
            for moved in book.replan(Order::ShortestFirst) {
                prop_assert!(moved.to < moved.from);
            }
            check(&book);
        }
    }
}

#[test]
fn capacity_that_is_freed_goes_to_those_who_wait() {
    let (mut book, links) = book_of(1, BookConfig::default());
    let path = [Path::single(links[0])];
    let first = book.book(&earliest(100, 10, 0), &path).unwrap();
    let second = book.book(&earliest(100, 10, 0), &path).unwrap();
    assert_eq!(book.get(second).unwrap().finish(), 20);
    book.advance(4);
    // Done before its margin was used up: the tail is free, and the second moves into it.
    let done = book.release(first).unwrap();
    assert_eq!(done.vector.area(), 40);
    let moved = book.replan(Order::PromiseFirst);
    assert_eq!(moved, [Moved { id: second, from: 20, to: 14 }]);
    assert_eq!(book.get(second).unwrap().promise, 20);
    book.tighten(second).unwrap();
    assert_eq!(book.get(second).unwrap().promise, 14);
}

#[test]
fn slack_lets_short_transfers_pass() {
    let (mut book, links) = book_of(1, BookConfig { slack_ppm: 1_000_000, ..Default::default() });
    let path = [Path::single(links[0])];
    let long = book.book(&earliest(1_000, 10, 0), &path).unwrap();
    let short = book.book(&earliest(10, 10, 0), &path).unwrap();
    assert_eq!(book.get(short).unwrap().finish(), 101);
    book.replan(Order::ShortestFirst);
    assert_eq!(book.get(short).unwrap().finish(), 1);
    assert_eq!(book.get(long).unwrap().finish(), 101);
    assert_eq!(book.get(long).unwrap().promise, 200);
}

#[test]
fn a_quote_is_good_while_it_is_free() {
    let (mut book, links) = book_of(2, BookConfig::default());
    let path = [Path::new(&links).unwrap()];
    let request = earliest(50, 5, 10);
    let snapshot = book.links().clone();
    let quote = snapshot.plan(&request, &path).unwrap();
    let other = book.book(&earliest(60, 6, 0), &[Path::single(links[1])]).unwrap();
    assert_eq!(book.commit(&request, quote.clone()), Ok(BookingId(1)));
    let late = book.commit(&request, quote.clone());
    assert_eq!(late, Ok(BookingId(2)));
    let taken = BookError::Taken { link: links[0], start: 10, end: 20 };
    assert_eq!(book.commit(&request, quote.clone()), Err(taken));
    book.advance(11);
    assert_eq!(book.get(other), None);
    assert!(matches!(book.commit(&request, quote), Err(BookError::Plan(PlanError::Past(11)))));
}

#[test]
fn without_a_booking_is_what_is_free_when_it_is_released() {
    let (mut book, links) = book_of(2, BookConfig::default());
    let path = Path::new(&links).unwrap();
    book.book(&earliest(100, 4, 0), &[Path::single(links[0])]).unwrap();
    let id = book.book(&earliest(90, 10, 3), core::slice::from_ref(&path)).unwrap();
    book.advance(5);
    let booking = book.get(id).unwrap().clone();
    let without = book.links().without(&path, &booking.vector).unwrap();
    assert!(without.without(&path, &booking.vector).is_none(), "it is not booked there");
    book.release(id).unwrap();
    assert_eq!(without.profiles(), book.links().profiles());
}

#[test]
fn a_fixed_rate_is_extended_at_that_rate() {
    let (mut book, links) = book_of(1, BookConfig::default());
    let path = [Path::single(links[0])];
    let fixed = FileRequest { policy: Policy::Fixed, ..FileRequest::new(40, 4, 0) };
    let id = book.book(&Request::File(fixed), &path).unwrap();
    book.extend_file(id, 8).unwrap();
    assert_eq!(book.get(id).unwrap().finish(), 12);
    book.book(&earliest(100, 10, 12), &path).unwrap();
    assert_eq!(book.extend_file(id, 4), Err(BookError::Plan(PlanError::NoRoom)));
    assert_eq!(book.extend_hold(id, 4), Err(BookError::WrongKind));
    let holders: Vec<_> = book.holders(links[0], 12, 13).map(|(id, _)| id).collect();
    assert_eq!(holders, [BookingId(1)]);
}

#[test]
fn several_are_booked_or_none() {
    let (mut book, links) = book_of(1, BookConfig::default());
    let path = [Path::single(links[0])];
    let by =
        |start| Request::File(FileRequest::new(100, 10, start).by(start + 10, Policy::Earliest));
    book.book(&earliest(10, 1, 20), &path).unwrap();
    let before = book.clone();
    let refused = book.book_all(&[by(0), by(20)], &path);
    assert_eq!(refused, Err((1, PlanError::NoRoom)));
    assert_eq!(book.links().profiles(), before.links().profiles());
    assert_eq!(book.len(), 1);
    assert_eq!(book.book_all(&[by(0), by(30)], &path), Ok(vec![BookingId(1), BookingId(2)]));
    // Plans made earlier likewise; the second is taken here.
    let plans = |starts: [u64; 2]| {
        let plan = |start| before.links().plan(&by(start), &path).unwrap();
        starts.map(|start| (by(start), plan(start))).to_vec()
    };
    let taken = BookError::Taken { link: links[0], start: 30, end: 40 };
    assert_eq!(book.commit_all(plans([50, 30])), Err((1, taken)));
    assert_eq!((book.len(), book.next_id()), (3, BookingId(3)));
    assert_eq!(book.commit_all(plans([50, 70])), Ok(vec![BookingId(3), BookingId(4)]));
    check_capacity(&book);
}

#[test]
fn a_change_keeps_what_has_passed_and_plans_the_rest() {
    let (mut book, links) = book_of(2, BookConfig::default());
    let paths = [Path::single(links[0]), Path::single(links[1])];
    let id = book.book(&earliest(100, 5, 0), &paths).unwrap();
    book.advance(4);
    // Less to carry and faster: 20 have passed, 40 are left.
    book.modify(id, &earliest(60, 10, 0), &paths).unwrap();
    assert_eq!(alloc::format!("{:?}", book.get(id).unwrap().vector), "{(0, 4, 5), (4, 8, 10)}");
    check_capacity(&book);
    let late = Request::File(FileRequest::new(60, 10, 0).by(3, Policy::Earliest));
    let before = book.get(id).cloned();
    assert_eq!(book.modify(id, &late, &paths), Err(BookError::Plan(PlanError::NoRoom)));
    let wrong = Request::Hold(HoldRequest {
        duration: 5,
        min_rate: 1,
        max_rate: 1,
        earliest: 9,
        latest_start: None,
    });
    assert_eq!(book.modify(id, &wrong, &paths), Err(BookError::WrongKind));
    assert_eq!(book.get(id).cloned(), before);
    // One that has not begun may move to another path, but not into the past.
    let next = book.book(&earliest(40, 10, 6), &paths[..1]).unwrap();
    assert_eq!(book.get(next).unwrap().finish(), 12);
    book.modify(next, &earliest(40, 10, 6), &paths).unwrap();
    assert_eq!(book.get(next).unwrap().path, paths[1]);
    let past = book.modify(next, &earliest(40, 10, 2), &paths);
    assert_eq!(past, Err(BookError::Plan(PlanError::Past(4))));
    check_capacity(&book);
}
