//! Places that cannot be looked at: the words of `ls`, `verify` and `resume` about them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use longhaul_needs::needs;
use serde_json::json;

use crate::program::{Ended, NOBODY, Program};
use crate::storage::as_nobody;
use crate::test::{Test, limited};

const SERVES: [&str; 7] =
    ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];

/// Makes directories of `there` that nobody but root may read, beside an interrupted copy of somebody else.
fn lock(test: &Test, locked: &[&str]) {
    for name in locked {
        fs::create_dir(test.there(name)).unwrap();
        fs::set_permissions(test.there(name), Permissions::from_mode(0o0)).unwrap();
    }
    let hidden = test.there("sub/.longhaul-00000000000000000000000000000000");
    fs::create_dir_all(&hidden).unwrap();
    fs::write(hidden.join("record"), "").unwrap();
    for own in [test.there("sub"), hidden.join("record"), hidden] {
        chown(own, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// It failed with this error, in words and in JSON, and the hint stands apart from it.
fn assert_error(ended: &Ended, error: &str, hint: &str) {
    ended.assert_failed(&format!("longhaul: {error}\n{hint}"));
    let json = ended.json();
    assert_eq!(json["error"], error, "{ended:?}");
    assert!(json["details"].as_str().is_some_and(|it| it.starts_with(hint)), "{ended:?}");
}

const AGAIN: &str = "run the same `longhaul cp` again";

#[needs(root)]
#[test]
fn resume_says_which_directory_it_cannot_look_at() {
    limited(|test| {
        lock(test, &["locked"]);
        let resume = |place| Program::start_as_nobody(test, &["resume", "--json", place]).end();
        let error = "cannot look at there/locked: no permission to read it";
        let ended = resume("there");
        assert_error(&ended, error, AGAIN);
        let json = ended.json();
        assert_eq!(json["failed"], 1, "{ended:?}");
        assert_eq!(json["copies"].as_array().map(Vec::len), Some(1), "{ended:?}");
        for place in ["there/locked", "there/locked/in"] {
            let ended = resume(place);
            let error = format!("{place}: no permission to read it");
            ended.assert_failed(&format!("longhaul: {error}\n"));
            assert_eq!(ended.json(), json!({ "error": error }), "{ended:?}");
        }
        fs::remove_dir_all(test.there("sub")).unwrap();
        assert_error(&resume("there"), error, "no interrupted copies where it could look");
        fs::create_dir(test.there("more")).unwrap();
        fs::set_permissions(test.there("more"), Permissions::from_mode(0o0)).unwrap();
        let ended = resume("there");
        let first = ended.json()["error"].as_str().unwrap().to_owned();
        assert!(first.starts_with("cannot look at there/"), "{ended:?}");
        assert!(first.ends_with(": no permission to read it; 1 more failed"), "{ended:?}");
        assert_eq!(ended.json()["failed"], 2, "{ended:?}");
    });
}

#[needs(root)]
#[test]
fn resume_at_a_server_says_which_directory_could_not_be_looked_at_there() {
    limited(|test| {
        lock(test, &["locked"]);
        let (_server, at) = as_nobody(test, &SERVES);
        let resume = |place: &str| {
            let fixed = ["resume", "--json", "--token-file", "token"];
            Program::start(test, &[&fixed[..], &[place]].concat()).end()
        };
        let place = format!("lh://{at}/");
        let error = format!("{place}locked: no permission to read it at the server");
        let ended = resume(&place);
        assert_error(&ended, &error, AGAIN);
        assert_eq!(ended.json()["failed"], json!(1), "{ended:?}");
        let ended = resume(&format!("{place}locked"));
        ended.assert_failed(&format!("longhaul: {error}\n"));
        assert_eq!(ended.json(), json!({ "error": error }), "{ended:?}");
    });
}

fn ls(test: &Test, words: &[&str], place: &str) -> Ended {
    let fixed = ["ls", "--token-file", "token"];
    Program::start(test, &[&fixed[..], words, &[place]].concat()).end()
}

#[needs(root)]
#[test]
fn ls_names_the_place_or_what_is_in_it_that_cannot_be_read() {
    limited(|test| {
        lock(test, &["locked", "sub2"]);
        let (_server, at) = as_nobody(test, &SERVES);
        let place = format!("lh://{at}/");
        for path in ["locked", "locked/in"] {
            let error = format!("{place}{path}: no permission to read it at the server");
            let ended = ls(test, &["--json"], &format!("{place}{path}"));
            ended.assert_failed(&format!("longhaul: {error}\n"));
            assert_eq!(ended.json(), json!({ "error": error }), "{ended:?}");
        }
        let ended = ls(test, &["-R", "--json"], &place);
        let words = "no permission to read it at the server; 1 more failed";
        ended.assert_failed(words);
        let json = ended.json();
        assert!(json["error"].as_str().is_some_and(|it| it.ends_with(words)), "{ended:?}");
        assert_eq!((&json["listed"], &json["failed"]), (&json!(3), &json!(2)), "{ended:?}");
        ls(test, &[], &format!("{place}lock*"))
            .assert_failed("longhaul: locked: no permission to read it at the server\n");
    });
}

#[needs(root)]
#[test]
fn verify_names_the_place_and_takes_a_file_for_no_directory() {
    limited(|test| {
        lock(test, &["locked"]);
        let (_server, at) = as_nobody(test, &SERVES);
        let hash = "04".repeat(32);
        let verify = |lines: &str, place: &str| {
            fs::write(test.path("list"), lines).unwrap();
            let words = ["verify", "--token-file", "token", "list", place];
            Program::start(test, &words).end()
        };
        let place = format!("lh://{at}/locked");
        verify(&format!("{hash}  a\n"), &place)
            .assert_failed(&format!("longhaul: {place}: no permission to read it at the server\n"));
        fs::write(test.there("file"), "x").unwrap();
        let ended = verify(&format!("{hash}  file/a\n"), &format!("lh://{at}/"));
        ended.assert_failed("0 as in the list, 1 missing");
        assert_eq!(ended.stdout, "missing  file/a\n");
    });
}

#[test]
fn an_empty_name_is_used_wrongly() {
    limited(|test| {
        fs::write(test.path("list"), format!("{}  a\n", "04".repeat(32))).unwrap();
        for words in [&["ls", ""][..], &["resume", ""], &["verify", "list", ""]] {
            let ended = Program::start(test, words).end();
            assert_eq!(ended.status, Some(2), "{ended:?}");
            assert!(ended.stderr.contains("longhaul: a name is empty: "), "{ended:?}");
        }
    });
}
