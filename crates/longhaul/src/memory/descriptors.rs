//! Descriptors of this process: leased to the clients of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_connection::HostFailure;
use longhaul_sys::descriptors::kept_most;
use longhaul_sys::process::descriptor_limit;

/// Checks that this process may have as many as a copy needs at least.
///
/// # Errors
/// They are too few: the reason says so, and how to get more.
pub(crate) fn check() -> Result<(), HostFailure> {
    match descriptor_limit() {
        limit @ ..LEAST => Err(HostFailure::System(format!(
            "this process may have only {limit} descriptors, and needs {LEAST} at least: raise the limit \
             (ulimit -n; LimitNOFILE= in a systemd unit)"
        ))),
        _ => Ok(()),
    }
}

/// Descriptors of a server for its clients.
#[derive(Clone, Debug)]
pub(crate) struct Descriptors(Arc<AtomicUsize>);

/// Those of a client; given back when dropped.
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

/// Descriptors that a client takes beside those that are kept: its connections, the threads' signals, the destination, and
/// what its threads have open at the moment.
fn of_client(lanes: u16) -> usize {
    CLIENT + usize::from(lanes) * LANE
}

/// Of a client, and of each of its lanes.
const CLIENT: usize = 28;
const LANE: usize = 3;
/// Without so many a copy gets nowhere.
const LEAST: usize = 64;
/// Of the server itself, and of strangers at most.
const SERVER: usize = 32;
const STRANGERS: usize = 512;
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
}
