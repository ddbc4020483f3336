use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::positioned::BLOCK;
use longhaul_needs::needs;

use super::*;
use crate::memory::Pages;

const NEW: FileOptions = FileOptions {
    access: Access::ReadWrite,
    create: Create::New,
    truncate: false,
    no_follow: false,
    mode: 0o640,
};

#[test]
fn reading_goes_as_far_as_the_file() {
    let scratch = Scratch::new();
    let file = scratch.root().open("file", &NEW).unwrap();
    file.write_all_at(b"contents", 3).unwrap();
    let mut back = [9; 100];
    assert_eq!(read_up_to_at(&file, &mut back, 3).unwrap(), 8);
    assert_eq!(&back[..9], b"contents\x09");
    assert_eq!(read_up_to_at(&file, &mut back, 1 << 40).unwrap(), 0);
}

#[test]
fn a_lock_is_one_s_until_it_is_dropped_though_a_command_has_just_been_started() {
    let scratch = Scratch::new();
    let file = scratch.root().open("file", &NEW).unwrap();
    let lock = FileLock::try_take(&file).unwrap();
    let another =
        scratch.root().open("file", &FileOptions { create: Create::Never, ..NEW }).unwrap();
    assert_eq!(FileLock::try_take(&another).unwrap_err().kind(), ErrorKind::WouldBlock);
    // As a process has it between fork and exec.
    let _inherited = file.try_clone().unwrap();
    drop((lock, file));
    FileLock::try_take(&another).unwrap();
}

#[test]
fn preallocation_gives_the_length() {
    let scratch = Scratch::new();
    let file = scratch.root().open("file", &NEW).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    preallocate(&file, 0..1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    preallocate(&file, 0..10).unwrap();
    preallocate(&file, 0..0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    let mut start = [0; 4];
    file.read_exact_at(&mut start, 0).unwrap();
    assert_eq!(&start, b"kept");
    // No file system holds this; what fails is the call, not a later write.
    assert!(preallocate(&file, 0..i64::MAX as u64).is_err());
}

fn contents(len: usize) -> Pages {
    let mut pages = Pages::new(len).unwrap();
    pages.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 251) as u8);
    pages
}

#[needs(direct_io)]
#[test]
fn blocks_go_past_the_page_cache_and_the_tail_through_it() {
    let len = 3 * BLOCK + 5;
    let written = contents(len);
    let scratch = Scratch::new();
    let file = scratch.root().open("file", &NEW).unwrap();
    let file = PositionedFile::direct(file).unwrap();
    assert_eq!(file.write_blocks_at(&written, 0).unwrap(), 3 * BLOCK);
    file.file().write_all_at(&written[3 * BLOCK..], 3 * BLOCK as u64).unwrap();
    let mut read = Pages::new(4 * BLOCK).unwrap();
    assert_eq!(file.read_blocks_at(&mut read[..2 * BLOCK + 9], 0).unwrap(), 2 * BLOCK);
    assert_eq!(read[..2 * BLOCK], written[..2 * BLOCK]);
    // The file ends within the last block.
    assert_eq!(file.read_blocks_at(&mut read, 0).unwrap(), len);
    assert_eq!(read[..len], written[..]);
    // Only whole blocks from the start of one go there.
    assert_eq!(file.write_blocks_at(&written[..BLOCK - 1], 0).unwrap(), 0);
    assert_eq!(file.write_blocks_at(&written[1..], 0).unwrap(), 0);
    assert_eq!(file.write_blocks_at(&written, 512).unwrap(), 0);
}

#[test]
fn nothing_goes_past_the_page_cache_unless_asked_for() {
    let scratch = Scratch::new();
    let file = PositionedFile::new(scratch.root().open("file", &NEW).unwrap());
    assert_eq!(file.write_blocks_at(&contents(BLOCK), 0).unwrap(), 0);
    assert_eq!(file.read_blocks_at(&mut contents(BLOCK), 0).unwrap(), 0);
    assert_eq!(file.file().metadata().unwrap().len(), 0);
}

