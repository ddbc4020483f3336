//! Work that keeps a host busy while it sends or receives.
//!
//! RAPID and PAPTC run endless loops and an isosurface extraction beside the receiver; here are
//! both, and what fights for memory and disks. Loads are threads of this process, so that they end
//! with it; each competes like a process of its own.

mod disk;
mod isosurface;
mod memory;

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_sys::{clock, host};
use longhaul_units::{Bytes, Instant, Rate};
use serde::{Deserialize, Serialize};

use crate::topology::parse_time;
use crate::topology::quantity::{optional, optional_time};

/// Some threads that do the same work.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Their work.
    pub work: Work,
    /// Their number; 1 by default.
    #[serde(default = "one")]
    pub count: u16,
    /// Cores to which all of them keep; any by default.
    #[serde(default)]
    pub cores: Vec<usize>,
    /// When they begin, from the start of the load on; at once by default.
    #[serde(default, deserialize_with = "optional_time")]
    pub from: Option<Duration>,
    /// Time for which they work; to the end by default.
    #[serde(default, deserialize_with = "optional_time")]
    pub length: Option<Duration>,
    /// Again and again, from start to start, which is longer than `length`; once by default.
    #[serde(default, deserialize_with = "optional_time")]
    pub every: Option<Duration>,
    /// Their priority.
    #[serde(default)]
    pub priority: Priority,
    /// Bytes of the memory or file worked on by each; 64 MiB by default. The volume of an
    /// isosurface has as many bytes, four a voxel.
    #[serde(default, deserialize_with = "optional")]
    pub size: Option<Bytes>,
    /// Folder for files of `disk` and `isosurface`; that for temporary files by default.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// The most that `disk` writes; as fast as it can by default.
    #[serde(default, deserialize_with = "optional")]
    pub rate: Option<Rate>,
}

/// Work of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Endless loops in registers: RAPID's load, PAPTC's `cpuburn`.
    Loops,
    /// Isosurfaces of a volume by marching cubes, again and again: reads the volume, computes,
    /// writes the triangles.
    Isosurface,
    /// Copies memory too large for caches.
    Memory,
    /// Writes a file, again and again, and has each pass reach the disk.
    Disk,
}

/// Which turn on the processor threads of a load have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// The priority of any process: the scheduler shares the core out.
    #[default]
    Usual,
    /// Before all others, as long as they have work ([`host::run_first`]): what shares the core has
    /// no turn until they pause. Kernels of 2002 kept a process waiting as long, one of today does not.
    First,
}

impl Work {
    /// Every kind of work.
    pub const ALL: [Self; 4] = [Self::Loops, Self::Isosurface, Self::Memory, Self::Disk];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loops => "loops",
            Self::Isosurface => "isosurface",
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// Why a load cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseLoadError(String);

/// A load at work. It ends when this is dropped.
#[derive(Debug)]
pub struct Running {
    began: Instant,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<LoadReport>>>,
}

/// Work that threads of a load got done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadReport {
    /// Loops of a million steps, surfaces, passes over memory or file.
    pub rounds: u64,
    /// CPU time of all of them.
    pub cpu: Duration,
}

impl Load {
    /// A single thread of that work.
    pub fn new(work: Work) -> Self {
        Self {
            work,
            count: one(),
            cores: Vec::new(),
            from: None,
            length: None,
            every: None,
            priority: Priority::Usual,
            size: None,
            folder: None,
            rate: None,
        }
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// Errors of starting threads, and cores that do not exist. Full disks and the like end the
    /// load early; [`Running::stop`] reports it.
    pub fn start(&self) -> io::Result<Running> {
        self.check_every().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.check_cores()?;
        let begin = clock::now();
        let mut running = Running { began: begin, stop: Arc::default(), threads: Vec::new() };
        for _ in 0..self.count {
            let (load, stop) = (self.clone(), running.stop.clone());
            let thread = std::thread::Builder::new().name("load".into());
            running.threads.push(thread.spawn(move || load.run(begin, &stop))?);
        }
        Ok(running)
    }

    /// When it comes and leaves, from its start on, until a time; nothing of one that never leaves.
    pub fn spells(&self, began: Instant, until: Instant) -> Vec<[Instant; 2]> {
        let Some(length) = self.length else { return Vec::new() };
        let first = began + self.from.unwrap_or_default();
        let next = |came: &Instant| Some(*came + self.every?);
        let comes = std::iter::successors(Some(first), next).take_while(|came| *came < until);
        comes.map(|came| [came, came + length]).collect()
    }

    /// Checks that it is over before it comes again.
    fn check_every(&self) -> Result<(), &'static str> {
        match self.every.is_some_and(|every| self.length.is_none_or(|length| length >= every)) {
            true => Err("every: expected a length that is shorter than that"),
            false => Ok(()),
        }
    }

