//! The program `longhaul`. Everything is in the library, so that benchmarks can reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    longhaul_cli::run(std::env::args_os())
}
