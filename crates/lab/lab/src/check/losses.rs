//! Losses, order, copies, marks, path MTU.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::time::Duration;

use longhaul_pathsim::Direction;
use longhaul_sys::udp::{Route, Wait};
use longhaul_units::Rate;

use super::flows::{Outcome, Stream, sockets};
use super::times::{out_of_order, stream_of};
use super::{CheckError, Report};

/// Random loss lies within the bounds of a binomial distribution, and every loss is in the log.
pub(super) fn random(report: &mut Report<'_>) -> Result<(), CheckError> {
    for (percent, ipv6) in [(0.1, false), (1.0, false), (1.0, true), (10.0, false)] {
        let testbed = report.testbed(&format!("forward = {{ loss = \"{percent}%\" }}"))?;
        if ipv6 && testbed.hosts()[0].ipv6().is_none() {
            continue;
        }
        let spec = Stream { ipv6, ..many() };
        let outcome = report.stream(&testbed, &spec)?;
        let part = percent / 100.0;
        let count = f64::from(spec.count);
        let tolerance = DEVIATIONS * (count * part * (1.0 - part)).sqrt();
        let lost = missing(&outcome, spec.count);
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        let what = format!("lost of {} at {percent} %, {family}", spec.count);
        report.near(&what, "packets", count * part, tolerance, lost.len() as f64);
        let (log, _) = testbed.take_losses(0, Direction::Forward);
        let logged = log.iter().filter(|loss| loss.flow.destination_port == outcome.port).count();
        report.equal("of these in the log", lost.len() as u64, logged as u64);
        report.close(testbed)?;
    }
    Ok(())
}

/// Bursts are as frequent and as long as they should be.
pub(super) fn bursts(report: &mut Report<'_>) -> Result<(), CheckError> {
    let testbed = report.testbed("forward = { burst_loss = { begin = \"0.1%\", mean = 10 } }")?;
    let spec = many();
    let outcome = report.stream(&testbed, &spec)?;
    let lost: Vec<u32> = missing(&outcome, spec.count).into_iter().collect();
    let bursts = lost.chunk_by(|a, b| a + 1 == *b).count() as f64;
    // Each packet of the good state begins one: 200 000 x 1/1.01 x 0.001.
    let expected = f64::from(spec.count) * 0.001 / 1.01;
    report.near("losses in a row", "bursts", expected, DEVIATIONS * expected.sqrt(), bursts);
    let mean = lost.len() as f64 / bursts;
    // Geometric: its deviation is nearly its mean.
    report.near("length of a burst", "packets", 10.0, DEVIATIONS * 10.0 / expected.sqrt(), mean);
    report.close(testbed)?;
    Ok(())
}

/// Order is kept, or disturbed as often as asked.
pub(super) fn order(report: &mut Report<'_>) -> Result<(), CheckError> {
    for percent in [0.0, 1.0] {
        let testbed = report.testbed(&format!(
            "both = {{ delay = \"5ms\", loss = \"0.1%\", rate = \"500Mbps\", \
             reorder = {{ probability = \"{percent}%\", by = \"2ms\" }} }}"
        ))?;
        let spec = many();
        let outcome = report.stream(&testbed, &spec)?;
        let count = f64::from(spec.count) * 0.999;
        let part = percent / 100.0;
        let tolerance = DEVIATIONS * (count * part * (1.0 - part)).sqrt();
        let what = format!("out of order at {percent} %");
        report.near(&what, "packets", count * part, tolerance, out_of_order(&outcome) as f64);
        report.close(testbed)?;
    }
    Ok(())
}

/// Copies come, as many as the path made.
pub(super) fn copies(report: &mut Report<'_>) -> Result<(), CheckError> {
    let testbed =
        report.testbed("forward = { duplicate = { probability = \"1%\", by = \"1ms\" } }")?;
    let spec = many();
    let outcome = report.stream(&testbed, &spec)?;
    let numbers: BTreeSet<u32> = outcome.arrivals.iter().map(|arrival| arrival.number).collect();
    report.equal("different packets", spec.count.into(), numbers.len() as u64);
    let copies = (outcome.arrivals.len() - numbers.len()) as u64;
    let made = report.close(testbed)?.forward.path.duplicated;
    report.equal("copies", made, copies);
    let (count, part) = (f64::from(spec.count), 0.01);
    let tolerance = DEVIATIONS * (count * part * (1.0 - part)).sqrt();
    report.near("copies at 1 %", "packets", count * part, tolerance, copies as f64);
    Ok(())
}

/// Congestion marks arrive, as many as the queue has set.
pub(super) fn marks(report: &mut Report<'_>) -> Result<(), CheckError> {
    let testbed = report
        .testbed("both = { rate = \"100Mbps\", queue = \"10MB\", ecn = { from = \"200kB\" } }")?;
    let spec = Stream { rate: Rate::from_mbps(150), ..stream_of(7_000, 1500, 10) };
    let outcome = report.stream(&testbed, &spec)?;
    let marked = outcome.arrivals.iter().filter(|arrival| arrival.marked).count();
    let set = report.close(testbed)?.forward.path.marked;
    report.equal("packets marked", set, marked as u64);
    // 200 kB gather at 50 Mb/s in 32 ms, in which 400 packets come; the rest find more.
    let expected = f64::from(spec.count) - 400.0;
    report.near("marks above 200 kB", "packets", expected, 50.0, marked as f64);
    Ok(())
}

/// The sender learns a path's MTU.
pub(super) fn path_mtu(report: &mut Report<'_>) -> Result<(), CheckError> {
    let testbed = report.testbed("both = { delay = \"1ms\", path_mtu = 1300 }")?;
    for ipv6 in [false, true] {
        if ipv6 && testbed.hosts()[0].ipv6().is_none() {
            continue;
        }
        let mtu = (|| {
            let (sender, receiver) = sockets(&testbed, ipv6)?;
            sender.connect(receiver.local_addr())?;
            let payload = [0; 1400];
            sender.send(&Route::CONNECTED, &[IoSlice::new(&payload)], None, Wait::UntilReady)?;
            std::thread::sleep(Duration::from_millis(50));
            sender.path_mtu()
        })();
        let mtu = mtu.map_err(|error| report.system(error))?;
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        report.equal(&format!("path MTU learned, {family}"), 1300, mtu.into());
    }
    report.close(testbed)?;
    Ok(())
}

fn missing(outcome: &Outcome, count: u32) -> BTreeSet<u32> {
    let mut missing: BTreeSet<u32> = (0..count).collect();
    for arrival in &outcome.arrivals {
        missing.remove(&arrival.number);
    }
    missing
}

/// Small ones, in long trains, at a pace that no receiver here fails.
fn many() -> Stream {
    Stream { rate: Rate::from_mbps(300), ..stream_of(200_000, 200, 44) }
}

/// Of a normal distribution: one run in a thousand lies outside.
const DEVIATIONS: f64 = 3.29;
