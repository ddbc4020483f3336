//! Time in which a transfer takes what the observed link has: at its start, and when that changes.

use longhaul_lab::disk::DiskSpec;

use super::Setup;
use crate::record::{Recovery, Series};

/// The observed link, towards the receiver. Times are seconds, rates Mb/s.
pub(super) struct Observed {
    initial: f64,
    /// From each time on.
    changes: Vec<(f64, f64)>,
    /// Times at which everything was lost: from, until.
    outages: Vec<(f64, f64)>,
    rtt: f64,
}

impl Observed {
    /// Nothing for a link without a rate.
    pub(super) fn of(setup: &Setup) -> Option<Self> {
        let link = &setup.topology.links[setup.link];
        let path = link.paths().ok()?.forward;
        let rate = path.bottleneck?.rate;
        let mbps = |rate: longhaul_units::Rate| rate.as_bps() as f64 / 1e6;
        let changes = rate.changes.iter().map(|(at, rate)| (at.as_secs_f64(), mbps(*rate)));
        let outages = path.outages.windows.iter();
        let outages = outages.map(|window| (window.start.as_secs_f64(), window.end.as_secs_f64()));
        Some(Self {
            initial: mbps(rate.initial),
            changes: changes.collect(),
            outages: outages.collect(),
            rtt: link.rtt().as_secs_f64(),
        })
    }

    /// Its rate at a time.
    fn mbps(&self, at: f64) -> f64 {
        let changed = self.changes.iter().take_while(|(from, _)| *from <= at).last();
        changed.map_or(self.initial, |(_, rate)| *rate)
    }

    /// From the first data to nine tenths of the rate.
    pub(super) fn start_up_ms(&self, series: &Series) -> Option<f64> {
        let began = |mbps: &f64| *mbps > FIRST * self.mbps(series.start);
        let first = series.arrived_mbps.iter().position(began)?;
        let at = series.start + first as f64 * series.interval();
        self.reached_ms(series, at)
    }

    /// Each change of rate, and the end of each outage, in the time of the series.
    pub(super) fn recovery(&self, series: &Series) -> Vec<Recovery> {
        let rates = self.changes.iter().map(|(at, _)| (*at, false));
        let outages = self.outages.iter().map(|(_, end)| (*end, true));
        let mut changes: Vec<(f64, bool)> = rates.chain(outages).collect();
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let end = series.start + series.arrived_mbps.len() as f64 * series.interval();
        changes.retain(|(at, _)| (series.start..end).contains(at));
        // An outage empties the queue, whatever the transfer does.
        let next = |number: usize| {
            let outages = self.outages.iter().map(|(from, _)| *from);
            let outage = outages.filter(|from| *from > changes[number].0).fold(end, f64::min);
            changes.get(number + 1).map_or(end, |change| change.0).min(outage)
        };
        let follow = |(number, &(at, outage)): (usize, &(f64, bool))| {
            let until = next(number);
            let within = |ms: &f64| at + ms / 1e3 <= until;
            Recovery {
                at,
                mbps: self.mbps(at),
                outage,
                disk: false,
                reached_ms: self.reached_ms(series, at).filter(within),
                drained_ms: self.drained_ms(series, at).filter(within),
            }
        };
        changes.iter().enumerate().map(follow).collect()
    }

    /// The first round trip from a time on in which nine tenths of the rate arrive, from that time to
    /// its end: packets arrive in groups, so that single intervals say little.
    fn reached_ms(&self, series: &Series, from: f64) -> Option<f64> {
        let step = series.interval();
        let window = ((self.rtt / step).round() as usize).max(1);
        let first = ((from - series.start) / step).round().max(0.0) as usize;
        let wanted = ENOUGH * self.mbps(from);
        let mut windows = series.arrived_mbps.get(first..)?.windows(window);
        let reached = |window: &[f64]| window.iter().sum::<f64>() / window.len() as f64 >= wanted;
        let place = windows.position(reached)?;
        Some(1e3 * (series.start + (first + place + window) as f64 * step - from))
    }

    /// Until a tenth of what is under way, or less, waits in the queue.
    fn drained_ms(&self, series: &Series, from: f64) -> Option<f64> {
        let step = series.interval();
        let first = ((from - series.start) / step).round().max(0.0) as usize;
        let short = (self.mbps(from) * 1e3 / 8.0 * self.rtt * SHORT).max(LEAST_KB);
        let mut queue = series.queue_kb.get(first..)?.iter();
        let place = queue.position(|kb| *kb <= short)?;
        Some(1e3 * (series.start + (first + place + 1) as f64 * step - from))
    }
}

/// Reaction of arrivals to a disk that becomes slow, and fast again; `from` is when its time began.
pub(super) fn of_disk(series: &Series, from: f64, disk: &DiskSpec, setup: &Setup) -> Vec<Recovery> {
    // One that is slow from the start changes nothing.
    let Some(after) = disk.from else { return Vec::new() };
    let (at, step) = (from + after.as_secs_f64(), series.interval());
    let end = series.start + series.arrived_mbps.len() as f64 * step;
    let until = disk.length.map_or(end, |length| (at + length.as_secs_f64()).min(end));
    let mbps = disk.rate.as_bps() as f64 / 1e6;
    let place = |time: f64| ((time - series.start) / step).round().max(0.0) as usize;
    let slow = series.arrived_mbps.get(place(at)..place(until)).unwrap_or_default();
    let window = ((HALF_SECOND / step).round() as usize).max(1);
    let is_slow =
        |window: &[f64]| window.iter().sum::<f64>() / window.len() as f64 <= FEW_MORE * mbps;
    let reached = slow.windows(window).position(is_slow);
    let reached_ms = reached.map(|place| 1e3 * place as f64 * step);
    let slow = Recovery { at, mbps, disk: true, reached_ms, ..Recovery::default() };
    let fast = Observed::of(setup).filter(|_| disk.length.is_some() && until < end);
    let fast = fast.map(|observed| Recovery {
        at: until,
        mbps: observed.mbps(until),
        reached_ms: observed.reached_ms(series, until),
        drained_ms: observed.drained_ms(series, until),
        ..Recovery::default()
    });
    [slow].into_iter().filter(|_| at < end).chain(fast).collect()
}

