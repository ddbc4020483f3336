//! Few descriptors: who finds none waits, and nothing fails.

use std::fs;

use crate::program::Program;
use crate::test::{Test, limited};
use crate::trees::{assert_same, noise};

#[test]
fn ten_clients_of_many_large_files_get_by_with_a_servers_1024_descriptors() {
    limited(|test| {
        large_files(test, "here/tree", 110);
        let words = ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--memory", "4GiB"];
        let words = [&words[..], &["--token-file", "token"]].concat();
        let mut server = Program::start_within(test, "-n 1024", &words);
        let at = server.listens();
        let places: Vec<_> = (0..10).map(|n| format!("lh://{at}/{n}")).collect();
        let copy = |to: &String| Program::cp(test, &["--fsync", "never", "here/tree", to]);
        let copies: Vec<_> = places.iter().map(copy).collect();
        for (n, copy) in copies.into_iter().enumerate() {
            copy.end().assert_succeeded();
            assert_same(&test.here("tree"), &test.there(&n.to_string()));
            fs::remove_dir_all(test.there(&n.to_string())).unwrap();
        }
    });
}

#[test]
fn a_copy_gets_by_with_64_descriptors() {
    limited(|test| {
        large_files(test, "here/tree", 100);
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let there = format!("lh://{at}/tree");
        for descriptors in [64, 96, 128] {
            let limit = format!("-n {descriptors}");
            let copy = |from, to| {
                let words = ["cp", "--json", "--token-file", "token", from, to];
                Program::start_within(test, &limit, &words).end().assert_succeeded();
            };
            copy("here/tree", &there);
            copy(&there, "here/back");
            assert_same(&test.here("tree"), &test.here("back"));
            fs::remove_dir_all(test.here("back")).unwrap();
            fs::remove_dir_all(test.there("tree")).unwrap();
        }
    });
}

#[test]
fn both_ends_name_the_limit_where_descriptors_are_too_few_for_any_copy() {
    limited(|test| {
        for descriptors in [8, 12, 32, 63] {
            let limit = format!("-n {descriptors}");
            let server = ["serve", "--listen", "127.0.0.1:0", "--root", "there"];
            let client = ["cp", "--json", "here", "lh://127.0.0.1:1/"];
            for words in [&server[..], &client[..]] {
                let words = [words, &["--token-file", "token"]].concat();
                let ended = Program::start_within(test, &limit, &words).end();
                ended.assert_failed(&format!("only {descriptors} descriptors"));
                assert!(ended.stderr.contains("ulimit -n"), "{ended:?}");
            }
        }
    });
}

#[test]
fn a_client_that_finds_no_descriptors_at_a_server_of_64_learns_that_it_is_busy() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 4_000_000)).unwrap();
        let words =
            ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
        let mut server = Program::start_within(test, "-n 64", &words);
        let at = server.listens();
        let copy = |words: &[&str], to: &str| {
            let there = format!("lh://{at}/{to}");
            Program::cp(test, &[words, &["here/f", &there]].concat())
        };
        let slow = copy(&["--rate", "6Mbps"], "slow");
        server.prints("copies to here");
        for lanes in ["1", "2"] {
            let carrier = ["--carrier", "tcp", "--lanes", lanes];
            let others: Vec<_> = (0..10).map(|n| copy(&carrier, &n.to_string())).collect();
            for other in others {
                let ended = other.end();
                ended.assert_failed("the descriptors of this server are in use");
                let fewer = ended.stderr.contains("try again later, or with fewer lanes");
                assert_eq!(fewer, lanes == "2", "{ended:?}");
            }
        }
        slow.end().assert_succeeded();
        assert_same(&test.here("f"), &test.there("slow"));
    });
}

/// So many files of 1.1 MB, no two of which are the same, though most of each is a hole.
fn large_files(test: &Test, folder: &str, count: u64) {
    fs::create_dir(test.path(folder)).unwrap();
    for n in 0..count {
        let path = test.path(&format!("{folder}/{n}"));
        fs::write(&path, noise(n, 1000)).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(1_100_000).unwrap();
    }
}
