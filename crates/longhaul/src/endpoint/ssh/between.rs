//! A copy between two other hosts: ssh runs a server at one, and at the other who copies to it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::process::Child;
use std::sync::Arc;

use longhaul_control::tls_stream::is_transient;
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_sys::wait::{Interest, wait};
use longhaul_units::{Duration, Instant};
use longhaul_wire::{SshFrame, SshOnward, SshPurpose};

use super::command::{SshHost, SshOptions};
use super::start::{Begun, Parts, begin, question};
use super::started::await_end;
use crate::error::{Error, ErrorKind, Side};

/// A copy from one host to another, both reached by ssh.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BetweenOptions {
    /// The host with the data.
    pub from: SshOptions,
    /// The host that gets it.
    pub to: SshOptions,
    /// Paths at the first, as people write them.
    pub sources: Vec<Vec<u8>>,
    /// Path at the second, likewise.
    pub destination: Vec<u8>,
    /// Words of the command that the first carries out: those behind the program's name.
    pub words: Vec<OsString>,
}

impl BetweenOptions {
    /// Of these places, by a command with these words.
    pub fn new(
        (from, sources): (SshOptions, Vec<Vec<u8>>),
        (to, destination): (SshOptions, Vec<u8>),
        words: Vec<OsString>,
    ) -> Self {
        Self { from, to, sources, destination, words }
    }
}

/// Starts a server at [`BetweenOptions::to`], and has [`BetweenOptions::from`] copy to it: straight, or where that
/// does not reach it, through this host. Lines for people go to `words`. Each line of what the first host reports
/// goes to `report`, which returns true for the last; the copy is over then.
///
/// # Errors
/// A server does not start or grant it, ssh ends too early, or `stop` was asked for. What was written is kept.
pub fn copy_between(
    options: &BetweenOptions,
    words: Arc<dyn Fn(&str) + Send + Sync>,
    report: &mut dyn FnMut(&str) -> bool,
    stop: &Stop,
) -> Result<(), Error> {
    let BetweenOptions { from, to, sources, destination, .. } = options;
    let ask = question(to, SshPurpose::Push, std::slice::from_ref(destination))?;
    let (parts, found) = begin(to, ask, words.clone(), stop)?.door(to)?;
    found.lacks_ports().iter().for_each(|lack| words(lack));
    let there = End::new(parts, &to.host)?;
    let onward = SshOnward {
        entry: found.entry,
        frames: found.frames,
        host: found.host,
        name: to.host.record_name(),
        addresses: found.addresses,
        destination: found.paths.concat(),
        words: options.words.iter().map(|word| word.clone().into_vec()).collect(),
    };
    let ask = question(from, SshPurpose::Onward, sources)?;
    let ask = longhaul_wire::SshAsk { onward: Some(onward), ports: None, ..ask };
    let Begun { parts, rest, .. } = begin(from, ask, words, stop)?;
    let here = End::new(parts, &from.host)?;
    let mut passing = Passing { from: here, to: there, frames: rest, line: Vec::new(), ends: None };
    passing.carry(report, stop)
}

/// The two hosts between which this one passes frames on.
struct Passing {
    /// The host that copies.
    from: End,
    /// The server.
    to: End,
    /// Bytes of the first that are no whole frame yet.
    frames: Vec<u8>,
    /// The beginning of a line.
    line: Vec<u8>,
    /// When it is over at the latest, as one of them has left or is to leave.
    ends: Option<Instant>,
}

impl Passing {
    fn carry(&mut self, report: &mut dyn FnMut(&str) -> bool, stop: &Stop) -> Result<(), Error> {
        loop {
            if self.handle(report)? {
                (self.from.served, self.to.served) = (true, true);
                return Ok(());
            }
            if stop.is_requested() && self.from.input.take().is_some() {
                // It leaves what can be gone on with; the server ends behind it.
                self.ends = Some(clock::now() + LEAVING);
            }
            if self.to.is_over && self.ends.is_none() {
                self.ends = Some(clock::now() + BEHIND);
            }
            let is_late = self.ends.is_some_and(|at| clock::now() >= at);
            match (stop.is_requested(), self.from.is_over || is_late) {
                (_, false) => {}
                (true, true) => return Err(Error::stopped()),
                (false, true) => return Err(self.left()),
            }
            self.to.write()?;
            self.from.write()?;
            self.await_some()?;
            let more = self.from.read(self.to.waiting.len())?;
            self.frames.extend(more);
            let more = self.to.read(self.from.waiting.len())?;
            self.from.waiting.extend(more);
        }
    }

