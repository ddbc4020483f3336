//! `-H`: names of one file stay that.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use longhaul::{CopyOptions, Deletes, KeptAttributes};
use longhaul_needs::needs;
use rustix::fs::XattrFlags;

use crate::program::{NOBODY, Program};
use crate::server::{Server, each_way, push, run};
use crate::storage::as_nobody;
use crate::test::limited;
use crate::trees::noise;

const FILES: [(&str, usize); 3] = [("large", 3 << 20), ("small", 10), ("empty", 0)];

/// Files and a link, each with two more names; and one that has another outside.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("sub")).unwrap();
    for (name, len) in FILES {
        fs::write(at.join(name), noise(len as u64, len)).unwrap();
    }
    symlink("nowhere", at.join("link")).unwrap();
    for name in ["large", "small", "empty", "link"] {
        for other in ["other", "sub/more"] {
            fs::hard_link(at.join(name), at.join(format!("{other} {name}"))).unwrap();
        }
    }
    fs::write(at.join("alone"), "alone").unwrap();
    fs::hard_link(at.join("alone"), at.with_extension("outside")).unwrap();
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

fn assert_linked(at: &Path) {
    for name in ["large", "small", "empty", "link"] {
        for other in ["other", "sub/more"] {
            let other = at.join(format!("{other} {name}"));
            assert_eq!(inode(&other), inode(&at.join(name)), "{}", other.display());
        }
    }
}

/// Makes a name a file for itself.
fn part(path: &Path) {
    let copy = path.with_extension("copy");
    assert!(Command::new("cp").arg("-p").args([path, &copy]).status().unwrap().success());
    fs::rename(copy, path).unwrap();
}

#[test]
fn names_of_one_file_stay_that_and_its_contents_are_sent_once() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, mut options| {
            tree(from);
            let contents = (3 << 20) + 10 + 5;
            let copy = |options: &CopyOptions| {
                let report = run(test, options).unwrap();
                assert!(report.failures.is_empty() && report.remarks.is_empty(), "{report:?}");
                report
            };
            // Without, each is a file for itself.
            assert_eq!(copy(&options).bytes, 3 * ((3 << 20) + 10) + 5);
            assert_ne!(inode(&to.join("small")), inode(&to.join("other small")));
            // With, what is there and is none becomes one, and nothing is sent.
            options.attributes = KeptAttributes::HARD_LINKS;
            let report = copy(&options);
            assert_eq!((report.bytes, report.unchanged.0), (0, 5 + 2), "{report:?}");
            assert_linked(to);
            fs::remove_dir_all(to).unwrap();
            assert_eq!(copy(&options).bytes, contents);
            assert_linked(to);
            for (name, _) in FILES {
                let [from, to] =
                    [from, to].map(|at| fs::read(at.join("sub").join(format!("more {name}"))));
                assert_eq!(from.unwrap(), to.unwrap());
            }
            // Again, all of it is unchanged.
            let report = copy(&options);
            assert_eq!((report.bytes, report.unchanged.0), (0, 13 + 2), "{report:?}");
            // A name that was parted is one again; where contents changed, all names have them.
            part(&to.join("other large"));
            fs::write(from.join("sub/more small"), "some other contents").unwrap();
            assert_eq!(copy(&options).bytes, 19);
            assert_linked(to);
            assert_eq!(fs::read(to.join("other small")).unwrap(), b"some other contents");
            // By contents, too, of one that is as long and has another time.
            fs::File::options()
                .write(true)
                .open(to.join("large"))
                .unwrap()
                .set_modified(std::time::UNIX_EPOCH)
                .unwrap();
            part(&to.join("sub/more large"));
            options.checksum = true;
            assert_eq!(copy(&options).bytes, 0);
            assert_linked(to);
        });
    });
}

