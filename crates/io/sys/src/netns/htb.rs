//! The kernel's HTB on a device (tc-htb(8)): one class, and a queue of bytes in front of it.
//!
//! Messages as include/uapi/linux/pkt_sched.h has them. Without `tc` a change of rate is one call.

use std::io;
use std::sync::{Mutex, PoisonError};

use longhaul_units::{Bytes, Rate};

use super::Namespace;
use super::netlink::{Netlink, Request, attribute};

/// One HTB; it stays when this is dropped. Usable from any thread of any namespace.
#[derive(Debug)]
pub struct Htb {
    netlink: Netlink,
    index: u32,
}

/// Reads what the queueing discipline of a device has done.
#[derive(Debug)]
pub struct QueueCounters {
    netlink: Mutex<Netlink>,
    index: u32,
}

/// What a queueing discipline has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCount {
    /// Packets that found it full.
    pub dropped: u64,
    /// Bytes that wait now.
    pub waiting: Bytes,
}

impl Namespace {
    /// Has a device send at `rate` in the long run, and up to `burst` at once after a pause; up to
    /// `queue` bytes wait, and what comes beyond that is dropped. Bytes are those of whole packets as
    /// the device takes them: of IP on TUN devices.
    ///
    /// # Errors
    /// `Unsupported` for kernels without HTB or bfifo, `InvalidInput` for a rate below 8 bit/s, and
    /// those of a device that is not there.
    pub fn add_htb(&self, device: &str, rate: Rate, burst: Bytes, queue: Bytes) -> io::Result<Htb> {
        self.run(|| {
            let netlink = Netlink::open()?;
            let index = netlink.index(device)?;
            let mut htb = Htb { netlink, index };
            let new = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
            let mut request = htb.request(libc::RTM_NEWQDISC, new, [ROOT, TC_H_ROOT], "htb");
            request.nested(libc::TCA_OPTIONS, |options| {
                // struct tc_htb_glob: version, rate to quantum, class of what is not told otherwise.
                let init = [HTB_VERSION, 10, CLASS & 0xffff, 0, 0];
                options.attribute(TCA_HTB_INIT, &init.map(u32::to_ne_bytes).concat());
            });
            htb.netlink.ask(request).map_err(absent("HTB (CONFIG_NET_SCH_HTB)"))?;
            htb.set(new, rate, burst)?;
            let mut request = htb.request(libc::RTM_NEWQDISC, new, [LEAF, CLASS], "bfifo");
            let limit = u32::try_from(queue.get()).map_err(|_| io::ErrorKind::InvalidInput)?;
            request.number(libc::TCA_OPTIONS, limit);
            htb.netlink.ask(request).map_err(absent("bfifo (CONFIG_NET_SCH_FIFO)"))?;
            Ok(htb)
        })?
    }

    /// Counters of the outermost queueing discipline of a device, now and later.
    pub fn queue_counters(&self, device: &str) -> io::Result<QueueCounters> {
        self.run(|| {
            let netlink = Netlink::open()?;
            Ok(QueueCounters { index: netlink.index(device)?, netlink: Mutex::new(netlink) })
        })?
    }
}

impl Htb {
    /// Another rate and burst from now on. What waits goes on waiting.
    ///
    /// # Errors
    /// `InvalidInput` for a rate below 8 bit/s, and those of a device that is gone.
    pub fn set_rate(&mut self, rate: Rate, burst: Bytes) -> io::Result<()> {
        self.set(0, rate, burst)
    }

    fn set(&mut self, flags: i32, rate: Rate, burst: Bytes) -> io::Result<()> {
        let bytes_per_second = rate.as_bps() / 8;
        if bytes_per_second == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let ticks = rate.time_for(burst.get()).as_nanos() / TICK_NANOS;
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        let mut request = self.request(libc::RTM_NEWTCLASS, flags, [CLASS, ROOT], "htb");
        request.nested(libc::TCA_OPTIONS, |options| {
            let mut parameters = Vec::new();
            for _ in ["rate", "ceil"] {
                // struct tc_ratespec: logarithm of the cell, link layer (without tables), overhead,
                // alignment, least packet, rate.
                parameters.extend([0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0]);
                let low = u32::try_from(bytes_per_second).unwrap_or(u32::MAX);
                parameters.extend(low.to_ne_bytes());
            }
            // The rest of struct tc_htb_opt: buffer, cbuffer, quantum, level, priority.
            for number in [ticks, ticks, QUANTUM, 0, 0] {
                parameters.extend(number.to_ne_bytes());
            }
            options.attribute(TCA_HTB_PARMS, &parameters);
            for kind in [TCA_HTB_RATE64, TCA_HTB_CEIL64] {
                options.attribute(kind, &bytes_per_second.to_ne_bytes());
            }
        });
        self.netlink.ask(request)
    }

    fn request(&self, message: u16, flags: i32, [handle, parent]: [u32; 2], kind: &str) -> Request {
        let mut request = Request::new(message, flags);
        traffic_header(&mut request, self.index, handle, parent);
        request.text(libc::TCA_KIND, kind);
        request
    }
}

impl QueueCounters {
    /// What it has done since it was made.
    ///
    /// # Errors
    /// `NotFound` for a device without one.
    pub fn read(&self) -> io::Result<QueueCount> {
        let mut request = Request::new(libc::RTM_GETQDISC, libc::NLM_F_DUMP);
        traffic_header(&mut request, self.index, 0, 0);
        let mut found = None;
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        netlink.list(request, &mut |entry| {
            found = found.or_else(|| count(entry, self.index));
        })?;
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// struct tcmsg: family and padding, device, handle, parent, information.
fn traffic_header(request: &mut Request, index: u32, handle: u32, parent: u32) {
    for number in [0, index, handle, parent, 0] {
        request.bytes.extend(number.to_ne_bytes());
    }
}

/// What an entry tells of the outermost discipline of device `index`, if it is of that.
fn count(entry: &[u8], index: u32) -> Option<QueueCount> {
    let number = |bytes: &[u8], at: usize| {
        Some(u32::from_ne_bytes(*bytes.get(4 * at..)?.first_chunk::<4>()?))
    };
    if number(entry, 1)? != index || number(entry, 3)? != TC_H_ROOT {
        return None;
    }
    let stats = attribute(entry.get(TCMSG..)?, libc::TCA_STATS2)?;
    // struct gnet_stats_queue: packets and bytes that wait, packets dropped, ...
    let queue = attribute(stats, TCA_STATS_QUEUE)?;
    let (waiting, dropped) = (number(queue, 1)?.into(), number(queue, 2)?.into());
    Some(QueueCount { dropped, waiting: Bytes::new(waiting) })
}

/// What the kernel does not know it says like what it does not find.
fn absent(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP) => {
            let text = format!("this kernel has no {what}; modprobe loads it where it is a module");
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
        _ => error,
    }
}

/// `1:`, `1:1` and `2:` as `tc` writes them.
const ROOT: u32 = 0x1_0000;
const CLASS: u32 = 0x1_0001;
const LEAF: u32 = 0x2_0000;
const TC_H_ROOT: u32 = u32::MAX;
const TCMSG: usize = 20;
const HTB_VERSION: u32 = 3;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TC_LINKLAYER_ETHERNET: u8 = 1;
/// Of include/uapi/linux/gen_stats.h.
const TCA_STATS_QUEUE: u16 = 3;
/// The unit of times, PSCHED_SHIFT of include/net/pkt_sched.h.
const TICK_NANOS: u128 = 64;
/// Bytes that a class may send in its turn. There is no other.
const QUANTUM: u32 = 65_536;
