//! Lists of hashes, and files that are compared with them where they are.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use longhaul_needs::needs;
use serde_json::json;

use crate::program::{Ended, PROGRAM, Program};
use crate::server::Server;
use crate::test::{Test, limited};

/// Makes `tree` in `folder`: small files, a large one, odd names, a link; and its list of hashes.
pub fn tree(test: &Test, folder: &Path) {
    fs::create_dir_all(folder.join("tree/sub")).unwrap();
    let large: Vec<u8> = (0..11_000_003_u32).map(|n| (n * 7 + n / 1000) as u8).collect();
    fs::write(folder.join("tree/large"), large).unwrap();
    fs::write(folder.join("tree/empty"), "").unwrap();
    fs::write(folder.join("tree/sub/a\\b\nc"), "odd").unwrap();
    fs::write(folder.join("tree/sub/leaf"), "leaf").unwrap();
    symlink("sub/leaf", folder.join("tree/link")).unwrap();
    let mut list = String::new();
    for (name, shown) in [
        ("tree/empty", "tree/empty"),
        ("tree/large", "tree/large"),
        ("tree/sub/a\\b\nc", "tree/sub/a\\\\b\\nc"),
        ("tree/sub/leaf", "tree/sub/leaf"),
    ] {
        let hash = blake3::hash(&fs::read(folder.join(name)).unwrap()).to_hex();
        let mark = if name == shown { "" } else { "\\" };
        list.push_str(&format!("{mark}{hash}  {shown}\n"));
    }
    fs::write(test.folder().join("list"), list).unwrap();
}

fn verify(test: &Test, words: &[&str], place: &str) -> Ended {
    let fixed = ["verify", "--token-file", "token", "list"];
    Program::start(test, &[&fixed[..], &[place], words].concat()).end()
}

/// Makes it differ in each manner.
pub fn spoil(folder: &Path) {
    fs::write(folder.join("tree/sub/leaf"), "fall").unwrap();
    fs::remove_file(folder.join("tree/empty")).unwrap();
    fs::write(folder.join("tree/sub/more"), "more").unwrap();
    // Beside what the list is about.
    fs::write(folder.join("other"), "other").unwrap();
    // Links are not followed.
    fs::remove_file(folder.join("tree/large")).unwrap();
    symlink("/etc/passwd", folder.join("tree/large")).unwrap();
}

pub fn assert_spoilt(ended: &Ended) {
    let answer = ended.json();
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert_eq!(answer["missing"], json!({ "count": 1, "paths": ["tree/empty"] }), "{ended:?}");
    assert_eq!(answer["changed"], json!({ "count": 1, "paths": ["tree/sub/leaf"] }));
    assert_eq!(answer["extra"], json!({ "count": 1, "paths": ["tree/sub/more"] }));
    assert_eq!((&answer["failed"], &answer["files"]), (&json!(1), &json!(1)));
    let reason = answer["failures"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("it is or is behind a link"), "{reason}");
}

#[test]
fn what_a_server_has_is_compared_there() {
    limited(|test| {
        let folder = test.there("");
        tree(test, &folder);
        let server = Server::start(test);
        let place = format!("lh://{}/", server.address);
        let ended = verify(test, &["--json"], &place);
        let answer = ended.json();
        assert_eq!(ended.status, Some(0), "{ended:?}");
        assert_eq!((&answer["files"], &answer["bytes"]), (&json!(4), &json!(11_000_010)));
        spoil(&folder);
        assert_spoilt(&verify(test, &["--json"], &place));
        let ended = verify(test, &[], &place);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.stdout.contains("missing  tree/empty\n"), "{ended:?}");
        let ended = verify(test, &["--ignore-extra", "--json"], &place);
        assert_eq!(ended.json()["extra"]["count"], 0, "{ended:?}");
        verify(test, &[], &format!("{place}none")).assert_failed("none: no such directory");
        verify(test, &[], &format!("{place}other")).assert_failed("it is no directory");
        drop(server);
        let server = Server::with(test, |options| options.access[0].allow_read = false);
        let ended = verify(test, &[], &format!("lh://{}/", server.address));
        ended.assert_failed("does not let anyone copy from it, nor compare what it has");
    });
}

#[test]
fn what_is_here_is_compared_without_a_server() {
    limited(|test| {
        let folder = test.folder().join("here");
        tree(test, &folder);
        assert_eq!(verify(test, &[], "here").status, Some(0));
        spoil(&folder);
        assert_spoilt(&verify(test, &["--json"], "here"));
        verify(test, &[], "none").assert_failed("none: ");
    });
}

