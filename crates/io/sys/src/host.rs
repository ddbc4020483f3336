//! Samplers of this host: how threads are scheduled, where its network stack drops, what it is.
//!
//! Each sampler keeps its files open and reads them again for each sample (some 1 to 3 us).

mod checksums;
mod devices;
mod interrupts;
mod machine;
mod memory;
mod pressure;
mod processors;
mod switches;
mod threads;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

pub use self::checksums::ChecksumErrorsSampler;
pub use self::devices::DeviceDropsSampler;
pub use self::interrupts::network_interrupts;
pub use self::machine::Machine;
pub use self::memory::{memory_limit, share_one_heap, unmapped};
pub use self::pressure::PressureSampler;
pub use self::processors::ProcessorTicks;
pub use self::switches::{Switch, SwitchRecorder};
pub use self::threads::{allowed_cpus, name_thread, pin_thread, run_first, take_short_turns};

/// Times that the scheduler gave a thread so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// Time on a CPU.
    pub run: Duration,
    /// Time ready to run while others did. Moves only when the thread gets a CPU: a stall shows
    /// when it is over.
    pub wait: Duration,
    /// Times it was given a CPU.
    pub turns: u64,
}

impl Scheduling {
    /// Difference from `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            run: self.run.saturating_sub(earlier.run),
            wait: self.wait.saturating_sub(earlier.wait),
            turns: self.turns.saturating_sub(earlier.turns),
        }
    }
}

/// Samples [`Scheduling`] of one thread, from any thread.
#[derive(Debug)]
pub struct SchedulingSampler {
    file: File,
    state: File,
    clock: libc::clockid_t,
}

impl SchedulingSampler {
    /// For the calling thread.
    ///
    /// # Errors
    /// Where `/proc` is not mounted or the kernel keeps no such accounts.
    pub fn of_this_thread() -> io::Result<Self> {
        let open = |name| File::open(format!("/proc/thread-self/{name}"));
        let mut clock = 0;
        // SAFETY: the calling thread exists, and the identifier is written to a place of ours.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        Ok(Self { file: open("schedstat")?, state: open("stat")?, clock })
    }

    /// The figures now; an error once the thread has ended.
    pub fn sample(&self) -> io::Result<Scheduling> {
        let mut buffer = [0; LINE];
        // Reading the clock brings the account of a thread that runs up to date, which is up to a tick (4 ms) old
        // otherwise. Of a thread that has ended there is neither.
        self.run_time()?;
        let text = read_text(&self.file, &mut buffer)?;
        let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
        match (fields.next(), fields.next(), fields.next()) {
            (Some(Ok(run)), Some(Ok(wait)), Some(Ok(turns))) => Ok(Scheduling {
                run: Duration::from_nanos(run),
                wait: Duration::from_nanos(wait),
                turns,
            }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn run_time(&self) -> io::Result<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes the time to a place of ours, and knows clocks of threads that are gone.
        if unsafe { libc::clock_gettime(self.clock, &raw mut time) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    /// True if it has a CPU, or waits for one, now; an error once the thread has ended.
    pub fn is_ready(&self) -> io::Result<bool> {
        let mut buffer = [0; LINE];
        let len = self.state.read_at(&mut buffer, 0)?;
        // proc_pid_stat(5): behind the number and, in parentheses, the name.
        let name_end = buffer[..len].iter().rposition(|byte| *byte == b')');
        let state = name_end.and_then(|at| buffer[..len].get(at + 2));
        state.map(|state| *state == b'R').ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Counts of the queues between network devices and protocols, over all CPUs, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets (super-packets, where devices hand them over so) dropped because a CPU's queue was
    /// full: lost in this host, before any socket.
    pub dropped: u64,
    /// Times that a CPU left off with work remaining.
    pub squeezed: u64,
}

/// Samples [`Backlog`].
#[derive(Debug)]
pub struct BacklogSampler {
    file: File,
}

impl BacklogSampler {
    /// Of this host.
    ///
    /// # Errors
    /// Where `/proc` is not mounted.
    pub fn new() -> io::Result<Self> {
        Ok(Self { file: File::open("/proc/net/softnet_stat")? })
    }

    /// The figures now; one line of text is parsed per CPU.
    pub fn sample(&self) -> io::Result<Backlog> {
        let mut total = Backlog::default();
        let mut offset = 0;
        let mut buffer = [0; PAGE];
        loop {
            let len = self.file.read_at(&mut buffer, offset)?;
            let whole =
                buffer[..len].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            if whole == 0 {
                return Ok(total);
            }
            offset += whole as u64;
            for line in String::from_utf8_lossy(&buffer[..whole]).lines() {
                let cpu = parse_softnet(line).ok_or(io::ErrorKind::InvalidData)?;
                total.dropped += cpu.dropped;
                total.squeezed += cpu.squeezed;
            }
        }
    }
}

/// Delays of this process by a CPU quota (cgroups).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which the quota ran out.
    pub periods: u64,
    /// Time spent waiting for the next period.
    pub time: Duration,
}

/// Samples [`Throttling`] of the control group that this process was in at creation.
#[derive(Debug)]
pub struct ThrottlingSampler {
    file: File,
}

impl ThrottlingSampler {
    /// Nothing where no control group with CPU accounts is to be seen: the top one of a host has
    /// none, since it has no quota.
    pub fn new() -> Option<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let files = groups.lines().filter_map(cpu_stat_path);
        let file = files.filter_map(|path| File::open(path).ok());
        file.map(|file| Self { file }).find(|sampler| sampler.sample().is_ok())
    }

    /// The figures now.
    pub fn sample(&self) -> io::Result<Throttling> {
        let mut buffer = [0; PAGE];
        parse_throttling(read_text(&self.file, &mut buffer)?)
            .ok_or(io::ErrorKind::InvalidData.into())
    }
}

/// Columns of hexadecimal numbers, a line per CPU: processed, dropped, squeezed and more.
fn parse_softnet(line: &str) -> Option<Backlog> {
    let mut columns = line.split_ascii_whitespace().map(|text| u64::from_str_radix(text, 16));
    let (dropped, squeezed) = (columns.nth(1)?.ok()?, columns.next()?.ok()?);
    Some(Backlog { dropped, squeezed })
}

/// The accounts that a line of /proc/self/cgroup, `number:controllers:path`, points to.
fn cpu_stat_path(line: &str) -> Option<String> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?.trim_end_matches('/'));
    match controllers {
        "" => Some(format!("/sys/fs/cgroup{path}/cpu.stat")),
        _ if controllers.split(',').any(|name| name == "cpu") => {
            Some(format!("/sys/fs/cgroup/{controllers}{path}/cpu.stat"))
        }
        _ => None,
    }
}

/// Lines of a name and a number; the time is in microseconds (version 2) or nanoseconds (1).
fn parse_throttling(text: &str) -> Option<Throttling> {
    let value = |wanted: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.find(|(name, _)| *name == wanted).and_then(|(_, value)| value.parse().ok())
    };
    let time = match (value("throttled_usec"), value("throttled_time")) {
        (Some(micros), _) => Duration::from_micros(micros),
        (None, Some(nanos)) => Duration::from_nanos(nanos),
        (None, None) => return None,
    };
    Some(Throttling { periods: value("nr_throttled")?, time })
}

