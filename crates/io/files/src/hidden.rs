//! The hidden directory of a transfer: found or made, and locked (docs/files.md).

use crate::place::gone;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_sys::files::{ConfinedDir, FileLock};
use longhaul_sys::random;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstat, mkdirat, statat, unlinkat};
use rustix::io::Errno;

use crate::identify::{as_path, hidden_name, is_staged_name};
use crate::place::{beneath, open_at};
use crate::sink::staged_directories::remove_staged;
use crate::trust::Trust;

/// The hidden directory of a transfer, locked.
pub(crate) struct Hidden {
    pub(crate) name: Vec<u8>,
    pub(crate) directory: OwnedFd,
    pub(crate) record: File,
    /// `None` where files cannot be locked.
    pub(crate) lock: Option<FileLock>,
    /// Trust in what is in it.
    pub(crate) trust: Trust,
    /// There is another of the transfer's that is not this user's alone.
    pub(crate) others: bool,
}

/// A directory that is this user's, under one of the names of the transfer.
struct Found {
    name: Vec<u8>,
    directory: OwnedFd,
    record: Option<File>,
}

/// A failed action, and its reason.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) doing: String,
    pub(crate) error: io::Error,
}

impl Failed {
    /// Error for an action on the hidden directory `name`, as `doing` says.
    fn of(doing: &str, name: &[u8]) -> impl FnOnce(io::Error) -> Self {
        let doing = format!("{doing} {}", name.escape_ascii());
        move |error| Self { doing, error }
    }
}

/// Holder of a name.
enum Holder {
    Nobody,
    /// Something that is not used, and the error where it could not be opened.
    Stranger(Option<Errno>),
    Ours(Found),
}

/// Looks for the hidden directory of a transfer in one directory.
struct Search<'a> {
    root: &'a ConfinedDir,
    transfer: &'a [u8; 16],
    trust: Trust,
    /// The file system was asked how it shows what this user makes.
    has_learnt: bool,
    /// Something that is not used has one of the names.
    others: bool,
    /// True if what is there is to be used: it gets a record where it has none.
    takes: bool,
}

impl Hidden {
    /// Takes what an earlier run has left in `root`, or makes it. `None` while another run has it.
    ///
    /// A directory that is not this user's alone is left where it is, and another name taken.
    pub(crate) fn take(root: &ConfinedDir, transfer: &[u8; 16]) -> Result<Option<Self>, Failed> {
        let mut search = Search::new(root, transfer, true)?;
        let mut looks = 0;
        for _ in 0..RACES_MAX {
            let found = match search.left()? {
                Some(found) => Some(found),
                None => search.make()?,
            };
            let Some(Found { name, directory, record: Some(record) }) = found else { continue };
            let lock = match FileLock::try_take(&record) {
                Ok(lock) => Some(lock),
                // An earlier run that was stopped a moment ago lets go when its last sync is over.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if looks == LOCK_LOOKS {
                        return Ok(None);
                    }
                    looks += 1;
                    std::thread::sleep(LOCK_INTERVAL);
                    continue;
                }
                // Some network file systems cannot lock; then nobody can.
                Err(_) => None,
            };
            // The run that held the lock may have removed it all meanwhile.
            let found = record.metadata();
            if found.map_err(Failed::of("cannot look at the record in", &name))?.nlink() > 0 {
                let Search { trust, others, .. } = search;
                return Ok(Some(Self { name, directory, record, lock, trust, others }));
            }
        }
        Err(Failed {
            doing: "cannot make a hidden directory".into(),
            error: io::Error::other("others keep replacing it"),
        })
    }
}

/// True where an earlier run of the transfer has left its hidden directory in `root`.
pub(crate) fn is_begun(root: &ConfinedDir, transfer: &[u8; 16]) -> bool {
    let search = Search::new(root, transfer, false);
    search.and_then(|mut search| search.left()).is_ok_and(|found| found.is_some())
}

