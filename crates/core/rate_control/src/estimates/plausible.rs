use longhaul_units::{Duration, Losses, Rate};

use crate::feedback::{Delivery, Feedback};

/// Feedback cut to what can be, so that sums and products of it stay in range whatever a peer
/// claims.
pub(super) fn plausible(feedback: Feedback) -> Feedback {
    let packets = |count: u64| count.min(MOST_PACKETS);
    let rate = |rate: Rate| rate.min(MOST_RATE);
    Feedback {
        acked_bytes: feedback.acked_bytes.min(MOST_BYTES),
        acked_packets: packets(feedback.acked_packets),
        lost: Losses {
            congestion: packets(feedback.lost.congestion),
            random: packets(feedback.lost.random),
            socket: packets(feedback.lost.socket),
            host: packets(feedback.lost.host),
            sender: 0,
            unknown: packets(feedback.lost.unknown),
        },
        lost_bytes: feedback.lost_bytes.min(MOST_BYTES),
        marked_packets: packets(feedback.marked_packets),
        rtt: feedback.rtt.map(|rtt| rtt.min(MOST_TIME)),
        one_way_delta: feedback.one_way_delta.map(|us| us.clamp(0, MOST_TIME.as_micros() as i64)),
        delivery: feedback.delivery.map(|delivery| Delivery {
            rate: rate(delivery.rate),
            interval: delivery.interval.min(MOST_TIME),
            sent_over: delivery.sent_over.min(MOST_TIME),
            ..delivery
        }),
        ..feedback
    }
}

const MOST_PACKETS: u64 = 1 << 24;
const MOST_BYTES: u64 = 1 << 40;
const MOST_RATE: Rate = Rate::from_gbps(10_000);
const MOST_TIME: Duration = Duration::from_secs(60);
