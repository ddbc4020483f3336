use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_lab::{DirectionStats, Testbed};
use longhaul_sys::clock;
use longhaul_sys::host::ProcessorTicks;
use longhaul_units::Instant;

use super::counters::Counters;
use super::cross::Crossing;
use super::following::Observed;
use crate::experiment::{Setup, Watch};
use crate::record::{Record, Series};
use crate::statistics::variation;

/// Looks at the links from time to time while a contender runs.
pub(super) struct Sampler<'a> {
    testbed: &'a Testbed,
    setup: &'a Setup,
    /// Of the receiving node. The emulation counts what will be delivered when it is sent.
    receiver: Counters,
    /// Losses of its sockets.
    sockets: Counters,
    crossing: Option<&'a Crossing>,
    /// Of the receiving nodes of the transfers beside this one.
    beside: Vec<Counters>,
    /// The core on which the receiver works.
    core: Option<usize>,
    done: &'a AtomicBool,
    stop: &'a AtomicBool,
}

/// The samples.
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
    /// Bytes of the transfer and of each one beside it at the end of each interval.
    totals: Vec<Totals>,
    /// Number of those beside it that are whole transfers, the last ones.
    transfers: usize,
    arrived: u64,
}

/// Bytes that have arrived by a time.
struct Totals {
    at: Instant,
    own: u64,
    others: Vec<u64>,
}

impl<'a> Sampler<'a> {
    pub(super) fn new(
        testbed: &'a Testbed,
        setup: &'a Setup,
        crossing: Option<&'a Crossing>,
        watch: Option<Watch>,
        (done, stop): (&'a AtomicBool, &'a AtomicBool),
    ) -> io::Result<Self> {
        let counters = |node: &str, file: &str| {
            Counters::open(testbed.host(node).ok_or(io::ErrorKind::NotFound)?, file)
        };
        let (receiver, sockets) = (counters(&setup.to, "netstat")?, counters(&setup.to, "snmp")?);
        let beside = setup.beside.iter().map(|one| counters(&one.to, "netstat"));
        let beside = beside.collect::<io::Result<_>>()?;
        let core = watch.map(|watch| watch.core);
        Ok(Self { testbed, setup, receiver, sockets, crossing, beside, core, done, stop })
    }

