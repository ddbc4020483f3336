//! Records by what was varied.

use std::collections::BTreeMap;

use super::Part;
use super::phrases::capital;
use crate::experiment::Parameter;
use crate::measure::Measure;
use crate::record::Record;
use crate::statistics::Estimate;

/// A median, and whether runs that the time limit or the job's length ended are among its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) estimate: Estimate,
    pub(super) unfinished: bool,
    /// Transfers that were cut are among them.
    pub(super) cut: bool,
}

impl Figure {
    /// Of a measure over some runs.
    pub(super) fn of(measure: Measure, records: &[&Record]) -> Option<Self> {
        let values: Vec<_> = records.iter().filter_map(|record| measure.of(record)).collect();
        let estimate = Estimate::of(values.iter().map(|value| value.value))?;
        let unfinished = values.iter().any(|value| value.unfinished);
        Some(Self { estimate, unfinished, cut: values.iter().any(|value| value.cut) })
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.estimate.low <= other.estimate.high && other.estimate.low <= self.estimate.high
    }

    /// `812 Mb/s`, `> 60 s`.
    pub(super) fn say(&self, measure: Measure) -> String {
        let bound = match (self.unfinished, measure) {
            (true, Measure::CompletionTime) => "more than ",
            (true, Measure::Goodput) => "at most ",
            _ => "",
        };
        format!("{bound}{}", measure.say(self.estimate.median))
    }
}

/// The value that a record has of a parameter.
pub(super) fn value(record: &Record, parameter: Parameter) -> &str {
    match parameter {
        Parameter::Contender => &record.contender,
        parameter => record.cell.get(&parameter).map_or("", String::as_str),
    }
}

impl Part {
    /// Records with all of these values.
    pub(super) fn select(&self, only: &BTreeMap<Parameter, String>) -> Vec<&Record> {
        let fits = |record: &&Record| {
            only.iter().all(|(parameter, wanted)| value(record, *parameter) == wanted)
        };
        self.records.iter().filter(fits).collect()
    }

    /// Values of a parameter that occur among records, in the order of the experiment.
    pub(super) fn values(&self, records: &[&Record], parameter: Parameter) -> Vec<String> {
        let all: Vec<String> = match parameter {
            Parameter::Contender => {
                self.experiment.contenders.iter().map(|one| one.label().to_owned()).collect()
            }
            parameter => {
                let axis = self.experiment.axes.iter().find(|axis| axis.sets == parameter);
                let values = axis.iter().flat_map(|axis| &axis.values);
                values.map(|value| value.get_ref().clone()).collect()
            }
        };
        let occurs = |wanted: &String| records.iter().any(|one| value(one, parameter) == wanted);
        let mut values: Vec<String> = Vec::new();
        for value in all.into_iter().filter(occurs) {
            // Contenders of different cells may have one label.
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    /// Records of each case with its name as a sentence begins: the values of what was varied, the
    /// contender's label where nothing was.
    pub(super) fn cases<'a>(&self, records: &[&'a Record]) -> Vec<(String, Vec<&'a Record>)> {
        let named = |(place, group): (String, Vec<&'a Record>)| {
            let place = if place.is_empty() { &group[0].contender } else { &place };
            (capital(place), group)
        };
        self.groups(records, &[]).into_iter().map(named).collect()
    }

    /// Records grouped by everything that was varied but these parameters, in order, each with its
    /// values in words.
    pub(super) fn groups<'a>(
        &self,
        records: &[&'a Record],
        but: &[Parameter],
    ) -> Vec<(String, Vec<&'a Record>)> {
        let dimensions: Vec<Parameter> = [Parameter::Contender]
            .into_iter()
            .chain(self.experiment.axes.iter().map(|axis| axis.sets))
            .filter(|parameter| !but.contains(parameter))
            .collect();
        let mut groups: Vec<(String, Vec<&Record>)> = vec![(String::new(), records.to_vec())];
        for parameter in dimensions {
            let many = self.values(records, parameter).len() > 1;
            groups = groups
                .into_iter()
                .flat_map(|(words, records)| {
                    let values = self.values(&records, parameter);
                    let split = values.into_iter().map(|wanted| {
                        let text = parameter.say(&wanted);
                        let words = match (many, words.is_empty()) {
                            (false, _) => words.clone(),
                            (true, true) => text,
                            (true, false) => format!("{words}, {text}"),
                        };
                        let fits = |one: &&&Record| value(one, parameter) == wanted;
                        (words, records.iter().filter(fits).copied().collect())
                    });
                    split.collect::<Vec<_>>()
                })
                .collect();
        }
        groups.retain(|(_, records): &(String, Vec<&Record>)| !records.is_empty());
        groups
    }
}
