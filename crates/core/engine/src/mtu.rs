//! Search for the largest datagram that passes (RFC 8899, protocol.md 4.6).

mod base;

use core::time::Duration;

use longhaul_units::Instant;

use base::{BASE, Base, quiet_time};

pub(crate) use base::LEAST;

/// UDP payload sizes worth trying: MTU 1280, IPv6 and IPv4 at 1500, cloud links, IPv6 and IPv4 at 9000.
const CANDIDATES: [u16; 6] = [1232, 1452, 1472, 4052, 8952, 8972];
/// Times that a size is tried before the search gives it up.
const TRIES: u8 = 3;
/// Time between two searches.
const SEARCH_INTERVAL: Duration = Duration::from_secs(600);
/// Losses of packets above the base, none arriving between them, that make a black hole.
const BLACK_HOLE_STRIKES: u32 = 3;

#[derive(Debug)]
pub(crate) struct MtuSearch {
    confirmed: u16,
    base: Base,
    /// Nothing was sent here before: it waits for the base.
    waits: bool,
    /// Largest size that is known to have passed; zero as long as none is.
    passed: u16,
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
    /// The first of the packets of so many bytes that the local stack refused since one arrived.
    refused: Option<(u64, u16)>,
}

impl MtuSearch {
    pub fn new(now: Instant, local_max: u16) -> Self {
        Self::with(now, local_max, Base::unknown(false))
    }

    fn with(now: Instant, local_max: u16, mut base: Base) -> Self {
        if local_max < BASE {
            base.refuse();
        }
        Self {
            confirmed: BASE,
            base,
            waits: false,
            passed: 0,
            local_max,
            tries: [0; CANDIDATES.len()],
            last_try: None,
            cursor: 0,
            next_search: now + SEARCH_INTERVAL,
            strikes: 0,
            last_strike: None,
            refused: None,
        }
    }

    /// That of a lane that begins: nothing is to be lost before it is known that UDP fits.
    pub fn of_first_path(now: Instant, local_max: u16) -> Self {
        Self { waits: true, ..Self::with(now, local_max, Base::unknown(true)) }
    }

    /// That of a lane whose packets are all small.
    pub fn none(now: Instant) -> Self {
        Self { base: Base::default(), ..Self::new(now, BASE) }
    }

    /// True where packets of the base size have to wait.
    pub fn waits(&self) -> bool {
        self.waits || self.base.is_quiet()
    }

    /// For how long, with probe timeouts of `apart`, other lanes of the path are to send nothing large.
    pub fn quiet(&self, apart: Duration) -> Option<Duration> {
        self.base.wants_quiet().then(|| quiet_time(apart))
    }

    /// True where packets of the base size do not pass.
    pub fn fits_not(&self) -> bool {
        self.base.fits_not()
    }

    /// UDP payload bytes that pass, as far as was tried; zero where nothing has, or does any more.
    pub fn passed(&self) -> u16 {
        if self.fits_not() && self.passed >= BASE { 0 } else { self.passed }
    }

    /// UDP payload bytes that the local interface sends.
    pub fn local_max(&self) -> u16 {
        self.local_max
    }

    /// True if it holds where the local interface sends up to `local_max` bytes.
    pub fn is_within(&self, local_max: u16) -> bool {
        self.confirmed <= local_max && self.local_max <= local_max
    }

    /// UDP payload bytes that are known to pass.
    pub fn datagram(&self) -> u16 {
        self.confirmed
    }

    /// UDP payload bytes for a packet that need not be of the base size.
    pub fn control(&self) -> u16 {
        match self.passed {
            _ if !self.base.is_suspect() => self.confirmed,
            passed if passed < BASE => passed.max(LEAST),
            // Before it was in doubt.
            _ => LEAST,
        }
    }

    fn wanted(&self, i: usize) -> bool {
        CANDIDATES[i] > self.confirmed && CANDIDATES[i] <= self.local_max && self.tries[i] < TRIES
    }

    /// When the next probe of the base is due, or of a smaller size, `apart` from the one before.
    pub fn base_due(&self, apart: Duration) -> Option<Instant> {
        self.base.due(apart)
    }

    /// Its size, if one is due now; it leaves as packet `number`.
    pub fn poll_base(&mut self, now: Instant, apart: Duration, number: u64) -> Option<u16> {
        self.base.poll(now, apart, number, self.passed)
    }

