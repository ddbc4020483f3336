//! As much of rtnetlink (RFC 3549, include/uapi/linux/rtnetlink.h) as joining two namespaces takes.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::device::Way;

/// A conversation with the kernel about the devices of the namespace that it was opened in.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // No protocol means number 0, which is NETLINK_ROUTE.
        Ok(Self { socket: socket_with(family, kind, SocketFlags::CLOEXEC, None)? })
    }

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
        request.link_header(number, 0);
        request.text(libc::IFLA_IFNAME, name);
        request.number(libc::IFLA_MTU, mtu);
        request.attribute(libc::IFLA_ADDRESS, &links[0]);
        request.nested(libc::IFLA_LINKINFO, |info| {
            info.text(libc::IFLA_INFO_KIND, "veth");
            info.nested(libc::IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |peer| {
                    peer.link_header(number + 1, 0);
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
        request.link_header(index, 0);
        request.number(libc::IFLA_MTU, mtu);
        request.number(libc::IFLA_TXQLEN, queue);
        self.ask(request)
    }

    /// Has a device take single packets only: what is larger is cut before.
    pub(super) fn cut_super_packets(&mut self, name: &str) -> io::Result<()> {
        let index = self.index(name)?;
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        request.link_header(index, 0);
        request.number(libc::IFLA_GSO_MAX_SEGS, 1);
        self.ask(request)
    }

    pub(super) fn set_up(&mut self, name: &str) -> io::Result<()> {
        let index = self.index(name)?;
        let mut request = Request::new(libc::RTM_NEWLINK, 0);
        request.link_header(index, libc::IFF_UP as u32);
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
    pub(super) fn add_route(&mut self, name: &str, way: &Way, table: u8) -> io::Result<()> {
        let index = self.index(name)?;
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let mut request = Request::new(libc::RTM_NEWROUTE, flags);
        let scope = if way.via.is_some() { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_LINK };
        // struct rtmsg: family, bits of destination and source, TOS, table, origin, scope, type.
        request.bytes.extend([family(way.to), way.prefix, 0, 0, table]);
        request.bytes.extend([libc::RTPROT_STATIC, scope, libc::RTN_UNICAST]);
        // Neighbours are there for sure, whatever the addresses of the device say.
        let flags = if way.via.is_some() { RTNH_F_ONLINK } else { 0 };
        request.bytes.extend(flags.to_ne_bytes());
        request.address(libc::RTA_DST, way.to);
        request.number(libc::RTA_OIF, index);
        if let Some(via) = way.via {
            request.address(libc::RTA_GATEWAY, via);
        }
        if let Some(source) = way.source {
            request.address(libc::RTA_PREFSRC, source);
        }
        if let Some(name) = &way.congestion_control {
            request.nested(libc::RTA_METRICS, |metrics| metrics.text(RTAX_CC_ALGO, name));
        }
        self.ask(request)
    }

    /// Has table `table` decide about what comes in through the device.
    pub(super) fn add_rule(&mut self, name: &str, family: u8, table: u8) -> io::Result<()> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWRULE, flags);
        // struct fib_rule_hdr: family, bits of destination and source, TOS, table, two unused,
        // action, flags.
        request.bytes.extend([family, 0, 0, 0, table, 0, 0, FR_ACT_TO_TBL]);
        request.bytes.extend([0; 4]);
        request.text(FRA_IIFNAME, name);
        self.ask(request)
    }

    /// Sends a request and waits for the kernel's verdict.
    pub(super) fn ask(&mut self, request: Request) -> io::Result<()> {
        self.send(request)?;
        let mut answer = [0; ANSWER_MAX];
        let (length, _) = recv(&self.socket, &mut answer, RecvFlags::empty())?;
        verdict(&answer[..length])
    }

    /// Sends a request for a list, and shows each entry to `seen`: what follows its header.
    pub(super) fn list(&mut self, request: Request, seen: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.send(request)?;
        let mut answer = vec![0; LIST_MAX];
        loop {
            let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
            let mut rest = &answer[..length];
            while let Some((kind, message)) = next_message(&mut rest) {
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return verdict(message),
                    _ => seen(&message[HEADER..]),
                }
            }
        }
    }

    fn send(&self, mut request: Request) -> io::Result<()> {
        let length = request.bytes.len() as u32;
        request.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        send(&self.socket, &request.bytes, SendFlags::empty())?;
        Ok(())
    }

    pub(super) fn index(&self, name: &str) -> io::Result<u32> {
        // Any socket of the namespace will do.
        let socket =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(name_to_index(socket.as_fd(), name)?)
    }
}

/// The address of a device on its link (Ethernet).
pub(super) type Link = [u8; 6];

