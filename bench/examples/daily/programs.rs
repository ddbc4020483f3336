//! The programs, each as its users write it.

use std::io;
use std::path::Path as FilePath;
use std::process::Command;

use longhaul_peers::Sshd;

use super::path::{Files, Path};

/// A program that copies what is in a folder into another one.
pub struct Mover {
    pub name: &'static str,
    /// The command from source, by its name, to destination.
    pub copy: fn(&Path<'_>, &str, &FilePath) -> Command,
    /// Prints its version, in the first line with a digit.
    version: &'static [&'static str],
}

pub const ALL: [Mover; 5] = [
    Mover { name: "longhaul HOST:", copy: over_ssh, version: &["longhaul", "--version"] },
    Mover { name: "longhaul lh://", copy: longhaul, version: &["longhaul", "--version"] },
    Mover { name: "rsync -a", copy: rsync, version: &["rsync", "--version"] },
    Mover { name: "scp -rp", copy: scp, version: &["ssh", "-V"] },
    Mover { name: "rclone copy", copy: rclone, version: &["rclone", "version"] },
];

impl Mover {
    pub fn version(&self, files: &Files) -> io::Result<String> {
        let mut command = match self.version {
            ["longhaul", ..] => Command::new(&files.program),
            [program, ..] => Command::new(program),
            [] => return Ok(String::new()),
        };
        let output = command.args(&self.version[1..]).output().map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.version[0]))
        })?;
        let text = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned())
    }
}

pub fn ssh_true(path: &Path<'_>) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-F").arg(path.sshd.settings()).args([Sshd::HOST, "true"]);
    command
}

fn over_ssh(path: &Path<'_>, source: &str, target: &FilePath) -> Command {
    let mut command = Command::new(&path.files.program);
    command.args(["cp", "--quiet", "--json", "-e", &path.sshd.client()]);
    command.arg(path.files.path(source).join(".")).arg(there(target));
    command
}

/// The place at the host, as ssh's users write it.
fn there(target: &FilePath) -> String {
    format!("{}:{}/", Sshd::HOST, target.display())
}

fn longhaul(path: &Path<'_>, source: &str, target: &FilePath) -> Command {
    let mut command = Command::new(&path.files.program);
    command.args(["cp", "--quiet", "--json", "--token-file"]).arg(path.files.path("token"));
    command.arg(path.files.path(source).join("."));
    let name = target.file_name().unwrap_or_default().display();
    command.arg(format!("lh://{}/{name}/", path.server));
    command
}

fn rsync(path: &Path<'_>, source: &str, target: &FilePath) -> Command {
    let mut command = Command::new("rsync");
    command.args(["-a", "-e", &path.sshd.client()]);
    command.arg(format!("{}/", path.files.path(source).display())).arg(there(target));
    command
}

fn scp(path: &Path<'_>, source: &str, target: &FilePath) -> Command {
    let mut command = Command::new("scp");
    command.arg("-rpF").arg(path.sshd.settings()).arg(path.files.path(source).join("."));
    command.arg(there(target));
    command
}

fn rclone(path: &Path<'_>, source: &str, target: &FilePath) -> Command {
    let mut command = Command::new("rclone");
    command.args(["copy", "--config", "/dev/null", "--sftp-user", "root", "--sftp-key-file"]);
    command.arg(path.sshd.key()).args(["--sftp-host", &path.address.to_string()]);
    command.args(["--sftp-port", &Sshd::PORT.to_string()]).arg(path.files.path(source));
    command.arg(format!(":sftp:{}", target.display()));
    command
}