    /// Until the contender is done.
    pub(super) fn run(self) -> io::Result<Sampled> {
        let processors = ProcessorTicks::now()?;
        let before = self.all()?;
        let first = self.state()?;
        let mut previous = first.clone();
        let distance = self.setup.series;
        let mut series = Series {
            interval_ms: u32::try_from(distance.as_millis()).ok(),
            start: first.at.since(self.testbed.began()).as_secs_f64(),
            ..Series::default()
        };
        let (mut totals, others) = (Vec::new(), self.crossing.is_some() || !self.beside.is_empty());
        let mut next = first.at + distance;
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
            // A busy machine may be late by more than an interval: those in between are alike, and
            // all that was lost is the first one's.
            while next <= state.at {
                next += distance;
                state.write(&previous, seconds, others, &mut series);
                (previous.lost, previous.host_lost) = (state.lost, state.host_lost);
                let (at, own, others) = (state.at, state.arrived, state.others.clone());
                totals.push(Totals { at, own, others });
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
            totals,
            transfers: self.beside.len(),
            arrived,
        };
        for (link, (before, after)) in before.iter().zip(&after).enumerate() {
            count(&mut seen.lost, &before[0], &after[0]);
            count(&mut seen.lost_back, &before[1], &after[1]);
            if link == self.setup.link {
                seen.observe(&before[0], &after[0]);
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
        let observed = self.testbed.stats(self.setup.link)?.forward;
        let mut others = self.crossing.map_or(Vec::new(), Crossing::received);
        for transfer in &self.beside {
            others.push(transfer.read("IpExt", "InOctets")?);
        }
        Ok(State {
            at: clock::now(),
            arrived: self.receiver.read("IpExt", "InOctets")?,
            queue: observed.queue_bytes.get(),
            lost: observed.losses().map(|(_, count)| count).sum(),
            host_lost: self.sockets.read("Udp", "RcvbufErrors")?,
            core: self.core.map(ProcessorTicks::of_core).transpose()?,
            others,
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
    host_lost: u64,
    core: Option<ProcessorTicks>,
    others: Vec<u64>,
}

impl State {
    /// Adds an interval, of which `previous` is the beginning.
    fn write(&self, previous: &Self, seconds: f64, others: bool, series: &mut Series) {
        let mbps = |bytes: u64| round(bytes as f64 * 8.0 / seconds / 1e6);
        let total = |state: &Self| state.others.iter().sum::<u64>();
        series.arrived_mbps.push(mbps(self.arrived - previous.arrived));
        series.queue_kb.push(round(self.queue as f64 / 1e3));
        series.lost.push(self.lost - previous.lost);
        series.host_lost.push(self.host_lost - previous.host_lost);
        if let Some((now, before)) = self.core.zip(previous.core) {
            series.busy_percent.push(round(now.busy_percent_since(before)));
        }
        if others {
            series.cross_mbps.push(mbps(total(self) - total(previous)));
        }
    }
}

impl Sampled {
    /// Notes what the observed link did between two states of its counters.
    fn observe(&mut self, before: &DirectionStats, after: &DirectionStats) {
        let ms = |time: Duration| round(time.as_secs_f64() * 1e3);
        count(&mut self.link_lost, before, after);
        self.sent = after.path.offered - before.path.offered;
        self.queue_lost_late = after.queue_while_late - before.queue_while_late;
        let delays = after.queue().map(|queue| [queue.mean_delay, queue.max_delay].map(ms));
        self.queue_ms = delays.map_or([None; 2], |delays| delays.map(Some));
        self.changes_late_ms = after.changes_late().map(ms);
        self.late_p99_ms = ms(after.lateness.p99);
    }

    /// Bytes that reached the receiving node, a super-packet with one header.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Packets lost at the receiver's sockets, super-packets as one.
    pub(super) fn host_lost(&self) -> u64 {
        self.series.host_lost.iter().sum()
    }

    pub(super) fn write(self, record: &mut Record, setup: &Setup) {
        let (first, last) = self.active();
        if let (Some(from), Some(to)) = (self.totals.get(first), self.totals.get(last)) {
            let seconds = (to.at - from.at).max(setup.series).as_secs_f64();
            let rate = |bytes: u64| round(bytes as f64 * 8.0 / seconds);
            let others = from.others.iter().zip(&to.others);
            record.cross_bps = others.map(|(before, after)| rate(after - before)).collect();
            record.own_bps = (to.own > from.own).then(|| rate(to.own - from.own));
        }
        record.jitter_percent = self.jitter().map(|part| round(100.0 * part));
        if let Some(observed) = Observed::of(setup) {
            record.start_up_ms = observed.start_up_ms(&self.series).map(round);
            record.recovery = observed.recovery(&self.series);
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

impl Sampled {
    /// The first interval at whose end all transfers go on, and the last one: start and end of a
    /// transfer fall anywhere within an interval.
    fn active(&self) -> (usize, usize) {
        let grows = |of: &dyn Fn(&Totals) -> u64| -> (usize, usize) {
            let bits = |pair: &[Totals]| (of(&pair[1]) - of(&pair[0])) as f64 * 8.0;
            let mbps = |pair: &[Totals]| bits(pair) / self.series.interval() / 1e6;
            let grew = |pair: &[Totals]| mbps(pair) > QUIET_MBPS;
            let mut pairs = self.totals.windows(2);
            let first = pairs.position(grew).map_or(0, |at| at + 1);
            (first, self.totals.windows(2).rposition(grew).unwrap_or(0).max(first))
        };
        let (mut first, mut last) = grows(&|totals| totals.own);
        let count = self.totals.first().map_or(0, |totals| totals.others.len());
        for transfer in count - self.transfers.min(count)..count {
            let its = grows(&|totals| totals.others[transfer]);
            (first, last) = (first.max(its.0), last.min(its.1));
        }
        (first, last.max(first))
    }

    /// Of what arrived from tenth to tenth of a second, from the first to the last in which anything
    /// did.
    fn jitter(&self) -> Option<f64> {
        let together = (0.1 / self.series.interval()).round().max(1.0) as usize;
        let groups = self.series.arrived_mbps.chunks_exact(together);
        let arrived: Vec<f64> =
            groups.map(|group| group.iter().sum::<f64>() / together as f64).collect();
        let active = |mbps: &f64| *mbps > QUIET_MBPS;
        let first = arrived.iter().position(active).map_or(0, |at| at + 1);
        let last = arrived.iter().rposition(active).unwrap_or(0).max(first);
        variation(arrived.get(first..last).unwrap_or_default())
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
