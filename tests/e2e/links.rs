//! Several links to one server: loopback addresses, and links between two namespaces that die and come
//! back.

use std::fs;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use longhaul_needs::needs;
use serde_json::Value;

use crate::program::{PROGRAM, Program};
use crate::test::{Test, limited};
use crate::trees::{assert_same, make_tree, noise};

/// So slow that the lanes of one link do not take everything before the others have looked.
const LIMITED: [&str; 2] = ["--rate", "160Mbps"];

fn bytes(report: &Value, link: usize, way: &str) -> u64 {
    report["links"][link][way].as_u64().unwrap_or_else(|| panic!("{report}"))
}

fn both_ways(test: &Test, at: SocketAddr, words: &[&str]) -> [Value; 2] {
    let there = format!("lh://127.0.0.1:{}/copy", at.port());
    let push = Program::cp(test, &[words, &["here/tree", &there]].concat()).end();
    push.assert_succeeded();
    assert_same(&test.here("tree"), &test.there("copy"));
    let pull = Program::cp(test, &[words, &[&there, "here/back"]].concat()).end();
    pull.assert_succeeded();
    assert_same(&test.here("tree"), &test.here("back"));
    [push.json(), pull.json()]
}

#[test]
fn both_links_carry_data_in_a_push_and_in_a_pull() {
    limited(|test| {
        make_tree(&test.here("tree"));
        fs::write(test.here("tree/large"), noise(3, 60_000_000)).unwrap();
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        // Of two addresses at each end, and of one address here and two there.
        for second in ["127.0.0.2,127.0.0.3,weight=2", "127.0.0.1,127.0.0.3,weight=2"] {
            let links = ["--link", "127.0.0.1,127.0.0.1", "--link", second, "--lanes", "3"];
            let words = [&links[..], &LIMITED].concat();
            let [push, pull] = both_ways(test, at, &words);
            for link in [0, 1] {
                assert!(bytes(&push, link, "sent_bytes") > 1_000_000, "{push}");
                assert!(bytes(&pull, link, "received_bytes") > 1_000_000, "{pull}");
                assert_eq!(push["links"][link]["alive"], true, "{push}");
            }
            assert_eq!(push["links"][1]["weight"], 2);
            assert_eq!(push["links"][1]["remote"], "127.0.0.3");
            fs::remove_dir_all(test.there("copy")).unwrap();
            fs::remove_dir_all(test.here("back")).unwrap();
        }
    });
}

#[test]
fn one_link_may_be_named_and_one_kept_for_need() {
    limited(|test| {
        make_tree(&test.here("tree"));
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        let [push, _] = both_ways(test, at, &["--link", "127.0.0.5"]);
        assert_eq!(push["links"].as_array().unwrap().len(), 1, "{push}");
        assert_eq!(push["links"][0]["local"], "127.0.0.5", "{push}");
        fs::remove_dir_all(test.there("copy")).unwrap();
        fs::remove_dir_all(test.here("back")).unwrap();
        let words = ["--link", "", "--link", "127.0.0.2,127.0.0.3,weight=0", "--lanes", "2"];
        let [push, _] = both_ways(test, at, &words);
        assert_eq!(bytes(&push, 1, "sent_bytes"), 0, "{push}");
    });
}

#[test]
fn a_link_that_carries_nothing_is_left() {
    limited(|test| {
        make_tree(&test.here("tree"));
        // At the far end of one link nobody listens.
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        for dead in [0, 1] {
            let mut words = ["--link", "127.0.0.1", "--link", ",127.0.0.9"];
            words.swap(1, 1 + 2 * (1 - dead));
            let reports = both_ways(test, at, &words);
            for report in &reports {
                assert_eq!(report["links"][dead]["alive"], false, "{report}");
                assert_eq!(report["links"][1 - dead]["alive"], true, "{report}");
            }
            fs::remove_dir_all(test.there("copy")).unwrap();
            fs::remove_dir_all(test.here("back")).unwrap();
        }
    });
}

#[test]
fn both_ends_of_a_pipe_may_have_two_links() {
    limited(|test| {
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        let at = SocketAddr::new([127, 0, 0, 1].into(), at.port());
        let (input, mut writer) = io::pipe().unwrap();
        let (mut reader, output) = io::pipe().unwrap();
        let links = ["--link", "127.0.0.1", "--link", "127.0.0.2,127.0.0.3"];
        let links = [&links[..], &LIMITED].concat();
        let sender = Program::pipe(test, &links, at, input, Stdio::piped());
        let words = [&links[..], &["--receive"]].concat();
        let receiver = Program::pipe(test, &words, at, Stdio::null(), output);
        let data = noise(4, 40_000_000);
        let sent = data.clone();
        let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        writing.join().unwrap();
        assert!(got == data);
        let (sender, receiver) = (sender.end(), receiver.end());
        sender.assert_succeeded();
        receiver.assert_succeeded();
        for link in [0, 1] {
            assert!(bytes(&sender.json(), link, "sent_bytes") > 1_000_000, "{sender:?}");
            let report = receiver.json_beside_data();
            assert!(bytes(&report, link, "received_bytes") > 1_000_000, "{report}");
        }
    });
}

