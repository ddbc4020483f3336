//! The resume record on disk.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::AtomicU64;

use crate::sink::sync::sync_data;

/// The file that holds the resume record.
///
/// On a full disk the transfer goes on without it: what cannot be written waits for room. Behind a
/// gap nothing is believed ([`longhaul_objects::record::replay`]), so the worst is that a later run
/// sends again what this one has sent.
#[derive(Debug)]
pub(crate) struct Record {
    file: File,
    /// An earlier run has written it.
    is_earlier: bool,
    /// True if the names that lead to it are durable.
    pub(crate) is_findable: bool,
    /// Bytes that wait, and their offset.
    waiting: Vec<u8>,
    offset: u64,
}

impl Record {
    pub(crate) fn new(file: File) -> Self {
        let is_earlier = file.metadata().is_ok_and(|metadata| metadata.len() > 0);
        Self { file, is_earlier, is_findable: false, waiting: Vec::new(), offset: 0 }
    }

    /// True if no earlier run has left it.
    pub(crate) fn is_of_this_run(&self) -> bool {
        !self.is_earlier
    }

    /// Writes `bytes` at `offset`, which is where the last ones ended, and makes them durable where there
    /// are `notes` of that.
    pub(crate) fn append(
        &mut self,
        offset: u64,
        bytes: &[u8],
        notes: Option<&AtomicU64>,
    ) -> io::Result<()> {
        if self.waiting.is_empty() {
            self.offset = offset;
        }
        self.waiting.extend_from_slice(bytes);
        let written = self.file.write_all_at(&self.waiting, self.offset);
        let sync = || notes.map_or(Ok(()), |notes| sync_data(&self.file, notes));
        match written.and_then(|()| sync()) {
            Ok(()) => {
                self.waiting.clear();
                Ok(())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
                    && self.waiting.len() <= WAITING_MAX =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// True if somebody has removed it: no later run finds it then.
    pub(crate) fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }

    /// True if there is nothing for a later run. What waits gets a last chance.
    pub(crate) fn is_empty(&mut self) -> bool {
        if !self.waiting.is_empty() {
            let _ = self.append(self.offset, &[], Some(&AtomicU64::default()));
        }
        self.file.metadata().is_ok_and(|metadata| metadata.len() == 0)
    }
}

/// Bytes that wait for room: claims for half a terabyte.
const WAITING_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_claims_are_written_when_there_is_room() {
        let path = std::env::temp_dir().join(format!("longhaul-record-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        // A device that is always full stands for the disk.
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut record = Record::new(full);
        record.append(0, b"one ", None).unwrap();
        record.append(4, b"two ", None).unwrap();
        record.file = file;
        record.append(8, b"three", Some(&AtomicU64::default())).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one two three");
        assert!(!record.is_empty());
        std::fs::remove_file(path).unwrap();
    }
}
