//! All contenders, by name.

use longhaul_rate_control::Profile;

use crate::booked::Booked;
use crate::contender::Contender;
use crate::gateways::Gateways;
use crate::gridftp::GridFtp;
use crate::haproxy::Haproxy;
use crate::iperf3::Iperf3;
use crate::longhaul::Longhaul;
use crate::over_tcp::{Mover, OverTcp};
use crate::reader::WatchedReader;
use crate::relays::{Relay, Relayed};
use crate::rsync::Rsync;
use crate::srt::Srt;
use crate::stunnel::Stunnel;
use crate::tar::Tar;
use crate::tcp::Tcp;
use crate::udt::Udt;
use crate::udt_gateways::UdtGateways;
use crate::uftp::Uftp;
use crate::xrootd::Xrootd;

/// A name that no contender has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no contender is called {name:?}; known are {}", .known.join(", "))]
pub struct Unknown {
    name: String,
    known: Vec<String>,
}

/// Every contender as it is usually run; other numbers of streams have names too.
pub fn all() -> Vec<Box<dyn Contender>> {
    names().iter().filter_map(|name| find(name).ok()).collect()
}

/// The contender of that name.
///
/// # Errors
/// The names that there are.
pub fn find(name: &str) -> Result<Box<dyn Contender>, Unknown> {
    let unknown = || Unknown { name: name.to_owned(), known: names() };
    FAMILIES.iter().find_map(|(named, _)| named(name)).ok_or_else(unknown)
}

fn names() -> Vec<String> {
    let usual = FAMILIES.iter().flat_map(|(_, usual)| usual.iter().copied());
    Profile::names().chain(usual).map(str::to_owned).collect()
}

/// Reads the names of a family of contenders.
type Named = fn(&str) -> Option<Box<dyn Contender>>;

/// With the names to list. Longhaul's are those of its profiles.
const FAMILIES: [(Named, &[&str]); 16] = [
    (Longhaul::named, &[]),
    (Booked::named, Booked::USUAL),
    (Iperf3::named, Iperf3::USUAL),
    (Tcp::named, Tcp::USUAL),
    (Relayed::<Gateways>::named, Gateways::USUAL),
    (Relayed::<UdtGateways>::named, UdtGateways::USUAL),
    (Relayed::<Haproxy>::named, Haproxy::USUAL),
    (Relayed::<Stunnel>::named, Stunnel::USUAL),
    (GridFtp::named, GridFtp::USUAL),
    (Udt::named, Udt::USUAL),
    (OverTcp::<Xrootd>::named, &Xrootd::USUAL),
    (Uftp::named, Uftp::USUAL),
    (Srt::named, Srt::USUAL),
    (OverTcp::<Tar>::named, &Tar::USUAL),
    (OverTcp::<Rsync>::named, &Rsync::USUAL),
    (WatchedReader::named, WatchedReader::USUAL),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_unique_and_finds_its_contender() {
        let names = names();
        for (at, name) in names.iter().enumerate() {
            assert_eq!(find(name).unwrap().name(), name);
            assert!(!names[..at].contains(name), "{name}");
        }
        assert_eq!(all().len(), names.len());
        let error = find("moon").err().unwrap().to_string();
        assert!(error.contains("\"moon\"") && error.contains("cubic x8"), "{error}");
    }
}
