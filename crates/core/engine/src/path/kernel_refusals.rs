//! Refusals of the local stack: it is asked rarely then, and with one packet.

use core::time::Duration;

use longhaul_units::Instant;

/// The first pause, doubled each time.
const FIRST: Duration = Duration::from_millis(1);
/// With a whole batch at first this makes fewer than a hundred packets in any second.
const LONGEST: Duration = Duration::from_millis(32);

/// Offers of which the stack took nothing, one after the other, by any lane of the path.
#[derive(Debug, Default)]
pub(super) struct KernelRefusals {
    row: u32,
    until: Instant,
}

impl KernelRefusals {
    fn pause(&self) -> Duration {
        FIRST.saturating_mul(1 << self.row.saturating_sub(1).min(8)).min(LONGEST)
    }

    /// Nothing is offered before.
    pub fn until(&self) -> Option<Instant> {
        (self.row > 0).then_some(self.until)
    }

    /// A lane offers a packet: the others wait until it is known what becomes of that.
    pub fn claim(&mut self, now: Instant) {
        self.until = now + self.pause();
    }

    pub fn on_refused(&mut self, now: Instant) {
        self.row += 1;
        self.until = now + self.pause();
    }

    pub fn on_taken(&mut self) {
        self.row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_refuses_is_offered_fewer_than_a_hundred_packets_a_second() {
        let (mut refusals, mut now) = (KernelRefusals::default(), Instant::ZERO);
        let (mut packets, mut batch) = (0, 64);
        while now < Instant::ZERO + Duration::from_secs(1) {
            if refusals.until().is_none_or(|until| until <= now) {
                refusals.claim(now);
                packets += batch;
                refusals.on_refused(now);
                batch = 1;
            }
            now += Duration::from_micros(100);
        }
        assert!((70..100).contains(&packets), "{packets}");
        refusals.on_taken();
        assert_eq!(refusals.until(), None);
    }

    #[test]
    fn several_lanes_ask_one_at_a_time() {
        let mut refusals = KernelRefusals::default();
        refusals.on_refused(Instant::ZERO);
        let now = refusals.until().unwrap();
        refusals.claim(now);
        assert!(refusals.until().is_some_and(|until| until > now));
    }
}
