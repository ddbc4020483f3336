//! Networks that let TCP pass and swallow UDP.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use longhaul::{CarrierChoice, ErrorKind, Kept, ServeEvent};
use longhaul_history::{History, unix_time};
use longhaul_needs::needs;

use crate::program::{PROGRAM, Program};
use crate::relay::{Relay, StreamTap, Way};
use crate::server::{Copying, Server, over, pull, push, run, slowly};
use crate::test::limited;
use crate::trees::{assert_same, make_tree, noise};

#[test]
fn tcp_takes_over_where_udp_is_blocked_and_says_so() {
    limited(|test| {
        make_tree(&test.here("tree"));
        let server = Server::start(test);
        let relay = Relay::start(server.address);
        relay.block_udp();
        let report = run(test, &push(&test.here("tree"), relay.address, b"")).unwrap();
        assert_same(&test.here("tree"), &test.there("tree"));
        assert_eq!(report.link.carrier, "tcp");
        let names_tcp = |notice: &String| notice.contains("TCP carries instead");
        assert!(report.link.notices.iter().any(names_tcp), "{report:?}");

        let report = run(test, &pull(relay.address, b"tree", &test.here("back"))).unwrap();
        assert_same(&test.here("tree"), &test.here("back"));
        assert_eq!(report.link.carrier, "tcp");
    });
}

#[test]
fn tcp_takes_over_where_udp_passes_in_one_direction() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 1_000_000)).unwrap();
        let server = Server::start(test);
        for lost in [Way::ToClient, Way::ToServer] {
            let tap = move |way, datagram: &[u8]| match way == lost {
                true => Vec::new(),
                false => vec![datagram.to_vec()],
            };
            let relay = Relay::tapped(server.address, Box::new(tap));
            let to = format!("{lost:?}");
            let report = run(test, &push(&test.here("f"), relay.address, to.as_bytes())).unwrap();
            assert_eq!(report.link.carrier, "tcp");
            assert_same(&test.here("f"), &test.there(&to));
        }
    });
}

#[test]
fn tcp_joins_the_connection_that_udp_was_to_carry() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 1_000_000)).unwrap();
        let server =
            Server::with(test, |options| (options.once, options.connections_max) = (true, 1));
        let relay = Relay::start(server.address);
        relay.block_udp();
        let report = run(test, &push(&test.here("f"), relay.address, b"")).unwrap();
        assert_same(&test.here("f"), &test.there("f"));
        assert_eq!(report.link.carrier, "tcp");
        // One connection was served, one request was made, in one place.
        let begun = |event: &ServeEvent| matches!(event, ServeEvent::Began { .. });
        assert_eq!(server.outcome(), Ok(1_000_000));
        assert_eq!(server.events().iter().filter(|event| begun(event)).count(), 1);
        server.join();
    });
}

#[test]
fn udp_that_answers_while_tcp_is_opened_wins() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 1_000_000)).unwrap();
        let server = Server::start(test);
        let passes = Arc::new(AtomicBool::new(false));
        let udp = passes.clone();
        let tap = move |_, datagram: &[u8]| match udp.load(Ordering::Relaxed) {
            true => vec![datagram.to_vec()],
            false => Vec::new(),
        };
        let streams = move |count: usize, _: Way| -> StreamTap {
            let passes = passes.clone();
            Box::new(move |bytes: &[u8]| {
                // A data connection: it comes no further before UDP does.
                if count > 0 {
                    passes.store(true, Ordering::Relaxed);
                    thread::sleep(Duration::from_secs(3));
                }
                Some(bytes.to_vec())
            })
        };
        let relay = Relay::altering(server.address, Box::new(tap), Box::new(streams));
        let report = run(test, &push(&test.here("f"), relay.address, b"")).unwrap();
        assert_eq!(report.link.carrier, "udp");
        assert_same(&test.here("f"), &test.there("f"));
    });
}

#[test]
fn both_carriers_are_tried_for_an_hour_where_udp_was_swallowed() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 1_000_000)).unwrap();
        let server = Server::start(test);
        let relay = Relay::start(server.address);
        let (host, ip) = (relay.address.ip().to_string(), relay.address.ip());
        let history = Arc::new(History::open(&test.path("history.db")).unwrap());
        let copy = |to: &[u8]| {
            let options = push(&test.here("f"), relay.address, to);
            let options = over(options, |by| by.history = Some(history.clone()));
            run(test, &options).unwrap().link.carrier
        };
        relay.block_udp();
        assert_eq!(copy(b"a"), "tcp");
        assert!(history.is_udp_swallowed(&host, ip, unix_time()).unwrap());
        assert_eq!(copy(b"b"), "tcp");
        relay.pass_udp();
        assert_eq!(copy(b"c"), "udp", "it is preferred");
        // The connection that was not needed is no stranger's.
        let refused = |event: &ServeEvent| matches!(event, ServeEvent::Refused { .. });
        assert_eq!(copy(b"d"), "udp");
        assert!(!server.events().iter().any(refused), "{:?}", server.events());
        assert!(!history.is_udp_swallowed(&host, ip, unix_time() + 3_601).unwrap());
    });
}

