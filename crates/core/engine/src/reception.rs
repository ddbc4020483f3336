//! Packets that arrived on a lane, and when to report them: replay filter and feedback schedule
//! (protocol.md 4.4, 5.4).

use alloc::collections::VecDeque;
use core::ops::Range;
use core::time::Duration;

use longhaul_rate_control::FeedbackSchedule;
use longhaul_units::{Ecn, EcnCounts, Instant, PacketNumber, RangeSet};
use longhaul_wire::Ranges;

/// Gaps that the set of received numbers may have (protocol.md 4.4).
const GAPS_MAX: usize = 4096;
/// Shortest time after which a report is brought on by the bytes that arrived.
const BULK_INTERVAL: Duration = Duration::from_micros(50);
/// IP-layer bytes that bring a report on early.
const BULK_BYTES: u64 = 512 << 10;
/// As [`BULK_BYTES`] at first, while the sender learns the rate of the path from the spread of a
/// train of packets.
const EARLY_BULK_BYTES: u64 = 16 << 10;
/// IP-layer bytes that count as the first.
const EARLY_BYTES: u64 = 512 << 10;
/// Reports behind time that are kept: of all that counts as the first.
const STEPS_MAX: usize = (EARLY_BYTES / EARLY_BULK_BYTES) as usize;
/// Received bytes pay for answers to ROUND_END, byte for byte, up to so many; a whole answer takes
/// less than [`ANSWER_BYTES`], however many gaps there are.
const PAID_MAX: u64 = 1 << 20;
/// With less than that in hand no other answer is begun.
const ANSWER_BYTES: u64 = 96 << 10;
/// So many ranges fit one report in any case.
const GAPS_FEW: usize = 32;
/// Interval until the peer has announced its round trip.
const INTERVAL_UNKNOWN: Duration = Duration::from_millis(2);

/// Packets of consecutive numbers that arrived together and authenticated, for the first time.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Their numbers; not empty.
    pub numbers: Range<u64>,
    /// When the last of them arrived, by the receiver's clock: kernel time stamp where there is one.
    pub at: Instant,
    /// Send time in the header of the last packet.
    pub send_time: u32,
    /// IP-layer bytes of all of them.
    pub wire_bytes: u64,
    /// The ECN codepoint that each of them carried.
    pub ecn: Ecn,
    /// The socket reported since the arrival before this one that its buffer had overflowed.
    pub overflowed: bool,
}

#[derive(Debug)]
pub(crate) struct Reception {
    schedule: FeedbackSchedule,
    received: RangeSet,
    /// Nothing below is accepted or reported.
    floor: u64,
    /// The floor was raised to there for want of room, not by the peer.
    forgotten: u64,
    pub largest: Option<Largest>,
    pub packets: u64,
    pub bytes: u64,
    pub ecn: EcnCounts,
    pub socket_drops: u64,
    pub host_drops: u64,
    /// Packets newly found missing that the socket did not drop.
    unexplained: u64,
    /// The peer's smoothed RTT, from STATE.
    peer_round_trip: Option<Duration>,
    /// Reports that would have gone each [`EARLY_BULK_BYTES`], had there been time: a host that reads
    /// a train late, and all of it at once, still reports how fast it came.
    steps: VecDeque<Tally>,
    unreported_bytes: u64,
    /// Of these, what came behind the newest step.
    unreported_step: u64,
    unreported: bool,
    urgent: bool,
    last_report: Option<Instant>,
    /// Where the next rotating section begins, and where the rotation ends that it belongs to: what
    /// came since that began does not keep it from coming back to the floor.
    rotation: u64,
    rotation_end: u64,
    report_newest: bool,
    /// A round ended there: everything below is to be reported, in as many frames as it takes and are
    /// paid for.
    report_until: Option<u64>,
    /// Bytes of such frames that are.
    paid: u64,
}

