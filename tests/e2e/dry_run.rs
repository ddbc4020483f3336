//! `cp -n` says what a copy would do, `cp -v` what it does, and the two agree.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use longhaul_needs::needs;

use crate::program::{NOBODY, PROGRAM, Program, Tmpfs};
use crate::storage::as_nobody;
use crate::test::{Test, limited, until};
use crate::trees::{assert_same, make_tree, noise};

/// Everything below, with kind, inode, size, and times of change.
fn look(root: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let Ok(entries) = fs::read_dir(root) else { return all };
    let meta = fs::symlink_metadata(root).unwrap();
    all.insert(format!(
        "{} {} {:?}",
        root.display(),
        meta.ino(),
        (meta.ctime(), meta.ctime_nsec())
    ));
    for entry in entries {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let times = (meta.ctime(), meta.ctime_nsec(), meta.mtime(), meta.mtime_nsec());
        all.insert(format!("{} {} {} {times:?}", path.display(), meta.ino(), meta.len()));
        if meta.is_dir() {
            all.extend(look(&path));
        }
    }
    all
}

/// Paths behind a word, of the lines that begin with it.
fn lines<'t>(text: &'t str, word: &str) -> BTreeSet<&'t str> {
    text.lines().filter_map(|line| line.strip_prefix(word)).map(str::trim_start).collect()
}

fn cp<'t>(test: &'t Test, words: &[&str]) -> Program<'t> {
    Program::start(test, &[&["cp", "--token-file", "token"][..], words].concat())
}

fn changed_source(tree: &Path) {
    make_tree(tree);
    fs::write(tree.join("changed"), "new").unwrap();
    symlink("elsewhere", tree.join("other-link")).unwrap();
}

