//! Data in sentences. Nothing here knows what ought to come out.

use std::collections::BTreeSet;

use longhaul_plot::number;

use super::Part;
use super::data::{Figure, value};
use super::phrases::{absence, capital, order};
use super::{between, bookings};
use super::{hosts, signals};
use crate::experiment::{Finding, Look, Parameter, Setup};
use crate::measure::Measure;
use crate::record::{LossCauses, Record, Recovery, Scheduling, Spans, Verdict};
use crate::statistics::{Estimate, Lengths, jain};

/// Sentences that stand beside a finding.
pub(super) fn say(part: &Part, finding: &Finding) -> Vec<String> {
    let records = part.select(&finding.only);
    let mut sentences = match &finding.measured {
        Look::Rank { by, of } => rank(part, &records, *by, of),
        Look::Values { of } => vec![format!("In the table: {}.", of.name())],
        Look::Figures {} => vec!["In the figures.".into()],
        Look::Change { of, along, from, to } => change(part, &records, *of, *along, (from, to)),
        Look::Shares {} => shares(part, &records),
        Look::Recovery {} => recovery(part, &records),
        Look::Causes {} => causes(part, &records),
        Look::Ratio { of, contender, to, along, source } => {
            between::ratio(part, &records, *of, (contender, to), (*along, source))
        }
        Look::BreakEven { contender, to, faster } => {
            between::break_even(part, &records, (contender, to), *faster)
        }
        Look::Mathis { links } => between::mathis(part, &records, links),
        Look::Bookings {} => bookings::say(part, &records),
        Look::Slices { each } => slices(part, &records, *each),
        Look::Deviation { of } => hosts::deviation(part, &records, *of),
        Look::Tuned { sweep, by, untuned, swept } => {
            hosts::tuned(part, &records, (sweep, *by), [untuned, swept])
        }
        Look::Bottleneck {} => hosts::bottleneck(part, &records),
        Look::Signals {} => signals::say(part, &records),
    };
    // Who is absent is so in each case.
    let mut seen = BTreeSet::new();
    sentences.retain(|sentence| seen.insert(sentence.clone()));
    if sentences.is_empty() { vec!["There are no data for this yet.".into()] } else { sentences }
}

/// Where one contender stands among all, over all cells.
fn rank(part: &Part, records: &[&Record], by: Measure, of: &str) -> Vec<String> {
    struct Standing {
        place: String,
        share: f64,
        own: Figure,
        rival: (String, Figure),
    }
    let mut cells: Vec<Standing> = Vec::new();
    for (place, group) in part.groups(records, &[Parameter::Contender]) {
        let figure = |name: &str| {
            let own: Vec<&Record> =
                group.iter().filter(|one| one.contender == name).copied().collect();
            Figure::of(by, &own)
        };
        let Some(own) = figure(of) else { continue };
        let others = part.values(&group, Parameter::Contender);
        let others = others.into_iter().filter(|name| name != of);
        let rival = others
            .filter_map(|name| figure(&name).map(|figure| (name, figure)))
            .min_by(|a, b| order(by, a.1.estimate.median, b.1.estimate.median));
        if let Some(rival) = rival {
            let share = own.estimate.median / rival.1.estimate.median;
            cells.push(Standing { place, share, own, rival });
        }
    }
    if cells.is_empty() {
        return absence(records, of).into_iter().collect();
    }
    let ahead =
        |cell: &Standing| order(by, cell.own.estimate.median, cell.rival.1.estimate.median).is_lt();
    let first = cells.iter().filter(|cell| ahead(cell)).count();
    let close = cells.iter().filter(|cell| !ahead(cell) && cell.own.overlaps(&cell.rival.1));
    let extreme = if by.more_is_better() { "highest" } else { "lowest" };
    let (name, judged) = (capital(of), by.name());
    let mut standing = match (cells.len(), first) {
        (1, 1) => format!("{name} has the {extreme} {judged}"),
        (1, _) => format!("{name} does not have the {extreme} {judged}"),
        (all, _) => format!("{name} has the {extreme} {judged} in {first} of {all} cases"),
    };
    let close = close.count();
    if close > 0 {
        standing += &match cells.len() {
            1 => "; its interval overlaps that of the first".to_owned(),
            _ => format!("; in {close} more its interval overlaps that of the first"),
        };
    }
    let mut sentences = vec![standing + "."];
    cells.sort_by(|a, b| a.share.total_cmp(&b.share));
    let tell = |cell: &Standing| {
        let (name, figure) = &cell.rival;
        let place = if cell.place.is_empty() { String::new() } else { format!(", {}", cell.place) };
        let (share, own, other) = (number(cell.share), cell.own.say(by), figure.say(by));
        format!("{share} times as much ({own} beside {other} of {name}{place})")
    };
    let finite: Vec<&Standing> = cells.iter().filter(|cell| cell.share.is_finite()).collect();
    if let (Some(least), Some(most)) = (finite.first(), finite.last()) {
        sentences.push(match finite.len() {
            1 => format!("Beside the best of the others it has {}.", tell(least)),
            _ => format!(
                "Beside the best of the others it has from {} to {}.",
                tell(least),
                tell(most)
            ),
        });
    }
    sentences.extend(unfinished(records, of));
    sentences
}

