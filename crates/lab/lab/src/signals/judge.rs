//! The time at which each signal moved, beside that of the first dropped datagram.

use std::time::Duration;

use longhaul_units::Instant;
use serde::{Deserialize, Serialize};

use super::sentinel::Sample;

/// Account of the signals of a host while loads came and left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Signals {
    /// Loads under which datagrams were dropped.
    pub with_drops: u32,
    /// Loads under which none was.
    pub without: u32,
    /// Time without load, in seconds.
    pub quiet_seconds: f64,
    /// Milliseconds from each load to the first drop.
    pub first_drops_ms: Vec<f64>,
    /// Each of them.
    pub of: Vec<Signal>,
}

/// Account of one of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Signal {
    /// Its name, and the bound beyond which it has moved.
    pub name: String,
    /// Milliseconds from its move to the first drop, under loads with drops where it moved before.
    pub leads_ms: Vec<f64>,
    /// Loads without drops under which it moved.
    pub harmless: u32,
    /// Times that it moved while there was no load.
    pub false_alarms: u32,
}

/// True if a signal has moved at a sample, given those up to it.
type Moves = (&'static str, fn(&[Sample]) -> bool);

/// The signals, and the bounds beyond which they have moved: twice what is usual on an idle host,
/// or what it takes for half of the buffer of 208 KiB at 2 Gb/s to fill.
const SIGNALS: [Moves; 11] = [
    ("age of a read batch, 2 ms", |s| now(s).age >= Duration::from_millis(2)),
    ("service gap seen by the sentinel, 2 ms", |s| now(s).gap >= Duration::from_millis(2)),
    ("own switches: preempted for 1 ms", |s| now(s).preempted >= Duration::from_millis(1)),
    ("own switches: preempted twice in 10 ms", |s| {
        now(s).involuntary - before(s, 10).involuntary >= 2
    }),
    ("run delay, read outside: 2 ms of 10", |s| {
        now(s).outside[1] - before(s, 10).outside[1] >= Duration::from_millis(2)
    }),
    ("CPU share, read outside, below 0.85 over 20 ms", |s| {
        share(now(s).outside, before(s, 20).outside)
    }),
    ("CPU share, read by itself, below 0.85 over 20 ms", |s| share(now(s).own, before(s, 20).own)),
    ("socket memory above one half", |s| now(s).queued > now(s).limit / 2),
    ("RAPID's priority: a level less than 100 ms before", |s| now(s).level < before(s, 100).level),
    ("load of all processors above 90 % over 50 ms", |s| now(s).busy_percent > 90.0),
    ("PSI cpu some: 10 ms of 50", |s| {
        now(s).pressure - before(s, 50).pressure >= Duration::from_millis(10)
    }),
];

fn now(samples: &[Sample]) -> &Sample {
    &samples[samples.len() - 1]
}

fn before(samples: &[Sample], millis: usize) -> &Sample {
    &samples[samples.len().saturating_sub(millis + 1)]
}

fn share([run, wait]: [Duration; 2], [run_then, wait_then]: [Duration; 2]) -> bool {
    let (run, wait) = (run.saturating_sub(run_then), wait.saturating_sub(wait_then));
    let all = run + wait;
    all >= Duration::from_millis(2) && run.as_secs_f64() < 0.85 * all.as_secs_f64()
}

impl Signals {
    /// Judges samples that were taken while loads came and left in these spells.
    pub(super) fn of(samples: &[Sample], spells: &[[Instant; 2]]) -> Self {
        let named = SIGNALS.map(|(name, _)| Signal { name: name.into(), ..Signal::default() });
        let mut signals = Self { of: named.into(), ..Self::default() };
        let place = |time: Instant| samples.partition_point(|sample| sample.at < time);
        for [came, left] in spells {
            let span = place(*came)..place(*left);
            let drops = |at: usize| samples[at].drops > samples[at.max(1) - 1].drops;
            let drop = span.clone().find(|at| drops(*at));
            match drop {
                Some(at) => {
                    signals.with_drops += 1;
                    signals.first_drops_ms.push(millis(samples[at].at, *came));
                }
                None => signals.without += 1,
            }
            for (signal, (_, moves)) in signals.of.iter_mut().zip(SIGNALS) {
                let moved = span.clone().find(|at| moves(&samples[..=*at]));
                match (moved, drop) {
                    (Some(moved), Some(drop)) if moved < drop => {
                        signal.leads_ms.push(millis(samples[drop].at, samples[moved].at));
                    }
                    (Some(_), None) => signal.harmless += 1,
                    _ => {}
                }
            }
        }
        let starts = std::iter::once(samples[0].at).chain(spells.iter().map(|spell| spell[1]));
        for (from, [to, _]) in starts.zip(spells) {
            let from = from + SETTLE;
            let span = place(from)..place(*to);
            signals.quiet_seconds += to.since(from).as_secs_f64();
            for (signal, (_, moves)) in signals.of.iter_mut().zip(SIGNALS) {
                let mut moving = span.clone().map(|at| moves(&samples[..=at]));
                let mut last = false;
                let begins = |is: &bool| !std::mem::replace(&mut last, *is) && *is;
                signal.false_alarms += moving.by_ref().filter(begins).count() as u32;
            }
        }
        signals
    }

    /// Adds those of another run.
    pub fn extend(&mut self, other: &Self) {
        self.with_drops += other.with_drops;
        self.without += other.without;
        self.quiet_seconds += other.quiet_seconds;
        self.first_drops_ms.extend(&other.first_drops_ms);
        for more in &other.of {
            match self.of.iter_mut().find(|signal| signal.name == more.name) {
                Some(signal) => {
                    signal.leads_ms.extend(&more.leads_ms);
                    signal.harmless += more.harmless;
                    signal.false_alarms += more.false_alarms;
                }
                None => self.of.push(more.clone()),
            }
        }
    }
}

/// Milliseconds from `start`, to thousandths.
fn millis(time: Instant, start: Instant) -> f64 {
    ((time - start).as_secs_f64() * 1e6).round() / 1e3
}

/// Time after a load that is not of the quiet, since the load leaves its traces there.
const SETTLE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_leads_where_it_moves_before_the_first_drop() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let sample = |ms: u64| Sample { at: at(ms), limit: 100, ..Sample::default() };
        let mut samples: Vec<Sample> = (0..1_000).map(sample).collect();
        // The first load: the reader is preempted at once, drops come 7 ms later. The second one: the
        // buffer only fills. Between them the reader is preempted for nothing.
        let preempted = Duration::from_millis(1);
        samples[203].preempted = preempted;
        samples[210..].iter_mut().for_each(|sample| sample.drops = 3);
        samples[450].preempted = preempted;
        samples[620].queued = 51;
        let seen = Signals::of(&samples, &[[at(200), at(300)], [at(600), at(700)]]);
        assert_eq!((seen.with_drops, seen.without), (1, 1));
        assert_eq!(seen.first_drops_ms, [10.0]);
        // Without the 100 ms behind the beginning and behind each load.
        assert_eq!((seen.quiet_seconds * 1e3).round(), 300.0);
        let find = |name: &str| seen.of.iter().find(|one| one.name.starts_with(name)).unwrap();
        let switches = find("own switches: preempted for");
        assert_eq!((&switches.leads_ms[..], switches.harmless), (&[7.0][..], 0));
        assert_eq!(switches.false_alarms, 1);
        let memory = find("socket memory");
        assert_eq!((memory.leads_ms.len(), memory.harmless, memory.false_alarms), (0, 1, 0));
        let mut twice = seen.clone();
        twice.extend(&seen);
        assert_eq!((twice.of.len(), twice.of[2].leads_ms.len()), (seen.of.len(), 2));
    }
}