#[test]
fn paths_that_lead_out_are_refused() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path.join("secret"), "secret").unwrap();
    std::fs::create_dir_all(scratch.path.join("root/sub")).unwrap();
    let inside = scratch.path.join("root");
    symlink("../secret", inside.join("up")).unwrap();
    symlink("/", inside.join("slash")).unwrap();
    symlink("..", inside.join("parent")).unwrap();
    symlink("sub/../../secret", inside.join("detour")).unwrap();
    let root = ConfinedDir::open_own(&inside).unwrap();
    let absolute = scratch.path.join("secret");
    for path in [
        "..",
        "../secret",
        "sub/../../secret",
        "up",
        "detour",
        "parent/secret",
        "slash/etc/passwd",
        "/etc/passwd",
        "sub/../../root/sub",
        absolute.to_str().unwrap(),
    ] {
        let read = root.open(path, &FileOptions::default());
        assert!(matches!(read, Err(ConfinedError::Escapes)), "{path}: {read:?}");
        assert!(matches!(root.metadata(path), Err(ConfinedError::Escapes)), "{path}");
        assert!(root.open_dir(path).is_err(), "{path}");
        assert!(root.read_dir(path).is_err(), "{path}");
        assert!(root.create_dir_all(path, 0o777).is_err(), "{path}");
        let below = Path::new(path).join("x");
        assert!(root.create_dir_all(&below, 0o777).is_err(), "{path}");
        assert!(root.open(&below, &NEW).is_err(), "{path}");
        assert!(root.remove_file(&below).is_err(), "{path}");
        assert!(root.remove_dir(&below).is_err(), "{path}");
        assert!(root.rename(&below, "here", Replace::Yes).is_err(), "{path}");
        assert!(root.rename("sub", &below, Replace::Yes).is_err(), "{path}");
    }
    for name in ["", ".", "..", "/", "sub/.."] {
        assert!(matches!(root.remove_dir(name), Err(ConfinedError::Escapes)), "{name:?}");
        assert!(matches!(root.rename("sub", name, Replace::Yes), Err(ConfinedError::Escapes)));
    }
    assert!(root.open("nul\0", &NEW).is_err());
    assert!(root.remove_file("nul\0").is_err());
    assert_eq!(std::fs::read_to_string(absolute).unwrap(), "secret");
    let error = io::Error::from(root.open("..", &FileOptions::default()).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
}

#[test]
fn magic_links_are_refused() {
    let proc = ConfinedDir::open_own("/proc/self").unwrap();
    assert!(proc.open("root/etc/passwd", &FileOptions::default()).is_err());
    assert!(proc.metadata("cwd").is_err());
    assert!(proc.symlink_metadata("cwd").unwrap().is_symlink());
}

#[test]
fn links_that_stay_inside_are_followed() {
    let scratch = Scratch::new();
    let root = scratch.root();
    root.create_dir_all("a/b", 0o755).unwrap();
    root.open("a/file", &NEW).unwrap().write_all(b"x").unwrap();
    symlink("b/../file", scratch.path.join("a/link")).unwrap();
    symlink("a", scratch.path.join("dir")).unwrap();
    assert_eq!(root.metadata("dir/link").unwrap().len(), 1);
    assert!(root.symlink_metadata("dir/link").unwrap().is_symlink());
    let refuse = FileOptions { no_follow: true, ..FileOptions::default() };
    assert!(root.open("a/link", &refuse).is_err());
    root.create_dir_all("dir/b/c", 0o755).unwrap();
    assert!(root.metadata("a/b/c").unwrap().is_dir());
    // Removing a link removes the link.
    root.remove_file("a/link").unwrap();
    assert!(root.metadata("a/file").unwrap().is_file());
}