/// A destination where some is as at the source, some is not, and some is more.
fn earlier(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
    fs::write(to.join("changed"), "old, and longer").unwrap();
    fs::remove_file(to.join("other-link")).unwrap();
    symlink("there", to.join("other-link")).unwrap();
    fs::remove_file(to.join("a/b/f7")).unwrap();
    fs::remove_dir(to.join("empty")).unwrap();
    fs::create_dir(to.join("more")).unwrap();
    fs::write(to.join("more/x"), "x").unwrap();
    fs::write(to.join("a/b/extra"), "x").unwrap();
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_the_copy_then_does() {
    limited(|test| {
        let (_server, at) = Program::serve(
            test,
            "127.0.0.1:0",
            &["--allow-read", "--allow-write", "--allow-delete"],
        );
        for pushes in [true, false] {
            let (from, to) = match pushes {
                true => (test.here("tree"), test.there("tree")),
                false => (test.there("source"), test.here("source")),
            };
            changed_source(&from);
            earlier(&from, &to);
            let (source, destination) = match pushes {
                true => ("here/tree".to_owned(), format!("lh://{at}/")),
                false => (format!("lh://{at}/source"), "here".to_owned()),
            };
            let before = look(to.parent().unwrap());
            let dry = cp(test, &["-n", "--delete", &source, &destination]).end();
            dry.assert_succeeded();
            assert_eq!(before, look(to.parent().unwrap()), "{dry:?}");
            let name = to.file_name().unwrap().to_str().unwrap();
            let path = |below: &str| format!("{name}/{below}");
            let owned = |names: &[&str]| names.iter().map(|it| path(it)).collect::<BTreeSet<_>>();
            let found = |word| lines(&dry.stdout, word).into_iter().map(str::to_owned).collect();
            let (new, differs): (BTreeSet<String>, BTreeSet<String>) =
                (found("new "), found("differs "));
            assert_eq!(new, owned(&["a/b/f7", "empty/"]), "{dry:?}");
            assert_eq!(differs, owned(&["changed", "other-link"]), "{dry:?}");
            let deletes: BTreeSet<String> = found("deleting ");
            assert_eq!(deletes, owned(&["more", "more/x", "a/b/extra"]), "{dry:?}");
            assert!(dry.stderr.contains("dry run: 4 entries would be copied"), "{dry:?}");

            let real = cp(test, &["-v", "--delete", &source, &destination]).end();
            real.assert_succeeded();
            assert_eq!(lines(&real.stdout, "deleting "), lines(&dry.stdout, "deleting "));
            let copied = real.stdout.lines().filter(|line| !line.starts_with("deleting "));
            let would = new.iter().chain(&differs).map(String::as_str);
            assert_eq!(copied.collect::<BTreeSet<_>>(), would.collect());
        }
    });
}

#[test]
fn directories_that_are_made_are_named_and_attributes_that_are_mended() {
    limited(|test| {
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let to = format!("lh://{at}/");
        fs::create_dir_all(test.here("m/sub")).unwrap();
        for name in ["f", "g", "sub/h"] {
            fs::write(test.here(&format!("m/{name}")), "x").unwrap();
        }
        let mode = |name: &str, mode| {
            fs::set_permissions(test.here(name), PermissionsExt::from_mode(mode)).unwrap();
        };
        let first = cp(test, &["-v", "here/m", &to]).end();
        let all = ["m/", "m/f", "m/g", "m/sub/", "m/sub/h"];
        assert_eq!(first.stdout.lines().collect::<BTreeSet<_>>(), all.into(), "{first:?}");
        let runs =
            [("-v", &[][..]), ("-v", &["m/f"]), ("-av", &["m/f", "m/sub/"]), ("-cv", &["m/g"])];
        for (number, (verbose, expected)) in runs.into_iter().enumerate() {
            match number {
                // A directory that is there keeps its mode without -a.
                1 => [("m/f", 0o600), ("m/sub", 0o700)].map(|(name, bits)| mode(name, bits)),
                2 => [("m/f", 0o644), ("m/sub", 0o750)].map(|(name, bits)| mode(name, bits)),
                _ => [(); 2],
            };
            if number == 3 {
                let later = SystemTime::now() + Duration::from_secs(9);
                fs::File::open(test.here("m/g")).unwrap().set_modified(later).unwrap();
            }
            let dry = verbose.replace('v', "n");
            let counted = Program::cp(test, &[&dry, "here/m", &to]).end().json();
            let unchanged = &counted["unchanged"];
            assert_eq!(
                (&unchanged["files"], &unchanged["mended"]),
                (&5.into(), &expected.len().into())
            );
            for option in [&dry, verbose] {
                let ended = cp(test, &[option, "here/m", &to]).end();
                ended.assert_succeeded();
                assert_eq!(lines(&ended.stdout, "mended "), expected.iter().copied().collect());
                assert_eq!(ended.stdout.lines().count(), expected.len(), "{ended:?}");
            }
        }
        // Which copies all files.
        let all = cp(test, &["-Iv", "here/m", &to]).end();
        let files = ["m/f", "m/g", "m/sub/h"];
        assert_eq!(all.stdout.lines().collect::<BTreeSet<_>>(), files.into(), "{all:?}");
    });
}

#[test]
fn a_copy_that_changes_nothing_names_nothing_and_names_that_cannot_be_written_fail_it() {
    limited(|test| {
        fs::write(test.here("f"), "x").unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let there = format!("lh://{at}/");
        assert_eq!(cp(test, &["-v", "here/f", &there]).end().stdout, "f\n");
        assert_eq!(cp(test, &["-v", "here/f", &there]).end().stdout, "");
        let full = || fs::File::options().write(true).open("/dev/full").unwrap();
        for option in ["-n", "-v"] {
            let mut command = Command::new(PROGRAM);
            command.args(["cp", "--token-file", "token", "-I", option, "here/f", &there]);
            let command = command.current_dir(test.folder()).env("HOME", test.folder());
            let ended = command.stdout(full()).stderr(Stdio::piped()).output().unwrap();
            assert_eq!(ended.status.code(), Some(1), "{option}: {ended:?}");
        }
    });
}

#[test]
fn a_dry_run_names_what_stands_in_the_way() {
    limited(|test| {
        fs::create_dir_all(test.here("tree/d")).unwrap();
        for name in ["f", "d/inside"] {
            fs::write(test.here(&format!("tree/{name}")), "x").unwrap();
        }
        symlink("x", test.here("tree/link")).unwrap();
        for name in ["f", "link"] {
            fs::create_dir_all(test.there(&format!("tree/{name}"))).unwrap();
        }
        symlink("elsewhere", test.there("tree/d")).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let there = format!("lh://{at}/");
        let dry = cp(test, &["-n", "here/tree", &there]).end();
        dry.assert_failed("what is never replaced has its name");
        assert_eq!(dry.stdout, "", "{dry:?}");
        assert!(dry.stderr.contains("dry run: 0 entries would be copied"), "{dry:?}");
        assert!(dry.stderr.contains("4 entries"), "{dry:?}");
        let real = cp(test, &["here/tree", &there]).end();
        real.assert_failed("4 entries were not copied");
    });
}

#[test]
fn what_goes_of_a_directory_that_stays_is_named() {
    limited(|test| {
        fs::create_dir_all(test.here("m")).unwrap();
        let (_server, at) = Program::serve(
            test,
            "127.0.0.1:0",
            &["--allow-read", "--allow-write", "--allow-delete"],
        );
        fs::create_dir_all(test.there("m/gone/keep")).unwrap();
        fs::create_dir_all(test.there("m/whole/deep")).unwrap();
        for name in ["gone/1", "gone/2", "whole/3", "whole/deep/4"] {
            fs::write(test.there(&format!("m/{name}")), "x").unwrap();
        }
        let there = format!("lh://{at}/");
        let names = ["gone/1", "gone/2", "whole/3", "whole/deep/4", "whole/deep", "whole"];
        let names = names.map(|name| format!("m/{name}"));
        let expected: BTreeSet<_> = names.iter().map(String::as_str).collect();
        for option in ["-n", "-v"] {
            let words = [option, "--delete", "--exclude", "keep", "here/m", &there];
            let ended = cp(test, &words).end();
            ended.assert_succeeded();
            assert_eq!(lines(&ended.stdout, "deleting "), expected, "{ended:?}");
        }
        assert!(test.there("m/gone/keep").exists() && !test.there("m/gone/1").exists());
    });
}

#[test]
fn a_dry_run_to_where_nothing_is_makes_not_even_the_directory() {
    limited(|test| {
        fs::write(test.here("f"), "x").unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        for to in ["new", "new/", "a/b/"] {
            let dry = cp(test, &["-n", "here/f", &format!("lh://{at}/{to}")]).end();
            dry.assert_succeeded();
            assert_eq!(dry.stdout.trim_end(), "new      f", "{to}: {dry:?}");
        }
        assert_eq!(fs::read_dir(test.path("there")).unwrap().count(), 0);
        let json = Program::cp(test, &["-n", "here/f", &format!("lh://{at}/new")]).end();
        let report = json.json();
        assert_eq!((&report["dry_run"], &report["files"]), (&true.into(), &0.into()), "{report}");
        let would = serde_json::json!({ "entries": 1, "bytes": 1 });
        assert_eq!(report["would_change"], would);
    });
}

#[test]
fn a_server_that_shows_nothing_refuses_a_dry_run() {
    limited(|test| {
        fs::write(test.here("f"), "x").unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &["--allow-write"]);
        let dry = cp(test, &["-n", "here/f", &format!("lh://{at}/")]).end();
        dry.assert_failed("shows nobody what it has");
        assert_eq!(fs::read_dir(test.path("there")).unwrap().count(), 0);
    });
}

