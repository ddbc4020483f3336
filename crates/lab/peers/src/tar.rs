//! `tar` into a TCP connection and out of it: what people do without a tool.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use longhaul_sys::tcp::TcpOptions;

use crate::contender::{Absent, ContenderError, End, Presence};
use crate::files::Files;
use crate::over_tcp::Mover;
use crate::programs;
use crate::session::Session;

pub(crate) struct Tar;

impl Mover for Tar {
    const USUAL: [&str; 2] = ["tar", "tar bbr"];
    const ABOUT: &str = "tar | TCP | tar";
    const PACKAGES: &[&str] = &["tar"];
    const TAKES_BUFFER: bool = true;

    fn presence() -> Result<Presence, Absent> {
        let [program] = programs::require(["tar"], Self::PACKAGES)?;
        Ok(programs::presence(program, "--version", version))
    }

    fn transfer(session: &mut Session<'_>, files: &Files) -> Result<(), ContenderError> {
        let [program] = programs::require(["tar"], Self::PACKAGES)?;
        let tar = |direction: &str, folder: &Path| {
            let mut command = Command::new(&program);
            // Blocks of 128 KiB: writes and reads of a sensible size.
            command.args(["-b", "256", direction, "-", "-C"]).arg(folder);
            command
        };
        session.begin()?;
        let (stream, accepted) = joined(session).map_err(ContenderError::system("connect"))?;
        let unpack = tar("-xf", files.target());
        let unpack = session.start_joined(End::Receiver, unpack, Some(accepted), None)?;
        let mut pack = tar("-cf", &files.source);
        pack.arg(".");
        let pack = session.start_joined(End::Sender, pack, None, Some(stream))?;
        session.finish(pack)?;
        session.finish(unpack)?;
        Ok(())
    }
}

/// A connection from the sending end to the receiving one: output of the one, input of the other.
fn joined(session: &Session<'_>) -> std::io::Result<(Stdio, Stdio)> {
    let mut options = TcpOptions::default();
    options.buffer = session.job().socket_buffer;
    let (from, to) = session.hosts();
    let listener = to.run(|| TcpListener::bind((to.ipv4(), 0)))??;
    options.apply(&listener)?;
    let (target, left) = (listener.local_addr()?, session.left());
    let stream = from.run(|| TcpStream::connect_timeout(&target, left))??;
    options.apply(&stream)?;
    let accepted = listener.accept()?.0;
    Ok((OwnedFd::from(stream).into(), OwnedFd::from(accepted).into()))
}

/// `tar (GNU tar) 1.34`.
fn version(output: &str) -> Option<String> {
    let line = output.lines().next().filter(|line| line.starts_with("tar"))?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        assert_eq!(version("tar (GNU tar) 1.34\nCopyright\n").unwrap(), "tar (GNU tar) 1.34");
        assert_eq!(version(""), None);
    }
}
