//! Experiments on the lab's testbeds, from the question to the page that answers it.
//!
//! An [`Experiment`] is data: a question and its source, a testbed, axes that are varied,
//! contenders, what is drawn and what the source had found. [`run()`] makes its runs one after
//! another on fresh testbeds and appends each to [`Results`], so that an interrupted sweep goes on
//! where it was. [`report`] draws all that is there, and puts what was measured beside what the
//! source says in sentences made from the data alone.
//!
//! The crate moves no data itself (contenders are `longhaul-peers`) and emulates nothing
//! (`longhaul-lab` does).
//!
//! ```
//! use longhaul_experiments::{Builtin, Plan};
//!
//! let experiment = Builtin::find("long-haul-matrix").expect("a built-in one").experiment();
//! let quick = Plan::new(&experiment, true);
//! assert!(quick.runs.len() < Plan::new(&experiment, false).runs.len());
//! ```
#![forbid(unsafe_code)]

pub mod experiment;
pub mod measure;
pub mod record;
pub mod report;
mod results;
mod run;
pub mod statistics;

pub use self::experiment::{Builtin, Experiment, ExperimentError, Plan, Setup};
pub use self::record::{Record, Verdict};
pub use self::results::{Results, ResultsError};
pub use self::run::{Options, Progress, RunError, run};
