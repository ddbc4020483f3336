use super::*;

const TWO: &str = r#"
name = "two"
[[node]]
name = "a"
[[node]]
name = "b"
"#;

fn with_link(link: &str) -> String {
    format!("{TWO}[[link]]\nname = \"l\"\nbetween = [\"a\", \"b\"]\n{link}\n")
}

#[test]
fn built_in_topologies_are_possible_and_found_by_name() {
    for builtin in Builtin::ALL {
        let topology = builtin.topology();
        assert_eq!(topology.name, builtin.name);
        assert_eq!(Builtin::find(builtin.name), Some(builtin));
        assert!(!topology.about.is_empty() && topology.node("peer").is_some());
        assert_eq!(topology.nodes[0].name, "host");
    }
    assert_eq!(Builtin::find("moon"), None);
}

#[test]
fn everything_that_a_link_can_do_is_read() {
    let text = with_link(
        r#"
        mtu = 9000
        black_hole = true
        [link.both]
        delay = "50ms"
        rate = "1Gbps"
        rates = [{ at = "10s", rate = "200Mbps" }]
        queue = "128KiB"
        ecn = { from = "64KiB", to = "100KiB", probability = "10%" }
        policer = { rate = "2Gbps", burst = "1MB" }
        path_mtu = 1400
        loss = "0.1%"
        burst_loss = { begin = "10ppm", mean = 20 }
        jitter = { max = "2ms", hold = "500us" }
        reorder = { probability = "1%", by = "3ms" }
        duplicate = { probability = "0.5%", by = "0ms" }
        corrupt = "1ppm"
        outages = [{ at = "1s", length = "100ms" }, { at = "2s", length = "1ms", every = "3s" }]
        [link.backward]
        delay = "10ms"
        loss = "0%"
        "#,
    );
    let topology = Topology::parse(&text).unwrap();
    let link = &topology.links[0];
    assert_eq!((link.mtu, link.black_hole, link.rtt()), (9000, true, Duration::from_millis(60)));
    let paths = link.paths().unwrap();
    assert_eq!(paths.forward.loss, Probability::from_ppm(1000));
    assert_eq!(paths.backward.loss, Probability::ZERO);
    assert_eq!(paths.backward.delay, Duration::from_millis(10));
    let bottleneck = paths.forward.bottleneck.as_ref().unwrap();
    assert_eq!(bottleneck.queue, Bytes::new(128 << 10));
    assert_eq!(bottleneck.rate.changes, [(Duration::from_secs(10), Rate::from_mbps(200))]);
    let same = longhaul_pathsim::PathConfig {
        delay: paths.forward.delay,
        loss: paths.forward.loss,
        ..paths.backward
    };
    assert_eq!(same, paths.forward, "all else is alike in both directions");
}

#[test]
fn lines_of_the_kernel_are_read_and_described() {
    let both = r#"both = { delay = "5ms", rate = "1Gbps", queue = "128KiB", loss = "1%" }"#;
    let link = |line: &str| {
        Topology::parse(&with_link(&format!("{line}\n{both}"))).unwrap().links.remove(0)
    };
    let (emulated, htb) = (link("line = \"emulated\""), link("line = \"htb\""));
    assert_eq!(emulated, link(""));
    assert_eq!(htb, LinkSpec { line: LineKind::Htb, ..emulated.clone() });
    assert_eq!(htb.paths(), emulated.paths());
    assert_eq!(htb.describe(), "10 ms round trip; 1.00 Gb/s by HTB, queue 131 kB, 1% lost");
}

