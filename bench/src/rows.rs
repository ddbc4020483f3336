//! Rows: the transfers that are measured.

use std::io;

use longhaul_wire::Protect;

use crate::copies::{Files, Mover};
use crate::link::Link;
use crate::report::BenchOptions;
use crate::samples::{Row, Sample};
use crate::{copies, crowd, engine, peers, pump, raw, relay};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_the_limit_is_first() {
        let rows = transfers(true);
        assert!(matches!(rows[0].1, Method::Blast { batched: true }));
        for (index, (row, _)) in rows.iter().enumerate() {
            assert!(rows[..index].iter().all(|(other, _)| other.name != row.name));
        }
    }
}
