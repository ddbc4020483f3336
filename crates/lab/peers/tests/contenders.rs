//! Every contender moves a few megabytes over a clean path.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;
use std::time::Duration;

use longhaul_lab::{Conditions, LinkSpec, Node, RateChange, Testbed, TestbedOptions, Topology};
use longhaul_needs::needs;
use longhaul_peers::{ContenderError, Job, Medium, Outcome, Transport, Waypoint, find};
use longhaul_units::Rate;

/// 5 ms of round trip, 1 Gb/s.
fn testbed() -> Testbed {
    let both = Conditions {
        delay: Some(Duration::from_micros(2500)),
        rate: Some(Rate::from_gbps(1)),
        ..Conditions::default()
    };
    testbed_of(&Topology::two_hosts(LinkSpec::between_hosts(both)))
}

fn testbed_of(topology: &Topology) -> Testbed {
    Testbed::new(topology, &TestbedOptions::default()).unwrap()
}

fn job() -> Job {
    Job::new("host", "peer", BYTES, PATIENCE)
}

fn run(testbed: &Testbed, name: &str, job: &Job) -> Outcome {
    let outcome = find(name).unwrap().run(testbed, job);
    outcome.unwrap_or_else(|failure| panic!("{name}: {failure}"))
}

/// Moves memory, and checks what is the same for everybody.
fn moves(name: &str, transport: Transport, congestion_control: &str) -> Outcome {
    let outcome = run(&testbed(), name, &job());
    assert_eq!(outcome.transport, transport, "{name}: {}", outcome.details);
    assert_eq!(outcome.congestion_control.as_deref(), Some(congestion_control), "{name}");
    assert!(outcome.bytes > 0 && outcome.seconds > 0.0, "{name}: {outcome:?}");
    assert!(outcome.cpu_send > 0.0 && outcome.cpu_receive > 0.0, "{name}: {outcome:?}");
    assert!(outcome.version.contains(|c: char| c.is_ascii_digit()), "{name}: {outcome:?}");
    outcome
}

#[needs(namespaces)]
#[test]
fn kernel_tcp() {
    let outcome = moves("cubic x4", Transport::Tcp, "cubic");
    assert_eq!((outcome.bytes, outcome.resent.is_some()), (BYTES, true));
}

#[needs(namespaces)]
#[test]
fn longhaul() {
    let outcome = moves("auto", Transport::Udp, "auto");
    assert_eq!(outcome.details["cp"]["profile"], "auto");
    assert!(outcome.lost.is_some());
}

/// Through two nodes between, with 1 ms of round trip on each link.
fn moves_through(name: &str, transport: Transport) -> Outcome {
    let both = Conditions {
        delay: Some(Duration::from_micros(500)),
        rate: Some(Rate::from_gbps(1)),
        ..Conditions::default()
    };
    let link = |name: &str, between: [&str; 2]| LinkSpec {
        name: name.into(),
        between: between.map(str::to_owned),
        ..LinkSpec::between_hosts(both.clone())
    };
    let mut topology = Topology::two_hosts(link("lan", ["host", "near"]));
    topology.nodes.extend(["near", "far"].map(Node::new));
    topology.links.extend([link("wan", ["near", "far"]), link("far-lan", ["far", "peer"])]);
    let waypoint = |(node, control): (&str, Option<&str>)| Waypoint {
        node: node.into(),
        congestion_control: control.map(str::to_owned),
        spares: u8::from(name.starts_with("gateways")),
        rate: Some(Rate::from_mbps(500)).filter(|_| name.starts_with("udt") && node == "near"),
    };
    // UDT, which the first of two UDT gateways sends, has none of the kernel's.
    let near = Some("bbr").filter(|_| !name.starts_with("udt"));
    let via = [("near", near), ("far", Some("reno"))].map(waypoint).into();
    let testbed = testbed_of(&topology);
    let outcome = run(&testbed, name, &Job { via, ..job() });
    assert_eq!((outcome.bytes, outcome.transport), (BYTES, transport), "{outcome:?}");
    assert!(outcome.cpu_between.len() == 2 && !outcome.cut, "{name}: {outcome:?}");
    for host in testbed.hosts() {
        assert!(!host.listens(None).unwrap(), "nothing is left at {}", host.name());
    }
    outcome
}

