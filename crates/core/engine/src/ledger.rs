//! Packets sent and not yet settled: one [`Entry`] for up to 64 packets of consecutive numbers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::{Cause, Extent, Instant, Losses, ObjectId};

use crate::control::SentFrame;

/// Packets that one entry can hold: the bits of its masks.
pub(crate) const ENTRY_PACKETS: u64 = 64;

#[derive(Debug)]
pub(crate) struct Entry {
    /// Number of the first packet.
    pub first: u64,
    pub count: u8,
    /// Bit i: packet `first + i` was reported received.
    pub acked: u64,
    /// Bit i: packet `first + i` was taken as lost. May later be acked too.
    pub lost: u64,
    pub sent_at: Instant,
    /// IP-layer bytes of each packet but the last.
    pub wire_bytes: u32,
    /// IP-layer bytes of the last packet.
    pub last_wire_bytes: u32,
    /// The first might have left earlier: this host was busy elsewhere.
    pub late: bool,
    /// They left with ECT(0).
    pub ect: bool,
    /// Why packets of it that are missing were lost, where they will be taken as lost later.
    pub why: Option<Why>,
    pub content: Content,
}

/// Causes of lost packets, from when they were found missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Why {
    /// So many, by the receiver's word.
    socket: u8,
    host: u8,
    /// Of the others.
    path: Cause,
}

impl Why {
    pub fn new(causes: &Losses) -> Self {
        let few = |packets: u64| packets.min(ENTRY_PACKETS) as u8;
        let Losses { congestion, random, socket, host, .. } = *causes;
        let path = match (congestion, random) {
            (0, 0) => Cause::Unknown,
            (0, _) => Cause::Random,
            _ => Cause::Congestion,
        };
        Self { socket: few(socket), host: few(host), path }
    }

    /// The causes of `packets` of these.
    pub fn of(self, packets: u64) -> Losses {
        let socket = packets.min(self.socket.into());
        let host = (packets - socket).min(self.host.into());
        let mut causes = Losses { socket, host, ..Losses::default() };
        *causes.count_mut(self.path) += packets - socket - host;
        causes
    }
}

/// Judgement of packets that a report shows as missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// They may still come.
    Open,
    /// They will not come, and count as lost later.
    Missing,
    Lost,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// Bytes of an object: `payload` in each packet, fewer in the last.
    Object { object: ObjectId, offset: u64, payload: u16, end: u64 },
    /// Frames to be repeated when lost; one packet.
    Control(Vec<SentFrame>),
    /// A path MTU probe of this many bytes of UDP payload; its loss means nothing else.
    Probe(u16),
}

impl Entry {
    /// True where any packet of `bits` has so many IP-layer bytes, or more.
    pub fn has_of(&self, bits: u64, least: u64) -> bool {
        let last = bits >> (self.count - 1) & 1 != 0;
        let whole = bits & mask(0, u64::from(self.count) - 1) != 0;
        whole && u64::from(self.wire_bytes) >= least
            || last && u64::from(self.last_wire_bytes) >= least
    }

    pub fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    fn all(&self) -> u64 {
        mask(0, u64::from(self.count))
    }

    fn is_settled(&self) -> bool {
        self.acked | self.lost == self.all()
    }

    /// Nothing that is still to come can matter: all arrived, or it was lost before `horizon`.
    fn is_over(&self, horizon: Instant) -> bool {
        self.is_settled() && (self.acked == self.all() || self.sent_at < horizon)
    }

    /// Leaves the first `packets`, fewer than there are.
    fn cut_to(&mut self, packets: u64) {
        self.count = packets as u8;
        self.last_wire_bytes = self.wire_bytes;
        if let Content::Object { offset, payload, end, .. } = &mut self.content {
            *end = *offset + packets * u64::from(*payload);
        }
    }

    fn bits(&self, numbers: &Range<u64>) -> u64 {
        let start = numbers.start.max(self.first) - self.first;
        let end = numbers.end.min(self.end()).saturating_sub(self.first);
        if start >= end { 0 } else { mask(start, end) }
    }

