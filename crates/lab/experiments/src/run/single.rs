//! One run, from a fresh testbed to its record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use longhaul_lab::load::{Load, Running};
use longhaul_lab::{Direction, Testbed, TestbedOptions};
use longhaul_peers::{Contender, ContenderError, Job, Medium, Outcome, find};
use longhaul_sys::clock;
use longhaul_sys::host::Machine;

use super::cross::Crossing;
use super::disk::Disk;
use super::folders::Folders;
use super::following;
use super::sampler::{Sampled, Sampler};
use super::watch::Watching;
use super::{
    LOG, Options, RunError, attended, buffers, companion, conclude, ended, job, load_average,
};
use super::{causes, suits};
use crate::experiment::{Competitor, Experiment, Memory, Run, Setup};
use crate::record::{Companion, Record, Verdict};

/// Makes one run; with raw signals where a reader is watched.
pub(super) fn one(
    experiment: &Experiment,
    options: &Options<'_>,
    run: &Run,
    setup: &Setup,
    folders: &Folders,
) -> Result<(Record, Option<String>), RunError> {
    let competitor = &experiment.contenders[run.contender];
    let mut record = begun(experiment, options.quick, run, setup);
    let contender = match playable(competitor, setup) {
        Ok(contender) => contender,
        Err((verdict, why)) => return Ok((ended(record, verdict, why), None)),
    };
    let history = match setup.memory {
        Memory::Off => None,
        _ => Some(tempfile::tempdir().map_err(system("make a folder for the history"))?),
    };
    let mut job = job(setup, folders);
    job.history = history.as_ref().map(|folder| folder.path().to_owned());
    if setup.memory == Memory::Warm
        && let Err(failure) = warm_up(contender.as_ref(), run, setup, (&job, options.stop))?
    {
        let why = format!("the run before it: {failure}");
        return Ok((ended(record, Verdict::Failed, why), None));
    }
    let mut stage = Stage::new(experiment, run, setup)?;
    stage.fit(&mut job, setup, folders);
    let playing = (contender.as_ref(), &job);
    let measured = stage.measure(experiment, setup, playing, options.stop)?;
    let Measured { outcome, sampled, beside, slow_from } = measured;
    record.beside = beside;
    stage.end_watches(&mut record)?;
    if setup.losses
        && let Ok(outcome) = &outcome
    {
        stage.explain_losses(&mut record, setup, outcome, sampled.host_lost())?;
    }
    let arrived = sampled.arrived();
    sampled.write(&mut record, setup);
    if let (Some(disk), Some(from)) = (&setup.disk, slow_from) {
        record.recovery.extend(following::of_disk(&record.series, from, disk, setup));
    }
    let trace = conclude(&mut record, outcome, arrived, setup);
    stage.close(&mut record)?;
    Ok((record, trace))
}

fn system(step: &'static str) -> impl Fn(std::io::Error) -> RunError {
    move |error| RunError::System { step, error }
}

/// The record of a run of which nothing is known yet.
fn begun(experiment: &Experiment, quick: bool, run: &Run, setup: &Setup) -> Record {
    let machine = Machine::describe();
    Record {
        experiment: experiment.name.clone(),
        quick,
        cell: run.cell.iter().cloned().collect(),
        contender: experiment.contenders[run.contender].label().to_owned(),
        repeat: run.repeat,
        seed: run.seed,
        started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        machine: machine.to_string(),
        load_average: load_average(),
        buffers: buffers(setup, &machine),
        ..Record::default()
    }
}

/// The contender, or why it cannot run here.
fn playable(
    competitor: &Competitor,
    setup: &Setup,
) -> Result<Box<dyn Contender>, (Verdict, String)> {
    let contender =
        find(competitor.name.get_ref()).map_err(|error| (Verdict::Absent, error.to_string()))?;
    contender.presence().map_err(|absent| (Verdict::Absent, absent.to_string()))?;
    suits(contender.as_ref(), setup).map_err(|why| (Verdict::Unsuitable, why))?;
    Ok(contender)
}

/// A run that leaves a history, and is not recorded.
fn warm_up(
    contender: &dyn Contender,
    run: &Run,
    setup: &Setup,
    (job, stop): (&Job, &AtomicBool),
) -> Result<Result<(), ContenderError>, RunError> {
    let testbed = Testbed::new(&setup.topology, &TestbedOptions { seed: run.seed, log: 0 })?;
    if let Err(failure) = attended(contender, &testbed, job, stop) {
        return Ok(Err(failure));
    }
    testbed.close().map_err(system("carry packets to the end"))?;
    Ok(Ok(()))
}

/// The testbed, and what is at work beside the contender.
struct Stage {
    // All of these end before the testbed does.
    watching: Option<Watching>,
    load: Option<Running>,
    crossing: Option<Crossing>,
    testbed: Testbed,
    // Hosts have mounts of their own from their making on, and keep the disk until they end.
    disk: Option<Disk>,
}

/// Results of a contender, and of the counters beside it.
struct Measured {
    outcome: Result<Outcome, ContenderError>,
    sampled: Sampled,
    beside: Vec<Companion>,
    /// When the disk became slow, in seconds of the testbed.
    slow_from: Option<f64>,
}

