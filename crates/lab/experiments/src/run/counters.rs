use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use longhaul_lab::Host;

/// Counters of a host's kernel, read from any thread: `snmp` or `netstat` of proc(5).
pub(super) struct Counters(File);

impl Counters {
    pub(super) fn open(host: &Host, file: &str) -> io::Result<Self> {
        host.run(|| File::open(format!("/proc/thread-self/net/{file}")))?.map(Self)
    }

    pub(super) fn read(&self, table: &str, column: &str) -> io::Result<u64> {
        let mut text = [0; SIZE];
        let length = self.0.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        value(&text, table, column).ok_or_else(|| {
            let why = format!("no {column} among the kernel's counters of {table}");
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }
}

/// Each table has a line of names and a line of values.
fn value(text: &str, table: &str, column: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table)?.strip_prefix(": "));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|name| name == column)?;
    values.split(' ').nth(at)?.parse().ok()
}

/// More than either file has.
const SIZE: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let text = "Ip: a b\nIp: 1 2\nUdp: InDatagrams RcvbufErrors\nUdp: 7 5\nUdpLite: 1\n";
        assert_eq!(value(text, "Udp", "RcvbufErrors"), Some(5));
        assert_eq!(value(text, "Udp", "b"), None);
        assert_eq!(value("Udp: InDatagrams\nUdp: 7\n", "Udp", "RcvbufErrors"), None);
    }
}
