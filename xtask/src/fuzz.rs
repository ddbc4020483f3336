//! `cargo xtask fuzz`: a short run of every fuzz target.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;

/// Runs each target for `seconds`, starting from the committed corpus. What it discovers goes to
/// `fuzz/target/corpus`; minimise it before committing (`cargo fuzz cmin`).
pub fn run(root: &Path, seconds: u64) -> Result<()> {
    if let Err(reason) = ready(root) {
        bail!("{reason}");
    }
    let installed = command::succeeds(Command::new("cargo-fuzz").arg("--version"));
    if !installed {
        bail!("cargo-fuzz is not installed (`cargo install --locked cargo-fuzz`)");
    }
    for target in targets(root)? {
        println!("--- {target}");
        let found = PathBuf::from("fuzz/target/corpus").join(&target);
        let kept = PathBuf::from("fuzz/corpus").join(&target);
        for directory in [&found, &kept] {
            std::fs::create_dir_all(root.join(directory))?;
        }
        let mut fuzz = command::nightly_cargo(root).map_err(anyhow::Error::msg)?;
        fuzz.args(["fuzz", "run", &target]).arg(found).arg(kept);
        fuzz.args(["--", &format!("-max_total_time={seconds}"), "-timeout=10"]);
        command::pass(&mut fuzz)?;
    }
    Ok(())
}

/// Type-checks the fuzz crate, or says why it cannot.
pub fn check(root: &Path) -> Result<Result<()>, String> {
    let mut check = ready(root)?;
    check.args(["check", "--quiet", "--manifest-path", "fuzz/Cargo.toml"]);
    Ok(command::pass(&mut check))
}

/// Nightly cargo, if there is a fuzz crate and all that it takes to build it.
fn ready(root: &Path) -> Result<Command, String> {
    if !root.join("fuzz/Cargo.toml").is_file() {
        return Err("there is no fuzz/Cargo.toml".into());
    }
    let compiler = ["c++", "g++", "clang++"];
    if !compiler.iter().any(|name| command::succeeds(Command::new(name).arg("--version"))) {
        return Err("libFuzzer needs a C++ compiler (`apt-get install g++`)".into());
    }
    command::nightly_cargo(root)
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
