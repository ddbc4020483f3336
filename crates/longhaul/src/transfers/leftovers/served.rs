//! Interrupted copies at a server.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use longhaul_connection::{OutgoingAnswers, Transfer, Wish};
use longhaul_files::{Look, UnfinishedCopies, UnfinishedCopy, discard};
use longhaul_sys::clock;
use longhaul_sys::descriptors::explained;
use longhaul_sys::files::ConfinedDir;
use longhaul_sys::sync::lock;
use longhaul_units::Bytes;
use longhaul_wire::{
    AnswerMessage, CloseCode, EntryCode, EntryEnd, EntryPath, Left, LeftState, LeftoversRequest,
    Refused, SshPurpose,
};

use crate::connection::shared::{Memory, Shared, ThreadError, refuse};
use crate::endpoint::request::{Asked, GrantedRequest, RequestHandler};
use crate::endpoint::ssh::grant::Grant;
use crate::options::ServeOptions;
use crate::transfers::asking::PATIENCE;
use crate::transfers::list::served::at;
use longhaul_units::Duration;

/// Directories whose interrupted copies clients may look at.
pub(crate) struct ServedLeftovers {
    once: bool,
    /// All that clients may do, if that is less.
    grant: Option<Grant>,
    /// Longest time that a look may stand still; zero is for ever.
    patience: Duration,
}

impl ServedLeftovers {
    /// Of a server with these options.
    pub fn new(options: &ServeOptions) -> Self {
        let (grant, patience) = (options.grant.clone(), options.stall_timeout);
        Self { once: options.once, grant, patience }
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
        let paths = std::slice::from_ref(&request.path);
        let granted = match &self.grant {
            Some(grant) if grant.covers(SshPurpose::Leftovers, paths) => true,
            Some(_) => return refused(Grant::ELSE),
            None => false,
        };
        if self.once && !granted {
            return refused("this server serves one transfer (serve --once), and lists nothing");
        }
        let path = &request.path;
        let place = if path.is_empty() { b"." } else { &path[..] };
        let directory = rights.root.open_dir(Path::new(OsStr::from_bytes(place)));
        let directory = directory.map_err(|error| {
            refuse(CloseCode::REFUSED, at(path, &explained(&error.into()).to_string()))
        })?;
        let (discards, memory) = (request.discard, asked.memory.of_names());
        asked.grant(Looking(Mutex::new(Some(Place { directory, discards, memory }))));
        let transfer = Transfer::OutgoingAnswers(OutgoingAnswers::default());
        asked.shared.begin(transfer, Memory::None, asked.memory, self.patience);
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
            Some(Look::Failed(path, error)) => failed = Some(unlisted_answer(path, error)),
            Some(Look::Nothing) | None => {}
        }
        let now = clock::now();
        // One without copies is a sign that the look goes on.
        if len >= MESSAGE_BYTES || failed.is_some() || is_last || now - since >= PATIENCE {
            push(shared, AnswerMessage::Left(std::mem::take(&mut all)));
            (len, since) = (0, now);
        }
        if let Some(answer) = failed {
            unlisted += 1;
            push(shared, answer);
        }
        if is_last {
            return push(shared, AnswerMessage::End { listed, unlisted });
        }
    }
}

/// Has it sent as soon as there is room.
fn push(shared: &Shared, answer: AnswerMessage) {
    let mut half = shared.lock();
    while !shared.is_stopped() && !half.outgoing_answers().is_some_and(|it| it.has_room()) {
        half = shared.rest(half, PATIENCE);
    }
    drop(half);
    shared.change(|half| half.outgoing_answers().map(|it| it.push(answer)));
}

/// What there is to say of a copy, which is discarded first where that is wanted.
fn left(place: &Place, copy: UnfinishedCopy) -> Result<Left, AnswerMessage> {
    let UnfinishedCopy { path, idle, bytes, runs } = copy;
    let state = match runs {
        true => LeftState::Running,
        false if place.discards => match discard(&place.directory, &path) {
            Ok(true) => LeftState::Discarded,
            // Somebody goes on with it.
            Ok(false) => LeftState::Running,
            Err(error) => return Err(unlisted_answer(path, error)),
        },
        false => LeftState::Interrupted,
    };
    let too_long = |_| unlisted_answer(Vec::new(), io::Error::other("a path is too long"));
    let path = EntryPath::new(path).map_err(too_long)?;
    Ok(Left { state, idle: idle.as_secs(), bytes, path })
}

fn unlisted_answer(path: Vec<u8>, error: io::Error) -> AnswerMessage {
    let end = EntryEnd::new(EntryCode::Failed, &explained(&error).to_string());
    AnswerMessage::Unlisted { path, end }
}

/// Bytes of copies in a message.
const MESSAGE_BYTES: usize = 16 << 10;
