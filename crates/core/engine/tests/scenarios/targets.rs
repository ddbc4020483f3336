//! The targets of `auto` as data: a path, the flows on it, what is measured, and what is wanted.
//!
//! `cargo run --release -p longhaul-engine --example targets [GROUP [SEEDS]]` prints what is reached.

use longhaul_pathsim::{GilbertElliott, Jitter, Path, PathConfig, Probability, RateSchedule};
use longhaul_units::{Bytes, Duration, Instant, Rate};

use super::world::{
    Batches, Host, Longhaul, Offer, PACKET, Tcp, TcpKind, Trace, World, played_with,
};

/// The way forth, and the queue in front of it.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub mbps: u64,
    pub rtt_ms: u32,
    pub queue: Queue,
    /// Parts per million lost by chance,
    pub loss_ppm: u32,
    /// in bursts of so many packets on average.
    pub burst: u32,
    /// Other rates from those milliseconds on, in Mb/s.
    pub steps: &'static [(u32, u64)],
    /// Nothing passes from that millisecond on, for so many.
    pub outage: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
pub enum Queue {
    /// Of the product of rate and round trip.
    Percent(u64),
    Packets(u64),
    KiB(u64),
}

/// A sender.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub kind: Kind,
    /// When it begins.
    pub at_ms: u32,
    /// Its round trip is longer by so much,
    pub longer_ms: u32,
    /// and varies by so much by itself.
    pub jitter_ms: u32,
    /// Its receiver reads nothing for 60 ms each second, behind a socket buffer of 2 MiB.
    pub stalls: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Profile(&'static str, &'static [&'static str]),
    Tcp(TcpKind),
}

/// Measure of a run.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// Round trips from the first packet at the receiver until 90 % of the link arrive, for half of one.
    FullAfter,
    /// Milliseconds that a packet waited at most in the first two seconds.
    StartQueue,
    /// Round trips that 1 GB takes beyond ideal / 0.98.
    Beyond,
    /// Percent of a product that packets wait on average behind start-up.
    StandingQueue,
    /// Percent lost behind start-up beyond chance.
    OwnLoss,
    /// The same, of the worst ten round trips.
    WorstLoss,
    /// Round trips from the last change of the path until 90 % of its rate arrive in one, and packets
    /// wait less than a tenth of one.
    Regained,
    /// Of its fair share, in percent, over a minute from the tenth second on.
    Share,
    /// The same over 60 round trips from the tenth second on, when the first flow begins.
    Arrival,
    /// Percent of its packets that are lost in that time.
    ArrivalLoss,
    /// Jain's index of all flows in that time, in percent.
    Jain,
    /// Of the rate of the other, in percent, that the first flow has in that time.
    Ratio,
    /// Percent of the link that the others have in that time.
    Others,
    /// Percent of what the link carried, at least for 10 s, that arrived,
    Used,
    /// and percent lost.
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub group: &'static str,
    pub name: &'static str,
    pub link: Link,
    pub flows: &'static [Sender],
    pub measure: Measure,
    /// From and to.
    pub wanted: (f64, f64),
}

const fn link(mbps: u64, rtt_ms: u32, queue: Queue) -> Link {
    Link { mbps, rtt_ms, queue, loss_ppm: 0, burst: 1, steps: &[], outage: None }
}

const fn lossy(mbps: u64, rtt_ms: u32, queue: Queue, loss_ppm: u32, burst: u32) -> Link {
    Link { loss_ppm, burst, ..link(mbps, rtt_ms, queue) }
}

const fn sender(kind: Kind, at_ms: u32) -> Sender {
    Sender { kind, at_ms, longer_ms: 0, jitter_ms: 0, stalls: false }
}

const AUTO: Sender = sender(Kind::Profile("auto", &[]), 0);
const CUBIC: Sender = sender(Kind::Tcp(TcpKind::Cubic), 0);
const BBR: Sender = sender(Kind::Tcp(TcpKind::Bbr), 0);

/// `first`, and so many of the others; those begin two seconds later, a tenth of a second apart.
const fn beside<const N: usize>(first: Sender, other: Sender) -> [Sender; N] {
    let mut all = [first; N];
    let mut i = 1;
    while i < N {
        all[i] = Sender { at_ms: 2_000 + 100 * i as u32, ..other };
        i += 1;
    }
    all
}

