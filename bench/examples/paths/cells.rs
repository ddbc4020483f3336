//! The paths.

use std::time::Duration;

use longhaul_pathsim::Probability;
use longhaul_units::{Bytes, Rate};

/// A path: rate, round trip, queue and random loss on the way there.
pub struct Cell {
    pub mbps: u64,
    pub rtt_ms: u64,
    /// Percent of the bandwidth-delay product; never under 30 packets.
    pub queue_percent: u64,
    pub loss_ppm: u32,
}

impl Cell {
    pub fn name(&self) -> String {
        let Self { mbps, rtt_ms, queue_percent, loss_ppm } = self;
        format!(
            "{mbps} Mb/s, {rtt_ms} ms, {queue_percent} %, loss {} %",
            f64::from(*loss_ppm) / 1e4
        )
    }

    pub fn rate(&self) -> Rate {
        Rate::from_mbps(self.mbps)
    }

    pub fn rtt(&self) -> Duration {
        Duration::from_millis(self.rtt_ms)
    }

    pub fn queue(&self) -> Bytes {
        let product = self.mbps * 1_000_000 / 8 * self.rtt_ms / 1_000;
        Bytes::new((product * self.queue_percent / 100).max(30 * PACKET))
    }

    pub fn loss(&self) -> Probability {
        Probability::from_ppm(self.loss_ppm)
    }

    /// Payload in bit/s that packets of 1500 bytes with so many bytes of headers can carry.
    pub fn ideal_bps(&self, headers: u64) -> f64 {
        let kept = 1.0 - f64::from(self.loss_ppm) / 1e6;
        self.rate().as_bps() as f64 * (PACKET - headers) as f64 / PACKET as f64 * kept
    }
}

const fn cell(mbps: u64, rtt_ms: u64, queue_percent: u64, loss_ppm: u32) -> Cell {
    Cell { mbps, rtt_ms, queue_percent, loss_ppm }
}

/// From the grid of round trips of 10 to 300 ms, 50 Mb/s to 1 Gb/s, queues of 2 to 100 %, no loss to 1 %:
/// shallow queues and loss where they are hardest, and some of each of the others. Rules are tuned on the
/// first half only.
pub const CELLS: &[Cell] = &[
    cell(1_000, 20, 5, 0),
    cell(1_000, 20, 5, 10_000),
    cell(1_000, 10, 5, 0),
    cell(200, 40, 5, 0),
    cell(1_000, 100, 5, 10_000),
    cell(1_000, 100, 100, 1_000),
    cell(1_000, 40, 2, 0),
    cell(200, 100, 2, 1_000),
    cell(50, 40, 20, 0),
    cell(1_000, 300, 5, 0),
    cell(200, 10, 100, 0),
    cell(50, 300, 100, 10_000),
    // Reported, not tuned on.
    cell(1_000, 40, 5, 0),
    cell(1_000, 40, 5, 10_000),
    cell(1_000, 10, 20, 1_000),
    cell(200, 20, 20, 0),
    cell(1_000, 100, 2, 0),
    cell(1_000, 20, 100, 1_000),
    cell(1_000, 300, 20, 1_000),
    cell(200, 100, 5, 10_000),
    cell(50, 100, 5, 0),
    cell(200, 300, 20, 0),
    cell(200, 40, 100, 1_000),
    cell(50, 20, 100, 0),
];

const PACKET: u64 = 1500;
