//! Every contender that is here moves a few megabytes over a clean path. What is absent, and
//! machines without testbeds, are said and passed over.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;
use std::time::Duration;

use longhaul_lab::{Conditions, LinkSpec, RateChange, Testbed, TestbedOptions, Topology};
use longhaul_peers::{Failure, Job, Medium, Outcome, Transport, find};
use longhaul_units::Rate;

/// 5 ms of round trip, 1 Gb/s.
fn testbed() -> Option<Testbed> {
    let both = Conditions {
        delay: Some(Duration::from_micros(2500)),
        rate: Some(Rate::from_gbps(1)),
        ..Conditions::default()
    };
    testbed_of(&Topology::two_hosts(LinkSpec::between_hosts(both)))
}

fn testbed_of(topology: &Topology) -> Option<Testbed> {
    match Testbed::new(topology, &TestbedOptions::default()) {
        Ok(testbed) => Some(testbed),
        Err(error) if error.is_want_of_means() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn job() -> Job {
    Job::new("host", "peer", BYTES, PATIENCE)
}

/// What came of it, unless the program is not here.
fn run(testbed: &Testbed, name: &str, job: &Job) -> Option<Outcome> {
    match find(name).unwrap().run(testbed, job) {
        Ok(outcome) => Some(outcome),
        Err(Failure::Absent(absent)) => {
            println!("skipped: {name}: {absent}");
            None
        }
        Err(failure) => panic!("{name}: {failure}"),
    }
}

/// Moves memory, and checks what is the same for everybody.
fn moves(name: &str, transport: Transport, congestion_control: &str) -> Option<Outcome> {
    let testbed = testbed()?;
    let outcome = run(&testbed, name, &job())?;
    assert_eq!(outcome.transport, transport, "{name}: {}", outcome.details);
    assert_eq!(outcome.congestion_control.as_deref(), Some(congestion_control), "{name}");
    assert!(outcome.bytes > 0 && outcome.seconds > 0.0, "{name}: {outcome:?}");
    assert!(outcome.cpu_send > 0.0 && outcome.cpu_receive > 0.0, "{name}: {outcome:?}");
    assert!(outcome.version.contains(|c: char| c.is_ascii_digit()), "{name}: {outcome:?}");
    Some(outcome)
}

#[test]
fn kernel_tcp() {
    let Some(outcome) = moves("cubic x4", Transport::Tcp, "cubic") else { return };
    assert_eq!((outcome.bytes, outcome.resent.is_some()), (BYTES, true));
}

#[test]
fn longhaul() {
    let Some(outcome) = moves("auto", Transport::Udp, "auto") else { return };
    assert_eq!(outcome.details["cp"]["profile"], "auto");
    assert!(outcome.lost.is_some());
}

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
    let Some(testbed) = testbed_of(&topology) else { return };
    let Some(outcome) = run(&testbed, "trc booked", &job()) else { return };
    let [booking] = &outcome.bookings[..] else { panic!("{outcome:?}") };
    assert!(booking.sent_bytes > 0 && booking.allowed_bytes > 0, "{booking:?}");
    assert!(outcome.details["cp"][0]["circuit"]["booking"].as_u64().is_some(), "{outcome:?}");
    let circuit = testbed.stats(1).unwrap().forward.path.delivered_bytes;
    assert!(circuit >= booking.sent_bytes / 2, "{circuit} of {booking:?}");
    let two =
        run(&testbed, "trc booked fixed at 5,10", &Job { bytes: 1_000_000, ..job() }).unwrap();
    assert_eq!(two.bookings.len(), 2);
    assert!(two.bookings.iter().all(|one| one.sent_bytes > 0 && one.planned > one.asked));
    assert_eq!((two.bytes, two.transport), (1_000_000, Transport::Udp));
}

#[test]
fn a_transfer_begins_when_the_job_says_or_not_at_all() {
    let Some(testbed) = testbed() else { return };
    let at = |begin| Job { begin: Some(begin), ..job() };
    let failure = find("cubic x1").unwrap().run(&testbed, &at(Duration::ZERO)).unwrap_err();
    assert!(failure.to_string().contains("after the transfer was to begin"), "{failure}");
    let begin = Duration::from_secs(5);
    let testbed = self::testbed().unwrap();
    match find("cubic x1").unwrap().run(&testbed, &at(begin)) {
        Ok(_) => assert!(longhaul_sys::clock::now() >= testbed.began() + begin),
        // A very busy machine.
        Err(late) => {
            assert!(late.to_string().contains("after the transfer was to begin"), "{late}")
        }
    }
}

#[test]
fn iperf3() {
    moves("iperf3 reno x2", Transport::Tcp, "reno");
}

#[test]
fn gridftp() {
    moves("gridftp -p 4", Transport::Tcp, "cubic");
    moves("gridftp bbr -p 1", Transport::Tcp, "bbr");
}

#[test]
fn gridftp_over_udt_is_not_over_tcp() {
    moves("gridftp -udt", Transport::Udp, "udt");
}

#[test]
fn udt() {
    moves("udt", Transport::Udp, "udt");
}

#[test]
fn xrootd() {
    moves("xrootd", Transport::Tcp, "cubic");
}

#[test]
fn uftp() {
    moves("uftp", Transport::Udp, "tfmcc");
}

#[test]
fn srt() {
    moves("srt", Transport::Udp, "srt file");
}

#[test]
fn tar() {
    moves("tar", Transport::Tcp, "cubic");
}

#[test]
fn rsync_over_ssh() {
    moves("rsync-ssh", Transport::Tcp, "cubic");
}

#[test]
fn files_of_a_folder_are_moved_and_left_for_the_next() {
    let Some(testbed) = testbed() else { return };
    let folder = tempfile::tempdir().unwrap();
    let medium = Medium::Files { folder: folder.path().to_owned(), count: 3 };
    let job = Job { medium, ..job() };
    let movers = ["auto", "gridftp -p 1", "gridftp -udt", "xrootd", "uftp", "tar", "rsync-ssh"];
    // Not `any`: each is to move them.
    if movers.iter().filter(|name| run(&testbed, name, &job).is_some()).count() > 0 {
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(left, [folder.path().join(format!("source-3-{BYTES}"))]);
    }
    let failure = find("cubic x1").unwrap().run(&testbed, &job).unwrap_err();
    assert!(failure.to_string().contains("it moves memory, no files"), "{failure}");
}

#[test]
fn a_run_ends_when_its_time_is_up() {
    let Some(testbed) = testbed() else { return };
    // Too little for that much at 1 Gb/s, enough to get going.
    for name in ["cubic x1", "iperf3 cubic x1"] {
        let job = Job::new("host", "peer", 1 << 40, Duration::from_secs(3));
        match find(name).unwrap().run(&testbed, &job) {
            Err(Failure::TimedOut { .. } | Failure::Absent(_)) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
    for host in testbed.hosts() {
        assert!(!host.listens(None).unwrap(), "nothing is left at {}", host.name());
    }
}

#[test]
fn a_program_that_hangs_is_ended_with_all_that_it_started() {
    // Both sides hang, and so do those they started, one of them without a trace of who did.
    let script = r#"sleep 300 & echo $! >>"$PIDS"; env -i sleep 300 & echo $! >>"$PIDS"
        echo "nothing happens" >&2; wait"#;
    with_tar("a_program_that_hangs_is_ended_with_all_that_it_started", script, |testbed| {
        let job = Job { patience: Duration::from_secs(10), ..job() };
        match find("tar").unwrap().run(testbed, &job) {
            Err(Failure::TimedOut { after, words }) => {
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

#[test]
fn a_program_that_crashes_is_quoted() {
    let script = r#"echo "out of luck" >&2; kill -ABRT $$"#;
    with_tar("a_program_that_crashes_is_quoted", script, |testbed| {
        match find("tar").unwrap().run(testbed, &job()) {
            Err(Failure::Failed { what, status, words }) => {
                assert!(what == "tar" && status.starts_with("signal: 6"), "{what}: {status}");
                assert_eq!(words, "out of luck");
            }
            other => panic!("{other:?}"),
        }
    });
}

/// Has a test run where `tar` is a program that tells a version and otherwise does what `script`
/// says: in a process of its own, since PATH belongs to the process.
fn with_tar(test: &str, script: &str, checks: impl Fn(&Testbed)) {
    if std::env::var_os("PIDS").is_some() {
        return testbed().iter().for_each(checks);
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

#[test]
fn jobs_that_cannot_be_are_refused_with_the_reason() {
    let Some(testbed) = testbed() else { return };
    for (name, job, expected) in [
        ("rbudp", job(), "rbudp has to be told a rate"),
        ("cubic x1", Job { rate: Some(Rate::from_mbps(1)), ..job() }, "it is not told a rate"),
        ("trc booked", job(), "it takes a link `circuit` between the two nodes, and another one"),
        ("cubic x1", Job { to: "mars".into(), ..job() }, "the testbed has no node mars"),
    ] {
        match find(name).unwrap().run(&testbed, &job) {
            Err(Failure::Unsuitable { why }) => assert_eq!(why, expected),
            Err(Failure::Absent(absent)) => println!("skipped: {name}: {absent}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

const BYTES: u64 = 4_000_000;
/// Long enough for a machine that compiles beside it.
const PATIENCE: Duration = Duration::from_secs(60);
