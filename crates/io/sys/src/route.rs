//! Routes of this host, as its kernel would take them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::netlink::{Netlink, Request};

/// Packets to `address` stay on this host: it is one of its addresses, or lies in a range that is routed
/// to it (`ip route add local`), which a socket cannot always be bound to. `false` where no route leads there.
///
/// # Errors
/// Those of rtnetlink.
pub fn is_local(address: IpAddr) -> io::Result<bool> {
    let address = address.to_canonical();
    let mut request = Request::new(libc::RTM_GETROUTE, 0);
    // struct rtmsg: family, bits of destination and source, TOS, table, origin, scope, type, flags.
    let (family, bits) =
        if address.is_ipv4() { (libc::AF_INET, 32) } else { (libc::AF_INET6, 128) };
    request.bytes.extend([family as u8, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    request.address(libc::RTA_DST, address);
    let mut kind = None;
    let asked = Netlink::open()?.list(request, &mut |body| kind = kind.or(body.get(TYPE).copied()));
    match asked {
        Ok(()) => Ok(kind == Some(libc::RTN_LOCAL)),
        Err(error) => match error.kind() {
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => Ok(false),
            _ => Err(error),
        },
    }
}

/// The address of this host from which packets to `to` would go. Nothing is sent.
///
/// # Errors
/// No route leads there, or those of sockets.
pub fn source_towards(to: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((unspecified(to.ip()), 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

/// The address of no host, of the family of `like`.
pub fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Of the type in struct rtmsg.
const TYPE: usize = 7;

#[cfg(test)]
mod tests {
    use longhaul_needs::needs;

    use super::*;
    use crate::netns::{NetnsPair, Side};

    fn add_local(network: IpAddr, bits: u8) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        let index = netlink.index("lo")?;
        let mut request = Request::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE);
        let family = if network.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        request.bytes.extend([family as u8, bits, 0, 0, libc::RT_TABLE_LOCAL]);
        request.bytes.extend([libc::RTPROT_STATIC, libc::RT_SCOPE_HOST, libc::RTN_LOCAL]);
        request.bytes.extend([0; 4]);
        request.address(libc::RTA_DST, network);
        request.number(libc::RTA_OIF, index);
        netlink.ask(request)
    }

    #[test]
    fn packets_to_this_host_come_from_the_address_that_they_go_to() {
        let here: IpAddr = [127, 7, 0, 9].into();
        assert_eq!(source_towards((here, 9).into()).unwrap(), IpAddr::from([127, 0, 0, 1]));
        assert!(unspecified(here).is_unspecified() && unspecified(here).is_ipv4());
    }

    #[needs(namespaces, ipv6)]
    #[test]
    fn addresses_that_are_routed_to_this_host_are_local() {
        let pair = NetnsPair::new(1500).unwrap();
        let [four, six]: [IpAddr; 2] = ["198.18.7.5".parse().unwrap(), "fd77::5".parse().unwrap()];
        let all = [Side::A.ipv4(), Side::A.ipv6(), Side::B.ipv4(), Side::B.ipv6(), four, six];
        let look = || all.map(|address| is_local(address).unwrap());
        let before = pair.run_in(Side::A, look).unwrap();
        assert_eq!(before, [true, true, false, false, false, false]);
        let networks = [("198.18.7.0", 24), ("fd77::", 64)];
        pair.run_in(Side::A, || {
            networks.map(|(at, bits)| add_local(at.parse().unwrap(), bits).unwrap())
        })
        .unwrap();
        let after = pair.run_in(Side::A, look).unwrap();
        assert_eq!(after, [true, true, false, false, true, true]);
    }
}
