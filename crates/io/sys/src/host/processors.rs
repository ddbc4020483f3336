//! What became of the processors' time.

use std::fs;
use std::io;

/// Ticks of all processors together, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTicks {
    /// All, used or not.
    pub all: u64,
    /// Those in which something was to be run here, and the hypervisor ran other guests.
    pub stolen: u64,
}

impl ProcessorTicks {
    /// The figures now; they move some hundred times a second.
    ///
    /// # Errors
    /// Where `/proc` is not mounted.
    pub fn now() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Percent of the processors' time since `earlier` that went to other guests.
    #[must_use]
    pub fn stolen_percent_since(self, earlier: Self) -> f64 {
        let part = |now: u64, then: u64| now.saturating_sub(then) as f64;
        100.0 * part(self.stolen, earlier.stolen) / part(self.all, earlier.all).max(1.0)
    }
}

/// The first line of proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; the times of
/// guests behind it are counted in user and nice already.
fn parse(text: &str) -> Option<ProcessorTicks> {
    let fields = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().take(8);
    let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(ProcessorTicks { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_ticks_are_told_from_others() {
        let earlier = parse("cpu  10 20 30 40 5 1 2 7 3 3\ncpu0 1 2 3\n").unwrap();
        assert_eq!(earlier, ProcessorTicks { all: 115, stolen: 7 });
        let later = ProcessorTicks { all: 315, stolen: 12 };
        assert_eq!(later.stolen_percent_since(earlier), 2.5);
        assert_eq!(later.stolen_percent_since(later), 0.0);
        assert_eq!(parse("cpu  1 2 3\n"), None);
        assert!(ProcessorTicks::now().unwrap().all > 0);
    }
}