    /// IP-layer bytes of the packets in `bits`.
    pub fn bytes_of(&self, bits: u64) -> u64 {
        let last = bits >> (self.count - 1) & 1;
        (u64::from(bits.count_ones()) - last) * u64::from(self.wire_bytes)
            + last * u64::from(self.last_wire_bytes)
    }

    /// Object bytes held by the packets in `bits`, ascending; nothing for other content.
    pub fn extents_of(&self, bits: u64) -> impl Iterator<Item = Extent> + use<> {
        let (object, base, payload, limit) = match self.content {
            Content::Object { object, offset, payload, end } => {
                (object, offset, u64::from(payload), end)
            }
            _ => (ObjectId(0), 0, 0, 0),
        };
        let mut left = if limit == 0 { 0 } else { bits };
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let start = u64::from(left.trailing_zeros());
            let run = u64::from((left >> start).trailing_ones());
            left &= !mask(start, start + run);
            let offset = base + start * payload;
            let end = (base + (start + run) * payload).min(limit);
            Some(Extent { object, offset, len: end - offset })
        })
    }
}

/// Bits `start..end`, at most 64.
fn mask(start: u64, end: u64) -> u64 {
    let below = |n: u64| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    below(end) & !below(start)
}

/// Outcome of a report for the packets of one entry.
pub(crate) struct Outcome<'a> {
    pub entry: &'a mut Entry,
    /// Newly reported received, and not taken as lost before.
    pub acked: u64,
    /// Newly reported received although they had been taken as lost.
    pub spurious: u64,
    /// Newly taken as lost.
    pub lost: u64,
    /// Found missing for the first time, to be taken as lost later.
    pub missing: u64,
}

/// A FEEDBACK frame's statement about packet numbers.
pub(crate) struct Report<R> {
    pub covered: Range<u64>,
    /// Received numbers within `covered`, ascending and disjoint.
    pub received: R,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: VecDeque<Entry>,
    /// Entries that were left when settled ones were last taken out of the middle.
    left: usize,
}

impl Ledger {
    /// Adds an entry; its numbers are above all others.
    pub fn push(&mut self, entry: Entry) {
        debug_assert!(u64::from(entry.count) <= ENTRY_PACKETS && entry.count > 0);
        debug_assert!(self.entries.back().is_none_or(|last| last.end() <= entry.first));
        self.entries.push_back(entry);
    }

