//! Delay, jitter, rate, queue, outages.

use std::time::Duration;

use longhaul_pathsim::DropReason;
use longhaul_units::Rate;

use super::flows::{Outcome, Stream, echoes};
use super::{CheckError, Report};
use crate::testbed::{Testbed, TestbedError, TestbedOptions};
use crate::topology::Topology;

/// The round trip is what was asked for, within 0.3 ms or 2 %.
pub(super) fn rtt(report: &mut Report<'_>) -> Result<(), CheckError> {
    for (rtt, ipv6) in [(1, false), (10, false), (100, false), (100, true), (300, false)] {
        let one_way = rtt as f64 / 2.0;
        let testbed = report.testbed(&format!("both = {{ delay = \"{one_way}ms\" }}"))?;
        if ipv6 && testbed.hosts()[0].ipv6().is_none() {
            continue;
        }
        let linger = Duration::from_millis(rtt + 50);
        let interval = Duration::from_millis(10);
        let mut trips =
            echoes(&testbed, ipv6, 100, interval, linger).map_err(|error| report.system(error))?;
        trips.sort_unstable();
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        report.equal(&format!("answers over {rtt} ms, {family}"), 100, trips.len() as u64);
        let median = trips.get(trips.len() / 2).map_or(f64::NAN, |trip| ms(*trip));
        let tolerance = (rtt as f64 * 0.02).max(0.3);
        let what = format!("median round trip, {family}");
        report.near(&what, "ms", rtt as f64, tolerance, median);
        report.close(testbed)?;
    }
    Ok(())
}

/// Delays of links in a row add up, and gateways forward super-packets.
pub(super) fn chain(report: &mut Report<'_>) -> Result<(), CheckError> {
    let topology = Topology::parse(CHAIN).map_err(TestbedError::from)?;
    let testbed = Testbed::new(&topology, &TestbedOptions::default())?;
    let (interval, linger) = (Duration::from_millis(10), Duration::from_millis(150));
    let mut trips =
        echoes(&testbed, false, 100, interval, linger).map_err(|error| report.system(error))?;
    trips.sort_unstable();
    let median = trips.get(trips.len() / 2).map_or(f64::NAN, |trip| ms(*trip));
    report.near("median round trip over three links", "ms", 58.0, 1.16, median);
    let spec = Stream { rate: Rate::from_mbps(500), ..stream_of(40_000, 1500, 40) };
    let before = testbed.stats(2).map_err(|error| report.system(error))?.forward;
    let outcome = report.stream(&testbed, &spec)?;
    report.equal("arrived of 40000", 40_000, outcome.arrivals.len() as u64);
    let after = testbed.stats(2).map_err(|error| report.system(error))?.forward;
    let whole = after.packets_read - before.packets_read;
    // At 1 Gb/s the first link makes five of each: of segments that arrive within 100 us.
    report.equal("super-packets at the last of three links", 5_000, whole);
    report.close(testbed)?;
    Ok(())
}

/// Delay varies between what was asked for and the jitter more.
pub(super) fn jitter(report: &mut Report<'_>) -> Result<(), CheckError> {
    let testbed = report.testbed("both = { delay = \"10ms\", jitter = { max = \"5ms\" } }")?;
    let spec = Stream { rate: Rate::from_mbps(8), ..stream_of(2_000, 500, 1) };
    let outcome = report.stream(&testbed, &spec)?;
    let mut delays: Vec<f64> = outcome.arrivals.iter().map(|arrival| ms(arrival.delay)).collect();
    delays.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| delays.get((delays.len() as f64 * part) as usize).copied();
    report.near("delay of the fastest", "ms", 10.0, 0.5, at(0.0).unwrap_or(f64::NAN));
    report.near("delay of the slowest", "ms", 15.0, 0.5, at(0.98).unwrap_or(f64::NAN));
    report.equal("out of order", 0, out_of_order(&outcome));
    report.close(testbed)?;
    Ok(())
}

/// A path that is offered more carries its rate, within 1 %.
pub(super) fn rate(report: &mut Report<'_>) -> Result<(), CheckError> {
    for (mbps, ipv6) in [(20, false), (100, true), (1_000, false), (2_500, false)] {
        overload(report, EMULATED, mbps, ipv6)?;
    }
    Ok(())
}

