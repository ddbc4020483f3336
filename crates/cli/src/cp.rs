//! `longhaul cp`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul::{
    CarrierChoice, CopyError, CopyOptions, Location, LossLog, Progress, Stop, ToldLoss,
};
use longhaul_objects::Fsync;
use longhaul_sys::clock;
use longhaul_units::Instant;

use crate::args::{CpArgs, FsyncArg};
use crate::failure::Failure;
use crate::hosts;
use crate::link::{self, circuit};
use crate::location::{self, Parsed};
use crate::output::{Output, complain};
use crate::progress::Display;
use crate::report;
use crate::secret;
use crate::signals::Held;

pub(crate) fn run(args: &CpArgs, output: &Output, held: Held) -> Result<(), Failure> {
    let (stop, progress) = (Stop::default(), Arc::new(Progress::default()));
    let known = progress.clone();
    held.stop_in_order(&stop, output, move || report::partial(&known.snapshot()))?;
    let mut options = options(args, output)?;
    let circuit = circuit(args, &options)?;
    options.circuit = circuit.as_ref().map(|wanted| wanted.options.clone());
    let losses = losses(args, &options)?;
    options.losses = losses.as_ref().map(|losses| losses.log.clone());
    let work = || longhaul::copy(&options, &progress, &stop);
    let (done, told) = Display::of_copy(output).attend(&progress, work);
    if let Some(losses) = losses {
        losses.write().map_err(|error| Failure::failed(format!("cannot write losses: {error}")))?;
    }
    let report = done.map_err(|error| failure(&error, &progress))?;
    if let (Some(wanted), Some(circuit)) = (&circuit, &report.link.circuit) {
        wanted.remember(circuit, output);
    }
    for notice in report.link.notices.iter().filter(|notice| !told.contains(notice)) {
        output.detail(format!("note: {notice}"));
    }
    report.remarks.iter().for_each(|remark| output.say(format!("note: {remark}")));
    hosts::refusals(&report.link.hosts).for_each(|line| output.say(format!("note: {line}")));
    hosts::advice(&report.link.hosts).for_each(|line| output.detail(line));
    for (path, reason) in report.failures.sample.iter().take(FAILURES_SHOWN) {
        complain(format!("longhaul: {path}: {reason}"));
    }
    let more = report.failures.count.saturating_sub(FAILURES_SHOWN as u64);
    if more > 0 {
        complain(format!("longhaul: and {more} more"));
    }
    if report.files > 0 || report.failures.is_empty() {
        output.say(report::sentence(&report));
    }
    let json = report::json(&report);
    if report.failures.is_empty() {
        if output.json {
            output.print_json(&json.into())?;
        }
        return Ok(());
    }
    let failed = match report.failures.count {
        1 => "1 entry was not copied".to_owned(),
        many => format!("{many} entries were not copied"),
    };
    let failed = match report.files {
        0 => failed,
        _ => format!(
            "{failed}; the rest is complete. Where the reason can be mended, run the same command \
             again after that"
        ),
    };
    Err(Failure::failed(failed).with_fields(json))
}

/// The circuit that `args` ask for.
fn circuit(args: &CpArgs, options: &CopyOptions) -> Result<Option<circuit::Wanted>, Failure> {
    let Location::Remote { host, .. } = &options.destination else {
        return match args.circuit.circuit {
            None => Ok(None),
            Some(_) => Err(Failure::usage(
                "--circuit: the side with the files books the circuit; run this at the server, \
                 as a copy to here",
            )),
        };
    };
    let errand = circuit::Errand {
        host,
        label: format!("cp to {host}"),
        want: None,
        rate: options.rate,
        by: args.file.deadline,
        margin: args.file.margin,
        bytes_wait: true,
        history: options.history.as_ref(),
    };
    circuit::wanted(&args.circuit, &errand)
}

