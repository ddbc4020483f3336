//! Files with several names: the first is copied, the others are made names of it.

use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::limits::{NAME_MEMORY, UNSETTLED_COST};
use longhaul_objects::testing::{DryMemory, MemoryStorage, Node, file};
use longhaul_objects::{
    EntryId, Keeps, Sink, SinkConfig, SinkError, Source, SourceError, Verdict, storage,
};
use longhaul_units::{Duration, Instant};
use longhaul_wire::{
    Entry, EntryCode, EntryEnd, EntryKind, EntryPath, HardLink, KeptAttributes, Metadata,
    SinkMessage, SourceMessage,
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

/// The first name with some of the others.
fn among(path: &str, size: u64, others: &[&str]) -> Entry {
    let mut entry = first(path, size);
    let others = others.iter().map(|path| EntryPath::new(path.as_bytes().to_vec()).unwrap());
    entry.attributes.metadata.get_or_insert_default().other_names = others.collect();
    entry
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
    let mut source = Source::default();
    if keeps.newer {
        source.keep_newer();
    }
    copy(source, entries, keeps, disk, lost)
}

fn dry_run(entries: Vec<Entry>, disk: &MemoryStorage) -> Source {
    let mut source = Source::default();
    source.keep_newer();
    source.begin_dry_run();
    let attributes = KeptAttributes::HARD_LINKS;
    let config = SinkConfig { attributes, keeps: NEWER, dry_run: true, ..SinkConfig::default() };
    let mut sink = Sink::new(config, Default::default());
    for entry in entries {
        source.push_entry(entry).unwrap();
    }
    source.finish_entries();
    while !source.is_done() {
        while let Some(message) = source.poll_message() {
            sink.handle(message).unwrap();
        }
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            let Ok(answer) = storage::perform(&mut DryMemory(disk), action);
            sink.handle_answer(answer);
        }
        let message = sink.poll_message().expect("each end waits for the other");
        source.handle(message).unwrap();
    }
    source
}

fn copy(
    mut source: Source,
    entries: Vec<Entry>,
    keeps: Keeps,
    disk: &mut MemoryStorage,
    lost: Option<u32>,
) -> Source {
    let mut sink = sink(keeps);
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

/// State of a name before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Newer,
    Older,
    Missing,
    Same,
}

const NEWER: Keeps = Keeps { unchanged: true, newer: true, equal: false, directories: true };

