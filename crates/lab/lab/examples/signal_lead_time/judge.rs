//! When each signal moved, beside when the first datagram was dropped.

use std::fmt::Write as _;
use std::time::Duration;

use longhaul_units::Instant;

use crate::sentinel::Sample;
use crate::{Cell, millis};

/// A load came and left.
#[derive(Clone, Copy, Debug)]
pub struct Episode {
    pub came: Instant,
    pub left: Instant,
}

/// Whether a signal says something at a sample, given those up to it.
type Signal = (&'static str, fn(&[Sample]) -> bool);

/// What is looked at, and beyond what it has moved: twice what is usual on an idle host, or what it
/// takes for half of the buffer of 208 KiB at 2 Gb/s to fill.
const SIGNALS: [Signal; 9] = [
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
    ("PSI cpu some: 2 ms of 10", |s| {
        now(s).pressure - before(s, 10).pressure >= Duration::from_millis(2)
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

/// What became of all episodes.
#[derive(Default)]
pub struct Verdicts {
    with_drops: usize,
    without: usize,
    quiet: Duration,
    first_drops: Vec<f64>,
    of: [Verdict; SIGNALS.len()],
}

#[derive(Default)]
struct Verdict {
    /// Milliseconds from the move to the first drop, in episodes with drops in which it moved before.
    leads: Vec<f64>,
    /// Episodes without drops in which it moved.
    harmless: usize,
    /// Times that it moved while there was no load.
    false_alarms: usize,
}

impl Verdicts {
    pub fn of(samples: &[Sample], episodes: &[Episode]) -> Self {
        let mut verdicts = Self::default();
        let place = |time: Instant| samples.partition_point(|sample| sample.at < time);
        for episode in episodes {
            let span = place(episode.came)..place(episode.left);
            let drops = |at: usize| samples[at].drops > samples[at.max(1) - 1].drops;
            let drop = span.clone().find(|at| drops(*at));
            match drop {
                Some(at) => {
                    verdicts.with_drops += 1;
                    verdicts.first_drops.push(millis(samples[at].at, episode.came));
                }
                None => verdicts.without += 1,
            }
            for (verdict, (_, moves)) in verdicts.of.iter_mut().zip(SIGNALS) {
                let moved = span.clone().find(|at| moves(&samples[..=*at]));
                match (moved, drop) {
                    (Some(moved), Some(drop)) if moved < drop => {
                        verdict.leads.push(millis(samples[drop].at, samples[moved].at));
                    }
                    (Some(_), None) => verdict.harmless += 1,
                    _ => {}
                }
            }
        }
        let starts = std::iter::once(None).chain(episodes.iter().map(|episode| Some(episode.left)));
        let ends = episodes.iter().map(|episode| episode.came);
        for (from, to) in starts.zip(ends) {
            let from = from.unwrap_or(samples[0].at) + SETTLE;
            let span = place(from)..place(to);
            verdicts.quiet += to - from;
            for (verdict, (_, moves)) in verdicts.of.iter_mut().zip(SIGNALS) {
                let mut moving = span.clone().map(|at| moves(&samples[..=at]));
                let mut last = false;
                verdict.false_alarms +=
                    moving.by_ref().filter(|is| !std::mem::replace(&mut last, *is) && *is).count();
            }
        }
        verdicts
    }

    pub fn add(&mut self, other: &Self) {
        self.with_drops += other.with_drops;
        self.without += other.without;
        self.quiet += other.quiet;
        self.first_drops.extend(&other.first_drops);
        for (sum, more) in self.of.iter_mut().zip(&other.of) {
            sum.leads.extend(&more.leads);
            sum.harmless += more.harmless;
            sum.false_alarms += more.false_alarms;
        }
    }

    /// One cell in one line.
    pub fn line(&self, cell: &Cell) -> String {
        let drop =
            quantile(&self.first_drops, 0.5).map_or("never".into(), |ms| format!("{ms:.1} ms"));
        format!(
            "{:>9}, buffer {:>7} x 2, {} beside: dropped in {} of {} episodes, first after {drop}",
            cell.rate.to_string(),
            cell.buffer,
            cell.competitors,
            self.with_drops,
            self.with_drops + self.without,
        )
    }

    /// All of them, a signal in a row.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} episodes with drops, {} without, {:.0} s of quiet\n\n\
             | signal | moved before the first drop | lead, ms: p10, median, p90 | moved, and nothing \
             was dropped | moved while there was no load, per minute |\n|---|---|---|---|---|\n",
            self.with_drops,
            self.without,
            self.quiet.as_secs_f64(),
        );
        for (verdict, (name, _)) in self.of.iter().zip(SIGNALS) {
            let part = |count: usize, of: usize| match of {
                0 => "-".into(),
                _ => format!("{:.0} %", 100.0 * count as f64 / of as f64),
            };
            let leads = [0.1, 0.5, 0.9].map(|q| quantile(&verdict.leads, q));
            let leads =
                leads.map(|lead| lead.map_or("-".into(), |ms| format!("{ms:.1}"))).join(", ");
            let _ = writeln!(
                text,
                "| {name} | {} | {leads} | {} | {:.1} |",
                part(verdict.leads.len(), self.with_drops),
                part(verdict.harmless, self.without),
                verdict.false_alarms as f64 * 60.0 / self.quiet.as_secs_f64().max(1.0),
            );
        }
        text
    }
}

fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(values[(last as f64 * part).round() as usize])
}

/// What a load leaves behind is not of the quiet.
const SETTLE: Duration = Duration::from_millis(100);
