use super::Experiment;

/// Experiments that come with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// The name to ask for it by.
    pub name: &'static str,
    text: &'static str,
}

impl Builtin {
    /// All of them.
    pub const ALL: [Self; 28] = [
        Self {
            name: "long-haul-matrix",
            text: include_str!("../../experiments/long-haul-matrix.toml"),
        },
        Self {
            name: "sabul-rate-sweep",
            text: include_str!("../../experiments/sabul-rate-sweep.toml"),
        },
        Self {
            name: "loaded-receiver",
            text: include_str!("../../experiments/loaded-receiver.toml"),
        },
        Self {
            name: "bottleneck-crossflows",
            text: include_str!("../../experiments/bottleneck-crossflows.toml"),
        },
        Self { name: "vbtp-follow", text: include_str!("../../experiments/vbtp-follow.toml") },
        Self { name: "peers", text: include_str!("../../experiments/peers.toml") },
        Self { name: "loss-causes", text: include_str!("../../experiments/loss-causes.toml") },
        Self { name: "fobs-table-2", text: include_str!("../../experiments/fobs-table-2.toml") },
        Self {
            name: "fobs-loss-correlation",
            text: include_str!("../../experiments/fobs-loss-correlation.toml"),
        },
        Self { name: "profiles", text: include_str!("../../experiments/profiles.toml") },
        Self { name: "fairness", text: include_str!("../../experiments/fairness.toml") },
        Self {
            name: "responsiveness",
            text: include_str!("../../experiments/responsiveness.toml"),
        },
        Self { name: "startup", text: include_str!("../../experiments/startup.toml") },
        Self {
            name: "auto-loaded-receiver",
            text: include_str!("../../experiments/auto-loaded-receiver.toml"),
        },
        Self { name: "rapid-figures", text: include_str!("../../experiments/rapid-figures.toml") },
        Self {
            name: "rapid-figure-7",
            text: include_str!("../../experiments/rapid-figure-7.toml"),
        },
        Self {
            name: "four-solutions",
            text: include_str!("../../experiments/four-solutions.toml"),
        },
        Self { name: "paptc-tables", text: include_str!("../../experiments/paptc-tables.toml") },
        Self {
            name: "paptc-figure-4",
            text: include_str!("../../experiments/paptc-figure-4.toml"),
        },
        Self { name: "slow-disk", text: include_str!("../../experiments/slow-disk.toml") },
        Self { name: "busy-sender", text: include_str!("../../experiments/busy-sender.toml") },
        Self {
            name: "host-loss-causes",
            text: include_str!("../../experiments/host-loss-causes.toml"),
        },
        Self {
            name: "signal-lead-time",
            text: include_str!("../../experiments/signal-lead-time.toml"),
        },
        Self { name: "phoebus-chain", text: include_str!("../../experiments/phoebus-chain.toml") },
        Self { name: "phoebus-cpu", text: include_str!("../../experiments/phoebus-cpu.toml") },
        Self {
            name: "phoebus-circuit",
            text: include_str!("../../experiments/phoebus-circuit.toml"),
        },
        Self {
            name: "phoebus-latency",
            text: include_str!("../../experiments/phoebus-latency.toml"),
        },
        Self {
            name: "phoebus-bottleneck",
            text: include_str!("../../experiments/phoebus-bottleneck.toml"),
        },
    ];

    /// The one of that name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name == name)
    }

    /// The file, to read or to start another from.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// The experiment that it describes. Its contenders are not looked up: tests do that.
    pub fn experiment(&self) -> Experiment {
        Experiment::parse(self.text, &|_| true).expect("tests read every built-in experiment")
    }
}