#[test]
fn a_server_that_shows_nothing_refuses_to_leave_what_is_newer() {
    limited(|test| {
        for (path, contents) in [(test.here("f"), "older"), (test.there("f"), "newer there")] {
            fs::write(path, contents).unwrap();
        }
        let older = SystemTime::now() - Duration::from_secs(3_600);
        fs::File::options().write(true).open(test.here("f")).unwrap().set_modified(older).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &["--allow-write"]);
        let ended = cp(test, &["-u", "here/f", &format!("lh://{at}/")]).end();
        ended
            .assert_failed("-u needs to see what is there, which this server does not let anybody");
        assert_eq!(fs::read(test.there("f")).unwrap(), b"newer there");
    });
}

#[test]
fn a_copy_is_given_up_where_more_entries_fail_than_the_user_bears() {
    limited(|test| {
        fs::create_dir(test.here("tree")).unwrap();
        for n in 0..4 {
            symlink("/nowhere", test.here(&format!("tree/{n}"))).unwrap();
            fs::create_dir_all(test.there(&format!("tree/{n}/in the way"))).unwrap();
        }
        fs::write(test.here("tree/large"), noise(1, 40_000_000)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let to = format!("lh://{at}/");
        let words = ["--rate", "8Mbps", "here/tree", &to];
        let bears = cp(test, &[&["--max-errors", "4"], &words[..]].concat());
        until("the large file moves", || {
            let entries = fs::read_dir(test.path("there")).unwrap();
            let hidden =
                |it: fs::DirEntry| it.file_name().to_string_lossy().starts_with(".longhaul");
            entries.map(Result::unwrap).any(hidden).then_some(())
        });
        bears.signal(rustix::process::Signal::TERM);
        assert!(!bears.end().stderr.contains("--max-errors"));
        let given_up = cp(test, &[&["--max-errors", "3"], &words[..]].concat()).end();
        given_up.assert_failed("given up (--max-errors), because 4 entries failed, the first: ");
        let next = "; mend what failed or raise --max-errors, then run the same command again; ";
        assert!(given_up.stderr.contains(next), "{given_up:?}");
        assert!(!given_up.stderr.contains("to go on"), "{given_up:?}");
    });
}

#[test]
fn of_a_few_entries_more_than_the_user_bears_are_noticed_too() {
    limited(|test| {
        for (from, to) in [(test.here("tree"), "there"), (test.there("tree"), "here")] {
            fs::create_dir(&from).unwrap();
            for n in 0..3 {
                fs::write(from.join(n.to_string()), "x").unwrap();
                fs::create_dir_all(test.path(to).join(format!("tree/{n}/in the way"))).unwrap();
            }
            let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
            let there = format!("lh://{at}/");
            let words = match to {
                "there" => ["here/tree".to_owned(), there],
                _ => [format!("{there}tree"), "here/".into()],
            };
            let words = words.each_ref().map(String::as_str);
            for option in ["-n", "-v"] {
                let run =
                    |most| cp(test, &[&[option, "--max-errors", most], &words[..]].concat()).end();
                let given_up = run("2");
                given_up.assert_failed(
                    "given up (--max-errors), because 3 entries failed, the first: ",
                );
                let dry = given_up.stderr.contains("again; nothing was changed");
                assert_eq!(dry, option == "-n", "{given_up:?}");
                let bears = run("3");
                bears.assert_failed("3 entries were not copied");
                assert!(!bears.stderr.contains("given up"), "{bears:?}");
            }
            fs::remove_dir_all(test.here("tree")).unwrap();
            fs::remove_dir_all(test.there("tree")).unwrap();
        }
    });
}

/// However many fail at once, and whatever stays as it was.
#[test]
fn a_copy_that_is_given_up_counts_what_failed_and_what_it_brought() {
    limited(|test| {
        fs::create_dir(test.here("tree")).unwrap();
        for n in 0..20 {
            fs::write(test.here(&format!("tree/same{n}")), "x").unwrap();
        }
        let copied =
            Command::new("cp").arg("-a").args([test.here("tree"), test.there("tree")]).status();
        assert!(copied.unwrap().success());
        for n in 0..9 {
            fs::write(test.here(&format!("tree/{n}")), "x").unwrap();
            fs::create_dir_all(test.there(&format!("tree/{n}/in the way"))).unwrap();
        }
        fs::write(test.here("tree/new"), noise(1, 3_000_000)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        for option in ["-n", "-v"] {
            let words = [option, "--max-errors", "2", "here/tree", &format!("lh://{at}/")];
            let given_up = Program::cp(test, &words).end();
            given_up.assert_failed("given up (--max-errors), because 3 entries failed");
            let known = given_up.json();
            let [files, bytes, done] =
                ["files", "bytes", "bytes_done"].map(|key| known[key].as_u64().unwrap());
            assert!(files <= 1, "{known}");
            assert_eq!(known["dry_run"] == true, option == "-n", "{known}");
            let is_dry = bytes == 0 && done <= 20 && files == 0;
            assert!(option == "-v" || is_dry, "{known}");
        }
    });
}

/// To a server that owns the destination, and is not root.
#[needs(root)]
#[test]
fn a_dry_run_agrees_with_the_copy_where_directories_may_not_be_written_to() {
    limited(|test| {
        let serves =
            ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
        let allows = ["--allow-read", "--allow-write", "--allow-delete"];
        let (_server, at) = as_nobody(test, &[&serves[..], &allows].concat());
        let mode = |path: &Path, bits| {
            fs::set_permissions(path, PermissionsExt::from_mode(bits)).unwrap();
        };
        // A file for a directory, a link of another time, and a directory as an interrupted copy leaves it.
        fs::create_dir_all(test.here("m/locked")).unwrap();
        fs::create_dir_all(test.here("m/begun")).unwrap();
        fs::write(test.here("m/locked/file"), "x").unwrap();
        let link = test.here("m/locked/link");
        symlink("nowhere", &link).unwrap();
        let aged = Command::new("touch").args(["-h", "-d", "@7"]).arg(link).status();
        assert!(aged.unwrap().success());
        mode(&test.here("m/begun"), 0o500);
        let fill = || {
            let to = test.there("m");
            let _ = fs::remove_dir_all(&to);
            for name in ["locked/file", "begun", "gone/deep"] {
                fs::create_dir_all(to.join(name)).unwrap();
                fs::write(to.join(name).join("in"), "x").unwrap();
            }
            fs::remove_file(to.join("begun/in")).unwrap();
            symlink("nowhere", to.join("locked/link")).unwrap();
            for (name, bits) in [("locked", 0o555), ("gone/deep", 0o500), ("begun", 0o700)] {
                mode(&to.join(name), bits);
            }
            let owner = format!("{NOBODY}:{NOBODY}");
            let owned =
                Command::new("chown").args(["-Rh", &owner]).arg(test.path("there")).status();
            assert!(owned.unwrap().success());
        };
        let to = format!("lh://{at}/");
        let kept = [
            "m/locked/file",
            "m/locked/link",
            "mended m/begun/",
            "mended m/locked/",
            "deleting m/locked/file/in",
            "deleting m/gone",
            "deleting m/gone/deep",
            "deleting m/gone/deep/in",
        ];
        for (more, expected, failed) in [
            (&["-c"][..], &["m/begun/"][..], &["m/locked/file", "m/locked/link"][..]),
            (&["-a", "--exclude", "gone"], &kept[..5], &[]),
            (&["-a"], &kept, &[]),
        ] {
            for option in ["-n", "-v"] {
                fill();
                let words = [&[option, "--delete"], more, &["here/m", &to]].concat();
                let ended = cp(test, &words).end();
                assert_eq!(ended.status, Some(i32::from(!failed.is_empty())), "{ended:?}");
                let found = ended.stdout.lines().map(|line| {
                    let copied = ["new ", "differs "].iter().find_map(|it| line.strip_prefix(it));
                    let words = copied.unwrap_or(line).split_whitespace();
                    words.collect::<Vec<_>>().join(" ")
                });
                let expected = expected.iter().copied().map(str::to_owned);
                let (found, expected): (BTreeSet<_>, _) = (found.collect(), expected.collect());
                assert_eq!(found, expected, "{more:?} {ended:?}");
                for name in failed {
                    let words = format!("{name}: cannot give it its name: no permission");
                    assert!(ended.stderr.contains(&words), "{more:?} {ended:?}");
                }
            }
        }
    });
}

/// As by rsync: what a directory held that a file or link replaces is named and counted, that itself is not.
#[test]
fn what_a_replaced_directory_holds_is_named_and_counted_by_either_run() {
    limited(|test| {
        let (_server, at) = Program::serve(
            test,
            "127.0.0.1:0",
            &["--allow-read", "--allow-write", "--allow-delete"],
        );
        // Directories for which a file and a link make room, with more in them.
        fs::create_dir_all(test.here("m/directory/deeper")).unwrap();
        fs::create_dir_all(test.here("m/linked/deeper")).unwrap();
        for name in ["file", "directory/below", "directory/deeper/below", "linked/deeper/below"] {
            fs::write(test.here(&format!("m/{name}")), "x").unwrap();
        }
        symlink("file", test.here("m/link")).unwrap();
        fs::hard_link(test.here("m/file"), test.here("m/other")).unwrap();
        let fill = || {
            let _ = fs::remove_dir_all(test.there("m"));
            for name in ["file/1", "file/deep/2", "link/3", "other/4", "zz/5", "directory"] {
                let path = test.there(&format!("m/{name}"));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "x").unwrap();
            }
            symlink("nowhere", test.there("m/linked")).unwrap();
        };
        let to = format!("lh://{at}/");
        let all = ["file/1", "file/deep", "file/deep/2", "link/3", "other/4", "zz", "zz/5"];
        // What is in `file/deep` keeps `file`, and so the file is not copied, nor its other name, and the rest stays.
        let some = ["link/3"];
        for (more, expected, end) in [
            (&["-H"][..], &all[..], "; 7 "),
            (&["-Hu"], &all, "; 7 "),
            (&["-H", "--exclude", "2"], &some, ""),
        ] {
            let expected: BTreeSet<_> = expected.iter().map(|name| format!("m/{name}")).collect();
            let run = |option: &str| {
                let words = [&[option, "--delete"], more, &["here/m", &to]].concat();
                let ended = cp(test, &words).end();
                let named = lines(&ended.stdout, "deleting ");
                let named: BTreeSet<_> = named.into_iter().map(str::to_owned).collect();
                assert_eq!(named, expected, "{more:?}: {ended:?}");
                assert!(ended.stderr.contains(end), "{more:?}: {ended:?}");
                ended.status
            };
            fill();
            assert_eq!(run("-n"), run("-v"), "{more:?}");
            let is_whole = test.there("m/file").is_file();
            assert_eq!(is_whole, !end.is_empty(), "{more:?}");
        }
    });
}

#[test]
fn a_directory_that_holds_what_is_excluded_stays_whole_and_the_reason_names_that() {
    limited(|test| {
        let (_server, at) = Program::serve(
            test,
            "127.0.0.1:0",
            &["--allow-read", "--allow-write", "--allow-delete"],
        );
        fs::create_dir_all(test.here("m/directory/deeper")).unwrap();
        for name in ["file", "other", "k", "directory/below", "directory/deeper/below"] {
            fs::write(test.here(&format!("m/{name}")), "x").unwrap();
        }
        let to = format!("lh://{at}/");
        for option in ["-n", "-v"] {
            let _ = fs::remove_dir_all(test.there("m"));
            for name in ["file/1", "file/deep/keep", "other/2", "k/3", "zz"] {
                let path = test.there(&format!("m/{name}"));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "x").unwrap();
            }
            fs::write(test.there("m/directory"), "stays").unwrap();
            let rules = ["--include", "directory/", "--exclude", "directory", "--exclude", "keep"];
            let rules = [&rules[..], &["--exclude", "k/"]].concat();
            let words = [&[option, "--delete"], &rules[..], &["here/m", &to]].concat();
            let ended = cp(test, &words).end();
            ended.assert_failed("6 entries were not copied or deleted");
            assert_eq!(lines(&ended.stdout, "deleting "), ["m/other/2"].into(), "{ended:?}");
            let reasons = [
                "m/file: a directory at the destination has its name, and holds what is excluded and so not deleted: deep/keep",
                "m/directory: what has its name at the destination is excluded, and so not deleted",
                "m/k: what has its name at the destination is excluded, and so not deleted",
                "m/directory/below: ",
                "note: what else only the destination has stays, since not all can be copied",
            ];
            for reason in reasons {
                assert!(ended.stderr.contains(reason), "{option} {reason}: {ended:?}");
            }
            assert!(!ended.stdout.contains("m/directory"), "{ended:?}");
            for name in ["file/1", "file/deep/keep", "k/3", "zz"] {
                assert!(test.there(&format!("m/{name}")).exists(), "{option}: {name}");
            }
            // As many as may go, or none.
            let words = [option, "--delete", "--max-delete", "2", "here/m", &to];
            let ended = cp(test, &words).end();
            let no_more = "m/file: --max-delete allows no more";
            assert!(ended.stderr.contains(no_more), "{option}: {ended:?}");
            assert!(test.there("m/file/deep/keep").exists(), "{option}");
        }
    });
}