/// All that had arrived when the packet `largest` came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub largest: Largest,
    pub packets: u64,
    pub bytes: u64,
    pub ecn: EcnCounts,
}

/// The highest number received, with what RTT and rate are computed from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Largest {
    pub number: u64,
    pub send_time: u32,
    pub at: Instant,
}

impl Reception {
    pub fn peer_round_trip(&self) -> Option<Duration> {
        self.peer_round_trip
    }

    /// Nothing has arrived; reports are due as `schedule` says.
    pub fn new(schedule: FeedbackSchedule) -> Self {
        Self {
            schedule,
            received: RangeSet::new(),
            floor: 0,
            forgotten: 0,
            largest: None,
            packets: 0,
            bytes: 0,
            ecn: EcnCounts::ZERO,
            socket_drops: 0,
            host_drops: 0,
            unexplained: 0,
            peer_round_trip: None,
            steps: VecDeque::new(),
            unreported_bytes: 0,
            unreported_step: 0,
            unreported: false,
            urgent: false,
            last_report: None,
            rotation: 0,
            rotation_end: 0,
            report_newest: true,
            report_until: None,
            paid: 0,
        }
    }

    /// True if a packet with this number may be opened: its epoch is the current one or a
    /// neighbour, and it is no replay.
    pub fn accepts(&self, number: u64) -> bool {
        let epoch = PacketNumber::new(number).epoch();
        let current = self.largest.map_or(0, |l| PacketNumber::new(l.number).epoch());
        epoch.abs_diff(current) <= 1 && number >= self.floor && !self.received.contains(number)
    }

    /// Notes packets that authenticated. `eliciting`: they ask to be reported.
    pub fn on_arrival(&mut self, arrival: &Arrival, eliciting: bool) {
        let Range { start, end } = arrival.numbers.clone();
        let expected = self.received.last().map_or(self.floor, |last| last.end);
        let same_epoch =
            PacketNumber::new(start).epoch() == PacketNumber::new(expected.max(1) - 1).epoch();
        if start > expected && same_epoch {
            // The first loss after none is worth an early report; while losses go on the
            // regular ones tell it soon enough.
            self.urgent |= eliciting && self.received.range_count() <= 1;
            match arrival.overflowed {
                true => self.socket_drops += start - expected,
                false => self.unexplained += start - expected,
            }
        }
        let new = self.received.insert(start..end);
        if start < expected {
            self.unexplained = self.unexplained.saturating_sub(new);
        }
        self.packets += new;
        self.bytes += arrival.wire_bytes;
        self.paid = (self.paid + arrival.wire_bytes).min(PAID_MAX);
        self.ecn.add(arrival.ecn, new);
        if self.largest.is_none_or(|largest| end - 1 > largest.number) {
            self.largest =
                Some(Largest { number: end - 1, send_time: arrival.send_time, at: arrival.at });
        }
        if eliciting {
            self.unreported = true;
            self.unreported_bytes += arrival.wire_bytes;
            self.unreported_step += arrival.wire_bytes;
        }
        if self.unreported_step >= EARLY_BULK_BYTES && self.bytes < EARLY_BYTES {
            self.unreported_step = 0;
            self.steps.extend(self.arrived().filter(|_| self.steps.len() < STEPS_MAX));
        }
        if self.received.range_count() > GAPS_MAX
            && let Some(first) = self.received.first()
        {
            self.forgotten = first.end;
            self.settle_below(first.end);
        }
    }

    /// All that has arrived, if anything has.
    pub fn arrived(&self) -> Option<Tally> {
        let (packets, bytes, ecn) = (self.packets, self.bytes, self.ecn);
        self.largest.map(|largest| Tally { largest, packets, bytes, ecn })
    }

    /// The oldest step that is to be reported before all that has arrived.
    pub fn take_step(&mut self) -> Option<Tally> {
        self.steps.pop_front().filter(|step| step.packets < self.packets)
    }

