use alloc::vec;

use longhaul_objects::Belief;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_objects::testing::file;
use longhaul_wire::EntryCode;

use super::*;
use crate::gate::Outlook;
use crate::gate::tests::Backlogs;

const NOW: Instant = Instant::ZERO;

/// A copy of one file of so many groups, which the sink accepts.
fn copy(groups: u64) -> OutgoingCopy {
    let mut copy = OutgoingCopy::new(NOW, 2, Belief::default());
    copy.push_entry(file("a", groups * GROUP_SIZE)).unwrap();
    copy.finish_entries();
    while copy.poll_message().is_some() {}
    copy.handle_message(SinkMessage::Accept { objects: 1 }).unwrap();
    copy
}

fn idle() -> Backlogs {
    Backlogs(vec![0, 0])
}

fn next(copy: &mut OutgoingCopy, lanes: &Backlogs) -> Option<u32> {
    copy.next_group(NOW, lanes, || Some(())).map(|(task, ())| task.group)
}

#[test]
fn what_may_be_read_is_bounded_by_credit_memory_and_room() {
    let mut copy = copy(3);
    assert_eq!(next(&mut copy, &idle()), None, "no credit");
    assert!(!copy.gate.wants_room());
    copy.gate.handle_credit(2 * GROUP_SIZE);
    assert!(copy.next_group::<()>(NOW, &idle(), || None).is_none(), "no memory");
    assert!(copy.gate.wants_room());
    let full = Backlogs(vec![100 * GROUP_SIZE, 0]);
    let memory = || -> Option<()> { panic!("it is not asked for where the lanes are full") };
    assert!(copy.next_group(NOW, &full, memory).is_none());
    assert_eq!(next(&mut copy, &idle()), Some(0));
    assert_eq!(next(&mut copy, &idle()), Some(1));
    assert_eq!(next(&mut copy, &idle()), None, "no credit");
}

#[test]
fn nothing_is_read_before_it_may_be_dealt() {
    let mut copy = copy(1);
    copy.gate.handle_credit(GROUP_SIZE);
    copy.gate.hold();
    assert_eq!(next(&mut copy, &idle()), None);
    assert!(copy.gate.awaits_circuit() && copy.idles(Bottleneck::Unknown, &idle()));
    copy.gate.set_outlook(Outlook::Awaited);
    assert!(copy.gate.awaits_circuit());
    let (task, ()) = copy.next_group(NOW, &idle(), || Some(())).unwrap();
    assert_eq!(copy.deal(&task, &idle()), Some(1));
}

/// A blast round that ends while a group is read would ask for what was never sent.
#[test]
fn it_is_not_drained_while_somebody_reads() {
    let mut copy = copy(2);
    copy.gate.handle_credit(GROUP_SIZE);
    let (task, ()) = copy.next_group(NOW, &idle(), || Some(())).unwrap();
    assert_eq!(next(&mut copy, &idle()), None);
    assert!(!copy.is_drained());
    copy.deal(&task, &idle());
    assert_eq!(next(&mut copy, &idle()), None);
    assert!(copy.is_drained());
    copy.gate.handle_credit(2 * GROUP_SIZE);
    assert_eq!(next(&mut copy, &idle()), Some(1));
    assert!(!copy.is_drained());
}

#[test]
fn what_is_wanted_becomes_exact() {
    let mut copy = OutgoingCopy::new(NOW, 1, Belief::default());
    copy.push_entry(file("a", 5 * GROUP_SIZE)).unwrap();
    assert_eq!(copy.wanted(), Wanted::NotLess(5 * GROUP_SIZE));
    copy.finish_entries();
    assert_eq!(copy.wanted(), Wanted::AtMost(5 * GROUP_SIZE));
    while copy.poll_message().is_some() {}
    copy.handle_message(SinkMessage::Accept { objects: 1 }).unwrap();
    assert_eq!(copy.wanted(), Wanted::Exactly(5 * GROUP_SIZE));
}

#[test]
fn a_group_that_was_never_sent_gives_its_credit_back_and_a_repair_does_not() {
    let mut copy = copy(4);
    copy.gate.handle_credit(3 * GROUP_SIZE);
    let tasks = [(); 3].map(|()| copy.next_group(NOW, &idle(), || Some(())).unwrap().0);
    let extent = |task: &GroupTask| Extent {
        object: task.object,
        offset: task.offset,
        len: task.len.into(),
    };
    // The first has come and is to come again, the second waits in a lane, the third is being read.
    assert!(copy.deal(&tasks[0], &idle()).is_some() && copy.deal(&tasks[1], &idle()).is_some());
    copy.handle_message(SinkMessage::Repair { object: ObjectId(0), group: 0 }).unwrap();
    let (again, ()) = copy.next_group(NOW, &idle(), || Some(())).unwrap();
    assert!(again.repair && copy.deal(&again, &idle()).is_some());
    copy.entry_failed(EntryId(0), EntryEnd::new(EntryCode::Changed, "gone"));
    assert_eq!(copy.poll_withdrawn(), None, "the sink does not know");
    assert!(matches!(copy.poll_message(), Some(SourceMessage::EntryFailed { .. })));
    assert_eq!((copy.poll_withdrawn(), copy.poll_withdrawn()), (Some(ObjectId(0)), None));
    assert_eq!(copy.deal(&tasks[2], &idle()), None);
    assert_eq!(copy.stats().withdrawn_bytes, GROUP_SIZE);
    copy.handle_withdrawn(extent(&again));
    assert_eq!(copy.stats().withdrawn_bytes, GROUP_SIZE, "the sink has counted it");
    copy.handle_withdrawn(extent(&tasks[1]));
    assert_eq!(copy.stats().withdrawn_bytes, 2 * GROUP_SIZE);
    assert!(next(&mut copy, &idle()).is_none() && copy.is_drained());
}

#[test]
fn what_is_withdrawn_makes_room_for_other_files() {
    let mut copy = OutgoingCopy::new(NOW, 1, Belief::default());
    for name in ["a", "b"] {
        copy.push_entry(file(name, 2 * GROUP_SIZE)).unwrap();
    }
    copy.finish_entries();
    while copy.poll_message().is_some() {}
    copy.handle_message(SinkMessage::Accept { objects: 2 }).unwrap();
    copy.gate.handle_credit(2 * GROUP_SIZE);
    assert_eq!([next(&mut copy, &idle()), next(&mut copy, &idle())], [Some(0), Some(1)]);
    assert_eq!(next(&mut copy, &idle()), None, "no credit");
    let refused =
        SinkMessage::EntryRefused { entry: 0, end: EntryEnd::new(EntryCode::NoSpace, "no space") };
    copy.handle_message(refused).unwrap();
    assert_eq!(copy.poll_withdrawn(), Some(ObjectId(0)));
    let extent = Extent { object: ObjectId(0), offset: GROUP_SIZE, len: GROUP_SIZE };
    copy.handle_withdrawn(extent);
    let (task, ()) = copy.next_group(NOW, &idle(), || Some(())).unwrap();
    assert_eq!((task.object, task.group), (ObjectId(1), 0));
    assert_eq!(next(&mut copy, &idle()), None, "the other group counts");
}
