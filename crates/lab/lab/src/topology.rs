//! Testbeds as data: nodes, links between them, and what each direction of a link does to packets.

mod builtin;
mod conditions;
mod describe;
mod line;
pub mod quantity;

use std::time::Duration;

use longhaul_pathsim::{ConfigError, DuplexConfig, Probability};
use longhaul_units::{Bytes, ParseQuantityError, Rate};
use serde::Deserialize;

pub use self::builtin::Builtin;
pub use self::conditions::{
    BurstLoss, Conditions, Duplicate, JitterSpec, Marking, Outage, PolicerSpec, RateChange, Reorder,
};
pub use self::line::LineKind;
pub use self::quantity::{parse_time, parse_time_up_to};

/// Nodes and links. Read from TOML, or put together in code.
///
/// ```
/// use longhaul_lab::Topology;
///
/// let topology = Topology::parse(
///     r#"
///     name = "transatlantic"
///
///     [[node]]
///     name = "host"
///     [[node]]
///     name = "peer"
///
///     [[link]]
///     name = "cable"
///     between = ["host", "peer"]
///     both = { delay = "40ms", rate = "1Gbps", queue = "10MB" }
///     forward = { loss = "0.01%" }
///     "#,
/// )?;
/// assert_eq!(topology.links[0].both.delay, Some(std::time::Duration::from_millis(40)));
/// # Ok::<(), longhaul_lab::TopologyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Its name in reports.
    pub name: String,
    /// Its purpose, in a sentence.
    #[serde(default)]
    pub about: String,
    /// Hosts, gateways, routers: each a network stack of its own. Those with more than one link
    /// forward. Commands run on the first by default.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
    /// The links that join them.
    #[serde(rename = "link")]
    pub links: Vec<LinkSpec>,
}

/// A network stack.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name, also as a host name within the testbed: letters, digits and hyphens.
    pub name: String,
    /// The most that TCP may buffer for a connection and direction; 256 MiB by default, so that
    /// buffers do not limit what controllers can show.
    #[serde(default, deserialize_with = "quantity::optional")]
    pub tcp_buffer: Option<Bytes>,
    /// Cores that its commands, and threads of [`crate::testbed::Host::run`], keep to; any by default.
    #[serde(default)]
    pub cores: Vec<usize>,
    /// Core that does the work of receiving, as a network card's interrupts would; by default the
    /// emulator does it.
    #[serde(default)]
    pub receive_core: Option<usize>,
    /// Part of one core that its commands may use together, in periods of 100 ms as containers have
    /// them; no limit by default.
    #[serde(default, deserialize_with = "quantity::optional")]
    pub cpu_quota: Option<Probability>,
    /// Limit of what each of its devices sends; none by default.
    #[serde(default, deserialize_with = "quantity::optional")]
    pub egress: Option<Egress>,
}

/// The kernel's HTB on a node's own devices, and what may wait there, of IP's bytes. Unlike the
/// line of a link it pushes back on the node's sockets: it refuses what finds no room, and the
/// sender learns of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Rate at which packets leave.
    pub rate: Rate,
    /// Bytes that may wait.
    pub queue: Bytes,
}

impl std::str::FromStr for Egress {
    type Err = String;

    /// Reads `150Mbps,100KB`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rate, queue) =
            text.split_once(',').ok_or("expected a rate and a queue, like 150Mbps,100KB")?;
        let wrong = |error: ParseQuantityError| error.to_string();
        Ok(Self { rate: rate.parse().map_err(wrong)?, queue: queue.parse().map_err(wrong)? })
    }
}

impl Node {
    /// A node that is special in nothing.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tcp_buffer: None,
            cores: Vec::new(),
            receive_core: None,
            cpu_quota: None,
            egress: None,
        }
    }
}

/// Two nodes joined, with an emulated path each way.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Its name in reports.
    pub name: String,
    /// The nodes; forward is from the first to the second.
    pub between: [String; 2],
    /// Largest packet of the devices at its ends, in bytes; 1500 by default.
    #[serde(default = "mtu")]
    pub mtu: u32,
    /// Packets above `path_mtu` vanish without an answer, as behind a firewall that drops ICMP.
    #[serde(default)]
    pub black_hole: bool,
    /// The place of the rates and queues of its directions.
    #[serde(default)]
    pub line: LineKind,
    /// Both directions alike.
    #[serde(default)]
    pub both: Conditions,
    /// Differences forward.
    #[serde(default)]
    pub forward: Conditions,
    /// Differences backward.
    #[serde(default)]
    pub backward: Conditions,
}

