//! Work of a sink's driver on its storage: one way for files, for what keeps nothing, and for
//! memory in simulations.

use alloc::vec::Vec;

use longhaul_wire::{Entry, EntryCode, EntryEnd};

use crate::action::{
    Action, Answer, Checked, Checkpoint, Compared, ComparedFile, Deletion, EqualGroups, Existing,
    ExistingEntry, FilledDirectory, Made, NamedEntry, NamedFile, Prepared, Publication,
    RecordedFile, WritePiece, WriteTask,
};
use crate::entry::{EntryId, TempName};
use crate::hash::ChainingValue;
use crate::paths::AnnouncedPaths;
use crate::record::Stamp;

/// Where a sink's files and its record are. One value serves one thread.
pub trait Storage {
    /// Why something failed that concerns one entry.
    type Error: Into<EntryEnd>;
    /// Failure of the storage as a whole: the transfer ends, and what is recorded stays valid.
    type Failure;

    /// See [`Action::MakeDirectories`].
    fn make_directory(&mut self, directory: &NamedEntry) -> Result<Made, Self::Error>;

    /// See [`Action::PrepareFile`].
    fn prepare(
        &mut self,
        entry: &Entry,
        temp: TempName,
        existing: Existing,
    ) -> Result<Prepared, Self::Error>;

    /// See [`Action::RecheckGroups`]: the groups that are wrong.
    fn recheck(
        &mut self,
        entry: &Entry,
        temp: TempName,
        groups: &[(u32, ChainingValue)],
    ) -> Vec<u32>;

    /// Copies these groups of the file that has the entry's name into the unpublished one. Those that it
    /// cannot copy are found by [`Self::recheck`].
    fn take_over(&mut self, entry: &Entry, temp: TempName, groups: &[(u32, ChainingValue)]);

    /// See [`Action::CompareContents`]: the groups that are equal.
    fn compare_contents(&mut self, file: &ComparedFile) -> Vec<(u32, ChainingValue)>;

    /// In a dry run: why a copy could not replace what has the entry's name, if that is known.
    fn forbids(&mut self, _: &Entry) -> Option<EntryEnd> {
        None
    }

    /// See [`Action::MendExisting`]: the code that the file has in RESULT, if it is there and such.
    fn mend(&mut self, entry: &Entry) -> Option<EntryCode>;

    /// See [`Action::CheckPublished`].
    fn check_published(&mut self, file: &RecordedFile) -> Checked;

    /// See [`Action::CompareExisting`].
    fn compare(&mut self, existing: &ExistingEntry) -> Compared;

    /// Writes a part of an unpublished file; see [`WritePiece`].
    fn write(&mut self, piece: &WritePiece, data: &[u8]) -> Result<(), Self::Error>;

    /// See [`Action::Publish`].
    fn publish(&mut self, file: &Publication) -> Result<(), Self::Error>;

    /// See [`Action::PlaceDirectories`].
    fn place_directory(&mut self, directory: &FilledDirectory) -> bool;

    /// Sets mode and modification time of a directory. Of one that was there before the error is the code that it
    /// has in RESULT: unchanged, or mended.
    fn finish_directory(&mut self, directory: &NamedEntry) -> Result<(), Self::Error>;

    /// Deletes what is in a directory and was not `announced`.
    fn delete_others(
        &mut self,
        directory: &NamedEntry,
        announced: &AnnouncedPaths,
    ) -> Vec<Deletion>;

    /// Things deleted since the last call from directories whose names files or links were to have: not
    /// these themselves.
    fn take_cleared(&mut self) -> Vec<Deletion>;

    /// See [`Action::Checkpoint`].
    fn sync(&mut self, checkpoint: &Checkpoint) -> Result<(), Self::Failure>;

    /// See [`Action::StampFiles`].
    fn stamps(&mut self, files: &[NamedFile], settle: bool) -> Vec<Option<Stamp>>;

    /// See [`Action::AppendRecord`].
    fn append_record(&mut self, offset: u64, bytes: &[u8], sync: bool)
    -> Result<(), Self::Failure>;

    /// Removes the record and all unpublished files.
    fn remove_record(&mut self) -> Result<(), Self::Failure>;

    /// Removes an unpublished file, if it is there.
    fn discard(&mut self, temp: TempName);

