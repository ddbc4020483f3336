//! Plans that were shown and can be booked as they are, for some seconds.

use std::collections::HashMap;
use std::sync::PoisonError;

use axum::http::StatusCode;

use super::Site;
use super::auth::Caller;
use super::problem::Failure;
use crate::ledger::{Chosen, Command, Note};
use crate::service::View;

/// What was quoted.
#[derive(Clone, Debug)]
pub(super) struct Quoted {
    pub project: String,
    /// The tick up to which it is good.
    pub until: u64,
    /// The plans of all occurrences.
    pub plans: Vec<Chosen>,
    pub note: Note,
}

/// The quotes that are open, and some that are no longer good.
#[derive(Debug, Default)]
pub(crate) struct Quotes {
    by_id: HashMap<String, Quoted>,
    /// Number of plans in all of them.
    plans: usize,
}

impl Quotes {
    /// False if there are too many.
    fn insert(&mut self, id: String, quoted: Quoted, now: u64) -> bool {
        let more = quoted.plans.len();
        if self.plans + more > PLANS_MAX {
            self.by_id.retain(|_, quoted| quoted.until >= now);
            self.plans = self.by_id.values().map(|quoted| quoted.plans.len()).sum();
        }
        let fits = self.plans + more <= PLANS_MAX;
        if fits {
            self.plans += more;
            self.by_id.insert(id, quoted);
        }
        fits
    }
}

/// The command that books a quote.
pub(super) fn command(site: &Site, caller: &Caller, id: &str) -> Result<Command, Failure> {
    let quotes = site.quotes.lock().unwrap_or_else(PoisonError::into_inner);
    let found = quotes.by_id.get(id).filter(|quoted| quoted.project == caller.project).cloned();
    drop(quotes);
    let Quoted { until, plans, note, .. } = found.ok_or_else(stale)?;
    if until < site.service.view().now() {
        return Err(stale());
    }
    Ok(Command::Take { plans, note })
}

/// The quote can no longer be taken.
pub(super) fn stale() -> Failure {
    let detail = "this quote is not known or no longer good; ask for a new plan";
    Failure::new(StatusCode::CONFLICT, "stale-quote", "The quote is stale", detail)
}

/// Keeps a quote; returns the name under which it can be taken.
pub(super) fn remember(site: &Site, view: &View, quoted: Quoted) -> Result<String, Failure> {
    let mut random = [0; 16];
    let filled = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    if filled != Ok(random.len()) {
        let detail = "the operating system gives no randomness for a quote";
        return Err(Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "The service fails",
            detail,
        ));
    }
    let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut quotes = site.quotes.lock().unwrap_or_else(PoisonError::into_inner);
    if quotes.insert(id.clone(), quoted, view.now()) {
        return Ok(id);
    }
    let (title, detail) = ("Too much to do", "too many quotes are open; try again in a moment");
    Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", title, detail))
}

/// Plans that may be quoted at a time, some hundred bytes each.
const PLANS_MAX: usize = 100_000;
