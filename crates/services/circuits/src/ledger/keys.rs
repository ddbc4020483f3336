//! Idempotency keys, of each project by itself.

use std::collections::{BTreeMap, VecDeque};

use super::order::Id;

/// Outcomes of orders with keys, by project. A project that uses very many forgets its own oldest.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys(BTreeMap<String, OfProject>);

#[derive(Clone, Debug, Default)]
struct OfProject {
    /// Fingerprint of the request, and bookings.
    known: BTreeMap<String, (String, Vec<Id>)>,
    /// When keys were used, oldest first.
    ages: VecDeque<(u64, String)>,
}

impl Keys {
    pub(super) fn get(&self, project: &str, key: &str) -> Option<&(String, Vec<Id>)> {
        self.0.get(project)?.known.get(key)
    }

    /// Remembers a key that was used at `tick` and is not known.
    pub(super) fn insert(&mut self, tick: u64, project: &str, key: &str, what: (String, Vec<Id>)) {
        let own = self.0.entry(project.into()).or_default();
        own.known.insert(key.into(), what);
        own.ages.push_back((tick, key.into()));
        if own.ages.len() > KEYS_MAX {
            own.forget_oldest();
        }
    }

    /// Forgets keys that were used at `life` ticks before `tick` or earlier.
    pub(super) fn forget(&mut self, tick: u64, life: u64) {
        self.0.retain(|_, own| {
            let old = |(used, _): &(u64, String)| used.saturating_add(life) <= tick;
            while own.ages.front().is_some_and(old) {
                own.forget_oldest();
            }
            !own.ages.is_empty()
        });
    }

    /// All of them: tick, project, key, and what came of it. Those of a project oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &str, &str, &(String, Vec<Id>))> {
        self.0.iter().flat_map(|(project, own)| {
            let all = own.ages.iter();
            all.filter_map(move |(tick, key)| {
                Some((*tick, &**project, &**key, own.known.get(key)?))
            })
        })
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl OfProject {
    fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.ages.pop_front() {
            self.known.remove(&key);
        }
    }
}

/// Keys of a project that are remembered, some hundred bytes each.
const KEYS_MAX: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_that_uses_many_keys_forgets_its_own() {
        let mut keys = Keys::default();
        let what = ("f".to_owned(), vec![]);
        keys.insert(1, "a", "k", what.clone());
        for number in 0..=KEYS_MAX {
            keys.insert(2, "b", &number.to_string(), what.clone());
        }
        assert_eq!(keys.get("a", "k"), Some(&what));
        assert_eq!((keys.get("b", "0"), keys.get("b", "1")), (None, Some(&what)));
        assert_eq!(keys.iter().count(), KEYS_MAX + 1);
        keys.forget(11, 10);
        assert_eq!((keys.get("a", "k"), keys.get("b", "1")), (None, Some(&what)));
        keys.forget(12, 10);
        assert!(keys.0.is_empty());
    }
}
