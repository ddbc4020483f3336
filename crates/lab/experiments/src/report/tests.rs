use std::collections::BTreeMap;

use longhaul_lab::signals::{Signal, Signals};
use longhaul_peers::Booking;

use super::*;
use crate::experiment::Parameter;
use crate::measure::Measure;
use crate::record::{LossCauses, Recovery, Scheduling, Series, Spans, Verdict};

const CANNED: &str = r#"
name = "canned"
title = "A <title>"
question = "Which & why?"
source = "A \"paper\""
repeats = 3
contenders = [{ name = "slow" }, { name = "fast" }, { name = "away" }]
topology = "two-hosts"
[job]
bytes = "1MB"
patience = "5s"
[[axis]]
sets = "loss"
values = ["0%", "1%"]
[[axis]]
sets = "sending-rate"
values = ["100Mbps", "200Mbps"]
[[plot]]
title = "Goodput"
x = "sending-rate"
panels = "loss"
[[plot]]
title = "Turns"
shows = "time-slices"
panels = "loss"
log = true
[[finding]]
paper = "Fast is <fast>."
measured = { look = "rank", by = "goodput", of = "fast" }
[[finding]]
paper = "Slow is slow."
measured = { look = "rank", by = "goodput", of = "slow" }
[[finding]]
paper = "Away."
measured = { look = "rank", by = "goodput", of = "away" }
[[finding]]
paper = "Time."
measured = { look = "values", of = "completion-time" }
[[finding]]
paper = "Loss changes it."
measured = { look = "change", of = "goodput", along = "loss", from = "0%", to = "1%" }
only = { contender = "slow", sending-rate = "100Mbps" }
[[finding]]
paper = "Turns."
measured = { look = "slices", each = "loss" }
[[finding]]
paper = "Nothing crossed."
measured = { look = "shares" }
"#;

/// Goodput in Mb/s of each contender at each loss and rate, with seconds and resent packets.
fn part() -> Part {
    let experiment = Experiment::parse(CANNED, &|_| true).unwrap();
    let mut records = Vec::new();
    for run in Plan::new(&experiment, false).runs {
        let setup = Setup::of(&experiment, false, &run).unwrap();
        let (loss, fast) = (run.cell[0].1 == "1%", run.cell[1].1 == "200Mbps");
        let mut record = Record {
            experiment: "canned".into(),
            fingerprint: fingerprint(&experiment, &setup, run.contender),
            cell: run.cell.iter().cloned().collect::<BTreeMap<Parameter, String>>(),
            contender: experiment.contenders[run.contender].label().into(),
            repeat: run.repeat,
            machine: "a <machine>".into(),
            path_sent: 1000,
            ..Record::default()
        };
        let wobble = f64::from(run.repeat);
        let (mbps, resent) = match (record.contender.as_str(), loss, fast) {
            ("slow", false, _) => (40.0 + wobble, 0),
            ("slow", true, _) => (4.0 + wobble, 0),
            ("fast", _, false) => (80.0 + wobble, 0),
            ("fast", false, true) => (160.0 + wobble, 5),
            ("fast", true, true) => (20.0 + wobble, 300),
            _ => {
                record.verdict = Verdict::Absent;
                record.why = Some("not here; apt-get install away\nmore".into());
                records.push(record);
                continue;
            }
        };
        record.verdict = Verdict::Done;
        record.bytes = Some(1_000_000);
        record.goodput_bps = Some(mbps * 1e6);
        record.seconds = Some(8.0 / mbps);
        record.resent = Some(resent);
        let turns = spans(&[(0.0, 3.0), (5.0, 4.0), (10.0, 5.0)]);
        let loss_free: &[_] = if loss { &[(0.0, 9.0), (9.5, 2.0)] } else { &[(0.0, 20.0)] };
        let loss_free = spans(loss_free);
        record.scheduling = Some(Scheduling { load: turns, loss_free, ..Scheduling::default() });
        records.push(record);
    }
    Part::new(experiment, records)
}

fn spans(of: &[(f64, f64)]) -> Spans {
    let mut spans = Spans::default();
    of.iter().for_each(|(at, length)| spans.add(*at, *length));
    spans
}

