use longhaul_needs::needs;

use longhaul_lab::TestbedOptions;

use super::*;
use crate::experiment::Parameter;
use crate::report::Part;

/// Small, with a contender of this process and one that nobody has.
const TINY: &str = r#"
name = "tiny"
title = "T"
question = "Q?"
source = "S"
repeats = 2
contenders = [{ name = "cubic x1" }, { name = "reno x1" }]
topology = "two-hosts"
[job]
bytes = "300KB"
patience = "60s"
[[axis]]
sets = "rtt"
values = ["2ms"]
[[axis]]
sets = "rate"
values = ["20Mbps"]
[cross]
congestion_control = "cubic"
flows = 2
from = "peer"
to = "host"
settle = "50ms"
[[finding]]
paper = "p"
measured = { look = "shares" }
"#;

fn tiny() -> Experiment {
    Experiment::parse(TINY, &|name| find(name).is_ok()).unwrap()
}

#[needs(namespaces)]
#[test]
fn a_tiny_experiment_runs_is_resumed_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let results = Results::in_folder(folder.path());
    let stop = AtomicBool::new(false);
    let options = Options { quick: false, fresh: false, stop: &stop };
    let experiment = tiny();
    let mut ended = 0;
    let first = run(&experiment, &options, &results, &mut |progress| {
        if let Progress::Ends(record) = progress {
            ended += 1;
            // As if killed in the middle.
            stop.store(ended == 3, Ordering::Relaxed);
            assert!(record.verdict == Verdict::Done, "{:?}", record.why);
        }
    });
    assert!(matches!(first, Err(RunError::Stopped)), "{first:?}");
    stop.store(false, Ordering::Relaxed);
    let (mut stood, mut made) = (0, 0);
    let mut see = |progress: Progress<'_>| match progress {
        Progress::Stands(_) => stood += 1,
        Progress::Ends(_) => made += 1,
        Progress::Begins { total, .. } => assert_eq!(total, 4),
    };
    run(&experiment, &options, &results, &mut see).unwrap();
    assert_eq!((stood, made), (3, 1));
    let records = results.read("tiny").unwrap();
    assert_eq!(records.len(), 4);
    for record in &records {
        assert_eq!(record.bytes, Some(300_000));
        assert_eq!(record.cross_bps.len(), 2);
        assert!(record.path_sent > 0 && record.goodput_bps.is_some());
        assert!(!record.machine.is_empty() && !record.buffers.is_empty());
    }
    let part = Part::new(tiny(), records);
    assert_eq!((part.records.len(), part.planned, part.left_out), (4, 4, 0));
    let findings = part.findings();
    assert!(findings[0].1[0].contains("of the 2 beside it"), "{findings:?}");
}

#[needs(namespaces)]
#[test]
fn transfers_side_by_side_have_results_of_their_own() {
    let crossing = TINY.find("[cross]").unwrap()..TINY.find("[[finding]]").unwrap();
    let text = TINY
        .replace(&TINY[crossing], "")
        .replace(
            "{ name = \"reno x1\" }",
            "{ name = \"reno x1\", beside = [{ name = \"cubic x1\", \
                  from = \"peer\", to = \"host\", after = \"100ms\" }] }",
        )
        .replace("patience = \"60s\"", "patience = \"60s\"\nseries = \"10ms\"");
    let experiment = Experiment::parse(&text, &|name| find(name).is_ok()).unwrap();
    let records = records_of(&experiment);
    for record in &records {
        assert_eq!(record.verdict, Verdict::Done, "{:?}", record.why);
        assert_eq!(record.series.interval_ms, Some(10));
        let beside = usize::from(record.contender == "reno x1");
        assert_eq!((record.beside.len(), record.cross_bps.len()), (beside, beside));
        for other in &record.beside {
            assert_eq!((other.verdict, other.after), (Verdict::Done, 0.1), "{:?}", other.why);
            assert!(other.goodput_bps.is_some());
        }
    }
}

