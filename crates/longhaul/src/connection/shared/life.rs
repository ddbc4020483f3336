//! The threads of a transfer, and how it comes to its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use longhaul_carriers::upper_layer::join_all;
use longhaul_connection::{HostFailure, PipeFull};
use longhaul_control::{Control, ControlEnd};
use longhaul_engine::Closed;
use longhaul_files::StorageError;
use longhaul_objects::PipeError;
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_sys::threads;
use longhaul_units::Duration;
use longhaul_wire::CloseCode;

use super::{Half, Shared};

/// Why a thread of a transfer cannot go on, and so this host cannot.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// A pipe's input.
    #[error("cannot read standard input: {0}")]
    Input(#[source] io::Error),
    /// A pipe's output.
    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
    /// A server answers badly.
    #[error("the server {0}")]
    Misanswered(&'static str),
    /// Pieces of a pipe are damaged too often.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// A pipe has no numbers left for another piece.
    #[error(transparent)]
    PipeFull(#[from] PipeFull),
    /// The destination as a whole failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<ThreadError> for HostFailure {
    fn from(error: ThreadError) -> Self {
        let reason = error.to_string();
        match error {
            ThreadError::Storage(StorageError::InTheWay { path, .. }) => {
                Self::Destination { path, reason }
            }
            ThreadError::Storage(_) => Self::Storage(reason),
            _ => Self::Pipe(reason),
        }
    }
}

impl Shared {
    /// Runs `work` on a thread of the transfer. If it cannot go on, this host cannot.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn spawn(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Arc<Self>) -> Result<(), ThreadError> + Send + 'static,
    ) -> io::Result<()> {
        let shared = self.clone();
        let thread = threads::spawn(name, move || {
            let _joined = shared.crew.join();
            if let Err(error) = work(&shared) {
                shared.fail(error.into());
            }
        })?;
        self.own_thread(thread);
        Ok(())
    }

    /// The thread is one of those that [`Shared::join`] waits for.
    pub fn own_thread(&self, thread: JoinHandle<()>) {
        lock(&self.threads).push(thread);
    }

    /// This host cannot go on.
    pub fn fail(&self, failure: HostFailure) {
        self.change(|half| half.fail(failure));
    }

    /// Ends the transfer when the control connection ends. The work of one carrier is over with it, and the
    /// control connection may not be.
    pub fn end_with(self: &Arc<Self>, control: &Control) {
        let watched = Arc::downgrade(self);
        control.on_end(move |end| {
            watched.upgrade().iter().for_each(|shared| shared.note_end(end));
        });
    }

    fn note_end(&self, end: &ControlEnd) {
        let closed = match end {
            ControlEnd::Closed { code, reason, by_peer } => {
                Closed { code: *code, reason: reason.clone(), by_peer: *by_peer }
            }
            ControlEnd::Lost(reason) => {
                Closed { code: CloseCode::TIMEOUT, reason: reason.clone(), by_peer: false }
            }
        };
        self.change(|half| half.handle_closed(closed));
    }

    /// Whether its threads are to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ends the transfer's threads.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.pool.close();
        self.nudge();
    }

    /// The transfer ends early, its storage being sound: what has arrived is written and made durable,
    /// for a later run.
    pub fn wind_up(&self) {
        let until = clock::now() + WIND_UP_PATIENCE;
        while !self.is_stopped() && clock::now() < until {
            let wind_up = |half: &mut Half| half.incoming_copy().is_none_or(|copy| copy.wind_up());
            if self.change(wind_up) {
                return;
            }
            self.nudge();
            std::thread::sleep(WIND_UP_LOOK);
        }
    }

    /// Whether the transfer's threads have come to their end.
    pub fn threads_ended(&self) -> bool {
        lock(&self.threads).iter().all(JoinHandle::is_finished)
    }

    /// Waits for them.
    pub fn join(&self) {
        join_all(&mut lock(&self.threads));
    }
}

/// How often is looked whether everything is durable.
const WIND_UP_LOOK: Duration = Duration::from_millis(2);
/// What a last checkpoint may take beyond the sync that cannot be interrupted. A user who does not
/// want to wait for it asks once more.
const WIND_UP_PATIENCE: Duration = Duration::from_secs(10);