/// The first comes when so many of the others have had ten seconds.
const fn joining<const N: usize>(other: Sender) -> [Sender; N] {
    let mut all = [Sender { at_ms: 10_000, ..AUTO }; N];
    let mut i = 1;
    while i < N {
        all[i] = Sender { at_ms: 100 * i as u32, ..other };
        i += 1;
    }
    all
}

const ALONE: &[Sender] = &[AUTO];
const AT_LEAST: f64 = f64::INFINITY;
const FAIR: (f64, f64) = (50.0, 160.0);

const fn target(
    group: &'static str,
    name: &'static str,
    link: Link,
    flows: &'static [Sender],
    measure: Measure,
    wanted: (f64, f64),
) -> Target {
    Target { group, name, link, flows, measure, wanted }
}

use Measure::{
    Arrival, ArrivalLoss, Beyond, FullAfter, Jain, Lost, Others, OwnLoss, Ratio, Regained, Share,
    StandingQueue, StartQueue, Used, WorstLoss,
};
use Queue::{KiB, Packets, Percent};

const BOOKED: Link = Link {
    steps: &[(2_000, 400), (4_000, 200), (6_000, 800), (8_000, 100)],
    ..link(100, 40, KiB(128))
};
const HALVED: Link = Link { steps: &[(6_000, 500)], ..link(1_000, 50, Percent(100)) };
const DOUBLED: Link = Link { steps: &[(6_000, 1_000)], ..link(500, 50, Percent(100)) };
const HALVED_SHORT: Link = Link { queue: Percent(5), ..HALVED };
const DOUBLED_SHORT: Link = Link { queue: Percent(5), ..DOUBLED };
const DARK: Link = Link { outage: Some((6_000, 2_000)), ..link(500, 50, Percent(100)) };
const DEDICATED: Sender = sender(Kind::Profile("auto", &["path=dedicated"]), 0);

