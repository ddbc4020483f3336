//! Disks that are full or read-only, and sources that cannot be read or do not stand still.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use longhaul::EntryCode;
use longhaul_needs::needs;
use longhaul_units::Rate;

use crate::program::{NOBODY, Program, Tmpfs};
use crate::server::{Copying, Server, over, pull, push, run};
use crate::test::limited;
use crate::trees::{assert_nothing_half_done, assert_same, names, noise};

#[needs(mounts)]
#[test]
fn a_full_disk_is_reported_and_complete_files_stay() {
    limited(|test| {
        let _mounted = Tmpfs::mount(test.path("there/disk"), "size=8m");
        fs::create_dir(test.here("tree")).unwrap();
        for i in 0..5 {
            let name = format!("f{i}");
            fs::write(test.here("tree").join(name), noise(i, 3_000_000)).unwrap();
        }
        let server = Server::start(test);
        let failure = match run(test, &push(&test.here("tree"), server.address, b"disk/")) {
            Ok(report) => {
                assert!(!report.verified);
                format!("{:?}", report.failures)
            }
            Err(error) => error.to_string(),
        };
        assert!(failure.to_lowercase().contains("no space left"), "{failure}");
        assert_nothing_half_done(&test.path("here"), &test.there("disk"));

        // With room, the same command goes on.
        let mut words = vec!["-o", "remount,size=40m"];
        let at = test.there("disk");
        words.push(at.to_str().unwrap());
        assert!(Command::new("mount").args(words).status().unwrap().success());
        run(test, &push(&test.here("tree"), server.address, b"disk/")).unwrap();
        assert_same(&test.here("tree"), &test.there("disk/tree"));
        assert_eq!(names(&test.there("disk")), ["tree"]);
    });
}

#[needs(mounts)]
#[test]
fn a_full_disk_here_is_reported_too() {
    limited(|test| {
        let _mounted = Tmpfs::mount(test.path("here/disk"), "size=2m");
        fs::write(test.there("f"), noise(1, 5_000_000)).unwrap();
        let server = Server::start(test);
        let from = format!("lh://{}/f", server.address);
        let copy = Program::cp(test, &[&from, "here/disk/f"]).end();
        copy.assert_failed("o space left");
        assert!(!test.here("disk/f").exists());
    });
}

#[needs(mounts)]
#[test]
fn a_disk_too_full_to_begin_is_reported() {
    limited(|test| {
        for folder in ["here/disk", "there/disk"] {
            let _mounted = Tmpfs::mount(test.path(folder), "size=1m,nr_inodes=2");
            fs::write(test.here("f"), noise(1, 5_000)).unwrap();
            fs::write(test.there("f"), noise(1, 5_000)).unwrap();
            let server = Server::start(test);
            let copy = match folder {
                "here/disk" => [format!("lh://{}/f", server.address), "here/disk/".into()],
                _ => ["here/f".into(), format!("lh://{}/disk/", server.address)],
            };
            let copy = Program::cp(test, &[&copy[0], &copy[1]]).end();
            copy.assert_failed(": no inodes (places for files) left at the destination");
            copy.assert_failed("make room and run the same command again");
            assert!(!copy.stderr.contains("os error"), "{copy:?}");
        }
    });
}

#[needs(mounts)]
#[test]
fn a_read_only_destination_is_reported() {
    limited(|test| {
        let _mounted = Tmpfs::mount(test.path("there/disk"), "ro");
        fs::write(test.here("f"), noise(1, 100_000)).unwrap();
        fs::write(test.there("f"), noise(1, 100_000)).unwrap();
        let server = Server::start(test);
        for dry in [&["-n"][..], &[]] {
            let cp = |words: &[&str]| {
                let copy = Program::cp(test, &[dry, words].concat()).end();
                copy.assert_failed("read-only file system");
                assert_eq!(copy.stderr.lines().count(), 1, "{copy:?}");
            };
            for to in ["disk", "disk/g", "disk/new/"] {
                cp(&["here/f", &format!("lh://{}/{to}", server.address)]);
            }
            let from = format!("lh://{}/f", server.address);
            cp(&[&from, "there/disk/"]);
            cp(&[&from, "there/disk/new/deep/"]);
        }
    });
}

