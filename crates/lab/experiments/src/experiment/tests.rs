use super::*;

const SMALL: &str = r#"
name = "small"
title = "T"
question = "Q?"
source = "S"
repeats = 3
contenders = [{ name = "a" }, { name = "b" }, { name = "c", rate = "1Gbps", label = "c at 1 Gb/s" }]
topology = "two-hosts"
[job]
bytes = "1MB"
patience = "5s"
[quick]
repeats = 1
[[axis]]
sets = "rtt"
values = ["10ms", "20ms"]
quick = ["20ms"]
[[axis]]
sets = "loss"
values = ["0%", "1%"]
"#;

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text, &|name| name.len() == 1).map_err(|error| error.to_string())
}

#[test]
fn built_in_experiments_are_read() {
    for builtin in Builtin::ALL {
        let experiment = builtin.experiment();
        assert_eq!(experiment.name, builtin.name);
        assert!(!experiment.findings.is_empty() && !experiment.plots.is_empty());
        for quick in [true, false] {
            let plan = Plan::new(&experiment, quick);
            assert!(!plan.runs.is_empty());
            for run in plan.runs {
                Setup::of(&experiment, quick, &run).unwrap();
            }
        }
    }
}

#[test]
fn contenders_of_built_in_experiments_exist() {
    for builtin in Builtin::ALL {
        let known = |name: &str| longhaul_peers::find(name).is_ok();
        Experiment::parse(builtin.text(), &known).unwrap();
    }
}

#[test]
fn a_sweep_goes_forwards_and_backwards() {
    let experiment = parse(SMALL).unwrap();
    let runs = Plan::new(&experiment, false).runs;
    assert_eq!(runs.len(), 4 * 3 * 3);
    let pass = |repeat: u32| {
        let pass = runs.iter().filter(|run| run.repeat == repeat);
        pass.map(|run| (run.cell.clone(), run.contender)).collect::<Vec<_>>()
    };
    let backwards: Vec<_> = pass(1).into_iter().rev().collect();
    assert_eq!(pass(0), backwards);
    assert_eq!(pass(0), pass(2));
    assert!(runs.iter().all(|run| run.seed == u64::from(run.repeat) + 1));
    assert!(runs.is_sorted_by_key(|run| run.repeat));
    let quick = Plan::new(&experiment, true).runs;
    assert_eq!(quick.len(), 2 * 3);
    assert!(quick.iter().all(|run| run.cell[0] == (Parameter::Rtt, "20ms".into())));
}

#[test]
fn cells_change_the_testbed_and_the_job() {
    let experiment = parse(SMALL).unwrap();
    let cell = vec![
        (Parameter::Rtt, "20ms".to_owned()),
        (Parameter::Loss, "1%".to_owned()),
        (Parameter::Mtu, "9000".to_owned()),
        (Parameter::SendingRate, "800Mbps".to_owned()),
        (Parameter::Medium, "disk".to_owned()),
        (Parameter::Load, "loops,count=2,cores=1".to_owned()),
    ];
    let run = Run { cell, contender: 0, repeat: 0, seed: 1 };
    let setup = Setup::of(&experiment, false, &run).unwrap();
    let link = &setup.topology.links[0];
    assert_eq!(link.rtt(), Duration::from_millis(20));
    assert_eq!(link.forward.loss, Some("1%".parse().unwrap()));
    assert_eq!((link.mtu, setup.medium), (9000, Source::Disk));
    assert_eq!(setup.rate, Some(Rate::from_mbps(800)));
    let own = Setup::of(&experiment, false, &Run { contender: 2, ..run }).unwrap();
    assert_eq!(own.rate, Some(Rate::from_gbps(1)));
    assert_eq!(setup.load.unwrap().count, 2);
    assert_eq!((setup.from.as_str(), setup.to.as_str()), ("host", "peer"));
}

#[test]
fn faults_are_told_with_line_and_key() {
    let cases = [
        ("repeats = 3", "repeats = \"3\"", &["line 6", "repeats"][..]),
        ("repeats = 3", "repeets = 3", &["line 6", "repeets"]),
        ("repeats = 3", "repeats = 0", &["line 6", "repeats"]),
        ("{ name = \"b\" }", "{ name = \"bee\" }", &["line 7", "contenders", "bee"]),
        ("{ name = \"b\" }", "{ name = \"a\" }", &["line 7", "contenders", "two"]),
        ("\"two-hosts\"", "\"moon\"", &["line 8", "topology", "phoebus"]),
        ("bytes = \"1MB\"", "bytes = \"1MX\"", &["line 10", "1MX"]),
        ("patience = \"5s\"", "patience = \"5\"", &["line 11", "100ms"]),
        ("\"10ms\", \"20ms\"", "\"10ms\", \"20\"", &["line 16", "rtt", "20"]),
        ("\"0%\", \"1%\"", "\"0%\", \"101%\"", &["line 20", "loss"]),
        ("quick = [\"20ms\"]", "quick = [\"30ms\"]", &["line 17", "rtt", "30ms"]),
        ("sets = \"loss\"", "sets = \"rtt\"", &["sets", "rtt"]),
        ("sets = \"loss\"", "sets = \"moon\"", &["line 19", "moon", "sending-rate"]),
        ("patience = \"5s\"", "patience = \"5s\"\nlink = \"moon\"", &["link"]),
        ("patience = \"5s\"", "patience = \"5s\"\nto = \"moon\"", &["job", "moon"]),
        (
            "patience = \"5s\"",
            "patience = \"5s\"\nbegin = \"5s\"",
            &["line 12", "begin", "patience"],
        ),
        ("name = \"small\"", "name = \"s/all\"", &["line 2", "name"]),
    ];
    for (from, to, expected) in cases {
        assert!(SMALL.contains(from), "{from}");
        let error = parse(&SMALL.replacen(from, to, 1)).unwrap_err();
        for words in expected {
            assert!(error.contains(words), "{to}: {words} is not in: {error}");
        }
    }
}

#[test]
fn figures_and_findings_speak_of_what_there_is() {
    let with = |text: &str| parse(&format!("{SMALL}{text}"));
    let finding = "[[finding]]\npaper = \"p\"\nmeasured = ";
    assert!(with(&format!("{finding}{{ look = \"rank\", by = \"goodput\", of = \"a\" }}")).is_ok());
    for (text, expected) in [
        (format!("{finding}{{ look = \"rank\", by = \"goodput\", of = \"d\" }}"), "\"d\""),
        (format!("{finding}{{ look = \"moon\" }}"), "line 23"),
        (format!("{finding}{{ look = \"shares\" }}\nonly = {{ rtt = \"1s\" }}"), "\"1s\""),
        ("[[plot]]\ntitle = \"t\"\nx = \"mtu\"".to_owned(), "mtu"),
        ("[[plot]]\ntitle = \"t\"\nx = \"rtt\"\ny = \"moon\"".to_owned(), "line 24"),
    ] {
        let error = with(&text).unwrap_err();
        assert!(error.contains(expected), "{expected} is not in: {error}");
    }
}

#[test]
fn rates_below_a_packet_in_a_round_trip_are_refused() {
    let axis = "[[axis]]\nsets = \"rate\"\nvalues = [\"1kbps\"]\n";
    let error = parse(&format!("{SMALL}{axis}")).unwrap_err();
    assert!(error.contains("rate") && error.contains("not one packet"), "{error}");
}
