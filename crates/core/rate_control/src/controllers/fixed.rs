use alloc::boxed::Box;

use longhaul_units::{Bottleneck, Rate};

use crate::burst::useful_burst;
use crate::controller::{Context, Controller, ControllerConfig, Metrics, Pacing, Start};
use crate::feedback::Feedback;

/// One rate, whatever happens.
///
/// RBUDP: "the sender transmits at a fixed rate, specified by the user". For dedicated capacity; on
/// a shared path it is unfair and may waste the path.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    name: &'static str,
    pacing: Pacing,
}

impl Controller for Fixed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn on_feedback(&mut self, _cx: &mut Context<'_>, _feedback: &Feedback) {}

    fn pacing(&self) -> Pacing {
        self.pacing
    }

    fn metrics(&self) -> Metrics {
        Metrics { state: "fixed", bound: Bottleneck::UserLimit }
    }
}

/// Makes [`Fixed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedConfig {
    /// Used when the user chose no rate. Default: 100 Mb/s.
    pub rate: Rate,
}

impl FixedConfig {
    /// 100 Mb/s.
    pub const DEFAULT: Self = Self { rate: Rate::from_mbps(100) };
}

impl Default for FixedConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl ControllerConfig for FixedConfig {
    fn build(&self, start: &Start) -> Box<dyn Controller> {
        let rate = start.rate.unwrap_or(self.rate);
        let burst = useful_burst(rate, start.packet).min(MAX_BURST);
        Box::new(Fixed { name: "fixed", pacing: Pacing { rate, burst, window: None } })
    }
}

/// Makes a controller without any limit: the null member, for tests and for finding what the rest
/// costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnlimitedConfig;

impl ControllerConfig for UnlimitedConfig {
    fn build(&self, _start: &Start) -> Box<dyn Controller> {
        let pacing = Pacing { rate: Rate::MAX, burst: MAX_BURST, window: None };
        Box::new(Fixed { name: "unlimited", pacing })
    }
}

/// Bounds what one late wake-up may pour into the path.
const MAX_BURST: u64 = 1 << 20;
