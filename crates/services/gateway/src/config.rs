//! The words of an operator, on the command line or in a file: both are read into [`Config`], and
//! one check makes [`GatewaySettings`] of it.

mod check;
mod file;
mod sense;

use std::path::PathBuf;
use std::time::Duration;

pub use check::Reading;
use longhaul_settings::{Mistake, Written};

use crate::gateway::GatewaySettings;

/// Everything that can be configured, as it was written. A file has the options' names as keys,
/// with `_` for `-`.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `ADDR[:PORT]` for headers.
    pub listen: Vec<Written>,
    /// `ADDR:PORT` for SOCKS5.
    pub socks: Vec<Written>,
    /// File of `USER:PASSWORD` lines.
    pub socks_password_file: Option<Written<PathBuf>>,
    /// `[ADDR:]PORT=HOST:PORT`.
    pub forward: Vec<Written>,
    /// Ranges of SOCKS and forwarded clients.
    pub from: Vec<Written>,
    /// Gateways of SOCKS and forwarded clients.
    pub via: Vec<Written>,
    /// File of tokens that may use the gateway.
    pub token_file: Option<Written<PathBuf>>,
    /// File of tokens of gateways, which are believed about their clients.
    pub neighbour_token_file: Option<Written<PathBuf>>,
    /// File with the token for next gateways.
    pub via_token_file: Option<Written<PathBuf>>,
    /// The gateway's name.
    pub name: Option<Written>,
    /// `PREFIX[:PORT]` that may be dialled.
    pub allow: Vec<Written>,
    /// Settings of segments without a class.
    pub segment: SegmentConfig,
    /// Classes of segments, in a file `[[segment]]`.
    pub classes: Vec<ClassConfig>,
    /// Routes, in a file `[[route]]`.
    pub routes: Vec<RouteConfig>,
    /// Most sessions.
    pub max_sessions: Option<Written<u32>>,
    /// Most sessions of one client.
    pub max_sessions_per_client: Option<Written<u32>>,
    /// Most bytes of memory that sessions hold.
    pub memory: Option<Written>,
    /// Connections kept open to next gateways.
    pub spares: Option<Written<u32>>,
    /// `[ADDR:]PORT` for status and metrics.
    pub metrics: Option<Written>,
    /// Time that SIGTERM leaves to sessions.
    pub drain: Option<Written>,
    /// It is a file.
    pub is_file: bool,
    /// Mistakes of form that were found in it.
    pub mistakes: Vec<Mistake>,
}

/// Settings of segments.
#[derive(Clone, Debug, Default)]
pub struct SegmentConfig {
    /// Name of the congestion control.
    pub congestion: Option<Written>,
    /// Bytes of each buffer.
    pub buffer: Option<Written>,
    /// Rate of what is sent, which all senders share.
    pub rate: Option<Written>,
    /// The round trip, for buffers that suit the rate from the first connection on.
    pub rtt: Option<Written>,
}

/// Segments to some addresses.
#[derive(Clone, Debug, Default)]
pub struct ClassConfig {
    /// Ranges of the addresses at their other end.
    pub to: Vec<Written>,
    /// Name of the transport.
    pub transport: Option<Written>,
    /// Settings; those that are missing here are as without a class.
    pub settings: SegmentConfig,
}

/// Gateways on the path to some targets.
#[derive(Clone, Debug, Default)]
pub struct RouteConfig {
    /// The targets: ranges and names.
    pub to: Vec<Written>,
    /// The gateways.
    pub via: Vec<Written>,
    /// The PROXY protocol towards the targets.
    pub proxy_protocol: Option<Written<bool>>,
}

/// A configuration that was checked.
#[derive(Debug)]
pub struct Checked {
    /// The work of the gateway.
    pub settings: GatewaySettings,
    /// Time that SIGTERM leaves to sessions.
    pub drain: Duration,
    /// Wishes that this host meets in part only.
    pub notices: Vec<String>,
}

/// Most sessions at a time, unless set.
pub const MAX_SESSIONS: u32 = 1024;
/// Time that SIGTERM leaves to sessions, unless set.
pub const DRAIN: Duration = Duration::from_secs(30);
