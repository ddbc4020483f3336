//! Changes by somebody to unpublished files between two runs.

use std::fs::{File, FileTimes};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};

use longhaul_objects::SinkStats;
use longhaul_objects::limits::GROUP_SIZE;

use super::*;

const GROUPS: usize = 12;

/// A copy of a large file that was stopped, or killed, when it had received a part.
fn interrupted(stopped: bool) -> (Scratch, u64) {
    let scratch = Scratch::new();
    let data = bytes(GROUPS * GROUP_SIZE as usize + 5, 1);
    scratch.file("from/f", data);
    let left = interrupted_in(&scratch, stopped);
    (scratch, left)
}

/// The same of what the source has: the groups that are recorded.
fn interrupted_in(scratch: &Scratch, stopped: bool) -> u64 {
    let from = scratch.at("from/f");
    let copy = Copy::new(SourceTree::local(&[from], false), &scratch.at("to"));
    copy.run_until(|sink| sink.stats().received_bytes >= 5 * GROUP_SIZE);
    copy.exchange();
    copy.wait();
    while copy.act() {}
    copy.run_until(|sink| sink.stats().received_bytes >= 8 * GROUP_SIZE);
    if stopped {
        copy.exchange();
        lock(&copy.sink).wind_up();
        while copy.act() {}
        assert!(lock(&copy.sink).is_wound_up());
    }
    drop(copy);
    if stopped { 8 } else { 5 }
}

fn goes_on(scratch: &Scratch) -> SinkStats {
    goes_on_with(scratch, |_| ())
}

fn goes_on_with(scratch: &Scratch, change: impl FnOnce(&mut Copy)) -> SinkStats {
    let source = SourceTree::local(&[scratch.at("from/f")], false);
    let mut copy = Copy::new(source, &scratch.at("to"));
    change(&mut copy);
    copy.run();
    assert_eq!(copy.failures(), []);
    let stats = *lock(&copy.sink).stats();
    drop(copy);
    assert!(
        std::fs::read(scratch.at("to")).unwrap() == std::fs::read(scratch.at("from/f")).unwrap()
    );
    assert_eq!(scratch.names(""), ["from", "to"]);
    stats
}

/// The only file in the transfer's own directory but its record.
fn unpublished(scratch: &Scratch) -> PathBuf {
    let hidden = scratch.names("").into_iter().find(|name| name.starts_with(".longhaul-")).unwrap();
    let name = scratch.names(&hidden).into_iter().find(|name| name != "record").unwrap();
    scratch.at(&hidden).join(name)
}

/// Changes a byte, and puts size and modification time back.
fn alter(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let before = file.metadata().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    file.set_times(FileTimes::new().set_modified(before.modified().unwrap())).unwrap();
    let after = file.metadata().unwrap();
    assert_eq!(
        (before.len(), before.mtime(), before.mtime_nsec()),
        (after.len(), after.mtime(), after.mtime_nsec())
    );
}

/// As a program may that cleans up, or restores a backup.
#[test]
fn a_file_that_somebody_puts_in_the_place_of_an_unpublished_one_gets_no_name() {
    let scratch = Scratch::new();
    let size = GROUPS * GROUP_SIZE as usize;
    let from = scratch.file("from/f", bytes(size, 1));
    let copy = Copy::new(SourceTree::local(&[from], false), &scratch.at("to"));
    copy.run_until(|sink| sink.stats().received_bytes >= 5 * GROUP_SIZE);
    let temp = unpublished(&scratch);
    std::fs::remove_file(&temp).unwrap();
    std::fs::write(&temp, bytes(size, 2)).unwrap();
    copy.run();
    let failures = copy.failures();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].1.contains("another file in its place"), "{failures:?}");
    assert!(!scratch.at("to").exists());
}

#[test]
fn untouched_files_are_taken_without_being_read() {
    let (scratch, groups) = interrupted(true);
    let stats = goes_on(&scratch);
    assert_eq!((stats.resumed_bytes, stats.rechecked), (groups * GROUP_SIZE, 0));
}