    /// When a small packet is due that shows what became of the last one.
    pub fn ask_due(&self, apart: Duration) -> Option<Instant> {
        self.base.ask_due(apart)
    }

    /// That packet is in flight.
    pub fn on_asked(&mut self) {
        self.base.on_asked();
    }

    /// When the next probe above the base is due; the sizes of one round of tries follow each other at once.
    pub fn due(&self, retry: Duration) -> Option<Instant> {
        if self.base.is_suspect() {
            return None;
        }
        if (self.cursor..CANDIDATES.len()).any(|i| self.wanted(i)) {
            let waits = self.cursor == 0;
            return Some(match self.last_try {
                Some(last) if waits => last + retry,
                _ => Instant::ZERO,
            });
        }
        Some(self.next_search)
    }

    /// Size of the probe above the base to send now, if one is due.
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
        self.passed = self.passed.max(size);
        if size >= BASE {
            self.confirmed = self.confirmed.max(size);
            self.on_base_arrived();
        }
    }

    /// The probe of `size` that was packet `number` was lost.
    pub fn on_probe_lost(&mut self, size: u16, number: u64) {
        if size == BASE {
            self.base.on_lost(number);
            // What passed before may pass no more.
            if self.passed >= BASE {
                self.passed = 0;
            }
        } else if size <= self.passed {
            self.base.on_smaller_lost();
        }
    }

    /// Packets below the base were lost.
    pub fn on_smaller_lost(&mut self) {
        self.base.on_smaller_lost();
    }

    /// The probe of `size` that was packet `number` never left, and the reason given is another one
    /// than its size. True where a small packet is to show whether that is so.
    pub fn on_probe_refused(&mut self, size: u16, number: u64) -> bool {
        if size == BASE {
            self.base.on_refused(number);
        } else if size <= self.passed {
            self.base.on_smaller_lost();
        }
        size == BASE
    }

    /// All losses of a report are known.
    pub fn on_report_over(&mut self) {
        self.base.on_report_over();
    }

    /// Packets of the base size, or above, from `number` on never left either.
    pub fn on_refused(&mut self, size: u16, number: u64) {
        self.refused.get_or_insert((number, size));
    }

    /// The packet `largest` arrived: what was refused before it is as good as lost. `interval`: as in
    /// [`Self::on_large_lost`].
    pub fn on_reported(&mut self, largest: u64, now: Instant, interval: Duration) {
        self.base.on_reported(largest);
        if let Some((_, size)) = self.refused.take_if(|(number, _)| *number < largest) {
            self.on_base_missed(now, interval);
            if size > BASE {
                self.on_large_lost(now, interval);
            }
        }
    }

    /// The lane goes elsewhere: nobody will tell what became of a probe.
    pub fn on_left(&mut self) {
        self.base.on_left();
        self.refused = None;
    }

    /// The kernel refused `size`: the local interface is smaller.
    pub fn on_too_big(&mut self, size: u16) {
        self.local_max = self.local_max.min(size - 1);
        if size <= BASE {
            self.base.refuse();
        }
        if self.confirmed > self.local_max {
            self.confirmed = BASE;
        }
    }

    /// A packet of the base size, or above, arrived.
    pub fn on_base_arrived(&mut self) {
        self.base.on_arrived();
        self.refused.take_if(|(_, size)| *size <= self.confirmed.min(BASE));
        self.waits = false;
        self.passed = self.passed.max(self.confirmed);
    }

    /// Packets of the base size, or above, were lost, and none arrived.
    pub fn on_base_missed(&mut self, now: Instant, interval: Duration) {
        self.base.on_missed(now, interval);
    }

    /// Nothing is acknowledged any more.
    pub fn on_probe_timeout(&mut self) {
        self.base.doubt();
    }

    /// A packet above the base arrived.
    pub fn on_large_arrived(&mut self) {
        (self.strikes, self.refused) = (0, None);
    }

    /// Packets above the base were lost. `interval`: the probe timeout; losses closer together count as one.
    pub fn on_large_lost(&mut self, now: Instant, interval: Duration) {
        if self.last_strike.is_some_and(|last| now - last < interval) {
            return;
        }
        self.last_strike = Some(now);
        self.strikes += 1;
        if self.strikes >= BLACK_HOLE_STRIKES && self.confirmed > BASE {
            (self.confirmed, self.passed) = (BASE, 0);
            self.base.doubt();
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
