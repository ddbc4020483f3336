use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_lab::{DirectionStats, Testbed};
use longhaul_sys::clock;
use longhaul_sys::host::ProcessorTicks;
use longhaul_units::Instant;

use super::INTERVAL;
use super::counters::Counters;
use super::cross::Crossing;
use crate::experiment::Setup;
use crate::record::{Record, Series};
use crate::statistics::variation;

/// Looks at the links every 100 ms while a contender runs.
pub(super) struct Sampler<'a> {
    testbed: &'a Testbed,
    /// The observed link.
    link: usize,
    /// Of the receiving node. The emulation counts what will be delivered when it is sent.
    receiver: Counters,
    crossing: Option<&'a Crossing>,
    done: &'a AtomicBool,
    stop: &'a AtomicBool,
}

/// What was seen.
pub(super) struct Sampled {
    series: Series,
    sent: u64,
    link_lost: BTreeMap<String, u64>,
    lost: BTreeMap<String, u64>,
    lost_back: BTreeMap<String, u64>,
    queue_lost_late: u64,
    queue_ms: [Option<f64>; 2],
    changes_late_ms: Option<f64>,
    late_p99_ms: f64,
    stolen_percent: f64,
    arrived: u64,
    /// Bytes of each crossing connection at the end of each interval, and when that was.
    crossed: Vec<(Instant, Vec<u64>)>,
}

impl<'a> Sampler<'a> {
    pub(super) fn new(
        testbed: &'a Testbed,
        setup: &Setup,
        crossing: Option<&'a Crossing>,
        done: &'a AtomicBool,
        stop: &'a AtomicBool,
    ) -> io::Result<Self> {
        let receiver = testbed.host(&setup.to).ok_or(io::ErrorKind::NotFound)?;
        let receiver = Counters::open(receiver, "netstat")?;
        Ok(Self { testbed, link: setup.link, receiver, crossing, done, stop })
    }

    /// Until the contender is done.
    pub(super) fn run(self) -> io::Result<Sampled> {
        let processors = ProcessorTicks::now()?;
        let before = self.all()?;
        let first = self.state()?;
        let mut previous = first.clone();
        let (mut series, mut crossed) = (Series::default(), Vec::new());
        let mut next = clock::now() + INTERVAL;
        while !self.done.load(Ordering::Relaxed) {
            if self.stop.load(Ordering::Relaxed) {
                // The contender notices that its programs have ended, if it has any.
                self.testbed.interrupt();
            }
            clock::sleep_until((clock::now() + TURN).min(next));
            if clock::now() < next {
                continue;
            }
            let state = self.state()?;
            let seconds = (state.at - previous.at).as_secs_f64();
            let mbps = |bytes: u64| round(bytes as f64 * 8.0 / seconds / 1e6);
            let total = |state: &State| state.crossed.iter().sum::<u64>();
            let mut lost = state.lost - previous.lost;
            // A busy machine may be late by more than an interval: those in between are alike.
            while next <= state.at {
                next += INTERVAL;
                series.arrived_mbps.push(mbps(state.arrived - previous.arrived));
                series.queue_kb.push(round(state.queue as f64 / 1e3));
                series.lost.push(std::mem::take(&mut lost));
                if self.crossing.is_some() {
                    series.cross_mbps.push(mbps(total(&state) - total(&previous)));
                    crossed.push((state.at, state.crossed.clone()));
                }
            }
            previous = state;
        }
        let arrived = self.state()?.arrived - first.arrived;
        let after = self.all()?;
        let mut seen = Sampled {
            series,
            sent: 0,
            link_lost: BTreeMap::new(),
            lost: BTreeMap::new(),
            lost_back: BTreeMap::new(),
            queue_lost_late: 0,
            queue_ms: [None; 2],
            changes_late_ms: None,
            late_p99_ms: 0.0,
            stolen_percent: round(ProcessorTicks::now()?.stolen_percent_since(processors)),
            arrived,
            crossed,
        };
        for (link, (before, after)) in before.iter().zip(&after).enumerate() {
            count(&mut seen.lost, &before[0], &after[0]);
            count(&mut seen.lost_back, &before[1], &after[1]);
            if link == self.link {
                let ms = |time: Duration| round(time.as_secs_f64() * 1e3);
                count(&mut seen.link_lost, &before[0], &after[0]);
                seen.sent = after[0].path.offered - before[0].path.offered;
                seen.queue_lost_late = after[0].queue_while_late - before[0].queue_while_late;
                let delays =
                    after[0].queue().map(|queue| [queue.mean_delay, queue.max_delay].map(ms));
                seen.queue_ms = delays.map_or([None; 2], |delays| delays.map(Some));
                seen.changes_late_ms = after[0].changes_late().map(ms);
                seen.late_p99_ms = ms(after[0].lateness.p99);
            }
        }
        Ok(seen)
    }

