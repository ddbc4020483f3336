//! A deterministic world for controllers: flows over one bottleneck, packet by packet.
//!
//! All flows share the forward path, a [`longhaul_pathsim::Path`]; their way back is a delay. A
//! Longhaul flow is two lanes of the engine; a TCP flow stands for the neighbours.
#![allow(
    dead_code,
    unused_imports,
    reason = "shared by tests and examples, each of which uses a part"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use longhaul_pathsim::{Path, PathConfig};
use longhaul_rate_control::{ChosenProfile, Metrics, Profile};
use longhaul_units::{Duration, Instant, Rate};

#[path = "longhaul.rs"]
mod longhaul;
#[path = "tcp.rs"]
mod tcp;

pub use longhaul::{Batches, Host, Longhaul, LossLog, Offer, Trace};
pub use tcp::{Tcp, TcpKind};

/// IP-layer bytes of a full packet.
pub const PACKET: u64 = 1500;

/// A sender and its receiver.
pub trait Flow {
    /// It may send: offer packets to `path` and say when to be called again.
    fn wake(&mut self, now: Instant, path: &mut Path) -> Option<Instant>;
    /// IP-layer bytes that reached the receiver.
    fn received(&self) -> u64;
    /// Packets sent and packets lost so far, as the path decided.
    fn sent_and_lost(&self) -> (u64, u64);
    /// Everything offered has been delivered, and the sender knows.
    fn done(&self) -> bool {
        false
    }
    /// Metrics of the controller.
    fn metrics(&self) -> Option<Metrics> {
        None
    }
}

/// The flows and what they share.
pub struct World {
    pub now: Instant,
    path: Path,
    rate: Rate,
    flows: Vec<Box<dyn Flow>>,
    queue: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The one pending wake-up of each flow; others in the queue are out of date.
    due: Vec<Option<Instant>>,
}

impl World {
    /// `config` is the way forth; its rate is what [`World::utilisation`] refers to.
    pub fn new(config: &PathConfig, rate: Rate, seed: u64) -> Self {
        let start = Instant::ZERO + Duration::from_secs(1);
        Self {
            now: start,
            path: Path::new(config, seed, start).expect("a valid path"),
            rate,
            flows: Vec::new(),
            queue: BinaryHeap::new(),
            due: Vec::new(),
        }
    }

    /// Adds a flow that starts `after` the present time.
    pub fn add(&mut self, after: Duration, flow: impl Flow + 'static) -> usize {
        let index = self.flows.len();
        let at = self.now + after;
        self.flows.push(Box::new(flow));
        self.due.push(Some(at));
        self.queue.push(Reverse((at, index)));
        index
    }

    /// From now on what is offered takes another path; what is under way arrives as it would have: by the
    /// time that this gives.
    pub fn reroute(&mut self, config: &PathConfig, seed: u64) -> Duration {
        let waits = self.path.queue_delay(self.now);
        self.path = Path::new(config, seed, self.now).expect("a valid path");
        waits
    }

    /// A flow falls silent.
    pub fn stop(&mut self, index: usize) {
        self.due[index] = None;
    }

    /// Runs until `end`, or until `stop` holds after an event.
    pub fn run_until(&mut self, end: Instant, mut stop: impl FnMut(&Self) -> bool) {
        while let Some(&Reverse((at, index))) = self.queue.peek() {
            if at > end {
                break;
            }
            self.queue.pop();
            if self.due[index] != Some(at) {
                continue;
            }
            self.now = at;
            let next = self.flows[index].wake(at, &mut self.path);
            self.due[index] = next;
            if let Some(next) = next {
                assert!(next > at, "a flow must not spin at {at:?}");
                self.queue.push(Reverse((next, index)));
            }
            if stop(self) {
                return;
            }
        }
        self.now = end;
    }

    /// Runs for `time`.
    pub fn run(&mut self, time: Duration) {
        self.run_until(self.now + time, |_| false);
    }

    /// One flow.
    pub fn flow(&self, index: usize) -> &dyn Flow {
        &*self.flows[index]
    }