/// The hidden directory of the name, and its record, if it is this user's; the record is made where it `takes` it.
pub(crate) fn at_name(
    root: &ConfinedDir,
    name: &[u8],
    takes: bool,
) -> io::Result<Option<(OwnedFd, Option<File>)>> {
    let failed = |failed: Failed| failed.error;
    let mut search = Search::new(root, &[0; 16], takes).map_err(failed)?;
    for _ in 0..2 {
        match search.holder(name.to_vec()).map_err(failed)? {
            Holder::Ours(found) => return Ok(Some((found.directory, found.record))),
            Holder::Nobody => return Ok(None),
            Holder::Stranger(_) if search.learn().map_err(failed)? => {}
            Holder::Stranger(_) => return Ok(None),
        }
    }
    Ok(None)
}

impl<'a> Search<'a> {
    fn new(root: &'a ConfinedDir, transfer: &'a [u8; 16], takes: bool) -> Result<Self, Failed> {
        let trust =
            Trust::within(root).map_err(Failed::of("cannot look at what is to hold", b"it"))?;
        Ok(Self { root, transfer, trust, has_learnt: false, others: false, takes })
    }

    /// Directory that an earlier run has left.
    fn left(&mut self) -> Result<Option<Found>, Failed> {
        self.others = false;
        for number in 0..NAMES {
            match self.holder(hidden_name(self.transfer, number))? {
                Holder::Ours(found) => return Ok(Some(found)),
                Holder::Stranger(_) => self.others = true,
                // Others may have removed what the first run has met under this name.
                Holder::Nobody if self.trust == Trust::Anything => break,
                Holder::Nobody => {}
            }
        }
        if self.others && self.learn()? { self.left() } else { Ok(None) }
    }

    /// A new one; `None` if it is gone again.
    fn make(&mut self) -> Result<Option<Found>, Failed> {
        let mut refused = None;
        for number in 0..NAMES + DRAWS {
            let name = match number {
                0..NAMES => hidden_name(self.transfer, number),
                // Somebody who knows the others has taken them. A later run will not find it.
                _ => random_name()?,
            };
            match mkdirat(self.root, &name[..], Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(Failed::of("cannot make", &name)(error.into())),
            }
            let error = match self.holder(name.clone()) {
                Ok(Holder::Ours(found)) => return Ok(Some(found)),
                Ok(Holder::Nobody) => {
                    self.unmake(&name);
                    return Ok(None);
                }
                Ok(Holder::Stranger(_)) if self.learn()? => return Ok(None),
                Ok(Holder::Stranger(error)) => error.map(|error| (name.clone(), error)),
                Err(failed) => {
                    self.unmake(&name);
                    return Err(failed);
                }
            };
            self.unmake(&name);
            refused = refused.or(error);
        }
        match refused {
            Some((name, error)) => Err(Failed::of("cannot open", &name)(error.into())),
            None => Ok(None),
        }
    }

    /// Removes what was made a moment ago and cannot be used. What is not empty is another run's by now.
    fn unmake(&self, name: &[u8]) {
        let _ = unlinkat(self.root, name, AtFlags::REMOVEDIR);
    }

    /// Holder of the name.
    fn holder(&self, name: Vec<u8>) -> Result<Holder, Failed> {
        let directory = match beneath(self.root, &name, OFlags::RDONLY) {
            Ok(directory) => directory,
            Err(error) => return no_holder(error).map_err(Failed::of("cannot open", &name)),
        };
        let stat = fstat(&directory).map_err(io::Error::from);
        if !self.trust.has_directory(&stat.map_err(Failed::of("cannot look at", &name))?) {
            return Ok(Holder::Stranger(None));
        }
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let flags = if self.takes { flags | OFlags::CREATE } else { flags };
        let record = match open_at(&directory, RECORD, flags, Mode::RUSR | Mode::WUSR) {
            Ok(record) => File::from(record),
            Err(Errno::NOENT) => return Ok(Holder::Ours(Found { name, directory, record: None })),
            Err(error) => {
                let failed = Failed::of("cannot open the record in", &name);
                return no_holder(error).map_err(failed);
            }
        };
        let stat = fstat(&record).map_err(io::Error::from);
        let stat = stat.map_err(Failed::of("cannot look at the record in", &name))?;
        // Of a run that is ending nothing is left.
        if stat.st_nlink > 0 && !self.trust.has_record(&stat) {
            return Ok(Holder::Stranger(None));
        }
        Ok(Holder::Ours(Found { name, directory, record: Some(record) }))
    }

