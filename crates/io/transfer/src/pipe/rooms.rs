//! Where the two ends of a pipe meet: at the server, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use longhaul_wire::{CloseCode, PipeRequest, PipeRole, Refused};

use super::drain::Drain;
use super::feed::Feed;
use crate::budget::Budget;
use crate::buffer::lock;
use crate::carrier::Mailbox;
use crate::hub::{Side, refuse};
use crate::side::SourceSide;

/// The pipes of a server.
#[derive(Default)]
pub(crate) struct Pipes {
    rooms: Mutex<BTreeMap<Vec<u8>, Arc<Mutex<Room>>>>,
}

/// A pipe.
#[derive(Default)]
struct Room {
    /// The end that sends to here, and whether its client is still connected.
    sender: Option<(Arc<Drain>, bool)>,
    /// The end that receives from here, likewise.
    receiver: Option<(Arc<Feed>, bool)>,
    /// Why the other end cannot go on.
    broken: Option<String>,
}

/// A client's place at a pipe.
pub(crate) struct Seat {
    pipes: Arc<Pipes>,
    name: Vec<u8>,
    role: PipeRole,
    room: Arc<Mutex<Room>>,
}

impl Room {
    /// Whether its name is free for another pipe: all came through, or nothing will.
    fn is_over(&self) -> bool {
        let done = self.receiver.as_ref().is_some_and(|(feed, _)| feed.done().is_some());
        done || self.broken.is_some()
    }
}

impl Pipes {
    /// Gives a client the end of a pipe that it asks for; whoever comes second joins both. The one
    /// that sends brings the memory.
    ///
    /// # Errors
    /// Another client has that end.
    pub fn enter(
        self: &Arc<Self>,
        request: &PipeRequest,
        memory: Budget,
        mailboxes: &[Arc<Mailbox>],
    ) -> Result<(Seat, Side), Refused> {
        let PipeRequest { role, name } = request;
        let mut rooms = lock(&self.rooms);
        let place = rooms.entry(name.clone()).or_default();
        if lock(place).is_over() {
            *place = Arc::default();
        }
        let place = place.clone();
        let mut room = lock(&place);
        let taken = match role {
            PipeRole::Send => room.sender.is_some(),
            PipeRole::Receive => room.receiver.is_some(),
        };
        if taken {
            let (name, end) = (shown(name), end(*role));
            let reason =
                format!("the pipe {name} has a {end} already; choose another name, or wait");
            return Err(refuse(CloseCode::REFUSED, reason));
        }
        let side = match role {
            PipeRole::Send => {
                let drain = Arc::new(Drain::to_client(memory.of_sink(), mailboxes.to_vec()));
                room.sender = Some((drain.clone(), true));
                Side::Sink(drain)
            }
            PipeRole::Receive => {
                let feed = Arc::new(Feed::of_pieces(mailboxes.to_vec()));
                room.receiver = Some((feed.clone(), true));
                Side::Source(feed)
            }
        };
        if let (Some((drain, _)), Some((feed, _))) = (&room.sender, &room.receiver) {
            feed.follow(drain);
            drain.connect(feed);
        }
        drop(room);
        let seat = Seat { pipes: self.clone(), name: name.clone(), role: *role, room: place };
        Ok((seat, side))
    }
}

impl Seat {
    /// What the client does, for the log.
    pub fn describe(&self) -> String {
        let name = shown(&self.name);
        match self.role {
            PipeRole::Send => format!("sends into the pipe {name}"),
            PipeRole::Receive => format!("receives from the pipe {name}"),
        }
    }

    /// Why this end cannot go on: the other is gone.
    pub fn broken(&self) -> Option<String> {
        lock(&self.room).broken.clone()
    }

    /// The client is gone, for `reason` if that is not how a pipe should end.
    pub fn leave(&self, reason: Option<&str>) {
        let mut rooms = lock(&self.pipes.rooms);
        let mut guard = lock(&self.room);
        let room = &mut *guard;
        let (bytes, complete) = match (self.role, &mut room.sender, &mut room.receiver) {
            (PipeRole::Send, Some((drain, here)), _) => {
                *here = false;
                (drain.bytes(), drain.is_at_end())
            }
            (PipeRole::Receive, _, Some((feed, here))) => {
                *here = false;
                (feed.confirmed(), feed.done().is_some())
            }
            _ => return,
        };
        if let Some(reason) = reason.filter(|_| !complete) {
            let end = end(self.role);
            room.broken.get_or_insert(format!("the {end} vanished after {bytes} bytes: {reason}"));
        }
        let here = |end: Option<bool>| end.unwrap_or(false);
        let sender = here(room.sender.as_ref().map(|(_, here)| *here));
        let empty = !sender && !here(room.receiver.as_ref().map(|(_, here)| *here));
        // The name may be another pipe's by now.
        let same = rooms.get(&self.name).is_some_and(|other| Arc::ptr_eq(other, &self.room));
        if empty && same {
            rooms.remove(&self.name);
        }
    }
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
