//! Attributes that a copy does not keep are counted.

use std::fs::create_dir_all;
use std::sync::Arc;

use longhaul_objects::NameList;
use longhaul_units::RangeSet;
use longhaul_wire::KeptAttributes;
use rustix::fs::{XattrFlags, lsetxattr};

use super::*;
use crate::metadata::access::DEFAULT;
use crate::tests::inherited::default_list;

fn set(path: &Path, name: &[u8], value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// Two directories, an empty file and one with contents, which have all that can be missed.
fn tree(scratch: &Scratch) -> PathBuf {
    let from = scratch.directory("from");
    create_dir_all(from.join("sub")).unwrap();
    scratch.file("from/sub/empty", "");
    scratch.file("from/sub/full", "x");
    for name in ["sub", "sub/empty", "sub/full"] {
        set(&from.join(name), b"user.a", b"a");
    }
    set(&from.join("sub"), DEFAULT, &default_list());
    from
}

/// Numbers all entries, and gives those that are to be read.
fn scan(tree: &SourceTree) -> Source {
    let mut source = Source::default();
    let mut scan = tree.scan();
    while let Some(Scanned::Entry(entry)) = scan.next() {
        scan.number(source.push_entry(entry).unwrap().unwrap());
    }
    source.finish_entries();
    source
}

#[test]
fn what_is_missed_is_counted_once_where_files_are_read_or_have_nothing_to_read() {
    let scratch = Scratch::new();
    let from = tree(&scratch);
    let copy = Copy::new(SourceTree::local(std::slice::from_ref(&from), false), &scratch.at("to"));
    assert_eq!(copy.tree.missed_attributes(&RangeSet::new()), (1, 2), "nothing is read yet");
    while copy.exchange() | copy.act() {}
    let credit = lock(&copy.sink).credit();
    let task = lock(&copy.source).next_group(credit).unwrap();
    for _ in 0..2 {
        assert_eq!(copy.tree.read_group(&task, &mut [0; 1 << 10]), []);
        assert_eq!(copy.tree.missed_attributes(&RangeSet::new()), (1, 3));
    }

    let kept = |bits| {
        let tree = SourceTree::local(std::slice::from_ref(&from), false).keeping(bits, true);
        scan(&tree);
        tree.missed_attributes(&RangeSet::new())
    };
    assert_eq!(kept(KeptAttributes::XATTRS), (1, 0));
    assert_eq!(kept(KeptAttributes::ACCESS_LISTS), (0, 2));
    assert_eq!(kept(KeptAttributes::ALL), (0, 0));

    // A single file, and names of a list with the directories above them.
    let alone = SourceTree::local(&[from.join("sub/empty")], false);
    scan(&alone);
    assert_eq!(alone.missed_attributes(&RangeSet::new()), (0, 1));
    let listed = SourceTree::local(&[from], true);
    listed.list_names(Arc::new(NameList::new([b"sub/empty".to_vec()]).unwrap()));
    scan(&listed);
    assert_eq!(listed.missed_attributes(&RangeSet::new()), (1, 2));
}

#[test]
fn in_a_dry_run_what_would_be_read_counts_as_read() {
    let scratch = Scratch::new();
    let tree = SourceTree::local(&[tree(&scratch)], false).dry_run(true);
    scan(&tree);
    let mut would_change = RangeSet::new();
    assert_eq!(tree.missed_attributes(&would_change), (1, 2));
    would_change.insert(0..9);
    assert_eq!(tree.missed_attributes(&would_change), (1, 3));
}

/// One that estimates the size of a copy sees entries that are not announced.
#[test]
fn a_scan_that_only_looks_counts_nothing() {
    let scratch = Scratch::new();
    let tree = SourceTree::local(&[tree(&scratch)], false);
    let mut scan = tree.scan();
    while let Some(Scanned::Entry(_)) = scan.next() {
        scan.pass();
    }
    assert_eq!(tree.missed_attributes(&RangeSet::new()), (0, 0));
}
