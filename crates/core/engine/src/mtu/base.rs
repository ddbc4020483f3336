//! Proof that packets of the base size pass (protocol.md 4.6).

use core::time::Duration;

use longhaul_units::Instant;
use longhaul_wire::BASE_DATAGRAM;

/// UDP payload that every path of the UDP carrier has to take.
pub(super) const BASE: u16 = BASE_DATAGRAM as u16;
/// Probes of the base size, lost in a row on a quiet path, after which it does not fit,
const LOST_MAX: u8 = 3;
/// and so many more for each smaller packet that was lost meanwhile,
const LOST_MORE: u8 = 3;
/// up to so many.
const LOST_MOST: u8 = 12;
/// Probes that are lost beside smaller packets, and say nothing.
const BESIDE_MAX: u8 = 4;
/// Probe timeouts without large packets that make a path quiet,
const QUIET: u32 = 4;
/// and the longest such time: who delays a packet can make a probe timeout as long as he likes.
const QUIET_MAX: Duration = Duration::from_secs(4);
/// Reports that only tell of losses, a probe timeout apart, that bring doubt.
const MISSES: u8 = 2;
/// The least of the sizes that are tried once the base is lost: an IP packet of 576 bytes passes nearly
/// everywhere.
pub(crate) const LEAST: u16 = 544;
const SMALLER_STEP: u16 = 32;

#[derive(Debug, Default)]
pub(super) struct Base {
    doubt: Option<Doubt>,
    /// Reports a probe timeout apart that tell of such packets that were lost, and of none that arrived.
    misses: u8,
    last_miss: Option<Instant>,
    fits_not: bool,
}

#[derive(Debug, Default)]
struct Doubt {
    lost: u8,
    /// Smaller packets that were lost, as packets of any size are there, and those before the last probe.
    smaller_lost: u8,
    smaller_before: u8,
    /// A probe is among the losses of the present report.
    fell: bool,
    last: Option<Instant>,
    /// Nothing large is sent beside the probes: a policer or a queue that this host's own packets have
    /// exhausted takes small ones and no large ones.
    is_quiet: bool,
    /// Since when.
    quiet_since: Option<Instant>,
    /// A probe was lost.
    has_lost: bool,
    /// So many were lost beside smaller packets, which may have been too large as well.
    fell_beside: u8,
    /// The probe of which nothing is known.
    under_way: Option<u64>,
    /// It was asked for a packet that shows what became of it.
    asked: bool,
    /// The first probe that the local stack refused since something arrived.
    refused: Option<u64>,
    /// The next of the smaller sizes.
    smaller: Option<u16>,
}

impl Base {
    /// Nothing is known of it yet; nothing large was sent before, or is, where it `is_quiet`.
    pub fn unknown(is_quiet: bool) -> Self {
        let quiet_since = is_quiet.then_some(Instant::ZERO);
        let doubt = Doubt { is_quiet, quiet_since, ..Doubt::default() };
        Self { doubt: Some(doubt), ..Self::default() }
    }

    #[cfg(test)]
    pub fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    pub fn fits_not(&self) -> bool {
        self.fits_not
    }

    /// True where larger packets may not pass: smaller ones are the better choice.
    pub fn is_suspect(&self) -> bool {
        let suspect = |doubt: &Doubt| {
            doubt.asked || doubt.has_lost || doubt.fell_beside > 0 || doubt.refused.is_some()
        };
        self.fits_not || self.doubt.as_ref().is_some_and(suspect)
    }

    /// It is known without a probe.
    pub fn refuse(&mut self) {
        self.fits_not = true;
    }

    /// True where nothing large is to be sent beside the probes.
    pub fn is_quiet(&self) -> bool {
        !self.fits_not && self.doubt.as_ref().is_some_and(|doubt| doubt.is_quiet)
    }

    /// True where other lanes of the path are not to send anything large either.
    pub fn wants_quiet(&self) -> bool {
        self.is_quiet() && self.doubt.as_ref().is_some_and(|doubt| doubt.has_lost)
    }

    /// When the next probe is due, one `apart` from the last at least.
    pub fn due(&self, apart: Duration) -> Option<Instant> {
        let doubt = self.doubt.as_ref().filter(|_| !self.fits_not)?;
        if doubt.smaller.is_some() {
            return Some(Instant::ZERO);
        }
        let due = doubt.last.map_or(Instant::ZERO, |last| last + apart);
        let due = match doubt.quiet_since {
            Some(since) if since > Instant::ZERO => due.max(since + quiet_time(apart)),
            None if doubt.is_quiet => Instant::ZERO,
            _ => due,
        };
        doubt.under_way.is_none().then_some(due)
    }