/// The beginning of a file that the kernel makes up, as much as `buffer` holds.
fn read_text<'a>(file: &File, buffer: &'a mut [u8]) -> io::Result<&'a str> {
    let len = file.read_at(buffer, 0)?;
    std::str::from_utf8(&buffer[..len]).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Three numbers of up to 20 digits.
const LINE: usize = 64;
/// Bytes that the kernel gives out at once.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn running_shows() {
        let sampler = SchedulingSampler::of_this_thread().unwrap();
        assert!(sampler.is_ready().unwrap());
        let before = sampler.sample().unwrap();
        let start = clock::thread_cpu_time();
        while clock::thread_cpu_time() < start + Duration::from_millis(10) {}
        // The kernel brings the figure up to date when the thread leaves the CPU.
        std::thread::sleep(Duration::from_millis(1));
        let used = sampler.sample().unwrap().since(before);
        assert!(used.run >= Duration::from_millis(9), "{used:?}");
        assert!(used.turns >= 1);
    }

    #[test]
    fn another_thread_can_be_sampled_until_it_ends() {
        let sampler = std::thread::spawn(SchedulingSampler::of_this_thread).join();
        let sampler = sampler.unwrap().unwrap();
        assert!(sampler.sample().is_err() && sampler.is_ready().is_err());
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (done, wait) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                send.send(SchedulingSampler::of_this_thread().unwrap()).unwrap();
                let _ = wait.recv();
            });
            let sampler = receive.recv().unwrap();
            assert!(sampler.sample().is_ok());
            // It waits for the channel, soon.
            while sampler.is_ready().unwrap() {
                std::thread::yield_now();
            }
            drop(done);
        });
    }

    #[test]
    fn backlog_counts_are_hexadecimal() {
        let line = "0000053a 0000001f 00000002 00000000 00000000 00000001";
        assert_eq!(parse_softnet(line), Some(Backlog { dropped: 31, squeezed: 2 }));
        assert_eq!(parse_softnet("1"), None);
        assert_eq!(parse_softnet("1 x 2"), None);
        let sampler = BacklogSampler::new().unwrap();
        let first = sampler.sample().unwrap();
        assert!(sampler.sample().unwrap().dropped >= first.dropped);
    }

    #[test]
    fn quotas_are_found_in_both_versions() {
        assert_eq!(cpu_stat_path("0::/a/b").unwrap(), "/sys/fs/cgroup/a/b/cpu.stat");
        assert_eq!(cpu_stat_path("0::/").unwrap(), "/sys/fs/cgroup/cpu.stat");
        let path = cpu_stat_path("2:cpu,cpuacct:/x:y").unwrap();
        assert_eq!(path, "/sys/fs/cgroup/cpu,cpuacct/x:y/cpu.stat");
        assert_eq!(cpu_stat_path("9:name=systemd:/"), None);
        assert_eq!(cpu_stat_path("3:cpuset:/"), None);
        let two = "usage_usec 5\nnr_periods 3\nnr_throttled 2\nthrottled_usec 1500\n";
        let one = "nr_periods 3\nnr_throttled 2\nthrottled_time 1500000\n";
        let expected = Throttling { periods: 2, time: Duration::from_micros(1500) };
        assert_eq!(parse_throttling(two), Some(expected));
        assert_eq!(parse_throttling(one), Some(expected));
        assert_eq!(parse_throttling("usage_usec 5\n"), None);
        if let Some(sampler) = ThrottlingSampler::new() {
            sampler.sample().unwrap();
        }
    }
}
