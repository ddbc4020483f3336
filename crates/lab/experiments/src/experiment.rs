//! Experiments as data: what is asked, on which testbed, what is varied, who competes, what is
//! plotted, and what the source of the question had found.

mod between;
mod builtin;
mod checks;
mod finding;
pub(crate) mod parameter;
mod plan;
mod setup;

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_lab::Topology;
use longhaul_lab::topology::quantity;
use longhaul_peers::Waypoint;
use longhaul_units::{Bytes, Rate};
use serde::Deserialize;
use toml::Spanned;

pub use self::builtin::Builtin;
pub use self::finding::{Finding, Look};
pub use self::parameter::Parameter;
pub use self::plan::{Cell, Plan, Run};
pub use self::setup::Setup;
use crate::measure::Measure;

/// A question and how it is put to the machine. Read from TOML by [`Experiment::parse`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name on the command line: letters, digits and hyphens.
    pub name: String,
    /// Above its part of the report.
    pub title: String,
    /// Question that it asks, in a sentence or two.
    pub question: String,
    /// Where the question comes from: paper, section, figure or table.
    pub source: String,
    /// Differences from the source that a reader should know.
    #[serde(default)]
    pub note: String,
    /// Runs of each contender in each cell of the sweep.
    pub repeats: u32,
    /// A built-in topology by name.
    topology: Option<Spanned<String>>,
    /// A topology of its own.
    testbed: Option<Topology>,
    /// Programs that compete.
    pub contenders: Vec<Competitor>,
    /// Work of each contender.
    pub job: JobSpec,
    /// Parameters that are varied; cells of the sweep are all combinations.
    #[serde(default, rename = "axis")]
    pub axes: Vec<Axis>,
    /// TCP connections that are there all the time.
    pub cross: Option<Cross>,
    /// Watches what the scheduler does there.
    pub watch: Option<Watch>,
    /// Changes with `--quick`, beside the axes' own shorter lists.
    #[serde(default)]
    pub quick: Quick,
    /// Figures to draw.
    #[serde(default, rename = "plot")]
    pub plots: Vec<PlotSpec>,
    /// Findings of the source, each with the measurement that stands beside it.
    #[serde(default, rename = "finding")]
    pub findings: Vec<Finding>,
}

/// A contender and how it is asked to run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Competitor {
    /// As the registry of contenders knows it.
    pub name: Spanned<String>,
    /// Label in reports. Default: the name.
    label: Option<String>,
    /// Nodes between whose programs take the data and send it on, in order.
    #[serde(default)]
    pub via: Vec<Waypoint>,
    /// Rate that it is given, where it takes one.
    #[serde(default, deserialize_with = "quantity::optional")]
    pub rate: Option<Rate>,
    /// Socket buffers that it is given, in place of the job's.
    #[serde(default, deserialize_with = "quantity::optional")]
    pub socket_buffer: Option<Bytes>,
    /// Bytes that it moves, in place of the job's: a contender that is slow by intention need not
    /// take long.
    #[serde(default, deserialize_with = "quantity::optional")]
    pub bytes: Option<Bytes>,
    /// Path history of Longhaul's sender, in place of an axis `history`.
    pub history: Option<Memory>,
    /// Its receiver runs before all other programs (`--host-priority`).
    #[serde(default)]
    pub host_priority: bool,
    /// The niceness of its receiver, from -20 to 19.
    pub nice: Option<i8>,
    /// Parameters of its profile, each `name=value`.
    #[serde(default, rename = "params")]
    pub parameters: Vec<String>,
    /// When it starts, from the start of the first of those side by side.
    #[serde(default, deserialize_with = "quantity::time")]
    pub after: Duration,
    /// Transfers that go on side by side with it.
    #[serde(default)]
    pub beside: Vec<Beside>,
    /// Only in cells with these values.
    #[serde(default)]
    pub only: BTreeMap<Parameter, String>,
}

