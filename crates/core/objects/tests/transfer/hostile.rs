//! A peer that lies: an error, and nothing changed.

use std::sync::Arc;

use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::limits::{
    ACTION_ENTRIES_MAX, ANSWERS_MAX, GROUP_SIZE, NAME_MEMORY, OBJECT_MAX, PATH_COST, UNSETTLED_COST,
};
use longhaul_objects::storage;
use longhaul_objects::testing::{MemoryStorage, file};
use longhaul_objects::{
    Action, Answer, EntryError, EntryId, NameList, NamedEntry, Prepared, PushError, Sink,
    SinkConfig, SinkError, Source, SourceError, TopNames, Verdict,
};
use longhaul_units::{Bytes, Duration, Instant, ObjectId};
use longhaul_wire::{
    Entry, EntryCode, EntryEnd, EntryKind, ManifestObject, Offered, SinkMessage, SourceMessage,
    SourceReport, Summary,
};
use proptest::prelude::*;

fn sink() -> Sink {
    Sink::new(SinkConfig::default(), Default::default())
}

fn directory(path: &str) -> Entry {
    Entry { kind: EntryKind::Directory, ..file(path, 0) }
}

fn end(reason: &str) -> EntryEnd {
    EntryEnd::new(EntryCode::Failed, reason)
}

fn link(path: &str) -> Entry {
    Entry { kind: EntryKind::Link { target: b"/etc".to_vec() }, ..file(path, 0) }
}

fn manifest(
    first_entry: u64,
    entries: Vec<Entry>,
    objects: &[(u32, u64, u64, u64)],
) -> SourceMessage {
    let objects = objects
        .iter()
        .map(|&(id, first_entry, entries, size)| ManifestObject {
            id: ObjectId(id),
            first_entry,
            entries,
            size,
        })
        .collect();
    SourceMessage::Manifest { first_entry, entries, objects }
}

fn refuses(sink: &mut Sink, message: SourceMessage) -> SinkError {
    let before = format!("{sink:?}");
    let what = format!("{message:?}");
    let error = sink.handle(message).expect_err(&what);
    assert_eq!(before, format!("{sink:?}"), "{what}");
    error
}

fn objects(sink: &mut Sink) -> u64 {
    let mut disk = MemoryStorage::new();
    while let Some(action) = sink.poll_action(Instant::ZERO) {
        match action {
            // Larger than memory.
            Action::PrepareFile { file, .. } => {
                sink.handle_answer(Answer::Prepared(file.id, Ok(Prepared::Ready)))
            }
            other => sink.handle_answer(storage::perform(&mut disk, other).unwrap()),
        }
    }
    u64::from(sink.objects().objects())
}

#[test]
fn entries_that_are_not_allowed() {
    let mut sink = sink();
    sink.handle(manifest(0, vec![directory("d"), file("d/f", 0), link("l")], &[])).unwrap();
    let entry =
        |number, error| SinkError::Entry { entry: longhaul_objects::EntryId(number), error };
    for (entries, error) in [
        (vec![file("a", OBJECT_MAX + 1)], entry(3, EntryError::Size)),
        (vec![file("ok", 0), Entry { size: 1, ..directory("x") }], entry(4, EntryError::Size)),
    ] {
        assert_eq!(refuses(&mut sink, manifest(3, entries, &[])), error);
    }
    for path in ["d", "l", "d/f"] {
        let error = refuses(&mut sink, manifest(3, vec![file("new", 0), file(path, 0)], &[]));
        assert!(matches!(error, SinkError::Duplicate { .. }));
    }
    // Nothing can be in a link, a file, or what was not announced; and there is one root.
    for path in ["l/passwd", "d/f/x", "e/f", "d/g/h", ""] {
        let error = refuses(&mut sink, manifest(3, vec![file("new", 0), file(path, 0)], &[]));
        assert!(matches!(error, SinkError::Orphan { .. }), "{path}");
    }
    assert_eq!(refuses(&mut sink, manifest(2, vec![file("x", 0)], &[])), SinkError::Order);
    assert_eq!(refuses(&mut sink, manifest(4, vec![file("x", 0)], &[])), SinkError::Order);
    // All that time the names were not taken.
    sink.handle(manifest(3, vec![file("new", 0), file("d/g", 0)], &[])).unwrap();
}

#[test]
fn names_that_were_not_asked_for() {
    let asking =
        |names| Sink::new(SinkConfig { names, ..SinkConfig::default() }, Default::default());
    let mut sink = asking(TopNames::asked([Some(&b"data"[..]), Some(b"more")]));
    sink.handle(manifest(0, vec![directory("data"), file("data/.bashrc", 0)], &[])).unwrap();
    for (wrong, name) in [
        (vec![file(".bashrc", 0)], ".bashrc"),
        (vec![directory(".ssh"), file(".ssh/authorized_keys", 0)], ".ssh"),
        (vec![link("more")], "more"),
        (vec![directory("data2")], "data2"),
        (vec![directory("")], "."),
    ] {
        let entries = [vec![file("data/fine", 0)], wrong].concat();
        let error = refuses(&mut sink, manifest(2, entries, &[]));
        assert_eq!(error, SinkError::NotAskedFor { name: name.into() });
    }
    sink.handle(manifest(2, vec![file("data/fine", 0), file("more", 0)], &[])).unwrap();
    // Of contents the source chooses the names, but it cannot put something else in their place.
    for wrong in [file("", 0), link("")] {
        let error = refuses(&mut asking(TopNames::asked([None])), manifest(0, vec![wrong], &[]));
        assert_eq!(error, SinkError::NotAskedFor { name: ".".into() });
    }
    let mut sink = asking(TopNames::asked([None]));
    sink.handle(manifest(0, vec![directory(""), file("any", 0)], &[])).unwrap();
}

