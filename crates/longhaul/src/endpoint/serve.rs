//! `longhaul serve`: a server with a handler for each type of request.

use std::sync::{Arc, Mutex};

use longhaul_sys::process::raise_descriptor_limit;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;

use crate::api::ServeEvent;
use crate::endpoint::policy::Policy;
use crate::endpoint::request::RequestHandler;
use crate::endpoint::server;
use crate::error::Error;
use crate::memory::budget::check_addresses;
use crate::memory::descriptors;
use crate::options::ServeOptions;
use crate::transfers::copy::ServedCopies;
use crate::transfers::leftovers::ServedLeftovers;
use crate::transfers::list::ServedListings;
use crate::transfers::pipe::Pipes;
use crate::transfers::verify::ServedHashes;

/// A server that takes other rules while it runs in another thread.
pub struct Server {
    options: ServeOptions,
    policy: Mutex<Arc<Policy>>,
}

impl Server {
    /// One that is to serve as `options` say.
    ///
    /// # Errors
    /// A directory cannot be used, or this host lacks memory or descriptors.
    pub fn new(options: ServeOptions) -> Result<Self, Error> {
        let limits = |reason| Error::here(format!("cannot serve: {reason}"));
        check_addresses().map_err(limits)?;
        // Where that is not allowed, strangers make room for clients sooner.
        let _ = raise_descriptor_limit();
        descriptors::check().map_err(limits)?;
        let policy = Mutex::new(Arc::new(Policy::new(&options)?));
        Ok(Self { options, policy })
    }

    /// Serves: see [`serve()`]. Once `drain` is asked for nobody is let in any more, and it ends when those that
    /// are here have left.
    ///
    /// # Errors
    /// The address cannot be used, or this host cannot go on.
    pub fn run(
        &self,
        events: &(dyn Fn(ServeEvent) + Sync),
        stop: &Stop,
        drain: &Stop,
    ) -> Result<(), Error> {
        let Self { options, policy } = self;
        let handlers: Vec<Box<dyn RequestHandler>> = vec![
            Box::new(ServedCopies::new(options)),
            Box::new(ServedListings::new(options)),
            Box::new(ServedHashes::new(options)),
            Box::new(ServedLeftovers::new(options)),
            Box::new(Pipes::new(options)),
        ];
        server::run(options, policy, handlers.into(), events, (stop, drain))
    }

    /// Clients that come from now on are served under the access, limits and profiles of `options`; those that
    /// are here keep theirs. Returns the names of other options that differ: they hold from the next start on.
    ///
    /// # Errors
    /// A directory cannot be used, or a token has two rights: everything stays as it was.
    pub fn reload(&self, options: &ServeOptions) -> Result<Vec<&'static str>, Error> {
        *lock(&self.policy) = Arc::new(Policy::new(options)?);
        let old = &self.options;
        let differ = [
            ("listen", old.listen != options.listen),
            ("memory", old.memory != options.memory),
            ("direct", old.direct != options.direct),
            ("socket_buffer", old.socket_buffer != options.socket_buffer),
            ("stall_timeout", old.stall_timeout != options.stall_timeout),
            ("excuse_timeout", old.excuse_timeout != options.excuse_timeout),
            ("discard_after", old.discard_after != options.discard_after),
            ("host_priority", old.host_priority != options.host_priority),
            ("trust_proxy", old.trust_proxy != options.trust_proxy),
        ];
        Ok(differ.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect())
    }
}

/// Serves until `stop` is asked for, or, with [`ServeOptions::once`], until one transfer was served.
/// Transfers under way are then ended; what they have written is kept.
///
/// ```no_run
/// use longhaul::{Access, ServeOptions, Stop};
///
/// let token = std::fs::read_to_string("token")?.trim().parse()?;
/// let mut access = Access::new("/data".into(), vec![token]);
/// access.allow_write = false;
/// let options = ServeOptions::new("[::]:7420".parse()?, vec![access]);
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
    Server::new(options.clone())?.run(events, stop, &Stop::default())
}
