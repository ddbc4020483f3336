//! Descriptors, which all that this process does shares: leased to the clients of a server, and kept for
//! files only as far as they are not needed otherwise.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use longhaul_sys::clock;
use longhaul_sys::process::descriptor_limit;
use longhaul_units::Duration;
use rustix::io::Errno;

use crate::buffer::lock;

/// Something that keeps handles open only to be faster.
pub(crate) trait Keeps: Send + Sync {
    /// Closes those that nobody uses.
    fn shrink(&self);
}

/// Everything that does.
static KEEPERS: Mutex<Vec<Weak<dyn Keeps>>> = Mutex::new(Vec::new());
/// Handles that are kept, in all.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// `keeper` is asked to close its handles when they are short.
pub(crate) fn register(keeper: Weak<dyn Keeps>) {
    let mut keepers = lock(&KEEPERS);
    keepers.retain(|keeper| keeper.strong_count() > 0);
    keepers.push(keeper);
}

/// Nobody has got a descriptor since somebody waited for one in vain.
static IN_VAIN: AtomicBool = AtomicBool::new(false);

/// One more handle is to be kept. Whether it may be.
pub(crate) fn keep() -> bool {
    let most = kept_most(descriptor_limit());
    KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |kept| {
        (kept < most).then_some(kept + 1)
    })
    .is_ok()
}

/// So many are kept no longer.
pub(crate) fn let_go(count: usize) {
    KEPT.fetch_sub(count, Ordering::Relaxed);
}

/// Does `open`. Where no descriptor is left, closes what is kept, and waits until there is one.
///
/// # Errors
/// That of `open`; where none has come for [`PATIENCE`] that there is none. Until one comes, others wait for
/// [`LITTLE_PATIENCE`] only: ten thousand files are not to fail by name in as many turns.
pub(crate) fn patiently<T, E: MayBeShort>(mut open: impl FnMut() -> Result<T, E>) -> Result<T, E> {
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
pub(crate) trait MayBeShort {
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

/// What to do about that, if `error` says it.
pub(crate) fn in_words(error: &io::Error) -> Option<String> {
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

/// Checks that this process may have as many as a copy needs at least.
///
/// # Errors
/// They are too few: the reason says so, and how to get more.
pub(crate) fn check() -> Result<(), String> {
    match descriptor_limit() {
        limit @ ..LEAST => Err(format!(
            "this process may have only {limit} descriptors, and needs {LEAST} at least: raise the limit \
             (ulimit -n; LimitNOFILE= in a systemd unit)"
        )),
        _ => Ok(()),
    }
}

/// Descriptors of a server for its clients.
#[derive(Clone, Debug)]
pub(crate) struct Descriptors(Arc<AtomicUsize>);

/// What a client has of them; given back when dropped.
#[derive(Debug)]
pub(crate) struct Leased {
    of: Descriptors,
    count: usize,
}

impl Descriptors {
    /// Of a process that may have `limit`: one client is served in any case.
    pub fn new(limit: usize) -> Self {
        let others = kept_most(limit) + (limit / 8).min(STRANGERS) + SERVER;
        Self(Arc::new(AtomicUsize::new(limit.saturating_sub(others).max(of_client(1)))))
    }

    /// Those of a client with so many lanes; `None` if they are not there.
    pub fn lease(&self, lanes: u16) -> Option<Leased> {
        let count = of_client(lanes);
        let take = |free: usize| free.checked_sub(count);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Leased { of: self.clone(), count })
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.of.0.fetch_add(self.count, Ordering::Relaxed);
    }
}

/// What a client takes beside what is kept: its connections, the threads' signals, the destination, and
/// what its threads have open at the moment.
fn of_client(lanes: u16) -> usize {
    CLIENT + usize::from(lanes) * LANE
}

/// Handles that may be kept in all.
fn kept_most(limit: usize) -> usize {
    limit / 4
}

/// Of a client, and of each of its lanes.
const CLIENT: usize = 28;
const LANE: usize = 3;
/// Without so many a copy gets nowhere.
const LEAST: usize = 64;
/// Of the server itself, and of strangers at most.
const SERVER: usize = 32;
const STRANGERS: usize = 512;
/// So long a descriptor is waited for: others close theirs within a group or a file.
const PATIENCE: Duration = Duration::from_secs(5);
const LITTLE_PATIENCE: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_find_descriptors_or_hear_that_there_are_none() {
        let descriptors = Descriptors::new(1024);
        let clients: Vec<_> = std::iter::from_fn(|| descriptors.lease(1)).collect();
        assert!(clients.len() >= 10, "{}", clients.len());
        let all = clients.len() * of_client(1) + kept_most(1024) + SERVER;
        assert!(all < 1024, "{all}");
        drop(clients);
        assert!(descriptors.lease(8).is_some());
        let few = Descriptors::new(64);
        let one = few.lease(1);
        assert!(one.is_some() && few.lease(1).is_none());
        assert!(Descriptors::new(4096).lease(64 * 8).is_some());
    }

    #[test]
    fn who_finds_no_descriptor_has_caches_shrink_and_tries_again() {
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
