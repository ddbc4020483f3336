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
use longhaul_sys::udp::{BufferSize, UdpSocket};
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
    let buffer = buffer_notice(&socket.receive_buffer());
    buffer.into_iter().chain(socket.capabilities().missing().map(str::to_string)).collect()
}

/// The kernel holds the size that is asked for against the limit, not what it charges for it, which is the double.
fn buffer_notice(buffer: &BufferSize) -> Option<String> {
    let BufferSize { asked, obtained, .. } = buffer;
    let sysctl = buffer.sysctl_to_raise()?;
    Some(format!(
        "the socket buffer is {obtained} bytes instead of {asked}: raise sysctl {sysctl} to {asked}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_gives_a_buffer_is_its_size() {
        let buffer = BufferSize { asked: 10, obtained: 5, sysctl: "net.core.rmem_max" };
        let notice = buffer_notice(&buffer).unwrap();
        assert!(notice.ends_with("5 bytes instead of 10: raise sysctl net.core.rmem_max to 10"));
        assert_eq!(buffer_notice(&BufferSize { obtained: 10, ..buffer }), None);
    }
}
