//! New directories, filled before they appear.

use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::limits::{
    ASIDE_NAMES_MAX, BACKLOG_MAX, ENTRY_COST, UNSETTLED_COST, WINDOW_MAX,
};
use longhaul_objects::testing::{MemoryStorage, file};
use longhaul_objects::{Action, Made, Sink, SinkConfig, Source, Verdict, WritePiece, storage};
use longhaul_units::{Duration, Instant};
use longhaul_wire::{Entry, EntryKind};

use crate::resume::cost;

fn directory(path: &str) -> Entry {
    Entry { kind: EntryKind::Directory, ..file(path, 0) }
}

fn readable(path: &str, size: u64) -> Entry {
    Entry { mode: 0o644, ..file(path, size) }
}

/// All pieces that are written, where every new directory is made as `made` says.
fn pieces(entries: Vec<Entry>, made: Made) -> Vec<WritePiece> {
    let mut source = Source::default();
    let mut sink = Sink::new(SinkConfig::default(), Default::default());
    let mut disk = MemoryStorage::new();
    let mut entries = entries.into_iter();
    let mut pieces = Vec::new();
    let (mut now, mut rounds) = (Instant::ZERO, 0);
    while !source.is_done() {
        rounds += 1;
        now += Duration::from_secs(1);
        assert!(rounds < 10_000, "each end waits for the other");
        while source.wants_entries() && !source.stats().complete {
            match entries.next() {
                Some(entry) => drop(source.push_entry(entry).unwrap()),
                None => source.finish_entries(),
            }
        }
        while sink.wants_messages()
            && let Some(message) = source.poll_message()
        {
            sink.handle(message).unwrap();
        }
        while let Some(task) = source.next_group(sink.credit()) {
            let data = vec![1; task.len as usize];
            let value = group_chaining_value(&data, task.group, task.only);
            source.group_hashed(task.object, task.group, value);
            if let Verdict::Write(write) = sink.group_received(task.object, task.group, value) {
                sink.group_written(&write, &storage::write(&mut disk, &write, &data));
                pieces.extend(write.pieces);
            }
        }
        while let Some(action) = sink.poll_action(now) {
            if let (Action::MakeDirectories(batch), Made::InPlace) = (&action, made) {
                disk.intrude(batch.iter().map(|named| named.entry.path.as_bytes()));
            }
            sink.handle_answer(storage::perform(&mut disk, action).unwrap());
        }
        while let Some(message) = sink.poll_message() {
            source.handle(message).unwrap();
        }
        if let Some(wanted) = sink.name_memory_wanted() {
            sink.grow_name_memory(wanted);
        }
    }
    assert_eq!(source.stats().failed, 0);
    assert_eq!(disk.temp_count(), 0);
    pieces
}

fn straight(pieces: &[WritePiece]) -> Vec<String> {
    let straight = pieces.iter().filter(|piece| piece.aside);
    straight.map(|piece| piece.entry.path.to_string()).collect()
}

#[test]
fn files_of_a_new_directory_get_their_names_with_it() {
    let tree = (0..20).flat_map(|d| {
        let files = (0..1000).map(move |n| readable(&format!("{d}/{n}"), 10_240));
        std::iter::once(directory(&d.to_string())).chain(files)
    });
    let costs = cost(tree.collect());
    assert_eq!(costs.placed, 20);
    // What lies over the end of a group comes in two pieces: a file for each of the 200.
    assert!(costs.publishes <= 20, "{}", costs.publishes);
    assert!(costs.checkpoints <= 4 && costs.records <= 1);
}

#[test]
fn more_directories_than_a_sink_prepares_at_once_are_made() {
    let entries = (0..2 * BACKLOG_MAX).map(|n| directory(&n.to_string())).collect();
    assert!(pieces(entries, Made::Aside).is_empty());
}

