//! Limits for what leaves through a device of this host: the kernel's traffic control (tc(8)),
//! HTB with its classes (tc-htb(8)), queues in front of them and filters, without a program.
//!
//! ```no_run
//! use longhaul_sys::traffic_control::{Change, Class, Egress, burst};
//! use longhaul_units::Rate;
//!
//! let rate = Rate::from_mbps(100);
//! let burst = burst(rate, 1500);
//! let class = Class { number: 0x10, parent: 0, rate, ceiling: rate, burst, priority: 0 };
//! let mut egress = Egress::of("eth1")?;
//! // One call of the kernel, and its verdict on each.
//! let [htb, added] = &egress.apply(&[Change::AddHtb { default: 1 }, Change::AddClass(class)])[..]
//! else { unreachable!("a verdict each") };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod counters;
mod messages;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use longhaul_units::{Bytes, Rate};

pub use self::counters::{QueueCount, QueueCounters};
use crate::netlink::Netlink;

/// The way out through a device. What is set here stays when this is dropped.
#[derive(Debug)]
pub struct Egress {
    netlink: Netlink,
    device: String,
}

/// A change to what happens to packets on their way out. Classes are those of the HTB `1:`, from
/// `1:1` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The kernel's default in place of what there is; classes and filters go too. `NotFound` where
    /// that is the default already.
    Clear,
    /// HTB as `1:`; what no filter sorts goes to the class of this number. `AlreadyExists` where
    /// there is another discipline than the default.
    AddHtb {
        /// Number of that class.
        default: u16,
    },
    /// A class that there is not yet.
    AddClass(Class),
    /// Other rates for a class from now on. What waits goes on waiting.
    ChangeClass(Class),
    /// A class goes, with what waits there. Filters must have gone before.
    DeleteClass {
        /// Its number.
        class: u16,
    },
    /// A queue of bytes (tc-bfifo(8)) for a class, instead of one of packets, as `2:` for `1:1`.
    AddQueue {
        /// Number of that class.
        class: u16,
        /// Bytes that may wait; packets beyond are dropped.
        limit: u32,
    },
    /// Sorts packets to an address into a class (tc-u32(8)), with its number for a priority.
    AddFilter {
        /// Number of that class.
        class: u16,
        /// The address.
        to: IpAddr,
    },
    /// Nothing is sorted into a class any more.
    DeleteFilter {
        /// Number of that class.
        class: u16,
    },
}

/// A class of HTB. Bytes are those of whole packets as the device takes them: of IP on TUN devices,
/// with the link's header on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// `0x10` is what `tc` calls `1:10`.
    pub number: u16,
    /// The class whose packets its own are too, and which lends; 0 for none.
    pub parent: u16,
    /// Rate that it can have in the long run, 8 bit/s at least.
    pub rate: Rate,
    /// Rate that it can have while others leave it; without a parent nobody lends.
    pub ceiling: Rate,
    /// Bytes that it can have at once after a pause.
    pub burst: Bytes,
    /// Lower ones are first to have what is left, from 0 to 7.
    pub priority: u32,
}

impl Egress {
    /// Of a device that the calling thread's namespace has, or will have: it is looked for with each
    /// change.
    pub fn of(device: &str) -> io::Result<Self> {
        Ok(Self { netlink: Netlink::open()?, device: device.to_owned() })
    }

    /// Makes changes, each after those before it, whatever became of them, and tells of each what
    /// became of it. A few dozen are one call of the kernel.
    ///
    /// # Errors
    /// The text says what was to be done, and why it was not. `Unsupported` for what this kernel
    /// does not have, `NotFound` for what is not there, `PermissionDenied` without `CAP_NET_ADMIN`.
    pub fn apply(&mut self, changes: &[Change]) -> Vec<io::Result<()>> {
        let verdicts = match self.netlink.index(&self.device) {
            Ok(index) => {
                let mut requests: Vec<_> =
                    changes.iter().map(|change| change.request(index)).collect();
                self.netlink.ask_all(&mut requests)
            }
            Err(error) => changes.iter().map(|_| Err(error.into())).collect(),
        };
        let answered = changes.iter().zip(verdicts);
        answered.map(|(change, verdict)| verdict.map_err(|error| change.describe(error))).collect()
    }
}

impl Change {
    /// An error with what was to be done.
    fn describe(&self, error: io::Error) -> io::Error {
        let (kind, why) = match (self, error.kind()) {
            (Self::ChangeClass(_) | Self::DeleteClass { .. }, io::ErrorKind::NotFound) => {
                (io::ErrorKind::NotFound, "there is no such class".to_owned())
            }
            // What the kernel does not know it says like what it does not find.
            (_, kind @ (io::ErrorKind::NotFound | io::ErrorKind::Unsupported)) => {
                match self.module() {
                    Some(module) => (io::ErrorKind::Unsupported, absent(module)),
                    None => (kind, error.to_string()),
                }
            }
            (_, kind) => (kind, error.to_string()),
        };
        io::Error::new(kind, format!("{self}: {why}"))
    }

    /// Kernel module that it needs and that may be missing.
    fn module(&self) -> Option<&'static str> {
        match self {
            Self::AddHtb { .. } => Some("HTB (CONFIG_NET_SCH_HTB)"),
            Self::AddQueue { .. } => Some("bfifo (CONFIG_NET_SCH_FIFO)"),
            Self::AddFilter { .. } => Some("u32 (CONFIG_NET_CLS_U32)"),
            _ => None,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clear => write!(f, "clear the queueing discipline"),
            Self::AddHtb { .. } => write!(f, "add HTB"),
            Self::AddClass(class) => write!(f, "add class 1:{:x}", class.number),
            Self::ChangeClass(class) => write!(f, "change class 1:{:x}", class.number),
            Self::DeleteClass { class } => write!(f, "delete class 1:{class:x}"),
            Self::AddQueue { class, .. } => write!(f, "add the queue of class 1:{class:x}"),
            Self::AddFilter { class, to } => {
                write!(f, "sort packets to {to} into class 1:{class:x}")
            }
            Self::DeleteFilter { class } => write!(f, "delete the filters of class 1:{class:x}"),
        }
    }
}

/// Burst that suits a class of that rate: what it sends while the kernel's timer is late,
/// which is else lost, and two packets, not to need that timer for each. Not more: it is as if the
/// queue were so much longer.
pub fn burst(rate: Rate, packet: u32) -> Bytes {
    Bytes::new(rate.bytes_in(BURST).max(2 * u64::from(packet)))
}

fn absent(what: &str) -> String {
    format!("this kernel has no {what}; modprobe loads it where it is a module")
}

const BURST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
