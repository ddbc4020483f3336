//! Several links between this host and a server. Each is a path of the connection, with a controller of
//! its own; [`Paths`](longhaul_connection::Paths) says which lanes are on which, and each stands in
//! for those that are dead.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use longhaul_carriers::udp::paths::{Account, ConnectionPaths, Ends, FIRST, sum};
use longhaul_connection::Offer;
use longhaul_engine::Path;
use longhaul_units::PathId;

/// A link that data goes over, as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkChoice {
    /// This host's address there; by default the one that the system takes for `remote`.
    pub local: Option<IpAddr>,
    /// The server's address there; by default the one that this host has reached it at.
    pub remote: Option<IpAddr>,
    /// Index of this host's interface, without which a link-local address (RFC 4007) is none; zero for none.
    pub zone: u32,
    /// Lanes by this weight among the links that live; zero: only what no other link carries.
    pub weight: u16,
}

/// What one of several links carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkUse {
    /// This host's address.
    pub local: IpAddr,
    /// The server's.
    pub remote: IpAddr,
    /// See [`LinkChoice::weight`].
    pub weight: u16,
    /// IP-layer bytes that this host sent there.
    pub sent_bytes: u64,
    /// IP-layer bytes that it received there.
    pub received_bytes: u64,
    /// Packets that it sent there.
    pub packets_sent: u64,
    /// Those of them that were lost, or that its own stack refused.
    pub packets_lost: u64,
    /// Whether it was believed to carry something at the end.
    pub alive: bool,
}

/// The links of a connection, with their addresses and weights: by path number, so that lanes begin on
/// the first one.
pub(crate) struct Links {
    by_path: Vec<(Ends, u16)>,
    /// Which of those that the user named it is.
    first: usize,
}

/// Why links cannot be used. All of it is the user's to change.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("--link: links carry UDP lanes, not TCP connections")]
    Tcp,
    #[error("--link: a circuit has addresses of its own")]
    Circuit,
    #[error("--link: what is sent at a booked rate goes over one link")]
    Reserved,
    #[error("--link: no more than {LINKS_MAX} links")]
    TooMany,
    #[error("--link: one link at least has a weight above 0")]
    NoWeight,
    #[error("--link: {} twice", named(*.0, *.1))]
    Twice(Option<IpAddr>, Option<IpAddr>),
    #[error("--link: two links are the same one, {}", named(Some(.0.local), Some(.0.remote.ip())))]
    Same(Ends),
    #[error("--link: {0} is no address of one host")]
    NoHost(IpAddr),
    #[error("--link: {0} is no address of this host: {1}")]
    NotOurs(IpAddr, io::Error),
    #[error(
        "--link: {0} is an address on one link: name the interface of this host behind it, as in {0}%eth0"
    )]
    NoZone(Ipv6Addr),
    #[error("--link: {0} stands for all addresses of this host")]
    AnyOfOurs(IpAddr),
    #[error(
        "--link: from {0} to {1}: one address is of IPv4 and one of IPv6; name both where the \
         server's own is of the other kind"
    )]
    Families(IpAddr, IpAddr),
    #[error("--link: no way to {0}: {1}")]
    NoWay(IpAddr, io::Error),
}

/// Whether `links` can be meant, as far as this host knows.
///
/// # Errors
/// See [`LinkError`].
pub(crate) fn check(links: &[LinkChoice]) -> Result<(), LinkError> {
    if links.len() > LINKS_MAX {
        return Err(LinkError::TooMany);
    }
    if !links.is_empty() && links.iter().all(|link| link.weight == 0) {
        return Err(LinkError::NoWeight);
    }
    for (number, LinkChoice { local, remote, zone, .. }) in links.iter().enumerate() {
        let same = |other: &LinkChoice| {
            (other.local, other.remote, other.zone) == (*local, *remote, *zone)
        };
        if links[..number].iter().any(same) {
            return Err(LinkError::Twice(*local, *remote));
        }
        if let Some(ip) = remote.filter(|ip| ip.is_unspecified() || ip.is_multicast()) {
            return Err(LinkError::NoHost(ip));
        }
        if let Some(ip) = [local, remote].into_iter().flatten().find_map(link_local)
            && *zone == 0
        {
            return Err(LinkError::NoZone(ip));
        }
        let Some(local) = *local else { continue };
        if let Some(remote) = remote.filter(|remote| remote.is_ipv4() != local.is_ipv4()) {
            return Err(LinkError::Families(local, remote));
        }
        if local.is_unspecified() {
            return Err(LinkError::AnyOfOurs(local));
        }
        UdpSocket::bind(zoned(SocketAddr::new(local, 0), *zone))
            .map_err(|error| LinkError::NotOurs(local, error))?;
    }
    Ok(())
}