    /// One of them is gone too early.
    fn left(&self) -> Error {
        let gone = if self.from.is_over { &self.from } else { &self.to };
        let message = format!("{}: ssh ended before the copy did", gone.host);
        Error { may_pass: true, ..Error::new(ErrorKind::Lost, Side::Between, message) }
    }

    /// Takes the whole frames that came; true behind the last report.
    fn handle(&mut self, report: &mut dyn FnMut(&str) -> bool) -> Result<bool, Error> {
        let mut done = 0;
        let strange = |host: &SshHost| {
            let message = format!("{host} answers with something else than longhaul does");
            Error::new(ErrorKind::Violation, Side::There, message)
        };
        loop {
            let next = SshFrame::parse(&self.frames[done..]);
            let Some((frame, len)) = next.map_err(|_| strange(&self.from.host))? else { break };
            match frame {
                SshFrame::Report { bytes } => self.line.extend(bytes),
                // It would open a firewall to this host.
                SshFrame::First { .. } => {}
                _ => self.to.waiting.extend(&self.frames[done..done + len]),
            }
            done += len;
        }
        self.frames.drain(..done);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            if report(String::from_utf8_lossy(&line).trim_end()) {
                return Ok(true);
            }
        }
        match self.line.len() > LINE_MAX {
            true => Err(strange(&self.from.host)),
            false => Ok(false),
        }
    }

    fn await_some(&self) -> Result<(), Error> {
        let mut sources = Vec::new();
        for (end, other) in [(&self.from, &self.to), (&self.to, &self.from)] {
            if !end.is_over && other.waiting.len() <= WAITING_MAX {
                sources.push((end.output.as_fd(), Interest::Readable));
            }
            if let Some(input) = end.input.as_ref().filter(|_| !end.waiting.is_empty()) {
                sources.push((input.as_fd(), Interest::Writable));
            }
        }
        wait(&sources, Some(clock::now() + LOOK)).map(drop).map_err(cannot)
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        // Neither waits for the end of the other.
        (self.from.input, self.to.input) = (None, None);
    }
}

/// ssh to one of both hosts.
struct End {
    host: SshHost,
    /// Until it is waited for.
    child: Option<Child>,
    input: Option<File>,
    output: File,
    /// Bytes for its input.
    waiting: Vec<u8>,
    /// Its output has ended.
    is_over: bool,
    /// All is done: nobody has to wait for it to end.
    served: bool,
}

impl End {
    fn new(parts: Parts, host: &SshHost) -> Result<Self, Error> {
        let Parts { child, input, output, .. } = parts;
        let input = input.map(OwnedFd::from).map(File::from);
        let output = File::from(OwnedFd::from(output));
        let host = host.clone();
        let (child, waiting) = (Some(child), Vec::new());
        let this = Self { host, child, input, output, waiting, is_over: false, served: false };
        let streams = this.input.iter().chain([&this.output]);
        streams
            .into_iter()
            .try_for_each(|it| rustix::io::ioctl_fionbio(it, true))
            .map_err(|error| cannot(error.into()))?;
        Ok(this)
    }

    /// Bytes that are there; none while as many as `waiting` are to go to the other one.
    fn read(&mut self, waiting: usize) -> Result<Vec<u8>, Error> {
        let mut chunk = vec![0; CHUNK];
        if self.is_over || waiting > WAITING_MAX {
            return Ok(Vec::new());
        }
        let len = match self.output.read(&mut chunk) {
            Ok(len) => len,
            Err(error) if is_transient(&error) => return Ok(Vec::new()),
            Err(error) => return Err(cannot(error)),
        };
        self.is_over = len == 0;
        chunk.truncate(len);
        Ok(chunk)
    }