#[test]
fn a_root_that_is_a_file_is_alone() {
    let mut sink = sink();
    let error = refuses(&mut sink, manifest(0, vec![file("", 0), file("x", 0)], &[]));
    assert!(matches!(error, SinkError::Orphan { .. }));
    sink.handle(manifest(0, vec![directory(""), file("x", 0)], &[])).unwrap();
}

#[test]
fn objects_that_are_not_what_their_entries_say() {
    let mut sink = sink();
    let entries =
        || vec![directory("d"), file("a", 10), file("b", 0), file("c", 20), file("e", 30)];
    for wrong in [
        (1, 1, 3, 30), // id
        (0, 0, 4, 30), // begins with a directory
        (0, 1, 2, 10), // ends with an empty file
        (0, 3, 1, 20), // leaves one out
        (0, 1, 3, 31), // size
        (0, 1, 0, 10), // no entry
        (0, 1, 9, 60), // beyond the end
        (0, 1, u64::MAX >> 2, 60),
    ] {
        let error = refuses(&mut sink, manifest(0, entries(), &[wrong]));
        assert!(matches!(error, SinkError::Object { .. }), "{wrong:?}");
    }
    let overlap = [(0, 1, 3, 30), (1, 3, 2, 50)];
    assert!(matches!(
        refuses(&mut sink, manifest(0, entries(), &overlap)),
        SinkError::Object { .. }
    ));
    // A large file is alone, and bundles have a limit.
    let large = vec![file("x", 5), file("y", GROUP_SIZE)];
    refuses(&mut sink, manifest(0, large, &[(0, 0, 2, GROUP_SIZE + 5)]));
    let many: Vec<Entry> = (0..10).map(|i| file(&format!("f{i}"), 1_000_000)).collect();
    refuses(&mut sink, manifest(0, many, &[(0, 0, 10, 10_000_000)]));
    sink.handle(manifest(0, entries(), &[(0, 1, 3, 30), (1, 4, 1, 30)])).unwrap();
    assert_eq!(objects(&mut sink), 2);
}

#[test]
fn the_end_of_the_manifest() {
    let mut sink = sink();
    sink.handle(manifest(0, vec![file("a", 10), file("b", 5)], &[(0, 0, 1, 10)])).unwrap();
    let end = |entries, objects, bytes| SourceMessage::ManifestEnd {
        entries,
        objects,
        bytes: Bytes::new(bytes),
    };
    // The second file is in no object yet.
    assert_eq!(refuses(&mut sink, end(2, 1, 15)), SinkError::Totals);
    sink.handle(manifest(2, vec![], &[(1, 1, 1, 5)])).unwrap();
    for (entries, objects, bytes) in [(1, 2, 15), (2, 1, 15), (2, 2, 14), (u64::MAX, 2, 15)] {
        assert_eq!(refuses(&mut sink, end(entries, objects, bytes)), SinkError::Totals);
    }
    sink.handle(end(2, 2, 15)).unwrap();
    assert_eq!(refuses(&mut sink, end(2, 2, 15)), SinkError::AfterEnd);
    assert_eq!(refuses(&mut sink, manifest(2, vec![], &[])), SinkError::AfterEnd);
}

/// The source gives up a large file while the sink prepares it.
#[test]
fn nothing_is_left_of_a_file_that_failed_while_it_was_prepared() {
    for code in [EntryCode::Skipped, EntryCode::Failed] {
        let mut sink = sink();
        let mut disk = MemoryStorage::new();
        let size = 3 * GROUP_SIZE;
        sink.handle(manifest(0, vec![file("a", size)], &[(0, 0, 1, size)])).unwrap();
        let preparing = sink.poll_action(Instant::ZERO).unwrap();
        assert!(matches!(preparing, Action::PrepareFile { .. }), "{preparing:?}");
        let (objects, bytes) = (1, Bytes::new(size));
        sink.handle(SourceMessage::ManifestEnd { entries: 1, objects, bytes }).unwrap();
        sink.handle(SourceMessage::EntryFailed { entry: 0, end: EntryEnd::new(code, "gone") })
            .unwrap();
        let mut do_all = |sink: &mut Sink, first| {
            let mut next = first;
            while let Some(action) = next {
                sink.handle_answer(storage::perform(&mut disk, action).unwrap());
                next = sink.poll_action(Instant::ZERO);
            }
            disk.temp_count()
        };
        let first = sink.poll_action(Instant::ZERO);
        do_all(&mut sink, first);
        assert!(!sink.is_result_due(), "{code:?}: the file may still come");
        assert_eq!(do_all(&mut sink, Some(preparing)), 0, "{code:?}");
        assert!(sink.is_result_due(), "{code:?}");
    }
}