impl Links {
    /// Those of `choices` to the server at `server`, which this host has reached from `local`; that way
    /// alone where nothing is chosen.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn find(
        choices: &[LinkChoice],
        server: SocketAddr,
        local: IpAddr,
    ) -> Result<Self, LinkError> {
        if choices.is_empty() {
            return Ok(Self { by_path: vec![(Ends { local, remote: server }, 1)], first: 0 });
        }
        let mut links: Vec<(Ends, u16)> = Vec::new();
        for choice in choices {
            let ends = choice.ends(server, local)?;
            if links.iter().any(|(other, _)| *other == ends) {
                return Err(LinkError::Same(ends));
            }
            links.push((ends, choice.weight));
        }
        // Where this host has no way now it may have one later: lanes go there then.
        let has_way = |(ends, _): &(Ends, u16)| ends.socket().is_ok();
        let first = links.iter().position(has_way).unwrap_or(0);
        links[..=first].rotate_right(1);
        Ok(Self { by_path: links, first })
    }

    /// The one on which lanes begin: of those that the user named the first that this host has a way to,
    /// if it has a way to any.
    pub fn first(&self) -> Ends {
        self.by_path[0].0
    }

    /// A notice where there are more links than lanes.
    pub fn beyond(&self, lanes: u16) -> Option<String> {
        let all = self.by_path.len();
        (all > lanes.into())
            .then(|| format!("the server grants {lanes} lanes: not all of {all} links are used"))
    }

    /// Lets the lanes of `lines` use all of them, each with rate control of its own.
    pub fn open(&self, lines: &ConnectionPaths, path: impl Fn() -> Path) {
        let mut numbers = vec![FIRST];
        numbers.extend(self.by_path.iter().skip(1).map(|(ends, _)| lines.add(path(), *ends)));
        for (number, (_, weight)) in numbers.into_iter().zip(&self.by_path) {
            lines.offer(number, offer(*weight));
        }
    }

    /// What each of them carried, in the user's order.
    pub fn carried(&self, lines: &ConnectionPaths, accounts: &[Account]) -> Vec<LinkUse> {
        let numbered = (0..).map(PathId).zip(&self.by_path);
        let used = numbered.map(|(number, (ends, weight))| {
            let carried = sum(accounts, number);
            LinkUse {
                local: ends.local,
                remote: ends.remote.ip(),
                weight: *weight,
                sent_bytes: carried.bytes_sent,
                received_bytes: carried.bytes_received,
                packets_sent: carried.packets_sent,
                packets_lost: carried.lost,
                alive: lines.lives(number),
            }
        });
        let mut used: Vec<LinkUse> = used.collect();
        used[..=self.first].rotate_left(1);
        used
    }
}

impl LinkChoice {
    fn ends(&self, server: SocketAddr, local: IpAddr) -> Result<Ends, LinkError> {
        let mut remote = server;
        self.remote.inspect(|ip| remote.set_ip(*ip));
        let remote = zoned(remote, self.zone);
        let local = match self.local {
            Some(chosen) if chosen.is_ipv4() != remote.is_ipv4() => {
                return Err(LinkError::Families(chosen, remote.ip()));
            }
            Some(chosen) => chosen,
            None if remote.ip() == server.ip() => local,
            None => {
                address_towards(remote).map_err(|error| LinkError::NoWay(remote.ip(), error))?
            }
        };
        Ok(Ends { local, remote })
    }
}

/// The address, where it has effect only on one link.
fn link_local(ip: &IpAddr) -> Option<Ipv6Addr> {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(*ip),
        _ => None,
    }
}

/// `address` on the interface `zone`, if there is one.
fn zoned(mut address: SocketAddr, zone: u32) -> SocketAddr {
    if let SocketAddr::V6(address) = &mut address
        && zone > 0
    {
        address.set_scope_id(zone);
    }
    address
}

fn offer(weight: u16) -> Offer {
    if weight == 0 { Offer::Standby } else { Offer::Share(weight.into()) }
}

/// The address from which the system sends to `remote`.
fn address_towards(remote: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(remote)?;
    Ok(socket.local_addr()?.ip())
}

