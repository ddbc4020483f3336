//! Where this user may not do all that a copy would: `cp -n` and the copy say the same.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use longhaul_needs::needs;
use rustix::fs::XattrFlags;

use crate::program::{Ended, NOBODY, Program};
use crate::storage::as_nobody;
use crate::test::{Test, limited};

/// A server that is not root.
fn serve(test: &Test) -> (Program<'_>, String) {
    let serves = ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
    let allows = ["--allow-read", "--allow-write", "--allow-delete"];
    give(&test.path("there"));
    let (server, at) = as_nobody(test, &[&serves[..], &allows].concat());
    (server, format!("lh://{at}/"))
}

fn cp(test: &Test, words: &[&str]) -> Ended {
    Program::start(test, &[&["cp", "--token-file", "token"][..], words].concat()).end()
}

/// Makes it as `from` is, in place of what is there.
fn fill(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn give(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(bits)).unwrap();
}

/// Paths behind a word, of the lines that begin with it.
fn lines<'e>(ended: &'e Ended, word: &str) -> BTreeSet<&'e str> {
    ended.stdout.lines().filter_map(|line| line.strip_prefix(word)).map(str::trim_start).collect()
}

#[needs(root)]
#[test]
fn what_cannot_be_mended_of_another_users_file_does_not_count_as_mended() {
    limited(|test| {
        let (_server, at) = serve(test);
        let (from, to) = (test.here("m"), test.there("m"));
        fs::create_dir(&from).unwrap();
        let names = ["own", "other"];
        names.iter().for_each(|name| fs::write(from.join(name), "x").unwrap());
        let note = "or of each unchanged file, be set, as of another user's: such keep theirs";
        for (more, is_old) in [("-c", true), ("-cX", true), ("-X", false), ("-a", false)] {
            fill(&from, &to);
            for name in names {
                let file = to.join(name);
                mode(&file, 0o604);
                rustix::fs::setxattr(&file, "user.more", b"1", XattrFlags::empty()).unwrap();
                if is_old {
                    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
                    fs::File::open(&file).unwrap().set_modified(old).unwrap();
                }
            }
            [&to, &to.join("own")].iter().for_each(|path| give(path));
            for (option, expected) in
                [("-n", &["m/own"][..]), ("-v", &["m/own"]), ("-n", &[]), ("-v", &[])]
            {
                let ended = cp(test, &[option, more, "here/m", &at]);
                ended.assert_succeeded();
                assert_eq!(lines(&ended, "mended "), expected.iter().copied().collect(), "{more}");
                assert_eq!(ended.stdout.lines().count(), expected.len(), "{more} {ended:?}");
                let is_noted = is_old && option == "-v";
                assert_eq!(ended.stderr.contains(note), is_noted, "{more} {ended:?}");
                assert!(!ended.stderr.contains("what was copied has"), "{more} {ended:?}");
                let not_kept = ended.stderr.contains("of 1 entry could not be kept");
                assert_eq!(not_kept, option == "-v", "{more} {ended:?}");
            }
        }
    });
}

#[needs(root)]
#[test]
fn another_users_directory_takes_contents_and_keeps_its_time() {
    limited(|test| {
        let (_server, at) = serve(test);
        fs::create_dir(test.here("m")).unwrap();
        fs::write(test.here("m/file"), "x").unwrap();
        fs::create_dir(test.there("to")).unwrap();
        mode(&test.there("to"), 0o777);
        let ended = cp(test, &["here/m/.", &format!("{at}to/")]);
        ended.assert_succeeded();
        assert!(ended.stderr.contains("modification time of each directory"), "{ended:?}");
        assert_eq!(fs::read_dir(test.there("to")).unwrap().count(), 1);
    });
}

/// A file that nobody may change, until this is dropped.
struct Fixed(PathBuf);

impl Fixed {
    fn new(path: PathBuf) -> Self {
        assert!(Command::new("chattr").arg("+i").arg(&path).status().unwrap().success());
        Self(path)
    }
}

impl Drop for Fixed {
    fn drop(&mut self) {
        let _ = Command::new("chattr").arg("-i").arg(&self.0).status();
    }
}

