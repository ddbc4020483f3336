//! The kernel's TCP over emulated paths, and what the machine can carry.

use std::io;
use std::time::Duration;

use longhaul_units::Rate;

use super::blast::blast;
use super::{CheckError, Report};
use crate::pump::TcpPump;
use crate::testbed::Testbed;

/// Reno under random loss gets what Mathis and others foresaw (1997): a window of sqrt(3/2p), here
/// without delayed acknowledgements' part, as Linux counts acknowledged segments.
pub(super) fn reno(report: &mut Report<'_>) -> Result<(), CheckError> {
    let testbed = report.testbed("both = { delay = \"5ms\" }\nforward = { loss = \"0.2%\" }")?;
    let window = (1.5_f64 / 0.002).sqrt();
    let expected = window * (1500.0 - HEADERS) * 8.0 / 0.010 / 1e6;
    let goodput = tcp(&testbed, "reno", Duration::from_secs(2), Duration::from_secs(12))
        .map_err(|error| report.system(error))?;
    let what = "Reno at 10 ms, 0.2 % loss";
    report.near(what, "Mb/s", expected, 0.25 * expected, megabits(goodput));
    report.close(testbed)?;
    Ok(())
}

/// CUBIC fills a path without loss whose queue holds a round trip.
pub(super) fn cubic(report: &mut Report<'_>) -> Result<(), CheckError> {
    for mtu in [1500, 9000] {
        let conditions = "both = { delay = \"10ms\", rate = \"1Gbps\" }";
        let testbed = report.testbed(&format!("mtu = {mtu}\n{conditions}"))?;
        let expected = 1_000.0 * (f64::from(mtu) - HEADERS) / f64::from(mtu);
        let goodput = tcp(&testbed, "cubic", Duration::from_secs(2), Duration::from_secs(4))
            .map_err(|error| report.system(error))?;
        let what = format!("CUBIC at 1 Gb/s, 20 ms, MTU {mtu}");
        report.near(&what, "Mb/s", expected, 0.02 * expected, megabits(goodput));
        report.close(testbed)?;
    }
    Ok(())
}

/// One path carries 5 Gb/s of TCP and 8 Gb/s of UDP on two cores, by the median of three runs: three
/// threads want these two, and now and then one of them waits for a second.
pub(super) fn capacity(report: &mut Report<'_>) -> Result<(), CheckError> {
    let length = Duration::from_secs(2);
    let path = "both = { delay = \"1ms\", rate = \"10Gbps\" }";
    let goodput = median(report, path, |testbed| tcp(testbed, "cubic", length / 2, length))?;
    at_least(report, "one CUBIC connection, 2 ms, 10 Gb/s", 5_000.0, goodput);
    let path = "both = { delay = \"1ms\" }";
    let carried = median(report, path, |testbed| blast(testbed, Rate::from_gbps(12), length))?;
    at_least(report, "UDP super-packets, offered 12 Gb/s", 8_000.0, carried);
    Ok(())
}

fn median(
    report: &mut Report<'_>,
    conditions: &str,
    measure: impl Fn(&Testbed) -> io::Result<Rate>,
) -> Result<Rate, CheckError> {
    let mut rates = [Rate::ZERO; 3];
    for rate in &mut rates {
        let testbed = report.testbed(conditions)?;
        *rate = measure(&testbed).map_err(|error| report.system(error))?;
        report.close(testbed)?;
    }
    rates.sort_unstable();
    Ok(rates[1])
}

/// Goodput of one connection from the time `settle` after its start until `length` later.
fn tcp(
    testbed: &Testbed,
    congestion_control: &str,
    settle: Duration,
    length: Duration,
) -> io::Result<Rate> {
    TcpPump::new(congestion_control, 1).goodput(testbed, settle, length)
}

fn at_least(report: &mut Report<'_>, what: &str, least: f64, measured: Rate) {
    let measured = megabits(measured);
    let expected = format!("{least:.0} Mb/s or more");
    report.row(what, expected, format!("{measured:.0} Mb/s"), measured >= least);
}

fn megabits(rate: Rate) -> f64 {
    rate.as_bps() as f64 / 1e6
}

/// Bytes of IPv4 and TCP with time stamps.
const HEADERS: f64 = 52.0;
