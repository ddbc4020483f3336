use alloc::boxed::Box;
use core::fmt::Debug;

use longhaul_units::{Bottleneck, Bytes, Duration, Ecn, Instant, Losses, Rate};
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
}

/// News of one feedback frame: what was not known before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Feedback {
    /// Bytes newly known to have arrived.
    pub acked_bytes: u64,
    /// Packets newly known to have arrived.
    pub acked_packets: u64,
    /// Packets newly taken as lost, by cause; [`Estimates`] judge those that are `unknown`. What this
    /// host did not let out is not among them.
    pub lost: Losses,
    /// Bytes of those packets.
    pub lost_bytes: u64,
    /// Packets taken as lost earlier that arrived after all.
    pub spurious_packets: u64,
    /// Packets that newly carried the ECN mark CE.
    pub marked_packets: u64,
    /// Bytes in flight, after this feedback.
    pub in_flight: u64,
    /// Round trip of the newest packet reported, when this feedback measured one.
    pub rtt: Option<Duration>,
    /// Microseconds by which the newest packet's one-way delay was above the least seen on its
    /// lane.
    pub one_way_delta: Option<i64>,
    /// A new sample of the rate at which the receiver received.
    pub delivery: Option<Delivery>,
    /// Rate that the receiver says it can process ([`ReceiverState::capacity`]), for controllers that go by
    /// that; others leave it to the governor.
    pub capacity: Option<Rate>,
}

/// A sample of the rate at which the receiver received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Bits per second.
    pub rate: Rate,
    /// Receiver's time over which it was measured; the sender's, if that was longer.
    pub interval: Duration,
    /// Time over which the bytes were sent.
    pub sent_over: Duration,
    /// The sender had too little to send for part of that time: the path may carry more.
    pub application_limited: bool,
}

impl Delivery {
    /// Returns whether the bytes took at least a third longer to arrive than to leave: then the path set
    /// their rate, not the sender.
    pub fn is_spread(&self) -> bool {
        self.sent_over * 4 <= self.interval * 3
    }
}

/// Abilities that the receiver reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiverState {
    /// Size of the socket buffer, as the kernel granted it.
    pub socket_buffer: Option<Bytes>,
    /// The rate that the receiving host says it will process: no limit, but what some controllers go by.
    pub capacity: Option<Rate>,
    /// The rate beyond which it expects to lose, where there is one.
    pub limit: Option<HostLimit>,
}

/// Limit of a receiving host on a whole connection, for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostLimit {
    /// Rate at the IP layer.
    pub rate: Rate,
    /// Cause: [`Bottleneck::ReceiverCpu`], `ReceiverBuffer`, `ReceiverDisk` or `Output`.
    pub cause: Bottleneck,
    /// Time from which it limits nothing.
    pub until: Instant,
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