    /// The packet numbers for a report of `step`, if they have room in `buffer`.
    pub fn report_step<'b>(&self, step: &Tally, buffer: &'b mut [u8]) -> Option<Ranges<'b>> {
        let span = self.floor..step.largest.number + 1;
        let ranges = Ranges::lowest(buffer, span.clone(), self.received.iter());
        (ranges.to() == span.end).then_some(ranges)
    }

    /// Nothing is known of numbers below any more, although the peer wants to know it.
    pub fn forgotten(&self) -> Option<u64> {
        (self.forgotten > 0 && self.forgotten == self.floor).then_some(self.forgotten)
    }

    /// The peer's STATE: nothing below `floor` matters any more.
    pub fn on_state(&mut self, floor: u64, round_trip: Option<Duration>) {
        // A floor above what was ever received would reject packets in flight; those
        // can only be numbers that the peer has already settled, so it is taken as it stands,
        // but never beyond the next epoch's start.
        self.settle_below(floor);
        if round_trip.is_some() {
            self.peer_round_trip = round_trip;
        }
    }

    fn settle_below(&mut self, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            self.received.remove_below(floor);
        }
    }

    /// Packets found missing since the last call, and not because of the socket.
    pub fn take_unexplained(&mut self) -> u64 {
        core::mem::take(&mut self.unexplained)
    }

    /// A report is wanted at once.
    pub fn request_report(&mut self) {
        self.unreported = true;
        self.urgent = true;
    }

    /// The peer's ROUND_END: rotating reports begin again at the floor, and go on until they come to
    /// `end`. Where that was asked for so often that nothing pays for it any more, the question brings one
    /// report in its time, which goes on where the last one left: answers come more slowly, and whole.
    pub fn on_round_end(&mut self, end: u64) {
        if self.paid < ANSWER_BYTES && self.received.range_count() > GAPS_FEW {
            self.unreported = true;
            return;
        }
        self.report_until = Some(end);
        self.rotation = self.floor;
        self.rotation_end = self.end();
        self.request_report();
    }

    fn interval(&self) -> Duration {
        self.peer_round_trip.map_or(INTERVAL_UNKNOWN, |rtt| self.schedule.interval(rtt))
    }

    /// When the next report is due, if anything is to be reported.
    pub fn report_due(&self) -> Option<Instant> {
        if !self.unreported {
            return None;
        }
        let Some(last) = self.last_report else { return Some(Instant::ZERO) };
        let bulk = if self.bytes < EARLY_BYTES { EARLY_BULK_BYTES } else { BULK_BYTES };
        Some(if self.urgent || self.unreported_bytes >= bulk {
            last + BULK_INTERVAL
        } else {
            last + self.interval()
        })
    }

    /// The packet numbers for the next report, in the room of `buffer`: everything above the
    /// floor if it fits, else the newest numbers and rotating older ones in turn.
    pub fn report<'b>(&mut self, buffer: &'b mut [u8]) -> Ranges<'b> {
        let span = self.floor..self.end();
        let all = Ranges::lowest(buffer, span.clone(), self.received.iter());
        if all.to() == span.end {
            (self.rotation, self.rotation_end) = (span.end, span.end);
            return Ranges::lowest(buffer, span, self.received.iter());
        }
        self.report_newest = !self.report_newest;
        if self.report_newest {
            return Ranges::highest(buffer, span, self.received.iter().rev());
        }
        if !(span.start..self.rotation_end).contains(&self.rotation) {
            (self.rotation, self.rotation_end) = (span.start, span.end);
        }
        let start = self.rotation;
        let part = Ranges::lowest(buffer, start..span.end, self.received.iter_from(start));
        self.rotation = part.to();
        part
    }

    /// One past the highest number received.
    pub fn end(&self) -> u64 {
        self.received.last().map_or(self.floor, |last| last.end)
    }

    /// True if the rotating reports have come to `end`.
    fn reported_to(&self, end: u64) -> bool {
        self.rotation >= end.min(self.end())
    }

    /// A report of so many bytes went out.
    pub fn on_report(&mut self, now: Instant, bytes: usize) {
        self.last_report = Some(now);
        self.unreported = false;
        self.unreported_bytes = 0;
        self.unreported_step = 0;
        self.steps.clear();
        self.urgent = false;
        if self.report_until.is_some() {
            self.paid = self.paid.saturating_sub(bytes as u64);
        }
        self.report_until =
            self.report_until.filter(|end| self.paid > 0 && !self.reported_to(*end));
        if self.report_until.is_some() {
            self.request_report();
        }
    }

    /// Entries of memory in use.
    pub fn range_count(&self) -> usize {
        self.received.range_count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn arrival(numbers: Range<u64>) -> Arrival {
        let wire_bytes = (numbers.end - numbers.start) * 1500;
        Arrival {
            numbers,
            at: Instant::ZERO,
            send_time: 0,
            wire_bytes,
            ecn: Ecn::Ect0,
            overflowed: false,
        }
    }

    #[test]
    fn replays_and_settled_numbers_are_refused() {
        let mut reception = Reception::new(FeedbackSchedule::USUAL);
        reception.on_arrival(&arrival(0..10), true);
        assert!(!reception.accepts(3) && reception.accepts(10));
        reception.on_state(20, None);
        assert!(!reception.accepts(15) && reception.accepts(20));
        assert!(!reception.accepts(2 << 48) && reception.accepts(1 << 48));
    }

    #[test]
    fn the_next_epoch_is_no_gap() {
        let mut reception = Reception::new(FeedbackSchedule::USUAL);
        reception.on_arrival(&arrival(0..10), true);
        reception.on_report(Instant::ZERO, 100);
        let mut first = arrival(1 << 48..(1 << 48) + 2);
        first.overflowed = true;
        reception.on_arrival(&first, true);
        assert_eq!(reception.socket_drops, 0);
        assert!(reception.report_due() > Some(Instant::ZERO + BULK_INTERVAL));
    }

    #[test]
    fn a_gap_that_the_socket_made_is_kept_apart() {
        let mut reception = Reception::new(FeedbackSchedule::USUAL);
        reception.on_arrival(&arrival(0..10), true);
        let mut after = arrival(15..20);
        after.overflowed = true;
        reception.on_arrival(&after, true);
        assert_eq!(reception.socket_drops, 5);
    }

    #[test]
    fn gaps_that_the_socket_did_not_make_ask_for_an_explanation() {
        let mut reception = Reception::new(FeedbackSchedule::USUAL);
        reception.on_arrival(&arrival(0..10), true);
        let mut dropped = arrival(12..20);
        dropped.overflowed = true;
        reception.on_arrival(&dropped, true);
        assert_eq!(reception.take_unexplained(), 0);
        reception.on_arrival(&arrival(25..30), true);
        reception.on_arrival(&arrival(22..24), true);
        assert_eq!(reception.take_unexplained(), 3, "two were only late");
        assert_eq!(reception.take_unexplained(), 0);
    }

    #[test]
    fn reports_alternate_when_gaps_do_not_fit() {
        let mut reception = Reception::new(FeedbackSchedule::USUAL);
        for i in 0..20 {
            reception.on_arrival(&arrival(i * 10..i * 10 + 5), true);
        }
        let mut buffer = [0; 16];
        let spans: Vec<_> = (0..6)
            .map(|_| {
                let part = reception.report(&mut buffer);
                part.from()..part.to()
            })
            .collect();
        // Seven or eight ranges of two bytes fit each time.
        assert_eq!(spans[0], 0..75);
        assert_eq!(spans[2].start, 75);
        assert_eq!(spans[4].end, 195);
        assert!(spans[1] == spans[3] && spans[1].end == 195);
        let mut buffer = [0; 64];
        let whole = reception.report(&mut buffer);
        assert_eq!((whole.from(), whole.to()), (0, 195));
        assert!(reception.reported_to(195));
    }

    #[test]
    fn old_numbers_are_reported_again_and_again_while_new_ones_arrive() {
        // A few ranges more than fit a report: the newest of them leave out the oldest.
        let mut reception = Reception::new(FeedbackSchedule::USUAL);
        for i in 0..10 {
            reception.on_arrival(&arrival(i * 10..i * 10 + 5), true);
        }
        let mut buffer = [0; 16];
        let mut reports = 0;
        for number in 95..195 {
            reception.on_arrival(&arrival(number..number + 1), true);
            reports += u32::from(reception.report(&mut buffer).from() == 0);
        }
        assert!(reports >= 20, "{reports} of 100 reports have the oldest numbers");
    }

    /// Asks as often, with a packet of 66 bytes each time, and reads all that comes of it. Returns
    /// bytes that went out, and which numbers the answers covered.
    fn ask(reception: &mut Reception, questions: u64, first: u64) -> (usize, RangeSet) {
        let (mut buffer, mut bytes, mut covered) = ([0; 1024], 0, RangeSet::new());
        let (mut now, mut number) = (Instant::ZERO, first);
        for _ in 0..questions {
            number += 1;
            let mut packet = arrival(number..number + 1);
            packet.wire_bytes = 66;
            reception.on_arrival(&packet, true);
            reception.on_round_end(number);
            while let Some(due) = reception.report_due() {
                now = now.max(due);
                let ranges = reception.report(&mut buffer);
                covered.insert(ranges.from()..ranges.to());
                // Headers, and the fields of the frame.
                let len = 1024 + 128;
                bytes += len;
                reception.on_report(now, len);
            }
        }
        (bytes, covered)
    }

    /// As many gaps as there may be, of packets of that size.
    fn gappy(wire_bytes: u64) -> Reception {
        let mut reception = Reception::new(FeedbackSchedule::USUAL);
        for i in 0..GAPS_MAX as u64 - 8 {
            let mut packet = arrival(i * 100..i * 100 + 1);
            packet.wire_bytes = wire_bytes;
            reception.on_arrival(&packet, true);
        }
        reception
    }

    #[test]
    fn who_asks_again_and_again_gets_no_more_than_it_sent_and_one_report_for_each_question() {
        for wire_bytes in [40, 1500] {
            let mut reception = gappy(wire_bytes);
            let questions = 10_000;
            let (bytes, _) = ask(&mut reception, questions, GAPS_MAX as u64 * 100);
            let sent = reception.bytes.min(PAID_MAX + questions * 66);
            let most = sent as usize + questions as usize * (1024 + 128);
            assert!(bytes < most, "{bytes} of {most}");
        }
    }

    #[test]
    fn a_round_is_reported_whole_also_when_nothing_pays_for_it_any_more() {
        let mut reception = gappy(1500);
        let end = GAPS_MAX as u64 * 100;
        assert!(ask(&mut reception, 1, end).1.contains_range(&(0..end)), "one question is enough");
        ask(&mut reception, 1_000, end + 1);
        assert!(reception.paid < ANSWER_BYTES);
        let (_, covered) = ask(&mut reception, 200, end + 2_000);
        assert!(covered.contains_range(&(0..end)));
    }

    #[test]
    fn gaps_are_bounded() {
        let mut reception = Reception::new(FeedbackSchedule::USUAL);
        for i in 0..3 * GAPS_MAX as u64 {
            reception.on_arrival(&arrival(i * 2..i * 2 + 1), true);
        }
        assert!(reception.range_count() <= GAPS_MAX);
        let forgotten = reception.forgotten().expect("more gaps than are remembered");
        let mut buffer = [0; 64];
        assert_eq!(reception.report(&mut buffer).from(), forgotten, "it begins with what is known");
        reception.on_state(forgotten + 1, None);
        assert_eq!(reception.forgotten(), None, "the peer knows better");
        assert!(!reception.accepts(1));
    }
}
