//! Later runs do not repeat work; costs of a transfer.

use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::storage;
use longhaul_objects::testing::{MemoryStorage, file};
use longhaul_objects::{
    Action, EntryId, Fsync, ResumeState, Sink, SinkConfig, Source, Verdict, record,
};
use longhaul_units::{Duration, Instant, ObjectId};
use longhaul_wire::{Entry, EntryCode, EntryEnd, EntryKind, SinkMessage};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::tree::{Item, contents, item};
use crate::world::{Faults, TRANSFER, World};

fn world(sizes: &[u64], faults: Faults) -> World {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(sizes.len() as u64);
    let items: Vec<Item> = (1..)
        .zip(sizes)
        .map(|(n, size)| item(&format!("{n}"), EntryKind::File, contents(&mut rng, *size), n))
        .collect();
    World::new(1, items, faults)
}

fn claimed(world: &World) -> ResumeState {
    record::replay(&world.disk.read_record(), &TRANSFER, world.fsync)
}

fn step_until(world: &mut World, reached: impl Fn(&World) -> bool) {
    while !reached(world) {
        assert!(!world.is_done(), "the transfer was too short");
        for _ in 0..20 {
            world.step();
        }
        world.now += Duration::from_millis(100);
    }
}

fn reads(world: &World, run: u64) -> Vec<(ObjectId, u32)> {
    world.reads.keys().filter(|key| key.0 == run).map(|key| (key.1, key.2)).collect()
}

#[test]
fn durable_groups_are_neither_read_nor_sent_again() {
    let mut world = world(&[40 * GROUP_SIZE + 5], Faults::default());
    step_until(&mut world, |world| claimed(world).groups() > 3);
    world.crash();
    world.run();
    let second = reads(&world, 2);
    let resumed = world.sink.stats().resumed_bytes;
    assert!(resumed >= GROUP_SIZE, "{resumed}");
    assert!((second.len() as u64) < 41);
    let missing: u64 = 40 * GROUP_SIZE + 5 - resumed;
    assert_eq!(missing.div_ceil(GROUP_SIZE), second.len() as u64);
    assert_eq!(world.source.stats().resumed_bytes, resumed);
    let digest = world.sink.digest(EntryId(0)).unwrap();
    assert_eq!(digest, blake3::hash(&world.items[0].data).as_bytes());
}

#[test]
fn what_arrived_before_a_stop_is_kept() {
    for large in [true, false] {
        let sizes = if large { vec![40 * GROUP_SIZE + 5] } else { vec![300_000; 60] };
        let mut world = world(&sizes, Faults::default());
        // Time stands still, so that no checkpoint comes by itself.
        while world.sink.stats().verified_bytes < 9 * GROUP_SIZE {
            world.step();
            world.now = Instant::ZERO;
        }
        let kept = world.stop();
        world.crash();
        world.run();
        let resumed = world.sink.stats().resumed_bytes;
        if large {
            assert_eq!(resumed, kept);
        } else {
            // A file in two groups of which one arrived is sent again.
            assert!(resumed > 0 && resumed <= kept, "{resumed} of {kept}");
        }
    }
}

/// A large file of which a run has received some groups when it is stopped, or killed.
fn interrupted(fsync: Fsync, stopped: bool) -> (World, u64) {
    let mut world = world(&[40 * GROUP_SIZE + 5], Faults::default());
    world.fsync = fsync;
    world.start();
    step_until(&mut world, |world| claimed(world).groups() > 3);
    if stopped {
        world.stop();
    } else {
        // Something is written that no checkpoint has seen.
        let verified = world.sink.stats().received_bytes;
        while world.sink.stats().received_bytes == verified {
            world.step();
        }
    }
    let kept = claimed(&world).groups() as u64;
    world.start();
    (world, kept)
}

fn check_copied(world: &World) {
    let digest = world.sink.digest(EntryId(0)).unwrap();
    assert_eq!(digest, blake3::hash(&world.items[0].data).as_bytes());
    world.check_names();
}

#[test]
fn what_has_its_stamp_is_believed_without_being_read() {
    for fsync in [Fsync::End, Fsync::Never { boot: [1; 16] }] {
        let (mut world, kept) = interrupted(fsync, true);
        world.run();
        let stats = world.sink.stats();
        assert_eq!(stats.resumed_bytes / GROUP_SIZE, kept);
        assert_eq!(stats.rechecked, 0);
        assert_eq!(reads(&world, world.runs).len() as u64, 41 - kept);
        check_copied(&world);
    }
}