pub(super) fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// Reads an NLMSG_ERROR message, whose error is zero for success.
fn verdict(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).ok_or(io::ErrorKind::InvalidData)?;
    let error = answer.get(HEADER..HEADER + 4).ok_or(io::ErrorKind::InvalidData)?;
    if u16::from_ne_bytes([kind[0], kind[1]]) != libc::NLMSG_ERROR as u16 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    match i32::from_ne_bytes([error[0], error[1], error[2], error[3]]) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Takes the first of several messages: its type, and all of it.
fn next_message<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
    let message = rest.get(..length).filter(|message| message.len() >= HEADER)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((u16::from_ne_bytes([message[4], message[5]]), message))
}

/// What an attribute of that kind holds, of a row of attributes.
pub(super) fn attribute(mut row: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let [a, b, c, d] = *row.first_chunk()?;
        let (length, kind) = (u16::from_ne_bytes([a, b]).into(), u16::from_ne_bytes([c, d]));
        let held = row.get(4..length)?;
        if kind & NLA_TYPE_MASK == wanted {
            return Some(held);
        }
        row = row.get(usize::next_multiple_of(length, 4)..)?;
    }
}

/// A message under construction; its length is filled in when it is sent.
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
}

impl Request {
    pub(super) fn new(kind: u16, flags: libc::c_int) -> Self {
        let flags = (flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Self { bytes }
    }

    /// struct ifinfomsg: family, type, index, flags, mask of flags to change.
    fn link_header(&mut self, index: u32, flags: u32) {
        self.bytes.extend([0; 4]);
        self.bytes.extend(index.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
    }

    pub(super) fn attribute(&mut self, kind: u16, data: &[u8]) {
        self.nested(kind, |request| request.bytes.extend(data));
    }

    fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.attribute(kind, &v4.octets()),
            IpAddr::V6(v6) => self.attribute(kind, &v6.octets()),
        }
    }

    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    pub(super) fn text(&mut self, kind: u16, text: &str) {
        self.nested(kind, |request| {
            request.bytes.extend(text.as_bytes());
            request.bytes.push(0);
        });
    }

    pub(super) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// struct nlmsghdr.
const HEADER: usize = 16;
/// Of include/uapi/linux/veth.h.
const VETH_INFO_PEER: u16 = 1;
/// Of include/uapi/linux/rtnetlink.h, these two.
const RTNH_F_ONLINK: u32 = 4;
const RTAX_CC_ALGO: u16 = 16;
/// Of include/uapi/linux/fib_rules.h, these two.
const FRA_IIFNAME: u16 = 3;
const FR_ACT_TO_TBL: u8 = 1;
/// Without the flags of nesting and byte order.
const NLA_TYPE_MASK: u16 = 0x3fff;
/// Of the veth devices, past that of loopback.
const FIRST_INDEX: u32 = 2;
const LAST_INDEX: u32 = 200;
const TAKEN_HERE: io::ErrorKind = io::ErrorKind::AlreadyExists;
const TAKEN_THERE: io::ErrorKind = io::ErrorKind::ResourceBusy;
/// An error repeats the request, which is shorter than this.
const ANSWER_MAX: usize = 4096;
/// As much of a list as the kernel tells at once.
const LIST_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested() {
        let mut request = Request::new(16, 0);
        request.nested(18, |inner| inner.text(1, "veth"));
        let bytes = &request.bytes[HEADER..];
        assert_eq!(bytes[..8], [16, 0, 18, 0, 9, 0, 1, 0]);
        assert_eq!(&bytes[8..], b"veth\0\0\0\0");
    }

    #[test]
    fn lists_and_attributes_are_taken_apart() {
        let mut message = Request::new(libc::RTM_NEWQDISC, 0);
        message.text(1, "htb");
        message.nested(7 | 0x8000, |inner| inner.number(3, 42));
        message.bytes[0] = message.bytes.len() as u8;
        let two = [&message.bytes[..], &message.bytes[..]].concat();
        let mut rest = &two[..];
        for _ in 0..2 {
            let (kind, message) = next_message(&mut rest).unwrap();
            assert_eq!(kind, libc::RTM_NEWQDISC);
            let row = &message[HEADER..];
            assert_eq!(attribute(row, 1), Some(&b"htb\0"[..]));
            assert_eq!(attribute(attribute(row, 7).unwrap(), 3), Some(&42u32.to_ne_bytes()[..]));
            assert_eq!(attribute(row, 2), None);
        }
        assert!(next_message(&mut rest).is_none());
        assert!(next_message(&mut &two[..10]).is_none());
    }

    #[test]
    fn verdicts_are_read() {
        let mut answer = [0; 20];
        answer[4] = 2;
        assert!(verdict(&answer).is_ok());
        answer[16..].copy_from_slice(&(-libc::EEXIST).to_ne_bytes());
        assert_eq!(verdict(&answer).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(verdict(&answer[..10]).is_err());
        answer[4] = 3;
        assert!(verdict(&answer).is_err());
    }
}
