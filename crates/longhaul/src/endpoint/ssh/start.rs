//! The client's end: runs ssh, and asks the server that it starts.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_control::tunnel::Tunnel;
use longhaul_files::own_name;
use longhaul_sys::process::wait_for_end;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_sys::wait::{Interest, wait};
use longhaul_sys::{clock, random, threads};
use longhaul_units::{shown, shown_path};
use longhaul_wire::{
    DecodeError, MAX_SSH_NOISE, SSH_VERSION, SshAnswer, SshAsk, SshPurpose, SshRefusal, SshServing,
};

use super::command::{SshHost, SshOptions};
use super::started::{Found, NoServer, SshServer, Streams};
use crate::error::{Error, ErrorKind, Side};

/// Starts a server that grants `purpose` for `paths`, which are as people write them behind `HOST:`.
/// Lines that ssh and the server write for people go to `words`, now and later. Blocks while
/// ssh asks the user, and until the server listens.
///
/// ```no_run
/// use std::sync::Arc;
/// use longhaul::{
///     ConnectOptions, CopyOptions, CopyPaths, Progress, SshHost, SshOptions, SshPurpose, Stop, start_by_ssh,
/// };
///
/// let options = SshOptions::new(SshHost::new("me@dtn2.example", None)?);
/// let words = Arc::new(|line: &str| eprintln!("{line}"));
/// let stop = Stop::default();
/// let server = start_by_ssh(&options, SshPurpose::Pull, &[b"run-17".to_vec()], words, &stop)?;
/// let sources = server.paths().to_vec();
/// let paths = CopyPaths::Pull { sources, destination: "here".into() };
/// let copy = CopyOptions::new(ConnectOptions::over_ssh(&server), paths);
/// longhaul::copy(&copy, &Progress::default(), &stop)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// ssh or the server did not start, the server refuses, or `stop` was asked for.
pub fn start_by_ssh(
    options: &SshOptions,
    purpose: SshPurpose,
    paths: &[Vec<u8>],
    words: Arc<dyn Fn(&str) + Send + Sync>,
    stop: &Stop,
) -> Result<Arc<SshServer>, Error> {
    let ask = question(options, purpose, paths)?;
    let (parts, found) = begin(options, ask, words.clone(), stop)?.door(options)?;
    let here = |error: io::Error| Error::here(format!("cannot run ssh: {error}"));
    let (child, streams) = parts.streams(found.frames).map_err(here)?;
    let (again, paths) = (options.clone(), paths.to_vec());
    let restart = move |stop: &Stop| {
        start_by_ssh(&again, purpose, &paths, words.clone(), stop)
            .map_err(|error| NoServer { may_pass: error.may_pass, reason: error.message })
    };
    let name = options.host.record_name();
    Ok(Arc::new(SshServer::new(name, Box::new(restart), found, (child, streams))))
}

/// The question for `purpose` and these paths.
pub(super) fn question(
    options: &SshOptions,
    purpose: SshPurpose,
    paths: &[Vec<u8>],
) -> Result<SshAsk, Error> {
    let here = |error: io::Error| Error::here(format!("cannot run ssh: {error}"));
    Ok(SshAsk {
        mark: random::bytes().map_err(here)?,
        versions: vec![SSH_VERSION],
        purpose,
        ports: options.ports,
        implementation: Some(crate::implementation::IMPLEMENTATION.into()),
        paths: paths.to_vec(),
        onward: None,
    })
}

/// A server that has answered, and grants what it was asked for.
pub(super) struct Begun {
    pub parts: Parts,
    pub serving: SshServing,
    /// Bytes behind its answer.
    pub rest: Vec<u8>,
    asked: Vec<Vec<u8>>,
    resolved: Option<mpsc::Receiver<Option<String>>>,
}

/// Starts a server, and asks it.
pub(super) fn begin(
    options: &SshOptions,
    ask: SshAsk,
    words: Arc<dyn Fn(&str) + Send + Sync>,
    stop: &Stop,
) -> Result<Begun, Error> {
    begin_once(options, ask, words, stop).map_err(|error| Error {
        may_pass: matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Failed),
        ..error
    })
}

