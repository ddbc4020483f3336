//! The peer's announcements about itself.

use alloc::collections::VecDeque;
use core::ops::Range;

use longhaul_rate_control::{HostLimit, ReceiverState};
use longhaul_units::{Bottleneck, Instant, Losses};
use longhaul_wire::{Feedback, ReceiverBounds, ReceiverLimit};

#[derive(Debug)]
pub(super) struct Peer {
    /// Absolute object bytes that it promised room for.
    credit: u64,
    receiver: ReceiverState,
    bounds: ReceiverBounds,
    /// Packets that it has dropped in all.
    drops: Losses,
    /// Those of the socket's that are not found missing yet, by the numbers among which they are.
    of_socket: VecDeque<(Range<u64>, u64)>,
    /// Those of the rest of the host, which it reports late.
    of_host: u64,
    /// Numbers below have been reported.
    reported_below: u64,
}

impl Peer {
    pub(super) fn new() -> Self {
        Self {
            credit: 0,
            receiver: ReceiverState::default(),
            bounds: ReceiverBounds::NONE,
            drops: Losses::default(),
            of_socket: VecDeque::new(),
            of_host: 0,
            reported_below: 0,
        }
    }

    pub(super) fn credit(&self) -> u64 {
        self.credit
    }

    pub(super) fn receiver(&self) -> ReceiverState {
        self.receiver
    }

    pub(super) fn bounds(&self) -> ReceiverBounds {
        self.bounds
    }

    /// A report came; an older one may come behind it.
    pub(super) fn on_feedback(&mut self, now: Instant, feedback: &Feedback<'_>) {
        self.credit = self.credit.max(feedback.credit.get());
        self.receiver = ReceiverState {
            socket_buffer: feedback.socket_buffer,
            capacity: feedback.receive_capacity,
            limit: feedback.limit.map(|limit| host_limit(now, limit)),
        };
        self.bounds = feedback.bounds;
        let numbers = self.reported_below..feedback.largest.get() + 1;
        let Losses { socket, host, .. } = self.drops;
        let fresh = feedback.socket_drops.saturating_sub(socket);
        if fresh > 0 && !numbers.is_empty() {
            if self.of_socket.len() == REPORTS_MAX {
                self.of_socket.pop_front();
            }
            self.of_socket.push_back((numbers.clone(), fresh));
        }
        self.reported_below = self.reported_below.max(numbers.end);
        self.of_host += feedback.host_drops.saturating_sub(host);
        self.drops.socket = socket.max(feedback.socket_drops);
        self.drops.host = host.max(feedback.host_drops);
    }

    /// Divides `lost` packets with such numbers by the peer's reports of its own drops, which come
    /// before their loss is found. Of the rest nothing is known yet.
    pub(super) fn attribute(&mut self, numbers: &Range<u64>, lost: u64) -> Losses {
        let mut socket = 0;
        let overlaps = |other: &Range<u64>| other.start < numbers.end && numbers.start < other.end;
        for (_, left) in self.of_socket.iter_mut().filter(|(range, _)| overlaps(range)) {
            let taken = (lost - socket).min(*left);
            *left -= taken;
            socket += taken;
        }
        self.of_socket.retain(|(_, left)| *left > 0);
        let host = (lost - socket).min(self.of_host);
        self.of_host -= host;
        Losses { socket, host, unknown: lost - socket - host, ..Losses::default() }
    }
}

/// The receiving host's own causes are believed, others are its CPU (protocol.md 5.4.3).
fn host_limit(now: Instant, limit: ReceiverLimit) -> HostLimit {
    use Bottleneck::{Output, ReceiverBuffer, ReceiverCpu, ReceiverDisk};
    let ReceiverLimit { rate, cause, lasts } = limit;
    let is_own = matches!(cause, ReceiverBuffer | ReceiverDisk | Output);
    HostLimit { rate, cause: if is_own { cause } else { ReceiverCpu }, until: now + lasts }
}

/// Reports whose drops are remembered until they are found missing: of two round trips and more.
const REPORTS_MAX: usize = 64;