#[test]
fn what_was_written_to_after_the_last_checkpoint_is_compared_and_kept() {
    for fsync in [Fsync::End, Fsync::Never { boot: [1; 16] }] {
        let (mut world, kept) = interrupted(fsync, false);
        world.run();
        let stats = world.sink.stats();
        assert_eq!((stats.resumed_bytes / GROUP_SIZE, stats.rechecked), (kept, kept));
        assert_eq!(reads(&world, world.runs).len() as u64, 41 - kept);
        check_copied(&world);
    }
}

#[test]
fn a_group_that_was_altered_between_two_runs_is_sent_again_and_no_other() {
    let mut altered = 0;
    for seed in 0..8 {
        let (mut world, kept) = interrupted(Fsync::End, true);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        world.disk.tamper(&mut rng);
        world.start();
        // The run that finds it ends before it has put it right: the record says so.
        step_until(&mut world, |world| claimed(world).groups() as u64 > kept + 2);
        world.stop();
        world.start();
        world.run();
        let stats = world.sink.stats();
        assert_eq!(stats.rechecked, 0, "its new stamp vouches for what was recorded with it");
        altered +=
            u64::from(world.reads.iter().filter(|(key, _)| key.0 > 1).count() as u64 > 41 - kept);
        check_copied(&world);
    }
    assert!(altered > 0, "a group that was recorded");
}

#[test]
fn a_small_file_that_was_altered_before_its_directory_appeared_is_sent_again() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut items = vec![item("d", EntryKind::Directory, Vec::new(), 1)];
    for number in 0..120 {
        let data = contents(&mut rng, 300_000);
        items.push(item(&format!("d/{number}"), EntryKind::File, data, number + 2));
    }
    let mut world = World::new(1, items, Faults::default());
    step_until(&mut world, |world| claimed(world).kept() > 10);
    world.stop();
    let kept = claimed(&world).kept() as u64;
    let left = world.disk.clone();
    let mut again = 0;
    for seed in 0..8 {
        world.disk = left.clone();
        world.disk.tamper(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        world.start();
        world.run();
        let resumed = world.sink.stats().resumed_bytes / 300_000;
        // Or it was one of those that nobody has recorded.
        assert!(resumed == kept || resumed == kept - 1, "{resumed} of {kept}");
        again += u64::from(resumed < kept);
        assert_eq!(world.confirmed.len(), 121);
    }
    assert!(again > 0, "a file that was recorded");
    world.disk = left;
    world.start();
    world.run();
    assert_eq!(world.sink.stats().resumed_bytes, kept * 300_000);
}

#[test]
fn published_files_are_not_copied_again() {
    let sizes: Vec<u64> = (0..300).map(|n| 20_000 + n).chain([30 * GROUP_SIZE]).collect();
    let mut world = world(&sizes, Faults::default());
    step_until(&mut world, |world| claimed(world).published() == 300);
    world.crash();
    // One is changed at the source.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    world.items[7] = item("8", EntryKind::File, contents(&mut rng, 20_007), 1000);
    world.start();
    world.run();
    let bundled: Vec<_> =
        reads(&world, world.runs).into_iter().filter(|key| key.0.0 == 0).collect();
    // The group of the changed file, and the next one for the file that lies over its end.
    assert_eq!(bundled, [(ObjectId(0), 0), (ObjectId(0), 1)]);
    assert_eq!(world.source.result().unwrap().confirmed, 301);
}

#[test]
fn published_files_are_not_copied_again_where_nothing_is_synced() {
    let sizes: Vec<u64> = (0..300).map(|n| 20_000 + n).chain([30 * GROUP_SIZE]).collect();
    let mut world = world(&sizes, Faults::default());
    world.fsync = Fsync::Never { boot: [1; 16] };
    world.start();
    step_until(&mut world, |world| claimed(world).published() == 300);
    world.start();
    world.run();
    assert!(reads(&world, world.runs).iter().all(|key| key.0.0 != 0));
    assert_eq!(world.source.result().unwrap().confirmed, 301);
}

/// A world with files that somebody else has left under the identities of the items: of a large
/// file a part, of others all.
fn prepared(sizes: &[u64], published: usize) -> World {
    let mut world = world(sizes, Faults { impostor: 1, ..Faults::default() });
    world.start();
    assert!(world.is_impostor);
    step_until(&mut world, |world| {
        claimed(world).published() == published && claimed(world).groups() > 3
    });
    world.faults.impostor = 0;
    world
}

