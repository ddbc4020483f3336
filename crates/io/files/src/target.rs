//! Target of a copy: a tree, or nothing.

use std::fs::File;
use std::io;

use longhaul_objects::storage::{self, Storage};
use longhaul_objects::{
    Action, AnnouncedPaths, Answer, ChainingValue, Checked, Checkpoint, Compared, ComparedFile,
    Deletion, EntryId, Existing, ExistingEntry, FilledDirectory, Made, NamedEntry, NamedFile,
    Prepared, Publication, RecordedFile, ResumeState, Stamp, TempName, WritePiece, WriteTask,
};
use longhaul_units::Bytes;
use longhaul_wire::{Deletes, Entry, EntryCode, EntryEnd, EntryKind, KeptAttributes};

use crate::destination::SinkOptions;
use crate::destination::{Destination, DestinationError};
use crate::dry_run::DryRun;
use crate::filter::Filter;
use crate::sink::{SinkTree, StorageError};

/// Where the sink's groups go.
#[derive(Debug)]
pub enum Target {
    /// Files and directories.
    Tree(Box<SinkTree>),
    /// The same, of which nothing is changed.
    DryRun(Box<DryRun>),
    /// The null device: one file is received, verified and forgotten.
    Null,
}

impl Target {
    /// As [`SinkTree::open`]; the null device of this host discards, and a dry run makes nothing.
    pub fn open(
        destination: Destination<'_>,
        options: &SinkOptions,
    ) -> Result<(Self, ResumeState), DestinationError> {
        if !options.is_directory && destination.is_null_device() {
            return Ok((Self::Null, ResumeState::default()));
        }
        if options.dry_run {
            return Ok((DryRun::open(destination, options)?.into(), ResumeState::default()));
        }
        let (tree, resume) = SinkTree::open(destination, options)?;
        Ok((tree.into(), resume))
    }

    /// See [`SinkTree::deleting`]; where nothing is kept there is nothing to delete.
    pub fn deleting(self, deletes: Option<Deletes>, filter: Option<Filter>) -> Self {
        match self {
            Self::Tree(tree) => Self::from(tree.deleting(deletes, filter)),
            Self::DryRun(dry) => Self::from(dry.deleting(deletes, filter)),
            Self::Null => Self::Null,
        }
    }

    /// See [`SinkTree::leaving`]; what discards all leaves all.
    pub fn leaving(self, least: Bytes) -> Self {
        match self {
            Self::Tree(tree) => Self::from(tree.leaving(least)),
            Self::DryRun(dry) => Self::from(dry.leaving(least)),
            Self::Null => Self::Null,
        }
    }

    /// See [`SinkTree::keeping`]; what discards all keeps nothing.
    pub fn keeping(self, kept: KeptAttributes, allowed: bool) -> Self {
        match self {
            Self::Tree(tree) => Self::from(tree.keeping(kept, allowed)),
            Self::DryRun(dry) => Self::from(dry.keeping(kept, allowed)),
            Self::Null => Self::Null,
        }
    }

    /// Does `action`.
    ///
    /// # Errors
    /// The destination as a whole failed: the transfer ends, and there is no answer.
    pub fn perform(&self, action: Action) -> Result<Answer, StorageError> {
        match self {
            Self::Tree(tree) => {
                tree.check_name(&action)?;
                storage::perform(&mut tree.storage(), action)
            }
            Self::DryRun(dry) => {
                dry.check_name(&action)?;
                storage::perform(&mut &**dry, action)
            }
            Self::Null => {
                check_discarded(&action)?;
                storage::perform(&mut Discarded, action)
            }
        }
    }

    /// Writes a group. See [`storage::write`].
    pub fn write(&self, task: &WriteTask, data: &[u8]) -> Vec<(EntryId, EntryEnd)> {
        match self {
            Self::Tree(tree) => storage::write(&mut tree.storage(), task, data),
            Self::DryRun(dry) => storage::write(&mut &**dry, task, data),
            Self::Null => storage::write(&mut Discarded, task, data),
        }
    }

