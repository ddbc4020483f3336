//! Faults at either side.

use std::fs::Permissions;
use std::os::unix::fs::symlink;
use std::process::Command;

use longhaul_needs::needs;
use longhaul_objects::EntryId;

use super::*;

#[test]
fn unreadable_files_are_reported_and_the_rest_is_copied() {
    let scratch = Scratch::new();
    scratch.file("from/good", "good");
    scratch.file("from/secret", "secret");
    scratch.file("from/closed/in", "in");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        scratch.at("from/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for path in ["from/secret", "from/closed"] {
        std::fs::set_permissions(scratch.at(path), Permissions::from_mode(0o0)).unwrap();
    }
    without_rights(|| {
        let copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &scratch.at("to"));
        copy.run();
        let mut failures = copy.failures();
        failures.sort();
        let expected = [
            ("from/closed", "no permission to read it on this host"),
            ("from/secret", "no permission to read it on this host"),
        ];
        let expected = expected.map(|(path, reason)| (path.to_string(), reason.to_string()));
        assert_eq!(failures, expected);
        assert_eq!(copy.codes(), [EntryCode::Permission; 2]);
        assert_eq!(copy.confirmed(), 2);
        let source = lock(&copy.source);
        let [skipped] = source.skipped() else { panic!("{:?}", source.skipped()) };
        assert_eq!(skipped.path.as_bytes(), b"from/fifo");
        let reason = "it is a FIFO, which is not copied";
        assert_eq!(skipped.end, EntryEnd::new(EntryCode::Skipped, reason));
    });
    assert_eq!(scratch.names("to"), ["good"]);
    std::fs::set_permissions(scratch.at("from/closed"), Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn contents_that_the_size_does_not_tell_are_not_lost_silently() {
    let scratch = Scratch::new();
    scratch.file("from/empty", "");
    let shared = PathBuf::from(format!("/dev/shm/longhaul-empty-{}", std::process::id()));
    let made_up =
        ["/proc/cpuinfo", "/proc/sys/kernel/random", "/proc/self/mem", "/proc/self/pagemap"];
    let mut sources = vec![scratch.at("from")];
    sources.extend(made_up.map(PathBuf::from));
    sources.push(shared.clone());
    // In memory, as /proc: no device tells its size.
    let in_memory = std::fs::write(&shared, "").is_ok();
    let count = if in_memory { sources.len() } else { sources.len() - 1 };
    let (tree, to) = (SourceTree::local(&sources[..count], false), scratch.at("to"));
    let copy = Copy::with(tree, Destination::Local(&to), true).unwrap();
    copy.run();
    if in_memory {
        std::fs::remove_file(&shared).unwrap();
    }
    let failures = copy.failures();
    for (path, why) in [
        ("cpuinfo", "it reports size 0"),
        ("random/boot_id", "it reports size 0"),
        ("mem", "cannot be read"),
        ("pagemap", "cannot be read"),
    ] {
        let failed = failures.iter().find(|(failed, _)| failed == path);
        assert!(failed.is_some_and(|(_, reason)| reason.contains(why)), "{path}: {failures:?}");
        assert!(!to.join(path).exists());
    }
    assert!(failures.iter().all(|(path, _)| !path.contains("empty")), "{failures:?}");
    assert!(to.join("from/empty").exists());
    if in_memory {
        assert!(to.join(shared.file_name().unwrap()).exists());
    }
}

#[test]
fn a_destination_without_room_is_explained() {
    let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
    for (error, expected) in [
        (
            crate::sink::StorageError::Record(full()),
            "cannot write the resume record: no space left at the destination, make room there",
        ),
        (
            crate::sink::StorageError::Sync(full()),
            "cannot make durable what was written: no space left at the destination, make room there",
        ),
    ] {
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn files_that_change_after_the_scan_are_not_published() {
    let scratch = Scratch::new();
    for name in ["gone", "shrunk", "grown", "replaced", "rewritten", "kept"] {
        scratch.file(&format!("from/{name}"), bytes(5000, 1));
    }
    scratch.file("from/large", bytes(4 << 20, 1));
    let copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &scratch.at("to"));
    std::fs::remove_file(scratch.at("from/gone")).unwrap();
    scratch.file("from/shrunk", bytes(4000, 1));
    scratch.file("from/grown", bytes(6000, 1));
    scratch.file("other", bytes(5000, 2));
    std::fs::rename(scratch.at("other"), scratch.at("from/replaced")).unwrap();
    scratch.file("from/rewritten", bytes(5000, 2));
    std::fs::File::options()
        .write(true)
        .open(scratch.at("from/rewritten"))
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    std::fs::remove_file(scratch.at("from/large")).unwrap();
    copy.run();
    let mut failures = copy.failures();
    failures.sort();
    let expected = [
        ("from/gone", "it is no longer there on this host"),
        ("from/grown", "it grew from 5000 to 6000 bytes while it was copied on this host"),
        ("from/large", "it is no longer there on this host"),
        ("from/replaced", "it changed while it was copied on this host"),
        ("from/rewritten", "it changed while it was copied on this host"),
        ("from/shrunk", "it shrank from 5000 to 4000 bytes while it was copied on this host"),
    ];
    assert_eq!(failures, expected.map(|(path, reason)| (path.into(), reason.into())));
    assert_eq!(copy.codes(), [EntryCode::Changed; 6]);
    assert_eq!(scratch.names("to"), ["kept"]);
}

#[test]
fn a_large_file_that_changes_between_its_groups_is_found_out() {
    let scratch = Scratch::new();
    let from = scratch.file("from", bytes(3 << 20, 1));
    let tree = SourceTree::local(std::slice::from_ref(&from), false);
    let Some(Scanned::Entry(entry)) = tree.scan().next() else {
        panic!("no entry");
    };
    let size = entry.size;
    let entry = std::sync::Arc::new(entry);
    let task = |group: u32| longhaul_objects::GroupTask {
        object: longhaul_units::ObjectId(0),
        group,
        offset: u64::from(group) << 20,
        len: 1 << 20,
        only: false,
        repair: false,
        compare: None,
        pieces: vec![longhaul_objects::ReadPiece {
            id: EntryId(0),
            entry: entry.clone(),
            file_offset: u64::from(group) << 20,
            group_offset: 0,
            len: 1 << 20,
        }],
    };
    let mut buffer = vec![7; 1 << 20];
    assert_eq!(tree.read_group(&task(0), &mut buffer), []);
    assert!(buffer == bytes(3 << 20, 1)[..1 << 20]);
    let file = std::fs::File::options().write(true).open(&from).unwrap();
    file.set_len(size - 5).unwrap();
    assert_eq!(tree.read_group(&task(1), &mut buffer).len(), 1);
    assert!(buffer.iter().all(|byte| *byte == 0));
    // Nothing remembers the failed file; what has its name is looked at again.
    std::fs::remove_file(&from).unwrap();
    assert_eq!(tree.read_group(&task(2), &mut buffer).len(), 1);
}

#[needs(root)]
#[test]
fn a_destination_without_permission_is_reported() {
    let scratch = Scratch::new();
    scratch.file("from", "from");
    let to = scratch.directory("to");
    scratch.directory("to/sub");
    std::fs::set_permissions(&to, Permissions::from_mode(0o555)).unwrap();
    without_rights(|| {
        let tree = SourceTree::local(&[scratch.at("from")], false);
        let result = Copy::with(tree, Destination::Local(&to), false);
        assert!(matches!(result.err(), Some(DestinationError::Permission { .. })));
    });
    // One that may be written to and not listed is not called one that may not be written to.
    std::fs::set_permissions(&to, Permissions::from_mode(0o333)).unwrap();
    without_rights(|| {
        let tree = SourceTree::local(&[scratch.at("from")], false);
        let error = Copy::with(tree, Destination::Local(&to), false).err().unwrap().to_string();
        assert!(error.contains("cannot open it: no permission; a copy lists"), "{error}");
    });
    // A directory below that nothing may be put in concerns what goes there only.
    scratch.file("tree/a", "a");
    scratch.file("tree/closed/b", "b");
    scratch.directory("open");
    std::fs::set_permissions(scratch.at("open"), Permissions::from_mode(0o777)).unwrap();
    scratch.directory("open/tree/closed");
    std::fs::set_permissions(scratch.at("open/tree"), Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(scratch.at("open/tree/closed"), Permissions::from_mode(0o555))
        .unwrap();
    without_rights(|| {
        let tree = SourceTree::local(&[scratch.at("tree")], false);
        let copy = Copy::new(tree, &scratch.at("open"));
        copy.run();
        let failures = copy.failures();
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].1.contains("no permission"), "{failures:?}");
    });
    assert_eq!(scratch.read("open/tree/a"), "a");
}

#[needs(mounts)]
#[test]
fn a_full_disk_is_reported_and_making_room_helps() {
    let scratch = Scratch::new();
    let disk = Mounted::new(&scratch, "disk", "size=4m");
    for number in 0..40 {
        scratch.file(&format!("from/small/f{number}"), bytes(50_000, number));
    }
    scratch.file("from/huge", bytes(20 << 20, 1));
    scratch.file("from/large", bytes(3 << 20, 1));
    let copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &disk.path);
    copy.run();
    let failures = copy.failures();
    assert!(failures.iter().any(|(path, _)| path == "from/huge"), "{failures:?}");
    for (path, reason) in &failures {
        assert!(reason.contains("no space left"), "{path}: {reason}");
    }
    drop(copy);
    // What did get its name is whole.
    let mut whole = 0;
    for (path, about) in snapshot(&disk.path.join("from")) {
        let path = scratch.at("from").join(std::ffi::OsStr::from_bytes(&path));
        if path.is_file() {
            assert!(std::fs::read(&path).unwrap() == about.3, "{path:?}");
            whole += 1;
        }
    }
    assert_eq!(whole + failures.len(), 42);
    assert!(whole > 0);
    disk.remount("size=60m");
    let copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &disk.path);
    copy.run();
    assert_eq!(copy.failures(), []);
    drop(copy);
    assert_eq!(snapshot(&scratch.at("from")), snapshot(&disk.path.join("from")));
    assert_eq!(scratch.names("disk"), ["from"]);
}

