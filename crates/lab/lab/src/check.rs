//! Checks that emulated paths do what they promise, measured from outside: with real sockets at
//! both ends, against what was asked for.

mod blast;
mod flows;
mod losses;
mod tcp;
mod times;

use std::io;

use serde::Serialize;

use self::flows::{Outcome, Stream};
use crate::emulator::LinkStats;
use crate::testbed::{Testbed, TestbedError, TestbedOptions};
use crate::topology::{Topology, TopologyError};

/// One comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The check that it belongs to.
    pub check: &'static str,
    /// The measurement, and its place.
    pub what: String,
    /// The expected value, with the tolerance.
    pub expected: String,
    /// The measured value.
    pub measured: String,
    /// True if it is as expected.
    pub ok: bool,
}

/// Why a check could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// No check has that name.
    #[error("no check is called {0:?}; known are {known}", known = names().join(", "))]
    Unknown(String),
    /// No testbed.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// A socket or thread failed.
    #[error("the check {check}: {error}")]
    System {
        /// The check.
        check: &'static str,
        /// The failure.
        error: io::Error,
    },
}

/// Names of all checks, in order.
pub fn names() -> Vec<&'static str> {
    CHECKS.iter().map(|check| check.0).collect()
}

/// Makes the checks whose names are in `only`, or all of them, one after another, and shows each
/// row to `seen` as soon as it is known. About a minute.
///
/// # Errors
/// Errors of names that do not exist, and of testbeds. What is off is no error but a row.
pub fn run(only: &[String], seen: &mut dyn FnMut(&Row)) -> Result<Vec<Row>, CheckError> {
    if let Some(name) = only.iter().find(|name| !names().contains(&name.as_str())) {
        return Err(CheckError::Unknown(name.clone()));
    }
    let mut report = Report { check: "", rows: Vec::new(), seen };
    for (name, check) in CHECKS {
        if only.is_empty() || only.iter().any(|wanted| wanted == name) {
            report.check = name;
            check(&mut report)?;
        }
    }
    Ok(report.rows)
}

/// Rows as they come.
struct Report<'a> {
    check: &'static str,
    rows: Vec<Row>,
    seen: &'a mut dyn FnMut(&Row),
}

impl Report<'_> {
    /// Two hosts with a link of these conditions between them, as TOML.
    fn testbed(&self, link: &str) -> Result<Testbed, CheckError> {
        let text = format!(
            "name = \"check\"\n[[node]]\nname = \"host\"\n[[node]]\nname = \"peer\"\n\
             [[link]]\nname = \"path\"\nbetween = [\"host\", \"peer\"]\n{link}\n"
        );
        let topology =
            Topology::parse(&text).map_err(|error: TopologyError| TestbedError::from(error))?;
        let options = TestbedOptions { log: LOG, ..TestbedOptions::default() };
        Ok(Testbed::new(&topology, &options)?)
    }

    fn system(&self, error: io::Error) -> CheckError {
        CheckError::System { check: self.check, error }
    }

    /// Sends datagrams. It reports what the receiver loses, which would otherwise pass for the
    /// path's.
    fn stream(&mut self, testbed: &Testbed, spec: &Stream) -> Result<Outcome, CheckError> {
        let outcome = flows::stream(testbed, spec).map_err(|error| self.system(error))?;
        if outcome.overflow > 0 {
            self.equal("dropped by the receiver's full socket", 0, outcome.overflow.into());
        }
        Ok(outcome)
    }

    fn row(&mut self, what: &str, expected: String, measured: String, ok: bool) {
        let row = Row { check: self.check, what: what.to_owned(), expected, measured, ok };
        (self.seen)(&row);
        self.rows.push(row);
    }

    /// A number that should lie within `tolerance` of `expected`.
    fn near(&mut self, what: &str, unit: &str, expected: f64, tolerance: f64, measured: f64) {
        self.row(
            what,
            format!("{expected:.2} {unit}, give or take {tolerance:.2}"),
            format!("{measured:.2} {unit}"),
            (measured - expected).abs() <= tolerance,
        );
    }

    /// A count that has to be just right.
    fn equal(&mut self, what: &str, expected: u64, measured: u64) {
        self.row(what, expected.to_string(), measured.to_string(), expected == measured);
    }

    /// Ends a testbed: nothing was lost but what its links meant to lose. Tells of the first link.
    fn close(&mut self, testbed: Testbed) -> Result<LinkStats, CheckError> {
        let links = 0..testbed.topology().links.len();
        let stats = links.map(|link| testbed.stats(link)).collect::<io::Result<Vec<_>>>();
        let stats = stats.map_err(|error| self.system(error))?;
        let directions = stats.iter().flat_map(|link| [&link.forward, &link.backward]);
        let unasked: u64 =
            directions.flat_map(|direction| direction.unasked()).map(|(_, count)| count).sum();
        if unasked > 0 {
            self.equal("packets lost by the emulation itself", 0, unasked);
        }
        testbed.close().map_err(|error| self.system(error))?;
        Ok(stats[0])
    }
}

type Check = fn(&mut Report<'_>) -> Result<(), CheckError>;

const CHECKS: [(&str, Check); 17] = [
    ("rtt", times::rtt),
    ("chain", times::chain),
    ("jitter", times::jitter),
    ("rate", times::rate),
    ("schedule", times::schedule),
    ("htb", times::htb),
    ("queue", times::queue),
    ("outage", times::outage),
    ("loss", losses::random),
    ("burst-loss", losses::bursts),
    ("order", losses::order),
    ("copies", losses::copies),
    ("marks", losses::marks),
    ("path-mtu", losses::path_mtu),
    ("reno", tcp::reno),
    ("cubic", tcp::cubic),
    ("capacity", tcp::capacity),
];

/// More losses than any check makes.
const LOG: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_others_are_refused() {
        let mut names = names();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
        let error = run(&["moon".into()], &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("moon") && error.contains("path-mtu"), "{error}");
    }

    #[test]
    fn rows_say_whether_they_are_as_expected() {
        let mut seen = 0;
        let mut count = |_: &Row| seen += 1;
        let mut report = Report { check: "rtt", rows: Vec::new(), seen: &mut count };
        report.near("time", "ms", 100.0, 2.0, 101.9);
        report.near("time", "ms", 100.0, 2.0, 97.9);
        report.near("time", "ms", 100.0, 2.0, f64::NAN);
        report.equal("count", 3, 3);
        report.equal("count", 3, 4);
        let ok: Vec<bool> = report.rows.iter().map(|row| row.ok).collect();
        assert_eq!(ok, [true, false, false, true, false]);
        assert_eq!(report.rows[0].expected, "100.00 ms, give or take 2.00");
        assert_eq!(seen, 5);
    }
}
