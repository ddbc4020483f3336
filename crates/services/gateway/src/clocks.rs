use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use longhaul_relay::{Clock, MAX_CLOCK_ERROR};
use longhaul_sys::clock::WallTime;
use longhaul_sys::sync::lock;

/// The time by this host's clock.
pub(crate) fn ours() -> Clock {
    Clock::from_micros(WallTime::now().as_nanos() / 1000)
}

/// The clocks of next gateways, as they have proven them (docs/relay.md section 3).
#[derive(Debug, Default)]
pub(crate) struct Clocks(Mutex<BTreeMap<SocketAddr, Offset>>);

/// Microseconds by which another clock is ahead of ours.
#[derive(Debug)]
struct Offset {
    first: i64,
    now: i64,
}

impl Clocks {
    /// The time at the gateway `address`, where ours is `ours`.
    pub fn at(&self, address: SocketAddr, ours: Clock) -> Clock {
        let offset = lock(&self.0).get(&address).map_or(0, |offset| offset.now);
        ours.moved_by(offset)
    }

    /// The gateway `address` has proven that its time is `theirs`. `false` where it is not believed: the
    /// first that it proved was quite another.
    pub fn believe(&self, address: SocketAddr, theirs: Clock, ours: Clock) -> bool {
        let now = theirs.ahead_of(ours);
        let mut clocks = lock(&self.0);
        if let Some(offset) = clocks.get_mut(&address) {
            offset.now = match now.abs_diff(offset.first) <= MAX_CLOCK_ERROR {
                true => now,
                false => return false,
            };
            return true;
        }
        if clocks.len() >= MAX_CLOCKS {
            return false;
        }
        clocks.insert(address, Offset { first: now, now });
        true
    }
}

/// More next gateways have no wrong clocks.
const MAX_CLOCKS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_believed_once_and_then_corrected_by_a_minute_at_most() {
        let clocks = Clocks::default();
        let gateway = "192.0.2.1:7421".parse().unwrap();
        let at = |seconds: u64| Clock::from_micros(seconds * 1_000_000);
        assert_eq!(clocks.at(gateway, at(1000)), at(1000));
        assert!(clocks.believe(gateway, at(500), at(1000)));
        assert_eq!(clocks.at(gateway, at(1001)), at(501));
        assert!(clocks.believe(gateway, at(560), at(1000)));
        for false_time in [561, 439, 90_000] {
            assert!(!clocks.believe(gateway, at(false_time), at(1000)), "{false_time}");
        }
        assert_eq!(clocks.at(gateway, at(1000)), at(560));
    }
}
