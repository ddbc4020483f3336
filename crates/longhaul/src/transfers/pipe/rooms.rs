//! Where the two ends of a pipe meet: at the server, by name.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use longhaul_connection::{IncomingPipe, OutgoingPipe, Transfer, Wish, buffers};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_units::Duration;
use longhaul_wire::{CloseCode, PipeRequest, PipeRole, Refused};

use super::drain::drain;
use crate::connection::shared::{Memory, Shared, refuse};
use crate::endpoint::request::{Asked, GrantedRequest, RequestHandler};
use crate::endpoint::ssh::grant::Grant;
use crate::options::ServeOptions;

/// The pipes of a server.
pub(crate) struct Pipes {
    rooms: Arc<Mutex<Rooms>>,
    /// All that clients may do, where it is less.
    grant: Option<Grant>,
    /// Longest time that a pipe may stand still; zero is for ever.
    patience: Duration,
}

type Rooms = BTreeMap<RoomName, Arc<Mutex<Room>>>;

/// The directory that its clients are served from, so that parties who share nothing else do not meet, and
/// the name that they give it.
type RoomName = (PathBuf, Vec<u8>);

/// A pipe.
#[derive(Default)]
struct Room {
    /// The connection to the client that sends, and whether that is still there.
    sender: Option<(Arc<Shared>, bool)>,
    /// To the one that receives, likewise.
    receiver: Option<(Arc<Shared>, bool)>,
    /// Why the other end cannot go on.
    broken: Option<String>,
}

/// A client's place at a pipe.
struct Seat {
    rooms: Arc<Mutex<Rooms>>,
    name: RoomName,
    role: PipeRole,
    room: Arc<Mutex<Room>>,
}

impl Room {
    /// Whether its name is free for another pipe: all came through, or nothing will.
    fn is_over(&self) -> bool {
        let done = self.receiver.as_ref().is_some_and(|(shared, _)| shared.lock().is_done());
        done || self.broken.is_some()
    }
}

impl Pipes {
    pub fn new(options: &ServeOptions) -> Self {
        let (grant, patience) = (options.grant.clone(), options.stall_timeout);
        Self { rooms: Arc::default(), grant, patience }
    }

    /// Gives a client the end of a pipe that it asks for, unless another has it; the second client joins both.
    /// The one that sends brings the memory.
    fn enter(&self, request: &PipeRequest, asked: &Asked<'_>) -> Result<(), Refused> {
        let PipeRequest { role, name } = request;
        let Asked { shared, memory: budget, .. } = *asked;
        let patience = self.patience;
        let mut rooms = lock(&self.rooms);
        let key = (asked.rights.place.clone(), name.clone());
        let named = rooms.entry(key.clone()).or_default();
        if lock(named).is_over() {
            *named = Arc::default();
        }
        let named = named.clone();
        let mut room = lock(&named);
        let taken = match role {
            PipeRole::Send => room.sender.is_some(),
            PipeRole::Receive => room.receiver.is_some(),
        };
        if taken {
            return Err(taken_already(name, *role));
        }
        let role = *role;
        asked.grant(Seat { rooms: self.rooms.clone(), name: key, role, room: named.clone() });
        match role {
            PipeRole::Send => {
                let pipe = IncomingPipe::new(buffers(budget.of_sink()) as u64);
                let transfer = Transfer::IncomingPipe(Box::new(pipe));
                shared.begin(transfer, Memory::OF_DRAIN, budget, patience);
                room.sender = Some((shared.clone(), true));
            }
            PipeRole::Receive => {
                let pipe = OutgoingPipe::new(clock::now(), shared.mailboxes.count());
                let transfer = Transfer::OutgoingPipe(Box::new(pipe));
                shared.begin(transfer, Memory::None, budget, patience);
                room.receiver = Some((shared.clone(), true));
            }
        }
        if let (Some((from, _)), Some((to, _))) = (&room.sender, &room.receiver) {
            from.pass_on(to);
        }
        Ok(())
    }
}

