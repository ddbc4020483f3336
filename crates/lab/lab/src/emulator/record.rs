use std::collections::BTreeMap;

use serde::Serialize;

use super::stats::{DirectionStats, LinkStats};

/// [`LinkStats`] for reports and time series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkRecord {
    /// The link's name.
    pub link: String,
    /// From the first end to the second.
    pub forward: DirectionRecord,
    /// From the second end to the first.
    pub backward: DirectionRecord,
}

/// [`DirectionStats`] for reports and time series. All counts are since the start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DirectionRecord {
    /// Packets sent, segments each.
    pub sent: u64,
    /// IP-layer bytes sent; absent for lines of the kernel's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Packets that arrive.
    pub delivered: u64,
    /// IP-layer bytes that arrive.
    pub delivered_bytes: u64,
    /// Packets that do not, by reason, without what is zero. `device`, `overrun`, `refused` and
    /// `malformed` are faults of the emulation.
    pub lost: BTreeMap<&'static str, u64>,
    /// Of those lost in the queue, the ones that were fetched when the emulator was more than a
    /// millisecond late, and perhaps for that.
    pub queue_while_late: u64,
    /// Packets on which congestion was marked.
    pub marked: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets that came twice.
    pub duplicated: u64,
    /// Packets with a wrong bit.
    pub corrupted: u64,
    /// Bytes in the queue at this moment.
    pub queue_bytes: u64,
    /// Mean time in the queue and onto the line; absent for lines of the kernel's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_mean_ms: Option<f64>,
    /// Longest such time, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_max_ms: Option<f64>,
    /// Lateness of the latest change of rate; of lines of the kernel's only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes_late_ms: Option<f64>,
    /// Half of all deliveries were later than planned by this.
    pub late_median_ms: f64,
    /// One in a hundred was.
    pub late_p99_ms: f64,
    /// The latest was.
    pub late_max_ms: f64,
}

impl LinkRecord {
    /// The record of a link of that name.
    pub fn new(link: &str, stats: &LinkStats) -> Self {
        let [forward, backward] = [&stats.forward, &stats.backward].map(DirectionRecord::from);
        Self { link: link.to_owned(), forward, backward }
    }
}

impl From<&DirectionStats> for DirectionRecord {
    fn from(stats: &DirectionStats) -> Self {
        let ms = |time: std::time::Duration| time.as_nanos() as f64 / 1e6;
        Self {
            sent: stats.path.offered,
            sent_bytes: stats.offered_bytes(),
            delivered: stats.path.delivered,
            delivered_bytes: stats.path.delivered_bytes,
            lost: stats.losses().collect(),
            queue_while_late: stats.queue_while_late,
            marked: stats.path.marked,
            reordered: stats.path.reordered,
            duplicated: stats.path.duplicated,
            corrupted: stats.path.corrupted,
            queue_bytes: stats.queue_bytes.get(),
            queue_mean_ms: stats.queue().map(|queue| ms(queue.mean_delay)),
            queue_max_ms: stats.queue().map(|queue| ms(queue.max_delay)),
            changes_late_ms: stats.changes_late().map(ms),
            late_median_ms: ms(stats.lateness.median),
            late_p99_ms: ms(stats.lateness.p99),
            late_max_ms: ms(stats.lateness.max),
        }
    }
}