#[test]
fn words_are_made_from_the_data() {
    let findings = part().findings();
    let texts: Vec<String> = findings.into_iter().map(|finding| finding.1.join(" ")).collect();
    let expected: [&[&str]; 7] = [
        &[
            "Fast has the highest goodput in 4 of 4 cases.",
            "from 1.98 times as much (81 Mb/s beside 41 Mb/s of slow, no loss, 100 Mb/s) to 16.2",
        ],
        &[
            "Slow has the highest goodput in 0 of 4 cases.",
            "0.0617 times as much (5 Mb/s beside 81 Mb/s of fast, 1% loss, 100 Mb/s)",
        ],
        &["Away: absent: not here; apt-get install away."],
        &["In the table: completion time."],
        &["the goodput rises in 0 of 1 case and falls in 1", "41 Mb/s to 5 Mb/s"],
        &["turns of the load, 4 ms in the middle", "nothing was lost", "the first 9 ms"],
        &["Away: absent: not here; apt-get install away."],
    ];
    for (text, expected) in texts.iter().zip(expected) {
        for words in expected {
            assert!(text.contains(words), "{words:?} is not in: {text}");
        }
    }
}

/// Looks at single runs: what was beside them, what changed, what took their packets.
const SINGLE: &str = r#"
name = "single"
title = "T"
question = "Q?"
source = "S"
repeats = 1
contenders = [{ name = "one" }]
topology = "two-hosts"
[job]
bytes = "1MB"
patience = "5s"
[watch]
core = 1
[[axis]]
sets = "rate"
values = ["100Mbps"]
[[plot]]
title = "load"
shows = "busy"
[[plot]]
title = "lost"
shows = "losses"
[[plot]]
title = "lags"
shows = "correlation"
[[finding]]
paper = "p"
measured = { look = "shares" }
[[finding]]
paper = "p"
measured = { look = "recovery" }
[[finding]]
paper = "p"
measured = { look = "causes" }
[[finding]]
paper = "p"
measured = { look = "figures" }
"#;

#[test]
fn single_runs_are_reported_with_what_was_beside_them_and_what_took_their_packets() {
    let experiment = Experiment::parse(SINGLE, &|_| true).unwrap();
    let run = Plan::new(&experiment, false).runs.remove(0);
    let setup = Setup::of(&experiment, false, &run).unwrap();
    let mut causes = LossCauses::default();
    (0..3).for_each(|_| causes.add("random".into(), "random".into()));
    causes.add("random".into(), "congestion".into());
    let change = Recovery { at: 1.0, mbps: 50.0, reached_ms: Some(120.0), ..Recovery::default() };
    // Spikes of load, and losses a tenth of a second behind each.
    let spike = |place: u32| place.wrapping_mul(2_654_435_761) >> 24 < 40;
    let mut series = Series { arrived_mbps: vec![90.0; 200], ..Series::default() };
    series.busy_percent = (0..200).map(|at| if spike(at) { 100.0 } else { 10.0 }).collect();
    series.host_lost = (0..200).map(|at| if at > 0 && spike(at - 1) { 50 } else { 0 }).collect();
    series.lost = vec![1; 200];
    let record = Record {
        fingerprint: fingerprint(&experiment, &setup, 0),
        cell: run.cell.into_iter().collect(),
        contender: "one".into(),
        verdict: Verdict::Done,
        own_bps: Some(30e6),
        cross_bps: vec![10e6, 20e6],
        recovery: vec![change, Recovery { outage: true, ..Recovery::default() }],
        loss_causes: Some(causes),
        series,
        ..Record::default()
    };
    let part = Part::new(experiment, vec![record]);
    let texts: Vec<String> =
        part.findings().into_iter().map(|finding| finding.1.join(" ")).collect();
    for (text, words) in texts.iter().zip([
        "One: 30 Mb/s, and 30 Mb/s of the 2 beside it; 30 % of the link, 60 % with theirs; 1.5 of an \
         equal share",
        "at 50 Mb/s nine tenths after 120 ms, no short queue before the next change; behind the \
         outage nine tenths not before the next change",
        "random took 4: recall 75 %, precision 100 %; congestion took none of 1 reported for it",
        "In the figures.",
    ]) {
        assert!(text.contains(words), "{words:?} is not in: {text}");
    }
    let page = html(&[part]);
    assert_eq!(open_elements(&page), Vec::<String>::new());
    assert_eq!(page.matches("<figure>").count(), 3);
}

