//! Attributes beside modes and times: owners, access lists, extended attributes, set-id bits.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use longhaul::{CopyPaths, CopyReport, KeptAttributes, NameList};
use longhaul_needs::needs;
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};

use crate::server::{Server, each_way, pull, push, run};
use crate::test::{Test, limited};

pub(crate) const ACCESS: &str = "system.posix_acl_access";
pub(crate) const DEFAULT: &str = "system.posix_acl_default";

/// An access list by which a user more may read; `mask` bounds what users and groups may do.
pub(crate) fn access_list(user: u32, mask: u8) -> Vec<u8> {
    let entry = |tag: u8, permissions: u8, id: u32| {
        [&[tag, 0, permissions, 0][..], &id.to_le_bytes()].concat()
    };
    let (version, none) = ([2, 0, 0, 0], u32::MAX);
    let entries = [
        entry(1, 7, none),
        entry(2, 4, user),
        entry(4, 1, none),
        entry(16, mask, none),
        entry(32, 0, none),
    ];
    [&version[..], &entries.concat()].concat()
}

pub(crate) fn set(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// Extended attributes, access lists among them.
pub(crate) fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = vec![0; 1 << 16];
    let len = llistxattr(path, &mut names[..]).unwrap();
    let each = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut all: Vec<_> = each
        .map(|name| {
            let mut value = vec![0; 1 << 16];
            let len = lgetxattr(path, name, &mut value[..]).unwrap();
            (String::from_utf8(name.to_vec()).unwrap(), value[..len].to_vec())
        })
        .collect();
    all.sort();
    all
}

/// Owner, group and mode.
fn owners(path: &Path) -> (u32, u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A tree of all that is kept.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("sub")).unwrap();
    for (name, len) in [("small", 9), ("empty", 0), ("sub/in", 100), ("large", 3 << 20)] {
        fs::write(at.join(name), vec![7; len]).unwrap();
    }
    symlink("small", at.join("link")).unwrap();
    for (number, name) in ["small", "empty", "sub/in", "large", "link", "sub"].iter().enumerate() {
        lchown(at.join(name), Some(4_000_000 + number as u32), Some(5_000_000)).unwrap();
    }
    mode(&at.join("small"), 0o4755);
    mode(&at.join("empty"), 0o2711);
    mode(&at.join("large"), 0o400);
    mode(&at.join("sub"), 0o1777);
    set(&at.join("small"), "user.a", b"x");
    set(&at.join("large"), "user.b", &[7; 3_000]);
    set(&at.join("sub"), "user.c", b"");
    set(&at.join("small"), "trusted.t", b"only root sees it");
    // In front of a program that may serve low ports.
    set(&at.join("sub/in"), "security.capability", &CAPABILITY);
    set(&at.join("sub/in"), ACCESS, &access_list(4_000_001, 5));
    set(&at.join("sub"), DEFAULT, &access_list(4_000_001, 5));
}

/// `cap_net_bind_service=ep`.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const NAMES: [&str; 7] = ["", "small", "empty", "sub", "sub/in", "large", "link"];

/// Copies the tree to the server.
fn send(test: &Test, server: &Server, attributes: KeptAttributes) -> CopyReport {
    let mut options = push(&test.here("tree"), server.address, b"");
    options.attributes = attributes;
    run(test, &options).unwrap()
}

/// Owner, group, mode, second of modification, and attributes.
fn about(path: &Path) -> ((u32, u32, u32), i64, String) {
    (owners(path), fs::metadata(path).unwrap().mtime(), format!("{:?}", xattrs(path)))
}

