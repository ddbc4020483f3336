//! A client that is served.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_rate_control::ChosenProfile;
use longhaul_session::Session;
use longhaul_sys::{descriptors, threads};
use longhaul_units::Instant;
use longhaul_wire::CloseCode;

use crate::api::TransferAccount;
use crate::endpoint::guests::Guest;
use crate::endpoint::policy::Rights;
use crate::memory::lease::Lease;

/// The client that is served.
pub(super) struct Peer<'a> {
    pub from: SocketAddr,
    /// This host's address towards it.
    pub local: SocketAddr,
    pub session: &'a Session,
    pub profile: &'a ChosenProfile,
    /// Which token let it in.
    pub key_id: [u8; 8],
    /// The same at a server of several parties: others do not go on with what it began.
    pub owner: Option<[u8; 8]>,
    pub rights: &'a Arc<Rights>,
    pub guest: &'a Guest<'a>,
    pub lease: &'a Lease,
    /// When its request was granted first: over another carrier it asks again.
    pub began: Cell<Option<Instant>>,
    /// The transfer, once it is over.
    pub account: &'a Cell<Option<TransferAccount>>,
}

/// A fault of this host, for the client.
pub(super) fn text(error: io::Error) -> (CloseCode, String) {
    match descriptors::in_words(&error) {
        Some(words) => (CloseCode::BUSY, words),
        None if threads::is_refused(&error) => (CloseCode::BUSY, error.to_string()),
        None => (CloseCode::INTERNAL, format!("cannot carry its data: {error}")),
    }
}
