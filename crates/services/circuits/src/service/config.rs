//! The configuration that an operator writes: a TOML file.

mod file;
mod limits;
mod names;
mod traffic;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_settings::{Mistake, WrongValue};
use longhaul_sys::reasons::unread;
use serde::Deserialize;

use self::file::File;
pub use self::limits::{Limits, Pace};
pub(crate) use self::names::{link_can_be_named, link_is_sound};
pub use self::traffic::{ForeignDestination, ParsePrefixError, Prefix, Traffic};
pub use self::values::time;
use crate::ledger::{LinkSpec, Quota, Rules};
use crate::store::Location;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the log is.
    pub store: Location,
    /// Name of this node, for the others.
    pub node: String,
    /// Where clients reach this node.
    pub url: String,
    /// The ledger's rules of planning.
    pub rules: Rules,
    /// The links.
    pub links: Vec<LinkSpec>,
    /// The drivers that carry bookings out, by link.
    pub drivers: BTreeMap<String, DriverSpec>,
    /// The projects, each with its limits.
    pub projects: BTreeMap<String, Quota>,
    /// Which tokens are let in.
    pub access: Vec<Access>,
    /// Life of a quote.
    pub quote: Duration,
    /// Currency of prices.
    pub currency: String,
    /// Where records go that the store need not keep; without it, the store keeps all.
    pub archive: Option<Archive>,
    /// Limits on what a client may take of the service.
    pub limits: Limits,
    /// The destinations that bookings may name.
    pub traffic: Traffic,
}

/// When records leave the store, and for where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// The folder.
    pub folder: PathBuf,
    /// They leave when a node takes the lead and there are at least so many.
    pub after: u64,
}

/// The driver that carries out the bookings of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverSpec {
    /// HTB classes on an interface of this machine.
    Htb {
        /// Its name.
        interface: String,
    },
    /// A program of the operator.
    Command {
        /// Its path.
        program: PathBuf,
    },
}

/// Tokens and what they may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// File with tokens, one a line.
    pub token_file: PathBuf,
    /// The project that they act for.
    pub project: String,
    /// Their rights.
    pub role: Role,
}

/// Rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See the bookings of its project.
    Viewer,
    /// And book.
    User,
    /// And touch everybody's, add links, read the log.
    Operator,
}

/// Why a file is no configuration. The operator is to blame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: {}", file.display(), unread(error))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's answer.
        error: std::io::Error,
    },
    /// It has a mistake.
    #[error("{}: {error}", file.display())]
    Mistaken {
        /// The file.
        file: PathBuf,
        /// The mistake.
        error: ParseConfigError,
    },
}

/// The mistake of a configuration's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseConfigError {
    /// It is no TOML, or has a key that means nothing.
    #[error("{0}")]
    Form(#[from] Mistake),
    /// A value makes no sense.
    #[error("{0}")]
    Value(#[from] WrongValue),
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or says something that makes no sense; the message says where.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| ConfigError::Unreadable { file: file.into(), error })?;
        Self::parse(&text).map_err(|error| ConfigError::Mistaken { file: file.into(), error })
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// It says something that makes no sense.
    pub fn parse(text: &str) -> Result<Self, ParseConfigError> {
        let file: File = longhaul_settings::parse(text)?;
        Ok(file.check()?)
    }

    /// Where the log is, in words.
    pub fn place(&self) -> String {
        match &self.store {
            Location::Sqlite { path, .. } => path.display().to_string(),
            // The URL may hold a password.
            Location::Postgres { .. } => "the PostgreSQL database".into(),
        }
    }

    /// Time that a leader which gives no sign of life still leads.
    pub fn lease(&self) -> Duration {
        match &self.store {
            Location::Sqlite { .. } => Duration::MAX,
            Location::Postgres { lease, .. } => *lease,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        store = "/var/lib/longhaul/circuits.db"
        [rules]
        tick = "10ms"
        horizon = "7d"
        [[link]]
        name = "gva-chi"
        from = "gva"
        to = "chi"
        capacity = "100Gbps"
        price_per_tb = 1.5
        driver = "htb"
        interface = "eth1"
        [[project]]
        name = "astro"
        share = 0.5
        horizon = "1d"
        max_rate = "40Gbps"
        [[access]]
        token_file = "/etc/longhaul/astro"
        project = "astro"
        role = "user"
    "#;

    #[test]
    fn a_configuration() {
        let config = Config::parse(TEXT).unwrap();
        assert_eq!(config.links[0].capacity, 100_000);
        assert_eq!(config.links[0].price_micros, 1_500_000);
        let quota = Quota { share_ppm: 500_000, horizon: 8_640_000, max_rate: 40_000 };
        assert_eq!(config.projects["astro"], quota);
        assert_eq!(config.rules.horizon, 60_480_000);
        assert_eq!(config.access[0].role, Role::User);
        let postgres = Config::parse("store = \"postgres://book@db/book\"").unwrap();
        assert_eq!(postgres.lease(), Duration::from_secs(5));
    }

    #[test]
    fn mistakes_are_reported() {
        for (from, to, expected) in [
            ("\"10ms\"", "\"0ms\"", "tick"),
            ("\"100Gbps\"", "\"1kbps\"", "less than a channel"),
            ("\"htb\"", "\"hbt\"", "expected driver"),
            ("eth1", "no/thing", "no name of an interface"),
            ("\"7d\"", "\"a week\"", "horizon: expected a time"),
            ("project = \"astro\"", "project = \"bio\"", "which is not there"),
            ("\"7d\"", "\"0s\"", "horizon: 0s is no time at all"),
            ("\"1d\"", "\"0s\"", "horizon: 0s is no time at all"),
            ("store =", "quote = \"0s\"\nstore =", "quote: 0s is no time at all"),
            ("share = 0.5", "share = -1", "share"),
            ("share = 0.5", "share = 2.0", "share: 2 is more than the whole"),
            ("share", "shore", "shore"),
            ("share = 0.5", "destinations = [\"10.0.0.1/8\"]", "project astro: destinations: "),
            ("\"gva-chi\"", "\"gva chi\"", "no name"),
            ("to = \"chi\"", "to = \"gva\"", "from gva to gva"),
            ("\"user\"", "\"root\"", "root"),
        ] {
            let error = Config::parse(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
