//! The destination directory itself, where contents go into it.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::chown;

use longhaul_objects::{Keeps, ResumeState};
use longhaul_wire::KeptAttributes;

use super::*;

/// As after a first copy of a directory to which its owner may not write.
#[test]
fn one_to_which_its_owner_may_not_write_is_copied_into_where_modes_are_kept() {
    let scratch = Scratch::new();
    let from = scratch.directory("from");
    scratch.file("from/f", "x");
    set_permissions(&from, Permissions::from_mode(0o555)).unwrap();
    let to = scratch.directory("to");
    set_permissions(&to, Permissions::from_mode(0o555)).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&to, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let options = |keeps_modes| SinkOptions {
        is_directory: true,
        is_name: false,
        contents: true,
        transfer: transfer_id(&[b"test"], b"", true),
        fsync: Fsync::End,
        direct: false,
        only_empty: false,
        goes_on: true,
        dry_run: false,
        stays: false,
        keeps_modes,
        keeps: Default::default(),
    };
    without_rights(|| {
        let opened = |keeps_modes| {
            let tree = SourceTree::local(&[from.join(".")], false);
            Copy::opened(tree, Destination::Local(&to), options(keeps_modes))
        };
        assert!(matches!(opened(false).err(), Some(DestinationError::Permission { .. })));
        let copy = opened(true).unwrap();
        let copy = Copy { to: copy.to.keeping(KeptAttributes::MODES, true), ..copy };
        copy.run();
        assert_eq!(copy.failures(), []);
    });
    let stat = std::fs::metadata(&to).unwrap();
    assert_eq!(stat.mode() & 0o7777, 0o555);
    assert_eq!(stat.mtime(), std::fs::metadata(&from).unwrap().mtime());
    assert_eq!(scratch.names("to"), ["f"]);
}

/// Below it likewise, where other directories and files are made, replaced and deleted.
#[test]
fn directories_below_it_to_which_their_owner_may_not_write_are_written_to_where_modes_are_kept() {
    let scratch = Scratch::new();
    for name in ["sub/changed", "sub/deep/new", "sub/same/f"] {
        scratch.file(&format!("from/tree/{name}"), "new");
    }
    scratch.file("to/tree/sub/changed", "");
    scratch.directory("to/tree/sub/same");
    std::fs::copy(scratch.at("from/tree/sub/same/f"), scratch.at("to/tree/sub/same/f")).unwrap();
    let time = std::fs::metadata(scratch.at("from/tree/sub/same/f")).unwrap().modified().unwrap();
    let same = std::fs::File::open(scratch.at("to/tree/sub/same/f")).unwrap();
    same.set_modified(time).unwrap();
    let mode = |name: &str, mode| {
        set_permissions(scratch.at(name), Permissions::from_mode(mode)).unwrap();
    };
    for name in ["from/tree/sub/same", "from/tree/sub/deep", "from/tree/sub"] {
        mode(name, 0o555);
    }
    for (name, bits) in [("to/tree/sub/same", 0o555), ("to/tree/sub", 0o455)] {
        mode(name, bits);
    }
    mode("to", 0o777);
    if rustix::process::geteuid().is_root() {
        for name in ["", "/tree", "/tree/sub", "/tree/sub/same", "/tree/sub/same/f"] {
            chown(scratch.at(&format!("to{name}")), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    without_rights(|| {
        for mended in [1, 0] {
            let tree = SourceTree::local(&[scratch.at("from/tree")], false);
            let copy = Copy::new(tree, &scratch.at("to"));
            let keeps = Keeps { unchanged: true, directories: true, ..Keeps::default() };
            let transfer = transfer_id(&[b"test"], b"", true);
            let config = SinkConfig { transfer, keeps, ..SinkConfig::default() };
            let sink = Mutex::new(Sink::new(config, ResumeState::default()));
            let copy = Copy { to: copy.to.keeping(KeptAttributes::MODES, true), sink, ..copy };
            copy.run();
            assert_eq!(copy.failures(), []);
            // One that has its mode again is as it was.
            assert_eq!(lock(&copy.source).stats().stayed.mended, mended);
        }
    });
    assert_eq!(std::fs::read(scratch.at("to/tree/sub/deep/new")).unwrap(), b"new");
    assert_eq!(std::fs::read(scratch.at("to/tree/sub/changed")).unwrap(), b"new");
    for name in ["sub", "sub/deep", "sub/same"] {
        let mode = std::fs::metadata(scratch.at(&format!("to/tree/{name}"))).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o555, "{name}");
    }
}
