use super::{Experiment, Parameter};

/// Values of all axes, in their order.
pub type Cell = Vec<(Parameter, String)>;

/// The runs, in their order.
///
/// The first repeat goes through all cells and contenders, the second the same way back, and so on
/// (A B B A): what changes steadily about the machine meanwhile falls on all alike. Repeats have
/// seeds, which are the same in all cells and for all contenders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One after another.
    pub runs: Vec<Run>,
}

/// One run of one contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where in the sweep.
    pub cell: Cell,
    /// Which of the experiment's contenders.
    pub contender: usize,
    /// From 0.
    pub repeat: u32,
    /// Of everything random.
    pub seed: u64,
}

impl Plan {
    /// Of the whole experiment, or of its quick part.
    pub fn new(experiment: &Experiment, quick: bool) -> Self {
        let mut cells: Vec<Cell> = vec![Vec::new()];
        for axis in &experiment.axes {
            let values = axis.quick.as_ref().filter(|_| quick).unwrap_or(&axis.values);
            cells = cells
                .iter()
                .flat_map(|cell| {
                    values.iter().map(|value| {
                        let mut cell = cell.clone();
                        cell.push((axis.sets, value.get_ref().clone()));
                        cell
                    })
                })
                .collect();
        }
        let repeats = experiment.quick.repeats.filter(|_| quick).unwrap_or(experiment.repeats);
        let mut runs = Vec::new();
        for repeat in 0..repeats {
            let pass = cells.iter().flat_map(|cell| {
                let competes = move |contender: &usize| {
                    let contender = &experiment.contenders[*contender];
                    let chosen = experiment.quick.contenders.as_ref().filter(|_| quick);
                    let is_chosen =
                        |labels: &Vec<String>| labels.iter().any(|one| one == contender.label());
                    let fits = |(axis, value): &(Parameter, String)| {
                        contender.only.get(axis).is_none_or(|one| one == value)
                    };
                    chosen.is_none_or(is_chosen) && cell.iter().all(fits)
                };
                let contenders = (0..experiment.contenders.len()).filter(competes);
                contenders.map(move |contender| Run {
                    cell: cell.clone(),
                    contender,
                    repeat,
                    seed: u64::from(repeat) + 1,
                })
            });
            let mut pass: Vec<Run> = pass.collect();
            if repeat % 2 == 1 {
                pass.reverse();
            }
            runs.extend(pass);
        }
        Self { runs }
    }
}
