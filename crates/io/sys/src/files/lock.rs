use std::fs::{File, TryLockError};
use std::io;

/// Keeps everybody else who asks for it out of a file, in this process or another, until it is
/// dropped. Closing the file would not be enough for that: a command that another thread starts has
/// the open file too, until it is the command's program.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks an open file.
    ///
    /// # Errors
    /// `WouldBlock` while somebody else has the lock; and those of file systems that cannot lock.
    pub fn try_take(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // What cannot be unlocked is so once it is closed everywhere.
        let _ = self.0.unlock();
    }
}
