//! `longhaul`, as the tests start and kill it.

use std::process::ExitCode;

fn main() -> ExitCode {
    longhaul_cli::run(std::env::args_os())
}
