//! Metadata of entries: only what was asked for, in bounded memory.

use longhaul_objects::limits::UNSETTLED_COST;
use longhaul_objects::testing::file;
use longhaul_objects::{EntryError, EntryId, Sink, SinkConfig, SinkError};
use longhaul_wire::{
    AccessEntry, AccessList, Account, Entry, EntryKind, KeptAttributes, Metadata, SourceMessage,
    Xattr,
};

fn with(metadata: Metadata, entry: Entry) -> Entry {
    let mut entry = entry;
    entry.attributes.metadata = metadata.boxed();
    entry
}

fn manifest(first_entry: u64, entries: Vec<Entry>) -> SourceMessage {
    SourceMessage::Manifest { first_entry, entries, objects: Vec::new() }
}

fn keeping(attributes: KeptAttributes) -> Sink {
    Sink::new(SinkConfig { attributes, ..SinkConfig::default() }, Default::default())
}

fn large_xattr(len: usize) -> Metadata {
    let xattr = Xattr { name: b"user.a"[..].into(), value: vec![7; len].into() };
    Metadata { xattrs: vec![xattr], ..Metadata::default() }
}

#[test]
fn attributes_that_were_not_asked_for_end_the_copy() {
    let owner = Some(Account { id: 0, name: Box::default() });
    let list = AccessList(vec![AccessEntry { tag: 1, permissions: 7, account: None }]);
    for metadata in [
        Metadata { owner: owner.clone(), ..Metadata::default() },
        Metadata { group: owner, ..Metadata::default() },
        Metadata { access: Some(list.clone()), ..Metadata::default() },
        large_xattr(1),
    ] {
        let message = || manifest(0, vec![with(metadata.clone(), file("a", 0))]);
        let error = SinkError::Entry { entry: EntryId(0), error: EntryError::NotKept };
        assert_eq!(keeping(KeptAttributes::MODES).handle(message()), Err(error));
        keeping(KeptAttributes::ALL).handle(message()).unwrap();
    }
    // Nor may files have lists of what is made in them, or links any.
    let link = Entry { kind: EntryKind::Link { target: b"x".to_vec() }, ..file("a", 0) };
    for (metadata, entry) in [
        (Metadata { default_access: Some(list.clone()), ..Metadata::default() }, file("a", 0)),
        (Metadata { access: Some(list), ..Metadata::default() }, link),
    ] {
        let error = keeping(KeptAttributes::ALL).handle(manifest(0, vec![with(metadata, entry)]));
        assert!(matches!(error, Err(SinkError::Entry { .. })), "{error:?}");
    }
}

#[test]
fn attributes_count_among_what_a_source_may_have_unsettled() {
    let mut sink = keeping(KeptAttributes::ALL);
    // A message holds a megabyte.
    let mut announced = 0;
    for number in 0.. {
        let named = |n: u64| file(&format!("{number} {n}"), 0);
        let entries = (0..16).map(|n| with(large_xattr(60_000), named(n))).collect();
        match sink.handle(manifest(number * 16, entries)) {
            Ok(()) => announced += 16 * 60_000,
            Err(error) => {
                assert_eq!(error, SinkError::TooMany);
                break;
            }
        }
    }
    assert!(announced > 0 && announced <= UNSETTLED_COST, "{announced}");
    // Directories are kept until the end, with the memory of names.
    let mut sink = keeping(KeptAttributes::ALL);
    let directory = |n: u64| Entry { kind: EntryKind::Directory, ..file(&n.to_string(), 0) };
    let mut left_out = 0;
    for number in 0..100 {
        let all = (0..16).map(|n| with(large_xattr(60_000), directory(number * 16 + n))).collect();
        sink.handle(manifest(number * 16, all)).unwrap();
        left_out = sink.stats().failed;
    }
    assert!(left_out > 0, "what there is no memory for is left out");
}
