//! Policy, credentials and limits of a gateway, which all its sessions share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use longhaul_relay::{Gatekeeper, Hop, SessionId};
use longhaul_session::TokenKey;
use longhaul_units::Duration;

use crate::policy::Destinations;
use crate::routes::Routes;
use crate::segments::Segments;
use crate::transport::Transport;

/// What an operator decides, and may change while sessions go on.
#[derive(Debug, Default)]
pub struct Policy {
    /// The gateway's name in answers; without one, each answer names the address that was dialled.
    pub name: Option<String>,
    /// Proves this gateway to the next one.
    pub via_key: Option<TokenKey>,
    /// The addresses that may be dialled.
    pub destinations: Destinations,
    /// Gateways through which SOCKS and forwarded clients are led whom no route leads elsewhere.
    pub via: Vec<Hop>,
    /// Further gateways by target.
    pub routes: Routes,
    /// Settings of segments.
    pub segments: Segments,
    /// Most sessions at a time.
    pub max_sessions: usize,
}

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
    sessions: AtomicUsize,
    active: Mutex<HashSet<SessionId>>,
}

impl Shared {
    /// A gateway without sessions.
    pub fn new(
        policy: Policy,
        gatekeeper: Gatekeeper,
        transports: Vec<Arc<dyn Transport>>,
    ) -> Self {
        Self {
            policy: RwLock::new(Arc::new(policy)),
            gatekeeper: Mutex::new(gatekeeper),
            transports,
            header_timeout: Duration::from_secs(10),
            dial_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(60),
            sessions: AtomicUsize::new(0),
            active: Mutex::default(),
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

    /// Takes a place among the sessions; `None` where all are taken.
    pub fn admit(self: &Arc<Self>) -> Option<Seat> {
        let most = self.policy().max_sessions;
        let free = |taken: usize| (taken < most).then_some(taken + 1);
        self.sessions.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        Some(Seat { shared: self.clone(), session: None })
    }

    /// Sessions at present.
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Acquire)
    }

    /// The transport of this name; an empty name stands for the first one.
    pub fn transport(&self, name: &str) -> Option<&Arc<dyn Transport>> {
        self.transports.iter().find(|transport| name.is_empty() || transport.name() == name)
    }

    fn active(&self) -> MutexGuard<'_, HashSet<SessionId>> {
        self.active.lock().unwrap_or_else(|held| held.into_inner())
    }
}

/// A place among the sessions; dropping it frees the place.
#[derive(Debug)]
pub struct Seat {
    shared: Arc<Shared>,
    session: Option<SessionId>,
}

impl Seat {
    /// Notes the session's id; `false` where this session passes here already: a loop.
    pub fn name(&mut self, session: SessionId) -> bool {
        let new = self.shared.active().insert(session);
        if new {
            self.session = Some(session);
        }
        new
    }

    /// Policy, credentials and limits.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            self.shared.active().remove(&session);
        }
        self.shared.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}
