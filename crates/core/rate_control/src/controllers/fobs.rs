//! The controllers of FOBS (Dickens and Kannan, "Application-Level Congestion Control Mechanisms for
//! Large Scale Data Transfers Across Computational Grids").

mod linear;
mod state;
mod supervisor;

pub use linear::FobsLinearConfig;
pub use state::FobsStateConfig;
pub use supervisor::FobsConfig;

use crate::{Parameter, Unit};

/// Whether losses of the receiving host count. The paper knew one kind of loss (section 4.1 asks
/// whether that is right).
pub(super) const HOSTS: Parameter = Parameter {
    name: "hosts",
    about: "1: losses in the receiving host count, as in the paper; 0: those of the network only",
    unit: Unit::Count,
    default: 1,
    least: 0,
    most: 1,
};

/// Parts per million.
const WHOLE: u64 = 1_000_000;