#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    target("start", "1 Gb/s, 100 ms", link(1_000, 100, Percent(100)), ALONE, FullAfter, (0.0, 3.0)),
    target("start", "the same", link(1_000, 100, Percent(100)), ALONE, StartQueue, (0.0, 10.0)),
    target("start", "queue 5 %", link(1_000, 100, Percent(5)), ALONE, FullAfter, (0.0, 3.0)),
    target("start", "1 % chance", lossy(1_000, 100, Percent(100), 10_000, 1), ALONE, FullAfter, (0.0, 3.0)),
    target("start", "the same", lossy(1_000, 100, Percent(100), 10_000, 1), ALONE, StartQueue, (0.0, 10.0)),
    target("start", "100 Mb/s, 50 ms", link(100, 50, Percent(100)), ALONE, FullAfter, (0.0, 3.0)),
    target("start", "10 Gb/s, 100 ms", link(10_000, 100, Percent(100)), ALONE, FullAfter, (0.0, 3.0)),
    target("start", "the same", link(10_000, 100, Percent(100)), ALONE, StartQueue, (0.0, 10.0)),

    target("whole", "10 ms", link(1_000, 10, Percent(100)), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "300 ms", link(1_000, 300, Percent(100)), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "300 ms, queue 200 %, 1 %", lossy(1_000, 300, Percent(200), 10_000, 1), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "10 ms, queue 5 %", link(1_000, 10, Percent(5)), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "10 ms, queue 5 %, 1 %", lossy(1_000, 10, Percent(5), 10_000, 1), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "50 ms, queue 5 %, 0.01 %", lossy(1_000, 50, Percent(5), 100, 1), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "100 ms, 30 packets", link(1_000, 100, Packets(30)), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "100 ms, 30 packets, 1 %", lossy(1_000, 100, Packets(30), 10_000, 1), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "150 ms, queue 5 %, 0.1 %", lossy(1_000, 150, Percent(5), 1_000, 1), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "300 ms, 30 packets", link(1_000, 300, Packets(30)), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "300 ms, 30 packets, 1 %", lossy(1_000, 300, Packets(30), 10_000, 1), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "300 ms, queue 5 %, 1 %", lossy(1_000, 300, Percent(5), 10_000, 1), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "50 ms, bursts, 0.01 %", lossy(1_000, 50, Percent(100), 100, 10), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "50 ms, bursts, 0.1 %", lossy(1_000, 50, Percent(100), 1_000, 10), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "50 ms, bursts, 1 %", lossy(1_000, 50, Percent(100), 10_000, 10), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "150 ms, bursts, 1 %", lossy(1_000, 150, Percent(5), 10_000, 10), ALONE, Beyond, (-99.0, 4.0)),
    target("whole", "300 ms, bursts, 0.1 %", lossy(1_000, 300, Percent(20), 1_000, 10), ALONE, Beyond, (-99.0, 4.0)),

    target("loss", "1 Gb/s, 100 ms", link(1_000, 100, Percent(100)), ALONE, StandingQueue, (0.0, 10.0)),
    target("loss", "1 Gb/s, 10 ms", link(1_000, 10, Percent(100)), ALONE, StandingQueue, (0.0, 10.0)),
    target("loss", "100 Mb/s, 50 ms", link(100, 50, Percent(100)), ALONE, StandingQueue, (0.0, 10.0)),
    target("loss", "1 Gb/s, 100 ms, queue 5 %", link(1_000, 100, Percent(5)), ALONE, OwnLoss, (0.0, 0.1)),
    target("loss", "30 packets", link(1_000, 100, Packets(30)), ALONE, OwnLoss, (0.0, 0.1)),
    target("loss", "30 packets", link(1_000, 100, Packets(30)), ALONE, WorstLoss, (0.0, 2.0)),
    target("loss", "queue 5 %, 1 %", lossy(1_000, 100, Percent(5), 10_000, 1), ALONE, OwnLoss, (0.0, 0.1)),
    target("loss", "queue 5 %, 1 %", lossy(1_000, 100, Percent(5), 10_000, 1), ALONE, WorstLoss, (0.0, 2.0)),
    target("loss", "10 ms, queue 5 %", link(1_000, 10, Percent(5)), ALONE, OwnLoss, (0.0, 0.1)),
    target("loss", "100 Mb/s, 50 ms, queue 5 %", link(100, 50, Percent(5)), ALONE, OwnLoss, (0.0, 0.1)),
    target("loss", "100 Mb/s, 50 ms, queue 5 %", link(100, 50, Percent(5)), ALONE, WorstLoss, (0.0, 2.0)),

    target("change", "halved", HALVED, ALONE, Regained, (0.0, 10.0)),
    target("change", "doubled", DOUBLED, ALONE, Regained, (0.0, 10.0)),
    target("change", "halved, queue 5 %", HALVED_SHORT, ALONE, Regained, (0.0, 10.0)),
    target("change", "doubled, queue 5 %", DOUBLED_SHORT, ALONE, Regained, (0.0, 10.0)),
    target("change", "dark for 2 s", DARK, ALONE, Regained, (0.0, 5.0)),
    target("change", "booked", BOOKED, ALONE, Used, (89.0, AT_LEAST)),
    target("change", "booked", BOOKED, ALONE, Lost, (0.0, 2.3)),

    target("share", "1 CUBIC", link(500, 40, Percent(100)), &beside::<2>(AUTO, CUBIC), Share, FAIR),
    target("share", "1 CUBIC, 100 ms, queue 5 %", link(500, 100, Percent(5)), &beside::<2>(AUTO, CUBIC), Share, FAIR),
    target("share", "1 CUBIC, queue 25 %", link(500, 40, Percent(25)), &beside::<2>(AUTO, CUBIC), Share, FAIR),
    target("share", "1 CUBIC, queue 400 %", link(500, 40, Percent(400)), &beside::<2>(AUTO, CUBIC), Share, FAIR),
    target("share", "2 CUBIC, queue 25 %", link(500, 40, Percent(25)), &beside::<3>(AUTO, CUBIC), Share, FAIR),
    target("share", "2 CUBIC, queue 400 %", link(500, 40, Percent(400)), &beside::<3>(AUTO, CUBIC), Share, FAIR),
    target("share", "8 CUBIC, queue 25 %", link(500, 40, Percent(25)), &beside::<9>(AUTO, CUBIC), Share, FAIR),
    target("share", "8 CUBIC", link(500, 40, Percent(100)), &beside::<9>(AUTO, CUBIC), Share, FAIR),
    target("share", "9 CUBIC", link(500, 40, Percent(100)), &beside::<10>(AUTO, CUBIC), Share, FAIR),
    target("share", "9 CUBIC, 100 Mb/s", link(100, 40, Percent(100)), &beside::<10>(AUTO, CUBIC), Share, FAIR),
    target("share", "9 CUBIC, 30 Mb/s", link(30, 40, Percent(100)), &beside::<10>(AUTO, CUBIC), Share, FAIR),
    target("share", "1 BBR", link(500, 40, Percent(100)), &beside::<2>(AUTO, BBR), Share, FAIR),
    target("share", "1 BBR, queue 400 %", link(500, 40, Percent(400)), &beside::<2>(AUTO, BBR), Share, FAIR),
    target("share", "2 BBR", link(500, 40, Percent(100)), &beside::<3>(AUTO, BBR), Share, FAIR),
    target("share", "2 BBR, queue 400 %", link(500, 40, Percent(400)), &beside::<3>(AUTO, BBR), Share, FAIR),
    target("share", "8 BBR", link(500, 40, Percent(100)), &beside::<9>(AUTO, BBR), Share, FAIR),

    target("joins", "1 CUBIC", link(500, 40, Percent(100)), &joining::<2>(CUBIC), Arrival, FAIR),
    target("joins", "1 CUBIC", link(500, 40, Percent(100)), &joining::<2>(CUBIC), ArrivalLoss, (0.0, 2.0)),
    target("joins", "8 CUBIC", link(500, 40, Percent(100)), &joining::<9>(CUBIC), Arrival, FAIR),
    target("joins", "8 CUBIC", link(500, 40, Percent(100)), &joining::<9>(CUBIC), ArrivalLoss, (0.0, 2.0)),
    target("joins", "2 CUBIC, queue 25 %", link(500, 40, Percent(25)), &joining::<3>(CUBIC), Arrival, FAIR),
    target("joins", "2 CUBIC, queue 25 %", link(500, 40, Percent(25)), &joining::<3>(CUBIC), ArrivalLoss, (0.0, 2.0)),
    target("joins", "1 CUBIC, 10 Mb/s", link(10, 40, Percent(100)), &joining::<2>(CUBIC), Arrival, FAIR),
    target("joins", "1 CUBIC, 10 Mb/s", link(10, 40, Percent(100)), &joining::<2>(CUBIC), ArrivalLoss, (0.0, 2.0)),
    target("joins", "2 BBR", link(500, 40, Percent(100)), &joining::<3>(BBR), Arrival, FAIR),
    target("joins", "2 BBR", link(500, 40, Percent(100)), &joining::<3>(BBR), ArrivalLoss, (0.0, 2.0)),
    target("joins", "1 alike", link(500, 40, Percent(100)), &joining::<2>(AUTO), Arrival, FAIR),
    target("joins", "1 alike", link(500, 40, Percent(100)), &joining::<2>(AUTO), ArrivalLoss, (0.0, 2.0)),
    target("joins", "3 alike, queue 5 %", link(500, 40, Percent(5)), &joining::<4>(AUTO), Arrival, FAIR),
    target("joins", "3 alike, queue 5 %", link(500, 40, Percent(5)), &joining::<4>(AUTO), ArrivalLoss, (0.0, 2.0)),
    target("joins", "1 alike, 200 ms", link(500, 200, Percent(50)), &joining::<2>(AUTO), Arrival, FAIR),
    target("joins", "1 alike, 200 ms", link(500, 200, Percent(50)), &joining::<2>(AUTO), ArrivalLoss, (0.0, 2.0)),

    target("alike", "two", link(100, 40, Percent(100)), &beside::<2>(AUTO, AUTO), Jain, (95.0, 100.0)),
    target("alike", "four", link(100, 40, Percent(100)), &beside::<4>(AUTO, AUTO), Jain, (95.0, 100.0)),
    target("alike", "two, 4 packets", link(100, 40, Packets(4)), &beside::<2>(AUTO, AUTO), Jain, (95.0, 100.0)),
    target("alike", "four, 4 packets", link(100, 40, Packets(4)), &beside::<4>(AUTO, AUTO), Jain, (95.0, 100.0)),
    target("alike", "two, 30 Mb/s, 4 packets", link(30, 40, Packets(4)), &beside::<2>(AUTO, AUTO), Jain, (95.0, 100.0)),
    target("alike", "four, 30 Mb/s, 4 packets", link(30, 40, Packets(4)), &beside::<4>(AUTO, AUTO), Jain, (95.0, 100.0)),
    target("alike", "20 and 200 ms", link(100, 20, Percent(200)),
        &[AUTO, Sender { longer_ms: 180, at_ms: 2_000, ..AUTO }], Ratio, (50.0, 200.0)),
    target("alike", "20 and 200 ms, 500 Mb/s", link(500, 20, Percent(100)),
        &[AUTO, Sender { longer_ms: 180, at_ms: 2_000, ..AUTO }], Ratio, (50.0, 200.0)),
    target("alike", "jitter of one", link(100, 40, Percent(100)),
        &[Sender { jitter_ms: 2, ..AUTO }, Sender { at_ms: 2_000, ..AUTO }], Share, FAIR),
    target("alike", "jitter of one, 500 Mb/s", link(500, 40, Percent(100)),
        &[Sender { jitter_ms: 2, ..AUTO }, Sender { at_ms: 2_000, ..AUTO }], Share, FAIR),

    target("host", "stalls", link(500, 50, Percent(100)), &[Sender { stalls: true, ..AUTO }], Used, (80.0, AT_LEAST)),

    target("ways", "dedicated beside CUBIC", link(500, 40, Percent(100)), &beside::<2>(DEDICATED, CUBIC), Share, (150.0, 200.0)),
    target("ways", "scavenger beside CUBIC", link(500, 40, Percent(100)),
        &beside::<2>(sender(Kind::Profile("scavenger", &[]), 0), CUBIC), Others, (95.0, 100.0)),
];

