//! MTUs of this host's routes and devices, without those that ICMP messages reported.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::netlink::{Netlink, Request, attribute, word};

/// Bytes of the largest packet from `local` to `peer` by the route and the device that this host has for
/// them. `None` where the kernel has learnt of no smaller path: then what it `knows` is just that.
///
/// The kernel keeps what an ICMP message reported of a path's MTU for ten minutes, as an exception
/// to the route, and anybody can make such a message up. Only exceptions expire and are copies of a
/// route.
///
/// # Errors
/// Those of rtnetlink.
pub(super) fn without_icmp(local: IpAddr, peer: SocketAddr, knows: u32) -> io::Result<Option<u32>> {
    let mut netlink = Netlink::open()?;
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let scope = match peer {
        SocketAddr::V6(peer) => peer.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let local = local.to_canonical();
    let Some(used) = netlink.route([local, peer.ip()], scope, 0)? else { return Ok(None) };
    // In another network namespace than the socket's there is another route.
    if !used.learnt || used.mtu != Some(knows) {
        return Ok(None);
    }
    let made = netlink.route([local, peer.ip()], scope, RTM_F_FIB_MATCH)?;
    match made.and_then(|made| made.mtu) {
        Some(mtu) => Ok(Some(mtu)),
        None => netlink.device_mtu(used.device),
    }
}

/// Answer of the kernel about a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    device: u32,
    /// Its own, where it has one.
    mtu: Option<u32>,
    /// It is an exception that ICMP messages made.
    learnt: bool,
}

impl Netlink {
    /// The route that is used, or with [`RTM_F_FIB_MATCH`] the one that was made, without exceptions.
    fn route(
        &mut self,
        [from, to]: [IpAddr; 2],
        device: u32,
        flags: u32,
    ) -> io::Result<Option<Found>> {
        let mut request = Request::new(libc::RTM_GETROUTE, 0);
        // struct rtmsg: family, bits of destination and source, TOS, table, origin, scope, type, flags.
        let (family, bits) = if to.is_ipv4() { (libc::AF_INET, 32) } else { (libc::AF_INET6, 128) };
        request.bytes.extend([family as u8, bits, bits, 0, 0, 0, 0, 0]);
        request.bytes.extend(flags.to_ne_bytes());
        request.address(libc::RTA_DST, to);
        request.address(libc::RTA_SRC, from);
        if device > 0 {
            request.number(libc::RTA_OIF, device);
        }
        let mut found = None;
        self.list(request, &mut |body| found = found.or_else(|| parse_route(body)))?;
        Ok(found)
    }

    fn device_mtu(&mut self, index: u32) -> io::Result<Option<u32>> {
        let mut request = Request::new(libc::RTM_GETLINK, 0);
        // struct ifinfomsg: family, type, index, flags, mask of flags to change.
        request.bytes.extend([0; 4]);
        request.bytes.extend(index.to_ne_bytes());
        request.bytes.extend([0; 8]);
        let mut mtu = None;
        self.list(request, &mut |body| {
            let row = body.get(IFINFOMSG..).unwrap_or_default();
            mtu = mtu.or_else(|| word(attribute(row, libc::IFLA_MTU)?, 0));
        })?;
        Ok(mtu)
    }
}

fn parse_route(body: &[u8]) -> Option<Found> {
    let (flags, row) = (word(body, RTMSG - 4)?, body.get(RTMSG..)?);
    let metrics = attribute(row, libc::RTA_METRICS);
    // struct rta_cacheinfo: references, last use, expires, ...
    let expires = attribute(row, libc::RTA_CACHEINFO).and_then(|info| word(info, 8));
    Some(Found {
        device: attribute(row, libc::RTA_OIF).and_then(|index| word(index, 0))?,
        mtu: metrics.and_then(|metrics| word(attribute(metrics, RTAX_MTU)?, 0)),
        learnt: flags & RTM_F_CLONED != 0 && expires.is_some_and(|left| left.cast_signed() > 0),
    })
}