#[needs(mounts)]
#[test]
fn a_dry_run_notes_that_there_is_less_room_than_a_copy_would_take() {
    limited(|test| {
        for side in ["here", "there"] {
            let _mounted = Tmpfs::mount(test.path(side).join("disk"), "size=1m");
            for from in ["here", "there"] {
                fs::write(test.path(from).join("f"), noise(1, 5_000_000)).unwrap();
                fs::write(test.path(from).join("small"), noise(1, 5_000)).unwrap();
            }
            let server = Server::start(test);
            for (name, has_note) in [("f", true), ("small", false)] {
                for to in ["disk", "disk/new/"] {
                    let (here, there) = (
                        |it: &str| format!("here/{it}"),
                        |it| format!("lh://{}/{it}", server.address),
                    );
                    let words = match side {
                        "here" => ["-n".to_owned(), there(name), here(to)],
                        _ => ["-n".to_owned(), here(name), there(to)],
                    };
                    let copy = Program::cp(test, &words.each_ref().map(|it| &**it)).end();
                    copy.assert_succeeded();
                    let notices = copy.json()["notices"].to_string();
                    let note = "what would be copied is more than is free at the destination";
                    assert_eq!(notices.contains(note), has_note, "{copy:?}");
                }
            }
        }
    });
}

#[needs(root)]
#[test]
fn a_destination_that_may_not_be_written_is_reported() {
    limited(|test| {
        let (_server, at) = as_nobody(
            test,
            &["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"],
        );
        fs::write(test.here("f"), noise(1, 100_000)).unwrap();
        for to in ["", "new/", "g"] {
            let to = format!("lh://{at}/{to}");
            let [dry, copy] = [&["-n", "here/f", &to][..], &["here/f", &to]]
                .map(|words| Program::cp(test, words).end());
            copy.assert_failed("no permission");
            let dry = (dry.status, dry.stderr.replace("; nothing was changed", ""));
            assert_eq!(dry, (copy.status, copy.stderr));
        }
        assert!(names(&test.path("there")).is_empty());
    });
}

#[needs(root)]
#[test]
fn files_that_cannot_be_read_are_named_and_the_rest_arrives() {
    limited(|test| {
        let tree = test.there("tree");
        fs::create_dir_all(tree.join("locked")).unwrap();
        fs::write(tree.join("open"), noise(1, 100_000)).unwrap();
        fs::write(tree.join("large"), noise(2, 3_000_000)).unwrap();
        fs::write(tree.join("secret"), noise(3, 100_000)).unwrap();
        fs::write(tree.join("locked/f"), noise(4, 100_000)).unwrap();
        let none = Permissions::from_mode(0o0);
        fs::set_permissions(tree.join("secret"), none.clone()).unwrap();
        fs::set_permissions(tree.join("locked"), none).unwrap();
        let (_server, at) = as_nobody(
            test,
            &["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"],
        );
        let copy = Program::cp(test, &[&format!("lh://{at}/tree"), "here/"]).end();
        copy.assert_failed("secret");
        assert!(copy.stderr.contains("locked"), "{copy:?}");
        assert!(copy.stderr.contains("no permission to read it"), "{copy:?}");
        for name in ["open", "large"] {
            assert_same(&tree.join(name), &test.here("tree").join(name));
        }
        assert!(!test.here("tree/secret").exists());
    });
}

