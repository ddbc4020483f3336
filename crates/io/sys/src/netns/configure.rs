//! As much of rtnetlink as joining two namespaces takes: devices, addresses, neighbours, routes, rules.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::device::RouteEntry;
use crate::netlink::{Netlink, Request};

impl Netlink {
    /// Makes a veth pair: device `name` here and device `name` in the namespace `other`.
    ///
    /// The two get different numbers. The kernel takes a device that is joined to one of its own
    /// number for no virtual one, and may then let a second pass before it opens the link.
    pub(super) fn add_veth(
        &mut self,
        name: &str,
        mtu: u32,
        links: [Link; 2],
        other: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut taken = io::ErrorKind::ResourceBusy.into();
        for number in (FIRST_INDEX..=LAST_INDEX).step_by(2) {
            match self.add_numbered_veth(name, mtu, links, other, number) {
                Err(error) if matches!(error.kind(), TAKEN_HERE | TAKEN_THERE) => taken = error,
                done => return done,
            }
        }
        Err(taken)
    }

    /// [`TAKEN_HERE`] where a device has that number or the name, [`TAKEN_THERE`] where one there has
    /// the next number.
    fn add_numbered_veth(
        &mut self,
        name: &str,
        mtu: u32,
        links: [Link; 2],
        other: BorrowedFd<'_>,
        number: u32,
    ) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        link_header(&mut request, number, 0);
        request.text(libc::IFLA_IFNAME, name);
        request.number(libc::IFLA_MTU, mtu);
        request.attribute(libc::IFLA_ADDRESS, &links[0]);
        request.nested(libc::IFLA_LINKINFO, |info| {
            info.text(libc::IFLA_INFO_KIND, "veth");
            info.nested(libc::IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |peer| {
                    link_header(peer, number + 1, 0);
                    peer.text(libc::IFLA_IFNAME, name);
                    peer.number(libc::IFLA_MTU, mtu);
                    peer.attribute(libc::IFLA_ADDRESS, &links[1]);
                    peer.number(libc::IFLA_NET_NS_FD, other.as_raw_fd() as u32);
                });
            });
        });
        self.ask(request)
    }

    /// Sets the largest packet of a device and how many may wait in it.
    pub(super) fn resize(&mut self, name: &str, mtu: u32, queue: u32) -> io::Result<()> {
        let index = self.index(name)?;
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        link_header(&mut request, index, 0);
        request.number(libc::IFLA_MTU, mtu);
        request.number(libc::IFLA_TXQLEN, queue);
        self.ask(request)
    }

    /// Sets the largest packet of a device.
    pub(super) fn set_mtu(&mut self, name: &str, mtu: u32) -> io::Result<()> {
        let index = self.index(name)?;
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        link_header(&mut request, index, 0);
        request.number(libc::IFLA_MTU, mtu);
        self.ask(request)
    }

    /// Has a device take single packets only: what is larger is cut before.
    pub(super) fn cut_super_packets(&mut self, name: &str) -> io::Result<()> {
        let index = self.index(name)?;
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        link_header(&mut request, index, 0);
        request.number(libc::IFLA_GSO_MAX_SEGS, 1);
        self.ask(request)
    }

    pub(super) fn set_up(&mut self, name: &str) -> io::Result<()> {
        let index = self.index(name)?;
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        link_header(&mut request, index, libc::IFF_UP as u32);
        self.ask(request)
    }

    /// Gives the device an address, usable as soon as the device is up: without the second that
    /// looking for duplicates of an IPv6 address takes.
    pub(super) fn add_address(
        &mut self,
        name: &str,
        address: IpAddr,
        prefix: u8,
    ) -> io::Result<()> {
        let index = self.index(name)?;
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWADDR, flags);
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        request.bytes.extend([family(address), prefix, libc::IFA_F_NODAD as u8, 0]);
        request.bytes.extend(index.to_ne_bytes());
        for kind in [libc::IFA_LOCAL, libc::IFA_ADDRESS] {
            request.address(kind, address);
        }
        self.ask(request)
    }

    /// Tells the device where a neighbour is, for good, so that nobody has to ask.
    pub(super) fn add_neighbour(
        &mut self,
        name: &str,
        address: IpAddr,
        link: Link,
    ) -> io::Result<()> {
        let index = self.index(name)?;
        let mut request = Request::new(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE);
        // struct ndmsg: family, padding, index, state, flags, type.
        request.bytes.extend([family(address), 0, 0, 0]);
        request.bytes.extend(index.to_ne_bytes());
        request.bytes.extend(libc::NUD_PERMANENT.to_ne_bytes());
        request.bytes.extend([0, 0]);
        request.address(libc::NDA_DST, address);
        request.attribute(libc::NDA_LLADDR, &link);
        self.ask(request)
    }

    /// Sends packets out through the device, as table `table` says.
    pub(super) fn add_route(
        &mut self,
        name: &str,
        route: &RouteEntry,
        table: u8,
    ) -> io::Result<()> {
        let index = self.index(name)?;
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let mut request = Request::new(libc::RTM_NEWROUTE, flags);
        let scope = if route.via.is_some() { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_LINK };
        // struct rtmsg: family, bits of destination and source, TOS, table, origin, scope, type.
        request.bytes.extend([family(route.to), route.prefix, 0, 0, table]);
        request.bytes.extend([libc::RTPROT_STATIC, scope, libc::RTN_UNICAST]);
        // Neighbours are there for sure, whatever the addresses of the device say.
        let flags = if route.via.is_some() { RTNH_F_ONLINK } else { 0 };
        request.bytes.extend(flags.to_ne_bytes());
        request.address(libc::RTA_DST, route.to);
        request.number(libc::RTA_OIF, index);
        if let Some(via) = route.via {
            request.address(libc::RTA_GATEWAY, via);
        }
        if let Some(source) = route.source {
            request.address(libc::RTA_PREFSRC, source);
        }
        if let Some(name) = &route.congestion_control {
            request.nested(libc::RTA_METRICS, |metrics| metrics.text(RTAX_CC_ALGO, name));
        }
        self.ask(request)
    }

    /// Has table `table` decide about what comes in through the device, of the family of `via`.
    pub(super) fn add_rule(&mut self, name: &str, via: IpAddr, table: u8) -> io::Result<()> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWRULE, flags);
        // struct fib_rule_hdr: family, bits of destination and source, TOS, table, two unused,
        // action, flags.
        request.bytes.extend([family(via), 0, 0, 0, table, 0, 0, FR_ACT_TO_TBL]);
        request.bytes.extend([0; 4]);
        request.text(FRA_IIFNAME, name);
        self.ask(request)
    }
}

/// struct ifinfomsg: family, type, index, flags, mask of flags to change.
fn link_header(request: &mut Request, index: u32, flags: u32) {
    request.bytes.extend([0; 4]);
    for number in [index, flags, flags] {
        request.bytes.extend(number.to_ne_bytes());
    }
}

/// The address of a device on its link (Ethernet).
pub(super) type Link = [u8; 6];

fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// Of include/uapi/linux/veth.h.
const VETH_INFO_PEER: u16 = 1;
/// Of include/uapi/linux/rtnetlink.h, these two.
const RTNH_F_ONLINK: u32 = 4;
const RTAX_CC_ALGO: u16 = 16;
/// Of include/uapi/linux/fib_rules.h, these two.
const FRA_IIFNAME: u16 = 3;
const FR_ACT_TO_TBL: u8 = 1;
/// Of the veth devices, past that of loopback.
const FIRST_INDEX: u32 = 2;
const LAST_INDEX: u32 = 200;
const TAKEN_HERE: io::ErrorKind = io::ErrorKind::AlreadyExists;
const TAKEN_THERE: io::ErrorKind = io::ErrorKind::ResourceBusy;
