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
fn cells_change_bursts_neighbours_parameters_and_memory() {
    let cross = "[cross]\ncongestion_control = \"reno\"\nflows = 1\nfrom = \"peer\"\nto = \"host\"\n\
                 settle = \"1s\"\n";
    let experiment = parse(&format!("{SMALL}{cross}")).unwrap();
    let at = |cell: &[(Parameter, &str)]| {
        let cell =
            cell.iter().map(|(parameter, value)| (*parameter, (*value).to_owned())).collect();
        Setup::of(&experiment, false, &Run { cell, contender: 0, repeat: 0, seed: 1 })
    };
    let setup = at(&[
        (Parameter::BurstLoss, "0.01%,20"),
        (Parameter::Cross, "8 bbr"),
        (Parameter::Param, "segment=10 chunk=70"),
        (Parameter::History, "warm"),
    ]);
    let setup = setup.unwrap();
    let bursts = setup.topology.links[0].forward.burst_loss.unwrap();
    assert_eq!(bursts, "0.01%,20".parse().unwrap());
    let cross = setup.cross.unwrap();
    assert_eq!((cross.congestion_control.as_str(), cross.flows), ("bbr", 8));
    assert_eq!(setup.parameters, ["segment=10", "chunk=70"]);
    assert_eq!(setup.memory, Memory::Warm);
    let without = [
        (Parameter::BurstLoss, "none"),
        (Parameter::Cross, "none"),
        (Parameter::Param, "none"),
        (Parameter::History, "cold"),
    ];
    let setup = at(&without).unwrap();
    assert_eq!((setup.cross, setup.parameters, setup.memory), (None, vec![], Memory::Cold));
    for (parameter, wrong) in [
        (Parameter::BurstLoss, "0.01%"),
        (Parameter::BurstLoss, "0.01%,0"),
        (Parameter::Cross, "cubic"),
        (Parameter::Cross, "0 cubic"),
        (Parameter::Param, "segment"),
        (Parameter::History, "hot"),
    ] {
        assert!(at(&[(parameter, wrong)]).is_err(), "{wrong}");
    }
}

#[test]
fn contenders_compete_where_they_are_meant_to_and_bring_others() {
    let more = "{ name = \"b\", only = { rtt = \"10ms\" }, after = \"1s\", params = [\"x=1\"], beside = \
                [{ name = \"a\", from = \"peer\", to = \"host\", after = \"2s\" }] }";
    let text = SMALL.replacen("{ name = \"b\" }", more, 1);
    let experiment = parse(&text).unwrap();
    let runs = Plan::new(&experiment, false).runs;
    assert_eq!(runs.len(), (4 * 2 + 2) * 3);
    let run = runs.iter().find(|run| run.contender == 1).unwrap();
    assert_eq!(run.cell[0].1, "10ms");
    let setup = Setup::of(&experiment, false, run).unwrap();
    assert_eq!((setup.after, setup.parameters), (Duration::from_secs(1), vec!["x=1".to_owned()]));
    let beside = &setup.beside[0];
    assert_eq!((&*beside.name, &*beside.from, beside.after), ("a", "peer", Duration::from_secs(2)));
    for (from, to, expected) in [
        ("name = \"a\", from", "name = \"aa\", from", "no contender \"aa\""),
        ("to = \"host\", after", "to = \"moon\", after", "no node \"moon\""),
        ("rtt = \"10ms\"", "rtt = \"11ms\"", "\"11ms\""),
        ("to = \"host\", after", "to = \"peer\", after", "two receive at \"peer\""),
        ("patience = \"5s\"", "patience = \"5s\"\nlosses = true", "not beside other transfers"),
        ("patience = \"5s\"", "patience = \"5s\"\nseries = \"1ms\"", "at least 10ms"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(expected), "{expected} is not in: {error}");
    }
}

