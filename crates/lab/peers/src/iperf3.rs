//! iperf3: the kernel's TCP as others measure it.

use std::process::Command;

use longhaul_lab::Testbed;
use serde_json::Value;

use crate::contender::{Absent, Contender, ContenderError, End, Job, Outcome, Presence};
use crate::programs;
use crate::session::Session;
use crate::tcp::{control, kernel_has, streams};

pub(crate) struct Iperf3 {
    name: String,
    congestion_control: String,
    streams: u16,
}

impl Iperf3 {
    pub(crate) const USUAL: &[&str] = &[
        "iperf3 cubic x1",
        "iperf3 cubic x4",
        "iperf3 cubic x8",
        "iperf3 bbr x1",
        "iperf3 bbr x8",
    ];

    /// `iperf3 cubic x4`.
    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        let (rest, streams) = streams(name)?;
        let congestion_control = control(rest.strip_prefix("iperf3 ")?)?;
        Some(Box::new(Self { name: name.to_owned(), congestion_control, streams }))
    }
}

impl Contender for Iperf3 {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        format!("iperf3, {} x{}, memory to memory", self.congestion_control, self.streams)
    }

    fn packages(&self) -> &'static [&'static str] {
        PACKAGES
    }

    fn presence(&self) -> Result<Presence, Absent> {
        kernel_has(&self.congestion_control)?;
        let [program] = programs::require(["iperf3"], PACKAGES)?;
        Ok(programs::presence(program, "--version", version))
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError> {
        let presence = self.presence()?;
        let program = presence.program.clone().unwrap_or_default();
        job.memory_only()?;
        job.without_rate()?;
        let mut session = Session::new(testbed, job)?;
        let mut server = Command::new(&program);
        server.args(["-s", "-1", "-p", PORT_TEXT]);
        let server = session.start(End::Receiver, server)?;
        session.listening(server, PORT)?;
        let mut client = Command::new(&program);
        client.args(["-c", &session.address(End::Receiver).to_string(), "-p", PORT_TEXT, "-J"]);
        client.args(["-C", &self.congestion_control, "-P", &self.streams.to_string()]);
        client.args(["-n", &job.bytes.to_string()]);
        for (flag, value) in [("-l", job.block), ("-w", job.socket_buffer.map(u64::from))] {
            if let Some(value) = value {
                client.args([flag, &value.to_string()]);
            }
        }
        session.begin()?;
        let client = session.start(End::Sender, client)?;
        let status = session.ended(client)?;
        let output = session.output(client, "out");
        let report: Value = serde_json::from_str(&output).unwrap_or_default();
        let Some(result) = parse(&report) else {
            let why = report["error"].as_str().unwrap_or("no result");
            return Err(session.failed(client, format!("{status}: {why}")));
        };
        session.finish(server)?;
        let outcome = session.close()?.outcome(presence, job);
        if result.congestion_control != self.congestion_control {
            let why = format!("the kernel used {}", result.congestion_control);
            return Err(ContenderError::unsuitable(why));
        }
        Ok(Outcome {
            // It is done when everything is written, and leaves the rest where it is.
            bytes: result.received,
            congestion_control: Some(result.congestion_control),
            ..outcome
        }
        .detailed("sum_received", report["end"]["sum_received"].clone()))
    }
}

struct Parsed {
    received: u64,
    congestion_control: String,
}

/// The end of the report of `iperf3 -J`.
fn parse(report: &Value) -> Option<Parsed> {
    let end = &report["end"];
    Some(Parsed {
        received: end["sum_received"]["bytes"].as_u64()?,
        congestion_control: end["sender_tcp_congestion"].as_str()?.to_owned(),
    })
}

/// `iperf 3.12 (cJSON 1.7.15)`.
fn version(output: &str) -> Option<String> {
    let line = output.lines().next().filter(|line| line.starts_with("iperf 3"))?;
    Some(line.split(" (").next().unwrap_or(line).to_owned())
}

const PACKAGES: &[&str] = &["iperf3"];
const PORT: u16 = 5201;
const PORT_TEXT: &str = "5201";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let iperf3 = Iperf3::named("iperf3 bbr x8").unwrap();
        assert_eq!(iperf3.about(), "iperf3, bbr x8, memory to memory");
        assert!(Iperf3::named("iperf3 bbr").is_none() && Iperf3::named("bbr x8").is_none());
    }

    #[test]
    fn the_report_of_3_12_is_read() {
        // Debian 12, `iperf3 -c peer -C cubic -P 2 -n 20000000 -J`, without the streams.
        let text = r#"{"start": {"version": "iperf 3.12"}, "end": {
            "sum_sent": {"start": 0, "end": 0.144234, "seconds": 0.144234, "bytes": 20211560,
                "bits_per_second": 1121042749.9757338, "retransmits": 627, "sender": true},
            "sum_received": {"start": 0, "end": 0.150619, "seconds": 0.150619,
                "bytes": 15180752, "bits_per_second": 806312722.830453, "sender": true},
            "sender_tcp_congestion": "cubic", "receiver_tcp_congestion": "cubic"}}"#;
        let parsed = parse(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!((parsed.received, &parsed.congestion_control[..]), (15_180_752, "cubic"));
        let refused = r#"{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {},
            "error": "unable to connect to server: Connection refused"}"#;
        assert!(parse(&serde_json::from_str(refused).unwrap()).is_none());
        let output = "iperf 3.12 (cJSON 1.7.15)\nLinux vm 6.18.44\n";
        assert_eq!(version(output).as_deref(), Some("iperf 3.12"));
        assert_eq!(version("command not found"), None);
    }
}
