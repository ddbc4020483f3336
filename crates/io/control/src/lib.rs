//! The control connection: TLS, the handshake, liveness and close (docs/protocol.md sections 1
//! to 3). It carries no data. A [`Tunnel`](tunnel::Tunnel) takes it, and connections of data, through ssh.
//!
//! [`dial()`] is the client's way in, [`Acceptor`] the server's; both yield a proven
//! [`Session`](longhaul_session::Session) and a [`Control`], which watches the connection on a
//! small thread until it ends.

mod accept;
mod admission;
mod dial;
mod error;
mod live;
pub mod pending;
pub mod resolve;
pub mod tls;
pub mod tls_stream;
pub mod tunnel;
mod via;

pub use accept::{AcceptError, Accepted, Acceptor, PendingClient, PendingJoin, Stage};
pub use admission::{Place, Places, Ticket};
pub use dial::{Dialed, Remote, dial};
pub use error::ConnectError;
pub use live::{Control, ControlEnd};
pub use tls::ServerIdentity;
pub use via::Via;

#[cfg(test)]
mod tests;
