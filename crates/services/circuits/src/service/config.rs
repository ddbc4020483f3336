//! The configuration that an operator writes: a TOML file.

mod limits;
mod traffic;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_settings::{Mistake, WrongValue};
use longhaul_units::Rate;
use serde::Deserialize;

pub use self::limits::{Limits, Pace};
pub use self::traffic::{ForeignDestination, ParsePrefixError, Prefix, Traffic};
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
    #[error("{}: {error}", file.display())]
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    store: Option<String>,
    store_max_bytes: Option<u64>,
    archive: Option<PathBuf>,
    #[serde(default = "default_archive_after")]
    archive_after: u64,
    #[serde(default = "default_lease")]
    lease: String,
    node: Option<String>,
    #[serde(default)]
    url: String,
    #[serde(default = "default_quote")]
    quote: String,
    #[serde(default = "default_currency")]
    currency: String,
    #[serde(default)]
    rules: FileRules,
    #[serde(default)]
    limits: limits::File,
    #[serde(default)]
    link: Vec<FileLink>,
    #[serde(default)]
    project: Vec<FileProject>,
    #[serde(default)]
    access: Vec<FileAccess>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileRules {
    tick: String,
    channel: String,
    guard: String,
    horizon: String,
    slack: f64,
    replan_up_to: usize,
    key_life: String,
}

