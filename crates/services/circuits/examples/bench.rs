//! How fast the calendar decides; `--json` for one JSON object.

use longhaul_circuits::bench::{self, BenchOptions};

fn main() -> Result<(), serde_json::Error> {
    let report = bench::run(&BenchOptions::default(), &mut |step| eprintln!("{step}"));
    if std::env::args().any(|word| word == "--json") {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{}", bench::table(&report));
    }
    Ok(())
}