    /// The size of the probe that is sent now as packet `number`, of which `passed` bytes are known to
    /// pass.
    pub fn poll(&mut self, now: Instant, apart: Duration, number: u64, passed: u16) -> Option<u16> {
        if self.due(apart).is_none_or(|due| due > now) {
            return None;
        }
        let doubt = self.doubt.as_mut()?;
        if let Some(size) = doubt.smaller.take() {
            let next = size + SMALLER_STEP;
            doubt.smaller = (next < BASE).then_some(next);
            return Some(size);
        }
        if doubt.is_quiet && doubt.quiet_since.is_none() {
            doubt.quiet_since = Some(now);
            return None;
        }
        if doubt.lost > 0 {
            // They are many.
            doubt.quiet_since = None;
            let known = passed.saturating_sub(LEAST - SMALLER_STEP) / SMALLER_STEP;
            let next = LEAST + known * SMALLER_STEP;
            doubt.smaller = (next < BASE).then_some(next);
        }
        (doubt.last, doubt.under_way, doubt.asked) = (Some(now), Some(number), false);
        doubt.smaller_before = doubt.smaller_lost;
        Some(BASE)
    }

    /// When a smaller packet is due, so that something becomes known of the probe.
    pub fn ask_due(&self, apart: Duration) -> Option<Instant> {
        let doubt =
            self.doubt.as_ref().filter(|doubt| !doubt.asked && doubt.under_way.is_some())?;
        doubt.last.map(|last| last + apart)
    }

    pub fn on_asked(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            doubt.asked = true;
        }
    }

    /// A packet of that size, or above, arrived.
    pub fn on_arrived(&mut self) {
        (self.doubt, self.misses) = (None, 0);
    }

    /// Such packets were lost, and none arrived.
    pub fn on_missed(&mut self, now: Instant, apart: Duration) {
        if self.last_miss.is_some_and(|last| now - last < apart) {
            return;
        }
        self.last_miss = Some(now);
        self.misses += 1;
        if self.misses >= MISSES {
            self.doubt();
        }
    }

    /// Asks whether it passes still.
    pub fn doubt(&mut self) {
        self.misses = 0;
        self.doubt.get_or_insert_default();
    }

    /// The probe `number` was lost on the path.
    pub fn on_lost(&mut self, number: u64) {
        if let Some(doubt) = self.doubt.as_mut().filter(|doubt| doubt.under_way == Some(number)) {
            (doubt.under_way, doubt.fell) = (None, true);
        }
    }

    /// All losses of a report are known. A probe that was lost beside smaller packets was on a path that
    /// was dark, or loses by chance: that is no reason to keep quiet. Or all were too large: messages are in
    /// the smallest packets until one of the base size arrives, so that the next probe is lost alone. Where
    /// it is lost beside others again and again, the lane keeps quiet all the same.
    pub fn on_report_over(&mut self) {
        let Some(doubt) = &mut self.doubt else { return };
        if !core::mem::take(&mut doubt.fell) {
            return;
        }
        let alone = doubt.smaller_lost == doubt.smaller_before;
        if doubt.is_quiet || alone || doubt.fell_beside >= BESIDE_MAX {
            self.fits_not |= doubt.lose();
        } else {
            doubt.fell_beside += 1;
        }
    }

    /// Nobody will tell what became of a probe.
    pub fn on_left(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            (doubt.under_way, doubt.refused) = (None, None);
        }
    }

    /// Smaller packets were lost on the path, or one of a size that passes.
    pub fn on_smaller_lost(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            doubt.smaller_lost = doubt.smaller_lost.saturating_add(1);
        }
    }

    /// The probe `number` never left. A device may refuse what is too large for its other end as if
    /// its queue were full.
    pub fn on_refused(&mut self, number: u64) {
        if let Some(doubt) = self.doubt.as_mut().filter(|doubt| doubt.under_way == Some(number)) {
            doubt.under_way = None;
            doubt.refused.get_or_insert(number);
        }
    }

    /// The packet `largest` arrived: a probe before it that was refused is as good as lost.
    pub fn on_reported(&mut self, largest: u64) {
        if let Some(doubt) = &mut self.doubt
            && doubt.refused.take_if(|refused| *refused < largest).is_some()
        {
            self.fits_not |= doubt.lose();
        }
    }
}

impl Doubt {
    /// One more probe did not pass: whether that is enough.
    fn lose(&mut self) -> bool {
        self.has_lost = true;
        if !core::mem::replace(&mut self.is_quiet, true) {
            return false;
        }
        self.lost = self.lost.saturating_add(1);
        let enough = LOST_MAX.saturating_add(self.smaller_lost.saturating_mul(LOST_MORE));
        self.lost >= enough.min(LOST_MOST)
    }
}

