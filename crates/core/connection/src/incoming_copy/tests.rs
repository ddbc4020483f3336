use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::storage;
use longhaul_objects::testing::{MemoryStorage, file};
use longhaul_wire::{EntryCode, ManifestObject};

use super::*;
use crate::incoming::{Groups, Incoming};

const NOW: Instant = Instant::ZERO;
const MIB: u64 = 1 << 20;

/// A copy of one file of so many bytes, announced, with memory for 4 MiB.
fn copy(size: u64) -> IncomingCopy<Vec<u8>> {
    copy_of(1, size)
}

/// The same of so many files, each an object of its own.
fn copy_of(files: u32, size: u64) -> IncomingCopy<Vec<u8>> {
    let config = SinkConfig { capacity: 4 * MIB, ..SinkConfig::default() };
    let mut copy = IncomingCopy::new(config, ResumeState::default());
    let entries = (0..files).map(|number| file(&format!("{number}"), size)).collect();
    let object = |number| ManifestObject {
        id: ObjectId(number),
        first_entry: number.into(),
        entries: 1,
        size,
    };
    let objects = (0..files).map(object).collect();
    copy.handle_message(SourceMessage::Manifest { first_entry: 0, entries, objects }).unwrap();
    copy
}

/// Does what is to be done with the storage.
fn act(copy: &mut IncomingCopy<Vec<u8>>, disk: &mut MemoryStorage) {
    while let Some(action) = copy.poll_action(NOW) {
        let Ok(answer) = storage::perform(disk, action);
        copy.handle_answer(answer);
    }
}

fn part(group: u32) -> GroupPart {
    GroupPart { object: ObjectId(0), group, start: 0, len: 1 }
}

fn whole(group: u32, len: u32) -> WholeGroup<Vec<u8>> {
    WholeGroup { object: ObjectId(0), group, len, buffer: vec![7; len as usize] }
}

#[test]
fn nothing_is_begun_behind_an_action_that_prepares() {
    let mut copy = copy(MIB);
    let mut disk = MemoryStorage::default();
    let first = copy.poll_action(NOW).unwrap();
    assert!(first.is_in_order());
    for _ in 0..2 {
        assert_eq!(copy.poll_action(NOW), None);
        assert_eq!(copy.next_timeout(), None, "nothing is to be done before it is answered");
    }
    let Ok(answer) = storage::perform(&mut disk, first);
    copy.handle_answer(answer);
    act(&mut copy, &mut disk);
    assert_eq!(copy.poll_message(), Some(SinkMessage::Accept { objects: 1 }));
}

#[test]
fn a_group_is_let_in_within_the_credit_and_memory() {
    let mut copy = copy(9 * MIB);
    assert_eq!(copy.begin(&part(0), || Some(Vec::new())).map(drop), Err(Unplaceable::Unasked));
    act(&mut copy, &mut MemoryStorage::default());
    let credit = (copy.credit() / MIB) as u32;
    assert_eq!((copy.capacity(), u64::from(credit)), (4 * MIB, 4));
    assert_eq!(copy.begin(&part(0), || None).map(drop), Err(Unplaceable::NoMemory));
    for group in 0..credit {
        let begun = copy.begin(&part(group), || Some(Vec::new()));
        assert_eq!(begun, Ok(Begun::Memory { buffer: Vec::new(), len: MIB as u32 }));
    }
    let beyond = copy.begin(&part(credit), || panic!("memory is asked for"));
    assert_eq!(beyond.map(drop), Err(Unplaceable::BeyondCredit));
    // On another lane, or as a repair, it does not count again.
    assert_eq!(copy.begin(&part(0), || Some(Vec::new())).map(drop), Ok(()));
}