fn begin_once(
    options: &SshOptions,
    ask: SshAsk,
    words: Arc<dyn Fn(&str) + Send + Sync>,
    stop: &Stop,
) -> Result<Begun, Error> {
    let mut question = Vec::new();
    ask.encode(&mut question).map_err(|_| Error::usage(TOO_LONG))?;
    let mut running = Running::start(options.command()?, words)?;
    let resolved = options.configuration().map(hostname);
    let (answer, rest) = running.converse(&question, &ask.mark, options, stop)?;
    let serving = answer.outcome.map_err(|SshRefusal { reason, path }| {
        let path = path.and_then(|path| ask.paths.get(usize::from(path)));
        let host = shown(&options.host.destination());
        let place =
            path.map_or(format!("{host}: "), |path| format!("{host}:{}: ", shown_path(path)));
        Error::new(ErrorKind::Refused, Side::There, format!("{place}{}", shown(&reason)))
    })?;
    check_names(options, &ask.paths, &serving.paths)?;
    Ok(Begun { parts: running.take(), serving, rest, asked: ask.paths, resolved })
}

impl Begun {
    /// The server's door.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn door(mut self, options: &SshOptions) -> Result<(Parts, Found), Error> {
        let SshServing { entry, address, paths, frames, taken } = self.serving;
        let Some(entry) = entry else {
            self.parts.give_up();
            let message = format!("{} does not say where it listens", options.host);
            return Err(Error::new(ErrorKind::Violation, Side::There, message));
        };
        // Without one, what the user wrote is as good as anything.
        let resolved = self.resolved.and_then(|it| it.recv_timeout(PATIENCE).ok().flatten());
        let resolved = resolved.unwrap_or_else(|| options.host.host().to_owned());
        let mut addresses: Vec<String> = address.into_iter().collect();
        if !addresses.contains(&resolved) {
            addresses.push(resolved);
        }
        let (host, destination) = (options.host.host().to_owned(), options.host.destination());
        let asked = self.asked;
        let found = Found { host, destination, asked, entry, addresses, paths, frames, taken };
        Ok((self.parts, found))
    }
}

/// ssh, until the server has answered.
struct Running(Option<Parts>);

