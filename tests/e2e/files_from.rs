//! Copies of the names that a list has, and of no others.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use longhaul::{CopyOptions, CopyReport, Deletes, FilterKind, FilterRule, NameList};

use crate::program::Program;
use crate::server::{Server, pull, push, run};
use crate::test::{Test, limited};

/// Everything below a directory, by path.
fn all(top: &Path) -> BTreeSet<String> {
    let (mut found, mut directories) = (BTreeSet::new(), vec![top.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = entry.path();
            found.insert(path.strip_prefix(top).unwrap().to_str().unwrap().to_owned());
            directories.extend(entry.file_type().unwrap().is_dir().then_some(path));
        }
    }
    found
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(String::from).into()
}

fn make(top: &Path) {
    for path in ["a/b/one", "a/b/two", "a/other", "d/e/f", "d/g", "top", "rest"] {
        fs::create_dir_all(top.join(path).parent().unwrap()).unwrap();
        fs::write(top.join(path), path).unwrap();
    }
    symlink("d", top.join("link")).unwrap();
    fs::set_permissions(top.join("a"), PermissionsExt::from_mode(0o750)).unwrap();
}

/// A copy of these names in `tree`, either way.
fn listed(server: &Server, test: &Test, pushes: bool, names: &[&str], to: &str) -> CopyOptions {
    let mut options = match pushes {
        true => push(&test.here("tree"), server.address, to.as_bytes()),
        false => pull(server.address, b"tree", &test.here(to)),
    };
    let list = NameList::new(names.iter().map(|name| name.as_bytes().to_vec())).unwrap();
    (options.copy_contents, options.names.list) = (true, Some(Arc::new(list)));
    options
}

fn failed(report: &CopyReport) -> Vec<String> {
    let mut failed: Vec<_> = report.failures.sample.iter().map(ToString::to_string).collect();
    failed.sort();
    failed
}

#[test]
fn listed_names_are_copied_and_no_others() {
    limited(|test| {
        let server = Server::start(test);
        make(&test.here("tree"));
        make(&test.there("tree"));
        for pushes in [true, false] {
            let names = ["top", "a/b/two", "d", "d/g", "link"];
            let copied = |to: &str| match pushes {
                true => test.there(to),
                false => test.here(to),
            };
            let expected = set(["a", "a/b", "a/b/two", "d", "d/e", "d/e/f", "d/g", "link", "top"]);
            let report = run(test, &listed(&server, test, pushes, &names, "some")).unwrap();
            assert_eq!(report.failures.count, 0, "{report:?}");
            assert_eq!(all(&copied("some")), expected);
            let mode = fs::metadata(copied("some/a")).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o750, "directories above are those of the source");
            // The names are the user's: they may go into what is there.
            fs::File::open(copied("some")).unwrap().set_modified(UNIX_EPOCH).unwrap();
            let again = run(test, &listed(&server, test, pushes, &names, "some")).unwrap();
            assert_eq!((again.unchanged.0, again.bytes), (5 + 5, 0), "{again:?}");
            assert_eq!(fs::metadata(copied("some")).unwrap().modified().unwrap(), UNIX_EPOCH);

            let mut ruled = listed(&server, test, pushes, &["a", "d/g", "top"], "ruled");
            let exclude =
                |pattern: &[u8]| FilterRule { kind: FilterKind::Exclude, pattern: pattern.into() };
            ruled.rules = vec![exclude(b"/a/b"), exclude(b"top"), exclude(b"/d")];
            let report = run(test, &ruled).unwrap();
            assert_eq!(report.failures.count, 0, "what a rule excludes is not missed: {report:?}");
            assert_eq!(all(&copied("ruled")), set(["a", "a/other", "d", "d/g"]));

            let none = run(test, &listed(&server, test, pushes, &[], "none")).unwrap();
            assert_eq!((none.failures.count, all(&copied("none"))), (0, BTreeSet::new()));
        }
    });
}