impl RequestHandler for Pipes {
    fn accept(&self, asked: &Asked<'_>) -> Option<Result<(), Refused>> {
        let Wish::Pipe(request) = asked.wish else { return None };
        let refused = |what| Err(refuse(CloseCode::REFUSED, what));
        let can = match request.role {
            PipeRole::Send => asked.rights.write,
            PipeRole::Receive => asked.rights.read,
        };
        if self.grant.as_ref().is_some_and(|grant| !grant.covers_pipe(&request.name)) {
            return Some(refused(Grant::ELSE));
        }
        Some(match request.role {
            _ if can => self.enter(request, asked),
            // Each of two tokens is for one end.
            role if self.grant.is_some() => Err(taken_already(&request.name, role)),
            PipeRole::Send => refused("this server does not let anyone send to it"),
            PipeRole::Receive => refused("this server does not let anyone receive from it"),
        })
    }
}

impl GrantedRequest for Seat {
    fn describe(&self) -> String {
        let name = shown(&self.name.1);
        match self.role {
            PipeRole::Send => format!("sends into the pipe {name}"),
            PipeRole::Receive => format!("receives from the pipe {name}"),
        }
    }

    fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        match self.role {
            PipeRole::Send => shared.spawn("output", |shared| drain(shared, None)),
            PipeRole::Receive => Ok(()),
        }
    }

    /// The other end is gone.
    fn broken(&self) -> Option<String> {
        lock(&self.room).broken.clone()
    }

    fn conclude(&self, shared: &Shared) {
        shared.change(|half| half.outgoing_pipe().map(OutgoingPipe::conclude));
    }

    /// Bytes that a sender passed on cannot be taken back, and may have gone to the receiver that leaves.
    fn vacate(&self) -> Result<(), &'static str> {
        let mut rooms = lock(&self.rooms);
        let mut room = lock(&self.room);
        let passed_on = |(shared, _): &(Arc<Shared>, bool)| {
            shared.lock().incoming_pipe().is_some_and(|pipe| pipe.bytes() > 0)
        };
        match self.role {
            PipeRole::Send if room.sender.as_ref().is_some_and(passed_on) => return Err(HAS_BEGUN),
            PipeRole::Send => room.sender = None,
            PipeRole::Receive if room.sender.is_some() => return Err(HAS_BEGUN),
            PipeRole::Receive => room.receiver = None,
        }
        if room.sender.is_none() && room.receiver.is_none() {
            self.forget(&mut rooms);
        }
        Ok(())
    }

    fn leave(&self, reason: Option<&str>) {
        let mut rooms = lock(&self.rooms);
        let mut guard = lock(&self.room);
        let room = &mut *guard;
        let complete = match (self.role, &mut room.sender, &mut room.receiver) {
            (PipeRole::Send, Some((shared, here)), _) => {
                *here = false;
                let mut half = shared.lock();
                half.incoming_pipe().is_some_and(|pipe| pipe.is_at_end())
            }
            (PipeRole::Receive, _, Some((shared, here))) => {
                *here = false;
                shared.lock().is_done()
            }
            _ => return,
        };
        if let Some(reason) = reason.filter(|_| !complete) {
            let end = end(self.role);
            room.broken.get_or_insert(format!("the {end} vanished: {reason}"));
        }
        let here = |end: Option<bool>| end.unwrap_or(false);
        let sender = here(room.sender.as_ref().map(|(_, here)| *here));
        if !sender && !here(room.receiver.as_ref().map(|(_, here)| *here)) {
            self.forget(&mut rooms);
        }
    }
}

impl Seat {
    /// Nobody is there any more.
    fn forget(&self, rooms: &mut Rooms) {
        // The name may be another pipe's by now.
        if rooms.get(&self.name).is_some_and(|other| Arc::ptr_eq(other, &self.room)) {
            rooms.remove(&self.name);
        }
    }
}

/// Why a client that leaves UDP for TCP cannot have its end again.
const HAS_BEGUN: &str = "UDP does not fit the path, and the pipe has begun, so that TCP cannot take over; use \
                         --carrier tcp";

fn taken_already(name: &[u8], role: PipeRole) -> Refused {
    let (name, end) = (shown(name), end(role));
    let reason = format!("the pipe {name} has a {end} already; choose another name, or wait");
    refuse(CloseCode::BUSY, reason)
}

fn end(role: PipeRole) -> &'static str {
    match role {
        PipeRole::Send => "sender",
        PipeRole::Receive => "receiver",
    }
}

/// A name for people and logs: nothing in it moves a cursor.
fn shown(name: &[u8]) -> String {
    longhaul_units::shown(&String::from_utf8_lossy(name))
}
