//! Panels and figures as SVG.

use std::fmt::Write as _;

use crate::axis::{Axis, Scale};
use crate::panel::{Panel, Point, Series, Shape};
use crate::style::{colour, dashes, mark};
use crate::text::escape;

/// Panels side by side over one legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// From left to right, then down.
    pub panels: Vec<Panel>,
    /// Panels in a row, at least one.
    pub columns: usize,
}

impl Panel {
    /// A picture of its own, without a legend.
    pub fn svg(&self) -> String {
        document(WIDTH, HEIGHT, &self.title, &self.draw())
    }

    /// Elements within [`WIDTH`] and [`HEIGHT`].
    fn draw(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let ends = points().flat_map(|p| {
            let (low, high) = p.interval.unwrap_or((p.y, p.y));
            [p.y, low, high]
        });
        let area = Area { x: self.x.around(points().map(|p| p.x)), y: self.y.around(ends) };
        let mut svg = String::new();
        area.frame(&mut svg, &self.title);
        for series in &self.series {
            area.series(&mut svg, series);
        }
        svg
    }
}

impl Figure {
    /// One picture of all.
    pub fn svg(&self) -> String {
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns);
        let entries = self.legend();
        let per_row = columns * LEGEND_COLUMNS;
        let width = WIDTH * columns as f64;
        let panels = HEIGHT * rows as f64;
        let height = panels + LEGEND_LINE * (entries.len().div_ceil(per_row) as f64 + 0.5);
        let mut svg = String::new();
        for (number, panel) in self.panels.iter().enumerate() {
            let x = (number % columns) as f64 * WIDTH;
            let y = (number / columns) as f64 * HEIGHT;
            let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">{}</g>", panel.draw());
        }
        for (number, entry) in entries.iter().enumerate() {
            let x = LEFT / 2.0 + (number % per_row) as f64 * (width - LEFT) / per_row as f64;
            let y = panels + LEGEND_LINE * ((number / per_row) as f64 + 0.5);
            sample(&mut svg, entry, x, y);
            text(&mut svg, x + SAMPLE + 6.0, y + 4.0, "start", &entry.name);
        }
        let title = self.panels.first().map_or("", |panel| &panel.title);
        document(width, height, title, &svg)
    }

    /// Small pictures of how each series is drawn, with the name, in order of appearance.
    pub fn samples(&self) -> Vec<(String, String)> {
        let one = |series: &&Series| {
            let mut svg = String::new();
            sample(&mut svg, series, 2.0, LEGEND_LINE / 2.0);
            (series.name.clone(), document(SAMPLE + 4.0, LEGEND_LINE, "", &svg))
        };
        self.legend().iter().map(one).collect()
    }

    /// One series of each name that is not empty.
    fn legend(&self) -> Vec<&Series> {
        let mut entries: Vec<&Series> = Vec::new();
        for series in self.panels.iter().flat_map(|panel| &panel.series) {
            if !series.name.is_empty() && !entries.iter().any(|entry| entry.name == series.name) {
                entries.push(series);
            }
        }
        entries
    }
}

/// Axes whose ranges are known.
struct Area {
    x: Axis,
    y: Axis,
}

impl Area {
    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * self.x.place(value)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.y.place(value)
    }

    fn frame(&self, svg: &mut String, title: &str) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for (value, label) in self.y.ticks() {
            let y = self.y(value);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            );
            text(svg, LEFT - 5.0, y + 4.0, "end", &label);
        }
        let ticks = self.x.ticks();
        // Long names would run into each other.
        let room = (WIDTH - LEFT - RIGHT) / ticks.len().max(1) as f64;
        let longest = ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
        let turned = longest as f64 * CHARACTER > room && matches!(self.x.scale, Scale::Names(_));
        for (value, label) in ticks {
            let x = self.x(value);
            let end = bottom + 4.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{end}\" stroke=\"black\"/>"
            );
            if turned {
                let _ = writeln!(
                    svg,
                    "<text transform=\"translate({:.1} {:.1}) rotate(-25)\" \
                     text-anchor=\"end\">{}</text>",
                    x + 5.0,
                    bottom + 14.0,
                    escape(&label)
                );
            } else {
                text(svg, x, bottom + 17.0, "middle", &label);
            }
        }
        let (width, height) = (right - LEFT, bottom - TOP);
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{width}\" height=\"{height}\" fill=\"none\" \
             stroke=\"black\"/>"
        );
        let (middle, centre) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        text(svg, middle, TOP - 9.0, "middle", title);
        text(svg, middle, HEIGHT - 6.0, "middle", &self.x.label);
        let _ = writeln!(
            svg,
            "<text transform=\"translate(14 {centre}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escape(&self.y.label)
        );
    }

    fn series(&self, svg: &mut String, series: &Series) {
        let colour = colour(series.style);
        let finite = |p: &&Point| p.x.is_finite() && p.y.is_finite();
        let points: Vec<_> = series.points.iter().filter(finite).collect();
        if series.shape != Shape::Dots && points.len() > 1 {
            let places: Vec<String> =
                points.iter().map(|p| format!("{:.1},{:.1}", self.x(p.x), self.y(p.y))).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
                 stroke-width=\"1.6\"{}/>",
                places.join(" "),
                dashes(series.style)
            );
        }
        let size = match series.shape {
            Shape::Line => MARK,
            Shape::Dots => DOT,
            Shape::Trace => return,
        };
        for point in points {
            let (x, y) = (self.x(point.x), self.y(point.y));
            if let Some((low, high)) = point.interval {
                let (low, high) = (self.y(low), self.y(high));
                let _ = writeln!(
                    svg,
                    "<path d=\"M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}h6M{left:.1} \
                     {high:.1}h6\" fill=\"none\" stroke=\"{colour}\"/>",
                    left = x - 3.0
                );
            }
            svg.push_str(&mark(series.style, x, y, point.hollow, size));
        }
    }
}

fn sample(svg: &mut String, series: &Series, x: f64, y: f64) {
    if series.shape != Shape::Dots {
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{}\" \
             stroke-width=\"1.6\"{}/>",
            x + SAMPLE,
            colour(series.style),
            dashes(series.style)
        );
    }
    if series.shape != Shape::Trace {
        svg.push_str(&mark(series.style, x + SAMPLE / 2.0, y, false, MARK));
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = escape(words);
    let _ =
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn document(width: f64, height: f64, title: &str, inner: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>{}</title>\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n{inner}</svg>\n",
        escape(title)
    )
}

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 52.0;
/// Entries of a legend under each column of panels.
const LEGEND_COLUMNS: usize = 2;
const LEGEND_LINE: f64 = 20.0;
/// Length of a line in a legend.
const SAMPLE: f64 = 36.0;
/// Half the size of a mark.
const MARK: f64 = 4.5;
const DOT: f64 = 2.2;
/// Width of a character, about.
const CHARACTER: f64 = 6.6;