#[test]
fn listed_names_that_are_not_there_fail_each_by_its_name_or_that_of_its_directory() {
    limited(|test| {
        let server = Server::start(test);
        make(&test.here("tree"));
        make(&test.there("tree"));
        let hidden = format!(".longhaul-{}", "0".repeat(32));
        for top in [test.here("tree"), test.there("tree")] {
            fs::create_dir(top.join(&hidden)).unwrap();
            fs::write(top.join(&hidden).join("record"), "secret").unwrap();
        }
        let secret = format!("{hidden}/record");
        for top in [test.here("tree"), test.there("tree")] {
            symlink("none", top.join("lost")).unwrap();
        }
        let names = ["a/b/one", "a/no", "gone/x", "gone/y/z", "lost/g", "top/x", &secret];
        for pushes in [true, false] {
            let report = run(test, &listed(&server, test, pushes, &names, "out")).unwrap();
            let failed = failed(&report);
            let named = ["a/no: ", "gone: ", "lost: ", "top: ", &hidden];
            let side = if pushes { "on this host" } else { "at the server" };
            assert!(failed.iter().all(|line| line.contains(side)), "{failed:?}");
            assert_eq!(report.failures.count, named.len() as u64, "{failed:?}");
            for name in named {
                assert!(failed.iter().any(|line| line.starts_with(name)), "{name}: {failed:?}");
            }
            let copied = if pushes { test.there("out") } else { test.here("out") };
            assert_eq!(all(&copied), set(["a", "a/b", "a/b/one"]));
        }
        let mut wrong = listed(&server, test, false, &["top"], "out");
        wrong.delete = Some(Deletes::default());
        assert!(run(test, &wrong).unwrap_err().to_string().contains("not with --delete"));
        let mut nowhere = listed(&server, test, false, &["top"], "out");
        nowhere.paths = pull(server.address, b"nowhere", &test.here("out")).paths;
        assert!(run(test, &nowhere).unwrap_err().to_string().contains("nowhere: "));
    });
}

#[test]
fn no_directory_is_made_above_names_that_are_not_there() {
    limited(|test| {
        let server = Server::start(test);
        make(&test.here("tree"));
        make(&test.there("tree"));
        let hidden = format!("rest/.longhaul-{}/record", "0".repeat(32));
        for top in [test.here("tree"), test.there("tree")] {
            fs::remove_file(top.join("rest")).unwrap();
            fs::create_dir_all(top.join(&hidden)).unwrap();
        }
        let names = ["a/no", "a/b/none", "a/b/two", "d/e/x", "d/g", &hidden];
        for pushes in [true, false] {
            let mut options = listed(&server, test, pushes, &names, "out");
            options.rules =
                vec![FilterRule { kind: FilterKind::Exclude, pattern: b"two".to_vec() }];
            let report = run(test, &options).unwrap();
            let side = if pushes { "on this host" } else { "at the server" };
            let nothing = format!("nothing that is listed in it is there {side}: ");
            let expected = [
                format!("a: {nothing}no, b/none"),
                format!("d/e: {nothing}x"),
                format!("rest: {nothing}{}", hidden.strip_prefix("rest/").unwrap()),
            ];
            assert_eq!(failed(&report), expected);
            let out = if pushes { test.there("out") } else { test.here("out") };
            assert_eq!(all(&out), set(["d", "d/g"]));
        }
        fs::write(test.path("list"), "a/no\n").unwrap();
        let at = format!("lh://{}/tree", server.address);
        for words in [["here/tree", &format!("{at}/none/")], [&at, "none/"]] {
            let fixed = ["cp", "--token-file", "token", "--files-from", "list"];
            let ended = Program::start(test, &[&fixed[..], &words].concat()).end();
            ended.assert_failed("longhaul: a: nothing that is listed in it is there ");
            assert!(!ended.stderr.contains("the rest is complete"), "{ended:?}");
        }
    });
}

