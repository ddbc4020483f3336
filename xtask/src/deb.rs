//! The Debian package, `make deb`: the program, its service (off), settings, manual pages and completions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::{command, tools};

mod trial;

/// Makes it below `target/debian`, of the program in `target/release`; with `tries` also the next version, and
/// lets both live in a Debian of their own.
pub fn run(root: &Path, tries: bool) -> Result<()> {
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
    // First, as each package that is made takes the place of the one before.
    let next = tries.then(|| next_version(root, &made)).transpose()?;
    let path = package(root, &[])?;
    let bytes = fs::metadata(&path)?.len();
    ensure!(bytes <= BYTES_MOST, "{path} has {bytes} bytes, more than {BYTES_MOST}");
    match command::succeeds(Command::new("lintian").arg("--version")) {
        true => command::pass(Command::new("lintian").args(["--fail-on", "error"]).arg(&path))?,
        false => println!("lintian is not installed: nobody has looked at the package"),
    }
    println!("{path}: {bytes} bytes");
    if let Some(next) = next {
        trial::run(root, Path::new(&path), &next)?;
    }
    Ok(())
}

/// The package of a version that is to come, in `made`.
fn next_version(root: &Path, made: &Path) -> Result<PathBuf> {
    let version = concat!(env!("CARGO_PKG_VERSION"), "+next-1");
    let kept = made.join("next.deb");
    fs::rename(package(root, &["--deb-version", version])?, &kept)?;
    Ok(kept)
}

/// The path of a package that is made with these `options`.
fn package(root: &Path, options: &[&str]) -> Result<String> {
    let mut package = Command::new(tools::deb(root)?);
    package.current_dir(root).args(["deb", "--package", "longhaul-cli", "--no-build", "--strip"]);
    let path = command::output(package.args(options))?;
    Ok(path.lines().last().unwrap_or_default().trim().to_owned())
}

/// 25 MB.
const BYTES_MOST: u64 = 25_000_000;