/// Runs `cp` with these words and `-n`, then without, and checks that both say the same. Returns what failed.
fn agree(test: &Test, words: &[&str]) -> Vec<String> {
    let run = |option| {
        let ended = cp(test, &[&["--json", option], words].concat());
        let (report, stderr) = (ended.json(), &ended.stderr);
        let failures = report["failures"].as_array().unwrap().iter();
        let failures = failures.map(|it| format!("{}: {}", it["path"], it["reason"]));
        let mut failures: Vec<_> = failures.map(|it| it.replace('"', "")).collect();
        failures.sort();
        let changed = match option {
            "-n" => report["would_change"]["entries"].clone(),
            _ => report["files"].clone(),
        };
        let counts = ["unchanged", "deleted", "skipped", "failed"].map(|key| report[key].clone());
        let unchanged = ["files", "mended"].map(|key| counts[0][key].clone());
        (ended.status, changed, unchanged, counts[1..].to_vec(), failures, stderr.clone())
    };
    let (dry, real) = (run("-n"), run("-v"));
    assert_eq!(
        (&dry.0, &dry.1, &dry.2, &dry.3),
        (&real.0, &real.1, &real.2, &real.3),
        "{dry:?} {real:?}"
    );
    assert_eq!(dry.4, real.4, "{dry:?} {real:?}");
    dry.4
}

#[needs(root)]
#[test]
fn in_a_sticky_directory_of_another_user_others_files_stay() {
    limited(|test| {
        let (_server, at) = serve(test);
        fs::create_dir_all(test.here("m/directory")).unwrap();
        for name in ["changed", "own", "new", "file", "directory/in", "same"] {
            fs::write(test.here("m").join(name), "new").unwrap();
        }
        for (option, is_kind) in [("-H", false), ("--delete", true)] {
            fill(&test.here("m"), &test.there("m"));
            let to = |name: &str| test.there("m").join(name);
            ["changed", "own", "gone", "own-gone"]
                .iter()
                .for_each(|it| fs::write(to(it), "old").unwrap());
            fs::remove_file(to("new")).unwrap();
            if is_kind {
                fs::remove_dir_all(to("directory")).unwrap();
                fs::write(to("directory"), "a file").unwrap();
                fs::remove_file(to("file")).unwrap();
                fs::create_dir(to("file")).unwrap();
            }
            ["own", "own-gone"].iter().for_each(|name| give(&to(name)));
            mode(&to(""), 0o1777);
            let failed = agree(test, &[option, "here/m", &at]);
            assert!(
                failed[0].starts_with("m/changed: cannot give it its name: no permission"),
                "{failed:?}"
            );
            assert_eq!(failed.len(), if is_kind { 4 } else { 1 }, "{failed:?}");
            // Once all can be copied the rest is deleted, as far as it may be.
            fs::remove_file(to("changed")).unwrap();
            if is_kind {
                fs::remove_dir(to("file")).unwrap();
                fs::remove_file(to("directory")).unwrap();
                let failed = agree(test, &[option, "here/m", &at]);
                let [failed] = &failed[..] else { panic!("{failed:?}") };
                assert!(failed.starts_with("m/gone: cannot delete it: no permission"), "{failed}");
                assert!(!to("own-gone").exists());
            }
        }
    });
}

#[needs(immutable_files)]
#[test]
fn files_that_nobody_may_change_stay() {
    limited(|test| {
        let rights = ["--allow-read", "--allow-write", "--allow-delete"];
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &rights);
        let at = format!("lh://{at}/");
        fs::create_dir(test.here("m")).unwrap();
        for name in ["changed", "mended", "same"] {
            fs::write(test.here("m").join(name), "new").unwrap();
        }
        fill(&test.here("m"), &test.there("m"));
        let to = |name: &str| test.there("m").join(name);
        ["changed", "gone"].iter().for_each(|name| fs::write(to(name), "old").unwrap());
        mode(&to("mended"), 0o600);
        let fixed = ["changed", "mended", "same", "gone"].map(|name| Fixed::new(to(name)));
        for more in ["-a", "-c"] {
            let failed = agree(test, &[more, "here/m", &at]);
            let [failed] = &failed[..] else { panic!("{failed:?}") };
            assert!(
                failed.starts_with("m/changed: cannot give it its name: no permission"),
                "{failed}"
            );
        }
        let failed = agree(test, &["--delete", "--exclude", "changed", "here/m", &at]);
        let [failed] = &failed[..] else { panic!("{failed:?}") };
        assert!(failed.starts_with("m/gone: cannot delete it: no permission"), "{failed}");
        drop(fixed);
    });
}

