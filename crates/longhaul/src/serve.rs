//! `longhaul serve`: a server with a handler for each type of request.

use std::sync::Arc;

use longhaul_sys::process::raise_descriptor_limit;
use longhaul_sys::stop::Stop;

use crate::api::ServeEvent;
use crate::budget::check_addresses;
use crate::copy::ServedCopies;
use crate::descriptors;
use crate::options::ServeOptions;
use crate::pipe::Pipes;
use crate::request::Handlers;
use crate::server::{self, ServeError};

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
/// See [`ServeError`]. What goes wrong with one client is told by `events` only.
pub fn serve(
    options: &ServeOptions,
    events: &(dyn Fn(ServeEvent) + Sync),
    stop: &Stop,
) -> Result<(), ServeError> {
    check_addresses().map_err(ServeError::Limits)?;
    // Where that is not allowed, strangers make room for clients sooner.
    let _ = raise_descriptor_limit();
    descriptors::check().map_err(ServeError::Limits)?;
    let copies = ServedCopies::open(options)?;
    let handlers: Handlers = Arc::new([Box::new(copies), Box::new(Pipes::new(options))]);
    server::run(options, handlers, events, stop)
}
