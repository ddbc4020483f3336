//! Figures that experiments ask for.

use longhaul_plot::{Axis, Figure, Panel, Point, Series, Shape};

use super::Part;
use super::data::{self, value};
use super::{hosts, load, signals};
use crate::experiment::{Parameter, PlotSpec, Setup, Shows};
use crate::record::{Record, Scheduling, Spans};

/// One figure; nothing where there are no data for it.
pub(super) fn figure(part: &Part, spec: &PlotSpec) -> Option<Figure> {
    let records = part.select(&spec.only);
    let groups: Vec<(String, Vec<&Record>)> = match spec.panels {
        None => vec![(String::new(), records)],
        Some(parameter) => part
            .values(&records, parameter)
            .into_iter()
            .map(|wanted| {
                let fits = records.iter().filter(|one| value(one, parameter) == wanted);
                (parameter.say(&wanted), fits.copied().collect())
            })
            .collect(),
    };
    let panels = groups.into_iter().map(|(title, records)| match spec.shows {
        Shows::Medians => medians(part, spec, title, &records),
        Shows::Series => series(part, spec, title, &records),
        Shows::Busy => load::busy(title, &records),
        Shows::Losses => load::losses(title, &records),
        Shows::Correlation => load::correlation(title, &records),
        Shows::Frontier => hosts::panel(part, spec, title, &records),
        Shows::Leads => signals::panel(title, &records),
        Shows::TimeSlices => dots(title, &records, spec, "time slice (ms)", |one| &one.load),
        Shows::LossFree => dots(title, &records, spec, "without loss (ms)", |one| &one.loss_free),
    });
    let mut panels: Vec<Panel> = panels.collect();
    panels.retain(|panel| panel.series.iter().any(|series| !series.points.is_empty()));
    same_range(&mut panels);
    (!panels.is_empty()).then_some(Figure { panels, columns: COLUMNS })
}

fn medians(part: &Part, spec: &PlotSpec, title: String, records: &[&Record]) -> Panel {
    let places = part.values(records, spec.x);
    let along = |place: usize, text: &str| match spec.x {
        Parameter::SendingRate => {
            text.parse::<longhaul_units::Rate>().map_or(f64::NAN, |rate| rate.as_bps() as f64 / 1e6)
        }
        _ => place as f64,
    };
    // All values, so that a line has the same style in every panel.
    let all: Vec<&Record> = part.records.iter().collect();
    let lines = part.values(&all, spec.lines).into_iter().enumerate().map(|(style, line)| {
        let own: Vec<&Record> =
            records.iter().filter(|one| value(one, spec.lines) == line).copied().collect();
        let points = places.iter().enumerate().filter_map(|(place, text)| {
            let there = own.iter().filter(|one| value(one, spec.x) == text);
            let figure = data::Figure::of(spec.y, &there.copied().collect::<Vec<_>>())?;
            let estimate = figure.estimate;
            let interval = (estimate.count > 1).then_some((estimate.low, estimate.high));
            let hollow = figure.unfinished;
            Some(Point { interval, hollow, ..Point::new(along(place, text), estimate.median) })
        });
        Series::line(spec.lines.say(&line), style, points.collect())
    });
    let label = spec.x.label();
    let x = match spec.x {
        Parameter::SendingRate => Axis::linear(label),
        _ => Axis::names(label, places.iter().map(|text| spec.x.tick(text)).collect()),
    };
    let y = if spec.log { Axis::log(spec.y.label()) } else { Axis::linear(spec.y.label()) };
    let series = lines.filter(|line| !line.points.is_empty()).collect();
    Panel { title, x, y, series }
}

