use core::net::SocketAddr;
use core::time::Duration;

use longhaul_rate_control::{FeedbackSchedule, Repair};
use longhaul_units::{Bytes, LaneId, PathId};
use longhaul_wire::ConnectionId;

use crate::address::Role;

/// Settings of a lane.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// From WELCOME.
    pub connection: ConnectionId,
    /// 0 carries the streams.
    pub lane: LaneId,
    /// The path that it begins on.
    pub path: PathId,
    /// Client or server.
    pub role: Role,
    /// The server's address; `None` at the server, which learns the client's.
    pub remote: Option<SocketAddr>,
    /// Policy by which lost object bytes are found and repaired.
    pub repair: Repair,
    /// When packets received are reported.
    pub feedback: FeedbackSchedule,
    /// Bytes of the tag of OBJECT packets: 16, or 8 with protection `clear`.
    pub object_tag: usize,
    /// UDP payload that the local interface can send. Below 1200 UDP does not fit, and the lane closes.
    pub datagram_max: u16,
    /// It carries small messages only: nothing is to be found out about larger packets.
    pub only_messages: bool,
    /// Least reordering extent (protocol.md 5.4.1): a packet is not lost before one sent so much later arrived.
    pub reordering: Duration,
    /// Close after so long without an authentic packet.
    pub idle_timeout: Duration,
    /// Socket buffer to announce to the peer.
    pub socket_buffer: Option<Bytes>,
    /// Bytes of a stream that are kept until they are acknowledged: a write takes no more.
    pub stream_buffer: usize,
    /// Tell of each packet that is taken as lost, and why ([`crate::event::Event::Lost`]).
    pub tells_losses: bool,
    /// Seed of everything random in the lane (challenges).
    pub seed: u64,
}

impl LaneConfig {
    /// A lane with the protocol's defaults.
    pub fn new(connection: ConnectionId, lane: LaneId, role: Role, seed: u64) -> Self {
        Self {
            connection,
            lane,
            path: PathId(0),
            role,
            remote: None,
            repair: Repair::Continuous,
            feedback: FeedbackSchedule::USUAL,
            object_tag: longhaul_wire::AEAD_TAG_LEN,
            datagram_max: 1472,
            only_messages: false,
            reordering: Duration::from_micros(250),
            idle_timeout: Duration::from_secs(30),
            socket_buffer: None,
            stream_buffer: 1 << 20,
            tells_losses: false,
            seed,
        }
    }
}
