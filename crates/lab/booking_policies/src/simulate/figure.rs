//! The paper's figure 3, drawn: equation 1 over load, one panel for each Rmax.

use longhaul_plot::{Axis, Figure, Panel, Point, Series};

use super::Report;

/// An SVG of the normalised delay of every contender with its confidence intervals.
pub fn figure_3(report: &Report) -> String {
    let mut names: Vec<&str> = Vec::new();
    for row in &report.rows {
        if !names.contains(&row.contender.as_str()) {
            names.push(&row.contender);
        }
    }
    let classes = super::workload::CLASSES.iter().enumerate();
    let panels = classes.map(|(class, max_rate)| {
        let series = names.iter().enumerate().map(|(style, name)| {
            let rows = report.rows.iter().filter(|row| row.contender == **name);
            let points = rows.map(|row| {
                let delay = row.normalised_delay[class];
                let interval = (delay.mean - delay.half_width, delay.mean + delay.half_width);
                Point { interval: Some(interval), ..Point::new(row.load, delay.mean) }
            });
            Series::line(*name, style, points.collect())
        });
        Panel {
            title: format!("Rmax = {max_rate}"),
            x: Axis::linear("load").from_to(0.0, 1.0),
            // FBLS and TCP leave the others far below at high load.
            y: Axis::log("normalised delay (s)"),
            series: series.collect(),
        }
    });
    Figure { panels: panels.collect(), columns: 3 }.svg()
}
