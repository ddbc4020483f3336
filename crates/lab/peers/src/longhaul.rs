//! Longhaul itself: `longhaul serve` at one end, `longhaul cp` at the other.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use longhaul_lab::Testbed;
use longhaul_rate_control::Profile;
use serde_json::Value;

use crate::contender::{Absent, Contender, End, Failure, Job, Outcome, Presence};
use crate::files::Files;
use crate::programs;
use crate::session::Session;

/// A profile, and what else is said to `cp`.
pub(crate) struct Longhaul {
    name: String,
    profile: &'static Profile,
    protect: &'static str,
    carrier: &'static str,
}

impl Longhaul {
    /// `auto`, `rbudp clear`, `auto tcp`: a profile, then a protection or a carrier.
    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        let mut words = name.split(' ');
        let profile = Profile::by_name(words.next()?)?;
        let mut made = Self { name: name.to_owned(), profile, protect: "aead", carrier: "udp" };
        for word in words {
            match word {
                "tcp" => made.carrier = "tcp",
                "clear" => made.protect = "clear",
                "integrity" => made.protect = "integrity",
                _ => return None,
            }
        }
        Some(Box::new(made))
    }

    /// What is said of a run beyond what all programs have in common.
    fn report(&self, outcome: Outcome, report: Value) -> Outcome {
        let lost = report["lost"].as_object().map(|causes| {
            let count = |(cause, count): (&String, &Value)| (cause.clone(), count.as_u64());
            causes.iter().map(count).filter_map(|(cause, count)| Some((cause, count?))).collect()
        });
        Outcome {
            congestion_control: (self.carrier == "udp").then(|| self.profile.name.to_owned()),
            resent: report["packets_resent"].as_u64(),
            lost,
            ..outcome
        }
        .detailed("cp", report)
    }
}

impl Contender for Longhaul {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        let carrier = if self.carrier == "tcp" { " over TCP" } else { "" };
        format!("Longhaul{carrier}, {}: {}", self.protect, self.profile.description)
    }

    fn presence(&self) -> Result<Presence, Absent> {
        let program = program()
            .ok_or_else(|| Absent::new("no program longhaul beside this one or in PATH", &[]))?;
        let version = programs::output(Command::new(&program).arg("--version"));
        Ok(Presence { version: version.trim().to_owned(), program: Some(program) })
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, Failure> {
        let presence = self.presence()?;
        let program = presence.program.clone().unwrap_or_default();
        if self.profile.needs_rate && job.rate.is_none() {
            return Err(Failure::unsuitable(format!("{} has to be told a rate", self.name)));
        }
        let mut session = Session::new(testbed, job)?;
        let files = Files::new(&session)?;
        let token = session.folder().join("token");
        let command = |words: &[&str]| {
            let mut command = Command::new(&program);
            command.args(words).args([OsStr::new("--token-file"), token.as_ref()]);
            command
        };
        let keys = session.start(End::Receiver, command(&["keys", "new", "--quiet"]))?;
        session.finish(keys)?;
        let at = std::net::SocketAddr::new(session.address(End::Receiver), PORT).to_string();
        let mut serve = command(&["serve", "--quiet", "--once", "--listen", &at]);
        serve.args([OsStr::new("--root"), files.target().as_ref()]);
        if let Some(size) = job.socket_buffer {
            serve.args(["--socket-buffer", &size.to_string()]);
        }
        let server = session.start(End::Receiver, serve)?;
        session.listening(server, PORT)?;
        let mut cp = command(&["cp", "--json", "--quiet", "--profile", self.profile.name]);
        cp.args(["--protect", self.protect, "--carrier", self.carrier]);
        if let Some(rate) = job.rate {
            cp.args(["--rate", &format!("{}bps", rate.as_bps())]);
        }
        cp.arg(&files.source).arg(format!("lh://{at}/copy"));
        session.begin()?;
        let client = session.start(End::Sender, cp)?;
        let report = session.finish(client)?;
        let report: Value = serde_json::from_str(&report)
            .map_err(|error| session.failed(client, format!("no JSON came of it: {error}")))?;
        let account = session.close()?;
        if report["verified"] != true {
            return Err(session.failed(client, "the copy was not verified"));
        }
        files.check(&self.name)?;
        Ok(self.report(account.outcome(presence, job), report))
    }
}

/// This program if it is Longhaul, one beside it or (for tests) above it, or one in PATH.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    if own.file_name() == Some(OsStr::new(NAME)) {
        return Some(own);
    }
    let folders = own.ancestors().skip(1).take(2).map(|folder| folder.join(NAME));
    folders.chain(programs::find(NAME)).find(|program| program.is_file())
}

const NAME: &str = "longhaul";
/// In a namespace of its own every port is free.
const PORT: u16 = 7420;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        for profile in Profile::names() {
            assert!(Longhaul::named(profile).is_some());
        }
        let about = Longhaul::named("rbudp clear tcp").unwrap().about();
        assert!(about.starts_with("Longhaul over TCP, clear: Reliable Blast UDP"), "{about}");
        for wrong in ["", "moon", "auto moon", "auto  clear"] {
            assert!(Longhaul::named(wrong).is_none(), "{wrong}");
        }
    }
}
