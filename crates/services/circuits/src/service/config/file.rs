//! The TOML file: its shape, and the check that makes a [`Config`] of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_settings::{WrongValue, wrong_value};
use serde::Deserialize;

use super::names::{link_is_sound, name_is_sound};
use super::traffic::{Prefix, Traffic};
use super::values::{channels, parts, rate, some_time, time};
use super::{Access, Archive, Config, DriverSpec, Role, limits};
use crate::ledger::{LinkSpec, Quota, Rules};
use crate::service::default_store;
use crate::store::Location;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
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
    pub(super) fn check(self) -> Result<Config, WrongValue> {
        let rules = self.rules.check()?;
        let store = match self.store {
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Location::Postgres { url, lease: time("lease", &self.lease)? }
            }
            path => Location::Sqlite {
                path: path.map_or_else(default_store, PathBuf::from),
                max_bytes: self.store_max_bytes,
            },
        };
        let mut links = Vec::new();
        let mut drivers = BTreeMap::new();
        for link in self.link {
            if links.iter().any(|other: &LinkSpec| other.name == link.name) {
                return Err(wrong_value!("there are two links {}", link.name));
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
            let own =
                own.map_err(|why| wrong_value!("project {}: destinations: {why}", project.name))?;
            destinations.insert(project.name.clone(), own);
            let quota = project.check(&rules)?;
            if projects.insert(project.name.clone(), quota).is_some() {
                return Err(wrong_value!("there are two projects {}", project.name));
            }
        }
        let mut access = Vec::new();
        for entry in self.access {
            if entry.role != Role::Operator && !projects.contains_key(&entry.project) {
                return Err(wrong_value!(
                    "access names project {}, which is not there",
                    entry.project
                ));
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
            u64::try_from(ticks).map_err(|_| wrong_value!("{name}: {text} is too long"))
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
                    return Err(wrong_value!(
                        "link {name}: {interface} is no name of an interface"
                    ));
                }
                Ok(Some(DriverSpec::Htb { interface: interface.clone() }))
            }
            ("command", None, Some(program)) => {
                Ok(Some(DriverSpec::Command { program: program.clone() }))
            }
            _ => Err(wrong_value!(
                "link {name}: expected driver = \"none\", driver = \"htb\" with interface, or \
                 driver = \"command\" with command"
            )),
        }
    }

    fn check(self, rules: &Rules) -> Result<LinkSpec, WrongValue> {
        let capacity = channels("capacity", &self.capacity, rules)?;
        if !(0.0..=1e9).contains(&self.price_per_tb) {
            return Err(wrong_value!("link {}: price_per_tb must be 0 to 10^9", self.name));
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
            return Err(wrong_value!("share: {} is more than the whole", self.share));
        }
        Ok(Quota { share_ppm: parts("share", self.share)?, horizon, max_rate })
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