    /// Checks that its threads will find their cores, before anything depends on them.
    fn check_cores(&self) -> io::Result<()> {
        if self.cores.is_empty() {
            return Ok(());
        }
        let pinned = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new();
            Ok::<_, io::Error>(thread.spawn_scoped(scope, || host::pin_thread(&self.cores))?.join())
        })?;
        pinned.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn run(&self, begin: Instant, stop: &AtomicBool) -> io::Result<LoadReport> {
        if !self.cores.is_empty() {
            host::pin_thread(&self.cores)?;
        }
        if self.priority == Priority::First {
            host::run_first()?;
        }
        let from = begin + self.from.unwrap_or_default();
        let until = self.length.map(|length| from + length);
        let (length, every) = (self.length, self.every);
        let mut going = Going { stop, until, length, every };
        going.pause_until(from);
        let rounds = match self.work {
            Work::Loops => loops(&mut going),
            Work::Isosurface => isosurface::run(self, &mut going)?,
            Work::Memory => memory::run(self, &mut going)?,
            Work::Disk => disk::run(self, &mut going)?,
        };
        Ok(LoadReport { rounds, cpu: clock::thread_cpu_time() })
    }

    fn bytes(&self) -> usize {
        usize::try_from(self.size.map_or(SIZE, Bytes::get)).unwrap_or(usize::MAX)
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(std::env::temp_dir)
    }
}

impl Running {
    /// When it was started: `from` counts from then.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Ends the load and returns what it got done.
    ///
    /// # Errors
    /// What ended a thread before its time.
    pub fn stop(mut self) -> io::Result<LoadReport> {
        self.stop.store(true, Ordering::Relaxed);
        let mut report = LoadReport::default();
        for thread in self.threads.drain(..) {
            let done = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            report.rounds += done.rounds;
            report.cpu += done.cpu;
        }
        Ok(report)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A caller that wants the result calls `stop`.
            let _ = thread.join();
        }
    }
}

/// The condition for a thread to go on.
struct Going<'a> {
    stop: &'a AtomicBool,
    until: Option<Instant>,
    length: Option<Duration>,
    every: Option<Duration>,
}

impl Going<'_> {
    /// Between two spells of work it waits here.
    fn on(&mut self) -> bool {
        if let (Some(until), Some(every), Some(length)) = (self.until, self.every, self.length)
            && clock::now() >= until
        {
            self.until = Some(until + every);
            self.pause_until((until + every).before(length));
        }
        !self.stop.load(Ordering::Relaxed) && self.until.is_none_or(|until| clock::now() < until)
    }

    /// Less than until then, where all is to end before.
    fn pause_until(&self, at: Instant) {
        while clock::now() < at && !self.stop.load(Ordering::Relaxed) {
            clock::sleep_until((clock::now() + GLANCE).min(at));
        }
    }
}

fn loops(going: &mut Going<'_>) -> u64 {
    let (mut rounds, mut state) = (0, 1u64);
    while going.on() {
        for _ in 0..STEPS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        state = std::hint::black_box(state);
        rounds += 1;
    }
    rounds
}

impl FromStr for Load {
    type Err = ParseLoadError;

    /// Reads `loops,count=3,cores=0+1,from=2s,length=1s,every=10s`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default();
        let work = Work::ALL.into_iter().find(|work| work.name() == name).ok_or_else(|| {
            let known = Work::ALL.map(Work::name).join(", ");
            ParseLoadError(format!("no load is called {name:?}; known are {known}"))
        })?;
        let mut load = Self::new(work);
        for word in words {
            load.set(word).map_err(|error| ParseLoadError(format!("{word}: {error}")))?;
        }
        load.check_every().map_err(|error| ParseLoadError(error.into()))?;
        Ok(load)
    }
}

impl Load {
    fn set(&mut self, word: &str) -> Result<(), String> {
        let (key, value) = word.split_once('=').ok_or("expected a key and a value")?;
        let number = |value: &str| value.parse().map_err(|_| "expected a number".to_owned());
        match key {
            "count" => self.count = value.parse().map_err(|_| "expected 1 to 65535")?,
            "cores" => self.cores = value.split('+').map(number).collect::<Result<_, _>>()?,
            "from" => self.from = Some(parse_time(value)?),
            "length" => self.length = Some(parse_time(value)?),
            "every" => self.every = Some(parse_time(value)?),
            "priority" => {
                self.priority = match value {
                    "usual" => Priority::Usual,
                    "first" => Priority::First,
                    _ => return Err("expected usual or first".into()),
                }
            }
            "size" => self.size = Some(value.parse().map_err(text)?),
            "folder" => self.folder = Some(value.into()),
            "rate" => self.rate = Some(value.parse().map_err(text)?),
            _ => {
                let known = "count, cores, from, length, every, priority, size, folder, rate";
                return Err(format!("known are {known}"));
            }
        }
        Ok(())
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn one() -> u16 {
    1
}

/// Larger than the caches of one core.
const SIZE: u64 = 64 << 20;
/// About a millisecond.
const STEPS: u32 = 1_000_000;
const GLANCE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
