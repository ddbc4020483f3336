//! The kernel's TCP by the lab's own pump.

use std::io;

use longhaul_lab::Testbed;
use longhaul_lab::pump::{Reach, RoundTrips, TcpPump, Volume};

use crate::account::Account;
use crate::contender::{Absent, Contender, ContenderError, Job, Outcome, Presence, Transport};
use crate::session::Session;

pub(crate) struct Tcp {
    name: String,
    congestion_control: String,
    streams: u16,
}

impl Tcp {
    pub(crate) const USUAL: &[&str] =
        &["reno x1", "cubic x1", "cubic x4", "cubic x8", "bbr x1", "bbr x4", "bbr x8"];

    /// `cubic x4`.
    pub(crate) fn named(name: &str) -> Option<Box<dyn Contender>> {
        let (congestion_control, streams) = streams(name)?;
        let congestion_control = control(congestion_control)?;
        Some(Box::new(Self { name: name.to_owned(), congestion_control, streams }))
    }
}

/// The name before ` xN`, and N.
pub(crate) fn streams(name: &str) -> Option<(&str, u16)> {
    let (rest, count) = name.rsplit_once(" x")?;
    Some((rest, count.parse().ok().filter(|count| (1..=STREAMS_MAX).contains(count))?))
}

/// The name of a congestion control, if it can be one; whether the kernel has it is another matter.
pub(crate) fn control(name: &str) -> Option<String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(valid);
    is_name.then(|| name.to_owned())
}

/// Checks that the kernel has a congestion control.
pub(crate) fn kernel_has(congestion_control: &str) -> Result<(), Absent> {
    let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = std::fs::read_to_string(file).unwrap_or_default();
    if available.split_whitespace().any(|name| name == congestion_control) {
        return Ok(());
    }
    let why = format!("this kernel has {} and no {congestion_control}", available.trim());
    Err(Absent::new(why, &[]))
}

impl Contender for Tcp {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        let (name, count) = (self.congestion_control.to_uppercase(), self.streams);
        format!("kernel TCP {name}, {count} connection{}", if count == 1 { "" } else { "s" })
    }

    fn presence(&self) -> Result<Presence, Absent> {
        kernel_has(&self.congestion_control)?;
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Presence { version: format!("Linux {}", release.trim()), program: None })
    }

    fn measures_round_trips(&self) -> bool {
        true
    }

    fn run(&self, testbed: &Testbed, job: &Job) -> Result<Outcome, ContenderError> {
        let presence = self.presence()?;
        let pumped = Pumped::new(&self.congestion_control, self.streams, job)?;
        pumped.run(Session::new(testbed, job)?, presence, &Reach::direct())
    }
}

/// Connections of the lab's own pump, and what a job asks of them.
pub(crate) struct Pumped {
    pump: TcpPump,
}

impl Pumped {
    pub(crate) fn new(
        congestion_control: &str,
        streams: u16,
        job: &Job,
    ) -> Result<Self, ContenderError> {
        job.memory_only()?;
        job.without_rate()?;
        let mut pump = TcpPump::new(congestion_control, streams);
        pump.buffer = job.socket_buffer;
        if let Some(block) = job.block {
            pump.block = usize::try_from(block).unwrap_or(BLOCK_MAX).clamp(1, BLOCK_MAX);
        }
        Ok(Self { pump })
    }

    /// Moves the job's data between the ends of a session, or measures its round trips.
    pub(crate) fn run(
        &self,
        mut session: Session<'_>,
        presence: Presence,
        reach: &Reach<'_>,
    ) -> Result<Outcome, ContenderError> {
        let job = session.job();
        session.begin()?;
        let (from, to) = session.hosts();
        let patience = session.left();
        let failed = |error: io::Error, words: String| match error.kind() {
            io::ErrorKind::TimedOut => ContenderError::TimedOut { after: job.patience, words },
            _ => {
                let (what, status) = ("the pump".to_owned(), error.to_string());
                ContenderError::Failed { what, status, words }
            }
        };
        if let Some(count) = job.round_trips {
            let measured = RoundTrips::measure(from, to, reach, count, patience);
            let measured = measured.map_err(|error| failed(error, session.words()))?;
            let bytes = measured.exchanges.len() as u64;
            let outcome = session.close()?.outcome(presence, job);
            let transport = Transport::Tcp;
            return Ok(Outcome { transport, bytes, round_trips: Some(measured), ..outcome });
        }
        let volume = Volume { bytes: job.bytes, length: job.length, patience };
        let moved = self.pump.transfer(from, to, reach, &volume);
        let moved = moved.map_err(|error| failed(error, session.words()))?;
        // Of threads of this process: there are no others at the ends.
        let account = Account { cpu: [moved.cpu_send, moved.cpu_receive], ..session.close()? };
        let outcome = account.outcome(presence, job);
        Ok(Outcome {
            congestion_control: Some(self.pump.congestion_control.clone()),
            bytes: moved.bytes.min(job.bytes),
            cut: moved.bytes < job.bytes,
            seconds: moved.time.as_secs_f64(),
            resent: Some(moved.segments_resent),
            ..outcome
        })
    }
}

const STREAMS_MAX: u16 = 128;
/// Of one write.
const BLOCK_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let tcp = Tcp::named("cubic x8").unwrap();
        assert_eq!(tcp.about(), "kernel TCP CUBIC, 8 connections");
        assert_eq!(streams("iperf3 bbr x1"), Some(("iperf3 bbr", 1)));
        for wrong in ["cubic", "cubic x0", "cubic x", "cubic x200", " x1", "cu bic x1", "x1"] {
            assert!(Tcp::named(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_control_that_the_kernel_lacks_is_absent() {
        let absent = Tcp::named("nosuch x1").unwrap().presence().unwrap_err();
        assert!(absent.to_string().ends_with("and no nosuch"), "{absent}");
        assert!(kernel_has("reno").is_ok(), "it is always built in");
    }
}
