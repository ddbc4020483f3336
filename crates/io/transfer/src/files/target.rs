//! What a copy is written to: a tree, or nothing.

use std::sync::Mutex;

use longhaul_objects::{Action, EntryId, Prepared, ResumeState, Sink, WriteTask};
use longhaul_wire::{Entry, EntryKind};

use super::destination::{Destination, DestinationError};
use super::sink::{SinkOptions, SinkTree, StorageError};
use super::sync::lock;

/// Where the sink's groups go.
#[derive(Debug)]
pub enum Target {
    /// Files and directories.
    Tree(Box<SinkTree>),
    /// The null device: one file is received, verified and forgotten.
    Null,
}

impl Target {
    /// As [`SinkTree::open`]; the null device of this host discards.
    pub fn open(
        destination: Destination<'_>,
        options: &SinkOptions,
    ) -> Result<(Self, ResumeState), DestinationError> {
        if !options.is_directory && destination.is_null_device() {
            return Ok((Self::Null, ResumeState::default()));
        }
        let (tree, resume) = SinkTree::open(destination, options)?;
        Ok((tree.into(), resume))
    }

    /// See [`SinkTree::perform`].
    pub fn perform(&self, action: Action, sink: &Mutex<Sink>) -> Result<(), StorageError> {
        match self {
            Self::Tree(tree) => tree.perform(action, sink),
            Self::Null => {
                discard(action, &mut lock(sink));
                Ok(())
            }
        }
    }

    /// See [`SinkTree::write`].
    pub fn write(&self, task: &WriteTask, data: &[u8]) -> Vec<(EntryId, String)> {
        match self {
            Self::Tree(tree) => tree.write(task, data),
            Self::Null => Vec::new(),
        }
    }

    /// Whether nothing is kept.
    pub fn discards(&self) -> bool {
        matches!(self, Self::Null)
    }
}

impl From<SinkTree> for Target {
    fn from(tree: SinkTree) -> Self {
        Self::Tree(Box::new(tree))
    }
}

/// Answers as a destination that keeps nothing.
fn discard(action: Action, sink: &mut Sink) {
    match action {
        Action::MakeDirectories(batch) => {
            for named in batch {
                sink.directory_made(named.id, Err(FILE_ONLY.into()));
            }
        }
        Action::PrepareFile { file, .. } => {
            sink.prepared(file.id, check(&file.entry).map(|()| Prepared::Ready));
        }
        Action::CheckPublished(batch) => {
            for named in batch {
                sink.checked(named.id, longhaul_objects::Checked::Missing);
            }
        }
        // Nothing is left of earlier runs.
        Action::RecheckGroups { .. } => {}
        Action::Publish(batch) => {
            for file in batch {
                sink.published(file.id, check(&file.entry));
            }
        }
        Action::PlaceDirectories(batch) => {
            for filled in batch {
                sink.directory_placed(filled.id, false);
            }
        }
        Action::Checkpoint(checkpoint) => sink.checkpointed(checkpoint.id),
        Action::StampFiles { files, .. } => sink.files_stamped(vec![None; files.len()]),
        Action::AppendRecord { .. } => sink.record_appended(),
        Action::FinishDirectories(batch) => {
            for named in batch {
                sink.directory_finished(named.id, Ok(()));
            }
        }
        Action::Discard(_) => {}
        Action::RemoveRecord => sink.record_removed(),
    }
}

/// Only the source itself can be discarded, and only a file.
fn check(entry: &Entry) -> Result<(), String> {
    let is_single = entry.path.components().count() < 2;
    let is_file = entry.kind == EntryKind::File;
    if is_single && is_file { Ok(()) } else { Err(FILE_ONLY.into()) }
}

const FILE_ONLY: &str = "the null device takes a single file";