#[test]
fn links_that_cannot_be_are_refused_before_anything_is_sent() {
    limited(|test| {
        fs::write(test.here("file"), b"x").unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let there = format!("lh://{at}/copy");
        let two = ["--link", "127.0.0.1", "--link", "127.0.0.2"];
        for (words, why) in [
            (&["--link", "eth0"][..], "is no IP address"),
            (&["--link", "192.0.2.77"], "192.0.2.77 is no address of this host"),
            (&["--link", "127.0.0.1", "--link", "127.0.0.1"], "from 127.0.0.1 twice"),
            (&["--link", ",::1", "--link", "127.0.0.1,::1"], "one of IPv6"),
            (&["--link", "127.0.0.1,weight=65"], "from 0 to 64"),
            (&["--link", "127.0.0.1,weight=0"], "a weight above 0"),
            (&["--carrier", "tcp", "--link", "127.0.0.1"], "not TCP connections"),
            (&["--circuit", "http://127.0.0.1:1", "--link", "127.0.0.1"], "cannot be used with"),
            (&[&two[..], &["--profile", "trc", "--rate", "1Gbps"]].concat(), "over one link"),
            // An error that only shows when the server's address is known.
            (&["--link", "", "--link", "127.0.0.1,127.0.0.1"], "the same one, from 127.0.0.1"),
            (&["--link", "::1"], "name both where"),
        ] {
            let ended = Program::cp(test, &[words, &["here/file", &there]].concat()).end();
            assert_eq!(ended.status, Some(2), "{ended:?}");
            assert!(ended.stderr.contains(why), "{why:?} is not in {ended:?}");
        }
        assert!(!test.there("copy").exists());
    });
}

/// Runs `script` behind two links, `a0` and `a1`, to a server at 10.77.0.2 and 10.77.1.2.
fn between_namespaces(test: &Test, script: &str) -> [Value; 2] {
    fs::write(test.here("file"), noise(5, 40_000_000)).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-e", "-c", &format!("{TWO_LINKS}{script}"), PROGRAM]);
    Program::spawn(test, &mut command).end().assert_succeeded();
    assert_same(&test.here("file"), &test.there("copy"));
    assert_same(&test.here("file"), &test.here("back"));
    ["push.json", "pull.json"]
        .map(|name| serde_json::from_str(&fs::read_to_string(test.path(name)).unwrap()).unwrap())
}

#[needs(namespaces)]
#[test]
fn a_link_that_goes_down_is_left_and_used_again_when_it_is_back() {
    limited(|test| {
        let reports = between_namespaces(test, FIRST_LINK_DOWN);
        for (report, way) in reports.iter().zip(["sent_bytes", "received_bytes"]) {
            assert_eq!(report["verified"], true, "{report}");
            let carried = [0, 1].map(|link| bytes(report, link, way));
            assert!(carried[0] > 2_000_000 && carried[1] > 2_000_000, "{report}");
            assert!(carried[0] + carried[1] > 40_000_000, "{report}");
        }
    });
}

#[needs(namespaces)]
#[test]
fn a_link_that_goes_down_at_the_server_is_left() {
    limited(|test| {
        let reports = between_namespaces(test, SECOND_LINK_DOWN_AT_SERVER);
        for report in &reports {
            assert_eq!(report["verified"], true, "{report}");
            assert_eq!(report["links"][0]["alive"], true, "{report}");
            assert_eq!(report["links"][1]["alive"], false, "{report}");
        }
    });
}

#[needs(namespaces)]
#[test]
fn a_first_link_without_a_way_at_the_start_is_used_once_there_is_one() {
    limited(|test| {
        let reports = between_namespaces(test, FIRST_LINK_DOWN_AT_THE_START);
        for (report, way) in reports.iter().zip(["sent_bytes", "received_bytes"]) {
            assert_eq!(report["verified"], true, "{report}");
            assert_eq!(report["links"][0]["remote"], "10.77.0.2", "{report}");
            let carried = [0, 1].map(|link| bytes(report, link, way));
            assert!(carried[0] > 500_000 && carried[1] > 2_000_000, "{report}");
        }
    });
}

