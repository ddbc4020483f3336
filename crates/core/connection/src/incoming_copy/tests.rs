use alloc::vec;
use alloc::vec::Vec;

use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::storage;
use longhaul_objects::testing::{MemoryStorage, file};
use longhaul_wire::ManifestObject;

use super::*;

const NOW: Instant = Instant::ZERO;
const MIB: u64 = 1 << 20;

/// A copy of one file of so many bytes, announced, with memory for 4 MiB.
fn copy(size: u64) -> IncomingCopy<Vec<u8>> {
    let config = SinkConfig { capacity: 4 * MIB, ..SinkConfig::default() };
    let mut copy = IncomingCopy::new(config, ResumeState::default());
    let (entries, objects) = (
        vec![file("a", size)],
        vec![ManifestObject { id: ObjectId(0), first_entry: 0, entries: 1, size }],
    );
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
        assert_eq!(copy.begin(&part(group), || Some(Vec::new())).unwrap().len, MIB as u32);
    }
    let beyond = copy.begin(&part(credit), || panic!("memory is asked for"));
    assert_eq!(beyond.map(drop), Err(Unplaceable::BeyondCredit));
    // On another lane, or as a repair, it does not count again.
    assert_eq!(copy.begin(&part(0), || Some(Vec::new())).map(drop), Ok(()));
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
