//! One page of everything that was measured: figures drawn as papers draw them, and the sources'
//! findings beside sentences that are made from the data.

mod between;
mod bookings;
mod data;
mod figures;
mod hosts;
mod load;
mod page;
mod phrases;
mod signals;
mod words;

use std::collections::{HashMap, HashSet};

use crate::experiment::{Experiment, Plan, Setup};
use crate::record::Record;
use crate::run::fingerprint;

/// An experiment and the runs of it that belong together.
#[derive(Clone, Debug)]
pub struct Part {
    /// The experiment.
    pub experiment: Experiment,
    /// True if it is the quick part.
    pub quick: bool,
    /// The last record of each run.
    pub records: Vec<Record>,
    /// Runs that the plan has.
    pub planned: usize,
    /// Records of other versions of the experiment.
    pub left_out: usize,
}

impl Part {
    /// Of all records of an experiment those that it still describes: of the whole sweep if any of
    /// it was made, else of the quick part.
    pub fn new(experiment: Experiment, records: Vec<Record>) -> Self {
        let keys = |quick: bool| -> HashSet<(String, u32)> {
            let runs = Plan::new(&experiment, quick).runs;
            let key = |run: &crate::experiment::Run| {
                let setup = Setup::of(&experiment, quick, run).ok()?;
                Some((fingerprint(&experiment, &setup, run.contender), run.repeat))
            };
            runs.iter().filter_map(key).collect()
        };
        let [full, quick] = [keys(false), keys(true)];
        // Some runs may be the same in both.
        let only_full =
            |record: &Record| full.contains(&record.key()) && !quick.contains(&record.key());
        let is_quick = !records.iter().any(only_full);
        let wanted = if is_quick { quick } else { full };
        let all = records.len();
        let mut order = Vec::new();
        let mut last: HashMap<(String, u32), Record> = HashMap::new();
        let mut left_out = all;
        for record in records.into_iter().filter(|record| wanted.contains(&record.key())) {
            left_out -= 1;
            if !last.contains_key(&record.key()) {
                order.push(record.key());
            }
            last.insert(record.key(), record);
        }
        let records = order.iter().filter_map(|key| last.remove(key)).collect();
        Self { experiment, quick: is_quick, records, planned: wanted.len(), left_out }
    }

    /// Findings as text, for other programs than browsers.
    pub fn findings(&self) -> Vec<(String, Vec<String>)> {
        let findings = self.experiment.findings.iter();
        findings.map(|finding| (finding.paper.clone(), words::say(self, finding))).collect()
    }
}

/// The page.
pub fn html(parts: &[Part]) -> String {
    page::page(parts)
}

#[cfg(test)]
mod tests;
