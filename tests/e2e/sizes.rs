//! Paths and interfaces that take no packets as large as UDP needs them.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul::{CarrierChoice, ErrorKind, Kept, Stop, probe};
use longhaul_needs::needs;
use longhaul_sys::netns::{DEVICE, NetnsPair, Side};
use serde_json::Value;

use crate::program::{PROGRAM, Program};
use crate::relay::{Relay, Tap, Way};
use crate::server::{Copying, Server, connect_options, over, pull, push, run, slowly};
use crate::test::{Test, limited, until};
use crate::trees::{assert_same, make_tree, noise};

/// UDP payload that a path of 1,168 bytes leaves in IPv4.
const NARROW: usize = 1_140;
/// The largest size that is tried there, as an IP packet.
const PASSED: &str = "up to 1148";

/// Swallows what is larger than `most` on the `ways`.
fn narrow(most: &Arc<AtomicUsize>, ways: &'static [Way]) -> Tap {
    let most = most.clone();
    Box::new(move |way, datagram| {
        let passes = !ways.contains(&way) || datagram.len() <= most.load(Ordering::Relaxed);
        if passes { vec![datagram.to_vec()] } else { Vec::new() }
    })
}

fn always(most: usize, ways: &'static [Way]) -> Tap {
    narrow(&Arc::new(AtomicUsize::new(most)), ways)
}

const BOTH: &[Way] = &[Way::ToServer, Way::ToClient];

#[test]
fn tcp_takes_over_where_udp_does_not_fit_and_says_why() {
    limited(|test| {
        make_tree(&test.here("tree"));
        fs::write(test.there("f"), noise(1, 3_000_000)).unwrap();
        let server = Server::start(test);
        let relay = Relay::tapped(server.address, always(NARROW, BOTH));
        let pushed = run(test, &push(&test.here("tree"), relay.address, b"")).unwrap();
        assert_same(&test.here("tree"), &test.there("tree"));
        let pulled = run(test, &pull(relay.address, b"f", &test.here("f"))).unwrap();
        assert_same(&test.there("f"), &test.here("f"));
        for report in [pushed, pulled] {
            assert_eq!(report.link.carrier, "tcp");
            let names_sizes = |notice: &String| {
                notice.contains("1228") && notice.contains(PASSED) && notice.contains("TCP")
            };
            assert!(report.link.notices.iter().any(names_sizes), "{report:?}");
        }
    });
}

#[test]
fn tcp_takes_over_where_udp_fits_in_one_direction_only() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 1_000_000)).unwrap();
        let server = Server::start(test);
        for ways in [&[Way::ToServer][..], &[Way::ToClient]] {
            let relay = Relay::tapped(server.address, always(NARROW, ways));
            let to = format!("{ways:?}");
            let report = run(test, &push(&test.here("f"), relay.address, to.as_bytes())).unwrap();
            assert_same(&test.here("f"), &test.there(&to));
            // A server's feedback on what it gets fits smaller packets.
            let carrier = if ways == [Way::ToServer] { "tcp" } else { "udp" };
            assert_eq!(report.link.carrier, carrier);
            let back = test.here(&format!("back{to}"));
            let report = run(test, &pull(relay.address, to.as_bytes(), &back)).unwrap();
            assert_same(&test.here("f"), &back);
            assert_eq!(report.link.carrier, "tcp");
        }
    });
}

#[test]
fn a_pipe_takes_tcp_where_udp_does_not_fit() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 3_000_000)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let relay = Relay::tapped(at, always(NARROW, BOTH));
        let output = File::create(test.here("g")).unwrap();
        let receiver = Program::pipe(test, &["--receive"], relay.address, Stdio::null(), output);
        let input = File::open(test.here("f")).unwrap();
        let sender = Program::pipe(test, &[], relay.address, input, Stdio::piped());
        let (sender, receiver) = (sender.end(), receiver.end());
        sender.assert_succeeded();
        receiver.assert_succeeded();
        assert_eq!(sender.json()["carrier"], "tcp");
        assert!(fs::read(test.here("f")).unwrap() == fs::read(test.here("g")).unwrap());
    });
}

