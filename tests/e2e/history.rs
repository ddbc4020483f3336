//! Path history: copies start with what those before them have learnt.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use longhaul_needs::needs;
use serde_json::{Value, json};

use crate::program::{Ended, PROGRAM, Program};
use crate::test::{Test, limited, token, until};
use crate::trees::{assert_same, noise};

const BYTES: usize = 6_000_000;
const FILE: &str = ".local/state/longhaul/history.db";

/// A push of the file, so slowly that start-up is over long before its end.
fn start_push<'t>(test: &'t Test, server: SocketAddr, name: &str, words: &[&str]) -> Program<'t> {
    let to = format!("lh://127.0.0.1:{}/{name}", server.port());
    let fixed = ["--rate", "100Mbps", "--carrier", "udp", "here/file", &to];
    Program::cp(test, &[&fixed, words].concat())
}

fn push(test: &Test, server: SocketAddr, name: &str, words: &[&str]) -> Value {
    let ended = start_push(test, server, name, words).end();
    ended.assert_succeeded();
    assert_same(&test.here("file"), &test.there(name));
    ended.json()
}

fn history(test: &Test, words: &[&str]) -> Ended {
    Program::start(test, &[&["history", "--json"], words].concat()).end()
}

fn paths(test: &Test) -> Vec<Value> {
    history(test, &[]).json()["paths"].as_array().unwrap().clone()
}