#[test]
fn conditions_that_are_not_for_a_line_of_the_kernel_are_refused() {
    for (conditions, expected) in [
        (r#"delay = "5ms""#, "link \"l\": a line by HTB needs a rate"),
        (
            r#"rate = "1Gbps", ecn = { from = "1MB" }"#,
            "link \"l\": congestion marking is not for a line by HTB",
        ),
        (
            r#"rate = "1Gbps", policer = { rate = "1Gbps", burst = "1MB" }"#,
            "a policer before the queue is not",
        ),
        (r#"rate = "1Gbps", queue = "1499B""#, "a queue without room for a packet is not"),
        (
            r#"rate = "1Gbps", rates = [{ at = "1s", rate = "0bps" }, { at = "2s", rate = "1Gbps" }]"#,
            "a rate of nothing is not",
        ),
    ] {
        let link = format!("line = \"htb\"\nboth = {{ {conditions} }}");
        let error = Topology::parse(&with_link(&link)).unwrap_err().to_string();
        assert!(error.contains(expected), "{conditions}: {error}");
    }
    // A policer in the direction that has no rate is before nothing.
    let one_way = "line = \"htb\"\nforward = { rate = \"1Gbps\" }\nbackward = { policer = { \
                   rate = \"1Gbps\", burst = \"1MB\" } }";
    assert!(Topology::parse(&with_link(one_way)).is_ok());
    assert!(Topology::parse(&with_link("line = \"cbq\"")).unwrap_err().to_string().contains("cbq"));
}

#[test]
fn a_queue_holds_a_round_trip_by_default() {
    let queue = |conditions: &str| {
        let topology = Topology::parse(&with_link(&format!("both = {{ {conditions} }}"))).unwrap();
        topology.links[0].paths().unwrap().forward.bottleneck.unwrap().queue.get()
    };
    assert_eq!(queue(r#"delay = "50ms", rate = "1Gbps""#), 12_500_000);
    assert_eq!(queue(r#"rate = "1Gbps""#), 150_000);
    assert_eq!(queue(r#"rate = "1Gbps", queue = "0B""#), 0);
}

#[test]
fn links_are_described_in_a_line() {
    let describe = |link: &str| Topology::parse(&with_link(link)).unwrap().links[0].describe();
    assert_eq!(describe(""), "0 ms round trip");
    assert_eq!(
        describe(r#"both = { delay = "12.5ms", rate = "1Gbps", queue = "12MB", loss = "0.1%" }"#),
        "25 ms round trip; 1.00 Gb/s, queue 12.0 MB, 0.1% lost"
    );
    assert_eq!(
        describe("both = { delay = \"1ms\" }\nbackward = { loss = \"1%\" }"),
        "2 ms round trip; from a to b: nothing else; back: 1% lost"
    );
}

#[test]
fn faults_say_what_and_where() {
    let faults: [(&str, &str); 16] = [
        ("mtu = 1200", "link \"l\": an MTU is 1280 to 65535 bytes, not 1200"),
        (r#"both = { delay = "-5ms" }"#, "expected a time like 100ms"),
        (r#"both = { loss = "2" }"#, "\"2\": a probability is at most 1 (100%)"),
        (r#"both = { rate = "fast" }"#, "\"fast\": "),
        (r#"both = { speed = "1Gbps" }"#, "unknown field `speed`"),
        (r#"both = { queue = "1MB" }"#, "link \"l\": a queue needs a rate"),
        (r#"both = { ecn = { from = "1MB" } }"#, "congestion marking needs a rate"),
        (
            r#"both = { delay = "50ms", rate = "100kbps" }"#,
            "at 100 kb/s not one packet of 1500 bytes leaves in a round trip of 100ms",
        ),
        (r#"both = { rate = "0bps" }"#, "the last rate of the bottleneck is zero"),
        (
            r#"both = { rate = "1Gbps", rates = [{ at = "2s", rate = "1Mbps" }, { at = "1s", rate = "2Mbps" }] }"#,
            "the times of the rate schedule do not rise",
        ),
        (r#"both = { rate = "1Gbps", queue = "3GB" }"#, "a queue or bucket is larger"),
        ("[[link]]\nname = \"l\"\nbetween = [\"a\", \"b\"]", "there are two of the name \"l\""),
        (
            "[[link]]\nname = \"m\"\nbetween = [\"a\", \"c\"]",
            "leads to \"c\", but there is no such node",
        ),
        ("[[link]]\nname = \"m\"\nbetween = [\"a\", \"a\"]", "from a node to itself"),
        ("[[node]]\nname = \"c\"", "no link leads from \"a\" to \"c\""),
        ("[[node]]\nname = \"-x\"", "\"-x\" is no name"),
    ];
    for (link, expected) in faults {
        let error = Topology::parse(&with_link(link)).unwrap_err().to_string();
        assert!(error.contains(expected), "{link}: {error}");
    }
    // Lines and keys of what is malformed are shown.
    let error = Topology::parse(&with_link("both = { loss = 3 }")).unwrap_err().to_string();
    assert!(error.contains("line 10") && error.contains("loss"), "{error}");
    let error = Topology::parse("name = \"x\"\nnode = []\nlink = []").unwrap_err();
    assert_eq!(error, TopologyError::Nodes);
    assert!(Topology::parse("name = ").unwrap_err().to_string().contains("line 1"));
}

#[test]
fn the_shortest_way_is_taken() {
    let topology = Builtin::find("shared-bottleneck").unwrap().topology();
    let link = |from: &str, to: &str| {
        let hops = topology.next_hops(topology.node(from).unwrap());
        hops[topology.node(to).unwrap()].map(|link| topology.links[link].name.as_str())
    };
    assert_eq!(link("host", "cross-peer"), Some("host-access"));
    assert_eq!(link("router", "peer"), Some("bottleneck"));
    assert_eq!(link("router", "cross"), Some("cross-access"));
    assert_eq!(link("host", "host"), None);
    // Of two links the first is the way.
    let circuit = Builtin::find("circuit").unwrap().topology();
    assert_eq!(circuit.next_hops(0), [None, Some(0)]);
}
