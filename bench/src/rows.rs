//! Rows: what is measured, and medians of it.

use std::io;

use longhaul_wire::Protect;

use crate::BenchOptions;
use crate::copies::{Files, Mover};
use crate::link::Link;
use crate::{copies, crowd, engine, peers, pump, raw, relay};

/// One transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Payload or file data.
    pub bytes: u64,
    /// Duration.
    pub seconds: f64,
    /// CPU-seconds of the sending end, where known. On one machine the sender's calls also do much
    /// of the network stack's work of the receiving end.
    pub cpu_send: Option<f64>,
    /// CPU-seconds of the receiving end, where known.
    pub cpu_receive: Option<f64>,
    /// CPU-seconds of a program between the ends.
    pub cpu_relay: Option<f64>,
    /// A remark for the reader.
    pub note: Option<String>,
}

impl Sample {
    /// Bits per second.
    pub fn goodput(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8.0 / self.seconds } else { 0.0 }
    }

    fn per_gigabyte(&self, cpu: Option<f64>) -> Option<f64> {
        cpu.filter(|_| self.bytes > 0).map(|cpu| cpu * 1e9 / self.bytes as f64)
    }
}

/// A transfer that is repeated.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Short and stable.
    pub name: &'static str,
    /// The work: what is encrypted, authenticated and hashed.
    pub work: &'static str,
    /// One a run.
    pub samples: Vec<Sample>,
}

impl Row {
    /// Median bits per second.
    pub fn goodput(&self) -> f64 {
        median(self.samples.iter().map(Sample::goodput)).unwrap_or(0.0)
    }

    /// Median seconds.
    pub fn seconds(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.seconds)).unwrap_or(0.0)
    }

    /// Median CPU-seconds of the sending end per 10^9 bytes.
    pub fn cpu_send(&self) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.per_gigabyte(sample.cpu_send)))
    }

    /// Median CPU-seconds of the receiving end per 10^9 bytes.
    pub fn cpu_receive(&self) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.per_gigabyte(sample.cpu_receive)))
    }

    /// Median CPU-seconds of a program between the ends per 10^9 bytes.
    pub fn cpu_relay(&self) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.per_gigabyte(sample.cpu_relay)))
    }
}

/// The speed of one core at one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Name of the row.
    pub name: &'static str,
    /// Per second: bytes, or tags.
    pub unit: &'static str,
    /// One a run.
    pub samples: Vec<f64>,
}

impl Speed {
    /// The median.
    pub fn median(&self) -> f64 {
        median(self.samples.iter().copied()).unwrap_or(0.0)
    }
}

/// A row without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmeasured {
    /// Name of the row.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Method by which a row is measured.