#[test]
fn a_copy_that_may_delete_nothing_does_not_say_that_something_was_not_copied() {
    limited(|test| {
        let (_server, at) = Program::serve(
            test,
            "127.0.0.1:0",
            &["--allow-read", "--allow-write", "--allow-delete"],
        );
        fs::create_dir_all(test.here("m")).unwrap();
        fs::create_dir_all(test.there("m")).unwrap();
        fs::write(test.there("m/more"), "x").unwrap();
        let to = format!("lh://{at}/");
        for option in ["-n", "-v"] {
            let words = [option, "--delete", "--max-delete", "0", "here/m", &to];
            let ended = cp(test, &words).end();
            ended.assert_failed("m/more: --max-delete allows no more");
            assert!(!ended.stderr.contains("note: what only"), "{ended:?}");
        }
    });
}

#[test]
fn a_copy_that_only_deletes_closes_with_what_it_deleted_and_what_stays() {
    limited(|test| {
        let rights = ["--allow-read", "--allow-write", "--allow-delete"];
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &rights);
        fs::create_dir_all(test.here("m")).unwrap();
        fs::create_dir_all(test.there("m")).unwrap();
        for name in ["1", "2", "3"] {
            fs::write(test.there("m").join(name), "x").unwrap();
        }
        let to = format!("lh://{at}/");
        let words = ["-v", "--delete", "--max-delete", "1", "-T", "here/m", &format!("{to}m")];
        let ended = cp(test, &words).end();
        ended.assert_failed("2 entries were not copied or deleted; the rest is complete. Where");
        assert!(ended.stderr.contains("; 1 deleted"), "{ended:?}");
    });
}

