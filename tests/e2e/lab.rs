//! The lab, as far as it takes neither root nor time.

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