/// Moves nothing, and takes its time.
struct Sleeper;

impl Contender for Sleeper {
    fn name(&self) -> &str {
        "sleeper"
    }

    fn about(&self) -> String {
        String::new()
    }

    fn presence(&self) -> Result<longhaul_peers::Presence, longhaul_peers::Absent> {
        Ok(longhaul_peers::Presence { version: String::new(), program: None })
    }

    fn run(&self, testbed: &Testbed, _: &Job) -> Result<Outcome, ContenderError> {
        let mut sleep = std::process::Command::new("sleep");
        sleep.arg("300");
        let mut child = testbed.spawn(testbed.ends().0, sleep).unwrap();
        let status = child.wait().unwrap().to_string();
        Err(ContenderError::Failed { what: "sleep".into(), status, words: String::new() })
    }
}

#[needs(namespaces)]
#[test]
fn a_run_that_is_not_recorded_ends_when_all_is_to_end() {
    let testbed = Testbed::new(&tiny().base(), &TestbedOptions::default()).unwrap();
    let job = Job::new("host", "peer", 1, Duration::from_secs(300));
    let stop = AtomicBool::new(true);
    let failure = attended(&Sleeper, &testbed, &job, &stop).unwrap_err().to_string();
    assert!(failure.contains("signal: 9"), "{failure}");
}

