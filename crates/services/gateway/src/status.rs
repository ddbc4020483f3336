//! The state of a gateway: what `gateway status` shows, and Prometheus reads.

mod ask;
mod metrics;
mod totals;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use ask::{AskError, ask};
pub use totals::Totals;

/// The state of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Sessions, those that are being set up included.
    pub sessions: Vec<SessionStatus>,
    /// Most sessions at a time.
    pub max_sessions: u64,
    /// Connections that have proven nothing.
    pub at_door: u64,
    /// Bytes of memory that the sessions' segments hold.
    pub memory: u64,
    /// Most of them.
    pub max_memory: u64,
    /// Since the start.
    pub totals: TotalsStatus,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalsStatus {
    /// Sessions that ended in order.
    pub done: u64,
    /// Clients that were not let in.
    pub refused: u64,
    /// Sessions whose target or next gateway was not reached.
    pub not_connected: u64,
    /// Sessions that broke.
    pub broken: u64,
    /// Payload bytes towards targets, of sessions that go on too.
    pub bytes_there: u64,
    /// Payload bytes towards clients.
    pub bytes_back: u64,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Its id, the same at all gateways, in hexadecimal digits.
    pub id: String,
    /// The client.
    pub client: String,
    /// The target.
    pub target: String,
    /// `setting up`, `relaying` or `refusing`.
    pub stage: String,
    /// Seconds since the client came.
    pub seconds: f64,
    /// Payload bytes towards the target.
    pub bytes_there: u64,
    /// Payload bytes towards the client.
    pub bytes_back: u64,
    /// Towards the client, then onward if there is one.
    pub segments: Vec<SegmentStatus>,
    /// The segment that holds the session up: `client` or `onward`; `None` while nothing moves.
    pub bottleneck: Option<String>,
}

/// A segment of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentStatus {
    /// `client` or `onward`.
    pub side: String,
    /// The address at its other end.
    pub peer: SocketAddr,
    /// Its transport.
    pub transport: String,
    /// The range of addresses by whose settings it runs; `None`: those of all.
    pub class: Option<String>,
    /// Its congestion control.
    pub congestion_control: String,
    /// Round-trip time in microseconds.
    pub rtt_us: u64,
    /// Goodput of late towards the peer, in bits per second.
    pub rate_bps: u64,
    /// Most that it sends, in bits per second, where it is limited.
    pub limit_bps: Option<u64>,
    /// Payload bytes that were sent again.
    pub resent_bytes: u64,
    /// Bytes that it holds.
    pub memory: u64,
    /// Most bytes that may wait to be read.
    pub receive_buffer: u64,
    /// Most bytes that may wait to be sent.
    pub send_buffer: u64,
    /// Part of the time of late in which bytes waited for it at this gateway.
    pub waited_for: f64,
}