/// Of a push the server finds them.
#[needs(mounts)]
#[test]
fn a_push_spares_mounts_with_a_note() {
    limited(|test| {
        fs::create_dir_all(test.here("tree/both/deep")).unwrap();
        fs::write(test.here("tree/new"), "new").unwrap();
        let mounts = ["both", "only", "old/deep"].map(|name| test.there(&format!("tree/{name}")));
        let _mounted = mounts.clone().map(|at| Tmpfs::mount(at, "size=1m"));
        let kept = mounts.map(|at| at.join("kept"));
        kept.iter().for_each(|path| fs::write(path, "only there").unwrap());
        fs::write(test.there("tree/old/gone"), "old").unwrap();
        let rights = ["--allow-read", "--allow-write", "--allow-delete"];
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &rights);
        let to = format!("lh://{at}/tree/");
        let named = [
            ("both", "nothing in it is deleted at the destination, since it is in another mount"),
            ("old/deep", "something is mounted there at the destination, so that it stays"),
            ("only", "something is mounted there at the destination, so that it stays"),
        ];
        for option in ["-n", "-v"] {
            let words = ["--json", option, "--delete", "here/tree/.", &to];
            let ended = cp(test, &words).end();
            ended.assert_succeeded();
            let report = ended.json();
            let counts = ["failed", "skipped"].map(|key| report[key].as_u64());
            assert_eq!(counts, [Some(0), Some(3)], "{report}");
            let skips = report["skips"].as_array().unwrap().iter();
            let skips =
                skips.map(|it| (it["path"].as_str().unwrap(), it["reason"].as_str().unwrap()));
            assert_eq!(skips.collect::<BTreeSet<_>>(), BTreeSet::from(named), "{report}");
            for (path, _) in named {
                assert!(ended.stderr.contains(&format!("note: {path}: ")), "{ended:?}");
            }
            assert_eq!(test.there("tree/old/gone").exists(), option == "-n");
        }
        kept.iter().for_each(|path| assert_eq!(fs::read(path).unwrap(), b"only there"));
    });
}

