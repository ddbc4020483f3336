//! Endings of sessions, for logs and counts.

use std::fmt;
use std::net::SocketAddr;

use longhaul_relay::Side;

/// Ending of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both directions ended and were acknowledged.
    Clean,
    /// The client was not let in, or did not ask.
    NotEntered(String),
    /// The target or the next gateway was not reached, and the client knows.
    NotConnected(String),
    /// Both directions ended, and a side had closed before everything had come to it.
    Left(Side),
    /// A side reset the session, or broke.
    Reset(Side, String),
    /// A side acknowledged nothing for too long.
    Silent(Side),
    /// The gateway stopped before it ended.
    Stopped,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |side: &Side| match side {
            Side::Near => "client",
            Side::Far => "other end",
        };
        match self {
            Self::Clean => f.write_str("done"),
            Self::NotEntered(why) | Self::NotConnected(why) => f.write_str(why),
            Self::Left(side) => {
                write!(f, "done, the {} closed before it had everything", name(side))
            }
            Self::Reset(side, why) => write!(f, "the {} broke off: {why}", name(side)),
            Self::Silent(side) => write!(f, "the {} acknowledges nothing any more", name(side)),
            Self::Stopped => f.write_str("reset, since this gateway stops"),
        }
    }
}

/// Client and target, for the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The client's name, once it is let in.
    pub client: String,
    /// The target, once it is known.
    pub target: String,
    /// The address that was dialled.
    pub next: Option<SocketAddr>,
    /// Bytes passed on towards the target and towards the client.
    pub bytes: [u64; 2],
}
