use longhaul_carriers::mailboxes::Mailboxes;
use longhaul_carriers::upper_layer::{Mailbox, UpperLayer};
use longhaul_connection::{Begun, GroupPart, IncomingCopy, News, Repair, Unplaceable, Wish};
use longhaul_files::{Destination, SinkOptions, SinkTree};
use longhaul_objects::testing::file;
use longhaul_objects::{Fsync, ResumeState, SinkConfig};
use longhaul_units::ObjectId;
use longhaul_wire::{
    Direction, Entry, ManifestObject, Message, Request, SinkMessage, SourceMessage,
};

use super::*;
use crate::memory::budget::Budget;
use crate::testing::AtEnd;
use crate::transfers::copy::receive;

/// A client that gets a copy into a new directory, its driver, and the box of its only lane.
fn sink(directory: &tempfile::TempDir) -> (Arc<Shared>, SinkDriver, Arc<Mailbox>) {
    let options = SinkOptions {
        is_directory: true,
        is_name: false,
        contents: false,
        transfer: [1; 16],
        fsync: Fsync::End,
        direct: false,
        only_empty: false,
        goes_on: true,
        dry_run: false,
        stays: false,
        keeps_modes: false,
        keeps: Default::default(),
    };
    let place = Destination::Local(directory.path());
    let (tree, resume): (SinkTree, ResumeState) = SinkTree::open(place, &options).unwrap();
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let wish = Wish::Copy(Request {
        destination_is_directory: true,
        ..Request::new(Direction::Pull, vec![b"a".to_vec()])
    });
    let shared = Shared::client(&wish, Mailboxes::new(vec![mailbox.clone()]));
    assert!(matches!(sent(&shared), Message::Request(_)));
    let budget = Budget::new(None);
    let capacity = budget.of_sink().get();
    let config = SinkConfig { transfer: [1; 16], capacity, ..SinkConfig::default() };
    receive(&shared, IncomingCopy::new(config, resume), budget, Duration::ZERO);
    (shared, SinkDriver::new(tree, true), mailbox)
}

fn tell(shared: &Shared, message: SourceMessage) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    shared.on_stream_bytes(&bytes).unwrap();
}

fn manifest(entries: Vec<Entry>) -> SourceMessage {
    let size = entries.iter().map(|entry| entry.size).sum();
    let objects = vec![ManifestObject {
        id: ObjectId(0),
        first_entry: 0,
        entries: entries.len() as u64,
        size,
    }];
    SourceMessage::Manifest { first_entry: 0, entries, objects }
}

/// Has the sink work until `meanwhile` is over. Where one of them fails, so does the other.
fn at_work(shared: &Shared, sink: &SinkDriver, meanwhile: impl FnOnce()) {
    std::thread::scope(|scope| {
        let _ends = AtEnd(|| shared.stop());
        scope.spawn(|| {
            let _ends = AtEnd(|| shared.stop());
            sink.work(shared).unwrap();
        });
        meanwhile();
    });
}

/// Waits until it is so.
fn until(shared: &Shared, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        assert!(!shared.is_stopped(), "the sink has ended");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// What it says next.
fn sent(shared: &Shared) -> Message {
    let mut bytes = Vec::new();
    until(shared, || shared.next_message(&mut bytes));
    let mut reader = longhaul_wire::MessageReader::new();
    reader.push(&bytes);
    reader.next_message().unwrap().unwrap()
}

/// The lane that received it has to take it once more, or the repair is a repetition for ever.
#[test]
fn a_damaged_group_whose_hash_comes_late_is_received_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (shared, sink, lane) = sink(&directory);
    let len = 100;
    tell(&shared, manifest(vec![file("a", len)]));
    let good = hash::group_chaining_value(&[7; 100], 0, true);
    at_work(&shared, &sink, || {
        assert_eq!(sent(&shared), SinkMessage::Accept { objects: 1 }.into());
        let begun = shared.begin_group(&first_byte(0)).unwrap();
        let Begun::Memory { buffer, len: whole } = begun else { panic!("it is needed") };
        let whole = WholeGroup { object: ObjectId(0), group: 0, len: whole, buffer };
        shared.on_news(News::Arrived(whole));
        let received = || shared.lock().incoming_copy().unwrap().stats().received_bytes;
        until(&shared, || received() >= len);
        let values = vec![good];
        tell(&shared, SourceMessage::Hashes { object: ObjectId(0), first_group: 0, values });
        assert_eq!(sent(&shared), SinkMessage::Repair { object: ObjectId(0), group: 0 }.into());
        let mut anew = Vec::new();
        lane.take_repairs(|repair| anew.push(repair));
        assert_eq!(anew, [Repair::ReceiveAgain(ObjectId(0), 0)]);
    });
}

#[test]
fn a_source_gets_memory_for_what_its_credit_covers() {
    let directory = tempfile::tempdir().unwrap();
    let (shared, sink, _lane) = sink(&directory);
    tell(&shared, manifest(vec![file("a", 300 << 20)]));
    at_work(&shared, &sink, || {
        assert_eq!(sent(&shared), SinkMessage::Accept { objects: 1 }.into());
        let promised = (shared.standing().credit >> 20) as u32;
        assert!(promised < 300);
        let free = shared.pool.free();
        let begin = |group| shared.begin_group(&first_byte(group));
        let taken: Vec<_> = (0..promised).map(|group| begin(group).unwrap()).collect();
        assert_eq!(begin(promised).map(drop), Err(Unplaceable::BeyondCredit));
        // It comes again on another lane.
        assert_eq!(begin(0).map(drop), Ok(()));
        assert_eq!(shared.pool.free(), free - taken.len());
    });
}

/// As on a full disk, where it says something else.
#[test]
#[should_panic(expected = "the sink says something else")]
fn an_assertion_that_fails_while_the_sink_works_ends_the_test() {
    let directory = tempfile::tempdir().unwrap();
    let (shared, sink, _lane) = sink(&directory);
    tell(&shared, manifest(vec![file("a", 100)]));
    at_work(&shared, &sink, || {
        let repair = SinkMessage::Repair { object: ObjectId(0), group: 0 };
        assert_eq!(sent(&shared), repair.into(), "the sink says something else");
    });
}

fn first_byte(group: u32) -> GroupPart {
    GroupPart { object: ObjectId(0), group, start: 0, len: 1 }
}
