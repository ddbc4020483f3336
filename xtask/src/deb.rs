//! The Debian package, `make deb`: the program, its service (off), settings, manual pages and completions.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::{command, tools};

/// Makes it below `target/debian`, of the program in `target/release`.
pub fn run(root: &Path) -> Result<()> {
    let made = root.join("target/deb");
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    fs::create_dir_all(&made)?;
    let program = root.join("target/release/longhaul");
    command::pass(Command::new(&program).arg("man").arg(made.join("man")))?;
    for (shell, file) in [("bash", "longhaul"), ("zsh", "_longhaul"), ("fish", "longhaul.fish")] {
        let script = command::output(Command::new(&program).args(["completions", shell]))?;
        fs::write(made.join(file), script)?;
    }
    let mut package = Command::new(tools::deb(root)?);
    package.current_dir(root).args(["deb", "--package", "longhaul-cli", "--no-build", "--strip"]);
    let path = command::output(&mut package)?;
    let path = path.lines().last().unwrap_or_default().trim();
    let bytes = fs::metadata(path)?.len();
    ensure!(bytes <= BYTES_MOST, "{path} has {bytes} bytes, more than {BYTES_MOST}");
    match command::succeeds(Command::new("lintian").arg("--version")) {
        true => command::pass(Command::new("lintian").args(["--fail-on", "error"]).arg(path))?,
        false => println!("lintian is not installed: nobody has looked at the package"),
    }
    println!("{path}: {bytes} bytes");
    Ok(())
}

/// 25 MB.
const BYTES_MOST: u64 = 25_000_000;
