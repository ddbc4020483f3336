//! Use of the processors' time.

use std::fs;
use std::io;

/// Ticks of all processors together, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTicks {
    /// All, used or not.
    pub all: u64,
    /// Those in which there was nothing to run.
    pub idle: u64,
    /// Those in which something was to be run here, and the hypervisor ran other guests.
    pub stolen: u64,
}

impl ProcessorTicks {
    /// The figures now; they move some hundred times a second.
    ///
    /// # Errors
    /// Where `/proc` is not mounted.
    pub fn now() -> io::Result<Self> {
        Self::read("cpu ")
    }

    /// Those of one core.
    ///
    /// # Errors
    /// Where `/proc` is not mounted, and for a core that does not exist.
    pub fn of_core(core: usize) -> io::Result<Self> {
        Self::read(&format!("cpu{core} "))
    }

    fn read(line: &str) -> io::Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        parse(&text, line).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Percent of the time since `earlier` in which something ran here, as sar(1) has it.
    #[must_use]
    pub fn busy_percent_since(self, earlier: Self) -> f64 {
        100.0 - part(self.idle, earlier.idle, self, earlier)
    }

    /// Percent of the processors' time since `earlier` that went to other guests.
    #[must_use]
    pub fn stolen_percent_since(self, earlier: Self) -> f64 {
        part(self.stolen, earlier.stolen, self, earlier)
    }
}

/// Percent of all ticks between two times.
fn part(now: u64, then: u64, late: ProcessorTicks, early: ProcessorTicks) -> f64 {
    let grown = |now: u64, then: u64| now.saturating_sub(then) as f64;
    100.0 * grown(now, then) / grown(late.all, early.all).max(1.0)
}

/// The line of proc_stat(5) that begins so: user, nice, system, idle, iowait, irq, softirq, steal; the times of
/// guests behind it are counted in user and nice already.
fn parse(text: &str, line: &str) -> Option<ProcessorTicks> {
    let fields = text.lines().find_map(|found| found.strip_prefix(line))?;
    let fields = fields.split_ascii_whitespace().take(8);
    let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
    let (stolen, idle) = (*ticks.get(7)?, ticks[3] + ticks[4]);
    Some(ProcessorTicks { all: ticks.iter().sum(), idle, stolen })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_ticks_are_counted_apart() {
        let text = "cpu  10 20 30 40 5 1 2 7 3 3\ncpu0 1 2 3\ncpu1 1 2 3 4 5 6 7 8\n";
        let earlier = parse(text, "cpu ").unwrap();
        assert_eq!(earlier, ProcessorTicks { all: 115, idle: 45, stolen: 7 });
        let later = ProcessorTicks { all: 315, idle: 95, stolen: 12 };
        assert_eq!(later.stolen_percent_since(earlier), 2.5);
        assert_eq!(later.stolen_percent_since(later), 0.0);
        assert_eq!(later.busy_percent_since(earlier), 75.0);
        assert_eq!(parse(text, "cpu1 "), Some(ProcessorTicks { all: 36, idle: 9, stolen: 8 }));
        assert_eq!((parse(text, "cpu0 "), parse(text, "cpu2 ")), (None, None));
        assert!(ProcessorTicks::now().unwrap().all > 0);
    }
}