/// Part of the rate above which data arrive. Set-up sends less, a first train of 64 KiB is more: 5
/// % of 1 Gb/s in 10 ms.
const FIRST: f64 = 0.02;
/// Of the rate: what issue and papers call reached.
const ENOUGH: f64 = 0.9;
/// Of a round trip's worth.
const SHORT: f64 = 0.1;
/// Of what a disk takes: headers, and repairs.
const FEW_MORE: f64 = 1.1;
/// Data arrives in groups.
const HALF_SECOND: f64 = 0.5;
/// Some packets are always there.
const LEAST_KB: f64 = 15.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    const CHANGING: &str = r#"
name = "changing"
title = "T"
question = "Q?"
source = "S"
repeats = 1
contenders = [{ name = "a" }]
[testbed]
name = "t"
[[testbed.node]]
name = "host"
[[testbed.node]]
name = "peer"
[[testbed.link]]
name = "path"
between = ["host", "peer"]
[testbed.link.both]
delay = "10ms"
rate = "100Mbps"
rates = [{ at = "1s", rate = "50Mbps" }]
outages = [{ at = "2s", length = "500ms" }]
[job]
bytes = "1MB"
patience = "5s"
series = "10ms"
"#;

    fn observed() -> Observed {
        let experiment = Experiment::parse(CHANGING, &|_| true).unwrap();
        Observed::of(&Setup::new(&experiment, false)).unwrap()
    }

    #[test]
    fn start_up_lasts_until_nine_tenths_arrive_over_a_round_trip() {
        let mut series = Series { interval_ms: Some(10), start: 0.5, ..Series::default() };
        series.arrived_mbps = vec![0.0, 0.5, 10.0, 100.0, 50.0, 95.0, 95.0, 95.0];
        // Two intervals are a round trip: the first that has enough ends behind the seventh.
        assert_eq!(observed().start_up_ms(&series).map(f64::round), Some(50.0));
        series.arrived_mbps.truncate(6);
        assert_eq!(observed().start_up_ms(&series), None);
    }

    #[test]
    fn each_change_is_followed_until_the_next() {
        let mut series = Series { interval_ms: Some(10), start: 0.0, ..Series::default() };
        series.arrived_mbps = vec![95.0; 103];
        series.arrived_mbps.extend(vec![48.0; 160]);
        series.queue_kb = vec![0.0; 100];
        series.queue_kb.extend([200.0, 100.0, 13.0]);
        series.queue_kb.extend(vec![0.0; 160]);
        let seen = observed().recovery(&series);
        assert_eq!(seen.len(), 2);
        assert_eq!((seen[0].at, seen[0].mbps, seen[0].outage), (1.0, 50.0, false));
        assert_eq!(seen[0].drained_ms.map(f64::round), Some(30.0));
        assert_eq!((seen[1].at, seen[1].mbps, seen[1].outage), (2.5, 50.0, true));
        assert_eq!(seen[1].reached_ms.map(f64::round), Some(20.0));
        // What was left of the old rate does not count as reached before there is a round trip of it.
        assert_eq!(seen[0].reached_ms.map(f64::round), Some(20.0));
    }

    #[test]
    fn a_disk_is_followed_when_no_more_arrives_than_it_takes_and_the_link_again_behind_it() {
        let experiment = Experiment::parse(CHANGING, &|_| true).unwrap();
        let setup = Setup::new(&experiment, false);
        let mut series = Series { start: 1.0, ..Series::default() };
        series.arrived_mbps = vec![50.0; 10];
        series.arrived_mbps.extend(vec![50.0; 3]);
        series.arrived_mbps.extend(vec![10.5; 17]);
        series.arrived_mbps.extend(vec![10.0; 2]);
        series.arrived_mbps.extend(vec![49.0; 8]);
        series.queue_kb = vec![0.0; 40];
        let disk = |text: &str| DiskSpec::parse(text, Default::default()).unwrap();
        // Slow from 2 s to 4 s of the testbed's time.
        let seen = of_disk(&series, 1.5, &disk("rate=10Mbps,from=500ms,length=2s"), &setup);
        assert_eq!(seen.len(), 2);
        assert_eq!((seen[0].at, seen[0].mbps, seen[0].disk), (2.0, 10.0, true));
        assert_eq!(seen[0].reached_ms.map(f64::round), Some(300.0));
        assert_eq!((seen[1].at, seen[1].mbps, seen[1].disk), (4.0, 50.0, false));
        assert_eq!(seen[1].reached_ms.map(f64::round), Some(300.0));
        assert_eq!(of_disk(&series, 1.5, &disk("rate=10Mbps"), &setup), []);
        let never = of_disk(&series, 1.5, &disk("rate=1Mbps,from=500ms"), &setup);
        assert_eq!((never.len(), never[0].reached_ms), (1, None));
    }
}