#[needs(namespaces)]
#[test]
fn a_reader_is_watched_and_its_signals_are_kept() {
    let text = TINY
        .replace(
            "{ name = \"cubic x1\" }, { name = \"reno x1\" }",
            "{ name = \"watched reader\", rate = \"50Mbps\" }",
        )
        .replace("300KB", "3MB")
        .replace("repeats = 2", "repeats = 1")
        .replace("look = \"shares\"", "look = \"signals\"")
        + "[[axis]]\nsets = \"load\"\nvalues = [\"loops,from=100ms,length=100ms,every=200ms\"]\n";
    let experiment = Experiment::parse(&text, &|name| find(name).is_ok()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let results = Results::in_folder(folder.path());
    let stop = AtomicBool::new(false);
    let options = Options { quick: false, fresh: false, stop: &stop };
    run(&experiment, &options, &results, &mut |_| ()).unwrap();
    let records = results.read("tiny").unwrap();
    assert_eq!(records[0].verdict, Verdict::Done, "{:?}", records[0].why);
    let signals = records[0].signals.as_ref().unwrap();
    assert!(signals.with_drops + signals.without > 0 && !signals.of.is_empty());
    let trace = folder.path().join(records[0].details["trace"].as_str().unwrap());
    let trace = std::fs::read_to_string(trace).unwrap();
    assert!(trace.starts_with("# longhaul host trace 3\n"), "{}", &trace[..100]);
    assert!(trace.lines().any(|line| line.starts_with("load\t")));
    let text = Part::new(experiment, records).findings().remove(0).1.join(" ");
    assert!(text.contains("loads under which datagrams were dropped"), "{text}");
}

#[needs(namespaces, fuse)]
#[test]
fn copies_go_to_a_slow_disk() {
    let text = TINY
        .replace("{ name = \"cubic x1\" }, { name = \"reno x1\" }", "{ name = \"tar\" }")
        .replace("repeats = 2", "repeats = 1")
        + "[[axis]]\nsets = \"disk\"\nvalues = [\"rate=100Mbps\"]\n";
    let records = records_of(&Experiment::parse(&text, &|_| true).unwrap());
    assert_eq!(records[0].verdict, Verdict::Done, "{:?}", records[0].why);
    assert!(records[0].details["disk_passed_bytes"].as_u64() >= Some(300_000));
}

#[needs(namespaces)]
#[test]
fn a_contender_without_parameters_is_unsuitable_where_some_are_given() {
    let text = TINY.replace("{ name = \"reno x1\" }", "{ name = \"reno x1\", params = [\"x=1\"] }");
    let records = records_of(&Experiment::parse(&text, &|_| true).unwrap());
    let given = records.iter().filter(|record| record.contender == "reno x1");
    assert!(given.clone().all(|record| record.verdict == Verdict::Unsuitable));
    assert_eq!(given.count(), 2);
}

/// The records of a whole run.
fn records_of(experiment: &Experiment) -> Vec<Record> {
    let folder = tempfile::tempdir().unwrap();
    let results = Results::in_folder(folder.path());
    let stop = AtomicBool::new(false);
    let options = Options { quick: false, fresh: false, stop: &stop };
    run(experiment, &options, &results, &mut |_| ()).unwrap();
    results.read("tiny").unwrap()
}

#[needs(namespaces)]
#[test]
fn a_run_that_nobody_can_make_is_recorded_and_the_sweep_goes_on() {
    let text = TINY.replace("{ name = \"cubic x1\" }", "{ name = \"moon x1\" }");
    // The kernel has no such congestion control.
    let experiment = Experiment::parse(&text, &|_| true).unwrap();
    let records = records_of(&experiment);
    let verdicts: Vec<Verdict> = records.iter().map(|record| record.verdict).collect();
    let absent = verdicts.iter().filter(|verdict| **verdict == Verdict::Absent).count();
    assert_eq!((absent, verdicts.len()), (2, 4));
    assert!(records[0].why.as_deref().unwrap().contains("moon"));
}

#[needs(namespaces)]
#[test]
fn a_run_that_takes_too_long_is_ended_and_the_sweep_goes_on() {
    let text = TINY.replace("20Mbps", "10Mbps").replace("300KB", "1GB").replace("60s", "3s");
    let experiment = Experiment::parse(&text, &|_| true).unwrap();
    let records = records_of(&experiment);
    assert_eq!(records.len(), 4);
    for record in &records {
        assert_eq!(record.verdict, Verdict::TimedOut, "{:?}", record.why);
        assert_eq!((record.seconds, record.goodput_bps), (Some(3.0), None));
        assert!(record.arrived_bps.is_some() && record.stands());
    }
}

#[needs(namespaces)]
#[test]
fn losses_of_another_link_are_not_the_observed_ones() {
    let text = TINY.replace(
        "topology = \"two-hosts\"\n[job]\n",
        r#"
[testbed]
name = "beside"
[[testbed.node]]
name = "host"
[[testbed.node]]
name = "peer"
# Transfers go over the first.
[[testbed.link]]
name = "lossy"
between = ["host", "peer"]
both = { delay = "1ms", loss = "5%" }
[[testbed.link]]
name = "observed"
between = ["host", "peer"]
both = { delay = "1ms" }
[job]
link = "observed"
"#,
    );
    let experiment = Experiment::parse(&text, &|_| true).unwrap();
    let records = records_of(&experiment);
    for record in &records {
        assert_eq!(record.link_lost, Some(BTreeMap::new()));
        assert!(record.path_lost["random"] > 0, "{:?}", record.path_lost);
    }
}

#[test]
fn fingerprints_tell_cells_and_contenders_apart() {
    let experiment = tiny();
    let setup = |rtt: &str| {
        let cell = vec![(Parameter::Rtt, rtt.to_owned())];
        Setup::of(&experiment, false, &Run { cell, contender: 0, repeat: 0, seed: 1 }).unwrap()
    };
    let one = fingerprint(&experiment, &setup("2ms"), 0);
    assert_eq!(one, fingerprint(&experiment, &setup("2ms"), 0));
    assert_ne!(one, fingerprint(&experiment, &setup("3ms"), 0));
    assert_ne!(one, fingerprint(&experiment, &setup("2ms"), 1));
}

#[test]
fn the_time_left_follows_from_the_runs_made() {
    let mut pace = Pace::new(std::iter::empty());
    let patience = Duration::from_secs(10);
    assert_eq!(pace.left(["a", "a"].into_iter(), patience), patience);
    pace.took("a", Duration::from_secs(2));
    pace.took("a", Duration::from_secs(4));
    let left = pace.left(["a", "a", "b"].into_iter(), patience);
    assert_eq!(left, Duration::from_secs(3 + 3 + 5));
}

/// A chain with a node between, and contenders that go through it or cannot.
const CHAIN: &str = r#"
name = "tiny"
title = "T"
question = "Q?"
source = "S"
repeats = 1
contenders = [
    { name = "gateways cubic x2", via = [{ node = "gateway", congestion_control = "reno" }] },
    { name = "cubic x1" },
    { name = "auto", via = [{ node = "gateway" }] },
    { name = "gateways reno x1" },
]
[testbed]
name = "chain"
[[testbed.node]]
name = "host"
[[testbed.node]]
name = "gateway"
[[testbed.node]]
name = "peer"
[[testbed.link]]
name = "lan"
between = ["host", "gateway"]
both = { rate = "20Mbps" }
[[testbed.link]]
name = "wan"
between = ["gateway", "peer"]
both = { rate = "20Mbps" }
[job]
patience = "60s"
bytes = "500KB"
[[axis]]
sets = "rtt"
links = ["lan", "wan"]
values = ["2ms"]
"#;

#[needs(namespaces)]
#[test]
fn a_transfer_through_a_node_between_has_that_nodes_cpu_time_and_a_cut_one_what_had_arrived() {
    let experiment = |text: &str| Experiment::parse(text, &|name| find(name).is_ok()).unwrap();
    let records = records_of(&experiment(CHAIN));
    let verdicts: Vec<Verdict> = records.iter().map(|record| record.verdict).collect();
    let unsuitable = [Verdict::Unsuitable; 2];
    assert_eq!(verdicts[..2], [Verdict::Done; 2], "{:?}", records[0].why);
    assert_eq!(verdicts[2..], unsuitable);
    assert!(records[0].cpu_between["gateway"] > 0.0 && records[1].cpu_between.is_empty());
    assert_eq!((records[0].bytes, records[0].cut), (Some(500_000), false));
    assert_eq!(records[0].congestion_control.as_deref(), Some("cubic"));

    let long = CHAIN.replace("bytes = \"500KB\"", "bytes = \"1GB\"\nlength = \"1s\"");
    for record in &records_of(&experiment(&long))[..2] {
        assert_eq!((record.verdict, record.cut), (Verdict::Done, true), "{:?}", record.why);
        let (bytes, seconds) = (record.bytes.unwrap(), record.seconds.unwrap());
        assert!(bytes > 0 && bytes < 1_000_000_000 && seconds >= 1.0, "{bytes} in {seconds}");
        let expected = bytes as f64 * 8.0 / seconds;
        // Read back from text, which rounds the last digit.
        assert!((record.goodput_bps.unwrap() / expected - 1.0).abs() < 1e-9, "{expected}");
    }
}

#[needs(namespaces)]
#[test]
fn round_trips_are_measured_straight_and_through_a_node_between() {
    let text = CHAIN.replace("bytes = \"500KB\"", "round_trips = 5");
    let records = records_of(&Experiment::parse(&text, &|_| true).unwrap());
    for record in &records[..2] {
        assert_eq!(record.verdict, Verdict::Done, "{:?}", record.why);
        assert_eq!((record.connects_ms.len(), record.exchanges_ms.len()), (5, 5));
        let mut both = record.answers_ms.iter().zip(&record.connects_ms);
        assert!(both.all(|(answer, connect)| answer - connect > 3.9), "{:?}", record.answers_ms);
        // Twice 2 ms there and back.
        let all = record.connects_ms.iter().chain(&record.exchanges_ms);
        assert!(all.clone().all(|ms| *ms > 3.9), "{:?}", record.connects_ms);
        assert_eq!(record.goodput_bps, None);
    }
}
