use std::fs::{self, File};

use super::{PAGE, read_text};

/// Samples what this host's network devices dropped because it did not empty them in time.
#[derive(Debug)]
pub struct DeviceDropsSampler {
    files: Vec<File>,
}

impl DeviceDropsSampler {
    /// Of the devices that there are now; of none where `/sys` does not show them.
    pub fn new() -> Self {
        let devices = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        let files = devices.flat_map(|device| {
            let folder = device.path().join("statistics");
            COUNTERS.into_iter().filter_map(move |name| File::open(folder.join(name)).ok())
        });
        Self { files: files.collect() }
    }

    /// Packets so far. Those of a device that is gone are left out.
    pub fn sample(&self) -> u64 {
        let mut buffer = [0; PAGE];
        let counts = self.files.iter().filter_map(|file| {
            let text = read_text(file, &mut buffer).ok()?;
            text.trim().parse::<u64>().ok()
        });
        counts.sum()
    }
}

impl Default for DeviceDropsSampler {
    fn default() -> Self {
        Self::new()
    }
}

/// Packets that found no room in the device's ring (Documentation/networking/statistics.rst). What
/// `rx_dropped` counts is not the host's slowness alone: also protocols that nobody listens for.
const COUNTERS: [&str; 2] = ["rx_missed_errors", "rx_fifo_errors"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_only_grow() {
        let sampler = DeviceDropsSampler::new();
        let first = sampler.sample();
        assert!(sampler.sample() >= first);
        let loopback = std::path::Path::new("/sys/class/net/lo").exists();
        assert!(!loopback || sampler.files.len() >= COUNTERS.len());
    }
}
