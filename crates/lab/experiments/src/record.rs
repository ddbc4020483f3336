//! Record of a run, as it is kept.

use std::collections::BTreeMap;

use longhaul_lab::signals::Signals;
use longhaul_peers::Booking;
use serde::{Deserialize, Serialize};

use crate::experiment::parameter::Parameter;
use crate::statistics::Lengths;

/// One run of one contender: a line of a results file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The experiment's name.
    pub experiment: String,
    /// Of everything that was asked for: testbed, job, load, contender. Runs with the same one are
    /// repeats of each other.
    pub fingerprint: String,
    /// True if it belongs to the quick part.
    pub quick: bool,
    /// Values of the axes.
    pub cell: BTreeMap<Parameter, String>,
    /// Label of the contender.
    pub contender: String,
    /// From 0.
    pub repeat: u32,
    /// Of everything random.
    pub seed: u64,
    /// When it began, UTC.
    pub started: String,
    /// Machine on which it was made.
    pub machine: String,
    /// One-minute load average just before.
    pub load_average: f64,
    /// Socket buffers that the contender was given, or the machine's limits for programs without
    /// privilege.
    pub buffers: String,
    /// Its end.
    pub verdict: Verdict,
    /// Why it did not take place or succeed.
    pub why: Option<String>,
    /// The contender's version.
    pub version: Option<String>,
    /// Congestion control that was verified, where there is one.
    pub congestion_control: Option<String>,
    /// `udp` or `tcp`, as counted.
    pub transport: Option<String>,
    /// User bytes that were moved.
    pub bytes: Option<u64>,
    /// The transfer was cut at the job's length: bytes, seconds and goodput are those until then.
    pub cut: bool,
    /// Of the whole command; the time limit for a run that it ended.
    pub seconds: Option<f64>,
    /// User bits per second of the whole command.
    pub goodput_bps: Option<f64>,
    /// Bits per second that reached the receiving node's IP layer, for a run that the time limit ended.
    pub arrived_bps: Option<f64>,
    /// CPU-seconds at the sender.
    pub cpu_send: Option<f64>,
    /// CPU-seconds at the receiver.
    pub cpu_receive: Option<f64>,
    /// CPU-seconds at each node between.
    pub cpu_between: BTreeMap<String, f64>,
    /// Milliseconds of single connects, in order, where round trips were measured.
    pub connects_ms: Vec<f64>,
    /// Milliseconds of single connects with a byte there and back, likewise.
    pub answers_ms: Vec<f64>,
    /// Milliseconds of single exchanges of a byte, likewise.
    pub exchanges_ms: Vec<f64>,
    /// The most memory that a program of the sender had, in bytes.
    pub memory_send: Option<u64>,
    /// Likewise of the receiver.
    pub memory_receive: Option<u64>,
    /// Bottleneck that the program names.
    pub bottleneck: Option<String>,
    /// Packets sent again, as the program says.
    pub resent: Option<u64>,
    /// Lost packets by cause, as the program says.
    pub program_lost: BTreeMap<String, u64>,
    /// Packets that crossed the observed link towards the receiver, or were lost there.
    pub path_sent: u64,
    /// Of those, lost there, by reason. Results of earlier versions do not tell.
    pub link_lost: Option<BTreeMap<String, u64>>,
    /// Packets lost on the way to the receiver, by reason, on all links, also such beside each other.
    pub path_lost: BTreeMap<String, u64>,
    /// Of the packets that the observed link's queue lost: those that it may have found full only
    /// because the emulation was late by more than a millisecond, the machine's fault.
    pub queue_lost_late: u64,
    /// Packets lost on the way back, by reason, on all links.
    pub path_lost_back: BTreeMap<String, u64>,
    /// Packets that were lost at the receiver's sockets and queues, as its kernel counts them:
    /// super-packets as one.
    pub host_lost: u64,
    /// Mean time in the observed queue; a line of the kernel's does not tell.
    pub queue_mean_ms: Option<f64>,
    /// Longest time in the observed queue, likewise.
    pub queue_max_ms: Option<f64>,
    /// By how much the latest change of the observed link's rate was late, where the line is the
    /// kernel's: the machine's fault.
    pub changes_late_ms: Option<f64>,
    /// One delivery in a hundred came later than the emulation meant by this: the machine's fault.
    pub late_p99_ms: f64,
    /// Percent of the processors' time that the hypervisor gave to other guests meanwhile.
    pub stolen_percent: f64,
    /// Standard deviation of what arrived in tenths of a second, in percent of the mean.
    pub jitter_percent: Option<f64>,
    /// Jain's index of the transfer and those beside it.
    pub fairness: Option<f64>,
    /// True takers of lost packets beside the causes that the sender reported, where the experiment
    /// asks.
    pub loss_causes: Option<LossCauses>,
    /// Bits per second of the transfer, at the receiver's IP layer, while all went on.
    pub own_bps: Option<f64>,
    /// Bits per second of each crossing connection meanwhile, then of each transfer beside this one.
    pub cross_bps: Vec<f64>,
    /// Results of the transfers beside this one.
    pub beside: Vec<Companion>,
    /// From the first data at the receiver to nine tenths of the observed link's rate, over a round
    /// trip.
    pub start_up_ms: Option<f64>,
    /// Reaction to each change of the observed link, and of a slow disk.
    pub recovery: Vec<Recovery>,
    /// Of what was sent over booked circuits.
    pub bookings: Vec<Booking>,
    /// Samples of each tenth of a second.
    pub series: Series,
    /// Work of the scheduler on the watched core.
    pub scheduling: Option<Scheduling>,
    /// Which signals of the receiving host moved, of a reader that is watched.
    pub signals: Option<Signals>,
    /// Whatever else the contender tells.
    pub details: serde_json::Value,
}