#[test]
fn what_somebody_else_left_under_the_same_identities_is_sent_again() {
    let small = [300_000, 900_000, 10, 700_000];
    let sizes: Vec<u64> = [&small[..], &[2 * GROUP_SIZE + 9, 40 * GROUP_SIZE + 5]].concat();
    for secret in [None, Some(1)] {
        let mut world = prepared(&sizes, 5);
        world.secret = secret;
        world.start();
        world.run();
        assert_eq!(world.source.result().unwrap().confirmed, 6);
        assert_eq!(world.sink.stats().resumed_bytes, 0);
        world.check_names();
    }
}

#[test]
fn what_somebody_else_left_is_found_out_by_every_later_run_until_it_is_replaced() {
    let mut world = prepared(&[300_000, 900_000, 2 * GROUP_SIZE, 40 * GROUP_SIZE], 3);
    // The next run recalls what it found, and has put some of it right.
    world.start();
    step_until(&mut world, |world| world.sink.stats().answered > 4);
    for _ in 0..5 {
        let before = world.sink.stats().verified_bytes;
        step_until(&mut world, |world| world.sink.stats().verified_bytes > before + 3 * GROUP_SIZE);
        world.stop();
        world.start();
    }
    world.run();
    assert_eq!(world.source.result().unwrap().confirmed, 4);
    world.check_names();
}

#[test]
fn who_replaces_a_published_file_and_is_killed_at_once_is_not_believed_by_its_old_tag() {
    for fsync in [Fsync::End, Fsync::Never { boot: [1; 16] }] {
        for sizes in [vec![20_000; 120], vec![2 * GROUP_SIZE; 4]] {
            let sizes = [&sizes[..], &[40 * GROUP_SIZE]].concat();
            let mut world = world(&sizes, Faults::default());
            world.fsync = fsync;
            world.start();
            let published = sizes.len() - 1;
            step_until(&mut world, |world| claimed(world).published() == published);
            world.stop();
            world.faults.impostor = 1;
            world.start();
            let is_true = |world: &World| {
                let mut small = world.items[..published].iter();
                small
                    .all(|item| world.disk.contents(item.entry.path.as_bytes()) == Some(&item.data))
            };
            for _ in 0..200_000 {
                world.step();
                if !is_true(&world) {
                    break;
                }
            }
            assert!(!is_true(&world), "nothing was replaced");
            world.faults.impostor = 0;
            world.start();
            world.run();
            assert_eq!(world.source.result().unwrap().confirmed, sizes.len() as u64);
            world.check_names();
        }
    }
}

#[test]
fn without_its_secret_a_source_reads_what_is_there_and_sends_nothing_of_it() {
    let sizes: Vec<u64> =
        (0..100).map(|_| 20_000).chain([2 * GROUP_SIZE, 30 * GROUP_SIZE]).collect();
    for secret in [None, Some(7)] {
        let mut world = world(&sizes, Faults::default());
        step_until(&mut world, |world| {
            claimed(world).published() == 101 && claimed(world).groups() > 3
        });
        world.stop();
        world.secret = secret;
        world.start();
        world.run();
        let (source, sink) = (world.source.stats(), world.sink.stats());
        let all: u64 = sizes.iter().sum();
        assert!(sink.resumed_bytes > 7 * GROUP_SIZE);
        assert_eq!(sink.resumed_bytes + source.sent_bytes, all);
        let read = reads(&world, world.runs).len() as u64;
        assert_eq!(read, 35, "each group of the objects once, three of small files");
        world.check_names();
    }
}

#[test]
fn a_tag_that_was_renewed_is_believed_by_the_next_run() {
    let (mut world, kept) = interrupted(Fsync::End, true);
    world.secret = Some(7);
    world.start();
    step_until(&mut world, |world| claimed(world).groups() as u64 > kept);
    world.stop();
    let kept = claimed(&world).groups() as u64;
    world.start();
    world.run();
    assert_eq!(reads(&world, world.runs).len() as u64, 41 - kept);
    check_copied(&world);
}

#[test]
fn a_complete_transfer_leaves_nothing_and_is_done_again() {
    let mut world = world(&[10, 2 * GROUP_SIZE], Faults::default());
    world.run();
    assert!(world.disk.read_record().is_empty());
    world.start();
    world.run();
    assert_eq!(reads(&world, 2).len(), 3);
    assert_eq!(world.sink.stats().resumed_bytes, 0);
}

