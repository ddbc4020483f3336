//! States that a flow can be in, drawn from a seed: what it has been through, and the path that it then
//! has to itself.
//!
//! `cargo run --release -p longhaul-engine --example states` prints what becomes of them.

use std::collections::VecDeque;

use longhaul_pathsim::PathConfig;
use longhaul_rate_control::{ChosenProfile, HostLimit, PathMemory};
use longhaul_units::{Bottleneck, Duration, Rate};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::world::{Longhaul, Offer, PACKET, Tcp, TcpKind, Trace, World, path};

/// The past of a flow, and the path that it has then.
#[derive(Clone, Debug)]
pub struct State {
    pub seed: u64,
    pub rtt: Duration,
    pub memory: Option<PathMemory>,
    /// One behind the other.
    pub past: Vec<Time>,
    /// The path that it is left alone on.
    pub link: Link,
    /// Its host gives it a turn so often.
    pub turns: Option<Duration>,
}

/// The way forth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    pub rate: Rate,
    /// Bytes.
    pub queue: u64,
    pub loss_ppm: u32,
}

/// A time that leaves its traces.
#[derive(Clone, Debug)]
pub struct Time {
    pub lasts: Duration,
    pub link: Link,
    pub trouble: Trouble,
}

/// Another trouble besides.
#[derive(Clone, Debug)]
pub enum Trouble {
    None,
    /// Others fill the queue, so many of a kind.
    Others(TcpKind, u64),
    /// Nothing passes.
    Dark,
    /// The receiving host takes no more.
    Limit(Rate),
    /// The sender has no turn for the second time, once in the first.
    Stutters(Duration, Duration),
}

/// The outcome.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The controller's state when it was left alone.
    #[allow(dead_code, reason = "printed")]
    pub state: &'static str,
    /// From then on, until nine tenths of what the link carries arrive for ten round trips, and half a second.
    pub took: Option<Duration>,
    /// Until when it was to be there.
    pub due: Duration,
    /// Permille of what the link carries, from then on, for thirty round trips and a second, at least [`STAYS`].
    pub used: u64,
}

impl State {
    /// That of a seed.
    pub fn drawn(seed: u64) -> Self {
        let mut draw = Draw(Xoshiro256PlusPlus::seed_from_u64(seed));
        let rtt = Duration::from_micros(draw.log(2_000, 300_000));
        // So much is worth simulating.
        let most = MOST_PACKETS * PACKET * 8_000_000 / (time(rtt).as_micros() as u64 * 2);
        let rate = Rate::from_bps(draw.log(2_000_000, most.min(1_000_000_000)));
        let link = draw.link(rate, rtt);
        let memory = draw.one_in(2).then(|| draw.memory(&link, rtt));
        let most = (link.rate.time_for(link.queue) / 4).min(Duration::from_micros(100));
        let turns = draw.one_in(3).then_some(most);
        let times = draw.below(if memory.is_some() { 2 } else { 3 });
        let mut past: Vec<Time> = (0..times).map(|_| draw.time(&link, rtt)).collect();
        if let Some(first) = past.first_mut().filter(|first| matches!(first.trouble, Trouble::Dark))
        {
            first.trouble = Trouble::None;
        }
        Self { seed, rtt, memory, past, link, turns }
    }

