//! What a sink's driver does, over an abstract storage and one thing at a time: for simulations
//! and tests. A driver over real files does the same on several threads.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use longhaul_wire::Entry;

use crate::{
    Action, ChainingValue, Checked, Checkpoint, Existing, FilledDirectory, Made, NamedFile,
    Prepared, Publication, RecordedFile, Sink, Stamp, TempName, WritePiece, WriteTask,
};

/// Where a sink's files and its record are.
pub trait Storage {
    /// Why something failed, for people.
    type Error: fmt::Display;

    /// See [`Action::MakeDirectories`].
    fn make_directory(&mut self, entry: &Entry) -> Result<Made, Self::Error>;

    /// See [`Action::PrepareFile`].
    fn prepare(
        &mut self,
        entry: &Entry,
        temp: TempName,
        existing: Existing,
    ) -> Result<Prepared, Self::Error>;

    /// See [`Action::RecheckGroups`]: the groups that are wrong.
    fn recheck(&self, entry: &Entry, temp: TempName, groups: &[(u32, ChainingValue)]) -> Vec<u32>;

    /// See [`Action::CheckPublished`].
    fn check_published(&mut self, file: &RecordedFile) -> Checked;

    /// Writes a part of an unpublished file; see [`WritePiece`].
    fn write(&mut self, piece: &WritePiece, data: &[u8]) -> Result<(), Self::Error>;

    /// See [`Action::Publish`].
    fn publish(&mut self, file: &Publication) -> Result<(), Self::Error>;

    /// See [`Action::PlaceDirectories`].
    fn place_directory(&mut self, directory: &FilledDirectory) -> bool;

    /// Sets mode and modification time of a directory.
    fn finish_directory(&mut self, entry: &Entry) -> Result<(), Self::Error>;

    /// See [`Action::Checkpoint`].
    fn sync(&mut self, checkpoint: &Checkpoint) -> Result<(), Self::Error>;

    /// See [`Action::StampFiles`].
    fn stamp(&self, file: &NamedFile) -> Option<Stamp>;

    /// See [`Action::AppendRecord`].
    fn append_record(&mut self, offset: u64, bytes: &[u8], sync: bool) -> Result<(), Self::Error>;

    /// The record, empty where there is none.
    fn read_record(&self) -> Vec<u8>;

    /// Removes the record and all unpublished files.
    fn remove_record(&mut self) -> Result<(), Self::Error>;

    /// Removes an unpublished file, if it is there.
    fn discard(&mut self, temp: TempName);
}

/// Does `action` and gives `sink` the answer.
///
/// # Errors
/// When storage failed as a whole; the sink has no answer then, and the transfer ends.
pub fn perform<S: Storage>(
    storage: &mut S,
    sink: &mut Sink,
    action: Action,
) -> Result<(), S::Error> {
    match action {
        Action::MakeDirectories(batch) => {
            for directory in batch {
                let result = storage.make_directory(&directory.entry);
                sink.directory_made(directory.id, result.map_err(|error| error.to_string()));
            }
        }
        Action::PrepareFile { file, temp, existing } => {
            let result = storage.prepare(&file.entry, temp, existing);
            sink.prepared(file.id, result.map_err(|error| error.to_string()));
        }
        Action::RecheckGroups { file, temp, groups } => {
            let wrong = storage.recheck(&file.entry, temp, &groups);
            sink.groups_rechecked(file.id, groups.len(), wrong);
        }
        Action::CheckPublished(batch) => {
            for file in batch {
                sink.checked(file.id, storage.check_published(&file));
            }
        }
        Action::Publish(batch) => {
            for file in batch {
                let result = storage.publish(&file);
                sink.published(file.id, result.map_err(|error| error.to_string()));
            }
        }
        Action::PlaceDirectories(batch) => {
            for directory in batch {
                sink.directory_placed(directory.id, storage.place_directory(&directory));
            }
        }
        Action::Checkpoint(checkpoint) => {
            storage.sync(&checkpoint)?;
            sink.checkpointed(checkpoint.id);
        }
        Action::StampFiles { files, .. } => {
            sink.files_stamped(files.iter().map(|file| storage.stamp(file)).collect());
        }
        Action::AppendRecord { offset, bytes, sync } => {
            storage.append_record(offset, &bytes, sync)?;
            sink.record_appended();
        }
        Action::FinishDirectories(batch) => {
            for directory in batch {
                let result = storage.finish_directory(&directory.entry);
                sink.directory_finished(directory.id, result.map_err(|error| error.to_string()));
            }
        }
        Action::Discard(temps) => temps.into_iter().for_each(|temp| storage.discard(temp)),
        Action::RemoveRecord => {
            storage.remove_record()?;
            sink.record_removed();
        }
    }
    Ok(())
}

/// Writes the group whose contents are `data`, and tells `sink`.
pub fn write<S: Storage>(storage: &mut S, sink: &mut Sink, task: &WriteTask, data: &[u8]) {
    for piece in &task.pieces {
        let part = &data[piece.group_offset as usize..][..piece.len as usize];
        if let Err(error) = storage.write(piece, part) {
            sink.write_failed(piece.id, &error.to_string());
        }
    }
    sink.group_written(task.object, task.group);
}