/// A transfer beside the measured one, of the same job, to a receiver of its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// As the registry of contenders knows it.
    pub name: String,
    /// Sending node.
    pub from: String,
    /// Receiving node.
    pub to: String,
    /// When it starts, from the start of the first of them.
    #[serde(default, deserialize_with = "quantity::time")]
    pub after: Duration,
    /// Rate that it is given.
    #[serde(default, deserialize_with = "quantity::optional")]
    pub rate: Option<Rate>,
    /// Parameters of its profile.
    #[serde(default, rename = "params")]
    pub parameters: Vec<String>,
}

impl Competitor {
    /// Name in results and reports. Two contenders may have the same label in different cells.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(self.name.get_ref())
    }

    /// True if no cell has both.
    fn is_elsewhere(&self, other: &Self) -> bool {
        self.only.iter().any(|(axis, value)| other.only.get(axis).is_some_and(|one| one != value))
    }
}

/// The transfer that is measured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Sending node. Default: the first.
    pub from: Option<String>,
    /// Receiving node. Default: the last.
    pub to: Option<String>,
    /// Link whose queue is observed, and that axes change. Default: the first. Its forward
    /// direction is the transfer's.
    pub link: Option<String>,
    /// Bytes to move; nothing where round trips are measured.
    #[serde(default, deserialize_with = "quantity::required")]
    pub bytes: Bytes,
    /// After so long the transfer is cut, and what has arrived counts.
    #[serde(default, deserialize_with = "quantity::optional_time")]
    pub length: Option<Duration>,
    /// So many connections are made, and as many bytes sent there and back, in place of moving data.
    pub round_trips: Option<u32>,
    /// From where to where.
    #[serde(default)]
    pub medium: Source,
    /// Bytes that a contender handles at a time, where it has such an option.
    #[serde(default, deserialize_with = "quantity::optional")]
    pub block: Option<Bytes>,
    /// Socket buffers, where a contender has such an option.
    #[serde(default, deserialize_with = "quantity::optional")]
    pub socket_buffer: Option<Bytes>,
    /// After this a run is ended and recorded as unfinished.
    #[serde(deserialize_with = "quantity::time")]
    pub patience: Duration,
    /// When the transfer begins, from the making of the testbed, so that all meet the same where
    /// links change with time. Default: as soon as everything is ready.
    #[serde(default, deserialize_with = "quantity::optional_time")]
    pub begin: Option<Duration>,
    /// Distance of the samples of time series, at least 10 ms. Default: a tenth of a second.
    #[serde(default, deserialize_with = "quantity::optional_time")]
    pub series: Option<Duration>,
    /// Join what the path lost with the causes that Longhaul's sender tells, packet by packet.
    #[serde(default)]
    pub losses: bool,
}

/// Where data come from and go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Made up and thrown away.
    #[default]
    Memory,
    /// Files in memory (/dev/shm): a file system without a disk.
    Ramdisk,
    /// Files on disk (/var/tmp).
    Disk,
}

/// Path history of Longhaul's sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// Nothing, and it adds nothing.
    #[default]
    Off,
    /// Nothing so far.
    Cold,
    /// The history of a run just before.
    Warm,
}

/// One thing that is varied.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Parameter that the values set.
    pub sets: Parameter,
    /// Links that have them, all alike; by default the observed one.
    #[serde(default)]
    pub links: Vec<Spanned<String>>,
    /// As text, in the order in which they are drawn.
    pub values: Vec<Spanned<String>>,
    /// Those of them that `--quick` takes. Default: all.
    pub quick: Option<Vec<Spanned<String>>>,
}

/// Long-lived TCP connections beside the transfer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cross {
    /// The kernel's name of their congestion control.
    pub congestion_control: String,
    /// Number of flows.
    pub flows: u16,
    /// Sending node.
    pub from: String,
    /// Receiving node.
    pub to: String,
    /// From their start to the transfer's.
    #[serde(deserialize_with = "quantity::time")]
    pub settle: Duration,
}

