//! An ssh server that lets one key in, with a port, keys and settings of its own.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contender::Absent;
use crate::programs;

/// OpenSSH with keys in a folder. The folder's owner removes them.
pub struct Sshd {
    folder: PathBuf,
    address: IpAddr,
    ssh: PathBuf,
    sshd: PathBuf,
}

impl Sshd {
    /// Debian's packages with the programs.
    pub const PACKAGES: [&str; 2] = ["openssh-client", "openssh-server"];
    /// The TCP port that the server listens at.
    pub const PORT: u16 = 2222;

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
        let settings = configuration(folder, &address.to_string());
        std::fs::write(folder.join("sshd_config"), settings)?;
        separation_folder()?;
        Ok(Self { folder: folder.to_owned(), address, ssh, sshd })
    }

    /// The server, to be started at its address. It stays in the foreground.
    pub fn server(&self) -> Command {
        let mut server = Command::new(&self.sshd);
        server.args(["-D", "-e", "-f"]).arg(self.folder.join("sshd_config"));
        server
    }

    /// The words of an ssh that reaches the server: `rsync -e`, `longhaul cp -e`.
    pub fn client(&self) -> String {
        format!("{} -p {} {}", self.ssh.display(), Self::PORT, self.options())
    }

    /// Options of OpenSSH's clients, of which the port is none.
    pub fn options(&self) -> String {
        format!(
            "-F none -i {} -o IdentitiesOnly=yes -o BatchMode=yes -o LogLevel=ERROR \
             -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
            self.key().display()
        )
    }

    /// The file with the user's key.
    pub fn key(&self) -> PathBuf {
        self.folder.join("user-key")
    }

    /// The address that the server listens at.
    pub fn address(&self) -> IpAddr {
        self.address
    }
}

fn absent(absent: Absent) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, absent.to_string())
}

/// Keys only, and only the one; the session of a client that is gone ends too.
fn configuration(folder: &Path, address: &str) -> String {
    let folder = folder.display();
    let port = Sshd::PORT;
    format!(
        "Port {port}\nListenAddress {address}\nHostKey {folder}/host-key\n\
         AuthorizedKeysFile {folder}/user-key.pub\nPidFile none\nUsePAM no\nStrictModes no\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nClientAliveInterval 5\nClientAliveCountMax 2\nSubsystem sftp internal-sftp\n"
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
        let text = configuration(Path::new("/x"), "198.51.100.2");
        assert!(text.contains("AuthorizedKeysFile /x/user-key.pub\n"), "{text}");
        assert!(text.contains("PasswordAuthentication no\n") && text.contains("UsePAM no\n"));
    }
}
