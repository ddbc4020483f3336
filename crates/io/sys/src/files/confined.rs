use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags, fstat, mkdirat, openat,
    openat2, readlinkat, statat, statx, unlinkat,
};
use rustix::io::Errno;

/// A directory under which files are opened, made, renamed and removed, and that no path leads out
/// of: neither `..` nor an absolute path, nor a symbolic link, of any owner and age.
///
/// The kernel resolves every path in one step (`openat2` with `RESOLVE_BENEATH`), or one component after
/// the other is opened below the one before, so that renaming directories meanwhile does not help an
/// intruder. Links that stay inside are followed, those to an absolute path too. Paths are relative; the
/// empty path and `.` are the directory itself.
///
/// Opening a FIFO or a device never blocks; see [`File::metadata`] for what was opened.
#[derive(Debug)]
pub struct ConfinedDir {
    dir: OwnedFd,
    /// Names that no path may have on its way.
    off_limits: Option<fn(&[u8]) -> bool>,
    /// Absolute paths of it, for links that have such targets.
    names: Arc<[PathBuf]>,
}

/// Why something under a [`ConfinedDir`] was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfinedError {
    /// The path is absolute, or `..` or a link in it leads out of the directory, or it names
    /// nothing that could be made, renamed or removed.
    #[error("the path leads out of the directory")]
    Escapes,
    /// The kernel (before Linux 5.6) or a sandbox has no `openat2`, without which the kernel does not
    /// confine paths.
    #[error(
        "the system call openat2, by which the kernel confines paths, is missing (Linux before 5.6) or \
         forbidden here (by the filter of a sandbox or container, which has to allow it)"
    )]
    Unsupported,
    /// Anything else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for ConfinedError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl From<ConfinedError> for io::Error {
    fn from(error: ConfinedError) -> Self {
        match error {
            ConfinedError::Io(error) => error,
            ConfinedError::Escapes => Self::new(io::ErrorKind::PermissionDenied, error),
            ConfinedError::Unsupported => Self::new(io::ErrorKind::Unsupported, error),
        }
    }
}

/// Purpose for which a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    #[default]
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
}

/// Creation of a file by opening it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// It must be there.
    #[default]
    Never,
    /// Where it is missing.
    IfMissing,
    /// It must not be there, not even as a link.
    New,
}

/// Options of [`ConfinedDir::open`]. The default is an existing file for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Purpose.
    pub access: Access,
    /// Creation.
    pub create: Create,
    /// Cut it to zero length.
    pub truncate: bool,
    /// Refuse a symbolic link as last component.
    pub no_follow: bool,
    /// Permission bits of a new file, less the umask.
    pub mode: u32,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            access: Access::Read,
            create: Create::Never,
            truncate: false,
            no_follow: false,
            mode: 0o666,
        }
    }
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without a path.
    pub name: OsString,
    /// Its kind; [`FileType::Unknown`] on file systems that do not say.
    pub kind: FileType,
}

