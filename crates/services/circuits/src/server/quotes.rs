//! Plans that were shown and can be booked as they are, for some seconds.

use longhaul_sys::sync::lock;
use std::collections::HashMap;
use std::sync::MutexGuard;

use axum::http::StatusCode;
use longhaul_sys::random;
use tokio::task::JoinHandle;

use super::Site;
use super::auth::Caller;
use super::problem::ProblemResponse;
use crate::ledger::{Chosen, Command, Note, Order};
use crate::service::{Decided, ServiceError, View};

/// A quote.
#[derive(Clone, Debug)]
pub(super) struct Quoted {
    pub project: String,
    /// The tick up to which it is good.
    pub until: u64,
    /// The plans of all occurrences.
    pub plans: Vec<Chosen>,
    pub note: Note,
}

/// The quotes that are open, and some that are no longer good. Each project has its own share.
#[derive(Debug, Default)]
pub(crate) struct Quotes(HashMap<String, OfProject>);

#[derive(Debug, Default)]
struct OfProject {
    by_id: HashMap<String, Quoted>,
    /// Number of plans in all of them.
    plans: usize,
}

impl Quotes {
    /// False if there are too many.
    fn insert(&mut self, id: String, quoted: Quoted, now: u64) -> bool {
        let more = quoted.plans.len();
        let own = self.0.entry(quoted.project.clone()).or_default();
        if own.plans + more > PLANS_MAX {
            own.by_id.retain(|_, quoted| quoted.until >= now);
            own.plans = own.by_id.values().map(|quoted| quoted.plans.len()).sum();
        }
        let fits = own.plans + more <= PLANS_MAX;
        if fits {
            self.put(id, quoted);
        }
        fits
    }

    fn put(&mut self, id: String, quoted: Quoted) {
        let own = self.0.entry(quoted.project.clone()).or_default();
        own.plans += quoted.plans.len();
        own.by_id.insert(id, quoted);
    }

    /// Takes out a quote of this project if it is still good.
    fn remove(&mut self, id: &str, project: &str, now: u64) -> Option<Quoted> {
        let own = self.0.get_mut(project)?;
        own.by_id.get(id).filter(|quoted| quoted.until >= now)?;
        let quoted = own.by_id.remove(id)?;
        own.plans -= quoted.plans.len();
        Some(quoted)
    }
}

/// Gives the order that books a quote; what comes back waits for the answer. From then on nobody
/// else can take it, unless it turns out that it was not booked.
pub(super) fn take(
    site: &Site,
    caller: &Caller,
    id: &str,
    order: impl FnOnce(Command) -> Order,
) -> Result<JoinHandle<Result<Decided, ServiceError>>, ProblemResponse> {
    let now = site.service.view().now();
    let mut quotes = site.lock_quotes();
    let quoted = quotes.remove(id, &caller.project, now).ok_or_else(stale)?;
    let command = Command::Take { plans: quoted.plans.clone(), note: quoted.note.clone() };
    // The lock is held until the order is given: a request that finds the quote gone and asks what
    // came of the same key asks after it.
    let decided = site.service.decide(order(command));
    drop(quotes);
    let (site, id) = (site.clone(), id.to_owned());
    // A task of its own, since the client may go, and the quote must come back all the same.
    Ok(tokio::spawn(async move {
        let decided = decided.await;
        if decided.is_err() {
            site.lock_quotes().put(id, quoted);
        }
        decided
    }))
}

impl Site {
    fn lock_quotes(&self) -> MutexGuard<'_, Quotes> {
        lock(&self.quotes)
    }
}

/// The quote can no longer be taken.
pub(super) fn stale() -> ProblemResponse {
    let detail = "this quote is not known or no longer good; ask for a new plan";
    ProblemResponse::new(StatusCode::CONFLICT, "stale-quote", "The quote is stale", detail)
}

/// Keeps a quote; returns the name under which it can be taken.
pub(super) fn remember(
    site: &Site,
    view: &View,
    quoted: Quoted,
) -> Result<String, ProblemResponse> {
    let Ok(random) = random::bytes::<16>() else {
        let detail = "the operating system gives no randomness for a quote";
        return Err(ProblemResponse::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "The service fails",
            detail,
        ));
    };
    let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    if site.lock_quotes().insert(id.clone(), quoted, view.now()) {
        return Ok(id);
    }
    let (title, detail) =
        ("Too much to do", "too many quotes of this project are open; try again in a moment");
    Err(ProblemResponse::new(StatusCode::SERVICE_UNAVAILABLE, "busy", title, detail))
}

/// Plans of a project that may be quoted at a time, some hundred bytes each.
const PLANS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_that_has_all_its_quotes_open_leaves_others_theirs() {
        let mut quotes = Quotes::default();
        let quoted = |project: &str, until| {
            let route = crate::ledger::Route(vec![0]);
            let request = crate::ledger::Ask::Hold {
                duration: 1,
                min_rate: 1,
                max_rate: 1,
                earliest: 1,
                latest_start: None,
            };
            let plan = Chosen { request, path: route, ranges: Default::default() };
            Quoted { project: project.into(), until, plans: vec![plan; 100], note: Note::default() }
        };
        assert!((0..100).all(|number| quotes.insert(number.to_string(), quoted("a", 5), 1)));
        assert!(!quotes.insert("more".into(), quoted("a", 5), 5));
        assert!(quotes.insert("b".into(), quoted("b", 5), 5));
        assert!(quotes.remove("b", "a", 5).is_none() && quotes.remove("b", "b", 5).is_some());
        assert!(quotes.insert("more".into(), quoted("a", 9), 6), "the old are no longer good");
        assert!(quotes.remove("7", "a", 6).is_none() && quotes.remove("more", "a", 6).is_some());
    }
}