pub(crate) enum Method {
    Blast {
        batched: bool,
    },
    Engine(Protect),
    Copy {
        protect: Protect,
        verify: bool,
    },
    Small(Mover),
    /// Parts in a thousand that are lost.
    LongPath(u8),
    Pump {
        congestion_control: &'static str,
        secure: bool,
    },
    /// A contender by name.
    Peer(&'static str),
    /// A contender by name, through a node between.
    Relay(&'static str),
    /// Many sessions at once through a gateway.
    Crowd,
}

impl Method {
    pub(crate) fn measure(
        &self,
        link: &Link,
        options: &BenchOptions,
        files: &Files,
    ) -> io::Result<Sample> {
        let quick = options.quick;
        match *self {
            Self::Blast { batched } => raw::blast(link, quick, batched),
            Self::Engine(protect) => engine::memory(link, quick, protect),
            Self::Copy { protect, verify } => {
                copies::large(link, &options.program, files, protect, verify)
            }
            Self::Small(mover) => copies::small(link, &options.program, files, mover),
            Self::LongPath(loss) => copies::long_path(&options.program, files, loss),
            Self::Pump { congestion_control, secure } => {
                pump::pump(link, quick, congestion_control, secure)
            }
            Self::Peer(name) => peers::measure(link, quick, name),
            Self::Relay(name) => relay::measure(options.mtu, quick, name),
            Self::Crowd => crowd::measure(&options.program, quick),
        }
    }
}

/// Every transfer, the limit first, and other programs if asked for.
pub(crate) fn transfers(with_peers: bool) -> Vec<(Row, Method)> {
    let row = |name, work| Row { name, work, samples: Vec::new() };
    let mut rows = vec![
        (
            row("raw UDP, GSO/GRO", "nothing; 1 GiB of distinct data"),
            Method::Blast { batched: true },
        ),
        (row("raw UDP, one a call", "nothing"), Method::Blast { batched: false }),
        (
            row("engine clear", "authenticates headers (SipHash-2-4); hashes nothing"),
            Method::Engine(Protect::Clear),
        ),
        (
            row("engine integrity", "authenticates all (AES-128-GMAC); hashes nothing"),
            Method::Engine(Protect::Integrity),
        ),
        (
            row("engine aead", "encrypts and authenticates all (AES-128-GCM); hashes nothing"),
            Method::Engine(Protect::Aead),
        ),
        (
            row("cp aead", "encrypts, authenticates, hashes at both ends (BLAKE3)"),
            Method::Copy { protect: Protect::Aead, verify: true },
        ),
        (
            row("cp clear", "authenticates headers, hashes at both ends (BLAKE3)"),
            Method::Copy { protect: Protect::Clear, verify: true },
        ),
        (
            row("cp aead, not hashed", "encrypts, authenticates; hashes nothing"),
            Method::Copy { protect: Protect::Aead, verify: false },
        ),
        (
            row("cp small files, aead", "encrypts, authenticates, hashes at both ends (BLAKE3)"),
            Method::Small(Mover::Longhaul),
        ),
        (row("tar | TCP cubic | tar", "nothing; the same small files"), Method::Small(Mover::Tar)),
        (row("cp 1 Gb/s, 100 ms", LONG_PATH_WORK), Method::LongPath(0)),
        (row("cp same, 0.1 % lost", LONG_PATH_WORK), Method::LongPath(1)),
        (row("cp same, 1 % lost", LONG_PATH_WORK), Method::LongPath(10)),
        (row("TCP cubic", "nothing"), Method::Pump { congestion_control: "cubic", secure: false }),
        (row("TCP bbr", "nothing"), Method::Pump { congestion_control: "bbr", secure: false }),
        (
            row("TCP cubic, TLS 1.3", "encrypts, authenticates (AES-128-GCM), hashes at both ends"),
            Method::Pump { congestion_control: "cubic", secure: true },
        ),
        (
            row("TCP bbr, TLS 1.3", "encrypts, authenticates (AES-128-GCM), hashes at both ends"),
            Method::Pump { congestion_control: "bbr", secure: true },
        ),
    ];
    if with_peers {
        rows.extend(peers::rows().into_iter().map(|(row, name)| (row, Method::Peer(name))));
        rows.extend(relay::rows().into_iter().map(|(row, name)| (row, Method::Relay(name))));
        rows.push((crowd::row(), Method::Crowd));
    }
    rows
}

const LONG_PATH_WORK: &str = "1 GB over an emulated path, as cp aead";

/// Load average over a minute; zero where the kernel does not tell.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Processor, its number of threads, kernel.
pub(crate) fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let threads = threads();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{model}, {threads} threads, Linux {}", kernel.trim())
}

/// Of the processor that this process may use.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |threads| threads.get())
}

/// Of an even number the mean of the middle two.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([3.0, 1.0, 9.0].into_iter()), Some(3.0));
        assert_eq!(median([4.0, 1.0].into_iter()), Some(2.5));
    }

    #[test]
    fn names_are_distinct_and_the_limit_is_first() {
        let rows = transfers(true);
        assert!(matches!(rows[0].1, Method::Blast { batched: true }));
        for (index, (row, _)) in rows.iter().enumerate() {
            assert!(rows[..index].iter().all(|(other, _)| other.name != row.name));
        }
    }
}
