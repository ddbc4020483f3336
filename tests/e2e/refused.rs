//! System calls that a file system does not carry out, as CIFS and FUSE at times, or that a sandbox forbids.

use std::fs;
use std::process::Command;

use longhaul_needs::needs;

use crate::program::{PROGRAM, Program};
use crate::test::{Test, limited};
use crate::trees::{assert_same, make_tree, names};

/// The program with `words`, where every call of `calls` fails with `error`.
fn forbidden<'t>(test: &'t Test, calls: &str, error: &str, words: &[&str]) -> Program<'t> {
    let inject = format!("inject={calls}:error={error}");
    let options = ["-f", "-qq", "-o", "/dev/null", "-e", &inject, PROGRAM];
    Program::spawn(test, Command::new("strace").args(options).args(words))
}

const CP: [&str; 6] = ["cp", "--json", "--retry", "0", "--token-file", "token"];

/// A server for one client, of which `calls` fail.
fn server<'t>(test: &'t Test, calls: &str, error: &str) -> (Program<'t>, String) {
    let words = ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
    let mut server = forbidden(test, calls, error, &[&words[..], &["--once"]].concat());
    let line = server.prints("listening on ");
    let at = line.split("listening on ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    (server, at)
}

#[needs(strace)]
#[test]
fn files_that_may_not_have_their_times_and_modes_arrive_with_one_notice_in_a_pull() {
    limited(|test| {
        make_tree(&test.there("tree"));
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let from = format!("lh://{at}/tree");
        let words = [&CP[..], &[&from, "here/"]].concat();
        let copy = forbidden(test, "utimensat,fchmod", "EPERM", &words).end();
        copy.assert_succeeded();
        assert_noticed(&copy);
        assert_same_contents(test);
    });
}

#[needs(strace)]
#[test]
fn files_that_may_not_have_their_times_and_modes_arrive_with_one_notice_in_a_push() {
    limited(|test| {
        make_tree(&test.here("tree"));
        let (_server, at) = server(test, "utimensat,fchmod", "EPERM");
        let copy = Program::cp(test, &["here/tree", &format!("lh://{at}/")]).end();
        copy.assert_succeeded();
        assert_noticed(&copy);
        assert_same_contents(test);
    });
}

/// One notice, for any number of entries.
fn assert_noticed(copy: &crate::program::Ended) {
    let json = copy.json();
    assert_eq!((&json["verified"], &json["failed"]), (&true.into(), &0.into()), "{json}");
    let notices: Vec<_> = json["notices"].as_array().unwrap().iter().collect();
    for what in ["modification times be set", "permission bits be set"] {
        let so = notices.iter().filter(|notice| notice.as_str().unwrap().contains(what)).count();
        assert_eq!(so, 1, "{notices:?}");
        assert_eq!(copy.stderr.matches(what).count(), 1, "{copy:?}");
    }
}

/// Names, contents and links are at both ends.
fn assert_same_contents(test: &Test) {
    let same = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([test.here("tree"), test.there("tree")])
        .output()
        .unwrap();
    assert!(same.status.success(), "{same:?}");
}

#[needs(strace)]
#[test]
fn a_file_system_that_does_not_say_its_size_has_no_limit() {
    limited(|test| {
        make_tree(&test.there("tree"));
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let from = format!("lh://{at}/tree");
        let words = [&CP[..], &[&from, "here/"]].concat();
        forbidden(test, "statfs,fstatfs", "ENOSYS", &words).end().assert_succeeded();
        assert_same(&test.there("tree"), &test.here("tree"));
    });
}

#[needs(strace)]
#[test]
fn a_notice_says_once_that_nothing_vouches_for_a_sync() {
    let unchecked = "which tells no errors";
    for (calls, notices) in [("fsync,fdatasync,syncfs", 1), ("fsync,fdatasync", 0)] {
        limited(move |test| {
            make_tree(&test.here("tree"));
            let (_server, at) = server(test, calls, "EPERM");
            let copy = Program::cp(test, &["here/tree", &format!("lh://{at}/")]).end();
            copy.assert_succeeded();
            let json = copy.json()["notices"].to_string();
            assert_eq!(json.matches(unchecked).count(), notices, "{calls}: {json}");
            assert_eq!(copy.stderr.matches(unchecked).count(), notices, "{calls}: {copy:?}");
            assert_same(&test.here("tree"), &test.there("tree"));
        });
    }
}

#[needs(strace)]
#[test]
fn files_get_their_names_where_renames_cannot_promise_to_replace_nothing() {
    for error in ["ENOSYS", "EINVAL", "EPERM"] {
        limited(move |test| {
            make_tree(&test.there("tree"));
            // Something older has some of the names.
            fs::create_dir_all(test.here("tree")).unwrap();
            fs::write(test.here("tree/big"), "older").unwrap();
            let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
            let from = format!("lh://{at}/tree");
            let words = [&CP[..], &[&from, "here/"]].concat();
            forbidden(test, "renameat2", error, &words).end().assert_succeeded();
            assert_same(&test.there("tree"), &test.here("tree"));
        });
    }
}

#[needs(strace)]
#[test]
fn a_client_needs_no_openat2() {
    for error in ["EPERM", "ENOSYS"] {
        limited(|test| {
            make_tree(&test.here("tree"));
            let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
            let to = format!("lh://{at}/");
            let push = [&CP[..], &["here/tree", &to]].concat();
            forbidden(test, "openat2", error, &push).end().assert_succeeded();
            assert_same(&test.here("tree"), &test.there("tree"));
            let from = format!("lh://{at}/tree");
            let pull = [&CP[..], &[&from, "here/back"]].concat();
            forbidden(test, "openat2", error, &pull).end().assert_succeeded();
            assert_same(&test.here("tree"), &test.here("back"));
            assert_eq!(names(&test.path("here")), ["back", "tree"]);
        });
    }
}

#[needs(strace)]
#[test]
fn a_server_says_that_openat2_is_forbidden_and_does_not_begin() {
    for error in ["EPERM", "ENOSYS"] {
        limited(|test| {
            fs::write(test.there("file"), "file").unwrap();
            let words =
                ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
            let server = forbidden(test, "openat2", error, &words).end();
            server.assert_failed("openat2");
            server.assert_failed("sandbox");
        });
    }
}