    /// The outcome under `played`.
    pub fn run(&self, played: ChosenProfile, trace: Option<Trace>) -> Outcome {
        let mut links = self.past.iter().map(|time| time.link).chain([self.link]);
        let mut link = links.next().expect("the last at least");
        let mut world = World::new(&self.config(&link), link.rate, self.seed);
        let mut flow = Longhaul::new(played, self.rtt, Offer::Endless, self.seed);
        (flow.memory, flow.trace) = (self.memory, trace);
        let mut at = world.now;
        if let Some(turns) = self.turns {
            flow.stutters = Some((turns, turns * 7 / 8));
        }
        for time in &self.past {
            let until = at + time.lasts;
            match time.trouble {
                Trouble::Limit(rate) => {
                    let limit = HostLimit { rate, cause: Bottleneck::ReceiverDisk, until };
                    flow.limits.push_back((at, limit));
                }
                Trouble::Stutters(every, length) if self.turns.is_none() => {
                    (flow.stutters, flow.rested) = (Some((every, length)), until);
                }
                _ => {}
            }
            at = until;
        }
        let index = world.add(Duration::ZERO, flow);
        for time in &self.past {
            let mut others = Vec::new();
            match time.trouble {
                Trouble::Others(kind, count) => others.extend((0..count).map(|i| {
                    let other = Tcp::new(kind, self.rtt, self.seed.wrapping_add(i));
                    world.add(Duration::from_millis(10 * i), other)
                })),
                Trouble::Dark => {
                    world.reroute(
                        &self.config(&time.link).outage(Duration::ZERO, time.lasts),
                        self.seed,
                    );
                }
                _ => {}
            }
            world.run(time.lasts);
            others.into_iter().for_each(|other| world.stop(other));
            let next = links.next().expect("one behind each time");
            if next != link || matches!(time.trouble, Trouble::Dark) {
                let waits = world.reroute(&self.config(&next), self.seed + 1);
                link = next;
                // Until then it has not the new path alone.
                world.run(waits);
            }
        }
        self.judge(&mut world, index)
    }

    fn judge(&self, world: &mut World, index: usize) -> Outcome {
        let state = world.flow(index).metrics().map_or("start-up", |metrics| metrics.state);
        let step = (self.rtt * 10).max(Duration::from_millis(500)) / 10;
        let (due, all) = (self.due(state), time(self.rtt).max(STAYS));
        let carried = self.link.rate.scale(1_000_000 - self.link.loss_ppm, 1_000_000);
        let (mut steps, mut passed, mut took) = (VecDeque::new(), Duration::ZERO, None);
        let mut at_end = (0, 0);
        while passed < due + all || took.is_none() && passed < MOST_TIME {
            let before = world.flow(index).received();
            world.run(step);
            passed += step;
            steps.push_back(world.flow(index).received() - before);
            if passed > due && passed <= due + all {
                at_end = (at_end.0 + steps[steps.len() - 1], at_end.1 + carried.bytes_in(step));
            }
            if steps.len() > 10 {
                steps.pop_front();
            }
            let arrived: u64 = steps.iter().sum();
            if took.is_none()
                && steps.len() == 10
                && arrived >= carried.bytes_in(step * 10) * 9 / 10
            {
                took = Some(passed - step * 10);
            }
        }
        Outcome { state, took, due, used: at_end.0 * 1_000 / at_end.1.max(1) }
    }

    /// Thirty round trips and a second; who takes others for being there leaves that state 2 K and 2 s after
    /// the last cut at the latest, K as in CUBIC (RFC 9438, section 4.2) of all that the path holds.
    fn due(&self, state: &str) -> Duration {
        let held = (self.link.rate.bytes_in(self.rtt) + self.link.queue) / PACKET;
        let k = Duration::from_secs_f64((held as f64 * 0.75).cbrt());
        let left = if state == "compete" { k * 2 + Duration::from_secs(2) } else { Duration::ZERO };
        time(self.rtt) + left
    }

    fn config(&self, link: &Link) -> PathConfig {
        path(link.rate, self.rtt, link.queue, link.loss_ppm)
    }
}

impl Outcome {
    /// True where it was there in time, and stayed.
    pub fn is_well(&self) -> bool {
        self.used >= 900 && self.took.is_some_and(|took| took <= self.due)
    }
}

/// Thirty round trips and a second.
pub fn time(rtt: Duration) -> Duration {
    rtt * 30 + Duration::from_secs(1)
}

