//! The server that ssh starts: `longhaul serve --ssh`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_control::tunnel::Tunnel;
use longhaul_session::Token;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_sys::{clock, random};
use longhaul_wire::{
    DecodeError, SSH_MARK_LEN, SshAnswer, SshAsk, SshEntry, SshOnward, SshPurpose, SshRefusal,
    SshServing,
};

use super::arrivals::{SshArrivals, SshEnds};
use super::grant::Grant;
use super::meeting::Meeting;
use super::onward::OnwardCopy;
use super::paths::Base;
use crate::api::ServeEvent;
use crate::endpoint::serve::Server;
use crate::error::{Error, ErrorKind, Side};
use crate::options::{Access, ServeOptions};

/// A server of one client, which asks for it over an ordered channel such as ssh's.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SshServeOptions {
    /// Options of the server. Its root, tokens and port are chosen for the client.
    pub serve: ServeOptions,
    /// The directory that all paths are below; without, a user acts with its own rights.
    pub root: Option<PathBuf>,
    /// Carries out copies from here to other servers, which it dials for the client; without, that is refused.
    pub onward: Option<fn(&OnwardCopy, &Stop)>,
}

impl SshServeOptions {
    /// As `serve` says, for paths below `root` or anywhere.
    pub const fn new(serve: ServeOptions, root: Option<PathBuf>) -> Self {
        Self { serve, root, onward: None }
    }
}

/// Reads from `input` what one client wants, writes the answer to `output`, and serves it, until that is
/// done, `input` ends or `stop` is asked for, which it is at the end in any case. Connections of the client may come by both as well.
///
/// # Errors
/// [`ErrorKind::Refused`]: the client has got the reason; it asks for more than may be had, or nothing can be served.
/// Else the input is no question; or as [`serve()`](crate::serve()).
pub fn serve_over_ssh(
    options: &SshServeOptions,
    input: OwnedFd,
    output: OwnedFd,
    events: &(dyn Fn(ServeEvent) + Sync),
    stop: &Stop,
) -> Result<(), Error> {
    let (mut input, output) = (File::from(input), File::from(output));
    let ask = match read(&mut input)? {
        Ok(ask) => ask,
        Err(mark) => {
            let client = Client { input, output, mark };
            return Err(client.refuse(OTHER_VERSION));
        }
    };
    let client = Client { input, output, mark: ask.mark };
    let (mut serve_options, places) = options.fit(&ask).map_err(|reason| client.refuse(reason))?;
    if let Some((onward, carry_out)) = ask.onward.clone().zip(options.onward) {
        return client.copy(onward, places, stop, carry_out);
    }
    let connection = std::env::var("SSH_CONNECTION").ok();
    let ends = connection.and_then(|connection| SshEnds::parse(&connection));
    let address = ends.map(|ends| ends.server.to_string());
    let (token, other) = (secret()?, secret()?);
    let serving = |port, token| {
        let entry = Some(SshEntry { port, token });
        SshServing { entry, address, paths: places, frames: true, taken: None }
    };
    let host = match ask.purpose {
        SshPurpose::Send | SshPurpose::Receive => {
            match meet(&serve_options, &ask).map_err(|reason| client.refuse(reason))? {
                Meeting::Host(host) => Some(host),
                Meeting::Guest { port, token } => {
                    return client.lead_to(serving(port, token), stop);
                }
            }
        }
        _ => None,
    };
    serve_options.give_out(&token, host.as_ref().map(|_| &other));
    let arrivals = Arc::new(SshArrivals::new(ends));
    serve_options.ssh = Some(arrivals.clone());
    let drain = Stop::default();
    // Both clients of a pipe are to learn that it is done.
    let ended = ending(host.is_some(), arrivals.clone(), (stop.clone(), drain.clone()));
    let first = Mutex::new(Some((serving, ended)));
    // As long as it serves.
    let tunnel = Mutex::new(None);
    let begin = |port| {
        let Some((serving, ended)) = lock(&first).take() else { return Ok(()) };
        if let Some(host) = &host {
            host.tell(port, &other)?;
        }
        client.answer(Ok(SshServing { taken: arrivals.taken(), ..serving(port, token) }))?;
        let streams = (client.input.try_clone()?.into(), client.output.try_clone()?.into());
        *lock(&tunnel) = Some(arrivals.listen(streams, ended)?);
        Ok::<(), std::io::Error>(())
    };
    let on_event = |event: ServeEvent| {
        if let ServeEvent::Listening(at) = &event
            && begin(at.port()).is_err()
        {
            stop.request();
        }
        events(event);
    };
    let served = Server::new(serve_options).and_then(|it| it.run(&on_event, stop, &drain));
    stop.request();
    served.map_err(|error| client.end(error, lock(&first).is_none()))
}

