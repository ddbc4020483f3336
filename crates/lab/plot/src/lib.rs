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
mod panel;
mod style;
mod text;

pub use self::axis::{Axis, Scale};
pub use self::draw::Figure;
pub use self::panel::{Panel, Point, Series, Shape};
pub use self::text::{escape, number};

#[cfg(test)]
mod tests;