#[test]
fn faults_name_line_and_key() {
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
fn contenders_have_remedies_and_sizes_of_their_own() {
    let more =
        "{ name = \"b\", bytes = \"2MB\", history = \"warm\", host_priority = true, nice = -10 }";
    let experiment = parse(&SMALL.replacen("{ name = \"b\" }", more, 1)).unwrap();
    let of = |contender: usize| {
        let run = Run { cell: Vec::new(), contender, repeat: 0, seed: 1 };
        Setup::of(&experiment, false, &run).unwrap()
    };
    let (usual, own) = (of(0), of(1));
    assert_eq!(
        (usual.bytes, usual.memory, usual.host_priority),
        (Bytes::new(1_000_000), Memory::Off, false)
    );
    assert_eq!((own.bytes, own.memory), (Bytes::new(2_000_000), Memory::Warm));
    assert_eq!((own.host_priority, own.nice), (true, Some(-10)));
}

#[test]
fn two_have_one_label_where_no_cell_has_both() {
    let two = "{ name = \"b\", rate = \"1Mbps\", only = { rtt = \"10ms\" } }, \
               { name = \"b\", rate = \"2Mbps\", only = { rtt = \"20ms\" } }";
    let experiment = parse(&SMALL.replacen("{ name = \"b\" }", two, 1)).unwrap();
    assert_eq!(Plan::new(&experiment, false).runs.len(), 4 * 3 * 3);
    let same = two.replace("20ms", "10ms");
    let error = parse(&SMALL.replacen("{ name = \"b\" }", &same, 1)).unwrap_err();
    assert!(error.contains("two of that label"), "{error}");
}

#[test]
fn the_quick_part_may_have_fewer_contenders() {
    let text = SMALL.replace("[quick]\n", "[quick]\ncontenders = [\"a\", \"c at 1 Gb/s\"]\n");
    let experiment = parse(&text).unwrap();
    assert_eq!(Plan::new(&experiment, true).runs.len(), 2 * 2);
    assert_eq!(Plan::new(&experiment, false).runs.len(), 4 * 3 * 3);
    let error = parse(&text.replace("[\"a\", ", "[\"d\", ")).unwrap_err();
    assert!(error.contains("quick") && error.contains("\"d\""), "{error}");
}

#[test]
fn cells_change_the_way_back_alone_the_senders_device_and_the_disk() {
    let experiment = parse(SMALL).unwrap();
    let at = |cell: &[(Parameter, &str)]| {
        let cell =
            cell.iter().map(|(parameter, value)| (*parameter, (*value).to_owned())).collect();
        Setup::of(&experiment, false, &Run { cell, contender: 0, repeat: 0, seed: 1 })
    };
    let setup = at(&[
        (Parameter::Rtt, "50ms back"),
        (Parameter::Egress, "150Mbps,100KB"),
        (Parameter::Disk, "rate=300Mbps,from=2s"),
    ]);
    let setup = setup.unwrap();
    let paths = setup.topology.links[0].paths().unwrap();
    let ms = Duration::from_millis;
    assert_eq!((paths.forward.delay, paths.backward.delay), (ms(0), ms(50)));
    let egress = setup.topology.nodes[0].egress.unwrap();
    assert_eq!((egress.rate, egress.queue), (Rate::from_mbps(150), Bytes::new(100_000)));
    assert_eq!(setup.topology.nodes[1].egress, None);
    let disk = setup.disk.unwrap();
    assert_eq!((disk.rate, disk.from), (Rate::from_mbps(300), Some(ms(2000))));
    for (parameter, wrong) in [
        (Parameter::Rtt, "50 back"),
        (Parameter::Egress, "150Mbps"),
        (Parameter::Disk, "from=2s"),
        (Parameter::Disk, "folder=/tmp,rate=1Gbps"),
    ] {
        assert!(at(&[(parameter, wrong)]).is_err(), "{wrong}");
    }
    let none = at(&[(Parameter::Egress, "none"), (Parameter::Disk, "none")]).unwrap();
    assert_eq!((none.topology.nodes[0].egress, none.disk), (None, None));
}

#[test]
fn contenders_compared_along_rates_have_rates() {
    let finding = "[[finding]]\npaper = \"p\"\nmeasured = { look = \"tuned\", sweep = \"c\", \
                   by = \"goodput\", untuned = {}, swept = {} }\n";
    parse(&format!("{SMALL}{finding}")).unwrap();
    let error = parse(&format!("{SMALL}{}", finding.replace("\"c\"", "\"a\""))).unwrap_err();
    assert!(error.contains("\"a\" has a rate of its own"), "{error}");
}

#[test]
fn rates_below_a_packet_in_a_round_trip_are_refused() {
    let axis = "[[axis]]\nsets = \"rate\"\nvalues = [\"1kbps\"]\n";
    let error = parse(&format!("{SMALL}{axis}")).unwrap_err();
    assert!(error.contains("rate") && error.contains("not one packet"), "{error}");
}

/// A chain, whose axes are of several links, and a contender that goes through its middle.
fn chain() -> String {
    let links = "[testbed]\nname = \"chain\"\n[[testbed.node]]\nname = \"host\"\n[[testbed.node]]\nname = \
                 \"gateway\"\n[[testbed.node]]\nname = \"peer\"\n[[testbed.link]]\nname = \"lan\"\nbetween = \
                 [\"host\", \"gateway\"]\nboth = { delay = \"3ms\" }\n[[testbed.link]]\nname = \"wan\"\nbetween \
                 = [\"gateway\", \"peer\"]\n[job]\nlength = \"4s\"\n";
    SMALL
        .replace("topology = \"two-hosts\"\n[job]\n", links)
        .replace(
            "{ name = \"b\" }",
            "{ name = \"b\", via = [{ node = \"gateway\", congestion_control = \"bbr\" }] }",
        )
        .replace("sets = \"rtt\"", "sets = \"rtt\"\nlinks = [\"wan\"]")
        .replace("sets = \"loss\"", "sets = \"loss\"\nlinks = [\"lan\", \"wan\"]")
        .replace("\"10ms\", \"20ms\"", "\"none\", \"20ms\"")
}

#[test]
fn an_axis_sets_several_links_or_one_that_is_not_observed() {
    let experiment = parse(&chain()).unwrap();
    let of = |rtt: &str, contender: usize| {
        let mut runs = Plan::new(&experiment, false).runs.into_iter();
        let run = runs.find(|run| run.contender == contender && run.cell[0].1 == rtt).unwrap();
        let loss = run.cell[1].1.clone();
        (Setup::of(&experiment, false, &run).unwrap(), loss.parse().unwrap())
    };
    let (setup, loss) = of("20ms", 0);
    let [lan, wan] = &setup.topology.links[..] else { panic!() };
    let ms = Duration::from_millis;
    assert_eq!((setup.link, lan.rtt(), wan.rtt()), (0, ms(6), ms(20)));
    assert_eq!((lan.forward.loss, wan.forward.loss), (Some(loss), Some(loss)));
    assert_eq!((setup.via.len(), setup.length), (0, Some(ms(4000))));
    let (setup, _) = of("none", 1);
    assert!(setup.topology.links.iter().all(|link| link.rtt().is_zero()));
    let [waypoint] = &setup.via[..] else { panic!() };
    assert_eq!((&*waypoint.node, waypoint.congestion_control.as_deref()), ("gateway", Some("bbr")));
}

#[test]
fn faults_of_chains_name_line_and_key() {
    let mathis =
        "[[finding]]\npaper = \"p\"\nmeasured = { look = \"mathis\", links = [\"moon\"] }\n";
    for (from, to, expected) in [
        ("links = [\"wan\"]", "links = [\"moon\"]", &["line 31", "links", "no such link"][..]),
        ("sets = \"rtt\"", "sets = \"mtu\"", &["links", "`mtu` is not of links"]),
        ("node = \"gateway\"", "node = \"mars\"", &["line 7", "via", "no node \"mars\""]),
        ("node = \"gateway\"", "node = \"peer\"", &["via", "at \"peer\" twice"]),
        ("length = \"4s\"", "length = \"5s\"", &["length", "patience"]),
        ("bytes = \"1MB\"", "", &["bytes", "round_trips"]),
        ("bytes = \"1MB\"", "round_trips = 0", &["round_trips", "at least 1"]),
        ("[[axis]]", &format!("{mathis}[[axis]]"), &["finding", "no link \"moon\""]),
    ] {
        let text = chain();
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replacen(from, to, 1)).unwrap_err();
        for words in expected {
            assert!(error.contains(words), "{to}: {words} is not in: {error}");
        }
    }
}
