use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use longhaul_relay::{ParseRuleError, Rule};

/// Settings that `longhaul gateway run` hands over to the preload. The token is not among it, only the name of
/// its file: an environment is inherited by every child, and shown by `ps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The gateways, as [`crate::gateways::Gateways::new`] takes them.
    pub via: String,
    /// Addresses of the first one: resolving its name is no business of a `connect`.
    pub addresses: Vec<SocketAddr>,
    /// File with the token that the first one knows.
    pub token_file: PathBuf,
    /// Destinations that are reached through the gateways; none: all but loopback, link-local and
    /// multicast ones.
    pub to: Vec<Rule>,
    /// Where no gateway answers the destination is connected to directly.
    pub direct: bool,
}

/// The environment does not hold settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseSettingsError {
    /// A variable is missing.
    #[error("{0} is not set: `longhaul gateway run` sets it")]
    Missing(&'static str),
    /// Not addresses.
    #[error("{ADDRESSES}: {0} is no address with a port")]
    Address(String),
    /// Not destinations.
    #[error("{TO}: {0}")]
    Rule(#[from] ParseRuleError),
}

impl Settings {
    /// As environment variables.
    pub fn variables(&self) -> [(&'static str, OsString); 5] {
        let list = |items: &mut dyn Iterator<Item = String>| {
            OsString::from(items.collect::<Vec<_>>().join(","))
        };
        [
            (VIA, self.via.clone().into()),
            (ADDRESSES, list(&mut self.addresses.iter().map(ToString::to_string))),
            (TOKEN_FILE, self.token_file.clone().into()),
            (TO, list(&mut self.to.iter().map(ToString::to_string))),
            (DIRECT, if self.direct { "1" } else { "" }.into()),
        ]
    }

    /// The settings that `variable` gives; `None` where there are none at all.
    ///
    /// # Errors
    /// They are not those of [`Self::variables`].
    pub fn read(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Self>, ParseSettingsError> {
        let text = |name: &'static str| {
            let value = variable(name).filter(|value| !value.is_empty());
            value.map(|value| value.to_string_lossy().into_owned())
        };
        let Some(via) = text(VIA) else { return Ok(None) };
        let address =
            |text: &str| text.parse().map_err(|_| ParseSettingsError::Address(text.to_owned()));
        let addresses = text(ADDRESSES).ok_or(ParseSettingsError::Missing(ADDRESSES))?;
        let token_file = variable(TOKEN_FILE).filter(|file| !file.is_empty());
        let to = text(TO).unwrap_or_default();
        Ok(Some(Self {
            via,
            addresses: addresses.split(',').map(address).collect::<Result<_, _>>()?,
            token_file: token_file.ok_or(ParseSettingsError::Missing(TOKEN_FILE))?.into(),
            to: to
                .split(',')
                .filter(|rule| !rule.is_empty())
                .map(str::parse)
                .collect::<Result<_, _>>()?,
            direct: text(DIRECT).is_some(),
        }))
    }

    /// Connections to `destination` go through the gateways.
    pub fn covers(&self, destination: SocketAddr) -> bool {
        match self.to.is_empty() {
            true => !Rule::is_special(destination.ip()),
            false => self.to.iter().any(|rule| rule.covers(destination)),
        }
    }
}

/// The environment variables that hold settings.
pub const VARIABLES: [&str; 5] = [VIA, ADDRESSES, TOKEN_FILE, TO, DIRECT];

const VIA: &str = "LONGHAUL_PRELOAD_VIA";
const ADDRESSES: &str = "LONGHAUL_PRELOAD_ADDRESSES";
const TOKEN_FILE: &str = "LONGHAUL_PRELOAD_TOKEN_FILE";
const TO: &str = "LONGHAUL_PRELOAD_TO";
const DIRECT: &str = "LONGHAUL_PRELOAD_DIRECT";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn settings(to: &[&str]) -> Settings {
        Settings {
            via: "near@gw.example,far".into(),
            addresses: vec!["192.0.2.1:7421".parse().unwrap(), "[2001:db8::1]:1".parse().unwrap()],
            token_file: "/a file/token".into(),
            to: to.iter().map(|rule| rule.parse().unwrap()).collect(),
            direct: false,
        }
    }

    #[test]
    fn settings_survive_the_environment() {
        for (direct, to) in [(false, &[][..]), (true, &["198.51.100.0/24:80", "[2001:db8::]/32"])] {
            let sent = Settings { direct, ..settings(to) };
            let variables: BTreeMap<_, _> = sent.variables().into_iter().collect();
            assert!(VARIABLES.iter().all(|name| variables.contains_key(name)));
            assert_eq!(Settings::read(|name| variables.get(name).cloned()), Ok(Some(sent)));
        }
        assert_eq!(Settings::read(|_| None), Ok(None));
        let only = |name: &str| (name == VIA).then(|| "gw".into());
        assert_eq!(Settings::read(only), Err(ParseSettingsError::Missing(ADDRESSES)));
    }

    #[test]
    fn special_ranges_are_covered_only_by_rules_within_them() {
        let (outside, loopback) = ("203.0.113.1:80", "127.0.0.1:80");
        let covers = |to: &[&str], at: &str| settings(to).covers(at.parse().unwrap());
        assert!(covers(&[], outside));
        for special in
            [loopback, "[::1]:80", "169.254.1.1:80", "[fe80::1]:80", "224.0.0.1:80", "[ff02::1]:80"]
        {
            assert!(!covers(&[], special) && !covers(&["0.0.0.0/0", "::/0"], special), "{special}");
        }
        assert!(covers(&["fe80::/16"], "[fe80::1]:80") && covers(&["224.0.0.0/4"], "224.0.0.1:80"));
        assert!(!covers(&["0.0.0.0/0"], loopback) && covers(&["127.0.0.0/8"], loopback));
        assert!(covers(&["203.0.113.0/24:80"], outside));
        assert!(covers(&["203.0.113.0/24:80"], "[::ffff:203.0.113.1]:80"));
        assert!(!covers(&["203.0.113.0/24:443"], outside));
    }
}