#[test]
fn the_page_is_well_formed_and_escapes_everything() {
    let page = html(&[part(), part()]);
    for text in ["A &lt;title&gt;", "Which &amp; why?", "A &quot;paper&quot;", "a &lt;machine&gt;"]
    {
        assert!(page.contains(text), "{text}");
    }
    // All that nobody knows to be different, once.
    assert_eq!(page.matches("away, 12 runs absent: not here; apt-get install away").count(), 2);
    assert!(!page.contains("<title>A") && !page.contains("NaN"));
    assert!(!page.contains("src=") && !page.contains("http://") || page.contains("www.w3.org"));
    assert_eq!(open_elements(&page), Vec::<String>::new());
}

#[test]
fn an_empty_page_says_how_to_fill_it() {
    let experiment = Experiment::parse(CANNED, &|_| true).unwrap();
    let page = html(&[Part::new(experiment, Vec::new())]);
    assert!(page.contains("0 of 36 runs"), "{page}");
    assert_eq!(open_elements(&page), Vec::<String>::new());
    assert!(html(&[]).contains("There are no results yet"));
}

#[test]
fn the_last_record_of_a_run_counts_and_others_are_left_out() {
    let mut records = part().records;
    let again = Record { goodput_bps: Some(1.0), ..records[0].clone() };
    records.push(again);
    records.push(Record { fingerprint: "of another version".into(), ..records[0].clone() });
    let part = Part::new(Experiment::parse(CANNED, &|_| true).unwrap(), records);
    assert_eq!((part.records.len(), part.planned, part.left_out), (36, 36, 1));
    assert_eq!(part.records[0].goodput_bps, Some(1.0));
}

#[test]
fn bookings_are_reported_with_their_plans_and_beside_the_rate_of_the_link() {
    let text = r#"
name = "booked"
title = "T"
question = "Q?"
source = "S"
repeats = 1
contenders = [{ name = "a" }, { name = "b" }, { name = "c" }]
[testbed]
name = "t"
[[testbed.node]]
name = "host"
[[testbed.node]]
name = "peer"
[[testbed.link]]
name = "circuit"
between = ["host", "peer"]
both = { delay = "5ms", rate = "100Mbps", rates = [{ at = "3s", rate = "400Mbps" }, { at = "9s", rate = "1Mbps" }] }
[job]
bytes = "1MB"
patience = "5s"
begin = "2s"
[[plot]]
title = "Over time"
shows = "series"
[[plot]]
title = "Used"
y = "booking-used"
[[finding]]
paper = "p"
measured = { look = "bookings" }
"#;
    let experiment = Experiment::parse(text, &|_| true).unwrap();
    let mut records = Vec::new();
    for run in Plan::new(&experiment, false).runs {
        let setup = Setup::of(&experiment, false, &run).unwrap();
        let mut record = Record {
            experiment: "booked".into(),
            fingerprint: fingerprint(&experiment, &setup, run.contender),
            contender: experiment.contenders[run.contender].label().into(),
            verdict: Verdict::Done,
            seconds: Some(8.0),
            path_sent: 1000,
            ..Record::default()
        };
        record.series.arrived_mbps = vec![50.0; 40];
        let booking = Booking {
            asked: 0.0,
            planned: 2.0,
            done: 2.1,
            left: 1.95,
            released: true,
            allowed_bytes: 200,
            sent_bytes: 197,
            ip_bytes: 500_000,
        };
        record.bookings = match run.contender {
            0 => vec![booking],
            1 => vec![booking.clone(), Booking { done: 3.0, ..booking }],
            _ => Vec::new(),
        };
        // What was lost elsewhere is not the observed link's; the last run is of an earlier version.
        record.path_lost.insert("queue".into(), 25);
        record.link_lost = (run.contender < 2).then(|| [("queue".into(), 10)].into());
        record.queue_lost_late = 4;
        assert_eq!(
            Measure::PathLoss.of(&record).map(|lost| lost.value),
            (run.contender < 2).then_some(1.0)
        );
        assert_eq!(Measure::Lateness.of(&record).is_some(), run.contender < 2);
        records.push(record);
    }
    let part = Part::new(experiment, records);
    let text = part.findings().remove(0).1;
    assert_eq!(
        text[0],
        "A: planned to be done after 2.00 s, done after 2.10 s; 98.5 % used of what the vectors \
         allowed until they were left, 50 ms before the planned end (1 of 1 gave back a rest); \
         0.5 MB over IP; 1 % lost on the observed link; 4 of 10 lost packets met a queue that an emulator in time may \
         not have had."
    );
    assert!(
        text[1].contains("copy 2 planned to be done after 2.00 s, done after 3.00 s"),
        "{text:?}"
    );
    assert_eq!(text[2], "C: without a booking, done after 8.00 s.");
    let figure = figures::figure(&part, &part.experiment.plots[0]).unwrap();
    let rate = figure.panels[0].series.iter().find(|line| line.name == "the link's rate").unwrap();
    let steps: Vec<(f64, f64)> = rate.points.iter().map(|point| (point.x, point.y)).collect();
    assert_eq!(steps, [(0.0, 100.0), (1.0, 100.0), (1.0, 400.0), (2.0, 400.0)]);
}

