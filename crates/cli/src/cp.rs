//! `longhaul cp`.

mod between;
pub(crate) mod onward;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use longhaul::{
    CarrierChoice, ConnectOptions, CopyOptions, CopyPaths, Deletes, EndedEntries, EndedEntry,
    Error, ErrorKind, ListedNames, LossLog, Progress, ReportedLoss, SshHost, SshPurpose, Stop,
};
use longhaul_sys::clock;
use longhaul_sys::reasons::unwritten;
use longhaul_units::{EntryCode, Instant, shown, shown_path};
use serde_json::{Map, Value};

use crate::args::CpArgs;
use crate::failure::Failure;
use crate::habits;
use crate::hosts;
use crate::link::{self, circuit};
use crate::location::{self, Location, Server};
use crate::names;
use crate::output::{Output, complain};
use crate::progress::Display;
use crate::report;
use crate::secret;
use crate::signals::Held;
use crate::ssh;

/// Copies as `args` say, which stand in `words`.
pub(crate) fn run(
    args: &CpArgs,
    words: &[OsString],
    output: &Output,
    held: Held,
) -> Result<(), Failure> {
    let output = &output.of_changes();
    let wanted = Wanted::read(args)?;
    habits::note_of_paths(args).iter().for_each(|note| output.say(note));
    let wanted = match wanted {
        Wanted::Between(between) => return between::run(args, words, between, output, held),
        Wanted::WithServer(wanted) => wanted,
    };
    let (stop, progress) = (Stop::default(), Arc::new(Progress::default()));
    let (reached, dry_run) = (progress.clone(), args.change.dry_run);
    held.stop_in_order(&stop, output, move || known(&reached, dry_run))?;
    let Places { server, paths, shape } = wanted;
    link::check(&args.link)?;
    let (connect, paths) = reach(args, server, paths, &stop)?;
    let mut options = options(args, (connect, paths), shape, output)?;
    options.connect.retry = args.retry;
    carry_out(args, options, output, (&progress, &stop))
}

/// The part of a copy, perhaps a dry run, that is known before its end.
fn known(progress: &Progress, dry_run: bool) -> Map<String, Value> {
    let mut known = report::partial(&progress.snapshot());
    if dry_run {
        known.insert("dry_run".into(), true.into());
    }
    known
}

/// Does the copy of these options, and says how it went.
fn carry_out(
    args: &CpArgs,
    mut options: CopyOptions,
    output: &Output,
    (progress, stop): (&Progress, &Stop),
) -> Result<(), Failure> {
    let circuit = circuit(args, &options)?;
    options.connect.circuit = circuit.as_ref().map(|wanted| wanted.options.clone());
    let losses = losses(args, &options)?;
    options.connect.losses = losses.as_ref().map(|losses| losses.log.clone());
    let work = || longhaul::copy(&options, progress, stop);
    let (done, shown) = Display::of_copy(output)
        .every(args.link.stats)
        .attend(progress, work)
        .map_err(|error| Failure::failed(error.to_string()))?;
    if let Some(losses) = losses {
        losses.write().map_err(|error| Failure::failed(format!("cannot write losses: {error}")))?;
    }
    let known = || known(progress, args.change.dry_run);
    let report = done.map_err(|error| failure(&error, &options, known))?;
    if let (Some(wanted), Some(circuit)) = (&circuit, &report.link.circuit) {
        wanted.remember(circuit, output);
    }
    for notice in report.link.notices.iter().filter(|notice| !shown.notices.contains(notice)) {
        output.detail(format!("note: {notice}"));
    }
    report.remarks.iter().for_each(|remark| output.say(format!("note: {remark}")));
    hosts::refusals(&report.link.hosts).for_each(|line| output.say(format!("note: {line}")));
    hosts::advice(&report.link.hosts).for_each(|line| output.detail(line));
    name_first(&report.skipped, |line| output.say(format!("note: {line}")));
    let failures = as_written(&report.failures, &options, &args.paths);
    name_first(&failures, |line| complain(format!("longhaul: {line}")));
    let changed = report.files + report.deleted.count;
    if changed > 0 || report.failures.is_empty() || args.change.dry_run {
        output.say(match args.change.dry_run {
            true => report::of_dry_run(&report),
            false => report::sentence(&report, args.manifest.is_some()),
        });
    }
    let mut json = report::json(&report);
    if args.change.dry_run {
        json.insert("dry_run".into(), true.into());
    }
    if let Some(failure) = shown.unwritten {
        return Err(failure);
    }
    if report.failures.is_empty() {
        if output.json {
            output.print_json(&json.into())?;
        }
        return Ok(());
    }
    if args.change.delete && report.failures.count > report.deleted.kept {
        output.say(match report.deleted.count {
            0 => "note: what only the destination has stays, since not all can be copied",
            _ => "note: what else only the destination has stays, since not all can be copied",
        });
    }
    let done = if args.change.delete { "copied or deleted" } else { "copied" };
    let failed = match report.failures.count {
        1 => format!("1 entry was not {done}"),
        many => format!("{many} entries were not {done}"),
    };
    // The directory that contents go into is none of them.
    let failed = match (changed + report.unchanged.0).saturating_sub(options.copy_contents.into()) {
        0 => failed,
        _ => format!("{failed}; the rest is complete. {}", next_step(&report.failures)),
    };
    Err(Failure::failed(failed).with_fields(json))
}