/// What `args` mean.
fn options(args: &CpArgs, output: &Output) -> Result<CopyOptions, Failure> {
    let usage = |error: location::ParseLocationError| Failure::usage(error.to_string());
    let mut paths = Vec::new();
    for text in &args.paths {
        paths.push(location::parse(text).map_err(usage)?);
    }
    let Some(destination) = paths.pop().filter(|_| !paths.is_empty()) else {
        return Err(Failure::usage("what to copy, and where to? longhaul cp SRC... DST"));
    };
    check_sides(&paths, &destination)?;
    let contents = paths[0].contents;
    if paths.iter().any(|source| source.contents != contents) {
        return Err(Failure::usage("SRC/. and whole sources cannot be mixed in one command"));
    }
    let link = link::options(&args.link, output)?;
    let fsync = match args.fsync {
        FsyncArg::End => Fsync::End,
        FsyncArg::Never => Fsync::Never { boot: boot_id()? },
    };
    let to_server = matches!(destination.location, Location::Remote { .. });
    Ok(CopyOptions {
        destination_is_directory: destination.trailing_slash,
        copy_contents: contents,
        merge: args.merge,
        verify: !args.no_verify,
        sources: paths.into_iter().map(|source| source.location).collect(),
        destination: destination.location,
        token: link.token,
        profile: link.profile,
        parameters: link.parameters,
        rate: link.rate,
        protect: link.protect,
        carrier: link.carrier,
        lanes: link.lanes,
        fsync,
        memory: link.memory,
        direct: args.direct,
        idle_timeout: link::IDLE_TIMEOUT,
        stall_timeout: Duration::from_secs(args.stall_timeout),
        links: link.links,
        via: link.via,
        circuit: None,
        history: link.history,
        secret: to_server.then(|| secret::open(output)).flatten(),
        host_priority: link.host_priority,
        losses: None,
    })
}

/// Where the losses are written that `args` ask for.
fn losses(args: &CpArgs, options: &CopyOptions) -> Result<Option<Losses>, Failure> {
    let Some(path) = &args.losses else { return Ok(None) };
    if matches!(options.destination, Location::Local(_)) {
        let why = "--losses: the side with the files knows what is lost, which is the server here";
        return Err(Failure::usage(why));
    }
    if options.carrier == CarrierChoice::Tcp {
        return Err(Failure::usage("--losses: over TCP the kernel repairs losses, and tells none"));
    }
    Losses::create(path).map(Some)
}

/// The file of `--losses`.
struct Losses {
    file: BufWriter<File>,
    began: Instant,
    log: Arc<LossLog>,
}

impl Losses {
    fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path);
        let file = file.map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(Self { file: BufWriter::new(file), began: clock::now(), log: Arc::default() })
    }

    /// All that were told until now.
    fn write(mut self) -> io::Result<()> {
        let (losses, left_out) = self.log.take();
        writeln!(self.file, "seconds,lane,packet,cause")?;
        for ToldLoss { at, lane, number, cause } in losses {
            let (seconds, number) = (at.since(self.began).as_secs_f64(), number.get());
            writeln!(self.file, "{seconds:.6},{},{number},{}", lane.0, cause.name())?;
        }
        if left_out > 0 {
            complain(format!("longhaul: {left_out} losses are not in the file: too many"));
        }
        self.file.flush()
    }
}

/// One side is here, the other at one server.
fn check_sides(sources: &[Parsed], destination: &Parsed) -> Result<(), Failure> {
    let server = |location: &Location| match location {
        Location::Local(_) => None,
        Location::Remote { host, port, .. } => Some((host.clone(), *port)),
    };
    let first = server(&sources[0].location);
    if sources.iter().any(|source| server(&source.location) != first) {
        return Err(Failure::usage("all sources have to be on this host, or all at one server"));
    }
    match (first, server(&destination.location)) {
        (Some(_), None) | (None, Some(_)) => Ok(()),
        (None, None) => Err(Failure::usage(
            "both sides are on this host, which is what cp is for; one has to be lh://HOST/PATH",
        )),
        (Some(_), Some(_)) => Err(Failure::usage(
            "both sides are remote: run this at one of the two servers, or copy in two steps",
        )),
    }
}

/// What tells this run of the operating system from others.
fn boot_id() -> Result<[u8; 16], Failure> {
    let text = std::fs::read_to_string(BOOT_ID)
        .map_err(|error| Failure::failed(format!("cannot read {BOOT_ID}: {error}")))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16)
        .map(u128::to_be_bytes)
        .map_err(|_| Failure::failed(format!("{BOOT_ID} holds no identifier")))
}

fn failure(error: &CopyError, progress: &Progress) -> Failure {
    match error {
        CopyError::Usage(text) => Failure::usage(text),
        error => {
            Failure::failed(error.to_string()).with_fields(report::partial(&progress.snapshot()))
        }
    }
}

/// Entries that were not copied and are named for people; `--json` names more.
const FAILURES_SHOWN: usize = 10;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