/// Effect of another value of a parameter, over all else that was varied.
fn change(
    part: &Part,
    records: &[&Record],
    of: Measure,
    along: Parameter,
    (from, to): (&str, &str),
) -> Vec<String> {
    let mut changes = Vec::new();
    for (place, group) in part.groups(records, &[along]) {
        let at = |wanted: &str| {
            let fits = group.iter().filter(|one| value(one, along) == wanted);
            Figure::of(of, &fits.copied().collect::<Vec<_>>())
        };
        if let (Some(before), Some(after)) = (at(from), at(to)) {
            changes.push((place, before, after));
        }
    }
    if changes.is_empty() {
        return Vec::new();
    }
    let (from, to) = (along.say(from), along.say(to));
    let apart = changes.iter().filter(|(_, before, after)| !before.overlaps(after));
    let (more, fewer) = apart.clone().fold((0, 0), |(more, fewer), (_, before, after)| {
        match after.estimate.median > before.estimate.median {
            true => (more + 1, fewer),
            false => (more, fewer + 1),
        }
    });
    let all = changes.len();
    let mut sentences = vec![format!(
        "From {from} to {to} the {} rises in {more} of {all} {} and falls in {fewer}; in the others \
         the intervals overlap.",
        of.name(),
        if all == 1 { "case" } else { "cases" },
    )];
    changes.sort_by(|a, b| {
        let factor = |c: &(String, Figure, Figure)| c.2.estimate.median - c.1.estimate.median;
        factor(a).total_cmp(&factor(b))
    });
    let tell = |(place, before, after): &(String, Figure, Figure)| {
        format!("{place} ({} to {})", before.say(of), after.say(of))
    };
    if let (Some(least), Some(most)) = (changes.first(), changes.last()) {
        sentences.push(match all {
            1 => format!("It goes from {} to {}.", least.1.say(of), least.2.say(of)),
            _ => format!("The change is least at {} and most at {}.", tell(least), tell(most)),
        });
    }
    sentences
}

/// Shares of the observed link, in each case.
fn shares(part: &Part, records: &[&Record]) -> Vec<String> {
    let mut sentences = Vec::new();
    for (place, group) in part.cases(records) {
        let own: Vec<&Record> =
            group.iter().filter(|one| !one.cross_bps.is_empty()).copied().collect();
        let median = |of: &dyn Fn(&Record) -> Option<f64>| {
            Estimate::of(own.iter().filter_map(|one| of(one))).map(|estimate| estimate.median)
        };
        let others = |one: &Record| one.cross_bps.iter().sum::<f64>();
        let figures = (
            median(&Record::own),
            median(&|one| Some(others(one))),
            median(&|one| Some(one.own()? + others(one))),
            median(&|one| {
                let shares: Vec<f64> = one.cross_bps.iter().copied().chain([one.own()?]).collect();
                jain(&shares)
            }),
        );
        let (Some(transfer), Some(others), Some(total), Some(fairness)) = figures else {
            sentences.extend(absence(&group, &group[0].contender));
            continue;
        };
        let count = own[0].cross_bps.len();
        let mut text = format!(
            "{}: {} Mb/s, and {} Mb/s of the {count} beside it",
            place,
            number(transfer / 1e6),
            number(others / 1e6)
        );
        // In this cell: the rate may be an axis.
        let setup = Setup::in_cell(&part.experiment, part.quick, &own[0].cell).ok();
        let line = setup.and_then(|setup| setup.topology.links[setup.link].both.rate);
        if let Some(line) = line.map(|rate| rate.as_bps() as f64) {
            let part = |value: f64| number(100.0 * value / line);
            text += &format!("; {} % of the link, {} % with theirs", part(transfer), part(total));
        }
        let equal = total / (count + 1) as f64;
        text += &format!(
            "; {} of an equal share, Jain's index {}.",
            number(transfer / equal),
            number(fairness)
        );
        sentences.push(text);
    }
    sentences
}

/// Comparison of the causes that the sender reported with the true ones, in each case.
fn causes(part: &Part, records: &[&Record]) -> Vec<String> {
    let mut sentences = Vec::new();
    for (place, group) in part.cases(records) {
        let mut all = LossCauses::default();
        group.iter().filter_map(|one| one.loss_causes.as_ref()).for_each(|one| all.extend(one));
        let percent = |part: Option<f64>| match part {
            Some(part) => format!("{} %", number(100.0 * part)),
            None => "none".to_owned(),
        };
        let takers = ["random", "congestion", "receiver", "sender", "arrived"];
        let takers = takers.iter().filter(|taker| all.taken(taker) > 0 || all.reported(taker) > 0);
        let takers = takers.map(|taker| match (*taker, all.taken(taker)) {
            ("arrived", count) => format!("{count} had arrived"),
            (taker, 0) => format!("{taker} took none of {} reported for it", all.reported(taker)),
            (taker, count) => format!(
                "{taker} took {count}: recall {}, precision {}",
                percent(all.recall(taker)),
                percent(all.precision(taker))
            ),
        });
        let takers: Vec<String> = takers.collect();
        if !takers.is_empty() {
            sentences.push(format!("{}: {}.", place, takers.join("; ")));
        } else {
            sentences.extend(absence(&group, &group[0].contender));
        }
    }
    sentences
}

