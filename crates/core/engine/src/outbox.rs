//! Outgoing object bytes: extents offered by the driver, cut into runs of packets, followed
//! until every byte is acknowledged.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use longhaul_units::{Extent, ObjectId, RangeSet};

/// Consecutive packets of one object: all carry the batch's payload size but the last, which
/// carries the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The bytes.
    pub extent: Extent,
    /// Number of packets that they take.
    pub packets: u16,
    /// True if these bytes were sent before.
    pub resent: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Offered and not yet wholly acknowledged, by first byte.
    offered: BTreeMap<(ObjectId, u64), Offered>,
    /// Not yet sent, in order of offering.
    backlog: VecDeque<Extent>,
    backlog_bytes: u64,
    /// Something of the first of them was sent.
    is_amid: bool,
    /// Taken as lost and not yet sent again.
    resend: BTreeMap<ObjectId, RangeSet>,
    resend_bytes: u64,
    /// Where the next resend is looked for. They go round, so that what is lost time and again, as that is
    /// for which the peer has no memory, does not keep back what it waits for.
    resend_from: (ObjectId, u64),
    /// Bytes that were acknowledged for the first time since they were offered.
    delivered_bytes: u64,
}

#[derive(Debug)]
struct Offered {
    extent: Extent,
    /// End of what was sent of it. Of an earlier offer of the same bytes more may be under way.
    sent_to: u64,
    acked: RangeSet,
    remaining: u64,
    /// The peer is to have some of it, and needs no more.
    is_withdrawn: bool,
}

/// Which bytes may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Lost ones only.
    Resends,
    /// New ones when none is lost.
    ResendsFirst,
    /// Lost ones when none is new.
    FreshFirst,
}

/// An extent that was withdrawn and is done with.
pub(crate) enum Gone {
    /// Nothing of it was sent.
    Unsent(Extent),
    /// The peer has some of it.
    Known(Extent),
}