#[needs(root)]
#[test]
fn the_directory_that_contents_go_into_gets_what_their_directory_has() {
    limited(|test| {
        let server = Server::with(test, |options| options.access[0].allow_owners = true);
        each_way(test, &server, |from, to, mut options| {
            tree(from);
            lchown(from, Some(4_000_009), Some(5_000_009)).unwrap();
            mode(from, 0o1750);
            set(from, "user.top", b"x");
            set(from, DEFAULT, &access_list(4_000_001, 5));
            let time = UNIX_EPOCH + Duration::from_secs(1_600_000_000);
            File::open(from).unwrap().set_modified(time).unwrap();
            (options.copy_contents, options.merge) = (true, true);
            options.destination_is_directory = true;
            match &mut options.paths {
                CopyPaths::Push { destination, .. } => {
                    *destination = to.file_name().unwrap().as_bytes().to_vec();
                }
                CopyPaths::Pull { destination, .. } => *destination = to.to_owned(),
            }
            // Without -a one that is made gets mode and time, one that was there its time.
            run(test, &options).unwrap();
            assert_eq!(about(to), ((0, 0, 0o750), 1_600_000_000, "[]".into()));
            mode(to, 0o711);
            run(test, &options).unwrap();
            let ((_, _, bits), at, _) = about(to);
            assert_eq!((bits, at), (0o711, 1_600_000_000));
            options.attributes = KeptAttributes::ALL;
            run(test, &options).unwrap();
            assert_eq!(about(to), about(from));
            assert_eq!(fs::read_dir(to).unwrap().count(), fs::read_dir(from).unwrap().count());
            // Of names of a list it stays.
            mode(to, 0o711);
            options.names.list = Some(Arc::new(NameList::new([b"small".to_vec()]).unwrap()));
            run(test, &options).unwrap();
            assert_eq!(owners(to), (4_000_009, 5_000_009, 0o711));
        });
    });
}

#[needs(root)]
#[test]
fn the_directory_that_is_served_stays_as_it_is() {
    limited(|test| {
        let server = Server::with(test, |options| options.access[0].allow_owners = true);
        fs::create_dir_all(test.here("tree")).unwrap();
        fs::write(test.here("tree/f"), "x").unwrap();
        lchown(test.here("tree"), Some(4_000_009), Some(5_000_009)).unwrap();
        mode(&test.here("tree"), 0o700);
        let before = owners(&test.path("there"));
        for path in [&b""[..], b"sub/.."] {
            fs::create_dir_all(test.there("sub")).unwrap();
            let mut options = push(&test.here("tree"), server.address, path);
            (options.copy_contents, options.attributes) = (true, KeptAttributes::ALL);
            run(test, &options).unwrap();
            assert_eq!(owners(&test.path("there")), before, "{path:?}");
            assert!(test.there("f").exists());
            fs::remove_file(test.there("f")).unwrap();
        }
    });
}

#[needs(root)]
#[test]
fn all_attributes_arrive_both_ways_and_are_mended_where_the_contents_are_there() {
    limited(|test| {
        let server = Server::with(test, |options| options.access[0].allow_owners = true);
        each_way(test, &server, |from, to, mut options| {
            tree(from);
            options.attributes = KeptAttributes::ALL;
            let compare = || {
                for name in NAMES {
                    let (from, to) = (from.join(name), to.join(name));
                    assert_eq!(owners(&from), owners(&to), "{name}");
                    assert_eq!(xattrs(&from), xattrs(&to), "{name}");
                }
            };
            let report = run(test, &options).unwrap();
            assert!(report.remarks.is_empty() && report.failures.is_empty(), "{report:?}");
            compare();
            // Nothing is sent again for them.
            set(&from.join("small"), "user.a", b"y");
            set(&to.join("large"), "user.more", b"goes");
            rustix::fs::lremovexattr(from.join("sub/in"), ACCESS).unwrap();
            mode(&from.join("sub/in"), 0o640);
            mode(&from.join("large"), 0o4400);
            lchown(from.join("link"), Some(7), Some(8)).unwrap();
            mode(&from.join("sub"), 0o2770);
            let report = run(test, &options).unwrap();
            assert!(report.failures.is_empty() && report.bytes == 0, "{report:?}");
            compare();
        });
    });
}

#[needs(root)]
#[test]
fn without_a_word_nothing_is_kept_and_what_is_lost_is_counted() {
    limited(|test| {
        let server = Server::with(test, |options| options.access[0].allow_owners = true);
        each_way(test, &server, |from, to, mut options| {
            tree(from);
            set(&from.join("empty"), "user.e", b"y");
            let all = "2 files or directories have an access list, 4 files or directories have \
                       extended attributes: -a keeps them";
            // Nobody looks at files that are unchanged and have something to read.
            let unchanged = "1 file or directory has an access list, 2 files or directories have extended \
                             attributes: -a keeps them";
            for expected in [all, unchanged] {
                for dry_run in [true, false] {
                    options.dry_run = dry_run;
                    let report = run(test, &options).unwrap();
                    assert_eq!(report.remarks, [expected], "{report:?}");
                }
            }
            options.records.unmissed = KeptAttributes::ACCESS_LISTS;
            let report = run(test, &options).unwrap();
            assert_eq!(
                report.remarks,
                ["2 files or directories have extended attributes: -a keeps them"]
            );
            options.records.unmissed = KeptAttributes::default();
            // One is hashed first, then sent: that is one.
            File::options().write(true).open(from.join("large")).unwrap().write_all(b"x").unwrap();
            options.checksum = true;
            let report = run(test, &options).unwrap();
            assert_eq!(report.remarks, [all]);
            for name in NAMES {
                assert_eq!(xattrs(&to.join(name)), []);
                assert_eq!(owners(&to.join(name)).0, 0);
            }
            assert_eq!(owners(&to.join("small")).2, 0o755);
        });
    });
}