/// Reaction to each change of the observed link, in each case.
fn recovery(part: &Part, records: &[&Record]) -> Vec<String> {
    let mut sentences = Vec::new();
    for (place, group) in part.cases(records) {
        let most = group.iter().map(|one| one.recovery.len()).max().unwrap_or(0);
        let changes = (0..most).filter_map(|place| {
            let same: Vec<_> = group.iter().filter_map(|one| one.recovery.get(place)).collect();
            let first = same.first()?;
            let median = |of: &dyn Fn(&Recovery) -> Option<f64>| {
                // A run that never got there counts as one that took for ever.
                let all = same.iter().map(|one| of(one).unwrap_or(f64::INFINITY));
                let found = Estimate::of(all)?.median;
                found.is_finite().then_some(found)
            };
            if first.disk {
                let slow = format!("a disk of {} Mb/s", number(first.mbps));
                return Some(match median(&|one| one.reached_ms) {
                    Some(ms) => {
                        format!("no more than {slow} takes arrives {} ms behind it", number(ms))
                    }
                    None => format!("more arrives than {slow} takes until the next change"),
                });
            }
            let what = match first.outage {
                true => "behind the outage".to_owned(),
                false => format!("at {} Mb/s", number(first.mbps)),
            };
            let reached = match median(&|one| one.reached_ms) {
                Some(ms) => format!("nine tenths after {} ms", number(ms)),
                None => "nine tenths not before the next change".to_owned(),
            };
            let drained = match median(&|one| one.drained_ms) {
                Some(ms) => format!("a short queue after {} ms", number(ms)),
                None => "no short queue before the next change".to_owned(),
            };
            Some(format!("{what} {reached}, {drained}"))
        });
        let changes: Vec<String> = changes.collect();
        if !changes.is_empty() {
            sentences.push(format!("{}: {}.", place, changes.join("; ")));
        } else {
            sentences.extend(absence(&group, &group[0].contender));
        }
    }
    sentences
}

/// Lengths of turns and of intervals without loss.
fn slices(part: &Part, records: &[&Record], each: Parameter) -> Vec<String> {
    let mut sentences = Vec::new();
    for wanted in part.values(records, each) {
        let watched = records.iter().filter(|one| value(one, each) == wanted);
        let watched: Vec<_> = watched.filter_map(|one| one.scheduling.as_ref()).collect();
        let lengths = |of: &dyn Fn(&Scheduling) -> &Spans| {
            let mut all = Lengths::default();
            watched.iter().for_each(|one| all.extend(&of(one).lengths));
            all
        };
        let (load, receiver) = (lengths(&|one| &one.load), lengths(&|one| &one.receiver));
        let free = lengths(&|one| &one.loss_free);
        let spread = |lengths: &Lengths| {
            let at = |part| lengths.quantile(part).map_or("?".into(), number);
            format!("{} ms in the middle, nine in ten up to {} ms", at(0.5), at(0.9))
        };
        let mut text = format!("{}: ", capital(&each.say(&wanted)));
        match (load.count(), receiver.count()) {
            (0, 0) => {
                let source = watched.first().map_or("not watched", |one| one.source.as_str());
                text += &format!("no turns ({source})");
            }
            (0, count) => text += &format!("{count} turns of the receiver, {}", spread(&receiver)),
            (count, own) => {
                text += &format!(
                    "{count} turns of the load, {}; {own} of the receiver, {}",
                    spread(&load),
                    spread(&receiver)
                );
            }
        }
        let first = watched.iter().filter_map(|one| one.loss_free.first.first()).map(|span| span.1);
        let losses = watched.iter().filter(|one| one.loss_free.lengths.count() > 1).count();
        text += &match (losses, Estimate::of(first)) {
            (0, _) => format!("; nothing was lost at the receiver in {} runs.", watched.len()),
            (_, Some(first)) => format!(
                "; {} intervals without loss, {}, the first {} ms.",
                free.count(),
                spread(&free),
                number(first.median)
            ),
            (_, None) => ".".into(),
        };
        sentences.push(text);
    }
    sentences
}

fn unfinished(records: &[&Record], name: &str) -> Option<String> {
    let own = records.iter().filter(|one| one.contender == name);
    let ended = own.clone().filter(|one| one.verdict == Verdict::TimedOut).count();
    let all = own.count();
    (ended > 0).then(|| {
        format!(
            "{ended} of its {all} runs were ended by the time limit; their rate is that until then."
        )
    })
}
