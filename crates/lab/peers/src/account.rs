//! Resources that a run has used, and its course from tenth to tenth of a second.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_sys::clock;

use crate::contender::{Job, Outcome, Presence, Sample, Transport};
use crate::counters::{Count, Counters};

/// Resources that a run has used, apart from what its contender knows.
pub(crate) struct Account {
    pub(crate) seconds: f64,
    /// Of both nodes.
    pub(crate) counts: [Count; 2],
    pub(crate) series: Vec<Sample>,
    /// Of both ends.
    pub(crate) cpu: [Duration; 2],
    /// Of each node between.
    pub(crate) cpu_between: Vec<Duration>,
    /// The most of a process of each end.
    pub(crate) memory: [u64; 2],
}

impl Account {
    /// The part that all outcomes have in common. Segments count as resent when TCP carried the
    /// data.
    pub(crate) fn outcome(self, presence: Presence, job: &Job) -> Outcome {
        let [sent, received] = self.counts;
        let transport = transport(sent, job.bytes);
        let resent = match transport {
            Transport::Tcp => Some(sent.segments_resent),
            Transport::Udp => None,
        };
        Outcome {
            version: presence.version,
            congestion_control: None,
            transport,
            bytes: job.bytes,
            cut: false,
            seconds: self.seconds,
            cpu_send: self.cpu[0].as_secs_f64(),
            cpu_receive: self.cpu[1].as_secs_f64(),
            cpu_between: self.cpu_between.iter().map(Duration::as_secs_f64).collect(),
            round_trips: None,
            memory: self.memory,
            bottleneck: None,
            resent,
            lost: None,
            reported_losses: Vec::new(),
            series: self.series,
            bookings: Vec::new(),
            signals: None,
            details: serde_json::json!({ "counted": {
                "datagrams_sent": [sent.datagrams_sent, received.datagrams_sent],
                "segments_sent": [sent.segments_sent, received.segments_sent],
            }}),
        }
    }
}

impl Outcome {
    /// Adds the program's own report.
    pub(crate) fn detailed(mut self, what: &str, value: serde_json::Value) -> Self {
        self.details[what] = value;
        self
    }
}

/// The protocol that carried that much data: UDP with datagrams of less than 64 KiB, or trains of
/// them; TCP with nothing like as many.
fn transport(sent: Count, bytes: u64) -> Transport {
    if sent.datagrams_sent > bytes / (2 * u64::from(u16::MAX)) {
        Transport::Udp
    } else {
        Transport::Tcp
    }
}

/// A thread that samples what has reached the receiving node.
pub(crate) struct Series {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Series {
    pub(crate) fn start(counters: Counters, before: u64, distance: Duration) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let start = clock::now();
        let thread = std::thread::Builder::new().name("series".into()).spawn(move || {
            let mut samples = Vec::new();
            let mut next = start + distance;
            while samples.len() < SAMPLES_MAX
                && stopped.recv_timeout(next.since(clock::now())) == Err(RecvTimeoutError::Timeout)
            {
                if let Ok(count) = counters.read() {
                    let seconds = clock::now().since(start).as_secs_f64();
                    let bytes = count.bytes_received.saturating_sub(before);
                    samples.push(Sample { seconds, bytes });
                }
                next += distance;
            }
            samples
        })?;
        Ok(Self { stop, thread })
    }

    pub(crate) fn stop(self) -> Vec<Sample> {
        drop(self.stop);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// More than an hour of tenths of a second.
const SAMPLES_MAX: usize = 40_000;
