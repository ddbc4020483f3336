//! A copy or pipe between two or three processes, one of which gets an error from one of its calls.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_session::Token;
use longhaul_sys::faults::{Attempt, Call, Verdict, supervise};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::tree;

/// Kind of the transfer that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Push,
    Pull,
    Pipe,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
            Self::Pipe => "pipe",
        }
    }
}

/// One of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Server,
    /// Of a pipe: the one that sends.
    Client,
    /// Of a pipe.
    Receiver,
}

impl End {
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Receiver => "receiver",
        }
    }
}

/// A folder with what is copied, and what it is copied by.
pub struct Scene {
    pub kind: Kind,
    pub tcp: bool,
    folder: TempDir,
    /// The server's address, once that is known: the same command finds it there again.
    at: OnceLock<SocketAddr>,
}

/// The end of a process.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// `None`: a signal ended it.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// It did not end by itself, and was killed.
    pub hung: bool,
}

/// The ends of the processes of a scene.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub server: Ended,
    /// `None` where the server did not start.
    pub client: Option<Ended>,
    pub receiver: Option<Ended>,
    /// The server was there to the end, until it was asked to stop.
    pub serves: bool,
    pub seconds: f64,
    pub left: tree::Left,
    /// Of a copy that failed: the same command without any error, and what is missing after it.
    pub again: Option<(Ended, tree::Left)>,
}

/// Decides about the calls of the process that is looked at.
pub type Decide<'d> = &'d mut (dyn FnMut(&Attempt) -> Verdict + Send);

impl Scene {
    pub fn new(kind: Kind, tcp: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("longhaul-errors-").tempdir().unwrap();
        for name in ["here", "there", "home", "output"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let scene = Self { kind, tcp, folder, at: OnceLock::new() };
        let token = scene.path("token");
        fs::write(&token, Token::from_random([1; 16]).to_string()).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(token, private).unwrap();
        tree::make(&scene.source());
        symlink("f1", scene.source().join("link")).unwrap();
        scene
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    fn source(&self) -> PathBuf {
        self.path(if self.kind == Kind::Pull { "there/tree" } else { "here/tree" })
    }

    fn destination(&self) -> PathBuf {
        self.path(if self.kind == Kind::Pull { "here/tree" } else { "there/tree" })
    }

    /// Runs it, where `decide` decides about the `calls` of `victim`; then, where it is a copy, once more
    /// with nobody to decide.
    pub fn run(&self, victim: End, calls: &[Call], decide: Decide<'_>) -> Outcome {
        let begun = Instant::now();
        let mut outcome = thread::scope(|scope| {
            let mut decide = Some(decide);
            let mut start = |end: End| {
                let mut command = self.command(end);
                match decide.take_if(|_| end == victim) {
                    None => command.spawn().unwrap(),
                    Some(decide) => {
                        let (give, given) = mpsc::sync_channel(1);
                        let started = move |child| give.send(child).unwrap();
                        scope.spawn(move || {
                            supervise(&mut command, calls, decide, started).unwrap()
                        });
                        given.recv().unwrap().unwrap()
                    }
                }
            };
            let mut server = start(End::Server);
            if !self.listens(&mut server) {
                let server = self.end(End::Server, &mut server, START);
                return Outcome { server, ..Outcome::default() };
            }
            let receiver = (self.kind == Kind::Pipe).then(|| start(End::Receiver));
            let mut client = start(End::Client);
            let receiver = receiver.map(|mut receiver| {
                self.part(&mut client, &mut receiver);
                self.end(End::Receiver, &mut receiver, REST)
            });
            let client = self.end(End::Client, &mut client, LIMIT);
            let serves = server.try_wait().unwrap().is_none();
            let server = self.stop(&mut server);
            Outcome { server, client: Some(client), receiver, serves, ..Outcome::default() }
        });
        outcome.seconds = begun.elapsed().as_secs_f64();
        if self.kind == Kind::Pipe {
            outcome.left = self.piped();
        } else {
            outcome.left = tree::compare(&self.source(), &self.destination());
            let whole = outcome.client.as_ref().is_some_and(|client| client.status == Some(0));
            outcome.again = (!whole).then(|| self.again());
        }
        outcome
    }

    /// The same command with nothing in its way.
    fn again(&self) -> (Ended, tree::Left) {
        let mut server = self.command(End::Server).spawn().unwrap();
        assert!(self.listens(&mut server), "{}", read(&self.output(End::Server, "err")));
        let mut client = self.command(End::Client).spawn().unwrap();
        let ended = self.end(End::Client, &mut client, LIMIT);
        self.stop(&mut server);
        let mut left = tree::compare(&self.source(), &self.destination());
        let into = self.destination();
        left.hidden = tree::hidden(into.parent().unwrap());
        (ended, left)
    }

    /// The output of a pipe: the beginning of what was sent, or something else.
    fn piped(&self) -> tree::Left {
        let sent = fs::read(self.source().join("large")).unwrap();
        let come = fs::read(self.output(End::Receiver, "out")).unwrap_or_default();
        let mut left = tree::Left::default();
        if !sent.starts_with(&come) {
            left.wrong.push("what came out".into());
        } else if come.len() < sent.len() {
            left.missing.push("the end".into());
        }
        left
    }

    fn command(&self, end: End) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul-under-test"));
        let output = File::create(self.output(end, "out")).unwrap();
        let errors = File::create(self.output(end, "err")).unwrap();
        command.current_dir(self.folder()).stdin(Stdio::null()).stdout(output).stderr(errors);
        command.env("HOME", self.path("home"));
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
        let at = self.at.get().map_or_else(own_address, SocketAddr::to_string);
        let mut words = match (end, self.kind) {
            (End::Server, _) => vec!["serve", "--listen", &at, "--root", "there"],
            (_, Kind::Pipe) => vec!["pipe", "--json"],
            _ => vec!["cp", "--json", "--retry", "0"],
        };
        words.extend(["--token-file", "token", "--stall-timeout", STALL]);
        if self.tcp && end != End::Server {
            words.extend(["--carrier", "tcp"]);
        }
        command.args(words);
        match (self.kind, end) {
            (_, End::Server) => &mut command,
            (Kind::Push, _) => command.args(["here/tree", &format!("lh://{at}/")]),
            (Kind::Pull, _) => command.args([&format!("lh://{at}/tree"), "here/"]),
            (Kind::Pipe, End::Receiver) => command.args(["--receive", &format!("lh://{at}/p")]),
            (Kind::Pipe, _) => {
                command.stdin(File::open(self.source().join("large")).unwrap());
                command.arg(format!("lh://{at}/p"))
            }
        };
        command
    }

    fn output(&self, end: End, stream: &str) -> PathBuf {
        self.path(&format!("output/{end:?}.{stream}"))
    }

    /// Waits until the server listens; false where it has ended, or does not come so far.
    fn listens(&self, server: &mut Child) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < START {
            let text = read(&self.output(End::Server, "err"));
            let line = text.split_once("listening on ").and_then(|(_, rest)| rest.split_once(','));
            if let Some((at, _)) = line {
                self.at.get_or_init(|| at.parse().unwrap());
                return true;
            }
            if server.try_wait().unwrap().is_some() {
                return false;
            }
            thread::sleep(TICK);
        }
        false
    }

