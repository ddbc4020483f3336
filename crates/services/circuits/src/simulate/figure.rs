//! The paper's figure 3, drawn: equation 1 over load, one panel for each Rmax.

use std::fmt::Write as _;

use super::{Report, Row};

/// An SVG of the normalised delay of every contender with its confidence intervals.
pub fn figure_3(report: &Report) -> String {
    let mut names: Vec<&str> = Vec::new();
    for row in &report.rows {
        if !names.contains(&row.contender.as_str()) {
            names.push(&row.contender);
        }
    }
    let width = PANEL_WIDTH * 3.0 + MARGIN * 4.0;
    let height = PANEL_HEIGHT + MARGIN * 2.5 + 18.0 * names.len().div_ceil(4) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (panel, max_rate) in super::workload::CLASSES.iter().enumerate() {
        let left = MARGIN + panel as f64 * (PANEL_WIDTH + MARGIN);
        draw_panel(&mut svg, report, &names, panel, left, &format!("Rmax = {max_rate}"));
    }
    for (index, name) in names.iter().enumerate() {
        let x = MARGIN + (index % 4) as f64 * (width - MARGIN) / 4.0;
        let y = PANEL_HEIGHT + MARGIN * 2.2 + 18.0 * (index / 4) as f64;
        let colour = COLOURS[index % COLOURS.len()];
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{:.1}\" y2=\"{y}\" stroke=\"{colour}\" \
             stroke-width=\"2\"/><text x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
            x + 24.0,
            x + 30.0,
            y + 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(
    svg: &mut String,
    report: &Report,
    names: &[&str],
    panel: usize,
    left: f64,
    title: &str,
) {
    let values = report.rows.iter().map(|row| row.normalised_delay[panel]);
    let low = values.clone().map(|v| v.mean).fold(f64::MAX, f64::min) * 0.9;
    let high = values.map(|v| v.mean + v.half_width).fold(0.0, f64::max) * 1.1;
    // Logarithmic, because FBLS and TCP leave the others far below at high load.
    let y_of = |v: f64| {
        let share = (v.max(low) / low).ln() / (high / low).ln();
        MARGIN + PANEL_HEIGHT * (1.0 - share)
    };
    let x_of = |load: f64| left + PANEL_WIDTH * load;
    let (right, bottom) = (left + PANEL_WIDTH, MARGIN + PANEL_HEIGHT);
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{MARGIN}\" width=\"{PANEL_WIDTH}\" height=\"{PANEL_HEIGHT}\" \
         fill=\"none\" stroke=\"black\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">\
         {title}: normalised delay (s)</text><text x=\"{:.1}\" y=\"{:.1}\" \
         text-anchor=\"middle\">load</text>",
        (left + right) / 2.0,
        MARGIN - 8.0,
        (left + right) / 2.0,
        bottom + 32.0
    );
    for tenth in (0..=10).step_by(2) {
        let load = f64::from(tenth) / 10.0;
        let x = x_of(load);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"black\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{load}</text>",
            bottom + 4.0,
            bottom + 17.0
        );
    }
    for value in ticks(low, high) {
        let y = y_of(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            left - 4.0,
            y + 4.0
        );
    }
    for (index, name) in names.iter().enumerate() {
        let rows: Vec<&Row> = report.rows.iter().filter(|r| r.contender == **name).collect();
        let colour = COLOURS[index % COLOURS.len()];
        let points: Vec<String> = rows
            .iter()
            .map(|r| format!("{:.1},{:.1}", x_of(r.load), y_of(r.normalised_delay[panel].mean)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        for row in rows {
            let v = row.normalised_delay[panel];
            let x = x_of(row.load);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
                y_of(v.mean - v.half_width),
                y_of(v.mean + v.half_width)
            );
        }
    }
}

/// Round values within a logarithmic range.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = -3..=6;
    let values = decades.flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)));
    values.filter(|v| (low..=high).contains(v)).collect()
}

const PANEL_WIDTH: f64 = 300.0;
const PANEL_HEIGHT: f64 = 300.0;
const MARGIN: f64 = 45.0;
/// Colours that remain distinct to the colour-blind (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#000000", "#009e73", "#0072b2", "#56b4e9", "#cc79a7", "#d55e00", "#e69f00", "#999999"];
