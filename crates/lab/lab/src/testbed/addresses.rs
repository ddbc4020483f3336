//! Addresses of the ranges for documentation (RFC 5737, RFC 3849): nobody's.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tempfile::NamedTempFile;

pub(super) const NODE_V4: u8 = 32;
pub(super) const NODE_V6: u8 = 128;
pub(super) const LINK_V4: u8 = 31;
pub(super) const LINK_V6: u8 = 127;

/// Of a node, on its loopback device.
pub(super) fn node_v4(node: usize) -> IpAddr {
    Ipv4Addr::new(198, 51, 100, node as u8 + 1).into()
}

pub(super) fn node_v6(node: usize) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, node as u16 + 1).into()
}

/// Of an end of a link, on its device.
pub(super) fn link_v4(link: usize, end: usize) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, (2 * link + end) as u8).into()
}

pub(super) fn link_v6(link: usize, end: usize) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, link as u16, 0, 0, 0, end as u16).into()
}

/// A file that takes the place of /etc/hosts inside.
pub(super) fn hosts_file(names: &[&str], ipv6: bool) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    writeln!(file, "127.0.0.1 localhost")?;
    if ipv6 {
        writeln!(file, "::1 localhost")?;
    }
    for (node, name) in names.iter().enumerate() {
        writeln!(file, "{} {name}", node_v4(node))?;
        if ipv6 {
            writeln!(file, "{} {name}", node_v6(node))?;
        }
    }
    file.flush()?;
    // Commands may run as another user.
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(all)?;
    Ok(file)
}
