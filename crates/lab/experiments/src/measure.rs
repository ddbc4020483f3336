//! Measures: what is read from a record, with unit and direction.

use serde::{Deserialize, Serialize};

use crate::record::{Record, Verdict};

/// A number of each run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// User bytes over the time of the whole command.
    #[default]
    Goodput,
    /// The time of the whole command.
    CompletionTime,
    /// Packets sent again, of those that crossed the path to the receiver.
    Resent,
    /// Packets that the observed link lost on the way to the receiver, of those sent there.
    PathLoss,
    /// Datagrams that the receiving host lost, of those sent.
    HostLoss,
    /// The most memory that a program of the receiver had.
    MemoryReceive,
    /// CPU time of the sender for a gigabyte.
    CpuSend,
    /// CPU time of the sender in parts of the time of the whole command.
    CpuLoadSend,
    /// CPU time of the receiver for a gigabyte.
    CpuReceive,
    /// CPU time of all nodes between for a gigabyte.
    CpuBetween,
    /// Time of a connect, half of them take less.
    Connect,
    /// Time of a connect, 99 % take less.
    ConnectP99,
    /// Time of a connect with a byte there and back, half of them take less.
    Answer,
    /// Time of a byte there and back, half of them take less.
    Exchange,
    /// Time of a byte there and back, 99 % take less.
    ExchangeP99,
    /// Jain's index over the transfer and those beside it.
    Fairness,
    /// Rate of the transfer while all went on, in parts of an equal share.
    Share,
    /// Of all packets that were lost, those whose cause the sender reported right.
    CausesRight,
    /// From the first data at the receiver to nine tenths of the observed link's rate.
    StartUp,
    /// Mean time in the observed link's queue.
    QueueDelay,
    /// The longest time in it.
    QueueMost,
    /// Standard deviation of what arrives in tenths of a second, of their mean.
    Jitter,
    /// Bytes sent on circuits, as a part of what their vectors allowed until they were left.
    BookingUsed,
    /// From the planned end of a booking until all is there, of the latest of a run.
    Lateness,
}

/// A value, or a bound of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// In the measure's unit.
    pub value: f64,
    /// The run was ended by its time limit: a time is at least this, a rate is that until then, headers
    /// included.
    pub unfinished: bool,
    /// The transfer was cut at the job's length: a rate is that until then.
    pub cut: bool,
}