/// The source gives up a file while the sink writes a group of it.
#[test]
fn nothing_is_left_of_a_file_that_failed_while_it_was_written() {
    let mut sink = sink();
    let mut disk = MemoryStorage::new();
    let do_all = |sink: &mut Sink, disk: &mut MemoryStorage| {
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            sink.handle_answer(storage::perform(disk, action).unwrap());
        }
    };
    sink.handle(manifest(0, vec![file("a", 3000)], &[(0, 0, 1, 3000)])).unwrap();
    do_all(&mut sink, &mut disk);
    let verdict = sink.group_received(ObjectId(0), 0, [1; 32]);
    let Verdict::Write(task) = verdict else { panic!("{verdict:?}") };
    let bytes = Bytes::new(3000);
    sink.handle(SourceMessage::ManifestEnd { entries: 1, objects: 1, bytes }).unwrap();
    let end = EntryEnd::new(EntryCode::Skipped, "gone");
    sink.handle(SourceMessage::EntryFailed { entry: 0, end }).unwrap();
    do_all(&mut sink, &mut disk);
    assert!(!sink.is_result_due(), "it is still being written");
    sink.group_written(&task, &storage::write(&mut disk, &task, &[0; 3000]));
    do_all(&mut sink, &mut disk);
    assert!(sink.is_result_due());
    assert_eq!(disk.temp_count(), 0);
}

#[test]
fn deleting_what_nobody_asked_for() {
    let mut source = source();
    let gone = || SinkMessage::Deleted { paths: vec![b"x".to_vec()] };
    let kept = SinkMessage::NotDeleted { path: b"x".to_vec(), end: end("no") };
    for message in [gone(), kept] {
        assert_eq!(source.handle(message), Err(SourceError::Deleted));
    }
    source.expect_deletions();
    source.handle(gone()).unwrap();
    assert_eq!(source.deletions().deleted, 1);
}

#[test]
fn more_than_a_sink_holds() {
    let mut sink = sink();
    let mut first = 0;
    let error = loop {
        let names = (0..10_000).map(|i| file(&format!("{}", first + i), 0));
        let message = manifest(first, names.collect(), &[]);
        first += 10_000;
        if let Err(error) = sink.handle(message) {
            break error;
        }
        assert!(first < UNSETTLED_COST / 256);
    };
    assert_eq!(error, SinkError::TooMany);
}

/// A name so long that 4,200 of them are more than a sink holds.
fn long(number: u64) -> String {
    format!("{}/{number}", vec!["y".repeat(249); 16].join("/"))
}

/// The directories above those, and the number of the entry behind them.
fn above(sink: &mut Sink) -> u64 {
    let name = "y".repeat(249);
    let above = (1..=16).map(|depth| directory(&vec![&name[..]; depth].join("/")));
    sink.handle(manifest(0, above.collect(), &[])).unwrap();
    16
}

#[test]
fn files_that_are_never_bundled_and_links_hold_no_more_than_their_share_by_long_names() {
    let deep = "y".repeat(249);
    for kind in [EntryKind::File, EntryKind::Link { target: vec![b'z'; 4096] }] {
        let mut sink = sink();
        let mut first = above(&mut sink);
        let size = u64::from(kind == EntryKind::File);
        let error = loop {
            let names =
                (first..first + 10).map(|n| Entry { kind: kind.clone(), ..file(&long(n), size) });
            match sink.handle(manifest(first, names.collect(), &[])) {
                Ok(()) => first += 10,
                Err(error) => break error,
            }
            assert!(first * 4_000 < 2 * UNSETTLED_COST);
        };
        assert_eq!(error, SinkError::TooMany);
        assert!(first * (deep.len() as u64 * 16) < UNSETTLED_COST);
    }
}

#[test]
fn directories_beyond_the_memory_for_names_fail_by_name_with_all_that_is_in_them() {
    let mut sink = sink();
    let mut disk = MemoryStorage::new();
    let mut first = above(&mut sink);
    let mut answer = |sink: &mut Sink| {
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            sink.handle_answer(storage::perform(&mut disk, action).unwrap());
        }
        let mut refused = Vec::new();
        while let Some(message) = sink.poll_message() {
            if let SinkMessage::EntryRefused { entry, end } = message {
                refused.push((entry, end.reason));
            }
        }
        refused
    };
    while sink.wants_messages() {
        let names = (first..first + 100).map(|n| directory(&long(n)));
        sink.handle(manifest(first, names.collect(), &[])).unwrap();
        first += 100;
        assert_eq!(answer(&mut sink), [], "what is in its place takes little");
        assert!(first * 192 < 2 * NAME_MEMORY);
    }
    // It waits for memory that may come.
    assert!(first > 10_000, "{first}");
    let wanted = sink.name_memory_wanted().unwrap();
    sink.grow_name_memory(wanted);
    assert!(sink.wants_messages());
    // There is no more.
    sink.grow_name_memory(wanted);
    let refused = loop {
        let names = (first..first + 100).map(|n| directory(&long(n)));
        sink.handle(manifest(first, names.collect(), &[])).unwrap();
        first += 100;
        let refused = answer(&mut sink);
        if !refused.is_empty() {
            break refused;
        }
    };
    assert!(sink.wants_messages());
    assert!(refused[0].1.contains("--memory"), "{refused:?}");
    let lost = refused[0].0;
    let within =
        vec![file(&format!("{}/f", long(lost)), 0), directory(&format!("{}/d", long(lost)))];
    sink.handle(manifest(first, within, &[])).unwrap();
    let refused = answer(&mut sink);
    assert_eq!(refused.len(), 2, "{refused:?}");
    // Whatever else goes on.
    sink.handle(manifest(first + 2, vec![file("top", 0)], &[])).unwrap();
    assert_eq!(answer(&mut sink), []);
}

