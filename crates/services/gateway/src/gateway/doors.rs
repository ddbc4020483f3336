//! Where clients arrive.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use longhaul_relay::{Prefix, Target};

use super::{GatewaySettings, StartError};
use crate::entry::{Entry, Forward, HeaderEntry, Passwords, Socks};
use crate::transport::{Listener, Transport};

/// A place where clients arrive, and how.
#[derive(Debug)]
pub(crate) struct Door {
    /// As the settings have it: the port may be 0.
    address: SocketAddr,
    pub listener: Arc<dyn Listener>,
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

impl Door {
    /// A client with this address may come in.
    pub fn admits(&self, from: IpAddr) -> bool {
        self.from.is_empty()
            || from.to_canonical().is_loopback()
            || self.from.iter().any(|prefix| prefix.contains(from))
    }

    /// The way in of one client.
    pub fn entry(&self) -> Box<dyn Entry> {
        match &self.kind {
            Kind::Header => Box::new(HeaderEntry::default()),
            Kind::Socks { passwords } => Box::new(Socks::new(passwords.clone())),
            Kind::Forward(target) => Box::new(Forward::new(target.clone())),
        }
    }
}

/// Opens the doors of `settings`. Those that are `open` already at the same addresses stay open,
/// and lose no client.
pub(super) fn open(
    settings: &GatewaySettings,
    transport: &dyn Transport,
    open: &[Door],
) -> Result<Vec<Door>, StartError> {
    settings.judge()?;
    let mut open: Vec<&Door> = open.iter().collect();
    let mut doors = Vec::new();
    let mut place = |address: SocketAddr, kind, from: &[Prefix]| -> Result<(), StartError> {
        let failed = |source| StartError::Listen { address, source };
        let listener = match open.iter().position(|door| door.address == address) {
            Some(same) => {
                let listener = open.remove(same).listener.clone();
                listener.change(&settings.segment).map_err(failed)?;
                listener
            }
            None => transport.listen(address, &settings.segment).map_err(failed)?.into(),
        };
        doors.push(Door { address, listener, kind, from: from.to_vec() });
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
    Ok(doors)
}