const MS: Duration = Duration::from_millis(1);

impl Link {
    pub fn rtt(&self) -> Duration {
        MS * self.rtt_ms
    }

    pub fn rate(&self) -> Rate {
        Rate::from_mbps(self.mbps)
    }

    /// The rate `since` the start.
    fn rate_at(&self, since: Duration) -> Rate {
        let passed = self.steps.iter().rev().find(|(at, _)| MS * *at <= since);
        passed.map_or(self.rate(), |(_, mbps)| Rate::from_mbps(*mbps))
    }

    /// Bytes that it carries between two times.
    fn carries(&self, from: Duration, to: Duration) -> u64 {
        let step = MS * 10;
        let times = core::iter::successors(Some(from), |at| Some(*at + step));
        times.take_while(|at| *at < to).map(|at| self.rate_at(at).bytes_in(step)).sum()
    }

    fn last_change(&self) -> Duration {
        let steps = self.steps.iter().map(|(at, _)| *at);
        let outage = self.outage.map(|(at, length)| at + length);
        MS * steps.chain(outage).max().unwrap_or(0)
    }

    fn config(&self) -> PathConfig {
        let product = self.rate().bytes_in(self.rtt());
        let queue = match self.queue {
            Percent(percent) => product * percent / 100,
            Packets(packets) => packets * PACKET,
            KiB(kib) => kib << 10,
        };
        let first = RateSchedule::constant(self.rate());
        let then = |schedule: RateSchedule, &(at, mbps): &(u32, u64)| {
            schedule.then(MS * at, Rate::from_mbps(mbps))
        };
        let schedule = self.steps.iter().fold(first, then);
        let config = PathConfig::default()
            .delay(self.rtt() / 2)
            .rate(schedule, Bytes::new(queue.max(4 * PACKET)));
        let config = match self.burst {
            1 => config.loss(Probability::from_ppm(self.loss_ppm)),
            burst => {
                let enter = Probability::from_ppm(self.loss_ppm / burst);
                config.burst_loss(GilbertElliott::bursts(enter, burst))
            }
        };
        match self.outage {
            Some((at, length)) => config.outage(MS * at, MS * length),
            None => config,
        }
    }
}