#[test]
fn after_failures_only_what_failed_is_copied_again() {
    let mut world =
        world(&[3 * GROUP_SIZE, 2 * GROUP_SIZE, 500_000, 900_000, 800_000], Faults::default());
    world.faults.unreadable = 3;
    world.run();
    let failed = world.source.stats().failed;
    assert!(failed > 0 && failed < 5, "{failed}");
    assert!(!world.disk.read_record().is_empty());
    world.faults.unreadable = 0;
    world.start();
    world.run();
    assert_eq!(world.source.result().unwrap().confirmed, 5);
    assert!(world.sink.stats().resumed_bytes > 0);
    assert!(world.disk.read_record().is_empty());
}

/// Lets both ends of a copy say what they have to say, and the disk do what it is to do.
fn talk(world: &mut World) {
    let World { source, sink, disk, now, .. } = world;
    loop {
        let mut is_quiet = true;
        while let Some(message) = source.poll_message() {
            sink.handle(message).unwrap();
            is_quiet = false;
        }
        while let Some(action) = sink.poll_action(*now) {
            sink.handle_answer(storage::perform(disk, action).unwrap());
            is_quiet = false;
        }
        while let Some(message) = sink.poll_message() {
            source.handle(message).unwrap();
            is_quiet = false;
        }
        if is_quiet {
            return;
        }
    }
}

#[test]
fn nobody_waits_for_groups_of_a_file_that_is_there_and_that_the_source_has_lost() {
    let mut world = world(&[400_000, 900_000, 30 * GROUP_SIZE], Faults::default());
    step_until(&mut world, |world| claimed(world).published() == 2);
    world.crash();
    // The second is to be copied again, and shares a group with the first, which is there.
    world.disk.remove(b"2");
    world.start();
    for item in world.items.clone() {
        world.source.push_entry(item.entry).unwrap();
    }
    world.source.finish_entries();
    talk(&mut world);
    for lost in [EntryId(0), EntryId(1)] {
        world.source.entry_failed(lost, EntryEnd::new(EntryCode::NotFound, "no such file"));
    }
    talk(&mut world);
    while let Some(task) = world.source.next_group(world.sink.credit()) {
        assert_eq!(task.object, ObjectId(1));
        let piece = &task.pieces[0];
        let data = &world.items[2].data[piece.file_offset as usize..][..piece.len as usize];
        let value = group_chaining_value(data, task.group, task.only);
        world.source.group_hashed(task.object, task.group, value);
        let verdict = world.sink.group_received(task.object, task.group, value);
        let Verdict::Write(write) = verdict else { panic!("{verdict:?}") };
        world.sink.group_written(&write, &storage::write(&mut world.disk, &write, data));
        talk(&mut world);
    }
    world.now += Duration::from_secs(2);
    talk(&mut world);
    let result = world.source.result().expect("everything is settled");
    assert_eq!((result.confirmed, result.failed), (2, 1));
    assert_eq!(world.sink.over_below(), 2);
}

/// Costs of what is done, in order and at once: numbers of each action and message.
pub struct Costs {
    pub checkpoints: u32,
    pub records: u32,
    pub publishes: u32,
    pub placed: u32,
    to_sink: u32,
    to_source: u32,
    rounds: u32,
    groups: u32,
}

pub fn cost(entries: Vec<Entry>) -> Costs {
    let mut source = Source::default();
    let mut sink = Sink::new(SinkConfig::default(), Default::default());
    let mut disk = MemoryStorage::new();
    let mut costs = Costs {
        checkpoints: 0,
        records: 0,
        publishes: 0,
        placed: 0,
        to_sink: 0,
        to_source: 0,
        rounds: 0,
        groups: 0,
    };
    let mut entries = entries.into_iter();
    while !source.is_done() {
        costs.rounds += 1;
        while source.wants_entries() && !source.stats().complete {
            match entries.next() {
                Some(entry) => drop(source.push_entry(entry).unwrap()),
                None => source.finish_entries(),
            }
        }
        while let Some(message) = source.poll_message() {
            costs.to_sink += 1;
            sink.handle(message).unwrap();
        }
        while let Some(task) = source.next_group(sink.credit()) {
            costs.groups += 1;
            let data = vec![1; task.len as usize];
            let value = group_chaining_value(&data, task.group, task.only);
            source.group_hashed(task.object, task.group, value);
            if let Verdict::Write(write) = sink.group_received(task.object, task.group, value) {
                sink.group_written(&write, &storage::write(&mut disk, &write, &data));
            }
        }
        while let Some(action) = sink.poll_action(Instant::ZERO) {
            match &action {
                Action::Checkpoint(_) => costs.checkpoints += 1,
                Action::AppendRecord { .. } => costs.records += 1,
                Action::Publish(_) => costs.publishes += 1,
                Action::PlaceDirectories(batch) => costs.placed += batch.len() as u32,
                _ => {}
            }
            sink.handle_answer(storage::perform(&mut disk, action).unwrap());
        }
        while let Some(message) = sink.poll_message() {
            costs.to_source += 1;
            assert!(!matches!(message, SinkMessage::Repair { .. }));
            source.handle(message).unwrap();
        }
    }
    assert_eq!(source.stats().failed, 0);
    costs
}

