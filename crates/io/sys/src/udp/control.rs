//! Control messages beside a datagram: written for `sendmsg`, read after `recvmsg`.
//!
//! The layout is the kernel's (`struct cmsghdr` of include/linux/socket.h): a `size_t` length that
//! counts the header, level, type, data, padding to the size of a `size_t`.

use std::net::IpAddr;

use libc::c_int;

use super::address::{Family, v4_at, v6_at};
use crate::clock::WallTime;

/// Control messages under construction.
#[repr(align(8))]
pub(crate) struct ControlWriter {
    bytes: [u8; SEND_CAPACITY],
    len: usize,
}

impl ControlWriter {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; SEND_CAPACITY], len: 0 }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Ask the kernel to cut the payload into datagrams of `size` bytes.
    pub(crate) fn segment(&mut self, size: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    }

    /// Send from `source`, a local address. `interface` matters to link-local addresses only.
    pub(crate) fn source(&mut self, source: IpAddr, family: Family, interface: u32) {
        match (source, family) {
            (IpAddr::V4(v4), Family::V4) => {
                let mut info = [0; IN_PKTINFO];
                info[4..8].copy_from_slice(&v4.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            (source, _) => {
                let v6 = match source {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                let mut info = [0; IN6_PKTINFO];
                info[..16].copy_from_slice(&v6.octets());
                info[16..].copy_from_slice(&interface.to_ne_bytes());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    /// Set the traffic class byte (DSCP and ECN) of this datagram. `v4` tells what it travels as.
    pub(crate) fn traffic_class(&mut self, class: u8, v4: bool) {
        let value = c_int::from(class).to_ne_bytes();
        if v4 {
            self.push(libc::IPPROTO_IP, libc::IP_TOS, &value);
        } else {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value);
        }
    }

    fn push(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let length = HEADER + data.len();
        let place = &mut self.bytes[self.len..self.len + length];
        place[..WORD].copy_from_slice(&length.to_ne_bytes());
        place[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        place[WORD + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        place[HEADER..].copy_from_slice(data);
        self.len += length.next_multiple_of(WORD);
    }
}

/// Room for the control messages of one receive call.
#[repr(align(8))]
pub(crate) struct ControlBuffer {
    pub(crate) bytes: [u8; RECEIVE_CAPACITY],
}

impl ControlBuffer {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; RECEIVE_CAPACITY] }
    }
}

/// Values of the control messages of one receive call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedControl {
    pub(crate) segment: Option<u16>,
    pub(crate) to: Option<IpAddr>,
    pub(crate) kernel_time: Option<WallTime>,
    pub(crate) overflow: u32,
    pub(crate) traffic_class: u8,
}

impl ReceivedControl {
    /// Reads control messages; unknown and short ones are passed over.
    pub(crate) fn parse(mut bytes: &[u8]) -> Self {
        let mut control = Self::default();
        while bytes.len() >= HEADER {
            let length = word_at(bytes, 0);
            if length < HEADER || length > bytes.len() {
                break;
            }
            let (level, kind) = (int_at(bytes, WORD), int_at(bytes, WORD + 4));
            control.take(level, kind, &bytes[HEADER..length]);
            bytes = &bytes[length.next_multiple_of(WORD).min(bytes.len())..];
        }
        control
    }

    fn take(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) if data.len() >= 4 => {
                self.segment = u16::try_from(int_at(data, 0)).ok().filter(|size| *size > 0);
            }
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) if data.len() >= 2 * WORD => {
                let (seconds, nanos) = (word_at(data, 0) as u64, word_at(data, WORD) as u64);
                let time = seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
                self.kernel_time = Some(WallTime::from_nanos(time));
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) if data.len() >= 4 => {
                self.overflow = int_at(data, 0) as u32;
            }
            (libc::IPPROTO_IP, libc::IP_TOS) if !data.is_empty() => self.traffic_class = data[0],
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if data.len() >= 4 => {
                self.traffic_class = int_at(data, 0) as u8;
            }
            // ipi_spec_dst, which unlike ipi_addr is always an address to answer from.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if data.len() >= IN_PKTINFO => {
                self.to = Some(IpAddr::V4(v4_at(data, 4)));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if data.len() >= IN6_PKTINFO => {
                self.to = Some(IpAddr::V6(v6_at(data, 0)).to_canonical());
            }
            _ => {}
        }
    }
}

fn word_at(bytes: &[u8], offset: usize) -> usize {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[offset..offset + WORD]);
    usize::from_ne_bytes(word)
}

fn int_at(bytes: &[u8], offset: usize) -> c_int {
    let mut int = [0; 4];
    int.copy_from_slice(&bytes[offset..offset + 4]);
    c_int::from_ne_bytes(int)
}

const WORD: usize = size_of::<usize>();
const HEADER: usize = WORD + 8;
const IN_PKTINFO: usize = size_of::<libc::in_pktinfo>();
const IN6_PKTINFO: usize = size_of::<libc::in6_pktinfo>();

/// Segment size, source address and traffic class take 24, 40 and 24 bytes.
const SEND_CAPACITY: usize = 96;
/// Five kinds of 24 to 40 bytes, twice where an option is given for both IP versions.
const RECEIVE_CAPACITY: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn written_messages_can_be_read() {
        let mut writer = ControlWriter::new();
        writer.source("192.0.2.1".parse().unwrap(), Family::V4, 0);
        writer.traffic_class(0x02, true);
        assert_eq!(writer.as_bytes().len() % WORD, 0);
        let control = ReceivedControl::parse(writer.as_bytes());
        assert_eq!(control.to, Some("192.0.2.1".parse().unwrap()));
        assert_eq!(control.traffic_class, 2);
        assert_eq!(control.segment, None);
    }

    #[test]
    fn everything_at_once_fits() {
        let mut writer = ControlWriter::new();
        writer.segment(1472);
        writer.source("2001:db8::1".parse().unwrap(), Family::V6, 3);
        writer.traffic_class(0xff, false);
        let control = ReceivedControl::parse(writer.as_bytes());
        assert_eq!(control.to, Some("2001:db8::1".parse().unwrap()));
        assert_eq!(control.traffic_class, 0xff);
    }

    #[test]
    fn mapped_addresses_become_ipv4() {
        let mut writer = ControlWriter::new();
        writer.source("192.0.2.1".parse().unwrap(), Family::V6, 0);
        let control = ReceivedControl::parse(writer.as_bytes());
        assert_eq!(control.to, Some("192.0.2.1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            ReceivedControl::parse(&bytes);
        }

        #[test]
        fn any_message_of_a_known_kind_is_read(
            kind in 0usize..7,
            length in 0usize..80,
            data in proptest::collection::vec(any::<u8>(), 64),
        ) {
            let (level, kind) = [
                (libc::SOL_UDP, libc::UDP_GRO),
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
                (libc::IPPROTO_IP, libc::IP_TOS),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
                (libc::IPPROTO_IP, libc::IP_PKTINFO),
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO),
            ][kind];
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend(level.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(&data);
            ReceivedControl::parse(&bytes);
        }
    }
}