fn planted(names: [Before; 4], size: u64) -> MemoryStorage {
    let mut disk = MemoryStorage::new();
    for (path, before) in NAMES.into_iter().zip(names) {
        let at = |time, size| Entry { modified: file(path, 0).modified + time, ..file(path, size) };
        match before {
            Before::Newer => disk.plant(&at(7, 3), b"new"),
            Before::Older => disk.plant(&at(-7, 2), b"ol"),
            Before::Same => disk.plant(&at(0, size), &vec![0; size as usize]),
            Before::Missing => {}
        }
    }
    disk
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[test]
fn a_name_that_comes_first_and_is_missing_becomes_one_of_another_that_is_unchanged() {
    let unchanged = Keeps { unchanged: true, ..Keeps::default() };
    for (size, keeps, is_sent) in [
        (10, unchanged, false),
        (3 << 20, unchanged, false),
        (10, Keeps { equal: true, ..Keeps::default() }, true),
        (10, Keeps::default(), true),
    ] {
        let mut disk = MemoryStorage::new();
        disk.plant(&file("b", size), &vec![0; size as usize]);
        let before = inode(&disk, "b");
        // In a directory that is new, among others of its bundle.
        let entries = vec![
            directory("new"),
            file("new/0", 20),
            among("new/a", size, &["none", "b", "c"]),
            file("new/z", 20),
            later("b", size, 2),
            later("c", size, 2),
        ];
        let source = run(entries, keeps, &mut disk, None);
        let (stats, again) = (source.stats(), if is_sent { size } else { 0 });
        assert_eq!((stats.failed, stats.sent_bytes), (0, 40 + again), "{size} {keeps:?}");
        assert_eq!(stats.unchanged_bytes + stats.confirmed_bytes, 40 + size, "{size} {keeps:?}");
        let stays = u32::from(!is_sent);
        assert_eq!((stats.confirmed, stats.unchanged), (6 - stays, stays), "{size} {keeps:?}");
        let inodes = ["new/a", "b", "c"].map(|path| inode(&disk, path));
        assert_eq!(inodes, [inodes[0]; 3]);
        assert_eq!(inodes[0] == before, !is_sent);
    }
}

#[test]
fn only_first_names_that_are_not_accepted_may_be_elsewhere() {
    let mut source = Source::default();
    for entry in [first("a", 9), among("b", 9, &["c"]), later("c", 9, 1), among("d", 0, &["e"])] {
        source.push_entry(entry).unwrap();
    }
    let elsewhere = |range: core::ops::Range<u64>| SinkMessage::Elsewhere {
        entries: core::iter::once(range).collect(),
    };
    // Nothing is announced yet.
    assert!(source.handle(elsewhere(1..2)).is_err());
    source.finish_entries();
    while source.poll_message().is_some() {}
    for (wrong, entry) in [(0..1, 0), (0..2, 0), (2..3, 2), (3..4, 3), (4..5, 4)] {
        let error = Err(SourceError::Elsewhere { entry });
        assert_eq!(source.handle(elsewhere(wrong.clone())), error, "{wrong:?}");
    }
    source.handle(elsewhere(1..2)).unwrap();
    assert_eq!(source.handle(elsewhere(1..2)), Err(SourceError::Elsewhere { entry: 1 }));
    source.handle(SinkMessage::Accept { objects: 1 }).unwrap();
    let task = source.next_group(1 << 20).unwrap();
    assert_eq!((task.len, task.pieces.len()), (9, 1));
    // It has a name without contents.
    let confirmed = core::iter::once(1..4).collect();
    source.handle(SinkMessage::Confirm { entries: confirmed }).unwrap();
}

/// All states of four names, as the dry run announces it. The contents are sent if the first that is not newer has not
/// got them, unless another has, of which that was announced.
#[test]
fn newer_files_stay_and_the_other_names_are_of_one_file_with_the_contents_of_the_source() {
    let states = [Before::Newer, Before::Older, Before::Missing, Before::Same];
    let names = |number: usize| [0, 2, 4, 6].map(|shift| states[number >> shift & 3]);
    let cases = [0, 10, 1 << 20].into_iter().flat_map(|size| (0..512).map(move |n| (size, n)));
    for (size, number) in cases {
        let (before, is_among) = (names(number % 256), number < 256);
        let mut disk = planted(before, size);
        let entries = || {
            let others = NAMES[1..].iter().map(|path| later(path, size, 0));
            let first = if is_among { among("a", size, &NAMES[1..]) } else { first("a", size) };
            [first].into_iter().chain(others).collect::<Vec<_>>()
        };
        let place = format!("{size} {is_among} {before:?}");
        let dry = dry_run(entries(), &disk);
        let source = run(entries(), NEWER, &mut disk, None);
        let others = || NAMES.into_iter().zip(before).filter(|(_, it)| *it != Before::Newer);
        let newer = NAMES.len() - others().count();
        // Those that wait for the word about a newer one are known, too.
        let is_known = if before[0] == Before::Newer { size > 0 } else { is_among };
        let stays = match is_known {
            true => before.contains(&Before::Same),
            false => others().next().is_some_and(|(_, it)| it == Before::Same),
        };
        let sent = if stays || newer == NAMES.len() { 0 } else { size };
        let changed = others().count() - usize::from(stays);
        let stats = source.stats();
        assert_eq!((stats.stayed.newer, stats.failed), (newer as u32, 0), "{place}");
        assert_eq!((stats.confirmed, stats.sent_bytes), (changed as u32, sent), "{place}");
        assert_eq!(dry.stats().would_change, (stats.confirmed, stats.confirmed_bytes), "{place}");
        assert_eq!(dry.stats().stayed.newer, stats.stayed.newer, "{place}");
        let mut inodes = others().map(|(path, _)| {
            assert_eq!(
                disk.contents(path.as_bytes()),
                Some(&vec![0; size as usize][..]),
                "{place}"
            );
            inode(&disk, path)
        });
        let of_first = inodes.next();
        assert!(inodes.all(|inode| Some(inode) == of_first), "{place}");
        for (path, _) in NAMES.into_iter().zip(before).filter(|(_, it)| *it == Before::Newer) {
            assert_eq!(disk.contents(path.as_bytes()), Some(&b"new"[..]), "{place}");
        }
        let source = run(entries(), NEWER, &mut disk, None);
        assert_eq!((source.stats().unchanged, source.stats().sent_bytes), (4, 0), "{place}");
    }
}

/// No names are given of what stays as a newer file, nor is anything wrong silent.
#[test]
fn later_names_fail_of_a_source_that_does_not_wait_for_the_word_about_the_first() {
    let mut disk = planted([Before::Newer, Before::Missing, Before::Missing, Before::Missing], 10);
    let source =
        copy(Source::default(), vec![first("a", 10), later("b", 10, 0)], NEWER, &mut disk, None);
    assert_eq!((source.stats().stayed.newer, source.stats().failed), (1, 1));
    assert!(source.failures()[0].end.to_string().contains("another name of it is a newer file"));
    assert!(disk.node(b"b").is_none());
}

/// Only so much waits, and what it waits for does not wait for company.
#[test]
fn a_newer_file_with_many_names_holds_nothing_up() {
    for before in [Before::Newer, Before::Older] {
        let mut disk = planted([before, Before::Missing, Before::Missing, Before::Newer], 10);
        let names = (UNSETTLED_COST / 256) as u32;
        let others = (0..names).map(|number| later(&format!("n{number}"), 10, 0));
        let all = [first("a", 10), later("d", 10, 0)].into_iter().chain(others).collect();
        let source = run(all, NEWER, &mut disk, None);
        let newer = if before == Before::Newer { 2 } else { 1 };
        assert_eq!((source.stats().confirmed, source.stats().sent_bytes), (names + 2 - newer, 10));
        assert_eq!(inode(&disk, &format!("n{}", names - 1)), inode(&disk, "n0"));
    }
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
