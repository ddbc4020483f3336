//! XRootD, the data mover of high-energy physics: `xrootd` and `xrdcp`.

use std::process::Command;

use longhaul_lab::Testbed;

use crate::contender::{Absent, Contender, End, Failure, Job, Outcome, Presence};
use crate::files::Files;
use crate::programs;
use crate::session::Session;
use crate::tcp::{control_after, kernel_has};

pub(crate) struct Xrootd {
    name: String,
    congestion_control: String,
}

impl Xrootd {
    pub(crate) const USUAL: &[&str] = &["xrootd", "xrootd bbr"];

    /// `xrootd`, which uses CUBIC, or `xrootd bbr`.
    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        let congestion_control = control_after("xrootd", name)?;
        Some(Box::new(Self { name: name.to_owned(), congestion_control }))
    }
}

impl Contender for Xrootd {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        format!("XRootD (xrdcp), {}, one connection, from file to file", self.congestion_control)
    }

    fn packages(&self) -> &'static [&'static str] {
        PACKAGES
    }

    fn presence(&self) -> Result<Presence, Absent> {
        kernel_has(&self.congestion_control)?;
        let [copy, _] = programs::require(["xrdcp", "xrootd"], PACKAGES)?;
        Ok(programs::presence(copy, "--version", version))
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, Failure> {
        let presence = self.presence()?;
        let [copy, server] = programs::require(["xrdcp", "xrootd"], PACKAGES)?;
        if job.rate.is_some() || job.socket_buffer.is_some() {
            return Err(Failure::unsuitable("it is told neither a rate nor a socket buffer"));
        }
        let mut session = Session::new(testbed, job)?;
        session.use_congestion_control(&self.congestion_control)?;
        let files = Files::new(&session)?;
        let own = session.own_folder("xrootd")?;
        let configuration = own.join("configuration");
        let text = format!(
            "xrd.port {PORT}\nxrd.network nodnr\noss.localroot /\nall.export {}\n\
             all.adminpath {own}\nall.pidpath {own}\n",
            files.target().display(),
            own = own.display()
        );
        std::fs::write(&configuration, text).map_err(Failure::system("write a file"))?;
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
        session.finish(client)?;
        let account = session.close()?;
        files.check(&self.name)?;
        let congestion_control = Some(self.congestion_control.clone());
        Ok(Outcome { congestion_control, ..account.outcome(presence, job) })
    }
}

/// `v5.5.3`.
fn version(said: &str) -> Option<String> {
    let version = said.lines().find_map(|line| line.trim().strip_prefix('v'))?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| format!("XRootD {version}"))
}

const PACKAGES: &[&str] = &["xrootd-client", "xrootd-server"];
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
