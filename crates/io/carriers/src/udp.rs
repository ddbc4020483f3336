//! The UDP carrier: [`lanes`] of a connection, each [`lane`] on a thread, and the paths that they take
//! ([`paths`]).

pub mod lane;
pub mod lanes;
mod path_lock;
pub mod paths;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use longhaul_engine::Path;
use longhaul_rate_control::{ChosenProfile, Governor};
use longhaul_sys::clock;
use longhaul_sys::udp::UdpSocket;
use longhaul_units::{Bottleneck, Duration};

/// Rate control for a connection of this host.
pub fn path(chosen: &ChosenProfile, rtt: Duration) -> Path {
    let now = clock::now();
    let controller = chosen.controller(now, 1500, None);
    let mut governor = Governor::new(now, chosen.profile.heeds_receiver);
    // A rate that the user chose for the controller is a limit, too: several paths share it.
    if let Some(rate) = chosen.rate.filter(|_| !chosen.is_reserved()) {
        governor.set(Bottleneck::UserLimit, rate);
    }
    Path::new(now, controller, governor, rtt, now.as_nanos()).playing(chosen.profile)
}

/// Any port at `local`, on the link that leads to `remote` where that is link-local: by itself such
/// an address names no place.
pub fn on_link_of(local: IpAddr, remote: SocketAddr) -> SocketAddr {
    match (local, remote) {
        (IpAddr::V6(ip), SocketAddr::V6(remote)) => {
            SocketAddrV6::new(ip, 0, 0, remote.scope_id()).into()
        }
        _ => SocketAddr::new(local, 0),
    }
}

/// Notices for the user of a socket.
pub fn socket_notices(socket: &UdpSocket) -> Vec<String> {
    let mut notices = Vec::new();
    let buffer = socket.receive_buffer();
    if let Some(sysctl) = buffer.sysctl_to_raise() {
        notices.push(format!(
            "the socket buffer is {} bytes instead of {}: raise sysctl {sysctl} to {}",
            buffer.obtained,
            buffer.asked,
            buffer.asked * 2
        ));
    }
    notices.extend(socket.capabilities().missing().map(str::to_string));
    notices
}
