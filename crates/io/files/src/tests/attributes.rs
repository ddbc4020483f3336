//! Modes and times that a destination does not let be set, or that cannot be carried.

use std::fs::Permissions;
use std::os::unix::fs::{chown, symlink};
use std::sync::Arc;
use std::time::{Duration as StdDuration, SystemTime};

use longhaul_needs::needs;
use longhaul_objects::storage::Storage;
use longhaul_objects::{Compared, EntryId, ExistingEntry};
use longhaul_wire::{EntryKind, KeptAttributes, Summary};

use super::*;

/// Some of everything whose names say `without WHAT`.
fn tree(scratch: &Scratch, what: &str) -> PathBuf {
    let path = |rest: &str| format!("from/without {what}{rest}");
    scratch.file(&path("/small"), bytes(10_000, 1));
    scratch.file(&path("/empty"), "");
    scratch.file(&path("/large"), bytes(3 << 20, 2));
    scratch.file(&path("/sub/small"), bytes(10, 3));
    symlink("small", scratch.at(&path("/link"))).unwrap();
    let old = SystemTime::UNIX_EPOCH + StdDuration::from_secs(1_000_000_000);
    let large = std::fs::File::options().write(true).open(scratch.at(&path("/large"))).unwrap();
    large.set_modified(old).unwrap();
    scratch.at("from")
}

#[test]
fn files_that_may_not_have_their_time_or_mode_arrive_all_the_same() {
    let times = Summary::TIMES_NOT_SET | Summary::SOME_TIMES_NOT_SET;
    for (what, note) in [("time", times), ("mode", Summary::MODES_NOT_SET)] {
        let scratch = Scratch::new();
        let from = tree(&scratch, what);
        // In a directory that is there, and in a new one that is filled out of sight.
        for to in ["there", "new"] {
            if to == "there" {
                scratch.directory(&format!("there/from/without {what}"));
            }
            let to = scratch.at(to);
            let copy = Copy::new(SourceTree::local(std::slice::from_ref(&from), false), &to);
            copy.run();
            assert_eq!(copy.failures(), [], "{what}");
            assert_eq!(copy.to.notes() & !Summary::NEW_NAME, note);
        }
        let contents = |root: &str| {
            let found = snapshot(&scratch.at(root)).into_iter();
            found.map(|(path, (_, _, _, contents))| (path, contents)).collect::<Vec<_>>()
        };
        assert_eq!(contents("from"), contents("there/from"));
        assert_eq!(contents("from"), contents("new"));
    }
}

#[test]
fn a_directory_that_may_not_have_its_time_says_nothing_of_files() {
    let scratch = Scratch::new();
    scratch.file("from/file", bytes(10, 1));
    scratch.directory("from/without time");
    let from = scratch.at("from");
    let copy = Copy::new(SourceTree::local(&[from], false), &scratch.at("to"));
    copy.run();
    assert_eq!(copy.failures(), []);
    assert_eq!(copy.to.notes() & !Summary::NEW_NAME, Summary::SOME_TIMES_NOT_SET);
    assert!(!copy.to.lacks_times());
}

