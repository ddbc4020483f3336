//! Which processors serve the network.

use std::fs;
use std::io;

/// Counts, for each processor by its number, the packet interrupts of network devices since boot.
/// Those of loopback and tunnels count as well, where they are sent.
///
/// # Errors
/// Where `/proc` is not mounted.
pub fn network_interrupts() -> io::Result<Vec<(usize, u64)>> {
    let text = fs::read_to_string("/proc/softirqs")?;
    parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A heading `CPU0 CPU1 ...`, then lines `NET_RX: 123 45 ...`.
fn parse(text: &str) -> Option<Vec<(usize, u64)>> {
    let mut lines = text.lines();
    let cpus = lines.next()?.split_ascii_whitespace();
    let counts = lines.find_map(|line| line.trim_start().strip_prefix("NET_RX:"))?;
    let cpus = cpus.map(|cpu| cpu.strip_prefix("CPU")?.parse().ok());
    let counts = counts.split_ascii_whitespace().map(|count| count.parse().ok());
    cpus.zip(counts).map(|(cpu, count)| Some((cpu?, count?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_has_its_count() {
        let text =
            "                    CPU0       CPU3\n     NET_TX:   7   8\n     NET_RX:  12  5\n";
        assert_eq!(parse(text), Some(vec![(0, 12), (3, 5)]));
        for text in ["", "CPU0\n", "CPU0\nNET_RX: x\n", "processor\nNET_RX: 1\n"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn this_host_has_processors() {
        assert!(!network_interrupts().unwrap().is_empty());
    }
}