/// The script knows no address of the server, so that all goes through it; hashes are as fast there.
#[test]
fn hashes_through_ssh_are_no_reason_to_open_ports() {
    limited(|test| {
        tree(test, &test.there("data"));
        let ssh = "while [ \"$1\" != dtn2 ]; do shift; done\nshift\n[ \"$1\" = -- ] && shift\n\
                   cd there && exec sh -c \"$*\"\n";
        fs::write(test.path("ssh"), ssh).unwrap();
        let run = |words: &[&str]| {
            let fixed = ["-e", "sh ssh", "--remote-path", PROGRAM];
            Program::start(test, &[words, &fixed].concat()).end()
        };
        let ended = run(&["verify", "list", "dtn2:data"]);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        assert!(!ended.stderr.contains("through ssh"), "{ended:?}");
        let copied = run(&["cp", "dtn2:data/tree", "here/"]);
        copied.assert_succeeded();
        assert!(copied.stderr.contains("data goes through ssh"), "{copied:?}");
    });
}

/// Status 1 would say that files differ, or that the list cannot be read.
#[test]
fn a_list_that_is_none_is_used_wrongly_and_nothing_is_compared() {
    limited(|test| {
        let hash = "04".repeat(32);
        let with_list = |text: &str| {
            fs::write(test.folder().join("list"), text).unwrap();
            verify(test, &["--json"], "here")
        };
        for (name, why) in [
            ("../x", "this name has `..` in it"),
            ("/etc/passwd", "this name is absolute"),
            ("a/../../x", "this name has `..` in it"),
        ] {
            let ended = with_list(&format!("{hash}  ok\n{hash}  {name}\n"));
            assert_eq!(ended.status, Some(2), "{ended:?}");
            let error = ended.json()["error"].as_str().unwrap().to_owned();
            assert!(error.starts_with(&format!("list: line 2: {why}")), "{error}");
            assert!(error.ends_with("; nothing was compared"), "{error}");
        }
        for (text, why) in [("", "it has no lines"), ("x\n", "this is no line of b3sum")] {
            let ended = with_list(text);
            assert_eq!(ended.status, Some(2), "{ended:?}");
            assert!(ended.stderr.contains(why), "{ended:?}");
        }
        fs::remove_file(test.folder().join("list")).unwrap();
        verify(test, &[], "here").assert_failed("cannot read list: there is no such file");
        fs::create_dir(test.folder().join("list")).unwrap();
        verify(test, &[], "here").assert_failed("cannot read list: line 1: it is a directory");
    });
}

#[test]
fn doubled_slashes_in_a_list_are_one() {
    limited(|test| {
        fs::create_dir(test.here("v")).unwrap();
        fs::write(test.here("v/a"), "contents").unwrap();
        let hash = blake3::hash(b"contents").to_hex();
        fs::write(test.folder().join("list"), format!("{hash}  v//a\n")).unwrap();
        let ended = verify(test, &["--json"], "here");
        assert_eq!((ended.status, &ended.json()["files"]), (Some(0), &json!(1)), "{ended:?}");
    });
}

#[test]
fn many_files_are_asked_for_and_answered_in_any_order() {
    limited(|test| {
        let mut list = String::new();
        fs::create_dir(test.there("d")).unwrap();
        for number in 0..9_000 {
            let name = format!("{number:0>90}");
            fs::write(test.there("d").join(&name), &name).unwrap();
            let hash = blake3::hash(name.as_bytes()).to_hex();
            list.push_str(&format!("{hash}  d/{name}\n"));
        }
        fs::write(test.folder().join("list"), list).unwrap();
        let server = Server::start(test);
        let ended = verify(test, &["--json"], &format!("lh://{}/", server.address));
        assert_eq!((ended.status, &ended.json()["files"]), (Some(0), &json!(9_000)), "{ended:?}");
    });
}

/// Lines of the list `folder`/`name`, sorted by name, as they have to be for the files below `base`.
fn lines(base: &Path, names: &[&str]) -> String {
    let mut names = names.to_vec();
    names.sort_unstable();
    let line = |name: &&str| {
        let hash = blake3::hash(&fs::read(base.join(name)).unwrap()).to_hex();
        let shown = name.replace('\\', "\\\\").replace('\n', "\\n");
        let mark = if shown == *name { "" } else { "\\" };
        format!("{mark}{hash}  {shown}\n")
    };
    names.iter().map(line).collect()
}

