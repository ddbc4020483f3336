//! Installing what is missing, on Debian and its relatives.

use std::process::Command;
use std::time::Duration;

use crate::programs;

/// Packages that start a server of the machine when they are installed: not to be installed in
/// passing.
pub const STARTS_SERVER: [&str; 3] = ["haproxy", "openssh-server", "uftp"];

/// Installs packages with `apt-get`, without questions; takes root, and up to some minutes.
///
/// # Errors
/// In words: no `apt-get`, or its last output.
pub fn install(packages: &[&str]) -> Result<(), String> {
    if packages.is_empty() {
        return Ok(());
    }
    let words = packages.join(" ");
    let apt = programs::find("apt-get").ok_or_else(|| {
        format!("this is no Debian: there is no apt-get, which would have {words}")
    })?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&apt);
        command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments);
        programs::output_within(&mut command, PATIENCE)
    };
    let install = [&["install", "-y", "--no-install-recommends"], packages].concat();
    let first = run(&install);
    if first.ok {
        return Ok(());
    }
    // The list of what there is may be old.
    run(&["update"]);
    let second = run(&install);
    if second.ok {
        return Ok(());
    }
    let last = second.text.lines().rev().find(|line| !line.trim().is_empty());
    Err(format!("apt-get install {words}: {}", last.unwrap_or("it wrote nothing").trim()))
}

const PATIENCE: Duration = Duration::from_secs(600);
