use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use longhaul_rate_control::Observation;
use longhaul_units::{Duration, Losses, Rate};
use rusqlite::Connection;

use super::*;
use crate::store::BUSY;

const NOW: u64 = 1_700_000_000;
const DAY: u64 = 24 * 3_600;

fn key(peer: &str) -> PathKey {
    let (local, remote) = ("192.0.2.1".parse().unwrap(), "192.0.2.7".parse().unwrap());
    PathKey { peer: peer.into(), local, remote, direction: Direction::Push, token: String::new() }
}

/// A pull by the holder of a token.
fn pull(peer: &str, token: &str) -> PathKey {
    PathKey { direction: Direction::Pull, token: token.into(), ..key(peer) }
}

fn record(mbps: u64, profile: &str) -> Record {
    let seen = Observation {
        rate: Rate::from_mbps(mbps),
        by_path: true,
        round_trip: Duration::from_millis(100),
        packet: 1_500,
        chance_ppm: 7,
    };
    let lost = Losses { random: 3, ..Losses::default() };
    Record { seen, packets: 10_000, lost, profile: profile.into() }
}

/// Runs `test` with the name of a file that does not exist yet.
fn with_file(test: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    test(&folder.path().join("state/longhaul/history.db"));
}

fn rate(history: &History, key: &PathKey, now: u64) -> Option<Rate> {
    history.recall(key, now).unwrap().map(|memory| memory.rate())
}

#[test]
fn one_process_reads_the_records_of_another() {
    with_file(|file| {
        let first = History::open(file).unwrap();
        first.record(&key("a"), &record(900, "auto"), NOW).unwrap();
        first.record(&key("a"), &record(700, "cubic"), NOW + 60).unwrap();
        drop(first);
        let history = History::open(file).unwrap();
        let memory = history.recall(&key("a"), NOW + 3_600).unwrap().unwrap();
        assert_eq!(memory.band, (Rate::from_mbps(700), Rate::from_mbps(900)));
        assert_eq!(memory.age, Duration::from_secs(3_540));
        assert_eq!((memory.packet, memory.chance_ppm), (1_500, 7));
        assert_eq!(memory.best_profile, Some("auto"));
        let pull = PathKey { direction: Direction::Pull, ..key("a") };
        assert_eq!(history.recall(&pull, NOW).unwrap(), None);
        assert_eq!(history.recall(&key("b"), NOW).unwrap(), None);
        history.forget(&key("a")).unwrap();
        assert_eq!(history.recall(&key("a"), NOW).unwrap(), None);
        // Nobody else's business.
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
    });
}

#[test]
fn those_that_write_at_once_lose_nothing() {
    with_file(|file| {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    // Each is a process of its own to the file, and some make it.
                    let history = History::open(file).unwrap();
                    for _ in 0..10 {
                        let peer = key(&format!("host {thread}"));
                        history.record(&peer, &record(1, "auto"), NOW).unwrap();
                        history.learn_circuit("host", NOW, |known| known.circuits += 1).unwrap();
                    }
                });
            }
        });
        let history = History::open(file).unwrap();
        let paths = history.paths(None, NOW).unwrap();
        assert_eq!(paths.len(), 8);
        assert!(paths.iter().all(|path| path.seen.len() == 10));
        assert_eq!(history.circuit("host").unwrap().circuits, 80);
    });
}

#[test]
fn a_history_can_be_read_while_another_program_writes() {
    with_file(|file| {
        let history = History::open(file).unwrap();
        history.record(&key("a"), &record(100, "auto"), NOW).unwrap();
        let other = Connection::open(file).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert_eq!(rate(&history, &key("a"), NOW), Some(Rate::from_mbps(100)));
        let locked = |done: Result<(), HistoryError>| {
            let error = done.unwrap_err().to_string();
            assert!(error.contains("locked"), "{error}");
        };
        locked(history.lease(&key("a"), NOW).map(drop));
        locked(history.forget(&key("a")));
        locked(history.record(&key("b"), &record(200, "auto"), NOW));
        other.execute_batch("COMMIT").unwrap();
        history.record(&key("b"), &record(200, "auto"), NOW).unwrap();
        assert_eq!(rate(&history, &key("b"), NOW), Some(Rate::from_mbps(200)));
    });
}

#[test]
fn a_thing_that_is_no_file_is_refused_and_left() {
    with_file(|file| {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(file).status().unwrap();
        assert!(made.success());
        let error = History::open(file).err().unwrap();
        assert!(error.to_string().contains("it is no file"), "{error}");
        assert!(file.exists());
    });
}