#[test]
fn a_copy_starts_with_what_the_one_before_has_learnt() {
    limited(|test| {
        fs::write(test.here("file"), noise(1, BYTES)).unwrap();
        assert_eq!(paths(test).len(), 0);
        assert!(!test.path(FILE).exists(), "looking makes no file");
        let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let report = push(test, at, "one", &[]);
        let unknown = json!({ "used": "nothing known", "known_bps": null });
        assert_eq!(report["memory"], unknown);
        let first = report["history"].clone();
        assert_eq!((&first["known"], &first["used"]), (&Value::Null, &"nothing known".into()));
        let learnt = first["learnt_bps"].as_u64().unwrap();
        assert!((1_000_000..=100_000_000).contains(&learnt), "{first}");
        let report = push(test, at, "two", &[]);
        let second = report["history"].clone();
        assert_eq!(second["known"]["rate_bps"], learnt, "{second}");
        assert_ne!(second["used"], "nothing known");
        let memory = json!({ "used": second["used"], "known_bps": learnt });
        assert_eq!(report["memory"], memory);

        let known = paths(test);
        assert_eq!(known.len(), 1);
        assert_eq!(
            (&known[0]["peer"], &known[0]["direction"]),
            (&"127.0.0.1".into(), &"push".into())
        );
        assert_eq!(known[0]["transfers"], 2);
        let mode = fs::metadata(test.path(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        // The server keeps what a pull learns, and sends it to the next one.
        let from = format!("lh://127.0.0.1:{}/one", at.port());
        let pull = || {
            let words =
                ["--rate", "100Mbps", "--carrier", "udp", "--ignore-times", &from, "here/back"];
            let pulled = Program::cp(test, &words).end();
            pulled.assert_succeeded();
            assert_eq!(pulled.json()["history"], Value::Null);
            pulled.json()["memory"].clone()
        };
        assert_eq!(pull(), unknown);
        let of_pulls = || paths(test).into_iter().find(|path| path["direction"] == "pull");
        let kept = until("what the pull has learnt", of_pulls);
        let memory = pull();
        assert_eq!(memory["known_bps"], kept["known"]["rate_bps"], "{memory}");
        let used = memory["used"].as_str().unwrap();
        assert!(!["none", "nothing known"].contains(&used), "{memory}");
        until("the second", || of_pulls().filter(|path| path["transfers"] == 2));
        drop(server);
        let shown = history(test, &["show", "127.0.0.1"]).json();
        let of = |direction: &str| {
            let paths = shown["paths"].as_array().unwrap().iter();
            paths.clone().find(|path| path["direction"] == direction).unwrap().clone()
        };
        assert_eq!(of("pull")["transfers"].as_array().unwrap().len(), 2, "{shown}");
        let seen = of("push")["transfers"].as_array().unwrap().clone();
        assert_eq!(seen.len(), 2);
        // The newest first.
        assert_eq!(seen[1]["rate_bps"], learnt);
        assert_eq!(seen[1]["by_path"], false, "the user's limit was what bounded it");
        assert_eq!(seen[1]["profile"], "auto");
        assert!(seen[1]["packets_sent"].as_u64().unwrap() > 90, "{shown}");

        history(test, &["show", "elsewhere"])
            .assert_failed("nothing is known of paths to elsewhere");
        assert_eq!(history(test, &["clear", "127.0.0.1"]).json()["cleared"], 4);
        assert_eq!(paths(test).len(), 0);
    });
}

#[test]
fn clients_of_one_address_learn_apart_by_their_tokens() {
    limited(|test| {
        fs::write(test.there("file"), noise(1, BYTES)).unwrap();
        let tokens = format!("{}\n{}\n", token(1), token(2));
        fs::write(test.path("token"), tokens).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let from = format!("lh://127.0.0.1:{}/file", at.port());
        let pull = |number: u8| {
            fs::write(test.path("one"), token(number).to_string()).unwrap();
            let words = ["cp", "--json", "--token-file", "one", "--rate", "100Mbps"];
            let last = ["--carrier", "udp", "--ignore-times", &from, "here/back"];
            let words = [&words[..], &last].concat();
            let pulled = Program::start(test, &words).end();
            pulled.assert_succeeded();
            pulled.json()["memory"]["used"].clone()
        };
        let ids = || {
            let paths = paths(test).into_iter();
            paths.map(|path| path["token"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
        };
        assert_eq!(pull(1), "nothing known");
        until("what the first has learnt", || Some(ids()).filter(|ids| ids.len() == 1));
        assert_eq!(pull(2), "nothing known");
        let both = until("what the second has learnt", || Some(ids()).filter(|ids| ids.len() == 2));
        let tokens = [1, 2].map(|number| token(number).key().id().to_string());
        assert_eq!(both, BTreeSet::from(tokens));
        assert_ne!(pull(1), "nothing known");
    });
}

/// A path on which it takes a while to find the rate.
#[needs(namespaces)]
#[test]
fn start_up_over_a_long_path_builds_on_it() {
    limited(|test| {
        fs::write(test.here("file"), noise(6, BYTES)).unwrap();
        let serve = format!("{PROGRAM} serve -q --no-history --root there --token-file token");
        let copy = |name: &str| {
            let options = "--json --carrier udp --token-file token";
            format!("{PROGRAM} cp {options} here/file lh://peer/{name} >{name}.json")
        };
        let copies = format!("{} && {}", copy("one"), copy("two"));
        let path = ["lab", "path", "--rtt", "40ms", "--rate", "200Mbps", "--peer", &serve];
        let words = [&path[..], &["--", "sh", "-c", &copies]].concat();
        Program::start(test, &words).end().assert_succeeded();
        let report = |name: &str| -> Value {
            let text = fs::read_to_string(test.path(&format!("{name}.json"))).unwrap();
            serde_json::from_str::<Value>(&text).unwrap()["history"].clone()
        };
        assert_eq!(report("one")["used"], "nothing known");
        let second = report("two");
        let used = second["used"].as_str().unwrap();
        // The outcome is a matter of time, which a busy machine does not have.
        let begun = ["unvalidated", "confirmed", "lower", "untested", "retreated"];
        assert!(begun.contains(&used), "{second}");
        assert_eq!(second["known"]["mtu"], 1_500, "{second}");
    });
}

#[test]
fn copies_at_once_lose_nothing_of_it() {
    limited(|test| {
        fs::write(test.here("file"), noise(2, BYTES)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &["--no-history"]);
        push(test, at, "first", &[]);
        // While one builds on the path, no other does.
        let to = format!("lh://127.0.0.1:{}/slow", at.port());
        let words = ["--rate", "5Mbps", "--carrier", "udp", "here/file", &to];
        let slow = Program::cp(test, &words);
        until("the slow copy", || {
            let names = fs::read_dir(test.path("there")).unwrap().flatten();
            let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.any(|name| name.starts_with(".longhaul-")).then_some(())
        });
        assert_eq!(push(test, at, "meanwhile", &[])["history"]["used"], "busy");
        drop(slow);
        let names = ["a", "b", "c", "d"];
        let copies = names.map(|name| start_push(test, at, name, &[]));
        let reports = copies.map(|copy| copy.end().json());
        let learnt = reports.iter().filter(|report| report["history"]["learnt_bps"].is_u64());
        assert_eq!(paths(test)[0]["transfers"], 2 + learnt.count());
        // A process that was killed gave nothing back: its entry holds for a minute.
        assert!(reports.iter().all(|report| report["history"]["used"] == "busy"), "{reports:?}");
    });
}

#[test]
fn no_history_is_none() {
    limited(|test| {
        fs::write(test.here("file"), noise(3, BYTES)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &["--no-history"]);
        let report = push(test, at, "one", &["--no-history"]);
        assert_eq!((&report["history"], &report["memory"]), (&Value::Null, &Value::Null));
        let from = format!("lh://127.0.0.1:{}/one", at.port());
        let pulled = Program::cp(test, &["--no-history", &from, "here/back"]).end();
        pulled.assert_succeeded();
        assert_eq!(pulled.json()["memory"], Value::Null, "the server keeps none");
        assert!(!test.path(FILE).exists());
    });
}

#[test]
fn a_history_that_another_program_holds_is_reported_as_lost() {
    limited(|test| {
        fs::write(test.here("file"), noise(6, BYTES)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &["--no-history"]);
        push(test, at, "one", &[]);
        let other = rusqlite::Connection::open(test.path(FILE)).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let ended = start_push(test, at, "two", &[]).end();
        ended.assert_succeeded();
        let note = "note: what was learnt of this path is lost: the history: database is locked";
        assert_eq!(ended.stderr.matches(note).count(), 1, "{ended:?}");
        assert_eq!(ended.json()["history"]["learnt_bps"], Value::Null);
        drop(other);
        assert_eq!(paths(test)[0]["transfers"], 1);
    });
}

#[test]
fn a_history_that_cannot_be_had_holds_up_nothing() {
    limited(|test| {
        fs::write(test.here("file"), noise(4, BYTES)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &["--no-history"]);
        let folder = test.path(".local/state/longhaul");
        fs::create_dir_all(&folder).unwrap();
        fs::write(test.path(FILE), noise(5, 9_000)).unwrap();
        let ended = start_push(test, at, "one", &[]).end();
        ended.assert_succeeded();
        assert!(ended.stderr.contains("the history was damaged"), "{ended:?}");
        assert_eq!(paths(test).len(), 1, "begun again");
        assert_eq!(fs::read(folder.join("history.db.damaged")).unwrap(), noise(5, 9_000));

        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "no folder").unwrap();
        let ended = start_push(test, at, "two", &[]).end();
        ended.assert_succeeded();
        assert!(ended.stderr.contains("nothing is known of paths, nor learnt"), "{ended:?}");
        assert_eq!(ended.json()["history"], Value::Null);
    });
}
