use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;

use fuser::{Errno, INodeNo};
use longhaul_needs::needs;

use super::volume::Contents;
use super::*;

const ROOT: INodeNo = INodeNo::ROOT;
const OWNER: Owner = Owner { user: 1, group: 2, permissions: 0o640 };

fn volume() -> Volume {
    Volume::new(1000, OWNER)
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

fn file(volume: &mut Volume, folder: INodeNo, text: &str) -> INodeNo {
    volume.make(folder, name(text), Contents::File(Vec::new()), OWNER).unwrap().ino
}

fn folder(volume: &mut Volume, text: &str) -> INodeNo {
    volume.make(ROOT, name(text), Contents::Folder(Default::default()), OWNER).unwrap().ino
}

fn code(error: Errno) -> i32 {
    error.code()
}

#[test]
fn bytes_that_are_written_are_read() {
    let mut volume = volume();
    let file = file(&mut volume, ROOT, "a");
    volume.write(file, 3, b"here").unwrap();
    assert_eq!(volume.read(file, 0, 100).unwrap(), b"\0\0\0here");
    assert_eq!(volume.read(file, 5, 1).unwrap(), b"r");
    assert_eq!(volume.read(file, 50, 1).unwrap(), b"");
    volume.resize(file, 4).unwrap();
    assert_eq!(volume.read(file, 0, 100).unwrap(), b"\0\0\0h");
    assert_eq!(volume.attr(file).unwrap().size, 4);
}

#[test]
fn a_full_disk_says_so_and_room_comes_back() {
    let mut volume = volume();
    let a = file(&mut volume, ROOT, "a");
    volume.write(a, 0, &[1; 900]).unwrap();
    let b = file(&mut volume, ROOT, "b");
    let full = volume.write(b, 0, &[2; 101]).unwrap_err();
    assert_eq!(code(full), code(Errno::ENOSPC));
    assert_eq!(volume.attr(b).unwrap().size, 0, "nothing of it is written");
    volume.write(b, 0, &[2; 100]).unwrap();
    assert_eq!(volume.room().1, 0);
    volume.remove(ROOT, name("a"), false).unwrap();
    assert_eq!(volume.room().1, 0, "somebody may have it open");
    assert_eq!(volume.read(a, 0, 1).unwrap(), [1]);
    volume.forget(a, 1);
    assert_eq!(volume.room().1, 900);
    assert_eq!(code(volume.attr(a).unwrap_err()), code(Errno::ENOENT));
    assert_eq!(code(volume.write(b, u64::MAX, &[1]).unwrap_err()), code(Errno::EFBIG));
}

#[test]
fn names_move_and_are_replaced() {
    let mut volume = volume();
    let (a, b) = (file(&mut volume, ROOT, "a"), file(&mut volume, ROOT, "b"));
    let inner = folder(&mut volume, "inner");
    let refused = volume.rename((ROOT, name("a")), (ROOT, name("b")), false).unwrap_err();
    assert_eq!(code(refused), code(Errno::EEXIST));
    volume.rename((ROOT, name("a")), (inner, name("b")), false).unwrap();
    volume.rename((inner, name("b")), (ROOT, name("b")), true).unwrap();
    assert_eq!(volume.look_up(ROOT, name("b")).unwrap().ino, a);
    assert_eq!(volume.attr(b).unwrap().nlink, 0);
    let names: Vec<_> = volume.list(ROOT).unwrap().into_iter().map(|(_, _, name)| name).collect();
    assert_eq!(names, ["b", "inner"]);
    volume.rename((ROOT, name("b")), (ROOT, name("b")), true).unwrap();
    assert_eq!(volume.look_up(ROOT, name("b")).unwrap().ino, a, "onto itself");
    let refused = volume.rename((ROOT, name("inner")), (ROOT, name("b")), true).unwrap_err();
    assert_eq!(code(refused), code(Errno::ENOTDIR));
}

#[test]
fn folders_go_when_they_are_empty() {
    let mut volume = volume();
    let inner = folder(&mut volume, "inner");
    let a = file(&mut volume, inner, "a");
    volume.link(a, ROOT, name("too")).unwrap();
    assert_eq!(code(volume.remove(ROOT, name("inner"), false).unwrap_err()), code(Errno::EISDIR));
    let full = volume.remove(ROOT, name("inner"), true).unwrap_err();
    assert_eq!(code(full), code(Errno::ENOTEMPTY));
    assert_eq!(code(volume.remove(inner, name("a"), true).unwrap_err()), code(Errno::ENOTDIR));
    volume.remove(inner, name("a"), false).unwrap();
    volume.remove(ROOT, name("inner"), true).unwrap();
    assert_eq!(volume.attr(a).unwrap().nlink, 1, "it has another name");
    let gone = volume.look_up(ROOT, name("inner")).unwrap_err();
    assert_eq!(code(gone), code(Errno::ENOENT));
}

#[test]
fn disks_are_read_from_words() {
    let spec: DiskSpec =
        "folder=/mnt/slow,rate=400Mbps,size=1GiB,from=2s,length=500ms".parse().unwrap();
    assert_eq!(spec.folder, PathBuf::from("/mnt/slow"));
    assert_eq!((spec.rate, spec.size), (Rate::from_mbps(400), Some(Bytes::from_mib(1024))));
    let half = Duration::from_millis(500);
    assert_eq!((spec.from, spec.length), (Some(Duration::from_secs(2)), Some(half)));
    for (wrong, part) in [
        ("folder=/mnt", "needs rate="),
        ("rate=1Gbps", "needs folder="),
        ("folder=/mnt,rate=0bps", "never"),
        ("folder=/mnt,rate=fast", "rate=fast"),
        ("folder=/mnt,rate=1Gbps,from=-1s", "from=-1s: expected a time"),
        ("folder=/mnt,rate=1Gbps,colour=red", "known are folder"),
        ("slow", "a key and a value"),
    ] {
        let error = wrong.parse::<DiskSpec>().unwrap_err().to_string();
        assert!(error.contains(part), "{wrong}: {error}");
    }
}

/// A disk in a folder of its own.
fn mounted(size: u64) -> (tempfile::TempDir, SlowDisk) {
    let folder = tempfile::tempdir().unwrap();
    let spec = DiskSpec {
        folder: folder.path().to_owned(),
        rate: Rate::from_gbps(8),
        size: Some(Bytes::new(size)),
        from: None,
        length: None,
    };
    let disk = SlowDisk::mount(&spec).unwrap();
    (folder, disk)
}

#[needs(fuse)]
#[test]
fn programs_use_it_as_any_other() {
    let (folder, disk) = mounted(10 << 20);
    disk.begin();
    let place = |name: &str| folder.path().join(name);
    let data: Vec<u8> = (0..3 << 20).map(|index: u32| (index / 7) as u8).collect();
    fs::create_dir(place("inner")).unwrap();
    fs::write(place("inner/a"), &data).unwrap();
    fs::set_permissions(place("inner/a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(place("inner/a"), place("b")).unwrap();
    std::os::unix::fs::symlink("b", place("link")).unwrap();
    let mut opened = fs::File::open(place("link")).unwrap();
    fs::remove_file(place("b")).unwrap();
    let mut read = Vec::new();
    opened.read_to_end(&mut read).unwrap();
    assert_eq!(read, data, "what is open stays");
    drop(opened);
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["inner", "link"]);
    let mut full = fs::File::create(place("full")).unwrap();
    let error = full.write_all(&vec![1; 11 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    drop(full);
    let report = disk.end().unwrap();
    assert!(report.passed.get() >= 6 << 20, "{report:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it is gone");
}

#[test]
fn a_folder_that_is_not_empty_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine"), "kept").unwrap();
    let mut spec: DiskSpec = "folder=/does/not/exist,rate=1Gbps".parse().unwrap();
    let error = SlowDisk::mount(&spec).unwrap_err().to_string();
    assert!(error.contains("/does/not/exist"), "{error}");
    spec.folder = folder.path().to_owned();
    let error = SlowDisk::mount(&spec).unwrap_err().to_string();
    assert!(error.contains("has to be empty"), "{error}");
    assert_eq!(fs::read_to_string(folder.path().join("mine")).unwrap(), "kept");
}
