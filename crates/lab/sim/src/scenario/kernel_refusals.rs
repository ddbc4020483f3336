//! Refusals of a host's own stack: its buffers are full, or a link of it is down.

use longhaul_units::Duration;

use super::{Choice, End, Scenario};
use crate::draw::Draw;

/// A time in which the stack of a host refuses packets.
#[derive(Clone, Copy, Debug)]
pub struct KernelRefusal {
    /// The host.
    pub end: End,
    /// From when, since the start of the world.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
    /// Reason of the refusal.
    pub why: RefusedBecause,
}

/// Why a stack refuses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBecause {
    /// Of each batch it takes the first packets only, or none.
    BuffersFull,
    /// It takes nothing, as where a filter forbids it.
    Forbidden,
    /// The far end of the link takes no packet so large, which the stack does not say.
    TooLong,
    /// The client's link to this path is down: nothing is taken there, and no lane can go there.
    LinkDown(u16),
}

impl Scenario {
    /// Why the stack of `end` takes no whole batch of datagrams of `size` bytes over `path`, if it does
    /// not.
    pub(crate) fn refuses(
        &self,
        end: End,
        path: u16,
        since: Duration,
        size: usize,
    ) -> Option<RefusedBecause> {
        if end == End::Client && size > usize::from(self.queued_max) {
            return Some(RefusedBecause::TooLong);
        }
        let now = self.refusals.iter().filter(|refusal| refusal.holds(end, since));
        now.map(|refusal| refusal.why).find(|why| match why {
            RefusedBecause::BuffersFull | RefusedBecause::Forbidden => true,
            RefusedBecause::TooLong => false,
            RefusedBecause::LinkDown(down) => *down == path,
        })
    }

    /// True if the client has a link to `path`.
    pub(crate) fn has_link(&self, path: u16, since: Duration) -> bool {
        let down = RefusedBecause::LinkDown(path);
        !self.refusals.iter().any(|one| one.why == down && one.holds(End::Client, since))
    }
}

impl KernelRefusal {
    fn holds(&self, end: End, since: Duration) -> bool {
        self.end == end && (self.from..self.until).contains(&since)
    }
}

/// In an eighth of the worlds carried by UDP.
pub(super) fn draw(scenario: &mut Scenario, horizon: u64) {
    let draw = &mut Draw::new(scenario.seed, STREAM);
    if !draw.one_in(8) || scenario.carrier != Choice::Udp {
        return;
    }
    let paths = u64::from(scenario.ip_paths()) + u64::from(scenario.circuit.is_some());
    for _ in 0..draw.between(1, 4) {
        let from = Duration::from_micros(draw.below(horizon));
        let refusal = if paths > 1 && draw.one_in(2) {
            let why = RefusedBecause::LinkDown(draw.below(paths) as u16);
            let until = from + draw.micros(1_000, LONGEST_DOWN_US);
            KernelRefusal { end: End::Client, from, until, why }
        } else {
            let end = *draw.pick(&[End::Client, End::Server]);
            let until = from + draw.micros(100, LONGEST_FULL_US);
            let forbids = Draw::new(scenario.seed, FORBIDDEN_STREAM).one_in(3);
            let why = if forbids { RefusedBecause::Forbidden } else { RefusedBecause::BuffersFull };
            KernelRefusal { end, from, until, why }
        };
        scenario.refusals.push(refusal);
    }
}

/// Less than an idle timeout.
const LONGEST_DOWN_US: u64 = 20_000_000;
const LONGEST_FULL_US: u64 = 3_000_000;
/// Number of the stream of choices: apart, so that all else of a seed stays as it was.
const STREAM: u64 = 81;
const FORBIDDEN_STREAM: u64 = 83;
