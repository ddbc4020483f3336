//! Slow disks, busy processors and file systems that refuse, for tests, by the names of files.

use std::thread;
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_wire::Entry;

/// A piece of `entry` is about to be read or written, as `done` says.
pub(crate) fn inject_delay(entry: &Entry, done: &str) {
    let name = String::from_utf8_lossy(entry.path.as_bytes()).into_owned();
    if name.contains(&format!("slow to {done}")) {
        thread::sleep(SLOW);
    }
    if name.contains(&format!("stuck to {done}")) {
        thread::sleep(STUCK);
    }
    if name.contains(&format!("hard to {done}")) {
        let start = clock::thread_cpu_time();
        while clock::thread_cpu_time() < start + HARD {}
    }
}

/// True where the file system does not let `entry` have its mode or time, or a late one, or be a later name, as `what`
/// says.
pub(crate) fn refuses(entry: &Entry, what: &str) -> bool {
    String::from_utf8_lossy(entry.path.as_bytes()).contains(&format!("without {what}"))
}

/// The last time where late ones are not kept: as on ext3.
pub(crate) const LATEST: i64 = i32::MAX as i64 * 1_000_000_000;
/// So long a slow disk takes for each piece.
pub const SLOW: Duration = Duration::from_secs(1);
/// Longer than tests wait for a disk.
const STUCK: Duration = Duration::from_secs(8);
const HARD: Duration = Duration::from_millis(50);