#[test]
fn links_with_absolute_targets_are_followed_where_they_stay_inside() {
    let scratch = Scratch::new();
    scratch.root().create_dir_all("real/a/b", 0o755).unwrap();
    symlink("real", scratch.path.join("served")).unwrap();
    let (served, real) = (scratch.path.join("served"), scratch.path.join("real"));
    symlink(served.join("a"), real.join("as named")).unwrap();
    symlink(real.join("a/b/../b"), real.join("a/as it is")).unwrap();
    symlink(served.join("./as named//"), real.join("a/chain")).unwrap();
    for (name, target) in [
        ("beside", scratch.path.join("real2")),
        ("up", real.join("../secret")),
        ("down and up", real.join("a/../../secret")),
        ("elsewhere", "/etc/passwd".into()),
    ] {
        symlink(target, real.join(name)).unwrap();
    }
    scratch.root().create_dir_all("real2", 0o755).unwrap();
    std::fs::write(scratch.path.join("secret"), "secret").unwrap();
    let plain = ConfinedDir::open_own(&served).unwrap();
    let without = ConfinedDir::open_own(&served).unwrap().without(|name| name == b"off");
    for root in [plain, without] {
        for path in ["as named", "as named/b", "as named/as it is", "a/chain/b", "a/chain/chain"] {
            assert!(root.metadata(path).unwrap().is_dir(), "{path}");
        }
        for path in ["beside", "up", "down and up", "elsewhere"] {
            assert!(matches!(root.metadata(path), Err(ConfinedError::Escapes)), "{path}");
        }
        // What is asked for is relative.
        let asked = root.metadata(real.join("a"));
        assert!(matches!(asked, Err(ConfinedError::Escapes)), "{asked:?}");
    }
    symlink(real.join("off"), real.join("a/to off")).unwrap();
    std::fs::create_dir(real.join("off")).unwrap();
    let without = ConfinedDir::open_own(&served).unwrap().without(|name| name == b"off");
    assert!(matches!(without.metadata("a/to off"), Err(ConfinedError::Escapes)));
}

#[test]
fn directories_beneath_are_reached_through_no_link() {
    let scratch = Scratch::new();
    let root = scratch.root();
    root.create_dir_all("a/b", 0o755).unwrap();
    root.open("file", &NEW).unwrap();
    symlink("a", scratch.path.join("link")).unwrap();
    symlink("b", scratch.path.join("a/link")).unwrap();
    let open = |path: &str| open_dir_beneath(&root, path.as_bytes(), OFlags::RDONLY).map(drop);
    for path in ["", ".", "a", "a/b", "a//b/", "./a/./b"] {
        assert_eq!(open(path), Ok(()), "{path}");
    }
    for (path, error) in [
        ("link", Errno::LOOP),
        ("link/b", Errno::LOOP),
        ("a/link", Errno::LOOP),
        ("missing", Errno::NOENT),
        ("a/missing/b", Errno::NOENT),
        ("file", Errno::NOTDIR),
        ("file/b", Errno::NOTDIR),
        ("..", Errno::XDEV),
        ("/", Errno::XDEV),
    ] {
        assert_eq!(open(path), Err(error), "{path}");
    }
}

/// As in a sandbox that does not know it.
#[test]
fn all_of_this_holds_where_openat2_is_forbidden() {
    IS_FORBIDDEN.set(true);
    paths_that_lead_out_are_refused();
    magic_links_are_refused();
    links_that_stay_inside_are_followed();
    links_with_absolute_targets_are_followed_where_they_stay_inside();
    directories_beneath_are_reached_through_no_link();
    files_are_made_as_asked();
    a_fifo_does_not_block();
    directories_are_made_listed_and_removed();
    renaming_replaces_only_when_asked();
    let scratch = Scratch::new();
    let refused = ConfinedDir::open_root(&scratch.path);
    assert!(matches!(refused, Err(ConfinedError::Unsupported)), "{refused:?}");
    let missing = ConfinedDir::open_root(scratch.path.join("missing"));
    assert!(matches!(missing, Err(ConfinedError::Io(_))), "{missing:?}");
}

