use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_units::{EntryCode, ObjectId};
use longhaul_wire::{Entry, EntryEnd, EntryPath};

use crate::directory::Named;
use crate::entry::{EntryId, TempName};
use crate::hash::ChainingValue;
use crate::paths::AnnouncedPaths;
use crate::record::Stamp;

/// Action of the driver of a [`crate::sink::Sink`] on its storage.
///
/// Some are done [in the order given](Self::is_in_order), the others at the same time as anything.
/// The result of each is an [`Answer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make these directories, parents first; one that exists already is as good. One that does not
    /// may be staged, out of sight, until [`Action::PlaceDirectories`]. Answered by
    /// [`Answer::DirectoriesMade`]. Make them writable whatever their mode says:
    /// [`Action::FinishDirectories`] sets it.
    MakeDirectories(Vec<NamedEntry>),
    /// Open the unpublished file `temp` for a large file. Answered by [`Answer::Prepared`].
    PrepareFile {
        /// The file.
        file: NamedEntry,
        /// Its name until it is published.
        temp: TempName,
        /// File that there should be already.
        existing: Existing,
    },
    /// Read these groups of an unpublished file, at most [`crate::limits::RECHECK_GROUPS`], and
    /// compare their chaining values. Answered by [`Answer::Rechecked`].
    RecheckGroups {
        /// The file.
        file: NamedEntry,
        /// Its name until it is published.
        temp: TempName,
        /// Groups, ascending, and what their chaining values were.
        groups: Vec<(u32, ChainingValue)>,
        /// They are copied first, from the file that has the entry's name.
        taken: bool,
    },
    /// Say of each whether it is under its name with its size and modification time, or give it
    /// that name where it has its stamp in a directory that an earlier run left staged. Answered by
    /// [`Answer::Checked`].
    CheckPublished(Vec<RecordedFile>),
    /// Compare each with the file that has its name: size, and modification time as fine as the file
    /// system keeps it. Answered by [`Answer::Compared`].
    CompareExisting(Vec<ExistingEntry>),
    /// Read groups of the files that have these names, of the same size, and compare their chaining values:
    /// at most [`crate::limits::RECHECK_GROUPS`] in all. Answered by [`Answer::ContentsCompared`].
    CompareContents(Vec<ComparedFile>),
    /// Give the files that have these names, and their contents, their modes and modification times; in a dry run
    /// find out whether they lack them. One that is to be all holes has the contents if it reads as zeros, which is
    /// to be looked at. Answered by [`Answer::Mended`].
    MendExisting(Vec<NamedEntry>),
    /// Give each its mode and modification time (where that was not done when it was written) and
    /// its name, replacing what was there. Links are made, and files without data too, whose length is
    /// durable before they have their names. A later name is made one of what the first names, and that is copied
    /// where the storage cannot. Answered by [`Answer::Published`].
    Publish(Vec<Publication>),
    /// Remove from these staged directories what failed in them, and give them
    /// their names, unless something has them: then what is in them is published one by one.
    /// Answered by [`Answer::DirectoriesPlaced`].
    PlaceDirectories(Vec<FilledDirectory>),
    /// Make durable everything that was answered before this action was given. Answered by
    /// [`Answer::Synced`]; a failure to sync ends the transfer.
    Checkpoint(Box<Checkpoint>),
    /// Tell the stamps of these files: `None` of one that is not there, or that could be written to
    /// from now on and have the same stamp. Answered by [`Answer::Stamped`].
    StampFiles {
        /// The files.
        files: Vec<NamedFile>,
        /// They are to have one: where the last write was too short a time ago, wait.
        settle: bool,
    },
    /// Write `bytes` at `offset` of the resume record, sync them if `sync`. Answered by
    /// [`Answer::RecordAppended`].
    AppendRecord {
        /// Where to write; what was there is no longer needed.
        offset: u64,
        /// Bytes to write.
        bytes: Vec<u8>,
        /// True if to sync before answering.
        sync: bool,
    },
    /// Set mode and modification time of these directories, in the order given (children first), and
    /// before that delete what is in them and was not `announced`, if that is given. Answered by
    /// [`Answer::DirectoriesFinished`], before which no others are given.
    FinishDirectories {
        /// The directories.
        directories: Vec<NamedEntry>,
        /// All paths that were announced.
        announced: Option<AnnouncedPaths>,
    },
    /// Something failed, and all else is over: remove these unpublished files, where they exist. Answered by
    /// [`Answer::Discarded`].
    Discard {
        /// The files.
        temps: Vec<TempName>,
        /// The record alone tells a later run what has its name, so it stays though nothing else is left.
        keeps_record: bool,
    },
    /// Remove the resume record and whatever unpublished files of the transfer are left. Answered
    /// by [`Answer::RecordRemoved`].
    RemoveRecord,
}

