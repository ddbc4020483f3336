//! A lane of an end: its half of the connection, its socket and its keys.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::DerefMut;
use std::sync::Arc;

use longhaul_connection::{
    Begun, GroupPart, Groups, Hunger, LaneHalf, ReadBatch, SharedPath, Unplaceable,
};
use longhaul_engine::Path;
use longhaul_units::{Duration, Instant, LaneId, RangeSet};

use crate::network::Arrived;
use crate::protection::Protection;
use crate::side::Side;
use crate::sink::Env;
use crate::staging::Staged;
use crate::trace::Kind;

#[derive(Debug)]
pub(crate) struct LaneState {
    pub half: LaneHalf<Arc<Vec<u8>>, Staged>,
    pub lane_id: LaneId,
    pub seal: Protection,
    pub open: Protection,
    /// Datagrams in the socket buffer.
    socket: VecDeque<(Arrived, Instant)>,
    socket_bytes: u64,
    overflowed: bool,
    /// Numbers of packets that were accepted.
    accepted: RangeSet,
    /// IP-layer bytes sent, to compare with what the lane counts.
    pub sent_bytes: u64,
    /// When an authentic packet of the peer came last.
    pub heard: Instant,
    /// How long it had nothing to send.
    hunger: Hunger,
}

impl LaneState {
    pub fn new(
        half: LaneHalf<Arc<Vec<u8>>, Staged>,
        lane_id: LaneId,
        [seal, open]: [Protection; 2],
        [now, local]: [Instant; 2],
    ) -> Self {
        Self {
            half,
            lane_id,
            seal,
            open,
            socket: VecDeque::new(),
            socket_bytes: 0,
            overflowed: false,
            accepted: RangeSet::new(),
            sent_bytes: 0,
            heard: now,
            hunger: Hunger::new(local),
        }
    }

    /// Notes whether it has something to send.
    pub fn note_backlog(&mut self, local: Instant) {
        self.hunger.set(local, self.half.engine().backlog() == 0);
    }

    /// A datagram comes to the socket, whose buffer holds `most` bytes.
    pub fn arrive(&mut self, now: Instant, arrived: Arrived, most: u64) {
        let bytes = arrived.packet.wire_bytes();
        if self.socket_bytes + bytes > most {
            self.overflowed = true;
            return;
        }
        self.socket_bytes += bytes;
        self.socket.push_back((arrived, now));
    }

    /// Reads the socket: a datagram, and those of the same size and sender that came close behind it,
    /// as a kernel joins them. Time stamps are those of a clock that is `ahead` of the world's.
    pub fn read(&mut self, ahead: Duration) -> Option<(ReadBatch, Vec<u8>)> {
        let (Arrived { packet, marked, .. }, at) = self.take()?;
        let mut bytes = packet.bytes.as_ref().clone();
        let segment = bytes.len();
        let mut joined = 1;
        while joined < JOINED_MAX
            && let Some((next, came)) = self.socket.front()
            && (next.packet.from, next.marked) == (packet.from, marked)
            && (1..=segment).contains(&next.packet.bytes.len())
            && bytes.len() == joined * segment
            && bytes.len() + next.packet.bytes.len() <= JOINED_BYTES_MAX
            && *came - at <= CLOSE
        {
            let (next, _) = self.take()?;
            bytes.extend_from_slice(&next.packet.bytes);
            joined += 1;
        }
        let overflowed = std::mem::take(&mut self.overflowed);
        let batch = ReadBatch { from: packet.from, at: at + ahead, segment, marked, overflowed };
        Some((batch, bytes))
    }

    fn take(&mut self) -> Option<(Arrived, Instant)> {
        let (arrived, at) = self.socket.pop_front()?;
        self.socket_bytes -= arrived.packet.wire_bytes();
        Some((arrived, at))
    }

    /// The engine took in `count` packets: all were authentic, and new.
    pub fn check_accepted(&mut self, now: Instant, count: u64, env: &mut Env<'_>) {
        let opened = std::mem::take(&mut self.open.opened);
        let taken = opened.iter().filter(|number| !self.half.engine().accepts(**number));
        let new: u64 = taken.map(|number| self.accepted.insert(*number..*number + 1)).sum();
        env.checks.require(new == count, || {
            format!("{count} packets were accepted, {new} of {opened:?} for the first time")
        });
        if count > 0 {
            self.heard = now;
            env.trace.event(now, Kind::Accepted, [count, new, self.lane_id.0.into()]);
        }
    }
}

/// The lanes of an end, as whoever deals to them sees them.
pub(crate) struct Lanes<'l> {
    lanes: &'l [LaneState],
    /// The host's time.
    pub local: Instant,
}

impl<'l> Lanes<'l> {
    pub fn at(local: Instant, lanes: &'l [LaneState]) -> Self {
        Self { lanes, local }
    }

    /// What the peer promised: any lane may know first.
    pub fn credit(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.half.engine().credit()).max().unwrap_or(0)
    }
}

impl longhaul_connection::Lanes for Lanes<'_> {
    fn backlog(&self, lane: usize) -> u64 {
        self.lanes[lane].half.engine().backlog()
    }

    fn hungry(&self, lane: usize) -> Duration {
        self.lanes[lane].hunger.lasted(self.local)
    }
}

/// Memory for groups: that of what this end does, while it is open.
pub(crate) struct Memory<'m, 'e> {
    pub side: Option<&'m mut Side>,
    pub env: &'m mut Env<'e>,
}

impl Groups<Staged> for Memory<'_, '_> {
    fn begin(&mut self, part: &GroupPart) -> Result<Begun<Staged>, Unplaceable> {
        match &mut self.side {
            Some(side) => side.begin_group(part, self.env),
            None => Err(Unplaceable::NoMemory),
        }
    }

    fn taken_below(&self) -> u32 {
        self.side.as_ref().map_or(0, |side| side.taken_below())
    }
}

/// The path that the lanes of an end share.
pub(crate) struct PathCell<'p>(pub &'p RefCell<Path>);

impl SharedPath for PathCell<'_> {
    fn lock(&self) -> impl DerefMut<Target = Path> {
        self.0.borrow_mut()
    }
}

/// Datagrams that a kernel joins, and bytes of them.
const JOINED_MAX: usize = 44;
const JOINED_BYTES_MAX: usize = 65_507;
/// How close they come.
const CLOSE: Duration = Duration::from_micros(50);