#[test]
fn only_small_files_that_follow_their_directory_are_written_straight_into_it() {
    let entries = || {
        let unreadable = Entry { mode: 0o200, ..file("d/unreadable", 10) };
        let link = Entry { kind: EntryKind::Link { target: b"a".to_vec() }, ..file("d/link", 0) };
        vec![
            readable("top", 10),
            directory("d"),
            readable("d/a", 10),
            unreadable,
            link,
            readable("d/empty", 0),
            readable("d/b", 10),
            readable("d/large", 3 << 20),
            readable("d/after the large one", 10),
            directory("d/e"),
            readable("d/e/c", 10),
            readable("d/late", 10),
            readable("d/e/late too", 10),
        ]
    };
    assert_eq!(straight(&pieces(entries(), Made::Aside)), ["d/a", "d/b", "d/e/c"]);
    assert_eq!(straight(&pieces(entries(), Made::InPlace)), [""; 0]);
}

#[test]
fn a_directory_of_very_many_files_is_seen_before_the_last_of_them() {
    let most = ASIDE_NAMES_MAX / (ENTRY_COST + 8);
    let files = (0..most + 100).map(|n| readable(&format!("d/{n:06}"), 1));
    let pieces = pieces(std::iter::once(directory("d")).chain(files).collect(), Made::Aside);
    assert_eq!(straight(&pieces).len() as u64, most + 1);
}

#[test]
fn a_new_directory_of_very_many_links_does_not_wait_for_what_cannot_be_announced() {
    let kind = || EntryKind::Link { target: b"a".to_vec() };
    let link = |n| Entry { kind: kind(), ..file(&format!("d/{n}"), 0) };
    let links = (0..2 * WINDOW_MAX).map(link);
    let tree = std::iter::once(directory("d")).chain(links);
    assert!(pieces(tree.collect(), Made::Aside).is_empty());
}

#[test]
fn files_whose_names_are_long_go_as_fast_as_earlier_ones_are_settled() {
    let long = "x".repeat(250);
    let directories: Vec<_> =
        (1..=14).map(|depth| directory(&vec![&long[..]; depth].join("/"))).collect();
    let deepest = directories.last().unwrap().path.to_string();
    let count = 3 * UNSETTLED_COST / 3_500;
    let files = (0..count).map(|n| readable(&format!("{deepest}/{n}"), 1 + n % 7));
    let pieces = pieces(directories.iter().cloned().chain(files).collect(), Made::Aside);
    assert_eq!(pieces.len() as u64, count);
}

#[test]
fn a_directory_that_somebody_made_meanwhile_gets_its_files_one_by_one() {
    let mut source = Source::default();
    let mut sink = Sink::new(SinkConfig::default(), Default::default());
    let mut disk = MemoryStorage::new();
    for entry in [directory("d"), readable("d/a", 10), directory("d/e"), readable("d/e/b", 10)] {
        source.push_entry(entry).unwrap();
    }
    source.finish_entries();
    while !source.is_done() {
        while let Some(message) = source.poll_message() {
            sink.handle(message).unwrap();
        }
        while let Some(task) = source.next_group(sink.credit()) {
            let data = vec![7; task.len as usize];
            let value = group_chaining_value(&data, task.group, task.only);
            source.group_hashed(task.object, task.group, value);
            let Verdict::Write(write) = sink.group_received(task.object, task.group, value) else {
                panic!("not needed");
            };
            assert!(write.pieces.iter().all(|piece| piece.aside));
            sink.group_written(&write, &storage::write(&mut disk, &write, &data));
            assert_eq!(disk.node(b"d"), None);
            disk.intrude([&b"d"[..], b"d/e"]);
        }
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            sink.handle_answer(storage::perform(&mut disk, action).unwrap());
        }
        while let Some(message) = sink.poll_message() {
            source.handle(message).unwrap();
        }
    }
    assert_eq!(source.stats().confirmed, 4);
    for path in [&b"d/a"[..], b"d/e/b"] {
        assert_eq!(disk.contents(path), Some(&[7; 10][..]));
        assert!(disk.is_durable(path));
    }
    assert_eq!(disk.temp_count(), 0);
}