#[test]
fn a_pipe_whose_senders_path_shrinks_ends_and_its_name_is_another_pipes() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 30_000_000)).unwrap();
        fs::write(test.here("other"), noise(2, 1_000_000)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let most = Arc::new(AtomicUsize::new(usize::MAX));
        let relay = Relay::tapped(at, narrow(&most, BOTH));
        let receive = |name: &str| {
            let output = File::create(test.here(name)).unwrap();
            Program::pipe(test, &["--receive"], at, Stdio::null(), output)
        };
        let send = |name: &str, words: &[&str], at: SocketAddr| {
            let input = File::open(test.here(name)).unwrap();
            Program::pipe(test, words, at, input, Stdio::piped())
        };
        let receiver = receive("g");
        let sender = send("f", &["--rate", "50Mbps"], relay.address);
        until("some of it came through", || {
            (fs::metadata(test.here("g")).unwrap().len() > 0).then_some(())
        });
        most.store(NARROW, Ordering::Relaxed);
        sender.end().assert_failed("--carrier tcp");
        receiver.end().assert_failed("the sender vanished: ");
        let came = fs::read(test.here("g")).unwrap();
        assert!(fs::read(test.here("f")).unwrap().starts_with(&came));
        // As the sender was advised.
        let (receiver, sender) = (receive("g"), send("other", &["--carrier", "tcp"], at));
        sender.end().assert_succeeded();
        receiver.end().assert_succeeded();
        assert!(fs::read(test.here("g")).unwrap() == fs::read(test.here("other")).unwrap());
    });
}

#[test]
fn sizes_are_named_where_udp_was_asked_for_and_does_not_fit() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 1_000_000)).unwrap();
        let server = Server::start(test);
        let relay = Relay::tapped(server.address, always(NARROW, BOTH));
        for (profile, rate) in
            [("auto", None), ("rbudp", Some(longhaul_units::Rate::from_mbps(50)))]
        {
            let options = over(push(&test.here("f"), relay.address, b""), |by| {
                (by.carrier, by.rate) = (CarrierChoice::Udp, rate);
                by.profile = profile.into();
            });
            let error = run(test, &options).unwrap_err();
            let known = (error.kind, error.kept);
            assert_eq!(known, (ErrorKind::TooNarrow, Some(Kept::Nothing)), "{error}");
            let text = error.to_string();
            assert!(
                ["1228", PASSED, "--carrier tcp"].iter().all(|part| text.contains(part)),
                "{text}"
            );
            assert!(!test.there("f").exists());
        }
    });
}

#[test]
fn a_path_that_shrinks_ends_the_copy_which_keeps_what_came() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 8_000_000)).unwrap();
        let server = Server::start(test);
        for (direction, to) in [("push", "f"), ("pull", "f")] {
            let most = Arc::new(AtomicUsize::new(usize::MAX));
            let relay = Relay::tapped(server.address, narrow(&most, BOTH));
            let options = match direction {
                "push" => push(&test.here("f"), relay.address, to.as_bytes()),
                _ => pull(relay.address, to.as_bytes(), &test.here("back")),
            };
            let copying = Copying::start(test, slowly(options.clone()));
            copying.moved(5_000_000);
            most.store(1_122, Ordering::Relaxed);
            let error = copying.end().unwrap_err();
            let known = (error.kind, error.kept);
            assert_eq!(known, (ErrorKind::TooNarrow, Some(Kept::Written)), "{error}");
            let text = error.to_string();
            assert!(text.contains("1228") && text.contains("--carrier tcp"), "{text}");
            // Again, by TCP, from where it was.
            let report = run(test, &options).unwrap();
            assert_eq!(report.link.carrier, "tcp");
            assert!(report.resumed_bytes > 0, "{report:?}");
        }
        assert_same(&test.here("f"), &test.there("f"));
        assert_same(&test.here("f"), &test.here("back"));
    });
}

#[test]
fn a_probe_names_what_passed() {
    limited(|test| {
        let server = Server::start(test);
        for (most, passed) in [(NARROW, 1_148), (1_300, 1_260)] {
            let relay = Relay::tapped(server.address, always(most, BOTH));
            let options = connect_options(relay.address);
            let report = probe(&options, &Stop::default()).unwrap();
            assert_eq!(report.path_mtu, Some(passed), "{report:?}");
            assert!(report.udp_round_trip.is_some());
            assert_eq!(report.too_narrow.is_some(), most == NARROW, "{report:?}");
        }
    });
}