/// Random bytes of a token.
fn secret() -> Result<[u8; 16], Error> {
    random::bytes().map_err(|error| Error::here(error.to_string()))
}

/// Streams to the client that asked under `mark`.
struct Client {
    input: File,
    output: File,
    mark: [u8; SSH_MARK_LEN],
}

impl Client {
    fn answer(&self, outcome: Result<SshServing, SshRefusal>) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        let implementation = Some(crate::implementation::IMPLEMENTATION.into());
        let answer = SshAnswer { implementation, outcome };
        let written = answer.encode(&self.mark, &mut bytes).map_err(std::io::Error::other);
        written.and_then(|()| (&self.output).write_all(&bytes))
    }

    fn refuse(&self, refusal: impl Into<SshRefusal>) -> Error {
        let refusal = refusal.into();
        let error = Error::new(ErrorKind::Refused, Side::Here, &*refusal.reason);
        // Where nobody reads it, nobody waits for it.
        let _ = self.answer(Err(refusal));
        error
    }

    /// Serving failed. One that was `answered` learns it by the end of its streams.
    fn end(&self, error: Error, answered: bool) -> Error {
        if answered { error } else { self.refuse(error.message) }
    }

    /// Copies to another server for the client, and says how that goes.
    fn copy(
        self,
        onward: SshOnward,
        paths: Vec<Vec<u8>>,
        stop: &Stop,
        carry_out: fn(&OnwardCopy, &Stop),
    ) -> Result<(), Error> {
        let here = |error: std::io::Error| Error::here(error.to_string());
        let (entry, address) = (None, None);
        let paths_there = paths.clone();
        let serving = SshServing { entry, address, paths: paths_there, frames: true, taken: None };
        self.answer(Ok(serving)).map_err(here)?;
        let streams = (self.input, self.output);
        carry_out(&OnwardCopy::new(onward, paths, streams, stop).map_err(here)?, stop);
        stop.request();
        Ok(())
    }

    /// Sends the client on to a server of this host that serves already, until its input ends.
    fn lead_to(self, serving: SshServing, stop: &Stop) -> Result<(), Error> {
        let here = |error: std::io::Error| Error::here(error.to_string());
        let (port, over) = (serving.entry.map_or(0, |entry| entry.port), stop.clone());
        self.answer(Ok(serving)).map_err(here)?;
        let (input, output) = (self.input.into(), self.output.into());
        let ended = move || over.request();
        let _tunnel = Tunnel::to_port(input, output, port, ended).map_err(here)?;
        while !stop.is_requested() {
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// The consequence of the end of the input: at a pipe clients may still come to their ends.
fn ending(
    drains: bool,
    arrivals: Arc<SshArrivals>,
    (stop, drain): (Stop, Stop),
) -> impl FnOnce() + Send + 'static {
    move || {
        arrivals.note_ended();
        drain.request();
        let until = clock::now() + if drains { DRAINING } else { Duration::ZERO };
        while clock::now() < until && !stop.is_requested() {
            std::thread::sleep(LOOK);
        }
        stop.request();
    }
}

/// Comes to the pipe that `ask` names.
fn meet(options: &ServeOptions, ask: &SshAsk) -> Result<Meeting, String> {
    let folder =
        std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|it| it.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
    let folder = folder.or_else(home).ok_or("no home directory, where the ends of a pipe meet")?;
    let folder = folder.join("longhaul/pipes");
    let root = options.access.first().map_or(Path::new("/"), |access| &access.root);
    Meeting::come(&folder, root, &ask.paths.concat())
        .map_err(|error| format!("{}: {error}", folder.display()))
}

impl ServeOptions {
    /// Lets one client in by `token`; by `other` one that has the other end of its pipe.
    fn give_out(&mut self, token: &[u8; 16], other: Option<&[u8; 16]>) {
        for access in &mut self.access {
            access.tokens = vec![Token::from_random(*token)];
        }
        if let (Some(other), Some(own)) = (other, self.access.first().cloned()) {
            let tokens = vec![Token::from_random(*other)];
            let (allow_read, allow_write) = (!own.allow_read, !own.allow_write);
            self.access.push(Access { tokens, allow_read, allow_write, ..own });
        }
    }
}

impl SshServeOptions {
    /// A server for what `ask` wants, and the paths that requests have to name.
    fn fit(&self, ask: &SshAsk) -> Result<(ServeOptions, Vec<Vec<u8>>), SshRefusal> {
        let access = &self.serve.access;
        let allow_read = access.iter().any(|access| access.allow_read);
        let allow_write = access.iter().any(|access| access.allow_write);
        match ask.purpose {
            SshPurpose::Push if !allow_write => {
                return Err("this key lets nobody copy to here (serve --ssh --allow-read)".into());
            }
            SshPurpose::Pull | SshPurpose::List | SshPurpose::Verify | SshPurpose::Leftovers
                if !allow_read =>
            {
                return Err("this key lets nobody read here (serve --ssh --allow-write)".into());
            }
            SshPurpose::Send if !allow_write => {
                return Err("this key lets nobody send to here (serve --ssh --allow-read)".into());
            }
            SshPurpose::Receive if !allow_read => {
                return Err("this key lets nobody receive here (serve --ssh --allow-write)".into());
            }
            SshPurpose::Onward if self.onward.is_none() => {
                return Err(
                    "this key lets nobody copy from here to another host; copy to your host first"
                        .into(),
                );
            }
            _ => {}
        }
        let base = match &self.root {
            Some(root) => Base::Root(root.clone()),
            None => user().map_err(|error| format!("no directory to begin in: {error}"))?,
        };
        let is_pipe = matches!(ask.purpose, SshPurpose::Send | SshPurpose::Receive);
        let place = |(number, path): (u16, &Vec<u8>)| match is_pipe {
            true => Ok(path.clone()),
            false => base.place(path).map_err(|reason| SshRefusal { reason, path: Some(number) }),
        };
        let paths = (0..).zip(&ask.paths).map(place).collect::<Result<Vec<_>, _>>()?;
        let mut options = self.serve.clone();
        options.access.iter_mut().for_each(|it| it.root = base.root().to_owned());
        if is_pipe {
            options.access.truncate(1);
            for access in &mut options.access {
                access.allow_write = ask.purpose == SshPurpose::Send;
                access.allow_read = ask.purpose == SshPurpose::Receive;
            }
        }
        // A pipe has two clients, and ends with the first.
        options.once = !is_pipe;
        options.ports = self.serve.ports.or(ask.ports);
        options.grant = Some(Grant { purpose: ask.purpose, paths: paths.clone() });
        Ok((options, paths))
    }
}

/// The user who runs this.
fn user() -> std::io::Result<Base> {
    let start = std::env::current_dir()?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute()).unwrap_or_else(|| start.clone());
    Ok(Base::User { start, home })
}

