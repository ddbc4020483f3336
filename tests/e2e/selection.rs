//! Which files are copied, under which name, and what is deleted for them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use longhaul::{CopyOptions, CopyReport, Deletes, EntryCode, ErrorKind, FilterKind, FilterRule};

use crate::copies::make_fifo;
use crate::server::{Server, pull, push, run};
use crate::test::{Test, limited};
use crate::trees::{assert_same, names};

fn tree(at: &Path) {
    fs::create_dir_all(at.join("sub/deep")).unwrap();
    for name in ["a", "b.o", "sub/c", "sub/d.o", "sub/deep/e"] {
        fs::write(at.join(name), name).unwrap();
    }
}

/// Both ways: the source, the destination, and what copies with the options that are set.
fn each_way(
    check: impl Fn(&Path, &Path, &dyn Fn(&dyn Fn(&mut CopyOptions)) -> CopyReport) + Send + 'static,
) {
    limited(move |test| {
        let server = Server::with(test, |options| options.access[0].allow_delete = true);
        for pushes in [true, false] {
            let (here, there) = (test.here("tree"), test.there("tree"));
            for old in [&here, &there] {
                let _ = fs::remove_dir_all(old);
            }
            let (from, to) = if pushes { (&here, &there) } else { (&there, &here) };
            tree(from);
            let copy = |set: &dyn Fn(&mut CopyOptions)| {
                let mut options = match pushes {
                    true => push(&here, server.address, b""),
                    false => pull(server.address, b"tree", &test.path("here")),
                };
                set(&mut options);
                run(test, &options).unwrap()
            };
            check(from, to, &copy);
        }
    });
}

fn exclude(pattern: &str) -> FilterRule {
    FilterRule { kind: FilterKind::Exclude, pattern: pattern.into() }
}

#[test]
fn what_is_excluded_is_not_copied_and_a_source_that_is_excluded_is_skipped() {
    each_way(|_, to, copy| {
        copy(&|options| options.rules = vec![exclude("*.o"), exclude("/tree/sub/deep/")]);
        assert_eq!(names(to), ["a", "sub"]);
        assert_eq!(names(&to.join("sub")), ["c"]);
        let report = copy(&|options| options.rules = vec![exclude("tree")]);
        assert_eq!((report.files, report.skipped.count, report.failures.count), (0, 1, 0));
    });
}

#[test]
fn deletion_takes_what_the_source_has_not_and_nothing_else() {
    each_way(|_, to, copy| {
        copy(&|_| {});
        fs::create_dir_all(to.join("old/er")).unwrap();
        for name in [
            "more",
            "sub/more",
            "old/er/x",
            "kept.o",
            "sub/deep/.longhaul-0123456789abcdef0123456789abcdef",
        ] {
            fs::write(to.join(name), "x").unwrap();
        }
        fs::write(to.with_file_name("beside"), "x").unwrap();
        symlink(to.with_file_name("beside"), to.join("sub/link")).unwrap();
        let report = copy(&|options| {
            options.delete = Some(Deletes::default());
            options.rules = vec![exclude("*.o")];
        });
        assert_eq!(report.deleted.count, 6, "{report:?}");
        let mut sample = report.deleted.sample.clone();
        sample.sort();
        let gone = ["more", "old", "old/er", "old/er/x", "sub/link", "sub/more"];
        assert_eq!(sample, gone.map(|name| format!("tree/{name}")));
        assert_eq!(names(to), ["a", "b.o", "kept.o", "sub"]);
        assert_eq!(names(&to.join("sub")), ["c", "d.o", "deep"]);
        assert_eq!(fs::read(to.with_file_name("beside")).unwrap(), b"x");
        fs::remove_file(to.with_file_name("beside")).unwrap();
    });
}

/// Somebody who may write to the destination puts links in the place of directories there while names are deleted in
/// them.
#[test]
fn who_swaps_directories_for_links_gets_nothing_deleted_outside() {
    limited(|test| {
        let server = Server::with(test, |options| options.access[0].allow_delete = true);
        for pushes in [true, false] {
            let (here, there) = (test.here("tree"), test.there("tree"));
            for old in [&here, &there] {
                let _ = fs::remove_dir_all(old);
            }
            let (from, to) = if pushes { (&here, &there) } else { (&there, &here) };
            let mut options = match pushes {
                true => push(&here, server.address, b""),
                false => pull(server.address, b"tree", &test.path("here")),
            };
            options.delete = Some(Deletes::default());
            for number in 0..SWAPPED {
                let directory = from.join(format!("d{number}"));
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join("kept"), "kept").unwrap();
            }
            let outside = test.path(&format!("outside{pushes}"));
            fs::create_dir_all(outside.join("in")).unwrap();
            let files = ["a", "in/b"].map(|name| outside.join(name));
            files.iter().for_each(|file| fs::write(file, "outside").unwrap());
            run(test, &options).unwrap();
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| swap(to, &outside, &over));
                let (mut runs, mut deleted) = (0, 0);
                while runs < 20 || deleted == 0 {
                    (0..SWAPPED).for_each(|number| fill(&to.join(format!("d{number}"))));
                    // Entries may fail, and the copy with them.
                    deleted += run(test, &options).map_or(0, |report| report.deleted.count);
                    runs += 1;
                }
                over.store(true, Ordering::Relaxed);
            });
            for file in files {
                assert_eq!(fs::read(file).unwrap(), b"outside");
            }
        }
    });
}

