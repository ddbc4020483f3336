use crate::sync::lock;
use std::io;
use std::sync::Mutex;

use longhaul_units::Bytes;

use super::messages::{TC_H_ROOT, header};
use crate::netlink::{Netlink, Request, attribute, word};

/// Reads what the outermost queueing discipline of a device has done. Usable from any thread of any
/// namespace.
#[derive(Debug)]
pub struct QueueCounters {
    netlink: Mutex<Netlink>,
    device: u32,
}

/// Counters of a queueing discipline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCount {
    /// Packets that found it full.
    pub dropped: u64,
    /// Bytes that wait now.
    pub waiting: Bytes,
}

impl QueueCounters {
    /// Of a device of the calling thread's namespace.
    ///
    /// # Errors
    /// Those of a device that is not there.
    pub fn of(device: &str) -> io::Result<Self> {
        let netlink = Netlink::open()?;
        Ok(Self { device: netlink.index(device)?, netlink: Mutex::new(netlink) })
    }

    /// Reads its counters since it was made.
    ///
    /// # Errors
    /// `NotFound` for a device without one.
    pub fn read(&self) -> io::Result<QueueCount> {
        let mut request = Request::new(libc::RTM_GETQDISC, libc::NLM_F_DUMP);
        header(&mut request, self.device, 0, 0, 0);
        let mut found = None;
        let mut netlink = lock(&self.netlink);
        netlink.list(request, &mut |entry| {
            found = found.or_else(|| count(entry, self.device));
        })?;
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Counters in an entry of the outermost discipline of a device, if it is of that.
fn count(entry: &[u8], device: u32) -> Option<QueueCount> {
    if word(entry, 4)? != device || word(entry, 12)? != TC_H_ROOT {
        return None;
    }
    let stats = attribute(entry.get(TCMSG..)?, libc::TCA_STATS2)?;
    // struct gnet_stats_queue: packets and bytes that wait, packets dropped, ...
    let queue = attribute(stats, TCA_STATS_QUEUE)?;
    let (waiting, dropped) = (word(queue, 4)?.into(), word(queue, 8)?.into());
    Some(QueueCount { dropped, waiting: Bytes::new(waiting) })
}

const TCMSG: usize = 20;
/// Of include/uapi/linux/gen_stats.h.
const TCA_STATS_QUEUE: u16 = 3;
