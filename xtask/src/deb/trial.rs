//! The package's life in a Debian of its own: installed, used, upgraded, purged.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;

/// Makes a root with mmdebstrap, which goes away, and does there what `trial.sh` says with both packages. It
/// takes root, and a mirror that this host's sources name.
pub fn run(root: &Path, first: &Path, second: &Path) -> Result<()> {
    let release = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.context("/etc/os-release names no suite")?;
    let script = root.join("xtask/src/deb/trial.sh");
    let mut trial = Command::new("mmdebstrap");
    trial.args(["--variant=apt", "--include=adduser", "--format=null", "--quiet"]);
    for (file, name) in [(first, "first.deb"), (second, "second.deb"), (&*script, "trial.sh")] {
        trial.arg(format!("--customize-hook=cp '{}' \"$1/{name}\"", file.display()));
    }
    trial.arg("--customize-hook=chroot \"$1\" sh -eu /trial.sh").args([suite, "/dev/null"]);
    command::pass(&mut trial)?;
    println!("the package was installed, used, upgraded and purged");
    Ok(())
}
