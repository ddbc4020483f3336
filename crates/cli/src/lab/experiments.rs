//! `longhaul lab list`, `run` and `report`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_experiments::experiment::Run;
use longhaul_experiments::measure::Measure;
use longhaul_experiments::report::{Part, html};
use longhaul_experiments::{
    Builtin, Experiment, Options, Plan, Progress, Record, Results, RunError, Verdict, run,
};
use serde_json::{Value, json};
use signal_hook::iterator::Signals;

use super::args::{ListArgs, ReportArgs, RunArgs};
use super::{cannot_build, prepare};
use longhaul_sys::threads;

use crate::failure::Failure;
use crate::figures::clock;
use crate::output::{Output, complain};
use crate::signals::that_stop;

/// Experiments, how long they are, and what there is of them.
pub(super) fn list(args: &ListArgs, output: &Output) -> Result<(), Failure> {
    let results = results(args.results.as_deref())?;
    let (mut lines, mut entries) = (Vec::new(), Vec::new());
    for builtin in Builtin::ALL {
        let experiment = builtin.experiment();
        let [runs, quick] = [false, true].map(|quick| Plan::new(&experiment, quick).runs.len());
        let made = results.read(builtin.name).map_err(failed)?.len();
        let (name, title) = (&experiment.name, &experiment.title);
        lines.push(format!("{name:<22} {title}  ({runs} runs, {quick} quick; {made} made)"));
        entries.push(json!({
            "name": name,
            "title": title,
            "question": experiment.question,
            "source": experiment.source,
            "runs": runs,
            "quick_runs": quick,
            "results": made,
        }));
    }
    output.result(&json!({ "experiments": entries }), lines.join("\n"))
}

/// Makes the runs that are not there yet.
pub(super) fn run_all(args: &RunArgs, output: &Output) -> Result<ExitCode, Failure> {
    let mut experiments = Vec::new();
    for name in &args.experiments {
        match name.as_str() {
            "all" => {
                let all = Builtin::ALL.map(|builtin| (builtin.experiment(), builtin.text().into()));
                experiments.extend(all);
            }
            name => experiments.push(read(name)?),
        }
    }
    let results = results(args.results.as_deref())?;
    prepare(output)?;
    let stop = stop_on_signals().map_err(cannot("wait for signals"))?;
    let mut printed = Vec::new();
    for (experiment, text) in &experiments {
        // The report needs it too, and in the version that was run.
        std::fs::create_dir_all(results.folder())
            .and_then(|()| std::fs::write(definition(&results, &experiment.name), text))
            .map_err(cannot(&format!("write to {}", results.folder().display())))?;
        let options = Options { quick: args.quick, fresh: args.fresh, stop: &stop };
        let mut display = Display::new(output, experiment);
        let end = run(experiment, &options, &results, &mut |progress| display.see(&progress));
        display.bar.finish_and_clear();
        let summary = display.summary();
        match end {
            Ok(()) => printed.push(summary),
            Err(error) => {
                let fields =
                    [("experiments".to_owned(), printed.into_iter().chain([summary]).collect())];
                return Err(ended(error).with_fields(fields.into_iter().collect()));
            }
        }
    }
    let folder = results.folder().display().to_string();
    let text = format!("results are in {folder}; `longhaul lab report` draws them");
    output.result(&json!({ "results": folder, "experiments": printed }), text)?;
    Ok(ExitCode::SUCCESS)
}

/// Draws everything that there is.
pub(super) fn report(args: &ReportArgs, output: &Output) -> Result<(), Failure> {
    let results = results(args.results.as_deref())?;
    let names = results.experiments().map_err(failed)?;
    // Those of the program in their order, then others.
    let own = Builtin::ALL.map(|builtin| builtin.name.to_owned());
    let known = own.iter().filter(|name| names.contains(name));
    let others = names.iter().filter(|name| !own.contains(name));
    let mut parts = Vec::new();
    for name in known.chain(others) {
        let path = definition(&results, name);
        let text = std::fs::read_to_string(&path).map_err(cannot(&format!(
            "read {}, which says what the results beside it are of",
            path.display()
        )))?;
        let experiment = Experiment::parse(&text, &|_| true)
            .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        parts.push(Part::new(experiment, results.read(name).map_err(failed)?));
    }
    if parts.is_empty() {
        return Err(Failure::failed(format!(
            "there are no results in {}; `longhaul lab run NAME` makes some",
            results.folder().display()
        )));
    }
    std::fs::write(&args.output, html(&parts))
        .map_err(cannot(&format!("write {}", args.output.display())))?;
    let printed = parts.iter().map(|part| {
        let findings = part.findings().into_iter();
        let findings = findings.map(|(source, here)| json!({ "source": source, "measured": here }));
        json!({
            "name": part.experiment.name,
            "quick": part.quick,
            "runs": part.records.len(),
            "planned": part.planned,
            "findings": findings.collect::<Vec<_>>(),
        })
    });
    let file = args.output.display().to_string();
    let json = json!({ "report": file, "experiments": printed.collect::<Vec<_>>() });
    output.result(&json, format!("{file}: {} experiments", parts.len()))
}

