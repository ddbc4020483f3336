//! `cargo xtask fuzz`: a short run of every fuzz target.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{command, tools};

/// Runs each target for `seconds`, starting from the committed corpus. What it discovers goes to
/// `fuzz/target/corpus`; minimise it before committing (`cargo fuzz cmin`).
pub fn run(root: &Path, seconds: u64) -> Result<()> {
    let program = tools::fuzz(root)?;
    for target in targets(root)? {
        println!("--- {target}");
        let found = PathBuf::from("fuzz/target/corpus").join(&target);
        let kept = PathBuf::from("fuzz/corpus").join(&target);
        for directory in [&found, &kept] {
            std::fs::create_dir_all(root.join(directory))?;
        }
        let mut fuzz = Command::new(&program);
        // Sanitizers are what nightly compilers have; with this the release's own has them too.
        fuzz.env("RUSTC_BOOTSTRAP", "1").current_dir(root);
        fuzz.args(["run", &target]).arg(found).arg(kept);
        fuzz.args(["--", &format!("-max_total_time={seconds}"), "-timeout=10"]);
        command::pass(&mut fuzz)?;
    }
    Ok(())
}

/// Type-checks the fuzz crate, a workspace of its own; `cargo test` replays its corpus.
pub fn check(root: &Path) -> Result<()> {
    let mut check = command::cargo(root);
    command::pass(check.args([
        "check",
        "--quiet",
        "--locked",
        "--manifest-path",
        "fuzz/Cargo.toml",
    ]))
}

/// One target per file in `fuzz/fuzz_targets`.
fn targets(root: &Path) -> Result<Vec<String>> {
    let directory = root.join("fuzz/fuzz_targets");
    let mut targets = Vec::new();
    for entry in std::fs::read_dir(&directory).context("fuzz/fuzz_targets")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            targets.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    targets.sort();
    Ok(targets)
}
