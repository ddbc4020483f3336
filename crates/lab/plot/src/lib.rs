//! Plots as text: SVG that any browser shows and any printer prints.
//!
//! A [`Panel`] is one pair of axes with its [`Series`]; a [`Figure`] is several panels side by side
//! over one legend, as papers have them. Series differ in colour, dashes and marks together, so
//! that they remain distinct without colour. The crate draws what it is given: statistics, files
//! and pages are others' business. All text is escaped.
//!
//! ```
//! use longhaul_plot::{Axis, Panel, Point, Series};
//!
//! let panel = Panel {
//!     title: "No loss".into(),
//!     x: Axis::linear("sending rate (Mb/s)"),
//!     y: Axis::log("goodput (Mb/s)"),
//!     series: vec![Series::line("rbudp", 0, vec![Point::new(100.0, 98.0), Point::new(500.0, 470.0)])],
//! };
//! assert!(panel.svg().starts_with("<svg "));
//! ```
#![forbid(unsafe_code)]

mod axis;
mod draw;
mod style;

pub use self::axis::{Axis, Scale};
pub use self::draw::Figure;

/// A pair of axes and what is drawn between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Drawn in this order.
    pub series: Vec<Series>,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// In the legend; the same name has the same style in all panels of a figure.
    pub name: String,
    /// Number of its colour, dashes and mark; they recur after eight.
    pub style: usize,
    /// Its shape.
    pub shape: Shape,
    /// The points; those that are not finite are left out.
    pub points: Vec<Point>,
}

/// The shape of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line with a mark at each point.
    Line,
    /// A line alone, for points that lie close.
    Trace,
    /// Small marks alone, for many points.
    Dots,
}

/// A value, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// On the axis to the right; the number of the name where that axis has names.
    pub x: f64,
    /// On the axis upwards.
    pub y: f64,
    /// Ends of its interval, drawn as a bar.
    pub interval: Option<(f64, f64)>,
    /// Drawn hollow: a bound, or a value that stands for less than the others.
    pub hollow: bool,
}

impl Point {
    /// A bare value.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, interval: None, hollow: false }
    }
}

impl Series {
    /// A line with marks.
    pub fn line(name: impl Into<String>, style: usize, points: Vec<Point>) -> Self {
        Self { name: name.into(), style, shape: Shape::Line, points }
    }
}

/// Text as XML and HTML have it, in elements and in attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Not allowed in XML at all.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A number with three significant digits or all of its integer part, and no zeroes behind.
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".into() } else { "?".into() };
    }
    let digits = value.abs().log10().floor() as i32;
    let text = format!("{value:.*}", (2 - digits).clamp(0, 9) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests;
