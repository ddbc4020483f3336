//! A pair of axes, and the series between them.

use crate::axis::Axis;

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
