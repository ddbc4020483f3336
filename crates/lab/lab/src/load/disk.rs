use std::io::{self, Seek, Write};
use std::time::Duration;

use longhaul_sys::clock;

use super::{Going, Load};

/// Writes a file without a name, which ends with the thread, over and over.
pub(super) fn run(load: &Load, going: &mut Going<'_>) -> io::Result<u64> {
    let folder = load.folder();
    let mut file = tempfile::tempfile_in(&folder)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
    let block: Vec<u8> = (0..BLOCK).map(|index| ((index * 31) >> 3) as u8).collect();
    let blocks = load.bytes().div_ceil(BLOCK).max(1);
    let start = clock::now();
    let (mut rounds, mut written) = (0, 0);
    'work: loop {
        file.rewind()?;
        for _ in 0..blocks {
            let due = load.rate.map(|rate| start + rate.time_for(written));
            while due.is_some_and(|due| clock::now() < due) && going.on() {
                clock::sleep_until(due.unwrap_or_default().min(clock::now() + GLANCE));
            }
            if !going.on() {
                break 'work;
            }
            file.write_all(&block)?;
            written += block.len() as u64;
        }
        file.sync_data()?;
        rounds += 1;
    }
    Ok(rounds)
}

const BLOCK: usize = 1 << 20;
const GLANCE: Duration = Duration::from_millis(10);