#[needs(mounts)]
#[test]
fn where_no_inodes_are_left_the_reason_names_them() {
    let scratch = Scratch::new();
    let disk = Mounted::new(&scratch, "disk", "size=32m,nr_inodes=20");
    // Small files, empty ones, links and directories, and one that is large.
    for number in 0..10 {
        scratch.file(&format!("from/small{number}"), "small");
        scratch.file(&format!("from/empty{number}"), "");
        scratch.file(&format!("from/in{number}/large"), bytes(2 << 20, number));
        symlink("nowhere", scratch.at(&format!("from/link{number}"))).unwrap();
    }
    scratch.directory("disk/from");
    let copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &disk.path);
    copy.run();
    let failures = copy.failures();
    let full = failures.iter().filter(|(_, reason)| !reason.contains("its directory is not"));
    let full: Vec<_> = full.collect();
    assert!(full.len() > 10, "{failures:?}");
    for (path, reason) in full {
        assert!(reason.contains("no inodes (places for files) left"), "{path}: {reason}");
        assert!(reason.contains("make room and run"), "{path}: {reason}");
    }
}

#[needs(mounts)]
#[test]
fn a_disk_is_not_filled_to_the_last_byte() {
    let scratch = Scratch::new();
    let disk = Mounted::new(&scratch, "disk", "size=32m");
    let _below = Mounted::new(&scratch, "disk/from/below", "size=4m");
    // Each would just fit if nothing were left to others.
    scratch.file("from/huge", bytes(31 << 20, 1));
    scratch.file("from/below/large", bytes(31 << 17, 1));
    scratch.file("from/good", "good");
    let copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &disk.path);
    copy.run();
    let mut failures = copy.failures();
    failures.sort();
    assert_eq!(failures.len(), 2, "{failures:?}");
    for ((path, reason), expected) in
        failures.iter().zip([("from/below/large", "262 kB"), ("from/huge", "2.10 MB")])
    {
        assert_eq!(path, expected.0);
        assert!(reason.contains("no space left at the destination"), "{reason}");
        assert!(reason.contains(&format!("{} are left to others", expected.1)), "{reason}");
    }
    assert_eq!(scratch.read("disk/from/good"), "good");
    drop(copy);
    scratch.file("disk/another's", bytes(20 << 20, 2));

    // Nor by many that are small, beside one that has been promised what it has not taken yet.
    std::fs::remove_file(scratch.at("disk/another's")).unwrap();
    std::fs::remove_file(scratch.at("from/huge")).unwrap();
    std::fs::remove_file(scratch.at("from/below/large")).unwrap();
    scratch.file("from/large", bytes(16 << 20, 1));
    for number in 0..320 {
        scratch.file(&format!("from/small/{number}"), bytes(50_000, number));
    }
    let copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &disk.path);
    copy.run();
    let failures = copy.failures();
    assert!(!failures.is_empty());
    for (path, reason) in &failures {
        assert!(reason.contains("2.10 MB are left to others"), "{path}: {reason}");
    }
    scratch.file("disk/another's", bytes(1 << 20, 2));
}

