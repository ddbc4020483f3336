//! Time from a booking's boundary to its class's new rate, as the kernel reports it.
//!
//!     cargo run --release -p longhaul-circuits --example switch [-- CHANGES]
//!
//! As root: a service with the driver `htb` on the loopback interface of a network namespace of its
//! own. Circuits of 20 ms take half of the link again and again, and a file has what they leave: its
//! rate changes every 20 ms, CHANGES times (1000 by default). `tc monitor` reports each change from
//! the kernel; the program counts the time between the boundary and that report.
#![allow(clippy::unwrap_used, reason = "a measurement: anything unexpected ends it")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use hdrhistogram::Histogram;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use longhaul_circuits::ledger::{self, Ask, Note, Order, Placing, Route};
use longhaul_circuits::service::Service;
use longhaul_circuits::service::config::Config;
use longhaul_sys::host;

fn main() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    // The namespace goes with the process.
    let mut again = Command::new("unshare");
    again
        .args(["--net", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(std::env::args().skip(1));
    let status = again.env(INSIDE, "1").status().unwrap();
    std::process::exit(status.code().unwrap_or(1));
}

fn inside() {
    let changes: u64 = std::env::args().nth(1).map_or(1000, |n| n.parse().unwrap());
    run("ip", "link set lo up");
    let (mut monitor, lines) = listen();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("book.db");
    let config = format!("store = \"{}\"\n{NETWORK}", store.display());
    let service = Service::start(
        Config::parse(&config).unwrap(),
        Box::new(|text| eprintln!("warning: {text}")),
    );
    let service = service.unwrap();
    let begin = service.view().now() + 1000;
    let circuit = |n: u64| Ask::Hold {
        duration: EVERY,
        min_rate: HALF,
        max_rate: HALF,
        earliest: begin + 2 * n * EVERY,
        latest_start: Some(begin + 2 * n * EVERY),
    };
    book(&service, (0..changes.div_ceil(2)).map(circuit).collect());
    // From a range before the first circuit up to the last change.
    let volume = EVERY * u64::from(HALF) * (2 + changes / 2 * 3 + changes % 2);
    let (earliest, max_rate, policy) = (begin - EVERY, 2 * HALF, Placing::Earliest);
    let id = book(&service, vec![Ask::File { volume, max_rate, earliest, deadline: None, policy }]);
    let view = service.view();
    let ranges: Vec<_> = view.open[&id].booking.vector.merged().collect();
    let (ahead, tick) = (view.clock.ahead_of_wall(), view.rules.tick_nanos);
    drop(view);
    while !service.view().open.is_empty() {
        std::thread::sleep(Duration::from_millis(100));
    }
    service.stop();
    monitor.kill().unwrap();
    monitor.wait().unwrap();

    let reports: Vec<(i128, String)> = lines.iter().filter_map(|line| change(&line)).collect();
    let mut late = Histogram::<u64>::new(3).unwrap();
    let mut missed = 0;
    for range in &ranges[1..] {
        let due = i128::from(range.start * tick) - i128::from(ahead);
        let next = due + i128::from(EVERY * tick);
        let rate = format!("{}Mbit", range.rate).replace("1000Mbit", "1Gbit");
        match reports.iter().find(|(at, reported)| *at >= due && *at < next && *reported == rate) {
            Some((at, _)) => late.record(u64::try_from((at - due) / 1000).unwrap()).unwrap(),
            None => missed += 1,
        }
    }
    let ms = |part| late.value_at_quantile(part) as f64 / 1e3;
    let in_time = late.count_between(0, 5_000);
    println!(
        "{} changes: {in_time} within 5 ms, {missed} not before the next, {} ms after; p50 {:.2} ms, \
         p99 {:.2} ms, p99.9 {:.2} ms, max {:.2} ms",
        ranges.len() - 1,
        EVERY,
        ms(0.5),
        ms(0.99),
        ms(0.999),
        ms(1.0)
    );
    println!("load average {}", std::fs::read_to_string("/proc/loadavg").unwrap().trim());
}

fn book(service: &Service, requests: Vec<Ask>) -> u64 {
    let (paths, note) = (vec![Route(vec![0])], Note::default());
    let command = ledger::Command::Book { requests, paths, held_until: None, note };
    let (actor, project) = ("measurement".into(), "all".into());
    let order = Order { actor, project, operator: false, key: None, command };
    service.decide_blocking(order).unwrap().ids[0]
}

/// Starts to collect the kernel's reports of queueing disciplines and classes.
fn listen() -> (Child, Receiver<String>) {
    let mut monitor = Command::new("tc");
    monitor.args(["-tshort", "monitor"]).env("TZ", "UTC").stdout(Stdio::piped());
    // It writes the time at which it receives a report, and must not be late itself.
    let first = std::thread::spawn(move || {
        host::run_first().unwrap();
        monitor.spawn().unwrap()
    });
    let mut monitor = first.join().unwrap();
    let output = monitor.stdout.take().unwrap();
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(()) = sender.send(line.unwrap()) else { return };
        }
    });
    // Until it listens.
    while lines.recv_timeout(Duration::from_millis(50)).is_err() {
        run("tc", "qdisc replace dev lo root pfifo");
    }
    (monitor, lines)
}

/// When the file's class changed, in nanoseconds since 1970, and its rate from then on.
fn change(line: &str) -> Option<(i128, String)> {
    let (at, what) = line.strip_prefix('[')?.split_once("] class htb 1:10 ")?;
    let at = at.parse::<DateTime>().unwrap().to_zoned(TimeZone::UTC).unwrap();
    let rate = what.split_once(" rate ")?.1.split(' ').next()?;
    Some((at.timestamp().as_nanosecond(), rate.to_owned()))
}

fn run(program: &str, words: &str) {
    let done = Command::new(program).args(words.split(' ')).status().unwrap();
    assert!(done.success(), "{program} {words}: are you root?");
}

const INSIDE: &str = "LONGHAUL_SWITCH_INSIDE";
/// Ticks between two changes: a change that late is still distinct from the next.
const EVERY: u64 = 20;
/// Channels of a megabit.
const HALF: u32 = 500;
const NETWORK: &str = r#"
[[link]]
name = "l"
from = "a"
to = "b"
capacity = "1Gbps"
driver = "htb"
interface = "lo"
[[project]]
name = "all"
"#;