/// As of snapshots: the next is full of names of files that the last has brought, whichever a scan finds first.
#[test]
fn a_new_directory_of_names_of_unchanged_files_is_linked_and_not_sent() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, mut options| {
            options.attributes = KeptAttributes::HARD_LINKS;
            options.merge = true;
            fs::create_dir_all(from.join("m")).unwrap();
            for (name, len) in FILES {
                fs::write(from.join("m").join(name), noise(len as u64, len)).unwrap();
            }
            assert_eq!(run(test, &options).unwrap().bytes, (3 << 20) + 10);
            let before = FILES.map(|(name, _)| inode(&to.join("m").join(name)));
            for new in ["a", "z", "sub/deep"] {
                fs::create_dir_all(from.join(new)).unwrap();
                for (name, _) in FILES {
                    let name = Path::new(name);
                    fs::hard_link(from.join("m").join(name), from.join(new).join(name)).unwrap();
                }
                fs::write(from.join(new).join("own"), new).unwrap();
            }
            fs::set_permissions(from.join("m/small"), PermissionsExt::from_mode(0o600)).unwrap();
            options.dry_run = true;
            let dry = run(test, &options).unwrap();
            options.dry_run = false;
            let report = run(test, &options).unwrap();
            assert!(report.failures.is_empty() && report.remarks.is_empty(), "{report:?}");
            assert_eq!(report.bytes, 1 + 1 + 8, "{report:?}");
            assert_eq!(dry.would_change, (report.files, report.bytes), "{dry:?}");
            for new in ["a", "z", "sub/deep", "m"] {
                let [large, small, empty] = FILES.map(|(name, _)| inode(&to.join(new).join(name)));
                assert_eq!([large, small], [before[0], before[1]], "{new}");
                assert_eq!(empty, inode(&to.join("m/empty")), "{new}");
            }
            let mode = fs::metadata(to.join("a/small")).unwrap().mode() & 0o777;
            assert_eq!(mode, 0o600);
        });
    });
}

/// The names at the top are found first: one that is newer, those without contents, a directory in the place of one.
#[test]
fn what_is_there_under_a_later_name_is_linked_whatever_has_the_first() {
    limited(|test| {
        let server = Server::with(test, |options| options.access[0].allow_delete = true);
        each_way(test, &server, |from, to, mut options| {
            options.attributes = KeptAttributes::HARD_LINKS;
            (options.merge, options.delete) = (true, Some(Deletes { most: Some(1) }));
            fs::create_dir_all(from.join("later")).unwrap();
            for name in ["newer", "directory", "empty", "other"] {
                fs::write(from.join(name), if name == "empty" { "" } else { name }).unwrap();
                fs::hard_link(from.join(name), from.join("later").join(name)).unwrap();
            }
            symlink("nowhere", from.join("link")).unwrap();
            fs::hard_link(from.join("link"), from.join("later/link")).unwrap();
            let copied =
                Command::new("cp").arg("-a").args([from.join("."), to.to_owned()]).status();
            assert!(copied.unwrap().success());
            let names = ["newer", "directory", "empty", "link"];
            let before = names.map(|name| inode(&to.join("later").join(name)));
            names.iter().for_each(|name| fs::remove_file(to.join(name)).unwrap());
            fs::write(to.join("newer"), "of tomorrow").unwrap();
            let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
            fs::File::options()
                .write(true)
                .open(to.join("newer"))
                .unwrap()
                .set_modified(tomorrow)
                .unwrap();
            fs::create_dir(to.join("directory")).unwrap();
            fs::write(to.join("directory/inside"), "").unwrap();
            options.dry_run = true;
            let dry = run(test, &options).unwrap();
            options.dry_run = false;
            let report = run(test, &options).unwrap();
            assert!(report.failures.is_empty() && dry.failures.is_empty(), "{report:?} {dry:?}");
            assert_eq!((report.files, report.bytes), (4, 0), "{report:?}");
            assert_eq!(dry.would_change, (4, 0), "{dry:?}");
            assert_eq!((report.deleted.count, dry.deleted.count), (1, 1));
            for at in ["", "later"] {
                assert_eq!(names.map(|name| inode(&to.join(at).join(name))), before, "{at}");
            }
        });
    });
}

