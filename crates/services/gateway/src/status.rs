//! The state of a gateway: what `gateway status` shows, and Prometheus reads.

mod ask;
mod metrics;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::session::{Ending, Summary};
use crate::shared::Shared;
use crate::worker::Mailbox;

pub use ask::{AskError, ask};

/// The port at which `gateway status` asks, unless another is named.
pub const METRICS_PORT: u16 = 7422;

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

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Totals {
    done: AtomicU64,
    refused: AtomicU64,
    not_connected: AtomicU64,
    broken: AtomicU64,
    bytes: [AtomicU64; 2],
}

impl Totals {
    /// A session is over.
    pub fn note(&self, summary: &Summary, ending: &Ending) {
        let counter = match ending {
            Ending::Clean | Ending::Left(_) => &self.done,
            Ending::NotEntered(_) => &self.refused,
            Ending::NotConnected(_) => &self.not_connected,
            Ending::Reset(..) | Ending::Silent(_) | Ending::Stopped => &self.broken,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        for (all, bytes) in self.bytes.iter().zip(summary.bytes) {
            all.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn with(&self, sessions: &[SessionStatus]) -> TotalsStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let there: u64 = sessions.iter().map(|session| session.bytes_there).sum();
        let back: u64 = sessions.iter().map(|session| session.bytes_back).sum();
        TotalsStatus {
            done: load(&self.done),
            refused: load(&self.refused),
            not_connected: load(&self.not_connected),
            broken: load(&self.broken),
            bytes_there: load(&self.bytes[0]) + there,
            bytes_back: load(&self.bytes[1]) + back,
        }
    }
}

/// Knows whom to ask for the state of everything.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
}

impl Source {
    pub const fn new(shared: Arc<Shared>, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        Self { shared, mailboxes }
    }

    /// Waits until all threads have shown their sessions, or have ended.
    pub fn status(&self) -> Status {
        let (answer, answers) = mpsc::channel();
        for mailbox in &self.mailboxes {
            mailbox.ask(answer.clone());
        }
        drop(answer);
        let until = Instant::now() + PATIENCE;
        let mut sessions = Vec::new();
        for _ in &self.mailboxes {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(some) = answers.recv_timeout(left) else { break };
            sessions.extend(some);
        }
        let held = sessions.iter().flat_map(|session| &session.segments);
        Status {
            max_sessions: self.shared.max_sessions() as u64,
            at_door: self.shared.strangers() as u64,
            memory: held.map(|segment| segment.memory).sum(),
            max_memory: self.shared.policy().memory,
            totals: self.shared.totals.with(&sessions),
            sessions,
        }
    }
}

/// A thread gives each session a turn before it looks up.
const PATIENCE: Duration = Duration::from_secs(5);