    /// Opens the file that the copy has put in place, or found there, as the entry `path`, to read it.
    ///
    /// # Errors
    /// It is not there any more.
    pub fn reopen(&self, path: &[u8]) -> io::Result<File> {
        match self {
            Self::Tree(tree) => tree.reopen(path),
            Self::DryRun(_) | Self::Null => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Notes about the copy so far for the user, as [`longhaul_wire::Summary::notes`].
    pub fn notes(&self) -> u64 {
        match self {
            Self::Tree(tree) => tree.notes(),
            Self::DryRun(dry) => dry.notes(),
            Self::Null => 0,
        }
    }

    /// The note of a dry run on room for so many bytes that the copy would write.
    pub fn note_of_size(&self, bytes: u64) -> u64 {
        match self {
            Self::DryRun(dry) => dry.note_of_size(bytes),
            Self::Tree(_) | Self::Null => 0,
        }
    }

    /// Entries of which the destination could not keep all attributes.
    pub fn not_kept(&self) -> u64 {
        match self {
            Self::Tree(tree) => tree.not_kept(),
            Self::DryRun(_) | Self::Null => 0,
        }
    }

    /// True if nothing is kept.
    pub fn discards(&self) -> bool {
        matches!(self, Self::Null)
    }
}

impl From<SinkTree> for Target {
    fn from(tree: SinkTree) -> Self {
        Self::Tree(Box::new(tree))
    }
}

impl From<DryRun> for Target {
    fn from(dry: DryRun) -> Self {
        Self::DryRun(Box::new(dry))
    }
}

/// A destination that keeps nothing.
struct Discarded;

impl Storage for Discarded {
    type Error = EntryEnd;
    type Failure = StorageError;

    fn make_directory(&mut self, _: &NamedEntry) -> Result<Made, EntryEnd> {
        Err(file_only())
    }

    fn prepare(&mut self, entry: &Entry, _: TempName, _: Existing) -> Result<Prepared, EntryEnd> {
        check(entry).map(|()| Prepared::Ready)
    }

    /// Nothing is left of earlier runs.
    fn recheck(&mut self, _: &Entry, _: TempName, _: &[(u32, ChainingValue)]) -> Vec<u32> {
        Vec::new()
    }

    fn compare(&mut self, _: &ExistingEntry) -> Compared {
        Compared::Other { same_size: false }
    }

    fn take_over(&mut self, _: &Entry, _: TempName, _: &[(u32, ChainingValue)]) {}

    fn compare_contents(&mut self, _: &ComparedFile) -> Vec<(u32, ChainingValue)> {
        Vec::new()
    }

    fn mend(&mut self, _: &Entry) -> Option<EntryCode> {
        None
    }

    fn check_published(&mut self, _: &RecordedFile) -> Checked {
        Checked::Missing
    }

    fn write(&mut self, _: &WritePiece, _: &[u8]) -> Result<(), EntryEnd> {
        Ok(())
    }

    fn publish(&mut self, file: &Publication) -> Result<(), EntryEnd> {
        check(&file.entry)
    }

    fn place_directory(&mut self, _: &FilledDirectory) -> bool {
        false
    }

    fn finish_directory(&mut self, _: &NamedEntry) -> Result<(), EntryEnd> {
        Ok(())
    }

    fn delete_others(&mut self, _: &NamedEntry, _: &AnnouncedPaths) -> Vec<Deletion> {
        Vec::new()
    }

    fn take_cleared(&mut self) -> Vec<Deletion> {
        Vec::new()
    }

    fn sync(&mut self, _: &Checkpoint) -> Result<(), StorageError> {
        Ok(())
    }

    fn stamps(&mut self, files: &[NamedFile], _: bool) -> Vec<Option<Stamp>> {
        vec![None; files.len()]
    }

    fn append_record(&mut self, _: u64, _: &[u8], _: bool) -> Result<(), StorageError> {
        Ok(())
    }

    fn remove_record(&mut self) -> Result<(), StorageError> {
        Ok(())
    }

    fn discard(&mut self, _: TempName) {}

    fn end(&mut self, _: bool) {}
}

/// A tree is not discarded, nor any of it.
fn check_discarded(action: &Action) -> Result<(), StorageError> {
    match action {
        Action::MakeDirectories(_) => {
            let reason = "it takes a single file, and the source is a directory";
            Err(StorageError::InTheWay { path: NULL.into(), reason })
        }
        _ => Ok(()),
    }
}

const NULL: &str = "/dev/null";

/// Only the source itself can be discarded, and only a file.
fn check(entry: &Entry) -> Result<(), EntryEnd> {
    let is_single = entry.path.components().count() < 2;
    let is_file = entry.kind == EntryKind::File;
    if is_single && is_file { Ok(()) } else { Err(file_only()) }
}

fn file_only() -> EntryEnd {
    EntryEnd::new(EntryCode::InTheWay, "the null device takes a single file")
}