#[needs(namespaces)]
#[test]
fn an_interface_that_is_too_small_for_udp_is_named_at_once() {
    limited(|test| {
        let hosts = NetnsPair::new(1_000).unwrap();
        let server = server_behind(test, &hosts);
        tcp_stands_in(test, &hosts, server.address, &["takes 1000 at most"]);
        let at = format!("lh://{}", server.address);
        for (words, part) in [(&["--json"][..], "\"udp\":false"), (&[], "UDP does not fit")] {
            let words = [&["probe", "--token-file", "token", &at], words].concat();
            let probe = hosts.run_in(Side::A, || Program::start(test, &words)).unwrap().end();
            probe.assert_succeeded();
            let output = &probe.stdout;
            assert!(
                output.contains(part) && output.contains("IP packets of 1228 bytes"),
                "{probe:?}"
            );
            assert!(
                output.contains("takes 1000 at most") && output.contains("TCP carries"),
                "{probe:?}"
            );
            assert!(!output.contains("UDP passes") && !output.contains("open port"), "{probe:?}");
        }
    });
}

#[needs(namespaces)]
#[test]
fn a_device_that_refuses_what_its_far_end_does_not_take_is_found_out() {
    limited(|test| {
        let hosts = NetnsPair::new(1_500).unwrap();
        let server = server_behind(test, &hosts);
        hosts.side(Side::B).set_mtu(DEVICE, 1_150).unwrap();
        tcp_stands_in(test, &hosts, server.address, &["1228", PASSED, "--carrier tcp"]);
    });
}

/// TCP to a server beyond a router that drops packets above `most` bytes without an error: a push, then a
/// pull, with these `words`.
fn through_a_black_hole(test: &Test, most: &str, network: &[&str], words: &str) {
    fs::write(test.here("f"), noise(1, 3_000_000)).unwrap();
    let serve = format!(
        "exec {PROGRAM} serve --root there --allow-read --allow-write --listen [::]:7420 \
         --token-file token"
    );
    let cp = format!("{PROGRAM} cp --json --token-file token {words}");
    let command = format!("{cp} here/f lh://peer:7420/ && {cp} lh://peer:7420/f here/back");
    let path = ["lab", "path", "--rtt", "10ms", "--black-hole", "--path-mtu", most, "--json"];
    let words = [&path[..], network, &["--peer", &serve, "--", "sh", "-c", &command]].concat();
    let ended = Program::start(test, &words).end();
    ended.assert_succeeded();
    assert_eq!(ended.stderr.matches("\"carrier\":\"tcp\"").count(), 2, "{ended:?}");
    let notes =
        ended.stderr.lines().filter(|line| line.starts_with("note: ") && line.contains("576"));
    assert_eq!(notes.count(), 2, "{ended:?}");
    assert_same(&test.here("f"), &test.there("f"));
    assert_same(&test.here("f"), &test.here("back"));
}

#[needs(namespaces)]
#[test]
fn tcp_sends_smaller_packets_where_large_ones_vanish() {
    limited(|test| through_a_black_hole(test, "1150", &[], "--carrier tcp"));
}

#[needs(namespaces)]
#[test]
fn tcp_connects_where_hardly_anything_passes() {
    limited(|test| through_a_black_hole(test, "600", &[], "--carrier tcp --protect clear"));
}

#[needs(namespaces)]
#[test]
fn tcp_in_the_place_of_udp_sends_smaller_packets_where_large_ones_vanish() {
    limited(|test| through_a_black_hole(test, "1150", &["--swallow-udp"], ""));
}

#[needs(namespaces)]
#[test]
fn large_packets_that_vanish_in_mid_copy_end_it_by_name_and_tcp_goes_on_from_there() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 8_000_000)).unwrap();
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-e", "-c", BEHIND_A_ROUTER, PROGRAM]);
        let ended = Program::spawn(test, &mut command).end();
        ended.assert_succeeded();
        for name in ["push", "pull"] {
            let read =
                |part: &str| fs::read_to_string(test.path(&format!("{name}.{part}"))).unwrap();
            let failure = read("failed");
            let words =
                ["packets of 1500 bytes do not come through by TCP", "tcp_mtu_probing", "kept"];
            assert!(words.iter().all(|part| failure.contains(part)), "{failure}");
            let report: Value = serde_json::from_str(&read("json")).unwrap();
            assert!(report["resumed_bytes"].as_u64() > Some(0), "{report}");
            assert_eq!(report["verified"], true, "{report}");
        }
        assert_same(&test.here("f"), &test.there("f"));
        assert_same(&test.here("f"), &test.here("back"));
    });
}