/// Two files of the source are one at the destination, so that none keeps its time.
#[test]
fn files_that_are_compared_by_contents_have_other_names_whatever_their_times() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, mut options| {
            options.attributes = KeptAttributes::HARD_LINKS;
            (options.merge, options.checksum) = (true, true);
            fs::create_dir_all(from.join("later")).unwrap();
            for (name, seconds) in [("one", 1_000_000), ("two", 2_000_000)] {
                let file = fs::File::create(from.join(name)).unwrap();
                fs::write(from.join(name), "contents").unwrap();
                file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
                fs::hard_link(from.join(name), from.join("later").join(name)).unwrap();
            }
            fs::create_dir_all(to).unwrap();
            fs::write(to.join("one"), "contents").unwrap();
            fs::hard_link(to.join("one"), to.join("two")).unwrap();
            for _ in 0..2 {
                let report = run(test, &options).unwrap();
                assert!(report.failures.is_empty(), "{report:?}");
                assert_eq!(report.bytes, 0);
            }
            for name in ["one", "two"] {
                assert_eq!(inode(&to.join(name)), inode(&to.join("later").join(name)));
            }
        });
    });
}

/// With `-u`, in a run and in a dry run before it, by names, sizes, and with what the run says of what it does not keep.
#[test]
fn newer_files_stay_and_other_names_of_theirs_get_the_contents_of_the_source() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, mut options| {
            options.attributes = KeptAttributes::HARD_LINKS;
            (options.update, options.merge) = (true, true);
            let names = ["a", "d/b", "e/c", "z"];
            let before = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
            for (len, newer) in
                [0, 10, 2 << 20].into_iter().flat_map(|len| (0..16).map(move |n| (len, n)))
            {
                let place = format!("{len} {newer:04b}");
                let is_newer = |number: usize| newer >> number & 1 == 1;
                for top in [from, to] {
                    let _ = fs::remove_dir_all(top);
                    ["d", "e"].iter().for_each(|name| fs::create_dir_all(top.join(name)).unwrap());
                }
                let source = noise(len as u64 + 1, len);
                fs::write(from.join("a"), &source).unwrap();
                rustix::fs::setxattr(from.join("a"), "user.a", b"1", XattrFlags::empty()).unwrap();
                let file = fs::File::options().write(true).open(from.join("a")).unwrap();
                file.set_modified(before).unwrap();
                for (number, name) in names.iter().enumerate() {
                    if number > 0 {
                        fs::hard_link(from.join("a"), from.join(name)).unwrap();
                    }
                    // Of those that are not newer some are not there.
                    if is_newer(number) || number % 2 == 0 {
                        fs::write(to.join(name), "there").unwrap();
                        let file = fs::File::options().write(true).open(to.join(name)).unwrap();
                        let years = if is_newer(number) { 2 } else { 0 };
                        file.set_modified(
                            SystemTime::UNIX_EPOCH + years * Duration::from_secs(1_000_000),
                        )
                        .unwrap();
                    }
                }
                options.dry_run = true;
                let dry = run(test, &options).unwrap();
                options.dry_run = false;
                let report = run(test, &options).unwrap();
                let others = (0..names.len()).filter(|number| !is_newer(*number));
                let left = others.clone().count() as u64;
                let sent = if left > 0 { len as u64 } else { 0 };
                assert!(report.failures.is_empty(), "{place}: {report:?}");
                assert_eq!((report.newer, report.bytes), (4 - left, sent), "{place}");
                assert_eq!((dry.newer, dry.would_change), (4 - left, (left, sent)), "{place}");
                assert_eq!(dry.remarks, report.remarks, "{place}");
                let files = others.map(|number| to.join(names[number]));
                let look = |file: std::path::PathBuf| {
                    assert_eq!(fs::read(&file).unwrap(), source, "{place}");
                    inode(&file)
                };
                let inodes: BTreeSet<_> = files.map(look).collect();
                assert!(inodes.len() <= 1, "{place}");
                for number in (0..names.len()).filter(|number| is_newer(*number)) {
                    assert_eq!(fs::read(to.join(names[number])).unwrap(), b"there", "{place}");
                }
                let again = run(test, &options).unwrap();
                assert_eq!((again.newer, again.bytes, again.files), (4 - left, 0, 0), "{place}");
            }
        });
    });
}

