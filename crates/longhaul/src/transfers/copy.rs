//! `longhaul cp`: a copy between this host and a server.

mod served;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path as FilePath, PathBuf};
use std::slice;
use std::sync::{Arc, Mutex};

use longhaul_carriers::buffer::Buffer;
use longhaul_connection::{IncomingCopy, OutgoingCopy, Transfer, Wish};
use longhaul_files::{
    AskedPatterns, CopiedHashes, Destination, Filter, SinkOptions, SourceTree, Target,
    UnfinishedList, boot_id, is_pattern, means_several, own_name, source_label, transfer_id,
};
use longhaul_objects::{
    Belief, CarriedEntries, Fsync, Keeps, SinkConfig, Stayed, TagKey, TopNames,
};
use longhaul_sys::clock;
use longhaul_sys::random;
use longhaul_sys::reasons::{unread, unwritten};
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, Instant, shown_path};
use longhaul_wire::{
    AskedPart, Direction, EntryCode, EntryEnd, FilterRule, KeptAttributes, MAX_PATH, Protect,
    Request, Summary,
};

use crate::api::{CopyReport, DeletedNames, Snapshot};
use crate::connection::circuit::Errand;
use crate::connection::shared::{Memory, Shared};
use crate::endpoint::client::{Client, Failure, Finished, Task};
use crate::endpoint::request::GrantedRequest;
use crate::error::{Error, Kept};
use crate::memory::budget::Budget;
use crate::options::{ConnectOptions, CopyOptions, CopyPaths, Endpoint};
use crate::progress::Progress;
use crate::remarks::{self, Unkept};
use crate::transfers::due::missed_at_server;
use crate::transfers::sink::SinkDriver;
use crate::transfers::source::SourceDriver;

pub(crate) use served::ServedCopies;

/// Copies as `options` say. Blocks until everything is durable at the destination, or failed.
///
/// ```no_run
/// use longhaul::{ConnectOptions, CopyOptions, CopyPaths, DEFAULT_PORT, Endpoint, Progress, Stop};
///
/// let token = std::fs::read_to_string("token")?.trim().parse()?;
/// let connect = ConnectOptions::new(Endpoint::new("dtn2.example", DEFAULT_PORT), token);
/// let sources = vec!["run-17".into()];
/// let paths = CopyPaths::Push { sources, destination: b"incoming".to_vec() };
/// let options = CopyOptions::new(connect, paths);
/// let report = longhaul::copy(&options, &Progress::default(), &Stop::default())?;
/// println!("{} bytes, {} failures", report.bytes, report.failures.count);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Durable contents stay, and a rerun goes on from there. A copy of which some entries failed is no error; see
/// [`CopyReport::failures`].
pub fn copy(options: &CopyOptions, progress: &Progress, stop: &Stop) -> Result<CopyReport, Error> {
    let started = clock::now();
    check(options)?;
    let ConnectOptions { protect, circuit, .. } = &options.connect;
    if circuit.is_some() && matches!(options.paths, CopyPaths::Pull { .. }) {
        return Err(Error::usage(
            "the side with the files books the circuit: run this at the server, as a copy to here",
        ));
    }
    if !options.verify && options.checksum {
        return Err(Error::usage("--checksum compares hashes, and --no-verify makes none"));
    }
    if !options.verify && *protect == Protect::Clear {
        return Err(Error::usage(UNCHECKED));
    }
    let filter = Filter::new(&options.rules).map_err(|error| Error::usage(error.to_string()))?;
    let kept = || Kept::of_copy(options.dry_run, &progress.snapshot());
    let failed = |failure| Error::of(failure, Some(kept()));
    let wish = Wish::Copy(request(options));
    check_patterns(options, &wish)?;
    check_size(&wish)?;
    let client = Client::new(&options.connect, wish, started).map_err(failed)?;
    let memory = client.memory.repaired_by(client.profile.repair());
    let client = Client { memory, ..client };
    let list = options.records.manifest.as_deref().map(List::create).transpose()?;
    let hashes = list.as_ref().map(|list| &list.hashes);
    let earlier = match options.connect.retry.is_zero() {
        true => CarriedEntries::default(),
        false => CarriedEntries::of_first(),
    };
    let earlier = Arc::new(Mutex::new(earlier));
    let make = |_, shared: &Arc<Shared>| {
        Part::new(options, (filter.clone(), hashes.cloned()), earlier.clone(), (shared, memory))
    };
    let finished = client.run(make, progress, stop).map_err(failed)?;
    let mut report = report(&finished, options, filter.as_ref(), started);
    if let Some(list) = list {
        let new_name = new_name(options, &finished.task);
        list.finish(&finished.task, new_name, &mut report, stop)?;
    }
    Ok(report)
}

