//! Sources and destinations that are not what the copy needs: one sentence, and nothing is moved or left.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::copies::make_fifo;
use crate::program::{Ended, Program};
use crate::test::{Test, limited, until};
use crate::trees::{names, noise};

/// A copy of `from` to `to`, each below the folder of its end, that way and this.
fn both_ways(test: &Test, words: &[&str], from: &str, to: &str, check: impl Fn(&Path, &Ended)) {
    let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
    let (here, there) =
        (|name: &str| format!("here/{name}"), |name: &str| format!("lh://{at}/{name}"));
    let push = Program::cp(test, &[words, &[&here(from), &there(to)]].concat()).end();
    check(&test.path("there"), &push);
    let pull = Program::cp(test, &[words, &[&there(from), &here(to)]].concat()).end();
    check(&test.path("here"), &pull);
}

/// A tree `tree` at both ends, larger than what is on its way at a time, and `file`.
fn fill(test: &Test) {
    for end in ["here", "there"] {
        let end = test.path(end);
        fs::create_dir_all(end.join("tree/sub")).unwrap();
        for number in 0..40 {
            fs::write(end.join(format!("tree/sub/{number}")), noise(number, 1_500_000)).unwrap();
        }
        fs::write(end.join("file"), "file").unwrap();
    }
}

fn assert_one_sentence(place: &Path, ended: &Ended, words: &str) {
    ended.assert_failed(words);
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(!ended.stderr.contains("again"), "again it would be the same: {ended:?}");
    assert!(ended.json()["bytes_done"].as_u64() < Some(30_000_000), "{ended:?}");
    // A server may end behind its client.
    until("nothing hidden is left", || (names(place) == ["file", "tree"]).then_some(()));
    assert_eq!(fs::read(place.join("file")).unwrap(), b"file");
    assert_eq!(fs::read_dir(place.join("tree/sub")).unwrap().count(), 40);
}

#[test]
fn a_tree_onto_a_file_is_one_sentence_and_moves_nothing() {
    limited(|test| {
        fill(test);
        for words in [&[][..], &["-T"], &["--ignore-times"], &["--dry-run"]] {
            both_ways(test, words, "tree", "file", |place, ended| {
                let words = "file: it is a file, and the source is a directory";
                assert_one_sentence(place, ended, words);
            });
        }
    });
}

#[test]
fn a_file_onto_a_directory_by_its_name_is_one_sentence_and_moves_nothing() {
    limited(|test| {
        fill(test);
        for words in [&["-T"][..], &["-T", "--ignore-times"], &["-T", "--dry-run"]] {
            both_ways(test, words, "file", "tree", |place, ended| {
                let words = "tree: it is a directory, and the source is none";
                assert_one_sentence(place, ended, words);
            });
        }
    });
}

#[test]
fn a_source_that_is_missing_is_named_as_the_user_wrote_it_and_with_its_side() {
    limited(|test| {
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let missing = |from: &str, to: &str, words: &str| {
            let ended = Program::cp(test, &[from, to]).end();
            ended.assert_failed(words);
            ended.json()
        };
        let far = format!("lh://{at}/sub/zip");
        let report =
            missing(&far, "here/", &format!("{far}: no such file or directory at the server"));
        assert_eq!(report["failures"][0]["path"], "zip", "{report}");
        missing(&format!("{far}/."), "here/", &format!("{far}/.: no such file"));
        let none = format!("lh://{at}/none*");
        missing(&none, "here/", &format!("{none}: no such file or directory at the server"));
        let words = "here/./zip: no such file or directory on this host";
        missing("here/./zip", &format!("lh://{at}/"), words);
        fs::write(test.here("file"), "no directory").unwrap();
        let ended = Program::cp(test, &["here/file/x", &format!("lh://{at}/")]).end();
        ended.assert_failed("here/file/x: what it should be in is no directory on this host");
        assert!(!ended.stderr.contains("os error"), "{ended:?}");
    });
}

/// As operating.md promises: names of any bytes, in one form that no two names share.
#[test]
fn every_command_writes_a_name_that_is_not_text_alike() {
    limited(|test| {
        let name = OsStr::from_bytes(b"caf\xe9\\\n\xc3\xa9");
        let form = "caf\\xe9\\\\\\n\u{e9}";
        for end in ["here", "there"] {
            fs::create_dir(test.path(end).join("tree")).unwrap();
            make_fifo(&test.path(end).join("tree").join(name));
        }
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let push = Program::cp(test, &["here/tree", &format!("lh://{at}/copy")]).end().json();
        assert_eq!(push["skips"][0]["path"], format!("tree/{form}"));
        let pull = Program::cp(test, &[&format!("lh://{at}/tree"), "here/copy"]).end().json();
        assert_eq!(pull["skips"][0]["path"], format!("tree/{form}"));
        let program = |words: &[&str]| {
            let fixed = [&words[..1], &["--json", "--token-file", "token"], &words[1..]].concat();
            Program::start(test, &fixed).end().json()
        };
        let listed = program(&["ls", &format!("lh://{at}/tree")]);
        assert_eq!(listed["entries"][0]["path"], form);
        fs::remove_file(test.there("tree").join(name)).unwrap();
        fs::write(test.there("tree").join(name), "file").unwrap();
        fs::write(test.path("list"), format!("{}  tree/none\n", "0".repeat(64))).unwrap();
        let verified = program(&["verify", "list", &format!("lh://{at}/")]);
        assert_eq!(verified["extra"]["paths"][0], format!("tree/{form}"));
    });
}

#[test]
fn an_escaped_wildcard_is_a_name_and_never_a_pattern() {
    limited(|test| {
        fs::write(test.there("a*b"), "itself").unwrap();
        fs::write(test.there("axb"), "another").unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let from = format!("lh://{at}/a%2Ab");
        Program::cp(test, &[&from, "here/new"]).end().assert_succeeded();
        assert_eq!(fs::read(test.here("new")).unwrap(), b"itself", "not a directory of matches");
        Program::cp(test, &[&from, "here/"]).end().assert_succeeded();
        fs::remove_file(test.there("a*b")).unwrap();
        Program::cp(test, &[&from, "here/other"]).end().assert_failed("a%2Ab: no such file");
        assert_eq!(names(&test.path("here")), ["a*b", "new"]);
    });
}
