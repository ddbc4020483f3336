//! `longhaul circuits`.

pub mod args;
pub(crate) mod ask;
mod gantt;
pub(crate) mod reach;
mod serve;
mod show;
pub mod when;

use std::path::Path;

use longhaul_booking_policies::bench::{self, BenchOptions};
use longhaul_booking_policies::simulate::scenarios::ScenarioOptions;
use longhaul_booking_policies::simulate::switching::SwitchingOptions;
use longhaul_booking_policies::simulate::{
    self, Options, Report, figure, scenarios, switching, table,
};
use serde::Serialize;
use serde_json::Value;

use self::args::{CircuitsArgs, CircuitsCommand, Experiment, SimulateArgs};
use crate::failure::Failure;
use crate::output::Output;

pub(crate) fn run(args: &CircuitsArgs, output: &Output) -> Result<(), Failure> {
    match &args.command {
        CircuitsCommand::Serve(args) => serve::run(args, output),
        CircuitsCommand::Audit(args) => serve::audit(args, output),
        CircuitsCommand::Plan(args) => ask::plan(args, output),
        CircuitsCommand::Request(args) => ask::request(args, output),
        CircuitsCommand::List(args) => show::list(args, output),
        CircuitsCommand::Show(args) => show::show(args, output),
        CircuitsCommand::Commit(args) => {
            ask::change(&args.at, output, |client| client.commit(args.id))
        }
        CircuitsCommand::Modify(args) => {
            let change = ask::modification(args);
            ask::change(&args.at, output, |client| client.modify(args.id, &change))
        }
        CircuitsCommand::Extend(args) => {
            let more = ask::extension(args);
            // Whatever happens on the way, it is extended once.
            let key = ask::key()?;
            ask::change(&args.at, output, |client| {
                ask::again(|| client.extend(args.id, &more, Some(&key)))
            })
        }
        CircuitsCommand::Release(args) => {
            ask::change(&args.at, output, |client| client.release(args.id))
        }
        CircuitsCommand::Cancel(args) => {
            ask::change(&args.at, output, |client| match args.series {
                true => client.cancel_series(args.id),
                false => client.cancel(args.id),
            })
        }
        CircuitsCommand::Simulate(args) => simulate(args, output),
        CircuitsCommand::Bench => {
            let report = bench::run(&BenchOptions::default(), &mut |step| output.say(step));
            output.result(&value(&report)?, bench::table(&report))
        }
    }
}

fn simulate(args: &SimulateArgs, output: &Output) -> Result<(), Failure> {
    let mut shown = None;
    let mut progress = |done: usize, all: usize| {
        let percent = done * 100 / all.max(1);
        if shown != Some(percent / 10) {
            shown = Some(percent / 10);
            output.say(format!("{percent} % of {all} runs"));
        }
    };
    let one_load = match args.load[..] {
        [] => None,
        [load] => Some(load),
        _ if args.experiment == Experiment::Main => None,
        _ => return Err(Failure::usage("this experiment takes one --load")),
    };
    if args.svg.is_some() && args.experiment != Experiment::Main {
        return Err(Failure::usage("only the experiment `main` draws a figure"));
    }
    match args.experiment {
        Experiment::Main => {
            let mut options = Options { threads: args.threads.into(), ..Options::default() };
            set(&mut options.seeds, args.seeds);
            set(&mut options.requests, args.requests.map(|count| count as usize));
            if !args.load.is_empty() {
                options.loads.clone_from(&args.load);
            }
            let report = simulate::run(&options, &mut progress);
            if let Some(file) = &args.svg {
                draw(&report, file)?;
            }
            output.result(&value(&report)?, table::report(&report))
        }
        Experiment::Switching => {
            let mut options =
                SwitchingOptions { threads: args.threads.into(), ..Default::default() };
            set(&mut options.seeds, args.seeds);
            set(&mut options.requests, args.requests.map(|count| count as usize));
            set(&mut options.load, one_load);
            let report = switching::run(&options, &mut progress);
            output.result(&value(&report)?, table::switching(&report))
        }
        Experiment::Scenarios => {
            let mut options =
                ScenarioOptions { threads: args.threads.into(), ..Default::default() };
            set(&mut options.seeds, args.seeds);
            set(&mut options.requests, args.requests.map(|count| count as usize));
            set(&mut options.load, one_load);
            let report = scenarios::run(&options, &mut progress);
            output.result(&value(&report)?, table::scenarios(&report))
        }
    }
}

fn set<T>(option: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *option = given;
    }
}

fn draw(report: &Report, file: &Path) -> Result<(), Failure> {
    std::fs::write(file, figure::figure_3(report))
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.display())))
}

fn value(report: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(report).map_err(|error| Failure::failed(format!("no JSON: {error}")))
}