/// Runs `longhaul` with `words` where the second of `places` is a view of the first, which nobody else sees.
fn bound<'t>(test: &'t Test, places: [&str; 2], words: &[&str]) -> Program<'t> {
    let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).args(places).arg(PROGRAM).args(words);
    Program::spawn(test, &mut command)
}

#[needs(mounts)]
#[test]
fn nothing_is_deleted_in_another_mount() {
    limited(|test| {
        fs::create_dir_all(test.there("tree/disk/deep/file")).unwrap();
        fs::write(test.there("tree/new"), "new").unwrap();
        fs::write(test.there("tree/disk/now-a-file"), "new").unwrap();
        fs::create_dir_all(test.here("tree/disk")).unwrap();
        fs::write(test.here("tree/gone"), "old").unwrap();
        for path in ["disk/deep", "disk/now-a-file"] {
            fs::create_dir_all(test.path("other").join(path)).unwrap();
        }
        for path in
            ["kept", "disk/kept", "disk/deep/kept", "disk/deep/file", "disk/now-a-file/kept"]
        {
            fs::write(test.path("other").join(path), "only here").unwrap();
        }
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let from = format!("lh://{at}/tree");
        for option in ["-n", "-v"] {
            let words = ["cp", option, "--delete", "--token-file", "token", &from, "here/"];
            let places = ["other/disk", "here/tree/disk"];
            let excluded = ["--exclude", "now-a-file", "--exclude", "deep/file"];
            let ended = bound(test, places, &[&words[..], &excluded].concat()).end();
            ended.assert_succeeded();
            assert_eq!(lines(&ended.stdout, "deleting "), BTreeSet::from(["tree/gone"]));
            let named = "note: tree/disk: nothing in it is deleted at the destination, since it is in another mount";
            assert!(ended.stderr.contains(named), "{ended:?}");
            assert!(ended.stderr.contains("tree/disk/deep: nothing in it"), "{ended:?}");
            assert_eq!(test.here("tree/gone").exists(), option == "-n");
            // Nor to make room for what is of another kind.
            let ended = bound(test, places, &words).end();
            ended.assert_failed("what has its name at the destination is in another mount, where nothing is deleted");
            assert!(ended.stderr.contains("tree/disk/deep/file: "), "{ended:?}");
            assert!(ended.stderr.contains("tree/disk/now-a-file: "), "{ended:?}");
        }
        for path in ["disk/kept", "disk/deep/kept", "disk/deep/file", "disk/now-a-file/kept"] {
            let path = test.path("other").join(path);
            assert_eq!(fs::read(&path).unwrap(), b"only here", "{path:?}");
        }
        // The mount itself may be the destination.
        let words = ["cp", "--delete", "--token-file", "token"];
        let to = format!("lh://{at}/tree/.");
        let last = [&to, "--merge", "here/tree"];
        let ended = bound(test, ["other", "here/tree"], &[&words[..], &last].concat()).end();
        ended.assert_succeeded();
        assert!(!test.path("other/kept").exists());
        assert_same(&test.there("tree"), &test.path("other"));
    });
}

