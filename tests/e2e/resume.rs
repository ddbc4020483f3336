//! Interrupted copies: listed, discarded, and forgotten by servers in the end.

use std::fs;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::program::{Ended, Program};
use crate::server::Server;
use crate::test::{Test, limited, until};
use crate::trees::{is_hidden, names, noise, record_len};

fn resume(test: &Test, words: &[&str]) -> Ended {
    Program::start(test, &[&["resume"][..], words].concat()).end()
}

fn copies(ended: &Ended) -> Vec<Value> {
    assert_eq!(ended.status, Some(0), "{ended:?}");
    ended.json()["copies"].as_array().unwrap().clone()
}

/// Leaves `there/sub` with an interrupted copy; while it ran it was listed as that.
fn interrupt(test: &Test) {
    fs::write(test.here("file"), noise(1, 30_000_000)).unwrap();
    fs::create_dir_all(test.there("sub")).unwrap();
    let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
    let to = format!("lh://{at}/sub/");
    let copying = Program::cp(test, &["--rate", "80Mbps", "here/file", &to]);
    until("a record", || record_len(&test.path("there/sub")).filter(|len| *len > 200));
    let running = copies(&resume(test, &["--json", "--discard", "there"]));
    assert_eq!((running.len(), &running[0]["running"]), (1, &json!(true)), "{running:?}");
    copying.signal(Signal::KILL);
    copying.end();
    server.signal(Signal::KILL);
    server.end();
}

/// Of the file's bytes those are shown that have arrived, not those that were kept free for them.
fn assert_arrived(copy: &Value) {
    let bytes = copy["bytes"].as_u64().unwrap();
    assert!((1 << 20..30_000_000).contains(&bytes), "{copy}");
    assert_eq!(copy["bytes_total"], 30_000_000, "{copy}");
}

fn left(test: &Test) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(test.path("there/sub")).unwrap().map(Result::unwrap);
    entries.filter(|entry| is_hidden(&entry.file_name())).map(|entry| entry.path()).collect()
}

#[test]
fn interrupted_copies_are_listed_with_what_they_keep_and_discarded() {
    limited(|test| {
        interrupt(test);
        let found = copies(&resume(test, &["--json", "there"]));
        let path = found[0]["path"].as_str().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(path.starts_with("there/sub/.longhaul-"), "{found:?}");
        assert_arrived(&found[0]);
        assert_eq!(found[0]["sources"], json!(["127.0.0.1"]), "{found:?}");
        assert_eq!((&found[0]["running"], &found[0]["discarded"]), (&json!(false), &json!(false)));
        let shown = resume(test, &["there"]);
        assert!(shown.stdout.contains(&format!("{path} from 127.0.0.1")), "{shown:?}");
        let gone = copies(&resume(test, &["--json", "--discard", "there"]));
        assert_eq!((gone.len(), &gone[0]["discarded"]), (1, &json!(true)));
        assert_eq!(left(test), Vec::<std::path::PathBuf>::new());
        assert_eq!(copies(&resume(test, &["--json", "there"])), Vec::<Value>::new());
        resume(test, &["nowhere"]).assert_failed("longhaul: nowhere: no such directory\n");
    });
}

#[test]
fn an_interrupted_pull_is_listed_with_its_sources_as_they_were_written() {
    limited(|test| {
        fs::write(test.there("a file"), noise(1, 30_000_000)).unwrap();
        fs::create_dir_all(test.here("sub")).unwrap();
        let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let from = format!("lh://{at}/a%20file");
        fs::write(test.there("b"), "b").unwrap();
        let other = format!("lh://{at}/b");
        let copying = Program::cp(test, &["--rate", "80Mbps", &from, &other, "here/sub/"]);
        until("a record", || record_len(&test.here("sub")).filter(|len| *len > 0));
        copying.signal(Signal::INT);
        copying.end();
        let found = copies(&resume(test, &["--json", "here"]));
        assert_eq!(found[0]["sources"], json!([from, other]), "{found:?}");
        server.signal(Signal::INT);
        server.end();
    });
}

