use alloc::boxed::Box;

use longhaul_units::{Duration, Rate};

use crate::{Bound, Context, Controller, ControllerConfig, Feedback, Metrics, Pacing, Start};

/// Finds the rate that path and receiver can take.
#[derive(Clone, Debug)]
pub struct Auto {
    rate: Rate,
    packet: u64,
}

impl Controller for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn on_feedback(&mut self, _cx: &mut Context<'_>, feedback: &Feedback) {
        if let Some(delivery) = feedback.delivery {
            self.rate = self.rate.max(delivery.rate.scale(2, 1));
        }
    }

    fn pacing(&self) -> Pacing {
        Pacing { rate: self.rate, burst: 64 * self.packet, window: None }
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            state: "start-up",
            bound: Bound::Startup,
            bandwidth: None,
            min_rtt: None,
            queue: Duration::ZERO,
            random_loss_ppm: 0,
        }
    }
}

/// Makes [`Auto`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AutoConfig {}

impl ControllerConfig for AutoConfig {
    fn build(&self, start: &Start) -> Box<dyn Controller> {
        Box::new(Auto { rate: Rate::from_mbps(10), packet: start.packet })
    }
}
