//! Correlation of losses with the load of the receiver's core: figures 1 and 2 of FOBS, and what it
//! left open.

use longhaul_plot::{Axis, Panel, Point, Series, Shape};

use crate::record::Record;
use crate::statistics::Correlation;

/// The watched core over time, in the first repeat.
pub(super) fn busy(title: String, records: &[&Record]) -> Panel {
    let first = records.iter().min_by_key(|one| one.repeat);
    let own = first.map_or(Vec::new(), |one| trace(one, one.series.busy_percent.iter().copied()));
    let (x, y) = (Axis::linear("time (s)"), Axis::linear("core busy (%)"));
    Panel { title, x, y, series: vec![line("", 0, own)] }
}

/// Packets lost over time, in the first repeat.
pub(super) fn losses(title: String, records: &[&Record]) -> Panel {
    let first = records.iter().min_by_key(|one| one.repeat);
    let series = first.iter().flat_map(|one| {
        let own = |lost: &[u64]| trace(one, lost.iter().map(|lost| *lost as f64));
        [line(RECEIVER, 0, own(&one.series.host_lost)), line(PATH, 1, own(&one.series.lost))]
    });
    let (x, y) = (Axis::linear("time (s)"), Axis::linear("packets lost"));
    Panel { title, x, y, series: series.collect() }
}

/// The coefficient over the time by which losses are later.
pub(super) fn correlation(title: String, records: &[&Record]) -> Panel {
    let step = records.first().map_or(0.1, |one| one.series.interval());
    let lines = [(RECEIVER, 0), (PATH, 1)].map(|(name, style)| {
        let points = lags(step).filter_map(|lag| {
            let found = follows(records, name, lag)?;
            let interval = Some((found.low, found.high));
            Some(Point { interval, ..Point::new(lag as f64 * step, found.value) })
        });
        Series::line(name, style, points.collect())
    });
    let (x, y) = (Axis::linear("losses later by (s)"), Axis::linear("correlation"));
    Panel { title, x, y, series: lines.into() }
}

/// Losses of that kind so many intervals behind the load.
fn follows(records: &[&Record], name: &str, lag: isize) -> Option<Correlation> {
    let runs = records.iter().map(|one| {
        let series = &one.series;
        let lost = if name == RECEIVER { &series.host_lost } else { &series.lost };
        // Set-up and the end are no transfer.
        let active = |mbps: &f64| *mbps > QUIET_MBPS;
        let first = series.arrived_mbps.iter().position(active).unwrap_or(0);
        let last = series.arrived_mbps.iter().rposition(active).unwrap_or(0).max(first);
        let lost: Vec<f64> = lost.iter().map(|lost| *lost as f64).collect();
        let cut = |values: &[f64]| values.get(first..last).unwrap_or_default().to_vec();
        (cut(&series.busy_percent), cut(&lost))
    });
    let runs: Vec<(Vec<f64>, Vec<f64>)> = runs.collect();
    let runs: Vec<(&[f64], &[f64])> = runs.iter().map(|run| (&run.0[..], &run.1[..])).collect();
    Correlation::lagged(&runs, lag)
}

fn lags(step: f64) -> impl Iterator<Item = isize> + Clone {
    let most = (LAG_MOST / step).round() as isize;
    -most..=most
}

fn trace(record: &Record, values: impl Iterator<Item = f64>) -> Vec<Point> {
    let (start, step) = (record.series.start, record.series.interval());
    values.enumerate().map(|(at, y)| Point::new(start + (at + 1) as f64 * step, y)).collect()
}

fn line(name: &str, style: usize, points: Vec<Point>) -> Series {
    Series { name: name.into(), style, shape: Shape::Trace, points }
}

const RECEIVER: &str = "at the receiver";
const PATH: &str = "on the path";
/// Seconds.
const LAG_MOST: f64 = 1.0;
/// Less than this is no transfer.
const QUIET_MBPS: f64 = 0.1;