impl Stage {
    fn new(experiment: &Experiment, run: &Run, setup: &Setup) -> Result<Self, RunError> {
        let disk = setup.disk.as_ref().map(Disk::mount);
        let disk = disk.transpose().map_err(system("put a slow disk in its folder"))?;
        let log = if setup.losses { LOG } else { 0 };
        let testbed = Testbed::new(&setup.topology, &TestbedOptions { seed: run.seed, log })?;
        let crossing = setup.cross.as_ref().map(|cross| Crossing::start(cross, &testbed));
        let crossing = crossing.transpose().map_err(system("start the crossing connections"))?;
        let load = setup.load.as_ref().map(Load::start);
        let load = load.transpose().map_err(system("start the load"))?;
        let receiver = testbed.host(&setup.to);
        let watching = experiment.watch.zip(receiver).map(|(watch, to)| Watching::start(watch, to));
        let watching = watching.transpose().map_err(system("watch the receiver"))?;
        Ok(Self { watching, load, crossing, testbed, disk })
    }

    /// Gives `job` what depends on the stage.
    fn fit(&self, job: &mut Job, setup: &Setup, folders: &Folders) {
        if let Some((load, running)) = setup.load.as_ref().zip(self.load.as_ref()) {
            job.spells = load.spells(running.began(), running.began() + setup.patience);
        }
        if let Some(disk) = &self.disk {
            job.medium = Medium::Files {
                folder: folders.of(setup.medium).unwrap_or(folders.in_memory()).to_owned(),
                count: 1,
                target: Some(disk.folder().to_owned()),
            };
        }
    }

    /// Runs the contender and those beside it, and reads counters meanwhile.
    fn measure(
        &self,
        experiment: &Experiment,
        setup: &Setup,
        (contender, job): (&dyn Contender, &Job),
        stop: &AtomicBool,
    ) -> Result<Measured, RunError> {
        let testbed = &self.testbed;
        let done = AtomicBool::new(false);
        let flags = (&done, stop);
        let crossing = self.crossing.as_ref();
        let sampler = Sampler::new(testbed, setup, crossing, experiment.watch, flags)
            .map_err(system("open the counters of the receiver"))?;
        std::thread::scope(|scope| {
            let sampling = scope.spawn(move || sampler.run());
            let start = clock::now();
            let beside = setup.beside.iter();
            let beside: Vec<_> = beside
                .map(|beside| scope.spawn(move || companion(beside, testbed, job, start)))
                .collect();
            clock::sleep_until(start + setup.after);
            let disk = self.disk.as_ref();
            let slow_from = disk.map(|disk| disk.begin().since(testbed.began()).as_secs_f64());
            let outcome = contender.run(testbed, job);
            let beside = beside.into_iter().map(joined).collect();
            done.store(true, Ordering::Relaxed);
            let sampled = joined(sampling).map_err(system("read the counters of the links"))?;
            Ok(Measured { outcome, sampled, beside, slow_from })
        })
    }

    /// Ends the watch on the receiver, and the load.
    fn end_watches(&mut self, record: &mut Record) -> Result<(), RunError> {
        if let Some(watching) = self.watching.take() {
            let (scheduling, host_lost) = watching.stop();
            record.scheduling = Some(scheduling);
            record.host_lost = host_lost;
        }
        if let Some(load) = self.load.take() {
            let report = load.stop().map_err(system("keep up the load"))?;
            record.details["load_cpu_seconds"] = report.cpu.as_secs_f64().into();
        }
        Ok(())
    }

    /// Compares the losses that the contender reports with those that the path made.
    fn explain_losses(
        &self,
        record: &mut Record,
        setup: &Setup,
        outcome: &Outcome,
        host_lost: u64,
    ) -> Result<(), RunError> {
        let links = 0..setup.topology.links.len();
        let logs: Vec<_> =
            links.map(|link| self.testbed.take_losses(link, Direction::Forward)).collect();
        let left_out: u64 = logs.iter().map(|(_, left_out)| *left_out).sum();
        let taken = logs.into_iter().flat_map(|(losses, _)| losses);
        let taken = taken.filter_map(|loss| causes::on_path(&loss));
        let refused = self.testbed.host(&setup.from).map_or(Ok(0), longhaul_lab::Host::refused);
        let sender = refused.map_err(system("read the counters of a device"))? > 0;
        let receiver = host_lost + record.host_lost > 0;
        let hosts = causes::Hosts { receiver, sender };
        // Of those that the log had no room for nobody knows the cause.
        match left_out {
            0 => record.loss_causes = Some(causes::joined(taken, &outcome.reported_losses, hosts)),
            _ => record.details["losses_left_out"] = left_out.into(),
        }
        Ok(())
    }

    fn close(self, record: &mut Record) -> Result<(), RunError> {
        drop(self.crossing);
        self.testbed.close().map_err(system("carry packets to the end"))?;
        if let Some(disk) = self.disk {
            let passed = disk.end().map_err(system("take a slow disk away"))?;
            record.details["disk_passed_bytes"] = passed.get().into();
        }
        Ok(())
    }
}

/// The result of a thread; its panic goes on here.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