/// By name, or from a file; with its text.
fn read(name: &str) -> Result<(Experiment, String), Failure> {
    if let Some(builtin) = Builtin::find(name) {
        return Ok((builtin.experiment(), builtin.text().to_owned()));
    }
    if !Path::new(name).exists() {
        let known = Builtin::ALL.map(|builtin| builtin.name).join(", ");
        return Err(Failure::usage(format!(
            "no experiment is called {name}; known are {known}, and there is no such file"
        )));
    }
    let text = std::fs::read_to_string(name).map_err(cannot(&format!("read {name}")))?;
    let known = |contender: &str| longhaul_peers::find(contender).is_ok();
    let experiment = Experiment::parse(&text, &known)
        .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    if Builtin::find(&experiment.name).is_some() {
        let message = format!("{name}: the name {} is taken; give it another", experiment.name);
        return Err(Failure::usage(message));
    }
    Ok((experiment, text))
}

/// In the folder asked for, or where the user's data belong (XDG base directories).
fn results(folder: Option<&Path>) -> Result<Results, Failure> {
    if let Some(folder) = folder {
        return Ok(Results::in_folder(folder));
    }
    let absolute = |path: &PathBuf| path.is_absolute();
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(absolute);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/share"));
    let data = data.or_else(home).filter(absolute).ok_or_else(|| {
        Failure::failed("neither XDG_DATA_HOME nor HOME says where results belong: use --results")
    })?;
    Ok(Results::in_folder(data.join("longhaul").join("lab")))
}

fn definition(results: &Results, name: &str) -> PathBuf {
    results.folder().join(format!("{name}.toml"))
}

/// What a signal sets. Commands end with the run they belong to; what does not end soon is left to
/// the end of the process, and another signal brings that about at once.
fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new(that_stop()?)?;
    let set = stop.clone();
    threads::spawn("signals", move || {
        for _ in signals.forever() {
            if set.swap(true, Ordering::Relaxed) {
                std::process::exit(1);
            }
            complain("longhaul: ending; what was measured is kept");
            let at_last = || {
                std::thread::sleep(GRACE);
                std::process::exit(1);
            };
            if threads::spawn("grace", at_last).is_err() {
                std::process::exit(1);
            }
        }
    })?;
    Ok(stop)
}

/// A bar on a terminal, a line for each run everywhere.
struct Display<'a> {
    output: &'a Output,
    experiment: &'a Experiment,
    bar: ProgressBar,
    made: BTreeMap<&'static str, usize>,
    standing: usize,
    total: usize,
}

impl<'a> Display<'a> {
    fn new(output: &'a Output, experiment: &'a Experiment) -> Self {
        let target = match output.quiet {
            true => ProgressDrawTarget::hidden(),
            // Hidden by itself where standard error is no terminal.
            false => ProgressDrawTarget::stderr_with_hz(REFRESH_HZ),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{bar:24} {pos} of {len} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { output, experiment, bar, made: BTreeMap::new(), standing: 0, total: 0 }
    }

    fn see(&mut self, progress: &Progress<'_>) {
        match progress {
            Progress::Stands(_) => {
                self.standing += 1;
                self.bar.inc(1);
            }
            Progress::Begins { run, contender, total, left, .. } => {
                if self.total == 0 && self.standing > 0 {
                    let name = &self.experiment.name;
                    let text = format!("{name}: {} runs are there already", self.standing);
                    self.output.say(text);
                }
                self.total = *total;
                self.bar.set_length(*total as u64);
                let left = clock(*left);
                self.bar.set_message(format!("about {left} left: {contender} {}", place(run)));
            }
            Progress::Ends(record) => {
                *self.made.entry(record.verdict.name()).or_default() += 1;
                self.bar.inc(1);
                let number = self.standing + self.made.values().sum::<usize>();
                let line = line(record, number, self.total);
                self.bar.suspend(|| self.output.say(line));
            }
        }
    }

    fn summary(&self) -> Value {
        json!({ "name": self.experiment.name, "made": self.made, "there_before": self.standing })
    }
}

fn place(run: &Run) -> String {
    let values = run.cell.iter().map(|(parameter, value)| parameter.say(value));
    values.collect::<Vec<_>>().join(", ")
}

fn line(record: &Record, number: usize, total: usize) -> String {
    let cell = record.cell.iter().map(|(parameter, value)| parameter.say(value));
    let cell = cell.collect::<Vec<_>>().join(", ");
    let cell = if cell.is_empty() { cell } else { format!("{cell}: ") };
    let what = match record.verdict {
        Verdict::Done if !record.connects_ms.is_empty() => {
            let both = [Measure::Connect, Measure::Answer, Measure::Exchange];
            let both = both.iter().filter_map(|one| {
                Some(format!("{} {}", one.name(), one.say(one.of(record)?.value)))
            });
            both.collect::<Vec<_>>().join(", ")
        }
        Verdict::Done => {
            let words = [Measure::Goodput, Measure::CompletionTime];
            let words = words.iter().filter_map(|one| Some(one.say(one.of(record)?.value)));
            let cut = if record.cut { ", cut" } else { "" };
            words.collect::<Vec<_>>().join(" in ") + cut
        }
        verdict => {
            let why = record.why.as_deref().and_then(|why| why.lines().next()).unwrap_or_default();
            format!("{}: {why}", verdict.name())
        }
    };
    format!("{number:>4} of {total}  {:<18} {cell}{what}", record.contender)
}

fn ended(error: RunError) -> Failure {
    match error {
        RunError::Testbed(error) => cannot_build(error),
        RunError::Cell { .. } => Failure::usage(error.to_string()),
        error => failed(error),
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::failed(error.to_string())
}

fn cannot(what: &str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::failed(format!("cannot {what}: {error}"))
}

/// From a signal to the end of the process, whatever is still going on.
const GRACE: Duration = Duration::from_secs(5);
const REFRESH_HZ: u8 = 5;
