//! Files and trees to copy, and what must hold for a destination.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_objects::Fsync;
use longhaul_objects::record::replay;

/// Bytes that no repetition can hide errors in.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Some of everything.
pub fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::write(root.join("big"), noise(1, 9_000_001)).unwrap();
    fs::write(root.join("a/nothing"), b"").unwrap();
    for i in 0..200 {
        fs::write(root.join(format!("a/b/f{i}")), noise(i, 37 * i as usize)).unwrap();
    }
    std::os::unix::fs::symlink("b/f3", root.join("a/link")).unwrap();
}

/// Names in a directory, sorted.
pub fn names(root: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Both trees hold the same names, kinds, bytes and times.
pub fn assert_same(a: &Path, b: &Path) {
    let (ma, mb) = (fs::symlink_metadata(a).unwrap(), fs::symlink_metadata(b).unwrap());
    assert_eq!(ma.file_type(), mb.file_type(), "{}", b.display());
    if ma.is_dir() {
        assert_eq!(names(a), names(b), "{} and {}", a.display(), b.display());
        for name in names(a) {
            assert_same(&a.join(&name), &b.join(&name));
        }
    } else if ma.is_symlink() {
        assert_eq!(fs::read_link(a).unwrap(), fs::read_link(b).unwrap());
    } else {
        assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{} differs", b.display());
        assert_eq!(ma.modified().unwrap(), mb.modified().unwrap(), "{}", b.display());
    }
}

/// Every entry in `copy` under a final name is whole: it is as in `source`. Some may be missing.
pub fn assert_nothing_half_done(source: &Path, copy: &Path) {
    let Ok(metadata) = fs::symlink_metadata(copy) else { return };
    if metadata.is_dir() {
        for name in names(copy).into_iter().filter(|name| !is_hidden(name)) {
            assert_nothing_half_done(&source.join(&name), &copy.join(&name));
        }
    } else {
        assert_same(source, copy);
    }
}

/// True if this is the hidden directory of a copy under way.
pub fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".longhaul-")
}

/// Groups of the only file, whose contents are `data`, that lie whole below `root` unpublished.
pub fn whole_groups(root: &Path, data: &[u8]) -> usize {
    let hidden = fs::read_dir(root).unwrap().flatten().find(|entry| is_hidden(&entry.file_name()));
    let files = fs::read_dir(hidden.unwrap().path()).unwrap().flatten();
    let file = files.map(|entry| entry.path()).find(|path| !path.ends_with("record")).unwrap();
    let kept = fs::read(file).unwrap();
    kept.chunks(1 << 20).zip(data.chunks(1 << 20)).filter(|(kept, sent)| kept == sent).count()
}

/// Groups that the resume record of the only copy under way to below `root` says are durable. One that is
/// whole may be none of them: its hash was under way.
pub fn recorded_groups(root: &Path) -> usize {
    let hidden = fs::read_dir(root).unwrap().flatten().find(|entry| is_hidden(&entry.file_name()));
    let record = fs::read(hidden.unwrap().path().join("record")).unwrap();
    let transfer = record[8..24].try_into().unwrap();
    replay(&record, &transfer, Fsync::End).groups()
}

/// Bytes in the resume record of the only copy under way to below `root`, if there is one.
pub fn record_len(root: &Path) -> Option<u64> {
    let hidden = fs::read_dir(root).ok()?.flatten().find(|entry| is_hidden(&entry.file_name()))?;
    fs::metadata(hidden.path().join("record")).ok().map(|metadata| metadata.len())
}
