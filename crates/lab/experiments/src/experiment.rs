//! Experiments as data: what is asked, on which testbed, what is varied, who competes, what is
//! plotted, and what the source of the question had found.

mod between;
mod builtin;
mod parameter;
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

/// Something that the source found, and how to look at the same thing here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// In the source's terms.
    pub paper: String,
    /// Measurement that stands beside it, in words made from the data.
    pub measured: Look,
    /// Only cells with these values.
    #[serde(default)]
    pub only: BTreeMap<Parameter, String>,
}

/// A way of putting data into words.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "look", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Look {
    /// The first of the contenders in each cell, and the place of one of them beside the best of
    /// the others.
    Rank {
        /// Judged by this.
        by: Measure,
        /// The label of the one that is followed.
        of: String,
    },
    /// A measure in each case, as it is.
    Values {
        /// Of this.
        of: Measure,
    },
    /// The value of a parameter at which a measure is best.
    Best {
        /// Judged by this.
        by: Measure,
        /// Over this.
        along: Parameter,
        /// A sentence for each of its values.
        each: Parameter,
    },
    /// The first value of a parameter from which a measure exceeds a limit.
    Onset {
        /// Of this.
        of: Measure,
        /// As a number in the measure's unit.
        above: f64,
        /// Over this.
        along: Parameter,
        /// A sentence for each of its values.
        each: Parameter,
    },
    /// Effect of a change of one value to another.
    Change {
        /// In this.
        of: Measure,
        /// Whose value changes.
        along: Parameter,
        /// From it.
        from: String,
        /// To it.
        to: String,
    },
    /// Shares of a bottleneck: the transfer's, those of all beside it, and what is left.
    Shares {},
    /// Reaction to each change of the observed link.
    Recovery {},
    /// Precision and recall of the causes that the sender tells.
    Causes {},
    /// A measure of one contender in parts of another's, in each case.
    Ratio {
        /// Of this.
        of: Measure,
        /// The contender's label.
        contender: String,
        /// In parts of this one's.
        to: String,
        /// Over this, along which the source has ratios.
        along: Parameter,
        /// The source's ratios, by values of that parameter.
        #[serde(default)]
        source: BTreeMap<String, f64>,
    },
    /// After how long a transfer that is faster by some part has made up for a longer connect.
    BreakEven {
        /// The contender that takes longer to connect.
        contender: String,
        /// Than this one.
        to: String,
        /// By so much it is faster then: 0.25 is a quarter.
        faster: f64,
    },
    /// Goodput beside what the formula of Mathis and others (Phoebus reference 15) lets as many
    /// connections of Reno's have on the worst of some links.
    Mathis {
        /// Their names.
        links: Vec<String>,
    },
    /// Correlation of losses, at the receiver and on the path, with the load of the watched core.
    Correlation {},
    /// Use of bookings, and planned beside actual times, for each contender.
    Bookings {},
    /// Lengths of the scheduler's turns and of the intervals without loss.
    Slices {
        /// A sentence for each of its values.
        each: Parameter,
    },
    /// Mean and standard deviation of a measure in each case, as tables have them.
    Deviation {
        /// Of this.
        of: Measure,
    },
    /// The contender of one name, each with a rate of its own, that does best within a bound in
    /// each case, and what others make beside it.
    Frontier {
        /// Name of the contenders with given rates.
        sweep: String,
        /// Measure that may not exceed `most`.
        within: Measure,
        /// In its unit.
        most: f64,
        /// Judged by this.
        by: Measure,
    },
    /// A rate that is best in one case and kept in all others, beside the rate that is best in each.
    Tuned {
        /// Name of the contenders with given rates.
        sweep: String,
        /// Judged by this.
        by: Measure,
        /// The case in which the untuned rate is found, where it differs from the one looked at.
        untuned: BTreeMap<Parameter, String>,
        /// Where the sweep was made, if not in each case.
        #[serde(default)]
        swept: BTreeMap<Parameter, String>,
    },
    /// Bottleneck that the programs name.
    Bottleneck {},
    /// Which signals of a host moved before it dropped, and how often for nothing.
    Signals {},
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
        let reported = self.findings.iter().filter_map(|finding| match &finding.measured {
            Look::Rank { by, .. } | Look::Best { by, .. } | Look::Frontier { by, .. } => Some(*by),
            Look::Values { of }
            | Look::Onset { of, .. }
            | Look::Deviation { of }
            | Look::Change { of, .. } => Some(*of),
            Look::Ratio { of, .. } => Some(*of),
            Look::BreakEven { .. } => Some(Measure::Connect),
            Look::Mathis { .. } => Some(Measure::Goodput),
            Look::Shares {}
            | Look::Recovery {}
            | Look::Causes {}
            | Look::Correlation {}
            | Look::Bookings {}
            | Look::Tuned { .. }
            | Look::Bottleneck {}
            | Look::Signals {}
            | Look::Slices { .. } => None,
        });
        let within = self.findings.iter().filter_map(|finding| match &finding.measured {
            Look::Frontier { within, .. } => Some(*within),
            _ => None,
        });
        let mut measures: Vec<Measure> = Vec::new();
        for measure in drawn.chain(reported).chain(within) {
            if !measures.contains(&measure) {
                measures.push(measure);
            }
        }
        measures
    }

    fn check(&self, known: &dyn Fn(&str) -> bool) -> Result<(), Fault> {
        let name = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(name) {
            return Err(Fault::at_key("name", "letters, digits and hyphens only"));
        }
        if self.repeats == 0 || self.quick.repeats == Some(0) {
            return Err(Fault::at_key("repeats", "at least 1"));
        }
        match (&self.topology, &self.testbed) {
            (Some(name), None) if longhaul_lab::Builtin::find(name.get_ref()).is_none() => {
                let all = longhaul_lab::Builtin::ALL.map(|builtin| builtin.name).join(", ");
                return Err(Fault::at(name, "topology", format!("known are {all}")));
            }
            (Some(_), None) => {}
            (None, Some(testbed)) => {
                testbed.validate().map_err(|error| Fault::at_key("testbed", error.to_string()))?
            }
            _ => return Err(Fault::at_key("topology", "either this or a table `testbed`")),
        }
        if self.contenders.is_empty() {
            return Err(Fault::at_key("contenders", "at least one"));
        }
        for (number, contender) in self.contenders.iter().enumerate() {
            if !known(contender.name.get_ref()) {
                return Err(Fault::at(&contender.name, "contenders", "there is no such contender"));
            }
            let same = |other: &Competitor| {
                other.label() == contender.label() && !other.is_elsewhere(contender)
            };
            if self.contenders[..number].iter().any(same) {
                return Err(Fault::at(
                    &contender.name,
                    "contenders",
                    "there are two of that label",
                ));
            }
        }
        Setup::try_new(self, false)
            .ok_or_else(|| Fault::at_key("link", "the testbed has no such link"))?;
        for (number, axis) in self.axes.iter().enumerate() {
            self.check_axis(axis, &self.axes[..number])?;
        }
        for parameter in self.dimensions() {
            let axis = |axis: &Axis| axis.sets == parameter;
            if parameter != Parameter::Contender && !self.axes.iter().any(axis) {
                let message = "a figure or finding needs it, and no axis has it";
                return Err(Fault::at_key(parameter.name(), message));
            }
        }
        self.check_beside(known)?;
        self.check_between()?;
        self.check_observed()?;
        for (parameter, value) in self.chosen() {
            let has = match parameter {
                Parameter::Contender => self.contenders.iter().any(|one| one.label() == value),
                _ => self.axes.iter().any(|axis| {
                    axis.sets == parameter && axis.values.iter().any(|one| one.get_ref() == value)
                }),
            };
            if !has {
                let message = format!("a figure or finding asks for {value:?}, which it never is");
                return Err(Fault::at_key(parameter.name(), message));
            }
        }
        let setup = Setup::new(self, false);
        let patience = setup.patience.min(Setup::new(self, true).patience);
        if setup.begin.is_some_and(|begin| begin >= patience) {
            return Err(Fault::at_key("begin", "the patience is over before that"));
        }
        for node in [&setup.from, &setup.to]
            .into_iter()
            .chain(self.cross.iter().flat_map(|cross| [&cross.from, &cross.to]))
        {
            if setup.topology.node(node).is_none() {
                return Err(Fault::at_key("job", format!("the testbed has no node {node:?}")));
            }
        }
        Ok(())
    }

    /// Transfers side by side: who they are, and between which nodes.
    fn check_beside(&self, known: &dyn Fn(&str) -> bool) -> Result<(), Fault> {
        let (topology, setup) = (self.base(), Setup::new(self, false));
        for contender in &self.contenders {
            for beside in &contender.beside {
                if !known(&beside.name) {
                    let message = format!("there is no contender {:?}", beside.name);
                    return Err(Fault::at(&contender.name, "contenders", message));
                }
                for node in [&beside.from, &beside.to] {
                    if topology.node(node).is_none() {
                        let message = format!("the testbed has no node {node:?}");
                        return Err(Fault::at(&contender.name, "contenders", message));
                    }
                }
            }
            // All that a node receives is counted as one transfer's.
            let crossing = self.cross.iter().map(|cross| &cross.to);
            let mut taken = vec![&setup.to];
            for node in contender.beside.iter().map(|beside| &beside.to).chain(crossing) {
                if taken.contains(&node) {
                    let message = format!("two receive at {node:?}: each needs a node of its own");
                    return Err(Fault::at(&contender.name, "contenders", message));
                }
                taken.push(node);
            }
        }
        Ok(())
    }

    /// Checks that what figures, findings and the account of losses use is observed.
    fn check_observed(&self) -> Result<(), Fault> {
        let of_core = |plot: &PlotSpec| matches!(plot.shows, Shows::Busy | Shows::Correlation);
        let follows = |finding: &Finding| finding.measured == Look::Correlation {};
        let labels = self.quick.contenders.iter().flatten();
        for label in labels {
            if !self.contenders.iter().any(|one| one.label() == label) {
                return Err(Fault::at_key("quick", format!("there is no contender {label:?}")));
            }
        }
        for sweep in self.sweeps() {
            let has_rate = |one: &Competitor| one.name.get_ref() == sweep && one.rate.is_some();
            if !self.contenders.iter().any(has_rate) {
                let message = format!("no contender {sweep:?} has a rate of its own");
                return Err(Fault::at_key("finding", message));
            }
        }
        let needs_core = self.plots.iter().any(of_core) || self.findings.iter().any(follows);
        if needs_core && self.watch.is_none() {
            return Err(Fault::at_key("watch", "a figure or finding needs this table"));
        }
        if self.job.losses && self.contenders.iter().any(|contender| !contender.beside.is_empty()) {
            let message =
                "not beside other transfers: packets of two connections have the same numbers";
            return Err(Fault::at_key("losses", message));
        }
        if self.job.series.is_some_and(|distance| distance < SERIES_LEAST) {
            return Err(Fault::at_key("series", "at least 10ms"));
        }
        Ok(())
    }

    /// Names of contenders whose rates findings compare.
    fn sweeps(&self) -> impl Iterator<Item = &String> {
        self.findings.iter().filter_map(|finding| match &finding.measured {
            Look::Frontier { sweep, .. } | Look::Tuned { sweep, .. } => Some(sweep),
            _ => None,
        })
    }

    /// Parameters along which figures and findings go.
    fn dimensions(&self) -> Vec<Parameter> {
        let plots = self.plots.iter().flat_map(|plot| {
            let medians = (plot.shows == Shows::Medians).then_some([plot.x, plot.lines]);
            medians.into_iter().flatten().chain(plot.panels)
        });
        let findings = self.findings.iter().flat_map(|finding| match &finding.measured {
            Look::Rank { .. }
            | Look::Values { .. }
            | Look::BreakEven { .. }
            | Look::Mathis { .. }
            | Look::Shares {}
            | Look::Recovery {}
            | Look::Causes {}
            | Look::Correlation {}
            | Look::Deviation { .. }
            | Look::Frontier { .. }
            | Look::Bottleneck {}
            | Look::Signals {}
            | Look::Bookings {} => Vec::new(),
            Look::Tuned { untuned, swept, .. } => {
                untuned.keys().chain(swept.keys()).copied().collect()
            }
            Look::Best { along, each, .. } | Look::Onset { along, each, .. } => vec![*along, *each],
            Look::Change { along, .. } | Look::Ratio { along, .. } => vec![*along],
            Look::Slices { each } => vec![*each],
        });
        plots.chain(findings).collect()
    }

    /// Values that figures and findings are limited to or speak of.
    fn chosen(&self) -> Vec<(Parameter, &str)> {
        let plots = self.plots.iter().flat_map(|plot| &plot.only);
        let contenders = self.contenders.iter().flat_map(|contender| &contender.only);
        let only = plots.chain(self.findings.iter().flat_map(|finding| &finding.only));
        let only = only.chain(contenders);
        let mut chosen: Vec<(Parameter, &str)> =
            only.map(|(parameter, value)| (*parameter, value.as_str())).collect();
        for finding in &self.findings {
            match &finding.measured {
                Look::Rank { of, .. } => chosen.push((Parameter::Contender, of)),
                Look::Ratio { contender, to, along, source, .. } => {
                    chosen.extend([contender, to].map(|name| (Parameter::Contender, &**name)));
                    chosen.extend(source.keys().map(|value| (*along, value.as_str())));
                }
                Look::BreakEven { contender, to, .. } => {
                    chosen.extend([contender, to].map(|name| (Parameter::Contender, &**name)));
                }
                Look::Change { along, from, to, .. } => {
                    chosen.extend([(*along, from.as_str()), (*along, to.as_str())]);
                }
                Look::Tuned { untuned, swept, .. } => {
                    let both = untuned.iter().chain(swept);
                    chosen.extend(both.map(|(axis, value)| (*axis, value.as_str())));
                }
                _ => {}
            }
        }
        chosen
    }

    fn check_axis(&self, axis: &Axis, before: &[Axis]) -> Result<(), Fault> {
        let key = axis.sets.name();
        if axis.sets == Parameter::Contender || before.iter().any(|other| other.sets == axis.sets) {
            return Err(Fault::at_key(
                "sets",
                format!("`{key}` cannot be an axis, or is one twice"),
            ));
        }
        let first = axis.values.first();
        first.ok_or_else(|| Fault::at_key("values", format!("axis `{key}` has none")))?;
        self.check_links(axis)?;
        for value in &axis.values {
            let mut setup = Setup::new(self, false);
            let set = setup.set(axis.sets, value.get_ref(), &self.links_of(axis));
            set.map_err(|error| Fault::at(value, key, error))?;
            // A rate may need its queue, and the like, which other axes set: checked with them.
            setup.topology.validate().map_err(|error| Fault::at(value, key, error.to_string()))?;
        }
        for value in axis.quick.iter().flatten() {
            if !axis.values.iter().any(|all| all.get_ref() == value.get_ref()) {
                return Err(Fault::at(value, key, "not one of the values of the axis"));
            }
        }
        Ok(())
    }
}

/// Shortest interval of samples with which the sampler can keep up.
const SERIES_LEAST: Duration = Duration::from_millis(10);

/// A fault of an experiment, and where it is.
struct Fault {
    place: Place,
    key: String,
    message: String,
}

enum Place {
    Byte(usize),
    Key,
}

impl Fault {
    fn at(value: &Spanned<String>, key: &str, message: impl Into<String>) -> Self {
        let message = format!("{:?}: {}", value.get_ref(), message.into());
        Self { place: Place::Byte(value.span().start), key: key.into(), message }
    }

    fn at_key(key: &str, message: impl Into<String>) -> Self {
        Self { place: Place::Key, key: key.into(), message: message.into() }
    }

    fn located(self, text: &str) -> ExperimentError {
        let line = match self.place {
            Place::Byte(byte) => Some(text[..byte.min(text.len())].matches('\n').count() + 1),
            Place::Key => text
                .lines()
                .position(|line| line.trim_start().trim_start_matches('[').starts_with(&self.key))
                .map(|line| line + 1),
        };
        let line = line.map_or(String::new(), |line| format!("line {line}, "));
        ExperimentError(format!("{line}key `{}`: {}", self.key, self.message))
    }
}

#[cfg(test)]
mod tests;
