use crate::feedback::Feedback;
use alloc::boxed::Box;
use core::fmt::Debug;

use longhaul_units::{Bottleneck, Duration, Ecn, Instant, Rate};
use rand_core::Rng;

use crate::estimates::Estimates;
use crate::parameters::{Parameter, Parameters};
use crate::path_memory::PathMemory;
use crate::rtt::RttEstimator;
use crate::spans::{Span, SpanSizes};
use longhaul_units::MemoryUse;

/// Decides the sending rate of one path.
///
/// Called per batch and per feedback frame, never per packet. Implementations keep integers only,
/// so that a run is the same on every machine.
pub trait Controller: Debug + Send {
    /// Name of the algorithm, for logs.
    fn name(&self) -> &'static str;

    /// Takes the history of the path, before the first data, if at all. A controller that does not build
    /// on it ignores it.
    fn recall(&mut self, _memory: &PathMemory) {}

    /// Returns how the controller used the path history, if it did.
    fn memory_use(&self) -> Option<MemoryUse> {
        None
    }

    /// The profile whose controller is at work, where one that has several chose it.
    fn member(&self) -> Option<&'static str> {
        None
    }

    /// A batch left.
    fn on_sent(&mut self, _cx: &mut Context<'_>, _sent: &Sent) {}

    /// A feedback frame brought news.
    fn on_feedback(&mut self, cx: &mut Context<'_>, feedback: &Feedback);

    /// Codepoint by which packets ask for marks, under a profile that heeds them: ECT(0), or ECT(1) if
    /// the controller answers marks as RFC 9331 has it.
    fn codepoint(&self) -> Ecn {
        Ecn::Ect0
    }

    /// Sizes of the spans that it judges as a whole.
    fn spans(&self) -> SpanSizes {
        SpanSizes::default()
    }

    /// A segment is over; called behind the feedback that ended it.
    fn on_segment(&mut self, _cx: &mut Context<'_>, _segment: &Span) {}

    /// A chunk is over; called behind the segment that ended with it.
    fn on_chunk(&mut self, _cx: &mut Context<'_>, _chunk: &Span) {}

    /// No feedback came for a probe timeout while `in_flight` bytes were out
    /// (docs/protocol.md 5.4.1).
    fn on_probe_timeout(&mut self, _cx: &mut Context<'_>, _in_flight: u64) {}

    /// Returns when [`Controller::on_timeout`] wants to be called.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// The time of [`Controller::next_timeout`] has come.
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {}

    /// Rate, burst and window that apply now.
    fn pacing(&self) -> Pacing;

    /// State of the controller, for logs and plots.
    fn metrics(&self) -> Metrics;
}

/// Makes a controller; every controller has one, with defaults.
pub trait ControllerConfig: Debug {
    /// Parameters of the controller.
    fn parameters(&self) -> &'static [Parameter] {
        &[]
    }

    /// Names of two parameters each, the first of which is no greater than the second.
    fn ordered(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Returns whether its rate is a reservation, which belongs to one path.
    fn is_reserved(&self) -> bool {
        false
    }

    /// A controller in its first state; behind another one ([`Start::known`]) in one that goes on at
    /// that one's rate.
    fn build(&self, start: &Start) -> Box<dyn Controller>;
}

/// Inputs of a controller's start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start {
    /// The present time.
    pub now: Instant,
    /// Size of a full packet, 576 to 65535 bytes.
    pub packet: u64,
    /// The rate that the user chose, if any.
    pub rate: Option<Rate>,
    /// State of the path, where another controller was there before.
    pub known: Option<Known>,
    /// Values of [`ControllerConfig::parameters`]: chosen ones, and the defaults of the others.
    pub parameters: Parameters,
}

/// State that a controller gets which takes over in mid-transfer. Bytes in flight stay so, and the
/// path's [`Estimates`] and [`RttEstimator`] go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Rate that was sent at last, by all bounds.
    pub rate: Rate,
    /// Smoothed round trip.
    pub round_trip: Duration,
}

/// Surroundings that every call gets.
pub struct Context<'a> {
    /// The present time.
    pub now: Instant,
    /// Round trips of the path; updated before the call.
    pub rtt: &'a RttEstimator,
    /// Model of the path: [`Estimates::on_feedback`] comes before that of the controller.
    pub estimates: &'a mut Estimates,
    /// Randomness, so that flows do not move in step.
    pub rng: &'a mut dyn Rng,
}

/// A batch that left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Its bytes.
    pub bytes: u64,
    /// Bytes in flight, this batch included.
    pub in_flight: u64,
    /// The sender could have sent more but had nothing to send, or no credit.
    pub application_limited: bool,
    /// It is one packet of control messages, and no object data.
    pub control: bool,
    /// Time by which it left later than pacing and window allowed, because the host gave the sender no turn: it
    /// makes up for that by a burst.
    pub late_by: Duration,
}

/// Permission to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pacing {
    /// Bits per second.
    pub rate: Rate,
    /// Bytes that may leave back to back, at least one packet.
    pub burst: u64,
    /// Most bytes in flight, if limited. A whole batch may start when fewer are in flight.
    pub window: Option<u64>,
}

/// State of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// The state that the algorithm is in.
    pub state: &'static str,
    /// Bound that its own rate stands for: [`Bottleneck::StartUp`], [`Bottleneck::Network`],
    /// [`Bottleneck::UserLimit`] or [`Bottleneck::Reservation`].
    pub bound: Bottleneck,
}