#[test]
fn directories_above_listed_names_may_be_links_and_are_copied_as_directories() {
    limited(|test| {
        let server = Server::start(test);
        for top in [test.here("tree"), test.there("tree")] {
            make(&top);
            symlink("../link/e", top.join("d/back")).unwrap();
            symlink("link", top.join("far")).unwrap();
        }
        let names = ["link/g", "far/back/f", "link/e", "link/back"];
        let expected = ["far", "far/back", "far/back/f", "link", "link/back", "link/e", "link/e/f"];
        for pushes in [true, false] {
            let report = run(test, &listed(&server, test, pushes, &names, "out")).unwrap();
            assert_eq!(report.failures.count, 0, "{report:?}");
            let out = if pushes { test.there("out") } else { test.here("out") };
            let mut found = all(&out);
            assert!(found.remove("link/g"));
            assert_eq!(found, set(expected));
            for directory in ["far", "far/back", "link", "link/e"] {
                assert!(fs::symlink_metadata(out.join(directory)).unwrap().is_dir(), "{directory}");
            }
            // Who lists a link wants the link.
            assert!(fs::symlink_metadata(out.join("link/back")).unwrap().is_symlink());
            let again = run(test, &listed(&server, test, pushes, &names, "out")).unwrap();
            assert_eq!(again.bytes, 0, "{again:?}");
        }
        // With a slash behind it a link to a directory means that, any other itself.
        for top in [test.here("tree"), test.there("tree")] {
            symlink("d/g", top.join("to-file")).unwrap();
            symlink("nowhere", top.join("lost")).unwrap();
        }
        let names = ["link/", "d/back/", "to-file/", "lost/", "far", "far/g"];
        for pushes in [true, false] {
            let report = run(test, &listed(&server, test, pushes, &names, "slash")).unwrap();
            assert_eq!(report.failures.count, 0, "{report:?}");
            let out = if pushes { test.there("slash") } else { test.here("slash") };
            for directory in ["link", "d/back", "far"] {
                assert!(fs::symlink_metadata(out.join(directory)).unwrap().is_dir(), "{directory}");
            }
            for file in ["link/g", "link/e/f", "d/back/f", "far/e/f"] {
                assert!(out.join(file).is_file(), "{file}");
            }
            for link in ["link/back", "to-file", "lost"] {
                assert!(out.join(link).is_symlink(), "{link}");
            }
            let again = run(test, &listed(&server, test, pushes, &names, "slash")).unwrap();
            assert_eq!((again.failures.count, again.bytes), (0, 0), "{again:?}");
        }
        // At a server a link leads out of nothing.
        fs::write(test.path("secret"), "secret").unwrap();
        symlink("../..", test.there("tree/out")).unwrap();
        for name in ["out/secret", "out/"] {
            let report = run(test, &listed(&server, test, false, &[name], "stolen")).unwrap();
            let failed = failed(&report);
            assert!(failed.len() == 1 && failed[0].starts_with("out: "), "{failed:?}");
            assert_eq!(all(&test.here("stolen")), BTreeSet::new());
        }
    });
}

/// Makes a tree on either side with a link to a directory in it. Returns the address of the server's.
fn trees_with_a_link(test: &Test, server: &Server) -> String {
    for top in [test.here("tree"), test.there("tree")] {
        make(&top);
        symlink("../d", top.join("a/link")).unwrap();
    }
    format!("lh://{}/tree", server.address)
}

#[test]
fn a_listed_name_behind_a_link_that_is_excluded_is_not_left_out_in_silence() {
    limited(|test| {
        let server = Server::start(test);
        let at = trees_with_a_link(test, &server);
        for list in ["a\na/link/g\n", "./\na/link/g\n"] {
            fs::write(test.path("list"), list).unwrap();
            for (from, to) in [("here/tree", &*format!("{at}/none/")), (&*at, "none/")] {
                let words = ["cp", "--token-file", "token", "--files-from", "list"];
                let more = ["--exclude", "link", from, to];
                let ended = Program::start(test, &[&words[..], &more].concat()).end();
                let _ = fs::remove_dir_all(test.path("none"));
                ended.assert_failed("a/link/g: no such file or directory ");
                assert!(
                    ended.stderr.contains("behind a link that a pattern excludes"),
                    "{ended:?}"
                );
            }
        }
    });
}