impl Target {
    fn world(&self, seed: u64, mut trace: Option<Trace>) -> World {
        let rtt = self.link.rtt();
        let mut world = World::new(&self.link.config(), self.link.rate(), seed);
        for (i, sender) in (0u64..).zip(self.flows) {
            let (at, seed) = (MS * sender.at_ms, seed * 100 + i);
            match sender.kind {
                Kind::Tcp(kind) => world.add(at, Tcp::new(kind, rtt, seed)),
                Kind::Profile(name, parameters) => {
                    let offer = match self.measure {
                        Beyond => Offer::Bytes(GIGABYTE),
                        _ => Offer::Endless,
                    };
                    let mut flow = Longhaul::new(played_with(name, parameters), rtt, offer, seed);
                    flow.longer = MS * sender.longer_ms;
                    flow.trace = trace.take();
                    if sender.stalls {
                        flow = flow.host(Host {
                            rate: self.link.rate().scale(4, 1),
                            buffer: 2 << 20,
                            tells: true,
                            stalls: Some((MS * 1_000, MS * 60)),
                            batches: Batches::None,
                        });
                    }
                    if sender.jitter_ms > 0 {
                        let own =
                            PathConfig::default().jitter(Jitter::uniform(MS * sender.jitter_ms));
                        flow.own =
                            Some(Path::new(&own, seed, Instant::ZERO).expect("a valid path"));
                    }
                    world.add(at, flow)
                }
            };
        }
        world
    }

