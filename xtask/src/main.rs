//! Everything that CI runs, runnable by hand: `cargo xtask help` lists the commands.
//!
//! The crate contains no part of the product and no knowledge that is written down elsewhere: which
//! crate may use which comes from ARCHITECTURE.md, licences and sources from deny.toml, the
//! compiler from rust-toolchain.toml, everything else about the workspace from `cargo metadata`.
//!
//! ```text
//! cargo xtask tidy
//! cargo xtask swarm --seeds 100000 --from 1
//! cargo xtask chains --seeds 100000 --from 1
//! ```

mod ablate;
mod altered;
mod arguments;
mod ci;
mod command;
mod deb;
mod errors;
mod fuzz;
mod metadata;
mod mutants;
mod swarm;
mod tidy;
mod toml;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use arguments::Arguments;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_else(|| "help".to_owned());
    let mut arguments = Arguments::new(arguments.collect());
    let root = root()?;
    match command.as_str() {
        "ci" => {
            arguments.finish()?;
            ci::run(&root)
        }
        "tidy" => {
            arguments.finish()?;
            tidy::run(&root)
        }
        "swarm" | "chains" => {
            let seeds = arguments.number("--seeds")?.unwrap_or(2_000);
            let from = arguments.number("--from")?.unwrap_or(1);
            arguments.finish()?;
            let run = if command == "swarm" { swarm::run } else { swarm::run_chains };
            run(&root, seeds, from)
        }
        "fuzz" => {
            let seconds = arguments.number("--seconds")?.unwrap_or(30);
            arguments.finish()?;
            fuzz::run(&root, seconds)
        }
        "errors" => {
            let only = arguments.text("--only")?.unwrap_or_default();
            arguments.finish()?;
            errors::run(&root, &only)
        }
        "mutants" => {
            let seeds = arguments.number("--seeds")?.unwrap_or(20_000);
            let only = arguments.text("--only")?.unwrap_or_default();
            arguments.finish()?;
            mutants::run(&root, seeds, &only)
        }
        "ablate" => {
            let seeds = arguments.number("--seeds")?.unwrap_or(1);
            let only = arguments.text("--only")?.unwrap_or_default();
            arguments.finish()?;
            ablate::run(&root, seeds, &only)
        }
        "deb" => {
            let tries = arguments.flag("--try");
            arguments.finish()?;
            deb::run(&root, tries)
        }
        "api" => {
            arguments.finish()?;
            tidy::public_api::write(&root)
        }
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("unknown command `{other}`; `cargo xtask help` lists them"),
    }
}

/// The workspace's root: this crate lies directly in it.
fn root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").context("run me as `cargo xtask`")?;
    let root = PathBuf::from(manifest).parent().map(PathBuf::from);
    root.context("xtask must lie inside the workspace")
}

const HELP: &str = "\
cargo xtask COMMAND

  ci                          everything below except swarm, chains and fuzz, with format, clippy and docs
  tidy                        dependency arrows, documents, sizes, banned calls, licences
  swarm [--seeds N] [--from S]  simulate transfers of N seeds from S on (2000 from 1)
  chains [--seeds N] [--from S]  the same with sessions through chains of gateways
  fuzz [--seconds N]          run each fuzz target for N seconds (30)
  mutants [--seeds N] [--only S]  put faults into the connection; each has to be found by a seed (20000)
  ablate [--seeds N] [--only S]  take the rules of `auto` out, one at a time; what each is worth (1 seed)
  deb [--try]                 the Debian package of the program in target/release; lintian looks at it; as root it is
                              installed, used, upgraded and purged in a Debian of its own (mmdebstrap)
  api                         write the list of what the library offers, which tidy compares
  errors [--only WORDS]       each error of each system call, in push, pull and pipe; those with all of the words
  help                        this text
";
