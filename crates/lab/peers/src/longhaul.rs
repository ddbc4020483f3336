//! Longhaul itself: `longhaul serve` at one end, `longhaul cp` at the other.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use longhaul_lab::Testbed;
use longhaul_rate_control::Profile;
use longhaul_units::Rate;
use serde_json::Value;

use crate::contender::{
    Absent, Contender, ContenderError, End, Job, Outcome, PacketId, Passage, Presence, ReportedLoss,
};
use crate::files::Files;
use crate::gateways;
use crate::programs;
use crate::session::Session;

/// A profile, and further options of `cp`.
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

    /// Adds to an outcome what other programs do not report.
    fn report(&self, outcome: Outcome, report: Value) -> Outcome {
        Outcome {
            congestion_control: (self.carrier == "udp").then(|| self.profile.name.to_owned()),
            bottleneck: report["bottleneck"].as_str().map(str::to_owned),
            resent: report["packets_resent"].as_u64(),
            lost: lost(&report),
            ..outcome
        }
        .detailed("cp", report)
    }
}

/// Packets by the cause of their loss.
pub(crate) fn lost(report: &Value) -> Option<BTreeMap<String, u64>> {
    let causes = report["lost"].as_object()?.iter();
    Some(causes.filter_map(|(cause, count)| Some((cause.clone(), count.as_u64()?))).collect())
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
        presence()
    }

    fn takes_parameters(&self) -> bool {
        true
    }

    fn passage(&self) -> Passage {
        // Gateways carry TCP.
        if self.carrier == "tcp" { Passage::Either } else { Passage::Direct }
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError> {
        let presence = self.presence()?;
        if self.profile.needs_rate && job.rate.is_none() {
            return Err(ContenderError::unsuitable(format!("{} needs a rate", self.name)));
        }
        let mut session = Session::new(testbed, job)?;
        let files = Files::new(&session)?;
        let commands = Commands::new(&mut session, &presence)?;
        let at = std::net::SocketAddr::new(session.address(End::Receiver), PORT);
        commands.serve(&mut session, at, &files, &["--once"])?;
        let mut cp = commands.command(&["cp", "--json", "--quiet"]);
        match &job.history {
            // The folder of the user's state, as the XDG base directories have it.
            Some(folder) => cp.env("XDG_STATE_HOME", folder),
            None => cp.arg("--no-history"),
        };
        for parameter in &job.parameters {
            cp.args(["--param", parameter]);
        }
        cp.args(["--profile", self.profile.name]);
        cp.args(["--protect", self.protect, "--carrier", self.carrier]);
        if let Some(rate) = job.rate {
            cp.args(["--rate", &rate_argument(rate)]);
        }
        if !job.via.is_empty() {
            let gateways = gateways::start(&mut session, &commands, &at.to_string())?;
            let gateways: Vec<String> = gateways.iter().map(ToString::to_string).collect();
            cp.args(["--via", &gateways.join(",")]);
        }
        let losses = session.folder().join("losses");
        if job.losses {
            cp.arg("--losses").arg(&losses);
        }
        cp.arg(&files.source).arg(format!("lh://{at}/copy"));
        session.begin()?;
        let client = session.start(End::Sender, cp)?;
        if !session.ends_before_cut(client)? {
            let (outcome, report) = cut(&mut session, client, presence)?;
            return Ok(self.report(outcome, report));
        }
        let report = copied(&mut session, client)?;
        let reported_losses = if job.losses { read_losses(&losses)? } else { Vec::new() };
        let account = session.close()?;
        files.check(&self.name)?;
        Ok(self.report(Outcome { reported_losses, ..account.outcome(presence, job) }, report))
    }
}

/// Stops a copy, which says what has arrived.
fn cut(
    session: &mut Session<'_>,
    client: usize,
    presence: Presence,
) -> Result<(Outcome, Value), ContenderError> {
    session.stop_clock();
    session.ask_to_end(client);
    session.ended(client)?;
    let report: Value = serde_json::from_str(&session.output(client, "out")).unwrap_or_default();
    // It may have been done before it was asked to stop.
    let whole = report["verified"] == true;
    let arrived = report[if whole { "bytes" } else { "bytes_done" }].as_u64();
    let arrived = arrived.ok_or_else(|| session.failed(client, "what arrived is not known"))?;
    let outcome = session.close()?.outcome(presence, session.job());
    Ok((Outcome { bytes: arrived, cut: !whole, ..outcome }, report))
}

/// The file of `cp --losses`.
fn read_losses(file: &Path) -> Result<Vec<ReportedLoss>, ContenderError> {
    let text = std::fs::read_to_string(file).map_err(ContenderError::system("read the losses"))?;
    let wrong =
        || ContenderError::system("read the losses")(std::io::ErrorKind::InvalidData.into());
    let lines = text.lines().skip(1);
    lines.map(|line| parse_loss(line).ok_or_else(wrong)).collect()
}