#[needs(namespaces)]
#[test]
fn gateways_at_nodes_between_carry_the_pump_and_copies() {
    moves_through("gateways cubic x4", Transport::Tcp);
    let outcome = moves_through("auto tcp", Transport::Tcp);
    assert_eq!(outcome.details["cp"]["verified"], true);
}

#[needs(namespaces, udt)]
#[test]
fn gateways_that_speak_udt_with_each_other() {
    let outcome = moves_through("udt-gateways cubic x2", Transport::Tcp);
    assert!(outcome.version.starts_with("libudt"), "{outcome:?}");
}

#[needs(namespaces, haproxy)]
#[test]
fn haproxy_at_nodes_between() {
    let outcome = moves_through("haproxy cubic x2", Transport::Tcp);
    assert!(outcome.version.starts_with("HAProxy 2."), "{outcome:?}");
}

#[needs(namespaces, stunnel)]
#[test]
fn a_pair_of_stunnels_at_nodes_between() {
    let outcome = moves_through("stunnel cubic x2", Transport::Tcp);
    assert!(outcome.version.starts_with("stunnel 5."), "{outcome:?}");
}

/// More than 1 Gb/s carries in a second.
fn is_cut(name: &str) {
    let (length, bytes) = (Some(Duration::from_secs(1)), 1_000_000_000);
    let outcome = run(&testbed(), name, &Job { length, bytes, ..job() });
    assert!(outcome.cut && outcome.seconds >= 1.0, "{name}: {outcome:?}");
    assert!(outcome.bytes > 0 && outcome.bytes < bytes, "{name}: {outcome:?}");
}

#[needs(namespaces)]
#[test]
fn bytes_that_arrived_count_where_a_transfer_is_cut() {
    ["bbr x2", "auto", "auto tcp"].into_iter().for_each(is_cut);
}

#[needs(namespaces, udt)]
#[test]
fn bytes_that_arrived_count_where_udt_is_cut() {
    is_cut("udt4");
}

#[needs(namespaces)]
#[test]
fn bookings_are_made_of_what_a_link_carries_and_followed() {
    let link = |name: &str, mbps, rates| {
        let delay = Some(Duration::from_micros(2500));
        let both =
            Conditions { delay, rate: Some(Rate::from_mbps(mbps)), rates, ..Conditions::default() };
        LinkSpec { name: name.into(), ..LinkSpec::between_hosts(both) }
    };
    let faster = vec![RateChange { at: Duration::from_secs(4), rate: Rate::from_mbps(40) }];
    let mut topology = Topology::two_hosts(link("ip", 50, None));
    topology.links.push(link("circuit", 20, Some(faster)));
    let testbed = testbed_of(&topology);
    let outcome = run(&testbed, "trc booked", &job());
    let [booking] = &outcome.bookings[..] else { panic!("{outcome:?}") };
    assert!(booking.sent_bytes > 0 && booking.allowed_bytes > 0, "{booking:?}");
    assert!(outcome.details["cp"][0]["circuit"]["booking"].as_u64().is_some(), "{outcome:?}");
    let circuit = testbed.stats(1).unwrap().forward.path.delivered_bytes;
    assert!(circuit >= booking.sent_bytes / 2, "{circuit} of {booking:?}");
    let two = run(&testbed, "trc booked fixed at 5,10", &Job { bytes: 1_000_000, ..job() });
    assert_eq!(two.bookings.len(), 2);
    assert!(two.bookings.iter().all(|one| one.sent_bytes > 0 && one.planned > one.asked));
    assert_eq!((two.bytes, two.transport), (1_000_000, Transport::Udp));
}

#[needs(namespaces)]
#[test]
fn a_transfer_begins_when_the_job_says_or_not_at_all() {
    let testbed = testbed();
    let at = |begin| Job { begin: Some(begin), ..job() };
    let failure = find("cubic x1").unwrap().run(&testbed, &at(Duration::ZERO)).unwrap_err();
    assert!(failure.to_string().contains("after the transfer was to begin"), "{failure}");
    // Again with more time where this machine is too busy to be ready by then.
    for begin in [5, 20, 60].map(Duration::from_secs) {
        let testbed = self::testbed();
        match find("cubic x1").unwrap().run(&testbed, &at(begin)) {
            Ok(_) => return assert!(longhaul_sys::clock::now() >= testbed.began() + begin),
            Err(late) => {
                assert!(late.to_string().contains("after the transfer was to begin"), "{late}")
            }
        }
    }
    panic!("it never began");
}

