//! XRootD, the data mover of high-energy physics: `xrootd` and `xrdcp`.

use std::process::Command;

use crate::contender::{Absent, ContenderError, End, Presence};
use crate::files::Files;
use crate::over_tcp::Mover;
use crate::programs;
use crate::session::Session;

pub(crate) struct Xrootd;

impl Mover for Xrootd {
    const USUAL: [&str; 2] = ["xrootd", "xrootd bbr"];
    const ABOUT: &str = "XRootD (xrdcp), one connection";
    const PACKAGES: &[&str] = &["xrootd-client", "xrootd-server"];

    fn presence() -> Result<Presence, Absent> {
        let [copy, _] = programs::require(PROGRAMS, Self::PACKAGES)?;
        Ok(programs::presence(copy, "--version", version))
    }

    fn transfer(session: &mut Session<'_>, files: &Files) -> Result<(), ContenderError> {
        let [copy, server] = programs::require(PROGRAMS, Self::PACKAGES)?;
        let own = session.own_folder("xrootd")?;
        let configuration = own.join("configuration");
        let text = format!(
            "xrd.port {PORT}\nxrd.network nodnr\noss.localroot /\nall.export {}\n\
             all.adminpath {own}\nall.pidpath {own}\n",
            files.target().display(),
            own = own.display()
        );
        std::fs::write(&configuration, text).map_err(ContenderError::system("write a file"))?;
        let mut command = Command::new(server);
        command.arg("-c").arg(&configuration);
        if rustix::process::geteuid().is_root() {
            // It refuses to serve as root.
            command.args(["-R", "nobody"]);
        }
        let server = session.start(End::Receiver, command)?;
        session.listening(server, PORT)?;
        let mut command = Command::new(copy);
        command.args(["--nopbar", "--recursive"]).arg(&files.source);
        let address = session.address(End::Receiver);
        command.arg(format!("root://{address}:{PORT}/{}/", files.target().display()));
        session.begin()?;
        let client = session.start(End::Sender, command)?;
        session.finish(client).map(drop)
    }
}

/// `v5.5.3`.
fn version(output: &str) -> Option<String> {
    let version = output.lines().find_map(|line| line.trim().strip_prefix('v'))?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| format!("XRootD {version}"))
}

const PROGRAMS: [&str; 2] = ["xrdcp", "xrootd"];
const PORT: u16 = 1094;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        assert_eq!(version("v5.5.3\n").unwrap(), "XRootD 5.5.3");
        assert_eq!(version("very old\n"), None);
    }
}
