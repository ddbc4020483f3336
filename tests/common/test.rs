//! A test with a time limit, a folder of its own, and what it started.

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use longhaul::Stop;
use longhaul_session::Token;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The surroundings that a test has to itself.
pub struct Test {
    folder: TempDir,
    processes: Mutex<Vec<Pid>>,
    stops: Mutex<Vec<Stop>>,
}

/// Runs `work`, which fails after [`LIMIT`] instead of hanging.
pub fn limited(work: impl FnOnce(&Test) + Send + 'static) {
    let test = Arc::new(Test::new());
    let (running, over) = mpsc::channel::<()>();
    let own = test.clone();
    let worker = thread::spawn(move || {
        let _running = running;
        work(&own);
    });
    if over.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
        test.abort();
        panic!("not over after {LIMIT:?}");
    }
    if let Err(reason) = worker.join() {
        panic::resume_unwind(reason);
    }
}

/// Waits until `ready` gives something; the limit of the test is the only other way out.
pub fn until<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(begun.elapsed() < WAIT, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

impl Test {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("longhaul-e2e-").tempdir().unwrap();
        fs::create_dir(folder.path().join("here")).unwrap();
        fs::create_dir(folder.path().join("there")).unwrap();
        let test = Self { folder, processes: Mutex::default(), stops: Mutex::default() };
        fs::write(test.path("token"), token(1).to_string()).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(test.path("token"), private).unwrap();
        test
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Below the client's folder.
    pub fn here(&self, name: &str) -> PathBuf {
        self.path("here").join(name)
    }

    /// Below the server's root.
    pub fn there(&self, name: &str) -> PathBuf {
        self.path("there").join(name)
    }

    /// An address of its own to listen at, at any port, and to listen at again: at that of all others
    /// somebody else might take the port meanwhile.
    pub fn own_address(&self) -> String {
        static TESTS: AtomicU16 = AtomicU16::new(0);
        let number = TESTS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let process = std::process::id() % 64;
        format!("127.{}.{}.{}:0", 128 + process, number[0], number[1].max(1))
    }

    /// A process that is killed when the test takes too long.
    pub fn own_process(&self, id: u32) {
        let pid = Pid::from_raw(id.cast_signed()).unwrap();
        self.processes.lock().unwrap().push(pid);
    }

    pub fn disown_process(&self, id: u32) {
        let gone = Pid::from_raw(id.cast_signed());
        self.processes.lock().unwrap().retain(|pid| Some(*pid) != gone);
    }

    /// A server or copy that is stopped when the test takes too long.
    pub fn stop(&self) -> Stop {
        let stop = Stop::default();
        self.stops.lock().unwrap().push(stop.clone());
        stop
    }

    fn abort(&self) {
        self.stops.lock().unwrap().iter().for_each(Stop::request);
        for pid in self.processes.lock().unwrap().iter() {
            let _ = kill_process(*pid, Signal::KILL);
        }
        let _ = fs::remove_dir_all(self.folder.path());
    }
}

/// The token numbered `seed`; 1 is the one that everybody has.
pub fn token(seed: u8) -> Token {
    Token::from_random([seed; 16])
}

/// Only a hang takes so long, whatever else the machine does.
const LIMIT: Duration = Duration::from_secs(240);
/// For one thing to happen.
const WAIT: Duration = Duration::from_secs(90);
