//! Which signals of a loaded host move before it drops, and how often for nothing.

use longhaul_lab::signals::{Signal, Signals};
use longhaul_plot::{Axis, Panel, Point, Series, Shape, number};

use super::Part;
use crate::record::Record;
use crate::statistics::quantile;

/// All runs together, then when the first drop comes in each case.
pub(super) fn say(part: &Part, records: &[&Record]) -> Vec<String> {
    let all = together(records);
    if all.of.is_empty() {
        return Vec::new();
    }
    let percent = |count: usize, of: u32| match of {
        0 => "none".to_owned(),
        of => format!("{} %", number(100.0 * count as f64 / f64::from(of))),
    };
    let mut sentences = vec![format!(
        "{} loads under which datagrams were dropped, {} under which none was, {} s without load.",
        all.with_drops,
        all.without,
        number(all.quiet_seconds.round())
    )];
    for signal in &all.of {
        let Signal { name, leads_ms, harmless, false_alarms } = signal;
        let lead = |part: f64| quantile(leads_ms, part).map_or("?".into(), number);
        let leads = match leads_ms.is_empty() {
            true => String::new(),
            false => format!(", by {}, {}, {} ms (10, 50, 90 %)", lead(0.1), lead(0.5), lead(0.9)),
        };
        sentences.push(format!(
            "{name}: before the first drop in {}{leads}; moved in {} of the loads without drops, and {} \
             times a minute without load.",
            percent(leads_ms.len(), all.with_drops),
            percent(*harmless as usize, all.without),
            number(f64::from(*false_alarms) * 60.0 / all.quiet_seconds.max(1.0))
        ));
    }
    for (place, group) in part.cases(records) {
        let own = together(&group);
        let first = quantile(&own.first_drops_ms, 0.5);
        let first =
            first.map_or(String::new(), |ms| format!(", the first after {} ms", number(ms)));
        let loads = own.with_drops + own.without;
        sentences.push(format!("{place}: drops under {} of {loads} loads{first}.", own.with_drops));
    }
    sentences
}

fn together(records: &[&Record]) -> Signals {
    let mut all = Signals::default();
    records.iter().filter_map(|one| one.signals.as_ref()).for_each(|one| all.extend(one));
    all
}

/// For each signal, under which part of the loads with drops it was so much ahead, or more.
pub(super) fn panel(title: String, records: &[&Record]) -> Panel {
    let all = together(records);
    let loads = f64::from(all.with_drops.max(1));
    let lines = all.of.iter().enumerate().map(|(style, signal)| {
        let mut leads = signal.leads_ms.clone();
        leads.sort_by(|a, b| b.total_cmp(a));
        let points = leads.iter().enumerate();
        let points = points.map(|(at, lead)| Point::new(*lead, 100.0 * (at + 1) as f64 / loads));
        Series { name: signal.name.clone(), style, shape: Shape::Trace, points: points.collect() }
    });
    let x = Axis::log("ahead of the first drop by so much or more (ms)");
    let y = Axis::linear("of the loads with drops (%)");
    Panel { title, x, y, series: lines.collect() }
}
