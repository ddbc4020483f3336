//! Checks of an experiment: all that can be known before it runs.

use std::time::Duration;

use toml::Spanned;

use super::parameter::Parameter;
use super::{Axis, Competitor, Experiment, ExperimentError, Look, PlotSpec, Setup, Shows};

impl Experiment {
    /// The first fault.
    pub(super) fn check(&self, known: &dyn Fn(&str) -> bool) -> Result<(), Fault> {
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
        self.check_contenders(known)?;
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
        self.check_job()
    }

    /// Each is known, and one label has one contender in each cell.
    fn check_contenders(&self, known: &dyn Fn(&str) -> bool) -> Result<(), Fault> {
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
        Ok(())
    }

    /// It begins before the patience is over, between nodes that are there.
    fn check_job(&self) -> Result<(), Fault> {
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
        if self.plots.iter().any(of_core) && self.watch.is_none() {
            return Err(Fault::at_key("watch", "a figure needs this table"));
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
            Look::Tuned { sweep, .. } => Some(sweep),
            _ => None,
        })
    }

    /// Parameters along which figures and findings go.
    fn dimensions(&self) -> Vec<Parameter> {
        let plots = self.plots.iter().flat_map(|plot| {
            let medians = (plot.shows == Shows::Medians).then_some([plot.x, plot.lines]);
            medians.into_iter().flatten().chain(plot.panels)
        });
        let findings = self.findings.iter().flat_map(|finding| finding.measured.dimensions());
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
        chosen.extend(self.findings.iter().flat_map(|finding| finding.measured.chosen()));
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

/// A fault of an experiment, and where it is.
pub(super) struct Fault {
    place: Place,
    key: String,
    message: String,
}

enum Place {
    Byte(usize),
    Key,
}

impl Fault {
    pub(super) fn at(value: &Spanned<String>, key: &str, message: impl Into<String>) -> Self {
        let message = format!("{:?}: {}", value.get_ref(), message.into());
        Self { place: Place::Byte(value.span().start), key: key.into(), message }
    }

    pub(super) fn at_key(key: &str, message: impl Into<String>) -> Self {
        Self { place: Place::Key, key: key.into(), message: message.into() }
    }

    /// For people, with its line in `text`.
    pub(super) fn located(self, text: &str) -> ExperimentError {
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

/// Shortest interval of samples with which the sampler can keep up.
const SERIES_LEAST: Duration = Duration::from_millis(10);
