//! Sentences about hosts: given rates beside found ones, the bottlenecks that programs name, and
//! the spread of runs.

use std::collections::BTreeMap;

use longhaul_plot::{Axis, Panel, Point, Series, number};

use super::Part;
use super::data::{Figure, value};
use super::phrases::{absence, capital, order};
use crate::experiment::{Parameter, PlotSpec};
use crate::measure::Measure;
use crate::record::Record;
use crate::statistics::deviation_of;

/// Mean and standard deviation in each case, as the tables of papers have them.
pub(super) fn deviation(part: &Part, records: &[&Record], of: Measure) -> Vec<String> {
    let say = |(place, group): (String, Vec<&Record>)| {
        let values = group.iter().filter_map(|one| of.of(one));
        let values: Vec<f64> = values.map(|value| value.value).collect();
        let Some((mean, deviation)) = deviation_of(&values) else {
            return absence(&group, &group[0].contender);
        };
        let runs =
            if values.len() == 1 { "one run".into() } else { format!("{} runs", values.len()) };
        let part = number(100.0 * deviation / mean);
        let deviation = match values.len() {
            1 => String::new(),
            _ => format!(", standard deviation {} ({part} % of it)", number(deviation)),
        };
        Some(format!("{place}: mean {}{deviation} in {runs}.", of.say(mean)))
    };
    part.cases(records).into_iter().filter_map(say).collect()
}

/// Label, figure and runs.
type Made<'a> = (String, Figure, Vec<&'a Record>);

/// Result of each contender in a case, in the order of the experiment.
fn made<'a>(part: &Part, group: &[&'a Record], by: Measure) -> Vec<Made<'a>> {
    let names = part.values(group, Parameter::Contender).into_iter();
    let figures = names.filter_map(|name| {
        let own = group.iter().filter(|one| one.contender == name).copied();
        let own: Vec<&Record> = own.collect();
        Some((name, Figure::of(by, &own)?, own))
    });
    figures.collect()
}

/// The best of them.
fn best<'m, 'a>(all: impl Iterator<Item = &'m Made<'a>>, by: Measure) -> Option<&'m Made<'a>>
where
    'a: 'm,
{
    all.min_by(|a, b| order(by, a.1.estimate.median, b.1.estimate.median))
}

impl Part {
    /// True if that label is of a contender of that name with a rate of its own.
    fn is_of(&self, sweep: &str, label: &str) -> bool {
        let mut all = self.experiment.contenders.iter();
        all.any(|one| one.label() == label && one.name.get_ref() == sweep && one.rate.is_some())
    }

    /// The rate that a contender is given.
    fn rate_of(&self, label: &str) -> Option<longhaul_units::Rate> {
        self.experiment.contenders.iter().find(|one| one.label() == label)?.rate
    }
}

/// A rate that is best in one case and kept, and the best of each case, beside all others.
pub(super) fn tuned(
    part: &Part,
    records: &[&Record],
    (sweep, by): (&str, Measure),
    [untuned, swept]: [&BTreeMap<Parameter, String>; 2],
) -> Vec<String> {
    let every: Vec<&Record> = part.records.iter().collect();
    // Given rates in the case of `one`, but for what is chosen otherwise.
    let given = |one: &Record, otherwise: &[&BTreeMap<Parameter, String>]| {
        let fits = |other: &&&Record| {
            one.cell.iter().all(|(axis, own)| {
                let chosen = otherwise.iter().find_map(|chosen| chosen.get(axis)).unwrap_or(own);
                value(other, *axis) == chosen
            })
        };
        let group: Vec<&Record> = every.iter().filter(fits).copied().collect();
        let mut all = made(part, &group, by);
        all.retain(|(name, ..)| part.is_of(sweep, name));
        all
    };
    let mut sentences = Vec::new();
    for (place, group) in part.groups(records, &[Parameter::Contender]) {
        let (there, here) = (given(group[0], &[untuned, swept]), given(group[0], &[swept]));
        let kept = best(there.iter(), by).and_then(|kept| here.iter().find(|one| one.0 == kept.0));
        let (Some(own), Some(tuned)) = (kept, best(here.iter(), by)) else { continue };
        let share =
            |figure: &Figure, of: &Figure| number(figure.estimate.median / of.estimate.median);
        let mut parts = vec![
            format!("{} kept: {}", own.0, own.1.say(by)),
            format!("{} tuned: {}", tuned.0, tuned.1.say(by)),
        ];
        let rate = part.rate_of(&own.0);
        for (name, figure, _) in made(part, &group, by) {
            // Others with given rates: the one with the same.
            let same = part.rate_of(&name).is_none_or(|given| Some(given) == rate);
            if !part.is_of(sweep, &name) && same {
                parts.push(format!(
                    "{name}: {}, {} of the first and {} of the second",
                    figure.say(by),
                    share(&figure, &own.1),
                    share(&figure, &tuned.1)
                ));
            }
        }
        let place = if place.is_empty() { String::new() } else { format!("{}: ", capital(&place)) };
        sentences.push(format!("{place}{}.", parts.join("; ")));
    }
    sentences
}

/// Bottlenecks that the programs name, in each case.
pub(super) fn bottleneck(part: &Part, records: &[&Record]) -> Vec<String> {
    let say = |(place, group): (String, Vec<&Record>)| {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for named in group.iter().filter_map(|one| one.bottleneck.as_deref()) {
            *counts.entry(named).or_default() += 1;
        }
        let all: usize = counts.values().sum();
        let named: Vec<String> = match counts.len() {
            1 => counts.keys().map(|named| (*named).to_owned()).collect(),
            _ => {
                counts.iter().map(|(named, count)| format!("{named} in {count} of {all}")).collect()
            }
        };
        match named.is_empty() {
            true => absence(&group, &group[0].contender),
            false => Some(format!("{place}: {}.", named.join(", "))),
        }
    };
    part.cases(records).into_iter().filter_map(say).collect()
}

/// One measure against another: contenders of one name with given rates make a line.
pub(super) fn panel(part: &Part, spec: &PlotSpec, title: String, records: &[&Record]) -> Panel {
    let mut lines: Vec<Series> = Vec::new();
    // All of them, so that a line has the same style in every panel.
    let mut names: Vec<&str> = Vec::new();
    for contender in &part.experiment.contenders {
        let name = match contender.rate {
            Some(_) => contender.name.get_ref(),
            None => contender.label(),
        };
        let style = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        let own = records.iter().filter(|one| one.contender == contender.label()).copied();
        let own: Vec<&Record> = own.collect();
        let (Some(x), Some(y)) = (Figure::of(spec.against, &own), Figure::of(spec.y, &own)) else {
            continue;
        };
        let interval = (y.estimate.count > 1).then_some((y.estimate.low, y.estimate.high));
        let point = Point {
            interval,
            hollow: y.unfinished,
            ..Point::new(x.estimate.median, y.estimate.median)
        };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Series::line(name, style, vec![point])),
        }
    }
    let y = if spec.log { Axis::log(spec.y.label()) } else { Axis::linear(spec.y.label()) };
    Panel { title, x: Axis::linear(spec.against.label()), y, series: lines }
}
