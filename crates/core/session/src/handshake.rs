//! The handshake on the control connection (docs/protocol.md section 2).

mod client;
mod error;
mod server;

use longhaul_units::Duration;

pub use self::client::{ClientConfig, ClientHandshake, ClientProgress};
pub use self::error::HandshakeError;
pub use self::server::{ServerConfig, ServerHandshake, ServerProgress, VerifiedClient};

/// Time after which a handshake is given up, unless configured.
const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