    /// Lowest number not settled, if any.
    pub fn floor(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.first)
    }

    /// Number of entries, for memory accounting.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// When the packet `number` was sent, or the last before it that is tracked.
    pub fn sent_by(&self, number: u64) -> Option<Instant> {
        let after = self.entries.partition_point(|entry| entry.first <= number);
        self.entries.get(after.checked_sub(1)?).map(|entry| entry.sent_at)
    }

    /// Applies `report`: packets received are acked, and packets missing are what `verdict`
    /// says of their entry. `outcome` sees every entry that changed.
    pub fn apply(
        &mut self,
        report: Report<impl Iterator<Item = Range<u64>>>,
        verdict: impl Fn(&Entry) -> Verdict,
        mut outcome: impl FnMut(Outcome<'_>),
    ) {
        let Report { covered, received } = report;
        let mut received = received.peekable();
        let start = self.entries.partition_point(|entry| entry.end() <= covered.start);
        for entry in self.entries.range_mut(start..) {
            if entry.first >= covered.end {
                break;
            }
            let mut arrived = 0;
            while let Some(range) = received.peek() {
                if range.start >= entry.end() {
                    break;
                }
                arrived |= entry.bits(range);
                if range.end > entry.end() {
                    break;
                }
                received.next();
            }
            let new = arrived & !entry.acked;
            let spurious = new & entry.lost;
            entry.acked |= new;
            let (mut lost, mut missing) = (0, 0);
            if entry.acked | entry.lost != entry.all() {
                let open = entry.bits(&covered) & !entry.acked & !entry.lost;
                match verdict(entry) {
                    Verdict::Lost => (lost, entry.lost) = (open, entry.lost | open),
                    Verdict::Missing if entry.why.is_none() => missing = open,
                    Verdict::Missing | Verdict::Open => {}
                }
            }
            if new | lost | missing != 0 {
                outcome(Outcome { entry, acked: new & !spurious, spurious, lost, missing });
            }
        }
    }

    /// Forgets the packets from number `from` on, which are the last: they never left. `taken` sees
    /// them, newest entry first.
    pub fn take_back(&mut self, from: u64, mut taken: impl FnMut(&Entry, u64)) {
        while let Some(last) = self.entries.back_mut().filter(|last| last.end() > from) {
            let bits = last.bits(&(from..last.end()));
            taken(last, bits);
            let kept = from.saturating_sub(last.first);
            if kept == 0 {
                self.entries.pop_back();
            } else {
                last.cut_to(kept);
            }
        }
    }

    /// Forgets settled entries at the front, and elsewhere where there are many: all packets acked, or
    /// lost and sent before `horizon`, so that a late arrival can still be recognised for a while, if
    /// there are not too many.
    pub fn forget(&mut self, horizon: Instant) {
        while let Some(entry) = self.entries.front() {
            let is_over =
                entry.is_over(horizon) || self.entries.len() > LOST_KEPT_MAX && entry.is_settled();
            if !is_over {
                break;
            }
            self.entries.pop_front();
        }
        // Where losses are judged at the end of a round, the first of them holds all behind it.
        if self.entries.len() > 2 * self.left.max(LOST_KEPT_MAX) {
            self.entries.retain(|entry| !entry.is_over(horizon));
            self.left = self.entries.len();
        }
    }

    /// IP-layer bytes of packets from number `from` on that are neither acked nor lost, probes left
    /// out.
    pub fn unsettled_bytes(&self, from: u64) -> u64 {
        let counted = self.entries.iter().rev().take_while(|entry| entry.first >= from);
        let counted = counted.filter(|entry| !matches!(entry.content, Content::Probe(_)));
        counted.map(|entry| entry.bytes_of(entry.all() & !entry.acked & !entry.lost)).sum()
    }

    /// True if any packet is neither acked nor lost.
    pub fn has_unsettled(&self) -> bool {
        self.entries.iter().rev().any(|entry| entry.acked | entry.lost != entry.all())
    }

    /// True if an OBJECT packet is neither acked nor lost.
    pub fn has_unsettled_objects(&self) -> bool {
        self.has_unsettled_objects_below(u64::MAX)
    }

    /// True if an OBJECT packet below `end` is neither acked nor lost.
    pub fn has_unsettled_objects_below(&self, end: u64) -> bool {
        self.entries.iter().take_while(|entry| entry.first < end).any(|entry| {
            matches!(entry.content, Content::Object { .. })
                && entry.acked | entry.lost != entry.all()
        })
    }
}

/// Entries up to which lost packets are kept. A sender of far more than the path carries, as `fixed` may
/// be set to, loses more in two round trips than is worth any memory.
const LOST_KEPT_MAX: usize = 8_192;

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, not of numbers")]
mod tests {
    use super::*;
    use alloc::vec;
    use core::time::Duration;

    fn object_entry(first: u64, count: u8, at_ms: u64) -> Entry {
        let offset = first * 1000;
        Entry {
            first,
            count,
            acked: 0,
            lost: 0,
            sent_at: Instant::ZERO + Duration::from_millis(at_ms),
            wire_bytes: 1100,
            last_wire_bytes: 600,
            late: false,
            ect: false,
            why: None,
            content: Content::Object {
                object: ObjectId(7),
                offset,
                payload: 1000,
                end: offset + (u64::from(count) - 1) * 1000 + 500,
            },
        }
    }

