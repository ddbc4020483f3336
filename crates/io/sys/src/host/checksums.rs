use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Samples how many UDP datagrams this host has dropped for a wrong checksum: what the network
/// damaged. A socket's own count of drops (`SO_RXQ_OVFL`) does not tell them from those that found it full.
#[derive(Debug)]
pub struct ChecksumErrorsSampler {
    /// Of IPv4, and of IPv6 where this host has that.
    files: [Option<File>; 2],
}

impl ChecksumErrorsSampler {
    /// Of the network namespace that the calling thread is in; of nothing where `/proc` does not show
    /// it.
    pub fn new() -> Self {
        let open = |name| File::open(format!("/proc/thread-self/net/{name}")).ok();
        Self { files: ["snmp", "snmp6"].map(open) }
    }

    /// Datagrams so far, those to others' sockets included.
    ///
    /// # Errors
    /// Those of reading, and `InvalidData` where the kernel does not count them.
    pub fn sample(&self) -> io::Result<u64> {
        let mut buffer = [0; TEXT_MAX];
        let mut sum = 0;
        for (file, parse) in self.files.iter().zip([parse_snmp, parse_snmp6]) {
            let Some(file) = file else { continue };
            let len = file.read_at(&mut buffer, 0)?;
            sum += parse(&String::from_utf8_lossy(&buffer[..len]))
                .ok_or(io::ErrorKind::InvalidData)?;
        }
        Ok(sum)
    }
}

impl Default for ChecksumErrorsSampler {
    fn default() -> Self {
        Self::new()
    }
}

/// A line of names and one of numbers for each protocol.
fn parse_snmp(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let mut columns = names.split_ascii_whitespace().zip(numbers.split_ascii_whitespace());
    columns.find(|(name, _)| *name == "InCsumErrors")?.1.parse().ok()
}

/// A line of a name and a number for each count.
fn parse_snmp6(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("Udp6InCsumErrors"))?.trim().parse().ok()
}

/// More than either file has.
const TEXT_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_by_their_names() {
        let snmp = "Tcp: InCsumErrors\nTcp: 3\nUdp: InDatagrams InCsumErrors MemErrors\nUdp: 9 7 1\n\
                    UdpLite: InDatagrams InCsumErrors\nUdpLite: 1 2\n";
        assert_eq!(parse_snmp(snmp), Some(7));
        assert_eq!(parse_snmp("Udp: InDatagrams\nUdp: 9\n"), None);
        let snmp6 = "Udp6InErrors                    \t4\nUdp6InCsumErrors                \t5\n";
        assert_eq!(parse_snmp6(snmp6), Some(5));
        assert_eq!(parse_snmp6("UdpLite6InCsumErrors \t5\n"), None);
    }

    #[test]
    fn counts_of_this_host_only_grow() {
        let sampler = ChecksumErrorsSampler::new();
        let first = sampler.sample().unwrap();
        assert!(sampler.sample().unwrap() >= first);
    }
}