#[needs(namespaces, iperf3)]
#[test]
fn iperf3() {
    moves("iperf3 reno x2", Transport::Tcp, "reno");
}

#[needs(namespaces, gridftp)]
#[test]
fn gridftp() {
    moves("gridftp -p 4", Transport::Tcp, "cubic");
    moves("gridftp bbr -p 1", Transport::Tcp, "bbr");
}

#[needs(namespaces, gridftp_udt)]
#[test]
fn gridftp_over_udt_is_not_over_tcp() {
    moves("gridftp -udt", Transport::Udp, "udt");
}

#[needs(namespaces, udt)]
#[test]
fn udt() {
    moves("udt4", Transport::Udp, "udt");
}

#[needs(namespaces, xrootd)]
#[test]
fn xrootd() {
    moves("xrootd", Transport::Tcp, "cubic");
}

#[needs(namespaces, uftp)]
#[test]
fn uftp() {
    moves("uftp", Transport::Udp, "tfmcc");
}

#[needs(namespaces, srt)]
#[test]
fn srt() {
    moves("srt", Transport::Udp, "srt file");
}

#[needs(namespaces)]
#[test]
fn tar() {
    moves("tar", Transport::Tcp, "cubic");
}

#[needs(namespaces, rsync_ssh)]
#[test]
fn rsync_over_ssh() {
    moves("rsync-ssh", Transport::Tcp, "cubic");
}

/// A folder's files are moved by each, which is the same for the next.
fn files_are_moved_by(movers: &[&str], count: u64) {
    let testbed = testbed();
    let folder = tempfile::tempdir().unwrap();
    let medium = Medium::Files { folder: folder.path().to_owned(), count, target: None };
    let job = Job { medium, ..job() };
    for name in movers {
        run(&testbed, name, &job);
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(left, [folder.path().join(format!("source-{count}-{BYTES}"))], "{name}");
    }
}

#[needs(namespaces)]
#[test]
fn files_of_a_folder_are_moved_and_left_for_the_next() {
    files_are_moved_by(&["auto", "tar"], 3);
}

#[needs(namespaces, gridftp, gridftp_udt)]
#[test]
fn gridftp_moves_files() {
    files_are_moved_by(&["gridftp -p 1", "gridftp -udt"], 3);
}

#[needs(namespaces, xrootd)]
#[test]
fn xrootd_moves_files() {
    files_are_moved_by(&["xrootd"], 3);
}

#[needs(namespaces, uftp)]
#[test]
fn uftp_moves_files() {
    files_are_moved_by(&["uftp"], 3);
}

#[needs(namespaces, udt)]
#[test]
fn udt_moves_a_file() {
    files_are_moved_by(&["udt4"], 1);
}

#[needs(namespaces, rsync_ssh)]
#[test]
fn rsync_moves_files() {
    files_are_moved_by(&["rsync-ssh"], 3);
}

#[needs(namespaces)]
#[test]
fn a_mover_of_memory_moves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let medium = Medium::Files { folder: folder.path().to_owned(), count: 3, target: None };
    let failure = find("cubic x1").unwrap().run(&testbed(), &Job { medium, ..job() }).unwrap_err();
    assert!(failure.to_string().contains("it moves memory, no files"), "{failure}");
}

#[needs(namespaces)]
#[test]
fn a_run_ends_when_its_time_is_up() {
    a_run_is_ended("cubic x1");
}

#[needs(namespaces, iperf3)]
#[test]
fn a_run_of_another_program_ends_when_its_time_is_up() {
    a_run_is_ended("iperf3 cubic x1");
}

