//! An ssh server that lets one key in, with a port, keys and settings of its own.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contender::Absent;
use crate::programs;

/// OpenSSH with keys in a folder. The folder's owner removes them. Sessions find the programs in `bin` of that
/// folder, if there are any.
pub struct Sshd {
    folder: PathBuf,
    ssh: PathBuf,
    sshd: PathBuf,
}

impl Sshd {
    /// Debian's packages with the programs.
    pub const PACKAGES: [&str; 2] = ["openssh-client", "openssh-server"];
    /// The TCP port that the server listens at.
    pub const PORT: u16 = 2222;
    /// The server, to clients that read the [settings](Self::settings).
    pub const HOST: &str = "dtn";

    /// Makes keys and settings in `folder` for a server at that address.
    ///
    /// # Errors
    /// A program is missing or fails, or a file cannot be written.
    pub fn new(folder: &Path, address: IpAddr) -> io::Result<Self> {
        let [ssh, sshd, keygen] = programs::require(PROGRAMS, &Self::PACKAGES).map_err(absent)?;
        for name in ["host-key", "user-key"] {
            let mut make = Command::new(&keygen);
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name));
            let made = programs::output_within(&mut make, programs::PATIENCE);
            if !made.ok {
                return Err(io::Error::other(format!("ssh-keygen: {}", made.text)));
            }
        }
        std::fs::write(folder.join("sshd_config"), of_server(folder, address))?;
        std::fs::write(folder.join("ssh_config"), of_client(folder, address))?;
        separation_folder()?;
        Ok(Self { folder: folder.to_owned(), ssh, sshd })
    }

    /// The server, to be started at its address. It stays in the foreground.
    pub fn server(&self) -> Command {
        let mut server = Command::new(&self.sshd);
        server.args(["-D", "-e", "-f"]).arg(self.folder.join("sshd_config"));
        server
    }

    /// The words of an ssh that reaches the server: `rsync -e`, `longhaul cp -e`.
    pub fn client(&self) -> String {
        format!("{} -F {}", self.ssh.display(), self.settings().display())
    }

    /// The file of settings for OpenSSH's clients, `-F`.
    pub fn settings(&self) -> PathBuf {
        self.folder.join("ssh_config")
    }

    /// The file with the user's key.
    pub fn key(&self) -> PathBuf {
        self.folder.join("user-key")
    }
}

fn absent(absent: Absent) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, absent.to_string())
}

/// Keys only, and only the one; the session of a client that is gone ends too.
fn of_server(folder: &Path, address: IpAddr) -> String {
    let folder = folder.display();
    let port = Sshd::PORT;
    format!(
        "Port {port}\nListenAddress {address}\nHostKey {folder}/host-key\n\
         AuthorizedKeysFile {folder}/user-key.pub\nPidFile none\nUsePAM no\nStrictModes no\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nClientAliveInterval 5\nClientAliveCountMax 2\n\
         SetEnv PATH={folder}/bin:/usr/local/bin:/usr/bin:/bin\nSubsystem sftp internal-sftp\n"
    )
}

/// Asks nobody, and believes the server: its key was made with the client's.
fn of_client(folder: &Path, address: IpAddr) -> String {
    let folder = folder.display();
    let (name, port) = (Sshd::HOST, Sshd::PORT);
    format!(
        "Host {name}\n HostName {address}\n Port {port}\n IdentityFile {folder}/user-key\n \
         IdentitiesOnly yes\n IdentityAgent none\n BatchMode yes\n LogLevel ERROR\n \
         StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
    )
}

/// sshd as root wants the folder that it is built for, which a service manager makes elsewhere.
fn separation_folder() -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        std::fs::create_dir_all("/run/sshd")?;
    }
    Ok(())
}

const PROGRAMS: [&str; 3] = ["ssh", "sshd", "ssh-keygen"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_takes_one_key_and_no_password() {
        let text = of_server(Path::new("/x"), [198, 51, 100, 2].into());
        assert!(text.contains("AuthorizedKeysFile /x/user-key.pub\n"), "{text}");
        assert!(text.contains("PasswordAuthentication no\n") && text.contains("UsePAM no\n"));
    }
}
