//! `--checksum`: files of one size are compared by their contents, and only the MiB that differ are sent.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use longhaul::CopyReport;

use crate::server::{Server, each_way, push, run};
use crate::test::limited;
use crate::trees::{assert_same, noise};

const LARGE: u64 = 5_500_000;
const MIB: u64 = 1 << 20;

fn tree(at: &Path) {
    fs::create_dir_all(at.join("sub")).unwrap();
    for name in ["same", "touched", "patched", "other-size"] {
        for within in ["", "sub/"] {
            fs::write(at.join(format!("{within}{name}")), noise(7, 30_000)).unwrap();
        }
        fs::write(at.join(format!("large-{name}")), noise(8, LARGE as usize)).unwrap();
    }
    fs::write(at.join("empty"), "").unwrap();
}

/// Changes contents without time and size, time without contents, and both; returns the bytes that differ.
fn alter(at: &Path) {
    for (prefix, last) in [("", 30_000 - 1), ("sub/", 7), ("large-", 2 * MIB)] {
        let path = at.join(format!("{prefix}patched"));
        let file = fs::File::options().write(true).open(&path).unwrap();
        let times = fs::FileTimes::new().set_modified(file.metadata().unwrap().modified().unwrap());
        file.write_all_at(&[0x55, 0xaa], last - 1).unwrap();
        file.set_times(times).unwrap();
        let touched = fs::File::open(at.join(format!("{prefix}touched"))).unwrap();
        touched.set_modified(std::time::UNIX_EPOCH).unwrap();
        let path = at.join(format!("{prefix}other-size"));
        fs::File::options().write(true).open(path).unwrap().set_len(1_000_000).unwrap();
    }
    let empty = fs::File::open(at.join("empty")).unwrap();
    empty.set_modified(std::time::UNIX_EPOCH).unwrap();
    let mode = PermissionsExt::from_mode(0o600);
    fs::set_permissions(at.join("touched"), mode).unwrap();
}

fn sent(report: &CopyReport) -> u64 {
    report.bytes - report.resumed_bytes
}

/// Another name of a file that is replaced, as a snapshot by hard links has it, stays what it was.
#[test]
fn what_is_replaced_keeps_its_attributes_under_its_other_names() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, mut options| {
            fs::create_dir_all(from).unwrap();
            fs::write(from.join("file"), noise(1, 30_000)).unwrap();
            run(test, &options).unwrap();
            let kept = to.join("kept");
            fs::hard_link(to.join("file"), &kept).unwrap();
            let all = [(true, false, false), (false, true, false), (false, true, true)];
            for (round, (checksum, ignore_times, update)) in all.into_iter().enumerate() {
                let contents = noise(2 + round as u64, 30_000);
                let times = fs::metadata(from.join("file")).unwrap().modified().unwrap();
                fs::write(from.join("file"), &contents).unwrap();
                fs::File::open(from.join("file")).unwrap().set_modified(times).unwrap();
                let mode = PermissionsExt::from_mode(0o600);
                fs::set_permissions(from.join("file"), mode).unwrap();
                let before = fs::metadata(&kept).unwrap();
                options.checksum = checksum;
                options.ignore_times = ignore_times;
                options.update = update;
                run(test, &options).unwrap();
                assert_eq!(fs::read(to.join("file")).unwrap(), contents);
                let after = fs::metadata(&kept).unwrap();
                assert_eq!((after.mode(), after.ino()), (before.mode(), before.ino()));
                fs::remove_file(to.join("file")).unwrap();
                fs::hard_link(&kept, to.join("file")).unwrap();
                fs::File::open(&kept).unwrap().set_modified(times).unwrap();
            }
        });
    });
}

