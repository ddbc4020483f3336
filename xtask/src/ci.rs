//! `cargo xtask ci`: all static checks, each with its time. The tests are `make test`.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::{command, fuzz, metadata, tidy};

/// How a step ended.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// A check of the workspace at a root.
type Step = fn(&Path) -> Outcome;

/// Runs every step, also after one failed, and fails if any did.
pub fn run(root: &Path) -> Result<()> {
    let steps: [(&str, Step); 7] = [
        ("format", format),
        ("tidy", |root| of(tidy::run(root))),
        ("clippy", clippy),
        ("docs", docs),
        ("deny", deny),
        ("wasm", wasm),
        ("fuzz targets", fuzz_targets),
    ];
    let mut summary = Vec::new();
    let mut failed = 0;
    for (name, step) in steps {
        println!("--- {name}");
        let start = Instant::now();
        let outcome = step(root);
        let seconds = start.elapsed().as_secs_f64();
        let text = match outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Skipped(reason) => format!("skipped: {reason}"),
            Outcome::Failed(reason) => {
                failed += 1;
                format!("FAILED: {reason}")
            }
        };
        println!("{name}: {text}");
        summary.push(format!("{name:<12} {seconds:6.1} s  {text}"));
    }
    println!("--- summary\n{}", summary.join("\n"));
    if failed > 0 {
        bail!("{failed} of {} steps failed", summary.len());
    }
    Ok(())
}

fn format(root: &Path) -> Outcome {
    of(command::pass(command::cargo(root).args(["fmt", "--all", "--check"])))
}

fn clippy(root: &Path) -> Outcome {
    let mut clippy = command::cargo(root);
    clippy.args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]);
    of(command::pass(&mut clippy))
}

fn docs(root: &Path) -> Outcome {
    let mut doc = command::cargo(root);
    doc.args(["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
    of(command::pass(doc.env("RUSTDOCFLAGS", "-D warnings")))
}

/// Licences and sources by cargo-deny where it is installed; tidy checks the same list without it.
/// Advisories need a download and are left to `cargo deny check advisories` by hand.
fn deny(root: &Path) -> Outcome {
    if !command::succeeds(Command::new("cargo-deny").arg("--version")) {
        return Outcome::Skipped(
            "cargo-deny is not installed (`cargo install --locked cargo-deny`); \
             tidy has checked licences and sources against deny.toml"
                .into(),
        );
    }
    let checks = ["deny", "check", "bans", "licenses", "sources"];
    of(command::pass(command::cargo(root).args(checks)))
}

/// Builds the core for a target without an operating system.
fn wasm(root: &Path) -> Outcome {
    const TARGET: &str = "wasm32-unknown-unknown";
    let mut libdir = Command::new("rustc");
    libdir.args(["--print", "target-libdir", "--target", TARGET]).current_dir(root);
    let installed = command::output(&mut libdir).is_ok_and(|path| Path::new(path.trim()).is_dir());
    if !installed {
        return Outcome::Skipped(format!(
            "target {TARGET} is not installed (`rustup target add {TARGET}`); \
             tidy has checked that the core is no_std"
        ));
    }
    let packages = match metadata::load(root) {
        Ok(metadata) => metadata.members,
        Err(error) => return Outcome::Failed(format!("{error:#}")),
    };
    let mut check = command::cargo(root);
    check.args(["check", "--lib", "--locked", "--target", TARGET]);
    for package in packages.iter().filter(|package| package.is_core()) {
        check.args(["-p", &package.name]);
    }
    of(command::pass(&mut check))
}

/// The fuzz crate is a workspace of its own and needs nightly; `cargo test` replays its corpus.
fn fuzz_targets(root: &Path) -> Outcome {
    match fuzz::check(root) {
        Err(reason) => Outcome::Skipped(reason),
        Ok(result) => of(result),
    }
}

fn of(result: Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Passed,
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}