#[test]
fn dry_runs_lists_deletion_and_verification_know_each_name() {
    limited(|test| {
        let (_server, at) = Program::serve(
            test,
            "127.0.0.1:0",
            &["--allow-read", "--allow-write", "--allow-delete"],
        );
        let place = format!("lh://{at}/tree");
        tree(&test.here("tree"));
        let cp = |words: &[&str]| {
            let words = [
                &["cp", "--token-file", "token", "-H", "-v"][..],
                words,
                &["-T", "here/tree", &place],
            ];
            let ended = Program::start(test, &words.concat()).end();
            ended.assert_succeeded();
            ended.stdout
        };
        cp(&["--manifest", "list"]);
        assert_linked(&test.there("tree"));
        let list = fs::read_to_string(test.path("list")).unwrap();
        assert_eq!(list.lines().count(), 10, "{list}");
        let verify = || {
            Program::start(
                test,
                &["verify", "--token-file", "token", "list", &format!("lh://{at}/")],
            )
            .end()
        };
        verify().assert_succeeded();
        // One name is parted, one is gone, and one is more.
        part(&test.there("tree/other large"));
        fs::remove_file(test.there("tree/sub/more small")).unwrap();
        fs::hard_link(test.there("tree/small"), test.there("tree/sub/extra")).unwrap();
        let listed = cp(&["-n", "--delete"]);
        for line in ["other large", "sub/more small", "sub/extra"] {
            assert!(listed.contains(line), "{line}: {listed}");
        }
        assert!(!listed.contains("sub/more large") && !listed.contains("other small"), "{listed}");
        assert!(!test.there("tree/sub/more small").exists());
        let done = cp(&["--delete"]);
        for line in ["other large", "sub/more small", "sub/extra"] {
            assert!(done.contains(line), "{line}: {done}");
        }
        assert_linked(&test.there("tree"));
        assert!(!test.there("tree/sub/extra").exists());
        assert!(!cp(&["-n", "--delete"]).contains("tree"), "nothing is left to do");
        verify().assert_succeeded();
        fs::write(test.there("tree/small"), "other text").unwrap();
        let ended = verify();
        assert_eq!(ended.status, Some(1));
        for name in ["tree/small", "tree/other small", "tree/sub/more small"] {
            assert!(
                ended.stdout.contains(name) || ended.stderr.contains(name),
                "{name}: {ended:?}"
            );
        }
    });
}

/// Without `-H`, where the destination has names of one file: it is mended once.
#[test]
fn of_names_of_one_file_there_one_is_mended_by_either_run() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, mut options| {
            fs::create_dir(from).unwrap();
            let names = ["a", "b", "c", "d"];
            names.iter().for_each(|name| fs::write(from.join(name), "x").unwrap());
            run(test, &options).unwrap();
            let time = fs::metadata(from.join("a")).unwrap().modified().unwrap();
            for name in &names[1..] {
                fs::File::open(from.join(name)).unwrap().set_modified(time).unwrap();
                fs::remove_file(to.join(name)).unwrap();
                fs::hard_link(to.join("a"), to.join(name)).unwrap();
            }
            // One wants another mode than the others, in each run.
            let mode = |path: &Path, bits| {
                fs::set_permissions(path, PermissionsExt::from_mode(bits)).unwrap();
            };
            for (last, checksum, mended) in
                [(0o640, false, 1), (0o640, true, 1), (0o600, false, 2), (0o600, true, 2)]
            {
                names[..3].iter().for_each(|name| mode(&from.join(name), 0o640));
                mode(&from.join("d"), last);
                mode(&to.join("a"), 0o666);
                options.checksum = checksum;
                let counts = [true, false].map(|dry_run| {
                    options.dry_run = dry_run;
                    let report = run(test, &options).unwrap();
                    (report.mended, report.unchanged.0, report.would_change.0)
                });
                assert_eq!(counts, [(mended, 5, 0); 2], "{last:o} {checksum}");
            }
        });
    });
}

