//! Running an experiment: one run after another, each on a testbed of its own, each kept as soon as
//! it is over.

mod causes;
mod counters;
mod cross;
mod disk;
mod fingerprint;
mod folders;
mod following;
mod sampler;
mod single;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_lab::{Testbed, TestbedError};
use longhaul_peers::{Contender, ContenderError, Job, Medium, Outcome, Passage, find};
use longhaul_sys::clock;
use longhaul_sys::host::Machine;

pub(crate) use self::fingerprint::fingerprint;
use self::folders::Folders;
use crate::experiment::{Beside, Experiment, Memory, Plan, Run, Setup};
use crate::record::{Companion, Record, Verdict};
use crate::results::{Results, ResultsError};
use crate::statistics::jain;

/// Progress of an experiment, for who watches it.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// A run begins.
    Begins {
        /// Which.
        run: &'a Run,
        /// Of which contender.
        contender: &'a str,
        /// Its number, from 0.
        number: usize,
        /// Of so many in the whole plan.
        total: usize,
        /// Estimated time for the rest, from the runs made so far.
        left: Duration,
    },
    /// A run is over and kept.
    Ends(&'a Record),
    /// A run of the plan that was made before.
    Stands(&'a Record),
}

/// Options for running an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The short version.
    pub quick: bool,
    /// Make everything again.
    pub fresh: bool,
    /// Ends it early when set; what was made is kept.
    pub stop: &'a AtomicBool,
}

/// Why an experiment ended before its plan did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Results cannot be read or kept.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// No testbed can be made here.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// Values of axes that do not go together.
    #[error("{cell}: {error}")]
    Cell {
        /// Where in the sweep.
        cell: String,
        /// Why not.
        error: String,
    },
    /// Something of this system.
    #[error("cannot {step}: {error}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// The error.
        error: std::io::Error,
    },
    /// It was asked to end.
    #[error("stopped; what was measured is kept, the same command goes on from there")]
    Stopped,
}

/// Makes the runs of an experiment that are not among its results yet.
///
/// # Errors
/// The first step that keeps all runs from being made. A contender that is absent, fails or hangs is
/// no error but a record, and the sweep goes on.
pub fn run(
    experiment: &Experiment,
    options: &Options<'_>,
    results: &Results,
    seen: &mut dyn FnMut(Progress<'_>),
) -> Result<(), RunError> {
    let plan = Plan::new(experiment, options.quick);
    let (mut appender, before) = results.open(&experiment.name, options.fresh)?;
    let standing: HashMap<(String, u32), Record> =
        before.into_iter().filter(Record::stands).map(|record| (record.key(), record)).collect();
    let mut todo = Vec::new();
    for (number, run) in plan.runs.iter().enumerate() {
        let setup = setup(experiment, options.quick, run)?;
        let key = (fingerprint(experiment, &setup, run.contender), run.repeat);
        match standing.get(&key) {
            Some(record) => seen(Progress::Stands(record)),
            None => todo.push((number, run, setup, key.0)),
        }
    }
    let mut pace = Pace::new(standing.values());
    let folders = Folders::new()
        .map_err(|error| RunError::System { step: "make folders for files", error })?;
    for (at, (number, run, setup, fingerprint)) in todo.iter().enumerate() {
        let contender = experiment.contenders[run.contender].label();
        let rest = todo[at..].iter();
        let rest = rest.map(|(_, run, _, _)| experiment.contenders[run.contender].label());
        let left = pace.left(rest, setup.patience);
        let total = plan.runs.len();
        seen(Progress::Begins { run, contender, number: *number, total, left });
        let start = clock::now();
        let (mut record, trace) = single::one(experiment, options, run, setup, &folders)?;
        // A run that ended because all is to end says nothing.
        if options.stop.load(Ordering::Relaxed) {
            return Err(RunError::Stopped);
        }
        record.fingerprint.clone_from(fingerprint);
        if let Some(trace) = trace {
            let file = results.keep_trace(&experiment.name, fingerprint, run.repeat, &trace)?;
            record.details["trace"] = file.display().to_string().into();
        }
        pace.took(contender, clock::now() - start);
        appender.append(&record)?;
        seen(Progress::Ends(&record));
    }
    Ok(())
}

fn setup(experiment: &Experiment, quick: bool, run: &Run) -> Result<Setup, RunError> {
    Setup::of(experiment, quick, run).map_err(|error| {
        let values = run.cell.iter();
        let values = values.map(|(parameter, value)| format!("{}={value}", parameter.name()));
        RunError::Cell { cell: values.collect::<Vec<_>>().join(" "), error }
    })
}

/// Runs a contender whose run is not recorded; it ends early when all is to end.
fn attended(
    contender: &dyn Contender,
    testbed: &Testbed,
    job: &Job,
    stop: &AtomicBool,
) -> Result<Outcome, ContenderError> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    testbed.interrupt();
                }
                clock::sleep_until(clock::now() + TURN);
            }
        });
        let outcome = contender.run(testbed, job);
        done.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Refuses what a contender cannot do.
