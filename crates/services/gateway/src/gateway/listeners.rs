//! Listeners: the addresses where clients arrive.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use longhaul_relay::{Prefix, Target};

use super::{GatewaySettings, StartError};
use crate::entry::{Entry, Forward, HeaderEntry, Passwords, Socks};
use crate::transport::{Listener, Transport};

/// A listener, and the protocol of its clients.
#[derive(Debug)]
pub(crate) struct EntryListener {
    /// As the settings have it: the port may be 0.
    address: SocketAddr,
    pub socket: Arc<dyn Listener>,
    kind: Kind,
    /// Addresses from which clients may come; without any, from everywhere.
    from: Vec<Prefix>,
}

#[derive(Debug)]
enum Kind {
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
            Kind::Header => Box::new(HeaderEntry::default()),
            Kind::Socks { passwords } => Box::new(Socks::new(passwords.clone())),
            Kind::Forward(target) => Box::new(Forward::new(target.clone())),
        }
    }
}

/// Opens the listeners of `settings`. Those that are `open` already at the same addresses stay
/// open, and lose no client.
pub(super) fn open(
    settings: &GatewaySettings,
    transport: &dyn Transport,
    open: &[EntryListener],
) -> Result<Vec<EntryListener>, StartError> {
    settings.judge()?;
    let mut open: Vec<&EntryListener> = open.iter().collect();
    let mut listeners = Vec::new();
    let mut place = |address: SocketAddr, kind, from: &[Prefix]| -> Result<(), StartError> {
        let failed = |source| StartError::Listen { address, source };
        let socket = match open.iter().position(|listener| listener.address == address) {
            Some(same) => {
                let socket = open.remove(same).socket.clone();
                socket.change(&settings.segment).map_err(failed)?;
                socket
            }
            None => transport.listen(address, &settings.segment).map_err(failed)?.into(),
        };
        listeners.push(EntryListener { address, socket, kind, from: from.to_vec() });
        Ok(())
    };
    for address in &settings.listen {
        place(*address, Kind::Header, &[])?;
    }
    for address in &settings.socks {
        place(*address, Kind::Socks { passwords: settings.passwords.clone() }, &settings.from)?;
    }
    for (address, target) in &settings.forwards {
        place(*address, Kind::Forward(target.clone()), &settings.from)?;
    }
    Ok(listeners)
}
