//! rsync over ssh, with a server of its own: own port, own keys, in a folder that goes away.

use std::path::Path;
use std::process::Command;

use longhaul_lab::Testbed;

use crate::contender::{Absent, Contender, End, Failure, Job, Outcome, Presence};
use crate::files::Files;
use crate::programs;
use crate::session::Session;
use crate::tcp::{control_after, kernel_has};

pub(crate) struct Rsync {
    name: String,
    congestion_control: String,
}

impl Rsync {
    pub(crate) const USUAL: &[&str] = &["rsync-ssh", "rsync-ssh bbr"];

    /// `rsync-ssh`, which uses CUBIC, or `rsync-ssh bbr`.
    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        let congestion_control = control_after("rsync-ssh", name)?;
        Some(Box::new(Self { name: name.to_owned(), congestion_control }))
    }
}

impl Contender for Rsync {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        format!("rsync over OpenSSH, {}, from file to file", self.congestion_control)
    }

    fn packages(&self) -> &'static [&'static str] {
        PACKAGES
    }

    fn presence(&self) -> Result<Presence, Absent> {
        kernel_has(&self.congestion_control)?;
        let [rsync, ..] = programs::require(PROGRAMS, PACKAGES)?;
        Ok(programs::presence(rsync, "--version", version))
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, Failure> {
        let presence = self.presence()?;
        let [rsync, ssh, sshd, keygen] = programs::require(PROGRAMS, PACKAGES)?;
        if job.rate.is_some() || job.socket_buffer.is_some() {
            return Err(Failure::unsuitable("it is told neither a rate nor a socket buffer"));
        }
        let mut session = Session::new(testbed, job)?;
        session.use_congestion_control(&self.congestion_control)?;
        let files = Files::new(&session)?;
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
            .map_err(Failure::system("set up sshd"))?;
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
        session.finish(client)?;
        let account = session.close()?;
        files.check(&self.name)?;
        let congestion_control = Some(self.congestion_control.clone());
        Ok(Outcome { congestion_control, ..account.outcome(presence, job) })
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
fn version(said: &str) -> Option<String> {
    let mut words = said.lines().next()?.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("rsync"), Some("version"), Some(version)) => Some(format!("rsync {version}")),
        _ => None,
    }
}

const PROGRAMS: [&str; 4] = ["rsync", "ssh", "sshd", "ssh-keygen"];
const PACKAGES: &[&str] = &["rsync", "openssh-client", "openssh-server"];
const PORT: u16 = 2222;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        let said = "rsync  version 3.5.0  protocol version 32\nCopyright\n";
        assert_eq!(version(said).unwrap(), "rsync 3.5.0");
        assert_eq!(version("rsync: not found"), None);
    }

    #[test]
    fn the_server_takes_one_key_and_no_password() {
        let text = configuration(Path::new("/x"), "198.51.100.2");
        assert!(text.contains("AuthorizedKeysFile /x/user-key.pub\n"), "{text}");
        assert!(text.contains("PasswordAuthentication no\n") && text.contains("UsePAM no\n"));
    }
}
