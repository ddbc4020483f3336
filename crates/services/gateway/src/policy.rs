//! The decisions of an operator, and the addresses that may be dialled.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use longhaul_relay::{Hop, Rule};
use longhaul_session::{KeyId, TokenKey};
use longhaul_sys::route::is_local;

use crate::routes::Routes;
use crate::segments::Segments;

/// The decisions of an operator, who may change them while sessions go on.
#[derive(Debug, Default)]
pub struct Policy {
    /// The gateway's name in answers; without one, each answer names the address that was dialled.
    pub name: Option<String>,
    /// Tokens of gateways, which are believed about their clients' names and addresses.
    pub neighbours: BTreeSet<KeyId>,
    /// Proves this gateway to the next one.
    pub via_key: Option<TokenKey>,
    /// The addresses that may be dialled.
    pub destinations: Destinations,
    /// Gateways through which SOCKS and forwarded clients are led whom no route leads elsewhere.
    pub via: Vec<Hop>,
    /// Further gateways by target.
    pub routes: Routes,
    /// Settings of segments.
    pub segments: Segments,
    /// Most sessions at a time.
    pub max_sessions: usize,
    /// Most sessions of one client.
    pub max_sessions_per_client: usize,
    /// Most bytes of memory that all sessions may hold, those in the kernel included.
    pub memory: u64,
    /// Connections kept open to each next gateway of late.
    pub spares: usize,
}

/// The destinations that a gateway may dial.
///
/// Loopback, link-local and multicast addresses are dialled only by a rule that lies in those
/// ranges, and the gateway's own addresses only by a rule for that one address: a rule for
/// everything does not open what listens on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations(Vec<Rule>);

impl Destinations {
    /// The destinations that one of `rules` names.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// No destination is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The gateway may dial `address`.
    pub fn allow(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let mut own = None;
        self.0.iter().any(|rule| {
            rule.covers(address)
                && (Rule::is_special(ip)
                    || rule.is_single()
                    || !*own.get_or_insert_with(|| is_of_this_host(ip)))
        })
    }
}

/// True if packets to the address stay on this host. Where the kernel does not say so it might.
pub(crate) fn is_of_this_host(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok() || is_local(address).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destinations(rules: &[&str]) -> Destinations {
        Destinations::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    fn allows(rules: &[&str], address: &str) -> bool {
        destinations(rules).allow(address.parse().unwrap())
    }

    #[test]
    fn rules_name_ranges_and_ports() {
        assert!(allows(&["192.0.2.0/24"], "192.0.2.7:1"));
        assert!(!allows(&["192.0.2.0/24"], "192.0.3.7:1"));
        assert!(allows(&["192.0.2.7:80"], "192.0.2.7:80"));
        assert!(!allows(&["192.0.2.7:80"], "192.0.2.7:81"));
        assert!(allows(&["0.0.0.0/0"], "192.0.2.7:80"));
        assert!(!allows(&["0.0.0.0/0"], "[2001:db8::1]:80"));
        for rule in ["[2001:db8::/32]:443", "[2001:db8::]/32:443"] {
            assert!(allows(&[rule], "[2001:db8::1]:443"), "{rule}");
            assert!(!allows(&[rule], "[2001:db8::1]:444"), "{rule}");
        }
        assert!(allows(&["2001:db8::/32"], "[2001:db8::1]:443"));
        assert!(!allows(&[], "192.0.2.7:80"));
    }

    #[test]
    fn mapped_ipv4_is_ipv4() {
        assert!(allows(&["192.0.2.0/24"], "[::ffff:192.0.2.7]:1"));
        assert!(!allows(&["::/0"], "[::ffff:192.0.2.7]:1"));
        assert!(!allows(&["0.0.0.0/0", "::/0"], "[::ffff:127.0.0.1]:1"));
    }

    #[test]
    fn a_rule_for_everything_does_not_open_this_host() {
        let everything = ["0.0.0.0/0", "::/0"];
        for own in [
            "127.0.0.1:80",
            "127.1.2.3:80",
            "0.0.0.0:80",
            "169.254.169.254:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[::]:80",
            "[::1]:80",
            "[fe80::1]:80",
            "[ff02::1]:80",
        ] {
            assert!(!allows(&everything, own), "{own}");
        }
        assert!(allows(&["127.0.0.0/8:80"], "127.0.0.1:80"));
        assert!(allows(&["::1"], "[::1]:80"));
    }
}
