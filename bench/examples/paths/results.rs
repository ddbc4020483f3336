//! Lines of the file of results, and a row of the table.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::Outcome;
use super::cells::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    Auto,
    /// Eight connections of the kernel's BBR.
    Bbr,
    /// Eight connections of the kernel's CUBIC.
    Cubic,
}

impl Contender {
    const ALL: [Self; 3] = [Self::Auto, Self::Bbr, Self::Cubic];

    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bbr => "bbr x8",
            Self::Cubic => "cubic x8",
        }
    }
}

/// The run of a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub emulator: String,
    pub cell: String,
    pub contender: Contender,
    pub seed: u64,
}

/// Results of a run. Of TCP only `settled` is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Share of the ideal from two seconds on.
    pub settled: f64,
    /// Share of the ideal over the whole copy from the end of set-up on.
    pub whole: f64,
    /// Seconds of the whole copy from the end of set-up on, and those that it may take: the ideal time / 0.97
    /// and four round trips.
    pub seconds: [f64; 2],
    /// Packets that the emulator dropped from its queue, and those reported as lost by congestion.
    pub congestion: [u64; 2],
    /// Packets that the emulator lost at random, and those reported so.
    pub random: [u64; 2],
    /// Packets that were reported as lost for an unknown cause.
    pub unknown: u64,
    /// Share of the time in which the host gave the sender no turn: one thread bears that, eight flows do not.
    pub paused: f64,
}

pub struct Results {
    file: File,
    runs: BTreeMap<Key, Run>,
}

impl Results {
    pub fn open(path: &Path) -> Outcome<Self> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut runs = BTreeMap::new();
        for line in text.lines() {
            // The last line may be cut off.
            if let Some((key, run)) = serde_json::from_str(line).ok().as_ref().and_then(parse) {
                runs.insert(key, run);
            }
        }
        Ok(Self { file: OpenOptions::new().create(true).append(true).open(path)?, runs })
    }

    pub fn has(&self, key: &Key) -> bool {
        self.runs.contains_key(key)
    }

    pub fn add(&mut self, key: Key, run: Run) -> Outcome<()> {
        let Key { emulator, cell, contender, seed } = &key;
        let line = json!({
            "emulator": emulator, "cell": cell, "contender": contender.name(), "seed": seed,
            "settled": run.settled, "whole": run.whole, "seconds": run.seconds,
            "congestion": run.congestion, "random": run.random, "unknown": run.unknown,
            "paused": run.paused,
        });
        writeln!(self.file, "{line}")?;
        self.runs.insert(key, run);
        Ok(())
    }

    /// Of a cell: `auto`'s median and least share, the median share of time in which its sender was paused, how many
    /// of its copies were in time, the peers, and the packets by cause, the emulator's count first.
    pub fn row(&self, emulator: &str, cell: &Cell) -> String {
        let name = cell.name();
        let of = |contender: Contender| -> Vec<&Run> {
            let own = |key: &Key| {
                key.emulator == emulator && key.cell == name && key.contender == contender
            };
            self.runs.iter().filter(|(key, _)| own(key)).map(|(_, run)| run).collect()
        };
        let [auto, bbr, cubic] = Contender::ALL.map(of);
        let shares = |runs: &[&Run], of: fn(&Run) -> f64| {
            let mut shares: Vec<f64> = runs.iter().map(|run| of(run)).collect();
            shares.sort_by(f64::total_cmp);
            let at = |at: usize| shares.get(at).copied().unwrap_or(f64::NAN);
            (at(shares.len() / 2), at(0))
        };
        let (median, least) = shares(&auto, |run| run.settled);
        let (whole, _) = shares(&auto, |run| run.whole);
        let (paused, _) = shares(&auto, |run| run.paused);
        let in_time = auto.iter().filter(|run| run.seconds[0] <= run.seconds[1]).count();
        let [(bbr, _), (cubic, _)] = [&bbr, &cubic].map(|runs| shares(runs, |run| run.settled));
        let sum = |of: fn(&Run) -> u64| auto.iter().map(|run| of(run)).sum::<u64>();
        let causes = [
            sum(|run| run.congestion[0]),
            sum(|run| run.congestion[1]),
            sum(|run| run.random[0]),
            sum(|run| run.random[1]),
            sum(|run| run.unknown),
        ];
        let [queue, congestion, lost, random, unknown] = causes;
        format!(
            "{name:34} auto {median:.3} (least {least:.3}), whole {whole:.3}, paused {paused:.3}, in time {in_time} of \
             {}; bbr x8 {bbr:.3}, cubic x8 {cubic:.3}; queue {queue} as {congestion}, random {lost} as {random}, \
             unknown {unknown}",
            auto.len()
        )
    }
}

fn parse(line: &Value) -> Option<(Key, Run)> {
    let text = |name: &str| line[name].as_str().map(str::to_owned);
    let pair = |name: &str| Some([line[name][0].as_u64()?, line[name][1].as_u64()?]);
    let name = text("contender")?;
    let key = Key {
        emulator: text("emulator")?,
        cell: text("cell")?,
        contender: Contender::ALL.into_iter().find(|contender| contender.name() == name)?,
        seed: line["seed"].as_u64()?,
    };
    let run = Run {
        settled: line["settled"].as_f64()?,
        whole: line["whole"].as_f64()?,
        seconds: [line["seconds"][0].as_f64()?, line["seconds"][1].as_f64()?],
        congestion: pair("congestion")?,
        random: pair("random")?,
        unknown: line["unknown"].as_u64()?,
        paused: line["paused"].as_f64()?,
    };
    Some((key, run))
}
