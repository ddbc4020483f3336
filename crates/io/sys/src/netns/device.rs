//! Devices, addresses and routes of a [`Namespace`], and what keeps commands inside it together.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::{Namespace, Side};
use crate::netlink::Netlink;
use crate::tun::Tun;

/// Where packets for some addresses go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// First of the addresses.
    pub to: IpAddr,
    /// Leading bits that they have in common.
    pub prefix: u8,
    /// The neighbour that takes them further, if any.
    pub via: Option<IpAddr>,
    /// The address that sockets here take for their own when they have none.
    pub source: Option<IpAddr>,
    /// The congestion control of connections on this route, whatever they or the system would
    /// choose.
    pub congestion_control: Option<String>,
}

impl Namespace {
    /// Makes a TUN device with an MTU of `mtu` bytes, up. Up to `queue` packets or super-packets
    /// wait until they are read; then the kernel drops, and counts in [`DeviceCounters`].
    ///
    /// # Errors
    /// `NotFound` and `PermissionDenied` without access to /dev/net/tun, `Unsupported` before Linux
    /// 6.2, and those of the kernel for a name that is wrong or taken.
    pub fn add_tun(&self, name: &str, mtu: u32, queue: u32) -> io::Result<Tun> {
        self.run(|| {
            let tun = Tun::make(name)?;
            let mut netlink = Netlink::open()?;
            netlink.resize(name, mtu, queue)?;
            netlink.set_up(name)?;
            Ok(tun)
        })?
    }

    /// Makes a veth pair between this namespace and `other`, a device of that name in each, up and
    /// with the addresses of `ends`: here, there, and how many bits they have in common. See
    /// [`super::wait_for_path`].
    ///
    /// # Errors
    /// Those of the kernel for names that are wrong or taken, and of kernels without veth.
    pub fn join(
        &self,
        other: &Self,
        name: &str,
        mtu: u32,
        ends: &[([IpAddr; 2], u8)],
    ) -> io::Result<()> {
        let links = Side::ALL.map(Side::link);
        self.run(|| Netlink::open()?.add_veth(name, mtu, links, other.as_fd()))??;
        for (side, namespace) in Side::ALL.into_iter().zip([self, other]) {
            namespace.run(|| Netlink::open()?.set_up(name))??;
            for (addresses, prefix) in ends {
                namespace.meet(name, side, *addresses, *prefix)?;
            }
        }
        Ok(())
    }

    /// Gives the `side` of a veth pair its address, and tells it the other's.
    pub(super) fn meet(
        &self,
        device: &str,
        side: Side,
        addresses: [IpAddr; 2],
        prefix: u8,
    ) -> io::Result<()> {
        let (here, there) = match side {
            Side::A => (addresses[0], addresses[1]),
            Side::B => (addresses[1], addresses[0]),
        };
        self.add_address(device, here, prefix)?;
        self.add_neighbour(device, side, there)
    }

    /// Tells the `side` of a veth pair, A where [`Namespace::join`] was called, that an address is
    /// the other side's or behind it, so that nobody has to ask.
    pub fn add_neighbour(&self, device: &str, side: Side, address: IpAddr) -> io::Result<()> {
        self.run(|| Netlink::open()?.add_neighbour(device, address, side.other().link()))?
    }

    /// Has everything of an address family that comes in through device `from` leave through device
    /// `to`, to the neighbour `via`, whatever it is addressed to.
    pub fn pass_on(&self, from: &str, to: &str, via: IpAddr) -> io::Result<()> {
        let all = if via.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let route = RouteEntry {
            to: all,
            prefix: 0,
            via: Some(via),
            source: None,
            congestion_control: None,
        };
        self.run(|| {
            let mut netlink = Netlink::open()?;
            // A table of routes of its own: a namespace has few devices, and 252 such tables.
            let table = u8::try_from(netlink.index(from)?).ok().filter(|table| *table <= 252);
            let table = table.ok_or(io::ErrorKind::InvalidInput)?;
            netlink.add_route(to, &route, table)?;
            netlink.add_rule(from, via, table)
        })?
    }