    /// Mean rates received by the flows over the next `time`.
    pub fn measure(&mut self, time: Duration) -> Vec<Rate> {
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.received()).collect();
        self.run(time);
        let pairs = self.flows.iter().zip(before);
        pairs.map(|(flow, before)| Rate::from_bytes_over(flow.received() - before, time)).collect()
    }

    /// Share of the link that all flows together receive over the next `time`, in tenths of a
    /// percent.
    pub fn utilisation(&mut self, time: Duration) -> u64 {
        let total: u64 = self.measure(time).iter().map(|rate| rate.as_bps()).sum();
        total * 1_000 / self.rate.as_bps()
    }

    /// The next `time`, as all flows see the link, and flow `index` the path.
    pub fn span(&mut self, index: usize, time: Duration) -> Span {
        let (sent, lost) = self.flow(index).sent_and_lost();
        let used = self.utilisation(time);
        let now = self.flow(index).sent_and_lost();
        Span { used, sent: now.0 - sent, lost: now.1 - lost }
    }

    /// Mean delay and number of packets of the queue since the start.
    pub fn mean_queue(&self) -> (Duration, u64) {
        let stats = self.path.queue_stats();
        (stats.mean_delay, stats.accepted)
    }

    /// The longest that a packet has waited.
    pub fn most_queue(&self) -> Duration {
        self.path.queue_stats().max_delay
    }
}

/// Observations over a time.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// As [`World::utilisation`].
    pub used: u64,
    /// Packets that one flow sent.
    pub sent: u64,
    /// Those that it lost.
    pub lost: u64,
}

impl Span {
    /// Parts per million of the packets that were lost.
    pub fn loss_ppm(&self) -> u64 {
        self.lost * 1_000_000 / self.sent
    }
}

/// Percent of its fair share that the first of some flows has.
pub fn fair_share(rates: &[Rate]) -> u64 {
    let total: u64 = rates.iter().map(|rate| rate.as_bps()).sum();
    rates[0].as_bps() * rates.len() as u64 * 100 / total
}

/// Prints the beliefs of a flow, at most so often, and what `more` adds.
pub fn beliefs(
    every: Duration,
    more: impl Fn(&longhaul_engine::Path) -> String + 'static,
) -> Trace {
    let (mut last, mut arrived) = (Instant::ZERO, 0);
    Box::new(move |now, path| {
        if now - last < every {
            return;
        }
        let estimates = path.estimates();
        println!(
            "{:8.3} {:9} rate {:9} best {:9} arrived {:9} queue {:6.2} ms lost {} chance {} ppm{}",
            (now - Instant::ZERO).as_secs_f64() - 1.0,
            path.metrics().state,
            path.allowed().0.to_string(),
            estimates.bandwidth().unwrap_or_default().to_string(),
            Rate::from_bytes_over(path.delivered() - arrived, now - last).to_string(),
            estimates.queue().as_secs_f64() * 1e3,
            path.losses().network(),
            estimates.chance_ppm().unwrap_or(0),
            more(path),
        );
        (last, arrived) = (now, path.delivered());
    })
}

/// A path of `rate` with a drop-tail queue of `queue` bytes and random loss, one way `rtt / 2`.
pub fn path(rate: Rate, rtt: Duration, queue: u64, loss_ppm: u32) -> PathConfig {
    PathConfig::default()
        .delay(rtt / 2)
        .rate(rate, longhaul_units::Bytes::new(queue.max(4 * PACKET)))
        .loss(longhaul_pathsim::Probability::from_ppm(loss_ppm))
}

/// A profile by its name.
pub fn played(name: &str, rate: Option<Rate>) -> ChosenProfile {
    Profile::wished(Some(name), rate, []).expect("a known profile, and the rate that it needs")
}

/// A profile by its name, with parameters.
pub fn played_with(name: &str, parameters: &[&str]) -> ChosenProfile {
    let parameters = parameters.iter().copied();
    Profile::wished(Some(name), None, parameters).expect("a known profile and its parameters")
}