#[test]
fn files_whose_paths_find_no_memory_fail_by_name() {
    let mut sink = sink();
    let mut disk = MemoryStorage::new();
    let mut first = above(&mut sink);
    // There is no more than at first.
    sink.grow_name_memory(0);
    let mut now = Instant::ZERO;
    let reason = loop {
        let names = (first..first + 1_000).map(|n| file(&format!("{n}"), 0));
        sink.handle(manifest(first, names.collect(), &[])).unwrap();
        first += 1_000;
        now += Duration::from_secs(2);
        while let Some(action) = sink.poll_action(now) {
            sink.handle_answer(storage::perform(&mut disk, action).unwrap());
        }
        let refused =
            core::iter::from_fn(|| sink.poll_message()).find_map(|message| match message {
                SinkMessage::EntryRefused { end, .. } => Some(end.reason),
                _ => None,
            });
        if let Some(reason) = refused {
            break reason;
        }
        assert!(first * PATH_COST < 2 * NAME_MEMORY);
    };
    assert!(reason.contains("--memory"), "{reason}");
    assert!(first * PATH_COST > NAME_MEMORY / 2);
}

/// A source that makes everything fail and never reads: what waits for it is bounded.
#[test]
fn answers_that_nobody_reads_are_bounded() {
    let mut sink = sink();
    let mut disk = Broken;
    let (mut first, mut announced) = (0, 0);
    let batch = 1000;
    while sink.wants_messages() {
        let entries = (0..batch).map(|i| directory(&format!("{}", first + i)));
        sink.handle(manifest(first, entries.collect(), &[])).unwrap();
        first += batch;
        announced += batch as usize;
        assert!(announced <= 3 * ANSWERS_MAX, "it goes on and on");
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            disk.refuse(&mut sink, action);
        }
    }
    let credit = sink.credit();
    assert!(sink.answers_waiting() < ANSWERS_MAX + ACTION_ENTRIES_MAX);
    assert_eq!(sink.poll_action(Instant::ZERO), None, "nothing more is prepared");
    sink.grow_capacity(1 << 30);
    assert_eq!(sink.credit(), credit, "nothing more is promised");
    // As soon as it reads, everything goes on.
    while !sink.wants_messages() {
        assert!(sink.poll_message().is_some());
    }
    assert!(sink.credit() > credit);
    while sink.stats().failed < first as u32 {
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            disk.refuse(&mut sink, action);
        }
        while sink.poll_message().is_some() {}
    }
    assert_eq!(sink.answers_waiting(), 0);
}

/// A disk on which no directory can be made.
struct Broken;

impl Broken {
    fn refuse(&mut self, sink: &mut Sink, action: Action) {
        let Action::MakeDirectories(batch) = action else { panic!("{action:?}") };
        let refused = |directory: &NamedEntry| (directory.id, Err(end("no space left on device")));
        sink.handle_answer(Answer::DirectoriesMade(batch.iter().map(refused).collect()));
    }
}

#[test]
fn hashes_that_are_not_possible() {
    let mut sink = sink();
    let entries = vec![file("a", 2 * GROUP_SIZE), file("b", 40_000 * GROUP_SIZE)];
    let spec = [(0, 0, 1, 2 * GROUP_SIZE), (1, 1, 1, 40_000 * GROUP_SIZE)];
    sink.handle(manifest(0, entries, &spec)).unwrap();
    let hashes = |object, first_group, count| SourceMessage::Hashes {
        object: ObjectId(object),
        first_group,
        values: vec![[0; 32]; count],
    };
    refuses(&mut sink, hashes(0, 0, 1));
    assert_eq!(objects(&mut sink), 2);
    for (object, first, count) in
        [(0, 0, 3), (0, 2, 1), (0, u64::MAX, 1), (2, 0, 1), (1, 0, 30_000)]
    {
        let error = refuses(&mut sink, hashes(object, first, count));
        assert!(matches!(error, SinkError::Hashes { .. }));
    }
    sink.handle(hashes(1, 0, 4_000)).unwrap();
    refuses(&mut sink, hashes(1, 4_000, 4_000));
    let failed = SourceMessage::EntryFailed { entry: 2, end: end("") };
    assert_eq!(refuses(&mut sink, failed), SinkError::Failure { entry: 2 });
    assert_eq!(sink.group_received(ObjectId(0), 2, [0; 32]), Verdict::Unknown);
    assert_eq!(sink.group_received(ObjectId(2), 0, [0; 32]), Verdict::Unknown);
}

#[test]
fn withheld_hashes_stop_the_credit() {
    let mut sink = sink();
    let size = 3000 * GROUP_SIZE;
    sink.handle(manifest(0, vec![file("a", size)], &[(0, 0, 1, size)])).unwrap();
    assert_eq!(objects(&mut sink), 1);
    let mut credit = sink.credit();
    for group in 0..3000 {
        assert!(sink.credit() >= credit);
        credit = sink.credit();
        let verdict = sink.group_received(ObjectId(0), group, [1; 32]);
        let Verdict::Write(task) = verdict else { panic!("{verdict:?}") };
        sink.group_written(&task, &[]);
    }
    assert_eq!(credit, (1 << 30) + SinkConfig::default().capacity);
    let hashes =
        SourceMessage::Hashes { object: ObjectId(0), first_group: 0, values: vec![[1; 32]; 3000] };
    sink.handle(hashes).unwrap();
    assert_eq!(sink.credit(), size + SinkConfig::default().capacity);
}

