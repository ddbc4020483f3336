use crate::experiment::{Experiment, Setup};

/// Of everything that a run's figures depend on and that was asked for. What changes it makes
/// earlier results stand for something else.
pub(crate) fn fingerprint(experiment: &Experiment, setup: &Setup, contender: usize) -> String {
    let competitor = &experiment.contenders[contender];
    let (name, watch) = (competitor.name.get_ref(), experiment.watch);
    let asked = format!("{} {name} {setup:?} {watch:?}", experiment.name);
    blake3::hash(asked.as_bytes()).to_hex()[..DIGITS].to_owned()
}

/// More than chance can hit.
const DIGITS: usize = 16;