/// A line of the kernel's has its rate, changes it, and reports what its queue drops.
pub(super) fn htb(report: &mut Report<'_>) -> Result<(), CheckError> {
    // Each packet passes the sender's kernel by itself: a sender that is to offer much more than the
    // line carries needs a slower line than an emulated one.
    for (mbps, ipv6) in [(100, false), (100, true), (400, false)] {
        match overload(report, HTB, mbps, ipv6) {
            Err(CheckError::Testbed(TestbedError::NoHtb(why))) => {
                report.row("lines by HTB", "-".into(), format!("not run: {why}"), false);
                return Ok(());
            }
            done => done?,
        }
    }
    scheduled(report, HTB)
}

fn overload(report: &mut Report<'_>, line: &str, mbps: u64, ipv6: bool) -> Result<(), CheckError> {
    // 50 ms, in which a sender may be late.
    let queue = mbps * 1_000_000 / 8 / 20;
    let conditions = format!("delay = \"5ms\", rate = \"{mbps}Mbps\", queue = \"{queue}B\"");
    let testbed = report.testbed(&format!("line = \"{line}\"\nboth = {{ {conditions} }}"))?;
    if ipv6 && testbed.hosts()[0].ipv6().is_none() {
        return Ok(());
    }
    let offered = Rate::from_mbps(mbps).scale(13, 10);
    // A second, in trains of about 0.2 ms.
    let count = offered.bytes_in(Duration::from_secs(1)) / 1500;
    let train = (offered.bytes_in(Duration::from_micros(200)) / 1500).clamp(1, 40);
    let spec = stream_of(count as u32, 1500, train as u32);
    let spec = Stream { rate: offered, ipv6, ..spec };
    let outcome = report.stream(&testbed, &spec)?;
    let family = if ipv6 { "IPv6" } else { "IPv4" };
    let what = format!("rate under overload, {family}");
    report.near(&what, "Mb/s", mbps as f64, mbps as f64 / 100.0, arrival_rate(&outcome));
    let dropped = report.close(testbed)?.forward.path.dropped(DropReason::Queue);
    report.equal("dropped by the queue", count - outcome.arrivals.len() as u64, dropped);
    Ok(())
}

/// A circuit's rate follows its schedule.
pub(super) fn schedule(report: &mut Report<'_>) -> Result<(), CheckError> {
    scheduled(report, EMULATED)
}

fn scheduled(report: &mut Report<'_>, line: &str) -> Result<(), CheckError> {
    let changes = "[{ at = \"500ms\", rate = \"20Mbps\" }, { at = \"1s\", rate = \"60Mbps\" }]";
    let testbed = report.testbed(&format!(
        "line = \"{line}\"\nboth = {{ delay = \"5ms\", rate = \"40Mbps\", queue = \"20kB\", \
         rates = {changes} }}"
    ))?;
    let offered = Rate::from_mbps(90);
    let count = offered.bytes_in(Duration::from_millis(1500)) / 1500;
    let spec = Stream { rate: offered, ..stream_of(count as u32, 1500, 1) };
    let outcome = report.stream(&testbed, &spec)?;
    // The testbed began a little before the stream: rates are taken well within each step.
    let begin = outcome.arrivals.first().map(|arrival| arrival.at).unwrap_or_default();
    for (from, to, mbps) in [(100, 400, 40.0), (600, 900, 20.0), (1100, 1400, 60.0)] {
        let within = |at: longhaul_units::Instant| {
            let at = at.since(begin);
            at >= Duration::from_millis(from) && at < Duration::from_millis(to)
        };
        let arrivals = outcome.arrivals.iter().filter(|arrival| within(arrival.at)).copied();
        let step = Outcome { arrivals: arrivals.collect(), ..Outcome::default() };
        let what = format!("rate from {from} to {to} ms");
        report.near(&what, "Mb/s", mbps, mbps / 50.0, arrival_rate(&step));
    }
    report.close(testbed)?;
    Ok(())
}