/// A source that has announced everything: a directory, a bundle of two, a file of two groups;
/// and has sent the bundle and one group.
fn source() -> Source {
    let mut source = Source::default();
    for entry in [directory("d"), file("a", 10), file("b", 5), file("c", GROUP_SIZE + 1)] {
        source.push_entry(entry).unwrap();
    }
    source.finish_entries();
    while source.poll_message().is_some() {}
    source.handle(SinkMessage::Accept { objects: 2 }).unwrap();
    for _ in 0..2 {
        let task = source.next_group(u64::MAX).unwrap();
        source.group_hashed(task.object, task.group, [7; 32]);
    }
    while source.poll_message().is_some() {}
    source
}

fn rejects(source: &mut Source, message: SinkMessage) -> SourceError {
    let before = format!("{source:?}");
    let what = format!("{message:?}");
    let error = source.handle(message).expect_err(&what);
    assert_eq!(before, format!("{source:?}"), "{what}");
    error
}

fn ranges(ranges: &[(u64, u64)]) -> Vec<core::ops::Range<u64>> {
    ranges.iter().map(|(start, end)| *start..*end).collect()
}

#[test]
fn accepting_and_having_what_is_not() {
    let mut source = source();
    for objects in [0, 1, 3, u64::MAX] {
        assert_eq!(
            rejects(&mut source, SinkMessage::Accept { objects }),
            SourceError::Accept { objects }
        );
    }
    // Too late: it is accepted.
    rejects(&mut source, SinkMessage::Have { object: ObjectId(1), groups: ranges(&[(1, 2)]) });

    let mut source = Source::default();
    source.push_entry(file("c", 9 * GROUP_SIZE)).unwrap();
    source.finish_entries();
    let have =
        |groups: &[(u64, u64)]| SinkMessage::Have { object: ObjectId(0), groups: ranges(groups) };
    rejects(&mut source, have(&[(0, 1)]));
    while source.poll_message().is_some() {}
    for groups in
        [&[(0, 10)][..], &[(3, 4), (2, 3)], &[(2, 4), (3, 5)], &[(9, 10)], &[(0, 1 << 60)]]
    {
        rejects(&mut source, have(groups));
    }
    // It has to offer them first.
    rejects(&mut source, have(&[(0, 2)]));
    let offer = |groups: &[(u64, u64)]| SinkMessage::Offer {
        object: ObjectId(0),
        groups: Offered::Untagged(ranges(groups)),
    };
    rejects(&mut source, offer(&[(0, 10)]));
    source.handle(offer(&[(0, 2), (4, 9)])).unwrap();
    rejects(&mut source, offer(&[(1, 2)]));
    rejects(&mut source, have(&[(0, 2), (4, 9)]));
    for _ in 0..7 {
        let task = source.next_group(0).unwrap();
        assert!(task.compare.is_some());
        source.group_hashed(task.object, task.group, [1; 32]);
    }
    while source.poll_message().is_some() {}
    rejects(&mut source, have(&[(0, 3)]));
    source.handle(have(&[(0, 2), (4, 9)])).unwrap();
    assert_eq!(source.stats().resumed_bytes, 7 * GROUP_SIZE);
    source.handle(SinkMessage::Accept { objects: 1 }).unwrap();
    let groups: Vec<u32> =
        core::iter::from_fn(|| source.next_group(u64::MAX)).map(|t| t.group).collect();
    assert_eq!(groups, [2, 3]);
    rejects(&mut source, SinkMessage::Repair { object: ObjectId(0), group: 4 });
}

#[test]
fn repairs_that_are_not_possible() {
    let mut source = source();
    let repair = |object, group| SinkMessage::Repair { object: ObjectId(object), group };
    for (object, group) in [(1, 1), (0, 1), (2, 0), (1, 1 << 40)] {
        rejects(&mut source, repair(object, group));
    }
    for _ in 0..3 {
        source.handle(repair(1, 0)).unwrap();
        // Resends do not count against credit.
        let task = source.next_group(0).unwrap();
        assert!(task.repair);
    }
    rejects(&mut source, repair(1, 0));
}

#[test]
fn a_repair_that_crosses_the_end_of_its_object_is_of_no_use() {
    let mut source = Source::default();
    source.push_entry(file("c", 3 * GROUP_SIZE)).unwrap();
    source.finish_entries();
    while source.poll_message().is_some() {}
    source.handle(SinkMessage::Accept { objects: 1 }).unwrap();
    for group in 0..3 {
        assert_eq!(source.next_group(u64::MAX).map(|task| task.group), Some(group));
        source.group_hashed(ObjectId(0), group, [1; 32]);
    }
    assert!(source.next_group(u64::MAX).is_none());
    let end = end("its contents did not verify, again and again");
    source.handle(SinkMessage::EntryRefused { entry: 0, end }).unwrap();
    source.handle(SinkMessage::Repair { object: ObjectId(0), group: 1 }).unwrap();
    assert!(source.next_group(u64::MAX).is_none());
    rejects(&mut source, SinkMessage::Repair { object: ObjectId(1), group: 0 });
}