/// Why a copy failed, for the user.
fn failure(
    error: &Error,
    options: &CopyOptions,
    known: impl FnOnce() -> Map<String, Value>,
) -> Failure {
    let mut failure = Failure::of(error, known);
    if error.kind == ErrorKind::Unreachable && options.connect.ssh.is_some() {
        failure.message += OPEN;
    }
    failure
}

/// Names the first of `entries` for people, and says how many more there are.
fn name_first(entries: &EndedEntries, mut say: impl FnMut(String)) {
    entries.sample.iter().take(ENTRIES_SHOWN).for_each(|entry| say(entry.to_string()));
    let more = entries.count.saturating_sub(ENTRIES_SHOWN as u64);
    if more > 0 {
        say(format!("and {more} more"));
    }
}

/// The same, with sources that are missing as the user has written them: with their host, and the path above.
fn as_written(failures: &EndedEntries, options: &CopyOptions, paths: &[OsString]) -> EndedEntries {
    let mut failures = failures.clone();
    let sources = &paths[..paths.len().saturating_sub(1)];
    if sources.iter().any(|it| matches!(location::parse(it), Ok(it) if it.location.is_remote())) {
        // Where another host copies for this one its words are its own.
        let there = |it: &mut EndedEntry| it.reason = it.reason.replace("on this host", "there");
        failures.sample.iter_mut().for_each(there);
    }
    // What is listed is not the source, if called so.
    let is_listed = options.names.list.is_some() || !options.names.due.is_empty();
    let is_source = |it: &&mut EndedEntry| it.code == EntryCode::NotFound && !is_listed;
    for failure in failures.sample.iter_mut().filter(is_source) {
        let is_it = |source: &location::Location| shown_path(source.own_name()) == failure.path;
        let parsed = sources.iter().find_map(|text| {
            let source = location::parse_source(text).ok()?.location;
            is_it(&source).then_some(text)
        });
        let Some(text) = parsed else { continue };
        failure.path = shown(&text.display().to_string());
    }
    failures
}

/// Advice after a copy with such failures.
fn next_step(failures: &EndedEntries) -> &'static str {
    match failures.may_all_pass() {
        true => "Run the same command again",
        false => "Where the reason can be mended, run the same command again after that",
    }
}

/// The circuit that `args` ask for.
fn circuit(args: &CpArgs, options: &CopyOptions) -> Result<Option<circuit::Wanted>, Failure> {
    let (CopyPaths::Push { .. }, connect) = (&options.paths, &options.connect) else {
        return match args.circuit.circuit {
            None => Ok(None),
            Some(_) => Err(Failure::usage(
                "--circuit: the side with the files books the circuit; run this at the server, \
                 as a copy to here",
            )),
        };
    };
    let host = &connect.server.host;
    let errand = circuit::Errand {
        host,
        label: format!("cp to {host}"),
        want: None,
        rate: connect.rate,
        by: args.file.deadline,
        margin: args.file.margin,
        bytes_wait: true,
        history: connect.history.as_ref(),
    };
    circuit::wanted(&args.circuit, &errand)
}

