//! Copies between two hosts that are both reached by ssh.

use std::fs;
use std::process::Command;

use longhaul_needs::needs;
use longhaul_session::Token;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::{PROGRAM, Program};
use crate::ssh::{Login, Sshd, assert_failed, child, configure, walk};
use crate::test::{Test, limited, until};
use crate::trees::{assert_same, make_tree, noise};

#[needs(sshd)]
#[test]
fn what_is_asked_for_is_done_between_two_hosts_and_reported_as_of_any_copy() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After(""));
        make_tree(&test.there("tree"));
        fs::create_dir(test.there("in")).unwrap();
        let copy = sshd.cp(&["dtn2:tree", "dtn3:in"]);
        copy.assert_succeeded();
        assert_same(&test.there("tree"), &test.there("in/tree"));
        let report = copy.json();
        assert_eq!((&report["verified"], &report["failed"]), (&true.into(), &0.into()), "{report}");
        let again = sshd.cp(&["ssh://dtn2/tree", "dtn3:~/in/"]).json();
        let sent = (&again["bytes"], &again["unchanged"]["bytes"]);
        assert_eq!(sent, (&0.into(), &report["bytes"]), "{again}");
        // By a pattern, into a new directory, and the contents of one.
        sshd.cp(&["dtn2:tree/a/b/f[34]", "dtn3:some/"]).assert_succeeded();
        assert!(test.there("some/f3").exists() && test.there("some/f4").exists());
        let many = sshd.cp(&["dtn2:tree/a/b/f[34]", "dtn3:one"]);
        assert_failed(&many, "2 names match: write a slash behind DST");
        let dry = sshd.cp(&["-n", "--delete", "dtn2:tree/a/b/.", "dtn3:some"]).json();
        assert_eq!(dry["dry_run"], true, "{dry}");
        fs::write(test.there("some/more"), "more").unwrap();
        sshd.cp(&["--delete", "--exclude", "f5", "dtn2:tree/a/b/.", "dtn3:some"])
            .assert_succeeded();
        assert!(!test.there("some/more").exists() && !test.there("some/f5").exists());
        until("the servers have ended", || sshd.processes().is_empty().then_some(()));
    });
}

#[needs(sshd)]
#[test]
fn a_failure_names_the_host_that_copies_and_has_its_status() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After(""));
        fs::write(test.there("file"), "contents").unwrap();
        let none = sshd.cp(&["dtn2:none", "dtn3:copy"]);
        assert_failed(&none, "dtn2, copying to dtn3: ");
        let words = "dtn2:none: no such file or directory there";
        assert!(none.stderr.contains(words), "{none:?}");
        assert_eq!((none.status, &none.json()["failed"]), (Some(1), &1.into()), "{none:?}");
        let misused = |words: &[&str], part: &str| {
            let ended = sshd.cp(words);
            assert_eq!(ended.status, Some(2), "{ended:?}");
            assert!(ended.stderr.contains(part), "{ended:?}");
            assert!(ended.json()["error"].to_string().contains(part), "{ended:?}");
        };
        misused(&["-T", "dtn2:file", "dtn3:copy/"], "dtn2, copying to dtn3: -T gives one source");
        let listed = ["--manifest", "list", "dtn2:file", "dtn3:copy"];
        misused(&listed, "--manifest means something of this host");
        misused(
            &listed,
            "log in to dtn2 and run `longhaul cp --manifest ... PATH dtn3:PATH` there",
        );
        until("the servers have ended", || sshd.processes().is_empty().then_some(()));
        assert_eq!(fs::read(test.there("file")).unwrap(), b"contents");
    });
}