#[test]
fn what_came_whole_waits_for_storage_until_it_is_written() {
    let mut copy = copy(3 * MIB);
    let mut disk = MemoryStorage::default();
    act(&mut copy, &mut disk);
    let stored = |waiting, written| Stored { waiting, memory: 4 * MIB, written };
    assert_eq!(copy.stored(), stored(0, 0));
    for group in 0..2 {
        copy.begin(&part(group), || Some(Vec::new())).unwrap();
        copy.handle_arrived(whole(group, MIB as u32));
    }
    assert_eq!(copy.stored(), stored(2 * MIB, 0));
    let arrived = copy.poll_arrived().unwrap();
    assert_eq!(copy.stored(), stored(2 * MIB, 0), "it is in hand");
    let value = group_chaining_value(&arrived.whole.buffer, 0, arrived.only);
    let Verdict::Write(task) = copy.handle_hashed(ObjectId(0), 0, value) else {
        panic!("it is to be written")
    };
    copy.group_written(&task, &[]);
    assert_eq!(copy.stored(), stored(MIB, MIB));
}

#[test]
fn what_has_come_is_written_and_durable_before_it_is_wound_up() {
    let mut copy = copy(3 * MIB);
    let mut disk = MemoryStorage::default();
    act(&mut copy, &mut disk);
    let hash = |n| group_chaining_value(&whole(n, 1 << 20).buffer, n, false);
    let values = (0..3).map(hash).collect();
    let (object, first_group) = (ObjectId(0), 0);
    copy.handle_message(SourceMessage::Hashes { object, first_group, values }).unwrap();
    copy.begin(&part(0), || Some(Vec::new())).unwrap();
    copy.handle_arrived(whole(0, 1 << 20));
    assert!(!copy.wind_up(), "a group waits");
    copy.handle_arrived(whole(1, 1 << 20));
    let ArrivedGroup { whole, only } = copy.poll_arrived().unwrap();
    assert!(!only && copy.poll_arrived().is_none(), "what comes later is not taken");
    assert!(!copy.wind_up(), "a group is being hashed");
    let value = group_chaining_value(&whole.buffer, whole.group, only);
    let Verdict::Write(task) = copy.handle_hashed(whole.object, whole.group, value) else {
        panic!("a sound group is written");
    };
    assert!(!copy.wind_up(), "it is being written");
    let failed = storage::write(&mut disk, &task, &whole.buffer);
    copy.group_written(&task, &failed);
    assert!(!copy.wind_up(), "it is not durable");
    act(&mut copy, &mut disk);
    assert!(copy.wind_up());
}

/// As much memory as is asked for, which is counted.
struct Room<'c> {
    copy: &'c mut IncomingCopy<Vec<u8>>,
    taken: usize,
}

impl Groups<Vec<u8>> for Room<'_> {
    fn begin(&mut self, part: &GroupPart) -> Result<Begun<Vec<u8>>, Unplaceable> {
        let taken = &mut self.taken;
        self.copy.begin(part, || {
            *taken += 1;
            Some(vec![0; 1 << 20])
        })
    }
}

#[test]
fn what_lanes_remember_does_not_grow_with_the_objects_of_a_copy() {
    const FILES: u32 = 4_000;
    let mut copy = copy_of(FILES, 1);
    let mut disk = MemoryStorage::default();
    act(&mut copy, &mut disk);
    let mut lanes = [Incoming::default(), Incoming::default()];
    let value = group_chaining_value(&[7], 0, true);
    let (mut taken, mut most, mut writes) = (0, 0, Vec::new());
    for number in 0..FILES {
        let object = ObjectId(number);
        let target = GroupPart { object, ..part(0) };
        let lane = &mut lanes[number as usize % 2];
        let mut receive = |copy: &mut _| {
            let room = &mut Room { copy, taken };
            let has_place = lane.begin(room, &target);
            taken = room.taken;
            (has_place, lane.accept(&target, Some(&[7])))
        };
        let (has_place, whole) = receive(&mut copy);
        assert_eq!(has_place, Ok(true));
        copy.handle_arrived(whole.expect("it has all its bytes"));
        assert!(copy.poll_arrived().is_some());
        let hashes = SourceMessage::Hashes { object, first_group: 0, values: vec![value] };
        copy.handle_message(hashes).unwrap();
        let Verdict::Write(task) = copy.handle_hashed(object, 0, value) else {
            panic!("a sound group is written");
        };
        assert_eq!(receive(&mut copy), (Ok(false), None), "it is known to the lane");
        writes.push(task);
        if writes.len() == 8 {
            // The last comes first, so that objects are over behind some that are not.
            for task in writes.drain(..).rev() {
                assert!(storage::write(&mut disk, &task, &[7]).is_empty());
                copy.group_written(&task, &[]);
                lanes.iter_mut().for_each(|lane| lane.handle_over(copy.over()));
            }
            let again = GroupPart { object, ..part(0) };
            for lane in &mut lanes {
                let room = &mut Room { copy: &mut copy, taken };
                assert_eq!(lane.begin(room, &again), Ok(false), "it is over");
            }
        }
        most = lanes.iter().map(Incoming::remembered).fold(most, usize::max);
        while copy.poll_message().is_some() {}
    }
    assert_eq!((taken, copy.over().objects), (FILES as usize, FILES));
    assert!(most <= 4, "{most} objects are remembered");
}