#[test]
fn what_is_equal_stays_and_of_others_what_differs_is_sent() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, mut options| {
            tree(from);
            run(test, &options).unwrap();
            let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
            let before = inode("large-touched");
            alter(to);
            options.checksum = true;
            options.dry_run = true;
            let look = run(test, &options).unwrap();
            assert_eq!((look.would_change.0, look.unchanged.0), (6, 7 + 2), "{look:?}");
            options.dry_run = false;
            let report = run(test, &options).unwrap();
            assert_eq!(report.unchanged.0, 7 + 2, "{report:?}");
            assert_eq!(report.mended, look.mended, "{look:?} {report:?}");
            assert!(report.verified && report.compared);
            // Two MiB of one file, since what was written lies across their border.
            assert_eq!(sent(&report), 4 * 30_000 + LARGE + 2 * MIB, "{report:?}");
            assert_same(from, to);
            assert_eq!(inode("large-touched"), before);
            let again = run(test, &options).unwrap();
            assert_eq!((again.unchanged.0, again.bytes), (13 + 2, 0), "{again:?}");
        });
    });
}

#[test]
fn files_with_holes_are_compared_too_and_sent_whole() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, mut options| {
            fs::create_dir_all(from).unwrap();
            let hollow = [("nothing", 3 * MIB), ("zeros", 3 * MIB), ("nearly", 40 * MIB)];
            let sizes = [("large", 4 * MIB), ("small", 400_000)];
            for (name, size) in sizes.into_iter().chain(hollow) {
                let file = fs::File::create(from.join(name)).unwrap();
                file.set_len(size).unwrap();
                if sizes.contains(&(name, size)) {
                    file.write_all_at(&noise(3, 65_536), 65_536).unwrap();
                    file.write_all_at(&noise(4, size as usize / 4), size / 2).unwrap();
                } else if name == "nearly" {
                    file.write_all_at(b"data", size / 2).unwrap();
                }
            }
            run(test, &options).unwrap();
            fs::write(to.join("zeros"), vec![0; 3 << 20]).unwrap();
            fs::File::open(to.join("large")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            let inodes = || {
                hollow
                    .into_iter()
                    .chain(sizes)
                    .map(|(name, _)| fs::metadata(to.join(name)).unwrap().ino())
                    .collect::<Vec<_>>()
            };
            let before = inodes();
            options.checksum = true;
            for dry_run in [true, false] {
                options.dry_run = dry_run;
                let equal = run(test, &options).unwrap();
                assert_eq!((equal.unchanged.0, sent(&equal)), (6, 0), "{equal:?}");
            }
            assert_eq!(inodes(), before);
            assert_same(from, to);
            // In holes, and in data, of which the first MiB is equal.
            for (name, at) in [("small", 5), ("large", 2 * MIB + 9), ("nothing", 2 * MIB + 9)] {
                let file = fs::File::options().write(true).open(to.join(name)).unwrap();
                file.write_all_at(b"other", at).unwrap();
            }
            options.dry_run = true;
            assert_eq!(run(test, &options).unwrap().would_change.0, 3);
            options.dry_run = false;
            let report = run(test, &options).unwrap();
            let data: u64 = [400_000, 4 * MIB].iter().map(|size| 65_536 + size / 4).sum();
            assert!(sent(&report) >= data && sent(&report) < data + 40_000, "{report:?}");
            assert_same(from, to);
        });
    });
}

#[test]
fn a_server_that_lets_nobody_read_gets_all() {
    limited(|test| {
        tree(&test.here("tree"));
        let server = Server::with(test, |options| options.access[0].allow_read = false);
        let mut options = push(&test.here("tree"), server.address, b"");
        options.checksum = true;
        let first = run(test, &options).unwrap();
        let again = run(test, &options).unwrap();
        assert_eq!((again.unchanged, sent(&again)), ((0, 0), first.bytes));
        assert!(again.remarks.iter().any(|it| it.contains("does not let anyone see")), "{again:?}");
    });
}

#[test]
fn with_checksums_times_do_not_matter_though_they_are_to_be_ignored() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, _, mut options| {
            tree(from);
            run(test, &options).unwrap();
            (options.checksum, options.ignore_times) = (true, true);
            let again = run(test, &options).unwrap();
            assert_eq!((again.files, again.bytes), (0, 0), "as rsync does: {again:?}");
        });
    });
}
