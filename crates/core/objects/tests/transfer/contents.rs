//! Files that are there with the same size: both ends hash them, and what differs is sent.

use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::limits::{COMPARING_MAX, GROUP_SIZE};
use longhaul_objects::testing::{MemoryStorage, file};
use longhaul_objects::{
    Belief, Comparison, EntryId, Keeps, Sink, SinkConfig, SinkError, Source, SourceError, storage,
};
use longhaul_units::{Instant, ObjectId};
use longhaul_wire::{
    Entry, EntryCode, EntryEnd, EntryKind, FileHashes, SinkMessage, SourceMessage,
};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::tree::{Item, below, small_files, tree};
use crate::world::{Faults, World};

/// State of a file at the destination before the copy.
enum There {
    Nothing,
    Same {
        later: i64,
    },
    /// One byte differs.
    Patched {
        at: usize,
    },
    Shorter,
}

fn there(rng: &mut Xoshiro256PlusPlus, item: &Item) -> There {
    let len = item.data.len() as u64;
    match below(rng, 5) {
        0 => There::Nothing,
        1 if len > 1 => There::Shorter,
        2 | 3 if len > 0 => There::Patched { at: below(rng, len) as usize },
        _ => There::Same { later: [0, 1_000_000_000, -7][below(rng, 3) as usize] },
    }
}

/// A world whose disk has something of each file, and the bytes that are to be sent.
fn world(seed: u64, items: Vec<Item>, faults: Faults) -> (World, u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed);
    let mut world = World::new(seed, items.clone(), faults);
    world.compares = true;
    let mut sent = 0;
    for item in &items {
        let Entry { path, size, .. } = &item.entry;
        match item.entry.kind {
            EntryKind::Directory => world.disk.intrude([path.as_bytes()]),
            EntryKind::Link { .. } => {}
            EntryKind::File => {
                let there = there(&mut rng, item);
                let mut data = item.data.to_vec();
                let mut entry = item.entry.clone();
                let differs = match there {
                    There::Nothing => *size,
                    There::Same { later } => {
                        entry.modified += later;
                        0
                    }
                    There::Patched { at } => {
                        data[at] ^= 1;
                        let group = at as u64 / GROUP_SIZE * GROUP_SIZE;
                        GROUP_SIZE.min(size - group)
                    }
                    There::Shorter => {
                        data.pop();
                        *size
                    }
                };
                // All of one with holes is sent if any differs.
                let has_holes = entry.attributes.data.is_some();
                sent += match has_holes {
                    true if differs == 0 => 0,
                    true => entry.data_len(),
                    false => differs,
                };
                if !matches!(there, There::Nothing) {
                    world.disk.plant(&entry, &data);
                }
            }
        }
    }
    world.disk.sync_names();
    world.start();
    world.runs = 1;
    (world, sent)
}

fn copies(seeds: core::ops::Range<u64>, faults: Faults) {
    for seed in seeds {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xabcd);
        let items = tree(&mut rng, 30, 8 << 20);
        world(seed, items, faults).0.run();
        world(seed, small_files(&mut rng), faults).0.run();
    }
}

#[test]
fn only_groups_that_differ_are_sent() {
    for seed in 0..40 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xabcd);
        // What is in a directory may be sent before it is known that this is there.
        let mut items = tree(&mut rng, 60, 8 << 20);
        items.retain(|item| item.entry.path.components().count() < 2);
        let (mut world, sent) = world(seed, items, Faults::default());
        world.run();
        assert_eq!(world.sink.stats().received_bytes, sent, "seed {seed}");
    }
}

#[test]
fn contents_with_corruption_and_unreadable_files() {
    copies(100..110, Faults { corrupt: 4, duplicate: 5, ..Faults::default() });
    copies(120..130, Faults { unreadable: 8, ..Faults::default() });
}

#[test]
fn contents_with_kills_and_power_cuts() {
    copies(200..215, Faults { crash: 600, ..Faults::default() });
    copies(230..240, Faults { kill: 600, ..Faults::default() });
}

#[test]
fn contents_on_a_full_disk() {
    copies(300..310, Faults { space: Some(2 << 20), ..Faults::default() });
}

/// A source of a large file, a small one and a directory, all announced.
fn source(belief: Belief) -> Source {
    let mut source = Source::new(belief);
    let directory = Entry { kind: EntryKind::Directory, ..file("d", 0) };
    for entry in [file("a", 3 * GROUP_SIZE), directory, file("d/b", 9)] {
        source.push_entry(entry).unwrap();
    }
    source.finish_entries();
    while source.poll_message().is_some() {}
    source
}

fn rejects(source: &mut Source, files: &[(u64, core::ops::Range<u64>)]) {
    let before = format!("{source:?}");
    let error = source.handle(SinkMessage::Compare(files.to_vec())).unwrap_err();
    assert!(matches!(error, SourceError::Compare { .. }), "{error}");
    assert_eq!(before, format!("{source:?}"), "{files:?}");
}