impl Outbox {
    /// Takes on an extent; it must not overlap another that is not yet delivered.
    pub fn offer(&mut self, extent: Extent) {
        debug_assert!(extent.len > 0);
        debug_assert!(self.find(&extent).is_none(), "{extent:?} is offered already");
        self.backlog.push_back(extent);
        self.backlog_bytes += extent.len;
        let (sent_to, acked, remaining) = (extent.offset, RangeSet::new(), extent.len);
        let offered = Offered { extent, sent_to, acked, remaining, is_withdrawn: false };
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

    /// True if the next new bytes go on with an extent of which some were sent.
    pub fn is_amid_extent(&self) -> bool {
        self.is_amid
    }

    /// The next run of at most `packets` packets of `payload` bytes, of the first kind in `order` of
    /// which there are any. A run never crosses the end of an offered extent.
    pub fn take(&mut self, payload: u64, packets: u64, order: Order) -> Option<Run> {
        let limit = payload * packets;
        match order {
            Order::Resends => self.take_resend(limit, payload),
            Order::ResendsFirst => {
                self.take_resend(limit, payload).or_else(|| self.take_fresh(limit, payload))
            }
            Order::FreshFirst => {
                self.take_fresh(limit, payload).or_else(|| self.take_resend(limit, payload))
            }
        }
    }

    fn take_fresh(&mut self, limit: u64, payload: u64) -> Option<Run> {
        let front = self.backlog.front_mut()?;
        let taken = Extent { len: front.len.min(limit), ..*front };
        self.backlog_bytes -= taken.len;
        self.is_amid = taken.len < front.len;
        if self.is_amid {
            front.offset += taken.len;
            front.len -= taken.len;
        } else {
            self.backlog.pop_front();
        }
        if let Some(offered) = self.find(&taken) {
            offered.sent_to = taken.end();
        }
        Some(run(taken, payload, false))
    }

    fn take_resend(&mut self, limit: u64, payload: u64) -> Option<Run> {
        let next = self.next_resend()?;
        let extent_end = self.find(&next).map_or(u64::MAX, |offered| offered.extent.end());
        let len = next.len.min(limit).min(extent_end - next.offset);
        let extent = Extent { len, ..next };
        self.forget_resends(extent);
        self.resend_from = (extent.object, extent.end());
        Some(run(extent, payload, true))
    }

    fn next_resend(&self) -> Option<Extent> {
        let first_from = |object, offset| {
            self.resend.range(object..).find_map(|(&id, ranges)| {
                let from = if id == object { offset } else { 0 };
                let range = ranges.iter_from(from).next()?;
                let offset = range.start.max(from);
                Some(Extent { object: id, offset, len: range.end - offset })
            })
        };
        let (object, offset) = self.resend_from;
        first_from(object, offset).or_else(|| first_from(ObjectId(0), 0))
    }

    /// Nothing of `object` is wanted any more. `gone` sees what is done with; of the other extents some
    /// was sent, and the peer may have none of it: they wait for a first acknowledgement.
    pub fn withdraw(&mut self, object: ObjectId, mut gone: impl FnMut(Gone)) {
        for left in self.take_unsent(|left| left.object == object) {
            let key = (object, left.offset);
            if self.offered.get(&key).is_some_and(|whole| whole.extent == left) {
                self.offered.remove(&key);
                gone(Gone::Unsent(left));
            }
        }
        let begun = self.offered.range_mut((object, 0)..=(object, u64::MAX));
        let known: Vec<Extent> = begun
            .filter_map(|(_, begun)| {
                begun.is_withdrawn = true;
                (begun.remaining < begun.extent.len).then_some(begun.extent)
            })
            .collect();
        for extent in known {
            self.forget(extent);
            gone(Gone::Known(extent));
        }
    }

    /// Forgets an offered extent, and what of it was to be sent, again or at all: late copies of what was offered before
    /// may have brought the peer all of it.
    fn forget(&mut self, extent: Extent) {
        self.offered.remove(&(extent.object, extent.offset));
        self.forget_resends(extent);
        self.take_unsent(|left| {
            left.object == extent.object && (extent.offset..extent.end()).contains(&left.offset)
        });
    }

    /// Takes such extents, or what is left of them, out of what was never sent.
    fn take_unsent(&mut self, is_such: impl Fn(&Extent) -> bool) -> Vec<Extent> {
        let Self { backlog, backlog_bytes, is_amid, .. } = self;
        *is_amid &= !backlog.front().is_some_and(&is_such);
        let mut taken = Vec::new();
        backlog.retain(|left| {
            let goes = is_such(left);
            if goes {
                *backlog_bytes -= left.len;
                taken.push(*left);
            }
            !goes
        });
        taken
    }

    fn forget_resends(&mut self, extent: Extent) {
        if self.resend_bytes > 0
            && let Some(ranges) = self.resend.get_mut(&extent.object)
        {
            self.resend_bytes -= ranges.remove(extent.offset..extent.end());
            if ranges.is_empty() {
                self.resend.remove(&extent.object);
            }
        }
    }

    /// Bytes arrived. Returns the offered extent when these were its last, or it was withdrawn.
    pub fn on_acked(&mut self, extent: Extent) -> Option<Extent> {
        self.forget_resends(extent);
        let offered = self.find(&extent)?;
        let new = offered.acked.insert(extent.offset..extent.end());
        offered.remaining -= new;
        let (whole, is_done) = (offered.extent, offered.remaining == 0 || offered.is_withdrawn);
        self.delivered_bytes += new;
        if !is_done {
            return None;
        }
        self.forget(whole);
        Some(whole)
    }

    /// Bytes must be sent again, unless another copy of them arrived.
    pub fn on_lost(&mut self, extent: Extent) {
        let Some(offered) = self.find(&extent) else { return };
        // What this offer has not sent yet it sends anyway; a packet of an earlier offer was lost.
        let mut missing = RangeSet::new();
        for gap in offered.acked.gaps(extent.offset..extent.end().min(offered.sent_to)) {
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
    use alloc::vec;

    use super::Order::{FreshFirst, Resends, ResendsFirst};
    use super::*;

    fn extent(offset: u64, len: u64) -> Extent {
        Extent { object: ObjectId(1), offset, len }
    }

    #[test]
    fn runs_stop_at_the_end_of_an_extent() {
        let mut outbox = Outbox::default();
        outbox.offer(extent(0, 2500));
        outbox.offer(extent(2500, 1000));
        let first = outbox.take(1000, 64, ResendsFirst).unwrap();
        assert_eq!((first.extent, first.packets), (extent(0, 2500), 3));
        outbox.take(1000, 64, ResendsFirst).unwrap();
        assert!(outbox.take(1000, 64, ResendsFirst).is_none());
        // Losses on both sides of the border merge in the queue but leave it apart.
        outbox.on_lost(extent(2000, 500));
        outbox.on_lost(extent(2500, 1000));
        assert_eq!(outbox.take(1000, 64, Resends).unwrap().extent, extent(2000, 500));
        assert_eq!(outbox.take(1000, 64, Resends).unwrap().extent, extent(2500, 1000));
        assert!(!outbox.has_resends());
    }

    #[test]
    fn lost_bytes_go_before_or_behind_new_ones() {
        let mut outbox = Outbox::default();
        outbox.offer(extent(0, 4000));
        outbox.offer(extent(4000, 1000));
        let take = |outbox: &mut Outbox, order| {
            let run = outbox.take(1000, 1, order).unwrap();
            (run.extent.offset, run.resent)
        };
        for offset in [0, 1000] {
            assert_eq!(take(&mut outbox, FreshFirst), (offset, false));
            outbox.on_lost(extent(offset, 1000));
            assert!(outbox.is_amid_extent());
        }
        assert_eq!(take(&mut outbox, ResendsFirst), (0, true));
        for offset in [2000, 3000] {
            assert_eq!(take(&mut outbox, FreshFirst), (offset, false));
        }
        assert!(!outbox.is_amid_extent());
        assert_eq!(take(&mut outbox, FreshFirst), (4000, false));
        assert_eq!(take(&mut outbox, FreshFirst), (1000, true), "nothing else is left");
    }

    #[test]
    fn what_is_lost_again_and_again_does_not_keep_back_the_rest() {
        let mut outbox = Outbox::default();
        for (object, offset) in [(1, 0), (1, 3000), (2, 0)] {
            outbox.offer(Extent { object: ObjectId(object), offset, len: 3000 });
            let sent = outbox.take(1000, 64, FreshFirst).unwrap();
            outbox.on_lost(sent.extent);
        }
        // Each is lost again at once.
        let mut sent = Vec::new();
        for _ in 0..7 {
            let run = outbox.take(1000, 2, Resends).unwrap();
            sent.push((run.extent.object.0, run.extent.offset, run.extent.len));
            outbox.on_lost(run.extent);
        }
        let round = [(1, 0, 2000), (1, 2000, 1000), (1, 3000, 2000), (1, 5000, 1000)];
        let last = [(2, 0, 2000), (2, 2000, 1000), (1, 0, 2000)];
        assert_eq!(sent, [&round[..], &last].concat());
    }

    #[test]
    fn what_late_copies_brought_is_not_sent() {
        let mut outbox = Outbox::default();
        outbox.offer(extent(0, 3000));
        outbox.take(1000, 64, FreshFirst);
        assert_eq!(outbox.on_acked(extent(0, 3000)), Some(extent(0, 3000)));
        // The peer asks for it again, and copies of before arrive meanwhile.
        outbox.offer(extent(0, 3000));
        outbox.offer(extent(3000, 1000));
        outbox.take(1000, 1, FreshFirst);
        assert_eq!(outbox.on_acked(extent(1000, 2000)), None);
        assert_eq!(outbox.on_acked(extent(0, 1000)), Some(extent(0, 3000)));
        assert!(!outbox.is_amid_extent());
        assert_eq!(outbox.backlog_bytes(), 1000);
        assert_eq!(outbox.take(1000, 64, FreshFirst).unwrap().extent, extent(3000, 1000));
        assert!(outbox.take(1000, 64, FreshFirst).is_none());
    }

    #[test]
    fn what_was_lost_of_an_earlier_offer_is_not_sent_beside_the_present_one() {
        let mut outbox = Outbox::default();
        outbox.offer(extent(0, 3000));
        outbox.take(1000, 64, FreshFirst);
        assert_eq!(outbox.on_acked(extent(0, 3000)), Some(extent(0, 3000)));
        // The peer asks for it again; a second copy of before is lost meanwhile.
        outbox.offer(extent(0, 3000));
        outbox.on_lost(extent(0, 3000));
        assert!(!outbox.has_resends());
        outbox.take(1000, 1, FreshFirst);
        outbox.on_lost(extent(0, 3000));
        assert_eq!(outbox.take(1000, 64, Resends).unwrap().extent, extent(0, 1000));
        assert_eq!(outbox.take(1000, 64, FreshFirst).unwrap().extent, extent(1000, 2000));
        assert_eq!(outbox.on_acked(extent(0, 3000)), Some(extent(0, 3000)));
        // Nor is anything left of it once it is withdrawn.
        outbox.offer(extent(0, 3000));
        outbox.on_lost(extent(0, 3000));
        assert_eq!(withdraw(&mut outbox, 1), [vec![extent(0, 3000)], vec![]]);
        assert!(!outbox.has_resends());
    }

    #[test]
    fn an_extent_is_delivered_once() {
        let mut outbox = Outbox::default();
        outbox.offer(extent(0, 3000));
        outbox.take(1000, 64, ResendsFirst);
        assert_eq!(outbox.on_acked(extent(0, 1000)), None);
        outbox.on_lost(extent(1000, 2000));
        // A late arrival of what was taken as lost stops the resend.
        assert_eq!(outbox.on_acked(extent(1000, 1000)), None);
        assert_eq!(outbox.delivered_bytes(), 2000);
        assert_eq!(outbox.on_acked(extent(0, 2000)), None);
        assert_eq!(outbox.delivered_bytes(), 2000, "a second report is no news");
        assert_eq!(outbox.take(1000, 64, Resends).unwrap().extent, extent(2000, 1000));
        assert_eq!(outbox.on_acked(extent(2000, 1000)), Some(extent(0, 3000)));
        assert_eq!(outbox.on_acked(extent(2000, 1000)), None);
        outbox.on_lost(extent(1000, 1000));
        assert_eq!(outbox.delivered_bytes(), 3000);
        assert!(outbox.undelivered() == 0 && !outbox.has_resends());
    }

    /// Extents of `object` that are done with: unsent ones, and those of which the peer has some.
    fn withdraw(outbox: &mut Outbox, object: u32) -> [Vec<Extent>; 2] {
        let [mut unsent, mut known] = [Vec::new(), Vec::new()];
        outbox.withdraw(ObjectId(object), |gone| match gone {
            Gone::Unsent(extent) => unsent.push(extent),
            Gone::Known(extent) => known.push(extent),
        });
        [unsent, known]
    }

    #[test]
    fn what_is_withdrawn_is_not_sent_and_delays_nobody() {
        let mut outbox = Outbox::default();
        let other = Extent { object: ObjectId(2), offset: 0, len: 700 };
        for offset in [0, 5000, 10_000] {
            outbox.offer(extent(offset, 5000));
        }
        outbox.offer(other);
        // All of the first is sent, and a part of the second.
        assert_eq!(outbox.take(1000, 5, ResendsFirst).unwrap().extent, extent(0, 5000));
        assert_eq!(outbox.take(1000, 2, ResendsFirst).unwrap().extent, extent(5000, 2000));
        assert_eq!(outbox.on_acked(extent(0, 1000)), None);
        outbox.on_lost(extent(1000, 2000));
        assert!(outbox.is_amid_extent());
        let [unsent, known] = withdraw(&mut outbox, 1);
        assert_eq!((unsent, known), (vec![extent(10_000, 5000)], vec![extent(0, 5000)]));
        assert!(!outbox.is_amid_extent(), "the rest of the second is gone");
        assert_eq!((outbox.backlog_bytes(), outbox.has_resends()), (700, false));
        assert_eq!(outbox.take(1000, 64, ResendsFirst).unwrap().extent, other);
        // What arrives or is lost of it later is nobody's business.
        assert_eq!(outbox.on_acked(extent(3000, 2000)), None);
        outbox.on_lost(extent(1000, 2000));
        assert!(!outbox.has_resends());
        assert_eq!(withdraw(&mut outbox, 1), [vec![], vec![]], "once more, it does nothing");
        assert_eq!(outbox.on_acked(other), Some(other));
        assert_eq!(outbox.undelivered(), 1, "nobody knows whether the peer has any of the second");
    }

    /// The peer counts a group when its first bytes come; one that was counted here and never comes
    /// would be missing in its account for ever.
    #[test]
    fn of_what_was_begun_some_arrives_and_the_rest_is_left_out() {
        let mut outbox = Outbox::default();
        outbox.offer(extent(0, 5000));
        outbox.take(1000, 3, ResendsFirst);
        outbox.on_lost(extent(0, 1000));
        assert_eq!(withdraw(&mut outbox, 1), [vec![], vec![]]);
        assert_eq!(outbox.backlog_bytes(), 0);
        outbox.on_lost(extent(1000, 2000));
        assert_eq!(outbox.take(1000, 1, Resends).unwrap().extent, extent(0, 1000));
        assert!(outbox.has_resends());
        assert_eq!(outbox.on_acked(extent(0, 1000)), Some(extent(0, 5000)));
        assert!(!outbox.has_resends() && outbox.undelivered() == 0);
        assert_eq!(outbox.delivered_bytes(), 1000);
    }
}
