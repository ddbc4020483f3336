//! Why a client has no connection.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use longhaul_session::HandshakeError;
use longhaul_sys::descriptors::explained;
use longhaul_wire::CloseCode;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name has no address, or nobody could be asked.
    #[error("cannot find the host {host}: {source}")]
    Unresolvable {
        /// The name.
        host: String,
        /// Error of the resolver.
        source: io::Error,
    },
    /// No address of the host could be connected to.
    #[error("cannot connect to {}", Attempts(.attempts))]
    Unreachable {
        /// Addresses that were tried, each with its error.
        attempts: Vec<(SocketAddr, io::Error)>,
    },
    /// A gateway on the path refused, or could not go on.
    #[error("{words}")]
    Gateway {
        /// Which one, what it could not reach, and why.
        words: String,
    },
    /// Something else answers where a gateway should be.
    #[error("{gateway} is not a gateway: {reason}")]
    NotGateway {
        /// The address that answered.
        gateway: SocketAddr,
        /// Evidence of it.
        reason: String,
    },
    /// The first gateway accepted the connection and then gave no answer.
    #[error("gateway {gateway} gave no answer in {} s", longhaul_relay::ANSWER_TIMEOUT_SECS)]
    GatewaySilent {
        /// The gateway.
        gateway: SocketAddr,
    },
    /// The first gateway does not know the token.
    #[error("gateway {gateway} does not accept this token: name another with --via-token-file")]
    GatewayUnauthorized {
        /// The gateway.
        gateway: SocketAddr,
    },
    /// It accepted the connection and then did not answer in time.
    #[error("{server} does not answer")]
    TimedOut {
        /// The server.
        server: SocketAddr,
    },
    /// It accepted the connection and closed it before it was to say who it is.
    #[error(
        "{server} closed the connection without an answer: it is no Longhaul server, or could not \
         serve, which its log says"
    )]
    HungUp {
        /// The server.
        server: SocketAddr,
    },
    /// The server that answers speaks another protocol.
    #[error("{server} is not a Longhaul server: {reason}")]
    NotLonghaul {
        /// Address that answered.
        server: SocketAddr,
        /// Evidence of it.
        reason: String,
    },
    /// The server does not know the token.
    #[error("{server} does not accept this token")]
    Unauthorized {
        /// The server.
        server: SocketAddr,
    },
    /// The server that answers does not hold the token: another server, or a man in the middle.
    #[error("{server} does not hold this token: it is another server, or one in the middle")]
    Impostor {
        /// Address that answered.
        server: SocketAddr,
    },
    /// No version of the protocol in common.
    #[error("{server} speaks another version of Longhaul")]
    Version {
        /// The server.
        server: SocketAddr,
    },
    /// The server turned us away.
    #[error("{server} turned us away: {code}{}", Reason(.reason))]
    Refused {
        /// The server.
        server: SocketAddr,
        /// Why, for programs.
        code: CloseCode,
        /// Why, for people. The server chose the text.
        reason: String,
    },
    /// The handshake failed in another way.
    #[error("no agreement with {server}: {error}")]
    Handshake {
        /// The server.
        server: SocketAddr,
        /// The error.
        error: HandshakeError,
    },
    /// The connection broke.
    #[error("the connection to {server} broke: {reason}")]
    Lost {
        /// The server.
        server: SocketAddr,
        /// Its reason.
        reason: String,
    },
    /// This host has not what is needed.
    #[error("cannot make a connection: {}", explained(.0))]
    System(io::Error),
    /// A stop was asked for.
    #[error("stopped")]
    Stopped,
}

/// Shows the attempts to connect.
struct Attempts<'a>(&'a [(SocketAddr, io::Error)]);

impl fmt::Display for Attempts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (server, error)) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    write!(f, "{separator}{server}: nothing listens there")?;
                }
                io::ErrorKind::TimedOut => write!(f, "{separator}{server}: no answer")?,
                _ if lacks_zone(server) => write!(
                    f,
                    "{separator}{server}: it is an address on one link: name the interface of this host \
                     behind it, as in lh://[{}%eth0]/",
                    server.ip()
                )?,
                _ => write!(f, "{separator}{server}: {}", explained(error))?,
            }
        }
        Ok(())
    }
}

/// True if it is link-local and does not name its link (RFC 4007).
fn lacks_zone(server: &SocketAddr) -> bool {
    match server {
        SocketAddr::V6(server) => server.ip().is_unicast_link_local() && server.scope_id() == 0,
        SocketAddr::V4(_) => false,
    }
}

/// Shows a reason that the peer chose, so that it cannot forge lines or move the cursor.
struct Reason<'a>(&'a str);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", self.0) }
    }
}