/// The name at the destination, where the copy did not keep that of its source.
fn new_name<'a>(options: &'a CopyOptions, part: &Part) -> Option<&'a [u8]> {
    let notes = match part.shared.lock().transfer() {
        Some(Transfer::OutgoingCopy(copy)) => copy.result().map_or(0, |result| result.notes),
        _ => part.shared.notes(),
    };
    let destination = match &options.paths {
        CopyPaths::Push { destination, .. } => destination,
        CopyPaths::Pull { destination, .. } => destination.as_os_str().as_bytes(),
    };
    // Names of contents are those in it.
    let is_new = notes & Summary::NEW_NAME != 0 && !options.copy_contents;
    own_name(destination).filter(|_| is_new)
}

/// The list of hashes that the user wants.
struct List {
    hashes: Arc<CopiedHashes>,
    path: PathBuf,
}

impl List {
    fn create(path: &FilePath) -> Result<Self, Error> {
        // It goes at once: inside the source it would be copied.
        drop(UnfinishedList::create(path).map_err(|error| list_error(path, &error))?);
        Ok(Self { hashes: Arc::default(), path: path.to_owned() })
    }

    /// Writes it, if all was copied.
    fn finish(
        self,
        part: &Part,
        new_name: Option<&[u8]>,
        report: &mut CopyReport,
        stop: &Stop,
    ) -> Result<(), Error> {
        let path = self.path.display().to_string();
        if !report.failures.is_empty() {
            report.remarks.push(format!(
                "{path} was not written, since not all was copied: a run that copies all writes it"
            ));
            return Ok(());
        }
        let file =
            UnfinishedList::create(&self.path).map_err(|error| list_error(&self.path, &error))?;
        let mut out = file.writer();
        let skipped = report.skipped.count > 0;
        let open = |path: &[u8], was: &[u8; 16]| match &part.driver {
            Driver::Source(source) => source.reopen(path, was).map(Some),
            Driver::Sink(sink) => match sink.reopen(path) {
                // A FIFO of the server may have been compared with what is not here.
                Err(error) if skipped && error.kind() == io::ErrorKind::NotFound => Ok(None),
                reopened => reopened.map(Some),
            },
        };
        let written = self.hashes.write(&mut out, new_name, open, stop);
        let written = written.and_then(|()| out.flush().map_err(|error| (Vec::new(), error)));
        drop(out);
        match written {
            Ok(()) => {}
            Err((name, error)) if name.is_empty() => return Err(list_error(&self.path, &error)),
            Err(_) if stop.is_requested() => return Err(Error::of(Failure::Stopped, None)),
            Err((name, error)) => {
                let reason = format!(
                    "cannot be hashed for {path}, which was not written: {}",
                    unread(&error)
                );
                let end = EntryEnd::new(EntryCode::Changed, &reason);
                report.failures.push(&shown_path(&name), &end);
                return Ok(());
            }
        }
        let not_utf8 = |names: &str, they: &str| {
            format!(
                "{names} not UTF-8: `longhaul verify` compares {they} by {path}, b3sum cannot read it"
            )
        };
        match self.hashes.not_utf8() {
            0 => {}
            1 => report.remarks.push(not_utf8("1 name is", "it")),
            count => report.remarks.push(not_utf8(&format!("{count} names are"), "them")),
        }
        file.publish().map_err(|error| list_error(&self.path, &error))
    }
}

fn list_error(path: &FilePath, error: &io::Error) -> Error {
    let path = path.display().to_string();
    Error::path(path.clone(), format!("cannot write {path}: {}", unwritten(error)))
}