#[needs(namespaces)]
#[test]
fn a_link_that_is_too_small_for_udp_is_left_out_with_a_notice() {
    limited(|test| {
        let [push, pull] = between_namespaces(test, SECOND_LINK_NARROW);
        for report in [&push, &pull] {
            assert_eq!(report["verified"], true, "{report}");
            assert_eq!(report["links"][0]["alive"], true, "{report}");
            assert_eq!(report["links"][1]["alive"], false, "{report}");
        }
        // In a pull the server may find it out first, and ask.
        let notices = push["notices"].to_string();
        let named = ["10.77.1.1", "10.77.1.2", "left out", "1228"];
        assert!(named.iter().all(|part| notices.contains(part)), "{push}");
    });
}

#[needs(namespaces)]
#[test]
fn the_link_of_the_control_connection_may_be_too_small_for_udp() {
    limited(|test| {
        let reports = between_namespaces(test, FIRST_LINK_NARROW);
        for report in &reports {
            assert_eq!(report["verified"], true, "{report}");
            let alive = [0, 1].map(|link| report["links"][link]["alive"].as_bool().unwrap());
            assert_eq!(alive, [false, true], "{report}");
            let notices = report["notices"].to_string();
            let named = ["10.77.0.1 to 10.77.0.2 is left out", "takes 1150 at most"];
            assert!(named.iter().all(|part| notices.contains(part)), "{report}");
        }
        let failed = fs::read_to_string(test.path("failed")).unwrap();
        let named = ["takes 1150 at most", "no --link is left", "--carrier tcp"];
        assert!(named.iter().all(|part| failed.contains(part)), "{failed}");
    });
}

/// A namespace of the server's, two links to it, and what the scripts below use; `$0` is the program.
const TWO_LINKS: &str = r#"
ip link set lo up
unshare -n sleep 300 &
host=$!
trap 'kill $host $server' EXIT
until [ "$(readlink /proc/$host/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
there="nsenter -t $host -n"
for link in 0 1; do
    ip link add a$link type veth peer name b$link netns $host
    ip addr add 10.77.$link.1/24 dev a$link
    ip link set a$link up
    $there ip addr add 10.77.$link.2/24 dev b$link
    $there ip link set b$link up
done
$there "$0" serve --listen 0.0.0.0:7420 --root there --token-file token 2> log &
server=$!
until grep -q listening log; do sleep 0.1; done
copy() {
    links='--link 10.77.0.1,10.77.0.2 --link 10.77.1.1,10.77.1.2'
    "$0" cp --json --rate 20Mbps $links --lanes 4 --token-file token "$@"
}
# Bytes that came over a link, or left.
count() { awk -v link="$1:" '$1 == link { print $2 + $10 }' /proc/net/dev; }
# Until the link has carried a megabyte more, or the copy is over.
await() {
    from=$(count $1)
    until [ $(count $1) -gt $((from + 1000000)) ]; do kill -0 $copying; sleep 0.05; done
}
"#;
/// The link of the control connection and of messages, in a push and in a pull: down until the other one
/// has carried what takes it some three seconds: it is tried again after five, and then only after ten more.
const FIRST_LINK_DOWN: &str = r#"
down() {
    await a0
    ip link set a0 down
    for megabyte in 1 2 3 4 5 6 7; do await a1; done
    ip link set a0 up
    await a0
    wait $copying
}
copy here/file lh://10.77.0.2/copy > push.json & copying=$!
down
copy lh://10.77.0.2/copy here/back > pull.json & copying=$!
down
"#;
const FIRST_LINK_DOWN_AT_THE_START: &str = r#"
down() { await a1; await a1; ip link set a0 up; await a0; wait $copying; }
ip link set a0 down
copy here/file lh://10.77.1.2/copy > push.json & copying=$!
down
ip link set a0 down
copy lh://10.77.1.2/copy here/back > pull.json & copying=$!
down
"#;
const SECOND_LINK_DOWN_AT_SERVER: &str = r#"
down() { await a1; $there ip link set b1 down; wait $copying; $there ip link set b1 up; }
copy here/file lh://10.77.0.2/copy > push.json & copying=$!
down
copy lh://10.77.0.2/copy here/back > pull.json & copying=$!
down
"#;
/// Its far end takes no larger packets, which this one does not know.
const SECOND_LINK_NARROW: &str = r#"
$there ip link set b1 mtu 1150
copy here/file lh://10.77.0.2/copy > push.json
copy lh://10.77.0.2/copy here/back > pull.json
"#;
/// The client's interface takes no larger ones, whichever link it has reached the server by; then neither does.
const FIRST_LINK_NARROW: &str = r#"
ip link set a0 mtu 1150
head -c 1000000 here/file > here/small
for n in 1 2 3 4; do
    copy here/small lh://10.77.0.2/$n > small.json
    copy here/small lh://10.77.1.2/1$n > small.json
done
copy here/file lh://10.77.0.2/copy > push.json
copy lh://10.77.0.2/copy here/back > pull.json
ip link set a1 mtu 1150
if copy here/file lh://10.77.0.2/none > failed; then exit 1; fi
"#;
