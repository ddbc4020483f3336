use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use longhaul_relay::{Clock, ClockOffset};
use longhaul_sys::clock::WallTime;
use longhaul_sys::sync::lock;

/// The time by this host's clock.
pub(crate) fn ours() -> Clock {
    Clock::from_micros(WallTime::now().as_nanos() / 1000)
}

/// The clocks of next gateways, as they have proven them (docs/relay.md section 3).
#[derive(Debug, Default)]
pub(crate) struct Clocks(Mutex<BTreeMap<SocketAddr, ClockOffset>>);

impl Clocks {
    /// The time at the gateway `address`, where ours is `ours`.
    pub fn at(&self, address: SocketAddr, ours: Clock) -> Clock {
        lock(&self.0).get(&address).map_or(ours, |offset| offset.at(ours))
    }

    /// The gateway `address` has proven that its time is `theirs`. `false` where it is not believed.
    pub fn believe(&self, address: SocketAddr, theirs: Clock, ours: Clock) -> bool {
        let mut clocks = lock(&self.0);
        if clocks.len() >= MAX_CLOCKS && !clocks.contains_key(&address) {
            return false;
        }
        clocks.entry(address).or_default().believe(theirs, ours)
    }
}

/// More next gateways have no wrong clocks.
const MAX_CLOCKS: usize = 4096;
