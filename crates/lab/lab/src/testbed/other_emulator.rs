//! A path that another program emulates, so that figures do not rest on one emulator alone.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use longhaul_pathsim::Probability;
use longhaul_sys::host::run_first;
use longhaul_sys::netns::RouteEntry;
use longhaul_units::{Bytes, Rate};
use rustix::process::{Pid, Signal, kill_process};

use super::{Host, addresses};

/// A path as another program is asked for it.
///
/// The program is started as `PROGRAM A B RTT LOSS RATE QUEUE SEED BURST`: two names that `ip netns`
/// knows, milliseconds, percent lost on the way from A to B, Mb/s of frames with 38 bytes beyond the
/// IP packet, KiB of such frames, a number, and the mean length of a burst of losses. It gives A a device
/// `wan0` with 10.78.0.1 and B one with 10.78.0.2, writes `up` to standard output, carries packets until
/// SIGTERM, and then writes `A>B: packets N lost N queue-dropped N` to standard error, and a line for B>A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OtherPath {
    /// Round trip without queues.
    pub rtt: Duration,
    /// Of IP packets of 1500 bytes, both ways.
    pub rate: Rate,
    /// Bytes of IP packets of 1500 bytes that may wait, either way.
    pub queue: Bytes,
    /// Packets lost at random on the way from the first host to the last.
    pub loss: Probability,
    /// Of everything random.
    pub seed: u64,
}

/// Packets that a program took on the way from the first host to the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherCounts {
    /// All of them.
    pub packets: u64,
    /// Those that it lost by chance.
    pub lost: u64,
    /// Those that its queue had no room for.
    pub queue_dropped: u64,
}

/// A program that carries packets until this is dropped.
#[derive(Debug)]
pub(super) struct OtherEmulator {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl OtherEmulator {
    /// Starts `program` between two hosts of these names, and gives them addresses and routes.
    pub(super) fn start(
        program: &Path,
        path: &OtherPath,
        mark: (&str, String),
        hosts: [&Host; 2],
        names: [String; 2],
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(names).args(path.arguments()).env(mark.0, mark.1);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // As the threads of the lab's own emulator: a network does not wait for hosts' schedulers.
        let started = std::thread::scope(|scope| {
            let starting = scope.spawn(|| run_first().and_then(|()| command.spawn()));
            starting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let mut child = started?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let (output, errors) = output.zip(errors).ok_or(io::ErrorKind::BrokenPipe)?;
        let mut this = Self { child, errors: BufReader::new(errors) };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.trim() != "up" {
            let mut why = String::new();
            this.errors.read_to_string(&mut why)?;
            return Err(io::Error::other(format!("{}: {}", program.display(), why.trim())));
        }
        for (number, host) in hosts.into_iter().enumerate() {
            let own = addresses::node_v4(number);
            host.namespace.add_address("lo", own, addresses::NODE_V4)?;
            let route = RouteEntry {
                to: addresses::node_v4(1 - number),
                prefix: addresses::NODE_V4,
                via: Some(ADDRESSES[1 - number].into()),
                source: Some(own),
                congestion_control: None,
            };
            host.namespace.add_route(DEVICE, &route)?;
        }
        Ok(this)
    }

    /// Ends the program; tells what it counted.
    pub(super) fn stop(&mut self) -> io::Result<OtherCounts> {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            kill_process(pid, Signal::TERM)?;
        }
        let mut text = String::new();
        self.errors.read_to_string(&mut text)?;
        self.child.wait()?;
        OtherCounts::parse(&text).ok_or_else(|| io::Error::other(format!("it counted {text:?}")))
    }
}

impl Drop for OtherEmulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl OtherPath {
    fn arguments(&self) -> [String; 6] {
        let frames = (PACKET + FRAME) / PACKET;
        [
            (self.rtt.as_secs_f64() * 1e3).to_string(),
            (f64::from(self.loss.as_ppb()) / 1e7).to_string(),
            (self.rate.as_bps() as f64 * frames / 1e6).to_string(),
            (self.queue.get() as f64 * frames / 1024.0).to_string(),
            self.seed.to_string(),
            "1".into(),
        ]
    }
}

impl OtherCounts {
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("A>B: "))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1)?.parse().ok()
        };
        Some(Self {
            packets: value("packets")?,
            lost: value("lost")?,
            queue_dropped: value("queue-dropped")?,
        })
    }
}

/// Of such programs: see [`OtherPath`].
const DEVICE: &str = "wan0";
const ADDRESSES: [[u8; 4]; 2] = [[10, 78, 0, 1], [10, 78, 0, 2]];
const PACKET: f64 = 1500.0;
/// Bytes of a frame of Ethernet beside its IP packet: preamble, header, check sum, gap.
const FRAME: f64 = 38.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_asked_for_in_frames() {
        let path = OtherPath {
            rtt: Duration::from_millis(20),
            rate: Rate::from_gbps(1),
            queue: Bytes::new(125_000),
            loss: Probability::from_ppm(10_000),
            seed: 7,
        };
        let [rtt, loss, rate, queue, seed, burst] = path.arguments();
        assert_eq!([&*rtt, &*loss, &*seed, &*burst], ["20", "1", "7", "1"]);
        assert!(rate.starts_with("1025.33") && queue.starts_with("125.16"), "{rate} {queue}");
    }

    #[test]
    fn counts_are_read() {
        let text =
            "B>A: packets 4 lost 0 queue-dropped 0\nA>B: packets 10 lost 2 queue-dropped 3\n";
        let counts = OtherCounts { packets: 10, lost: 2, queue_dropped: 3 };
        assert_eq!(OtherCounts::parse(text), Some(counts));
        assert_eq!(OtherCounts::parse("setns: not found"), None);
    }
}
