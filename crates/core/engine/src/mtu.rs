//! Search for the largest datagram that passes (RFC 8899, protocol.md 4.6).

use core::time::Duration;

use longhaul_units::Instant;
use longhaul_wire::BASE_DATAGRAM;

/// UDP payload sizes worth trying: MTU 1280, IPv6 and IPv4 at 1500, cloud links, IPv6 and IPv4 at 9000.
const CANDIDATES: [u16; 6] = [1232, 1452, 1472, 4052, 8952, 8972];
/// How often a size is tried before the search gives it up.
const TRIES: u8 = 3;
/// Time between two searches.
const SEARCH_INTERVAL: Duration = Duration::from_secs(600);
/// Losses of packets above the base, none arriving between them, that make a black hole.
const BLACK_HOLE_STRIKES: u32 = 3;

#[derive(Debug)]
pub(crate) struct MtuSearch {
    confirmed: u16,
    /// Largest size that the local interface sends.
    local_max: u16,
    tries: [u8; CANDIDATES.len()],
    last_try: Option<Instant>,
    /// The candidate to be tried next in this round of tries.
    cursor: usize,
    next_search: Instant,
    /// Probe timeouts, or losses a probe timeout apart, since a packet above the base arrived.
    strikes: u32,
    last_strike: Option<Instant>,
}

impl MtuSearch {
    pub fn new(now: Instant, local_max: u16) -> Self {
        Self {
            confirmed: BASE_DATAGRAM as u16,
            local_max: local_max.max(BASE_DATAGRAM as u16),
            tries: [0; CANDIDATES.len()],
            last_try: None,
            cursor: 0,
            next_search: now + SEARCH_INTERVAL,
            strikes: 0,
            last_strike: None,
        }
    }

    /// Whether it holds where the local interface sends up to `local_max` bytes.
    pub fn is_within(&self, local_max: u16) -> bool {
        self.confirmed <= local_max && self.local_max <= local_max
    }

    /// UDP payload bytes that are known to pass.
    pub fn datagram(&self) -> u16 {
        self.confirmed
    }

    fn wanted(&self, i: usize) -> bool {
        CANDIDATES[i] > self.confirmed && CANDIDATES[i] <= self.local_max && self.tries[i] < TRIES
    }

    /// When the next probe is due; the sizes of one round of tries follow each other at once.
    pub fn due(&self, retry: Duration) -> Option<Instant> {
        if (self.cursor..CANDIDATES.len()).any(|i| self.wanted(i)) {
            let waits = self.cursor == 0;
            return Some(match self.last_try {
                Some(last) if waits => last + retry,
                _ => Instant::ZERO,
            });
        }
        Some(self.next_search)
    }

    /// Size of the probe to send now, if one is due.
    pub fn poll(&mut self, now: Instant, retry: Duration) -> Option<u16> {
        if self.due(retry).is_none_or(|due| due > now) {
            return None;
        }
        if now >= self.next_search {
            self.tries = [0; CANDIDATES.len()];
            self.cursor = 0;
            self.next_search = now + SEARCH_INTERVAL;
        }
        let found = (self.cursor..CANDIDATES.len()).find(|i| self.wanted(*i))?;
        self.tries[found] += 1;
        self.last_try = Some(now);
        let more = (found + 1..CANDIDATES.len()).any(|i| self.wanted(i));
        self.cursor = if more { found + 1 } else { 0 };
        Some(CANDIDATES[found])
    }

    /// A probe of `size` arrived.
    pub fn on_confirmed(&mut self, size: u16) {
        self.confirmed = self.confirmed.max(size);
    }

    /// The kernel refused `size`: the local interface is smaller.
    pub fn on_too_big(&mut self, size: u16) {
        self.local_max = self.local_max.min(size - 1).max(BASE_DATAGRAM as u16);
        if self.confirmed > self.local_max {
            self.confirmed = BASE_DATAGRAM as u16;
        }
    }

    /// A packet above the base arrived.
    pub fn on_large_arrived(&mut self) {
        self.strikes = 0;
    }

    /// Packets above the base were lost. `interval`: the probe timeout; losses closer together count as one.
    pub fn on_large_lost(&mut self, now: Instant, interval: Duration) {
        if self.last_strike.is_some_and(|last| now - last < interval) {
            return;
        }
        self.last_strike = Some(now);
        self.strikes += 1;
        if self.strikes >= BLACK_HOLE_STRIKES && self.confirmed > BASE_DATAGRAM as u16 {
            self.confirmed = BASE_DATAGRAM as u16;
            self.tries = [0; CANDIDATES.len()];
            self.cursor = 0;
            self.last_try = Some(now);
            self.strikes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const RETRY: Duration = Duration::from_millis(100);

    #[test]
    fn a_round_of_tries_goes_out_at_once() {
        let start = Instant::from_nanos(1);
        let mut search = MtuSearch::new(start, 1472);
        let mut sizes = Vec::new();
        while let Some(size) = search.poll(start, RETRY) {
            sizes.push(size);
        }
        assert_eq!(sizes, [1232, 1452, 1472]);
        search.on_confirmed(1452);
        assert_eq!(search.datagram(), 1452);
        assert_eq!(search.poll(start + RETRY, RETRY), Some(1472));
        assert_eq!(search.poll(start + RETRY, RETRY), None);
        assert_eq!(search.poll(start + RETRY * 2, RETRY), Some(1472));
        assert_eq!(search.poll(start + RETRY * 9, RETRY), None);
        assert_eq!(search.poll(start + SEARCH_INTERVAL, RETRY), Some(1472));
    }

    #[test]
    fn black_holes_bring_the_base_back() {
        let mut search = MtuSearch::new(Instant::ZERO, 9000);
        search.on_confirmed(8972);
        let mut now = Instant::ZERO;
        for strikes in [2, 6] {
            for _ in 0..strikes {
                assert_eq!(search.datagram(), 8972);
                now += RETRY / if strikes == 2 { 1 } else { 2 };
                search.on_large_lost(now, RETRY);
            }
            if strikes == 2 {
                search.on_large_arrived();
            }
        }
        assert_eq!(search.datagram(), 1200);
    }

    #[test]
    fn a_refused_size_is_not_tried_again() {
        let mut search = MtuSearch::new(Instant::ZERO, 9000);
        search.on_too_big(8952);
        search.on_too_big(4052);
        let sizes: Vec<u16> =
            core::iter::from_fn(|| search.poll(Instant::from_nanos(1), RETRY)).collect();
        assert_eq!(sizes, [1232, 1452, 1472]);
    }
}
