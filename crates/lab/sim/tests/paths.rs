//! Lanes that go from one path to another.

use longhaul_pathsim::{DuplexConfig, PathConfig};
use longhaul_sim::{Circuit, Directions, End, Report, Scenario, Silence, World};
use longhaul_units::{Bytes, Duration, Rate};
use longhaul_wire::CloseCode;

const MS: Duration = Duration::from_millis(1);

fn run(scenario: Scenario) -> Report {
    let report = World::new(scenario, false).run().unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(report.gave_up, None);
    report
}

fn line(mbps: u64) -> DuplexConfig {
    let rate = Rate::from_mbps(mbps);
    DuplexConfig::symmetric(PathConfig::default().delay(10 * MS).rate(rate, Bytes::new(250_000)))
}

/// Two paths over IP of 10 Mb/s each, a lane on each, and 4 MB: 1.6 s without any trouble.
fn two_paths(push: bool) -> Scenario {
    let scenario = Scenario::new(1).with_lanes(2).over(&line(10));
    Scenario { push, homes: vec![0, 1], entries: 1, bytes: 4_000_000, ..scenario }
}

/// Two lanes on one path of 10 Mb/s, and a circuit.
fn circuit(booked: &[(u32, u32, u64)]) -> Scenario {
    let booked =
        booked.iter().map(|(from, until, mbps)| (*from * MS, *until * MS, Rate::from_mbps(*mbps)));
    let circuit = Circuit {
        line: line(100),
        booked: booked.collect(),
        beside_ip: false,
        set_up: Duration::ZERO,
    };
    let scenario = Scenario::new(1).with_lanes(2).over(&line(10));
    Scenario { circuit: Some(circuit), entries: 1, bytes: 8_000_000, ..scenario }
}

#[test]
fn lanes_go_to_a_circuit_and_back_each_time() {
    let without = run(Scenario { circuit: None, ..circuit(&[]) });
    assert_eq!(without.moves, 0);
    let once = run(circuit(&[(500, 60_000, 80)]));
    assert_eq!(once.moves, 1, "{once:?}");
    assert!(once.took < without.took, "{once:?}");
    let often = run(circuit(&[(300, 400, 80), (600, 700, 80), (900, 1000, 80), (1200, 1300, 20)]));
    assert_eq!(often.moves, 8, "{often:?}");
    assert!(once.took < often.took && often.took < without.took, "{often:?}");
}

#[test]
fn a_circuit_whose_rate_changes_keeps_its_lanes() {
    let changing = [(500, 700, 80), (700, 900, 5), (900, 60_000, 80)];
    assert_eq!(run(circuit(&changing)).moves, 1);
}

#[test]
fn a_circuit_that_leads_nowhere_is_left() {
    let mut scenario = circuit(&[(200, 60_000, 80)]);
    let silence =
        Silence { path: 1, from: Duration::ZERO, until: 60_000 * MS, directions: Directions::Both };
    scenario.silences.push(silence);
    let report = run(scenario);
    assert!(report.moves >= 2, "{report:?}");
}

#[test]
fn a_lane_finds_another_path_when_its_own_dies() {
    // The source has something under way and notices. Where it is the server it asks the client,
    // which has nothing under way that could be missed.
    for push in [true, false] {
        for directions in
            [Directions::Both, Directions::Of(End::Client), Directions::Of(End::Server)]
        {
            for path in [0, 1] {
                let mut scenario = two_paths(push);
                let (from, until) = (500 * MS, 120_000 * MS);
                scenario.silences.push(Silence { path, from, until, directions });
                let report = run(scenario);
                let what = format!("push {push}, {directions:?} of {path}: {report:?}");
                assert!(report.moves >= 1, "{what}");
                assert!(report.took < Duration::from_secs(30), "{what}");
                assert_eq!(report.runs.len(), 1, "{what}");
            }
        }
    }
}

#[test]
fn a_path_that_udp_does_not_fit_is_left_out_and_the_other_carries() {
    for (push, path) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        for both in [true, false] {
            let mut scenario = Scenario { is_narrow: true, ..two_paths(push) };
            let line = &mut scenario.paths[path];
            line.forward = line.forward.clone().mtu(1_150);
            if both {
                line.backward = line.backward.clone().mtu(1_150);
            }
            let report = run(scenario);
            let what = format!("push {push}, {path}, both directions {both}: {report:?}");
            assert_eq!(report.runs, [CloseCode::DONE], "{what}");
            assert!(report.moves >= 1, "{what}");
        }
    }
}

#[test]
fn lanes_come_back_to_a_path_that_speaks_again() {
    let mut scenario = Scenario { bytes: 40_000_000, ..two_paths(true) };
    let silence =
        Silence { path: 1, from: 500 * MS, until: 4_500 * MS, directions: Directions::Both };
    scenario.silences.push(silence);
    let report = run(scenario);
    assert_eq!(report.moves, 2, "there, and back: {report:?}");
}