impl Cross {
    /// The same with other connections: `8 cubic`.
    fn of(self, flows: &str) -> Result<Self, String> {
        let wrong = || format!("expected none or something like `8 cubic`, not {flows:?}");
        let (count, name) = flows.split_once(' ').ok_or_else(wrong)?;
        let flows = count.parse().ok().filter(|flows| *flows > 0).ok_or_else(wrong)?;
        Ok(Self { congestion_control: name.to_owned(), flows, ..self })
    }
}

/// Where context switches are recorded, and losses timed to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// The core on which receiver and load compete.
    pub core: usize,
}

/// Changes made by `--quick`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// In place of the job's.
    #[serde(default, deserialize_with = "quantity::optional")]
    pub bytes: Option<Bytes>,
    /// In place of the job's.
    #[serde(default, deserialize_with = "quantity::optional_time")]
    pub length: Option<Duration>,
    /// In place of the job's.
    pub round_trips: Option<u32>,
    /// In place of the experiment's.
    pub repeats: Option<u32>,
    /// Labels of those that compete. Default: all.
    pub contenders: Option<Vec<String>>,
    /// In place of the job's.
    #[serde(default, deserialize_with = "quantity::optional_time")]
    pub patience: Option<Duration>,
}

/// A figure of the report.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlotSpec {
    /// Above it.
    pub title: String,
    /// Kind of figure.
    #[serde(default)]
    pub shows: Shows,
    /// To the right.
    #[serde(default)]
    pub x: Parameter,
    /// Upwards.
    #[serde(default)]
    pub y: Measure,
    /// To the right of a frontier.
    #[serde(default)]
    pub against: Measure,
    /// Parameter whose values distinguish lines.
    #[serde(default)]
    pub lines: Parameter,
    /// Parameter whose values distinguish panels.
    pub panels: Option<Parameter>,
    /// Logarithmic upwards.
    #[serde(default)]
    pub log: bool,
    /// Only cells with these values.
    #[serde(default)]
    pub only: BTreeMap<Parameter, String>,
}

/// Kind of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shows {
    /// Medians of a measure over a parameter.
    #[default]
    Medians,
    /// Bytes that arrived in each tenth of a second of the first repeat.
    Series,
    /// Load of the watched core over time, in the first repeat.
    Busy,
    /// Packets lost at the receiver's sockets and on the observed link over time, likewise.
    Losses,
    /// Correlation of losses with the load of the watched core, over the lag of the losses.
    Correlation,
    /// Time slices that the scheduler gave the load on the watched core.
    TimeSlices,
    /// Times between losses at the receiver.
    LossFree,
    /// One measure against another: contenders of one name with given rates make a line.
    Frontier,
    /// Time by which each signal of a host moved before the first drop.
    Leads,
}

/// Why an experiment cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExperimentError(String);

impl Experiment {
    /// Reads an experiment and checks all that can be known before it runs; `known` says whether
    /// there is a contender of a name.
    ///
    /// # Errors
    /// The first fault found, with its line and key.
    pub fn parse(text: &str, known: &dyn Fn(&str) -> bool) -> Result<Self, ExperimentError> {
        let experiment: Self = longhaul_settings::parse(text)
            .map_err(|mistake| ExperimentError(mistake.to_string()))?;
        experiment.check(known).map_err(|fault| fault.located(text))?;
        Ok(experiment)
    }

    /// The testbed before any axis has changed it.
    pub fn base(&self) -> Topology {
        let named =
            self.topology.as_ref().and_then(|name| longhaul_lab::Builtin::find(name.get_ref()));
        let named = named.map(|builtin| builtin.topology());
        named.or_else(|| self.testbed.clone()).expect("one of them was found when it was read")
    }

    /// Measures that the experiment draws or talks about, without repetition.
    pub fn measures(&self) -> Vec<Measure> {
        let drawn = self.plots.iter().filter(|plot| plot.shows == Shows::Medians).map(|p| p.y);
        let reported = self.findings.iter().filter_map(|finding| finding.measured.measure());
        let mut measures: Vec<Measure> = Vec::new();
        for measure in drawn.chain(reported) {
            if !measures.contains(&measure) {
                measures.push(measure);
            }
        }
        measures
    }
}

#[cfg(test)]
mod tests;
