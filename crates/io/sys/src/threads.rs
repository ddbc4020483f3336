//! New threads. A host may refuse one: then the error names the limits that may be raised.

use std::fmt;
use std::io;
use std::sync::Mutex;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use rustix::io::Errno;

use crate::sync::lock;

/// Does `work` on a new thread. `name` has no zero byte.
///
/// # Errors
/// The host lets this process have no more: a [`NoThread`].
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(work).map_err(refused)
}

/// The same, on a thread that ends with `scope`.
///
/// # Errors
/// As of [`spawn`].
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.into()).spawn_scoped(scope, work).map_err(refused)
}

/// Checks that `count` threads more can be had at once: for libraries that panic where they cannot.
///
/// # Errors
/// As of [`spawn`].
pub fn check(count: usize) -> io::Result<()> {
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        // Each waits until all are there, or one is refused.
        let _closed = lock(&gate);
        let wait = || drop(lock(&gate));
        (0..count).try_for_each(|_| spawn_scoped(scope, "check", wait).map(drop))
    })
}

/// The host's answer to a [`Builder`], in words.
pub fn refused(error: io::Error) -> io::Error {
    // Not of the kind of EAGAIN: to try again at once would not help.
    io::Error::other(NoThread(error))
}

/// True where `error` is that no thread could be made.
pub fn is_refused(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NoThread>())
}

/// No thread could be made.
#[derive(Debug)]
pub struct NoThread(io::Error);

impl fmt::Display for NoThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot start a thread: ")?;
        match Errno::from_io_error(&self.0) {
            Some(Errno::AGAIN) => f.write_str(
                "this user, service or host has as many as it may: raise the limit (ulimit -u; TasksMax= \
                 in a systemd unit; kernel.threads-max)",
            ),
            _ => self.0.fmt(f),
        }
    }
}

impl std::error::Error for NoThread {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_thread_names_the_limits() {
        let error = refused(Errno::AGAIN.into());
        assert!(is_refused(&error) && error.kind() == io::ErrorKind::Other);
        let words = error.to_string();
        assert!(words.contains("ulimit -u") && words.contains("TasksMax="), "{words}");
        let error = refused(Errno::NOMEM.into()).to_string();
        assert!(error.contains("memory") && !error.contains("ulimit"), "{error}");
        assert!(!is_refused(&Errno::AGAIN.into()));
    }

    #[test]
    fn threads_that_can_be_had_end_with_the_check() {
        check(3).unwrap();
        assert_eq!(spawn("one", || 7).unwrap().join().unwrap(), 7);
        let two = std::thread::scope(|scope| {
            spawn_scoped(scope, "two", || 2)?.join().map_err(|_| io::Error::other("panicked"))
        });
        assert_eq!(two.unwrap(), 2);
    }
}