impl Action {
    /// True if it is to be done in the order given, which one thread does best.
    pub fn is_in_order(&self) -> bool {
        matches!(
            self,
            Self::MakeDirectories(_)
                | Self::PrepareFile { .. }
                | Self::CheckPublished(_)
                | Self::CompareExisting(_)
        )
    }
}

/// Result of an [`Action`], for [`crate::sink::Sink::handle_answer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Where each directory was made, or why not.
    DirectoriesMade(Vec<(EntryId, Result<Made, EntryEnd>)>),
    /// State of the file, or why it cannot be opened.
    Prepared(EntryId, Result<Prepared, EntryEnd>),
    /// So many groups of the file were compared.
    Rechecked {
        /// The file.
        file: EntryId,
        /// Number of those that were.
        groups: usize,
        /// Those that are not what was recorded, or cannot be read.
        wrong: Vec<u32>,
    },
    /// Of each: the file that has its name, beside it; and in a dry run, what would be deleted to make room.
    Compared(Vec<(EntryId, Compared)>, Vec<Deletion>),
    /// Each file, with those of its groups that are equal.
    ContentsCompared(Vec<EqualGroups>),
    /// Of each that is there the code that it has in RESULT: unchanged, or mended.
    Mended(Vec<(EntryId, Option<EntryCode>)>),
    /// State of each file.
    Checked(Vec<(EntryId, Checked)>),
    /// Of each: it has its name, or the reason why not; and what was deleted to make room.
    Published(Vec<(EntryId, Result<(), EntryEnd>)>, Vec<Deletion>),
    /// True if each has its name.
    DirectoriesPlaced(Vec<(EntryId, bool)>),
    /// The checkpoint of this number is done.
    Synced(u64),
    /// The stamps, in the order asked for.
    Stamped(Vec<Option<Stamp>>),
    /// The bytes are in the record.
    RecordAppended,
    /// Of each: it has its mode and time, or the reason why not; and things deleted from it.
    DirectoriesFinished(Vec<(EntryId, Result<(), EntryEnd>, Vec<Deletion>)>),
    /// There is nothing to tell of it.
    Discarded,
    /// The record is gone.
    RecordRemoved,
}

impl Answer {
    /// True if it is that of an action that is done in order ([`Action::is_in_order`]).
    pub fn is_in_order(&self) -> bool {
        matches!(
            self,
            Self::DirectoriesMade(_) | Self::Prepared(..) | Self::Checked(_) | Self::Compared(..)
        )
    }
}

/// An entry and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEntry {
    /// The number, for the answer.
    pub id: EntryId,
    /// The entry.
    pub entry: Arc<Entry>,
}

/// An entry that is compared with what has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingEntry {
    /// The number, for the answer.
    pub id: EntryId,
    /// The entry.
    pub entry: Arc<Entry>,
    /// If it is unchanged it stays, and so gets its attributes. Else nothing is changed: another name may be that of
    /// the same file.
    pub stays: bool,
    /// One that was modified later stays.
    pub newer_stays: bool,
}

/// Groups of a file that the source has hashed, to be compared with the file that has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedFile {
    /// The file.
    pub file: NamedEntry,
    /// Groups, and the source's chaining values.
    pub groups: Vec<(u32, ChainingValue)>,
}

/// Answer to a [`ComparedFile`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EqualGroups {
    /// The file.
    pub id: EntryId,
    /// Number of groups that were compared.
    pub compared: usize,
    /// Those that are equal.
    pub equal: Vec<(u32, ChainingValue)>,
    /// In a dry run: why a copy could not replace it where it differs, if that is known.
    pub stays: Option<EntryEnd>,
}

/// A small file that an earlier run has recorded as whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedFile {
    /// The number, for the answer.
    pub id: EntryId,
    /// The entry.
    pub entry: Arc<Entry>,
    /// Where it had not got its name: what it had in its staged directory.
    pub stamp: Option<Stamp>,
}

/// An entry that is to get its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The number, for the answer.
    pub id: EntryId,
    /// The entry.
    pub entry: Arc<Entry>,
    /// The file that holds the contents; for links and empty files a name that is free to use.
    pub temp: TempName,
    /// The contents are not there, but under the entry's own name in its directory, which was made
    /// staged and could not be placed.
    pub aside: bool,
    /// It is a later name of what this names, and there are no other contents. Where it is that already, or in a
    /// dry run, the answer is the code that it has in RESULT.
    pub first: Option<FirstName>,
}

/// The first name of a file or link with several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstName {
    /// Its path, as that of an entry.
    pub path: EntryPath,
    /// It was there before this copy.
    pub stays: bool,
    /// It has the contents, whatever its modification time is.
    pub is_compared: bool,
}

