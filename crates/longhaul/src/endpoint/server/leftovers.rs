//! Leftovers of interrupted copies at a server, which nobody has gone on with for long.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_files::{UnfinishedCopies, discard};
use longhaul_sys::files::ConfinedDir;
use longhaul_sys::reasons::unwritten;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_units::{Bytes, counted};

use crate::api::ServeEvent;
use crate::endpoint::policy::Policy;

/// Looks once a day for what was left longer than `after` ago, and removes it, until `ended`.
pub(super) fn attend(
    policy: &Mutex<Arc<Policy>>,
    after: Duration,
    events: &(dyn Fn(ServeEvent) + Sync),
    ended: &Stop,
) {
    let mut due = Instant::now() + after.min(FIRST);
    while !ended.is_requested() {
        if Instant::now() < due {
            std::thread::sleep(LOOK);
            continue;
        }
        due = Instant::now() + EVERY;
        let roots = lock(policy).writable_roots();
        roots.iter().for_each(|root| discard_old(root, after, events, ended));
    }
}

fn discard_old(
    root: &ConfinedDir,
    after: Duration,
    events: &(dyn Fn(ServeEvent) + Sync),
    ended: &Stop,
) {
    // What cannot be looked at is no copy of this server's.
    let copies = UnfinishedCopies::below(root).take_while(|_| !ended.is_requested()).flatten();
    for copy in copies.filter(|copy| !copy.runs && copy.idle >= after) {
        let (path, bytes) = (copy.path.escape_ascii(), Bytes::new(copy.bytes));
        let days = counted(copy.idle.as_secs() / DAY, "day");
        match discard(root, &copy.path) {
            Ok(true) => events(ServeEvent::Notice(format!(
                "discarded {path}, {bytes} of a copy that was interrupted {days} ago"
            ))),
            // Somebody goes on with it.
            Ok(false) => {}
            Err(error) => events(ServeEvent::Notice(format!(
                "cannot discard {path}, left by a copy that was interrupted {days} ago: {}",
                unwritten(&error)
            ))),
        }
    }
}

const DAY: u64 = 86_400;
/// From the start to the first look: clients come first.
const FIRST: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(DAY);
const LOOK: Duration = Duration::from_millis(200);