#[needs(root)]
#[test]
fn a_dry_run_counts_what_cannot_be_read_and_what_is_skipped() {
    limited(|test| {
        fs::create_dir(test.there("tree")).unwrap();
        for name in ["open", "secret"] {
            fs::write(test.there("tree").join(name), noise(1, 1_000)).unwrap();
        }
        fs::set_permissions(test.there("tree/secret"), Permissions::from_mode(0o0)).unwrap();
        let made = Command::new("mkfifo").arg(test.there("tree/fifo")).status().unwrap();
        assert!(made.success());
        let (_server, at) = as_nobody(
            test,
            &["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"],
        );
        let from = format!("lh://{at}/tree");
        for option in ["-n", "-v"] {
            let words = ["cp", option, "--token-file", "token", &from, "here/"];
            let copy = Program::start(test, &words).end();
            copy.assert_failed("1 entry was not copied");
            assert!(copy.stderr.contains("tree/secret: "), "{copy:?}");
            assert!(copy.stderr.contains("no permission to read it"), "{copy:?}");
            assert!(copy.stderr.contains("; 1 entry skipped"), "{copy:?}");
            assert!(copy.stdout.contains("tree/open"), "{copy:?}");
            assert!(!copy.stdout.contains("secret"), "{copy:?}");
        }
    });
}