#[test]
fn a_sink_asks_only_for_groups_of_announced_files_each_once_and_where_it_may() {
    let one = [(0, 0..1)];
    rejects(&mut source(Belief::Nothing), &one);
    let mut unhashed = source(Belief::Unhashed);
    unhashed.allow_comparisons();
    rejects(&mut unhashed, &one);

    let mut source = source(Belief::Everything);
    source.allow_comparisons();
    for bad in [(0, 0..4), (0, 3..4), (1, 0..1), (2, 0..2), (3, 0..1), (1 << 40, 0..1)] {
        rejects(&mut source, &[(0, 0..1), (2, 0..1), bad]);
    }
    rejects(&mut source, &[(0, 0..2), (0, 1..3)]);
    source.handle(SinkMessage::Compare(vec![(0, 0..2), (2, 0..1)])).unwrap();
    rejects(&mut source, &[(0, 1..3)]);
    rejects(&mut source, &[(2, 0..1)]);
    // Nothing of it is sent, and what fails meanwhile needs no answer.
    let tasks: Vec<_> = core::iter::from_fn(|| source.next_group(u64::MAX)).collect();
    assert!(tasks.iter().all(|task| task.compare == Some(Comparison::Files)));
    source.entry_failed(EntryId(2), EntryEnd::new(EntryCode::ReadError, ""));
    for task in tasks {
        source.files_hashed(task.file_hashes(&vec![0; task.len as usize]));
    }
    let messages: Vec<_> = core::iter::from_fn(|| source.poll_message()).collect();
    let [SourceMessage::EntryFailed { .. }, SourceMessage::Compared(files)] = &messages[..] else {
        panic!("{messages:?}");
    };
    assert!(
        matches!(&files[..], [FileHashes { entry: 0, first_group: 0, values }] if values.len() == 2)
    );
    source.handle(SinkMessage::Compare(vec![(2, 0..1)])).unwrap();
    assert!(source.next_group(u64::MAX).is_none());
    source.handle(SinkMessage::Accept { objects: 1 }).unwrap();
    rejects(&mut source, &[(0, 2..3)]);
}

#[test]
fn what_a_sink_was_given_no_hashes_of_it_does_not_have() {
    let mut source = source(Belief::Nothing);
    source.allow_comparisons();
    source.handle(SinkMessage::Compare(vec![(0, 0..2)])).unwrap();
    let have = |group| {
        let groups = core::iter::once(group..group + 1).collect();
        SinkMessage::Have { object: ObjectId(0), groups }
    };
    for group in 0..3 {
        let error = source.handle(have(group)).unwrap_err();
        assert!(matches!(error, SourceError::Have { .. }), "{error}");
    }
    while let Some(task) = source.next_group(0) {
        source.files_hashed(task.file_hashes(&vec![0; task.len as usize]));
    }
    source.handle(have(0)).unwrap();
    assert!(matches!(source.handle(have(2)), Err(SourceError::Have { .. })));
}

#[test]
fn a_sink_asks_for_so_many_groups_and_no_more() {
    let mut source = Source::new(Belief::Everything);
    source.push_entry(file("a", 2 * COMPARING_MAX * GROUP_SIZE)).unwrap();
    source.finish_entries();
    while source.poll_message().is_some() {}
    source.allow_comparisons();
    rejects(&mut source, &[(0, 0..COMPARING_MAX + 1)]);
    source.handle(SinkMessage::Compare(vec![(0, 0..COMPARING_MAX)])).unwrap();
    rejects(&mut source, &[(0, COMPARING_MAX..COMPARING_MAX + 1)]);
}

#[test]
fn a_source_answers_only_what_it_is_asked_and_once() {
    let keeps = Keeps { equal: true, ..Keeps::default() };
    let mut sink = Sink::new(SinkConfig { keeps, ..SinkConfig::default() }, Default::default());
    let mut disk = MemoryStorage::new();
    let data = vec![1; 2 * GROUP_SIZE as usize];
    let entries = vec![file("a", data.len() as u64), file("b", 9)];
    disk.plant(&entries[0], &data);
    sink.handle(SourceMessage::Manifest { first_entry: 0, entries, objects: vec![] }).unwrap();
    let value = |group: u32| {
        let data = &data[..GROUP_SIZE as usize];
        group_chaining_value(data, group, false)
    };
    let hashes = |entry, first_group, values: &[[u8; 32]]| {
        SourceMessage::Compared(vec![FileHashes { entry, first_group, values: values.to_vec() }])
    };
    let refuses = |sink: &mut Sink, message: SourceMessage| {
        let before = format!("{sink:?}");
        let error = sink.handle(message).unwrap_err();
        assert!(matches!(error, SinkError::Compared { .. }), "{error}");
        assert_eq!(before, format!("{sink:?}"));
    };
    refuses(&mut sink, hashes(0, 0, &[value(0)]));
    let act = |sink: &mut Sink, disk: &mut MemoryStorage| {
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            sink.handle_answer(storage::perform(disk, action).unwrap());
        }
    };
    act(&mut sink, &mut disk);
    refuses(&mut sink, hashes(0, 0, &[value(0)]));
    assert_eq!(sink.poll_message(), Some(SinkMessage::Compare(vec![(0, 0..2)])));
    refuses(&mut sink, hashes(0, 1, &[value(1), value(1)]));
    refuses(&mut sink, hashes(0, u64::MAX, &[value(1)]));
    refuses(&mut sink, hashes(1, 0, &[value(1)]));
    refuses(&mut sink, hashes(2, 0, &[value(1)]));
    let twice = FileHashes { entry: 0, first_group: 1, values: vec![value(1)] };
    refuses(&mut sink, SourceMessage::Compared(vec![twice.clone(), twice]));
    sink.handle(hashes(0, 1, &[value(1)])).unwrap();
    refuses(&mut sink, hashes(0, 1, &[value(1)]));
    sink.handle(hashes(0, 0, &[value(0)])).unwrap();
    act(&mut sink, &mut disk);
    assert_eq!(sink.stats().unchanged, 1);
    // It may have been on its way.
    sink.handle(hashes(0, 0, &[value(0)])).unwrap();
}
