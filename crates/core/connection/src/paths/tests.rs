use super::*;
use longhaul_units::Duration;
use proptest::prelude::*;

const IP: PathId = PathId(0);
const CIRCUIT: PathId = PathId(1);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn on_ip(lanes: usize) -> Paths {
    Paths::new(at(0), vec![IP; lanes])
}

/// Makes all moves that are due; where the lanes are then.
fn settle(paths: &mut Paths) -> Vec<u16> {
    let mut moves = 0;
    while let Some(one) = paths.poll_move() {
        assert_eq!(paths.place(one.lane), one.path);
        moves += 1;
        assert!(moves <= paths.lanes.len(), "no lane moves twice");
    }
    paths.lanes.iter().map(|path| path.0).collect()
}

/// Looks at `path` from `from` on for so many seconds, while `arrives` comes with each look.
fn look(paths: &mut Paths, path: PathId, from: u64, seconds: u64, arrives: u64) -> u64 {
    let to = from + seconds * 1000;
    for ms in (from..=to).step_by(100) {
        let arrived = 1 + ms * arrives;
        let round_trip = Duration::from_millis(20);
        paths.look(at(ms), path, &PathSeen { arrived, refused: 0, in_flight: 1, round_trip });
    }
    to
}

#[test]
fn ip_alone_keeps_all_lanes_dead_or_alive() {
    let mut paths = on_ip(3);
    assert_eq!(settle(&mut paths), [0, 0, 0]);
    look(&mut paths, IP, 0, 20, 0);
    assert!(!paths.lives(IP));
    assert_eq!(settle(&mut paths), [0, 0, 0]);
}

#[test]
fn lanes_go_to_a_circuit_and_back_any_number_of_times() {
    let mut paths = on_ip(4);
    let circuit = paths.add(at(0), Offer::Closed);
    assert_eq!((circuit, paths.count()), (CIRCUIT, 2));
    for ms in 0..3 {
        assert_eq!(settle(&mut paths), [0, 0, 0, 0]);
        paths.offer(at(ms), CIRCUIT, Offer::Share(1));
        paths.offer(at(ms), IP, Offer::Standby);
        assert_eq!(settle(&mut paths), [0, 1, 1, 1], "messages stay");
        paths.offer(at(ms), CIRCUIT, Offer::Closed);
        assert_eq!(settle(&mut paths), [0, 0, 0, 0], "whether or not IP is for data");
        paths.offer(at(ms), IP, Offer::Share(1));
    }
}

#[test]
fn a_dead_circuit_is_left_and_tried_later() {
    let mut paths = on_ip(3);
    paths.add(at(0), Offer::Share(1));
    paths.offer(at(0), IP, Offer::Standby);
    assert_eq!(settle(&mut paths), [0, 1, 1]);
    let now = look(&mut paths, CIRCUIT, 0, 4, 0);
    assert_eq!(settle(&mut paths), [0, 0, 0]);
    let now = look(&mut paths, CIRCUIT, now, 5, 0);
    assert_eq!(settle(&mut paths), [0, 0, 1], "one lane finds out");
    let now = look(&mut paths, CIRCUIT, now, 4, 0);
    assert_eq!(settle(&mut paths), [0, 0, 0]);
    let now = look(&mut paths, CIRCUIT, now, 10, 0);
    assert_eq!(settle(&mut paths), [0, 0, 1]);
    look(&mut paths, CIRCUIT, now, 1, 1);
    assert_eq!(settle(&mut paths), [0, 1, 1]);
}

#[test]
fn two_paths_share_by_weight_and_each_stands_in_for_the_other() {
    let mut paths = on_ip(8);
    paths.offer(at(0), IP, Offer::Share(100));
    paths.add(at(0), Offer::Share(300));
    assert_eq!(settle(&mut paths), [0, 0, 1, 1, 1, 1, 1, 1]);
    let now = look(&mut paths, IP, 0, 4, 0);
    assert_eq!(settle(&mut paths), [1; 8], "messages too");
    // The other one dies as well: nothing is to be gained by going elsewhere.
    let now = look(&mut paths, CIRCUIT, now, 4, 0);
    assert_eq!(settle(&mut paths), [1; 8]);
    // Until one of them is tried.
    let now = look(&mut paths, IP, now, 2, 0);
    assert_eq!(settle(&mut paths), [0; 8]);
    look(&mut paths, IP, now, 1, 1);
    assert!(paths.lives(IP));
}