    /// Asks the file system how it shows what this user makes, once; whether that changes anything.
    fn learn(&mut self) -> Result<bool, Failed> {
        let before = self.trust;
        if !std::mem::replace(&mut self.has_learnt, true) {
            self.trust = before.learn(self.root, &random_name()?);
        }
        Ok(self.trust != before)
    }
}

/// A name that could not be opened.
fn no_holder(error: Errno) -> io::Result<Holder> {
    match error {
        Errno::NOENT => Ok(Holder::Nobody),
        // A link, a file, a socket, or of somebody else.
        Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::NXIO | Errno::ACCESS => {
            Ok(Holder::Stranger(Some(error)))
        }
        error => Err(error.into()),
    }
}

/// A name that nobody knows.
fn random_name() -> Result<Vec<u8>, Failed> {
    let random: [u8; 16] = random::bytes()
        .map_err(|error| Failed { doing: "cannot name a hidden directory".into(), error })?;
    Ok(hidden_name(&random, 0))
}

/// Names in the hidden directory, the record excepted.
pub(crate) fn temps(hidden: impl AsFd) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(hidden)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") && name != RECORD.as_bytes() {
            names.push(as_path(name).to_path_buf());
        }
    }
    Ok(names)
}

/// Removes the hidden directory with all that is in it.
pub(crate) fn remove_hidden(root: impl AsFd, name: &[u8], hidden: impl AsFd) -> io::Result<()> {
    for temp in temps(&hidden)? {
        remove_temp(&hidden, &temp)?;
    }
    gone(unlinkat(&hidden, RECORD, AtFlags::empty()))?;
    leave_hidden(root, name, hidden)
}

/// Removes the hidden directory, whose record is gone, unless the next run of the transfer has
/// begun in it meanwhile: then it is that run's.
pub(crate) fn leave_hidden(root: impl AsFd, name: &[u8], hidden: impl AsFd) -> io::Result<()> {
    for _ in 0..RACES_MAX {
        match unlinkat(&root, name, AtFlags::REMOVEDIR) {
            // A run that has ended between the two looks has removed both.
            Err(Errno::NOTEMPTY) => match statat(&hidden, RECORD, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                found => return Ok(found.map(drop)?),
            },
            result => return gone(result),
        }
    }
    Err(Errno::NOTEMPTY.into())
}

/// Removes one of the names in the hidden directory.
pub(crate) fn remove_temp(hidden: impl AsFd, temp: &Path) -> io::Result<()> {
    if is_staged_name(temp.as_os_str().as_bytes()) {
        return remove_staged(hidden, temp.as_os_str().as_bytes());
    }
    gone(unlinkat(hidden, temp, AtFlags::empty()))
}

/// All of the record.
pub(crate) fn read_record(mut record: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    record.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Name of the resume record in the hidden directory.
pub(crate) const RECORD: &str = "record";

/// Names of which one is a transfer's: others may hold some.
const NAMES: u8 = 8;

/// Random names that are tried after that.
const DRAWS: u8 = 8;

/// Runs of the same transfer that may end while this one begins.
const RACES_MAX: u32 = 100;
/// Looks at the lock of a run, and the time between them: who waits longer for it is to learn why.
const LOCK_LOOKS: u32 = 25;
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
const _: () =
    assert!(LOCK_LOOKS < RACES_MAX && LOCK_LOOKS as u128 * LOCK_INTERVAL.as_millis() <= 500);