#[test]
fn a_damaged_file_is_renamed() {
    with_file(|file| {
        let history = History::open(file).unwrap();
        for _ in 0..200 {
            history.record(&key("a"), &record(900, "auto"), NOW).unwrap();
        }
        drop(history);
        let renamed = file.with_file_name("history.db.damaged");
        let bytes = fs::read(file).unwrap();
        let mut torn = bytes.clone();
        torn[4_096..5_000].fill(0xa5);
        let cut = &bytes[..bytes.len() / 2 + 100];
        for damaged in [b"no database, but text of some length".as_slice(), &torn, cut] {
            fs::write(file, damaged).unwrap();
            let history = History::open(file).unwrap();
            assert!(history.notices()[0].contains("damaged"), "{:?}", history.notices());
            assert!(!history.notices()[0].contains('\n'), "{:?}", history.notices());
            assert_eq!(fs::read(&renamed).unwrap(), damaged);
            assert_eq!(history.recall(&key("a"), NOW).unwrap(), None);
            history.record(&key("a"), &record(900, "auto"), NOW).unwrap();
            drop(history);
            assert!(History::open(file).unwrap().notices().is_empty());
            fs::remove_file(&renamed).unwrap();
        }
    });
}

#[test]
fn an_unusable_file_is_reported_and_left_alone() {
    with_file(|file| {
        let history = History::open(file).unwrap();
        history.connection(BUSY).unwrap().pragma_update(None, "user_version", 4).unwrap();
        drop(history);
        assert!(matches!(History::open(file), Err(HistoryError::Newer(_))));
        let below = file.join("history.db");
        assert!(matches!(History::open(&below), Err(HistoryError::File { .. })));
    });
}

#[test]
fn old_and_surplus_records_are_forgotten() {
    with_file(|file| {
        let history = History::open(file).unwrap();
        let observations = |history: &History| {
            let paths = history.paths(None, NOW).unwrap();
            paths.iter().map(|path| path.seen.len()).sum::<usize>()
        };
        history.record(&key("old"), &record(900, "auto"), NOW - 31 * DAY).unwrap();
        // Of a clock that was wrong.
        history.record(&key("future"), &record(900, "auto"), NOW + 400 * DAY).unwrap();
        assert_eq!(rate(&history, &key("old"), NOW), None);
        for mbps in 1..=40 {
            history.record(&key("a"), &record(mbps, "auto"), NOW).unwrap();
        }
        assert_eq!(observations(&history), 32, "the newest of the one path that is left");
        assert_eq!(rate(&history, &key("a"), NOW), Some(Rate::from_mbps(33)));
        for path in 0..140 {
            let transaction = |_| history.record(&key(&path.to_string()), &record(1, "auto"), NOW);
            (0..32).try_for_each(transaction).unwrap();
        }
        assert_eq!(observations(&history), 4_096);
    });
}

#[test]
fn records_of_one_token_neither_mislead_nor_displace_another() {
    with_file(|file| {
        let history = History::open(file).unwrap();
        let (one, other) = (pull("a", "00aa"), pull("a", "00bb"));
        history.record(&one, &record(900, "auto"), NOW).unwrap();
        assert_eq!(rate(&history, &other, NOW), None);
        history.record(&other, &record(7, "auto"), NOW).unwrap();
        assert_eq!(rate(&history, &one, NOW), Some(Rate::from_mbps(900)));
        // One that builds on its memory, or drops it, stops no other.
        let _lease = history.lease(&one, NOW).unwrap().unwrap();
        assert!(history.lease(&other, NOW).unwrap().is_some());
        history.forget(&other).unwrap();
        assert_eq!(rate(&history, &one, NOW), Some(Rate::from_mbps(900)));
        history.record(&key("b"), &record(800, "auto"), NOW).unwrap();
        for address in 0..600 {
            let many = pull(&address.to_string(), "00bb");
            history.record(&many, &record(1, "auto"), NOW + 1).unwrap();
        }
        assert_eq!(rate(&history, &one, NOW), Some(Rate::from_mbps(900)));
        assert_eq!(rate(&history, &key("b"), NOW), Some(Rate::from_mbps(800)));
        let paths = history.paths(None, NOW).unwrap();
        assert_eq!(paths.iter().filter(|path| path.key.token == "00bb").count(), 512);
    });
}

#[test]
fn a_file_of_before_tokens_is_gone_on_with_but_for_what_anybody_may_have_spoilt() {
    with_file(|file| {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let old = Connection::open(file).unwrap();
        old.execute_batch(include_str!("tests/version-1.sql")).unwrap();
        drop(old);
        let history = History::open(file).unwrap();
        assert_eq!(rate(&history, &key("a"), NOW), Some(Rate::from_mbps(900)));
        assert_eq!(history.circuit("dtn").unwrap().circuits, 4);
        let paths = history.paths(None, NOW).unwrap();
        assert_eq!(paths.len(), 1, "{paths:?}");
        history.record(&pull("192.0.2.7", "00aa"), &record(5, "auto"), NOW).unwrap();
        history.record(&key("a"), &record(600, "auto"), NOW).unwrap();
        assert!(history.lease(&key("a"), NOW).unwrap().is_some());
        drop(history);
        let again = History::open(file).unwrap();
        assert_eq!(again.paths(None, NOW).unwrap().len(), 2);
    });
}