/// Number of packets that each taker took, by the cause that the sender reported. Takers are
/// `congestion` (full queues), `random`, other reasons of the path, `receiver` (its host), and
/// `arrived` for what was not lost at all; what the sender has not reported is `untold`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LossCauses(BTreeMap<String, BTreeMap<String, u64>>);

impl LossCauses {
    /// One more packet.
    pub fn add(&mut self, taker: String, reported: String) {
        *self.0.entry(taker).or_default().entry(reported).or_default() += 1;
    }

    /// Those of another run.
    pub fn extend(&mut self, other: &Self) {
        for (taker, reported) in &other.0 {
            for (cause, count) in reported {
                *self.0.entry(taker.clone()).or_default().entry(cause.clone()).or_default() +=
                    count;
            }
        }
    }

    /// Packets that this taker took and for which the sender reported that cause; for `receiver`
    /// there are two.
    fn right(&self, taker: &str) -> u64 {
        let reported = self.0.get(taker);
        let count =
            |cause: &str| reported.and_then(|causes| causes.get(cause)).copied().unwrap_or(0);
        match taker {
            "receiver" => count("socket") + count("host"),
            taker => count(taker),
        }
    }

    /// Packets that the taker took.
    pub fn taken(&self, taker: &str) -> u64 {
        self.0.get(taker).map_or(0, |reported| reported.values().sum())
    }

    /// Packets for which the sender reported causes of the taker's.
    pub fn reported(&self, taker: &str) -> u64 {
        let of = |cause: &str| match taker {
            "receiver" => cause == "socket" || cause == "host",
            taker => cause == taker,
        };
        let reported = self.0.values().flatten().filter(|(cause, _)| of(cause));
        reported.map(|(_, count)| count).sum()
    }

    /// Of what was reported for the taker, the part that is right; nothing where nothing was
    /// reported.
    pub fn precision(&self, taker: &str) -> Option<f64> {
        let reported = self.reported(taker);
        (reported > 0).then(|| self.right(taker) as f64 / reported as f64)
    }

    /// Of what the taker took, the part that was reported so.
    pub fn recall(&self, taker: &str) -> Option<f64> {
        let taken = self.taken(taker);
        (taken > 0).then(|| self.right(taker) as f64 / taken as f64)
    }

    /// Of all packets that were lost or reported, the part that was reported right.
    pub fn right_part(&self) -> Option<f64> {
        let right: u64 = self.0.keys().map(|taker| self.right(taker)).sum();
        let all: u64 = self.0.keys().map(|taker| self.taken(taker)).sum();
        (all > 0).then(|| right as f64 / all as f64)
    }
}

/// A transfer that went on beside the measured one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Companion {
    /// As the registry of contenders knows it.
    pub contender: String,
    /// When it started, in seconds from the first of them.
    pub after: f64,
    /// Its end.
    pub verdict: Verdict,
    /// Why it did not take place or succeed.
    pub why: Option<String>,
    /// Of the whole command.
    pub seconds: Option<f64>,
    /// User bits per second of the whole command.
    pub goodput_bps: Option<f64>,
    /// Packets sent again, as the program says.
    pub resent: Option<u64>,
}

/// A change of the observed link or of a slow disk, and how it was followed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recovery {
    /// Seconds from the making of the testbed.
    pub at: f64,
    /// Rate of the link, or of the disk, from then on, in Mb/s.
    pub mbps: f64,
    /// Nothing came through before; else the rate changed.
    pub outage: bool,
    /// The disk became slow.
    pub disk: bool,
    /// Until nine tenths of it arrived over a round trip; nothing where that never was. Of a disk until
    /// no more than eleven tenths arrived over half a second.
    pub reached_ms: Option<f64>,
    /// Until the queue was below a tenth of a round trip's worth, likewise.
    pub drained_ms: Option<f64>,
}