/// Arrivals over time in the first repeat of each contender, and those of its cross traffic.
fn series(part: &Part, spec: &PlotSpec, title: String, records: &[&Record]) -> Panel {
    let all: Vec<&Record> = part.records.iter().collect();
    let names = part.values(&all, Parameter::Contender);
    let setup = Setup::new(&part.experiment, part.quick);
    let begin = setup.begin.unwrap_or_default().as_secs_f64();
    let mut lines = Vec::new();
    for (style, name) in names.iter().enumerate() {
        let own = records.iter().filter(|one| one.contender == *name);
        let Some(first) = own.min_by_key(|one| one.repeat) else { continue };
        let points = |values: &[f64]| -> Vec<Point> {
            let (start, step) = (first.series.start, first.series.interval());
            let end = |place: usize| start + (place + 1) as f64 * step - begin;
            let ends = (0..values.len()).map(end);
            let points = ends.zip(values).filter(|(end, _)| *end >= 0.0);
            points.map(|(end, value)| Point::new(end, *value)).collect()
        };
        let cross = &first.series.cross_mbps;
        // Where panels tell contenders apart, lines need not.
        let alone = spec.panels == Some(Parameter::Contender) || !cross.is_empty();
        let (name, style) = if alone { ("the transfer", 0) } else { (name.as_str(), style) };
        let trace = |name: &str, style, points| Series {
            name: name.into(),
            style,
            shape: Shape::Trace,
            points,
        };
        lines.push(trace(name, style, points(&first.series.arrived_mbps)));
        if !cross.is_empty() {
            lines.push(trace("those beside it together", 3, points(cross)));
        }
    }
    let last = lines.iter().flat_map(|line| &line.points).map(|point| point.x).fold(0.0, f64::max);
    if last > 0.0 {
        let name = "the link's rate".to_owned();
        let points = rates(&setup, last);
        lines.push(Series { name, style: LINK, shape: Shape::Trace, points });
        lines.retain(|line| !line.points.is_empty());
    }
    Panel { title, x: Axis::linear("time (s)"), y: Axis::linear("arriving (Mb/s)"), series: lines }
}

/// Rate of the observed link, as steps, if that changes; from the start of the transfer on.
fn rates(setup: &Setup, last: f64) -> Vec<Point> {
    let path = setup.topology.links[setup.link].paths().ok();
    let Some(rate) = path.and_then(|both| both.forward.bottleneck).map(|narrow| narrow.rate) else {
        return Vec::new();
    };
    if rate.changes.is_empty() {
        return Vec::new();
    }
    let begin = setup.begin.unwrap_or_default().as_secs_f64();
    let mut mbps = rate.initial.as_bps() as f64 / 1e6;
    let mut points = vec![Point::new(0.0, mbps)];
    let changes = rate.changes.into_iter().map(|(at, rate)| (at.as_secs_f64() - begin, rate));
    for (at, next) in changes.take_while(|(at, _)| *at < last) {
        points.push(Point::new(at.max(0.0), mbps));
        mbps = next.as_bps() as f64 / 1e6;
        points.push(Point::new(at.max(0.0), mbps));
    }
    points.push(Point::new(last, mbps));
    points
}

/// Lengths over the time at which they began, in the first repeat.
fn dots(
    title: String,
    records: &[&Record],
    spec: &PlotSpec,
    label: &str,
    of: impl Fn(&Scheduling) -> &Spans,
) -> Panel {
    let first = records.iter().filter(|one| one.scheduling.is_some()).min_by_key(|one| one.repeat);
    let spans = first.and_then(|one| one.scheduling.as_ref()).map(of);
    let points = spans
        .iter()
        .flat_map(|spans| &spans.first)
        .map(|(at, length)| Point::new(at / 1e3, *length));
    let series = vec![Series {
        name: String::new(),
        style: 2,
        shape: Shape::Dots,
        points: points.collect(),
    }];
    let y = if spec.log { Axis::log(label) } else { Axis::linear(label) };
    Panel { title, x: Axis::linear("time (s)"), y, series }
}

/// Panels of a figure are read against each other: one range upwards for all.
fn same_range(panels: &mut [Panel]) {
    let points = panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.points);
    let ends = points.flat_map(|point| {
        let (low, high) = point.interval.unwrap_or((point.y, point.y));
        [low, high]
    });
    let ends: Vec<f64> = ends.collect();
    for panel in panels {
        panel.y = panel.y.around(ends.iter().copied());
    }
}

/// The style of what is no contender's.
const LINK: usize = 7;
/// In a row of the whole page.
const COLUMNS: usize = 3;