/// As FAT is, and a file system whose files have no more than so many names.
#[test]
fn where_there_are_no_links_files_are_copied_in_full_and_counted() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, mut options| {
            fs::create_dir(from).unwrap();
            let names = ["without links 1", "without links 2", "without links 3"];
            fs::write(from.join(names[0]), noise(1, 2_000_000)).unwrap();
            names[1..]
                .iter()
                .for_each(|name| fs::hard_link(from.join(names[0]), from.join(name)).unwrap());
            options.attributes = KeptAttributes::HARD_LINKS.with(KeptAttributes::MODES, true);
            let report = run(test, &options).unwrap();
            assert!(report.failures.is_empty(), "{report:?}");
            assert_eq!(report.bytes, 2_000_000);
            let [remark] = &report.remarks[..] else { panic!("{report:?}") };
            assert!(remark.contains("hard links") && remark.contains("2 entries"), "{remark}");
            let inodes: BTreeSet<_> = names.iter().map(|name| inode(&to.join(name))).collect();
            assert_eq!(inodes.len(), 3);
            for name in names {
                let [from, to] = [from, to].map(|at| at.join(name));
                assert_eq!(fs::read(&from).unwrap(), fs::read(&to).unwrap());
                let [from, to] = [from, to].map(|path| fs::metadata(path).unwrap());
                assert_eq!((from.mode(), from.mtime_nsec()), (to.mode(), to.mtime_nsec()));
            }
            // Where the names are taken, too.
            fs::write(from.join(names[0]), "other contents").unwrap();
            options.dry_run = true;
            assert_eq!(run(test, &options).unwrap().would_change, (3, 14));
            options.dry_run = false;
            let report = run(test, &options).unwrap();
            assert!(report.failures.is_empty(), "{report:?}");
            assert_eq!((report.files, report.bytes), (3, 14), "{report:?}");
            names
                .iter()
                .for_each(|name| assert_eq!(fs::read(to.join(name)).unwrap(), b"other contents"));
        });
    });
}