#[test]
fn what_the_sink_makes_of_an_entry_replaces_the_end_that_the_source_gave_it() {
    let of = |code| EntryEnd::new(code, "");
    let mut source = source();
    for (entry, code) in
        [(1, EntryCode::Skipped), (2, EntryCode::Skipped), (3, EntryCode::ReadError)]
    {
        source.entry_failed(EntryId(entry), of(code));
    }
    while source.poll_message().is_some() {}
    let stats = *source.stats();
    assert_eq!((stats.failed, stats.skipped, stats.unchanged), (1, 2, 0));
    let refuse = |entry, code| SinkMessage::EntryRefused { entry, end: of(code) };
    source.handle(refuse(2, EntryCode::NoSpace)).unwrap();
    source.handle(refuse(3, EntryCode::Unchanged)).unwrap();
    source.handle(refuse(0, EntryCode::Unchanged)).unwrap();
    source.handle(SinkMessage::Confirm { entries: ranges(&[(1, 2)]) }).unwrap();
    let stats = *source.stats();
    assert_eq!((stats.confirmed, stats.failed, stats.skipped, stats.unchanged), (1, 1, 0, 2));
    assert_eq!(source.failures().len(), 1);
    assert_eq!(
        (source.failures()[0].id, source.failures()[0].end.code),
        (EntryId(2), EntryCode::NoSpace)
    );
    assert_eq!(source.skipped(), []);
}

#[test]
fn confirming_and_refusing_what_is_not() {
    let mut source = source();
    let confirm = |entries: &[(u64, u64)]| SinkMessage::Confirm { entries: ranges(entries) };
    for entries in [&[(3, 4)][..], &[(4, 5)], &[(0, 4)], &[(1, 2), (0, 1)], &[(0, 1 << 62)]] {
        rejects(&mut source, confirm(entries));
    }
    source.handle(confirm(&[(0, 2)])).unwrap();
    rejects(&mut source, confirm(&[(0, 1)]));
    let refuse = |entry| SinkMessage::EntryRefused { entry, end: end("full") };
    for entry in [0, 1, 4, u64::MAX] {
        rejects(&mut source, refuse(entry));
    }
    source.handle(refuse(2)).unwrap();
    rejects(&mut source, refuse(2));
    rejects(&mut source, confirm(&[(2, 3)]));
    assert_eq!(source.failures()[0].end, end("full"));

    let summary = Summary {
        confirmed: 3,
        failed: 1,
        skipped: 0,
        unchanged: 0,
        bytes: Bytes::new(GROUP_SIZE + 11),
        resumed: Bytes::ZERO,
        notes: 0,
        not_kept: 0,
        host: longhaul_wire::HostAccount { cpu_time: Default::default(), ..Default::default() },
    };
    assert_eq!(rejects(&mut source, SinkMessage::Result(summary.into())), SourceError::Result);
    assert_eq!(source.next_group(u64::MAX).unwrap().group, 1);
    source.handle(confirm(&[(3, 4)])).unwrap();
    for wrong in [
        Summary { confirmed: 4, failed: 0, ..summary },
        Summary { failed: 0, skipped: 1, ..summary },
        Summary { bytes: Bytes::new(1), ..summary },
    ] {
        rejects(&mut source, SinkMessage::Result(wrong.into()));
    }
    source.handle(SinkMessage::Result(summary.into())).unwrap();
    assert!(source.is_done());
    assert_eq!(rejects(&mut source, confirm(&[])), SourceError::AfterResult);
}

#[test]
fn pushing_what_is_not_allowed() {
    let mut source = Source::default();
    let large = file("x", OBJECT_MAX + 1);
    assert_eq!(source.push_entry(large), Err(PushError::Entry(EntryError::Size)));
    source.finish_entries();
    assert_eq!(source.push_entry(file("x", 1)), Err(PushError::Finished));
}

fn any_sink_message() -> impl Strategy<Value = SinkMessage> {
    let small = || prop_oneof![9 => 0u64..6, 1 => any::<u64>()];
    let object = || (0u32..4).prop_map(ObjectId);
    let some = || {
        prop::collection::vec((small(), 1u64..4), 0..4).prop_map(|pairs| {
            pairs.into_iter().map(|(start, len)| start..start.saturating_add(len)).collect()
        })
    };
    let tagged = (small(), 0usize..4).prop_map(|(first_group, count)| Offered::Tagged {
        first_group,
        groups: vec![([7; 32], [7; 16]); count],
    });
    let offered = prop_oneof![some().prop_map(Offered::Untagged), tagged];
    prop_oneof![
        (object(), offered).prop_map(|(object, groups)| SinkMessage::Offer { object, groups }),
        small().prop_map(|objects| SinkMessage::Accept { objects }),
        (object(), some()).prop_map(|(object, groups)| SinkMessage::Have { object, groups }),
        (object(), small()).prop_map(|(object, group)| SinkMessage::Repair { object, group }),
        some().prop_map(|entries| SinkMessage::Confirm { entries }),
        (small(), any::<u8>()).prop_map(|(entry, code)| {
            let code = EntryCode::from_code(code).of_sink();
            SinkMessage::EntryRefused { entry, end: EntryEnd::new(code, "no") }
        }),
        (small(), small(), small()).prop_map(|(confirmed, failed, bytes)| {
            SinkMessage::Result(Box::new(Summary {
                confirmed,
                failed,
                skipped: 0,
                unchanged: 0,
                bytes: Bytes::new(bytes),
                resumed: Bytes::ZERO,
                notes: 0,
                not_kept: 0,
                host: longhaul_wire::HostAccount::default(),
            }))
        }),
    ]
}

