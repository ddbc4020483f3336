//! FEEDBACK from the peer: what arrived, what is lost, how fast the path is.

use longhaul_rate_control::{Delivery, DeliveryMeter, DeliveryReport, Feedback as Sample};
use longhaul_units::{Duration, Instant, PacketNumber};
use longhaul_wire::{BASE_DATAGRAM, Feedback};

use super::receive::Fault;
use super::settle::{Elsewhere, OfBase, Settled, Settling};
use super::{IPV4_UDP_HEADERS, IPV6_UDP_HEADERS, Lane, Path};
use crate::lane_paths::Arrived;
use crate::ledger::{Content, Report, Verdict};
use crate::stats::LaneStats;

impl Lane {
    pub(super) fn on_feedback(
        &mut self,
        now: Instant,
        arrived: Instant,
        path: &mut Path,
        feedback: &Feedback<'_>,
    ) -> Result<(), Fault> {
        self.check_report(feedback)?;
        let largest = feedback.largest.get();
        self.stats.feedback_received += 1;
        self.peer.on_feedback(now, feedback);
        self.stats.bytes_delivered = self.stats.bytes_delivered.max(feedback.bytes.get());
        self.stats.marked = self.stats.marked.max(feedback.ecn.ce);
        let newest = self.reported_largest.is_none_or(|reported| largest > reported);
        // Packets sent on another path count as acked or lost, but give no RTT sample.
        let news = newest && largest >= self.paths.since();
        if newest && !news {
            self.reported_largest = Some(largest);
        }
        // Between the last packet before a pause and the first behind it nothing was to be delivered:
        // the pause is no part of a rate.
        let before = self.reported_largest.is_none_or(|reported| self.app_limited.limits(reported));
        if before && !self.app_limited.limits(largest) {
            self.meter = DeliveryMeter::default();
        }
        let times = news.then(|| self.on_times(now, arrived, path, feedback));
        let (rtt, one_way_delta) = times.unwrap_or((None, None));
        let Settled { mut sample, ect, late, earlier, base } = self.settle(path, feedback);
        for Elsewhere { number, arrived, lost } in earlier {
            self.paths.on_acked(number, arrived);
            self.paths.on_lost(number, lost);
        }
        let (since, arrived) = (self.paths.since(), sample.acked_packets + sample.spurious_packets);
        self.paths.on_acked(since, arrived);
        self.paths.on_lost(since, sample.lost.total());
        // Packets that still arrive from another path would count as delivered by this one.
        let mixed = self.ledger.floor().is_some_and(|floor| floor < self.paths.since())
            && self.ledger.has_unsettled_objects_below(self.paths.since());
        if mixed {
            self.meter = DeliveryMeter::default();
        }
        let delivery = if news && !mixed { self.delivery(now, path, feedback, late) } else { None };
        let time = (now, path.rtt().smoothed());
        let marks =
            self.paths.on_counted(time, &feedback.ecn, Arrived { packets: arrived, ect, mixed });
        sample.marked_packets = if path.heeds_marks() { marks } else { 0 };
        sample.rtt = rtt;
        sample.one_way_delta = one_way_delta;
        sample.delivery = delivery;
        sample.in_flight = path.in_flight();
        if sample.acked_packets + sample.spurious_packets > 0 {
            self.liveness.on_arrived();
        }
        self.watch_sizes(now, path, &sample, base);
        self.mtu.on_report_over();
        if largest >= self.paths.since() {
            self.mtu.on_reported(largest, now, self.base_apart(path));
        }
        if let Some(quiet) = self.mtu.quiet(self.base_apart(path)) {
            path.keep_quiet(now + quiet);
        }
        self.liveness.on_report(now, self.ledger.has_unsettled());
        let Self { repair, ledger, .. } = self;
        repair.on_report(largest, &|end| ledger.has_unsettled_objects_below(end));
        self.ledger.forget(now.before(path.rtt().smoothed() * 2));
        self.paths.forget(self.floor().get());
        path.set_packet(self.config.lane, self.full_wire());
        path.on_feedback(now, &sample, &self.peer.receiver());
        Ok(())
    }

    /// Refuses a report of what was never sent.
    fn check_report(&self, feedback: &Feedback<'_>) -> Result<(), Fault> {
        let end = feedback.forgotten.map_or(0, PacketNumber::get).max(feedback.ranges.to());
        if feedback.largest.get() >= self.next_number || end > self.next_number {
            return Err(Fault::UnsentReported);
        }
        match self.is_beyond_sent(feedback) {
            true => Err(Fault::UnsentCounted),
            false => Ok(()),
        }
    }

    /// Rate of delivery that the report shows.
    fn delivery(
        &mut self,
        now: Instant,
        path: &mut Path,
        feedback: &Feedback<'_>,
        late: bool,
    ) -> Option<Delivery> {
        let limited = self.app_limited.limits(feedback.largest.get()) || path.is_sender_bound();
        let delivery = self.meter.on_feedback(DeliveryReport {
            bytes: feedback.bytes.get(),
            received: feedback.largest_received,
            sent: feedback.largest_sent,
            application_limited: limited,
            late,
        })?;
        Some(path.joined(now, self.config.lane, delivery))
    }

