use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use longhaul_sys::wait::{Interest, wait};
use longhaul_sys::{clock, host};
use longhaul_units::{Instant, Rate};

use super::Link;
use super::worker::Stop;

/// A thread that changes the rates of the kernel's lines at their times.
pub(super) struct Rates {
    links: Vec<Arc<Link>>,
    began: Instant,
    stop: Arc<Stop>,
}

impl Rates {
    pub(super) fn new(links: Vec<Arc<Link>>, began: Instant, stop: Arc<Stop>) -> Self {
        Self { links, began, stop }
    }

    /// Until it is stopped, or a change fails.
    pub(super) fn run(self) -> io::Result<()> {
        // Without these the changes are later; the statistics show it.
        let _ = clock::use_precise_timers();
        let _ = host::run_first();
        let ends = self.links.iter().flat_map(|link| &link.ends);
        let lines = ends.filter_map(|end| end.line.as_ref());
        let mut changes: Vec<(Duration, Rate, _)> = lines
            .flat_map(|line| line.changes.iter().map(move |(at, rate)| (*at, *rate, line)))
            .collect();
        changes.sort_by_key(|(at, ..)| *at);
        for (at, rate, line) in changes {
            let due = self.began + at;
            if self.stopped_before(Some(due))? {
                return Ok(());
            }
            line.set_rate(rate)?;
            line.was_late(clock::now().since(due));
        }
        self.stopped_before(None).map(|_| ())
    }

    /// Waits until then, or until it is to end.
    fn stopped_before(&self, due: Option<Instant>) -> io::Result<bool> {
        Ok(wait(&[(self.stop.as_fd(), Interest::Readable)], due)? != 0)
    }
}