#[test]
fn a_lane_that_cannot_go_stays_and_the_path_is_tried_later() {
    let mut paths = on_ip(2);
    paths.add(at(0), Offer::Share(1));
    let one = paths.poll_move().unwrap();
    assert_eq!((one.path, paths.lives(CIRCUIT)), (CIRCUIT, true));
    paths.stay(at(0), one.lane, IP, CIRCUIT);
    assert_eq!((settle(&mut paths), paths.lives(CIRCUIT)), (vec![0, 0], false));
    look(&mut paths, CIRCUIT, 0, 6, 0);
    assert_eq!(settle(&mut paths), [0, 1]);
}

#[test]
fn a_path_to_which_several_lanes_cannot_go_rests_once() {
    let mut paths = on_ip(8);
    paths.add(at(0), Offer::Share(7));
    let moves: Vec<Move> = core::iter::from_fn(|| paths.poll_move()).collect();
    assert!(moves.len() > 4);
    moves.iter().for_each(|one| paths.stay(at(0), one.lane, IP, CIRCUIT));
    assert_eq!((settle(&mut paths), paths.lives(CIRCUIT)), (vec![0; 8], false));
    look(&mut paths, CIRCUIT, 0, 6, 0);
    assert_eq!(settle(&mut paths), [0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_single_lane_goes_where_data_goes() {
    let mut paths = on_ip(1);
    paths.offer(at(0), IP, Offer::Standby);
    paths.add(at(0), Offer::Share(1));
    assert_eq!(settle(&mut paths), [1]);
    look(&mut paths, CIRCUIT, 0, 4, 0);
    assert_eq!(settle(&mut paths), [0]);
}

#[test]
fn a_server_asks_its_lanes_off_a_silent_path_once_each_time() {
    let mut paths = Paths::new(at(0), vec![IP, CIRCUIT, IP]);
    let now = look(&mut paths, IP, 0, 4, 0);
    let ask = |order, lane, beside| MoveAsked { order, lane: LaneId(lane), beside: LaneId(beside) };
    assert_eq!(paths.poll_ask(), Some(ask(1, 0, 1)));
    assert_eq!(paths.poll_ask(), Some(ask(2, 2, 1)));
    assert_eq!(paths.poll_ask(), None);
    let now = look(&mut paths, IP, now, 5, 0);
    assert_eq!(paths.poll_ask(), None);
    // One has gone, the other is still there.
    paths.note_place(LaneId(0), CIRCUIT);
    look(&mut paths, IP, now, 4, 0);
    assert_eq!((paths.poll_ask(), paths.poll_ask()), (Some(ask(3, 2, 0)), None));
    // Without a path that lives there is nothing to ask for.
    let mut paths = Paths::new(at(0), vec![IP]);
    look(&mut paths, IP, 0, 4, 0);
    assert_eq!(paths.poll_ask(), None);
}

#[test]
fn what_a_server_asks_holds_unless_it_is_old() {
    let mut paths = Paths::new(at(0), vec![IP, CIRCUIT]);
    let ask = |order, lane, beside| MoveAsked { order, lane: LaneId(lane), beside: LaneId(beside) };
    paths.handle_move_asked(at(0), ask(5, 0, 9));
    paths.handle_move_asked(at(0), ask(5, 9, 0));
    assert_eq!(settle(&mut paths), [0, 1], "of lanes that do not exist");
    paths.handle_move_asked(at(0), ask(7, 0, 1));
    assert_eq!(settle(&mut paths), [1, 1]);
    let back = look(&mut paths, IP, 0, 6, 1);
    assert_eq!(settle(&mut paths), [0, 1], "it lives again");
    for old in [5, 7] {
        paths.handle_move_asked(at(back), ask(old, 0, 1));
        assert_eq!(settle(&mut paths), [0, 1], "late, or twice");
    }
    paths.handle_move_asked(at(back), ask(8, 0, 1));
    assert_eq!(settle(&mut paths), [1, 1]);
}

#[test]
fn a_lane_is_asked_off_a_path_before_the_other_is_known_to_live() {
    let mut paths = Paths::new(at(0), vec![IP, CIRCUIT]);
    let mut now = 0;
    for seconds in [4, 6] {
        look(&mut paths, CIRCUIT, now, seconds, 0);
        now = look(&mut paths, IP, now, seconds, 0);
    }
    assert!(!paths.lives(IP) && !paths.lives(CIRCUIT));
    assert_eq!(settle(&mut paths), [0, 1], "each tries whether its path lives again");
    let (lane, beside) = (LaneId(1), LaneId(0));
    paths.handle_move_asked(at(now), MoveAsked { order: 1, lane, beside });
    look(&mut paths, IP, now, 1, 1);
    assert_eq!(settle(&mut paths), [0, 0]);
}

#[derive(Clone, Debug)]
enum Step {
    Offer(u16, u8),
    Look(u16, u64, u64),
    Asked(u64, u16, u16),
    Place(u16, u16),
    Time(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0u16..5, 0u8..4).prop_map(|(path, offer)| Step::Offer(path, offer)),
        4 => (0u16..5, 0u64..4, 0u64..2).prop_map(|(path, seen, under)| Step::Look(path, seen, under)),
        1 => (0u64..6, 0u16..6, 0u16..6).prop_map(|(order, lane, beside)| Step::Asked(order, lane, beside)),
        1 => (0u16..6, 0u16..4).prop_map(|(lane, path)| Step::Place(lane, path)),
        2 => (0u64..8000).prop_map(Step::Time),
    ]
}

proptest! {
    /// For any messages, in any order: lanes settle, on a path that is open if any is, and on
    /// one that lives if any of those does, but for the one that finds out.
    #[test]
    fn lanes_are_where_they_can_be(
        lanes in 1usize..6,
        steps in prop::collection::vec(any_step(), 0..80),
    ) {
        let mut paths = on_ip(lanes);
        for _ in 0..3 {
            paths.add(at(0), Offer::Closed);
        }
        let mut ms = 0;
        for step in steps {
            match step {
                Step::Offer(path, offer) => {
                    let offer = [Offer::Closed, Offer::Standby, Offer::Share(1), Offer::Share(9)]
                        [usize::from(offer)];
                    paths.offer(at(ms), PathId(path), offer);
                }
                Step::Look(path, arrived, in_flight) => {
                    let seen = PathSeen { arrived, in_flight, ..PathSeen::default() };
                    // Silence counts while it is looked for.
                    for _ in 0..20 {
                        ms += 200;
                        paths.look(at(ms), PathId(path), &seen);
                    }
                }
                Step::Asked(order, lane, beside) => {
                    let (lane, beside) = (LaneId(lane), LaneId(beside));
                    paths.handle_move_asked(at(ms), MoveAsked { order, lane, beside });
                }
                Step::Place(lane, path) => paths.note_place(LaneId(lane), PathId(path)),
                Step::Time(more) => ms += more,
            }
            let settled = settle(&mut paths);
            let open = |path: usize| paths.paths[path].offer != Offer::Closed;
            let lives = |path: usize| open(path) && paths.paths[path].liveness.beats();
            let any_open = (0..paths.count()).any(open);
            let any_lives = (0..paths.count()).any(lives);
            let wrong = settled.iter().map(|path| usize::from(*path)).filter(|path| {
                any_lives && !lives(*path) || any_open && !open(*path)
            });
            let wrong: Vec<usize> = wrong.collect();
            let tried = wrong.iter().all(|path| paths.paths[*path].liveness.is_tried());
            let mut distinct = wrong.clone();
            distinct.dedup();
            prop_assert!(tried && distinct.len() == wrong.len(), "{settled:?} {paths:?}");
        }
    }
}

#[test]
fn a_path_that_udp_does_not_fit_is_left_out_where_another_carries() {
    let mut paths = on_ip(4);
    assert!(!paths.leave_out(IP), "there is no other");
    let second = paths.add(at(0), Offer::Share(1));
    assert_eq!(settle(&mut paths), [0, 0, 1, 1]);
    assert!(paths.leave_out(second));
    assert_eq!(settle(&mut paths), [0; 4]);
    let now = look(&mut paths, second, 0, 100, 1);
    assert!(!paths.lives(second) && paths.is_left_out(second));
    assert_eq!(settle(&mut paths), [0; 4], "whatever arrives there");
    assert!(!paths.leave_out(IP), "none is left");
    look(&mut paths, IP, now, 20, 0);
    assert_eq!(settle(&mut paths), [0; 4], "nor where the other is silent");
}

#[test]
fn a_server_asks_for_lanes_of_a_path_that_udp_does_not_fit() {
    let mut paths = on_ip(2);
    let second = paths.add(at(0), Offer::Share(1));
    paths.note_place(LaneId(1), second);
    assert!(paths.leave_out(second));
    let asked = MoveAsked { order: 1, lane: LaneId(1), beside: LaneId(0) };
    assert_eq!((paths.poll_ask(), paths.poll_ask()), (Some(asked), None));
}

#[test]
fn a_server_closes_where_its_client_leaves_all_lanes_on_a_path_that_udp_does_not_fit() {
    let mut paths = on_ip(2);
    let second = paths.add(at(0), Offer::Share(1));
    for _ in 0..2 {
        for lane in [0, 1] {
            paths.note_place(LaneId(lane), second);
        }
        for _ in 0..4 {
            assert!(paths.leave_out(second), "it asks");
        }
        paths.note_place(LaneId(0), IP);
        assert!(paths.leave_out(second), "one has come");
    }
    paths.note_place(LaneId(0), second);
    assert!((0..4).all(|_| paths.leave_out(second)));
    assert!(!paths.leave_out(second));
}
