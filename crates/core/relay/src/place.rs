use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

use longhaul_wire::{DecodeError, Reader};

/// A host and port, by name or by address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The host.
    pub host: Host,
    /// The TCP port, not zero.
    pub port: u16,
}

/// A host, by name or by address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name of 1 to 255 bytes without control characters or spaces; the side that dials resolves it.
    Name(String),
    /// An address. IPv4 is never written as IPv6.
    Address(IpAddr),
}

impl Place {
    /// The place as an address, if it is one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Address(address) => Some(SocketAddr::new(address, self.port)),
            Host::Name(_) => None,
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let (kind, address) = match &self.host {
            Host::Name(name) => {
                out.extend_from_slice(&[NAME]);
                out.extend_from_slice(&self.port.to_be_bytes());
                return write_short(out, name);
            }
            Host::Address(IpAddr::V4(address)) => (IPV4, &address.octets()[..]),
            Host::Address(IpAddr::V6(address)) => (IPV6, &address.octets()[..]),
        };
        out.push(kind);
        out.extend_from_slice(&self.port.to_be_bytes());
        out.extend_from_slice(address);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = r.u8()?;
        let port = r.u16()?;
        let host = match kind {
            NAME => {
                let name = read_short(r)?;
                Host::name(name).ok_or(r.invalid())?
            }
            IPV4 => Host::Address(Ipv4Addr::from(r.array::<4>()?).into()),
            // As `canonical` has it: one address has one form.
            IPV6 => Host::Address(Ipv6Addr::from(r.array::<16>()?).to_canonical()),
            _ => return Err(r.invalid()),
        };
        if port == 0 {
            return Err(r.invalid());
        }
        Ok(Self { host, port })
    }
}

impl Host {
    /// The host that `text` names: an address where it is one, else a name.
    pub fn parse(text: &str) -> Option<Self> {
        match text.parse::<IpAddr>() {
            Ok(address) => Some(Self::Address(address.to_canonical())),
            Err(_) => Self::name(text),
        }
    }

    fn name(name: &str) -> Option<Self> {
        let good = (1..=MAX_NAME).contains(&name.len())
            && name.chars().all(|c| !c.is_control() && !c.is_whitespace());
        good.then(|| Self::Name(name.to_owned()))
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Address(address.ip().to_canonical()), port: address.port() }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

/// A text is not a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected HOST:PORT, with an IPv6 address in brackets: [2001:db8::1]:443")]
pub struct ParsePlaceError;

impl FromStr for Place {
    type Err = ParsePlaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return if address.port() == 0 { Err(ParsePlaceError) } else { Ok(address.into()) };
        }
        let (host, port) = text.rsplit_once(':').ok_or(ParsePlaceError)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or(ParsePlaceError)?;
        if host.contains([':', '[', ']', '@', '/', ',']) {
            return Err(ParsePlaceError);
        }
        Ok(Self { host: Host::name(host).ok_or(ParsePlaceError)?, port })
    }
}

/// Writes a text of at most 255 bytes behind its length.
pub(crate) fn write_short(out: &mut Vec<u8>, text: &str) {
    let text = cut(text, MAX_NAME);
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

/// Reads what [`write_short`] writes.
pub(crate) fn read_short<'a>(r: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let len = r.u8()?;
    core::str::from_utf8(r.take(len.into())?).map_err(|_| r.invalid())
}

/// The first characters of `text` that take at most `limit` bytes.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

const NAME: u8 = 0;
const IPV4: u8 = 4;
const IPV6: u8 = 6;
/// Longest name, in bytes: that of the DNS is shorter by two.
const MAX_NAME: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn texts_that_are_places() {
        for (text, shown) in [
            ("gw.example.org:7421", "gw.example.org:7421"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1:80"),
            ("localhost:1", "localhost:1"),
        ] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            ":80",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "1::2:3",
            "a b:1",
            "[::1]",
            "a@b:1",
        ] {
            assert_eq!(text.parse::<Place>(), Err(ParsePlaceError), "{text}");
        }
    }

    #[test]
    fn bytes_of_places() {
        for (text, bytes) in
            [("gw:80", &[0, 0, 80, 2, b'g', b'w'][..]), ("192.0.2.1:256", &[4, 1, 0, 192, 0, 2, 1])]
        {
            let place: Place = text.parse().unwrap();
            let mut written = Vec::new();
            place.write(&mut written);
            assert_eq!(written, bytes);
            assert_eq!(Place::read(&mut Reader::new(bytes, "place")), Ok(place));
        }
        for wrong in [
            &[0, 0, 80, 0][..],
            &[0, 0, 80, 2, b'g'],
            &[0, 0, 80, 1, b'\n'],
            &[0, 0, 80, 1, 0xff],
            &[4, 0, 0, 1, 2, 3, 4],
            &[5, 0, 80],
            &[],
        ] {
            assert!(Place::read(&mut Reader::new(wrong, "place")).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_parses(name in "[a-z0-9.-]{1,40}", port in 1u16.., v6 in any::<u128>()) {
            for host in [Host::Name(name), Host::Address(Ipv6Addr::from(v6).to_canonical())] {
                let place = Place { host, port };
                let again: Place = place.to_string().parse().unwrap();
                // A name such as 1.2.3.4 is an address.
                prop_assert_eq!(again.to_string(), place.to_string());
            }
        }
    }
}