/// Puts links to `outside` in the place of one directory of `to` after the other, and of one in it, each for a moment.
fn swap(to: &Path, outside: &Path, over: &AtomicBool) {
    let real = to.with_file_name("real");
    for number in (0..SWAPPED).cycle() {
        for name in [format!("d{number}"), format!("d{number}/deep")] {
            let at = to.join(name);
            let _ = fs::rename(&at, &real);
            let _ = symlink(outside, &at);
            thread::yield_now();
            let _ = fs::remove_file(&at);
            let _ = fs::rename(&real, &at);
            // Another was made in its place.
            let _ = fs::remove_dir_all(&real);
        }
        if over.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Makes names that only the destination has.
fn fill(directory: &Path) {
    // Outside, where a link is in its place.
    let _ = fs::create_dir(directory.join("deep"));
    for name in ["x", "y", "deep/z"] {
        let _ = fs::write(directory.join(name), "x");
    }
}

const SWAPPED: usize = 8;

#[test]
fn deletion_stops_at_its_bound_and_the_copy_has_failed() {
    each_way(|_, to, copy| {
        copy(&|_| {});
        for number in 0..5 {
            fs::write(to.join(format!("more{number}")), "x").unwrap();
        }
        let report = copy(&|options| {
            options.delete = Some(Deletes { most: Some(2) });
        });
        assert_eq!((report.deleted.count, report.failures.count), (2, 3), "{report:?}");
        assert!(report.failures.sample[0].reason.contains("--max-delete"), "{report:?}");
        assert_eq!(report.failures.sample[0].code, EntryCode::Refused);
    });
}

#[test]
fn nothing_is_deleted_where_something_failed() {
    each_way(|from, to, copy| {
        copy(&|_| {});
        fs::write(to.join("more"), "x").unwrap();
        // A FIFO in the way of a file is not replaced.
        fs::write(from.join("new"), "new").unwrap();
        make_fifo(&to.join("new"));
        let report = copy(&|options| options.delete = Some(Deletes::default()));
        assert_eq!((report.deleted.count, report.failures.count), (0, 1), "{report:?}");
        assert!(to.join("more").exists());
    });
}

#[test]
fn what_is_of_another_kind_is_replaced_by_delete_alone() {
    each_way(|from, to, copy| {
        copy(&|_| {});
        // A directory where a file has to be, and a file where a directory has to be.
        fs::remove_file(to.join("a")).unwrap();
        fs::create_dir_all(to.join("a/below")).unwrap();
        fs::write(to.join("a/below/keep"), "x").unwrap();
        fs::remove_dir_all(to.join("sub")).unwrap();
        fs::write(to.join("sub"), "x").unwrap();
        let delete = |options: &mut CopyOptions| options.delete = Some(Deletes::default());
        let report = copy(&|_| {});
        assert!(report.failures.count > 2, "a, sub and what is in that: {report:?}");
        assert!(to.join("a/below/keep").exists() && to.join("sub").is_file());
        let report = copy(&|options| {
            delete(options);
            options.rules.push(exclude("keep"));
        });
        assert_eq!(report.failures.count, 1, "{report:?}");
        assert!(report.failures.sample[0].reason.contains("is excluded"), "{report:?}");
        assert!(to.join("a/below/keep").exists() && to.join("sub/c").exists());
        let few = copy(&|options| options.delete = Some(Deletes { most: Some(1) }));
        assert!(few.failures.sample[0].reason.contains("--max-delete"), "{few:?}");
        fs::create_dir_all(to.join("a/below")).unwrap();
        let dry = copy(&|options| {
            delete(options);
            options.dry_run = true;
        });
        assert_eq!((dry.failures.count, dry.would_change.0), (0, 1), "{dry:?}");
        assert!(to.join("a/below").is_dir());
        let report = copy(&|options| delete(options));
        assert_eq!(report.failures.count, 0, "{report:?}");
        assert_same(from, to);
    });
}

#[test]
fn a_server_has_to_allow_deletion() {
    limited(|test: &Test| {
        tree(&test.here("tree"));
        let refuse = |set: fn(&mut longhaul::ServeOptions)| {
            let server = Server::with(test, set);
            let mut options = push(&test.here("tree"), server.address, b"");
            options.delete = Some(Deletes::default());
            let error = run(test, &options).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Refused, "{error}");
            assert!(error.to_string().contains("--allow-delete"), "{error}");
        };
        refuse(|_| {});
        refuse(|options| {
            (options.access[0].allow_delete, options.access[0].allow_read) = (true, false)
        });
    });
}

#[test]
fn a_name_stays_a_name_where_a_directory_has_it() {
    each_way(|_, to, copy| {
        fs::create_dir_all(to).unwrap();
        fs::write(to.join("old"), "old").unwrap();
        copy(&|options| {
            options.destination_is_name = true;
            match &mut options.paths {
                longhaul::CopyPaths::Push { destination, .. } => *destination = b"tree".to_vec(),
                longhaul::CopyPaths::Pull { destination, .. } => destination.push("tree"),
            }
        });
        assert_eq!(names(to), ["a", "b.o", "old", "sub"]);
    });
}

#[test]
fn what_is_newer_stays_under_update() {
    each_way(|from, to, copy| {
        copy(&|_| {});
        let later = fs::metadata(from.join("a")).unwrap().modified().unwrap()
            + std::time::Duration::from_secs(9);
        for (name, at) in [("a", to), ("sub/c", from)] {
            fs::write(at.join(name), "later").unwrap();
            fs::File::options()
                .write(true)
                .open(at.join(name))
                .unwrap()
                .set_modified(later)
                .unwrap();
        }
        let report = copy(&|options| options.update = true);
        assert_eq!((report.newer, report.bytes), (1, 5), "{report:?}");
        assert_eq!(fs::read(to.join("a")).unwrap(), b"later");
        assert_eq!(fs::read(to.join("sub/c")).unwrap(), b"later");
    });
}