#[needs(root)]
#[test]
fn unchanged_files_that_may_not_have_their_mode_are_counted() {
    let scratch = Scratch::new();
    // One is this user's, one is not, and one may not even be opened.
    let files = [("own", 0o600), ("other", 0o604), ("closed", 0o600)];
    for (name, mode) in files {
        let from = scratch.file(&format!("from/{name}"), name);
        let to = scratch.file(&format!("to/from/{name}"), name);
        let modified = std::fs::metadata(&from).unwrap().modified().unwrap();
        std::fs::File::options().write(true).open(&to).unwrap().set_modified(modified).unwrap();
        std::fs::set_permissions(&from, Permissions::from_mode(0o644)).unwrap();
        std::fs::set_permissions(&to, Permissions::from_mode(mode)).unwrap();
    }
    chown(scratch.at("to/from/own"), Some(NOBODY), Some(NOBODY)).unwrap();
    std::fs::set_permissions(scratch.at("to"), Permissions::from_mode(0o777)).unwrap();
    let mended = |kept| {
        let mut copy =
            Copy::new(SourceTree::local(&[scratch.at("from")], false), &scratch.at("to"));
        copy.to = copy.to.keeping(kept, false);
        let is_file = |scanned| match scanned {
            Scanned::Entry(entry) if entry.kind == EntryKind::File => Some(Arc::new(entry)),
            _ => None,
        };
        let tree = SourceTree::local(&[scratch.at("from")], false);
        let entries: Vec<_> = tree.scan().filter_map(is_file).collect();
        let compared = entries.into_iter().map(|entry| {
            let existing = ExistingEntry { id: EntryId(1), entry, stays: true, newer_stays: true };
            copy.to.storage().compare(&existing)
        });
        let mended = compared.filter(|compared| *compared == Compared::Mended).count();
        assert_eq!(copy.to.notes(), 0);
        (mended, copy.to.not_kept())
    };
    without_rights(|| {
        assert_eq!(mended(KeptAttributes::default()), (1, 2));
        assert_eq!(mended(KeptAttributes::MODES), (0, 2));
    });
    let mode = |name: &str| std::fs::metadata(scratch.at(name)).unwrap().mode() & 0o7777;
    let modes = files.map(|(name, _)| mode(&format!("to/from/{name}")));
    assert_eq!(modes, [0o644, 0o604, 0o600]);
}

#[test]
fn a_time_that_cannot_be_carried_is_noted() {
    let scratch = Scratch::new();
    let from = scratch.file("from/far", "far");
    let copy = |to: &str| {
        let (from, to) = (scratch.at("from"), scratch.at(to));
        let copy = Copy::new(SourceTree::local(&[from], false), &to);
        copy.run();
        assert_eq!(copy.failures(), []);
        copy.to.notes() & !Summary::NEW_NAME
    };
    assert_eq!(copy("near"), 0);
    let far = SystemTime::UNIX_EPOCH + StdDuration::from_secs(10_000_000_000);
    std::fs::File::options().write(true).open(&from).unwrap().set_modified(far).unwrap();
    assert_eq!(std::fs::metadata(&from).unwrap().modified().unwrap(), far);
    assert_eq!(copy("there"), Summary::TIMES_OUT_OF_RANGE);
}

#[test]
fn a_time_that_the_destination_does_not_keep_is_noted_of_files() {
    let scratch = Scratch::new();
    let late = SystemTime::UNIX_EPOCH + StdDuration::from_secs(3_000_000_000);
    let mut times = [(late, Summary::TIMES_NOT_KEPT), (SystemTime::now(), 0)].into_iter();
    for (number, (time, note)) in times.by_ref().enumerate() {
        let from = scratch.file(&format!("{number}/without late times"), bytes(100, 1));
        std::fs::File::options().write(true).open(&from).unwrap().set_modified(time).unwrap();
        for to in ["first", "second"] {
            let to = scratch.at(&format!("{to} {number}/"));
            let copy = Copy::new(SourceTree::local(std::slice::from_ref(&from), false), &to);
            copy.run();
            assert_eq!((copy.failures(), copy.to.notes()), (vec![], note));
        }
    }
    let kept = scratch.file("kept/late", bytes(100, 1));
    std::fs::File::options().write(true).open(&kept).unwrap().set_modified(late).unwrap();
    let copy = Copy::new(SourceTree::local(&[kept], false), &scratch.at("third/"));
    copy.run();
    assert_eq!(copy.to.notes(), 0);
}

#[needs(root)]
#[test]
fn a_file_whose_directory_could_not_be_made_says_so() {
    let scratch = Scratch::new();
    scratch.file("from/closed/new/file", "file");
    scratch.directory("to/from/closed");
    for (path, mode) in [("to", 0o777), ("to/from", 0o777), ("to/from/closed", 0o555)] {
        std::fs::set_permissions(scratch.at(path), Permissions::from_mode(mode)).unwrap();
    }
    without_rights(|| {
        let copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &scratch.at("to"));
        copy.run();
        let mut failures = copy.failures();
        failures.sort();
        let [(directory, why), (file, reason)] = &failures[..] else { panic!("{failures:?}") };
        assert_eq!((&directory[..], &file[..]), ("from/closed/new", "from/closed/new/file"));
        assert!(why.contains("no permission at the destination"), "{why}");
        assert!(reason.contains("it could not be made, or somebody has removed it"), "{reason}");
    });
}