/// The question; the mark of one of another version.
fn read(input: &mut impl Read) -> Result<Result<SshAsk, [u8; SSH_MARK_LEN]>, Error> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    let none = |reason: String| Error::usage(format!("serve --ssh: {reason}"));
    loop {
        let len = input.read(&mut chunk).map_err(|error| none(error.to_string()))?;
        if len == 0 {
            return Err(none(NOBODY.into()));
        }
        bytes.extend_from_slice(&chunk[..len]);
        match (SshAsk::parse(&bytes), bytes.first_chunk()) {
            (Ok(Some(ask)), _) => return Ok(Ok(ask)),
            (Ok(None), _) => {}
            (
                Err(DecodeError::UnsupportedVersion | DecodeError::Unsupported { .. }),
                Some(mark),
            ) => {
                return Ok(Err(*mark));
            }
            (Err(error), _) => return Err(none(format!("{NOBODY} ({error})"))),
        }
    }
}

/// Time that both ends of a pipe have to part, when the one that came first has left.
const DRAINING: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);
const NOBODY: &str =
    "no longhaul asks on standard input; `longhaul cp SRC HOST:PATH` starts this by ssh";
const OTHER_VERSION: &str = concat!(
    "longhaul ",
    env!("CARGO_PKG_VERSION"),
    " there has no version of its messages over ssh in common with this one"
);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::options::Access;

    fn ask(purpose: SshPurpose) -> SshAsk {
        let paths = vec![b"run-17".to_vec()];
        let (mark, versions) = ([9; 16], vec![1]);
        let onward = None;
        SshAsk { mark, versions, purpose, ports: None, implementation: None, paths, onward }
    }

    fn options(read: bool, write: bool) -> SshServeOptions {
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut access = Access::new("/".into(), Vec::new());
        (access.allow_read, access.allow_write) = (read, write);
        let serve = ServeOptions::new(listen, vec![access]);
        SshServeOptions::new(serve, Some("/data".into()))
    }

    /// The server's answer to `bytes`, and its end.
    fn answered(bytes: &[u8], options: &SshServeOptions) -> (Vec<u8>, Result<(), Error>) {
        let ((input, mut question), (mut answer, output)) =
            (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        question.write_all(bytes).unwrap();
        drop(question);
        let (input, output) = (input.into(), output.into());
        let ended = serve_over_ssh(options, input, output, &|_| {}, &Stop::default());
        let mut answered = Vec::new();
        answer.read_to_end(&mut answered).unwrap();
        (answered, ended)
    }

    #[test]
    fn a_key_grants_what_its_command_says_whatever_is_asked() {
        for (purpose, read, write, granted) in [
            (SshPurpose::Push, true, true, true),
            (SshPurpose::Push, true, false, false),
            (SshPurpose::Pull, true, false, true),
            (SshPurpose::Pull, false, true, false),
            (SshPurpose::List, false, true, false),
            (SshPurpose::Verify, true, false, true),
            (SshPurpose::Verify, false, true, false),
            (SshPurpose::Probe, true, false, true),
            (SshPurpose::Send, false, true, true),
            (SshPurpose::Send, true, false, false),
            (SshPurpose::Receive, true, false, true),
            (SshPurpose::Receive, false, true, false),
            (SshPurpose::Onward, true, true, false),
            (SshPurpose::Leftovers, true, false, true),
            (SshPurpose::Leftovers, false, true, false),
        ] {
            let fit = options(read, write).fit(&ask(purpose));
            assert_eq!(fit.is_ok(), granted, "{purpose:?}");
            if let Ok((options, _)) = fit {
                assert_eq!(options.access[0].root, Path::new("/data"));
                let grant = options.grant.unwrap();
                assert!(grant.covers(purpose, &[b"run-17".to_vec()]));
                assert!(!grant.covers(purpose, &[b"run-18".to_vec()]));
            }
        }
        let mut bytes = Vec::new();
        ask(SshPurpose::Push).encode(&mut bytes).unwrap();
        let (output, ended) = answered(&bytes, &options(true, false));
        let (answer, _) = SshAnswer::parse(&[9; 16], &output).unwrap().unwrap();
        assert!(answer.outcome.err().unwrap().reason.contains("lets nobody copy to here"));
        assert_eq!(ended.unwrap_err().kind, ErrorKind::Refused);
    }

    #[test]
    fn another_version_is_named_and_nonsense_is_not_answered() {
        let mut bytes = Vec::new();
        let other = SshAsk { versions: vec![2, 3], ..ask(SshPurpose::Push) };
        other.encode(&mut bytes).unwrap();
        let (output, _) = answered(&bytes, &options(true, true));
        let (answer, _) = SshAnswer::parse(&[9; 16], &output).unwrap().unwrap();
        assert!(answer.outcome.err().unwrap().reason.contains("no version"));
        for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\nand more than a mark and a length"] {
            let (output, ended) = answered(bytes, &options(true, true));
            assert!(output.is_empty());
            assert!(ended.unwrap_err().to_string().contains("no longhaul asks"));
        }
    }

    #[test]
    fn the_server_is_over_when_its_input_ends() {
        let mut bytes = Vec::new();
        ask(SshPurpose::Probe).encode(&mut bytes).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(true, true);
        options.root = Some(folder.path().to_owned());
        let (output, ended) = answered(&bytes, &options);
        assert_eq!(ended, Ok(()));
        let (answer, _) = SshAnswer::parse(&[9; 16], &output).unwrap().unwrap();
        assert_eq!(answer.outcome.ok().unwrap().paths, [b"run-17".to_vec()]);
    }
}
