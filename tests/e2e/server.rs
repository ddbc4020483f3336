//! `serve` and `copy` of the library.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use longhaul::{
    Access, CarrierChoice, ConnectOptions, CopyOptions, CopyPaths, CopyReport, Endpoint, Error,
    ErrorKind, Progress, ServeEvent, ServeOptions, Stop, copy, serve,
};
use longhaul_units::Rate;

use crate::test::{Test, token, until};

/// A server that is stopped with the test.
pub struct Server {
    pub address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), Error>>>,
    events: Arc<Mutex<Vec<ServeEvent>>>,
}

impl Server {
    /// Serves the test's folder `there`.
    pub fn start(test: &Test) -> Self {
        Self::with(test, |_| {})
    }

    /// With the options that `set` makes.
    pub fn with(test: &Test, set: impl FnOnce(&mut ServeOptions)) -> Self {
        let mut options = serve_options(&test.path("there"));
        set(&mut options);
        let stop = test.stop();
        let events = Arc::new(Mutex::new(Vec::new()));
        let (send_address, address) = mpsc::channel();
        let (stopped, log) = (stop.clone(), events.clone());
        let thread = thread::spawn(move || {
            let send_address = Mutex::new(send_address);
            let events = |event: ServeEvent| {
                if let ServeEvent::Listening(at) = &event {
                    send_address.lock().unwrap().send(*at).unwrap();
                }
                log.lock().unwrap().push(event);
            };
            serve(&options, &events, &stopped)
        });
        let address = address.recv_timeout(PATIENCE).unwrap();
        Self { address, stop, thread: Some(thread), events }
    }

    /// Waits for an event.
    pub fn wait_for(&self, what: &str, is: impl Fn(&ServeEvent) -> bool) {
        until(what, || self.events.lock().unwrap().iter().any(&is).then_some(()));
    }

    /// Waits until a transfer has ended; tells how.
    pub fn outcome(&self) -> Result<u64, String> {
        let outcome = |event: &ServeEvent| match event {
            ServeEvent::Ended { outcome: Ok(served), .. } => Some(Ok(served.bytes)),
            ServeEvent::Ended { outcome: Err(failure), .. } => Some(Err(failure.to_string())),
            _ => None,
        };
        until("a transfer has ended", || self.events.lock().unwrap().iter().find_map(outcome))
    }

    pub fn events(&self) -> Vec<ServeEvent> {
        self.events.lock().unwrap().clone()
    }

    /// Waits until it has ended by itself.
    pub fn join(mut self) {
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(thread::panicking() || matches!(ended, Ok(Ok(()))), "{ended:?}");
        }
    }
}

pub fn serve_options(root: &Path) -> ServeOptions {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut options = ServeOptions::new(listen, vec![Access::new(root.to_owned(), vec![token(1)])]);
    options.connections_max = 8;
    (options.idle_timeout, options.stall_timeout) = (PATIENCE, PATIENCE);
    options.excuse_timeout = Duration::ZERO;
    options
}

pub fn connect_options(server: SocketAddr) -> ConnectOptions {
    let server = Endpoint::new(server.ip().to_string(), server.port());
    let mut options = ConnectOptions::new(server, token(1));
    (options.idle_timeout, options.stall_timeout) = (PATIENCE, PATIENCE);
    options
}

/// A copy of one local file or tree to a server.
pub fn push(source: &Path, server: SocketAddr, to: &[u8]) -> CopyOptions {
    let paths = CopyPaths::Push { sources: vec![source.to_owned()], destination: to.to_vec() };
    CopyOptions::new(connect_options(server), paths)
}

/// A copy of one file or tree from a server.
pub fn pull(server: SocketAddr, from: &[u8], destination: &Path) -> CopyOptions {
    let paths =
        CopyPaths::Pull { sources: vec![from.to_vec()], destination: destination.to_owned() };
    CopyOptions::new(connect_options(server), paths)
}

/// Other options of the connection.
pub fn over(mut copy: CopyOptions, set: impl FnOnce(&mut ConnectOptions)) -> CopyOptions {
    set(&mut copy.connect);
    copy
}

/// Copies of a tree of another name each time, both ways and over both carriers: the source, which is to be
/// filled, the destination, and the options.
pub fn each_way(test: &Test, server: &Server, mut check: impl FnMut(&Path, &Path, CopyOptions)) {
    for (number, carrier) in [CarrierChoice::Udp, CarrierChoice::Tcp].into_iter().enumerate() {
        for pushes in [true, false] {
            let name = format!("tree{number}{pushes}");
            let (here, there) = (test.here(&name), test.there(&name));
            let (from, to) = if pushes { (&here, &there) } else { (&there, &here) };
            let mut options = match pushes {
                true => push(&here, server.address, b""),
                false => pull(server.address, name.as_bytes(), &test.path("here")),
            };
            options.connect.carrier = carrier;
            check(from, to, options);
        }
    }
}

pub fn run(test: &Test, options: &CopyOptions) -> Result<CopyReport, Error> {
    copy(options, &Progress::default(), &test.stop())
}

/// A copy under way on a thread.
pub struct Copying {
    thread: JoinHandle<Result<CopyReport, Error>>,
    pub progress: Arc<Progress>,
    stop: Stop,
}

impl Copying {
    pub fn start(test: &Test, options: CopyOptions) -> Self {
        let progress = Arc::new(Progress::default());
        let (shown, stop) = (progress.clone(), test.stop());
        let stopped = stop.clone();
        let thread = thread::spawn(move || copy(&options, &shown, &stopped));
        Self { thread, progress, stop }
    }

    /// Waits until `bytes` are on their way.
    pub fn moved(&self, bytes: u64) {
        until("bytes move", || {
            assert!(!self.thread.is_finished(), "the copy ended early");
            (self.progress.snapshot().bytes_done >= bytes).then_some(())
        });
    }

    pub fn end(self) -> Result<CopyReport, Error> {
        self.thread.join().unwrap()
    }

    /// Ends it on the way.
    pub fn stop(self) {
        self.stop.request();
        assert_eq!(self.end().unwrap_err().kind, ErrorKind::Stopped);
    }
}

/// So slow that a test can interfere: a megabyte takes most of a second.
pub fn slowly(options: CopyOptions) -> CopyOptions {
    over(options, |by| by.rate = Some(Rate::from_mbps(10)))
}

/// Long enough for a busy machine; where waiting for it is the test, there is a shorter one.
pub const PATIENCE: Duration = Duration::from_secs(30);
