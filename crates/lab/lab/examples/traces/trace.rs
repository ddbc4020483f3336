//! Recorded signals, as docs/host-awareness.md, "Traces", has them.

use std::error::Error;

use longhaul_units::{Duration, Instant};

/// A trace, with times since its first look.
#[derive(Default)]
pub struct Trace {
    pub buffer: u64,
    pub switches: Vec<(Instant, What)>,
    pub looks: Vec<Look>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum What {
    On,
    Preempted,
    Slept,
}

pub struct Look {
    pub at: Instant,
    pub left: Duration,
    pub run: Duration,
    pub wait: Duration,
    pub queued: u64,
    pub limit: u64,
    pub drops: u64,
    pub bytes: u64,
    pub left_until: Instant,
}

impl Trace {
    pub fn read(text: &str) -> Result<Self, Box<dyn Error>> {
        let mut trace = Self::default();
        for line in text.lines() {
            if let Some(words) = line.strip_prefix("# rate_bps ") {
                let buffer = words.rsplit(' ').next().unwrap_or_default();
                trace.buffer = buffer.parse()?;
            }
            let (kind, fields) = line.split_once('\t').unwrap_or((line, ""));
            let what = match kind {
                "on" => What::On,
                "preempted" => What::Preempted,
                "slept" => What::Slept,
                "look" => {
                    trace.looks.push(Look::read(fields)?);
                    continue;
                }
                _ => continue,
            };
            trace.switches.push((instant(fields.parse()?), what));
        }
        Ok(trace)
    }

    /// From when to when the reader had no processor although it had more to do.
    pub fn stalls(&self) -> Vec<(Instant, Instant)> {
        let pairs = self.switches.windows(2);
        let lost = pairs.filter(|pair| pair[0].1 == What::Preempted && pair[1].1 == What::On);
        lost.map(|pair| (pair[0].0, pair[1].0)).collect()
    }

    /// Time on a processor within a window.
    pub fn ran(&self, from: Instant, to: Instant) -> Duration {
        let turns = self.switches.windows(2).filter(|pair| pair[0].1 == What::On);
        let within = turns.map(|pair| pair[1].0.min(to) - pair[0].0.max(from));
        within.fold(Duration::ZERO, |sum, turn| sum + turn)
    }

    /// First and last look of each window.
    pub fn windows(&self) -> impl Iterator<Item = (&Look, &Look)> {
        let mut from = 0;
        (0..self.looks.len()).filter_map(move |index| {
            let span = self.looks[index].at - self.looks[from].at;
            (span >= WINDOW).then(|| {
                let begun = std::mem::replace(&mut from, index);
                (&self.looks[begun], &self.looks[index])
            })
        })
    }
}

impl Look {
    fn read(fields: &str) -> Result<Self, Box<dyn Error>> {
        let fields: Result<Vec<u64>, _> = fields.split('\t').map(str::parse).collect();
        let fields = fields?;
        let get = |index: usize| fields.get(index).copied().ok_or("a look with too few fields");
        let time = |index| get(index).map(Duration::from_micros);
        Ok(Self {
            at: instant(get(0)?),
            left: time(14)?,
            run: time(3)?,
            wait: time(4)?,
            queued: get(8)?,
            limit: get(9)?,
            drops: get(10)?,
            bytes: get(11)?,
            left_until: instant(get(15)?),
        })
    }
}

fn instant(micros: u64) -> Instant {
    // The record of switches may begin before the first look.
    Instant::ZERO + Duration::from_secs(1) + Duration::from_micros(micros)
}

pub const WINDOW: Duration = Duration::from_millis(50);
