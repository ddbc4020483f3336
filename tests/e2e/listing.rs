//! Listings: names and status of what a server has.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};

use longhaul::{ConnectOptions, Endpoint, ErrorKind, ListOptions, Stop, list};
use serde_json::json;

use crate::program::{Ended, Program};
use crate::server::Server;
use crate::test::{Test, limited, token};

/// Serves `tree` with a file, a link that leads out, a directory and a file in that.
fn served(test: &Test) {
    fs::create_dir_all(test.there("tree/sub")).unwrap();
    fs::write(test.there("tree/a file"), "contents").unwrap();
    fs::write(test.there("tree/sub/leaf"), "leaf").unwrap();
    symlink("../../here", test.there("tree/out")).unwrap();
}

fn ls(test: &Test, words: &[&str], at: &str) -> Ended {
    let fixed = ["ls", "--token-file", "token"];
    Program::start(test, &[&fixed[..], words, &[at]].concat()).end()
}

#[test]
fn ls_prints_what_is_there() {
    limited(|test| {
        served(test);
        let server = Server::start(test);
        let at = |path: &str| format!("lh://{}/{path}", server.address);
        let ended = ls(test, &[], &at("tree"));
        assert_eq!(
            (ended.status, &ended.stdout[..]),
            (Some(0), "a file\nout\nsub/\n"),
            "{ended:?}"
        );
        let ended = ls(test, &["-R"], &at(""));
        let all = "tree/\ntree/a file\ntree/out\ntree/sub/\ntree/sub/leaf\n";
        assert_eq!((ended.status, &ended.stdout[..]), (Some(0), all), "{ended:?}");
        // Patterns are those of cp: each match with its path, and what is in it.
        fs::create_dir_all(test.there("tree/sub/run-2")).unwrap();
        fs::write(test.there("tree/sub/run-2/x"), "").unwrap();
        fs::create_dir(test.there("tree/sub/run-[1]")).unwrap();
        for (words, path, lines) in [
            (&[][..], "tree/s*/l?af", "sub/leaf\n"),
            (&[], "tree/sub/run-?", "run-2/\nrun-2/x\n"),
            (
                &["-R"],
                "tree/*",
                "a file\nout\nsub/\nsub/leaf\nsub/run-2/\nsub/run-[1]/\nsub/run-2/x\n",
            ),
            (&[], "tree/sub/run-[1]", "run-[1]/\n"),
        ] {
            let ended = ls(test, words, &at(path));
            assert_eq!((ended.status, &ended.stdout[..]), (Some(0), lines), "{path}: {ended:?}");
        }
        fs::remove_dir_all(test.there("tree/sub/run-2")).unwrap();
        fs::remove_dir(test.there("tree/sub/run-[1]")).unwrap();
        for (path, why) in [
            ("tree/none*", "no such file or directory at the server"),
            ("tree/none", "no such file or directory at the server"),
            ("tree/a%20file/x", "what it should be in is no directory at the server"),
        ] {
            ls(test, &[], &at(path)).assert_failed(&format!("longhaul: {}: {why}\n", at(path)));
        }
        let place = at("tree/[z-a]");
        let ended = ls(test, &[], &place);
        assert_eq!(ended.status, Some(2), "{ended:?}");
        let words = format!("{place}: the pattern \"[z-a]\" has a wrong set of characters");
        assert!(ended.stderr.contains(&words), "{ended:?}");
        // A file alone has its own name.
        let ended = ls(test, &["-l"], &at("tree/a%20file"));
        assert!(
            ended.stdout.starts_with("-rw") && ended.stdout.ends_with(" a file\n"),
            "{ended:?}"
        );
        assert!(ended.stdout.contains(" 8 "), "{ended:?}");
        let ended = ls(test, &["--json"], &at("tree/a%20file"));
        assert_eq!(ended.json()["entries"][0]["path"], "a file", "{ended:?}");
        // An escaped wildcard is none.
        ls(test, &[], &at("tree/%2A")).assert_failed("no such file");
        fs::write(test.there("tree/*"), "").unwrap();
        assert_eq!(ls(test, &[], &at("tree/%2A")).stdout, "*\n");
        fs::remove_file(test.there("tree/*")).unwrap();
        let ended = ls(test, &["--json"], &at("tree"));
        let answer = ended.json();
        assert_eq!(answer["listed"], 3);
        assert_eq!((&answer["failed"], &answer["failures"]), (&json!(0), &json!([])));
        let entries = answer["entries"].as_array().unwrap();
        let names: Vec<_> = entries.iter().map(|entry| &entry["path"]).collect();
        assert_eq!(names, ["a file", "out", "sub"]);
        assert_eq!((&entries[0]["type"], &entries[0]["size"]), (&json!("file"), &json!(8)));
        assert_eq!(entries[1]["target"], "../../here");
    });
}

