//! Secure Reliable Transport in its file mode, a descendant of UDT: `srt-file-transmit`.

use std::process::Command;

use longhaul_lab::Testbed;

use crate::contender::{Absent, Contender, ContenderError, End, Job, Outcome, Presence};
use crate::files::Files;
use crate::programs;
use crate::session::Session;

pub(crate) struct Srt;

impl Srt {
    pub(crate) const USUAL: &[&str] = &["srt"];

    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        Self::USUAL.contains(&name).then(|| Box::new(Self) as _)
    }
}

impl Contender for Srt {
    fn name(&self) -> &str {
        "srt"
    }

    fn about(&self) -> String {
        "SRT in file mode, one file, its buffers raised to 64 MiB".into()
    }

    fn packages(&self) -> &'static [&'static str] {
        PACKAGES
    }

    fn presence(&self) -> Result<Presence, Absent> {
        let [program] = programs::require(["srt-file-transmit"], PACKAGES)?;
        Ok(programs::presence(program, "-version", version))
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError> {
        let presence = self.presence()?;
        let program = presence.program.clone().unwrap_or_default();
        let mut session = Session::new(testbed, job)?;
        let files = Files::new(&session)?;
        let source = files.single()?;
        let options = options(job);
        let mut receiver = Command::new(&program);
        receiver.args(["-q", &format!("srt://:{PORT}?mode=listener&{options}")]);
        receiver.arg(format!("file://{}/", files.target().display()));
        let receiver = session.start(End::Receiver, receiver)?;
        session.listening(receiver, PORT)?;
        let mut sender = Command::new(&program);
        sender.args(["-q", &format!("file://{}", source.display())]);
        let address = session.address(End::Receiver);
        sender.arg(format!("srt://{address}:{PORT}?mode=caller&{options}"));
        session.begin()?;
        let sender = session.start(End::Sender, sender)?;
        session.finish(sender)?;
        session.finish(receiver)?;
        let account = session.close()?;
        files.check(self.name())?;
        let outcome = account.outcome(presence, job);
        Ok(Outcome { congestion_control: Some("srt file".into()), ..outcome })
    }
}

/// Buffers for a long path, as its manual advises; a window in packets of 1500 bytes.
fn options(job: &Job) -> String {
    let window = BUFFER / 1456;
    let socket = job.socket_buffer.map_or(BUFFER, u64::from);
    let mut options = format!(
        "sndbuf={BUFFER}&rcvbuf={BUFFER}&fc={window}&udp_sndbuf={socket}&udp_rcvbuf={socket}"
    );
    if let Some(rate) = job.rate {
        options += &format!("&maxbw={}", rate.as_bps() / 8);
    }
    options
}

/// `SRT Library version: 1.5.1, clock type: ...`.
fn version(output: &str) -> Option<String> {
    let (_, rest) = output.split_once("SRT Library version: ")?;
    Some(format!("SRT {}", rest.split([',', '\n']).next()?.trim()))
}

const BUFFER: u64 = 64 << 20;
const PACKAGES: &[&str] = &["srt-tools"];
const PORT: u16 = 9000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        let output = "SRT sample application to transmit files.\nSRT Library version: 1.5.1\n\
                    SRT Library version: 1.5.1, clock type: GETTIME_MONOTONIC\n";
        assert_eq!(version(output).as_deref(), Some("SRT 1.5.1"));
        assert_eq!(version(""), None);
    }
}