/// Of include/uapi/linux/rtnetlink.h, these five: sizes of struct rtmsg and struct ifinfomsg, flags, and
/// a metric.
const RTMSG: usize = 12;
const IFINFOMSG: usize = 16;
const RTM_F_CLONED: u32 = 0x200;
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTAX_MTU: u16 = 2;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use longhaul_needs::needs;

    use super::*;
    use crate::netns::{DEVICE, NetnsPair, Side};
    use crate::udp::icmp::tests::{forge, message, raw};
    use crate::udp::{UdpOptions, UdpSocket};

    /// Has a route to `to` of its own MTU, as an administrator makes one.
    fn add_route(to: IpAddr, device: &str, mtu: u32) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        let index = netlink.index(device)?;
        let mut request = Request::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE);
        let (family, bits) = if to.is_ipv4() { (libc::AF_INET, 32) } else { (libc::AF_INET6, 128) };
        request.bytes.extend([family as u8, bits, 0, 0, libc::RT_TABLE_MAIN]);
        request.bytes.extend([libc::RTPROT_STATIC, libc::RT_SCOPE_LINK, libc::RTN_UNICAST]);
        request.bytes.extend([0; 4]);
        request.address(libc::RTA_DST, to);
        request.number(libc::RTA_OIF, index);
        request.nested(libc::RTA_METRICS, |metrics| metrics.number(RTAX_MTU, mtu));
        netlink.ask(request)
    }

    /// MTU that is believed of the path to `to` before and after somebody makes up a smaller MTU.
    fn believed(pair: &NetnsPair, local: IpAddr, to: IpAddr) -> [(u32, u32); 2] {
        let inside = || {
            let socket = UdpSocket::bind((local, 0).into(), &UdpOptions::default()).unwrap();
            socket.connect(SocketAddr::new(to, 7420)).unwrap();
            let look = || (socket.path_mtu().unwrap(), socket.route_mtu().unwrap());
            let before = look();
            let kind = if local.is_ipv4() { (3, 4) } else { (2, 0) };
            let mut made_up = message(kind, [socket.local_addr(), SocketAddr::new(to, 7420)]);
            if local.is_ipv6() {
                made_up[4..8].copy_from_slice(&1280u32.to_be_bytes());
            }
            forge(&raw(local), &made_up, SocketAddr::new(local, 0));
            while look().0 == before.0 {
                std::thread::yield_now();
            }
            [before, look()]
        };
        pair.run_in(Side::A, inside).unwrap()
    }

    #[needs(namespaces)]
    #[test]
    fn a_path_mtu_that_somebody_made_up_is_not_the_routes() {
        let pair = NetnsPair::new(9000).unwrap();
        let local = Side::A.ipv4();
        assert_eq!(believed(&pair, local, Side::B.ipv4()), [(9000, 9000), (552, 9000)]);
        // The owner of the route may have had a reason.
        let to = IpAddr::from([203, 0, 113, 7]);
        pair.run_in(Side::A, || add_route(to, DEVICE, 4000)).unwrap().unwrap();
        assert_eq!(believed(&pair, local, to), [(4000, 4000), (552, 4000)]);
    }

    #[needs(namespaces, ipv6)]
    #[test]
    fn a_path_mtu_that_somebody_made_up_is_not_the_routes_of_ipv6() {
        let pair = NetnsPair::new(9000).unwrap();
        let local = Side::A.ipv6();
        assert_eq!(believed(&pair, local, Side::B.ipv6()), [(9000, 9000), (1280, 9000)]);
        let to = "2001:db8:7::7".parse().unwrap();
        pair.run_in(Side::A, || add_route(to, DEVICE, 4000)).unwrap().unwrap();
        assert_eq!(believed(&pair, local, to), [(4000, 4000), (1280, 4000)]);
    }
}
