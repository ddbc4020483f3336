//! Settings of segments, by the address at their other end.

mod division;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_relay::Prefix;
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, Instant, Rate};

use self::division::Division;
use crate::meter::Meter;
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
    /// The rate, where there is one, among its segments.
    division: Mutex<Division>,
    /// The round trip that a connection measured last, in microseconds.
    rtt_us: AtomicU64,
}

impl LiveClass {
    /// Settings of a new connection.
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
    /// Its number in the division of the rate, where the class has one.
    id: Option<u64>,
    sent_at: Instant,
    sent: u64,
    sends: bool,
    rate: Option<Rate>,
    /// Most that it sends, whatever its part.
    most: Option<Rate>,
    goodput: Meter,
    /// Bytes that the peer acknowledged.
    used: Meter,
}

impl Member {
    /// A new segment, which is expected to send, at `most` so fast.
    pub fn new(live: Arc<LiveClass>, most: Option<Rate>, now: Instant) -> Self {
        let all = live.class.settings.rate;
        let part = all.map(|all| lock(&live.division).join(all.as_bps()));
        let rate = part.map(|(_, rate)| Rate::from_bps(rate));
        Self {
            live,
            id: part.map(|(id, _)| id),
            sent_at: now,
            sent: 0,
            sends: true,
            rate: rate.into_iter().chain(most).min(),
            most,
            goodput: Meter::new(GOODPUT, now),
            used: Meter::new(USED, now),
        }
    }

    /// Notes how many bytes were sent so far, and, for a class with a rate, `delivered`. Says at which
    /// rate the segment may send from now on, where that is another than before.
    pub fn look(
        &mut self,
        sent: u64,
        delivered: impl FnOnce() -> Option<u64>,
        now: Instant,
    ) -> Option<Rate> {
        if sent != self.sent {
            (self.sent, self.sent_at) = (sent, now);
        }
        self.sends = now.since(self.sent_at) < IDLE;
        self.goodput.note(sent, now);
        let (id, all) = self.id.zip(self.live.class.settings.rate)?;
        if let Some(delivered) = delivered() {
            self.used.note(delivered, now);
        }
        let most = self.most.map_or(u64::MAX, |most| most.as_bps());
        let (all, used) = (all.as_bps(), self.used.peak().as_bps());
        let rate = lock(&self.live.division).look(id, all, used, most, now);
        let rate = Rate::from_bps(rate);
        (self.rate.replace(rate) != Some(rate)).then_some(rate)
    }

    /// It has sent of late.
    pub const fn sends(&self) -> bool {
        self.sends
    }

    /// Payload over time, of late.
    pub fn goodput(&self) -> Rate {
        self.goodput.rate()
    }

    /// Its part of the rate of the class, or the most that it sends, where there is either.
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            lock(&self.live.division).leave(id);
        }
    }
}

/// A segment that sent nothing for so long is idle.
const IDLE: Duration = Duration::from_secs(1);
/// The time over which goodput is shown.
const GOODPUT: Duration = Duration::from_secs(1);
/// The time over which a segment's need of its class's rate is measured.
const USED: Duration = Duration::from_millis(200);

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

    /// Segments of a class with 400 Mb/s, each with the rate at which its source sends.
    struct Class {
        members: Vec<(Member, u64, u64)>,
        now: Instant,
    }

    impl Class {
        /// A tenth of a second.
        fn step(&mut self) {
            self.now += Duration::from_millis(100);
            for (member, source, delivered) in &mut self.members {
                let rate = member.rate().unwrap().as_bps().min(*source);
                *delivered += rate / 80;
                let (now, seen) = (self.now, *delivered);
                member.look(seen, || Some(seen), now);
            }
            let sum: u64 = self.rates().iter().sum();
            assert!(sum <= 400_000_000, "{:?}", self.rates());
        }

        fn rates(&self) -> Vec<u64> {
            self.members.iter().map(|(member, ..)| member.rate().unwrap().as_bps()).collect()
        }
    }

    #[test]
    fn a_segment_that_needs_less_than_its_part_leaves_the_rest_to_the_others() {
        let settings = SegmentSettings { rate: Some(Rate::from_mbps(400)), ..Default::default() };
        let segments = Segments::new(vec![], settings);
        let live = segments.of("192.0.2.1".parse().unwrap());
        let new = |source| (Member::new(live.clone(), None, Instant::ZERO), source, 0);
        let mut class = Class { members: vec![new(u64::MAX)], now: Instant::ZERO };
        assert_eq!(class.rates(), [400_000_000]);
        class.members.extend((0..4).map(|_| new(80)));
        assert!(class.rates().iter().sum::<u64>() <= 426_000_000, "a sixteenth too much at most");
        class.step();
        for _ in 0..10 {
            class.step();
        }
        assert!(class.rates()[0] >= 370_000_000, "{:?}", class.rates());
        // Two that were quiet begin to send: one all that it gets, one a little.
        class.members[1].1 = u64::MAX;
        class.members[2].1 = 40_000_000;
        for _ in 0..20 {
            class.step();
        }
        let rates = class.rates();
        assert!(rates[0].abs_diff(rates[1]) < 20_000_000 && rates[0] > 150_000_000, "{rates:?}");
        assert!((40_000_000..80_000_000).contains(&rates[2]), "{rates:?}");
        // The first one leaves.
        class.members.remove(0);
        for _ in 0..20 {
            class.step();
        }
        assert!(class.rates()[0] > 320_000_000, "{:?}", class.rates());
        let slow = Member::new(live.clone(), Some(Rate::from_mbps(1)), class.now);
        assert_eq!(slow.rate(), Some(Rate::from_mbps(1)), "less than its part");
    }
}
