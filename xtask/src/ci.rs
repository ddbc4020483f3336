//! `cargo xtask ci`: all static checks, each with its time. The tests are `make test`.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::tools::{self, Compiler};
use crate::{command, fuzz, metadata, tidy};

/// A check of the workspace at a root.
type Step = fn(&Path) -> Result<()>;

/// Runs every step, also after one failed, and fails if any did.
pub fn run(root: &Path) -> Result<()> {
    let steps: [(&str, Step); 7] = [
        ("format", format),
        ("tidy", tidy::run),
        ("clippy", clippy),
        ("docs", docs),
        ("deny", deny),
        ("wasm", wasm),
        ("fuzz targets", fuzz::check),
    ];
    let mut summary = Vec::new();
    let mut failed = 0;
    for (name, step) in steps {
        println!("--- {name}");
        let start = Instant::now();
        let outcome = step(root);
        let seconds = start.elapsed().as_secs_f64();
        let text = match outcome {
            Ok(()) => "passed".to_owned(),
            Err(error) => {
                failed += 1;
                format!("FAILED: {error:#}")
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

fn format(root: &Path) -> Result<()> {
    command::pass(command::cargo(root).args(["fmt", "--all", "--check"]))
}

fn clippy(root: &Path) -> Result<()> {
    let mut clippy = command::cargo(root);
    clippy.args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]);
    command::pass(&mut clippy)
}

fn docs(root: &Path) -> Result<()> {
    let mut doc = command::cargo(root);
    doc.args(["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
    command::pass(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Licences and sources. Advisories need a download and are left to `cargo deny check advisories` by
/// hand.
fn deny(root: &Path) -> Result<()> {
    let mut deny = Command::new(tools::deny(root)?);
    command::pass(deny.args(["check", "bans", "licenses", "sources"]).current_dir(root))
}

/// Builds the core for a target without an operating system, with the libraries `core` and `alloc`
/// alone: whatever asked for `std`, a dependency too, would not find it.
fn wasm(root: &Path) -> Result<()> {
    let compiler = Compiler::with_sources(root)?;
    let mut build = command::cargo(root);
    build.args(["build", "--lib", "--locked", "--target", "wasm32-unknown-unknown"]);
    build.args(["-Zbuild-std=core,alloc", "--target-dir", "target/wasm"]);
    for package in metadata::load(root)?.members.iter().filter(|package| package.is_core()) {
        build.args(["-p", &package.name]);
    }
    command::pass(compiler.named(&mut build))
}