impl LinkSpec {
    /// Between the nodes of [`Topology::two_hosts`], both directions alike.
    pub fn between_hosts(both: Conditions) -> Self {
        Self {
            name: "path".into(),
            between: [HOST.into(), PEER.into()],
            mtu: mtu(),
            black_hole: false,
            line: LineKind::Emulated,
            both,
            forward: Conditions::default(),
            backward: Conditions::default(),
        }
    }
}

/// Why a topology cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// Not the TOML of a topology; the text names line and key.
    #[error("{0}")]
    Malformed(String),
    /// There is nobody to talk to.
    #[error("a topology needs two nodes or more, and at most {NODES_MAX}")]
    Nodes,
    /// More than addresses allow.
    #[error("a topology has at most {LINKS_MAX} links")]
    Links,
    /// A name that cannot be a host's.
    #[error("{0:?} is no name: 1 to 30 letters, digits and hyphens, beginning with a letter")]
    Name(String),
    /// Two nodes, or two links, of one name.
    #[error("there are two of the name {0:?}")]
    Twice(String),
    /// A link with an end that does not exist.
    #[error("link {link:?} leads to {node:?}, but there is no such node")]
    NoSuchNode {
        /// The link.
        link: String,
        /// The missing node.
        node: String,
    },
    /// A link with both ends at one node.
    #[error("link {0:?} leads from a node to itself")]
    Loop(String),
    /// No way between two nodes.
    #[error("no link leads from {0:?} to {1:?}, not even through others")]
    Apart(String, String),
    /// Smaller than IPv6 allows, or larger than IP can carry.
    #[error("link {link:?}: an MTU is {MTU_MIN} to {MTU_MAX} bytes, not {mtu}")]
    Mtu {
        /// The link.
        link: String,
        /// The value asked for.
        mtu: u32,
    },
    /// A rate at which not one packet leaves in a round trip.
    #[error(
        "link {link:?}: at {rate} not one packet of {mtu} bytes leaves in a round trip of {rtt:?}"
    )]
    TooSlow {
        /// The link.
        link: String,
        /// Its rate.
        rate: Rate,
        /// Its MTU.
        mtu: u32,
        /// Its round trip.
        rtt: Duration,
    },
    /// Something needs a rate.
    #[error("link {link:?}: {what} needs a rate")]
    NeedsRate {
        /// The link.
        link: String,
        /// The thing that needs it.
        what: &'static str,
    },
    /// A line of the kernel's cannot have this.
    #[error("link {link:?}: {what} is not for a line by HTB")]
    NotForHtb {
        /// The link.
        link: String,
        /// The condition.
        what: &'static str,
    },
    /// Something that the emulation itself refuses.
    #[error("link {link:?}: {error}")]
    Path {
        /// The link.
        link: String,
        /// Why.
        error: ConfigError,
    },
}

impl Topology {
    /// Reads a topology and checks it.
    ///
    /// # Errors
    /// The first fault found, in words that show where it is.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        let topology: Self = longhaul_settings::parse(text)
            .map_err(|mistake| TopologyError::Malformed(mistake.to_string()))?;
        topology.validate()?;
        Ok(topology)
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// The first fault found.
    pub fn validate(&self) -> Result<(), TopologyError> {
        if !(2..=NODES_MAX).contains(&self.nodes.len()) {
            return Err(TopologyError::Nodes);
        }
        if self.links.len() > LINKS_MAX {
            return Err(TopologyError::Links);
        }
        check_names(self.nodes.iter().map(|node| &node.name))?;
        check_names(self.links.iter().map(|link| &link.name))?;
        for link in &self.links {
            for node in &link.between {
                self.node(node).ok_or_else(|| TopologyError::NoSuchNode {
                    link: link.name.clone(),
                    node: node.clone(),
                })?;
            }
            if link.between[0] == link.between[1] {
                return Err(TopologyError::Loop(link.name.clone()));
            }
            link.paths()?;
        }
        let hops = self.next_hops(0);
        match (1..self.nodes.len()).find(|&node| hops[node].is_none()) {
            None => Ok(()),
            Some(node) => {
                let name = |index: usize| self.nodes[index].name.clone();
                Err(TopologyError::Apart(name(0), name(node)))
            }
        }
    }

    /// `host` and `peer`, joined by `link`.
    pub fn two_hosts(link: LinkSpec) -> Self {
        Self {
            name: "two-hosts".into(),
            about: String::new(),
            nodes: vec![Node::new(HOST), Node::new(PEER)],
            links: vec![link],
        }
    }

