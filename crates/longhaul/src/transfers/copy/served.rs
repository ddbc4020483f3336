//! Copies at a server: the directory that is served, and what clients may do with it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex};

use longhaul_connection::{IncomingCopy, Wish};
use longhaul_files::{
    Destination, DestinationError, Filter, SinkOptions, SourceTree, Target, at_directory,
    at_server, expand_sources, transfer_id,
};
use longhaul_objects::{Belief, Keeps, SinkConfig};
use longhaul_sys::files::ConfinedDir;
use longhaul_sys::sync::lock;
use longhaul_units::Duration;
use longhaul_wire::{
    CloseCode, ConnectionId, Direction, EntryCode, EntryEnd, KeptAttributes, Protect, Refused,
    Request, SshPurpose, Summary,
};

use super::{Driver, UNCHECKED, fsync, outgoing, receive, send, sink_config};
use crate::connection::shared::{Shared, refuse, refuse_at};
use crate::endpoint::request::{Asked, GrantedRequest, RequestHandler};
use crate::endpoint::ssh::grant::Grant;
use crate::options::ServeOptions;
use crate::transfers::sink::SinkDriver;
use crate::transfers::source::SourceDriver;

/// Places that clients may copy from and to.
pub(crate) struct ServedCopies {
    /// All that clients may do, if that is less.
    grant: Option<Grant>,
    direct: bool,
    /// Longest time that a transfer may stand still; zero is for ever.
    patience: Duration,
    /// With `once`: the client that a copy was granted to. Over another carrier it asks for it again.
    only: Option<Mutex<Option<ConnectionId>>>,
}

impl ServedCopies {
    /// Of a server with these options.
    pub fn new(options: &ServeOptions) -> Self {
        Self {
            grant: options.grant.clone(),
            direct: options.direct,
            patience: options.stall_timeout,
            only: options.once.then(Mutex::default),
        }
    }

    fn open_copy(&self, asked: &Asked<'_>, request: &Request) -> Result<(), Refused> {
        let refused = |what| Err(refuse(CloseCode::REFUSED, what));
        let rights = asked.rights;
        if request.unhashed && asked.protect == Protect::Clear {
            return refused(UNCHECKED);
        }
        if request.unhashed && request.compares_contents {
            return refused("contents are compared by hashes, and the request wants none");
        }
        // Held until it is granted: of clients that ask at the same time one has it.
        let mut granted = self.only.as_ref().map(lock);
        if granted.as_deref().is_some_and(|had| had.is_some_and(|other| other != asked.client)) {
            return refused(ONLY_COPY);
        }
        let purpose = match request.direction {
            Direction::Push => SshPurpose::Push,
            Direction::Pull => SshPurpose::Pull,
        };
        if self.grant.as_ref().is_some_and(|grant| !grant.covers(purpose, &request.paths)) {
            return refused(Grant::ELSE);
        }
        match request.direction {
            Direction::Pull if !rights.read => {
                return refused("this server does not let anyone copy from it");
            }
            Direction::Push if !rights.write => {
                return refused("this server does not let anyone copy to it");
            }
            Direction::Push if request.deletes.is_some() && !(rights.delete && rights.read) => {
                return refused(
                    "this server does not let anyone delete: `serve --allow-delete`, which goes with \
                     reading and writing, would",
                );
            }
            Direction::Push if request.dry_run && !rights.read => {
                return refused(
                    "this server shows nobody what it has, so there is no dry run: `serve --allow-read`, which \
                     goes with writing, would",
                );
            }
            Direction::Push if request.keeps_newer && !rights.read => {
                return refused(
                    "-u needs to see what is there, which this server does not let anybody: `serve --allow-read`, \
                     which goes with writing, would",
                );
            }
            Direction::Pull => self.send(asked, request)?,
            Direction::Push => self.receive(asked, request)?,
        }
        if let Some(granted) = granted.as_deref_mut() {
            *granted = Some(asked.client);
        }
        Ok(())
    }

    fn send(&self, asked: &Asked<'_>, request: &Request) -> Result<(), Refused> {
        let filter = Filter::new(&request.rules);
        let filter = filter.map_err(|error| refuse(CloseCode::REFUSED, error.to_string()))?;
        let root = asked.rights.root.clone();
        let memory = asked.memory.of_names();
        let contents = request.copy_contents;
        if request.names_follow {
            check_listed(&root, request)?;
        }
        let paths = expand_sources(&root, &request.paths, contents, memory)
            .map_err(|end| refuse(CloseCode::REFUSED, end.reason))?;
        if paths.len() > request.paths.len() && !contents && !request.destination_is_directory {
            let words =
                format!("{} names match: write a slash behind DST, a directory", paths.len());
            return Err(refuse(CloseCode::REFUSED, words));
        }
        let tree = SourceTree::below(root, &paths, contents);
        let tree = tree.direct(self.direct).filter(filter).limit_names(memory);
        let tree = tree.keeping(request.keeps_attributes, asked.rights.owners);
        let tree = tree.dry_run(request.dry_run);
        let source =
            SourceDriver::new(tree, !request.unhashed).awaiting_names(request.names_follow);
        asked.grant(Driver::Source(Arc::new(source)));
        // What a client says to have hurts nobody else.
        let deletes = request.deletes.is_some();
        let mut copy = outgoing(asked.shared, Belief::Everything, request.dry_run, deletes);
        if request.keeps_newer {
            copy.keep_newer();
        }
        if request.compares_contents {
            copy.allow_comparisons();
        }
        if request.names_follow {
            copy.expect_names();
        }
        send(asked.shared, asked.memory, self.patience, copy);
        Ok(())
    }

