//! An address where clients arrive.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use longhaul_relay::{Prefix, Target};

use crate::entry::{Entry, Forward, HeaderEntry, Passwords, Socks};
use crate::transport::Listener;

/// A listener, and the protocol of its clients.
#[derive(Debug)]
pub(crate) struct EntryListener {
    /// As the settings have it: the port may be 0.
    pub address: SocketAddr,
    pub socket: Arc<dyn Listener>,
    pub kind: EntryKind,
    /// Addresses from which clients may come; without any, from everywhere.
    pub from: Vec<Prefix>,
}

/// A protocol of clients.
#[derive(Debug)]
pub(crate) enum EntryKind {
    Header,
    Socks { passwords: Option<Passwords> },
    Forward(Target),
}

impl EntryListener {
    /// A client with this address may come in.
    pub fn admits(&self, from: IpAddr) -> bool {
        self.from.is_empty()
            || from.to_canonical().is_loopback()
            || self.from.iter().any(|prefix| prefix.contains(from))
    }

    /// The entry of one client.
    pub fn entry(&self) -> Box<dyn Entry> {
        match &self.kind {
            EntryKind::Header => Box::new(HeaderEntry::default()),
            EntryKind::Socks { passwords } => Box::new(Socks::new(passwords.clone())),
            EntryKind::Forward(target) => Box::new(Forward::new(target.clone())),
        }
    }
}
