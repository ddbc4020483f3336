use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;

use longhaul_wire::{Entry, EntryCode, EntryEnd};

use super::memory::{MemoryStorage, Node};
use crate::action::{
    Checked, Checkpoint, Compared, ComparedFile, Deletion, Existing, ExistingEntry,
    FilledDirectory, Made, NamedEntry, NamedFile, Prepared, Publication, RecordedFile, WritePiece,
};
use crate::entry::TempName;
use crate::hash::ChainingValue;
use crate::paths::AnnouncedPaths;
use crate::record::Stamp;
use crate::storage::Storage;

/// Storage that is looked at and not changed, for dry runs.
#[derive(Debug)]
pub struct DryMemory<'m>(pub &'m MemoryStorage);

impl Storage for DryMemory<'_> {
    type Error = EntryEnd;
    type Failure = Infallible;

    fn make_directory(&mut self, directory: &NamedEntry) -> Result<Made, EntryEnd> {
        match self.0.node(directory.entry.path.as_bytes()) {
            Some(Node::Directory { .. }) => Ok(Made::InPlace),
            Some(_) => Err(end(EntryCode::InTheWay)),
            None => Err(end(EntryCode::New)),
        }
    }

    fn compare(&mut self, existing: &ExistingEntry) -> Compared {
        match self.0.node(existing.entry.path.as_bytes()) {
            None => match self.0.compared(existing) {
                Compared::Elsewhere(other) => Compared::Elsewhere(other),
                _ => Compared::Missing,
            },
            Some(Node::Directory { .. }) => Compared::Blocked(Box::new(end(EntryCode::InTheWay))),
            Some(_) => self.0.compared(existing),
        }
    }

    fn compare_contents(&mut self, file: &ComparedFile) -> Vec<(u32, ChainingValue)> {
        self.0.equal_groups(file)
    }

    fn mend(&mut self, entry: &Entry) -> Option<EntryCode> {
        let mended = self.0.mended(entry).filter(|_| self.0.may_be_all_holes(entry))?;
        let is_so = self.0.node(entry.path.as_bytes()) == Some(&mended);
        Some(if is_so { EntryCode::Unchanged } else { EntryCode::Mended })
    }

    fn finish_directory(&mut self, directory: &NamedEntry) -> Result<(), EntryEnd> {
        let entry = &directory.entry;
        let node = self.0.node(entry.path.as_bytes());
        Err(end(match node.is_some_and(|node| node.lacks_attributes(entry)) {
            true => EntryCode::Mended,
            false => EntryCode::Unchanged,
        }))
    }

    fn publish(&mut self, file: &Publication) -> Result<(), EntryEnd> {
        let path = file.entry.path.as_bytes();
        let first = file.first.as_ref();
        let is_that =
            first.is_some_and(|first| first.stays && self.0.is_one(path, first.path.as_bytes()));
        Err(end(match self.0.node(path) {
            _ if first.is_none() => EntryCode::Refused,
            None => EntryCode::New,
            Some(Node::Directory { .. }) => EntryCode::InTheWay,
            Some(_) if is_that => EntryCode::Unchanged,
            Some(_) => EntryCode::Differs,
        }))
    }

    fn delete_others(
        &mut self,
        directory: &NamedEntry,
        announced: &AnnouncedPaths,
    ) -> Vec<Deletion> {
        let others = self.0.others(directory, announced).into_iter();
        others.map(|path| Deletion { path: path.into_vec(), result: Ok(()) }).collect()
    }

    fn take_cleared(&mut self) -> Vec<Deletion> {
        Vec::new()
    }

    // No contents are taken in.

    fn prepare(&mut self, _: &Entry, _: TempName, _: Existing) -> Result<Prepared, EntryEnd> {
        Err(end(EntryCode::Refused))
    }

    fn recheck(&mut self, _: &Entry, _: TempName, _: &[(u32, ChainingValue)]) -> Vec<u32> {
        Vec::new()
    }

    fn take_over(&mut self, _: &Entry, _: TempName, _: &[(u32, ChainingValue)]) {}

    fn check_published(&mut self, _: &RecordedFile) -> Checked {
        Checked::Missing
    }

    fn write(&mut self, _: &WritePiece, _: &[u8]) -> Result<(), EntryEnd> {
        Err(end(EntryCode::Refused))
    }

    fn place_directory(&mut self, _: &FilledDirectory) -> bool {
        false
    }

    fn sync(&mut self, _: &Checkpoint) -> Result<(), Infallible> {
        Ok(())
    }

    fn stamps(&mut self, files: &[NamedFile], _: bool) -> Vec<Option<Stamp>> {
        vec![None; files.len()]
    }

    fn append_record(&mut self, _: u64, _: &[u8], _: bool) -> Result<(), Infallible> {
        Ok(())
    }

    fn remove_record(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn discard(&mut self, _: TempName) {}

    fn end(&mut self, _: bool) {}
}

fn end(code: EntryCode) -> EntryEnd {
    EntryEnd::new(code, "")
}