    /// Has a device cut super-packets into packets before they pass.
    pub fn cut_super_packets(&self, device: &str) -> io::Result<()> {
        self.run(|| Netlink::open()?.cut_super_packets(device))?
    }

    /// Gives a device another MTU. One end of a veth pair then takes no larger packets from the other,
    /// which refuses them as if its queue were full.
    pub fn set_mtu(&self, device: &str, mtu: u32) -> io::Result<()> {
        self.run(|| Netlink::open()?.set_mtu(device, mtu))?
    }

    /// Gives a device an address, usable at once.
    pub fn add_address(&self, device: &str, address: IpAddr, prefix: u8) -> io::Result<()> {
        self.run(|| Netlink::open()?.add_address(device, address, prefix))?
    }

    /// Sends packets out through a device, in place of the earlier route of these addresses.
    pub fn add_route(&self, device: &str, route: &RouteEntry) -> io::Result<()> {
        self.run(|| Netlink::open()?.add_route(device, route, libc::RT_TABLE_MAIN))?
    }

    /// Sets a kernel parameter by its path below /proc/sys, like `net/ipv4/ip_forward`.
    ///
    /// # Errors
    /// Those of writing it; the text names the parameter.
    pub fn set(&self, parameter: &str, value: &str) -> io::Result<()> {
        let written = self.run(|| std::fs::write(format!("/proc/sys/{parameter}"), value))?;
        written.map_err(|error| io::Error::new(error.kind(), format!("{parameter}: {error}")))
    }

    /// Reads the counters of the devices here, now and later, from any thread.
    pub fn counters(&self) -> io::Result<DeviceCounters> {
        let file = self.run(|| File::open("/proc/thread-self/net/dev"))??;
        Ok(DeviceCounters { file })
    }
}

/// The kernel's counters of the devices of a namespace.
#[derive(Debug)]
pub struct DeviceCounters {
    file: File,
}

/// Counters of a device. A super-packet counts as one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCount {
    /// Packets that the stack took.
    pub received: u64,
    /// Packets that came and were dropped: malformed, or no memory for them.
    pub receive_dropped: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that found the device's queue full.
    pub send_dropped: u64,
}

impl DeviceCounters {
    /// The counters of `device`; `None` when there is none of that name.
    pub fn of(&self, device: &str) -> io::Result<Option<DeviceCount>> {
        let mut text = vec![0; TABLE_MAX];
        let length = self.file.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        Ok(text.lines().find_map(|line| {
            let (name, numbers) = line.split_once(':')?;
            (name.trim() == device).then(|| count(numbers)).flatten()
        }))
    }
}

/// Receive: bytes packets errs drop fifo frame compressed multicast; transmit: bytes packets errs
/// drop fifo colls carrier compressed (net/core/net-procfs.c).
fn count(numbers: &str) -> Option<DeviceCount> {
    let mut fields = [0; 16];
    let mut words = numbers.split_whitespace();
    for field in &mut fields {
        *field = words.next()?.parse().ok()?;
    }
    Some(DeviceCount {
        received: fields[1],
        receive_dropped: fields[2] + fields[3],
        sent: fields[9],
        send_dropped: fields[10] + fields[11],
    })
}

/// Some hundred devices.
const TABLE_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_devices_is_read() {
        let numbers = " 10 1 2 3 0 0 0 0 20 4 5 6 0 0 0 0";
        let expected = DeviceCount { received: 1, receive_dropped: 5, sent: 4, send_dropped: 11 };
        assert_eq!(count(numbers), Some(expected));
        assert_eq!(count(" 10 1 2"), None);
        let file = File::open("/proc/net/dev").unwrap();
        let counters = DeviceCounters { file };
        assert!(counters.of("lo").unwrap().is_some());
        assert_eq!(counters.of("no such device").unwrap(), None);
    }
}
