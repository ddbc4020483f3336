//! The directory that is served, and what clients may do with it.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_files::{Destination, SinkOptions, SinkTree, SourceTree, boot_id, transfer_id};
use longhaul_objects::{Belief, Fsync};
use longhaul_sys::files::ConfinedDir;
use longhaul_sys::random;
use longhaul_sys::sync::lock;
use longhaul_units::Duration;
use longhaul_wire::{CloseCode, ConnectionId, Direction, PipeRequest, PipeRole, Refused, Request};

use crate::budget::Budget;
use crate::copy::{Driver, receive, send, sink_config};
use crate::pipe::{Pipes, Seat};
use crate::shared::{Shared, refuse};
use crate::sink::SinkDriver;
use crate::source::SourceDriver;

/// What a client was granted. Written before the transfer begins, so that whoever sees that it has
/// finds it.
#[derive(Default)]
pub(super) struct Granted {
    /// Of a pipe.
    pub seat: OnceLock<Seat>,
    /// Of a copy.
    pub driver: OnceLock<Driver>,
}

impl Granted {
    /// What the client does, for the log.
    pub fn describe(&self) -> String {
        match (self.seat.get(), self.driver.get()) {
            (Some(seat), _) => seat.describe(),
            (None, Some(Driver::Source(_))) => "copies from here".into(),
            (None, _) => "copies to here".into(),
        }
    }

    /// Whether contents go from here to the client.
    pub fn sends(&self) -> bool {
        let seat = self.seat.get().is_some_and(|seat| seat.role() == PipeRole::Receive);
        seat || matches!(self.driver.get(), Some(Driver::Source(_)))
    }

    /// Starts the threads that do it.
    pub fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        self.seat.get().map_or(Ok(()), |seat| seat.start(shared))?;
        self.driver.get().map_or(Ok(()), |driver| driver.start(shared))
    }
}

/// What clients may do, and where.
#[derive(Clone)]
pub(super) struct Share {
    pub root: Arc<ConfinedDir>,
    pub read: bool,
    pub write: bool,
    pub direct: bool,
    pub memory: Budget,
    /// How long a transfer may stand still; zero is for ever.
    pub patience: Duration,
    /// Whose pushes these are, where that is to be told: they are gone on with under the same token
    /// only.
    pub owner: Option<[u8; 8]>,
    /// The connection that this serves.
    pub client: ConnectionId,
    /// With `once`: the client that a copy was granted to. Over another carrier it asks for it again.
    pub only_copy: Option<Arc<Mutex<Option<ConnectionId>>>>,
}

impl Share {
    /// Starts the copy that the client asks for.
    pub fn open(&self, request: &Request, place: &Granted, shared: &Shared) -> Result<(), Refused> {
        // Held until it is granted: of clients that ask at the same time one has it.
        let mut granted = self.only_copy.as_deref().map(lock);
        if granted.as_deref().is_some_and(|had| had.is_some_and(|other| other != self.client)) {
            return Err(refuse(CloseCode::REFUSED, ONLY_COPY));
        }
        self.start(request, place, shared)?;
        if let Some(granted) = granted.as_deref_mut() {
            *granted = Some(self.client);
        }
        Ok(())
    }

    fn start(&self, request: &Request, place: &Granted, shared: &Shared) -> Result<(), Refused> {
        let verify = !request.unhashed;
        let refused = |what| Err(refuse(CloseCode::REFUSED, what));
        match request.direction {
            Direction::Pull if !self.read => {
                return refused("this server does not let anyone copy from it");
            }
            Direction::Push if !self.write => {
                return refused("this server does not let anyone copy to it");
            }
            Direction::Pull => {
                let root = self.root.clone();
                let tree = SourceTree::below(root, &request.paths, request.copy_contents);
                let tree = tree.direct(self.direct).limit_names(self.memory.of_names());
                let driver = Driver::Source(Arc::new(SourceDriver::new(tree, verify)));
                let _ = place.driver.set(driver);
                // What a client says to have hurts nobody else.
                send(shared, self.memory, self.patience, Belief::Everything);
            }
            Direction::Push => {
                let path = request.paths.first().map_or(&[][..], Vec::as_slice);
                let owner = self.owner.as_ref().map_or(&[][..], |id| id);
                let transfer = transfer_id(&[&request.label, owner], path, verify);
                let fsync = fsync(request.sync_at_end);
                let is_directory = request.destination_is_directory;
                let (contents, direct) = (request.copy_contents, self.direct);
                // The client chooses the names, as it may.
                let only_empty = false;
                let options = SinkOptions {
                    is_directory,
                    contents,
                    transfer,
                    fsync,
                    direct,
                    only_empty,
                    // Nothing could be compared: anybody who wrote it would be believed.
                    goes_on: verify,
                };
                let destination = Destination::Below { root: &self.root, path };
                let (tree, resume) = SinkTree::open(destination, &options)
                    .map_err(|error| refuse(CloseCode::REFUSED, error.to_string()))?;
                let config = sink_config(fsync, transfer, self.memory, None);
                let driver = Driver::Sink(Arc::new(SinkDriver::new(tree, verify)));
                let _ = place.driver.set(driver);
                receive(shared, config, resume, self.memory, self.patience);
            }
        }
        Ok(())
    }

    /// Gives the client its end of a pipe.
    pub fn open_pipe(
        &self,
        pipes: &Arc<Pipes>,
        request: &PipeRequest,
        place: &Granted,
        shared: &Arc<Shared>,
    ) -> Result<(), Refused> {
        let refused = |what| Err(refuse(CloseCode::REFUSED, what));
        match request.role {
            PipeRole::Send if !self.write => refused("this server does not let anyone send to it"),
            PipeRole::Receive if !self.read => {
                refused("this server does not let anyone receive from it")
            }
            _ => pipes.enter(request, &place.seat, shared, self.memory, self.patience),
        }
    }
}

/// What others hear.
const ONLY_COPY: &str =
    "this server serves one transfer (serve --once), which another client has or had";

/// The policy that a request asks for.
fn fsync(sync_at_end: bool) -> Fsync {
    if sync_at_end {
        return Fsync::End;
    }
    // Where the boot cannot be told, random bytes make sure that nothing unsynced is trusted.
    Fsync::Never { boot: boot_id().unwrap_or_else(|_| random::bytes().unwrap_or_default()) }
}