pub(super) struct Parts {
    pub child: Child,
    pub input: Option<ChildStdin>,
    pub output: ChildStdout,
    /// The last line for people, and the thread that reads them.
    last: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Running {
    fn start(mut command: Command, words: Arc<dyn Fn(&str) + Send + Sync>) -> Result<Self, Error> {
        let program = command.get_program().display().to_string();
        let mut child = command.spawn().map_err(|error| {
            let hint = "-e CMD or LONGHAUL_SSH names another";
            Error::here(format!("cannot run {}: {error}", shown(&program))).hint(hint)
        })?;
        let (input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (output, errors) = output.zip(errors).expect("the command has pipes for both");
        let last = Arc::new(Mutex::new(String::new()));
        let last_known = last.clone();
        let follow = move || {
            let mut lines = BufReader::new(errors);
            while let Some(line) = next_line(&mut lines) {
                let line = shown(&line);
                words(&line);
                if !line.is_empty() {
                    *lock(&last_known) = line;
                }
            }
        };
        match threads::spawn("ssh-words", follow) {
            Ok(reader) => Ok(Self(Some(Parts { child, input, output, last, reader }))),
            Err(error) => {
                end(&mut child);
                Err(Error::here(format!("cannot run ssh: {error}")))
            }
        }
    }

    /// Asks, and waits for the answer.
    fn converse(
        &mut self,
        mut question: &[u8],
        mark: &[u8; 16],
        options: &SshOptions,
        stop: &Stop,
    ) -> Result<(SshAnswer, Vec<u8>), Error> {
        let here = |error: io::Error| Error::here(format!("cannot talk to ssh: {error}"));
        let host = &options.host;
        let parts = self.0.as_mut().expect("it is taken at the end");
        let mut bytes = Vec::new();
        if let Some(input) = &parts.input {
            // ssh reads nothing while it asks the user for a password.
            rustix::io::ioctl_fionbio(input, true).map_err(|error| here(error.into()))?;
        }
        loop {
            if stop.is_requested() {
                return Err(Error::stopped());
            }
            let mut sources = vec![(parts.output.as_fd(), Interest::Readable)];
            let input = parts.input.as_ref().filter(|_| !question.is_empty());
            sources.extend(input.map(|input| (input.as_fd(), Interest::Writable)));
            let ready = wait(&sources, Some(clock::now() + LOOK)).map_err(here)?;
            if ready & 2 != 0
                && let Some(input) = &mut parts.input
            {
                match input.write(question) {
                    Ok(len) => question = &question[len..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // It ends, and its output says why.
                    Err(_) => question = &[],
                }
            }
            if ready & 1 == 0 {
                continue;
            }
            let mut chunk = [0; 16 << 10];
            let len = parts.output.read(&mut chunk).map_err(here)?;
            if len == 0 {
                return Err(parts.ended(&bytes, options));
            }
            bytes.extend_from_slice(&chunk[..len]);
            match SshAnswer::parse(mark, &bytes) {
                Ok(None) => {}
                Ok(Some((answer, len))) => return Ok((answer, bytes.split_off(len))),
                Err(error) => {
                    let message = no_answer(host, &error, mark, &bytes);
                    return Err(Error::new(ErrorKind::Unreachable, Side::There, message));
                }
            }
        }
    }

    fn take(mut self) -> Parts {
        self.0.take().expect("it is taken once")
    }
}

impl Parts {
    /// ssh, and what its streams are for from now on.
    fn streams(self, frames: bool) -> io::Result<(Child, Streams)> {
        let Self { child, input, mut output, .. } = self;
        let streams = match input {
            Some(input) if frames => {
                Streams::Tunnel(Arc::new(Tunnel::client(output.into(), input.into())?))
            }
            input => {
                // ssh would wait for a reader of what a login script's child may still write.
                let passed_over = move || drop(io::copy(&mut output, &mut io::sink()));
                threads::spawn("ssh-output", passed_over)?;
                Streams::Input(Mutex::new(input))
            }
        };
        Ok((child, streams))
    }

    fn give_up(&mut self) {
        drop(self.input.take());
        end(&mut self.child);
    }

    /// ssh has closed its output: why.
    fn ended(&mut self, output: &[u8], options: &SshOptions) -> Error {
        let over = wait_for_end(&self.child, clock::now() + PATIENCE).unwrap_or(false);
        if !over {
            let _ = self.child.kill();
        }
        let status = match self.child.wait() {
            Ok(status) => status,
            Err(error) => return Error::here(format!("cannot wait for ssh: {error}")),
        };
        // The last words are the reason. What ssh has left behind may hold its standard error open.
        let until = clock::now() + MOMENT;
        while !self.reader.is_finished() && clock::now() < until {
            std::thread::sleep(MOMENT / 100);
        }
        let last = lock(&self.last).clone();
        let words = if last.is_empty() { beginning(output) } else { last };
        options.explain(status, &words)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Parts::give_up);
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The host that ssh resolves the name to, when it is known.
fn hostname(mut command: Command) -> mpsc::Receiver<Option<String>> {
    let (found, receiver) = mpsc::channel();
    let ask = move || {
        let output = command.output().ok().filter(|output| output.status.success());
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let line = |text: String| {
            text.lines().find_map(|line| line.strip_prefix("hostname ").map(str::to_owned))
        };
        let _ = found.send(text.and_then(line));
    };
    // Without it the sender is gone, and there is no answer.
    drop(threads::spawn("ssh-config", ask));
    receiver
}

/// [10-7] of the protocol: a server does not choose the names that files get here.
fn check_names(options: &SshOptions, asked: &[Vec<u8>], places: &[Vec<u8>]) -> Result<(), Error> {
    let nameless = |path: &[u8]| path == b"~";
    let fits = |(asked, place): (&Vec<u8>, &Vec<u8>)| match own_name(asked) {
        Some(name) if !nameless(asked) => own_name(place) == Some(name),
        _ => true,
    };
    if asked.len() == places.len() && asked.iter().zip(places).all(fits) {
        return Ok(());
    }
    let message = format!("{} answers with other paths than it was asked for", options.host);
    Err(Error::new(ErrorKind::Violation, Side::There, message))
}

/// The next line, or as much of a long one as people read; nothing at the end.
fn next_line(from: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let read = from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).ok()?;
    (read > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Why these bytes, which may begin with what login scripts write, hold no answer.
fn no_answer(host: &SshHost, error: &DecodeError, mark: &[u8; 16], bytes: &[u8]) -> String {
    let begins = beginning(bytes);
    match bytes.windows(mark.len()).take(MAX_SSH_NOISE + 1).any(|it| it == mark) {
        true => {
            format!("{host} answers with something else than longhaul does ({error}): {begins}")
        }
        false => format!(
            "{host}: more than {} KiB came before longhaul answered, as much as is passed over; a login \
             script there may write it, which begins: {begins}",
            MAX_SSH_NOISE >> 10
        ),
    }
}

/// The beginning of what came, for people.
fn beginning(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(BEGINNING)]).into_owned();
    shown(text.trim())
}

/// Between two looks if it was stopped.
const LOOK: Duration = Duration::from_millis(100);
/// For what takes no network.
const PATIENCE: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(500);
/// Bytes of a line for people, and of what is no answer.
const LINE_MAX: u64 = 1024;
const BEGINNING: usize = 200;
const TOO_LONG: &str = "these paths and options are too long together";
