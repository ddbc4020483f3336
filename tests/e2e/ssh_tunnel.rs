//! Copies over ssh behind firewalls, between namespaces.

use std::fs;
use std::process::Command;

use longhaul_needs::needs;
use serde_json::Value;

use crate::firewall::let_in_answers;
use crate::program::{PROGRAM, Program};
use crate::ssh::{Login, configure};
use crate::test::{Test, limited, until};
use crate::trees::{assert_same, make_tree, noise};

/// Runs `script` on a link to a namespace with an ssh server, and a firewall as `rules` say.
fn behind(test: &Test, rules: &str, script: &str) {
    configure(test, &Login::After(""), ("10.78.0.2", 2222));
    let mut command = Command::new("unshare");
    let script = format!("{LINK}{rules}{START}{script}");
    command.args(["-n", "sh", "-e", "-c", &script, PROGRAM]);
    let running = Program::spawn(test, &mut command);
    let host = until("the namespace", || {
        fs::read_to_string(test.path("host")).ok().and_then(|text| text.trim().parse().ok())
    });
    if rules == STATEFUL {
        let_in_answers(host, 2222);
    }
    fs::write(test.path("ready"), "").unwrap();
    running.end().assert_succeeded();
}

fn report(test: &Test, name: &str) -> Value {
    let text = fs::read_to_string(test.path(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
}

fn assert_noted(report: &Value, part: &str) {
    assert!(report["notices"].to_string().contains(part), "{report}");
}

#[needs(sshd, namespaces)]
#[test]
fn data_goes_through_ssh_where_all_ports_are_dropped() {
    limited(|test| {
        make_tree(&test.here("tree"));
        fs::write(test.here("tree/large"), noise(3, 30_000_000)).unwrap();
        behind(test, ALL_DROPPED, BOTH_WAYS);
        for (name, there) in [("push.json", true), ("pull.json", false)] {
            let copied = if there { test.there("copy") } else { test.here("back") };
            assert_same(&test.here("tree"), &copied);
            let report = report(test, name);
            assert_eq!((&report["carrier"], &report["verified"]), (&"ssh".into(), &true.into()));
            assert_noted(&report, "neither TCP nor UDP comes through to 10.78.0.2");
            assert_noted(&report, "data goes through ssh");
            for field in ["lost", "rtt_ms", "packets_sent"] {
                assert_eq!(report[field], Value::Null, "{report}");
            }
        }
        let forced = report(test, "tcp.json");
        assert_eq!(forced["carrier"], "ssh");
        assert_noted(&forced, "no TCP connection comes through to 10.78.0.2:");
        let listed = report(test, "ls.json");
        assert_eq!(listed["listed"], 3, "{listed}");
        let refused = fs::read_to_string(test.path("udp.json")).unwrap();
        assert!(refused.contains("UDP"), "{refused}");
    });
}

#[needs(sshd, namespaces)]
#[test]
fn first_packets_of_both_ends_open_a_stateful_firewall_of_the_servers_to_udp() {
    limited(|test| {
        make_tree(&test.here("tree"));
        behind(test, STATEFUL, TO_AND_FRO);
        for name in ["push.json", "pull.json"] {
            let report = report(test, name);
            assert_eq!(report["carrier"], "udp", "{report}");
            assert_noted(&report, "the control connection goes through ssh");
        }
        assert_same(&test.here("tree"), &test.there("copy"));
        assert_same(&test.here("tree"), &test.here("back"));
    });
}

#[needs(sshd, namespaces)]
#[test]
fn tcp_carries_beside_ssh_where_only_udp_is_dropped() {
    limited(|test| {
        make_tree(&test.here("tree"));
        behind(test, UDP_DROPPED, BOTH_WAYS);
        for name in ["push.json", "pull.json"] {
            let report = report(test, name);
            assert_eq!(report["carrier"], "tcp", "{report}");
            assert_noted(&report, "TCP carries instead");
        }
        assert_same(&test.here("tree"), &test.there("copy"));
        assert_same(&test.here("tree"), &test.here("back"));
    });
}

#[needs(sshd, namespaces)]
#[test]
fn where_ssh_that_carries_is_killed_the_server_ends_and_the_same_command_goes_on() {
    limited(|test| {
        fs::write(test.here("big"), noise(1, 60_000_000)).unwrap();
        behind(test, ALL_DROPPED, KILLED);
        assert_same(&test.here("big"), &test.there("big"));
        let failed = report(test, "failed.json");
        assert!(failed["error"].to_string().contains("run the same command again"), "{failed}");
        let again = report(test, "again.json");
        assert_eq!(again["carrier"], "ssh", "{again}");
        assert!(again["resumed_bytes"].as_u64().unwrap() > 0, "{again}");
    });
}

/// A namespace of the server's, and a link to it; `$0` is the program.
const LINK: &str = r#"
ip link set lo up
unshare -n sleep 300 &
host=$!
trap 'kill $host $sshd' EXIT
until [ "$(readlink /proc/$host/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
there="nsenter -t $host -n"
ip link add a0 type veth peer name b0 netns $host
ip addr add 10.78.0.1/24 dev a0
ip link set a0 up
$there ip link set lo up
$there ip addr add 10.78.0.2/24 dev b0
$there ip link set b0 up
echo $host > host.new
mv host.new host
until [ -e ready ]; do sleep 0.05; done
"#;
/// Packets that the server has not asked for stay out, but for ssh.
const STATEFUL: &str = "# stateful\n";
/// A packet to the server by UDP, or by TCP to another port than that of ssh, meets a rule for its route
/// before that to this host.
const UDP_DROPPED: &str = r#"
$there ip rule add pref 10 lookup local
$there ip rule del pref 0
$there ip rule add pref 5 iif b0 ipproto udp blackhole
"#;
const ALL_DROPPED: &str = r#"
$there ip rule add pref 10 lookup local
$there ip rule del pref 0
$there ip rule add pref 5 iif b0 ipproto udp blackhole
$there ip rule add pref 6 iif b0 ipproto tcp dport 1-2221 blackhole
$there ip rule add pref 7 iif b0 ipproto tcp dport 2223-65534 blackhole
"#;
const START: &str = r#"
$there /usr/sbin/sshd -D -e -f sshd_config 2> sshd.log &
sshd=$!
until grep -q "Server listening" sshd.log; do sleep 0.1; done
over() { command=$1; shift; "$program" $command --json -e "ssh -F $PWD/ssh_config" "$@"; }
program=$0
"#;
const TO_AND_FRO: &str = r#"
over cp --lanes 3 here/tree dtn2:copy > push.json
over cp dtn2:copy here/back > pull.json
"#;
const BOTH_WAYS: &str = r#"
over cp here/tree dtn2:copy > push.json
over cp dtn2:copy here/back > pull.json
over cp --carrier tcp here/tree/a dtn2:tcp > tcp.json
over ls dtn2:copy/a > ls.json
if over cp --carrier udp here/tree dtn2:none > udp.json; then exit 1; fi
"#;
/// The server is given five seconds, and what it takes to see that.
const KILLED: &str = r#"
over cp --retry 0 --rate 100Mbps here/big dtn2:big > failed.json & copying=$!
record() { find there -name record -size +0 | xargs -r cat | wc -c; }
until [ $(record) -gt 0 ]; do sleep 0.05; done
begun=$(record)
until [ $(record) -gt $begun ]; do sleep 0.05; done
program_of_it=$(echo $(cat /proc/$copying/task/$copying/children))
kill -9 $(cat /proc/$program_of_it/task/$program_of_it/children)
if wait $copying; then exit 1; fi
ours() { grep -lzs "^LONGHAUL_TEST_SSHD=$PWD\$" /proc/[0-9]*/environ || true; }
for tenth in $(seq 60); do
    [ -n "$(ours)" ] || break
    sleep 0.1
done
[ -z "$(ours)" ]
over cp here/big dtn2:big > again.json
"#;