    fn receive(&self, asked: &Asked<'_>, request: &Request) -> Result<(), Refused> {
        let verify = !request.unhashed;
        let path = request.paths.first().map_or(&[][..], Vec::as_slice);
        let owner = asked.owner.as_ref().map_or(&[][..], |id| id);
        let transfer = transfer_id(&[&request.label, owner], path, verify);
        let fsync = fsync(request.sync_at_end);
        // Who may not read is not to learn what is here.
        let wanted = Keeps {
            unchanged: request.keeps_unchanged,
            newer: request.keeps_newer,
            equal: request.compares_contents,
            directories: true,
        };
        let keeps = if asked.rights.read { wanted } else { Keeps::default() };
        let options = SinkOptions {
            is_directory: request.destination_is_directory,
            is_name: request.destination_is_name,
            contents: request.copy_contents,
            transfer,
            fsync,
            direct: self.direct,
            // The client chooses the names, as it may.
            only_empty: false,
            // Nothing could be compared: anybody who wrote it would be believed.
            goes_on: verify,
            dry_run: request.dry_run,
            stays: request.destination_stays,
            keeps_modes: request.keeps_attributes.has(KeptAttributes::MODES),
            keeps,
        };
        let destination = Destination::Below { root: &asked.rights.root, path };
        let (tree, resume) = Target::open(destination, &options).map_err(|error| {
            let end = at_server(EntryEnd::new(EntryCode::Failed, &error.reason()));
            refuse_at(error.path().as_bytes(), code(&error), end.reason)
        })?;
        if keeps.compares() != wanted.compares() {
            asked.shared.note(Summary::NOT_COMPARED);
        }
        let filter = Filter::new(&request.rules);
        let filter = filter.map_err(|error| refuse(CloseCode::REFUSED, error.to_string()))?;
        let tree = tree.deleting(request.deletes, filter);
        let tree = tree.leaving(asked.rights.free_least);
        let attributes = request.keeps_attributes;
        let tree = tree.keeping(attributes, asked.rights.owners);
        let deletes = request.deletes.is_some();
        let config = sink_config(fsync, transfer, asked.memory, None, keeps);
        // More is not known of them here.
        let sources = asked.from.to_string().into_bytes();
        let config =
            SinkConfig { deletes, attributes, sources, dry_run: request.dry_run, ..config };
        asked.grant(Driver::Sink(Arc::new(SinkDriver::new(tree, verify))));
        let copy = IncomingCopy::new(config, resume);
        receive(asked.shared, copy, asked.memory, self.patience);
        Ok(())
    }
}

impl RequestHandler for ServedCopies {
    fn accept(&self, asked: &Asked<'_>) -> Option<Result<(), Refused>> {
        let Wish::Copy(request) = asked.wish else { return None };
        Some(self.open_copy(asked, request))
    }
}

impl GrantedRequest for Driver {
    fn describe(&self) -> String {
        match self {
            Self::Source(_) => "copies from here".into(),
            Self::Sink(_) => "copies to here".into(),
        }
    }

    fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        match self {
            Self::Source(source) => source.start(shared),
            Self::Sink(sink) => sink.start(shared),
        }
    }
}

/// Checks that names can be listed: those in one directory, which is there.
fn check_listed(root: &ConfinedDir, request: &Request) -> Result<(), Refused> {
    let refused = |reason: String| Err(refuse(CloseCode::REFUSED, reason));
    let ([path], true, None) = (&request.paths[..], request.copy_contents, request.deletes) else {
        return refused(
            "names are listed in one directory, and nothing is deleted by a list".into(),
        );
    };
    let path = if path.is_empty() { b"." } else { &path[..] };
    match root.open_dir(FilePath::new(OsStr::from_bytes(path))) {
        Ok(_) => Ok(()),
        Err(error) => {
            let reason = at_directory(&error.into()).reason;
            Err(refuse_at(path, CloseCode::REFUSED, reason))
        }
    }
}

/// A client whose connection was lost waits until the server has noticed that.
const fn code(error: &DestinationError) -> CloseCode {
    match error {
        DestinationError::Busy { .. } => CloseCode::BUSY,
        _ => CloseCode::REFUSED,
    }
}

/// The refusal of other clients.
const ONLY_COPY: &str =
    "this server serves one transfer (serve --once), which another client has or had";