#[test]
fn interrupted_copies_of_a_server_are_shown_to_readers_and_discarded_by_who_may_delete() {
    limited(|test| {
        interrupt(test);
        let at = |words: &[&str], allowed: &[&str], path: &str| {
            let (server, at) = Program::serve(test, "127.0.0.1:0", allowed);
            let to = format!("lh://{at}/{path}");
            let fixed = ["--json", "--token-file", "token"];
            let ended = resume(test, &[&fixed[..], words, &[&to]].concat());
            server.signal(Signal::INT);
            server.end();
            ended
        };
        for path in ["", "sub", "sub/."] {
            let found = copies(&at(&[], &["--allow-read"], path));
            assert_eq!(found.len(), 1, "{found:?}");
            let name = found[0]["path"].as_str().unwrap();
            assert!(name.starts_with("lh://") && name.contains("/.longhaul-"), "{found:?}");
            assert_arrived(&found[0]);
            assert_eq!(found[0]["running"], json!(false));
        }
        at(&[], &["--allow-write"], "").assert_failed("this server shows nobody what it has");
        for rights in [&["--allow-read"][..], &["--allow-read", "--allow-write"]] {
            at(&["--discard"], rights, "").assert_failed("does not let anyone discard copies");
        }
        at(&[], &[], "none").assert_failed("/none: no such directory at the server");
        assert_eq!(left(test).len(), 1);
        let gone = copies(&at(&["--discard"], &["--allow-delete"], "sub"));
        assert_eq!((gone.len(), &gone[0]["discarded"]), (1, &json!(true)), "{gone:?}");
        assert_eq!(left(test), Vec::<std::path::PathBuf>::new());
        assert_eq!(copies(&at(&[], &[], "")), Vec::<Value>::new());
    });
}

#[test]
fn a_server_discards_what_nobody_has_gone_on_with_for_long() {
    limited(|test| {
        interrupt(test);
        let hidden = left(test).remove(0);
        let noted_at = |directory: &std::path::Path, time: SystemTime| {
            let record = fs::File::options()
                .append(true)
                .create(true)
                .open(directory.join("record"))
                .unwrap();
            record.set_modified(time).unwrap();
        };
        noted_at(&hidden, SystemTime::now() + Duration::from_secs(3_600));
        let older = test.there("sub/.longhaul-00000000000000000000000000000000");
        fs::create_dir(&older).unwrap();
        noted_at(&older, SystemTime::now() - Duration::from_secs(3_600));
        let start = |after: u64, writes: bool| {
            Server::with(test, |options| {
                options.discard_after = Duration::from_secs(after);
                options.access[0].allow_write = writes;
            })
        };
        for (after, writes) in [(0, true), (1, false), (7_200, true)] {
            drop(start(after, writes));
        }
        assert!(older.exists(), "never, nowhere, or later");
        let _server = start(1, true);
        until("the older one is gone", || (!older.exists()).then_some(()));
        assert!(hidden.exists(), "it was gone on with a moment ago");
    });
}

#[test]
fn a_copy_of_which_something_failed_leaves_only_what_the_next_one_needs() {
    limited(|test| {
        fs::create_dir(test.here("tree")).unwrap();
        fs::write(test.here("tree/f"), "x").unwrap();
        std::os::unix::fs::symlink("nowhere", test.here("tree/link")).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let run = |words: &[&str], to: &str| {
            let to = format!("lh://{at}/{to}");
            Program::cp(test, &[&["--follow"], words, &[&to]].concat()).end()
        };
        run(&["-T", "here/tree"], "by-option").assert_failed("tree/link");
        run(&["here/tree/."], "by-contents").assert_failed("link");
        assert_eq!(names(&test.path("there")), ["by-contents", "by-option"]);
        // Without it the same command would make new-name/tree.
        run(&["here/tree"], "new-name").assert_failed("tree/link");
        assert_eq!(names(&test.path("there")).len(), 4);
        fs::remove_file(test.here("tree/link")).unwrap();
        run(&["here/tree"], "new-name").assert_succeeded();
        assert_eq!(names(&test.path("there")), ["by-contents", "by-option", "new-name"]);
        assert_eq!(names(&test.there("new-name")), ["f"]);
    });
}

/// Without it `SRC/.` would need --merge, since something is there by now.
#[test]
fn a_pull_of_contents_of_which_something_failed_leaves_what_lets_it_go_on() {
    limited(|test| {
        fs::create_dir(test.there("tree")).unwrap();
        fs::write(test.there("tree/f"), "x").unwrap();
        std::os::unix::fs::symlink("nowhere", test.there("tree/link")).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let from = format!("lh://{at}/tree/.");
        let pull = |words: &[&str], to: &str| {
            Program::cp(test, &[&["--follow"], words, &[&from, to]].concat()).end()
        };
        let count = |to: &str| fs::read_dir(test.here(to)).unwrap().count();
        for (words, left) in [(&["--merge"][..], 1), (&[], 2)] {
            for _ in 0..2 {
                pull(words, "here/to/").assert_failed("link");
                assert_eq!(count("to"), left, "{words:?}");
            }
            if words.is_empty() {
                fs::remove_file(test.there("tree/link")).unwrap();
                pull(words, "here/to/").assert_succeeded();
                assert_eq!(names(&test.here("to")), ["f"]);
                assert_eq!(count("to"), 1);
            }
            fs::remove_dir_all(test.here("to")).unwrap();
        }
    });
}
