//! Costs of the ways to move bytes between memory, sockets and files on this machine.
//!
//! ```text
//! cargo run --release -p longhaul-sys --example datapath [blast|layout|notes|files|pacing|tags]...
//! ```
//! Without arguments all of it, some minutes. `blast` and `layout` need root for namespaces.
//! Every figure is the median of five runs that take turns, so that drift of the machine hits all
//! rows alike.

mod blast;
mod files;
mod layout;
mod notes;
mod pacing;
mod tags;

use std::error::Error;

use longhaul_sys::host::Machine;

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    println!("{}", Machine::describe());
    let mut known = false;
    for (name, measure) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            known = true;
            measure()?;
        }
    }
    if known { Ok(()) } else { Err("unknown part; see the top of the source".into()) }
}

/// The value in the middle of `values`, by `key`.
fn median<T: Copy>(values: &mut [T], key: impl Fn(&T) -> f64) -> T {
    values.sort_by(|a, b| key(a).total_cmp(&key(b)));
    values[values.len() / 2]
}

type Part = fn() -> Result<(), Box<dyn Error>>;

const PARTS: [(&str, Part); 6] = [
    ("blast", blast::measure),
    ("layout", layout::measure),
    ("notes", notes::measure),
    ("files", files::measure),
    ("pacing", pacing::measure),
    ("tags", tags::measure),
];

/// Runs per row.
const RUNS: usize = 5;
