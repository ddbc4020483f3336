//! rsync over ssh, with a server of its own: own port, own keys, in a folder that goes away.

use std::path::Path;
use std::process::Command;

use crate::contender::{Absent, ContenderError, End, Presence};
use crate::files::Files;
use crate::over_tcp::Mover;
use crate::programs;
use crate::session::Session;

pub(crate) struct Rsync;

impl Mover for Rsync {
    const USUAL: [&str; 2] = ["rsync-ssh", "rsync-ssh bbr"];
    const ABOUT: &str = "rsync over OpenSSH";
    const PACKAGES: &[&str] = &["rsync", "openssh-client", "openssh-server"];

    fn presence() -> Result<Presence, Absent> {
        let [rsync, ..] = programs::require(PROGRAMS, Self::PACKAGES)?;
        Ok(programs::presence(rsync, "--version", version))
    }

    fn transfer(session: &mut Session<'_>, files: &Files) -> Result<(), ContenderError> {
        let [rsync, ssh, sshd, keygen] = programs::require(PROGRAMS, Self::PACKAGES)?;
        let own = session.folder().to_owned();
        for name in ["host-key", "user-key"] {
            let mut command = Command::new(&keygen);
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(own.join(name));
            let made = session.start(End::Receiver, command)?;
            session.finish(made)?;
        }
        let address = session.address(End::Receiver);
        std::fs::write(own.join("sshd_config"), configuration(&own, &address.to_string()))
            .and_then(|()| separation_folder())
            .map_err(ContenderError::system("set up sshd"))?;
        let mut server = Command::new(sshd);
        server.args(["-D", "-e", "-f"]).arg(own.join("sshd_config"));
        let server = session.start(End::Receiver, server)?;
        session.listening(server, PORT)?;
        let shell = format!(
            "{} -F none -p {PORT} -i {} -o IdentitiesOnly=yes -o BatchMode=yes -o LogLevel=ERROR \
             -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
            ssh.display(),
            own.join("user-key").display()
        );
        let mut command = Command::new(rsync);
        command.args(["-a", "--whole-file", "-e", &shell]);
        command.arg(format!("{}/", files.source.display()));
        command.arg(format!("{address}:{}/", files.target().display()));
        session.begin()?;
        let client = session.start(End::Sender, command)?;
        session.finish(client).map(drop)
    }
}

/// Keys only, and only the one.
fn configuration(folder: &Path, address: &str) -> String {
    let folder = folder.display();
    format!(
        "Port {PORT}\nListenAddress {address}\nHostKey {folder}/host-key\n\
         AuthorizedKeysFile {folder}/user-key.pub\nPidFile none\nUsePAM no\nStrictModes no\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n"
    )
}

/// sshd as root wants the folder that it is built for, which a service manager makes elsewhere.
fn separation_folder() -> std::io::Result<()> {
    if rustix::process::geteuid().is_root() {
        std::fs::create_dir_all("/run/sshd")?;
    }
    Ok(())
}

/// `rsync  version 3.2.7  protocol version 31`.
fn version(output: &str) -> Option<String> {
    let mut words = output.lines().next()?.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("rsync"), Some("version"), Some(version)) => Some(format!("rsync {version}")),
        _ => None,
    }
}

const PROGRAMS: [&str; 4] = ["rsync", "ssh", "sshd", "ssh-keygen"];
const PORT: u16 = 2222;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        let output = "rsync  version 3.5.0  protocol version 32\nCopyright\n";
        assert_eq!(version(output).unwrap(), "rsync 3.5.0");
        assert_eq!(version("rsync: not found"), None);
    }

    #[test]
    fn the_server_takes_one_key_and_no_password() {
        let text = configuration(Path::new("/x"), "198.51.100.2");
        assert!(text.contains("AuthorizedKeysFile /x/user-key.pub\n"), "{text}");
        assert!(text.contains("PasswordAuthentication no\n") && text.contains("UsePAM no\n"));
    }
}