    /// The copy is over, and something failed: see [`Action::Discard`].
    fn end(&mut self, keeps_record: bool);
}

/// Does `action`; the answer is for [`crate::sink::Sink::handle_answer`].
///
/// # Errors
/// When the storage failed as a whole; there is no answer then, and the transfer ends.
pub fn perform<S: Storage>(storage: &mut S, action: Action) -> Result<Answer, S::Failure> {
    Ok(match action {
        Action::MakeDirectories(batch) => Answer::DirectoriesMade(each(batch, |directory| {
            (directory.id, ended(storage.make_directory(directory)))
        })),
        Action::PrepareFile { file, temp, existing } => {
            Answer::Prepared(file.id, ended(storage.prepare(&file.entry, temp, existing)))
        }
        Action::RecheckGroups { file, temp, groups, taken } => {
            if taken {
                storage.take_over(&file.entry, temp, &groups);
            }
            let wrong = storage.recheck(&file.entry, temp, &groups);
            Answer::Rechecked { file: file.id, groups: groups.len(), wrong }
        }
        Action::CheckPublished(batch) => {
            Answer::Checked(each(batch, |file| (file.id, storage.check_published(file))))
        }
        Action::CompareExisting(batch) => {
            let compared = each(batch, |file| (file.id, storage.compare(file)));
            Answer::Compared(compared, storage.take_cleared())
        }
        Action::CompareContents(batch) => Answer::ContentsCompared(each(batch, |compared| {
            let equal = storage.compare_contents(compared);
            let (file, count) = (&compared.file, compared.groups.len());
            let differs = equal.len() < count;
            let stays = differs.then(|| storage.forbids(&file.entry)).flatten();
            EqualGroups { id: file.id, compared: count, equal, stays }
        })),
        Action::MendExisting(batch) => {
            Answer::Mended(each(batch, |file| (file.id, storage.mend(&file.entry))))
        }
        Action::Publish(batch) => {
            let published = each(batch, |file| (file.id, ended(storage.publish(file))));
            Answer::Published(published, storage.take_cleared())
        }
        Action::PlaceDirectories(batch) => Answer::DirectoriesPlaced(each(batch, |directory| {
            (directory.id, storage.place_directory(directory))
        })),
        Action::Checkpoint(checkpoint) => {
            storage.sync(&checkpoint)?;
            Answer::Synced(checkpoint.id)
        }
        Action::StampFiles { files, settle } => Answer::Stamped(storage.stamps(&files, settle)),
        Action::AppendRecord { offset, bytes, sync } => {
            storage.append_record(offset, &bytes, sync)?;
            Answer::RecordAppended
        }
        Action::FinishDirectories { directories, announced } => {
            Answer::DirectoriesFinished(each(directories, |directory| {
                let announced = announced.as_ref();
                let deleted = announced.map(|paths| storage.delete_others(directory, paths));
                let finished = ended(storage.finish_directory(directory));
                (directory.id, finished, deleted.unwrap_or_default())
            }))
        }
        Action::Discard { temps, keeps_record } => {
            temps.into_iter().for_each(|temp| storage.discard(temp));
            storage.end(keeps_record);
            Answer::Discarded
        }
        Action::RemoveRecord => {
            storage.remove_record()?;
            Answer::RecordRemoved
        }
    })
}

/// Writes the group whose contents are `data`. Returns the entries that could not be written, each
/// with the reason, for [`crate::sink::Sink::group_written`].
///
/// # Panics
/// When `data` is shorter than the group.
pub fn write<S: Storage>(
    storage: &mut S,
    task: &WriteTask,
    data: &[u8],
) -> Vec<(EntryId, EntryEnd)> {
    let written = task.pieces.iter().filter_map(|piece| {
        let part = &data[piece.group_offset as usize..][..piece.len as usize];
        let error = storage.write(piece, part).err()?;
        Some((piece.id, error.into()))
    });
    written.collect()
}

fn each<T, A>(batch: Vec<T>, run: impl FnMut(&T) -> A) -> Vec<A> {
    batch.iter().map(run).collect()
}

fn ended<T>(result: Result<T, impl Into<EntryEnd>>) -> Result<T, EntryEnd> {
    result.map_err(Into::into)
}
