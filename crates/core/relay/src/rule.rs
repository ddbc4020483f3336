use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

/// A range of addresses: `192.0.2.0/24`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// The range holds `address`. IPv4 mapped into IPv6 is IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (ours, len) = bits(self.address);
        let (theirs, other) = bits(address.to_canonical());
        let host_bits = u32::from(len - self.len);
        let network = |bits: u128| bits.checked_shr(host_bits).unwrap_or(0);
        len == other && network(ours) == network(theirs)
    }

    /// Bits that all addresses of the range share: more of them name fewer addresses.
    pub fn length(&self) -> usize {
        self.len.into()
    }

    /// Both hold the same addresses.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is_within(other) && other.is_within(self)
    }

    /// All addresses of the range lie in `other`.
    fn is_within(&self, other: &Self) -> bool {
        self.len >= other.len && other.contains(self.address)
    }

    /// The range is one address.
    pub fn is_single(&self) -> bool {
        self.len == bits(self.address).1
    }
}

/// The address as a number, and how many bits it has.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// A text is not a range of addresses, with or without a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRuleError {
    /// Not an address.
    #[error("\"{0}\" is not an address or a range such as 192.0.2.0/24 or 2001:db8::/32")]
    Address(String),
    /// The range's length is more than the address has bits, or no number.
    #[error("\"{0}\" is not a length of a range: 0 to 32, or to 128 with IPv6")]
    Length(String),
    /// Not a port.
    #[error("\"{0}\" is not a port: 1 to 65535")]
    Port(String),
}

impl FromStr for Prefix {
    type Err = ParseRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let parsed: IpAddr = bare
            .unwrap_or(address)
            .parse()
            .map_err(|_| ParseRuleError::Address(text.to_owned()))?;
        let most = bits(parsed).1;
        let len = match len {
            None => most,
            Some(len) => len
                .parse()
                .ok()
                .filter(|len| *len <= most)
                .ok_or_else(|| ParseRuleError::Length(len.into()))?,
        };
        // Destinations that are mapped IPv4 are looked for as IPv4.
        match parsed.to_canonical() {
            IpAddr::V4(mapped) if parsed.is_ipv6() && len >= 96 => {
                Ok(Self { address: mapped.into(), len: len - 96 })
            }
            _ => Ok(Self { address: parsed, len }),
        }
    }
}

/// A range of addresses, and perhaps one port: `PREFIX[:PORT]`, IPv6 with a port in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    prefix: Prefix,
    port: Option<u16>,
}

impl FromStr for Rule {
    type Err = ParseRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A colon separates a port from IPv4, or from IPv6 in brackets.
        let port = match text.rsplit_once(':') {
            Some((before, port)) if !before.contains(':') || before.contains(']') => {
                Some((before, port))
            }
            _ => None,
        };
        let Some((prefix, port)) = port else {
            return Ok(Self { prefix: text.parse()?, port: None });
        };
        let number = port.parse().ok().filter(|port| *port != 0);
        let prefix = match (prefix.strip_prefix('['), prefix.split_once(']')) {
            // [2001:db8::/32]:443 and [2001:db8::]/32:443
            (Some(inner), Some(_)) => inner.replacen(']', "", 1),
            _ => prefix.into(),
        };
        Ok(Self {
            prefix: prefix.parse()?,
            port: Some(number.ok_or_else(|| ParseRuleError::Port(port.into()))?),
        })
    }
}

impl Rule {
    /// The rule names `destination`. Loopback, link-local, multicast and reserved addresses are named
    /// only by a rule that lies in those ranges: a rule for everything does not mean them.
    pub fn covers(&self, destination: SocketAddr) -> bool {
        let ip = destination.ip().to_canonical();
        self.prefix.contains(ip)
            && self.port.is_none_or(|port| port == destination.port())
            && special(ip).is_none_or(|range| self.prefix.is_within(range))
    }

    /// The rule is for one address.
    pub fn is_single(&self) -> bool {
        self.prefix.is_single()
    }

    /// The address is of a range that only rules within it name.
    pub fn is_special(address: IpAddr) -> bool {
        special(address.to_canonical()).is_some()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => self.prefix.fmt(f),
            Some(port) if self.prefix.address.is_ipv6() => write!(f, "[{}]:{port}", self.prefix),
            Some(port) => write!(f, "{}:{port}", self.prefix),
        }
    }
}

fn special(address: IpAddr) -> Option<&'static Prefix> {
    SPECIAL.iter().find(|range| range.contains(address))
}

const fn v4(a: u8, b: u8, c: u8, d: u8, len: u8) -> Prefix {
    Prefix { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), len }
}

const fn v6(first: u16, last: u16, len: u8) -> Prefix {
    Prefix { address: IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, last)), len }
}

/// This network, loopback, link-local, multicast and reserved.
const SPECIAL: [Prefix; 8] = [
    v4(0, 0, 0, 0, 8),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(224, 0, 0, 0, 3),
    v6(0, 0, 128),
    v6(0, 1, 128),
    v6(0xfe80, 0, 10),
    v6(0xff00, 0, 8),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn what_is_shown_parses() {
        for text in ["192.0.2.0/24", "192.0.2.7/32:80", "2001:db8::/32", "[2001:db8::/32]:443"] {
            let rule: Rule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
            assert_eq!(text.parse::<Rule>().unwrap(), rule);
        }
    }

    #[test]
    fn a_rule_for_everything_does_not_mean_this_host() {
        let covers = |rule: &str, address: &str| {
            rule.parse::<Rule>().unwrap().covers(address.parse().unwrap())
        };
        assert!(covers("0.0.0.0/0", "192.0.2.7:80") && !covers("0.0.0.0/0", "127.0.0.1:80"));
        assert!(!covers("::/0", "[fe80::1]:80") && covers("fe80::/16", "[fe80::1]:80"));
        assert!(covers("127.0.0.0/8:80", "[::ffff:127.0.0.1]:80"));
        assert!(!covers("127.0.0.0/8:80", "127.0.0.1:81"));
    }

    #[test]
    fn mapped_ipv4_in_a_rule_is_ipv4() {
        for (text, shown) in [
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
            ("[::ffff:192.0.2.0/120]:80", "192.0.2.0/24:80"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for (text, error) in [
            ("host", "\"host\" is not an address"),
            ("192.0.2.0/33", "\"33\" is not a length"),
            ("192.0.2.0/24:0", "\"0\" is not a port"),
            ("192.0.2.0:x", "\"x\" is not a port"),
            ("", "\"\" is not an address"),
        ] {
            let found = text.parse::<Rule>().unwrap_err().to_string();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