#[needs(root)]
#[test]
fn a_server_that_does_not_allow_it_sets_no_owner_set_id_bit_or_capability() {
    limited(|test| {
        let server = Server::start(test);
        tree(&test.here("tree"));
        for _ in 0..2 {
            let report = send(test, &server, KeptAttributes::ALL);
            assert!(report.failures.is_empty(), "{report:?}");
            let [remark] = &report.remarks[..] else { panic!("{report:?}") };
            assert!(remark.contains("serve --allow-owners"), "{remark}");
            let to = test.there("tree");
            for (name, bits) in
                [("small", 0o755), ("empty", 0o711), ("large", 0o400), ("sub", 0o1777)]
            {
                assert_eq!(owners(&to.join(name)), (0, 0, bits), "{name}");
            }
            assert_eq!(xattrs(&to.join("small")), [("user.a".to_owned(), b"x".to_vec())]);
            let names: Vec<_> = xattrs(&to.join("sub/in")).into_iter().map(|it| it.0).collect();
            assert_eq!(names, [ACCESS], "no capability");
        }
        // Nor does it show them.
        tree(&test.there("shown"));
        let mut options = pull(server.address, b"shown", &test.path("here"));
        options.attributes = KeptAttributes::ALL;
        let report = run(test, &options).unwrap();
        assert!(report.failures.is_empty() && report.remarks.is_empty(), "{report:?}");
        assert_eq!(xattrs(&test.here("shown/small")), [("user.a".to_owned(), b"x".to_vec())]);
    });
}

#[needs(root)]
#[test]
fn parts_are_kept_alone() {
    limited(|test| {
        let server = Server::with(test, |options| options.access[0].allow_owners = true);
        let file = test.here("tree/f");
        fs::create_dir(test.here("tree")).unwrap();
        File::create(&file).unwrap();
        set(&file, "user.a", b"x");
        set(&file, ACCESS, &access_list(7, 4));
        chown(&file, Some(7), Some(8)).unwrap();
        let parts = [
            (KeptAttributes::OWNERS, (7, 0), &[][..]),
            (KeptAttributes::GROUPS, (0, 8), &[]),
            (KeptAttributes::XATTRS, (0, 0), &["user.a"]),
            (KeptAttributes::ACCESS_LISTS.with(KeptAttributes::MODES, true), (0, 0), &[ACCESS]),
        ];
        for (part, (user, group), names) in parts {
            let _ = fs::remove_dir_all(test.there("tree"));
            send(test, &server, part);
            let to = test.there("tree/f");
            let found: Vec<_> = xattrs(&to).into_iter().map(|it| it.0).collect();
            let metadata = fs::metadata(&to).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (user, group), "{part:?}");
            assert_eq!(found, names, "{part:?}");
        }
    });
}

/// More than a message of the protocol can hold of one entry.
#[needs(root)]
#[test]
fn attributes_of_more_than_64_kib_fail_their_file_alone() {
    limited(|test| {
        let server = Server::start(test);
        fs::create_dir(test.here("tree")).unwrap();
        for name in ["full", "other"] {
            fs::write(test.here("tree").join(name), name).unwrap();
        }
        let sizes = [40_000, 40_000];
        let full = test.here("tree/full");
        let is_held = sizes.iter().enumerate().all(|(number, size)| {
            let name = format!("user.{number}");
            lsetxattr(&full, name, &vec![7; *size], XattrFlags::empty()).is_ok()
        });
        let report = send(test, &server, KeptAttributes::XATTRS);
        assert_eq!(report.failures.count, u64::from(is_held), "{report:?}");
        assert_eq!(fs::read(test.there("tree/other")).unwrap(), b"other");
        if is_held {
            let words = report.failures.sample[0].to_string();
            assert!(words.contains("full") && words.contains("64 KiB"), "{words}");
        }
    });
}