#[needs(sshd)]
#[test]
fn a_connection_that_is_lost_between_two_hosts_is_dialled_again_and_the_copy_goes_on() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After(""));
        fs::write(test.there("big"), noise(1, 40_000_000)).unwrap();
        let kill = |process: u32| {
            kill_process(Pid::from_raw(process.cast_signed()).unwrap(), Signal::KILL).unwrap();
        };
        let interrupted = |words: &[&str], cut: &dyn Fn(u32)| {
            let copy = sshd.program(&[&["cp", "--rate", "60Mbps"], words].concat());
            let files = || walk(&test.there(""));
            let record = || files().iter().filter(|it| it.0 == "record").map(|it| it.1).sum();
            let begun: u64 = until("a record", || Some(record()).filter(|size| *size > 0));
            until("something more is durable", || (record() > begun).then_some(()));
            cut(copy.id());
            copy.end()
        };
        let ssh = |copy| kill(until("ssh", || child(copy, "ssh")));
        // The one that was started first.
        let server = |_| {
            let comm =
                |it: &u32| fs::read_to_string(format!("/proc/{it}/comm")).unwrap_or_default();
            let processes = sshd.processes();
            kill(processes.into_iter().filter(|it| comm(it).trim() == "longhaul").min().unwrap());
        };
        let cuts: [(&str, &dyn Fn(u32)); 2] = [("one", &ssh), ("two", &server)];
        for (name, cut) in cuts {
            let ended = interrupted(&["dtn2:big", &format!("dtn3:{name}")], cut);
            ended.assert_succeeded();
            let report = ended.json();
            assert_eq!(report["reconnects"], 1, "{report}");
            assert!(report["notices"].to_string().contains("was lost; dialling again"), "{report}");
            assert!(report["resumed_bytes"].as_u64().unwrap() > 0, "{report}");
            assert_same(&test.there("big"), &test.there(name));
        }
        let ended = interrupted(&["--retry", "0", "dtn2:big", "dtn3:three"], &ssh);
        assert_failed(&ended, "run the same command again to go on");
        until("the servers have ended", || sshd.processes().is_empty().then_some(()));
    });
}

#[needs(sshd)]
#[test]
fn a_key_with_a_command_dials_no_other_host_for_anybody() {
    limited(|test| {
        let root = test.there("").display().to_string();
        let command = format!("command=\"{PROGRAM} serve --ssh --root {root}\",restrict");
        let sshd = Sshd::start(test, &Login::Key(&command));
        fs::write(test.there("file"), "contents").unwrap();
        let copy = sshd.cp(&["dtn2:file", "dtn3:copy"]);
        assert_failed(&copy, "dtn2: this key lets nobody copy from here to another host");
        assert_eq!(copy.stderr.matches("this key lets nobody").count(), 1, "{copy:?}");
        assert!(!test.there("copy").exists());
        until("the servers have ended", || sshd.processes().is_empty().then_some(()));
    });
}

/// Runs `script` at a client of two ssh servers, each in a namespace of its own, with links as `rules` say.
fn between(test: &Test, rules: &str, script: &str) {
    configure(test, &Login::After(""), ("10.79.2.2", 2222));
    fs::create_dir_all(test.path("first/.local/bin")).unwrap();
    std::os::unix::fs::symlink(PROGRAM, test.path("first/.local/bin/longhaul")).unwrap();
    let read = |name: &str| fs::read_to_string(test.path(name)).unwrap();
    let server = read("sshd_config").replace("10.79.2.2", "10.79.1.2").replace("/there", "/first");
    fs::write(test.path("sshd_config.first"), server).unwrap();
    let known = read("known");
    let first = known.replace("10.79.2.2", "10.79.1.2");
    let second = match rules == WRONG_KEY {
        false => known,
        true => format!("[10.79.2.2]:2222 {}", read("other-key.pub")),
    };
    fs::write(test.path("known"), first + &second).unwrap();
    let client = read("ssh_config").replace("Host dtn2 dtn3", "Host dtn2");
    let first = client.replace("Host dtn2", "Host dtn1").replace("10.79.2.2", "10.79.1.2");
    fs::write(test.path("ssh_config"), first + &client).unwrap();
    let script = format!("{LINKS}{rules}{START}{script}{OVER}");
    let mut command = Command::new("unshare");
    Program::spawn(test, command.args(["-n", "sh", "-e", "-c", &script, PROGRAM]))
        .end()
        .assert_succeeded();
}

