//! `longhaul serve`: a server with a handler for each type of request.

use std::sync::Arc;

use longhaul_files::is_hidden_name;
use longhaul_sys::files::ConfinedDir;
use longhaul_sys::process::raise_descriptor_limit;
use longhaul_sys::stop::Stop;

use crate::api::ServeEvent;
use crate::endpoint::request::{Handlers, RequestHandler};
use crate::endpoint::server;
use crate::error::Error;
use crate::memory::budget::check_addresses;
use crate::memory::descriptors;
use crate::options::ServeOptions;
use crate::transfers::copy::ServedCopies;
use crate::transfers::list::ServedListings;
use crate::transfers::pipe::Pipes;

/// Serves until `stop` is asked for, or, with [`ServeOptions::once`], until one transfer was served.
/// Transfers under way are then ended; what they have written is kept.
///
/// ```no_run
/// use longhaul::{ServeOptions, Stop};
///
/// let token = std::fs::read_to_string("token")?.trim().parse()?;
/// let mut options = ServeOptions::new("[::]:7420".parse()?, "/data".into(), vec![token]);
/// options.allow_write = false;
/// longhaul::serve(&options, &|event| eprintln!("{event:?}"), &Stop::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The directory or the address cannot be used, or this host cannot go on. What goes wrong with one client is
/// in `events` only.
pub fn serve(
    options: &ServeOptions,
    events: &(dyn Fn(ServeEvent) + Sync),
    stop: &Stop,
) -> Result<(), Error> {
    let limits = |reason| Error::here(format!("cannot serve: {reason}"));
    check_addresses().map_err(limits)?;
    // Where that is not allowed, strangers make room for clients sooner.
    let _ = raise_descriptor_limit();
    descriptors::check().map_err(limits)?;
    let root = open_root(options)?;
    let mut handlers: Vec<Box<dyn RequestHandler>> = vec![
        Box::new(ServedCopies::new(root.clone(), options)),
        Box::new(ServedListings::new(root, options)),
    ];
    // A pipe has two clients.
    if options.grant.is_none() {
        handlers.push(Box::new(Pipes::new(options)));
    }
    let handlers: Handlers = handlers.into();
    server::run(options, handlers, events, stop)
}

/// The directory that `options` name.
fn open_root(options: &ServeOptions) -> Result<Arc<ConfinedDir>, Error> {
    let root = ConfinedDir::open_root(&options.root);
    // What transfers keep for themselves is nobody else's.
    let root = root.map(|root| root.without(is_hidden_name)).map_err(|error| {
        let root = options.root.display().to_string();
        let message =
            format!("cannot serve {root}: {}", longhaul_sys::descriptors::explained(&error.into()));
        Error::path(root, message)
    })?;
    Ok(Arc::new(root))
}