fn suits(contender: &dyn Contender, setup: &Setup) -> Result<(), String> {
    let special = setup.memory == Memory::Warm || setup.host_priority || setup.nice.is_some();
    special_suits(contender, special || !setup.parameters.is_empty())?;
    match (contender.passage(), setup.via.is_empty()) {
        (Passage::Direct, false) => return Err("it goes through no nodes between".into()),
        (Passage::Relayed, true) => return Err("no nodes between are named".into()),
        _ => {}
    }
    match setup.round_trips.is_some() && !contender.measures_round_trips() {
        true => Err("it measures no round trips".into()),
        false => Ok(()),
    }
}

/// As [`suits`], of what only Longhaul has.
fn special_suits(contender: &dyn Contender, special: bool) -> Result<(), String> {
    match special && !contender.takes_parameters() {
        true => Err("it has neither parameters, nor a memory of paths, nor remedies".into()),
        false => Ok(()),
    }
}

/// One of the transfers beside the measured one, from its start to its end.
fn companion(
    beside: &Beside,
    testbed: &Testbed,
    job: &Job,
    start: longhaul_units::Instant,
) -> Companion {
    let job = Job {
        from: beside.from.clone(),
        to: beside.to.clone(),
        via: Vec::new(),
        rate: beside.rate,
        parameters: beside.parameters.clone(),
        history: None,
        losses: false,
        ..job.clone()
    };
    let mut companion = Companion {
        contender: beside.name.clone(),
        after: beside.after.as_secs_f64(),
        ..Companion::default()
    };
    clock::sleep_until(start + beside.after);
    let contender = find(&beside.name);
    let outcome = match &contender {
        Ok(contender) => match special_suits(contender.as_ref(), !beside.parameters.is_empty()) {
            Ok(()) => contender.run(testbed, &job),
            Err(why) => {
                companion.verdict = Verdict::Unsuitable;
                companion.why = Some(why);
                return companion;
            }
        },
        Err(error) => {
            companion.verdict = Verdict::Absent;
            companion.why = Some(error.to_string());
            return companion;
        }
    };
    match outcome {
        Ok(outcome) => {
            companion.verdict = Verdict::Done;
            companion.seconds = Some(outcome.seconds);
            companion.goodput_bps = Some(outcome.goodput());
            companion.resent = outcome.resent;
        }
        Err(failure) => {
            companion.verdict = verdict(&failure);
            companion.why = Some(failure.to_string());
        }
    }
    companion
}

fn verdict(failure: &ContenderError) -> Verdict {
    match failure {
        ContenderError::Absent(_) => Verdict::Absent,
        ContenderError::TimedOut { .. } => Verdict::TimedOut,
        ContenderError::Unsuitable { .. } => Verdict::Unsuitable,
        _ => Verdict::Failed,
    }
}

