//! New files are as if they had been made in their directory.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown, symlink};

use longhaul_needs::needs;
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};

use super::*;
use crate::metadata::access::{ACCESS, DEFAULT};

/// A list by which files in the directory can be used by one user more, and by no others.
pub(super) fn default_list() -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(1u8, 7u8, none), (2, 6, 4242), (4, 5, none), (16, 7, none), (32, 0, none)];
    let each = entries.iter().flat_map(|(tag, permissions, id)| {
        [*tag, 0, *permissions, 0].into_iter().chain(id.to_le_bytes())
    });
    [2, 0, 0, 0].into_iter().chain(each).collect()
}

/// Mode, group and access list of what has this path, without following it.
fn about(path: &Path) -> (u32, u32, Option<Vec<u8>>) {
    let metadata = fs::symlink_metadata(path).unwrap();
    let mut list = vec![0; 1 << 10];
    let list = lgetxattr(path, ACCESS, &mut list[..]).ok().map(|len| list[..len].to_vec());
    (if metadata.is_symlink() { 0 } else { metadata.mode() }, metadata.gid(), list)
}

#[derive(Clone, Copy, Debug)]
struct Gives {
    group: bool,
    list: bool,
}

const ALL: [Gives; 4] = [
    Gives { group: false, list: false },
    Gives { group: true, list: false },
    Gives { group: false, list: true },
    Gives { group: true, list: true },
];

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn prepare(directory: &Path, gives: Gives) {
    mode(directory, 0o777);
    if gives.list {
        lsetxattr(directory, DEFAULT, &default_list(), XattrFlags::empty()).unwrap();
    }
    if gives.group {
        chown(directory, None, Some(4242)).unwrap();
        mode(directory, 0o2777);
    }
}

const FILES: [(&str, usize, u32); 4] =
    [("small", 9, 0o664), ("empty", 0, 0o666), ("large", 1_500_000, 0o755), ("secret", 9, 0o604)];

fn tree(scratch: &Scratch) -> PathBuf {
    for (name, len, bits) in FILES {
        for within in ["from/in", "from/in/new"] {
            mode(&scratch.file(&format!("{within}/{name}"), bytes(len, 1)), bits);
        }
    }
    mode(&scratch.at("from/in/new"), 0o775);
    symlink("small", scratch.at("from/in/link")).unwrap();
    scratch.at("from/in")
}

/// Makes there what the copy is compared with.
fn make(within: &Path) {
    for (name, _, bits) in FILES {
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(bits)
            .open(within.join(format!("made {name}")));
        made.unwrap();
    }
}

fn check(to: &Path, gives: [Gives; 2]) {
    make(to);
    make(&to.join("new"));
    symlink("small", to.join("made link")).unwrap();
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o775)
        .create(to.join("made new"))
        .unwrap();
    for within in [to.to_owned(), to.join("new")] {
        for (name, ..) in FILES {
            let (ours, made) = (within.join(name), within.join(format!("made {name}")));
            assert_eq!(about(&ours), about(&made), "{gives:?}: {}", ours.display());
        }
    }
    for name in ["link", "new"] {
        assert_eq!(
            about(&to.join(name)),
            about(&to.join(format!("made {name}"))),
            "{gives:?}: {name}"
        );
    }
}

#[needs(root)]
#[test]
fn new_files_have_what_their_directory_gives_to_what_is_made_in_it() {
    for top in ALL {
        for within in ALL {
            let scratch = Scratch::new();
            let from = tree(&scratch);
            let to = scratch.directory("to");
            prepare(&to, top);
            // One that is there, in a destination that gives other things.
            let place = scratch.directory("to/in");
            lremove(&place);
            chown(&place, None, Some(0)).unwrap();
            prepare(&place, within);
            copy(&from, &to);
            check(&place, [top, within]);
            // The same copy again leaves it so.
            for name in ["small", "large"] {
                let before = about(&place.join(name));
                copy(&from, &to);
                assert_eq!(about(&place.join(name)), before, "{name}");
            }
        }
        // One that is new.
        let scratch = Scratch::new();
        let from = tree(&scratch);
        let to = scratch.directory("to");
        prepare(&to, top);
        copy(&from, &to);
        check(&to.join("in"), [top; 2]);
    }
}

fn lremove(directory: &Path) {
    let _ = rustix::fs::lremovexattr(directory, DEFAULT);
    let _ = rustix::fs::lremovexattr(directory, ACCESS);
}

/// Only the kernel gives a file to a group that its owner is no member of.
#[needs(root)]
#[test]
fn a_user_who_is_no_member_of_the_group_makes_its_files_too() {
    let scratch = Scratch::new();
    let from = tree(&scratch);
    let to = scratch.directory("to");
    mode(&to, 0o777);
    let place = scratch.directory("to/in");
    prepare(&place, Gives { group: true, list: true });
    without_rights(|| {
        copy(&from, &to);
        check(&place, [ALL[0], ALL[3]]);
    });
    assert_eq!(fs::read(place.join("large")).unwrap(), bytes(1_500_000, 1));
    let hidden = scratch.names("to/in").into_iter().filter(|name| name.starts_with('.'));
    assert_eq!(hidden.count(), 0);
}

#[test]
fn a_directory_is_asked_once_what_it_gives_to_the_files_that_get_names_in_it() {
    let scratch = Scratch::new();
    let from = scratch.file("from", "x");
    let to = scratch.directory("to");
    let copy = Copy::new(SourceTree::local(&[from], false), &to);
    let mut last = None;
    assert!(!copy.to.parent(b"", &mut last).unwrap().gives().has_list());
    lsetxattr(&to, DEFAULT, &default_list(), XattrFlags::empty()).unwrap();
    assert!(!copy.to.parent(b"", &mut last).unwrap().gives().has_list());
    assert!(copy.to.parent(b"", &mut None).unwrap().gives().has_list());
}
