use std::fs::File;
use std::io;
use std::time::Duration;

use super::{PAGE, read_text};

/// Samples for how long something on this host had to wait for a processor although it was ready, or for memory that
/// was to be freed first ("some" of pressure stall information, Documentation/accounting/psi.rst). It is brought up to
/// date at each look, but does not say who waited: perhaps nobody of ours.
///
/// Not to be looked at more often than every few jiffies (4 ms and more each): the kernel weighs what
/// came since the last look by whole jiffies, so a look a millisecond finds nothing, and what it found
/// is lost to all other readers as well.
#[derive(Debug)]
pub struct PressureSampler {
    file: File,
}

impl PressureSampler {
    /// Of the processors of this host.
    ///
    /// # Errors
    /// Kernels without `CONFIG_PSI`, or with it switched off, and where `/proc` is not to be seen.
    pub fn of_cpu() -> io::Result<Self> {
        let sampler = Self { file: File::open("/proc/pressure/cpu")? };
        sampler.sample().map(|_| sampler)
    }

    /// Of the memory of this process' control group, where that tells (version 2), or of this host.
    ///
    /// # Errors
    /// As [`PressureSampler::of_cpu`].
    pub fn of_memory() -> io::Result<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
        let own = group.map(|path| format!("/sys/fs/cgroup{path}/memory.pressure"));
        let own = own.and_then(|path| File::open(path).ok());
        let file = own.map_or_else(|| File::open("/proc/pressure/memory"), Ok)?;
        let sampler = Self { file };
        sampler.sample().map(|_| sampler)
    }

    /// Time since boot in which somebody waited.
    pub fn sample(&self) -> io::Result<Duration> {
        let mut buffer = [0; PAGE];
        parse(read_text(&self.file, &mut buffer)?).ok_or(io::ErrorKind::InvalidData.into())
    }
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`, in microseconds.
fn parse(text: &str) -> Option<Duration> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total = line.split(' ').find_map(|field| field.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use longhaul_needs::needs;

    use super::*;

    #[test]
    fn the_total_of_some_is_taken() {
        let some = "some avg10=1.53 avg60=0.87 avg300=0.40 total=15238\n";
        let full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
        assert_eq!(parse(&format!("{some}{full}")), Some(Duration::from_micros(15_238)));
        for text in ["", full, "some avg10=1", "some total=x", "some total=-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[needs(pressure)]
    #[test]
    fn pressure_only_grows() {
        for sampler in [PressureSampler::of_cpu(), PressureSampler::of_memory()] {
            let sampler = sampler.unwrap();
            let before = sampler.sample().unwrap();
            assert!(sampler.sample().unwrap() >= before);
        }
    }
}
