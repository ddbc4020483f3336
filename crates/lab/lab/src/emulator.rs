//! Links between pairs of devices: a thread moves packets, `longhaul-pathsim` says when and which.
//! Rate and queue may be the kernel's: then another thread changes the rate.

mod arrivals;
mod kernel_line;
mod lateness;
mod line;
mod log;
mod rates;
mod record;
mod stats;
mod store;
mod worker;

use longhaul_sys::sync::lock;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use longhaul_pathsim::DuplexConfig;
use longhaul_sys::clock;
use longhaul_sys::netns::{DeviceCounters, Namespace};
use longhaul_sys::tun::Tun;
use longhaul_units::Instant;

pub(crate) use self::kernel_line::{KernelLine, class};
pub use self::lateness::LatenessSummary;
use self::line::{Line, LineConfig, LineError};
pub use self::log::Loss;
use self::rates::Rates;
pub use self::record::{DirectionRecord, LinkRecord};
pub use self::stats::{DirectionStats, LineStats, LinkStats};
use self::worker::{Stop, Worker};

/// The task of an [`Emulator`] on one link.
#[derive(Debug)]
pub(crate) struct LinkSetup {
    pub(crate) path: DuplexConfig,
    /// True if ICMP answers packets that exceed the path's MTU.
    pub(crate) answers: bool,
    pub(crate) seed: u64,
    /// Bytes that may be under way and in the queue, forward and backward.
    pub(crate) memory: [usize; 2],
    /// The two ends.
    pub(crate) ends: [End; 2],
}

/// One end of a link.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) tun: Tun,
    /// Of the namespace of the device, and the name that it has there.
    pub(crate) counters: DeviceCounters,
    pub(crate) device: String,
    /// The line that packets sent from here have passed; the path of the direction then has no
    /// rate.
    pub(crate) line: Option<KernelLine>,
}

/// Threads that carry the packets of some links until it is dropped.
#[derive(Debug)]
pub(crate) struct Emulator {
    links: Vec<Arc<Link>>,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    began: Instant,
}

/// A link in operation.
#[derive(Debug)]
struct Link {
    ends: [End; 2],
    /// Forward: read from the first end, written to the second. Backward: the reverse.
    lines: [Mutex<Line>; 2],
}

impl Emulator {
    /// Starts the threads. Schedules of all paths begin now.
    pub(crate) fn start(setups: Vec<LinkSetup>, log: usize) -> io::Result<Self> {
        let start = clock::now();
        let link = |setup: LinkSetup| {
            let together = [0, 1].map(|end: usize| setup.ends[end].line.is_some());
            let line = |path, direction: usize| {
                let config = LineConfig {
                    path,
                    seed: setup.seed.wrapping_mul(2).wrapping_add(direction as u64),
                    answers: setup.answers,
                    memory: setup.memory[direction],
                    log,
                    together: together[direction],
                };
                Line::new(&config, start).map(Mutex::new).map_err(|error| match error {
                    LineError::Path(error) => io::Error::new(io::ErrorKind::InvalidInput, error),
                    LineError::Memory(error) => error,
                })
            };
            let lines = [line(setup.path.forward, 0)?, line(setup.path.backward, 1)?];
            Ok::<_, io::Error>(Arc::new(Link { ends: setup.ends, lines }))
        };
        let links = setups.into_iter().map(link).collect::<io::Result<Vec<_>>>()?;
        let stop = Arc::new(Stop::new()?);
        let mut emulator = Self { links, stop, threads: Vec::new(), began: start };
        let (links, stop) = (&emulator.links, &emulator.stop);
        let worker = Worker::new(links.clone(), stop.clone());
        let rates = Rates::new(links.clone(), start, stop.clone());
        let has_lines = links.iter().flat_map(|link| &link.ends).any(|end| end.line.is_some());
        emulator.spawn("path", || worker.run())?;
        if has_lines {
            emulator.spawn("rates", || rates.run())?;
        }
        Ok(emulator)
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }

    /// When the schedules of all paths began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Counters of a link, by the order in which they were given.
    pub(crate) fn stats(&self, link: usize) -> io::Result<LinkStats> {
        let link = &self.links[link];
        let direction = |index: usize| {
            let mut stats = lock(&link.lines[index]).stats(clock::now());
            let sent = &link.ends[index];
            let received = &link.ends[1 - index];
            stats.device_full = sent.count()?.send_dropped;
            stats.refused += received.count()?.receive_dropped;
            if let Some(line) = &received.line {
                stats.refused += line.refused()?;
            }
            if let Some(line) = &sent.line {
                line.complete(&mut stats)?;
            }
            Ok::<_, io::Error>(stats)
        };
        Ok(LinkStats { forward: direction(0)?, backward: direction(1)? })
    }

    /// Losses of a link's direction since the last call, and how many more the log had no room for.
    pub(crate) fn take_log(&self, link: usize, direction: usize) -> (Vec<Loss>, u64) {
        lock(&self.links[link].lines[direction]).take_log()
    }

    /// The names of the directions with lines of the kernel's, and their switches: forward and
    /// backward, by the order in which links were given.
    pub(crate) fn switches(&self) -> impl Iterator<Item = (usize, &'static str, &Namespace)> {
        self.links.iter().enumerate().flat_map(|(number, link)| {
            let ends = link.ends.iter().zip(["forward", "backward"]);
            ends.filter_map(move |(end, direction)| {
                Some((number, direction, &end.line.as_ref()?.switch))
            })
        })
    }

    /// True while packets are carried at the rates they should be; that ends early only when a
    /// device fails.
    pub(crate) fn is_running(&self) -> bool {
        !self.threads.is_empty() && !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops the threads and returns what ended one, if it was not this call.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.stop.request();
        let mut ended = Ok(());
        for thread in self.threads.drain(..) {
            let result = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended = ended.and(result);
        }
        ended
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // A caller that wants the result calls `stop`.
            let _ = self.stop();
        }
    }
}

impl End {
    fn count(&self) -> io::Result<longhaul_sys::netns::DeviceCount> {
        self.counters.of(&self.device)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
