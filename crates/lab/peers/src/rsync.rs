//! rsync over ssh, with a server of its own in a folder that goes away.

use std::process::Command;

use crate::contender::{Absent, ContenderError, End, Presence};
use crate::files::Files;
use crate::over_tcp::Mover;
use crate::programs;
use crate::session::Session;
use crate::sshd::Sshd;

pub(crate) struct Rsync;

impl Mover for Rsync {
    const USUAL: [&str; 2] = ["rsync-ssh", "rsync-ssh bbr"];
    const ABOUT: &str = "rsync over OpenSSH";
    const PACKAGES: &[&str] = &["rsync", "openssh-client", "openssh-server"];

    fn presence() -> Result<Presence, Absent> {
        let [rsync] = programs::require(["rsync"], Self::PACKAGES)?;
        programs::require(["ssh", "sshd"], Self::PACKAGES)?;
        Ok(programs::presence(rsync, "--version", version))
    }

    fn transfer(session: &mut Session<'_>, files: &Files) -> Result<(), ContenderError> {
        let [rsync] = programs::require(["rsync"], Self::PACKAGES)?;
        let sshd = Sshd::new(session.folder(), session.address(End::Receiver))
            .map_err(ContenderError::system("set up sshd"))?;
        let server = session.start(End::Receiver, sshd.server())?;
        session.listening(server, Sshd::PORT)?;
        let mut command = Command::new(rsync);
        command.args(["-a", "--whole-file", "-e", &sshd.client()]);
        command.arg(format!("{}/", files.source.display()));
        command.arg(format!("{}:{}/", Sshd::HOST, files.target().display()));
        session.begin()?;
        let client = session.start(End::Sender, command)?;
        session.finish(client).map(drop)
    }
}

/// `rsync  version 3.2.7  protocol version 31`.
fn version(output: &str) -> Option<String> {
    let mut words = output.lines().next()?.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("rsync"), Some("version"), Some(version)) => Some(format!("rsync {version}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        let output = "rsync  version 3.5.0  protocol version 32\nCopyright\n";
        assert_eq!(version(output).unwrap(), "rsync 3.5.0");
        assert_eq!(version("rsync: not found"), None);
    }
}
