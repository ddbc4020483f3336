//! Longhaul itself: `longhaul serve` at one end, `longhaul cp` at the other.

pub(crate) mod commands;

use std::collections::BTreeMap;
use std::path::Path;

use longhaul_lab::Testbed;
use longhaul_rate_control::Profile;
use longhaul_units::Rate;
use serde_json::Value;

use crate::contender::{
    Absent, Contender, ContenderError, End, Job, Outcome, PacketId, Passage, Presence, ReportedLoss,
};
use crate::files::Files;
use crate::gateways;
use crate::session::Session;
use commands::Commands;

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
        commands::presence()
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
