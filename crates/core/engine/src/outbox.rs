//! Object bytes on their way: extents offered by the driver, cut into runs of packets, followed
//! until every byte is acknowledged.

use alloc::collections::{BTreeMap, VecDeque};

use longhaul_units::{Extent, ObjectId, RangeSet};

/// Consecutive packets of one object: all carry the batch's payload size but the last, which
/// carries the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The bytes.
    pub extent: Extent,
    /// How many packets they take.
    pub packets: u16,
    /// Whether these bytes were sent before.
    pub resent: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Offered and not yet wholly acknowledged, by first byte.
    offered: BTreeMap<(ObjectId, u64), Offered>,
    /// Not yet sent, in order of offering.
    backlog: VecDeque<Extent>,
    backlog_bytes: u64,
    /// Taken as lost and not yet sent again.
    resend: BTreeMap<ObjectId, RangeSet>,
    resend_bytes: u64,
    /// Bytes that were acknowledged for the first time since they were offered.
    delivered_bytes: u64,
}

#[derive(Debug)]
struct Offered {
    extent: Extent,
    acked: RangeSet,
    remaining: u64,
}

impl Outbox {
    /// Takes on an extent; it must not overlap another that is not yet delivered.
    pub fn offer(&mut self, extent: Extent) {
        debug_assert!(extent.len > 0);
        debug_assert!(self.find(&extent).is_none(), "{extent:?} is offered already");
        self.backlog.push_back(extent);
        self.backlog_bytes += extent.len;
        let offered = Offered { extent, acked: RangeSet::new(), remaining: extent.len };
        self.offered.insert((extent.object, extent.offset), offered);
    }

    fn find(&mut self, extent: &Extent) -> Option<&mut Offered> {
        let below = ..=(extent.object, extent.offset);
        let (_, offered) = self.offered.range_mut(below).next_back()?;
        let found = offered.extent;
        (found.object == extent.object && extent.offset < found.end()).then_some(offered)
    }

    /// Bytes offered and never sent.
    pub fn backlog_bytes(&self) -> u64 {
        self.backlog_bytes
    }

    pub fn has_resends(&self) -> bool {
        self.resend_bytes > 0
    }

    /// Bytes acknowledged so far, each once for each time that it was offered.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// Offered extents that wait for acknowledgements.
    pub fn undelivered(&self) -> usize {
        self.offered.len()
    }

    /// The next run of at most `packets` packets of `payload` bytes: resends first, and new bytes
    /// only if `fresh`. A run never crosses the end of an offered extent.
    pub fn take(&mut self, payload: u64, packets: u64, fresh: bool) -> Option<Run> {
        let limit = payload * packets;
        if let Some(extent) = self.take_resend(limit) {
            return Some(run(extent, payload, true));
        }
        if !fresh {
            return None;
        }
        let front = self.backlog.front_mut()?;
        let taken = Extent { len: front.len.min(limit), ..*front };
        self.backlog_bytes -= taken.len;
        if taken.len == front.len {
            self.backlog.pop_front();
        } else {
            front.offset += taken.len;
            front.len -= taken.len;
        }
        Some(run(taken, payload, false))
    }

    fn take_resend(&mut self, limit: u64) -> Option<Extent> {
        let (&object, ranges) = self.resend.iter_mut().next()?;
        let first = ranges.first()?;
        let start = Extent { object, offset: first.start, len: 1 };
        let extent_end = self.find(&start).map_or(u64::MAX, |offered| offered.extent.end());
        let ranges = self.resend.get_mut(&object)?;
        let range = ranges.take_first(limit.min(extent_end - first.start))?;
        if ranges.is_empty() {
            self.resend.remove(&object);
        }
        self.resend_bytes -= range.end - range.start;
        Some(Extent { object, offset: range.start, len: range.end - range.start })
    }

    /// Bytes arrived. Returns the offered extent when these were its last.
    pub fn on_acked(&mut self, extent: Extent) -> Option<Extent> {
        let bytes = extent.offset..extent.end();
        if self.resend_bytes > 0
            && let Some(ranges) = self.resend.get_mut(&extent.object)
        {
            self.resend_bytes -= ranges.remove(bytes.clone());
            if ranges.is_empty() {
                self.resend.remove(&extent.object);
            }
        }
        let offered = self.find(&extent)?;
        let new = offered.acked.insert(bytes);
        offered.remaining -= new;
        let (whole, remaining) = (offered.extent, offered.remaining);
        self.delivered_bytes += new;
        if remaining > 0 {
            return None;
        }
        self.offered.remove(&(whole.object, whole.offset));
        Some(whole)
    }

    /// Bytes must be sent again, unless another copy of them arrived.
    pub fn on_lost(&mut self, extent: Extent) {
        let Some(offered) = self.find(&extent) else { return };
        let mut missing = RangeSet::new();
        for gap in offered.acked.gaps(extent.offset..extent.end()) {
            missing.insert(gap);
        }
        if missing.is_empty() {
            return;
        }
        let ranges = self.resend.entry(extent.object).or_default();
        for gap in missing.iter() {
            self.resend_bytes += ranges.insert(gap);
        }
    }
}

fn run(extent: Extent, payload: u64, resent: bool) -> Run {
    Run { extent, packets: extent.len.div_ceil(payload) as u16, resent }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, len: u64) -> Extent {
        Extent { object: ObjectId(1), offset, len }
    }

    #[test]
    fn runs_stop_at_the_end_of_an_extent() {
        let mut outbox = Outbox::default();
        outbox.offer(extent(0, 2500));
        outbox.offer(extent(2500, 1000));
        let first = outbox.take(1000, 64, true).unwrap();
        assert_eq!((first.extent, first.packets), (extent(0, 2500), 3));
        outbox.take(1000, 64, true).unwrap();
        assert!(outbox.take(1000, 64, true).is_none());
        // Losses on both sides of the border merge in the queue but leave it apart.
        outbox.on_lost(extent(2000, 500));
        outbox.on_lost(extent(2500, 1000));
        assert_eq!(outbox.take(1000, 64, false).unwrap().extent, extent(2000, 500));
        assert_eq!(outbox.take(1000, 64, false).unwrap().extent, extent(2500, 1000));
        assert!(!outbox.has_resends());
    }

    #[test]
    fn an_extent_is_delivered_once() {
        let mut outbox = Outbox::default();
        outbox.offer(extent(0, 3000));
        outbox.take(1000, 64, true);
        assert_eq!(outbox.on_acked(extent(0, 1000)), None);
        outbox.on_lost(extent(1000, 2000));
        // A late arrival of what was taken as lost stops the resend.
        assert_eq!(outbox.on_acked(extent(1000, 1000)), None);
        assert_eq!(outbox.delivered_bytes(), 2000);
        assert_eq!(outbox.on_acked(extent(0, 2000)), None);
        assert_eq!(outbox.delivered_bytes(), 2000, "a second report is no news");
        assert_eq!(outbox.take(1000, 64, false).unwrap().extent, extent(2000, 1000));
        assert_eq!(outbox.on_acked(extent(2000, 1000)), Some(extent(0, 3000)));
        assert_eq!(outbox.on_acked(extent(2000, 1000)), None);
        outbox.on_lost(extent(1000, 1000));
        assert_eq!(outbox.delivered_bytes(), 3000);
        assert!(outbox.undelivered() == 0 && !outbox.has_resends());
    }
}