/// As the system has it by default (`fs.protected_hardlinks`): none to another user's file that this one may not
/// write to.
#[needs(root)]
#[test]
fn where_a_link_is_refused_a_copy_takes_the_place_of_what_has_its_name() {
    limited(|test| {
        let serves =
            ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
        let (_server, at) = as_nobody(test, &serves);
        let to = format!("lh://{at}/");
        fs::create_dir_all(test.here("tree/b")).unwrap();
        fs::write(test.here("tree/a"), "contents").unwrap();
        fs::hard_link(test.here("tree/a"), test.here("tree/b/c")).unwrap();
        let copied =
            Command::new("cp").arg("-a").args([test.here("tree"), test.there("tree")]).status();
        assert!(copied.unwrap().success());
        fs::remove_file(test.there("tree/b/c")).unwrap();
        fs::write(test.there("tree/b/c"), "old").unwrap();
        for path in ["", "tree", "tree/b", "tree/b/c"].map(|name| test.there(name)) {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        for (option, named) in [("-n", "differs  tree/b/c\n"), ("-v", "tree/b/c\n")] {
            let words = ["cp", "--token-file", "token", option, "-H", "here/tree", &to];
            let ended = Program::start(test, &words).end();
            ended.assert_succeeded();
            assert_eq!(ended.stdout, named, "{ended:?}");
            assert!(ended.stderr.contains("1 entr"), "{ended:?}");
        }
        assert_eq!(fs::read(test.there("tree/b/c")).unwrap(), b"contents");
        let is_refused = fs::read("/proc/sys/fs/protected_hardlinks").unwrap() == b"1\n";
        let [a, b] = ["tree/a", "tree/b/c"].map(|name| inode(&test.there(name)));
        assert_eq!(a != b, is_refused);
    });
}

/// It is another user's, and one name is missing: the first that is found, or the other.
#[needs(root)]
#[test]
fn a_file_that_may_be_neither_linked_nor_read_is_sent() {
    for there in ["tree/later/b", "tree/a"] {
        limited(move |test| {
            let serves =
                ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
            let (_server, at) = as_nobody(test, &serves);
            fs::create_dir_all(test.here("tree/later")).unwrap();
            fs::write(test.here("tree/a"), "contents").unwrap();
            fs::hard_link(test.here("tree/a"), test.here("tree/later/b")).unwrap();
            fs::create_dir_all(test.there("tree/later")).unwrap();
            let of_root = test.there(there);
            let copied =
                Command::new("cp").arg("-p").arg(test.here("tree/a")).arg(&of_root).status();
            assert!(copied.unwrap().success());
            fs::set_permissions(&of_root, PermissionsExt::from_mode(0o600)).unwrap();
            for path in ["", "tree", "tree/later"].map(|name| test.there(name)) {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
            let to = format!("lh://{at}/");
            for (option, entries) in
                [("-n", "2 entr"), ("-v", "2 entr"), ("-v", "0 B in 0 entries")]
            {
                let words = ["cp", "--token-file", "token", option, "-H", "here/tree", &to];
                let ended = Program::start(test, &words).end();
                ended.assert_succeeded();
                assert!(ended.stderr.contains(entries), "{there} {ended:?}");
            }
            let [a, b] = ["tree/a", "tree/later/b"].map(|name| inode(&test.there(name)));
            assert_eq!(a, b);
            assert_eq!(fs::read(test.there("tree/a")).unwrap(), b"contents");
        });
    }
}

/// With `-X` beside: nothing outside is linked, marked, or changed in any other manner.
#[test]
fn who_swaps_directories_for_links_gets_nothing_linked_or_marked_outside() {
    limited(|test| {
        let server = Server::start(test);
        let (from, to) = (test.here("tree"), test.there("tree"));
        fs::create_dir_all(from.join("d")).unwrap();
        fs::create_dir_all(from.join("e")).unwrap();
        let outside = test.path("outside");
        fs::create_dir(&outside).unwrap();
        for name in ["a", "b"] {
            fs::write(outside.join(name), "outside").unwrap();
        }
        let look = || {
            let names: BTreeSet<_> =
                fs::read_dir(&outside).unwrap().map(|it| it.unwrap().file_name()).collect();
            let about = |name: &str| {
                let metadata = fs::metadata(outside.join(name)).unwrap();
                (metadata.ctime(), metadata.ctime_nsec(), metadata.nlink(), metadata.ino())
            };
            (names, about("a"), about("b"))
        };
        let before = look();
        let attributes = KeptAttributes::HARD_LINKS.with(KeptAttributes::XATTRS, true);
        let mut options = push(&from, server.address, b"");
        options.attributes = attributes;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = fs::rename(to.join("d"), to.join("real"));
                    let _ = symlink(&outside, to.join("d"));
                    std::thread::yield_now();
                    let _ = fs::remove_file(to.join("d"));
                    let _ = fs::rename(to.join("real"), to.join("d"));
                }
            });
            for round in 0..20_usize {
                // The first name in the directory that is swapped, or the later ones.
                for name in ["d/a", "d/b", "e/c"] {
                    let _ = fs::remove_file(from.join(name));
                }
                let (first, others) =
                    if round % 2 == 0 { ("d/a", ["d/b", "e/c"]) } else { ("e/c", ["d/a", "d/b"]) };
                fs::write(from.join(first), noise(round as u64, 100 + round)).unwrap();
                let _ = rustix::fs::setxattr(
                    from.join(first),
                    "user.a",
                    &[round as u8],
                    XattrFlags::empty(),
                );
                others
                    .iter()
                    .for_each(|other| fs::hard_link(from.join(first), from.join(other)).unwrap());
                // Entries may fail, and the copy with them.
                let _ = run(test, &options);
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(look(), before);
        let report = run(test, &options).unwrap();
        assert!(report.failures.is_empty(), "{report:?}");
        assert_eq!(inode(&to.join("d/a")), inode(&to.join("e/c")));
    });
}
