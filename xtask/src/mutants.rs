//! `cargo xtask mutants`: puts deliberate faults into the connection, one at a time, and looks for a
//! seed of the simulation that finds each.
//!
//! Works on a copy of the tree in `target/mutants`. Run by hand: each fault is a build.

mod faults;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{altered, command, swarm};

/// Tries the faults whose names contain `only`, each with up to `seeds` seeds from 1 on. Those that no
/// seed finds are an error.
pub fn run(root: &Path, seeds: u64, only: &str) -> Result<()> {
    let tree = root.join("target/mutants/tree");
    altered::copy(root, &tree)?;
    let mut survivors = Vec::new();
    println!("| fault | found by seed | as |\n|---|---|---|");
    for mutant in faults::ALL.iter().filter(|mutant| mutant.name.contains(only)) {
        let path = tree.join(mutant.file);
        let sound = fs::read_to_string(&path).with_context(|| format!("cannot read {path:?}"))?;
        fs::write(&path, mutant.put_into(&sound)?)?;
        let found = search(&tree, seeds).with_context(|| mutant.name);
        fs::write(&path, sound)?;
        match found? {
            Some((seed, why)) => println!("| {} | {seed} | {why} |", mutant.name),
            None => {
                println!("| {} | none of {seeds} | |", mutant.name);
                survivors.push(mutant.name);
            }
        }
    }
    if survivors.is_empty() {
        return Ok(());
    }
    bail!("no seed finds: {}", survivors.join("; "))
}

/// The first seed that fails, as far as seeds come in order, and what is wrong there.
fn search(tree: &Path, seeds: u64) -> Result<Option<(u64, String)>> {
    let mut build = command::cargo(tree);
    build.args(["build", "--quiet", "--release", "-p", "longhaul-sim", "--bin", "swarm"]);
    // Faults leave things unused.
    build.env("RUSTFLAGS", "-Awarnings").env("CARGO_TARGET_DIR", tree.with_file_name("build"));
    if !build.status().context("cannot start cargo")?.success() {
        bail!("it does not compile");
    }
    let mut swarm = Command::new(tree.with_file_name("build/release/swarm"));
    swarm.args(["--seeds", &seeds.to_string(), "--from", "1"]);
    let mut child = swarm.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let output = child.stdout.take().context("the swarm's output is a pipe")?;
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let found = lines.find_map(|line| Some((swarm::failing_seed(&line)?, reason(&line))));
    // It goes on to its last seed otherwise.
    let _ = child.kill();
    let status = child.wait()?;
    if found.is_none() && !status.success() {
        bail!("the swarm ended with {status} and named no seed");
    }
    Ok(found)
}

/// Reason of a failure, as a cell of a table.
fn reason(line: &str) -> String {
    let why = line.splitn(3, ": ").last().unwrap_or(line);
    why.chars().take(REASON_MAX).map(|c| if c == '|' { '/' } else { c }).collect()
}

const REASON_MAX: usize = 90;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_place_in_the_code() {
        altered::check(faults::ALL);
    }

    #[test]
    fn a_reason_fits_a_cell() {
        assert_eq!(reason("FAILED seed 7: at 3s: a | b: c"), "a / b: c");
    }
}
