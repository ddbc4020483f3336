//! `cargo xtask errors`: every error of every system call, against `tests/errors/table.txt`.

use std::path::Path;

use anyhow::Result;

use crate::command;

/// Runs the cases that have all of the words `only`; of `udp|tcp` and the like, one.
pub fn run(root: &Path, only: &str) -> Result<()> {
    let mut test = command::cargo(root);
    test.args(["test", "--quiet", "-p", "longhaul-tests", "--test", "errors", "--", "--nocapture"]);
    command::pass(test.env("LONGHAUL_ERRORS_ALL", only))
}
