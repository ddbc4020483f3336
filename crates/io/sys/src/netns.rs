//! Network namespaces for benchmarks and tests: two hosts in one process, without leftovers.
//!
//! A namespace has no name and no mount: it lives while this process holds its descriptor, or
//! something inside is alive (a socket, a child), and the kernel removes it and its devices after
//! that, also when the process is killed.

mod command;
mod configure;
mod device;

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

pub use self::command::{become_root_of_own, die_with_starter, start_in_group};
use self::configure::Link;
pub use self::device::{DeviceCount, DeviceCounters, RouteEntry};
use crate::netlink::Netlink;
use crate::threads;

/// A network stack of its own: devices, addresses, routes, ports.
#[derive(Debug)]
pub struct Namespace {
    handle: OwnedFd,
}

impl Namespace {
    /// A new stack, with loopback up and nothing else.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_SYS_ADMIN`; the text says what helps.
    pub fn new() -> io::Result<Self> {
        let namespace = on_own_thread(|| {
            // SAFETY: file descriptors stay shared; only the network stack of this thread, which
            // ends with this closure, becomes another.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(Self { handle: File::open("/proc/thread-self/ns/net")?.into() })
        });
        let namespace = namespace.map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => io::Error::new(error.kind(), NEEDED),
            _ => error,
        })?;
        namespace.run(|| Netlink::open()?.set_up("lo"))??;
        Ok(namespace)
    }

    /// Calls `work` on a thread inside. Sockets that it makes stay inside, whichever thread uses
    /// them.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_own_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    /// Starts `command` inside. (A parent-death signal set in `command` would come at once.)
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.run(|| command.spawn())?
    }

    /// The same namespace once more; it lives until both are dropped.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { handle: self.handle.try_clone()? })
    }

    /// Moves the calling thread inside, for good.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.handle.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// One end of a [`NetnsPair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first: 198.51.100.1 and 2001:db8::1.
    A,
    /// The second: 198.51.100.2 and 2001:db8::2.
    B,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// Its IPv4 address, of the range for documentation (RFC 5737).
    pub fn ipv4(self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, self.number()))
    }

    /// Its IPv6 address, of the range for documentation (RFC 3849).
    pub fn ipv6(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, self.number().into()))
    }

    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Its address on the link, locally administered.
    fn link(self) -> Link {
        [2, 0, 0, 0, 0, self.number()]
    }

    fn number(self) -> u8 {
        match self {
            Self::A => 1,
            Self::B => 2,
        }
    }
}

/// Two namespaces joined by a veth pair, each end a device named [`DEVICE`], up, addressed and
/// ready: nothing sent after [`NetnsPair::new`] is lost for want of a link.
#[derive(Debug)]
pub struct NetnsPair {
    sides: [Namespace; 2],
}

impl NetnsPair {
    /// Makes the pair with an MTU of `mtu` bytes, at least 1280 (which IPv6 needs). The queueing
    /// discipline is the kernel's default for veth: none.
    ///
    /// # Errors
    /// Those of [`Namespace::new`], and of kernels without veth.
    pub fn new(mtu: u32) -> io::Result<Self> {
        let pair = Self { sides: [Namespace::new()?, Namespace::new()?] };
        let [a, b] = &pair.sides;
        let (ipv4, ipv6) = (Side::ALL.map(Side::ipv4), Side::ALL.map(Side::ipv6));
        a.join(b, DEVICE, mtu, &[(ipv4, 24)])?;
        wait_for_path([a, b], ipv4)?;
        // Fails where the kernel has no IPv6, or has it switched off.
        let met = Side::ALL.map(|side| pair.side(side).meet(DEVICE, side, ipv6, 64).is_ok());
        if met == [true; 2] {
            wait_for_path([a, b], ipv6)?;
        }
        Ok(pair)
    }

    /// One of the two.
    pub fn side(&self, side: Side) -> &Namespace {
        &self.sides[usize::from(side.number()) - 1]
    }

    /// Both, the first first.
    pub fn into_sides(self) -> [Namespace; 2] {
        self.sides
    }

    /// Calls `work` on a thread inside; see [`Namespace::run`].
    pub fn run_in<T: Send>(&self, side: Side, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.side(side).run(work)
    }

    /// Starts `command` inside; see [`Namespace::spawn`].
    pub fn spawn_in(&self, side: Side, command: &mut Command) -> io::Result<Child> {
        self.side(side).spawn(command)
    }
}

/// Waits until datagrams pass each way between two namespaces, from and to these addresses. The
/// kernel opens links and takes addresses into use some time after the request, and drops in
/// silence what is sent before.
///
/// # Errors
/// `TimedOut` when nothing passes, and those of sockets.
pub fn wait_for_path(ends: [&Namespace; 2], addresses: [IpAddr; 2]) -> io::Result<()> {
    let bind = |end: usize| ends[end].run(|| UdpSocket::bind((addresses[end], 0)))?;
    let (a, b) = (bind(0)?, bind(1)?);
    for (from, to) in [(&a, &b), (&b, &a)] {
        to.set_read_timeout(Some(PROBE_INTERVAL))?;
        let target = to.local_addr()?;
        let arrives = |_| match from.send_to(b"?", target) {
            Ok(_) => to.recv(&mut [0]).is_ok(),
            Err(_) => {
                std::thread::sleep(PROBE_INTERVAL);
                false
            }
        };
        if !(0..PROBES).any(arrives) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the link stays down"));
        }
    }
    Ok(())
}

/// Runs `work` on a thread that ends with it, so that no other sees its namespace.
fn on_own_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = threads::spawn_scoped(scope, "netns", work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The name of the device that joins the two sides, in each.
pub const DEVICE: &str = "veth0";

/// Five seconds in all; the kernel takes up to one.
const PROBES: u32 = 2500;
const PROBE_INTERVAL: Duration = Duration::from_millis(2);

const NEEDED: &str = "making network namespaces needs CAP_SYS_ADMIN: run as root, or under \
                      `unshare --map-root-user --net`";

#[cfg(test)]
pub(crate) mod tests;