#[needs(namespaces)]
#[test]
fn a_pipe_whose_large_packets_vanish_ends_by_name_at_both_ends() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 3_000_000)).unwrap();
        let pipe = format!("{PROGRAM} pipe --carrier tcp --token-file token lh://peer:7420/p");
        let receiver = format!(
            "{PROGRAM} serve --root there --listen [::]:7420 --token-file token 2> log & \
             until grep -q listening log; do sleep 0.1; done; \
             {pipe} --receive > out 2> received; echo $? > status"
        );
        let sender = format!(
            "until grep -q 'receives from' log; do sleep 0.1; done; \
             {pipe} < here/f && exit 9; until [ -s status ]; do sleep 0.1; done"
        );
        let path = ["lab", "path", "--rtt", "10ms", "--black-hole", "--path-mtu", "1150"];
        let words = [&path[..], &["--peer", &receiver, "--", "sh", "-c", &sender]].concat();
        let ended = Program::start(test, &words).end();
        ended.assert_succeeded();
        let reason = "packets of 1500 bytes do not come through by TCP";
        assert!(ended.stderr.contains(&format!("the pipe broke: {reason}")), "{ended:?}");
        let received = fs::read_to_string(test.path("received")).unwrap();
        assert!(received.contains(&format!("the sender vanished: {reason}")), "{received}");
        assert_eq!(fs::read_to_string(test.path("status")).unwrap(), "1\n");
        assert!(fs::read(test.path("out")).unwrap().is_empty());
    });
}

/// A copy each way to a server behind a router, whose receiver takes smaller packets from some time on; `$0`
/// is the program. No device may put together what the path takes piece by piece.
const BEHIND_A_ROUTER: &str = r#"
ip link set lo up
unshare -n sleep 300 & router=$!
unshare -n sleep 300 & host=$!
trap 'kill $router $host $server' EXIT
for one in $router $host; do
    until [ "$(readlink /proc/$one/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
done
between="nsenter -t $router -n"
there="nsenter -t $host -n"
ip link add here type veth peer name r0 netns $router
$between ip link add r1 type veth peer name there netns $host
ip addr add 10.77.0.1/24 dev here
$between ip addr add 10.77.0.2/24 dev r0
$between ip addr add 10.77.1.2/24 dev r1
$there ip addr add 10.77.1.1/24 dev there
ip link set here up gso_max_segs 1
$between ip link set r0 up
$between ip link set r1 up
$there ip link set there up gso_max_segs 1
ip route add default via 10.77.0.2
$there ip route add default via 10.77.1.2
$between sysctl -qw net.ipv4.ip_forward=1
$there "$0" serve --listen 0.0.0.0:7420 --root there --token-file token 2> log & server=$!
until grep -q listening log; do sleep 0.1; done
copy() { "$0" cp --json --carrier tcp --token-file token "$@"; }
# Bytes that a device of the client has received and sent.
count() { awk '$1 == "here:" { print $2 + $10 }' /proc/net/dev; }
# NAME NARROW WIDE SOURCE DESTINATION
shrinking() {
    from=$(count)
    copy --rate 10Mbps $4 $5 2> $1.failed > $1.ended & copying=$!
    until [ $(count) -gt $((from + 3000000)) ]; do kill -0 $copying; sleep 0.05; done
    $2
    if wait $copying; then exit 1; fi
    copy $4 $5 > $1.json
    $3
}
server_takes() { $there ip link set there mtu $1; }
client_takes() { ip link set here mtu $1; }
shrinking push "server_takes 1150" "server_takes 1500" here/f lh://10.77.1.1/f
shrinking pull "client_takes 1150" "client_takes 1500" lh://10.77.1.1/f here/back
"#;

fn server_behind(test: &Test, hosts: &NetnsPair) -> Server {
    let listen = SocketAddr::new(Side::B.ipv4(), 0);
    hosts.run_in(Side::B, || Server::with(test, |options| options.listen = listen)).unwrap()
}

/// A copy that asks for UDP fails with the reason in these `words`; else TCP carries.
fn tcp_stands_in(test: &Test, hosts: &NetnsPair, server: SocketAddr, words: &[&str]) {
    fs::write(test.here("f"), noise(1, 3_000_000)).unwrap();
    let options = push(&test.here("f"), server, b"f");
    let udp = over(options.clone(), |by| by.carrier = CarrierChoice::Udp);
    let error = hosts.run_in(Side::A, || run(test, &udp)).unwrap().unwrap_err().to_string();
    assert!(words.iter().all(|part| error.contains(part)), "{error}");
    let report = hosts.run_in(Side::A, || run(test, &options)).unwrap().unwrap();
    assert_eq!(report.link.carrier, "tcp");
    assert_same(&test.here("f"), &test.there("f"));
}