    /// Result of one run; `trace` sees the first flow under a profile.
    pub fn reached(&self, seed: u64, trace: Option<Trace>) -> f64 {
        let mut world = self.world(seed, trace);
        let (link, start) = (&self.link, world.now);
        let (rtt, rate) = (link.rtt(), link.rate());
        let chance = f64::from(link.loss_ppm) / 1e6;
        match self.measure {
            FullAfter => {
                world.run(rtt / 2);
                let arrived: Vec<u64> = (0..600)
                    .map(|_| {
                        world.run(rtt / 20);
                        world.flow(0).received()
                    })
                    .collect();
                let enough = rate.bytes_in(rtt / 2) as f64 * 0.9 * (1.0 - chance);
                let full = |of: &[u64]| (of[10] - of[0]) as f64 >= enough;
                arrived.windows(11).position(full).unwrap_or(600) as f64 / 20.0
            }
            StartQueue => {
                world.run(2_000 * MS);
                world.most_queue().as_secs_f64() * 1e3
            }
            Beyond => {
                world.run_until(start + MS * 120_000, |world| world.flow(0).done());
                let wire = GIGABYTE.div_ceil(PAYLOAD) * PACKET;
                let ideal = wire as f64 * 8.0 / rate.as_bps() as f64 / (1.0 - chance);
                ((world.now - start).as_secs_f64() - ideal / 0.98) / rtt.as_secs_f64()
            }
            StandingQueue => {
                world.run(behind_start(rtt));
                waited(&mut world, MS * 20_000) / rtt.as_secs_f64() * 100.0
            }
            OwnLoss => {
                world.run(behind_start(rtt));
                (world.span(0, MS * 20_000).loss_ppm() as f64 / 1e6 - chance).max(0.0) * 100.0
            }
            WorstLoss => {
                world.run(behind_start(rtt));
                let spans = (0..40).map(|_| world.span(0, rtt * 10).loss_ppm());
                let worst = spans.max().unwrap_or(0) as f64 / 1e6;
                (worst - chance).max(0.0) * 100.0
            }
            Regained => {
                world.run(link.last_change());
                let enough = link.rate_at(link.last_change()).bytes_in(rtt) as f64 * 0.9;
                let mut seen = [(world.flow(0).received(), 0.0); 5];
                for quarter in 1..1_600 {
                    let waits = waited(&mut world, rtt / 4);
                    seen.rotate_left(1);
                    seen[4] = (world.flow(0).received(), waits);
                    let empty = seen[1..].iter().all(|(_, waits)| waits * 10.0 < rtt.as_secs_f64());
                    if quarter >= 4 && (seen[4].0 - seen[0].0) as f64 >= enough && empty {
                        return f64::from(quarter) / 4.0;
                    }
                }
                400.0
            }
            ArrivalLoss => {
                world.run(MS * 10_000);
                f64::from(world.span(0, rtt * 60).loss_ppm() as u32) / 1e4
            }
            Share | Arrival | Jain | Ratio | Others => {
                world.run(MS * 10_000);
                let is_arrival = matches!(self.measure, Arrival);
                let rates = world.measure(if is_arrival { rtt * 60 } else { MS * 60_000 });
                let rates: Vec<f64> = rates.iter().map(|rate| rate.as_bps() as f64).collect();
                let (total, count) = (rates.iter().sum::<f64>(), rates.len() as f64);
                let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
                100.0
                    * match self.measure {
                        Share | Arrival => rates[0] * count / total,
                        Jain => total * total / (count * squares),
                        Ratio => rates[0] / rates[1],
                        _ => (total - rates[0]) / rate.as_bps() as f64,
                    }
            }
            Used | Lost => {
                let end = (link.last_change() + MS * 2_000).max(MS * LEAST_MS);
                world.run(end);
                let (sent, lost) = world.flow(0).sent_and_lost();
                let carried = link.carries(Duration::ZERO, end);
                match self.measure {
                    Used => world.flow(0).received() as f64 * 100.0 / carried as f64,
                    _ => lost as f64 * 100.0 / sent as f64,
                }
            }
        }
    }

