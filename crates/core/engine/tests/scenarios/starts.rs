//! Starts as data: a path, so many bytes, and the part of their packets that a profile loses on the way.

#[cfg(test)]
use longhaul_rate_control::Profile;
use longhaul_units::{Duration, Rate};

use super::world::{Longhaul, Offer, PACKET, Trace, World, path, played};

/// A path, and a copy over it.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub kbps: u64,
    pub rtt_ms: u32,
    pub queue: Queue,
    /// Object bytes.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum Queue {
    /// Of the product of rate and round trip.
    Percent(u64),
    Packets(u64),
}

/// Result of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Until the sender knows that all has arrived; none where that took more than ten minutes.
    pub took: Option<Duration>,
    pub sent: u64,
    /// Packets that the queue dropped.
    pub lost: u64,
}

/// Fifty megabytes over a fast path, by queues of 5, 20 and 100 % of the product.
pub const FAST: [Start; 3] = [fast(5), fast(20), fast(100)];

const fn fast(percent: u64) -> Start {
    Start { kbps: 200_000, rtt_ms: 40, queue: Queue::Percent(percent), bytes: 50_000_000 }
}

/// A modem behind a queue of ten packets, which take two seconds.
pub const SLOW: Start = Start { kbps: 56, rtt_ms: 300, queue: Queue::Packets(10), bytes: 300_000 };

impl Start {
    pub fn rate(&self) -> Rate {
        Rate::from_kbps(self.kbps)
    }

    /// The copy under a profile, by the user's rate where there is one.
    pub fn run(
        &self,
        profile: &str,
        rate: Option<Rate>,
        seed: u64,
        trace: Option<Trace>,
    ) -> Outcome {
        let (link, rtt) = (self.rate(), Duration::from_millis(1) * self.rtt_ms);
        let queue = match self.queue {
            Queue::Percent(percent) => link.bytes_in(rtt) * percent / 100,
            Queue::Packets(packets) => packets * PACKET,
        };
        let mut world = World::new(&path(link, rtt, queue, 0), link, seed);
        let start = world.now;
        let mut flow = Longhaul::new(played(profile, rate), rtt, Offer::Bytes(self.bytes), seed);
        flow.trace = trace;
        let index = world.add(Duration::ZERO, flow);
        world.run_until(start + LONGEST, |world| world.flow(index).done());
        let (sent, lost) = world.flow(index).sent_and_lost();
        let took = world.flow(index).done().then(|| world.now - start);
        Outcome { took, sent, lost }
    }
}

impl Outcome {
    /// Parts per million of the packets.
    pub fn lost_ppm(&self) -> u64 {
        self.lost * 1_000_000 / self.sent
    }
}

const LONGEST: Duration = Duration::from_secs(600);

/// Most parts per million lost, and most milliseconds, on queues of 5, 20 and 100 %. The times are what the copy
/// took while each start-up doubled until it lost, and a twentieth.
#[cfg(test)]
const BOUNDED: [(&str, [(u64, u64); 3]); 5] = [
    ("bbr", [(10_000, 2_562), (5_000, 2_572), (5_000, 2_583)]),
    ("cubic", [(10_000, 3_664), (5_000, 3_895), (10_000, 2_488)]),
    ("pcc", [(10_000, 2_751), (5_000, 2_730), (5_000, 2_751)]),
    ("scavenger", [(10_000, 10_164), (5_000, 7_539), (5_000, 3_738)]),
    ("udt", [(10_000, 3_517), (5_000, 3_108), (5_000, 3_612)]),
];

#[test]
fn no_start_up_pours_a_round_trip_into_a_short_queue() {
    for (profile, bounds) in BOUNDED {
        for (start, (lost, millis)) in FAST.iter().zip(bounds) {
            let outcome = start.run(profile, None, 7, None);
            let queue = start.queue;
            assert!(outcome.lost_ppm() <= lost, "{profile}, {queue:?}: {outcome:?}");
            let took = outcome.took.expect("all of it arrives").as_millis();
            assert!(took <= u128::from(millis), "{profile}, {queue:?}: {took} ms");
        }
    }
}

/// A first flight of ten packets fits, and shows the link before the second.
#[test]
fn a_modem_is_not_flooded() {
    for (profile, most) in [("bbr", 100_000), ("scavenger", 10_000)] {
        let outcome = SLOW.run(profile, None, 7, None);
        assert!(outcome.lost_ppm() <= most, "{profile}: {outcome:?}");
    }
}

/// Ten kilobytes are eight packets; two may leave at once.
#[test]
fn the_users_rate_holds_from_the_first_packet_on() {
    let start = Start { kbps: 10_000, rtt_ms: 20, queue: Queue::Percent(100), bytes: 10_000 };
    // A booked circuit takes four at once.
    let bound = |profile: &&Profile| !["trc", "unlimited"].contains(&profile.name);
    for profile in Profile::all().iter().filter(bound) {
        let outcome = start.run(profile.name, Some(Rate::from_kbps(100)), 7, None);
        let took = outcome.took.expect("all of it arrives").as_millis();
        assert!(took >= 600, "{}: {took} ms", profile.name);
    }
}
