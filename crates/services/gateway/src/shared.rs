//! Policy, credentials and limits of a gateway, which all its sessions share.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use longhaul_relay::{Gatekeeper, SessionId};
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, counted};

use crate::clocks::Clocks;
use crate::memory::Lent;
use crate::policy::Policy;
use crate::spares::Spares;
use crate::status::Totals;
use crate::strangers::{Strangers, Ticket};
use crate::transport::Transport;

/// Policy, credentials and limits of a gateway, which all its sessions share.
#[derive(Debug)]
pub struct Shared {
    policy: RwLock<Arc<Policy>>,
    /// Judge of headers.
    pub gatekeeper: Mutex<Gatekeeper>,
    /// Transports by name; the first one is used where none is asked for.
    pub transports: Vec<Arc<dyn Transport>>,
    /// Time for a header, or all that SOCKS says before its request.
    pub header_timeout: Duration,
    /// Time for each address that is dialled, and for an answer of the next gateway.
    pub dial_timeout: Duration,
    /// Time after which a peer that acknowledges nothing, while bytes wait for it, is given up.
    pub silence_timeout: Duration,
    /// Time for which a connection that may be a neighbour's spare one may say nothing.
    pub spare_timeout: Duration,
    /// Counts since the start.
    pub totals: Totals,
    pub(crate) spares: Spares,
    pub(crate) clocks: Clocks,
    /// Memory that sessions have beyond the least.
    pub(crate) lent: Arc<Lent>,
    /// Most sessions for which there are descriptors.
    descriptors: usize,
    sessions: AtomicUsize,
    clients: Mutex<BTreeMap<String, usize>>,
    strangers: Mutex<Strangers>,
    active: Mutex<HashSet<SessionId>>,
    draining: AtomicBool,
}

impl Shared {
    /// A gateway without sessions, in a process with so many descriptors.
    pub fn new(
        policy: Policy,
        gatekeeper: Gatekeeper,
        transports: Vec<Arc<dyn Transport>>,
        descriptors: usize,
    ) -> Self {
        let strangers = (descriptors / 4).clamp(1, STRANGERS);
        let left = descriptors.saturating_sub(strangers + OWN_DESCRIPTORS);
        Self {
            policy: RwLock::new(Arc::new(policy)),
            gatekeeper: Mutex::new(gatekeeper),
            transports,
            header_timeout: Duration::from_secs(10),
            dial_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(60),
            spare_timeout: Duration::from_secs(300),
            totals: Totals::default(),
            spares: Spares::default(),
            clocks: Clocks::default(),
            lent: Arc::default(),
            descriptors: left / SESSION_DESCRIPTORS,
            sessions: AtomicUsize::new(0),
            clients: Mutex::default(),
            strangers: Mutex::new(Strangers::new(strangers)),
            active: Mutex::default(),
            draining: AtomicBool::new(false),
        }
    }

    /// The policy of now.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(|held| held.into_inner()).clone()
    }

    /// Another policy from now on; sessions that stand go on.
    pub fn set_policy(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(|held| held.into_inner()) = Arc::new(policy);
    }

    /// From now on clients are answered that the gateway stops.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// The gateway lets nobody in any more.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// A client arrives that has yet to prove itself.
    pub fn arrive(self: &Arc<Self>, from: IpAddr) -> Admission {
        let ticket = lock(&self.strangers).arrive(from);
        Admission { shared: self.clone(), place: Place::Stranger(ticket), session: None }
    }

    /// Descriptors are used up: one of those who have proven nothing has to go.
    pub fn make_room(&self) {
        lock(&self.strangers).make_room();
    }

    /// Most sessions at a time: what the operator wants, or there are descriptors and memory for.
    pub fn max_sessions(&self) -> usize {
        let policy = self.policy();
        let by_memory = usize::try_from(policy.memory / SESSION_MEMORY).unwrap_or(usize::MAX);
        policy.max_sessions.min(self.descriptors).min(by_memory)
    }

    /// Bytes of memory that are lent to sessions, beside the least of each place.
    pub fn memory_to_lend(&self) -> u64 {
        let reserved = (self.max_sessions() as u64).saturating_mul(SESSION_MEMORY);
        self.policy().memory.saturating_sub(reserved)
    }

    /// Sessions at present.
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Acquire)
    }

    /// The transport of this name; an empty name stands for the first one.
    pub fn transport(&self, name: &str) -> Option<&Arc<dyn Transport>> {
        self.transports.iter().find(|transport| name.is_empty() || transport.name() == name)
    }

    /// Connections that have proven nothing.
    pub fn strangers(&self) -> usize {
        lock(&self.strangers).len()
    }
}