    /// True if that is what is wanted.
    pub fn is_met(&self, reached: f64) -> bool {
        (self.wanted.0..=self.wanted.1).contains(&reached)
    }
}

fn behind_start(rtt: Duration) -> Duration {
    (rtt * 15).max(MS * 3_000)
}

/// Seconds that packets wait on average over the next `time`.
fn waited(world: &mut World, time: Duration) -> f64 {
    let before = world.mean_queue();
    world.run(time);
    mean_between(before, world.mean_queue())
}

fn mean_between(before: (Duration, u64), after: (Duration, u64)) -> f64 {
    let total = |(mean, count): (Duration, u64)| mean.as_secs_f64() * count as f64;
    (total(after) - total(before)) / (after.1 - before.1).max(1) as f64
}

const LEAST_MS: u32 = 10_000;
const GIGABYTE: u64 = 1_000_000_000;
/// Object bytes of a full packet.
const PAYLOAD: u64 = 1_424;

/// Those of a group, or of a few names of it.
#[cfg(test)]
fn are_met(group: &str, names: &[&str]) {
    let mut missed = Vec::new();
    let is_tested = |target: &&Target| {
        target.group == group && (names.is_empty() || names.contains(&target.name))
    };
    for target in TARGETS.iter().filter(is_tested) {
        let reached = target.reached(FRESH_SEED, None);
        if !target.is_met(reached) {
            missed.push(format!("{} {:?}: {reached:.2}", target.name, target.measure));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[cfg(test)]
const FRESH_SEED: u64 = 101;

#[test]
fn starts_soon_without_a_queue() {
    are_met("start", &["1 Gb/s, 100 ms", "the same", "queue 5 %", "1 % chance"]);
}

#[test]
fn a_gigabyte_is_soon_through_short_queues_and_bursts_of_losses() {
    let names = ["100 ms, 30 packets", "100 ms, 30 packets, 1 %", "50 ms, bursts, 0.1 %"];
    are_met("whole", &names);
}

#[test]
fn loses_little_of_its_own() {
    are_met("loss", &["30 packets", "queue 5 %, 1 %", "100 Mb/s, 50 ms, queue 5 %"]);
}

#[test]
fn follows_the_path() {
    are_met("change", &["halved", "dark for 2 s", "booked"]);
}

#[test]
fn takes_its_share_beside_one_and_many_cubic_flows() {
    let one =
        ["1 CUBIC", "1 CUBIC, 100 ms, queue 5 %", "1 CUBIC, queue 25 %", "1 CUBIC, queue 400 %"];
    are_met("share", &one);
    are_met(
        "share",
        &["2 CUBIC, queue 400 %", "8 CUBIC, queue 25 %", "9 CUBIC", "9 CUBIC, 30 Mb/s"],
    );
}

#[test]
fn a_receiver_that_stalls_costs_the_time_of_its_stalls() {
    are_met("host", &[]);
}
