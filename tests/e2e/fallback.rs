//! Networks that let TCP pass and swallow UDP.

use std::fs;

use longhaul_transfer::{CarrierChoice, CopyError, CopyOptions};

use crate::program::Program;
use crate::relay::{Relay, Way};
use crate::server::{Server, pull, push, run};
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
        let said = |notice: &String| notice.contains("TCP carries instead");
        assert!(report.link.notices.iter().any(said), "{report:?}");

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
fn where_udp_was_asked_for_it_is_udp_or_nothing() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 1_000_000)).unwrap();
        let server = Server::start(test);
        let relay = Relay::start(server.address);
        relay.block_udp();
        let options = push(&test.here("f"), relay.address, b"");
        let options = CopyOptions { carrier: CarrierChoice::Udp, ..options };
        let error = run(test, &options).unwrap_err();
        assert!(matches!(error, CopyError::UdpBlocked { .. }), "{error:?}");
        assert!(error.to_string().contains("--carrier tcp"), "{error}");
        assert!(!test.there("f").exists());
    });
}

#[test]
fn a_profile_that_tcp_does_not_follow_is_said() {
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
