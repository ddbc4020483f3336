//! UFTP, file transfer by UDP with negative acknowledgements, here to one receiver.

use std::process::Command;

use longhaul_lab::Testbed;

use crate::contender::{Absent, Contender, ContenderError, End, Job, Outcome, Presence};
use crate::files::Files;
use crate::programs;
use crate::session::Session;

pub(crate) struct Uftp;

impl Uftp {
    pub(crate) const USUAL: &[&str] = &["uftp"];

    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        Self::USUAL.contains(&name).then(|| Box::new(Self) as _)
    }
}

impl Contender for Uftp {
    fn name(&self) -> &str {
        "uftp"
    }

    fn about(&self) -> String {
        "UFTP to one receiver, at the rate given or by TFMCC, from file to file".into()
    }

    fn packages(&self) -> &'static [&'static str] {
        PACKAGES
    }

    fn presence(&self) -> Result<Presence, Absent> {
        let [uftp, _] = programs::require(["uftp", "uftpd"], PACKAGES)?;
        // It shows its version only when it starts to send, and for a file that is not there.
        let mut command = Command::new(&uftp);
        let output = programs::output(command.args(["-M", "127.0.0.1", "/no/such/file"]));
        let version = version(&output).unwrap_or_else(|| "UFTP, version unknown".into());
        Ok(Presence { version, program: Some(uftp) })
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError> {
        let presence = self.presence()?;
        let [uftp, uftpd] = programs::require(["uftp", "uftpd"], PACKAGES)?;
        let mut session = Session::new(testbed, job)?;
        let files = Files::new(&session)?;
        let buffer = job.socket_buffer.unwrap_or(SOCKET_BUFFER).to_string();
        let mut server = Command::new(uftpd);
        server.args(["-d", "-q", "-U", RECEIVER, "-B", &buffer, "-D"]).arg(files.target());
        let server = session.start(End::Receiver, server)?;
        session.listening(server, PORT)?;
        let mut command = Command::new(uftp);
        let address = session.address(End::Receiver).to_string();
        command.args(["-q", "-M", &address, "-P", &address, "-H", RECEIVER, "-B", &buffer]);
        match job.rate {
            Some(rate) => command.args(["-R", &(rate.as_bps() / 1000).max(1).to_string()]),
            None => command.args(["-C", "tfmcc"]),
        };
        command.arg(&files.source);
        session.begin()?;
        let client = session.start(End::Sender, command)?;
        session.finish(client)?;
        let account = session.close()?;
        files.check(self.name())?;
        let control = if job.rate.is_some() { None } else { Some("tfmcc".to_owned()) };
        Ok(Outcome { congestion_control: control, ..account.outcome(presence, job) })
    }
}

/// `UFTP version 4.10.2  Copyright (C) 2001-2020  Dennis A. Bush`.
fn version(output: &str) -> Option<String> {
    let (_, rest) = output.split_once("UFTP version ")?;
    Some(format!("UFTP {}", rest.split_whitespace().next()?))
}

const PACKAGES: &[&str] = &["uftp"];
const PORT: u16 = 1044;
/// Name of the one receiver.
const RECEIVER: &str = "0x00000001";
const SOCKET_BUFFER: u32 = 10 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        let output = "\nUFTP version 4.10.2  Copyright (C) 2001-2020  Dennis A. Bush\nStarting\n";
        assert_eq!(version(output).unwrap(), "UFTP 4.10.2");
        assert_eq!(version(""), None);
    }
}
