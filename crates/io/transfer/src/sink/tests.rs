use longhaul_connection::Repair;
use longhaul_objects::testing::file;
use longhaul_objects::{Fsync, ResumeState};
use longhaul_units::ObjectId;
use longhaul_wire::{Entry, ManifestObject, SinkMessage};

use super::*;
use crate::files::{Destination, SinkOptions, SinkTree};

/// A sink of `entries` in a new directory, and the box of its only lane.
fn sink(directory: &tempfile::TempDir) -> (SinkDriver, Arc<Mailbox>) {
    let options = SinkOptions {
        is_directory: true,
        transfer: [1; 16],
        fsync: Fsync::End,
        direct: false,
        only_empty: false,
    };
    let place = Destination::Local(directory.path());
    let (tree, resume): (SinkTree, ResumeState) = SinkTree::open(place, &options).unwrap();
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let config = SinkConfig { transfer: [1; 16], ..SinkConfig::default() };
    (SinkDriver::new(tree, config, resume, true, vec![mailbox.clone()]), mailbox)
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

/// What it says next.
fn said(sink: &SinkDriver) -> SinkMessage {
    let mut bytes = Vec::new();
    while !sink.next_message(&mut bytes) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut reader = longhaul_wire::MessageReader::new();
    reader.push(&bytes);
    match reader.next_message().unwrap() {
        Some(longhaul_wire::Message::Sink(message)) => message,
        other => panic!("{other:?}"),
    }
}

/// The lane that received it has to take it once more, or the repair is a repetition for ever.
#[test]
fn a_damaged_group_whose_hash_comes_late_is_received_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (sink, lane) = sink(&directory);
    let len = 100;
    sink.handle(manifest(vec![file("a", len)])).unwrap();
    let good = hash::group_chaining_value(&[7; 100], 0, true);
    std::thread::scope(|scope| {
        scope.spawn(|| sink.work().unwrap());
        assert_eq!(said(&sink), SinkMessage::Accept { objects: 1 });
        let Begun { buffer, len: whole } = sink.begin_group(&first_byte(0)).unwrap();
        sink.on_group(WholeGroup { object: ObjectId(0), group: 0, len: whole, buffer });
        while sink.stats().received_bytes < len {
            std::thread::sleep(Duration::from_millis(1));
        }
        let values = vec![good];
        sink.handle(SourceMessage::Hashes { object: ObjectId(0), first_group: 0, values }).unwrap();
        assert_eq!(said(&sink), SinkMessage::Repair { object: ObjectId(0), group: 0 });
        let mut anew = Vec::new();
        lane.take_repairs(|repair| anew.push(repair));
        assert_eq!(anew, [Repair::ReceiveAnew(ObjectId(0), 0)]);
        sink.stop();
    });
}

#[test]
fn a_source_gets_memory_for_what_its_credit_covers() {
    let directory = tempfile::tempdir().unwrap();
    let (sink, _lane) = sink(&directory);
    sink.handle(manifest(vec![file("a", 100 << 20)])).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| sink.work().unwrap());
        assert_eq!(said(&sink), SinkMessage::Accept { objects: 1 });
        let promised = (sink.credit() >> 20) as u32;
        assert!(promised < 100);
        let free = sink.pool.free();
        let begin = |group| sink.begin_group(&first_byte(group));
        let taken: Vec<_> = (0..promised).map(|group| begin(group).unwrap()).collect();
        assert_eq!(begin(promised).map(drop), Err(Unplaceable::BeyondCredit));
        // It comes again on another lane.
        assert_eq!(begin(0).map(drop), Ok(()));
        assert_eq!(sink.pool.free(), free - taken.len());
        sink.stop();
    });
}

fn first_byte(group: u32) -> GroupPart {
    GroupPart { object: ObjectId(0), group, start: 0, len: 1 }
}
