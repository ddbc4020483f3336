//! Interrupted copies at a server.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use longhaul_connection::{OutgoingAnswers, Wish};
use longhaul_files::{Look, UnfinishedCopies, UnfinishedCopy, at_directory, at_server, discard};
use longhaul_sys::clock;
use longhaul_sys::descriptors::explained;
use longhaul_sys::files::ConfinedDir;
use longhaul_sys::sync::lock;
use longhaul_units::Bytes;
use longhaul_wire::{
    AnswerMessage, CloseCode, EntryCode, EntryEnd, EntryPath, Left, LeftState, LeftoversRequest,
    Refused, SshPurpose,
};

use crate::connection::shared::{Shared, ThreadError, refuse, refuse_at};
use crate::endpoint::request::{Asked, GrantedRequest, RequestHandler};
use crate::options::ServeOptions;
use crate::transfers::answering::{Answering, await_room, push};
use crate::transfers::asking::PATIENCE;

/// Directories whose interrupted copies clients may look at.
pub(crate) struct ServedLeftovers(Answering);

impl ServedLeftovers {
    /// Of a server with these options.
    pub fn new(options: &ServeOptions) -> Self {
        Self(Answering::new(options))
    }

    fn begin(&self, asked: &Asked<'_>, request: &LeftoversRequest) -> Result<(), Refused> {
        let refused = |what: &str| Err(refuse(CloseCode::REFUSED, what));
        let rights = asked.rights;
        if !rights.read {
            return refused("this server shows nobody what it has, so neither interrupted copies");
        }
        // Nothing says whose they are.
        if request.discard && !(rights.write && rights.delete) {
            return refused(
                "this server does not let anyone discard copies: `serve --allow-delete`, which goes with \
                 reading and writing, would",
            );
        }
        let path = &request.path;
        self.0.check(SshPurpose::Leftovers, path, "lists nothing")?;
        let place = if path.is_empty() { b"." } else { &path[..] };
        let directory = rights.root.open_dir(Path::new(OsStr::from_bytes(place)));
        let directory = directory.map_err(|error| {
            refuse_at(path, CloseCode::REFUSED, at_server(at_directory(&error.into())).reason)
        })?;
        let (discards, memory) = (request.discard, asked.memory.of_names());
        let looking = Looking(Mutex::new(Some(Place { directory, discards, memory })));
        self.0.begin(asked, looking, OutgoingAnswers::default());
        Ok(())
    }
}

impl RequestHandler for ServedLeftovers {
    fn accept(&self, asked: &Asked<'_>) -> Option<Result<(), Refused>> {
        let Wish::Leftovers(request) = asked.wish else { return None };
        Some(self.begin(asked, request))
    }
}

/// A look that was granted, until a thread takes it.
struct Looking(Mutex<Option<Place>>);

/// The directory to look through.
struct Place {
    directory: ConfinedDir,
    discards: bool,
    /// Most that paths take.
    memory: Bytes,
}

impl GrantedRequest for Looking {
    fn describe(&self) -> String {
        "looks at interrupted copies".into()
    }

    fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        let Some(place) = lock(&self.0).take() else { return Ok(()) };
        shared.spawn("leftovers", move |shared| {
            answer(shared, &place);
            Ok::<_, ThreadError>(())
        })
    }
}

/// Looks while the client reads, and then says that this was all.
fn answer(shared: &Shared, place: &Place) {
    let mut copies = UnfinishedCopies::below(&place.directory).limit_names(place.memory);
    let (mut all, mut len) = (Vec::new(), 0);
    let (mut listed, mut unlisted) = (0, 0);
    let mut since = clock::now();
    while !shared.is_stopped() {
        let next = copies.step();
        let is_last = next.is_none();
        let mut failed = None;
        match next {
            Some(Look::Copy(copy)) => match left(place, copy) {
                Ok(left) => {
                    len += left.encoded_len();
                    all.push(left);
                    listed += 1;
                }
                Err(answer) => failed = Some(answer),
            },
            Some(Look::Failed(path, error)) => {
                failed = Some(unlisted_answer(path, at_directory(&error)))
            }
            Some(Look::Nothing) | None => {}
        }
        let now = clock::now();
        // One without copies is a sign that the look goes on.
        if len >= MESSAGE_BYTES || failed.is_some() || is_last || now - since >= PATIENCE {
            push_patiently(shared, AnswerMessage::Left(std::mem::take(&mut all)));
            (len, since) = (0, now);
        }
        if let Some(answer) = failed {
            unlisted += 1;
            push_patiently(shared, answer);
        }
        if is_last {
            return push_patiently(shared, AnswerMessage::End { listed, unlisted });
        }
    }
}

/// Has it sent as soon as there is room.
fn push_patiently(shared: &Shared, answer: AnswerMessage) {
    if await_room(shared) {
        push(shared, answer);
    }
}

/// The answer about a copy, which is discarded first where that is wanted.
fn left(place: &Place, copy: UnfinishedCopy) -> Result<Left, AnswerMessage> {
    let UnfinishedCopy { path, idle, bytes, total, runs, sources } = copy;
    let state = match runs {
        true => LeftState::Running,
        false if place.discards => match discard(&place.directory, &path) {
            Ok(true) => LeftState::Discarded,
            // Somebody goes on with it.
            Ok(false) => LeftState::Running,
            Err(error) => {
                let reason = format!("it cannot be discarded: {}", explained(&error));
                return Err(unlisted_answer(path, EntryEnd::new(EntryCode::Failed, &reason)));
            }
        },
        false => LeftState::Interrupted,
    };
    let too_long =
        |_| unlisted_answer(Vec::new(), EntryEnd::new(EntryCode::Name, "a path is too long"));
    let path = EntryPath::new(path).map_err(too_long)?;
    Ok(Left { state, idle: idle.as_secs(), bytes, total, path, sources: sources.join(&0) })
}

fn unlisted_answer(path: Vec<u8>, end: EntryEnd) -> AnswerMessage {
    AnswerMessage::Unlisted { path, end: at_server(end) }
}

/// Bytes of copies in a message.
const MESSAGE_BYTES: usize = 16 << 10;
