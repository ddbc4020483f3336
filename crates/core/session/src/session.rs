use crate::role::Role;
use alloc::string::String;
use alloc::vec::Vec;

use longhaul_units::LaneId;
use longhaul_wire::{Carrier, Cipher, ConnectionId, Join, Protect, ReceiveLimits};

use crate::keys::{LaneKeys, RecordKeys};
use crate::secret::{SessionSecret, equal};
use crate::token::KeyId;

/// Result of a handshake. The peer has proven that it holds the token.
#[derive(Debug)]
#[non_exhaustive]
pub struct Session {
    /// This end.
    pub role: Role,
    /// Which token was used.
    pub key_id: KeyId,
    /// The connection.
    pub connection: ConnectionId,
    /// Protection of object payload.
    pub protect: Protect,
    /// The algorithm that seals packets.
    pub cipher: Cipher,
    /// The carrier of streams and objects.
    pub carrier: Carrier,
    /// Number of lanes, or of TCP connections.
    pub lanes: u16,
    /// The server's UDP port, with carrier UDP.
    pub udp_port: Option<u16>,
    /// The peer's name and version, for logs. The peer chose the text.
    pub peer_implementation: Option<String>,
    /// Rates and buffers that the peer can take in at the start.
    pub peer_limits: Option<ReceiveLimits>,
    /// Profile that the client runs, for logs; known to the server only. The client chose the
    /// text.
    pub profile: Option<String>,
    /// Bytes that came behind the handshake: the beginning of the next control messages.
    pub rest: Vec<u8>,
    pub(crate) secret: SessionSecret,
}

impl Session {
    /// Keys for the packets that this end sends on `lane`.
    pub fn send_keys(&self, lane: LaneId) -> LaneKeys {
        LaneKeys::new(&self.secret, self.role.sends(), lane)
    }

    /// Keys for the packets that this end receives on `lane`.
    pub fn receive_keys(&self, lane: LaneId) -> LaneKeys {
        LaneKeys::new(&self.secret, self.role.peer().sends(), lane)
    }

    /// Keys for the records that this end sends on TCP connection `lane` under `clear`.
    pub fn send_record_keys(&self, lane: LaneId) -> RecordKeys {
        RecordKeys::new(&self.secret, self.role.sends(), lane)
    }

    /// Keys for the records that this end receives on TCP connection `lane` under `clear`.
    pub fn receive_record_keys(&self, lane: LaneId) -> RecordKeys {
        RecordKeys::new(&self.secret, self.role.peer().sends(), lane)
    }

    /// The first bytes of the TCP connection number `lane` (docs/protocol.md section 8).
    pub fn join(&self, lane: LaneId) -> Join {
        let proof = self.secret.join_proof(self.connection, lane);
        Join { connection: self.connection, lane, proof }
    }

    /// True if `join` was made by the peer for a lane of this connection. In constant time for
    /// the proof.
    pub fn verify_join(&self, join: &Join) -> bool {
        let expected = self.join(join.lane);
        join.connection == self.connection
            && join.lane.0 < self.lanes
            && equal(&join.proof, &expected.proof)
    }
}
