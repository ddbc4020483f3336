use super::*;
use crate::ledger::Content;
use alloc::collections::BTreeMap;
use longhaul_units::ObjectId;
use proptest::prelude::*;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn packet(number: u64, sent: u64) -> Entry {
    Entry {
        first: number,
        count: 1,
        acked: 0,
        lost: 0,
        sent_at: at(sent),
        wire_bytes: 1000,
        last_wire_bytes: 1000,
        late: false,
        ect: false,
        why: None,
        content: Content::Object {
            object: ObjectId(0),
            offset: number,
            payload: 1,
            end: number + 1,
        },
    }
}

fn search() -> MtuSearch {
    MtuSearch::new(at(0), 1472)
}

const A: PathId = PathId(0);
const B: PathId = PathId(1);
const REORDERING: Duration = Duration::from_millis(1);

#[test]
fn a_packet_is_judged_by_its_own_path_and_late_by_others() {
    let mut paths = LanePaths::new(A, REORDERING);
    let mut ledger = Ledger::default();
    // 0 and 1 over A, whose round trip is 80 ms; 2 over B; 3 over A again.
    let sent = [0, 10, 20, 30];
    ledger.push(packet(0, sent[0]));
    ledger.push(packet(1, sent[1]));
    assert!(paths.go(2, ms(80), search(), B).is_none());
    ledger.push(packet(2, sent[2]));
    let lost = |paths: &LanePaths, number: usize| {
        paths.is_lost(&packet(number as u64, sent[number]), ms(2))
    };
    paths.on_arrived(&ledger, 2, core::iter::once(2..3));
    assert!(!lost(&paths, 0), "B is shorter, and has overtaken");
    paths.on_arrived(&ledger, 2, [1..2, 2..3].into_iter());
    assert!(lost(&paths, 0) && !lost(&paths, 1), "A keeps its order");
    assert!(paths.go(3, ms(2), search(), A).is_some(), "what was known of it");
    ledger.push(packet(3, sent[3]));
    paths.on_arrived(&ledger, 3, [2..3, 3..4].into_iter());
    assert!(paths.is_lost(&packet(1, sent[1]), ms(80)), "A again");
    assert_eq!((paths.path(), paths.since()), (A, 3));
}

#[test]
fn what_is_lost_on_a_dead_path_is_known_a_round_trip_later() {
    let mut paths = LanePaths::new(A, REORDERING);
    let mut ledger = Ledger::default();
    ledger.push(packet(0, 0));
    paths.go(1, ms(80), search(), B);
    for (number, sent) in [(1, 79), (2, 80)] {
        ledger.push(packet(number, sent));
        paths.on_arrived(&ledger, number, core::iter::once(number..number + 1));
        assert_eq!(paths.is_lost(&packet(0, 0), ms(2)), sent == 80);
    }
}

#[test]
fn what_each_path_carried_is_kept_apart() {
    let mut paths = LanePaths::new(A, REORDERING);
    for (first, path) in [(0, B), (5, A), (5, B), (9, A)] {
        paths.go(first, ms(1), search(), path);
        paths.on_sent(4, 4000, Ecn::Ect0);
    }
    paths.on_lost(3, 1);
    paths.on_lost(8, 2);
    paths.on_lost(9, 1);
    for (number, packets) in [(4, 3), (6, 2), (9, 7)] {
        paths.on_acked(number, packets);
    }
    let of = |packets_sent, lost| Carried {
        packets_sent,
        bytes_sent: packets_sent * 1000,
        packets_arrived: packets_sent - lost,
        lost,
        ..Carried::default()
    };
    assert_eq!((paths.carried(A), paths.carried(B)), (of(8, 1), of(8, 3)));
    assert_eq!(paths.carried(PathId(7)), Carried::default());
}

proptest! {
    /// Each path keeps its order, and paths overtake each other by less than a round trip: nothing
    /// is taken as lost that arrives, however often the lane moves, and whatever is reported late, twice
    /// or not at all.
    #[test]
    fn nothing_that_arrives_is_taken_as_lost(
        stays in prop::collection::vec((0usize..3, 1u64..6), 1..12),
        reports in prop::collection::vec((0usize..80, 1u64..4), 1..60),
    ) {
        let delays = [10, 40, 70];
        let mut paths = LanePaths::new(PathId(0), REORDERING);
        let mut ledger = Ledger::default();
        let (mut sent, mut before) = (Vec::new(), 0);
        let mut now = 0;
        for (path, packets) in stays {
            paths.go(sent.len() as u64, ms(2 * delays[before]), search(), PathId(path as u16));
            before = path;
            for _ in 0..packets {
                now += 7;
                ledger.push(packet(sent.len() as u64, now));
                sent.push((now, now + delays[path]));
            }
        }
        // Packets that have arrived by the time that each packet arrives, reported in the order of time.
        let times = reports.iter().map(|(which, count)| (sent[which % sent.len()].1, *count));
        let times: BTreeMap<u64, u64> = times.collect();
        for (time, count) in times {
            let arrived: Vec<u64> =
                (0..sent.len()).filter(|i| sent[*i].1 <= time).map(|i| i as u64).collect();
            let largest = *arrived.last().unwrap();
            for _ in 0..count {
                paths.on_arrived(&ledger, largest, arrived.iter().map(|n| *n..n + 1));
            }
            for (number, (at, _)) in sent.iter().enumerate().filter(|(_, sent)| sent.1 > time) {
                let is_lost = paths.is_lost(&packet(number as u64, *at), ms(2 * delays[before]));
                prop_assert!(!is_lost, "{number} of {sent:?} at {time}");
            }
        }
    }
}
