//! The destination directory itself, where contents go into it.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::chown;

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