#[needs(root)]
#[test]
fn a_dry_run_names_what_cannot_be_written() {
    limited(|test| {
        let write = |path: &Path, contents: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        };
        for name in ["free", "locked/same", "locked/other", "locked/new", "locked/deep/new"] {
            write(&test.here("tree").join(name), "the source");
        }
        let copied = |name| {
            let to = test.there("tree").join(name);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            let from = test.here("tree").join(name);
            assert!(Command::new("cp").arg("-p").arg(from).arg(to).status().unwrap().success());
        };
        copied("locked/same");
        write(&test.there("tree/locked/other"), "another");
        for owned in [test.path("there"), test.there("tree")] {
            chown(owned, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let rights = ["--allow-read", "--allow-write", "--allow-delete"];
        let fixed =
            ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
        let (_server, at) = as_nobody(test, &[&fixed[..], &rights].concat());
        let to = format!("lh://{at}/");
        let run = |option| {
            let words = ["cp", option, "--delete", "--token-file", "token", "here/tree", &to];
            Program::start(test, &words).end()
        };
        for option in ["-n", "-v"] {
            let copy = run(option);
            copy.assert_failed("4 entries were not copied or deleted");
            for name in ["other", "new", "deep", "deep/new"] {
                assert!(copy.stderr.contains(&format!("tree/locked/{name}: ")), "{copy:?}");
            }
            assert!(copy.stderr.contains("no permission"), "{copy:?}");
            assert!(copy.stdout.contains("tree/free"), "{copy:?}");
            assert!(!copy.stdout.contains("locked/"), "{copy:?}");
        }
        for name in ["locked/other", "locked/new", "locked/deep/new"] {
            copied(name);
        }
        write(&test.there("tree/locked/gone"), "only there");
        for option in ["-n", "-v"] {
            let copy = run(option);
            copy.assert_failed("tree/locked/gone: cannot delete it: no permission");
            assert!(!copy.stdout.contains("gone"), "{copy:?}");
        }
    });
}

#[test]
fn a_missing_source_is_named() {
    limited(|test| {
        let server = Server::start(test);
        let missing = test.here("not-there");
        let pushed = run(test, &push(&missing, server.address, b"")).unwrap();
        let pulled = run(test, &pull(server.address, b"not-there", &test.here("f"))).unwrap();
        for report in [pushed, pulled] {
            assert!(!report.verified);
            assert!(report.failures.sample[0].path.contains("not-there"), "{report:?}");
            assert_eq!(report.failures.sample[0].code, EntryCode::NotFound);
        }
        assert!(names(&test.path("here")).is_empty());
        // The server removes its hidden directory once it has answered; a test has its limit.
        while !names(&test.path("there")).is_empty() {
            thread::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn a_source_that_changes_is_named_and_does_not_arrive_mixed() {
    limited(|test| {
        for (i, change) in [Change::Rewrite, Change::Truncate, Change::Grow].iter().enumerate() {
            let name = format!("f{i}");
            let source = test.here(&name);
            fs::write(&source, noise(i as u64, 250_000_000)).unwrap();
            let before = fs::read(&source).unwrap();
            let server = Server::start(test);
            let options = push(&source, server.address, name.as_bytes());
            let copying = Copying::start(test, over(options, |by| by.rate = RATE));
            copying.moved(4_000_000);
            change.apply(&source);
            let report = copying.end().unwrap();
            if report.failures.is_empty() {
                // All of it had been read before: then all of it is as it was.
                assert!(fs::read(test.there(&name)).unwrap() == before);
            } else {
                assert!(report.failures.sample[0].path.contains(&name), "{report:?}");
                assert_eq!(report.failures.sample[0].code, EntryCode::Changed);
                assert!(!test.there(&name).exists(), "{report:?}");
            }
            fs::remove_file(&source).unwrap();
            let _ = fs::remove_file(test.there(&name));
        }
    });
}

#[test]
fn files_that_vanish_on_the_way_are_named_and_the_rest_arrives() {
    limited(|test| {
        let kept = test.path("kept");
        fs::create_dir_all(test.here("tree")).unwrap();
        fs::create_dir_all(&kept).unwrap();
        for i in 0..40 {
            let name = format!("f{i:02}");
            fs::write(test.here("tree").join(&name), noise(i, 8_000_000)).unwrap();
            fs::hard_link(test.here("tree").join(&name), kept.join(&name)).unwrap();
        }
        let server = Server::start(test);
        let options = push(&test.here("tree"), server.address, b"");
        let copying = Copying::start(test, over(options, |by| by.rate = RATE));
        copying.moved(4_000_000);
        let gone: Vec<_> = (30..40).map(|i| format!("f{i:02}")).collect();
        for name in &gone {
            fs::remove_file(test.here("tree").join(name)).unwrap();
        }
        let report = copying.end().unwrap();
        for name in names(&kept) {
            let (source, copy) = (kept.join(&name), test.there("tree").join(&name));
            let name = name.to_str().unwrap();
            if report.failures.sample.iter().any(|entry| entry.path.contains(name)) {
                assert!(gone.iter().any(|gone| gone == name), "{report:?}");
                assert!(!copy.exists(), "{report:?}");
            } else {
                assert_same(&source, &copy);
            }
        }
        assert_eq!(report.verified, report.failures.is_empty());
    });
}

enum Change {
    Rewrite,
    Truncate,
    Grow,
}

impl Change {
    fn apply(&self, path: &std::path::Path) {
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        let len = file.metadata().unwrap().len();
        match self {
            Self::Rewrite => {
                file.seek(SeekFrom::Start(len - 1_000_000)).unwrap();
                file.write_all(&[0x55; 900_000]).unwrap();
            }
            Self::Truncate => file.set_len(len / 2).unwrap(),
            Self::Grow => {
                file.seek(SeekFrom::End(0)).unwrap();
                file.write_all(b"more").unwrap();
            }
        }
    }
}

/// Root reads them, and the server sets their modes before it makes them durable.
#[needs(root)]
#[test]
fn directories_that_their_owner_may_not_open_are_copied() {
    limited(|test| {
        for path in ["blind/in/f", "shut/in/f"] {
            let file = test.here("tree").join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, noise(1, 10_000)).unwrap();
        }
        for (path, mode) in [("blind", 0o311), ("shut", 0o000)] {
            let path = test.here("tree").join(path);
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        chown(test.path("there"), Some(NOBODY), Some(NOBODY)).unwrap();
        let (_server, at) = as_nobody(
            test,
            &["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"],
        );
        let copy = Program::cp(test, &["here/tree", &format!("lh://{at}/")]).end();
        copy.assert_succeeded();
        assert_same(&test.here("tree"), &test.there("tree"));
        for path in ["tree/blind", "tree/shut"] {
            let mode = |path| fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode(test.here(path)), mode(test.there(path)), "{path}");
        }
        assert_eq!(names(&test.path("there")), ["tree"]);
    });
}

/// A server of a user who owns nothing but the token.
pub fn as_nobody<'t>(test: &'t crate::test::Test, words: &[&str]) -> (Program<'t>, String) {
    chown(test.path("token"), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut program = Program::start_as_nobody(test, words);
    let line = program.prints("listening on ");
    chown(test.path("token"), Some(0), Some(0)).unwrap();
    let at = line.split("listening on ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    (program, at)
}

const RATE: Option<Rate> = Some(Rate::from_mbps(400));
