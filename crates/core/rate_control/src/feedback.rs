//! News of a path for its controller, frame by frame.

use longhaul_units::{Bottleneck, Bytes, Duration, Instant, Losses, Rate};

/// News of one feedback frame: what was not known before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Feedback {
    /// Bytes newly known to have arrived.
    pub acked_bytes: u64,
    /// Packets newly known to have arrived.
    pub acked_packets: u64,
    /// Packets newly taken as lost, by cause; [`Estimates`](crate::estimates::Estimates) judge those that are `unknown`. What this
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
