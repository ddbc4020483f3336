//! Runs the worlds of many seeds: `swarm --seeds N --from S [--hashes] [-v]`.
//!
//! A failing seed prints a line that begins with `FAIL` on standard output; progress goes to
//! standard error. `--hashes` prints the hash over the events of each world that passes, to compare
//! two programs by; `-v` tells what happens in each world, one after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use longhaul_sim::{Report, Scenario, World};

struct Options {
    seeds: u64,
    from: u64,
    hashes: bool,
    verbose: bool,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("swarm: {error}\nusage: swarm [--seeds N] [--from S] [--hashes] [-v]");
            return ExitCode::from(2);
        }
    };
    let failed = run(&options);
    println!("{} passed, {failed} failed", options.seeds - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { seeds: 20_000, from: 1, hashes: false, verbose: false };
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().ok_or(format!("{word} needs a number"))?;
            value.parse().map_err(|_| format!("{word} {value}: not a whole number"))
        };
        match word.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--hashes" => options.hashes = true,
            "-v" => options.verbose = true,
            _ => return Err(format!("unexpected argument `{word}`")),
        }
    }
    Ok(options)
}

/// Returns how many failed.
fn run(options: &Options) -> u64 {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let threads =
        if options.verbose { 1 } else { thread::available_parallelism().map_or(1, usize::from) };
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= options.seeds {
                        return;
                    }
                    let seed = options.from + number;
                    match one(seed, options.verbose) {
                        Ok(report) if options.hashes => {
                            println!("{seed} {:016x} {}", report.trace_hash, report.events);
                        }
                        Ok(_) => {}
                        Err(reason) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("FAIL seed {seed}: {reason}");
                        }
                    }
                    if number % PROGRESS == PROGRESS - 1 {
                        let seconds = start.elapsed().as_secs();
                        eprintln!("{} of {} seeds, {seconds} s", number + 1, options.seeds);
                    }
                }
            });
        }
    });
    failed.into_inner()
}

fn one(seed: u64, verbose: bool) -> Result<Report, String> {
    let scenario = Scenario::drawn(seed);
    if verbose {
        eprintln!("seed {seed}: {scenario:#?}");
    }
    let run = AssertUnwindSafe(|| World::new(scenario, verbose).run());
    let report = match catch_unwind(run) {
        Ok(Ok(report)) => report,
        Ok(Err(broken)) => return Err(broken.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            return Err(format!("panic: {}", text.unwrap_or("without a message")));
        }
    };
    if verbose {
        eprintln!("seed {seed}: {report:#?}");
    }
    Ok(report)
}

/// Seeds from one line of progress to the next.
const PROGRESS: u64 = 500;
