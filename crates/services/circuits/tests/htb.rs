//! The HTB driver on an interface of a network namespace of its own.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use longhaul_circuits::drivers::{Driver, Htb, Lease, Switch};
use longhaul_circuits::ledger::{self, Ask, Note, Order, Placing, Route};
use longhaul_circuits::service::Service;
use longhaul_circuits::service::config::Config;
use longhaul_needs::needs;
use longhaul_sys::processes::stat_field;
use rustix::thread::CapabilitySet;

const INSIDE: &str = "LONGHAUL_TEST_INSIDE";

#[needs(namespaces, htb, priority)]
#[test]
fn bookings_become_classes_at_their_boundaries() {
    within_a_namespace("bookings_become_classes_at_their_boundaries", carry_bookings_out);
}

#[needs(namespaces, htb, ipv6)]
#[test]
fn classes_are_what_tc_would_make_and_faults_are_reported() {
    within_a_namespace("classes_are_what_tc_would_make_and_faults_are_reported", compare_and_fail);
}

/// Runs the test of that name in a process and a network namespace of its own, which go together.
fn within_a_namespace(test: &str, work: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return work();
    }
    let mut again = Command::new("unshare");
    again.args(["--net", "--"]).arg(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture"]);
    let status = again.env(INSIDE, "1").stdin(Stdio::null()).status().unwrap();
    assert!(status.success(), "it failed in the namespace");
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

/// Compares a driver's work for two bookings with the words of `tc`. To begin with, there is
/// another's.
fn by_tc() -> Result<(), String> {
    let words = "ip link set lo up
        tc qdisc add dev lo root handle 1: htb default 1
        tc class add dev lo parent 1: classid 1:2 htb rate 1gbit burst 125000 cburst 125000 quantum 65536
        tc class add dev lo parent 1:2 classid 1:1 htb rate 10mbit ceil 1gbit burst 125000 cburst 125000 prio 7 quantum 65536
        tc class add dev lo parent 1:2 classid 1:10 htb rate 100mbit burst 12500 cburst 12500 quantum 65536
        tc filter add dev lo parent 1: protocol ip prio 16 u32 match ip dst 127.0.0.9/32 flowid 1:10
        tc class add dev lo parent 1:2 classid 1:11 htb rate 60gbit burst 7500000 cburst 7500000 quantum 65536
        tc filter add dev lo parent 1: protocol ipv6 prio 17 u32 match ip6 dst 2001:db8::9/128 flowid 1:11
        tc class add dev lo parent 1:2 classid 1:12 htb rate 1mbit burst 3000 cburst 3000 quantum 65536";
    words
        .lines()
        .map(str::trim)
        .try_for_each(|words| run(words).map(drop).map_err(|why| format!("{words}: {why}")))
}

/// The output of `tc` for it.
fn shown() -> [String; 3] {
    let shown = ["qdisc show dev lo", "class show dev lo", "filter show dev lo parent 1:"];
    shown.map(|what| {
        let text = run(&format!("tc -d {what}")).unwrap();
        // Classes come in no order.
        let mut lines: Vec<_> = text.lines().map(str::trim_end).collect();
        lines.sort_unstable();
        lines.join("\n")
    })
}

fn compare_and_fail() {
    by_tc().unwrap();
    let expected = shown();
    let mut driver = Htb::new("lo", 1_000_000_000).unwrap();
    driver.reset(&Lease::new(1)).unwrap();
    let [v4, v6] = ["127.0.0.9", "2001:db8::9"].map(|to| Some(to.parse().unwrap()));
    let all =
        [switch(1, 100_000_000, v4), switch(2, 60_000_000_000, v6), switch(3, 1_000_000, None)];
    assert_eq!(set(&mut driver, &all), [Ok(()), Ok(()), Ok(())]);
    assert_eq!(shown(), expected);

    // What belongs to no booking has what the others leave.
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..10 {
        receiver.send_to(&[0; 50_000], receiver.local_addr().unwrap()).unwrap();
        receiver.recv(&mut [0; 50_000]).unwrap();
    }
    let text = run("tc -s class show dev lo").unwrap();
    let rest = text.split("class htb ").find(|class| class.starts_with("1:1 ")).unwrap();
    assert!(rest.contains("borrowed: ") && !rest.contains("borrowed: 0"), "{rest}");

    // Somebody takes a class away: the driver reports it, and serves the others.
    for words in ["filter del dev lo parent 1: prio 16", "class del dev lo classid 1:10"] {
        run(&format!("tc {words}")).unwrap();
    }
    let ask = [switch(1, 5_000_000, v4), switch(2, 5_000_000_000, v6)];
    let gone = |what: &str| Err(format!("lo: {what} class 1:10: there is no such class"));
    assert_eq!(set(&mut driver, &ask), [gone("change"), Ok(())]);
    let end = [switch(3, 0, None), switch(2, 0, v6), switch(1, 0, v4)];
    let [_, _, first] = &set(&mut driver, &end)[..] else { unreachable!() };
    assert!(first.as_ref().unwrap_err().contains("delete the filters of class 1:10"), "{first:?}");
    assert_eq!(set(&mut driver, &[switch(1, 0, v4)]), [Ok(())], "it is forgotten");
    assert_eq!(set(&mut driver, &[switch(4, 1_000_000, v4)]), [Ok(())], "1:10 is free again");
    let classes = run("tc class show dev lo").unwrap();
    let rates = ["1:10", "1:11", "1:12"].map(|class| rate(&classes, class));
    assert_eq!(rates, [Some("1Mbit".to_owned()), None, None]);

    // The whole of it goes.
    run("tc qdisc del dev lo root").unwrap();
    assert_eq!(set(&mut driver, &[switch(4, 2_000_000, v4)]), [gone("change")]);
    driver.reset(&Lease::new(1)).unwrap();

    let mut nowhere = Htb::new("no-such", 1_000_000_000).unwrap();
    assert!(nowhere.reset(&Lease::new(1)).unwrap_err().to_string().contains("No such device"));
    std::thread::spawn(move || {
        rustix::thread::set_capabilities(
            None,
            rustix::thread::CapabilitySets {
                effective: CapabilitySet::empty(),
                permitted: CapabilitySet::empty(),
                inheritable: CapabilitySet::empty(),
            },
        )
        .unwrap();
        let error = driver.reset(&Lease::new(1)).unwrap_err().to_string();
        assert!(
            error.starts_with("lo: ") && error.ends_with("; CAP_NET_ADMIN would allow it"),
            "{error}"
        );
        assert!(driver.begin().unwrap_err().to_string().contains("CAP_SYS_NICE"));
    })
    .join()
    .unwrap();
}

fn switch(booking: u64, rate_bps: u64, destination: Option<IpAddr>) -> Switch {
    let (link, project, label) = ("l".into(), "p".into(), String::new());
    let (due_nanos, until_nanos) = (None, None);
    Switch { link, booking, project, label, rate_bps, due_nanos, until_nanos, destination }
}

fn set(driver: &mut Htb, switches: &[Switch]) -> Vec<Result<(), String>> {
    let mut reports = Vec::new();
    driver.set(switches, &mut |switch, done| {
        reports.push((switch.booking, done.map_err(|why| why.to_string())));
    });
    assert!(reports.iter().map(|(id, _)| id).eq(switches.iter().map(|switch| &switch.booking)));
    reports.into_iter().map(|(_, done)| done).collect()
}

fn carry_bookings_out() {
    by_tc().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (service, notices) = start(&folder.path().join("book.db"));
    // What another left is gone with the driver's first look.
    let classes = || run("tc class show dev lo").unwrap();
    let rates = |classes: &str| [rate(classes, "1:10"), rate(classes, "1:11")];
    while rates(&classes()) != [None, None] {}
    let now = service.view().now();
    // 100 channels for four seconds; beside it for two what is left, and then all for two. So long,
    // for each state to be seen however busy this machine is.
    let first = book(&service, now + 2_000, 400_000, 100);
    let second = book(&service, now + 4_000, 3_800_000, 1000);
    let mut seen = vec![[None, None]];
    loop {
        let classes = classes();
        let rates = rates(&classes);
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
    let metrics =
        longhaul_pages::encode(&service.metrics().registry(&service.view(), &service.status()));
    assert!(metrics.contains("longhaul_circuits_driver_failures_total 0"), "{metrics}");
    let switches = metrics.lines().filter(|line| line.contains("switch_seconds"));
    println!("{}", switches.collect::<Vec<_>>().join("\n"));
    let notices = notices.try_iter().collect::<Vec<_>>();
    assert!(notices.is_empty(), "{notices:?}");
    assert_eq!(policy(), FIRST, "the thread runs before others");
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

/// Scheduling of the thread that switches (proc(5)).
fn policy() -> String {
    let own = std::process::id().to_string();
    let stats = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.filter_map(|entry| std::fs::read_to_string(entry.join("stat")).ok()).collect()
    };
    let child = stats("/proc").into_iter().find(|stat| stat_field(stat, 4) == Some(own.as_str()));
    assert_eq!(child, None, "nothing is started");
    let threads = stats("/proc/self/task").into_iter().find(|stat| stat.contains("(drive l)"));
    stat_field(&threads.unwrap(), 41).unwrap().to_owned()
}

/// `SCHED_FIFO`.
const FIRST: &str = "1";

/// A service, and its notices to the operator.
fn start(store: &Path) -> (Service, Receiver<String>) {
    let config = format!(
        "store = \"{}\"\n[[link]]\nname = \"l\"\nfrom = \"a\"\nto = \"b\"\ncapacity = \"1Gbps\"\n\
         driver = \"htb\"\ninterface = \"lo\"\n[[project]]\nname = \"p\"",
        store.display()
    );
    let (sender, notices) = channel();
    // A test that does not listen needs no notice.
    let notice = move |text: &str| drop(sender.send(text.to_owned()));
    (Service::start(Config::parse(&config).unwrap(), Box::new(notice)).unwrap(), notices)
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