const NAMES: [&str; 4] = ["tree/large", "tree/empty", "tree/sub/a\\b\nc", "tree/sub/leaf"];

#[test]
fn a_list_inside_its_source_is_not_copied_while_it_is_written() {
    limited(|test| {
        tree(test, &test.folder().join("here"));
        let expected = lines(&test.here(""), &NAMES);
        let server = Server::start(test);
        let place = format!("lh://{}/", server.address);
        let words =
            ["cp", "--token-file", "token", "--manifest", "here/tree/list", "here/tree", &place];
        let ended = Program::start(test, &words).end();
        assert_eq!(ended.status, Some(0), "{ended:?}");
        assert_eq!(fs::read_to_string(test.here("tree/list")).unwrap(), expected);
        let [there, here] = [test.there("tree"), test.here("tree")];
        let unfinished = [there.join("list.unfinished"), here.join("list.unfinished")];
        assert!(!there.join("list").exists() && unfinished.iter().all(|path| !path.exists()));
    });
}

#[test]
fn a_copy_writes_the_hashes_of_its_files() {
    limited(|test| {
        tree(test, &test.folder().join("here"));
        // Small files that cross the bounds of groups.
        let names: Vec<String> = (0..12).map(|number| format!("tree/sub/m{number:0>2}")).collect();
        for (number, name) in names.iter().enumerate() {
            let contents = vec![number as u8; 300_000 + number];
            fs::write(test.here(name), contents).unwrap();
        }
        let all: Vec<&str> = names.iter().map(String::as_str).chain(NAMES).collect();
        let expected = lines(&test.here(""), &all);
        let server = Server::start(test);
        let place = format!("lh://{}/", server.address);
        let cp = |words: &[&str]| {
            let fixed = ["cp", "--token-file", "token", "--json", "--manifest", "list"];
            let _ = fs::remove_file(test.folder().join("list"));
            let ended = Program::start(test, &[&fixed[..], words].concat()).end();
            assert_eq!(ended.status, Some(0), "{ended:?}");
            assert!(!test.folder().join("list.unfinished").exists());
            fs::read_to_string(test.folder().join("list")).unwrap()
        };
        assert_eq!(cp(&["here/tree", &place]), expected, "sent");
        assert_eq!(cp(&["here/tree", &place]), expected, "unchanged");
        assert_eq!(verify(test, &[], &place).status, Some(0));
        fs::create_dir(test.folder().join("back")).unwrap();
        let tree = format!("{place}tree");
        assert_eq!(cp(&[&tree, "back"]), expected, "received");
        assert_eq!(cp(&[&tree, "back"]), expected, "unchanged here");
        assert_eq!(verify(test, &[], "back").status, Some(0));
        let named = |name: &str| expected.replace("  tree/", &format!("  {name}/"));
        assert_eq!(cp(&[&tree, "back/other"]), named("other"), "received under a new name");
        assert_eq!(verify(test, &[], "back").status, Some(0));
        for pass in ["sent", "unchanged"] {
            let new = format!("{place}new");
            assert_eq!(cp(&["-T", "here/tree", &new]), named("new"), "{pass} under a new name");
            assert_eq!(verify(test, &[], &place).status, Some(0));
        }
        let leaf = cp(&["here/tree/sub/leaf", &format!("{place}leaf-2")]);
        assert!(leaf.ends_with("  leaf-2\n") && leaf.lines().count() == 1, "{leaf}");
    });
}

#[test]
fn names_that_are_not_utf_8_are_found_by_the_list_that_a_copy_writes() {
    limited(|test| {
        let names = [&b"caf\xe9"[..], b"caf\xe8", b"\xff\\\xfe\n"];
        let at = |folder: &Path, name: &[u8]| folder.join("tree").join(OsStr::from_bytes(name));
        fs::create_dir(test.here("tree")).unwrap();
        for name in names {
            fs::write(at(&test.here(""), name), name).unwrap();
        }
        let server = Server::start(test);
        let place = format!("lh://{}/", server.address);
        let tree = format!("{place}tree");
        for (from, to) in [("here/tree", &*place), (&*tree, "back/")] {
            let words = ["cp", "--token-file", "token", "--manifest", "list", from, to];
            let ended = Program::start(test, &words).end();
            assert_eq!(ended.status, Some(0), "{ended:?}");
            let note = "3 names are not UTF-8: `longhaul verify` compares them by list, b3sum cannot read it";
            assert!(ended.stderr.contains(note), "{ended:?}");
            assert_eq!(verify(test, &[], to).status, Some(0));
        }
        fs::write(at(&test.there(""), names[0]), "tea").unwrap();
        fs::remove_file(at(&test.there(""), names[1])).unwrap();
        let ended = verify(test, &[], &place);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        let mut found: Vec<&str> = ended.stdout.lines().collect();
        found.sort_unstable();
        assert_eq!(found, ["changed  tree/caf\\xe9", "missing  tree/caf\\xe8"]);
    });
}