/// The copy that `args` ask for, as it is written.
enum Wanted {
    /// A copy between this host and a server.
    WithServer(Places),
    /// A copy between two hosts that ssh reaches.
    Between(Between),
}

/// Places of a copy between this host and a server.
struct Places {
    server: Server,
    paths: CopyPaths,
    shape: Shape,
}

/// Places of a copy between two hosts.
struct Between {
    from: SshHost,
    sources: Vec<Vec<u8>>,
    to: SshHost,
    destination: Vec<u8>,
    shape: Shape,
}

/// How places are written.
#[derive(Clone, Copy)]
struct Shape {
    /// With a slash behind the destination.
    is_directory: bool,
    /// The contents of sources.
    contents: bool,
}

impl Wanted {
    fn read(args: &CpArgs) -> Result<Self, Failure> {
        let usage = |error: location::ParseLocationError| Failure::usage(error.to_string());
        if let Some(advice) = habits::value_as_path(args) {
            return Err(Failure::usage(advice));
        }
        let (sources, destination) = match args.paths.split_last() {
            Some((destination, sources)) if !sources.is_empty() => (sources, destination),
            _ => return Err(Failure::usage("what to copy, and where to? longhaul cp SRC... DST")),
        };
        let paths: Result<Vec<_>, _> =
            sources.iter().map(|it| location::parse_source(it)).collect();
        let paths = paths.map_err(usage)?;
        let destination = location::parse(destination).map_err(usage)?;
        if args.manifest.as_ref().is_some_and(|path| path.as_os_str() == "-") {
            return Err(Failure::usage(
                "--manifest -: the list is a file, since other results go to standard output: name one",
            ));
        }
        let is_listed = args.names.files_from.is_some();
        if is_listed && paths.len() > 1 {
            return Err(Failure::usage(
                "--files-from lists names in one directory, and there are several SRC",
            ));
        }
        let contents = paths[0].contents || is_listed;
        let mixed = !is_listed && paths.iter().any(|source| source.contents != contents);
        let sources = paths.into_iter().map(|source| source.location);
        let shape = Shape { is_directory: destination.trailing_slash, contents };
        let wanted = sides(sources, destination.location, shape)?;
        if mixed {
            return Err(Failure::usage("SRC/. and whole sources cannot be mixed in one command"));
        }
        Ok(wanted)
    }
}

/// A copy over `connect` as `args` say.
fn options(
    args: &CpArgs,
    (connect, paths): (ConnectOptions, CopyPaths),
    shape: Shape,
    output: &Output,
) -> Result<CopyOptions, Failure> {
    let listed = args.names.files_from.as_deref();
    let lists = usize::from(listed.is_some_and(|path| path.as_os_str() == "-"));
    if lists + args.filter.reads_standard_input() > 1 {
        return Err(Failure::usage(
            "standard input can be read once: of --files-from - and --exclude-from - one has to name a file",
        ));
    }
    let rules = args.filter.rules()?;
    let (names, rules) = match listed {
        Some(path) => names::read(path, args.names.from0, rules)?,
        None => (ListedNames::default(), rules),
    };
    let mut connect = link::fill(&args.link, connect, output)?;
    connect.stall_timeout = args.stall_timeout;
    let pushed = matches!(paths, CopyPaths::Push { .. });
    let mut options = CopyOptions::new(connect, paths);
    options.destination_is_directory = shape.is_directory;
    options.copy_contents = shape.contents;
    options.merge = args.change.merge;
    options.verify = !args.no_verify;
    options.ignore_times = args.change.ignore_times;
    options.checksum = args.change.checksum;
    options.update = args.change.update;
    options.delete = args.change.delete.then_some(Deletes { most: args.change.max_delete });
    options.max_errors = args.change.max_errors;
    options.attributes = args.attributes.kept();
    options.records.unmissed = args.attributes.declined();
    options.dry_run = args.change.dry_run;
    options.records.changes = output.names_changes(args.change.dry_run);
    options.rules = rules;
    options.names = names;
    options.destination_is_name = args.change.no_target_directory;
    options.sync = args.fsync;
    options.direct = args.direct;
    options.records.manifest.clone_from(&args.manifest);
    options.secret = (pushed && !args.change.dry_run).then(|| secret::open(output)).flatten();
    Ok(options)
}