#[test]
fn altered_files_of_the_same_size_and_time_are_copied_again() {
    let (scratch, groups) = interrupted(true);
    alter(&unpublished(&scratch), 3 * GROUP_SIZE + 77);
    let stats = goes_on(&scratch);
    assert_eq!((stats.resumed_bytes, stats.rechecked), ((groups - 1) * GROUP_SIZE, groups));
}

#[test]
fn data_written_after_the_last_checkpoint_are_compared_and_kept() {
    let (scratch, groups) = interrupted(false);
    let stats = goes_on(&scratch);
    assert_eq!((stats.resumed_bytes, stats.rechecked), (groups * GROUP_SIZE, groups));
}

#[test]
fn what_is_written_into_holes_between_two_runs_is_not_kept() {
    let scratch = Scratch::new();
    let file = File::create(scratch.file("from/f", "")).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&bytes(GROUPS << 20, 1), 8 << 20).unwrap();
    let left = interrupted_in(&scratch, false);
    let written = File::options().write(true).open(unpublished(&scratch)).unwrap();
    written.write_all_at(b"foreign", 5 << 20).unwrap();
    written.write_all_at(b"foreign", 63 << 20).unwrap();
    assert!(goes_on(&scratch).resumed_bytes >= left * GROUP_SIZE);
}

#[test]
fn bytes_added_to_a_file_are_cut_off() {
    let (scratch, groups) = interrupted(true);
    let mut file = File::options().append(true).open(unpublished(&scratch)).unwrap();
    file.write_all(b"more").unwrap();
    let stats = goes_on(&scratch);
    assert_eq!((stats.resumed_bytes, stats.rechecked), (groups * GROUP_SIZE, groups));
}

#[test]
fn replaced_files_are_compared_or_started_again() {
    let (scratch, groups) = interrupted(true);
    let (path, copy) = (unpublished(&scratch), scratch.at("copy"));
    std::fs::copy(&path, &copy).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    let stats = goes_on(&scratch);
    assert_eq!((stats.resumed_bytes, stats.rechecked), (groups * GROUP_SIZE, groups));

    let make_fifo = |path: &Path| {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
    };
    let make_link = |path: &Path| symlink("/etc/passwd", path).unwrap();
    for replace in [&make_fifo as &dyn Fn(&Path), &make_link] {
        let (scratch, _) = interrupted(true);
        let path = unpublished(&scratch);
        std::fs::remove_file(&path).unwrap();
        replace(&path);
        assert_eq!(goes_on(&scratch).resumed_bytes, 0);
    }
}

#[test]
fn where_times_say_nothing_all_is_compared() {
    let (scratch, groups) = interrupted(true);
    let stats = goes_on_with(&scratch, |copy| copy.to.keeps_change_times = false);
    assert_eq!((stats.resumed_bytes, stats.rechecked), (groups * GROUP_SIZE, groups));
}

#[test]
fn a_small_file_that_was_altered_in_a_directory_that_never_appeared_is_copied_again() {
    let scratch = Scratch::new();
    for number in 0..900 {
        scratch.file(&format!("from/f{number}"), bytes(10_000, number));
    }
    let tree = || SourceTree::local(&[scratch.at("from")], false);
    let copy = Copy::new(tree(), &scratch.at("to"));
    copy.run_until(|sink| sink.stats().received_bytes > 4 << 20);
    copy.exchange();
    lock(&copy.sink).wind_up();
    while copy.act() {}
    drop(copy);
    assert!(!scratch.at("to").exists());
    let hidden = scratch.names("").into_iter().find(|name| name.starts_with(".longhaul-")).unwrap();
    let staged = scratch.names(&hidden).into_iter().find(|name| name.starts_with("new-")).unwrap();
    let staged = scratch.at(&hidden).join(staged);
    let kept = std::fs::read_dir(&staged).unwrap().count() as u64;
    let one = std::fs::read_dir(&staged).unwrap().next().unwrap().unwrap().path();
    alter(&one, 4_000);
    let copy = Copy::new(tree(), &scratch.at("to"));
    copy.run();
    assert_eq!(copy.failures(), []);
    assert_eq!(copy.resumed(), (kept - 1) * 10_000);
    drop(copy);
    assert_eq!(snapshot(&scratch.at("from")), snapshot(&scratch.at("to")));
}