    fn apply(
        ledger: &mut Ledger,
        covered: Range<u64>,
        received: Vec<Range<u64>>,
        lost_before_ms: u64,
    ) -> (u64, u64, Vec<Extent>) {
        let (mut acked, mut spurious, mut lost) = (0, 0, vec![]);
        let horizon = Instant::ZERO + Duration::from_millis(lost_before_ms);
        ledger.apply(
            Report { covered, received: received.into_iter() },
            |entry| if entry.sent_at < horizon { Verdict::Lost } else { Verdict::Open },
            |o| {
                acked += o.entry.bytes_of(o.acked);
                spurious += u64::from(o.spurious.count_ones());
                lost.extend(o.entry.extents_of(o.lost));
            },
        );
        (acked, spurious, lost)
    }

    #[test]
    fn what_counts_as_lost_later_is_found_missing_once() {
        let mut ledger = Ledger::default();
        ledger.push(object_entry(0, 4, 0));
        let mut look = |verdict| {
            let (mut missing, mut lost) = (0, 0);
            let report = Report { covered: 0..4, received: [0..1].into_iter() };
            ledger.apply(
                report,
                |_| verdict,
                |o| {
                    (missing, lost) = (o.missing, o.lost);
                    if o.missing != 0 {
                        o.entry.why = Some(Why::new(&Losses { random: 3, ..Losses::default() }));
                    }
                },
            );
            (missing, lost)
        };
        assert_eq!(look(Verdict::Open), (0, 0));
        assert_eq!(look(Verdict::Missing), (0b1110, 0));
        assert_eq!(look(Verdict::Missing), (0, 0));
        assert_eq!(look(Verdict::Lost), (0, 0b1110));
    }

    #[test]
    fn few_of_several_causes_are_the_receivers_first() {
        let why = Why::new(&Losses { socket: 2, host: 1, random: 3, ..Losses::default() });
        assert_eq!(why.of(2), Losses { socket: 2, ..Losses::default() });
        let all = Losses { socket: 2, host: 1, random: 4, ..Losses::default() };
        assert_eq!(why.of(7), all);
    }

    #[test]
    fn whole_entries_settle_and_are_forgotten() {
        let mut ledger = Ledger::default();
        ledger.push(object_entry(0, 64, 0));
        ledger.push(object_entry(64, 10, 1));
        let (acked, _, lost) = apply(&mut ledger, 0..74, vec![0..74], 0);
        assert_eq!(acked, 72 * 1100 + 2 * 600);
        assert!(lost.is_empty());
        ledger.forget(Instant::ZERO);
        assert_eq!(ledger.len(), 0);
    }