thread_local! {
    static IS_FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// True where the calling thread is to find `openat2` forbidden.
pub(super) fn is_forbidden() -> bool {
    IS_FORBIDDEN.get()
}

#[test]
fn files_are_made_as_asked() {
    let scratch = Scratch::new();
    let root = scratch.root();
    let error = root.open("a", &FileOptions::default()).unwrap_err();
    assert_eq!(io::Error::from(error).kind(), ErrorKind::NotFound);
    let mut file = root.open("a", &NEW).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o007, 0);
    file.write_all(b"12345").unwrap();
    let error = root.open("a", &NEW).unwrap_err();
    assert_eq!(io::Error::from(error).kind(), ErrorKind::AlreadyExists);
    let again = FileOptions { create: Create::IfMissing, ..NEW };
    let mut text = String::new();
    root.open("a", &again).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "12345");
    let write = FileOptions { access: Access::Write, truncate: true, ..FileOptions::default() };
    root.open("a", &write).unwrap();
    assert_eq!(root.metadata("a").unwrap().len(), 0);
    assert!(root.open("missing/a", &again).is_err());
}

#[test]
fn a_fifo_does_not_block() {
    let scratch = Scratch::new();
    let path = scratch.path.join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).unwrap();
    let file = scratch.root().open("fifo", &FileOptions::default()).unwrap();
    assert!(!file.metadata().unwrap().is_file());
    let write = FileOptions { access: Access::Write, ..FileOptions::default() };
    drop(file);
    assert!(scratch.root().open("fifo", &write).is_err());
}

#[test]
fn directories_are_made_listed_and_removed() {
    let scratch = Scratch::new();
    let root = scratch.root();
    root.create_dir_all("x/./y/z", 0o755).unwrap();
    root.create_dir_all("x/y/z", 0o755).unwrap();
    root.create_dir_all("", 0o755).unwrap();
    root.open("x/file", &NEW).unwrap();
    assert!(root.create_dir_all("x/file/z", 0o755).is_err());
    let mut names: Vec<_> = root
        .read_dir("x")
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.name.into_string().unwrap(), entry.kind))
        .collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [("file".into(), FileType::RegularFile), ("y".into(), FileType::Directory)];
    assert_eq!(names, expected);
    let sub = root.open_dir("x").unwrap();
    assert!(matches!(sub.metadata("../x"), Err(ConfinedError::Escapes)));
    sub.remove_file("file").unwrap();
    assert!(root.remove_dir("x").is_err());
    sub.remove_dir("y/z").unwrap();
}

#[test]
fn renaming_replaces_only_when_asked() {
    let scratch = Scratch::new();
    let root = scratch.root();
    root.create_dir_all("d", 0o755).unwrap();
    root.open("part", &NEW).unwrap().write_all(b"new").unwrap();
    root.open("d/final", &NEW).unwrap().write_all(b"old").unwrap();
    let error = root.rename("part", "d/final", Replace::No).unwrap_err();
    assert_eq!(io::Error::from(error).kind(), ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(scratch.path.join("d/final")).unwrap(), b"old");
    root.rename("part", "d/final", Replace::Yes).unwrap();
    assert_eq!(std::fs::read(scratch.path.join("d/final")).unwrap(), b"new");
    root.rename("d/final", "fresh", Replace::No).unwrap();
    assert!(root.metadata("d/final").is_err());
    // A link of the new name is replaced, not followed.
    symlink("d", scratch.path.join("link")).unwrap();
    root.rename("fresh", "link", Replace::Yes).unwrap();
    assert!(root.symlink_metadata("link").unwrap().is_file());
}

#[test]
fn temporary_names_fit_and_differ() {
    let name = temporary_name(OsStr::new("data.bin"), 0xab);
    assert_eq!(name, ".data.bin.00000000000000ab.lh-part");
    let long = "n".repeat(255);
    let (one, two) = (temporary_name(OsStr::new(&long), 1), temporary_name(OsStr::new(&long), 2));
    assert_eq!((one.len(), two.len()), (255, 255));
    assert_ne!(one, two);
    let scratch = Scratch::new();
    scratch.root().open(&one, &NEW).unwrap();
}

/// A directory of its own for each test, removed at the end.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("longhaul-sys-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self { path }
    }

    fn root(&self) -> ConfinedDir {
        ConfinedDir::open_own(&self.path).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