/// End of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All bytes arrived.
    Done,
    /// The time limit ended it.
    TimedOut,
    /// The program is not there.
    Absent,
    /// The program cannot do what the cell asks for.
    Unsuitable,
    /// It went wrong.
    #[default]
    Failed,
}

/// States at the ends of intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Length of an interval; results of earlier versions do not tell, and have 100.
    pub interval_ms: Option<u32>,
    /// When the first interval began, in seconds from the making of the testbed.
    pub start: f64,
    /// Megabits per second that reached the receiving node's IP layer, super-packets with one header.
    pub arrived_mbps: Vec<f64>,
    /// Kilobytes in the observed queue.
    pub queue_kb: Vec<f64>,
    /// Packets lost on the observed link.
    pub lost: Vec<u64>,
    /// Megabits per second of all crossing connections, and transfers beside this one, together.
    pub cross_mbps: Vec<f64>,
    /// Packets lost at the receiver's sockets, super-packets as one.
    pub host_lost: Vec<u64>,
    /// Percent of the time in which the watched core was busy, as sar(1) has it.
    pub busy_percent: Vec<f64>,
}

impl Series {
    /// Length of an interval, in seconds.
    pub fn interval(&self) -> f64 {
        f64::from(self.interval_ms.unwrap_or(100)) / 1e3
    }
}

/// From the kernel's record of context switches, and its counters of lost packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scheduling {
    /// Where from, or why there is nothing.
    pub source: String,
    /// Turns of the load.
    pub load: Spans,
    /// Turns of whatever else ran there for the receiver.
    pub receiver: Spans,
    /// Intervals between losses at the receiver.
    pub loss_free: Spans,
}

/// Spans of time of one kind: how long all of them were, and the first of them one by one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spans {
    /// Of all.
    pub lengths: Lengths,
    /// Milliseconds since the start, and how long each was: as many as a figure can show.
    pub first: Vec<(f64, f64)>,
}

impl Spans {
    /// Adds one.
    pub fn add(&mut self, at_ms: f64, length_ms: f64) {
        self.lengths.add(length_ms);
        if self.first.len() < SHOWN {
            self.first.push((at_ms, length_ms));
        }
    }
}

impl Record {
    /// True if it need not be made again: what was absent may have been installed since, and what
    /// failed may succeed.
    pub fn stands(&self) -> bool {
        matches!(self.verdict, Verdict::Done | Verdict::TimedOut | Verdict::Unsuitable)
    }

    /// Bits per second of the transfer: while all went on where others were beside it, else of the whole
    /// command, or until the time limit.
    pub fn own(&self) -> Option<f64> {
        self.own_bps.or(self.goodput_bps).or(self.arrived_bps)
    }

    /// Packets that the receiver's kernel could not keep, super-packets as one, as far as it counts them.
    pub fn lost_at_receiver(&self) -> u64 {
        self.host_lost.max(self.series.host_lost.iter().sum())
    }

    /// Key that distinguishes runs.
    pub fn key(&self) -> (String, u32) {
        (self.fingerprint.clone(), self.repeat)
    }
}

impl Verdict {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::TimedOut => "unfinished at the time limit",
            Self::Absent => "absent",
            Self::Unsuitable => "unsuitable",
            Self::Failed => "failed",
        }
    }
}

/// Some seconds of a scheduler's turns.
const SHOWN: usize = 4000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_and_recall_count_wrong_and_missing_reports() {
        let mut causes = LossCauses::default();
        let mut add = |taker: &str, reported: &str, count: usize| {
            (0..count).for_each(|_| causes.add(taker.into(), reported.into()));
        };
        add("random", "random", 90);
        add("random", "congestion", 5);
        add("random", "untold", 5);
        add("receiver", "socket", 30);
        add("receiver", "host", 10);
        add("receiver", "random", 10);
        assert_eq!((causes.taken("random"), causes.reported("random")), (100, 100));
        assert_eq!((causes.precision("random"), causes.recall("random")), (Some(0.9), Some(0.9)));
        assert_eq!(
            (causes.precision("receiver"), causes.recall("receiver")),
            (Some(1.0), Some(0.8))
        );
        assert_eq!(
            (causes.precision("congestion"), causes.recall("congestion")),
            (Some(0.0), None)
        );
        assert_eq!(causes.right_part(), Some(130.0 / 150.0));
        let mut twice = causes.clone();
        twice.extend(&causes);
        assert_eq!((twice.taken("random"), twice.right_part()), (200, causes.right_part()));
    }
}
