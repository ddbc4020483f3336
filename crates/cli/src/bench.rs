//! `longhaul bench`.

use longhaul::Stop;
use longhaul_bench::{BenchOptions, table};

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::{self, Again};

pub(crate) fn run(args: &BenchArgs, output: &Output) -> Result<(), Failure> {
    let failed = |error| Failure::failed(format!("cannot measure: {error}"));
    let mut options = BenchOptions::new(std::env::current_exe().map_err(failed)?);
    options.quick = args.quick;
    options.mtu = args.mtu;
    options.peers = args.peers;
    options.only.clone_from(&args.row);
    options.runs = match (args.runs, args.quick) {
        (Some(runs), _) => runs.into(),
        (None, true) => 1,
        (None, false) => options.runs,
    };
    let stop = Stop::default();
    signals::install(&stop, Some(STOPPING), Again::Wait).map_err(failed)?;
    let report =
        longhaul_bench::run(&options, &stop, &mut |step| output.say(step)).map_err(failed)?;
    output.result(&table::json(&report), table::text(&report))
}

const STOPPING: &str = "stopping after this row";