    /// Writes what its input takes.
    fn write(&mut self) -> Result<(), Error> {
        let Some(input) = &mut self.input else {
            self.waiting.clear();
            return Ok(());
        };
        let mut done = 0;
        while done < self.waiting.len() {
            match input.write(&self.waiting[done..]) {
                Ok(len) => done += len,
                Err(error) if is_transient(&error) => break,
                // It is over, and its output says so.
                Err(_) => done = self.waiting.len(),
            }
        }
        self.waiting.drain(..done);
        Ok(())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        drop(self.input.take());
        self.child.take().into_iter().for_each(|child| await_end(child, self.served));
    }
}

fn cannot(error: io::Error) -> Error {
    Error::here(format!("cannot talk to ssh: {error}"))
}

/// Between two looks if it was stopped.
const LOOK: Duration = Duration::from_millis(100);
/// For the host that copies to leave, once it is asked to.
const LEAVING: Duration = Duration::from_millis(1500);
/// For the host that copies to say that it is done, behind the end of the server.
const BEHIND: Duration = Duration::from_secs(10);
/// Bytes of a line: a report has samples of what failed.
const LINE_MAX: usize = 16 << 20;
/// Bytes for one host before the other one is not read any more.
const WAITING_MAX: usize = 256 << 10;
const CHUNK: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, pipe};
    use std::process::{Command, Stdio};

    use super::*;

    /// A host, and the far ends of its input and output.
    fn host(name: &str) -> (End, PipeReader, PipeWriter) {
        let ((input, to_input), (from_output, output)) = (pipe().unwrap(), pipe().unwrap());
        let child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
        for stream in [to_input.as_fd(), from_output.as_fd()] {
            rustix::io::ioctl_fionbio(stream, true).unwrap();
        }
        let end = End {
            host: SshHost::new(name, None).unwrap(),
            child: Some(child),
            input: Some(File::from(OwnedFd::from(to_input))),
            output: File::from(OwnedFd::from(from_output)),
            waiting: Vec::new(),
            is_over: false,
            served: false,
        };
        (end, input, output)
    }

    /// The result of `frames` of the first host: its reports, the outcome, and what reaches the second.
    fn passed(frames: &[u8]) -> (Vec<String>, Result<(), Error>, Vec<u8>) {
        let ((from, _input, mut output), (to, mut there, _answers)) = (host("a"), host("b"));
        let (split, rest) = frames.split_at(frames.len().min(3));
        output.write_all(rest).unwrap();
        drop(output);
        let frames = split.to_vec();
        let mut passing = Passing { from, to, frames, line: Vec::new(), ends: None };
        let mut lines = Vec::new();
        let mut report = |line: &str| {
            lines.push(line.to_owned());
            line == "last"
        };
        let ended = passing.carry(&mut report, &Stop::default());
        passing.to.write().unwrap();
        drop(passing);
        let mut got = Vec::new();
        there.read_to_end(&mut got).unwrap();
        (lines, ended, got)
    }

    #[test]
    fn frames_are_passed_on_but_for_reports_which_are_lines_and_for_ports() {
        let open = [1, 0, 1, 0, 0];
        let data = [2, 0, 1, 0, 2, 7, 8];
        let frames = [
            &open[..],
            &[7, 0, 0, 0, 4],
            b"a\nla",
            &[6, 0, 0, 0, 2, 18, 52],
            &data,
            &[7, 0, 0, 0, 3],
            b"st\n",
        ];
        let (lines, ended, there) = passed(&frames.concat());
        assert_eq!((lines, ended), (vec!["a".to_owned(), "last".to_owned()], Ok(())));
        assert_eq!(there, [&open[..], &data].concat());
    }

    #[test]
    fn what_is_no_frame_and_an_end_too_early_are_failures_of_that_host() {
        let (_, ended, _) = passed(b"Last login: yesterday");
        let error = ended.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Violation);
        assert_eq!(error.message, "a answers with something else than longhaul does");
        let (lines, ended, _) = passed(&[7, 0, 0, 0, 1, b'x']);
        assert_eq!(ended.unwrap_err().message, "a: ssh ended before the copy did");
        assert_eq!(lines, [""; 0]);
    }
}
