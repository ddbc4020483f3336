//! Opening the addresses where clients arrive.

use std::net::SocketAddr;

use longhaul_relay::Prefix;

use super::{GatewaySettings, StartError};
use crate::listener::{EntryKind, EntryListener};
use crate::transport::Transport;

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
        place(*address, EntryKind::Header, &[])?;
    }
    for address in &settings.socks {
        place(
            *address,
            EntryKind::Socks { passwords: settings.passwords.clone() },
            &settings.from,
        )?;
    }
    for (address, target) in &settings.forwards {
        place(*address, EntryKind::Forward(target.clone()), &settings.from)?;
    }
    Ok(listeners)
}