/// Its contents are not known before the copy lets its user in.
#[needs(root)]
#[test]
fn a_directory_that_a_copy_makes_accessible_is_noted_by_a_dry_run() {
    limited(|test| {
        let (_server, at) = serve(test);
        for name in ["unlisted", "closed/deep"] {
            fs::create_dir_all(test.here("m").join(name)).unwrap();
            fs::write(test.here("m").join(name).join("file"), "x").unwrap();
        }
        let to = |name: &str| test.there("m").join(name);
        let refill = || {
            fill(&test.here("m"), &test.there("m"));
            fs::write(to("unlisted/gone"), "x").unwrap();
            let owner = format!("{NOBODY}:{NOBODY}");
            assert!(
                Command::new("chown").args(["-R", &owner]).arg(to("")).status().unwrap().success()
            );
            mode(&to("unlisted"), 0o311);
            mode(&to("closed"), 0o600);
        };
        refill();
        let dry = cp(test, &["-n", "-a", "--delete", "here/m", &at]);
        dry.assert_succeeded();
        let named = [
            "mended   m/unlisted/",
            "mended   m/closed/",
            "new      m/closed/deep/",
            "differs  m/closed/deep/file",
        ];
        assert_eq!(dry.stdout.lines().collect::<BTreeSet<_>>(), named.into(), "{dry:?}");
        assert!(dry.stderr.contains("note: m/unlisted: it cannot be listed"), "{dry:?}");
        let real = cp(test, &["-v", "-a", "--delete", "here/m", &at]);
        real.assert_succeeded();
        let named = ["mended   m/unlisted/", "mended   m/closed/", "deleting m/unlisted/gone"];
        assert_eq!(real.stdout.lines().collect::<BTreeSet<_>>(), named.into(), "{real:?}");
    });
}

#[test]
fn a_link_that_leads_nowhere_is_replaced_or_is_no_directory() {
    limited(|test| {
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        for place in ["here", "there"] {
            fs::write(test.path(place).join("f"), "x").unwrap();
            fs::create_dir(test.path(place).join("m")).unwrap();
            symlink("nothing", test.path(place).join("link")).unwrap();
        }
        for (sides, link) in [
            ([format!("lh://{at}/"), "here/".into()], test.here("link")),
            (["here/".into(), format!("lh://{at}/")], test.there("link")),
        ] {
            let [from, to] = &sides;
            for (source, name, error) in [
                ("f", "link/", "link: is a link that leads nowhere"),
                ("f", "link/new/", "link: is a link that leads nowhere"),
                ("m", "link", "link: it is a link, and the source is a directory"),
                ("f", "link/new", "no such directory"),
            ] {
                for option in ["-n", "-v"] {
                    let words = [option, &format!("{from}{source}"), &format!("{to}{name}")];
                    let ended = cp(test, &words);
                    ended.assert_failed(error);
                    assert!(!ended.stderr.contains("xists"), "{ended:?}");
                }
            }
            for (option, named) in [("-n", "differs  f\n"), ("-v", "f\n")] {
                let ended = cp(test, &[option, &format!("{from}f"), &format!("{to}link")]);
                ended.assert_succeeded();
                assert_eq!(ended.stdout, named, "{ended:?}");
            }
            assert_eq!(fs::read(&link).unwrap(), b"x");
            assert!(!link.is_symlink());
        }
    });
}

/// Its owner may not open it, and give it a mode all the same.
#[needs(root)]
#[test]
fn an_own_file_that_may_not_be_read_gets_its_mode() {
    limited(|test| {
        let (_server, at) = serve(test);
        let (from, to) = (test.here("m"), test.there("m"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("f"), "x").unwrap();
        mode(&from.join("f"), 0o640);
        for (option, closed) in [("-r", 0o200), ("-a", 0o000), ("-a", 0o044)] {
            fill(&from, &to);
            give(&to);
            give(&to.join("f"));
            mode(&to.join("f"), closed);
            for is_mended in [true, false] {
                let ended = cp(test, &[option, "here/m", &at]);
                ended.assert_succeeded();
                assert!(!ended.stderr.contains("could not be kept"), "{ended:?}");
                assert_eq!(ended.stderr.contains("of 1 the attributes mended"), is_mended);
            }
            assert_eq!(fs::metadata(to.join("f")).unwrap().permissions().mode() & 0o777, 0o640);
        }
    });
}