/// Checks that the paths can be copied together.
fn check(options: &CopyOptions) -> Result<(), Error> {
    let usage = |text: &str| Err(Error::usage(text));
    let (sources, remote): (Vec<&[u8]>, _) = match &options.paths {
        CopyPaths::Push { sources, destination } => {
            let here = sources.iter().map(|path| path.as_os_str().as_bytes());
            (here.collect(), slice::from_ref(destination))
        }
        CopyPaths::Pull { sources, .. } => {
            (sources.iter().map(Vec::as_slice).collect(), &sources[..])
        }
    };
    if sources.is_empty() {
        return usage("nothing to copy");
    }
    let pulled = matches!(options.paths, CopyPaths::Pull { .. });
    remote.iter().try_for_each(|path| check_length(path))?;
    if options.destination_is_name {
        let is_one = sources.len() == 1 && !options.destination_is_directory;
        let is_one = is_one && !(pulled && means_several(sources[0]));
        if !is_one || options.copy_contents || own_name(sources[0]).is_none() {
            return usage("-T gives one source, not its contents, the name DST, without a slash");
        }
    }
    if options.records.manifest.is_some() && (!options.verify || options.update || options.dry_run)
    {
        return usage(
            "--manifest needs hashes of all that is copied: not with --no-verify, -u or -n",
        );
    }
    if options.names.list.is_some()
        && (sources.len() != 1 || !options.copy_contents || options.delete.is_some())
    {
        return usage(
            "--files-from lists names in one directory, and nothing is deleted by it: not with --delete",
        );
    }
    if options.copy_contents {
        return Ok(());
    }
    let nameless = |path: &&[u8]| own_name(path).is_none();
    if pulled && sources.iter().any(nameless) && !sources.iter().all(nameless) {
        return usage("contents of directories and whole sources cannot be mixed in one copy");
    }
    check_names(sources)
}

fn request(options: &CopyOptions) -> Request {
    let CopyOptions { copy_contents, destination_is_name, .. } = *options;
    let (direction, several, label, paths) = match &options.paths {
        CopyPaths::Push { sources, destination } => {
            let digest = options.names.list.as_ref().map(|names| names.digest());
            let label = source_label(sources, copy_contents, digest.as_ref());
            (Direction::Push, sources.len() > 1, label, vec![destination.clone()])
        }
        CopyPaths::Pull { sources, .. } => {
            let several = sources.len() > 1 || sources.iter().any(|path| means_several(path));
            (Direction::Pull, several, [0; 16], sources.clone())
        }
    };
    Request {
        direction,
        // Several sources need one.
        destination_is_directory: options.destination_is_directory || several,
        sync_at_end: options.sync,
        copy_contents,
        unhashed: !options.verify,
        keeps_unchanged: !options.ignore_times,
        keeps_newer: options.update,
        compares_contents: options.checksum,
        destination_is_name,
        dry_run: options.dry_run,
        // The source of a push has them.
        names_follow: options.names.list.is_some() && direction == Direction::Pull,
        destination_stays: options.names.list.is_some() && direction == Direction::Push,
        deletes: options.delete,
        keeps_attributes: options.attributes,
        label,
        paths,
        // The source leaves out what is not to be copied, and a sink that deletes lets it be.
        rules: match direction == Direction::Pull || options.delete.is_some() {
            true => options.rules.clone(),
            false => Vec::new(),
        },
    }
}

/// The server as the user names it: what a tag says to one proves nothing of another, and what came
/// from one is not gone on with from another.
fn server_name(
    ConnectOptions { server: Endpoint { host, port }, ssh, .. }: &ConnectOptions,
) -> Vec<u8> {
    match ssh {
        Some(ssh) => ssh.record_name().into(),
        None => format!("{}:{port}", host.to_ascii_lowercase()).into_bytes(),
    }
}

/// The sources of a pull as the user names them, for who looks at an interrupted copy.
fn sources_for_people(options: &CopyOptions, sources: &[Vec<u8>]) -> Vec<u8> {
    let wish = Wish::Copy(request(options));
    let named = (0..).zip(sources).take(SOURCES_NAMED).filter_map(|(number, path)| {
        options.connect.named(&wish, AskedPart::all_of(number, path)).map(String::into_bytes)
    });
    named.collect::<Vec<_>>().join(&0)
}