#[test]
fn a_listed_name_in_a_listed_directory_that_is_not_copied_is_named() {
    limited(|test| {
        let server = Server::start(test);
        let at = trees_with_a_link(test, &server);
        let not_there = "no such file or directory ";
        let linked = "a link ";
        let cases = [
            ("a\na/no\na/other\n", "a/no", not_there),
            ("./\na/b/no/\n", "a/b/no", not_there),
            ("a\na/link/g\na/link\n", "a/link/g", linked),
            ("a/\na/link/\n", "a/link/", linked),
            ("a\na/other/x\n", "a/other/x", "what it should be in is no directory "),
        ];
        for (list, name, reason) in cases {
            fs::write(test.path("list"), list).unwrap();
            let (to, from) = (format!("{at}/none/"), "here/tree");
            for (from, to, side) in [(from, &*to, "on this host"), (&*at, "none/", "at the server")]
            {
                for dry in [&["-n"][..], &[]] {
                    let words = ["--token-file", "token", "--files-from", "list", from, to];
                    let ended = Program::start(test, &[&["cp"][..], dry, &words].concat()).end();
                    ended.assert_failed("1 entry was not copied");
                    let line = format!("longhaul: {name}: {reason}{side}");
                    assert!(ended.stderr.contains(&line), "{line}: {ended:?}");
                }
                let copied = if from == at { test.path("none") } else { test.there("tree/none") };
                assert_eq!(fs::read(copied.join("a/other")).unwrap(), b"a/other");
                fs::remove_dir_all(copied).unwrap();
            }
            let words = ["cp", "--token-file", "token", "--files-from", "list", "--follow"];
            let followed = Program::start(test, &[&words[..], &[&at, "none/"]].concat()).end();
            assert_eq!(followed.status, Some(i32::from(reason != linked)), "{followed:?}");
            fs::remove_dir_all(test.path("none")).unwrap();
        }
    });
}

#[test]
fn cp_reads_a_list_from_standard_input() {
    limited(|test| {
        let server = Server::start(test);
        make(&test.there("tree"));
        let list = test.path("list");
        fs::write(&list, "#none\n\n/a/b/../../../x\n").unwrap();
        let at = format!("lh://{}/tree", server.address);
        let cp = |words: &[&str], input: &str| {
            fs::write(test.path("input"), input).unwrap();
            let words =
                [&["cp", "--json", "--token-file", "token"], words, &[&*at, "here"]].concat();
            Program::reading(test, &test.path("input"), &words).end()
        };
        let ended = cp(&["--files-from", "list"], "");
        assert_eq!(ended.status, Some(2), "{ended:?}");
        let words = "line 3: /a/b/../../../x: it leads out of SRC, upwards";
        assert!(ended.stderr.contains(words), "{ended:?}");
        cp(&["--files-from", "-"], "a/b/../other\n").assert_succeeded();
        assert_eq!(all(&test.path("here")), set(["a", "a/other"]));
        cp(&["--files-from", "-", "-0"], "a/b/one\0d/\0").assert_succeeded();
        assert_eq!(
            all(&test.path("here")),
            set(["a", "a/b", "a/b/one", "a/other", "d", "d/e", "d/e/f", "d/g"])
        );
        // As with rsync, in any order.
        for list in ["a/b\na/b/one\n", "a/b/one\na\n"] {
            let _ = fs::remove_dir_all(test.path("here"));
            cp(&["--files-from", "-", "--exclude", "b"], list).assert_succeeded();
            assert!(all(&test.path("here")).contains("a/b/one"), "{list}");
        }
        assert_eq!(cp(&["--files-from", "-", "--delete"], "").status, Some(2));
        let many: String = (0..1000).map(|number| format!("a/b/{number}\n")).collect();
        let ended = cp(&["--files-from", "-", "--exclude", "b"], &format!("a\n{many}"));
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("list parts of them in several copies"), "{ended:?}");
        let both = cp(&["--exclude-from", "-", "--files-from", "-"], "a\n");
        assert_eq!(both.status, Some(2), "{both:?}");
        assert!(both.stderr.contains("standard input can be read once"), "{both:?}");
        assert_eq!(cp(&["--exclude-from", "-", "--exclude-from", "-"], "").status, Some(2));
    });
}
