//! The HTB driver on an interface of a network namespace of its own.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use longhaul_circuits::ledger::{self, Ask, Note, Order, Placing, Route};
use longhaul_circuits::service::Service;
use longhaul_circuits::service::config::Config;
use longhaul_sys::processes::stat_field;

const INSIDE: &str = "LONGHAUL_TEST_INSIDE";

#[test]
fn bookings_become_classes_at_their_boundaries() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: network namespaces need root");
    }
    // The namespace goes with the process.
    let mut again = Command::new("unshare");
    again.args(["--net", "--"]).arg(std::env::current_exe().unwrap());
    again.args(["--exact", "bookings_become_classes_at_their_boundaries", "--nocapture"]);
    match again.env(INSIDE, "1").stdin(Stdio::null()).status() {
        Ok(status) => assert!(status.success(), "it failed in the namespace"),
        Err(error) => println!("skipped: unshare: {error}"),
    }
}

fn run(words: &str) -> Result<String, String> {
    let mut words = words.split(' ');
    let done = Command::new(words.next().unwrap()).args(words).output();
    let done = done.map_err(|error| error.to_string())?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
    }
}

fn inside() {
    for needed in [
        "ip link set lo up",
        "tc qdisc add dev lo root handle 1: htb",
        "tc class add dev lo parent 1: classid 1:1 htb rate 1mbit",
        "tc filter add dev lo parent 1: protocol ip prio 1 u32 match ip dst 127.0.0.9/32 flowid 1:1",
    ] {
        if let Err(why) = run(needed) {
            return println!("skipped: {needed}: {why}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (service, notices) = start(&folder.path().join("book.db"));
    let now = service.view().now();
    // 100 channels for four seconds; beside it for two what is left, and then all for two. So long,
    // for each state to be seen however busy this machine is.
    let first = book(&service, now + 2_000, 400_000, 100);
    let second = book(&service, now + 4_000, 3_800_000, 1000);
    let mut seen = Vec::new();
    loop {
        let classes = run("tc class show dev lo").unwrap();
        let rates = [rate(&classes, "1:10"), rate(&classes, "1:11")];
        if seen.last() != Some(&rates) {
            seen.push(rates.clone());
        }
        if service.view().open.is_empty() && rates == [None, None] {
            break;
        }
        assert!(service.view().now() < now + 60_000, "{classes}");
    }
    let m = |rate: u64| Some(format!("{rate}Mbit"));
    assert_eq!(
        seen,
        [[None, None], [m(100), None], [m(100), m(900)], [None, m(1000)], [None, None]]
            .map(|rates| rates.map(|rate| rate.map(|rate| rate.replace("1000Mbit", "1Gbit"))))
    );
    assert_eq!((first, second), (0, 1));
    assert_eq!(run("tc filter show dev lo parent 1:").unwrap().trim(), "", "filters went too");
    let metrics = service.metrics().text(&service.view(), &service.status());
    assert!(metrics.contains("longhaul_circuits_driver_failures_total 0"), "{metrics}");
    let switches = metrics.lines().filter(|line| line.contains("switch_seconds"));
    println!("{}", switches.collect::<Vec<_>>().join("\n"));
    let (policies, notices) = (policies(), notices.try_iter().collect::<Vec<_>>());
    match notices.as_slice() {
        [] => assert_eq!(policies, [FIRST, FIRST], "thread and tc run before others"),
        [notice] => {
            assert!(notice.contains("link l: rates may change late"), "{notice}");
            println!("skipped: scheduling: {notice}");
        }
        more => panic!("it is told once: {more:?}"),
    }
    service.stop();

    // A booking that is running is carried out again after a restart, and what was left behind is
    // taken away.
    let (service, _) = start(&folder.path().join("book.db"));
    let id = book(&service, 0, 60_000_000, 10);
    while rate(&run("tc class show dev lo").unwrap(), "1:10") != m(10) {}
    service.stop();
    run("tc class add dev lo parent 1: classid 1:99 htb rate 5mbit").unwrap();
    let (service, _) = start(&folder.path().join("book.db"));
    loop {
        let classes = run("tc class show dev lo").unwrap();
        if [rate(&classes, "1:99"), rate(&classes, "1:10")] == [None, m(10)] {
            break;
        }
    }
    let order = order(ledger::Command::Cancel { id, series: false });
    service.decide_blocking(order).unwrap();
    while rate(&run("tc class show dev lo").unwrap(), "1:10").is_some() {}
    service.stop();
}

/// How the thread that switches and the `tc` that it has are scheduled (proc(5)).
fn policies() -> [String; 2] {
    let policy = |stat: &str| stat_field(stat, 41).unwrap().to_owned();
    let own = std::process::id().to_string();
    let stats = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.filter_map(|entry| std::fs::read_to_string(entry.join("stat")).ok()).collect()
    };
    let threads = stats("/proc/self/task").into_iter().find(|stat| stat.contains("(drive l)"));
    let children = stats("/proc")
        .into_iter()
        .find(|stat| stat.contains(" (tc) ") && stat_field(stat, 4) == Some(own.as_str()));
    [policy(&threads.unwrap()), policy(&children.unwrap())]
}

/// `SCHED_FIFO`.
const FIRST: &str = "1";

/// A service, and what it tells the operator.
fn start(store: &Path) -> (Service, Receiver<String>) {
    let config = format!(
        "store = \"{}\"\n[[link]]\nname = \"l\"\nfrom = \"a\"\nto = \"b\"\ncapacity = \"1Gbps\"\n\
         driver = \"htb\"\ninterface = \"lo\"\n[[project]]\nname = \"p\"",
        store.display()
    );
    let (tell, told) = channel();
    // Who does not listen need not be told.
    let notice = move |text: &str| drop(tell.send(text.to_owned()));
    (Service::start(Config::parse(&config).unwrap(), Box::new(notice)).unwrap(), told)
}

fn order(command: ledger::Command) -> Order {
    Order { actor: "t".into(), project: "p".into(), operator: false, key: None, command }
}

fn book(service: &Service, earliest: u64, volume: u64, max_rate: u32) -> u64 {
    let policy = Placing::Earliest;
    let ask = Ask::File { volume, max_rate, earliest, deadline: None, policy };
    let note = Note { destination: Some("127.0.0.9".parse().unwrap()), ..Note::default() };
    let paths = vec![Route(vec![0])];
    let command = ledger::Command::Book { requests: vec![ask], paths, held_until: None, note };
    service.decide_blocking(order(command)).unwrap().ids[0]
}

/// The rate of a class, as tc writes it.
fn rate(classes: &str, class: &str) -> Option<String> {
    let line = classes.lines().find(|line| line.contains(&format!("htb {class} ")))?;
    let mut words = line.split(' ').skip_while(|word| *word != "rate");
    words.nth(1).map(Into::into)
}