impl FirstName {
    pub(crate) fn that_stays(path: EntryPath) -> Self {
        Self { path, stays: true, is_compared: false }
    }
}

/// A staged directory that is to get its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilledDirectory {
    /// The number, for the answer.
    pub id: EntryId,
    /// The entry.
    pub entry: Arc<Entry>,
    /// Own names of files in it that failed: what lies under them, if anything, is not whole.
    pub spoiled: Vec<Box<[u8]>>,
}

/// Where a directory was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Under its name, where it may have been before.
    InPlace,
    /// Out of sight, and empty: nothing has its name.
    Aside,
}

/// Something that was to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Its path, as that of an entry.
    pub path: Vec<u8>,
    /// It is gone, or the reason why not.
    pub result: Result<(), EntryEnd>,
}

/// The file or link that has an entry's name, beside the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// There is none.
    Missing,
    /// In a dry run: the entry would fail for this reason, as where a directory or special file has its name.
    Blocked(Box<EntryEnd>),
    /// It is another, modified no later.
    Other {
        /// Of the same size.
        same_size: bool,
    },
    /// It has its size and modification time.
    Unchanged,
    /// The same, and it has got, or would get, other attributes.
    Mended,
    /// It was modified later.
    Newer {
        /// Of the same size.
        same_size: bool,
    },
    /// It is another or missing, and is to become a name of what has this one of [`Entry::other_names`], which is
    /// unchanged, and has got the entry's attributes.
    Elsewhere(EntryPath),
}

/// State of a file that an earlier run has recorded as published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// It is not there.
    Missing,
    /// It is under its name, which may not be durable.
    There,
}

/// Unpublished part of a large file that an earlier run left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Nothing: create the file, replacing what has that name, and allocate its size.
    Nothing,
    /// The file with some contents. Where it is not there, or shorter than it should be, the
    /// answer is [`Prepared::Missing`]; where it has not this stamp, [`Prepared::Altered`], and it is
    /// cut if it is longer than it should be.
    Part(Option<Stamp>),
    /// The same with all of its contents. Where it is not there, but the entry is under its final
    /// name with its size and modification time, the answer is [`Prepared::Published`].
    Whole(Option<Stamp>),
}

/// Result of [`Action::PrepareFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// The file is open: new and allocated, or the existing one.
    Ready,
    /// The existing file is open, and somebody may have written to it: its groups are to be compared
    /// ([`Action::RecheckGroups`]) before they are believed. Its holes were made again.
    Altered,
    /// The existing file is not there any more. It will be asked for again.
    Missing,
    /// The entry is already whole under its final name.
    Published,
}

/// Files and directories that a checkpoint makes durable.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// Number of the checkpoint, for the answer.
    pub id: u64,
    /// Files that were written since the last checkpoint, failed ones among them: sync their
    /// contents, and the names of their unpublished files. Where they are many and closed,
    /// syncing the file system at once is better.
    pub files: Vec<NamedFile>,
    /// Entries that got their names since the last checkpoint, and finished directories: sync
    /// the directories that hold them, and the directories themselves.
    pub names: Vec<Named>,
}

/// A file that is not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// The entry.
    pub id: EntryId,
    /// Its name until it is published.
    pub temp: TempName,
    /// The entry, where the file has its own name in its staged directory.
    pub aside: Option<Arc<Entry>>,
}

/// Verdict on a group that was received whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Write it, then call [`crate::sink::Sink::group_written`].
    Write(WriteTask),
    /// It is not needed (any more), or did not verify ([`crate::sink::Sink::poll_unverified`]): drop it.
    Discard,
    /// It was received before: drop it.
    Duplicate,
    /// The object was never accepted or has no such group: the caller did not check it.
    Unknown,
}

/// A group to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTask {
    /// The object.
    pub object: ObjectId,
    /// The group.
    pub group: u32,
    /// Parts of the group, each with its place.
    pub pieces: Vec<WritePiece>,
}

/// Bytes of a group that go to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePiece {
    /// Number of the entry.
    pub id: EntryId,
    /// The entry: `file_offset` 0 and `len` its size mean the whole file at once, which may then
    /// be created, written, given its mode and modification time and closed in one go.
    pub entry: Arc<Entry>,
    /// The file to write to. That of a large file is prepared; that of a small one is created by
    /// the first write to it, unless an earlier run left it: then it has the same size, and every
    /// byte is written again before it is published.
    pub temp: TempName,
    /// Not to that, but to a file of the entry's own name in its staged directory,
    /// replacing what has that name. It is the whole file.
    pub aside: bool,
    /// Offset within the file.
    pub file_offset: u64,
    /// Offset within the group.
    pub group_offset: u32,
    /// Bytes.
    pub len: u32,
}
