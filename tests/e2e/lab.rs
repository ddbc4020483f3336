//! The lab, as far as it takes neither root nor time.

use longhaul_needs::needs;

use crate::program::{PROGRAM, Program};
use crate::test::limited;

#[test]
fn contenders_that_are_longhaul_are_this_very_program_whatever_its_name() {
    limited(|test| {
        let words = ["lab", "peers", "auto", "trc booked", "--json"];
        let ended = Program::start(test, &words).end();
        ended.assert_succeeded();
        let json = ended.json();
        let peers = json["peers"].as_array().unwrap();
        assert_eq!(peers.len(), 2);
        for peer in peers {
            assert_eq!(peer["program"], PROGRAM, "{peer}");
            assert!(peer["absent"].is_null() && peer["version"].is_string(), "{peer}");
        }
    });
}

#[test]
fn a_path_of_the_kernel_is_refused_what_it_cannot_do() {
    limited(|test| {
        let refused = Program::start(test, &["lab", "path", "--kernel", "--ecn", "10kB"]).end();
        assert_eq!(refused.status, Some(2), "{refused:?}");
    });
}

#[needs(namespaces, netem)]
#[test]
fn a_path_of_the_kernel_is_made() {
    limited(|test| {
        let words = ["lab", "path", "--kernel", "--", "true"];
        Program::start(test, &words).end().assert_succeeded();
    });
}