#[test]
fn udp_swallowed_in_mid_copy_ends_it_by_name_and_tcp_goes_on_from_there() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 8_000_000)).unwrap();
        let idle_timeout = Duration::from_secs(6);
        let server = Server::with(test, |options| options.idle_timeout = idle_timeout);
        for direction in ["push", "pull"] {
            let relay = Relay::start(server.address);
            let options = match direction {
                "push" => push(&test.here("f"), relay.address, b"f"),
                _ => pull(relay.address, b"f", &test.here("back")),
            };
            // The server notices it first, or the client.
            let own = if direction == "push" { idle_timeout * 3 } else { idle_timeout / 2 };
            let options = over(options, |by| by.idle_timeout = own);
            let copying = Copying::start(test, slowly(options.clone()));
            copying.moved(5_000_000);
            relay.block_udp();
            let error = copying.end().unwrap_err();
            assert_eq!((error.kind, error.kept), (ErrorKind::Lost, Some(Kept::Written)), "{error}");
            let words = error.to_string();
            assert!(
                words.contains("nothing was heard") && words.contains("--carrier tcp"),
                "{words}"
            );
            let report = run(test, &options).unwrap();
            assert_eq!((report.link.carrier, report.link.reconnects), ("tcp", 0));
            assert!(report.resumed_bytes > 0, "{report:?}");
        }
        // One who has patience need not say it again.
        let relay = Relay::start(server.address);
        let options = over(push(&test.here("f"), relay.address, b"g"), |by| {
            by.idle_timeout = idle_timeout * 3;
            by.retry = Duration::from_secs(60);
        });
        let copying = Copying::start(test, slowly(options));
        copying.moved(5_000_000);
        relay.block_udp();
        let report = copying.end().unwrap();
        assert_eq!((report.link.carrier, report.link.reconnects), ("tcp", 1));
        assert_same(&test.here("f"), &test.there("g"));
        assert_same(&test.here("f"), &test.there("f"));
        assert_same(&test.here("f"), &test.here("back"));
    });
}

#[needs(namespaces)]
#[test]
fn tcp_carries_through_a_firewall_that_swallows_udp_and_all_say_why() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 3_000_000)).unwrap();
        let serve = format!(
            "exec {PROGRAM} serve --root there --allow-write --listen [::]:7420 --token-file token"
        );
        let command = format!(
            "{PROGRAM} probe --token-file token lh://peer:7420 && \
             exec {PROGRAM} cp --json --token-file token here/f lh://peer:7420/"
        );
        let firewall = ["lab", "path", "--rtt", "20ms", "--swallow-udp", "--json"];
        let words = [&firewall[..], &["--peer", &serve, "--", "sh", "-c", &command]].concat();
        let ended = Program::start(test, &words).end();
        ended.assert_succeeded();
        let lost = &ended.json()["links"][0]["forward"]["lost"];
        assert!(lost["firewall"].as_u64() > Some(0), "{lost}");
        let words = &ended.stderr;
        assert!(words.contains("UDP does not pass"), "{words}");
        assert!(words.contains("\"carrier\":\"tcp\""), "{words}");
        assert!(words.contains("no UDP packet comes through"), "{words}");
        assert_eq!(words.matches("copies to here").count(), 1, "{words}");
        assert_same(&test.here("f"), &test.there("f"));
    });
}

#[test]
fn the_program_says_that_tcp_took_over() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 1_000_000)).unwrap();
        let server = Server::start(test);
        let relay = Relay::start(server.address);
        relay.block_udp();
        for (options, times) in [(&[][..], 1), (&["-v"], 1), (&["-q"], 0)] {
            let to = format!("to{}", options.concat());
            let there = format!("lh://{}/{to}", relay.address);
            let copy = Program::cp(test, &[options, &["here/f", &there]].concat()).end();
            copy.assert_succeeded();
            let json = copy.json();
            assert_eq!(json["carrier"], "tcp");
            let notice = json["notices"][0].as_str().unwrap();
            assert!(notice.contains("TCP carries instead"), "{json}");
            assert_eq!(copy.stderr.matches(notice).count(), times, "{copy:?}");
            assert_same(&test.here("f"), &test.there(&to));
        }
    });
}

#[test]
fn a_copy_that_asked_for_udp_goes_over_udp_or_fails() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 1_000_000)).unwrap();
        let server = Server::start(test);
        let relay = Relay::start(server.address);
        relay.block_udp();
        let options = push(&test.here("f"), relay.address, b"");
        let options = over(options, |by| by.carrier = CarrierChoice::Udp);
        let error = run(test, &options).unwrap_err();
        assert_eq!(error.kind, ErrorKind::UdpBlocked, "{error}");
        assert_eq!(error.hint, Some("try --carrier tcp"));
        assert!(error.to_string().contains("--carrier tcp"), "{error}");
        assert!(!test.there("f").exists());
    });
}

#[test]
fn a_profile_that_tcp_does_not_follow_is_reported() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 100_000)).unwrap();
        let server = Server::start(test);
        let relay = Relay::start(server.address);
        relay.block_udp();
        let copy = |words: &[&str], at| {
            let to = format!("lh://{at}/");
            let copy = Program::cp(test, &[words, &["here/f", &to]].concat()).end();
            copy.assert_succeeded();
            let notices = copy.json()["notices"].to_string();
            (notices.contains(HAS_NO_EFFECT), copy.stderr.contains(HAS_NO_EFFECT))
        };
        let rbudp = ["--profile", "rbudp", "--rate", "1Gbps"];
        let tcp = ["--carrier", "tcp"];
        assert_eq!(copy(&[&rbudp[..], &tcp].concat(), server.address), (true, true));
        assert_eq!(copy(&rbudp, relay.address), (true, true));
        assert_eq!(copy(&[&rbudp[..], &tcp, &["-q"]].concat(), server.address), (true, false));
        assert_eq!(copy(&rbudp, server.address), (false, false));
        assert_eq!(copy(&tcp, server.address), (false, false));
    });
}

const HAS_NO_EFFECT: &str = "below --rate: profile rbudp has no effect";
