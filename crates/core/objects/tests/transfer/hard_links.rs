//! Files with several names: the first is copied, the others are made names of it.

use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::limits::{NAME_MEMORY, UNSETTLED_COST};
use longhaul_objects::testing::{MemoryStorage, Node, file};
use longhaul_objects::{EntryId, Keeps, Sink, SinkConfig, SinkError, Source, Verdict, storage};
use longhaul_units::{Duration, Instant};
use longhaul_wire::{
    Entry, EntryCode, EntryEnd, EntryKind, HardLink, KeptAttributes, Metadata, SinkMessage,
    SourceMessage,
};

fn named(entry: Entry, link: HardLink) -> Entry {
    let metadata = Metadata { hard_link: Some(link), ..Metadata::default() };
    let mut entry = entry;
    entry.attributes.metadata = metadata.boxed();
    entry
}

fn first(path: &str, size: u64) -> Entry {
    named(file(path, size), HardLink::First)
}

fn later(path: &str, size: u64, of: u64) -> Entry {
    named(file(path, size), HardLink::To(of))
}

fn directory(path: &str) -> Entry {
    Entry { kind: EntryKind::Directory, ..file(path, 0) }
}

fn sink(keeps: Keeps) -> Sink {
    let attributes = KeptAttributes::HARD_LINKS;
    Sink::new(SinkConfig { attributes, keeps, ..SinkConfig::default() }, Default::default())
}

fn manifest(first_entry: u64, entries: Vec<Entry>) -> SourceMessage {
    SourceMessage::Manifest { first_entry, entries, objects: Vec::new() }
}

/// Copies files of zeros to `disk`; entry number `lost` cannot be read.
fn run(entries: Vec<Entry>, keeps: Keeps, disk: &mut MemoryStorage, lost: Option<u32>) -> Source {
    let (mut source, mut sink) = (Source::default(), sink(keeps));
    let (mut entries, mut now) = (entries.into_iter(), Instant::ZERO);
    for _ in 0..100_000 {
        if source.is_done() {
            return source;
        }
        while source.wants_entries() && !source.stats().complete {
            match entries.next() {
                Some(entry) => drop(source.push_entry(entry).unwrap()),
                None => source.finish_entries(),
            }
        }
        while let Some(task) = source.next_group(sink.credit()) {
            let data = vec![0; task.len as usize];
            let value = group_chaining_value(&data, task.group, task.only);
            if let Some(lost) = lost {
                let end = EntryEnd::new(EntryCode::NotFound, "gone");
                source.entry_failed(EntryId(lost), end);
            }
            source.group_hashed(task.object, task.group, value);
            if let Verdict::Write(write) = sink.group_received(task.object, task.group, value) {
                sink.group_written(&write, &storage::write(disk, &write, &data));
            }
        }
        while sink.wants_messages()
            && let Some(message) = source.poll_message()
        {
            sink.handle(message).unwrap();
        }
        while let Some(action) = sink.poll_action(now) {
            let Ok(answer) = storage::perform(disk, action);
            sink.handle_answer(answer);
        }
        while let Some(message) = sink.poll_message() {
            source.handle(message).unwrap();
        }
        if let Some(wanted) = sink.name_memory_wanted() {
            sink.grow_name_memory(wanted);
        }
        now += Duration::from_millis(500);
    }
    panic!("each end waits for the other");
}

