//! Listings at a server.

use std::io;
use std::sync::{Arc, Mutex};

use longhaul_connection::{OutgoingAnswers, Wish};
use longhaul_files::{Found, Listing, Matches, at_server, is_pattern};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_units::Instant;
use longhaul_wire::{AnswerMessage, CloseCode, ListRequest, Refused, SshPurpose};

use crate::connection::shared::{Shared, ThreadError, refuse, refuse_at};
use crate::endpoint::request::{Asked, GrantedRequest, RequestHandler};
use crate::options::ServeOptions;
use crate::transfers::answering::{Answering, await_room, push};
use crate::transfers::asking::PATIENCE;

/// Places that clients may look at: those that they may copy from.
pub(crate) struct ServedListings(Answering);

impl ServedListings {
    /// Of a server with these options.
    pub fn new(options: &ServeOptions) -> Self {
        Self(Answering::new(options))
    }

    fn begin(&self, asked: &Asked<'_>, request: &ListRequest) -> Result<(), Refused> {
        let refused = |what: &str| Err(refuse(CloseCode::REFUSED, what));
        if !asked.rights.read {
            return refused(
                "this server does not let anyone copy from it, nor look at what it has",
            );
        }
        let ListRequest { recursive, path } = request;
        self.0.check(SshPurpose::List, path, "lists nothing")?;
        let (root, memory) = (&asked.rights.root, asked.memory.of_names());
        let listing: Result<Listed, _> = match is_pattern(path) {
            true => Matches::open(root, path, *recursive, memory).map(|it| Box::new(it) as Listed),
            false => Listing::open(root, path, *recursive, memory).map(|it| Box::new(it) as Listed),
        };
        let listing =
            listing.map_err(|end| refuse_at(path, CloseCode::REFUSED, at_server(end).reason))?;
        self.0.begin(asked, Granted(Mutex::new(Some(listing))), OutgoingAnswers::default());
        Ok(())
    }
}

impl RequestHandler for ServedListings {
    fn accept(&self, asked: &Asked<'_>) -> Option<Result<(), Refused>> {
        let Wish::List(request) = asked.wish else { return None };
        Some(self.begin(asked, request))
    }
}

/// A listing that was granted, until a thread makes it.
struct Granted(Mutex<Option<Listed>>);

/// Things that are listed, in their order.
type Listed = Box<dyn Iterator<Item = Found> + Send>;

impl GrantedRequest for Granted {
    fn describe(&self) -> String {
        "lists what is here".into()
    }

    fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        let Some(listing) = lock(&self.0).take() else { return Ok(()) };
        shared.spawn("listing", move |shared| {
            answer(shared, listing);
            Ok::<_, ThreadError>(())
        })
    }
}

/// Lists while the client reads, and then says that this was all.
fn answer(shared: &Shared, listing: Listed) {
    let mut answers = Answers::of(listing);
    while !answers.ended && await_room(shared) {
        push(shared, answers.next());
    }
}

/// A listing as messages.
pub(crate) struct Answers {
    listing: Listed,
    listed: u64,
    unlisted: u64,
    /// Something that could not be looked at, found behind a message's last entry.
    next: Option<AnswerMessage>,
    ended: bool,
}

impl Answers {
    pub fn of(listing: impl Iterator<Item = Found> + Send + 'static) -> Self {
        let listing = Box::new(listing);
        Self { listing, listed: 0, unlisted: 0, next: None, ended: false }
    }

    /// The next message, not much later than what is in it was found.
    pub fn next(&mut self) -> AnswerMessage {
        if let Some(next) = self.next.take() {
            return next;
        }
        let (mut all, mut len, start) = (Vec::new(), 0, clock::now());
        while len < MESSAGE_BYTES && is_soon_behind(start) {
            match self.listing.next() {
                Some(Found::There(listed)) => {
                    len += listed.encoded_len();
                    self.listed += 1;
                    all.push(listed);
                }
                Some(Found::Unlisted { path, end }) => {
                    self.unlisted += 1;
                    self.next = Some(AnswerMessage::Unlisted { path, end: at_server(end) });
                    break;
                }
                None if all.is_empty() => {
                    self.ended = true;
                    return AnswerMessage::End { listed: self.listed, unlisted: self.unlisted };
                }
                None => break,
            }
        }
        match self.next.take() {
            Some(next) if all.is_empty() => next,
            next => {
                self.next = next;
                AnswerMessage::Listed(all)
            }
        }
    }
}

fn is_soon_behind(start: Instant) -> bool {
    clock::now() - start < PATIENCE
}

/// Bytes of entries in a message.
const MESSAGE_BYTES: usize = 16 << 10;