/// Takes over what the contender itself reports; what is left are raw signals.
fn conclude(
    record: &mut Record,
    outcome: Result<Outcome, ContenderError>,
    arrived: u64,
    setup: &Setup,
) -> Option<String> {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => {
            record.verdict = verdict(&failure);
            record.why = Some(failure.to_string());
            if record.verdict == Verdict::TimedOut {
                let seconds = setup.patience.as_secs_f64();
                record.seconds = Some(seconds);
                record.arrived_bps = Some(arrived as f64 * 8.0 / seconds);
                share(record);
            }
            return None;
        }
    };
    record.verdict = Verdict::Done;
    record.cut = outcome.cut;
    let between = setup.via.iter().zip(&outcome.cpu_between);
    let between = between.map(|(waypoint, seconds)| (waypoint.node.clone(), *seconds));
    record.cpu_between = between.collect();
    if let Some(measured) = &outcome.round_trips {
        let ms = |times: &[Duration]| {
            times.iter().map(|time| (time.as_secs_f64() * 1e6).round() / 1e3).collect()
        };
        record.connects_ms = ms(&measured.connects);
        record.answers_ms = ms(&measured.answers);
        record.exchanges_ms = ms(&measured.exchanges);
    }
    record.goodput_bps = outcome.round_trips.is_none().then(|| outcome.goodput());
    share(record);
    record.transport = serde_json::to_value(outcome.transport)
        .ok()
        .and_then(|word| word.as_str().map(str::to_owned));
    record.version = Some(outcome.version);
    record.congestion_control = outcome.congestion_control;
    record.bytes = Some(outcome.bytes);
    record.seconds = Some(outcome.seconds);
    record.cpu_send = Some(outcome.cpu_send);
    record.cpu_receive = Some(outcome.cpu_receive);
    record.memory_send = Some(outcome.memory[0]).filter(|memory| *memory > 0);
    record.memory_receive = Some(outcome.memory[1]).filter(|memory| *memory > 0);
    record.bottleneck = outcome.bottleneck;
    record.resent = outcome.resent;
    record.bookings = outcome.bookings;
    record.program_lost = outcome.lost.unwrap_or_default();
    record.details["program"] = outcome.details;
    let (signals, trace) = outcome.signals?;
    record.signals = Some(signals);
    Some(trace)
}

/// Computes the shares of the transfer and of those beside it.
fn share(record: &mut Record) {
    if record.cross_bps.is_empty() {
        return;
    }
    let shares: Vec<f64> = record.cross_bps.iter().copied().chain(record.own()).collect();
    record.fairness = jain(&shares);
}

fn ended(record: Record, verdict: Verdict, why: String) -> Record {
    Record { verdict, why: Some(why), ..record }
}

fn job(setup: &Setup, folders: &Folders) -> Job {
    let files = |folder: &Path| Medium::Files { folder: folder.to_owned(), count: 1, target: None };
    Job {
        medium: folders.of(setup.medium).map_or(Medium::Memory, files),
        block: setup.block.map(|block| block.get()),
        rate: setup.rate,
        socket_buffer: setup
            .socket_buffer
            .map(|size| u32::try_from(size.get()).unwrap_or(u32::MAX)),
        host_priority: setup.host_priority,
        nice: setup.nice,
        parameters: setup.parameters.clone(),
        losses: setup.losses,
        via: setup.via.clone(),
        length: setup.length,
        round_trips: setup.round_trips,
        series: setup.series,
        begin: setup.begin,
        ..Job::new(&setup.from, &setup.to, setup.bytes.get(), setup.patience)
    }
}

fn buffers(setup: &Setup, machine: &Machine) -> String {
    let given = setup.socket_buffer.map(|size| format!("told {size}; "));
    let [receive, send] = machine.socket_buffer_max;
    let tcp =
        setup.topology.nodes.iter().filter_map(|node| {
            Some(format!("; TCP of {} at most {}", node.name, node.tcp_buffer?))
        });
    format!(
        "{}without privilege at most {receive} and {send} bytes{}",
        given.unwrap_or_default(),
        tcp.collect::<String>()
    )
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Estimate of the time that runs take.
struct Pace {
    contenders: HashMap<String, (Duration, u32)>,
}

impl Pace {
    fn new<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let mut pace = Self { contenders: HashMap::new() };
        for record in records {
            let seconds = record.seconds.filter(|seconds| (0.0..1e6).contains(seconds));
            if let Some(seconds) = seconds {
                pace.took(&record.contender, Duration::from_secs_f64(seconds) + AROUND);
            }
        }
        pace
    }

    fn took(&mut self, contender: &str, time: Duration) {
        let entry = self.contenders.entry(contender.to_owned()).or_default();
        *entry = (entry.0 + time, entry.1 + 1);
    }

    /// For these runs; contenders that nothing is known of take half their patience.
    fn left<'a>(&self, rest: impl Iterator<Item = &'a str>, patience: Duration) -> Duration {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for contender in rest {
            *counts.entry(contender).or_default() += 1;
        }
        counts
            .into_iter()
            .map(|(contender, count)| match self.contenders.get(contender) {
                Some((time, known)) => *time / *known * count,
                None => patience / 2 * count,
            })
            .sum()
    }
}

/// Losses of a direction that are kept for what the sender tells of them.
const LOG: usize = 4 << 20;
/// Between two looks whether all is to end.
const TURN: Duration = Duration::from_millis(10);
/// To build and end a testbed, and to start servers.
const AROUND: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
