//! The program as a process that can be signalled and killed.

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::test::{Test, until};

/// A process that is killed with the test.
pub struct Program<'t> {
    test: &'t Test,
    process: Child,
    stdout: Stream,
    stderr: Stream,
}

/// The end of a process.
#[derive(Debug)]
pub struct Ended {
    /// Exit status; `None` after a signal.
    pub status: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl<'t> Program<'t> {
    /// Starts `longhaul` with `words`, in the test's folder.
    pub fn start(test: &'t Test, words: &[&str]) -> Self {
        Self::spawn(test, Command::new(PROGRAM).args(words))
    }

    /// The same, within a limit of the shell's: `-n 1024`.
    pub fn start_within(test: &'t Test, limit: &str, words: &[&str]) -> Self {
        let limited = format!("ulimit {limit} && exec \"$0\" \"$@\"");
        Self::spawn(test, Command::new("sh").args(["-c", &limited, PROGRAM]).args(words))
    }

    /// The same as `nobody`, who owns nothing; it takes root. It looks into the test's folder, where a copy of the
    /// program is.
    pub fn start_as_nobody(test: &'t Test, words: &[&str]) -> Self {
        fs::set_permissions(test.folder(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = test.path("program");
        // By another process: a file that this one has open for writing, a command that it is just
        // starting has too, and then nobody can run it.
        if !copy.exists() {
            assert!(Command::new("cp").arg(PROGRAM).arg(&copy).status().unwrap().success());
        }
        Self::spawn(test, Command::new(&copy).args(words).uid(NOBODY).gid(NOBODY))
    }

    /// Starts `longhaul` with `words`, in the test's folder, and a file as its standard input.
    pub fn reading(test: &'t Test, input: &Path, words: &[&str]) -> Self {
        let input = Stdio::from(fs::File::open(input).unwrap());
        Self::between(test, Command::new(PROGRAM).args(words), input, Stdio::piped())
    }

    pub fn spawn(test: &'t Test, command: &mut Command) -> Self {
        Self::between(test, command, Stdio::null(), Stdio::piped())
    }

    /// One end of the pipe at `server`, between `input` and `output`.
    pub fn pipe(
        test: &'t Test,
        words: &[&str],
        server: SocketAddr,
        input: impl Into<Stdio>,
        output: impl Into<Stdio>,
    ) -> Self {
        let at = format!("lh://{server}/a%20pipe");
        let fixed = ["pipe", "--json", "--token-file", "token", &at];
        let mut command = Command::new(PROGRAM);
        Self::between(test, command.args(fixed).args(words), input.into(), output.into())
    }

    fn between(test: &'t Test, command: &mut Command, input: Stdio, output: Stdio) -> Self {
        let mut process = command
            .current_dir(test.folder())
            .env("HOME", test.folder())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .stdin(input)
            .stdout(output)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        test.own_process(process.id());
        let stdout = match process.stdout.take() {
            Some(stdout) => Stream::follow(stdout),
            None => Stream::follow(std::io::empty()),
        };
        let stderr = Stream::follow(process.stderr.take().unwrap());
        Self { test, process, stdout, stderr }
    }

    /// A server of the test's folder `there`, at `listen`, that waits for nobody at its end, and where it
    /// listens.
    pub fn serve(test: &'t Test, listen: &str, words: &[&str]) -> (Self, SocketAddr) {
        let fixed = ["serve", "--drain", "0", "--listen", listen, "--root", "there"];
        let fixed = [&fixed[..], &["--token-file", "token"]].concat();
        let mut program = Self::start(test, &[&fixed[..], words].concat());
        let at = program.listens();
        (program, at)
    }

    /// The address that a server listens at.
    pub fn listens(&mut self) -> SocketAddr {
        let line = self.prints("listening on ");
        let at = line.split("listening on ").nth(1).unwrap().split(',').next().unwrap();
        at.parse().unwrap()
    }

    /// A copy over one connection from `source` to `destination`, with `--json`.
    pub fn cp(test: &'t Test, words: &[&str]) -> Self {
        let fixed = ["cp", "--json", "--retry", "0", "--token-file", "token"];
        Self::start(test, &[&fixed[..], words].concat())
    }

    /// Waits for `part` on standard error; returns all that was printed.
    pub fn prints(&mut self, part: &str) -> String {
        until(part, || {
            // Looked at first: what it wrote before is there then.
            let ended = self.process.try_wait().unwrap();
            let text = if ended.is_some() { self.stderr.rest() } else { self.stderr.text() };
            if text.split_inclusive('\n').any(|line| line.contains(part) && line.ends_with('\n')) {
                return Some(text);
            }
            assert!(ended.is_none(), "{ended:?} before {part:?}: {text}");
            None
        })
    }

    /// True if it prints `part` on standard error, before it ends.
    pub fn prints_or_ends(&mut self, part: &str) -> bool {
        until(part, || {
            let ended = self.process.try_wait().unwrap().is_some();
            let text = if ended { self.stderr.rest() } else { self.stderr.text() };
            let printed = text.contains(part);
            (printed || ended).then_some(printed)
        })
    }

    /// All that it has printed on standard error so far.
    pub fn printed(&self) -> String {
        self.stderr.text()
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// Its output on standard error so far.
    pub fn stderr_so_far(&self) -> String {
        self.stderr.text()
    }

    /// Waits for the end, and looks at it on the way.
    pub fn end_watched(mut self, mut look: impl FnMut()) -> Ended {
        while self.process.try_wait().unwrap().is_none() {
            look();
            thread::sleep(Duration::from_millis(5));
        }
        self.end()
    }

    /// Waits for the end.
    pub fn end(mut self) -> Ended {
        let status = self.process.wait().unwrap();
        self.test.disown_process(self.process.id());
        Ended {
            status: status.code(),
            signal: status.signal(),
            stdout: self.stdout.rest(),
            stderr: self.stderr.rest(),
        }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        self.test.disown_process(self.process.id());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Ended {
    /// The object on standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The object on standard error, for standard output is for data.
    pub fn json_beside_data(&self) -> Value {
        let line = self.stderr.lines().find(|line| line.starts_with('{'));
        serde_json::from_str(line.unwrap_or_else(|| panic!("{self:?}"))).unwrap()
    }

    /// It failed as it should: status 1, with `part` in its words, without a panic.
    pub fn assert_failed(&self, part: &str) {
        assert_eq!(self.status, Some(1), "{self:?}");
        assert!(self.stderr.contains(part), "{part:?} is not in {self:?}");
        self.assert_no_panic();
    }

    pub fn assert_succeeded(&self) {
        assert_eq!(self.status, Some(0), "{self:?}");
        self.assert_no_panic();
    }

    fn assert_no_panic(&self) {
        assert!(!self.stderr.contains("panicked"), "{self:?}");
    }
}

/// Output of a process, gathered while it runs.
struct Stream {
    text: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Stream {
    fn follow(mut from: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let gathered = text.clone();
        let thread = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = from.read(&mut bytes) {
                gathered.lock().unwrap().extend_from_slice(&bytes[..len]);
            }
        });
        Self { text, thread: Some(thread) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }

    fn rest(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.text()
    }
}

/// A small file system in memory at a folder, as long as this lives.
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts with `options`.
    pub fn mount(at: PathBuf, options: &str) -> Self {
        fs::create_dir_all(&at).unwrap();
        let words = ["-t", "tmpfs", "-o", options, "longhaul-e2e"];
        let done = Command::new("mount").args(words).arg(&at).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        Self(at)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a copy that is being given up may still have it open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A user who owns nothing.
pub const NOBODY: u32 = 65_534;
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul-under-test");
