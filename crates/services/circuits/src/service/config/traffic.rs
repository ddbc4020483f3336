//! Destinations of projects: switches tell bookings from each other by destination.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use longhaul_settings::{WrongValue, wrong_value};

/// The destinations that bookings may name. Each belongs to one project, so that none has another's
/// traffic sorted into its bookings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Something sorts by what bookings name; else it does not matter.
    sorted: bool,
    destinations: BTreeMap<String, Vec<Prefix>>,
}

impl Traffic {
    /// The destinations of each project; `driven` if links have drivers.
    ///
    /// # Errors
    /// Two projects have the same.
    pub(super) fn new(
        destinations: BTreeMap<String, Vec<Prefix>>,
        driven: bool,
    ) -> Result<Self, WrongValue> {
        let all = || destinations.iter().flat_map(|(name, own)| own.iter().map(move |p| (name, p)));
        for (one, prefix) in all() {
            if let Some((other, same)) = all().find(|(name, p)| *name > one && p.overlaps(prefix)) {
                return Err(wrong_value!(
                    "projects {one} and {other} both have destinations of {prefix} and {same}: each \
                     would have the other's traffic sorted into its bookings"
                ));
            }
        }
        let sorted = driven || destinations.values().any(|own| !own.is_empty());
        Ok(Self { sorted, destinations })
    }

    /// Checks that a booking of `project` may name `destination`.
    ///
    /// # Errors
    /// It may not.
    pub fn may_name(&self, project: &str, destination: IpAddr) -> Result<(), ForeignDestination> {
        let own = self.destinations.get(project).map_or(&[][..], Vec::as_slice);
        if !self.sorted || own.iter().any(|prefix| prefix.contains(destination)) {
            return Ok(());
        }
        let (project, own) = (project.to_owned(), own.to_owned());
        Err(ForeignDestination { destination, project, own })
    }
}

/// A booking names a destination that is not its project's. The client is to blame, or the operator
/// has not listed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{destination} is no destination of project {project}; {}", list(.own))]
pub struct ForeignDestination {
    /// The destination.
    pub destination: IpAddr,
    /// The project.
    pub project: String,
    /// The project's own destinations.
    pub own: Vec<Prefix>,
}

fn list(own: &[Prefix]) -> String {
    match own {
        [] => "it has none: the service's configuration lists them".to_owned(),
        own => {
            let own: Vec<String> = own.iter().map(ToString::to_string).collect();
            format!("it has {}", own.join(", "))
        }
    }
}

/// A network, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    first: IpAddr,
    length: u32,
}

impl Prefix {
    fn contains(&self, address: IpAddr) -> bool {
        self.overlaps(&Self { first: address, length: width(address) })
    }

    /// True if an address is in both.
    fn overlaps(&self, other: &Self) -> bool {
        let free = width(self.first) - self.length.min(other.length);
        let network = |address| bits(address).checked_shr(free).unwrap_or(0);
        self.first.is_ipv4() == other.first.is_ipv4() && network(self.first) == network(other.first)
    }
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        let wrong = |expected| ParsePrefixError { text: text.to_owned(), expected };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| wrong("an address or a network"))?;
        let length = length.map_or(Ok(width(first)), str::parse);
        let length = length.ok().filter(|length| *length <= width(first));
        let length = length.ok_or_else(|| wrong("a length behind the /"))?;
        let rest = bits(first).checked_shl(128 - width(first) + length).unwrap_or(0);
        match rest {
            0 => Ok(Self { first, length }),
            _ => Err(wrong("the first address of a network")),
        }
    }
}

/// A text is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: expected {expected}, like 192.0.2.0/24 or 2001:db8::7")]
pub struct ParsePrefixError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

const fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_hold_their_addresses_and_no_others() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (net, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "255.255.255.255", "::"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::/0", "ffff::", "0.0.0.0"),
            ("2001:db8::1/128", "2001:db8::1", "2001:db8::"),
        ] {
            assert!(prefix(net).contains(address(inside)), "{net} {inside}");
            assert!(!prefix(net).contains(address(outside)), "{net} {outside}");
        }
        assert!(prefix("10.0.0.0/8").overlaps(&prefix("10.9.0.0/16")));
        assert!(prefix("10.9.0.0/16").overlaps(&prefix("10.0.0.0/8")));
        assert!(!prefix("10.8.0.0/16").overlaps(&prefix("10.9.0.0/16")));
        for wrong in ["", "x", "10.0.0.1/8", "10.0.0.0/33", "::1/64", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_project_names_its_own_destinations_only_and_no_two_have_the_same() {
        let of = |lists: &[(&str, &[&str])], driven| {
            let own = |list: &[&str]| list.iter().map(|text| prefix(text)).collect();
            let lists = lists.iter().map(|(name, list)| ((*name).to_owned(), own(list)));
            Traffic::new(lists.collect(), driven)
        };
        let to = "192.0.2.9".parse().unwrap();
        let traffic =
            of(&[("astro", &["192.0.2.0/24"]), ("bio", &["192.0.3.0/24"])], true).unwrap();
        assert_eq!(traffic.may_name("astro", to), Ok(()));
        assert!(
            traffic.may_name("bio", to).unwrap_err().to_string().ends_with("it has 192.0.3.0/24")
        );
        assert!(traffic.may_name("net", to).unwrap_err().to_string().contains("it has none"));
        assert!(of(&[], true).unwrap().may_name("astro", to).is_err(), "a switch would obey");
        assert_eq!(of(&[], false).unwrap().may_name("astro", to), Ok(()), "nothing sorts by it");
        let same = of(&[("astro", &["10.0.0.0/8"]), ("bio", &["192.0.2.1", "10.1.0.0/16"])], true);
        assert!(same.unwrap_err().to_string().contains("projects astro and bio"));
        assert!(of(&[("astro", &["10.0.0.0/8", "10.1.0.0/16"])], true).is_ok());
    }
}