/// Each source goes to the destination under its own name: no two of them may have one.
fn check_names(paths: Vec<&[u8]>) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for path in paths {
        if let Some(name) = own_name(path)
            && !names.insert(name)
        {
            return Err(Error::usage(format!(
                "two sources are called {}, and one would take the other's place: copy them one \
                 after the other, to different directories",
                name.escape_ascii()
            )));
        }
    }
    Ok(())
}

/// Checks that own names of a pull's sources which are patterns are right ones.
fn check_patterns(options: &CopyOptions, wish: &Wish) -> Result<(), Error> {
    let CopyPaths::Pull { sources, .. } = &options.paths else { return Ok(()) };
    let own = |path| own_name(path).filter(|_| !options.copy_contents);
    (0..).zip(sources).try_for_each(|(number, path)| {
        let pattern = own(path).filter(|name| is_pattern(name));
        let made = AskedPatterns::new(pattern).map(drop);
        made.map_err(|error| options.connect.wrong_pattern(wish, (number, path), &error))
    })
}

/// No server takes more in a request.
fn check_size(wish: &Wish) -> Result<(), Error> {
    let Wish::Copy(request) = wish else { return Ok(()) };
    let is_long = |rule: &FilterRule| rule.pattern.len() > MAX_PATH;
    if request.rules.iter().any(is_long) {
        return Err(Error::usage(format!("a pattern has {MAX_PATH} bytes at most")));
    }
    request.encode(&mut Vec::new()).map_err(|_| {
        Error::usage(
            "paths at the server and patterns take less than 1 MiB together: copy in parts",
        )
    })
}

/// No server takes a longer path.
fn check_length(path: &[u8]) -> Result<(), Error> {
    if path.len() <= MAX_PATH {
        return Ok(());
    }
    let (len, start) = (path.len(), path[..PATH_SHOWN].escape_ascii());
    Err(Error::usage(format!(
        "a path at a server has {MAX_PATH} bytes at most, and this one has {len}: {start}..."
    )))
}

/// The side of a copy that this host plays.
struct Part {
    driver: Driver,
    shared: Arc<Shared>,
    earlier: Arc<Mutex<CarriedEntries>>,
}

impl Drop for Part {
    /// The next connection counts on from here.
    fn drop(&mut self) {
        let carried = self.shared.lock().transfer_mut().and_then(Transfer::take_carried);
        carried.into_iter().for_each(|carried| *lock(&self.earlier) = carried);
    }
}

/// What works for a copy's side.
enum Driver {
    Source(Arc<SourceDriver>),
    Sink(Arc<SinkDriver>),
}

impl Part {
    fn new(
        options: &CopyOptions,
        (filter, hashes): (Option<Filter>, Option<Arc<CopiedHashes>>),
        earlier: Arc<Mutex<CarriedEntries>>,
        (shared, budget): (&Arc<Shared>, Budget),
    ) -> Result<Self, Failure> {
        if let Some(hashes) = &hashes {
            hashes.begin();
        }
        let driver = match &options.paths {
            CopyPaths::Push { sources, .. } => {
                let source = push(options, sources, filter, shared, budget);
                Driver::Source(Arc::new(source.hashing(hashes)))
            }
            CopyPaths::Pull { sources, destination } => {
                let sink = pull(options, (sources, destination), filter, shared, budget)?;
                Driver::Sink(Arc::new(sink.hashing(hashes)))
            }
        };
        let carried = lock(&earlier).clone();
        shared.change(|half| match half.transfer_mut() {
            Some(Transfer::OutgoingCopy(copy)) => copy.carry(carried),
            Some(Transfer::IncomingCopy(copy)) => copy.carry(carried),
            _ => {}
        });
        options.max_errors.into_iter().for_each(|most| shared.bear_errors(most));
        Ok(Self { driver, shared: shared.clone(), earlier })
    }

    /// Whether nothing of what arrives is kept.
    fn discards(&self) -> bool {
        matches!(&self.driver, Driver::Sink(sink) if sink.discards())
    }
}