/// For how long nothing large is sent before a path is quiet, with probe timeouts of `apart`.
pub(super) fn quiet_time(apart: Duration) -> Duration {
    (apart * QUIET).min(QUIET_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const APART: Duration = Duration::from_millis(100);

    fn lost(base: &mut Base, number: u64) {
        base.on_lost(number);
        base.on_report_over();
    }

    /// Sends probes that are all lost but those of `passes` bytes or fewer.
    fn search(base: &mut Base, passes: u16) -> Vec<u16> {
        let (mut now, mut passed, mut sizes) = (Instant::ZERO, 0, Vec::new());
        for number in 0..200 {
            now += APART / 10;
            let Some(size) = base.poll(now, APART, number, passed) else { continue };
            sizes.push(size);
            match size {
                size if size <= passes => passed = passed.max(size),
                BASE => lost(base, number),
                _ => {}
            }
        }
        sizes
    }

    /// Sends the next probe of the base; when that was.
    fn send(base: &mut Base, mut now: Instant, number: u64) -> Instant {
        while base.poll(now, APART, number, 1184) != Some(BASE) {
            now += APART;
        }
        now
    }

    #[test]
    fn three_lost_probes_say_that_the_base_does_not_fit() {
        let mut base = Base::unknown(true);
        let sizes = search(&mut base, 1130);
        assert!(base.fits_not());
        assert_eq!(sizes.iter().filter(|size| **size == BASE).count(), 3);
        assert!(sizes.contains(&1120) && sizes.contains(&1152));
        // What passes is known, and not tried again.
        assert_eq!(sizes.iter().filter(|size| **size == 544).count(), 1, "{sizes:?}");
    }

    #[test]
    fn a_probe_that_arrives_ends_all_doubt() {
        let mut base = Base::unknown(true);
        let mut now = Instant::ZERO + APART;
        for number in 0..2 {
            now = send(&mut base, now, number);
            assert_eq!(base.poll(now + APART * 9, APART, 9, 1184), None, "one at a time");
            lost(&mut base, 7);
            assert_eq!(base.ask_due(APART), Some(now + APART));
            lost(&mut base, number);
        }
        base.on_arrived();
        assert_eq!(base.due(APART), None);
        base.doubt();
        send(&mut base, now, 3);
        lost(&mut base, 3);
        assert!(!base.fits_not(), "the two before are forgotten");
    }

    #[test]
    fn what_is_lost_beside_other_large_packets_only_asks_for_quiet() {
        let mut base = Base::default();
        base.doubt();
        let mut now = send(&mut base, Instant::ZERO + APART, 0);
        assert!(!base.is_quiet());
        lost(&mut base, 0);
        assert!(base.is_quiet() && base.wants_quiet());
        for number in 1..4 {
            assert!(!base.fits_not());
            let last = now;
            now = send(&mut base, now, number);
            let wait = if number == 2 { 1 } else { QUIET };
            assert!(now >= last + APART * wait, "before {number}");
            lost(&mut base, number);
        }
        assert!(base.fits_not());
    }

    #[test]
    fn a_probe_that_is_lost_beside_smaller_packets_asks_for_no_quiet() {
        let mut base = Base::default();
        base.doubt();
        let now = send(&mut base, Instant::ZERO + APART, 0);
        base.on_lost(0);
        base.on_smaller_lost();
        base.on_report_over();
        assert!(!base.is_quiet());
        assert!(base.is_suspect(), "messages are small now");
        let mut again = Base::default();
        again.doubt();
        let mut at = Instant::ZERO + APART;
        for number in 0..5 {
            assert!(!again.is_quiet(), "before {number}");
            at = send(&mut again, at, number);
            again.on_smaller_lost();
            lost(&mut again, number);
        }
        assert!(again.is_quiet(), "what is sent beside it is too large as well");
        send(&mut base, now, 1);
        lost(&mut base, 1);
        assert!(base.is_quiet());
    }

    #[test]
    fn where_smaller_packets_are_lost_too_it_takes_more() {
        let mut base = Base::unknown(true);
        base.on_smaller_lost();
        let mut now = Instant::ZERO + APART;
        for number in 0..6 {
            assert!(!base.fits_not());
            now = send(&mut base, now, number);
            lost(&mut base, number);
        }
        assert!(base.fits_not());
    }

    #[test]
    fn probes_that_are_refused_count_where_later_packets_arrive() {
        let mut base = Base::unknown(true);
        let mut now = Instant::ZERO + APART;
        for (number, largest) in [(10, 9), (20, 10), (30, 31), (40, 41), (50, 51)] {
            assert!(!base.fits_not());
            now = send(&mut base, now, number);
            base.on_refused(number);
            assert!(base.is_suspect());
            base.on_reported(largest);
        }
        assert!(base.fits_not(), "of five refused nothing arrived behind two");
    }

    #[test]
    fn losses_without_an_arrival_bring_doubt() {
        let mut base = Base::default();
        let mut now = Instant::ZERO + APART;
        base.on_missed(now, APART);
        base.on_missed(now + APART / 2, APART);
        assert!(!base.is_in_doubt());
        base.on_arrived();
        for _ in 0..2 {
            assert!(!base.is_in_doubt());
            now += APART;
            base.on_missed(now, APART);
        }
        assert!(base.is_in_doubt());
    }
}
