//! A file that is at the destination with its size and modification time is neither read nor sent.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use longhaul::CopyReport;

use crate::server::{self, Server, push, run};
use crate::test::{Test, limited};
use crate::trees::{assert_same, noise};

/// Small files, in several bundles, and a large one.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("sub")).unwrap();
    for number in 0..SMALL {
        let size = 5_000 + 37 * number as usize;
        let name = if number % 3 == 0 { format!("sub/{number}") } else { number.to_string() };
        fs::write(at.join(name), noise(number, size)).unwrap();
    }
    fs::write(at.join("large"), noise(999, 3_000_000)).unwrap();
}

const SMALL: u64 = 900;
/// Directories are no files: they are made again.
const DIRECTORIES: u64 = 2;

/// Both ways, over both carriers: the source, the destination, and what copies.
fn each_way(
    test: &Test,
    server: &Server,
    mut check: impl FnMut(&Path, &Path, &mut dyn FnMut(bool) -> CopyReport),
) {
    server::each_way(test, server, |from, to, mut options| {
        tree(from);
        let mut copy = |ignores: bool| {
            options.ignore_times = ignores;
            run(test, &options).unwrap()
        };
        check(from, to, &mut copy);
    });
}

#[test]
fn the_same_copy_again_sends_nothing_and_mends_modes() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, copy| {
            let first = copy(false);
            assert_eq!((first.unchanged, first.files), ((0, 0), SMALL + 1 + DIRECTORIES));
            // A bit that lends rights goes, too.
            fs::set_permissions(to.join("1"), PermissionsExt::from_mode(0o4644)).unwrap();
            fs::set_permissions(to.join("large"), PermissionsExt::from_mode(0o600)).unwrap();
            let again = copy(false);
            assert_eq!(again.unchanged, (SMALL + 1 + DIRECTORIES, first.bytes), "{again:?}");
            assert_eq!((again.files, again.bytes, again.failures.count), (0, 0, 0));
            assert_eq!(again.mended, 2, "{again:?}");
            assert!(again.verified);
            assert_same(from, to);
            let all = copy(true);
            // All files are copied; directories that are there stay, as with rsync -I.
            assert_eq!((all.unchanged, all.bytes), ((DIRECTORIES, 0), first.bytes));
            assert_eq!(all.files, SMALL + 1);
        });
    });
}

#[test]
fn the_directory_copied_into_keeps_its_time_where_nothing_is_made_in_it() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |_, to, copy| {
            let (above, old) = (to.parent().unwrap(), UNIX_EPOCH + Duration::from_secs(1 << 30));
            let time = || fs::metadata(above).unwrap().modified().unwrap();
            copy(false);
            for (is_made, is_old) in [(false, true), (true, false), (false, true)] {
                if is_made {
                    fs::remove_dir_all(to).unwrap();
                }
                File::open(above).unwrap().set_modified(old).unwrap();
                let report = copy(false);
                assert_eq!((report.bytes > 0, time() == old), (is_made, is_old), "{report:?}");
            }
        });
    });
}

#[test]
fn of_a_tree_in_which_some_files_changed_these_are_sent() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, copy| {
            copy(false);
            let changed: Vec<u64> = (0..SMALL).step_by(97).collect();
            let mut bytes = 0;
            for number in &changed {
                let name =
                    if number % 3 == 0 { format!("sub/{number}") } else { number.to_string() };
                fs::write(from.join(&name), noise(5_000 + number, 6_000)).unwrap();
                bytes += 6_000;
            }
            fs::remove_file(to.join("2")).unwrap();
            bytes += fs::metadata(from.join("2")).unwrap().len();
            fs::write(from.join("new"), "new").unwrap();
            let again = copy(false);
            assert_eq!(again.bytes, bytes + 3, "{again:?}");
            let stay = SMALL + 1 - changed.len() as u64 - 1 + DIRECTORIES;
            assert_eq!(again.unchanged.0, stay);
            // No packets but for these, and what messages take.
            assert!(again.link.packets_sent < 400, "{again:?}");
            assert_same(from, to);
        });
    });
}

/// Archives and `touch` give files the times of whole seconds, which says nothing of the file system.
#[test]
fn a_file_of_the_next_second_is_sent() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, copy| {
            let write = |contents: &str, millis| {
                fs::write(from.join("1"), contents).unwrap();
                let time = UNIX_EPOCH + Duration::from_millis(millis);
                File::open(from.join("1")).unwrap().set_modified(time).unwrap();
            };
            write("version 1", 1_700_000_000_000);
            copy(false);
            for (contents, time) in
                [("version 2", 1_700_000_000_500), ("version 3", 1_700_000_001_000)]
            {
                write(contents, time);
                assert_eq!(copy(false).files, 1, "{contents}");
                assert_eq!(fs::read_to_string(to.join("1")).unwrap(), contents);
                write("version 1", 1_700_000_000_000);
                copy(false);
            }
        });
    });
}

#[test]
fn a_server_that_lets_nobody_read_says_nothing_of_what_it_has() {
    limited(|test| {
        tree(&test.here("tree"));
        let server = Server::with(test, |options| options.access[0].allow_read = false);
        let options = push(&test.here("tree"), server.address, b"");
        let first = run(test, &options).unwrap();
        let again = run(test, &options).unwrap();
        assert_eq!((again.unchanged, again.bytes), ((0, 0), first.bytes));
        assert!(again.remarks.iter().any(|it| it.contains("does not let anyone see")), "{again:?}");
    });
}