fn report(test: &Test, name: &str) -> Value {
    let text = fs::read_to_string(test.path(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
}

/// Bytes that the client has sent to both hosts.
fn sent_by_client(test: &Test) -> u64 {
    let of = |name| report(test, name)[0]["stats64"]["tx"]["bytes"].as_u64().unwrap();
    of("link1.json") + of("link2.json")
}

#[needs(sshd, namespaces)]
#[test]
fn data_goes_straight_from_one_host_to_the_other_and_no_secret_is_in_an_argument() {
    limited(|test| {
        make_tree(&test.path("first/tree"));
        fs::write(test.path("first/tree/large"), noise(3, 30_000_000)).unwrap();
        between(test, REACHED, STRAIGHT);
        assert_same(&test.path("first/tree"), &test.there("copy"));
        assert_same(&test.path("first/tree"), &test.there("again"));
        let copied = report(test, "copy.json");
        assert_eq!(copied["carrier"], "udp", "{copied}");
        assert!(!copied["notices"].to_string().contains("ssh"), "{copied}");
        assert!(sent_by_client(test) < 2_000_000, "{}", sent_by_client(test));
        let names = fs::read_to_string(test.path("names")).unwrap();
        assert!(names.lines().any(|name| name == "tree/large" || name == "large"), "{names}");
        let answers = fs::read(test.path("answers")).unwrap();
        let mark = [0x80, 7, 0, 16];
        let at = answers.windows(4).position(|it| it == mark).unwrap() + 4;
        let token: [u8; 16] = answers[at..at + 16].try_into().unwrap();
        let hex: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        let words = Token::from_random(token).to_string();
        let mut seen = fs::read(test.path("seen")).unwrap();
        let holds = |seen: &[u8], it: &[u8]| seen.windows(it.len()).any(|part| part == it);
        assert!(holds(&seen, b"serve\0--ssh\0"));
        for log in ["first.log", "there.log", "words"] {
            seen.extend(fs::read(test.path(log)).unwrap());
        }
        seen.make_ascii_lowercase();
        for secret in [&token[..], hex.as_bytes(), words.to_lowercase().as_bytes()] {
            assert!(!holds(&seen, secret));
        }
    });
}

#[needs(sshd, namespaces)]
#[test]
fn data_goes_through_the_client_where_the_one_host_does_not_reach_the_other() {
    for rules in [DROPPED, NO_ROUTE] {
        limited(move |test| {
            make_tree(&test.path("first/tree"));
            fs::write(test.path("first/tree/large"), noise(3, 10_000_000)).unwrap();
            between(test, rules, ONCE);
            assert_same(&test.path("first/tree"), &test.there("copy"));
            let copied = report(test, "copy.json");
            assert_eq!((&copied["carrier"], &copied["verified"]), (&"ssh".into(), &true.into()));
            let notices = copied["notices"].to_string();
            assert!(notices.contains("data goes through the host of this command"), "{copied}");
            assert!(sent_by_client(test) > 10_000_000, "{}", sent_by_client(test));
        });
    }
}

#[needs(sshd, namespaces)]
#[test]
fn ctrl_c_and_a_kill_leave_no_process_at_either_host_and_the_same_command_goes_on() {
    for rules in [REACHED, DROPPED] {
        limited(move |test| {
            fs::create_dir(test.path("first")).unwrap();
            fs::write(test.path("first/big"), noise(1, 60_000_000)).unwrap();
            between(test, rules, STOPPED);
            assert_same(&test.path("first/big"), &test.there("big"));
            let stopped = report(test, "stopped.json");
            assert!(
                stopped["error"].to_string().contains("run the same command again"),
                "{stopped}"
            );
            assert!(stopped["bytes_done"].as_u64().unwrap() > 0, "{stopped}");
            let again = report(test, "again.json");
            assert!(again["resumed_bytes"].as_u64().unwrap() > 0, "{again}");
        });
    }
}

#[needs(sshd, namespaces)]
#[test]
fn a_wrong_host_key_of_the_destination_ends_it_before_anything_moves() {
    limited(|test| {
        make_tree(&test.path("first/tree"));
        between(test, WRONG_KEY, REFUSED);
        let failed = report(test, "copy.json");
        let error = failed["error"].as_str().unwrap();
        assert_eq!(error, "dtn2: ssh failed: Host key verification failed.", "{failed}");
        assert!(!test.there("copy").exists());
    });
}

/// A namespace of each host, a link to each, and one between them; `$0` is the program.
const LINKS: &str = r#"
program=$0
ip link set lo up
space() {
    unshare -n sleep 300 &
    host=$!
    until [ "$(readlink /proc/$host/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
}
space; one=$host
space; two=$host
trap 'kill $one $two $sshd1 $sshd2' EXIT
first="nsenter -t $one -n"
there="nsenter -t $two -n"
ip link add c1 type veth peer name a1 netns $one
ip link add c2 type veth peer name b2 netns $two
$first ip link add a3 type veth peer name b3 netns $two
ip addr add 10.79.1.1/24 dev c1
ip addr add 10.79.2.1/24 dev c2
ip link set c1 up
ip link set c2 up
$first ip link set lo up
$there ip link set lo up
$first ip addr add 10.79.1.2/24 dev a1
$there ip addr add 10.79.2.2/24 dev b2
$first ip addr add 10.79.3.1/24 dev a3
$there ip addr add 10.79.3.2/24 dev b3
$first ip link set a1 up
$there ip link set b2 up
$first ip link set a3 up
$there ip link set b3 up
"#;
const REACHED: &str = "$first ip route add 10.79.2.2/32 via 10.79.3.2\n";
const WRONG_KEY: &str = "$first ip route add 10.79.2.2/32 via 10.79.3.2 # as well\n";
const NO_ROUTE: &str = "\n";
/// A packet from the other host meets a rule for its route before that to this host.
const DROPPED: &str = r#"
$first ip route add 10.79.2.2/32 via 10.79.3.2
$there ip rule add pref 10 lookup local
$there ip rule del pref 0
$there ip rule add pref 5 iif b3 blackhole
"#;
const START: &str = r#"
$first /usr/sbin/sshd -D -e -f sshd_config.first 2> first.log &
sshd1=$!
$there /usr/sbin/sshd -D -e -f sshd_config 2> there.log &
sshd2=$!
for log in first.log there.log; do
    until grep -q "Server listening" $log; do sleep 0.1; done
done
over() { command=$1; shift; "$program" $command --json -e "ssh -F $PWD/ssh_config" "$@"; }
ours() { grep -lzs "^LONGHAUL_TEST_SSHD=$PWD\$" /proc/[0-9]*/environ || true; }
# The hosts are given five seconds, and what it takes to see that.
gone() {
    for tenth in $(seq 60); do
        [ -n "$(ours)" ] || return 0
        sleep 0.1
    done
    return 1
}
"#;
const OVER: &str = r#"
gone
ip -s -j link show dev c1 > link1.json
ip -s -j link show dev c2 > link2.json
"#;
const ONCE: &str = "over cp dtn1:tree dtn2:copy > copy.json\n";
const REFUSED: &str = "if over cp dtn1:tree dtn2:copy > copy.json; then exit 1; fi\n";
const STRAIGHT: &str = r#"
cat > noted << END
#!/bin/sh
ssh -F $PWD/ssh_config "\$@" | tee -a $PWD/answers
END
chmod +x noted
over cp dtn1:tree dtn2:copy > copy.json
"$program" cp -v --rate 100Mbps -e $PWD/noted dtn1:tree/. dtn2:again > names 2> words & copying=$!
while kill -0 $copying 2> /dev/null; do
    cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ >> seen 2> /dev/null || true
    sleep 0.05
done
wait $copying
"#;
const STOPPED: &str = r#"
record() { find there -name record -size +0 | xargs -r cat | wc -c; }
begin() {
    over cp --rate 100Mbps dtn1:big dtn2:big > $1 & copying=$!
    begun=$(record)
    until [ $(record) -gt $begun ]; do sleep 0.05; done
    longhaul=$(echo $(cat /proc/$copying/task/$copying/children))
}
begin killed.json
kill -9 $longhaul
if wait $copying; then exit 1; fi
gone
begin stopped.json
kill -INT $longhaul
if wait $copying; then exit 1; fi
gone
over cp dtn1:big dtn2:big > again.json
"#;