#[needs(b3sum)]
#[test]
fn b3sum_checks_what_a_copy_writes() {
    limited(|test| {
        tree(test, &test.folder().join("here"));
        let returns = ["tree/sub/a\rb", "tree/sub/c\r", "tree/sub/d\n\r"];
        for name in returns {
            fs::write(test.here(name), name).unwrap();
        }
        let server = Server::start(test);
        let place = format!("lh://{}/", server.address);
        let words = ["cp", "--token-file", "token", "--manifest", "list", "here/tree", &place];
        Program::start(test, &words).end().assert_succeeded();
        // And the other way round.
        let mut b3sum = Command::new("b3sum");
        b3sum.args(NAMES).args(returns).current_dir(test.there(""));
        let written = fs::read(test.folder().join("list")).unwrap();
        fs::write(test.folder().join("list"), b3sum.output().unwrap().stdout).unwrap();
        assert_eq!(verify(test, &[], &place).status, Some(0));
        fs::write(test.folder().join("list"), written).unwrap();
        let check = || {
            let mut b3sum = Command::new("b3sum");
            b3sum.arg("--check").arg(test.folder().join("list")).current_dir(test.there(""));
            b3sum.output().unwrap()
        };
        let checked = check();
        assert!(checked.status.success(), "{checked:?}");
        let lines = String::from_utf8(checked.stdout).unwrap();
        assert_eq!(
            lines.lines().filter(|line| line.ends_with(": OK")).count(),
            NAMES.len() + returns.len()
        );
        fs::write(test.there("tree/sub/leaf"), "fall").unwrap();
        assert!(!check().status.success());
    });
}

#[test]
fn a_copy_of_which_something_fails_leaves_the_earlier_list() {
    limited(|test| {
        tree(test, &test.folder().join("here"));
        let before = fs::read_to_string(test.folder().join("list")).unwrap();
        fs::create_dir_all(test.there("tree/sub/leaf/in-the-way")).unwrap();
        let server = Server::start(test);
        let place = format!("lh://{}/", server.address);
        let words = ["cp", "--token-file", "token", "--manifest", "list", "here/tree", &place];
        let ended = Program::start(test, &words).end();
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(
            ended.stderr.contains("list was not written, since not all was copied"),
            "{ended:?}"
        );
        assert_eq!(fs::read_to_string(test.folder().join("list")).unwrap(), before);
        assert!(!test.folder().join("list.unfinished").exists());
        let words = ["cp", "--token-file", "token", "--manifest", "none/list", "here/tree", &place];
        let ended = Program::start(test, &words).end();
        ended.assert_failed("cannot write none/list");
    });
}

#[test]
fn files_with_holes_have_the_hash_of_their_whole_contents() {
    limited(|test| {
        let folder = test.folder().join("here");
        let file = fs::File::create(folder.join("sparse")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 9_000], 3 << 20).unwrap();
        file.set_len(5 << 20).unwrap();
        let mut contents = vec![0; 5 << 20];
        contents[3 << 20..][..9_000].fill(7);
        let expected = format!("{}  here/sparse\n", blake3::hash(&contents).to_hex());
        let server = Server::start(test);
        let place = format!("lh://{}/", server.address);
        fs::create_dir(test.folder().join("back")).unwrap();
        for words in [["here", &place], [&format!("{place}here"), "back"]] {
            let fixed = ["cp", "--token-file", "token", "--manifest", "list"];
            let ended = Program::start(test, &[&fixed[..], &words].concat()).end();
            assert_eq!(ended.status, Some(0), "{ended:?}");
            assert_eq!(fs::read_to_string(test.folder().join("list")).unwrap(), expected);
        }
    });
}
