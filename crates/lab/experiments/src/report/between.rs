//! Transfers through nodes between: what the links at the edges allow, and what connecting costs.

use std::collections::BTreeMap;

use longhaul_lab::LinkSpec;
use longhaul_plot::number;

use super::Part;
use super::data::{Figure, value};
use super::phrases::{absence, capital, interval};
use crate::experiment::{Parameter, Setup};
use crate::measure::Measure;
use crate::record::Record;

/// Goodput beside what the formula allows on the worst of some links.
pub(super) fn mathis(part: &Part, records: &[&Record], links: &[String]) -> Vec<String> {
    let mut sentences = Vec::new();
    for (place, group) in part.cases(records) {
        let Some(figure) = Figure::of(Measure::Goodput, &group) else {
            sentences.extend(absence(&group, &group[0].contender));
            continue;
        };
        let own = format!("{} ({})", figure.say(Measure::Goodput), interval(&figure.estimate));
        let count = connections(part, &group[0].contender);
        let Ok(setup) = Setup::in_cell(&part.experiment, part.quick, &group[0].cell) else {
            continue;
        };
        let links = links.iter().filter_map(|name| setup.topology.link(name));
        let links = links.map(|link| &setup.topology.links[link]);
        let least = links
            .filter_map(|link| Some((link, limit_mbps(link)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        sentences.push(match least {
            None => format!(
                "{place}: {own}; without delay or random losses there the formula sets no limit."
            ),
            Some((link, limit)) => format!(
                "{place}: {own}; the formula of Mathis and others lets {count} of Reno's have {} \
                 Mb/s on `{}`.",
                number(limit * f64::from(count)),
                link.name
            ),
        });
    }
    sentences
}

/// A measure of one contender in parts of another's, beside the source's own ratio.
pub(super) fn ratio(
    part: &Part,
    records: &[&Record],
    of: Measure,
    (contender, to): (&str, &str),
    (along, source): (Parameter, &BTreeMap<String, f64>),
) -> Vec<String> {
    let say = |(place, own, other): (&[&Record], Figure, Figure)| {
        let there = value(place[0], along);
        let ratio = number(own.estimate.median / other.estimate.median);
        let mut text = format!(
            "{}: {} {} beside {}, {ratio} times as much",
            capital(&along.say(there)),
            of.name(),
            own.say(of),
            other.say(of)
        );
        if let Some(source) = source.get(there) {
            text += &format!("; the source has {} times", number(*source));
        }
        text + "."
    };
    both(part, records, of, (contender, to), say)
}

/// After how long a transfer that is faster by some part has made up for its longer connect: what it is
/// slower by, over what it gains in each second.
pub(super) fn break_even(
    part: &Part,
    records: &[&Record],
    (contender, to): (&str, &str),
    faster: f64,
) -> Vec<String> {
    let of = Measure::Connect;
    let say = |(group, own, other): (&[&Record], Figure, Figure)| {
        let more = own.estimate.median - other.estimate.median;
        let place = group[0].cell.iter().map(|(axis, value)| axis.say(value));
        let place = capital(&place.collect::<Vec<_>>().join(", "));
        if more <= 0.0 {
            return format!("{place}: connecting takes no longer.");
        }
        let (more, after) = (of.say(more), of.say(more / faster));
        let faster = number(100.0 * faster);
        format!(
            "{place}: connecting takes {more} more, which a transfer that is {faster} % faster has made \
             up for after {after}."
        )
    };
    both(part, records, of, (contender, to), say)
}

/// A sentence for each case in which both have runs.
fn both(
    part: &Part,
    records: &[&Record],
    of: Measure,
    (contender, to): (&str, &str),
    say: impl Fn((&[&Record], Figure, Figure)) -> String,
) -> Vec<String> {
    let mut sentences = Vec::new();
    for (_, group) in part.groups(records, &[Parameter::Contender]) {
        let figure = |name: &str| {
            let own = group.iter().filter(|one| one.contender == name);
            Figure::of(of, &own.copied().collect::<Vec<_>>())
        };
        match (figure(contender), figure(to)) {
            (Some(own), Some(other)) => sentences.push(say((&group, own, other))),
            (None, _) => sentences.extend(absence(&group, contender)),
            (_, None) => sentences.extend(absence(&group, to)),
        }
    }
    sentences
}

/// Connections of a contender: as many as its name says.
fn connections(part: &Part, label: &str) -> u16 {
    let contender = part.experiment.contenders.iter().find(|one| one.label() == label);
    let name = contender.map_or("", |contender| contender.name.get_ref());
    name.rsplit_once(" x").and_then(|(_, count)| count.parse().ok()).unwrap_or(1)
}

/// The rate that one connection of Reno's gets of a link by losses at random alone: a window of sqrt(3/2p)
/// segments each round trip, as Linux counts acknowledged segments.
fn limit_mbps(link: &LinkSpec) -> Option<f64> {
    let rtt = link.rtt().as_secs_f64();
    let loss = f64::from(link.forward.loss.or(link.both.loss)?.as_ppb()) / 1e9;
    (loss > 0.0 && rtt > 0.0).then(|| {
        let window = (1.5 / loss).sqrt();
        window * f64::from(link.mtu.saturating_sub(HEADERS)) * 8.0 / rtt / 1e6
    })
}

/// IPv4, TCP and its timestamps.
const HEADERS: u32 = 52;