fn inode(disk: &MemoryStorage, path: &str) -> usize {
    match disk.node(path.as_bytes()) {
        Some(Node::File { inode, .. }) => *inode,
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn later_names_are_of_what_was_announced_before_as_having_several() {
    // None, itself, one to come, one that is not, and one that has one name only.
    for wrong in [1, 2, 3, 4, u64::MAX >> 2] {
        let mut sink = sink(Keeps::default());
        sink.handle(manifest(0, vec![first("a", 0), file("plain", 0)])).unwrap();
        let entries = vec![later("b", 0, wrong), first("c", 0)];
        let error = sink.handle(manifest(2, entries));
        assert_eq!(error, Err(SinkError::HardLink { entry: EntryId(2) }), "{wrong}");
        sink.handle(manifest(2, vec![later("b", 9, 0), later("c", 9, 0)])).unwrap();
    }
    // A later name is no first one, and a directory has none.
    let mut sink = sink(Keeps::default());
    sink.handle(manifest(0, vec![first("a", 0), later("b", 0, 0)])).unwrap();
    let error = sink.handle(manifest(2, vec![later("c", 0, 1)]));
    assert_eq!(error, Err(SinkError::HardLink { entry: EntryId(2) }));
    let linked = named(directory("d"), HardLink::First);
    assert!(matches!(sink.handle(manifest(2, vec![linked])), Err(SinkError::Entry { .. })));
}

#[test]
fn all_names_are_of_one_file_and_its_contents_are_sent_once() {
    for size in [0, 10, 3 << 20] {
        let mut disk = MemoryStorage::new();
        // In a directory that is filled before it is seen, behind it, and at the top.
        let entries = || {
            vec![
                directory("new"),
                first("new/a", size),
                later("new/b", size, 1),
                directory("other"),
                later("other/c", size, 1),
                file("other/alone", size),
            ]
        };
        let source = run(entries(), Keeps::default(), &mut disk, None);
        assert_eq!((source.stats().confirmed, source.stats().sent_bytes), (6, 2 * size));
        let of_first = inode(&disk, "new/a");
        assert_eq!([inode(&disk, "new/b"), inode(&disk, "other/c")], [of_first; 2]);
        assert_ne!(inode(&disk, "other/alone"), of_first);
        // What is so already stays, and what was replaced is mended.
        disk.plant(&file("new/b", size), &vec![0; size as usize]);
        let keeps = Keeps { unchanged: true, ..Keeps::default() };
        let source = run(entries(), keeps, &mut disk, None);
        assert_eq!((source.stats().unchanged, source.stats().sent_bytes), (3, 0));
        assert_eq!(inode(&disk, "new/b"), of_first);
    }
}

#[test]
fn later_names_fail_with_the_first() {
    let mut disk = MemoryStorage::new();
    let entries = vec![first("a", 10), later("b", 10, 0), file("c", 10)];
    let source = run(entries, Keeps::default(), &mut disk, Some(0));
    assert_eq!((source.stats().confirmed, source.stats().failed), (1, 2));
    let words = source.failures()[1].end.to_string();
    assert!(words.contains("another name of a file that was not copied"), "{words}");
    assert!(disk.node(b"b").is_none());
}

#[test]
fn a_newer_file_keeps_its_name_and_the_others_become_names_of_a_newer_first() {
    let newer = |path| Entry { modified: file(path, 0).modified + 7, ..file(path, 3) };
    let keeps = Keeps { unchanged: true, newer: true, equal: false, directories: true };
    let entries = || vec![first("a", 10), later("b", 10, 0)];
    let mut disk = MemoryStorage::new();
    disk.plant(&newer("b"), b"new");
    let source = run(entries(), keeps, &mut disk, None);
    assert_eq!((source.stats().stayed.newer, source.stats().confirmed), (1, 1));
    assert_eq!(disk.contents(b"b"), Some(&b"new"[..]));
    let mut disk = MemoryStorage::new();
    disk.plant(&newer("a"), b"new");
    let source = run(entries(), keeps, &mut disk, None);
    assert_eq!((source.stats().stayed.newer, source.stats().confirmed), (1, 1));
    assert_eq!(inode(&disk, "b"), inode(&disk, "a"));
}

/// They wait for it, and only so much may be announced meanwhile.
#[test]
fn a_small_file_with_many_names_does_not_wait_for_company() {
    let mut disk = MemoryStorage::new();
    let names = (UNSETTLED_COST / 256) as u32;
    let others = (0..names).map(|number| later(&format!("n{number}"), 10, 0));
    let source = run(
        [first("a", 10)].into_iter().chain(others).collect(),
        Keeps::default(),
        &mut disk,
        None,
    );
    assert_eq!(source.stats().confirmed, names + 1);
    assert_eq!(inode(&disk, &format!("n{}", names - 1)), inode(&disk, "a"));
}

#[test]
fn first_names_are_kept_within_the_memory_for_names() {
    let mut sink = sink(Keeps::default());
    // There is no more.
    sink.grow_name_memory(0);
    let mut number = 0;
    while sink.stats().failed == 0 {
        let entries: Vec<_> = (0..100).map(|n| first(&format!("{number} {n}"), 0)).collect();
        sink.handle(manifest(number, entries)).unwrap();
        number += 100;
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            let Ok(answer) = storage::perform(&mut MemoryStorage::new(), action);
            sink.handle_answer(answer);
        }
        while let Some(message) = sink.poll_message() {
            assert!(!matches!(message, SinkMessage::Result(_)));
        }
    }
    assert!(number > NAME_MEMORY / 300 && number < NAME_MEMORY / 200, "{number}");
    // A name of one that was left out fails, and the copy goes on.
    sink.handle(manifest(number, vec![later("b", 0, number - 1)])).unwrap();
}