#[test]
fn many_small_files_share_everything() {
    let directories =
        (0..200).map(|d| Entry { kind: EntryKind::Directory, ..file(&format!("{d}"), 0) });
    let files = (0..20_000).map(|n| file(&format!("{}/{n}", n % 200), 10_240));
    let costs = cost(directories.chain(files).collect());
    let megabytes = (20_000u32 * 10_240).div_ceil(1 << 20);
    assert!(costs.groups <= megabytes + 30, "{}", costs.groups);
    // One for the contents, one for the names.
    assert_eq!((costs.checkpoints, costs.records), (2, 0));
    assert!(costs.publishes <= 90, "{}", costs.publishes);
    assert!(costs.to_sink <= 500, "{}", costs.to_sink);
    assert!(costs.to_source <= 30, "{}", costs.to_source);
    assert!(costs.rounds <= 12, "{}", costs.rounds);
}

#[test]
fn an_empty_transfer_ends() {
    let costs = cost(Vec::new());
    assert_eq!((costs.groups, costs.checkpoints, costs.to_source), (0, 0, 1));
}

#[test]
fn a_file_whose_directory_got_its_name_is_confirmed_by_a_later_run_once_that_name_is_durable() {
    // Each group completes one file; `b` lies over the end of the first.
    let readable = |path: &str, size| Entry { mode: 0o644, ..file(path, size) };
    let directory = Entry { kind: EntryKind::Directory, ..file("d", 0) };
    let entries =
        [directory, readable("d/a", 700_000), readable("d/b", 700_000), readable("d/c", 600_000)];
    let mut disk = MemoryStorage::new();
    let mut now = Instant::ZERO;
    let mut resume = ResumeState::default();
    let mut confirmed = false;
    for run in 0..2 {
        let config = SinkConfig { transfer: TRANSFER, nonce: [run; 16], ..SinkConfig::default() };
        let mut sink = Sink::new(config, resume);
        let mut source = Source::default();
        for entry in entries.clone() {
            source.push_entry(entry).unwrap();
        }
        source.finish_entries();
        // The first run ends when the directory has its name.
        let is_over = |disk: &MemoryStorage| run == 0 && disk.node(b"d").is_some();
        for step in 0..16 {
            while let Some(message) = source.poll_message() {
                sink.handle(message).unwrap();
            }
            loop {
                while let Some(message) = sink.poll_message() {
                    if matches!(message, SinkMessage::Confirm { .. }) {
                        confirmed = true;
                        assert!(disk.is_durable(b"d/a"), "in run {run}: {message:?}");
                    }
                    source.handle(message).unwrap();
                }
                let action = if is_over(&disk) { None } else { sink.poll_action(now) };
                let Some(action) = action else { break };
                sink.handle_answer(storage::perform(&mut disk, action).unwrap());
            }
            now += Duration::from_secs(2);
            // There is a checkpoint between two groups.
            let task = if step % 4 == 0 { source.next_group(sink.credit()) } else { None };
            let Some(task) = task else { continue };
            let data = vec![1; task.len as usize];
            let value = group_chaining_value(&data, task.group, task.only);
            source.group_hashed(task.object, task.group, value);
            if let Verdict::Write(write) = sink.group_received(task.object, task.group, value) {
                sink.group_written(&write, &storage::write(&mut disk, &write, &data));
            }
            while let Some(message) = source.poll_message() {
                sink.handle(message).unwrap();
            }
        }
        resume = record::replay(&disk.read_record(), &TRANSFER, SinkConfig::default().fsync);
        if run == 0 {
            assert_eq!(resume.kept(), 1);
            assert!(disk.contents(b"d/a").is_some() && !disk.is_durable(b"d/a"));
        } else {
            assert!(confirmed && source.is_done());
        }
    }
}
