//! Candidate paths between two nodes.

use crate::ledger::{LinkSpec, Route};

/// Up to `most` simple paths from one node to another, those with the fewest links first.
pub(super) fn between(links: &[LinkSpec], from: &str, to: &str, most: usize) -> Vec<Route> {
    let mut found = Vec::new();
    let mut partial: std::collections::VecDeque<(&str, Vec<u32>)> = [(from, Vec::new())].into();
    let mut steps = 0;
    while let Some((node, path)) = partial.pop_front() {
        if node == to {
            found.push(Route(path));
            if found.len() == most {
                break;
            }
            continue;
        }
        steps += 1;
        if path.len() == HOPS_MAX || steps > STEPS_MAX {
            continue;
        }
        for (number, link) in links.iter().enumerate().filter(|(_, link)| link.from == node) {
            let been = |number: &u32| links.get(*number as usize).map(|link| link.from.as_str());
            let returns = path.iter().any(|number| been(number) == Some(link.to.as_str()));
            if !returns && link.to != node {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                partial.push_back((&link.to, [path.as_slice(), &[number]].concat()));
            }
        }
    }
    found
}

/// The first two neighbours of a route of which one does not begin where the other ends.
pub(super) fn gap<'a>(
    links: &'a [LinkSpec],
    route: &Route,
) -> Option<(&'a LinkSpec, &'a LinkSpec)> {
    let link = |number: u32| links.get(number as usize);
    let pairs = route.0.iter().zip(route.0.iter().skip(1));
    let mut pairs = pairs.filter_map(|(one, next)| Some((link(*one)?, link(*next)?)));
    pairs.find(|(one, next)| one.to != next.from)
}

/// Longest path.
const HOPS_MAX: usize = 16;
/// Nodes that are looked at before a search ends with what it has.
const STEPS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_paths_come_first_and_none_returns() {
        let link = |(name, from, to): (&str, &str, &str)| LinkSpec {
            name: name.into(),
            from: from.into(),
            to: to.into(),
            capacity: 1,
            price_micros: 0,
        };
        let ends = [("ab", "a", "b"), ("ba", "b", "a"), ("bc", "b", "c"), ("ac", "a", "c")];
        let links: Vec<_> = ends.into_iter().chain([("ab2", "a", "b")]).map(link).collect();
        let paths = between(&links, "a", "c", 9);
        assert_eq!(paths, [vec![3], vec![0, 2], vec![4, 2]].map(Route));
        assert_eq!(between(&links, "a", "c", 1).len(), 1);
        assert!(between(&links, "c", "a", 9).is_empty());
        assert!(between(&links, "x", "y", 9).is_empty());
    }
}