fn push(
    options: &CopyOptions,
    sources: &[PathBuf],
    filter: Option<Filter>,
    shared: &Shared,
    budget: Budget,
) -> SourceDriver {
    let tree = SourceTree::local(sources, options.copy_contents)
        .direct(options.direct)
        .filter(filter)
        .limit_names(budget.of_names())
        .keeping(options.attributes, true)
        .dry_run(options.dry_run);
    let belief = match (options.verify, &options.secret) {
        (false, _) => Belief::Unhashed,
        (true, None) => Belief::Nothing,
        (true, Some(secret)) => Belief::Tags(TagKey::new(secret, &server_name(&options.connect))),
    };
    options.names.list.iter().for_each(|names| tree.list_names(names.clone()));
    let mut copy = outgoing(shared, belief, options.dry_run, options.delete.is_some());
    if options.update {
        copy.keep_newer();
    }
    if options.checksum {
        copy.allow_comparisons();
    }
    if options.records.changes {
        copy.want_changes();
    }
    send(shared, budget, options.connect.stall_timeout, copy);
    let driver = SourceDriver::new(tree, options.verify);
    driver.expecting(&options.names.due, !options.rules.is_empty())
}

fn pull(
    options: &CopyOptions,
    (sources, destination): (&[Vec<u8>], &FilePath),
    filter: Option<Filter>,
    shared: &Shared,
    budget: Budget,
) -> Result<SinkDriver, Failure> {
    // Its address may be another one by another route.
    let place = server_name(&options.connect);
    let mut source = vec![&place[..]];
    source.extend(sources.iter().map(Vec::as_slice));
    // Of contents the names are the server's: what another copy has left vouches for none of them.
    source.extend(options.copy_contents.then_some(&b"/."[..]));
    let digest = options.names.list.as_ref().map(|names| names.digest());
    source.extend(digest.as_ref().map(|digest| &digest[..]));
    let label = OsStr::as_bytes(destination.as_os_str());
    let transfer = transfer_id(&source, label, options.verify);
    let names = asked_names(options, sources)?;
    let several = sources.len() > 1 || sources.iter().any(|path| means_several(path));
    let fsync = fsync(options.sync);
    let keeps = Keeps {
        unchanged: !options.ignore_times,
        newer: options.update,
        equal: options.checksum,
        directories: true,
    };
    let sink_options = SinkOptions {
        is_directory: options.destination_is_directory || several,
        is_name: options.destination_is_name,
        contents: names.are_contents(),
        transfer,
        fsync,
        direct: options.direct,
        only_empty: names.are_contents() && !options.merge && options.names.list.is_none(),
        goes_on: true,
        dry_run: options.dry_run,
        stays: options.names.list.is_some(),
        keeps_modes: options.attributes.has(KeptAttributes::MODES),
        keeps,
    };
    let (tree, resume) = Target::open(Destination::Local(destination), &sink_options)
        .map_err(Failure::Destination)?;
    let tree = tree.deleting(options.delete, filter).keeping(options.attributes, true);
    let config = sink_config(fsync, transfer, budget, Some(names), keeps);
    let (deletes, attributes) = (options.delete.is_some(), options.attributes);
    let sources = sources_for_people(options, sources);
    let config = SinkConfig { deletes, attributes, sources, dry_run: options.dry_run, ..config };
    let mut copy = IncomingCopy::new(config, resume);
    options.names.list.iter().for_each(|names| copy.ask_names(names.clone()));
    if options.records.changes {
        copy.want_changes();
    }
    receive(shared, copy, budget, options.connect.stall_timeout);
    Ok(SinkDriver::new(tree, options.verify))
}

/// Names that a server may give to what it sends.
fn asked_names(options: &CopyOptions, sources: &[Vec<u8>]) -> Result<TopNames, Failure> {
    if let Some(names) = &options.names.list {
        return Ok(TopNames::Listed(names.clone()));
    }
    let own = |path| own_name(path).filter(|_| !options.copy_contents);
    let (patterns, names): (Vec<_>, Vec<_>) =
        sources.iter().map(|path| own(path)).partition(|name| name.is_some_and(is_pattern));
    let names = TopNames::asked(names);
    if patterns.is_empty() {
        return Ok(names);
    }
    let patterns = AskedPatterns::new(patterns.into_iter().flatten())
        .map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(match names {
        TopNames::Only(names) => TopNames::Matching(names, Arc::new(patterns)),
        others => others,
    })
}

