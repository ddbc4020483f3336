//! `auto` on paths that nobody tuned it for, with real sockets, through more than one emulator, and kernel TCP
//! beside it.
//!
//! `cargo run --release -p longhaul-bench --example paths RESULTS EMULATOR [CELL [SEEDS [FROM]]]`
//!
//! EMULATOR is `lab`, `htb` (rate and queue are the kernel's own), or another program
//! (`longhaul_lab::OtherPath` says how it is started). RESULTS is a file with a line for each run; what stands
//! there is not run again, so that the same command goes on where it was stopped. Every figure is a share of
//! the ideal: the link's rate without headers, times what random loss leaves. Runs as root.

mod cells;
mod results;
mod runs;

use std::env;
use std::error::Error;
use std::path::Path;

use cells::CELLS;
use results::{Contender, Key, Results};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [file, emulator, rest @ ..] = &arguments[..] else {
        return Err("needs RESULTS and EMULATOR".into());
    };
    let number = |at: usize, default| rest.get(at).map_or(Ok(default), |text| text.parse::<u64>());
    let (seeds, from) = (number(1, 5)?, number(2, 1)?);
    let wanted = rest.first().filter(|name| *name != "all");
    let cells: Vec<_> = CELLS
        .iter()
        .filter(|cell| wanted.is_none_or(|wanted| cell.name().contains(&**wanted)))
        .collect();
    let program = env::current_exe()?;
    let program = program.ancestors().nth(2).ok_or("no folder of programs")?.join("longhaul");
    let mut results = Results::open(Path::new(file))?;
    let files = runs::Files::new(&program)?;
    let emulator = runs::Emulator::named(emulator);
    for cell in &cells {
        let peers = [Contender::Bbr, Contender::Cubic].map(|peer| (peer, from));
        let autos = (from..from + seeds).map(|seed| (Contender::Auto, seed));
        for (contender, seed) in autos.chain(peers) {
            let key = Key { emulator: emulator.name(), cell: cell.name(), contender, seed };
            if !results.has(&key) {
                let run = runs::run(&emulator, cell, contender, seed, &files)?;
                results.add(key, run)?;
            }
        }
        println!("{}", results.row(&emulator.name(), cell));
    }
    Ok(())
}
