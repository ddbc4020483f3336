//! Header tags: nanoseconds per header, 44 headers at a time.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use longhaul_sys::siphash::{HEADER, HeaderMac, TAG};

use crate::{RUNS, median};

pub fn measure() -> Result<(), Box<dyn Error>> {
    let mac = HeaderMac::new([7; 16]);
    let headers: Vec<[u8; HEADER]> = (0..BATCH).map(|index| [index as u8; HEADER]).collect();
    let mut tags = vec![[0; TAG]; BATCH];
    let per_header = |start: Instant| start.elapsed().as_nanos() as f64 / (ROUNDS * BATCH) as f64;
    let (mut make, mut check) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            mac.tags(black_box(&headers), &mut tags);
        }
        make.push(per_header(start));
        let start = Instant::now();
        for _ in 0..ROUNDS {
            black_box(mac.verify(black_box(&headers), black_box(&tags)));
        }
        check.push(per_header(start));
    }
    println!("\ntags: SipHash-2-4 of 32 bytes, {BATCH} headers a call, {mac:?}");
    println!("make  {:>6.2} ns per header", median(&mut make, |ns| *ns));
    println!("check {:>6.2} ns per header", median(&mut check, |ns| *ns));
    Ok(())
}

const BATCH: usize = 44;
const ROUNDS: usize = 200_000;
