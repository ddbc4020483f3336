//! What the demo shows, in words and as JSON.

use longhaul_pathsim::DropReason;
use longhaul_units::{Bytes, Duration, Rate};
use serde_json::{Value, json};

use super::relay::{DirectionReport, EmulatedPath, RelayReport};
use super::stage::KernelTcp;
use super::tree::Made;
use crate::figures::{milliseconds, percent};

/// Everything that is known at the end. The copy is the same byte for byte.
pub(super) struct Outcome {
    pub path: EmulatedPath,
    pub made: Made,
    /// The JSON of `longhaul cp`.
    pub copied: Value,
    pub emulated: RelayReport,
    /// Kernel TCP over the same path, where there was a testbed.
    pub tcp: Vec<KernelTcp>,
}

impl Outcome {
    /// Rate at which file data can pass at best: what the headers and the losses leave.
    fn allowed(&self) -> Rate {
        let arriving = self.path.loss.complement().as_ppb();
        self.path.rate.scale(DATA, self.path.mtu).scale(arriving, 1_000_000_000)
    }

    /// Time for all data at that rate.
    fn allowed_time(&self) -> Duration {
        self.allowed().time_for(self.made.bytes)
    }

    fn number(&self, field: &str) -> f64 {
        self.copied.get(field).and_then(Value::as_f64).unwrap_or(0.0)
    }

    fn count(&self, field: &str) -> u64 {
        self.copied.get(field).and_then(Value::as_u64).unwrap_or(0)
    }

    fn cpu(&self, side: &str) -> Option<f64> {
        self.copied.get("cpu_seconds")?.get(side)?.as_f64()
    }

    /// For scripts (docs/operating.md).
    pub(super) fn json(&self) -> Value {
        let direction = |report: &DirectionReport| {
            json!({
                "packets": report.path.offered,
                "lost_random": report.path.dropped(DropReason::Random),
                "lost_queue": report.path.dropped(DropReason::Queue),
                "lost_mtu": report.path.dropped(DropReason::Mtu),
                "queue_ms_max": ms(report.queue_delay_max),
                "late_ms": ms(report.lateness_typical),
                "late_ms_max": ms(report.lateness_max),
                "overflows": report.overflows,
                "unsent": report.unsent,
                "cpu_seconds": report.cpu.map(|cpu| cpu.as_secs_f64()),
            })
        };
        json!({
            "path": {
                "rate_bps": self.path.rate.as_bps(),
                "rtt_ms": ms(self.path.rtt),
                "loss": f64::from(self.path.loss.as_ppb()) / 1e9,
                "queue_bytes": self.path.queue.get(),
                "forward": direction(&self.emulated.forward),
                "backward": direction(&self.emulated.backward),
            },
            "allowed_bps": self.allowed().as_bps(),
            "allowed_seconds": self.allowed_time().as_secs_f64(),
            "cp": self.copied,
            "tcp": self.tcp.iter().map(|tcp| json!({
                "congestion_control": "cubic",
                "streams": tcp.streams,
                "seconds": tcp.time.as_secs_f64(),
                "goodput_bps": tcp.goodput.as_bps(),
            })).collect::<Vec<_>>(),
            "files": self.made.files,
            "bytes": self.made.bytes,
            "identical": true,
        })
    }

    /// For a newcomer.
    pub(super) fn text(&self) -> String {
        let part = self.allowed_time().as_secs_f64() * 100.0 / self.seconds().max(1e-9);
        let lines = [
            (
                "path",
                format!(
                    "{}, round trip {}, {} lost at random each way, {} queue",
                    self.path.rate,
                    milliseconds(self.path.rtt),
                    self.path.loss,
                    self.path.queue
                ),
            ),
            (
                "allowed",
                format!(
                    "{} of file data: {DATA} bytes of each {} are data, and what is lost goes twice",
                    self.allowed(),
                    self.path.mtu
                ),
            ),
            (
                "reached",
                format!(
                    "{}, {part:.1} % of that: {} in {:.2} s, start to durable end ({:.2} s of it \
                     set-up)",
                    self.goodput(),
                    Bytes::new(self.made.bytes),
                    self.seconds(),
                    self.number("setup_seconds")
                ),
            ),
            ("losses", self.losses()),
            (
                "queue",
                format!(
                    "at most {} of waiting on the path",
                    milliseconds(self.emulated.forward.queue_delay_max)
                ),
            ),
            ("hosts", self.hosts()),
        ];
        let beside = self.tcp.iter().map(|tcp| ("beside", self.beside(tcp)));
        let last = [
            ("emulator", self.emulator()),
            ("verified", format!("all {} files are the same, byte for byte", self.made.files)),
        ];
        let lines = lines.into_iter().chain(beside).chain(last);
        lines.map(|(name, text)| format!("{name:<9} {text}\n")).collect()
    }