#[test]
fn names_have_one_form_and_a_line_each() {
    limited(|test| {
        fs::create_dir(test.there("odd")).unwrap();
        for name in [&b"a\nb"[..], b"caf\xe9", b"c\\d", b"\x1b[2J"] {
            symlink("to\rthere", test.there("odd").join(OsStr::from_bytes(name))).unwrap();
        }
        let server = Server::start(test);
        let at = format!("lh://{}/odd", server.address);
        let ended = ls(test, &["-R"], &at);
        assert_eq!(ended.stdout, "\\u{1b}[2J\na\\nb\nc\\\\d\ncaf\\xe9\n", "{ended:?}");
        let json = ls(test, &["-R", "--json"], &at).json();
        let entries = json["entries"].as_array().unwrap();
        let paths: Vec<_> = entries.iter().map(|entry| entry["path"].as_str().unwrap()).collect();
        assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), paths);
        let long = ls(test, &["-l"], &at);
        assert_eq!(long.stdout.lines().filter(|line| line.ends_with(" -> to\\rthere")).count(), 4);
    });
}

#[test]
fn ls_says_what_it_cannot_list() {
    limited(|test| {
        served(test);
        let server = Server::start(test);
        let at = |path: &str| format!("lh://{}/{path}", server.address);
        let ended = ls(test, &["--json"], &at("none"));
        ended.assert_failed("none: no such file or directory at the server");
        assert!(ended.json()["error"].is_string(), "{ended:?}");
        ls(test, &[], &at("tree/out")).assert_failed("leads out of the directory");
        let ended = ls(test, &[], "here");
        assert_eq!(ended.status, Some(2), "{ended:?}");
        drop(server);
        let server = Server::with(test, |options| options.access[0].allow_read = false);
        let ended = ls(test, &[], &format!("lh://{}/", server.address));
        ended.assert_failed("does not let anyone copy from it, nor look at what it has");
    });
}

#[test]
fn many_names_come_through_in_order_of_their_directories() {
    limited(|test| {
        for directory in 0..3 {
            fs::create_dir_all(test.there(&format!("d{directory}"))).unwrap();
            for number in 0..4_000 {
                fs::write(test.there(&format!("d{directory}/{number:0>60}")), "").unwrap();
            }
        }
        let server = Server::start(test);
        let taken = Arc::new(Mutex::new(Vec::new()));
        let sink = {
            let taken = taken.clone();
            Arc::new(move |all: Vec<longhaul::Listed>| {
                taken.lock().unwrap().extend(all.into_iter().map(|it| it.path));
                Ok(())
            })
        };
        let endpoint = Endpoint::new("127.0.0.1", server.address.port());
        let mut options = ListOptions::new(ConnectOptions::new(endpoint, token(1)), "", sink);
        options.recursive = true;
        let report = list(&options, &test.stop()).unwrap();
        assert_eq!((report.listed, report.failures.count), (12_003, 0));
        let mut taken = taken.lock().unwrap().clone();
        assert_eq!(taken.len(), 12_003);
        // A directory comes before what is in it.
        for directory in ["d0", "d1", "d2"] {
            let first =
                taken.iter().position(|path| path.as_bytes().starts_with(directory.as_bytes()));
            assert_eq!(taken[first.unwrap()].as_bytes(), directory.as_bytes());
        }
        taken.sort();
        taken.dedup();
        assert_eq!(taken.len(), 12_003, "each once");
    });
}

#[test]
fn one_who_takes_nothing_more_ends_a_listing() {
    limited(|test| {
        served(test);
        let server = Server::start(test);
        let sink = Arc::new(|_: Vec<longhaul::Listed>| Err(std::io::Error::other("no more room")));
        let endpoint = Endpoint::new("127.0.0.1", server.address.port());
        let options = ListOptions::new(ConnectOptions::new(endpoint, token(1)), "tree", sink);
        let error = list(&options, &Stop::default()).unwrap_err();
        assert!(error.to_string().contains("no more room"), "{error}");
        assert_ne!(error.kind, ErrorKind::Usage);
    });
}