impl Measure {
    /// With its unit, as an axis has it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Goodput => "goodput (Mb/s)",
            Self::CompletionTime => "completion time (s)",
            Self::Resent => "packets sent again (%)",
            Self::PathLoss => "lost on the observed link (%)",
            Self::HostLoss => "lost at the receiver (%)",
            Self::MemoryReceive => "memory, receiver (MB)",
            Self::CpuSend => "CPU, sender (s/GB)",
            Self::CpuLoadSend => "CPU, sender (% of a core)",
            Self::CpuReceive => "CPU, receiver (s/GB)",
            Self::CpuBetween => "CPU, between (s/GB)",
            Self::Connect => "connect, median (ms)",
            Self::ConnectP99 => "connect, 99 % (ms)",
            Self::Answer => "connect and a byte there and back, median (ms)",
            Self::Exchange => "a byte there and back, median (ms)",
            Self::ExchangeP99 => "a byte there and back, 99 % (ms)",
            Self::Fairness => "Jain's fairness index",
            Self::Share => "part of an equal share",
            Self::StartUp => "to nine tenths of the rate (ms)",
            Self::CausesRight => "losses reported with their cause (%)",
            Self::QueueDelay => "queue delay (ms)",
            Self::QueueMost => "longest queue delay (ms)",
            Self::Jitter => "delivery jitter (%)",
            Self::BookingUsed => "used of what was booked (%)",
            Self::Lateness => "done after the planned end (ms)",
        }
    }

    /// In sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::CompletionTime => "completion time",
            Self::Resent => "part of packets sent again",
            Self::PathLoss => "loss on the observed link",
            Self::HostLoss => "loss at the receiver",
            Self::MemoryReceive => "memory of the receiver",
            Self::CpuSend => "CPU time of the sender",
            Self::CpuLoadSend => "CPU load of the sender",
            Self::CpuReceive => "CPU time of the receiver",
            Self::CpuBetween => "CPU time between the ends",
            Self::Connect => "median time of a connect",
            Self::ConnectP99 => "time of a connect (99 %)",
            Self::Answer => "median time of a connect with a byte there and back",
            Self::Exchange => "median time of a byte there and back",
            Self::ExchangeP99 => "time of a byte there and back (99 %)",
            Self::Fairness => "fairness",
            Self::Share => "part of an equal share",
            Self::StartUp => "time to nine tenths of the rate",
            Self::CausesRight => "part of losses reported with their cause",
            Self::QueueDelay => "queue delay",
            Self::QueueMost => "longest queue delay",
            Self::Jitter => "delivery jitter",
            Self::BookingUsed => "part used of what was booked",
            Self::Lateness => "lateness",
        }
    }

    /// A value with its unit.
    pub fn say(self, value: f64) -> String {
        let number = longhaul_plot::number(value);
        match self {
            Self::Goodput => format!("{number} Mb/s"),
            Self::CompletionTime => format!("{number} s"),
            Self::MemoryReceive => format!("{number} MB"),
            Self::Resent
            | Self::PathLoss
            | Self::HostLoss
            | Self::Jitter
            | Self::BookingUsed
            | Self::CpuLoadSend
            | Self::CausesRight => format!("{number} %"),
            Self::CpuSend | Self::CpuReceive | Self::CpuBetween => format!("{number} s/GB"),
            Self::Fairness | Self::Share => number,
            Self::QueueDelay
            | Self::QueueMost
            | Self::Lateness
            | Self::StartUp
            | Self::Connect
            | Self::ConnectP99
            | Self::Answer
            | Self::Exchange
            | Self::ExchangeP99 => format!("{number} ms"),
        }
    }

    /// True if more of it is better.
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::Goodput | Self::Fairness | Self::BookingUsed | Self::CausesRight)
    }

    /// Of a run; nothing where the run did not take place or does not tell.
    pub fn of(self, record: &Record) -> Option<Value> {
        let unfinished = match record.verdict {
            Verdict::Done => false,
            Verdict::TimedOut => true,
            _ => return None,
        };
        let value = match self {
            Self::Goodput => match record.goodput_bps {
                Some(goodput) => goodput / 1e6,
                None => record.arrived_bps? / 1e6,
            },
            Self::CompletionTime => record.seconds?,
            Self::Resent => 100.0 * record.resent? as f64 / record.path_sent.max(1) as f64,
            Self::PathLoss => {
                let lost: u64 = record.link_lost.as_ref()?.values().sum();
                100.0 * lost as f64 / record.path_sent.max(1) as f64
            }
            // Its kernel counts a super-packet as one, so that it says only whether any were lost: how many
            // datagrams, who sends them again.
            Self::HostLoss if record.lost_at_receiver() == 0 => 0.0,
            Self::HostLoss if record.program_lost.is_empty() => return None,
            Self::HostLoss => {
                let reported: u64 = record.program_lost.values().sum();
                let link: u64 = record.link_lost.as_ref()?.values().sum();
                let refused = record.program_lost.get("sender").copied().unwrap_or(0);
                let here = reported.saturating_sub(link + refused).max(record.lost_at_receiver());
                100.0 * here as f64 / record.path_sent.max(1) as f64
            }
            Self::MemoryReceive => record.memory_receive? as f64 / 1e6,
            Self::CpuSend => per_gigabyte(record.cpu_send, record)?,
            Self::CpuLoadSend => {
                100.0 * record.cpu_send? / record.seconds.filter(|time| *time > 0.0)?
            }
            Self::CpuReceive => per_gigabyte(record.cpu_receive, record)?,
            Self::CpuBetween if record.cpu_between.is_empty() => return None,
            Self::CpuBetween => per_gigabyte(Some(record.cpu_between.values().sum()), record)?,
            Self::Connect => nearest(&record.connects_ms, 50)?,
            Self::ConnectP99 => nearest(&record.connects_ms, 99)?,
            Self::Answer => nearest(&record.answers_ms, 50)?,
            Self::Exchange => nearest(&record.exchanges_ms, 50)?,
            Self::ExchangeP99 => nearest(&record.exchanges_ms, 99)?,
            Self::Fairness => record.fairness?,
            Self::Share => {
                let (own, others) = (record.own()?, record.cross_bps.iter().sum::<f64>());
                let equal = (own + others) / (record.cross_bps.len() + 1) as f64;
                (!record.cross_bps.is_empty()).then(|| own / equal)?
            }
            Self::StartUp => record.start_up_ms?,
            Self::CausesRight => 100.0 * record.loss_causes.as_ref()?.right_part()?,
            Self::QueueDelay => record.queue_mean_ms?,
            Self::QueueMost => record.queue_max_ms?,
            Self::Jitter => record.jitter_percent?,
            Self::BookingUsed => {
                let (sent, allowed) =
                    record.bookings.iter().fold((0, 0), |(sent, allowed), one| {
                        (sent + one.sent_bytes, allowed + one.allowed_bytes)
                    });
                (allowed > 0).then(|| 100.0 * sent as f64 / allowed as f64)?
            }
            Self::Lateness => {
                let late = record.bookings.iter().map(|one| 1e3 * (one.done - one.planned));
                late.reduce(f64::max)?
            }
        };
        // A transfer that was cut would have taken longer.
        let unfinished = unfinished || (record.cut && self == Self::CompletionTime);
        Some(Value { value, unfinished, cut: record.cut })
    }
}

fn per_gigabyte(seconds: Option<f64>, record: &Record) -> Option<f64> {
    let bytes = record.bytes.filter(|bytes| *bytes > 0)?;
    Some(seconds? / (bytes as f64 / 1e9))
}

/// The least value that so many percent of all do not exceed.
fn nearest(values: &[f64], percent: usize) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!((nearest(&values, 50), nearest(&values, 99)), (Some(50.0), Some(99.0)));
        assert_eq!((nearest(&[7.0], 99), nearest(&[], 50)), (Some(7.0), None));
    }

    #[test]
    fn a_cut_run_has_a_rate_and_no_time() {
        let mut record = Record { verdict: Verdict::Done, cut: true, ..Record::default() };
        (record.goodput_bps, record.seconds) = (Some(8e6), Some(30.0));
        let of = |measure: Measure| measure.of(&record).unwrap();
        assert!(of(Measure::Goodput).cut && !of(Measure::Goodput).unfinished);
        assert!(of(Measure::CompletionTime).unfinished);
        let between = [("a".to_owned(), 0.1), ("b".to_owned(), 0.3)];
        assert_eq!(Measure::CpuBetween.of(&record), None);
        (record.bytes, record.cpu_between) = (Some(2_000_000_000), between.into());
        assert_eq!(Measure::CpuBetween.of(&record).unwrap().value, 0.2);
    }
}