    /// True if it counts more than can have arrived. A translator may make IPv4 into IPv6, whose header is
    /// longer.
    fn is_beyond_sent(&self, feedback: &Feedback<'_>) -> bool {
        let LaneStats { packets_sent, bytes_sent, .. } = self.stats;
        let bytes_most = bytes_sent + packets_sent * (IPV6_UDP_HEADERS - IPV4_UDP_HEADERS);
        feedback.packets > packets_sent
            || feedback.bytes.get() > bytes_most
            || feedback.ecn.total() > feedback.packets
    }

    /// RTT and one-way delay from the packet that the report is about; the report `arrived` before
    /// this host came to it.
    fn on_times(
        &mut self,
        now: Instant,
        arrived: Instant,
        path: &mut Path,
        feedback: &Feedback<'_>,
    ) -> (Option<Duration>, Option<i64>) {
        self.reported_largest = Some(feedback.largest.get());
        let round = u64::from(arrived.as_wire_micros().wrapping_sub(feedback.largest_sent));
        let delay = u64::try_from(feedback.delay.as_micros()).unwrap_or(u64::MAX);
        // A time that does not fit the echo is no sample: the delay is longer than the whole
        // round, or the round longer than any path's.
        let rtt = round
            .checked_sub(delay)
            .map(Duration::from_micros)
            .filter(|rtt| *rtt < RTT_MAX)
            .map(|rtt| rtt.max(RTT_MIN));
        if let Some(rtt) = rtt {
            path.on_rtt(now, rtt);
        }
        let one_way = feedback.largest_received.wrapping_sub(feedback.largest_sent) as i32;
        let one_way_delta = Some(self.one_way.above(now, i64::from(one_way)));
        if let Some(sent) = self.ledger.sent_by(feedback.largest.get()) {
            path.on_arrived(now, sent, rtt, one_way_delta);
        }
        (rtt, one_way_delta)
    }

    /// Applies the ranges to the ledger.
    fn settle(&mut self, path: &mut Path, feedback: &Feedback<'_>) -> Settled {
        let ranges = feedback.ranges;
        let largest = feedback.largest.get();
        let smoothed = path.rtt().smoothed();
        let lost_below = self.repair.lost_below(largest);
        let overhead = self.ip_overhead();
        self.paths.on_arrived(&self.ledger, largest, ranges.iter());
        // Where it begins with what the receiver remembers, all before that is missing.
        let forgotten = feedback.forgotten.is_some_and(|below| ranges.from() <= below.get());
        let from = if forgotten { 0 } else { ranges.from() };
        let Self { ledger, outbox, repair, streams, asks, mtu, events, paths, peer, stats, .. } =
            self;
        let mut settling = Settling {
            path,
            outbox,
            repair,
            streams,
            asks,
            mtu,
            events,
            peer,
            stats,
            since: paths.since(),
            base: BASE_DATAGRAM as u64 + overhead,
            long: u64::from(crate::mtu::LEAST) + 1 + overhead,
            reports_losses: self.config.tells_losses,
            settled: Settled::default(),
        };
        ledger.apply(
            Report { covered: from..ranges.to(), received: ranges.iter() },
            |entry| {
                let later = match entry.content {
                    Content::Object { .. } => lost_below,
                    _ => None,
                };
                match later {
                    Some(end) if entry.end() <= end => Verdict::Lost,
                    Some(_) if paths.is_lost(entry, smoothed) => Verdict::Missing,
                    None if paths.is_lost(entry, smoothed) => Verdict::Lost,
                    _ => Verdict::Open,
                }
            },
            |outcome| settling.on_outcome(outcome),
        );
        let settled = settling.settled;
        let spurious = settled.sample.spurious_packets;
        self.stats.spurious += spurious;
        if spurious > 0 {
            self.paths.on_spurious(smoothed);
        }
        settled
    }

    /// Large packets that vanish while reports come: is it their size?
    fn watch_sizes(&mut self, now: Instant, path: &Path, sample: &Sample, of_base: OfBase) {
        let interval = path.rtt().probe_timeout(self.config.feedback.most);
        match of_base {
            OfBase { arrived: true, .. } => self.mtu.on_base_arrived(),
            OfBase { lost: true, .. } => self.mtu.on_base_missed(now, interval),
            OfBase { .. } => {}
        }
        let base = BASE_DATAGRAM as u64 + self.ip_overhead();
        if sample.acked_bytes + sample.spurious_packets * base > sample.acked_packets * base {
            self.mtu.on_large_arrived();
        } else if sample.lost_bytes > sample.lost.total() * base {
            self.mtu.on_large_lost(now, interval);
        }
    }
}

/// Longer than any path's round trip.
const RTT_MAX: Duration = Duration::from_secs(60);
/// The resolution of send times.
const RTT_MIN: Duration = Duration::from_micros(1);