/// The policy of a sink that is to make its files durable, or need not.
pub(crate) fn fsync(sync: bool) -> Fsync {
    if sync {
        return Fsync::End;
    }
    // Where the boot is unknown, random bytes make sure that nothing unsynced is trusted.
    Fsync::Never { boot: boot_id().unwrap_or_else(|_| random::bytes().unwrap_or_default()) }
}

/// A copy that this end sends: to a sink that only looks, or deletes.
fn outgoing(shared: &Shared, belief: Belief, dry_run: bool, deletes: bool) -> OutgoingCopy {
    let mut copy = OutgoingCopy::new(clock::now(), shared.mailboxes.count(), belief);
    if dry_run {
        copy.begin_dry_run();
    }
    if deletes {
        copy.expect_deletions();
    }
    copy
}

/// This end sends a copy.
fn send(shared: &Shared, budget: Budget, patience: Duration, copy: OutgoingCopy) {
    shared.begin(Transfer::OutgoingCopy(Box::new(copy)), Memory::OF_SOURCE, budget, patience);
}

/// This end gets a copy.
pub(crate) fn receive(
    shared: &Shared,
    copy: IncomingCopy<Buffer>,
    budget: Budget,
    patience: Duration,
) {
    shared.begin(Transfer::IncomingCopy(Box::new(copy)), Memory::OF_SINK, budget, patience);
}

impl Task for Part {
    const THREADS_END: bool = true;

    fn start(&self) -> io::Result<()> {
        self.driver.start(&self.shared)
    }

    fn errand(&self) -> Option<Errand> {
        let Driver::Source(source) = &self.driver else { return None };
        Some(Errand::Copy(self.shared.clone(), source.clone()))
    }

    fn given_up(&self) -> Option<Failure> {
        let failed = self.shared.too_many_failed()?;
        let first = self.shared.failures().sample.first().map(ToString::to_string);
        Some(Failure::TooManyErrors { failed, first: first.unwrap_or_default() })
    }

    fn so_far(&self, backlog: u64) -> Snapshot {
        match self.shared.lock().transfer() {
            Some(Transfer::OutgoingCopy(copy)) => {
                let stats = copy.stats();
                let held = stats.held_bytes.saturating_sub(backlog);
                Snapshot {
                    bytes_named: stats.confirmed_bytes,
                    bytes_done: stats.confirmed_bytes + stats.unchanged_bytes + held,
                    bytes_total: stats.complete.then_some(stats.bytes),
                    would_change: stats.would_change.1,
                    files_named: (stats.confirmed + stats.carried.0).into(),
                    files_done: (stats.confirmed + stats.unchanged).into(),
                    files_total: stats.complete.then_some(stats.entries.into()),
                    resumed_bytes: stats.resumed_bytes,
                    ..Snapshot::default()
                }
            }
            Some(Transfer::IncomingCopy(copy)) => {
                let stats = copy.stats();
                Snapshot {
                    bytes_named: stats.confirmed_bytes,
                    bytes_done: copy.bytes_there(),
                    bytes_total: stats.complete.then_some(stats.bytes),
                    would_change: stats.would_change.1,
                    files_named: (stats.confirmed + stats.carried.0).into(),
                    files_done: (stats.confirmed + stats.unchanged).into(),
                    files_total: stats.complete.then_some(stats.entries.into()),
                    resumed_bytes: stats.resumed_bytes,
                    ..Snapshot::default()
                }
            }
            _ => Snapshot::default(),
        }
    }
}