#[derive(Clone)]
struct Draw(Xoshiro256PlusPlus);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Evenly by its logarithm.
    fn log(&mut self, least: u64, most: u64) -> u64 {
        let share = self.below(1 << 20) as f64 / f64::from(1 << 20);
        (least as f64 * (most as f64 / least as f64).powf(share)) as u64
    }

    /// From a hundredth to a hundred times as much.
    fn wrong(&mut self, rate: Rate) -> Rate {
        let share = self.log(1_000, 10_000_000);
        Rate::from_bps((rate.as_bps() as u128 * u128::from(share) / 100_000) as u64)
    }

    fn chance(&mut self, most_ppm: u64) -> u32 {
        if self.one_in(3) { 0 } else { self.log(100, most_ppm) as u32 }
    }

    fn link(&mut self, rate: Rate, rtt: Duration) -> Link {
        let least = 30 * PACKET;
        let queue = self.log(least, (rate.bytes_in(rtt) * 2).max(least + 1));
        Link { rate, queue, loss_ppm: self.chance(20_000) }
    }

    /// Right, old, another path's, poisoned.
    fn memory(&mut self, link: &Link, rtt: Duration) -> PathMemory {
        let rate = if self.one_in(3) { link.rate } else { self.wrong(link.rate) };
        let most = if self.one_in(2) { rate } else { self.wrong(rate).max(rate) };
        let chance_ppm = if self.one_in(3) { link.loss_ppm } else { self.chance(100_000) };
        let round_trip = if self.one_in(4) { rtt * self.log(10, 300) as u32 / 100 } else { rtt };
        let (age, best_profile) = (Duration::from_secs(self.log(60, 2_000_000)), None);
        PathMemory { band: (rate, most), round_trip, chance_ppm, packet: PACKET, age, best_profile }
    }

    fn time(&mut self, link: &Link, rtt: Duration) -> Time {
        let lasts = Duration::from_micros(self.log(200_000, 4_000_000)).max(rtt * 2);
        let mut before = *link;
        // Longer queues are taken for the path.
        let least = Rate::from_bytes_over(link.queue, MOST_QUEUE).max(LEAST_RATE);
        if self.one_in(2) {
            before.rate = self.wrong(link.rate).min(MOST_RATE).max(least);
        }
        if self.one_in(3) {
            before.loss_ppm = self.chance(100_000);
        }
        let trouble = match self.below(8) {
            0 => Trouble::Others(TcpKind::Cubic, self.log(1, 10)),
            1 => Trouble::Others(TcpKind::Bbr, self.log(1, 10)),
            2 => Trouble::Dark,
            3 => Trouble::Limit(self.wrong(link.rate).min(link.rate)),
            4 => {
                let every = self.log(1_000, 300_000);
                let length = every * (1 + self.below(80)) / 100;
                Trouble::Stutters(Duration::from_micros(every), Duration::from_micros(length))
            }
            _ => Trouble::None,
        };
        // Later the path is looked at every two seconds only (protocol.md 5.4.1).
        let dark = matches!(trouble, Trouble::Dark);
        let lasts = if dark { lasts.min(MOST_DARK) } else { lasts };
        Time { lasts, link: before, trouble }
    }
}

const MOST_PACKETS: u64 = 100_000;
const MOST_RATE: Rate = Rate::from_gbps(1);
const LEAST_RATE: Rate = Rate::from_kbps(500);
const STAYS: Duration = Duration::from_secs(3);
const MOST_QUEUE: Duration = Duration::from_millis(500);
const MOST_DARK: Duration = Duration::from_secs(2);
/// Nobody waits for longer.
const MOST_TIME: Duration = Duration::from_secs(30);

/// `LONGHAUL_STATES_COUNT` of them from `LONGHAUL_STATES_SEED` on, and those that were not left in time once.
#[cfg(test)]
#[test]
fn auto_alone_on_a_path_fills_it_soon_whatever_it_has_been_through() {
    let number =
        |name, usual| std::env::var(name).map_or(usual, |number| number.parse().expect("a number"));
    let from = number("LONGHAUL_STATES_SEED", 1);
    let drawn = from..from + number("LONGHAUL_STATES_COUNT", 24);
    for seed in drawn.chain([103, 266, 305, 311, 544]) {
        let state = State::drawn(seed);
        let outcome = state.run(super::played("auto", None), None);
        assert!(
            outcome.is_well(),
            "{outcome:?}, {state:?}; LONGHAUL_STATES_SEED={seed} LONGHAUL_STATES_COUNT=1 runs it again"
        );
    }
}
