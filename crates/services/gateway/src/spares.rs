//! Connections to next gateways that stand before a session needs them: it is set up a round trip
//! faster (docs/relay.md section 4).

use longhaul_sys::sync::lock;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use longhaul_units::{Duration, Instant};

use crate::policy::Policy;
use crate::transport::{Segment, Transport};

/// Spare connections, by the address of the gateway.
#[derive(Debug, Default)]
pub(crate) struct Spares(Mutex<BTreeMap<SocketAddr, Kept>>);

#[derive(Debug)]
struct Kept {
    /// A session went there.
    used_at: Instant,
    /// None is dialled before.
    next_dial: Instant,
    segments: Vec<(Instant, Box<dyn Segment>)>,
}

impl Spares {
    /// A session reached the gateway at `address`.
    pub fn note(&self, address: SocketAddr, now: Instant) {
        let mut all = self.lock();
        if let Some(kept) = all.get_mut(&address) {
            kept.used_at = now;
        } else if all.len() < GATEWAYS {
            all.insert(address, Kept { used_at: now, next_dial: now, segments: Vec::new() });
        }
    }

    /// A connection to `address` that stands.
    pub fn take(&self, address: SocketAddr) -> Option<Box<dyn Segment>> {
        let mut all = self.lock();
        let segments = &mut all.get_mut(&address)?.segments;
        while let Some((_, mut segment)) = segments.pop() {
            if stands(&mut *segment) == Some(true) {
                return Some(segment);
            }
        }
        None
    }

    /// Gives up what broke or grew old, and dials what is missing by the `transport` of its class.
    pub fn keep<'t>(
        &self,
        policy: &Policy,
        transport: impl Fn(&str) -> Option<&'t Arc<dyn Transport>>,
        now: Instant,
    ) {
        let mut all = self.lock();
        all.retain(|_, kept| now.since(kept.used_at) < REMEMBERED);
        for (address, kept) in all.iter_mut() {
            let before = kept.segments.len();
            kept.segments.retain_mut(|(since, segment)| {
                now.since(*since) < LIFE && stands(&mut **segment).is_some()
            });
            if kept.segments.len() < before {
                kept.next_dial = now + PAUSE;
            }
            let live = policy.segments.of(address.ip());
            let Some(transport) = transport(&live.class.transport) else { continue };
            let may = policy.spares > 0 && policy.destinations.allow(*address);
            kept.segments.truncate(if may { policy.spares } else { 0 });
            while may && now >= kept.next_dial && kept.segments.len() < policy.spares {
                match transport.dial(*address, &live.settings()) {
                    Ok(segment) => kept.segments.push((now, segment)),
                    Err(_) => kept.next_dial = now + PAUSE,
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Kept>> {
        lock(&self.0)
    }
}

/// `Some(true)`: it is connected, and nothing came; `None`: it is of no use.
fn stands(segment: &mut dyn Segment) -> Option<bool> {
    match segment.connected() {
        Ok(false) => Some(false),
        // A gateway says nothing before it has a header: what comes is an end.
        Ok(true) => matches!(segment.read(&mut [0]), Ok(None)).then_some(true),
        Err(_) => None,
    }
}

/// Less than the 5 minutes after which gateways close them.
const LIFE: Duration = Duration::from_secs(240);
/// A gateway to which no session went for so long needs none.
const REMEMBERED: Duration = Duration::from_secs(600);
/// After one broke, so that a gateway which closes them is not dialled without end.
const PAUSE: Duration = Duration::from_secs(5);
/// Gateways to which connections are kept.
const GATEWAYS: usize = 64;