/// `seconds,lane,packet,cause`.
fn parse_loss(line: &str) -> Option<ReportedLoss> {
    let mut fields = line.split(',').skip(1);
    let lane = fields.next()?.parse().ok()?;
    let number = fields.next()?.parse().ok()?;
    let cause = fields.next()?.to_owned();
    Some(ReportedLoss { packet: PacketId { lane, number }, cause })
}

/// Commands of the program, with a token of their own.
pub(crate) struct Commands {
    program: PathBuf,
    token: PathBuf,
}

impl Commands {
    /// Makes the token.
    pub(crate) fn new(
        session: &mut Session<'_>,
        presence: &Presence,
    ) -> Result<Self, ContenderError> {
        let program = presence.program.clone().unwrap_or_default();
        let made = Self { program, token: session.folder().join("token") };
        let keys = session.start(End::Receiver, made.command(&["keys", "new", "--quiet"]))?;
        session.finish(keys)?;
        Ok(made)
    }

    /// One that takes a token.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.without_token(words);
        command.args([OsStr::new("--token-file"), self.token.as_ref()]);
        command
    }

    /// One that does not.
    pub(crate) fn without_token(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words);
        command
    }

    pub(crate) fn token(&self) -> &Path {
        &self.token
    }

    /// Starts a server for the copies of `files`, and waits until it listens.
    pub(crate) fn serve(
        &self,
        session: &mut Session<'_>,
        at: std::net::SocketAddr,
        files: &Files,
        words: &[&str],
    ) -> Result<(), ContenderError> {
        let at_address = ["serve", "--quiet", "--no-history", "--listen", &at.to_string()];
        let mut serve = self.command(&at_address);
        if let Some(nice) = session.job().nice {
            let (program, mut niced) = (serve, Command::new("nice"));
            niced.args(["-n", &nice.to_string()]).arg(program.get_program());
            niced.args(program.get_args());
            serve = niced;
        }
        if session.job().host_priority {
            serve.arg("--host-priority");
        }
        serve.args(words).args([OsStr::new("--root"), files.target().as_ref()]);
        if let Some(size) = session.job().socket_buffer {
            serve.args(["--socket-buffer", &size.to_string()]);
        }
        let server = session.start(End::Receiver, serve)?;
        session.listening(server, at.port())
    }
}

/// The report of `cp --json`, if all is well.
pub(crate) fn copied(session: &mut Session<'_>, client: usize) -> Result<Value, ContenderError> {
    let report = json_of(session, client)?;
    match report["verified"] == true {
        true => Ok(report),
        false => Err(session.failed(client, "the copy was not verified")),
    }
}

/// The object that a command ends with.
pub(crate) fn json_of(session: &mut Session<'_>, command: usize) -> Result<Value, ContenderError> {
    let text = session.finish(command)?;
    serde_json::from_str(&text)
        .map_err(|error| session.failed(command, format!("no JSON came of it: {error}")))
}

/// A rate as options take it.
pub(crate) fn rate_argument(rate: Rate) -> String {
    format!("{}bps", rate.as_bps())
}

/// Has contenders that are Longhaul run this executable, whatever its name is. Without it they run
/// a `longhaul` beside this one or in PATH.
///
/// # Errors
/// This executable cannot be found.
pub fn run_this_executable() -> std::io::Result<()> {
    let own = std::env::current_exe()?;
    OWN.get_or_init(|| own);
    Ok(())
}

pub(crate) fn presence() -> Result<Presence, Absent> {
    let program = program()
        .ok_or_else(|| Absent::new("no program longhaul beside this one or in PATH", &[]))?;
    let version = programs::output(Command::new(&program).arg("--version"));
    Ok(Presence { version: version.trim().to_owned(), program: Some(program) })
}

/// This program if it is Longhaul, one beside it or (for tests) above it, or one in PATH.
fn program() -> Option<PathBuf> {
    if let Some(own) = OWN.get() {
        return Some(own.clone());
    }
    let own = std::env::current_exe().ok()?;
    let folders = own.ancestors().skip(1).take(2).map(|folder| folder.join(NAME));
    folders.chain(programs::find(NAME)).find(|program| program.is_file())
}

/// This executable, where it is Longhaul.
static OWN: OnceLock<PathBuf> = OnceLock::new();
const NAME: &str = "longhaul";
/// In a namespace of its own every port is free.
pub(crate) const PORT: u16 = 7420;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read() {
        let packet = PacketId { lane: 2, number: 1234 };
        let loss = ReportedLoss { packet, cause: "random".into() };
        assert_eq!(parse_loss("0.123456,2,1234,random"), Some(loss));
        assert_eq!(parse_loss("0.1,2"), None);
        // Protocol.md section 4.1: an OBJECT packet of lane 2 and number 1234.
        let head = [0x42, 0, 0, 2, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 4, 210, 0, 0, 0, 0];
        assert_eq!(PacketId::of(&head), Some(packet));
        assert_eq!(PacketId::of(&[0; 20]), None);
    }

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
