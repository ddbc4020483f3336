use std::io;

use longhaul_sys::memory::Pages;

use super::{Going, Load};

/// Copies one half to the other, block by block, so that every byte comes from memory.
pub(super) fn run(load: &Load, going: &mut Going<'_>) -> io::Result<u64> {
    let mut memory = Pages::new(load.bytes().max(2 * BLOCK))?;
    memory.touch();
    let half = memory.len() / 2;
    let mut rounds = 0;
    'work: loop {
        let (from, to) = memory.split_at_mut(half);
        for (source, target) in from.chunks(BLOCK).zip(to.chunks_mut(BLOCK)) {
            if !going.on() {
                break 'work;
            }
            let length = source.len().min(target.len());
            target[..length].copy_from_slice(&source[..length]);
        }
        std::hint::black_box(&mut memory);
        rounds += 1;
    }
    Ok(rounds)
}

/// Copied between two looks at the clock.
const BLOCK: usize = 1 << 20;
