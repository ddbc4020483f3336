//! Dry runs: nothing is asked of the storage but to look, and both ends count the same.

use longhaul_objects::testing::file;
use longhaul_objects::{
    Action, Answer, ChangeKind, Compared, Deletion, Keeps, Made, Sink, SinkConfig, Source,
};
use longhaul_units::{Instant, ObjectId};
use longhaul_wire::{
    Entry, EntryCode, EntryEnd, EntryKind, ManifestObject, SinkMessage, SourceMessage,
};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::tree::below;

fn in_the_way() -> EntryEnd {
    EntryEnd::new(EntryCode::InTheWay, "something has its name")
}

/// Answers as a storage does that only looks. What the copy would do with each entry is in the last
/// figure of its name.
fn answer(action: Action) -> Answer {
    let outcome = |path: &[u8]| path.last().map_or(0, |digit| digit - b'0');
    match action {
        Action::MakeDirectories(batch) => Answer::DirectoriesMade(
            batch
                .iter()
                .map(|it| match outcome(it.entry.path.as_bytes()) {
                    0 | 1 => (it.id, Ok(Made::InPlace)),
                    _ => (it.id, Err(EntryEnd::new(EntryCode::New, ""))),
                })
                .collect(),
        ),
        Action::CompareExisting(batch) => Answer::Compared(
            batch
                .iter()
                .map(|it| match outcome(it.entry.path.as_bytes()) {
                    0 => (it.id, Compared::Unchanged),
                    1 => (it.id, Compared::Newer { same_size: false }),
                    2 => (it.id, Compared::Missing),
                    4 => (it.id, Compared::Blocked(Box::new(in_the_way()))),
                    _ => (it.id, Compared::Other { same_size: false }),
                })
                .collect(),
            Vec::new(),
        ),
        Action::FinishDirectories { directories, announced } => Answer::DirectoriesFinished(
            directories
                .iter()
                .map(|it| {
                    let gone = [it.entry.path.as_bytes(), b"/gone"].concat();
                    assert!(announced.as_ref().is_none_or(|paths| !paths.contains(&gone)));
                    let deletion = Deletion { path: gone, result: Ok(()) };
                    let deleted = announced.is_some().then_some(deletion).into_iter().collect();
                    (it.id, Err(EntryEnd::new(EntryCode::Unchanged, "")), deleted)
                })
                .collect(),
        ),
        Action::RemoveRecord => Answer::RecordRemoved,
        // There is nothing to discard.
        Action::Discard { temps, .. } if temps.is_empty() => Answer::Discarded,
        other => panic!("a dry run does nothing else: {other:?}"),
    }
}

/// Where some names are `blocked`, something that is never replaced has them.
fn drawn(rng: &mut Xoshiro256PlusPlus, blocked: bool) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut within = String::new();
    for number in 0..1 + below(rng, 199) {
        let path = format!("{within}{number}-{}", below(rng, if blocked { 5 } else { 4 }));
        entries.push(match below(rng, 8) {
            0 => {
                within = format!("{path}/");
                Entry { kind: EntryKind::Directory, ..file(&path, 0) }
            }
            1 => Entry { kind: EntryKind::Link { target: b"x".to_vec() }, ..file(&path, 0) },
            2 => file(&path, 0),
            3 => file(&path, (1 << 20) + below(rng, 4 << 20)),
            _ => file(&path, 1 + below(rng, 50_000)),
        });
    }
    entries
}

/// Source and sink at their end.
fn run(entries: &[Entry]) -> (Source, Sink) {
    let mut source = Source::default();
    source.begin_dry_run();
    source.expect_deletions();
    source.want_changes();
    let keeps = Keeps { unchanged: true, newer: true, equal: false, directories: true };
    let config = SinkConfig { keeps, deletes: true, dry_run: true, ..SinkConfig::default() };
    let mut sink = Sink::new(config, Default::default());
    let mut entries = entries.iter().cloned();
    for _ in 0..10_000 {
        if source.is_done() {
            return (source, sink);
        }
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
        assert_eq!(source.next_group(sink.credit()), None, "contents are of no use");
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            sink.handle_answer(answer(action));
        }
        while let Some(message) = sink.poll_message() {
            source.handle(message).unwrap();
        }
        if let Some(wanted) = sink.name_memory_wanted() {
            sink.grow_name_memory(wanted);
        }
    }
    panic!("each end waits for the other");
}