#[test]
fn one_at_a_time_has_the_lease() {
    with_file(|file| {
        let (one, other) = (History::open(file).unwrap(), History::open(file).unwrap());
        let lease = one.lease(&key("a"), NOW).unwrap().unwrap();
        assert!(other.lease(&key("a"), NOW + 59).unwrap().is_none());
        assert!(other.lease(&key("b"), NOW).unwrap().is_some());
        assert!(one.renew(&lease, NOW + 30).unwrap());
        assert!(other.lease(&key("a"), NOW + 60).unwrap().is_none());
        // Who was killed gives nothing back.
        let later = other.lease(&key("a"), NOW + 90).unwrap().unwrap();
        assert!(!one.renew(&lease, NOW + 91).unwrap());
        one.give_back(&lease).unwrap();
        assert!(one.lease(&key("a"), NOW + 92).unwrap().is_none());
        other.give_back(&later).unwrap();
        assert!(one.lease(&key("a"), NOW + 93).unwrap().is_some());
        // A clock that is set back by a year does not keep it for a year.
        assert!(other.lease(&key("a"), NOW - 365 * DAY).unwrap().is_some());
    });
}

#[test]
fn circuit_records_of_an_earlier_program_are_taken_over_once() {
    with_file(|file| {
        let old = file.with_file_name("circuits.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = r#"{"dtn":{"circuits":4,"wasted_ppm":900,"deviation_ppm":30,"max_rate_bps":5}}"#;
        fs::write(&old, text).unwrap();
        let history = History::open(file).unwrap();
        let known = CircuitRecord {
            circuits: 4,
            wasted_ppm: 900,
            deviation_ppm: 30,
            max_rate_bps: Some(5),
        };
        assert_eq!(history.circuit("dtn").unwrap(), known);
        assert_eq!(history.circuit("other").unwrap(), CircuitRecord::default());
        assert!(!old.exists());
    });
    with_file(|file| {
        let old = file.with_file_name("circuits.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&old, "{").unwrap();
        let history = History::open(file).unwrap();
        assert!(history.notices()[0].contains("not taken over"), "{:?}", history.notices());
        assert!(old.exists());
    });
}

#[test]
fn show_returns_what_was_recorded_and_clearing_clears() {
    with_file(|file| {
        let history = History::open(file).unwrap();
        history.record(&key("a"), &record(900, "auto"), NOW).unwrap();
        history.record(&key("b"), &record(800, "udt"), NOW + 1).unwrap();
        history.learn_circuit("a", NOW, |known| known.circuits = 1).unwrap();
        let paths = history.paths(None, NOW + 2).unwrap();
        let peers: Vec<&str> = paths.iter().map(|path| path.key.peer.as_str()).collect();
        assert_eq!(peers, ["b", "a"]);
        assert_eq!(paths[1].seen, [Seen { at: NOW, record: record(900, "auto") }]);
        assert_eq!(paths[1].memory.unwrap().rate(), Rate::from_mbps(900));
        let by_address = history.paths(Some("192.0.2.7"), NOW).unwrap();
        assert_eq!(by_address.len(), 2);
        assert_eq!(history.paths(Some("c"), NOW).unwrap(), []);
        assert_eq!(history.clear(Some("a")).unwrap(), 2);
        assert_eq!(history.paths(None, NOW).unwrap().len(), 1);
        assert_eq!(history.circuit("a").unwrap().circuits, 0);
        assert_eq!(history.clear(None).unwrap(), 1);
        drop(history);
        let left = fs::read(file).unwrap();
        assert!(!left.windows(9).any(|bytes| bytes == b"192.0.2.7"), "still in the file");
    });
}

#[test]
fn swallowed_udp_is_remembered_for_an_hour_by_server() {
    let folder = tempfile::tempdir().unwrap();
    let history = History::open(&folder.path().join("history.db")).unwrap();
    let [here, there] = ["192.0.2.7", "192.0.2.8"].map(|ip| ip.parse().unwrap());
    let known = |peer, ip, now| history.is_udp_swallowed(peer, ip, now).unwrap();
    assert!(!known("a", here, 10_000));
    history.note_udp_swallowed("a", here, 10_000).unwrap();
    assert!(known("a", here, 10_000) && known("a", here, 13_599));
    assert!(!known("a", here, 13_600) && !known("a", there, 10_000) && !known("b", here, 10_000));
    history.clear(Some("a")).unwrap();
    assert!(!known("a", here, 10_000));
}
