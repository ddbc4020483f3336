//! Requests at a server: each type has a handler, and the server knows them by this interface only.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_connection::{Part, Wish};
use longhaul_sys::sync::lock;
use longhaul_units::shown_path;
use longhaul_wire::{
    AskedPart, CloseCode, ConnectionId, Direction, PipeRequest, PipeRole, Protect, Refused,
    Request, names_of,
};

use crate::api::Action;

use crate::connection::shared::{Shared, refuse};
use crate::endpoint::policy::Rights;
use crate::memory::budget::Budget;

/// Serves the requests of one type. [`crate::serve()`] registers them.
pub(crate) trait RequestHandler: Send + Sync {
    /// Grants the request ([`Asked::grant`]) and begins its transfer ([`Shared::begin`]), or says why not;
    /// `None` if it is of another type.
    fn accept(&self, asked: &Asked<'_>) -> Option<Result<(), Refused>>;
}

/// A granted request, as the server attends to it. The defaults suit one that does not depend on another
/// client.
pub(crate) trait GrantedRequest: Send + Sync {
    /// Action of the client, for the log.
    fn describe(&self) -> String;
    /// Starts the threads that do it, once the transfer has begun.
    ///
    /// # Errors
    /// No thread can be started.
    fn start(&self, shared: &Arc<Shared>) -> io::Result<()>;
    /// Why it cannot go on, though its connection can.
    fn broken(&self) -> Option<String> {
        None
    }
    /// The client closes: it has everything.
    fn conclude(&self, _shared: &Shared) {}
    /// The client comes back over another connection.
    ///
    /// # Errors
    /// Why what has begun cannot begin again.
    fn vacate(&self) -> Result<(), &'static str> {
        Ok(())
    }
    /// The client does not come back. There is a `reason` unless everything was done.
    fn leave(&self, _reason: Option<&str>) {}
}

/// Every type of request that a server knows.
pub(crate) type Handlers = Arc<[Box<dyn RequestHandler>]>;

/// A request, and what its transfer may use.
pub(crate) struct Asked<'a> {
    pub wish: &'a Wish,
    /// The state of the client's connection.
    pub shared: &'a Arc<Shared>,
    pub granted: &'a Granted,
    /// The number of that connection.
    pub client: ConnectionId,
    /// Its address.
    pub from: IpAddr,
    /// The token of the client, at a server that has several: others do not go on with what it began.
    pub owner: Option<[u8; 8]>,
    /// Rights of its token.
    pub rights: &'a Rights,
    pub protect: Protect,
    pub memory: Budget,
}

impl Asked<'_> {
    /// Has the handler of its type begin the transfer.
    ///
    /// # Errors
    /// Why it is not granted.
    pub fn handle(&self, handlers: &Handlers) -> Result<(), Refused> {
        let accepted = handlers.iter().find_map(|handler| handler.accept(self));
        let accepted = accepted.unwrap_or_else(|| Err(refuse(CloseCode::REFUSED, NO_HANDLER)));
        let words = |refused: &Refused| match refused.part {
            Some(part) => format!("{}: {}", self.shown(part), refused.reason),
            None => refused.reason.clone(),
        };
        *lock(&self.granted.refusal) = accepted.as_ref().err().map(words);
        accepted
    }

    /// The beginning of a path that was asked for, for people.
    fn shown(&self, part: AskedPart) -> String {
        let paths = self.wish.paths();
        let path = usize::try_from(part.path).ok().and_then(|at| paths.get(at));
        let names = names_of(path.map_or(&[], |path| path)).take(part.names as usize);
        match shown_path(&names.collect::<Vec<_>>().join(&b'/')) {
            path if path.is_empty() => "/".into(),
            path => path,
        }
    }

    /// Before the transfer begins, so that a thread that sees the transfer finds what was granted.
    pub fn grant(&self, request: impl GrantedRequest + 'static) {
        let sends = self.wish.part() == Part::Sink;
        let first = |paths: &[Vec<u8>]| paths.first().cloned().unwrap_or_default();
        let subject = match self.wish {
            Wish::Copy(Request { direction: Direction::Push, paths, .. }) => {
                (Action::Push, first(paths))
            }
            Wish::Copy(Request { paths, .. }) => (Action::Pull, first(paths)),
            Wish::Pipe(PipeRequest { role: PipeRole::Send, name }) => (Action::Send, name.clone()),
            Wish::Pipe(PipeRequest { name, .. }) => (Action::Receive, name.clone()),
            Wish::List(request) => (Action::List, request.path.clone()),
            Wish::Verify(request) => (Action::Verify, request.path.clone()),
            Wish::Leftovers(request) => (Action::Leftovers, request.path.clone()),
        };
        let _ = self.granted.grant.set(Grant { sends, subject, request: Box::new(request) });
    }
}

/// The grant of a client, if there is one.
#[derive(Default)]
pub(crate) struct Granted {
    grant: OnceLock<Grant>,
    /// Why the last request was not granted, for the log.
    refusal: Mutex<Option<String>>,
}

struct Grant {
    /// Contents go from here to the client.
    sends: bool,
    /// Of the log: its kind, and the client's word for its place.
    subject: (Action, Vec<u8>),
    request: Box<dyn GrantedRequest>,
}

impl Granted {
    pub fn request(&self) -> Option<&dyn GrantedRequest> {
        self.grant.get().map(|grant| &*grant.request)
    }

    /// Its kind, and the client's word for its place.
    pub fn subject(&self) -> Option<&(Action, Vec<u8>)> {
        self.grant.get().map(|grant| &grant.subject)
    }

    /// Why the last request was not granted, for the log.
    pub fn refusal(&self) -> Option<String> {
        lock(&self.refusal).clone()
    }

    /// True if contents go from here to the client.
    pub fn sends(&self) -> bool {
        self.grant.get().is_some_and(|grant| grant.sends)
    }
}

/// The reason that a client of a later version is given.
const NO_HANDLER: &str = "this server does not serve requests of that type";