fn report(
    finished: &Finished<Part>,
    options: &CopyOptions,
    filter: Option<&Filter>,
    started: Instant,
) -> CopyReport {
    let &Finished { ref task, elapsed, validated, ref link, resumed_first } = finished;
    let mut unannounced = Vec::new();
    let (mut stays, mut would_change, mut carried) = ((0, 0), (0, 0), (0, 0));
    let mut stayed = Stayed::default();
    let (missed, not_kept) = (task.shared.missed(), task.shared.not_kept());
    let mut lost = Unkept { missed, not_kept, kept: options.attributes };
    let (bytes, files, resumed_bytes, notes) = match task.shared.lock().transfer() {
        Some(Transfer::OutgoingCopy(copy)) => {
            let stats = copy.stats();
            stays = (stats.unchanged, stats.unchanged_bytes);
            (stayed, would_change) = (stats.stayed, stats.would_change);
            carried = stats.carried;
            copy.result().map_or((0, 0, 0, 0), |result| {
                lost.not_kept = result.not_kept;
                (result.bytes.get(), result.confirmed, result.resumed.get(), result.notes)
            })
        }
        Some(Transfer::IncomingCopy(copy)) => {
            let stats = copy.stats();
            stays = (stats.unchanged, stats.unchanged_bytes);
            (stayed, would_change) = (stats.stayed, stats.would_change);
            carried = stats.carried;
            let notes = task.shared.notes();
            unannounced = self::unannounced(copy, &options.names.due, filter);
            lost.add_missed(copy.source_report());
            (stats.confirmed_bytes, stats.confirmed.into(), stats.resumed_bytes, notes)
        }
        _ => (0, 0, 0, 0),
    };
    stays = (stays.0 - would_change.0 - carried.0, stays.1 - would_change.1 - carried.1);
    let bytes_done = task.so_far(0).bytes_done.saturating_sub(would_change.1).max(bytes);
    let (mut failures, mut skipped) = (task.shared.failures(), task.shared.skipped());
    let deletions = task.shared.lock().transfer().and_then(Transfer::deletions).cloned();
    let deleted = DeletedNames::of(&deletions.unwrap_or_default(), &mut failures, &mut skipped);
    unannounced.iter().for_each(|(name, end)| failures.push(name, end));
    CopyReport {
        bytes: bytes + carried.1,
        files: files + u64::from(carried.0),
        bytes_done,
        elapsed,
        setup: validated.map_or(elapsed, |at| at - started),
        resumed_bytes: resumed_first.map_or(resumed_bytes, |first| first.min(resumed_bytes)),
        discarded: task.discards(),
        verified: options.verify && failures.is_empty(),
        remarks: remarks::of(notes, &options.paths, &lost.without(options.records.unmissed)),
        failures,
        skipped,
        unchanged: (stays.0.into(), stays.1),
        compared: options.checksum,
        newer: stayed.newer.into(),
        mended: stayed.mended.into(),
        would_change: (would_change.0.into(), would_change.1),
        deleted,
        link: link.clone(),
    }
}

/// Names that were asked for and of which the server says nothing, and those that are `due` of it.
fn unannounced(
    copy: &IncomingCopy<Buffer>,
    due: &[Vec<u8>],
    filter: Option<&Filter>,
) -> Vec<(String, EntryEnd)> {
    // A name that a rule excludes is not missed.
    let is_missed = |name: &&[u8]| {
        filter.is_none_or(|filter| filter.admits(name, true) && filter.admits(name, false))
    };
    let listed = copy.unannounced_of_list().filter(is_missed).map(shown_path);
    let reason = "the server has announced neither it nor a failure, so it was not copied";
    let end = EntryEnd::new(EntryCode::Failed, reason);
    let missed = copy.unannounced().into_iter().chain(listed).map(|name| (name, end.clone()));
    let due = missed_at_server(copy, due).into_iter();
    let due = due.map(|(name, why)| (shown_path(name), why.end("at the server", filter.is_some())));
    missed.chain(due).collect()
}

/// Neither on the way nor by its hash.
const UNCHECKED: &str = "nothing would notice corrupted data: what is neither verified nor protected on its \
                         way is not copied";

/// Of a sink of this program; of a client, with the `names` that it asked for.
fn sink_config(
    fsync: Fsync,
    transfer: [u8; 16],
    memory: Budget,
    names: Option<TopNames>,
    keeps: Keeps,
) -> SinkConfig {
    SinkConfig {
        capacity: memory.of_sink().get(),
        fsync,
        transfer,
        sources: Vec::new(),
        // Without randomness TLS would have failed before.
        nonce: random::bytes().unwrap_or_default(),
        // A client's record is its own.
        asks: names.is_none(),
        names: names.unwrap_or_default(),
        keeps,
        attributes: KeptAttributes::default(),
        deletes: false,
        dry_run: false,
    }
}

/// Sources that a record names: more do not fit.
const SOURCES_NAMED: usize = 100;
/// Bytes of a path that is too long to be shown.
const PATH_SHOWN: usize = 60;

#[cfg(test)]
mod tests;