    fn seconds(&self) -> f64 {
        self.number("seconds")
    }

    fn goodput(&self) -> Rate {
        Rate::from_bps(self.count("goodput_bps"))
    }

    fn losses(&self) -> String {
        let path = &self.emulated.forward.path;
        let lost = |reason| path.dropped(reason);
        format!(
            "the path lost {} of the {} packets with data ({}): {} at random, {} in its full \
             queue, {} too large for it; {} packets carried bytes again; what the copy itself \
             says of the causes is its estimate, for it does not see the path",
            path.total_dropped(),
            path.offered,
            percent(path.total_dropped(), path.offered),
            lost(DropReason::Random),
            lost(DropReason::Queue),
            lost(DropReason::Mtu),
            self.count("packets_resent")
        )
    }

    fn hosts(&self) -> String {
        let cores = |cpu: Option<f64>| match cpu {
            Some(cpu) => format!("{cpu:.1} s"),
            None => "unknown".into(),
        };
        format!(
            "CPU time {} at the sender, {} at the receiver; what limited the copy: {}",
            cores(self.cpu("local")),
            cores(self.cpu("remote")),
            self.copied.get("bottleneck").and_then(Value::as_str).unwrap_or("unknown")
        )
    }

    fn beside(&self, tcp: &KernelTcp) -> String {
        let connections = if tcp.streams == 1 { "connection" } else { "connections" };
        let times = self.goodput().as_bps() as f64 / tcp.goodput.as_bps().max(1) as f64;
        format!(
            "kernel TCP (CUBIC), {} {connections} over the same path for {:.0} s: {}; Longhaul \
             was {times:.0} times as fast, and encrypted and verified",
            tcp.streams,
            tcp.time.as_secs_f64(),
            tcp.goodput
        )
    }

    fn emulator(&self) -> String {
        let RelayReport { forward, backward } = &self.emulated;
        let cpu = match (forward.cpu, backward.cpu) {
            (Some(there), Some(back)) => {
                format!(", {:.1} s of CPU time", (there + back).as_secs_f64())
            }
            _ => String::new(),
        };
        format!(
            "late by {}, {} at worst{cpu}{}",
            milliseconds(forward.lateness_typical),
            milliseconds(forward.lateness_max.max(backward.lateness_max)),
            self.trouble()
        )
    }

    /// What this host lost beside the emulated path, if anything.
    fn trouble(&self) -> String {
        let both = [&self.emulated.forward, &self.emulated.backward];
        let overflows: u64 = both.iter().map(|report| report.overflows).sum();
        let unsent: u64 = both.iter().map(|report| report.unsent).sum();
        let mut text = String::new();
        if overflows > 0 {
            text += &format!(
                "; this host dropped {overflows} batches before the path, which adds to the losses \
                 (raise net.core.rmem_max)"
            );
        }
        if unsent > 0 {
            text += &format!("; this host refused {unsent} packets behind the path");
        }
        text
    }
}

fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

/// Data in a full packet of 1500 bytes: less IP and UDP (28), header (32) and tag (16)
/// (docs/protocol.md section 4).
const DATA: u32 = 1_500 - 28 - 32 - 16;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_pathsim::Probability;

    #[test]
    fn what_the_path_allows_is_what_headers_and_losses_leave() {
        let outcome = Outcome {
            path: EmulatedPath {
                rate: Rate::from_gbps(1),
                rtt: Duration::from_millis(100),
                loss: Probability::from_percent(1),
                queue: Bytes::new(12_500_000),
                mtu: 1_500,
                seed: 1,
            },
            made: Made { files: 3, bytes: 939_840_000 },
            copied: json!({
                "seconds": 10.0, "setup_seconds": 0.5, "goodput_bps": 751_872_000,
                "packets_resent": 12, "bottleneck": "network",
                "cpu_seconds": { "local": 1.25, "remote": null },
            }),
            emulated: RelayReport::default(),
            tcp: Vec::new(),
        };
        // 10^9 x 1424 / 1500 x 0.99.
        assert_eq!(outcome.allowed().as_bps(), 939_839_999);
        assert_eq!(outcome.allowed_time().as_millis(), 8_000);
        let text = outcome.text();
        assert!(text.contains("reached   752 Mb/s, 80.0 % of that"), "{text}");
        assert!(text.contains("CPU time 1.2 s at the sender, unknown at the receiver"), "{text}");
        assert!(text.contains("what the copy itself says of the causes is its estimate"), "{text}");
        assert_eq!(outcome.json()["allowed_bps"], 939_839_999);
    }
}