#[test]
fn a_read_only_file_system_is_reported() {
    let scratch = Scratch::new();
    let disk = Mounted::new(&scratch, "disk", "ro");
    scratch.file("from", "from");
    let tree = SourceTree::local(&[scratch.at("from")], false);
    let result = Copy::with(tree, Destination::Local(&disk.path), false);
    assert!(matches!(result.err(), Some(DestinationError::ReadOnly { .. })));
}

#[needs(mounts)]
#[test]
fn a_mount_below_the_destination_gets_its_files() {
    let scratch = Scratch::new();
    let _disk = Mounted::new(&scratch, "to/from/disk", "size=8m");
    scratch.file("from/disk/a", bytes(70_000, 1));
    scratch.file("from/disk/large", bytes(2 << 20, 1));
    scratch.file("from/disk/empty", "");
    std::os::unix::fs::symlink("a", scratch.at("from/disk/link")).unwrap();
    scratch.file("from/b", "b");
    copy(&scratch.at("from"), &scratch.at("to"));
    let (from, to) = (snapshot(&scratch.at("from/disk")), snapshot(&scratch.at("to/from/disk")));
    for (path, about) in from {
        let copied = &to[&path];
        assert_eq!((about.1, about.2, about.3), (copied.1, copied.2, copied.3.clone()));
    }
    assert_eq!(scratch.names("to/from/disk"), ["a", "empty", "large", "link"]);
}