fn a_run_is_ended(name: &str) {
    let testbed = testbed();
    // Too little for that much at 1 Gb/s, enough to get going.
    let job = Job::new("host", "peer", 1 << 40, Duration::from_secs(3));
    let failure = find(name).unwrap().run(&testbed, &job).unwrap_err();
    assert!(matches!(failure, ContenderError::TimedOut { .. }), "{name}: {failure}");
    for host in testbed.hosts() {
        assert!(!host.listens(None).unwrap(), "nothing is left at {}", host.name());
    }
}

#[needs(namespaces)]
#[test]
fn a_program_that_hangs_is_ended_with_all_that_it_started() {
    // Both sides hang, and so do those they started, one of them without a trace of who did.
    let script = r#"sleep 300 & echo $! >>"$PIDS"; env -i sleep 300 & echo $! >>"$PIDS"
        echo "nothing happens" >&2; wait"#;
    with_tar("a_program_that_hangs_is_ended_with_all_that_it_started", script, |testbed| {
        let job = Job { patience: Duration::from_secs(10), ..job() };
        match find("tar").unwrap().run(testbed, &job) {
            Err(ContenderError::TimedOut { after, words }) => {
                assert_eq!(after, job.patience);
                assert!(words.contains("tar: nothing happens"), "{words}");
            }
            other => panic!("{other:?}"),
        }
        let pids = std::fs::read_to_string(std::env::var_os("PIDS").unwrap()).unwrap();
        for pid in pids.lines() {
            let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            assert!(!command.unwrap_or_default().contains("sleep"), "{pid} is left");
        }
        assert!(pids.lines().count() >= 2, "{pids}");
    });
}

#[needs(namespaces)]
#[test]
fn a_program_that_crashes_is_quoted() {
    let script = r#"echo "out of luck" >&2; kill -ABRT $$"#;
    with_tar("a_program_that_crashes_is_quoted", script, |testbed| {
        match find("tar").unwrap().run(testbed, &job()) {
            Err(ContenderError::Failed { what, status, words }) => {
                assert!(what == "tar" && status.starts_with("signal: 6"), "{what}: {status}");
                assert_eq!(words, "out of luck");
            }
            other => panic!("{other:?}"),
        }
    });
}

/// Has a test run where `tar` is a program that shows a version and otherwise does what `script`
/// says: in a process of its own, since PATH belongs to the process.
fn with_tar(test: &str, script: &str, checks: impl Fn(&Testbed)) {
    if std::env::var_os("PIDS").is_some() {
        return checks(&testbed());
    }
    let folder = tempfile::tempdir().unwrap();
    let tar = folder.path().join("tar");
    let version = "case \"$*\" in *--version*) echo 'tar (GNU tar) 0.1'; exit;; esac";
    let written = folder.path().join("written");
    std::fs::write(&written, format!("#!/bin/sh\n{version}\n{script}\n")).unwrap();
    // By another process: a file that this one has open for writing, a command that it is just
    // starting has too, and then nobody can run it.
    let mut install = Command::new("install");
    assert!(install.args(["-m", "755"]).args([&written, &tar]).status().unwrap().success());
    let path = std::env::var_os("PATH").unwrap();
    let path = std::iter::once(folder.path().to_owned()).chain(std::env::split_paths(&path));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("PATH", std::env::join_paths(path).unwrap())
        .env("PIDS", folder.path().join("pids"))
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[needs(namespaces)]
#[test]
fn jobs_that_cannot_be_are_refused_with_the_reason() {
    let testbed = testbed();
    for (name, job, expected) in [
        ("rbudp", job(), "rbudp needs a rate"),
        ("cubic x1", Job { rate: Some(Rate::from_mbps(1)), ..job() }, "it takes no rate"),
        ("gateways bbr x1", job(), "no nodes between are named"),
        ("trc booked", job(), "it takes a link `circuit` between the two nodes, and another one"),
        ("cubic x1", Job { to: "mars".into(), ..job() }, "the testbed has no node mars"),
    ] {
        match find(name).unwrap().run(&testbed, &job) {
            Err(ContenderError::Unsuitable { why }) => assert_eq!(why, expected),
            other => panic!("{name}: {other:?}"),
        }
    }
}

const BYTES: u64 = 4_000_000;
/// Long enough for a machine that compiles beside it.
const PATIENCE: Duration = Duration::from_secs(60);