/// The queue holds what it should, and drops the rest.
pub(super) fn queue(report: &mut Report<'_>) -> Result<(), CheckError> {
    let testbed =
        report.testbed("both = { delay = \"5ms\", rate = \"100Mbps\", queue = \"500kB\" }")?;
    let offered = Rate::from_mbps(150);
    let spec = Stream { rate: offered, ..stream_of(15_000, 1500, 2) };
    let outcome = report.stream(&testbed, &spec)?;
    // The second half found the queue full: 500 kB are 40 ms.
    let half = &outcome.arrivals[outcome.arrivals.len() / 2..];
    let mut delays: Vec<f64> = half.iter().map(|arrival| ms(arrival.delay)).collect();
    delays.sort_unstable_by(f64::total_cmp);
    let median = delays.get(delays.len() / 2).copied().unwrap_or(f64::NAN);
    report.near("delay behind a full queue", "ms", 45.0, 0.9, median);
    let stats = report.close(testbed)?.forward;
    let taken = 500_000.0 + Rate::from_mbps(100).bytes_in(outcome.sending) as f64;
    let dropped = f64::from(spec.count) - taken / 1500.0;
    let measured = stats.path.dropped(DropReason::Queue);
    let tolerance = f64::from(spec.count) / 100.0;
    report.near("dropped at the tail", "packets", dropped, tolerance, measured as f64);
    let lost = u64::from(spec.count) - outcome.arrivals.len() as u64;
    report.equal("of these not received", measured, lost);
    Ok(())
}

/// An outage lasts as long as it should.
pub(super) fn outage(report: &mut Report<'_>) -> Result<(), CheckError> {
    let outage = "outages = [{ at = \"500ms\", length = \"200ms\" }]";
    let testbed = report.testbed(&format!("both = {{ delay = \"10ms\", {outage} }}"))?;
    let spec = Stream { rate: Rate::from_mbps(20), ..stream_of(5_000, 500, 1) };
    let outcome = report.stream(&testbed, &spec)?;
    let gap = outcome.arrivals.windows(2).map(|pair| pair[1].at.since(pair[0].at)).max();
    let gap = gap.map_or(f64::NAN, ms);
    report.near("longest silence", "ms", 200.0, 4.0, gap);
    let dropped = report.close(testbed)?.forward.path.dropped(DropReason::Outage);
    report.equal(
        "lost in the outage",
        u64::from(spec.count) - outcome.arrivals.len() as u64,
        dropped,
    );
    Ok(())
}

/// IPv4, at a rate that is yet to be set, over paths that keep nothing for long.
pub(super) fn stream_of(count: u32, size: u16, train: u32) -> Stream {
    let linger = Duration::from_millis(200);
    Stream { ipv6: false, count, size, train, rate: Rate::MAX, linger }
}

/// Datagrams that came after one with a higher number.
pub(super) fn out_of_order(outcome: &Outcome) -> u64 {
    let mut highest = 0;
    let mut count = 0;
    for arrival in &outcome.arrivals {
        count += u64::from(arrival.number < highest);
        highest = highest.max(arrival.number);
    }
    count
}

/// IP-layer megabits per second of 1500-byte packets, when the queue had time to fill and before it
/// may run empty.
fn arrival_rate(outcome: &Outcome) -> f64 {
    let arrivals = &outcome.arrivals;
    let middle = &arrivals[arrivals.len() / 4..arrivals.len() * 9 / 10];
    let (Some(first), Some(last)) = (middle.first(), middle.last()) else { return f64::NAN };
    // Those that came together with the first had their time before it.
    let together = middle.iter().take_while(|arrival| arrival.at == first.at).count();
    let bits = (middle.len() - together) as f64 * 1500.0 * 8.0;
    bits / last.at.since(first.at).as_secs_f64() / 1e6
}

fn ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

const EMULATED: &str = "emulated";
const HTB: &str = "htb";

/// The shape of the Phoebus paper's testbed, without loss.
const CHAIN: &str = r#"
name = "chain"
node = [{ name = "host" }, { name = "gateway" }, { name = "far-gateway" }, { name = "peer" }]
[[link]]
name = "lan"
between = ["host", "gateway"]
both = { delay = "2ms", rate = "1Gbps", queue = "20MB" }
[[link]]
name = "wan"
between = ["gateway", "far-gateway"]
both = { delay = "25ms", rate = "1Gbps", queue = "20MB" }
[[link]]
name = "far-lan"
between = ["far-gateway", "peer"]
both = { delay = "2ms", rate = "1Gbps", queue = "20MB" }
"#;
