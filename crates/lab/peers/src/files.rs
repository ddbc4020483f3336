//! Files to move.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tempfile::TempDir;

use crate::contender::{ContenderError, Medium};
use crate::session::Session;

/// Files of random bytes, and an empty folder for their copies, which goes away with this.
pub(crate) struct Files {
    /// The folder that has nothing but the files, named 00000 and so on.
    pub(crate) source: PathBuf,
    count: u64,
    target: TempDir,
    bytes: u64,
}

impl Files {
    /// Of the job's medium.
    pub(crate) fn new(session: &Session<'_>) -> Result<Self, ContenderError> {
        Self::several(session, 1)
    }

    /// As [`Files::new`]; of data in memory there are `count` files.
    pub(crate) fn several(session: &Session<'_>, count: u64) -> Result<Self, ContenderError> {
        let job = session.job();
        let made = match &job.medium {
            Medium::Memory => {
                Self::make(session.folder(), None, count, job.bytes).and_then(|files| {
                    warm(session.folder(), job.bytes)?;
                    Ok(files)
                })
            }
            Medium::Files { folder, count, target } => {
                Self::make(folder, target.as_deref(), (*count).max(1), job.bytes)
            }
        };
        made.map_err(ContenderError::system("make files"))
    }

    fn make(folder: &Path, target: Option<&Path>, count: u64, bytes: u64) -> io::Result<Self> {
        let source = folder.join(format!("source-{count}-{bytes}"));
        if !source.exists() {
            let new = tempfile::Builder::new().prefix("new-").tempdir_in(folder)?;
            let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
            for number in 0..count {
                let size = bytes / count + u64::from(number < bytes % count);
                write_random(&new.path().join(name(number)), size, &mut random)?;
            }
            // Servers that give up root have to read them.
            open_to_all(new.path(), 0o755)?;
            fs::rename(new.path(), &source)?;
        }
        let target = target.unwrap_or(folder);
        let target = tempfile::Builder::new().prefix("target-").tempdir_in(target)?;
        open_to_all(target.path(), 0o777)?;
        Ok(Self { source, count, target, bytes })
    }

    /// The folder for the copies.
    pub(crate) fn target(&self) -> &Path {
        self.target.path()
    }

    /// The names of all files.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        (0..self.count).map(name)
    }

    /// All files, if there are `count`.
    pub(crate) fn each(&self, count: usize) -> Result<Vec<PathBuf>, ContenderError> {
        if self.count != count as u64 {
            return Err(ContenderError::unsuitable(format!("it moves {count} files in a run")));
        }
        Ok(self.names().map(|name| self.source.join(name)).collect())
    }

    /// The only file, for programs that move one.
    pub(crate) fn single(&self) -> Result<PathBuf, ContenderError> {
        match self.count {
            1 => Ok(self.source.join(name(0))),
            _ => Err(ContenderError::unsuitable("it moves one file a run")),
        }
    }

    /// Checks that everything is there, somewhere below the target.
    pub(crate) fn check(&self, what: &str) -> Result<(), ContenderError> {
        let arrived =
            size(self.target.path()).map_err(ContenderError::system("look at the copy"))?;
        if arrived == self.bytes {
            return Ok(());
        }
        Err(ContenderError::Failed {
            what: what.to_owned(),
            status: format!("{arrived} bytes arrived of {}", self.bytes),
            words: String::new(),
        })
    }
}

fn name(number: u64) -> String {
    format!("{number:05}")
}

fn write_random(path: &Path, size: u64, random: &mut Xoshiro256PlusPlus) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut block = vec![0; BLOCK.min(size as usize)];
    let mut left = size as usize;
    while left > 0 {
        let length = left.min(block.len());
        random.fill_bytes(&mut block[..length]);
        file.write_all(&block[..length])?;
        left -= length;
    }
    open_to_all(path, 0o644)
}

/// Has as much memory in use for a moment: a virtual machine that has not used some for a while has
/// to get it from its host, which takes longer than a copy and would be measured.
fn warm(folder: &Path, bytes: u64) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(folder)?;
    io::copy(&mut io::repeat(1).take(bytes + bytes / 8), &mut file)?;
    Ok(())
}

fn open_to_all(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

/// Of all files below.
fn size(folder: &Path) -> io::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        total += if metadata.is_dir() { size(&entry.path())? } else { metadata.len() };
    }
    Ok(total)
}

const BLOCK: usize = 1 << 20;
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_once_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::make(folder.path(), None, 3, 100).unwrap();
        assert_eq!(size(&files.source).unwrap(), 100);
        let marker = files.source.join("mine");
        fs::write(&marker, "").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let beside = Files::make(folder.path(), Some(elsewhere.path()), 3, 100).unwrap();
        assert_eq!(beside.target().parent(), Some(elsewhere.path()));
        let again = Files::make(folder.path(), None, 3, 100).unwrap();
        assert!(marker.exists() && again.source == files.source);
        let words = files.check("it").unwrap_err().to_string();
        assert_eq!(words, "it: 0 bytes arrived of 100");
        fs::create_dir(files.target().join("sub")).unwrap();
        fs::write(files.target().join("sub/file"), [0; 100]).unwrap();
        files.check("it").unwrap();
        assert!(files.single().is_err() && again.target() != files.target());
        let target = files.target().to_owned();
        drop(files);
        assert!(!target.exists() && marker.exists());
    }
}