    /// Waits until both ends of a pipe have ended. One that waits for another that never came would do so
    /// for ever: it is asked to stop.
    fn part(&self, client: &mut Child, receiver: &mut Child) {
        let (begun, mut alone) = (Instant::now(), None);
        while begun.elapsed() < LIMIT {
            let left = [&mut *client, &mut *receiver].map(|end| end.try_wait().unwrap().is_none());
            match left {
                [false, false] => return,
                [true, true] => {}
                [waits, _] if alone.get_or_insert_with(Instant::now).elapsed() > ALONE => {
                    return interrupt(if waits { client } else { receiver });
                }
                _ => {}
            }
            thread::sleep(TICK);
        }
    }

    /// Asks the server to stop.
    fn stop(&self, server: &mut Child) -> Ended {
        interrupt(server);
        self.end(End::Server, server, REST)
    }

    /// Waits for the end, or puts one to it.
    fn end(&self, end: End, process: &mut Child, limit: Duration) -> Ended {
        let begun = Instant::now();
        let mut hung = false;
        let status = loop {
            if let Some(status) = process.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > limit {
                hung = true;
                process.kill().unwrap();
                break process.wait().unwrap();
            }
            thread::sleep(TICK);
        };
        let signal = status.signal().filter(|_| !hung).map(|signal| format!("\n(signal {signal})"));
        Ended {
            status: status.code(),
            stdout: read(&self.output(end, "out")),
            stderr: read(&self.output(end, "err")) + signal.as_deref().unwrap_or_default(),
            hung,
        }
    }
}

fn interrupt(process: &Child) {
    let pid = Pid::from_raw(process.id().cast_signed()).unwrap();
    // It may have ended by itself.
    let _ = kill_process(pid, Signal::INT);
}

/// An address of its own, at any port: nobody else takes the port before it is listened at again.
fn own_address() -> String {
    static SCENES: AtomicU16 = AtomicU16::new(0);
    let number = SCENES.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let process = std::process::id() % 64;
    format!("127.{}.{}.{}:0", 64 + process, number[0], number[1].max(1))
}

fn read(path: &Path) -> String {
    // There is none before the process was started.
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The `--stall-timeout` at all ends.
const STALL: &str = "10";
/// Longer than any of the program's own limits, with that.
const LIMIT: Duration = Duration::from_secs(60);
/// For those that have only to notice that another has ended.
const REST: Duration = Duration::from_secs(40);
/// Longer than an end of a pipe takes to learn that the other has failed.
const ALONE: Duration = Duration::from_secs(12);
const START: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(4);
