use super::Topology;

/// Topologies that come with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// The name to ask for it by.
    pub name: &'static str,
    text: &'static str,
}

impl Builtin {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self { name: "two-hosts", text: include_str!("two-hosts.toml") },
        Self { name: "phoebus", text: include_str!("phoebus.toml") },
        Self { name: "shared-bottleneck", text: include_str!("shared-bottleneck.toml") },
        Self { name: "circuit", text: include_str!("circuit.toml") },
    ];

    /// The one of that name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name == name)
    }

    /// The file, to read or to start another from.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// The topology it describes.
    pub fn topology(&self) -> Topology {
        Topology::parse(self.text).expect("tests read every built-in topology")
    }
}
