//! A UDP lane of an end: its half of the connection, its socket and its keys.

use std::collections::VecDeque;
use std::sync::Arc;

use longhaul_connection::{LaneHalf, ReadBatch};
use longhaul_units::{Duration, Instant, LaneId, RangeSet};

use crate::environment::Env;
use crate::packet::Arrived;
use crate::protection::Protection;
use crate::staging::Staged;
use crate::trace::Kind;

#[derive(Debug)]
pub(crate) struct UdpLane {
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
    pub last_received: Instant,
}

impl UdpLane {
    pub fn new(
        half: LaneHalf<Arc<Vec<u8>>, Staged>,
        lane_id: LaneId,
        [seal, open]: [Protection; 2],
        now: Instant,
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
            last_received: now,
        }
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
    /// as a kernel joins them, into `bytes`. Time stamps are those of a clock that is `ahead` of the
    /// world's.
    pub fn read(&mut self, ahead: Duration, bytes: &mut Vec<u8>) -> Option<ReadBatch> {
        let (Arrived { packet, ecn, .. }, at) = self.take()?;
        bytes.clear();
        bytes.extend_from_slice(&packet.bytes);
        let segment = bytes.len();
        let mut joined = 1;
        while joined < JOINED_MAX
            && let Some((next, came)) = self.socket.front()
            && (next.packet.from, next.ecn) == (packet.from, ecn)
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
        Some(ReadBatch { from: packet.from, at: at + ahead, segment, ecn, overflowed })
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
            self.last_received = now;
            env.trace.event(now, Kind::Accepted, [count, new, self.lane_id.0.into()]);
        }
    }
}

/// Datagrams that a kernel joins, and bytes of them.
const JOINED_MAX: usize = 44;
const JOINED_BYTES_MAX: usize = 65_507;
/// Distance of packets that are close.
const CLOSE: Duration = Duration::from_micros(50);