/// A link, for people.
fn named(local: Option<IpAddr>, remote: Option<IpAddr>) -> String {
    match (local, remote) {
        (None, None) => "the way to the server's own address".into(),
        (Some(local), None) => format!("from {local}"),
        (None, Some(remote)) => format!("to {remote}"),
        (Some(local), Some(remote)) => format!("from {local} to {remote}"),
    }
}

/// More than hosts have; well below what a server keeps paths for.
const LINKS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text).filter(|text| !text.is_empty()).map(|text| text.parse().unwrap())
    }

    fn link(local: &str, remote: &str) -> LinkChoice {
        LinkChoice { local: ip(local), remote: ip(remote), zone: 0, weight: 1 }
    }

    fn found(links: &[LinkChoice]) -> Result<Vec<(String, String)>, String> {
        let server = "127.0.0.9:7420".parse().unwrap();
        let links = Links::find(links, server, "127.0.0.1".parse().unwrap());
        let links = links.map_err(|error| error.to_string())?;
        let text = |(ends, _): &(Ends, u16)| (ends.local.to_string(), ends.remote.to_string());
        Ok(links.by_path.iter().map(text).collect())
    }

    #[test]
    fn what_a_link_leaves_out_is_as_the_server_was_reached_or_as_the_system_goes() {
        let ends = |local: &str, remote: &str| (local.to_owned(), remote.to_owned());
        assert_eq!(found(&[]).unwrap(), [ends("127.0.0.1", "127.0.0.9:7420")]);
        let all = [link("", ""), link("127.0.0.3", ""), link("", "127.0.0.7")];
        let expected = [
            ends("127.0.0.1", "127.0.0.9:7420"),
            ends("127.0.0.3", "127.0.0.9:7420"),
            ends("127.0.0.1", "127.0.0.7:7420"),
        ];
        assert_eq!(found(&all).unwrap(), expected);
        let same = found(&[link("", ""), link("127.0.0.1", "127.0.0.9")]).unwrap_err();
        assert!(same.contains("from 127.0.0.1 to 127.0.0.9"), "{same}");
        assert!(found(&[link("::1", "")]).unwrap_err().contains("and one of IPv6; name both"));
    }

    #[test]
    fn a_link_of_link_local_addresses_is_on_its_interface() {
        let choice = LinkChoice { zone: 7, ..link("fe80::1", "fe80::2") };
        let server = "[2001:db8::1]:7420".parse().unwrap();
        let ends = choice.ends(server, "::1".parse().unwrap()).unwrap();
        assert_eq!(ends.remote, "[fe80::2%7]:7420".parse().unwrap());
        let elsewhere = LinkChoice { zone: 8, ..choice };
        assert_ne!(elsewhere.ends(server, "::1".parse().unwrap()).unwrap(), ends);
    }

    #[test]
    fn lanes_begin_on_the_first_link_that_there_is_a_way_to() {
        // From a loopback address nothing leaves the host.
        let dead = link("127.0.0.1", "192.0.2.9");
        let (second, third) = (link("127.0.0.1", "127.0.0.2"), link("127.0.0.1", "127.0.0.3"));
        let remotes = |links: &[LinkChoice]| {
            found(links).unwrap().into_iter().map(|ends| ends.1).collect::<Vec<_>>()
        };
        let expected = ["127.0.0.2:7420", "192.0.2.9:7420", "127.0.0.3:7420"];
        assert_eq!(remotes(&[dead, second, third]), expected);
        assert_eq!(remotes(&[dead]), ["192.0.2.9:7420"], "whose failure is reported");
    }

    #[test]
    fn links_that_cannot_be_meant_are_named() {
        let backup = LinkChoice { weight: 0, ..link("", "") };
        check(&[link("127.0.0.1", ""), backup]).unwrap();
        for (links, why) in [
            (vec![link("192.0.2.77", "")], "192.0.2.77 is no address of this host"),
            (vec![link("0.0.0.0", "")], "stands for all addresses"),
            (vec![link("", "224.0.0.1")], "no address of one host"),
            (vec![link("127.0.0.1", "::1")], "one of IPv6"),
            (vec![link("", "127.0.0.2"); 2], "to 127.0.0.2 twice"),
            (vec![backup], "above 0"),
            (vec![link("fe80::1", "")], "as in fe80::1%eth0"),
            (vec![link("", "fe80::2")], "as in fe80::2%eth0"),
            (vec![link("", ""); LINKS_MAX + 1], "no more than"),
        ] {
            let words = check(&links).unwrap_err().to_string();
            assert!(words.contains(why), "{words}");
        }
    }
}