fn any_source_message() -> impl Strategy<Value = SourceMessage> {
    let small = || prop_oneof![9 => 0u64..6, 1 => any::<u64>()];
    let object = || (0u32..4).prop_map(ObjectId);
    let entry = prop_oneof![
        ("[ab](/[ab])?", prop_oneof![Just(0), 1u64..100, Just(GROUP_SIZE + 3)])
            .prop_map(|(path, size)| file(&path, size)),
        "[ab](/[ab])?".prop_map(|path| directory(&path)),
        "[ab]".prop_map(|path| link(&path)),
    ];
    let spec = (object(), small(), 0u64..3, prop_oneof![1u64..200, Just(GROUP_SIZE + 3)]).prop_map(
        |(id, first_entry, entries, size)| ManifestObject { id, first_entry, entries, size },
    );
    prop_oneof![
        4 => (small(), prop::collection::vec(entry, 0..3), prop::collection::vec(spec, 0..2))
            .prop_map(|(first_entry, entries, objects)| SourceMessage::Manifest {
                first_entry,
                entries,
                objects,
            }),
        1 => (small(), small(), small()).prop_map(|(entries, objects, bytes)| {
            SourceMessage::ManifestEnd { entries, objects, bytes: Bytes::new(bytes) }
        }),
        2 => (object(), small(), 0usize..3).prop_map(|(object, first_group, count)| {
            SourceMessage::Hashes { object, first_group, values: vec![[1; 32]; count] }
        }),
        1 => (object(), small(), 0usize..3).prop_map(|(object, first_group, count)| {
            SourceMessage::Tags { object, first_group, tags: vec![[1; 16]; count] }
        }),
        1 => (object(), small()).prop_map(|(object, first)| {
            let groups = core::iter::once(first..first.saturating_add(1)).collect();
            SourceMessage::Believed { object, groups }
        }),
        1 => (small(), any::<u8>()).prop_map(|(entry, code)| {
            let code = EntryCode::from_code(code).of_source();
            SourceMessage::EntryFailed { entry, end: EntryEnd::new(code, "no") }
        }),
        1 => Just(SourceMessage::Report(Box::default())),
    ]
}

#[test]
fn the_latest_report_of_the_source_counts() {
    let mut source = source();
    let mut sink = sink();
    let report = |packets_sent| SourceReport { packets_sent, ..SourceReport::default() };
    source.report(report(1));
    source.report(report(2));
    let Some(message) = source.poll_message() else { panic!("nothing to say") };
    assert_eq!(message, SourceMessage::Report(report(2).into()));
    assert_eq!(sink.source_report(), None);
    sink.handle(message).unwrap();
    assert_eq!(sink.source_report(), Some(&report(2)));
}

#[test]
fn reports_leave_every_second_place_to_what_the_copy_needs() {
    let mut source = source();
    let task = source.next_group(u64::MAX).unwrap();
    source.group_hashed(task.object, task.group, [7; 32]);
    // Each message takes as long as the time between two reports.
    let sent = (0..3).map(|_| {
        source.report(SourceReport::default());
        source.poll_message().unwrap()
    });
    let sent: Vec<_> = sent.collect();
    let is_report = |message: &SourceMessage| matches!(message, SourceMessage::Report(_));
    assert_eq!(sent.iter().map(is_report).collect::<Vec<_>>(), [true, false, true], "{sent:?}");
}

proptest! {
    #[test]
    fn a_source_survives_any_messages(
        messages in prop::collection::vec((any_sink_message(), 0u8..4), 1..40)
    ) {
        let mut source = source();
        for (message, then) in messages {
            let before = format!("{source:?}");
            if source.handle(message).is_err() {
                prop_assert_eq!(before, format!("{source:?}"));
            }
            if then == 0 && let Some(task) = source.next_group(u64::MAX) {
                source.group_hashed(task.object, task.group, [0; 32]);
            }
            if then == 1 {
                let _ = source.poll_message();
            }
        }
    }

    #[test]
    fn a_sink_survives_any_messages(
        messages in prop::collection::vec((any_source_message(), 0u8..4, 0u32..3, 0u32..3), 1..40)
    ) {
        let mut sink = sink();
        let mut disk = MemoryStorage::new();
        let mut now = Instant::ZERO;
        for (message, then, object, group) in messages {
            let before = format!("{sink:?}");
            if sink.handle(message).is_err() {
                prop_assert_eq!(before, format!("{sink:?}"));
            }
            now += Duration::from_millis(300);
            if then == 0 && let Some(action) = sink.poll_action(now) {
                sink.handle_answer(storage::perform(&mut disk, action).unwrap());
            }
            if then == 1 {
                let value = [group as u8; 32];
                if let Verdict::Write(task) = sink.group_received(ObjectId(object), group, value) {
                    let data = vec![1; GROUP_SIZE as usize];
                    sink.group_written(&task, &storage::write(&mut disk, &task, &data));
                }
            }
            if then == 2 {
                let _ = sink.poll_message();
            }
        }
        // Nothing is under a final name that did not verify.
        for (path, _) in disk.nodes() {
            if let Some(contents) = disk.contents(path) {
                prop_assert!(contents.is_empty() || contents.iter().all(|byte| *byte == 1));
            }
        }
    }
}