    fn all(&self) -> io::Result<Vec<[DirectionStats; 2]>> {
        let links = 0..self.testbed.topology().links.len();
        links
            .map(|link| self.testbed.stats(link).map(|stats| [stats.forward, stats.backward]))
            .collect()
    }

    fn state(&self) -> io::Result<State> {
        let observed = self.testbed.stats(self.link)?.forward;
        Ok(State {
            at: clock::now(),
            arrived: self.receiver.read("IpExt", "InOctets")?,
            queue: observed.queue_bytes.get(),
            lost: observed.losses().map(|(_, count)| count).sum(),
            crossed: self.crossing.map_or(Vec::new(), Crossing::received),
        })
    }
}

/// Totals at a time.
#[derive(Clone)]
struct State {
    at: Instant,
    arrived: u64,
    queue: u64,
    lost: u64,
    crossed: Vec<u64>,
}

impl Sampled {
    /// Bytes that reached the receiving node, a super-packet with one header.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    pub(super) fn write(self, record: &mut Record) {
        // Start and end of the transfer fall anywhere within an interval.
        let arrived = &self.series.arrived_mbps;
        let active = |mbps: &f64| *mbps > QUIET_MBPS;
        let first = arrived.iter().position(active).map_or(0, |at| at + 1);
        let last = arrived.iter().rposition(active).unwrap_or(0).max(first);
        let between = arrived.get(first..last).unwrap_or_default();
        record.jitter_percent = variation(between).map(|part| round(100.0 * part));
        if let (Some((from, before)), Some((to, after))) =
            (self.crossed.get(first), self.crossed.get(last))
        {
            let seconds = (*to - *from).max(INTERVAL).as_secs_f64();
            let bytes = before.iter().zip(after).map(|(before, after)| after - before);
            record.cross_bps = bytes.map(|bytes| round(bytes as f64 * 8.0 / seconds)).collect();
        }
        record.path_sent = self.sent;
        record.link_lost = Some(self.link_lost);
        record.path_lost = self.lost;
        record.path_lost_back = self.lost_back;
        record.queue_lost_late = self.queue_lost_late;
        [record.queue_mean_ms, record.queue_max_ms] = self.queue_ms;
        record.changes_late_ms = self.changes_late_ms;
        record.late_p99_ms = self.late_p99_ms;
        record.stolen_percent = self.stolen_percent;
        record.series = self.series;
    }
}

fn count(total: &mut BTreeMap<String, u64>, before: &DirectionStats, after: &DirectionStats) {
    let earlier: BTreeMap<&str, u64> = before.losses().collect();
    for (reason, count) in after.losses() {
        let new = count - earlier.get(reason).copied().unwrap_or(0);
        if new > 0 {
            *total.entry(reason.to_owned()).or_default() += new;
        }
    }
}

/// To three decimals, for files that people read.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Between two looks whether the contender is done.
const TURN: Duration = Duration::from_millis(10);
/// Less than this is no transfer.
const QUIET_MBPS: f64 = 0.1;