    /// `host` and `peer`, next to each other.
    pub(crate) fn direct() -> Self {
        Self {
            name: "direct".into(),
            about: String::new(),
            nodes: vec![Node::new(HOST), Node::new(PEER)],
            links: Vec::new(),
        }
    }

    /// Nodes in a row, each next to the following one.
    pub(crate) fn row(names: &[&str], mtu: u32) -> Self {
        let link = |(number, pair): (usize, &[&str])| LinkSpec {
            name: format!("veth-{number}"),
            between: [pair[0].into(), pair[1].into()],
            mtu,
            ..LinkSpec::between_hosts(Conditions::default())
        };
        Self {
            name: "row".into(),
            about: String::new(),
            nodes: names.iter().map(|name| Node::new(name)).collect(),
            links: names.windows(2).enumerate().map(link).collect(),
        }
    }

    /// Index of the node of that name.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Index of the link of that name.
    pub fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name)
    }

    /// The ends of a link as indexes of nodes. The topology is valid.
    pub(crate) fn ends(&self, link: usize) -> [usize; 2] {
        let node = |name: &String| self.node(name).expect("the topology was validated");
        [node(&self.links[link].between[0]), node(&self.links[link].between[1])]
    }

    /// The first link on the shortest way from a node to each other one, of equal ways the one by
    /// earlier links.
    pub(crate) fn next_hops(&self, from: usize) -> Vec<Option<usize>> {
        let mut first: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut frontier = vec![from];
        while !frontier.is_empty() {
            let mut reached = Vec::new();
            for &node in &frontier {
                for link in 0..self.links.len() {
                    let [a, b] = self.ends(link);
                    let Some(next) = (a == node).then_some(b).or((b == node).then_some(a)) else {
                        continue;
                    };
                    if next != from && first[next].is_none() {
                        first[next] = Some(first[node].unwrap_or(link));
                        reached.push(next);
                    }
                }
            }
            frontier = reached;
        }
        first
    }
}

impl LinkSpec {
    /// Effects of each direction, in the terms of the emulation.
    ///
    /// # Errors
    /// Errors of impossible links.
    pub fn paths(&self) -> Result<DuplexConfig, TopologyError> {
        let link = || self.name.clone();
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return Err(TopologyError::Mtu { link: link(), mtu: self.mtu });
        }
        let [forward, backward] =
            [&self.forward, &self.backward].map(|own| self.both.clone().overlaid(own));
        let rtt = forward.delay.unwrap_or_default() + backward.delay.unwrap_or_default();
        let path = |conditions: &Conditions| {
            let config = conditions.config(rtt, self.mtu).map_err(|error| match error {
                conditions::Fault::NeedsRate(what) => {
                    TopologyError::NeedsRate { link: link(), what }
                }
                conditions::Fault::Path(error) => TopologyError::Path { link: link(), error },
            })?;
            match conditions.rate {
                Some(rate) if !rtt.is_zero() && rate.bytes_in(rtt) < u64::from(self.mtu) => {
                    Err(TopologyError::TooSlow { link: link(), rate, mtu: self.mtu, rtt })
                }
                _ => Ok(config),
            }
        };
        let paths = DuplexConfig { forward: path(&forward)?, backward: path(&backward)? };
        self.line.check(&paths, self.mtu).map_err(|fault| match fault {
            line::Fault::NoRate => TopologyError::NeedsRate { link: link(), what: "a line by HTB" },
            line::Fault::NotFor(what) => TopologyError::NotForHtb { link: link(), what },
        })?;
        Ok(paths)
    }

    /// Both ways together, without queues and jitter.
    pub fn rtt(&self) -> Duration {
        let delay = |own: &Conditions| own.delay.or(self.both.delay).unwrap_or_default();
        delay(&self.forward) + delay(&self.backward)
    }
}

fn check_names<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), TopologyError> {
    let mut seen: Vec<&String> = Vec::new();
    for name in names {
        let valid = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.len() <= NAME_MAX
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !valid {
            return Err(TopologyError::Name(name.clone()));
        }
        if seen.contains(&name) {
            return Err(TopologyError::Twice(name.clone()));
        }
        seen.push(name);
    }
    Ok(())
}

fn mtu() -> u32 {
    1500
}

const HOST: &str = "host";
const PEER: &str = "peer";

/// Addresses of the range for documentation.
const NODES_MAX: usize = 250;
/// Two descriptors each in one wait, and one to end it.
const LINKS_MAX: usize = 7;
const NAME_MAX: usize = 30;
/// Least MTU of IPv6 (RFC 8200 section 5).
const MTU_MIN: u32 = 1280;
const MTU_MAX: u32 = 65_535;

#[cfg(test)]
mod tests;