/// A sink with one accepted object of two groups.
fn with_an_object() -> (Sink, SourceMessage) {
    let mut sink = sink();
    let size = 2 * GROUP_SIZE;
    sink.handle(manifest(0, vec![file("a", size)], &[(0, 0, 1, size)])).unwrap();
    assert_eq!(objects(&mut sink), 1);
    while sink.poll_message().is_some() {}
    let values = vec![[1; 32]; 2];
    (sink, SourceMessage::Hashes { object: ObjectId(0), first_group: 0, values })
}

/// However a group is found to be wrong, the lanes are notified before the source is.
#[test]
fn every_repair_is_first_given_to_the_lanes() {
    let repair = Some(SinkMessage::Repair { object: ObjectId(0), group: 1 });
    for hash_comes in ["before", "while it is written", "late"] {
        let (mut sink, hashes) = with_an_object();
        if hash_comes == "before" {
            sink.handle(hashes.clone()).unwrap();
        }
        let verdict = sink.group_received(ObjectId(0), 1, [2; 32]);
        assert_eq!(matches!(verdict, Verdict::Write(_)), hash_comes != "before");
        if hash_comes == "while it is written" {
            sink.handle(hashes.clone()).unwrap();
        }
        if let Verdict::Write(task) = verdict {
            sink.group_written(&task, &[]);
        }
        if hash_comes == "late" {
            sink.handle(hashes).unwrap();
        }
        assert_eq!(sink.poll_message(), None, "{hash_comes}: the lanes do not know");
        assert_eq!(sink.poll_unverified(), Some((ObjectId(0), 1)), "{hash_comes}");
        assert_eq!(sink.poll_unverified(), None);
        assert_eq!(sink.poll_message(), repair, "{hash_comes}");
        assert!(matches!(sink.group_received(ObjectId(0), 1, [1; 32]), Verdict::Write(_)));
    }
}

#[test]
fn what_does_not_verify_four_times_fails() {
    let mut source = Source::default();
    source.push_entry(file("a", 10)).unwrap();
    source.push_entry(file("b", 3 * GROUP_SIZE)).unwrap();
    source.finish_entries();
    let mut sink = sink();
    let mut disk = MemoryStorage::new();
    let mut sent = 0;
    while !source.is_done() {
        while let Some(message) = source.poll_message() {
            sink.handle(message).unwrap();
        }
        while let Some(task) = source.next_group(sink.credit()) {
            sent += 1;
            let data = vec![0; task.len as usize];
            let mut value = group_chaining_value(&data, task.group, task.only);
            source.group_hashed(task.object, task.group, value);
            value[0] ^= u8::from((task.object, task.group) == (ObjectId(1), 1));
            if let Verdict::Write(write) = sink.group_received(task.object, task.group, value) {
                sink.group_written(&write, &storage::write(&mut disk, &write, &data));
            }
        }
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            sink.handle_answer(storage::perform(&mut disk, action).unwrap());
        }
        while sink.poll_unverified().is_some() {}
        while let Some(message) = sink.poll_message() {
            source.handle(message).unwrap();
        }
    }
    assert_eq!(sent, 4 + 3);
    assert_eq!((source.stats().confirmed, source.stats().failed), (1, 1));
    assert_eq!(source.failures()[0].end.code, EntryCode::Damaged);
    assert_eq!(source.failures()[0].end, sink.failures()[0].end);
    assert_eq!(disk.contents(b"a"), Some(&[0; 10][..]));
    assert_eq!(disk.node(b"b"), None);
    assert_eq!(disk.temp_count(), 0);
}

/// A source may say that it fails, and may not make a file of it.
#[test]
fn what_stands_for_a_directory_above_listed_names_is_never_given_its_name() {
    let mut source = Source::default();
    source.push_entry(directory("")).unwrap();
    source.push_entry(Entry { mode: 0, modified: 0, ..file("a", 1) }).unwrap();
    source.finish_entries();
    let list = Arc::new(NameList::new([b"a/x".to_vec()]).unwrap());
    let config = SinkConfig { names: TopNames::Listed(list), ..SinkConfig::default() };
    let mut sink = Sink::new(config, Default::default());
    let mut disk = MemoryStorage::new();
    let mut rounds = 0;
    while !source.is_done() {
        rounds += 1;
        assert!(rounds < 1_000, "each end waits for the other");
        while let Some(message) = source.poll_message() {
            sink.handle(message).unwrap();
        }
        while let Some(task) = source.next_group(sink.credit()) {
            let value = group_chaining_value(b"!", task.group, task.only);
            source.group_hashed(task.object, task.group, value);
            if let Verdict::Write(write) = sink.group_received(task.object, task.group, value) {
                sink.group_written(&write, &storage::write(&mut disk, &write, b"!"));
            }
        }
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            sink.handle_answer(storage::perform(&mut disk, action).unwrap());
        }
        while let Some(message) = sink.poll_message() {
            source.handle(message).unwrap();
        }
    }
    assert_eq!((source.stats().failed, disk.node(b"a")), (1, None));
    assert_eq!(sink.failures()[0].end.code, EntryCode::NotFound);
    assert!(sink.failures()[0].end.reason.contains("names in it are listed"));
}
