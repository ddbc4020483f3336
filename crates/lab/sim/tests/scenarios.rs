//! Named behaviours of whole transfers.

use std::time::Duration;

use longhaul_pathsim::{DuplexConfig, GilbertElliott, PathConfig, Probability};
use longhaul_sim::{Accident, Choice, End, Report, Scenario, TcpOpens, World};
use longhaul_units::{Bytes, Rate};
use longhaul_wire::{CloseCode, Protect};

fn run(scenario: Scenario) -> Report {
    World::new(scenario, false).run().unwrap_or_else(|broken| panic!("{broken}"))
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn line() -> PathConfig {
    PathConfig::default().delay(ms(10)).rate(Rate::from_mbps(100), Bytes::new(250_000))
}

/// A single file of `mib` MiB that no bundle hides.
fn one_file(seed: u64, mib: u64) -> Scenario {
    Scenario { entries: 1, bytes: mib << 20, ..Scenario::new(seed) }
}

#[test]
fn a_clean_path_needs_no_resends() {
    for push in [true, false] {
        let rate = Some(Rate::from_mbps(50));
        let report = run(Scenario { push, profile: "fixed", rate, ..one_file(1, 4) });
        assert_eq!(report.runs, [CloseCode::DONE]);
        assert_eq!(report.failed, 0);
        assert_eq!(report.lanes[0].packets_resent, 0);
    }
}

#[test]
fn every_profile_finishes_over_loss_and_reordering() {
    let path = line()
        .loss(Probability::from_percent(3))
        .reordering(Probability::from_percent(2), ms(4))
        .burst_loss(GilbertElliott::bursts(Probability::from_ppm(500), 8));
    for profile in ["auto", "fixed", "rbudp"] {
        let rate = (profile != "auto").then_some(Rate::from_mbps(80));
        let scenario = Scenario { profile, rate, ..one_file(2, 3) };
        let scenario = scenario.over(&DuplexConfig::symmetric(path.clone()));
        let report = run(scenario.clone());
        assert_eq!(report.runs, [CloseCode::DONE], "{profile}");
        assert!(report.lanes[0].packets_resent > 0);
        assert_eq!(report.lanes[0].rounds > 0, profile == "rbudp");
    }
}

/// As in RBUDP: all of the file goes once, then what was missing. The sink has promised a sixth of it at first.
#[test]
fn a_round_of_blasts_is_of_the_whole_file_where_there_is_room() {
    let rate = Some(Rate::from_mbps(80));
    let (capacity, path) = (Bytes::from_mib(4), line().loss(Probability::from_percent(1)));
    let scenario = Scenario { capacity, profile: "rbudp", rate, ..one_file(5, 24) };
    let report = run(scenario.over(&DuplexConfig::symmetric(path)));
    // Of 19,000 packets 190 are lost, of those 2, of those mostly none.
    let rounds = report.lanes[0].rounds;
    assert!((2..=5).contains(&rounds), "{rounds} rounds");
    assert!(report.memory[1] > Bytes::from_mib(16), "groups wait for the second round: {report:?}");
}

#[test]
fn memory_grows_with_the_path_and_no_further() {
    // 3.6 MiB are under way on it: as much as the sink promises at first.
    let (rate, round_trip) = (Rate::from_mbps(200), ms(150));
    let path = PathConfig::default().delay(round_trip / 2).rate(rate, Bytes::new(500_000));
    let capacity = Bytes::from_mib(4);
    let product = rate.bytes_in(round_trip);
    for (loss, mib) in [(0, 24), (0, 72), (1, 24)] {
        let path = path.clone().loss(Probability::from_percent(loss));
        let scenario = Scenario { capacity, ..one_file(5, mib) };
        let report = run(scenario.over(&DuplexConfig::symmetric(path)));
        // A queue of an eighth, and a measurement that is a twentieth too high, may add to it.
        let most = |base: u64| Bytes::new(base + 2 * product * 9 / 8 * 21 / 20);
        let [source, sink] = report.memory;
        assert!(source <= most(6 << 20) && sink <= most(capacity.get()), "{report:?}");
        // Groups wait there for what was lost; where nothing is, hardly any.
        assert!(loss == 0 || sink > capacity, "{report:?}");
    }
}

#[test]
fn groups_without_memory_at_the_sink_come_again() {
    // Each file has a last group that is short and takes a whole buffer all the same.
    let scenario = Scenario {
        profile: "fixed",
        rate: Some(Rate::from_mbps(50)),
        entries: 200,
        bytes: 40_000_000,
        disk_latency: ms(1000),
        ..Scenario::new(4)
    };
    let resent = |mib| {
        let report = run(Scenario { spare: Bytes::from_mib(mib), ..scenario.clone() });
        assert_eq!((&*report.runs, report.failed), (&[CloseCode::DONE][..], 0));
        report.lanes[0].packets_resent
    };
    assert!(resent(0) > 0);
    assert_eq!(resent(32), 0);
}

#[test]
fn auto_does_not_sink_with_the_number_of_lanes() {
    let path = line().rate(Rate::from_mbps(400), Bytes::new(2_000_000));
    let scenario = |lanes| {
        let scenario = Scenario { batch: 1, ..one_file(3, 12) };
        scenario.over(&DuplexConfig::symmetric(path.clone())).with_lanes(lanes)
    };
    let (one, three) = (run(scenario(1)), run(scenario(3)));
    assert_eq!(three.lanes.len(), 3);
    assert!(three.took < one.took * 3, "{:?} against {:?}", three.took, one.took);
}

#[test]
fn a_black_hole_on_a_new_route_is_found() {
    let jumbo = DuplexConfig::symmetric(line().mtu(9000));
    let narrow = DuplexConfig::symmetric(line().mtu(1300));
    let scenario = Scenario { datagram_max: 8972, interface_max: 8972, ..one_file(4, 4) };
    let report = run(scenario.over(&jumbo).fault(ms(250), Accident::Reroute(0, Box::new(narrow))));
    assert_eq!(report.runs, [CloseCode::DONE]);
    assert!(report.lanes[0].datagram <= 1272, "{:?}", report.lanes);
}

#[test]
fn an_interface_smaller_than_it_says_is_no_obstacle() {
    let jumbo = DuplexConfig::symmetric(line().mtu(9000));
    let scenario = Scenario { datagram_max: 8972, ..one_file(5, 2) };
    let report = run(scenario.over(&jumbo));
    assert_eq!(report.lanes[0].datagram, 1472);
}

#[test]
fn a_client_that_is_rebound_goes_on() {
    for push in [true, false] {
        let forward = line().rebinding(ms(150)).rebinding(ms(300));
        let path = DuplexConfig { forward, backward: line() };
        let report = run(Scenario { push, ..one_file(6, 6) }.over(&path));
        assert_eq!(report.runs, [CloseCode::DONE]);
        assert_eq!(report.failed, 0);
    }
}

#[test]
fn an_outage_is_survived() {
    let path = DuplexConfig::symmetric(line().outage(ms(200), Duration::from_secs(8)));
    let report = run(one_file(7, 4).over(&path));
    assert_eq!(report.runs, [CloseCode::DONE]);
    assert!(report.took > Duration::from_secs(8));
}

#[test]
fn durable_data_are_not_read_or_sent_again() {
    // 12 MiB take about a second; after 1.5 s at 60 Mb/s the first checkpoint is on disk.
    let rate = Some(Rate::from_mbps(40));
    for cut in [Accident::PowerCut(End::Server), Accident::Kill(End::Server)] {
        let scenario = Scenario { profile: "fixed", rate, ..one_file(8, 12) };
        let report = run(scenario.fault(ms(2000), cut));
        assert_eq!(report.runs.last(), Some(&CloseCode::DONE));
        assert_eq!(report.runs.len(), 2);
        assert!(report.resumed_bytes >= 3 << 20, "{report:?}");
        let resumed = (report.resumed_bytes >> 20) as usize;
        assert_eq!(report.groups_read, 12 - resumed);
    }
}

#[test]
fn a_group_that_is_altered_between_two_runs_is_sent_again() {
    let rate = Some(Rate::from_mbps(40));
    let copied = |seed, tampers, what: &Accident| {
        let scenario = Scenario { profile: "fixed", rate, tampers, ..one_file(seed, 12) };
        let report = run(scenario.fault(ms(2000), what.clone()));
        assert_eq!((report.runs.last(), report.failed), (Some(&CloseCode::DONE), 0));
        report.resumed_bytes
    };
    for what in [Accident::PowerCut(End::Server), Accident::Kill(End::Server), Accident::Cancel] {
        let again = (40..46).map(|seed| copied(seed, false, &what) - copied(seed, true, &what));
        let again: Vec<u64> = again.collect();
        assert!(again.iter().all(|bytes| [0, 1 << 20].contains(bytes)), "{what:?}: {again:?}");
        // The others were in groups that had not been recorded.
        assert!(again.contains(&(1 << 20)), "{what:?}: {again:?}");
    }
}

#[test]
fn a_client_that_loses_power_resumes_a_pull() {
    let rate = Some(Rate::from_mbps(40));
    let scenario = Scenario { push: false, profile: "fixed", rate, ..one_file(9, 12) };
    let report = run(scenario.fault(ms(2000), Accident::PowerCut(End::Client)));
    assert_eq!(report.runs, [CloseCode::INTERNAL, CloseCode::DONE]);
    assert!(report.resumed_bytes >= 3 << 20, "{report:?}");
}

#[test]
fn corruption_in_clear_is_repaired_by_group() {
    let path = DuplexConfig::symmetric(line().corruption(Probability::from_ppm(1000)));
    let scenario = Scenario { protect: Protect::Clear, ..one_file(10, 4) };
    let report = run(scenario.over(&path));
    assert!(report.repairs > 0);
    assert!(report.groups_read > 4 && report.groups_read <= 4 + report.repairs as usize);
    assert_eq!(report.failed, 0);
}

#[test]
fn a_corrupted_group_whose_hash_comes_late_is_repaired() {
    let path = DuplexConfig::symmetric(line().corruption(Probability::from_ppm(1000)));
    for hash_delay in [ms(50), ms(400)] {
        let scenario = Scenario { protect: Protect::Clear, hash_delay, ..one_file(10, 4) };
        let report = run(scenario.over(&path));
        assert!(report.repairs > 0);
        assert_eq!(report.failed, 0);
    }
}

#[test]
fn corruption_of_authenticated_payload_is_only_loss() {
    for protect in [Protect::Aead, Protect::Integrity] {
        let path = DuplexConfig::symmetric(line().corruption(Probability::from_percent(1)));
        let report = run(Scenario { protect, ..one_file(11, 4) }.over(&path));
        assert_eq!((report.repairs, report.failed, report.groups_read), (0, 0, 4));
        assert!(report.lanes[0].packets_resent > 0);
    }
}

#[test]
fn a_full_disk_refuses_what_does_not_fit_and_keeps_the_rest() {
    let full = Accident::DiskFull(Bytes::new(500_000));
    let report = run(Scenario { entries: 40, ..Scenario::new(12) }.fault(ms(0), full));
    assert_eq!(report.runs, [CloseCode::DONE]);
    assert!(report.failed > 0 && report.failed < 40, "{report:?}");
}

#[test]
fn a_failing_sync_ends_the_run_and_the_next_one_succeeds() {
    let report = run(Scenario::new(13).fault(ms(0), Accident::SyncFails));
    assert_eq!(report.runs, [CloseCode::STORAGE, CloseCode::DONE]);
    assert_eq!(report.failed, 0);
}

#[test]
fn a_file_that_changes_or_vanishes_while_it_is_read_is_not_published() {
    for accident in [Accident::Vanish, Accident::Change] {
        let report = run(one_file(14, 8).fault(ms(300), accident));
        assert_eq!((report.runs.as_slice(), report.failed), (&[CloseCode::DONE][..], 1));
    }
}

/// Lanes hold 4 MiB of the large file when it is found gone; on this path they take two seconds.
#[test]
fn bytes_of_a_file_that_failed_do_not_delay_the_others() {
    let slow = PathConfig::default().delay(ms(10)).rate(Rate::from_mbps(20), Bytes::new(50_000));
    let at = ms(1000);
    let sizes = vec![24 << 20, 1_500_000, 1_200_000];
    // What a record, or the socket of a TCP connection, has taken is gone.
    let slack = 512 << 10;
    // Of these seeds it is the first file that vanishes, and sockets hold little.
    let seeds = [(Choice::Udp, 22), (Choice::Tcp, 24)];
    for ((carrier, seed), push) in seeds.into_iter().flat_map(|one| [(one, true), (one, false)]) {
        let scenario = Scenario { carrier, push, sizes: sizes.clone(), ..Scenario::new(seed) };
        let scenario = scenario.over(&DuplexConfig::symmetric(slow.clone()));
        let report = run(scenario.fault(at, Accident::Vanish));
        assert_eq!((report.runs.as_slice(), report.failed), (&[CloseCode::DONE][..], 1));
        let sent: u64 = report.lanes.iter().map(|lane| lane.fresh_bytes).sum();
        // It is found gone when the next group is read: once another one has left.
        let before = Rate::from_mbps(20).bytes_in(at) + (1 << 20);
        let others = sizes[1] + sizes[2];
        assert!(sent < before + others + slack, "{carrier:?}, {push}: {sent} bytes");
    }
}

/// Either carrier, over a line that swallows UDP from then on.
fn swallowing(seed: u64, push: bool, from: Duration) -> Scenario {
    let swallows = line().swallowing_udp(from, Duration::MAX);
    let scenario = Scenario { carrier: Choice::Auto, push, ..Scenario::new(seed) };
    scenario.over(&DuplexConfig::symmetric(swallows))
}

#[test]
fn where_udp_is_swallowed_tcp_carries_the_same_run() {
    for push in [true, false] {
        let report = run(swallowing(31, push, Duration::ZERO));
        assert_eq!(report.runs, [CloseCode::DONE]);
        assert!(report.took < ms(2_000), "{:?}", report.took);
    }
}

#[test]
fn data_from_before_udp_was_swallowed_are_kept_and_tcp_carries_the_rest() {
    for push in [true, false] {
        let (sizes, bytes) = (vec![8 << 20], 8 << 20);
        let scenario = Scenario { sizes, bytes, ..swallowing(32, push, ms(500)) };
        let report = run(scenario);
        assert_eq!(report.runs, [CloseCode::TIMEOUT, CloseCode::DONE]);
        assert!(report.resumed_bytes > 0);
    }
}

#[test]
fn where_tcp_is_refused_too_the_client_says_so() {
    let scenario = Scenario { tcp: TcpOpens::Refused, ..swallowing(33, true, Duration::ZERO) };
    let report = run(scenario);
    assert_eq!(report.runs, [CloseCode::CANCELLED]);
    assert!(report.gave_up.is_some_and(|why| why.contains("TCP connections cannot be opened")));
}

#[test]
fn a_wrong_token_and_a_refusal_are_reported() {
    let report = run(Scenario { authorized: false, ..Scenario::new(15) });
    assert_eq!(report.runs, [CloseCode::UNAUTHORIZED]);
    let report = run(Scenario { granted: false, ..Scenario::new(15) });
    assert_eq!(report.gave_up.as_deref(), Some("this server is read-only"));
}

#[test]
fn a_stalled_receiver_loses_packets_and_no_more() {
    let scenario = Scenario { socket_buffer: Bytes::new(200_000), ..one_file(16, 6) };
    let report = run(scenario.fault(ms(250), Accident::Stall(End::Server, ms(400))));
    assert_eq!(report.runs, [CloseCode::DONE]);
    assert_eq!(report.failed, 0);
}

#[test]
fn an_adversary_on_the_path_changes_nothing() {
    let scenario = Scenario { adversary: 5, ..one_file(17, 4) };
    let report = run(scenario.with_lanes(2));
    assert_eq!((report.runs.as_slice(), report.failed), (&[CloseCode::DONE][..], 0));
    assert_eq!(report.repairs, 0);
}

#[test]
fn a_user_who_stops_and_starts_again_goes_on() {
    let rate = Some(Rate::from_mbps(40));
    let scenario = Scenario { profile: "rbudp", rate, ..one_file(18, 12) };
    let report = run(scenario.fault(ms(2000), Accident::Cancel));
    assert_eq!(report.runs, [CloseCode::CANCELLED, CloseCode::DONE]);
    assert!(report.resumed_bytes > 0);
}

#[test]
fn a_pipe_passes_on_what_was_sent_both_ways() {
    for push in [true, false] {
        let scenario = Scenario { pipe: true, push, bytes: 9 << 20, ..Scenario::new(5) };
        let report = run(scenario.clone().with_lanes(3));
        assert_eq!(report.runs, [CloseCode::DONE]);
        // Pieces are bounded at both ends, whatever the pipe's length.
        assert!(report.memory[0] <= Bytes::from_mib(8), "{report:?}");
        assert!(report.memory[1] <= Bytes::from_mib(12), "{report:?}");
    }
}

#[test]
fn names_that_no_stream_takes_at_once_all_arrive() {
    for push in [true, false] {
        let scenario = Scenario { push, entries: 1500, name_len: 240, ..Scenario::new(3) };
        let report = run(scenario.over(&DuplexConfig::symmetric(line().delay(ms(70)))));
        assert_eq!((report.runs, report.failed), (vec![CloseCode::DONE], 0));
    }
}

#[test]
fn a_pipe_without_a_byte_has_an_end() {
    for push in [true, false] {
        let report = run(Scenario { pipe: true, push, bytes: 0, ..Scenario::new(5) });
        assert_eq!(report.runs, [CloseCode::DONE]);
    }
}

#[test]
fn a_piece_that_comes_damaged_is_sent_again() {
    let path = line().corruption(Probability::from_ppm(400));
    let scenario =
        Scenario { pipe: true, bytes: 6 << 20, protect: Protect::Clear, ..Scenario::new(7) };
    let report = run(scenario.over(&DuplexConfig::symmetric(path)));
    assert_eq!(report.runs, [CloseCode::DONE]);
    assert!(report.repairs > 0);
}

#[test]
fn nothing_is_taken_that_somebody_else_left_under_the_same_identities() {
    let mut taken = 0;
    for seed in 0..40 {
        let (prepared, forgets) = (true, seed % 3 == 0);
        let sizes = vec![300_000, 700_000, 3 << 20, 10, 900_000, 200_000, 2 << 20];
        let bytes = sizes.iter().sum();
        let scenario = Scenario { prepared, forgets, sizes, bytes, ..Scenario::new(seed) };
        let report = run(scenario);
        assert_eq!((report.failed, report.resumed_bytes), (0, 0));
        taken += u64::from(report.groups_read > 9);
    }
    assert!(taken > 0, "something was left, and compared");
}

#[test]
fn a_source_that_lost_its_secret_goes_on_all_the_same() {
    for seed in 0..12 {
        let scenario = Scenario { forgets: true, ..one_file(seed, 24) };
        let report = run(scenario.fault(ms(1_700), Accident::Kill(End::Client)));
        assert_eq!(report.failed, 0);
        assert!(report.resumed_bytes > 0);
        assert!(report.groups_read <= 24, "each is read once: {report:?}");
    }
}

#[test]
fn where_the_stack_refuses_what_is_too_long_as_if_it_were_full_tcp_carries() {
    for (carrier, push) in [(Choice::Auto, true), (Choice::Auto, false), (Choice::Udp, true)] {
        let narrow =
            Scenario { is_narrow: true, queued_max: 1_122, carrier, push, ..one_file(34, 2) };
        let report = run(narrow);
        let runs: &[CloseCode] = match carrier {
            // The user takes the advice.
            Choice::Udp => &[CloseCode::PATH_MTU, CloseCode::DONE],
            _ => &[CloseCode::DONE],
        };
        assert_eq!((&*report.runs, report.failed), (runs, 0), "push {push}");
    }
}
