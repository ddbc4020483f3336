//! A lane of an end, over UDP or TCP.

pub(crate) mod udp;

use std::cell::RefCell;
use std::ops::DerefMut;
use std::sync::Arc;

use longhaul_connection::{
    Groups, IdleTime, MessageLane, News, Order, Place, RecordHalf, Repair, SharedPath, Standing,
};
use longhaul_engine::{LaneStats, Path, Suspension};
use longhaul_units::{Duration, Instant, PathId, StreamId};
use longhaul_wire::ReceiverBounds;

use crate::records::Records;
use crate::staging::Staged;
use udp::UdpLane;

#[derive(Debug)]
pub(crate) struct LaneState {
    pub carrier: Carrying,
    /// Time in which it had nothing to send.
    idle: IdleTime,
}

#[derive(Debug)]
pub(crate) enum Carrying {
    Udp(Box<UdpLane>),
    Tcp(Box<RecordHalf<Arc<Vec<u8>>, Staged, Records>>),
}

use Carrying::{Tcp, Udp};

impl LaneState {
    pub fn new(local: Instant, carrier: Carrying) -> Self {
        Self { carrier, idle: IdleTime::new(local) }
    }

    pub fn udp(&mut self) -> Option<&mut UdpLane> {
        match &mut self.carrier {
            Udp(lane) => Some(lane),
            Tcp(_) => None,
        }
    }

    /// The path that it is on, over UDP.
    pub fn path(&self) -> Option<PathId> {
        match &self.carrier {
            Udp(lane) => Some(lane.half.engine().path()),
            Tcp(_) => None,
        }
    }

    /// Notes whether it has something to send.
    pub fn note_backlog(&mut self, local: Instant) {
        self.idle.set(local, self.backlog() == 0);
    }

    pub fn handle_order(&mut self, local: Instant, order: Order<Arc<Vec<u8>>>) {
        match &mut self.carrier {
            Udp(lane) => lane.half.handle_order(local, order),
            Tcp(half) => half.handle_order(order),
        }
    }

    pub fn handle_repair(&mut self, repair: Repair) {
        match &mut self.carrier {
            Udp(lane) => lane.half.handle_repair(repair),
            Tcp(half) => half.handle_repair(repair),
        }
    }

    pub fn handle_standing(&mut self, standing: &Standing) {
        match &mut self.carrier {
            Udp(lane) => lane.half.handle_standing(standing),
            Tcp(half) => half.handle_standing(standing),
        }
    }

    /// Puts what a TCP connection brings in its place, with memory from `memory`; returns how much.
    pub fn receive(&mut self, bytes: &[u8], memory: &mut impl Groups<Staged>) -> usize {
        let Tcp(half) = &mut self.carrier else { return 0 };
        match half.place(memory) {
            Place::Bytes(place) => {
                let count = place.len().min(bytes.len());
                place[..count].copy_from_slice(&bytes[..count]);
                half.handle_received(count);
                count
            }
            Place::NoMemory => 0,
            // Nobody reads it any more.
            Place::Closed => bytes.len(),
        }
    }

    pub fn poll_news(&mut self) -> Option<News<Staged>> {
        match &mut self.carrier {
            Udp(lane) => lane.half.poll_news(),
            Tcp(half) => half.poll_news(),
        }
    }

    /// Its part that carries messages.
    pub fn messages(&mut self) -> &mut dyn MessageLane {
        match &mut self.carrier {
            Udp(lane) => &mut lane.half,
            Tcp(half) => &mut **half,
        }
    }

    /// Object bytes offered and not sent.
    pub fn backlog(&self) -> u64 {
        match &self.carrier {
            Udp(lane) => lane.half.engine().backlog(),
            Tcp(half) => half.backlog(),
        }
    }

    /// Extents that are not at the peer, as far as this end knows.
    pub fn undelivered(&self) -> usize {
        match &self.carrier {
            Udp(lane) => lane.half.engine().undelivered(),
            Tcp(half) => usize::from(half.backlog() > 0),
        }
    }

    /// True if all messages have got through, as far as this end knows.
    pub fn has_sent_all(&self) -> bool {
        match &self.carrier {
            Udp(lane) => lane.half.engine().stream_sent(StreamId(0)),
            Tcp(half) => !half.is_writing(),
        }
    }

    pub fn credit(&self) -> u64 {
        match &self.carrier {
            Udp(lane) => lane.half.engine().credit(),
            Tcp(half) => half.credit(),
        }
    }

    /// Counts; those that TCP has.
    pub fn stats(&self) -> LaneStats {
        match &self.carrier {
            Udp(lane) => lane.half.engine().stats(),
            Tcp(half) => LaneStats {
                bytes_delivered: half.sent_in_all(),
                fresh_bytes_delivered: half.sent_in_all(),
                fresh_bytes_sent: half.sent_in_all(),
                bytes_received: half.placed(),
                ..LaneStats::default()
            },
        }
    }

    pub fn placed(&self) -> u64 {
        match &self.carrier {
            Udp(lane) => lane.half.placed(),
            Tcp(half) => half.placed(),
        }
    }

    pub fn peer_bounds(&self) -> ReceiverBounds {
        match &self.carrier {
            Udp(lane) => lane.half.engine().peer_bounds(),
            Tcp(half) => half.peer_bounds(),
        }
    }

    /// True if it has received nothing from the peer for as long as `most`.
    pub fn is_cut_off(&self, now: Instant, most: Duration) -> bool {
        matches!(&self.carrier, Udp(lane) if now - lane.last_received > most)
    }

    /// True if it has nothing more to send. What TCP has no room for is dropped.
    pub fn is_closed(&self) -> bool {
        match &self.carrier {
            Udp(lane) => lane.half.engine().is_closed(),
            Tcp(half) => !half.is_open(),
        }
    }

    pub fn suspend_peer(&mut self, local: Instant, suspension: Suspension) {
        if let Some(lane) = self.udp() {
            lane.half.suspend_peer(local, suspension);
        }
    }

    pub fn next_timeout(&self, local: Instant, path: &Path) -> Option<Instant> {
        match &self.carrier {
            Udp(lane) => lane.half.next_timeout(local, path),
            Tcp(half) => half.next_timeout(),
        }
    }
}

/// The lanes of an end, as the dealer sees them.
pub(crate) struct Lanes<'l> {
    lanes: &'l [LaneState],
    /// The host's time.
    pub local: Instant,
}

impl<'l> Lanes<'l> {
    pub fn at(local: Instant, lanes: &'l [LaneState]) -> Self {
        Self { lanes, local }
    }

    /// Credit that the peer promised: any lane may know first.
    pub fn credit(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.credit()).max().unwrap_or(0)
    }
}

impl longhaul_connection::Lanes for Lanes<'_> {
    fn backlog(&self, lane: usize) -> u64 {
        self.lanes[lane].backlog()
    }

    fn idle_time(&self, lane: usize) -> Duration {
        self.lanes[lane].idle.lasted(self.local)
    }
}

/// A path that lanes of an end share.
pub(crate) struct PathCell<'p>(pub &'p RefCell<Path>);

impl SharedPath for PathCell<'_> {
    fn lock(&self) -> impl DerefMut<Target = Path> {
        self.0.borrow_mut()
    }
}
