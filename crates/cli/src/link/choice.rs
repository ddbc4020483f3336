//! A network link, as `--link` names it.

use std::net::IpAddr;

use longhaul::LinkChoice;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};

/// Local and remote address, interface and weight.
pub(crate) fn parse(text: &str) -> Result<LinkChoice, String> {
    let mut fields: Vec<&str> = text.split(',').collect();
    let weight = match fields.last().and_then(|last| last.strip_prefix("weight=")) {
        None => 1,
        Some(number) => {
            fields.pop();
            let weight = number.parse().ok().filter(|weight| *weight <= WEIGHT_MAX);
            weight.ok_or_else(|| format!("a weight is a number from 0 to {WEIGHT_MAX}"))?
        }
    };
    let ((local, here), (remote, there)) = match fields[..] {
        [] => ((None, 0), (None, 0)),
        [local] => (address(local)?, (None, 0)),
        [local, remote] => (address(local)?, address(remote)?),
        _ => return Err("a link is [LOCAL][,REMOTE][,weight=N]".into()),
    };
    let zone = match (here, there) {
        (0, zone) | (zone, 0) => zone,
        (here, there) if here == there => here,
        _ => return Err("both addresses are on one link: the same interface behind both %".into()),
    };
    Ok(LinkChoice { local, remote, zone, weight })
}

/// An address, if one is named, and the interface behind its `%` (RFC 4007 section 11).
fn address(text: &str) -> Result<(Option<IpAddr>, u32), String> {
    let none = || format!("{text:?} is no IP address");
    match text.split_once('%') {
        None if text.is_empty() => Ok((None, 0)),
        None => text.parse().map(|ip| (Some(ip), 0)).map_err(|_| none()),
        Some((ip, name)) => {
            let ip = ip.parse().map(IpAddr::V6).map_err(|_| none())?;
            Ok((Some(ip), interface(name)?))
        }
    }
}

/// The index of an interface of this host, by name or as a number.
fn interface(name: &str) -> Result<u32, String> {
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None);
    let index = socket.and_then(|socket| name_to_index(socket, name)).ok();
    index
        .or_else(|| name.parse().ok().filter(|index| *index > 0))
        .ok_or_else(|| format!("this host has no interface {name:?}"))
}

/// As many as there are lanes.
const WEIGHT_MAX: u16 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_two_addresses_and_a_weight_of_which_any_may_be_missing() {
        let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let lo = interface("lo").unwrap();
        for (text, local, remote, zone) in [
            ("fe80::1%lo,fe80::2%lo", ip("fe80::1"), ip("fe80::2"), lo),
            (",fe80::2%lo", None, ip("fe80::2"), lo),
            ("fe80::1%77,fe80::2", ip("fe80::1"), ip("fe80::2"), 77),
        ] {
            assert_eq!(parse(text), Ok(LinkChoice { local, remote, zone, weight: 1 }), "{text}");
        }
        for (text, local, remote, weight) in [
            ("192.0.2.1", ip("192.0.2.1"), None, 1),
            (",192.0.2.2", None, ip("192.0.2.2"), 1),
            ("192.0.2.1,192.0.2.2,weight=3", ip("192.0.2.1"), ip("192.0.2.2"), 3),
            ("2001:db8::1,,weight=0", ip("2001:db8::1"), None, 0),
            ("2001:db8::1,weight=64", ip("2001:db8::1"), None, 64),
            ("weight=2", None, None, 2),
            ("", None, None, 1),
        ] {
            assert_eq!(parse(text), Ok(LinkChoice { local, remote, zone: 0, weight }), "{text}");
        }
        for (text, why) in [
            ("eth0", "\"eth0\" is no IP address"),
            ("192.0.2.1:7420", "no IP address"),
            ("192.0.2.1%lo", "no IP address"),
            ("fe80::1%no-such", "no interface \"no-such\""),
            ("fe80::1%lo,fe80::2%77", "the same interface"),
            ("192.0.2.1,192.0.2.2,weight=65", "from 0 to 64"),
            ("weight=-1", "from 0 to 64"),
            ("weight=2,192.0.2.1", "no IP address"),
            ("192.0.2.1,192.0.2.2,192.0.2.3", "[LOCAL][,REMOTE]"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