/// To `server`, and the paths as that one knows them.
fn reach(
    args: &CpArgs,
    server: Server,
    paths: CopyPaths,
    stop: &Stop,
) -> Result<(ConnectOptions, CopyPaths), Failure> {
    let token_file = args.link.token_file.as_deref();
    let reach = |asked| ssh::reach(server, asked, token_file, &args.ssh, stop);
    Ok(match paths {
        CopyPaths::Push { sources, destination } => {
            let (connect, there) = reach((SshPurpose::Push, vec![destination]))?;
            (connect, CopyPaths::Push { sources, destination: there.concat() })
        }
        CopyPaths::Pull { sources, destination } => {
            let (connect, sources) = reach((SshPurpose::Pull, sources))?;
            (connect, CopyPaths::Pull { sources, destination })
        }
    })
}

/// Where the losses are written that `args` ask for.
fn losses(args: &CpArgs, options: &CopyOptions) -> Result<Option<Losses>, Failure> {
    let Some(path) = &args.losses else { return Ok(None) };
    if matches!(options.paths, CopyPaths::Pull { .. }) {
        let why = "--losses: the side with the files knows what is lost, which is the server here";
        return Err(Failure::usage(why));
    }
    if options.connect.carrier == CarrierChoice::Tcp {
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
            Failure::failed(format!("cannot write {}: {}", path.display(), unwritten(&error)))
        })?;
        Ok(Self { file: BufWriter::new(file), began: clock::now(), log: Arc::default() })
    }

    /// All that were shown until now.
    fn write(mut self) -> io::Result<()> {
        let (losses, left_out) = self.log.take();
        writeln!(self.file, "seconds,lane,packet,cause")?;
        for ReportedLoss { at, lane, number, cause } in losses {
            let (seconds, number) = (at.since(self.began).as_secs_f64(), number.get());
            writeln!(self.file, "{seconds:.6},{},{number},{}", lane.0, cause.name())?;
        }
        if left_out > 0 {
            complain(format!("longhaul: too many losses for the file: {left_out} are not in it"));
        }
        self.file.flush()
    }
}

/// Where they are: one side is here and the other at one server, or each at one host.
fn sides(
    sources: impl Iterator<Item = Location>,
    destination: Location,
    shape: Shape,
) -> Result<Wanted, Failure> {
    let scattered = || Failure::usage("all sources have to be on this host, or all at one server");
    let (mut here, mut there, mut from) = (Vec::new(), Vec::new(), None);
    for source in sources {
        match source {
            Location::Local(path) => here.push(path),
            Location::Remote { server, path } => {
                there.push(path);
                if *from.get_or_insert_with(|| server.clone()) != server {
                    return Err(scattered());
                }
            }
        }
    }
    let with = |server, paths| Ok(Wanted::WithServer(Places { server, paths, shape }));
    match (from, destination) {
        (Some(_), _) if !here.is_empty() => Err(scattered()),
        (None, Location::Remote { server, path: destination }) => {
            with(server, CopyPaths::Push { sources: here, destination })
        }
        (Some(server), Location::Local(destination)) => {
            with(server, CopyPaths::Pull { sources: there, destination })
        }
        (None, Location::Local(_)) => Err(Failure::usage(
            "both sides are on this host, which is what cp is for; one has to be HOST:PATH or \
             lh://HOST/PATH",
        )),
        (
            Some(Server::BySsh(from)),
            Location::Remote { server: Server::BySsh(to), path: destination },
        ) => Ok(Wanted::Between(Between { from, sources: there, to, destination, shape })),
        (Some(Server::BySsh(from)), Location::Remote { .. }) => Err(Failure::usage(format!(
            "from one host to another both are written HOST:PATH, and lh:// takes a token of this host: run \
             this at {from}, or copy in two steps"
        ))),
        (Some(_), Location::Remote { .. }) => Err(Failure::usage(
            "both sides are remote: run this at one of the two servers, or copy in two steps; over ssh one \
             command does it, from HOST:PATH to HOST:PATH",
        )),
    }
}

/// Entries that were not copied and are named for people; `--json` names more.
const ENTRIES_SHOWN: usize = 10;
/// Next step where data cannot go beside ssh.
const OPEN: &str = "; ssh reaches that host, and neither TCP nor UDP does: open ports there for both, and name \
                    them with --ports A-B";