impl ConfinedDir {
    /// Takes the directory `path`, which itself is resolved as usual, for others, whom the kernel is to
    /// confine.
    ///
    /// # Errors
    /// Those of opening a directory, and [`ConfinedError::Unsupported`].
    pub fn open_root(path: impl AsRef<Path>) -> Result<Self> {
        let root = Self::open_own(path)?;
        let (flags, rules) = (OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::empty());
        match open_beneath(&root.dir, OsStr::new("."), flags, Mode::empty(), rules) {
            Ok(_) => Ok(root),
            Err(error) if is_missing(error) => Err(ConfinedError::Unsupported),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Self::open_root`], for this process's own sake: where the system has no `openat2`, or a
    /// sandbox forbids it, paths are resolved here.
    pub fn open_own(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        let names = [std::path::absolute(path), path.canonicalize()];
        let names = names.into_iter().flatten().collect();
        Ok(Self { dir, off_limits: None, names })
    }

    /// Takes the directory `path` below this one; what is confined to the new one is so to this.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = self.resolve(path.as_ref(), flags, Mode::empty()).map_err(escape)?;
        Ok(Self { dir, off_limits: self.off_limits, names: Arc::default() })
    }

    /// Another handle of it.
    ///
    /// # Errors
    /// Those of `dup`.
    pub fn try_clone(&self) -> io::Result<Self> {
        let (dir, names) = (self.dir.try_clone()?, self.names.clone());
        Ok(Self { dir, off_limits: self.off_limits, names })
    }

    /// Without what has such a name, which counts as outside: no path leads there, neither by itself
    /// nor through a link. The same holds for directories opened below this one.
    pub fn without(self, off_limits: fn(&[u8]) -> bool) -> Self {
        Self { off_limits: Some(off_limits), ..self }
    }

    /// Opens the file `path`.
    pub fn open(&self, path: impl AsRef<Path>, options: &FileOptions) -> Result<File> {
        let mut flags = match options.access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        flags |= OFlags::NONBLOCK | OFlags::NOCTTY;
        flags |= match options.create {
            Create::Never => OFlags::empty(),
            Create::IfMissing => OFlags::CREATE,
            Create::New => OFlags::CREATE | OFlags::EXCL,
        };
        flags.set(OFlags::TRUNC, options.truncate);
        flags.set(OFlags::NOFOLLOW, options.no_follow);
        let mode = match options.create {
            Create::Never => Mode::empty(),
            Create::IfMissing | Create::New => Mode::from_raw_mode(options.mode & 0o7777),
        };
        match self.resolve(path.as_ref(), flags, mode) {
            Ok(fd) => Ok(File::from(fd)),
            Err(error) => Err(escape(error)),
        }
    }

    /// Makes the directory `path` and those above it, with the permission bits `mode`, less the
    /// umask, each; those that are there already, also as links that stay inside, are taken.
    pub fn create_dir_all(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let mut prefix = PathBuf::new();
        let directory = OFlags::PATH | OFlags::DIRECTORY;
        for component in path.as_ref().components() {
            prefix.push(component);
            match self.resolve(&prefix, directory, Mode::empty()) {
                Ok(_) => {}
                Err(Errno::NOENT) if matches!(component, Component::Normal(_)) => {
                    let (parent, name) = self.parent(&prefix)?;
                    match mkdirat(&parent, name, Mode::from_raw_mode(mode & 0o7777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    // Made by another meanwhile, it may be no directory, or lead out.
                    self.resolve(&prefix, directory, Mode::empty()).map_err(escape)?;
                }
                Err(error) => return Err(escape(error)),
            }
        }
        Ok(())
    }

    /// Removes the file or link `path`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let (parent, name) = self.parent(path.as_ref())?;
        Ok(unlinkat(parent, name, AtFlags::empty())?)
    }

    /// Removes the empty directory `path`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (parent, name) = self.parent(path.as_ref())?;
        Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Metadata of `path`, through links that stay inside.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), OFlags::PATH)
    }

    /// As [`Self::metadata`], with all that the system says.
    pub fn path_stat(&self, path: impl AsRef<Path>) -> Result<Stat> {
        let fd = self.resolve(path.as_ref(), OFlags::PATH, Mode::empty()).map_err(escape)?;
        Ok(rustix::fs::fstat(fd)?)
    }

    /// Metadata of `path`; a link as last component is not followed.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), OFlags::PATH | OFlags::NOFOLLOW)
    }

    /// The names in the directory `path`, in no order, without `.` and `..`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Entries> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = self.resolve(path.as_ref(), flags, Mode::empty()).map_err(escape)?;
        Ok(Entries(Dir::new(fd)?))
    }

    /// The directory that holds the last component of `path`, and that component, which is never
    /// `.` or `..` and holds no separator.
    pub(super) fn parent(&self, path: &Path) -> Result<(OwnedFd, CString)> {
        let name = path.file_name().ok_or(ConfinedError::Escapes)?;
        if self.off_limits.is_some_and(|is_off| is_off(name.as_bytes())) {
            return Err(ConfinedError::Escapes);
        }
        let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Ok((self.resolve(parent, flags, Mode::empty()).map_err(escape)?, name))
    }

    fn stat(&self, path: &Path, flags: OFlags) -> Result<Metadata> {
        let fd = self.resolve(path, flags, Mode::empty()).map_err(escape)?;
        Ok(File::from(fd).metadata()?)
    }

    fn resolve(&self, path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { OsStr::new(".") } else { path.as_os_str() };
        if self.off_limits.is_none() {
            match open_beneath(&self.dir, path, flags, mode, ResolveFlags::empty()) {
                // A link with an absolute target may stay inside for all that.
                Err(error) if error == Errno::XDEV || is_missing(error) => {}
                result => return result,
            }
        }
        self.walk(path.as_bytes(), flags, mode)
    }

    /// Resolves step by step, so that every name on the way is seen, those in links too.
    fn walk(&self, path: &[u8], flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        // Names that are to be walked, the next one last, and directories that were walked through.
        let mut left = Vec::new();
        let mut walked: Vec<OwnedFd> = Vec::new();
        let mut links = 0;
        let stays_at_links =
            flags.contains(OFlags::NOFOLLOW) || flags.contains(OFlags::CREATE | OFlags::EXCL);
        push_names(&mut left, path)?;
        loop {
            let here = walked.last().map_or(self.dir.as_fd(), |dir| dir.as_fd());
            let Some(name) = left.pop() else {
                return open_name(here, OsStr::new("."), flags, mode);
            };
            match &name[..] {
                b"" | b"." => continue,
                b".." => {
                    walked.pop().ok_or(Errno::XDEV)?;
                    continue;
                }
                name if self.off_limits.is_some_and(|is_off| is_off(name)) => {
                    return Err(Errno::XDEV);
                }
                _ => {}
            }
            let component = OsStr::from_bytes(&name);
            let is_last = left.is_empty();
            let (step, mode) = match is_last {
                true => (flags, mode),
                false => (OFlags::PATH | OFlags::DIRECTORY, Mode::empty()),
            };
            match open_name(here, component, step, mode) {
                Ok(fd) if is_last => return Ok(fd),
                Ok(fd) => walked.push(fd),
                Err(Errno::LOOP) if !(is_last && stays_at_links) && links < LINKS_MAX => {
                    links += 1;
                    let target = readlinkat(here, component, Vec::new())?;
                    let target = target.as_bytes();
                    if target.starts_with(b"/") {
                        push_names(&mut left, self.below(target).ok_or(Errno::XDEV)?)?;
                        walked.clear();
                    } else {
                        push_names(&mut left, target)?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The part of the absolute `path` below this directory, by one of its names. The path is taken
    /// as it is written: nothing outside is looked at.
    fn below<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let path = Path::new(OsStr::from_bytes(path));
        let mut names = self.names.iter();
        let rest = names.find_map(|name| path.strip_prefix(name).ok())?;
        Some(rest.as_os_str().as_bytes())
    }
}

impl AsFd for ConfinedDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// The names in a directory, see [`ConfinedDir::read_dir`].
#[derive(Debug)]
pub struct Entries(Dir);

impl Iterator for Entries {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.0.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let name = OsString::from_vec(name.to_vec());
                return Some(Ok(DirEntry { name, kind: entry.file_type() }));
            }
        }
    }
}

/// Opens the directory `path` below `dir`; empty is `dir` itself. No component of it is a symbolic link
/// (`ELOOP`), and nothing leads out. Where there is no `openat2`, or a sandbox forbids it, one component is
/// opened after the other.
pub fn open_dir_beneath(dir: impl AsFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::DIRECTORY;
    let whole = OsStr::from_bytes(if path.is_empty() { b"." } else { path });
    match open_beneath(&dir, whole, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(error) if is_missing(error) => {}
        result => return result,
    }
    let names = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let names: Vec<&[u8]> = names.collect();
    if path.starts_with(b"/") || names.contains(&&b".."[..]) {
        return Err(Errno::XDEV);
    }
    let Some((last, above)) = names.split_last() else {
        return open_step(dir, OsStr::new("."), flags, Mode::empty());
    };
    let mut here = None::<OwnedFd>;
    let step = |here: &Option<OwnedFd>, name, flags| {
        let above = here.as_ref().map_or(dir.as_fd(), |here| here.as_fd());
        open_step(above, OsStr::from_bytes(name), flags, Mode::empty())
    };
    for name in above {
        here = Some(step(&here, name, OFlags::PATH | OFlags::DIRECTORY)?);
    }
    step(&here, last, flags)
}

/// Opens the directory `name`, which is no path, in `dir` to list it: neither a link (`ELOOP`, `ENOTDIR`)
/// nor a mount (`EXDEV`).
pub fn open_dir_here(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match open_beneath(&dir, OsStr::from_bytes(name), flags, Mode::empty(), resolve) {
        Err(error) if is_missing(error) => {}
        result => return result,
    }
    let opened = open_step(&dir, OsStr::from_bytes(name), flags, Mode::empty())?;
    match is_same_mount(&opened, &dir)? {
        true => Ok(opened),
        false => Err(Errno::XDEV),
    }
}

/// True if both are in one mount. Before Linux 5.8, and where `statx` is forbidden, a mount of the same file system
/// is not noticed.
pub fn is_same_mount(one: impl AsFd, other: impl AsFd) -> rustix::io::Result<bool> {
    let mount = |of: BorrowedFd<'_>| {
        let found = statx(of, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
        (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
    };
    match (mount(one.as_fd()), mount(other.as_fd())) {
        (Some(one), Some(other)) => Ok(one == other),
        _ => Ok(fstat(&one)?.st_dev == fstat(&other)?.st_dev),
    }
}

/// True where something is mounted on a name, which is no path, in `dir`, as far as the kernel says so (from Linux 5.8
/// on).
pub fn is_mounted(dir: impl AsFd, name: &[u8]) -> bool {
    let mount = |name: &[u8], flags| {
        let flags = flags | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let found = statx(&dir, name, flags, StatxFlags::MNT_ID).ok()?;
        (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
    };
    let (within, found) = (mount(b"", AtFlags::EMPTY_PATH), mount(name, AtFlags::empty()));
    within.zip(found).is_some_and(|(within, found)| within != found)
}

/// Opens one name, which is no path, in `dir`; a link is not followed (`ELOOP`).
fn open_name(
    dir: impl AsFd,
    name: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    match open_beneath(&dir, name, flags, mode, ResolveFlags::NO_SYMLINKS) {
        Err(error) if is_missing(error) => open_step(dir, name, flags, mode),
        result => result,
    }
}

/// As [`open_name`], without `openat2`.
fn open_step(
    dir: impl AsFd,
    name: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let is_link = |stat: rustix::io::Result<Stat>| {
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    };
    match openat(&dir, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode) {
        // Nobody has asked for the link itself.
        Ok(fd) if flags & (OFlags::PATH | OFlags::NOFOLLOW) == OFlags::PATH => {
            if is_link(rustix::fs::fstat(&fd)) { Err(Errno::LOOP) } else { Ok(fd) }
        }
        Err(Errno::NOTDIR) if is_link(statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)) => {
            Err(Errno::LOOP)
        }
        result => result,
    }
}

/// True where the system does not know a call, or a sandbox forbids it: those that do not know it tend to
/// answer EPERM.
fn is_missing(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::PERM)
}

/// `openat2`, once more where a rename on the way asks for it.
fn open_beneath(
    dir: impl AsFd,
    path: &OsStr,
    flags: OFlags,
    mode: Mode,
    more: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    let rules = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | more;
    let mut races = 0;
    #[cfg(test)]
    if super::tests::is_forbidden() {
        return Err(Errno::PERM);
    }
    loop {
        match openat2(&dir, path, flags | OFlags::CLOEXEC, mode, rules) {
            // Something was renamed on the way and the kernel cannot tell what that means.
            Err(Errno::AGAIN) if races < RACES_MAX => races += 1,
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Puts the names of a relative path on the stack, the first one last.
fn push_names(left: &mut Vec<Vec<u8>>, path: &[u8]) -> rustix::io::Result<()> {
    if path.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    left.extend(path.rsplit(|byte| *byte == b'/').map(<[u8]>::to_vec));
    Ok(())
}

/// `openat2` says EXDEV for a path that leaves its directory.
fn escape(error: Errno) -> ConfinedError {
    if error == Errno::XDEV { ConfinedError::Escapes } else { error.into() }
}

type Result<T> = std::result::Result<T, ConfinedError>;

/// Renames that one lookup may meet: a bound for an intruder who does nothing else.
const RACES_MAX: u32 = 1000;

/// As the kernel has it.
const LINKS_MAX: u32 = 40;
