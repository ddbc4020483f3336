//! Refusals under an idempotency key, kept for as long as the request may come again.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::ledger::{Order, Refusal};

/// The last refusals of each project that came with a key. They are not in the log: a node that
/// takes the lead decides again, and so does this one after a while.
#[derive(Debug, Default)]
pub(super) struct RefusedRequests(HashMap<String, OfProject>);

#[derive(Debug, Default)]
struct OfProject {
    /// Fingerprint of the request and answer, by key.
    known: HashMap<String, (Instant, String, Refusal)>,
    /// Oldest first.
    ages: VecDeque<(Instant, String)>,
}

impl RefusedRequests {
    /// The answer that the same request got under its key.
    pub(super) fn known(&self, order: &Order, now: Instant) -> Option<Refusal> {
        let (key, fingerprint) = order.key.as_ref()?;
        let (at, same, refusal) = self.0.get(&order.project)?.known.get(key)?;
        (now < *at + LIFE && same == fingerprint).then(|| refusal.clone())
    }

    /// Keeps an answer.
    pub(super) fn remember(
        &mut self,
        project: String,
        key: Option<(String, String)>,
        refusal: &Refusal,
        now: Instant,
    ) {
        let Some((key, fingerprint)) = key else { return };
        let own = self.0.entry(project).or_default();
        own.known.insert(key.clone(), (now, fingerprint, refusal.clone()));
        own.ages.push_back((now, key));
        while own.ages.len() > MOST || own.ages.front().is_some_and(|(at, _)| now >= *at + LIFE) {
            let Some((at, key)) = own.ages.pop_front() else { break };
            // Under the same key another may have come since.
            if own.known.get(&key).is_some_and(|(known, ..)| *known == at) {
                own.known.remove(&key);
            }
        }
    }
}

/// Longer than a client waits for an answer, and asks again.
const LIFE: Duration = Duration::from_secs(60);
/// Refusals that are kept for a project, some hundred bytes each.
const MOST: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Command;

    fn order(project: &str, key: &str, fingerprint: &str) -> Order {
        Order {
            actor: "t".into(),
            project: project.into(),
            operator: false,
            key: Some((key.into(), fingerprint.into())),
            command: Command::Replan,
        }
    }

    #[test]
    fn a_refusal_is_repeated_for_a_minute_to_the_same_request_of_the_same_project() {
        let (mut refusals, now) = (RefusedRequests::default(), Instant::now());
        let no = Refusal::NoRoom { occurrence: 0 };
        let mut no_to = |project: &str, key: &str, after: u64| {
            let Order { project, key, .. } = order(project, key, "f");
            refusals.remember(project, key, &no, now + Duration::from_secs(after));
        };
        no_to("a", "k", 0);
        // Others' refusals take nobody's place.
        (0..2 * MOST).for_each(|number| no_to("b", &format!("k{number}"), 1));
        let known =
            |order: &Order, after: u64| refusals.known(order, now + Duration::from_secs(after));
        assert_eq!(known(&order("a", "k", "f"), 59), Some(no.clone()));
        assert_eq!(known(&order("a", "k", "f"), 60), None);
        assert_eq!(known(&order("a", "k", "g"), 1), None, "another request is decided");
        assert_eq!(known(&order("c", "k", "f"), 1), None);
        assert_eq!(known(&order("b", "k0", "f"), 2), None);
        assert_eq!(known(&order("b", "k1999", "f"), 2), Some(no));
        assert_eq!((refusals.0["b"].known.len(), refusals.0["b"].ages.len()), (MOST, MOST));
    }
}