impl Default for FileRules {
    fn default() -> Self {
        Self {
            tick: "1ms".into(),
            channel: "1Mbps".into(),
            guard: "0ms".into(),
            horizon: "30d".into(),
            slack: 0.0,
            replan_up_to: 0,
            key_life: "24h".into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLink {
    name: String,
    from: String,
    to: String,
    capacity: String,
    #[serde(default)]
    price_per_tb: f64,
    #[serde(default = "no_driver")]
    driver: String,
    interface: Option<String>,
    command: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileProject {
    name: String,
    #[serde(default = "whole")]
    share: f64,
    horizon: Option<String>,
    max_rate: Option<String>,
    #[serde(default)]
    destinations: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileAccess {
    token_file: PathBuf,
    project: String,
    role: Role,
}

impl File {
    fn check(self) -> Result<Config, WrongValue> {
        let rules = self.rules.check()?;
        let store = match self.store {
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Location::Postgres { url, lease: time("lease", &self.lease)? }
            }
            path => Location::Sqlite {
                path: path.map_or_else(super::default_store, PathBuf::from),
                max_bytes: self.store_max_bytes,
            },
        };
        let mut links = Vec::new();
        let mut drivers = BTreeMap::new();
        for link in self.link {
            if links.iter().any(|other: &LinkSpec| other.name == link.name) {
                return Err(WrongValue::new(format_args!("there are two links {}", link.name)));
            }
            if let Some(driver) = link.driver()? {
                drivers.insert(link.name.clone(), driver);
            }
            links.push(link.check(&rules)?);
        }
        let (mut projects, mut destinations) = (BTreeMap::new(), BTreeMap::new());
        for project in self.project {
            let own: Result<Vec<Prefix>, _> =
                project.destinations.iter().map(|text| text.parse()).collect();
            let own = own.map_err(|why| {
                WrongValue::new(format_args!("project {}: destinations: {why}", project.name))
            })?;
            destinations.insert(project.name.clone(), own);
            let quota = project.check(&rules)?;
            if projects.insert(project.name.clone(), quota).is_some() {
                return Err(WrongValue::new(format_args!(
                    "there are two projects {}",
                    project.name
                )));
            }
        }
        let mut access = Vec::new();
        for entry in self.access {
            if entry.role != Role::Operator && !projects.contains_key(&entry.project) {
                return Err(WrongValue::new(format_args!(
                    "access names project {}, which is not there",
                    entry.project
                )));
            }
            let FileAccess { token_file, project, role } = entry;
            access.push(Access { token_file, project, role });
        }
        let traffic = Traffic::new(destinations, !drivers.is_empty())?;
        let archive = self.archive.map(|folder| Archive { folder, after: self.archive_after });
        Ok(Config {
            store,
            archive,
            node: self.node.unwrap_or_else(node),
            url: self.url,
            rules,
            links,
            drivers,
            projects,
            access,
            quote: some_time("quote", &self.quote)?,
            currency: self.currency,
            limits: self.limits.check()?,
            traffic,
        })
    }
}

impl FileRules {
    fn check(&self) -> Result<Rules, WrongValue> {
        let tick = time("tick", &self.tick)?;
        let tick_nanos = u64::try_from(tick.as_nanos()).unwrap_or(0);
        if tick_nanos == 0 || tick > Duration::from_secs(3600) {
            let why = "tick: expected more than nothing, and no more than an hour";
            return Err(WrongValue::new(why));
        }
        let channel_bps = rate("channel", &self.channel)?;
        let ticks = |name: &str, text: &str| -> Result<u64, WrongValue> {
            let ticks = time(name, text)?.as_nanos().div_ceil(u128::from(tick_nanos));
            u64::try_from(ticks)
                .map_err(|_| WrongValue::new(format_args!("{name}: {text} is too long")))
        };
        some_time("horizon", &self.horizon)?;
        Ok(Rules {
            tick_nanos,
            channel_bps,
            guard: ticks("guard", &self.guard)?,
            horizon: ticks("horizon", &self.horizon)?,
            slack_ppm: parts("slack", self.slack)?,
            replan_up_to: self.replan_up_to,
            key_life: ticks("key_life", &self.key_life)?,
        })
    }
}

impl FileLink {
    fn driver(&self) -> Result<Option<DriverSpec>, WrongValue> {
        let name = &self.name;
        match (self.driver.as_str(), &self.interface, &self.command) {
            ("none", None, None) => Ok(None),
            ("htb", Some(interface), None) => {
                let letters = interface.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
                if interface.is_empty() || interface.len() > 15 || !letters {
                    return Err(WrongValue::new(format_args!(
                        "link {name}: {interface} is no name of an interface"
                    )));
                }
                Ok(Some(DriverSpec::Htb { interface: interface.clone() }))
            }
            ("command", None, Some(program)) => {
                Ok(Some(DriverSpec::Command { program: program.clone() }))
            }
            _ => Err(WrongValue::new(format_args!(
                "link {name}: expected driver = \"none\", driver = \"htb\" with interface, or \
                 driver = \"command\" with command"
            ))),
        }
    }

    fn check(self, rules: &Rules) -> Result<LinkSpec, WrongValue> {
        let capacity = channels("capacity", &self.capacity, rules)?;
        if !(0.0..=1e9).contains(&self.price_per_tb) {
            return Err(WrongValue::new(format_args!(
                "link {}: price_per_tb must be 0 to 10^9",
                self.name
            )));
        }
        let price_micros = (self.price_per_tb * 1e6).round() as u64;
        let Self { name, from, to, .. } = self;
        link_is_sound(&name, &from, &to)?;
        Ok(LinkSpec { name, from, to, capacity, price_micros })
    }
}

impl FileProject {
    fn check(&self, rules: &Rules) -> Result<Quota, WrongValue> {
        name_is_sound(&self.name)?;
        let horizon = match &self.horizon {
            None => rules.horizon,
            Some(text) => {
                let ticks = some_time("horizon", text)?.as_nanos() / u128::from(rules.tick_nanos);
                u64::try_from(ticks).unwrap_or(u64::MAX)
            }
        };
        let max_rate = match &self.max_rate {
            None => u32::MAX,
            Some(text) => channels("max_rate", text, rules)?,
        };
        if self.share > 1.0 {
            return Err(WrongValue::new(format_args!(
                "share: {} is more than the whole",
                self.share
            )));
        }
        Ok(Quota { share_ppm: parts("share", self.share)?, horizon, max_rate })
    }
}

/// Checks that a link has sound names and leads somewhere.
pub(crate) fn link_is_sound(name: &str, from: &str, to: &str) -> Result<(), WrongValue> {
    [name, from, to].into_iter().try_for_each(name_is_sound)?;
    match from == to {
        true => Err(WrongValue::new(format_args!("link {name}: it leads from {from} to {from}"))),
        false => Ok(()),
    }
}

/// Checks that the names of a new link and its nodes can be given wherever one names them: as a
/// word of a command, in a list with commas, in a URL as `--circuit` takes it. A link that a store
/// has keeps its names.
pub(crate) fn link_can_be_named(name: &str, from: &str, to: &str) -> Result<(), WrongValue> {
    let good = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphanumeric()) && !name.contains('/')
    };
    match [name, from, to].into_iter().find(|name| !good(name)) {
        None => Ok(()),
        Some(bad) => Err(WrongValue::new(format_args!(
            "link {name}: {bad} could not be named in URLs and commands: names of links and nodes \
             begin with a letter or digit and have no /"
        ))),
    }
}

/// Checks that a name can stand in a log and a table.
fn name_is_sound(name: &str) -> Result<(), WrongValue> {
    let sound = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/>".contains(&b));
    if name.is_empty() || name.len() > 64 || !sound {
        return Err(WrongValue::new(format_args!(
            "{name:?} is no name: expected up to 64 letters, digits and - _ . : > (a project's has / \
             too)"
        )));
    }
    Ok(())
}

fn parts(name: &str, part: f64) -> Result<u32, WrongValue> {
    match (0.0..=1000.0).contains(&part) {
        true => Ok((part * 1e6).round() as u32),
        false => Err(WrongValue::new(format_args!("{name}: expected a part like 0.25"))),
    }
}

fn rate(name: &str, text: &str) -> Result<u64, WrongValue> {
    let rate: Rate =
        text.parse().map_err(|error| WrongValue::new(format_args!("{name}: {text}: {error}")))?;
    match rate.as_bps() {
        0 => Err(WrongValue::new(format_args!("{name}: a rate of zero"))),
        bps => Ok(bps),
    }
}

fn channels(name: &str, text: &str, rules: &Rules) -> Result<u32, WrongValue> {
    let channels = rate(name, text)? / rules.channel_bps;
    match u32::try_from(channels) {
        Ok(0) => Err(WrongValue::new(format_args!(
            "{name}: {text} is less than a channel ({} b/s)",
            rules.channel_bps
        ))),
        Ok(channels) => Ok(channels),
        Err(_) => Err(WrongValue::new(format_args!(
            "{name}: {text} is more than 2^32 channels: choose wider channels"
        ))),
    }
}

/// Reads `10ms`, `90s`, `2h`, `30d`.
pub fn time(name: &str, text: &str) -> Result<Duration, WrongValue> {
    let wrong = || {
        WrongValue::new(format_args!(
            "{name}: expected a time like 10ms, 90s, 2h or 30d, not {text:?}"
        ))
    };
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let nanos: u64 = match unit.trim_start() {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(nanos).map(Duration::from_nanos).ok_or_else(wrong)
}

/// The same, but not nothing.
fn some_time(name: &str, text: &str) -> Result<Duration, WrongValue> {
    match time(name, text)? {
        Duration::ZERO => Err(WrongValue::new(format_args!("{name}: {text} is no time at all"))),
        time => Ok(time),
    }
}

/// The name of this machine, and of this process, which is what leads.
fn node() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{name}:{}", std::process::id())
}

fn default_archive_after() -> u64 {
    100_000
}

fn default_lease() -> String {
    "5s".into()
}

fn default_quote() -> String {
    "10s".into()
}

fn default_currency() -> String {
    "EUR".into()
}

fn no_driver() -> String {
    "none".into()
}

fn whole() -> f64 {
    1.0
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