/// A place among the strangers, then among the sessions; dropping it frees the place.
#[derive(Debug)]
pub struct Admission {
    shared: Arc<Shared>,
    place: Place,
    session: Option<SessionId>,
}

/// Why a client gets no place among the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPlace {
    /// The gateway has as many sessions as it may.
    #[error("all its {most} places are taken")]
    Full {
        /// Its places.
        most: usize,
    },
    /// The client has as many as it may.
    #[error("this client has {} there", counted(*held as u64, "session"))]
    OneClient {
        /// Its sessions.
        held: usize,
    },
}

#[derive(Debug)]
enum Place {
    Stranger(Ticket),
    /// Of the sessions of this client.
    Inside(String),
}

impl Admission {
    /// Something came from it.
    pub fn begin(&self) {
        if let Place::Stranger(ticket) = self.place {
            lock(&self.shared.strangers).begin(ticket);
        }
    }

    /// Others took its place among the strangers.
    pub fn had_to_go(&self) -> bool {
        match self.place {
            Place::Stranger(ticket) => !lock(&self.shared.strangers).has(ticket),
            Place::Inside(_) => false,
        }
    }

    /// Takes a place among the sessions of `client`.
    ///
    /// # Errors
    /// A limit stands against it.
    pub fn get_in(&mut self, client: &str) -> Result<(), NoPlace> {
        let Place::Stranger(ticket) = self.place else { return Ok(()) };
        let most = self.shared.max_sessions();
        let most_of_one = self.shared.policy().max_sessions_per_client;
        let mut clients = lock(&self.shared.clients);
        if self.shared.sessions() >= most {
            return Err(NoPlace::Full { most });
        }
        let held = clients.get(client).copied().unwrap_or_default();
        if held >= most_of_one {
            return Err(NoPlace::OneClient { held });
        }
        clients.insert(client.to_owned(), held + 1);
        self.shared.sessions.fetch_add(1, Ordering::AcqRel);
        drop(clients);
        lock(&self.shared.strangers).get_in(ticket);
        self.place = Place::Inside(client.to_owned());
        Ok(())
    }

    /// It holds a place among the sessions.
    pub const fn is_inside(&self) -> bool {
        matches!(self.place, Place::Inside(_))
    }

    /// Notes the session's id; `false` where this session passes here already: a loop.
    pub fn name(&mut self, session: SessionId) -> bool {
        let new = lock(&self.shared.active).insert(session);
        if new {
            self.session = Some(session);
        }
        new
    }

    /// The session's id, once it is known.
    pub const fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Policy, credentials and limits.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            lock(&self.shared.active).remove(&session);
        }
        match &self.place {
            Place::Stranger(ticket) => lock(&self.shared.strangers).leave(*ticket),
            Place::Inside(client) => {
                let mut clients = lock(&self.shared.clients);
                if let Some(held) = clients.get_mut(client) {
                    *held -= 1;
                    if *held == 0 {
                        clients.remove(client);
                    }
                }
                self.shared.sessions.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

/// Least memory of a session: what an idle one holds at most.
pub const SESSION_MEMORY: u64 = 64 << 10;
/// Most strangers. Each costs a descriptor and the kernel's first buffer.
const STRANGERS: usize = 1024;
/// Two sockets, and two pipes while bytes wait in them.
const SESSION_DESCRIPTORS: usize = 6;
/// Listeners, threads, standard streams, spare pipes.
const OWN_DESCRIPTORS: usize = 64;
