//! Settings of segments, by the address at their other end.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use longhaul_relay::Prefix;
use longhaul_units::{Duration, Instant, Rate};

use crate::transport::SegmentSettings;

/// Segments whose other ends lie in some ranges of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentClass {
    /// The other ends: targets, next gateways, and clients; empty for those that no class names.
    pub to: Vec<Prefix>,
    /// The transport by which they are dialled; empty for the first one.
    pub transport: String,
    /// Their settings.
    pub settings: SegmentSettings,
}

/// A class, and its segments at present.
#[derive(Debug, Default)]
pub struct LiveClass {
    /// The operator's decisions.
    pub class: SegmentClass,
    /// Segments that have sent of late: they share the rate.
    senders: AtomicUsize,
    /// The round trip that a connection measured last, in microseconds.
    rtt_us: AtomicU64,
}

impl LiveClass {
    /// Settings of a new connection, which is a sender at once.
    pub fn settings(&self) -> SegmentSettings {
        let measured = self.rtt_us.load(Ordering::Relaxed);
        let measured = (measured > 0).then_some(Duration::from_micros(measured));
        let settings = &self.class.settings;
        // The rate of the whole class sizes buffers: one sender may have all of it.
        let rtt = settings.rtt.or(measured);
        SegmentSettings { rtt, ..settings.clone() }
    }

    /// A connection measured this round trip.
    pub fn note_rtt(&self, rtt: Duration) {
        let rtt = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
        self.rtt_us.store(rtt, Ordering::Relaxed);
    }

    /// The range of addresses that makes a segment to `address` one of this class.
    pub fn why(&self, address: IpAddr) -> Option<&Prefix> {
        let ranges = self.class.to.iter().filter(|range| range.contains(address));
        ranges.max_by_key(|range| range.length())
    }
}

/// A segment's part in its class.
#[derive(Debug)]
pub struct Member {
    /// The class.
    pub live: Arc<LiveClass>,
    sends: bool,
    sent: u64,
    sent_at: Instant,
    rate: Option<Rate>,
    /// Most that it sends, whatever its part.
    most: Option<Rate>,
}

impl Member {
    /// A new segment, which is expected to send, at `most` so fast.
    pub fn new(live: Arc<LiveClass>, most: Option<Rate>, now: Instant) -> Self {
        live.senders.fetch_add(1, Ordering::Relaxed);
        Self { live, sends: true, sent: 0, sent_at: now, rate: None, most }
    }

    /// Notes how many bytes were sent so far, and says at which rate the segment may send from now
    /// on, where that is another than before.
    pub fn look(&mut self, sent: u64, now: Instant) -> Option<Rate> {
        if sent != self.sent {
            (self.sent, self.sent_at) = (sent, now);
        }
        let sends = now.since(self.sent_at) < IDLE;
        match (self.sends, sends) {
            (false, true) => _ = self.live.senders.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.live.senders.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        self.sends = sends;
        let senders = self.live.senders.load(Ordering::Relaxed).max(1) as u64;
        let all = self.live.class.settings.rate;
        let part = all.map(|all| Rate::from_bps(all.as_bps() / senders));
        let rate = part.into_iter().chain(self.most).min()?;
        if self.rate == Some(rate) {
            return None;
        }
        self.rate = Some(rate);
        Some(rate)
    }

    /// It has sent of late.
    pub const fn sends(&self) -> bool {
        self.sends
    }

    /// Its part of the rate of the class, or the most that it sends, where there is either.
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.sends {
            self.live.senders.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A segment that sent nothing for so long leaves its part of the rate to others.
const IDLE: Duration = Duration::from_secs(1);

/// All classes.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    classes: Vec<Arc<LiveClass>>,
    others: Arc<LiveClass>,
}

impl Segments {
    /// These classes, and `others` for what no class names.
    pub fn new(classes: Vec<SegmentClass>, others: SegmentSettings) -> Self {
        let live = |class| Arc::new(LiveClass { class, ..LiveClass::default() });
        let others = SegmentClass { settings: others, ..SegmentClass::default() };
        Self { classes: classes.into_iter().map(live).collect(), others: live(others) }
    }

    /// The class of a segment to `address`: that with the narrowest range.
    pub fn of(&self, address: IpAddr) -> &Arc<LiveClass> {
        let narrow = |live: &LiveClass| live.why(address).map(Prefix::length);
        let matching = self.classes.iter().filter_map(|live| Some((live, narrow(live)?)));
        matching.max_by_key(|(_, narrow)| *narrow).map_or(&self.others, |(live, _)| live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_range_names_the_class() {
        let class = |to: &str, transport: &str| SegmentClass {
            to: vec![to.parse().unwrap()],
            transport: transport.into(),
            settings: SegmentSettings::default(),
        };
        let classes = vec![class("10.0.0.0/8", "wide"), class("10.1.0.0/16", "narrow")];
        let segments = Segments::new(classes, SegmentSettings::default());
        for (address, transport) in
            [("10.2.0.1", "wide"), ("::ffff:10.1.0.1", "narrow"), ("192.0.2.1", "")]
        {
            assert_eq!(
                segments.of(address.parse().unwrap()).class.transport,
                transport,
                "{address}"
            );
        }
    }

    #[test]
    fn senders_of_a_class_share_its_rate_and_the_idle_leave_their_part() {
        let settings = SegmentSettings { rate: Some(Rate::from_mbps(90)), ..Default::default() };
        let segments = Segments::new(vec![], settings);
        let live = segments.of("192.0.2.1".parse().unwrap());
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut members: Vec<Member> =
            (0..3).map(|_| Member::new(live.clone(), None, at(0))).collect();
        for member in &mut members {
            assert_eq!(member.look(1, at(0)), Some(Rate::from_mbps(30)));
            assert_eq!(member.look(1, at(0)), None, "as before");
        }
        assert_eq!(members[0].look(1, at(2)), Some(Rate::from_mbps(45)), "the others still send");
        assert_eq!(members[1].look(2, at(2)), Some(Rate::from_mbps(45)));
        members.pop();
        assert_eq!(members[1].look(3, at(2)), Some(Rate::from_mbps(90)));
        assert_eq!(members[0].look(2, at(2)), None, "it sends again, at the rate that it had");
        assert_eq!(members[1].look(4, at(2)), Some(Rate::from_mbps(45)));
        let mut slow = Member::new(live.clone(), Some(Rate::from_mbps(10)), at(2));
        assert_eq!(slow.look(1, at(2)), Some(Rate::from_mbps(10)), "less than its part");
    }
}
