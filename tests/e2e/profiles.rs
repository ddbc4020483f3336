//! Every profile moves real files, in both directions, and the program reports what is no profile or no rate.

use longhaul_rate_control::Profile;
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;

use crate::program::{Ended, Program};
use crate::test::{Test, limited};
use crate::trees::{assert_same, noise};

/// Large enough for chunks, rounds and more than one train; small enough for all profiles.
const BYTES: usize = 3_000_000;

/// A copy under `profile`, with each of its parameters named at its usual value.
fn copy(test: &Test, profile: &Profile, from: &str, to: &str) -> Value {
    let mut words = vec!["--carrier".to_owned(), "udp".into(), "--profile".into()];
    words.push(profile.name.into());
    for parameter in profile.controller.parameters() {
        let figure = parameter.unit.exact(parameter.default);
        words.extend(["--param".into(), format!("{}={figure}", parameter.name)]);
    }
    if profile.needs_rate {
        words.extend(["--rate".into(), "200Mbps".into()]);
    }
    words.extend([from.into(), to.into()]);
    let ended = Program::cp(test, &words.iter().map(String::as_str).collect::<Vec<_>>()).end();
    ended.assert_succeeded();
    ended.json()
}

#[test]
fn every_profile_moves_files_both_ways() {
    limited(|test| {
        let tree = test.here("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("large"), noise(1, BYTES)).unwrap();
        (0..20).for_each(|i| fs::write(tree.join(format!("small {i}")), noise(i, 999)).unwrap());
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        for profile in Profile::all() {
            let name = profile.name;
            let there = format!("lh://127.0.0.1:{}/{name}", at.port());
            let pushed = copy(test, profile, "here/tree", &there);
            assert_same(&tree, &test.there(name));
            let back = format!("here/{name}");
            let pulled = copy(test, profile, &there, &back);
            assert_same(&tree, &test.here(name));
            for report in [pushed, pulled] {
                assert_eq!((&report["profile"], &report["carrier"]), (&name.into(), &"udp".into()));
                assert_eq!(report["verified"], true);
                assert!(report["packets_sent"].as_u64().unwrap() > 300, "{report}");
            }
        }
    });
}

fn push(test: &Test, server: SocketAddr, words: &[&str]) -> Ended {
    let to = format!("lh://127.0.0.1:{}/copy", server.port());
    Program::cp(test, &[words, &["here/file", &to]].concat()).end()
}

#[test]
fn a_rate_that_no_socket_sends_is_clamped_and_one_that_nobody_means_is_refused() {
    limited(|test| {
        fs::write(test.here("file"), noise(2, 300_000)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        for profile in ["auto", "fobs", "tsunami"] {
            for rate in ["5000Tbps", "18446744073709551615"] {
                let ended = push(test, at, &["--profile", profile, "--rate", rate]);
                ended.assert_succeeded();
                assert!(ended.stderr.contains("no socket sends at"), "{ended:?}");
                assert!(ended.stderr.contains("1.00 Tb/s is taken"), "{ended:?}");
                fs::remove_file(test.there("copy")).unwrap();
            }
        }
        for rate in ["0", "0Gbps", "7.9kbps"] {
            let ended = push(test, at, &["--rate", rate]);
            assert_eq!(ended.status, Some(2), "{ended:?}");
            assert!(ended.stderr.contains("not one small packet a second"), "{ended:?}");
        }
        assert!(!test.there("copy").exists());
    });
}