/// Looks at given rates beside found ones, on a host that has a load or none.
const RATES: &str = r#"
name = "rates"
title = "T"
question = "Q?"
source = "S"
repeats = 2
contenders = [
    { name = "swept", label = "swept 100", rate = "100Mbps", only = { rtt = "0ms" } },
    { name = "swept", label = "swept 200", rate = "200Mbps", only = { rtt = "0ms" } },
    { name = "kept", label = "kept 100", rate = "100Mbps" },
    { name = "kept", label = "kept 200", rate = "200Mbps" },
    { name = "auto" },
]
topology = "two-hosts"
[job]
bytes = "1MB"
patience = "5s"
[[axis]]
sets = "load"
values = ["none", "loops,cores=1"]
[[axis]]
sets = "rtt"
values = ["0ms", "50ms"]
[[plot]]
title = "Frontier"
shows = "frontier"
y = "goodput"
against = "host-loss"
panels = "load"
only = { rtt = "0ms" }
[[plot]]
title = "Leads"
shows = "leads"
[[finding]]
paper = "p"
measured = { look = "tuned", sweep = "swept", by = "completion-time", untuned = { load = "none" }, swept = { rtt = "0ms" } }
[[finding]]
paper = "p"
measured = { look = "deviation", of = "goodput" }
only = { contender = "auto", load = "none", rtt = "0ms" }
[[finding]]
paper = "p"
measured = { look = "bottleneck" }
only = { contender = "auto", load = "none", rtt = "0ms" }
[[finding]]
paper = "p"
measured = { look = "signals" }
"#;

