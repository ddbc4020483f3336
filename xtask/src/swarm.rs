//! `cargo xtask swarm` and `cargo xtask chains`: many seeds through the deterministic simulations of transfers
//! and of gateways, at release speed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::command;

/// Simulates `seeds` seeds from `from` on. A failing seed's line on standard output ends the run
/// with the command that replays this seed alone.
pub fn run(root: &Path, seeds: u64, from: u64) -> Result<()> {
    let mut swarm = command::cargo(root);
    swarm.args(["run", "--quiet", "--release", "-p", "longhaul-sim", "--bin", "swarm", "--"]);
    swarm.args(["--seeds", &seeds.to_string(), "--from", &from.to_string()]);
    // Worlds take and free megabytes all the time: what the C library gave back to the kernel each time
    // came back page by page, for a tenth of the run.
    swarm
        .envs([("MALLOC_MMAP_THRESHOLD_", "1073741824"), ("MALLOC_TRIM_THRESHOLD_", "4294967296")]);
    watch(swarm, "swarm", seeds, from)
}

/// The same with chains of gateways.
pub fn run_chains(root: &Path, seeds: u64, from: u64) -> Result<()> {
    let mut chains = command::cargo(root);
    chains.args([
        "test",
        "--quiet",
        "--release",
        "-p",
        "longhaul-gateway",
        "--test",
        "chains",
        "--",
    ]);
    chains.arg("--nocapture").env("LONGHAUL_CHAINS_SEED", from.to_string());
    chains.env("LONGHAUL_CHAINS_COUNT", seeds.to_string());
    watch(chains, "chains", seeds, from)
}

/// Repeats what a run says, and ends with how to replay what failed by the command `name`.
fn watch(mut run: Command, name: &str, seeds: u64, from: u64) -> Result<()> {
    let mut child = run.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let output = child.stdout.take().context("the output is a pipe")?;

    let mut failed = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        failed.extend(failing_seed(&line));
    }
    let status = child.wait()?;
    if status.success() && failed.is_empty() {
        return Ok(());
    }
    failed.sort_unstable();
    failed.dedup();
    for seed in &failed {
        println!("replay: cargo xtask {name} --seeds 1 --from {seed}");
    }
    if failed.is_empty() {
        println!("replay: cargo xtask {name} --seeds {seeds} --from {from}");
    }
    bail!("{name} failed ({status}, {} failing seeds named)", failed.len())
}

/// The seed in a line such as `FAILED seed 17: ...` or `fail: seed=17`.
pub fn failing_seed(line: &str) -> Option<u64> {
    let lower = line.to_ascii_lowercase();
    if !lower.trim_start().starts_with("fail") {
        return None;
    }
    let (_, rest) = lower.split_once("seed")?;
    let digits = rest.trim_start_matches([' ', '=', ':']);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::failing_seed;

    #[test]
    fn only_lines_that_report_a_failure_name_a_seed() {
        assert_eq!(failing_seed("FAILED seed 17: byte 4 is wrong"), Some(17));
        assert_eq!(failing_seed("  fail: seed=18"), Some(18));
        assert_eq!(failing_seed("seed 19 passed"), None);
        assert_eq!(failing_seed("FAILED: 3 of 2000 seeds"), None);
        assert_eq!(failing_seed("FAILED seed 99999999999999999999999"), None);
    }
}
