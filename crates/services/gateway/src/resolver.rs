//! Names to addresses, on threads of their own: the system's resolver may take half a minute.

use longhaul_sys::sync::lock;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};

use longhaul_relay::Place;
use longhaul_sys::threads;

/// A name to be resolved, and who takes the addresses.
pub(crate) struct Lookup {
    pub place: Place,
    pub done: Box<dyn FnOnce(io::Result<Vec<SocketAddr>>) + Send>,
}

/// A few threads that resolve names. They end when it is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    queue: SyncSender<Lookup>,
}

impl Resolver {
    pub fn start() -> io::Result<Self> {
        let (queue, lookups) = sync_channel(WAITING_MAX);
        let lookups: Arc<Mutex<Receiver<Lookup>>> = Arc::new(Mutex::new(lookups));
        for i in 0..THREADS {
            let lookups = lookups.clone();
            threads::spawn(format!("resolve-{i}"), move || {
                loop {
                    let next = lock(&lookups).recv();
                    let Ok(Lookup { place, done }) = next else { return };
                    let host = place.host.to_string();
                    done((&*host, place.port).to_socket_addrs().map(|found| {
                        found
                            .map(|address| Place::from(address).address().unwrap_or(address))
                            .collect()
                    }));
                }
            })?;
        }
        Ok(Self { queue })
    }

    /// Resolves the name of `lookup`, or says at once that too many wait.
    pub fn ask(&self, lookup: Lookup) {
        if let Err(TrySendError::Full(lookup) | TrySendError::Disconnected(lookup)) =
            self.queue.try_send(lookup)
        {
            (lookup.done)(Err(io::Error::other("too many names wait to be resolved")));
        }
    }
}

const THREADS: usize = 4;
const WAITING_MAX: usize = 1024;