#[needs(mounts)]
#[test]
fn a_file_that_is_mounted_stays_with_a_note() {
    limited(|test| {
        fs::create_dir_all(test.there("tree/sub")).unwrap();
        fs::create_dir_all(test.here("tree/sub")).unwrap();
        fs::write(test.path("mounted"), "only here").unwrap();
        let fill = || {
            fs::create_dir_all(test.here("tree/gone")).unwrap();
            for path in ["tree/kept", "tree/sub/gone", "tree/gone/kept"] {
                fs::write(test.here(path), "below").unwrap();
            }
        };
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let from = format!("lh://{at}/tree");
        let words = ["cp", "--delete", "--token-file", "token", &from, "here/"];
        for option in ["-n", "-v"] {
            let words = [&words[..], &[option]].concat();
            for place in ["tree/gone/kept", "tree/kept"] {
                fill();
                let to = format!("here/{place}");
                let ended = bound(test, ["mounted", &to], &words).end();
                ended.assert_succeeded();
                let note = format!("note: {place}: something is mounted there at the destination");
                assert!(ended.stderr.contains(&note), "{ended:?}");
                assert!(!ended.stdout.contains(&format!("deleting {place}\n")), "{ended:?}");
                assert!(test.here(place).exists());
                assert_eq!(test.here("tree/sub/gone").exists(), option == "-n");
            }
        }
        fill();
        // A directory that holds one gives its place to no file, and keeps all.
        fs::write(test.here("tree/gone/also"), "here").unwrap();
        fs::write(test.there("tree/gone"), "new").unwrap();
        for option in ["-n", "-v"] {
            let words = [&words[..], &[option]].concat();
            let ended = bound(test, ["mounted", "here/tree/gone/kept"], &words).end();
            ended.assert_failed("tree/gone: something is mounted there at the destination");
            assert!(test.here("tree/gone/also").exists());
        }
    });
}
