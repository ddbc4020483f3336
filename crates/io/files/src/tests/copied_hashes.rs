//! Hashes of what was copied.

use std::fs::File;
use std::io;

use longhaul_objects::testing::file;
use longhaul_sys::stop::Stop;
use longhaul_wire::{Entry, HardLink, Metadata};

use super::*;
use crate::b3sum::line as hash_line;
use crate::copied_hashes::{Again, CopiedHashes, UnfinishedList};

/// Notes the groups of an object that holds `entry` from `start` on; all but those in `left_out`.
fn note(hashes: &CopiedHashes, entry: &Entry, start: usize, left_out: &[u32]) {
    let data = [vec![0; start], bytes(entry.size as usize, 1)].concat();
    let groups = data.chunks(1 << 20).enumerate();
    // The last first.
    for (number, group) in groups.collect::<Vec<_>>().into_iter().rev() {
        let (number, at) = (number as u32, number << 20);
        let from = start.saturating_sub(at).min(group.len());
        if left_out.contains(&number) || from == group.len() {
            continue;
        }
        let offset = (at + from - start) as u64;
        let value = group_chaining_value(group, number, data.len() <= 1 << 20);
        hashes.note_group(
            [(entry, offset, &group[from..])].into_iter(),
            number,
            value,
            Again::Other,
        );
    }
}

fn written(hashes: &CopiedHashes, open: impl Fn() -> io::Result<Option<File>>) -> String {
    let mut out = Vec::new();
    hashes.write(&mut out, None, |_, _| open(), &Stop::default()).unwrap();
    String::from_utf8(out).unwrap()
}

fn line(entry: &Entry) -> String {
    let hash = blake3::hash(&bytes(entry.size as usize, 1));
    String::from_utf8(hash_line(hash.as_bytes(), entry.path.as_bytes())).unwrap()
}

#[test]
fn what_was_in_memory_is_not_read_again() {
    let hashes = CopiedHashes::default();
    let entries = [
        file("a", 5_000_001),
        file("b", 300),
        file("c", 900_000),
        file("d", 0),
        file("e", 1 << 20),
    ];
    for (entry, start) in entries.iter().zip([0, 500, 700_000, 0, 0]) {
        hashes.note_file(entry);
        note(&hashes, entry, start, &[]);
    }
    let all: String = entries.iter().map(line).collect();
    assert_eq!(written(&hashes, || panic!("nothing is to be read")), all);
    // Over another connection they are there already.
    hashes.begin();
    entries[1..].iter().for_each(|entry| hashes.note_file(entry));
    let rest: String = entries[1..].iter().map(line).collect();
    assert_eq!(written(&hashes, || panic!("nothing is to be read")), rest);
}

#[test]
fn what_was_not_is_read() {
    let scratch = Scratch::new();
    let path = scratch.at("file");
    for (size, start, left_out) in
        [(5_000_001, 0, &[1, 3][..]), (900_000, 700_000, &[0]), (300, 0, &[0])]
    {
        let (hashes, entry) = (CopiedHashes::default(), file("a", size));
        std::fs::write(&path, bytes(size as usize, 1)).unwrap();
        hashes.note_file(&entry);
        note(&hashes, &entry, start, left_out);
        assert_eq!(written(&hashes, || File::open(&path).map(Some)), line(&entry), "{size}");
    }
}

#[test]
fn a_group_that_came_twice_with_other_contents_is_read() {
    let scratch = Scratch::new();
    let path = scratch.at("file");
    for size in [5_000_001_u64, 300] {
        let (hashes, entry) = (CopiedHashes::default(), file("a", size));
        std::fs::write(&path, bytes(size as usize, 1)).unwrap();
        let wrong = vec![9; size.min(1 << 20) as usize];
        let value = group_chaining_value(&wrong, 0, size < 1 << 20);
        hashes.note_group([(&entry, 0, &wrong[..])].into_iter(), 0, value, Again::Other);
        note(&hashes, &entry, 0, &[]);
        assert_eq!(written(&hashes, || File::open(&path).map(Some)), line(&entry), "{size}");
    }
}

#[test]
fn a_file_with_several_names_is_read_for_none_of_them() {
    let scratch = Scratch::new();
    let mut entries = [file("a", 300), file("b", 300), file("c", 300)];
    let links = [HardLink::First, HardLink::To(0), HardLink::To(0)];
    for (entry, link) in entries.iter_mut().zip(links) {
        let metadata = Metadata { hard_link: Some(link), ..Metadata::default() };
        entry.attributes.metadata = metadata.boxed();
    }
    scratch.file("a", bytes(300, 1));
    std::fs::hard_link(scratch.at("a"), scratch.at("b")).unwrap();
    // Somebody has put another in the place of this name.
    scratch.file("c", bytes(300, 2));
    let hashes = CopiedHashes::default();
    entries.iter().for_each(|entry| hashes.note_file(entry));
    note(&hashes, &entries[0], 0, &[]);
    // What is read from here on is neither.
    scratch.file("a", bytes(300, 3));
    let open = |path: &[u8], _: &[u8; 16]| {
        File::open(scratch.at(std::str::from_utf8(path).unwrap())).map(Some)
    };
    let mut out = Vec::new();
    hashes.write(&mut out, None, open, &Stop::default()).unwrap();
    let other = hash_line(blake3::hash(&bytes(300, 2)).as_bytes(), b"c");
    assert_eq!(
        String::from_utf8(out).unwrap(),
        [line(&entries[0]), line(&entries[1]), String::from_utf8(other).unwrap()].concat()
    );
}

/// As root nobody gets a file for `/dev/null`.
#[test]
fn a_list_replaces_files_only_and_keeps_their_mode() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.at(name);
    std::fs::write(at("old"), "old").unwrap();
    std::fs::set_permissions(at("old"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(at("old"), at("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for name in ["link", "fifo"] {
        let error = UnfinishedList::create(&at(name)).err().unwrap();
        assert!(error.to_string().contains("not replaced"), "{name}: {error}");
    }
    UnfinishedList::create(&at("old")).unwrap().publish().unwrap();
    let old = std::fs::metadata(at("old")).unwrap();
    assert_eq!((old.len(), old.permissions().mode() & 0o777), (0, 0o600));
}