#[test]
fn given_rates_are_compared_with_found_ones() {
    let experiment = Experiment::parse(RATES, &|_| true).unwrap();
    let mut records = Vec::new();
    for run in Plan::new(&experiment, false).runs {
        let setup = Setup::of(&experiment, false, &run).unwrap();
        let (loaded, far) = (run.cell[0].1 != "none", run.cell[1].1 != "0ms");
        let contender = experiment.contenders[run.contender].label();
        // With a load 200 is too much: 1 % is lost at the receiver, and takes its time.
        let (mbps, lost) = match (contender, loaded) {
            ("swept 100" | "kept 100", _) => (100.0, 0),
            ("swept 200" | "kept 200", false) => (200.0, 0),
            ("swept 200", true) => (50.0, 10),
            ("kept 200", true) => (80.0, 10),
            (_, false) => (190.0, 0),
            (_, true) => (95.0, 0),
        };
        let mbps = mbps - if far { 10.0 } else { 0.0 } + f64::from(run.repeat);
        records.push(Record {
            fingerprint: fingerprint(&experiment, &setup, run.contender),
            cell: run.cell.into_iter().collect(),
            contender: contender.into(),
            repeat: run.repeat,
            verdict: Verdict::Done,
            goodput_bps: Some(mbps * 1e6),
            seconds: Some(1000.0 / mbps),
            path_sent: 1000,
            program_lost: [("socket".to_owned(), lost)].into(),
            link_lost: Some(BTreeMap::new()),
            // Its kernel counts super-packets as one.
            host_lost: lost.min(1),
            bottleneck: Some(if run.repeat == 0 { "network" } else { "receiver CPU" }.into()),
            ..Record::default()
        });
    }
    let signal = Signal { name: "age".into(), leads_ms: vec![8.0], harmless: 1, false_alarms: 2 };
    let signals = Signals {
        with_drops: 2,
        without: 2,
        quiet_seconds: 60.0,
        first_drops_ms: vec![9.0, 11.0],
        of: vec![signal],
    };
    records[0].signals = Some(signals);
    let part = Part::new(experiment, records);
    let texts: Vec<String> =
        part.findings().into_iter().map(|finding| finding.1.join("\n")).collect();
    for (text, expected) in texts.iter().zip([
        &[
            "No load, RTT 0 ms: swept 200 kept: 4.99 s; swept 200 tuned: 4.99 s; kept 200: 4.99 s, 1 of the \
             first and 1 of the second; auto: 5.25 s",
            "1 loop on core 1, RTT 50 ms: swept 200 kept: 19.8 s; swept 100 tuned: 9.95 s; kept 200: 14.2 s, \
             0.716 of the first and 1.43 of the second; auto:",
        ][..],
        &["Auto: mean 190 Mb/s, standard deviation 0.707 (0.371 % of it) in 2 runs."],
        &["Auto: network in 1 of 2, receiver CPU in 1 of 2."],
        &[
            "2 loads under which datagrams were dropped, 2 under which none was, 60 s without load.",
            "age: before the first drop in 50 %, by 8, 8, 8 ms (10, 50, 90 %); moved in 50 % of the loads \
             without drops, and 2 times a minute without load.",
            "drops under 2 of 4 loads, the first after 11 ms.",
        ],
    ]) {
        for words in expected {
            assert!(text.contains(words), "{words:?} is not in: {text}");
        }
    }
    let frontier = figures::figure(&part, &part.experiment.plots[0]).unwrap();
    let loaded = &frontier.panels[1].series;
    let swept = loaded.iter().find(|line| line.name == "swept").unwrap();
    let places: Vec<(f64, f64)> = swept.points.iter().map(|point| (point.x, point.y)).collect();
    assert_eq!(places, [(0.0, 100.5), (1.0, 50.5)]);
    assert_eq!(
        loaded.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(),
        ["swept", "kept", "auto"]
    );
    let leads = figures::figure(&part, &part.experiment.plots[1]).unwrap();
    assert_eq!(
        (leads.panels[0].series[0].points[0].x, leads.panels[0].series[0].points[0].y),
        (8.0, 50.0)
    );
    assert_eq!(open_elements(&html(&[part])), Vec::<String>::new());
}

/// Elements that are not closed in order; those that never are do not count.
fn open_elements(page: &str) -> Vec<String> {
    const EMPTY: [&str; 3] = ["meta", "br", "!DOCTYPE"];
    let mut open: Vec<String> = Vec::new();
    for piece in page.split('<').skip(1) {
        let Some((tag, _)) = piece.split_once('>') else { return vec![piece.into()] };
        let name = tag.trim_start_matches('/');
        let name = name.split([' ', '/']).next().unwrap_or_default().to_owned();
        match (tag.starts_with('/'), tag.ends_with('/') || EMPTY.contains(&name.as_str())) {
            (true, _) if open.last() == Some(&name) => {
                open.pop();
            }
            (true, _) => return vec![format!("/{name}")],
            (false, true) => {}
            (false, false) => open.push(name),
        }
    }
    open
}

