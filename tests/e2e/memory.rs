//! A limit on virtual memory: there is enough at the start, or nothing begins.

use std::fs;

use crate::program::Program;
use crate::test::{Test, limited};
use crate::trees::{assert_same, noise};

#[test]
fn files_of_all_sizes_arrive_within_a_limit_on_virtual_memory() {
    limited(|test| {
        fs::create_dir(test.path("here/tree")).unwrap();
        for n in 0..150 {
            let len = if n % 5 == 0 { 1_200_000 } else { n * 50 };
            fs::write(test.path(&format!("here/tree/{n}")), noise(n as u64, len)).unwrap();
        }
        let serve =
            ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
        let mut server = Program::start_within(test, ENOUGH, &serve);
        let there = format!("lh://{}/tree", server.listens());
        for carrier in ["udp", "tcp"] {
            for (from, to) in [("here/tree", &*there), (&*there, "here/back")] {
                copy(test, ENOUGH, &["--carrier", carrier, "--memory", "1GiB", from, to])
                    .end()
                    .assert_succeeded();
            }
            assert_same(&test.here("tree"), &test.here("back"));
            fs::remove_dir_all(test.here("back")).unwrap();
            fs::remove_dir_all(test.there("tree")).unwrap();
        }
    });
}

#[test]
fn a_limit_on_virtual_memory_that_is_too_low_is_named_before_anything_begins() {
    limited(|test| {
        fs::write(test.path("here/file"), noise(1, 1000)).unwrap();
        let serve =
            ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
        let ended = Program::start_within(test, TOO_LOW, &serve).end();
        assert_eq!(ended.status, Some(1));
        assert!(ended.stderr.contains("(ulimit -v)"), "{}", ended.stderr);
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let ended = copy(test, TOO_LOW, &["here/file", &format!("lh://{at}/file")]).end();
        assert_eq!(ended.status, Some(1));
        assert!(ended.stderr.contains("(ulimit -v)"), "{}", ended.stderr);
        assert!(!test.there("file").exists());
    });
}

fn copy<'t>(test: &'t Test, limit: &str, words: &[&str]) -> Program<'t> {
    Program::start_within(test, limit, &[&["cp", "--token-file", "token"], words].concat())
}

/// In KiB, with the addresses of a program that is built for tests.
const ENOUGH: &str = "-v 520000";
const TOO_LOW: &str = "-v 200000";
