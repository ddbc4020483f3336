//! Descriptors, which all that this process does shares: handles are kept open only as far as none is short.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, Weak};

use longhaul_units::Duration;
use rustix::io::Errno;

use crate::clock;
use crate::process::descriptor_limit;
use crate::sync::lock;

/// Something that keeps handles open only to be faster.
pub trait Keeps: Send + Sync {
    /// Closes those that nobody uses.
    fn shrink(&self);
}

/// Everything that does.
static KEEPERS: Mutex<Vec<Weak<dyn Keeps>>> = Mutex::new(Vec::new());
/// Handles that are kept, in all.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// `keeper` is asked to close its handles when they are short.
pub fn register(keeper: Weak<dyn Keeps>) {
    let mut keepers = lock(&KEEPERS);
    keepers.retain(|keeper| keeper.strong_count() > 0);
    keepers.push(keeper);
}

/// Nobody has got a descriptor since somebody waited for one in vain.
static IN_VAIN: AtomicBool = AtomicBool::new(false);

/// One more handle is to be kept. Whether it may be.
pub fn keep() -> bool {
    let most = kept_most(descriptor_limit());
    KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |kept| {
        (kept < most).then_some(kept + 1)
    })
    .is_ok()
}

/// So many are kept no longer.
pub fn let_go(count: usize) {
    KEPT.fetch_sub(count, Ordering::Relaxed);
}

/// Does `open`. Where no descriptor is left, closes what is kept, and waits until there is one.
///
/// # Errors
/// That of `open`; where none has come for `PATIENCE` that there is none. Until one comes, others wait for
/// `LITTLE_PATIENCE` only: ten thousand files are not to fail by name in as many turns.
pub fn patiently<T, E: MayBeShort>(mut open: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let mut until = None;
    loop {
        let result = open();
        if !result.as_ref().is_err_and(MayBeShort::is_short) {
            if IN_VAIN.load(Ordering::Relaxed) {
                IN_VAIN.store(false, Ordering::Relaxed);
            }
            return result;
        }
        let patience = if IN_VAIN.load(Ordering::Relaxed) { LITTLE_PATIENCE } else { PATIENCE };
        if clock::now() >= *until.get_or_insert_with(|| clock::now() + patience) {
            IN_VAIN.store(true, Ordering::Relaxed);
            return result;
        }
        let keepers: Vec<_> = lock(&KEEPERS).iter().filter_map(Weak::upgrade).collect();
        keepers.iter().for_each(|keeper| keeper.shrink());
        std::thread::sleep(LOOK);
    }
}

/// An error that may say that this process, or the host, has no descriptor left.
pub trait MayBeShort {
    /// True where it does.
    fn is_short(&self) -> bool;
}

impl MayBeShort for Errno {
    fn is_short(&self) -> bool {
        matches!(*self, Self::MFILE | Self::NFILE)
    }
}

impl MayBeShort for io::Error {
    fn is_short(&self) -> bool {
        Errno::from_io_error(self).is_some_and(|errno| errno.is_short())
    }
}

/// Advice for the user, if `error` is of that kind.
pub fn in_words(error: &io::Error) -> Option<String> {
    match Errno::from_io_error(error)? {
        Errno::MFILE => Some(format!(
            "all {} descriptors that this process may have are in use: raise the limit (ulimit -n; \
             LimitNOFILE= in a systemd unit)",
            descriptor_limit()
        )),
        Errno::NFILE => Some("this host has no descriptor left: raise fs.file-max (sysctl)".into()),
        _ => None,
    }
}

/// `error` in words, with that advice where it is of use.
pub fn explained(error: &io::Error) -> String {
    in_words(error).unwrap_or_else(|| error.to_string())
}

/// Handles that may be kept in all, of a process that may have `limit` descriptors.
pub fn kept_most(limit: usize) -> usize {
    limit / 4
}

/// So long a descriptor is waited for: others close theirs within a group or a file.
const PATIENCE: Duration = Duration::from_secs(5);
const LITTLE_PATIENCE: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_lack_of_descriptors_shrinks_caches_and_is_tried_again() {
        struct Keeper(AtomicUsize);
        impl Keeps for Keeper {
            fn shrink(&self) {
                self.0.store(0, Ordering::Relaxed);
            }
        }
        let keeper = Arc::new(Keeper(AtomicUsize::new(7)));
        let known: Arc<dyn Keeps> = keeper.clone();
        register(Arc::downgrade(&known));
        let mut tries = 0;
        let opened = patiently(|| {
            tries += 1;
            match keeper.0.load(Ordering::Relaxed) {
                0 => Ok(()),
                _ => Err(Errno::MFILE),
            }
        });
        assert!(opened.is_ok() && tries == 2, "{tries}");
        assert_eq!(patiently(|| Err::<(), _>(Errno::ACCESS)), Err(Errno::ACCESS));
        let words = in_words(&Errno::MFILE.into()).unwrap();
        assert!(words.contains("LimitNOFILE") && words.contains(&descriptor_limit().to_string()));
    }
}
