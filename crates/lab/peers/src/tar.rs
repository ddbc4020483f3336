//! `tar` into a TCP connection and out of it: what people do without a tool.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use longhaul_lab::Testbed;
use longhaul_sys::tcp::TcpOptions;

use crate::contender::{Absent, Contender, End, Failure, Job, Outcome, Presence};
use crate::files::Files;
use crate::programs;
use crate::session::Session;
use crate::tcp::{control_after, kernel_has};

pub(crate) struct Tar {
    name: String,
    congestion_control: String,
}

impl Tar {
    pub(crate) const USUAL: &[&str] = &["tar", "tar bbr"];

    /// `tar`, which uses CUBIC, or `tar bbr`.
    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        let congestion_control = control_after("tar", name)?;
        Some(Box::new(Self { name: name.to_owned(), congestion_control }))
    }
}

impl Contender for Tar {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        format!("tar | TCP {} | tar, from file to file", self.congestion_control)
    }

    fn packages(&self) -> &'static [&'static str] {
        PACKAGES
    }

    fn presence(&self) -> Result<Presence, Absent> {
        kernel_has(&self.congestion_control)?;
        let [program] = programs::require(["tar"], PACKAGES)?;
        Ok(programs::presence(program, "--version", version))
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, Failure> {
        let presence = self.presence()?;
        let program = presence.program.clone().unwrap_or_default();
        if job.rate.is_some() {
            return Err(Failure::unsuitable("it is not told a rate"));
        }
        let mut session = Session::new(testbed, job)?;
        session.use_congestion_control(&self.congestion_control)?;
        let files = Files::new(&session)?;
        let tar = |direction: &str, folder: &std::path::Path| {
            let mut command = Command::new(&program);
            // Blocks of 128 KiB: writes and reads of a sensible size.
            command.args(["-b", "256", direction, "-", "-C"]).arg(folder);
            command
        };
        let mut options = TcpOptions::default();
        options.buffer = job.socket_buffer;
        session.begin()?;
        let (from, to) = session.hosts();
        let connect = || {
            let listener = to.run(|| TcpListener::bind((to.ipv4(), 0)))??;
            options.apply(&listener)?;
            let (target, left) = (listener.local_addr()?, session.left());
            let stream = from.run(|| TcpStream::connect_timeout(&target, left))??;
            options.apply(&stream)?;
            Ok((stream, listener.accept()?.0))
        };
        let (stream, accepted) = connect().map_err(Failure::system("connect"))?;
        let accepted = Stdio::from(OwnedFd::from(accepted));
        let stream = Stdio::from(OwnedFd::from(stream));
        let unpack = tar("-xf", files.target());
        let unpack = session.start_joined(End::Receiver, unpack, Some(accepted), None)?;
        let mut pack = tar("-cf", &files.source);
        pack.arg(".");
        let pack = session.start_joined(End::Sender, pack, None, Some(stream))?;
        session.finish(pack)?;
        session.finish(unpack)?;
        let account = session.close()?;
        files.check(&self.name)?;
        let congestion_control = Some(self.congestion_control.clone());
        Ok(Outcome { congestion_control, ..account.outcome(presence, job) })
    }
}

/// `tar (GNU tar) 1.34`.
fn version(said: &str) -> Option<String> {
    let line = said.lines().next().filter(|line| line.starts_with("tar"))?;
    Some(line.trim().to_owned())
}

const PACKAGES: &[&str] = &["tar"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        assert_eq!(version("tar (GNU tar) 1.34\nCopyright\n").unwrap(), "tar (GNU tar) 1.34");
        assert_eq!(version(""), None);
    }
}
