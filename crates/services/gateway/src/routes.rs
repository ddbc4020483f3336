//! Routes: the further gateways of a session whose client leaves them to this gateway.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use longhaul_relay::{Hop, Host, Place, Prefix};

/// A route that an operator wrote down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The targets that it is for.
    pub to: Vec<Destination>,
    /// The gateways on it, in order; without any, the target comes next.
    pub via: Vec<Hop>,
    /// The target learns the client's address by the PROXY protocol, where this gateway is the last.
    pub proxy_protocol: bool,
}

/// Targets of a route: a range of addresses, a name, or all names below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Addresses, also those of a name that no other rule has.
    Prefix(Prefix),
    /// `data.example`, in small letters.
    Name(String),
    /// `*.example`: the names that end with this, the dot included. Empty: every target.
    Below(String),
}

/// A text is not a destination of a route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a destination: a range such as 192.0.2.0/24, a name, *.example, or * for all"
)]
pub struct ParseDestinationError(String);

impl FromStr for Destination {
    type Err = ParseDestinationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(prefix) = text.parse() {
            return Ok(Self::Prefix(prefix));
        }
        let name = text.to_ascii_lowercase();
        let below = name.strip_prefix('*');
        let rest = below.unwrap_or(&name);
        let good = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_name = match below {
            Some(rest) => rest.is_empty() || rest.len() > 1 && rest.starts_with('.'),
            None => Host::parse(rest).is_some(),
        };
        match (is_name && rest.chars().all(good), below) {
            (false, _) => Err(ParseDestinationError(text.into())),
            (true, Some(rest)) => Ok(Self::Below(rest.into())),
            (true, None) => Ok(Self::Name(name)),
        }
    }
}

impl Destination {
    /// Both are for the same targets.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Prefix(one), Self::Prefix(other)) => one.is_same(other),
            (one, other) => one == other,
        }
    }

    /// Length of the rule's match with `name`, where it names it: longer is narrower.
    fn of_name(&self, name: &str) -> Option<usize> {
        match self {
            Self::Prefix(_) => None,
            Self::Name(rule) => (rule == name).then_some(usize::MAX),
            Self::Below(end) => name.ends_with(&**end).then_some(end.len()),
        }
    }

    /// Length of the rule's match with `address`, where it names it: longer is narrower.
    fn of_address(&self, address: IpAddr) -> Option<usize> {
        match self {
            Self::Prefix(prefix) => prefix.contains(address).then(|| 1 + prefix.length()),
            Self::Below(end) if end.is_empty() => Some(0),
            Self::Name(_) | Self::Below(_) => None,
        }
    }
}

/// All routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// These; the one that names a target most narrowly holds, of equals the first.
    pub const fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// The route to `target`. That to a name may depend on its addresses, see
    /// [`Self::to_addresses`].
    pub fn to(&self, target: &Place) -> Option<&Route> {
        match &target.host {
            Host::Address(address) => self.narrowest(|rule| rule.of_address(*address)),
            Host::Name(name) => {
                let name = name.to_ascii_lowercase();
                let route = self.narrowest(|rule| rule.of_name(&name).filter(|n| *n > 0));
                // A rule for everything comes last, behind the addresses.
                route.or_else(|| {
                    let has_prefix = |rule: &Destination| matches!(rule, Destination::Prefix(_));
                    let mut rules = self.0.iter().flat_map(|route| &route.to);
                    let by_address = rules.any(has_prefix);
                    self.narrowest(|rule| rule.of_name(&name)).filter(|_| !by_address)
                })
            }
        }
    }

    /// The route to a target of which a name was resolved to these addresses: that of the first
    /// address which has one.
    pub fn to_addresses(&self, addresses: &[SocketAddr]) -> Option<&Route> {
        addresses.iter().find_map(|at| self.narrowest(|rule| rule.of_address(at.ip())))
    }

    fn narrowest(&self, of: impl Fn(&Destination) -> Option<usize>) -> Option<&Route> {
        let rules = self.0.iter().flat_map(|route| route.to.iter().map(move |to| (route, to)));
        let matching = rules.filter_map(|(route, to)| Some((route, of(to)?)));
        // Of equals the last is taken by `max_by_key`, so they are gone through from behind.
        let mut matching: Vec<_> = matching.collect();
        matching.reverse();
        matching.into_iter().max_by_key(|(_, narrow)| *narrow).map(|(route, _)| route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(rules: &[(&str, &str)]) -> Routes {
        let route = |(to, via): &(&str, &str)| Route {
            to: to.split(' ').map(|to| to.parse().unwrap()).collect(),
            via: via
                .split(' ')
                .filter(|via| !via.is_empty())
                .map(|via| via.parse().unwrap())
                .collect(),
            proxy_protocol: false,
        };
        Routes::new(rules.iter().map(route).collect())
    }

    fn via(route: Option<&Route>) -> Option<String> {
        let names = route?.via.iter().map(|hop| hop.place.host.to_string());
        Some(names.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_narrowest_rule_names_the_route() {
        let routes = routes(&[
            ("*", "far"),
            ("10.0.0.0/8 2001:db8::/32", "ten"),
            ("10.1.0.0/16", "one"),
            ("10.1.0.0/16", "never"),
            ("*.example", "names"),
            ("data.example", ""),
        ]);
        for (target, expected) in [
            ("192.0.2.1:1", "far"),
            ("10.2.3.4:1", "ten"),
            ("[2001:db8::1]:1", "ten"),
            ("10.1.3.4:1", "one"),
            ("a.b.Example:1", "names"),
            ("DATA.example:1", ""),
        ] {
            let target: Place = target.parse().unwrap();
            assert_eq!(via(routes.to(&target)).as_deref(), Some(expected), "{target}");
        }
        let other: Place = "other.test:1".parse().unwrap();
        assert_eq!(routes.to(&other), None, "its addresses decide");
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let by_address = routes.to_addresses(&[at("10.1.2.3:1"), at("192.0.2.1:1")]);
        assert_eq!(via(by_address).as_deref(), Some("one"));
        assert_eq!(via(routes.to_addresses(&[at("192.0.2.1:1")])).as_deref(), Some("far"));
    }

    #[test]
    fn a_name_is_not_resolved_where_no_route_depends_on_addresses() {
        let routes = routes(&[("*", "far")]);
        let target: Place = "data.example:1".parse().unwrap();
        assert_eq!(via(routes.to(&target)).as_deref(), Some("far"));
    }

    #[test]
    fn a_wrong_destination_is_named() {
        for text in ["", "10.0.0.0/33", "a b", "*x", "*.", "host:80", "a*"] {
            let error = text.parse::<Destination>().unwrap_err().to_string();
            assert!(error.contains("is not a destination"), "{text}: {error}");
        }
    }
}