    /// `rbudp` knows the fate of a packet at the end of its round: with one that was lost first, all of
    /// a round was remembered, however long.
    #[test]
    fn one_unsettled_packet_does_not_hold_all_behind_it() {
        let mut ledger = Ledger::default();
        for first in 0..100_000 {
            ledger.push(object_entry(first, 1, first));
            if first > 0 {
                apply(&mut ledger, first..first + 1, vec![first..first + 1], 0);
            }
            ledger.forget(Instant::ZERO);
            assert!(ledger.len() <= 2 * LOST_KEPT_MAX);
        }
        assert_eq!((ledger.floor(), ledger.unsettled_bytes(0)), (Some(0), 600));
        let (_, _, lost) = apply(&mut ledger, 0..100_000, vec![1..100_000], u64::MAX / 1_000_000);
        assert_eq!(lost.len(), 1);
        ledger.forget(Instant::FAR_FUTURE);
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn numbers_that_are_not_tracked_were_sent_behind_those_before() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.sent_by(5), None);
        ledger.push(object_entry(2, 3, 7));
        ledger.push(object_entry(8, 2, 9));
        let times = [1, 2, 4, 7, 8, 20].map(|number| ledger.sent_by(number));
        let at = |ms| Some(Instant::ZERO + Duration::from_millis(ms));
        assert_eq!(times, [None, at(7), at(7), at(7), at(9), at(9)]);
    }

    #[test]
    fn holes_are_lost_only_when_old_enough_and_covered() {
        let mut ledger = Ledger::default();
        ledger.push(object_entry(0, 10, 0));
        ledger.push(object_entry(10, 10, 5));
        let (_, _, lost) = apply(&mut ledger, 0..20, vec![0..3, 5..9, 12..20], 3);
        assert_eq!(
            lost,
            [
                Extent { object: ObjectId(7), offset: 3000, len: 2000 },
                Extent { object: ObjectId(7), offset: 9000, len: 500 },
            ]
        );
        // Not covered by the report: nothing is known of 0..2.
        ledger.push(object_entry(20, 10, 6));
        let (_, _, lost) = apply(&mut ledger, 11..30, vec![12..30], 100);
        assert_eq!(lost, [Extent { object: ObjectId(7), offset: 11_000, len: 1000 }]);
        assert!(ledger.has_unsettled_objects_below(11));
    }

    #[test]
    fn what_never_left_is_taken_back_whole_or_in_part() {
        let mut ledger = Ledger::default();
        ledger.push(object_entry(0, 10, 0));
        ledger.push(object_entry(10, 10, 0));
        ledger.push(object_entry(20, 5, 0));
        let mut extents = vec![];
        let mut bytes = 0;
        ledger.take_back(13, |entry, packets| {
            bytes += entry.bytes_of(packets);
            extents.extend(entry.extents_of(packets));
        });
        let extent = |offset, len| Extent { object: ObjectId(7), offset, len };
        assert_eq!(extents, [extent(20_000, 4_500), extent(13_000, 6_500)]);
        assert_eq!(bytes, 4 * 1_100 + 600 + 6 * 1_100 + 600);
        assert_eq!((ledger.len(), ledger.unsettled_bytes(0)), (2, 9 * 1_100 + 600 + 3 * 1_100));
        // Numbers go on behind those that never left, which nothing is known of.
        ledger.push(object_entry(25, 5, 0));
        let (acked, _, lost) = apply(&mut ledger, 0..30, vec![0..30], 1);
        assert_eq!((acked, lost), (9 * 1_100 + 600 + 3 * 1_100 + 4 * 1_100 + 600, vec![]));
        ledger.forget(Instant::ZERO);
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn late_arrivals_are_spurious_losses() {
        let mut ledger = Ledger::default();
        ledger.push(object_entry(0, 4, 0));
        let (_, _, lost) = apply(&mut ledger, 0..4, vec![0..1, 2..4], 1);
        assert_eq!(lost.len(), 1);
        let (acked, spurious, _) = apply(&mut ledger, 0..4, vec![0..4], 1);
        assert_eq!((acked, spurious), (0, 1));
    }

    #[test]
    fn lost_entries_wait_for_the_horizon() {
        let mut ledger = Ledger::default();
        ledger.push(object_entry(0, 2, 0));
        apply(&mut ledger, 0..2, vec![1..2], 1);
        ledger.forget(Instant::ZERO);
        assert_eq!(ledger.len(), 1);
        ledger.forget(Instant::ZERO + Duration::from_millis(1));
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn of_many_lost_packets_only_some_are_kept() {
        let mut ledger = Ledger::default();
        let most = LOST_KEPT_MAX as u64;
        let lost = |ledger: &mut Ledger, numbers: Range<u64>| {
            numbers.clone().for_each(|number| ledger.push(object_entry(number, 1, 0)));
            apply(ledger, numbers, Vec::new(), 1);
            ledger.forget(Instant::ZERO);
        };
        lost(&mut ledger, 0..most);
        assert_eq!((ledger.len() as u64, ledger.floor()), (most, Some(0)));
        lost(&mut ledger, most..most + 9);
        assert_eq!((ledger.len() as u64, ledger.floor()), (most, Some(9)), "the oldest go");
    }
}