/// Runs of an experiment with `make` filled in, each the same in all repeats.
fn recorded(name: &str, make: impl Fn(&mut Record)) -> Part {
    let experiment = crate::experiment::Builtin::find(name).unwrap().experiment();
    let mut records = Vec::new();
    for run in Plan::new(&experiment, false).runs {
        let setup = Setup::of(&experiment, false, &run).unwrap();
        let mut record = Record {
            fingerprint: fingerprint(&experiment, &setup, run.contender),
            cell: run.cell.iter().cloned().collect::<BTreeMap<Parameter, String>>(),
            contender: experiment.contenders[run.contender].label().into(),
            repeat: run.repeat,
            verdict: Verdict::Done,
            ..Record::default()
        };
        make(&mut record);
        records.push(record);
    }
    Part::new(experiment, records)
}

fn sentences(part: &Part) -> Vec<String> {
    part.findings().into_iter().map(|(_, sentences)| sentences.join(" ")).collect()
}

#[test]
fn connects_stand_beside_the_papers_with_the_break_even() {
    let part = recorded("phoebus-latency", |record| {
        let rtt = match record.cell[&Parameter::Rtt].as_str() {
            "none" => 0.1,
            "50ms" => 64.0,
            _ => 114.0,
        };
        let more = if record.contender == "gateways" { rtt * 0.5 + 0.3 } else { 0.0 };
        record.connects_ms = (0..100).map(|at| rtt + more + f64::from(at) / 1e3).collect();
        record.answers_ms = record.connects_ms.iter().map(|connect| connect + rtt).collect();
        record.exchanges_ms = vec![rtt; 100];
    });
    let sentences = sentences(&part).join(" ");
    for words in [
        "RTT 50 ms: median time of a connect 96.3 ms beside 64 ms, 1.5 times as much; the source has \
         1.16 times.",
        "RTT 50 ms: median time of a connect with a byte there and back 160 ms beside 128 ms, 1.25 times as \
         much; the source has 1.08 times.",
        "RTT 50 ms: connecting takes 32.3 ms more, which a transfer that is 25 % faster has made up for \
         after 129 ms.",
        "No delay: median time of a byte there and back 0.1 ms beside 0.1 ms, 1 times as much",
        "In the table: ",
    ] {
        assert!(sentences.contains(words), "{words:?} is not in: {sentences}");
    }
    let page = html(&[part]);
    assert_eq!(page.matches("<figure>").count(), 3);
    assert_eq!(open_elements(&page), Vec::<String>::new());
}

#[test]
fn transfers_through_gateways_stand_beside_their_limit_and_where_they_were_cut() {
    let part = recorded("phoebus-chain", |record| {
        let is_cut = record.cell[&Parameter::Loss] == "0.1%";
        record.cut = is_cut;
        record.bytes = Some(500_000_000);
        record.seconds = Some(30.0);
        record.goodput_bps = Some(if is_cut { 133e6 } else { 190e6 });
        if record.contender.contains("gateways") {
            record.cpu_between =
                [("gateway".to_owned(), 0.1), ("far-gateway".to_owned(), 0.15)].into();
        }
    });
    let sentences = sentences(&part);
    for words in [
        "RTT 50 ms, 0.01% loss: 190 Mb/s (190 to 190 in 3 runs); the formula of Mathis and others lets 1 \
         of Reno's have 203 Mb/s on `lan`.",
        "RTT 50 ms, no loss: 190 Mb/s (190 to 190 in 3 runs); without delay or random losses there the formula sets \
         no limit.",
    ] {
        assert!(sentences[8].contains(words), "{words:?} is not in: {}", sentences[8]);
    }
    let page = html(&[part]);
    assert!(page.contains("<td>0.5 <small>0.5 to 0.5 in 3 runs</small></td>"), "{page}");
    assert!(page.contains("<td>133&dagger; <small>") && page.contains("cut at the job"), "{page}");
    assert_eq!(open_elements(&page), Vec::<String>::new());
}