#[test]
fn what_comes_of_a_failed_object_takes_no_memory_and_gives_its_credit_back() {
    let mut copy = copy(9 * MIB);
    act(&mut copy, &mut MemoryStorage::default());
    for group in [0, 4] {
        copy.begin(&part(group), || Some(Vec::new())).unwrap();
    }
    let failed =
        SourceMessage::EntryFailed { entry: 0, end: EntryEnd::new(EntryCode::Changed, "gone") };
    copy.handle_message(failed).unwrap();
    assert_eq!((copy.credit(), copy.over().objects), (4 * MIB, 1));
    assert_eq!(copy.poll_repair(), Some(Repair::Unneeded(ObjectId(0))));
    assert_eq!(copy.poll_repair(), None);
    for _ in 0..2 {
        for group in 1..3 {
            let begun = copy.begin(&part(group), || panic!("memory is asked for"));
            assert_eq!(begun, Ok(Begun::Unneeded));
        }
        assert_eq!(copy.credit(), 6 * MIB, "each counts once");
    }
    copy.handle_arrived(whole(0, 1 << 20));
    assert!(copy.poll_arrived().is_some());
    assert_eq!(copy.handle_hashed(ObjectId(0), 0, [0; 32]), Verdict::Discard);
    assert_eq!(copy.credit(), 7 * MIB);
    // Of the other the rest never comes: a lane gives up what it has.
    for group in [4, 0] {
        copy.handle_given_up(ObjectId(0), group);
        assert_eq!(copy.credit(), 8 * MIB);
    }
}

#[test]
fn an_object_is_over_once_only_files_that_failed_have_groups_left() {
    let config = SinkConfig { capacity: 4 * MIB, ..SinkConfig::default() };
    let mut copy = IncomingCopy::<Vec<u8>>::new(config, ResumeState::default());
    // The second begins in the first group and ends in the second.
    let sizes = [1_000_000, 900_000];
    let entries = vec![file("a", sizes[0]), file("b", sizes[1])];
    let size = sizes.iter().sum();
    let objects = vec![ManifestObject { id: ObjectId(0), first_entry: 0, entries: 2, size }];
    copy.handle_message(SourceMessage::Manifest { first_entry: 0, entries, objects }).unwrap();
    let mut disk = MemoryStorage::default();
    act(&mut copy, &mut disk);
    copy.begin(&part(0), || Some(Vec::new())).unwrap();
    let failed =
        SourceMessage::EntryFailed { entry: 1, end: EntryEnd::new(EntryCode::Changed, "gone") };
    copy.handle_message(failed).unwrap();
    assert_eq!(copy.over().objects, 0, "the other file has bytes in the first group");
    let whole = whole(0, 1 << 20);
    let value = group_chaining_value(&whole.buffer, 0, false);
    let hashes = SourceMessage::Hashes { object: ObjectId(0), first_group: 0, values: vec![value] };
    copy.handle_message(hashes).unwrap();
    copy.handle_arrived(whole);
    let ArrivedGroup { whole, .. } = copy.poll_arrived().unwrap();
    let Verdict::Write(task) = copy.handle_hashed(ObjectId(0), 0, value) else {
        panic!("a sound group is written");
    };
    copy.group_written(&task, &storage::write(&mut disk, &task, &whole.buffer));
    // Whether the source sends the second group, or has stopped by now, it is needed no more.
    assert_eq!(copy.over().objects, 1);
}
