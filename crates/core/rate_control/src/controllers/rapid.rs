//! Profile `rapid`: the user's rate; what the receiver's part does can be chosen.

use alloc::boxed::Box;

use super::fixed::FixedConfig;
use crate::controller::{Controller, ControllerConfig, Start};
use crate::parameters::{Parameter, Unit};

/// RBUDP's controller, with the parameters of RAPID's performance monitor at the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RapidConfig;

impl ControllerConfig for RapidConfig {
    fn parameters(&self) -> &'static [Parameter] {
        &PARAMETERS
    }

    fn build(&self, start: &Start) -> Box<dyn Controller> {
        FixedConfig::DEFAULT.build(start)
    }
}

/// Reasons for each value: docs/rate-control.md.
static PARAMETERS: [Parameter; 2] = [
    Parameter {
        name: "polling",
        about: "how often the receiver's monitor looks",
        unit: Unit::Time,
        default: 2_000_000,
        least: 1_000_000,
        most: 1_000_000_000,
    },
    Parameter::count(
        "account",
        "of interactivity: 0 that of Linux 2.6, 1 the score of FreeBSD's ULE",
        (0, 0, 1),
    ),
];
