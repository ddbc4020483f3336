//! Reports of copies and probes on the hosts at both ends.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use longhaul::{CarrierChoice, Stop, probe};
use longhaul_needs::needs;
use longhaul_sys::netns::{NetnsPair, Side};
use longhaul_units::{Bytes, Rate};
use longhaul_wire::HostAccount;
use serde_json::json;

use crate::program::Program;
use crate::server::{Server, connect_options, over, pull, push, run};
use crate::test::{limited, token};
use crate::trees::noise;

#[test]
fn both_ends_say_how_their_hosts_fared() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 3_000_000)).unwrap();
        let server = Server::start(test);
        for (carrier, profile, watches) in [
            (CarrierChoice::Udp, "auto", true),
            (CarrierChoice::Udp, "fixed", false),
            (CarrierChoice::Tcp, "auto", false),
        ] {
            for options in [
                push(&test.here("f"), server.address, b"g"),
                pull(server.address, b"g", &test.here("g")),
            ] {
                let rate = Some(Rate::from_mbps(500));
                let profile = profile.into();
                let options = over(options, |by| {
                    (by.carrier, by.profile, by.rate) = (carrier, profile, rate);
                });
                let report = run(test, &options).unwrap();
                let hosts = report.link.hosts;
                for host in [hosts.sender, hosts.receiver] {
                    let host = host.expect("both tell");
                    assert!(!host.cpu_time.is_zero(), "{host:?}");
                    let udp = carrier == CarrierChoice::Udp;
                    assert_eq!(host.buffer_granted > Bytes::ZERO, udp, "{host:?}");
                    assert_eq!(host.remedies & HostAccount::WATCHES != 0, watches, "{host:?}");
                }
            }
        }
    });
}

#[test]
fn a_server_that_serves_once_is_not_ended_by_a_probe() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 300_000)).unwrap();
        let server = Server::with(test, |options| options.once = true);
        probe(&connect_options(server.address), &Stop::default()).unwrap();
        let report = run(test, &push(&test.here("f"), server.address, b"g")).unwrap();
        let receiver = report.link.hosts.receiver.expect("it tells");
        assert_ne!(receiver.remedies & HostAccount::WRITERS_SHORT_TURNS, 0, "{receiver:?}");
        server.join();
    });
}

#[test]
fn a_probe_asks_for_nothing_and_the_server_serves_on() {
    limited(|test| {
        fs::write(test.here("f"), b"data").unwrap();
        let server = Server::start(test);
        let mut options = connect_options(server.address);
        let report = probe(&options, &Stop::default()).unwrap();
        assert_eq!(report.server, server.address);
        assert!(report.udp_round_trip.is_some() && report.known.is_none(), "{report:?}");
        assert!(report.path_mtu.is_some_and(|mtu| mtu > 1_228), "{report:?}");
        assert!(report.buffer_there.is_some_and(|size| size > Bytes::ZERO), "{report:?}");
        assert!(report.encrypts > Rate::from_mbps(1), "{report:?}");
        assert!(fs::read_dir(test.path("there")).unwrap().next().is_none(), "nothing was written");
        let at = format!("lh://{}", server.address);
        let show = |words: &[&str]| {
            Program::start(test, &[&["probe", "--token-file", "token", &at], words].concat()).end()
        };
        assert_eq!(show(&["--json"]).json()["notices"], json!(report.notices));
        let shown = show(&[]).stdout;
        let notes = shown.lines().filter_map(|line| line.strip_prefix("note     "));
        assert!(notes.eq(report.notices.iter().map(String::as_str)), "{shown}");
        run(test, &push(&test.here("f"), server.address, b"g")).unwrap();
        options.token = token(2);
        assert!(probe(&options, &Stop::default()).is_err());
    });
}

#[needs(namespaces)]
#[test]
fn a_probe_of_a_host_that_sends_no_udp_says_so_and_finds_out_the_rest() {
    limited(|test| {
        let hosts = NetnsPair::new(1_500).unwrap();
        let listen = SocketAddr::new(Side::B.ipv4(), 0);
        let server =
            hosts.run_in(Side::B, || Server::with(test, |options| options.listen = listen));
        let server = server.unwrap();
        let at = format!("lh://{}", server.address);
        let words = ["rule", "add", "pref", "10", "ipproto", "udp", "unreachable"];
        let run = || Command::new("ip").args(words).status().unwrap();
        assert!(hosts.run_in(Side::A, run).unwrap().success());
        let probe = |words: &[&str]| {
            let words = [&["probe", "--token-file", "token", &at], words].concat();
            let ended = hosts.run_in(Side::A, || Program::start(test, &words)).unwrap().end();
            ended.assert_succeeded();
            assert!(!format!("{ended:?}").contains("--carrier"), "probe has none: {ended:?}");
            ended
        };
        let words = probe(&[]).stdout;
        assert!(words.contains("this host sends no UDP there, TCP carries"), "{words}");
        assert!(words.contains("cannot send UDP from ") && !words.contains("open port"), "{words}");
        let found = probe(&["--json"]).json();
        assert_eq!((&found["udp"], &found["rtt_ms"]), (&false.into(), &().into()), "{found}");
        assert!(found["tcp_rtt_ms"].as_f64() > Some(0.0), "{found}");
        assert!(found["socket_buffers"]["here"]["granted"].as_u64() > Some(0), "{found}");
    });
}