/// A file system in memory, mounted in a scratch directory.
struct Mounted {
    path: PathBuf,
}

impl Mounted {
    fn new(scratch: &Scratch, path: &str, options: &str) -> Self {
        let path = scratch.directory(path);
        let mut mount = Command::new("mount");
        let done = mount.args(["-t", "tmpfs", "-o", options, "longhaul-test"]).arg(&path).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{done:?}");
        Self { path }
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let status = Command::new("mount").args(["-o", &options]).arg(&self.path).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

#[test]
fn an_unpublished_file_that_somebody_removed_is_named_and_nothing_stays() {
    let scratch = Scratch::new();
    scratch.file("large", bytes(4 << 20, 1));
    scratch.directory("to");
    let tree = SourceTree::local(&[scratch.at("large")], false);
    let copy = Copy::with(tree, Destination::Local(&scratch.at("to")), true).unwrap();
    let hidden = scratch.names("to").pop().unwrap();
    let hidden = Path::new("to").join(hidden);
    let names = || scratch.names(hidden.to_str().unwrap());
    copy.run_until(|_| names().len() > 1);
    let unpublished = names().into_iter().find(|name| name != "record").unwrap();
    for name in names() {
        std::fs::remove_file(scratch.at("").join(&hidden).join(name)).unwrap();
    }
    copy.run();
    let failures = copy.failures();
    let [(path, reason)] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!(path, "large");
    let gone = format!("{unpublished} was removed from the destination");
    assert!(reason.contains(&gone), "{reason}");
    drop(copy);
    assert_eq!(scratch.names("to"), [""; 0]);
}

/// As those of `/sys`, which have a page whatever is in it.
#[test]
fn a_file_that_ends_before_its_size_is_not_reported_as_changed() {
    let scratch = Scratch::new();
    let source = PathBuf::from("/sys/kernel/fscaps");
    let size = std::fs::metadata(&source).unwrap().len();
    let copy = Copy::new(SourceTree::local(&[source], false), &scratch.at("to"));
    copy.run();
    let failures = copy.failures();
    let expected = format!("it reports {size} bytes but ends after");
    assert!(failures.len() == 1 && failures[0].1.contains(&expected), "{failures:?}");
}
