//! Traffic of a node's network stack, by its own count.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use longhaul_lab::Host;

/// The kernel's counters of a network namespace, read from any thread.
pub(crate) struct Counters {
    snmp: File,
    netstat: File,
}

/// Totals since the namespace was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// As programs handed them over: a train of segments counts once.
    pub(crate) datagrams_sent: u64,
    pub(crate) segments_sent: u64,
    pub(crate) segments_resent: u64,
    /// Of IP packets.
    pub(crate) bytes_received: u64,
}

impl Counters {
    pub(crate) fn of(host: &Host) -> io::Result<Self> {
        let open = |name| File::open(format!("/proc/thread-self/net/{name}"));
        let (snmp, netstat) = host.run(|| (open("snmp"), open("netstat")))?;
        Ok(Self { snmp: snmp?, netstat: netstat? })
    }

    pub(crate) fn read(&self) -> io::Result<Count> {
        let (snmp, netstat) = (text(&self.snmp)?, text(&self.netstat)?);
        let value = |text: &str, table, column| {
            value(text, table, column).ok_or_else(|| {
                let why = format!("no {column} among the kernel's counters of {table}");
                io::Error::new(io::ErrorKind::InvalidData, why)
            })
        };
        let segments_resent = value(&snmp, "Tcp", "RetransSegs")?;
        Ok(Count {
            datagrams_sent: value(&snmp, "Udp", "OutDatagrams")?,
            segments_sent: value(&snmp, "Tcp", "OutSegs")? + segments_resent,
            segments_resent,
            bytes_received: value(&netstat, "IpExt", "InOctets")?,
        })
    }
}

impl Count {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            datagrams_sent: self.datagrams_sent.saturating_sub(earlier.datagrams_sent),
            segments_sent: self.segments_sent.saturating_sub(earlier.segments_sent),
            segments_resent: self.segments_resent.saturating_sub(earlier.segments_resent),
            bytes_received: self.bytes_received.saturating_sub(earlier.bytes_received),
        }
    }
}

fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; TABLE_MAX];
    let mut length = 0;
    // The kernel gives a page at a time.
    loop {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            more => length += more,
        }
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Each table is two lines that begin with its name: the columns, and their values.
fn value(text: &str, table: &str, column: &str) -> Option<u64> {
    let mut rows = text.lines().filter_map(|line| line.strip_prefix(table)?.strip_prefix(": "));
    let (names, values) = (rows.next()?, rows.next()?);
    let at = names.split(' ').position(|name| name == column)?;
    values.split(' ').nth(at)?.parse().ok()
}

/// Some thousand bytes on kernels of today.
const TABLE_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_under_their_columns() {
        let text = "Tcp: RtoAlgorithm MaxConn OutSegs RetransSegs\nTcp: 1 -1 12 3\n\
                    Udp: InDatagrams NoPorts InErrors OutDatagrams\nUdp: 5 0 0 7\n\
                    UdpLite: InDatagrams NoPorts InErrors OutDatagrams\nUdpLite: 0 0 0 9\n";
        assert_eq!(value(text, "Udp", "OutDatagrams"), Some(7));
        assert_eq!(value(text, "Tcp", "RetransSegs"), Some(3));
        assert_eq!(value(text, "Tcp", "MaxConn"), None);
        assert_eq!(value(text, "Tcp", "nothing"), None);
        assert_eq!(value("Udp: OutDatagrams\n", "Udp", "OutDatagrams"), None);
    }

    #[test]
    fn this_kernel_has_them() {
        let open = |name| File::open(format!("/proc/thread-self/net/{name}")).unwrap();
        let counters = Counters { snmp: open("snmp"), netstat: open("netstat") };
        let before = counters.read().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        let sent = counters.read().unwrap().since(before);
        assert!(sent.datagrams_sent >= 1 && sent.bytes_received >= 29, "{sent:?}");
    }
}