#[test]
fn a_dry_run_looks_at_every_entry_and_moves_nothing() {
    for seed in 0..300 {
        let blocked = seed % 2 == 1;
        let entries = drawn(&mut Xoshiro256PlusPlus::seed_from_u64(seed), blocked);
        let (mut source, sink) = run(&entries);
        let ends_in = |entry: &&Entry| entry.path.as_bytes().last().unwrap() - b'0';
        let is_directory = |entry: &&Entry| entry.kind == EntryKind::Directory;
        let is_blocked = |entry: &&Entry| ends_in(entry) == 4 && !is_directory(entry);
        let is_changed = |entry: &&Entry| ends_in(entry) > 1 && !is_blocked(entry);
        let changed = entries.iter().filter(is_changed);
        let bytes: u64 = changed.clone().map(|entry| entry.size).sum();
        let expected = (changed.count() as u32, bytes);
        let (source_stats, sink_stats) = (*source.stats(), *sink.stats());
        assert_eq!(source_stats.would_change, expected, "{seed}");
        for (number, entry) in (0..).zip(&entries) {
            assert_eq!(source.would_change().contains(number), is_changed(&entry), "{seed}");
        }
        assert_eq!(sink_stats.would_change, expected, "{seed}");
        let (all, failed) =
            (entries.len() as u32, entries.iter().filter(is_blocked).count() as u32);
        assert_eq!((source_stats.unchanged, source_stats.failed), (all - failed, failed), "{seed}");
        assert_eq!((sink_stats.unchanged, sink_stats.settled()), (all - failed, all), "{seed}");
        let (changes, left_out) = source.take_changes();
        let count = |kind| changes.iter().filter(|change| change.kind == kind).count() as u32;
        let new = count(ChangeKind::New) + count(ChangeKind::Differs);
        assert_eq!((new, left_out), (expected.0, 0), "{seed}");
        // Where something failed nothing would be deleted.
        let kept = entries.iter().filter(|it| is_directory(it) && !is_changed(it) && failed == 0);
        assert_eq!(count(ChangeKind::Deleted), kept.count() as u32, "{seed}");
    }
}

/// A sink that says so of a copy cannot have it counted as done.
#[test]
fn what_would_change_has_failed_where_nobody_asked_for_a_dry_run() {
    let mut source = Source::default();
    source.push_entry(file("a", 10)).unwrap();
    source.finish_entries();
    while source.poll_message().is_some() {}
    let end = EntryEnd::new(EntryCode::New, "");
    source.handle(SinkMessage::EntryRefused { entry: 0, end }).unwrap();
    assert_eq!((source.stats().failed, source.stats().unchanged), (1, 0));
    assert_eq!(source.failures()[0].end.code, EntryCode::Failed);
}

/// It was `new`, or with `-u` newer at the destination, where its failure came in a later packet.
#[test]
fn what_stands_for_what_is_missing_fails_however_late_that_is_known() {
    for dry_run in [true, false] {
        let keeps = Keeps { unchanged: true, newer: true, equal: false, directories: true };
        let mut sink =
            Sink::new(SinkConfig { dry_run, keeps, ..SinkConfig::default() }, Default::default());
        let missing = Entry { mode: 0, modified: 0, ..file("missing", 1) };
        let object = ManifestObject { id: ObjectId(0), first_entry: 0, entries: 1, size: 1 };
        let (entries, objects) = (vec![missing], vec![object]);
        sink.handle(SourceMessage::Manifest { first_entry: 0, entries, objects }).unwrap();
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            assert!(!matches!(action, Action::CompareExisting(_)), "{action:?}");
        }
        let mut answers = std::iter::from_fn(|| sink.poll_message());
        let accepts = answers.any(|message| matches!(message, SinkMessage::Accept { .. }));
        assert_eq!(accepts, !dry_run, "nothing is sent in a dry run, that could be refused");
        let end = EntryEnd::new(EntryCode::NotFound, "no such file");
        sink.handle(SourceMessage::EntryFailed { entry: 0, end }).unwrap();
        assert_eq!((sink.stats().failed, sink.stats().unchanged), (1, 0), "{dry_run}");
    }
}
