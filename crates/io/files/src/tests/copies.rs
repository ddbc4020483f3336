//! Copies, and going on where they were.

use std::ffi::OsStr;
use std::fs::{FileTimes, Permissions};
use std::os::unix::fs::symlink;
use std::time::{Duration as StdDuration, SystemTime};

use longhaul_sys::files::ConfinedDir;

use super::*;

#[test]
fn a_tree_arrives_as_it_is() {
    let scratch = Scratch::new();
    let from = scratch.directory("from");
    for number in 0..2000 {
        let len = [10, 3000, 10_240, 0, 777][number % 5];
        scratch.file(&format!("from/many/{}/f{number}", number % 7), bytes(len, number));
    }
    // Each lies in two groups of its bundle.
    for number in 0..30 {
        scratch.file(&format!("from/medium/f{number}"), bytes(700_000, number));
    }
    scratch.file("from/large", bytes(3 << 20, 1));
    scratch.file("from/group", bytes(1 << 20, 2));
    scratch.file("from/below a group", bytes((1 << 20) - 1, 3));
    scratch.directory("from/empty/er");
    let strange = from.join(OsStr::from_bytes(b"not \xff UTF-8\n\x1b[31m"));
    std::fs::write(&strange, b"strange").unwrap();
    symlink("many/0", from.join("link")).unwrap();
    symlink("/nowhere/at/all", from.join("dangling")).unwrap();
    let old = SystemTime::UNIX_EPOCH - StdDuration::from_millis(86_400_500);
    let times = FileTimes::new().set_modified(old);
    std::fs::File::open(&strange).unwrap().set_times(times).unwrap();
    std::fs::set_permissions(&strange, Permissions::from_mode(0o400)).unwrap();
    std::fs::set_permissions(from.join("large"), Permissions::from_mode(0o555)).unwrap();
    std::fs::set_permissions(from.join("empty"), Permissions::from_mode(0o555)).unwrap();

    let copy = Copy::new(SourceTree::local(std::slice::from_ref(&from), false), &scratch.at("to"));
    copy.run();
    assert_eq!(copy.failures(), []);
    assert_eq!(snapshot(&from), snapshot(&scratch.at("to")));
    assert_eq!(scratch.names(""), ["from", "to"]);
    // The trees are not the tests' to remove while they are read-only.
    for tree in ["from/empty", "to/empty"] {
        std::fs::set_permissions(scratch.at(tree), Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_large_file_with_holes_arrives() {
    let scratch = Scratch::new();
    let from = scratch.file("from", "head");
    let file = std::fs::OpenOptions::new().write(true).open(&from).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"tail", 200 << 20).unwrap();
    let copy = Copy::new(SourceTree::local(std::slice::from_ref(&from), false), &scratch.at("to"));
    copy.run();
    assert_eq!(copy.failures(), []);
    assert!(lock(&copy.source).stats().sent_bytes <= 2 << 16, "holes were sent");
    drop(copy);
    let to = std::fs::File::open(scratch.at("to")).unwrap();
    assert_eq!(to.metadata().unwrap().len(), (200 << 20) + 4);
    assert!(to.metadata().unwrap().blocks() * 512 <= 2 << 16, "holes were written");
    let mut tail = [0; 8];
    std::os::unix::fs::FileExt::read_exact_at(&to, &mut tail, (200 << 20) - 4).unwrap();
    assert_eq!(&tail, b"\0\0\0\0tail");
}

#[test]
fn a_terabyte_of_which_a_megabyte_is_data_moves_as_that() {
    let scratch = Scratch::new();
    let from = scratch.directory("from");
    let sparse = std::fs::File::create(from.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    for number in 0..16u64 {
        let data = bytes(1 << 16, number as usize + 1);
        std::os::unix::fs::FileExt::write_all_at(&sparse, &data, number << 36).unwrap();
    }
    std::fs::File::create(from.join("hole")).unwrap().set_len(1 << 40).unwrap();
    std::fs::File::create(from.join("small")).unwrap().set_len(100_000).unwrap();
    let copy = Copy::new(SourceTree::local(std::slice::from_ref(&from), false), &scratch.at("to"));
    copy.run();
    assert_eq!(copy.failures(), []);
    assert_eq!(lock(&copy.source).stats().sent_bytes, 1 << 20);
    drop(copy);
    let to = std::fs::File::open(scratch.at("to/sparse")).unwrap();
    for number in 0..16u64 {
        let mut there = vec![1; 1 << 17];
        std::os::unix::fs::FileExt::read_exact_at(&to, &mut there, number << 36).unwrap();
        assert_eq!(there[..1 << 16], bytes(1 << 16, number as usize + 1));
        assert!(there[1 << 16..].iter().all(|byte| *byte == 0));
    }
    for (name, size) in [("sparse", 1 << 40), ("hole", 1 << 40), ("small", 100_000)] {
        let there = std::fs::metadata(scratch.at("to").join(name)).unwrap();
        assert_eq!(there.len(), size, "{name}");
        assert!(there.blocks() * 512 <= 2 << 20, "{name}");
    }
}

#[test]
fn existing_files_are_replaced_and_the_rest_stays() {
    let scratch = Scratch::new();
    scratch.file("from/a", "new");
    scratch.file("from/sub/b", "new");
    scratch.file("to/from/a", "old and longer");
    scratch.file("to/from/sub/other", "other");
    std::fs::set_permissions(scratch.at("to/from/sub"), Permissions::from_mode(0o770)).unwrap();
    copy(&scratch.at("from"), &scratch.at("to"));
    assert_eq!(scratch.read("to/from/a"), "new");
    assert_eq!(scratch.read("to/from/sub/b"), "new");
    assert_eq!(scratch.read("to/from/sub/other"), "other");
    let mode = std::fs::metadata(scratch.at("to/from/sub")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o770);
    // Once more, with nothing changed.
    copy(&scratch.at("from"), &scratch.at("to"));
    assert_eq!(scratch.names("to"), ["from"]);
}

#[test]
fn bits_that_lend_rights_are_not_copied() {
    let scratch = Scratch::new();
    let from = scratch.file("from", "program");
    std::fs::set_permissions(&from, Permissions::from_mode(0o4755)).unwrap();
    copy(&from, &scratch.at("to"));
    assert_eq!(std::fs::metadata(scratch.at("to")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn an_interrupted_copy_goes_on_where_it_was() {
    for into_directory in [false, true] {
        let scratch = Scratch::new();
        let from = scratch.directory("from");
        for number in 0..3 {
            scratch.file(&format!("from/large{number}"), bytes(10 << 20, number));
        }
        for number in 0..300 {
            scratch.file(&format!("from/small/f{number}"), bytes(10_000, number));
        }
        let to = if into_directory { scratch.directory("to") } else { scratch.at("to") };
        let at = if into_directory { "to/from" } else { "to" };
        const TREE: [&str; 4] = ["large0", "large1", "large2", "small"];
        let tree = || SourceTree::local(std::slice::from_ref(&from), false);

        let first = Copy::new(tree(), &to);
        first.run_until(|sink| sink.stats().received_bytes > 16 << 20);
        first.wait();
        first.run_until(|sink| sink.stats().received_bytes > 20 << 20);
        assert!(!first.is_done());
        drop(first);

        let second = Copy::new(tree(), &to);
        second.run_until(|sink| sink.stats().resumed_bytes > 0);
        second.wait();
        second.run_until(|sink| sink.stats().confirmed > 100);
        drop(second);

        let third = Copy::new(tree(), &to);
        third.run();
        assert_eq!(third.failures(), []);
        assert!(third.resumed() >= 8 << 20, "{}", third.resumed());
        assert_eq!(snapshot(&from), snapshot(&scratch.at(at)));
        let top: &[&str] = if into_directory { &["from"] } else { &TREE };
        assert_eq!(scratch.names("to"), top);
        assert_eq!(scratch.names(""), ["from", "to"]);
        drop(third);
        assert_eq!(scratch.names(""), ["from", "to"]);
    }
}

#[test]
fn a_file_that_changed_meanwhile_is_copied_anew() {
    let scratch = Scratch::new();
    let from = scratch.file("from", bytes(8 << 20, 1));
    let tree = || SourceTree::local(std::slice::from_ref(&from), false);
    let first = Copy::new(tree(), &scratch.at("to"));
    first.run_until(|sink| sink.stats().received_bytes > 4 << 20);
    first.wait();
    first.run_until(|sink| sink.stats().received_bytes > 6 << 20);
    drop(first);
    scratch.file("from", bytes(8 << 20, 2));
    let second = Copy::new(tree(), &scratch.at("to"));
    second.run();
    assert_eq!((second.failures(), second.resumed()), (vec![], 0));
    assert!(std::fs::read(scratch.at("to")).unwrap() == bytes(8 << 20, 2));
    assert_eq!(scratch.names(""), ["from", "to"]);
}

#[test]
fn a_copy_that_came_to_nothing_leaves_nothing() {
    let scratch = Scratch::new();
    scratch.file("from", bytes(5 << 20, 1));
    let to = scratch.directory("to");
    for to in [to, scratch.at("new")] {
        let copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &to);
        copy.run_until(|sink| sink.stats().received_bytes > 1 << 20);
        drop(copy);
    }
    assert_eq!(scratch.names(""), ["from", "to"]);
    assert_eq!(scratch.names("to"), [""; 0]);
}

#[test]
fn a_copy_does_not_run_twice_at_a_time() {
    let scratch = Scratch::new();
    let from = scratch.file("from", bytes(5 << 20, 1));
    let tree = || SourceTree::local(std::slice::from_ref(&from), false);
    let first = Copy::new(tree(), &scratch.at("to"));
    let second = Copy::with(tree(), Destination::Local(&scratch.at("to")), false);
    assert!(matches!(second.err(), Some(DestinationError::Busy { .. })));
    drop(first);
    copy(&from, &scratch.at("to"));
}

#[test]
fn a_copy_that_has_ended_is_out_of_the_way_though_a_command_has_just_been_started() {
    let scratch = Scratch::new();
    let to = scratch.directory("to");
    let (destination, root) = (Destination::Local(&to), ConfinedDir::open_root(&to).unwrap());
    let hidden = destination.hide(&root, &[7; 16]).unwrap();
    // As a process has it between fork and exec.
    let _inherited = hidden.record.try_clone().unwrap();
    drop(hidden);
    destination.hide(&root, &[7; 16]).unwrap();
}
