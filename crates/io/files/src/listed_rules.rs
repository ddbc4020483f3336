//! Listed names beside rules (docs/protocol.md section 7.9): rules judge a listed name by itself, whatever they say of
//! what is above it.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_wire::{FilterKind, FilterRule, MAX_RULES};

use crate::filter::{Filter, FilterError};

/// Listed names and rules that say to every source together what rules mean beside listed names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamesBesideRules {
    /// Of the names those that no rule takes away, as far as is known without the source.
    pub names: Vec<Vec<u8>>,
    /// Rules of these names, and the others behind them.
    pub rules: Vec<FilterRule>,
    /// Names in listed directories, or what holds them, which have to be announced: a source does not look for them one
    /// by one. One has a slash behind it if it is no link.
    pub due: Vec<Vec<u8>>,
}

/// Listed `names` and `rules` taken together as `rsync` does: a name that is excluded takes away itself, and no name
/// that is listed below it; a name in a listed directory is copied although a rule excludes a directory between them.
///
/// # Errors
/// The rules cannot be used, or too many would have to be added.
pub fn list_beside_rules(
    names: Vec<Vec<u8>>,
    rules: Vec<FilterRule>,
) -> Result<NamesBesideRules, FilterError> {
    let filter = Filter::new(&rules)?;
    let admits = |path: &[u8], is_directory| {
        filter.as_ref().is_none_or(|filter| filter.admits(path, is_directory))
    };
    let above: BTreeSet<Vec<u8>> = match filter {
        Some(_) => {
            names.iter().flat_map(|it| directories_above(path(it))).map(<[u8]>::to_vec).collect()
        }
        None => BTreeSet::new(),
    };
    // Another may be a file: its source judges it.
    let is_excluded = |name: &[u8]| !name.is_empty() && above.contains(name) && !admits(name, true);
    let names: Vec<_> = names.into_iter().filter(|name| !is_excluded(path(name))).collect();
    let mut listed = BTreeMap::new();
    names.iter().for_each(|it| *listed.entry(path(it)).or_insert(false) |= it.ends_with(b"/"));
    let (mut passed, mut reached, mut due) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
    for (&name, is_slashed) in &listed {
        let above: Vec<&[u8]> = directories_above(name).collect();
        // Rules do not judge what is above all listed names.
        let Some(nearest) = above.iter().rposition(|it| listed.contains_key(it)) else { continue };
        let admitted = Admitted::of(admits(name, true), admits(name, false));
        due.insert(match admitted {
            Admitted::Never => continue,
            Admitted::Always if *is_slashed => [name, b"/"].concat(),
            Admitted::Always => name.to_vec(),
            // It may be what is excluded: then it is missed by nobody, and its directory is.
            Admitted::AsDirectory | Admitted::ButNoDirectory => directory(name).to_vec(),
        });
        let between = above[nearest + 1..].iter().copied();
        let excluded: Vec<_> = between.skip_while(|it| admits(it, true)).collect();
        if !excluded.is_empty() {
            reached.insert(name, admitted);
            passed.extend(excluded);
        }
    }
    let added = added(&passed, &reached);
    if added.len() + rules.len() > MAX_RULES {
        return Err(FilterError::TooManyListed { names: reached.len() });
    }
    let rules = added.into_iter().chain(rules).collect();
    Ok(NamesBesideRules { rules, due: due.into_iter().collect(), names })
}

/// As which a listed name is admitted by rules.
#[derive(Clone, Copy)]
enum Admitted {
    Always,
    AsDirectory,
    ButNoDirectory,
    Never,
}

impl Admitted {
    fn of(as_directory: bool, otherwise: bool) -> Self {
        match (as_directory, otherwise) {
            (true, true) => Self::Always,
            (true, false) => Self::AsDirectory,
            (false, true) => Self::ButNoDirectory,
            (false, false) => Self::Never,
        }
    }
}

/// Rules that lead through directories that others exclude, `passed`, to the names that are `reached` in them.
fn added(passed: &BTreeSet<&[u8]>, reached: &BTreeMap<&[u8], Admitted>) -> Vec<FilterRule> {
    let mut added = Vec::new();
    let mut add = |kind, pattern| added.push(FilterRule { kind, pattern });
    passed.iter().for_each(|it| add(FilterKind::Include, anchored(it, b"/")));
    for (name, admitted) in reached {
        match admitted {
            Admitted::Always => add(FilterKind::Include, anchored(name, b"")),
            Admitted::AsDirectory => add(FilterKind::Include, anchored(name, b"/")),
            Admitted::ButNoDirectory | Admitted::Never => {
                add(FilterKind::Exclude, anchored(name, b"/"));
                add(FilterKind::Include, anchored(name, b""));
            }
        }
    }
    passed.iter().for_each(|it| add(FilterKind::Exclude, anchored(it, b"/*")));
    added
}

/// A listed name without the slash behind it.
fn path(name: &[u8]) -> &[u8] {
    name.strip_suffix(b"/").unwrap_or(name)
}

/// The directories above a path, the source first.
fn directories_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let top = (!path.is_empty()).then_some(&path[..0]);
    top.into_iter().chain(ends.map(|(end, _)| &path[..end]))
}

/// The directory that a path is in.
fn directory(path: &[u8]) -> &[u8] {
    directories_above(path).last().unwrap_or_default()
}

/// A pattern for one path, with `end` behind it.
fn anchored(path: &[u8], end: &[u8]) -> Vec<u8> {
    let is_wild = |byte: &u8| b"*?[".contains(byte);
    // Without a wildcard a backslash is itself.
    let escapes = path.iter().chain(end).any(is_wild);
    let escape = |byte: &u8| escapes && (is_wild(byte) || *byte == b'\\');
    let mut pattern = vec![b'/'];
    for byte in path {
        pattern.extend(escape(byte).then_some(b'\\'));
        pattern.push(*byte);
    }
    pattern.extend_from_slice(end);
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of a tree that are copied, by names and rules as a source takes them.
    fn copied(names: &[&str], patterns: &[&str]) -> Vec<&'static str> {
        let exclude = |it: &&str| FilterRule { kind: FilterKind::Exclude, pattern: (*it).into() };
        let names = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let NamesBesideRules { names, rules, due } =
            list_beside_rules(names, patterns.iter().map(exclude).collect()).unwrap();
        let filter = Filter::new(&rules).unwrap().unwrap();
        let listed: Vec<&[u8]> = names.iter().map(|name| path(name)).collect();
        // As NameList: none is in another.
        let outer = |it: &[u8]| {
            listed.contains(&it) && !directories_above(it).any(|it| listed.contains(&it))
        };
        let is_copied = |file: &&&str| {
            let file = file.as_bytes();
            let all: Vec<&[u8]> = directories_above(file).chain([file]).collect();
            let begin = all.iter().position(|it| outer(it));
            begin.is_some_and(|begin| {
                all[begin..]
                    .iter()
                    .all(|it| it.is_empty() || filter.admits(it, it.len() < file.len()))
            })
        };
        let copied: Vec<_> = FILES.iter().filter(is_copied).copied().collect();
        // A directory that is due holds one of them.
        for due in due.iter().map(|due| str::from_utf8(due).unwrap()) {
            assert!(copied.iter().any(|file| file.starts_with(due)), "{due}: {copied:?}");
        }
        copied
    }

    const FILES: [&str; 6] =
        ["o/ex/g", "o/ex/sub/deep/z", "o/ex/sub/f", "o/ex/sub/f.o", "o/other/h", "o/[*\\/k"];

    #[test]
    fn rules_judge_listed_names_as_those_of_rsync() {
        let f = "o/ex/sub/f";
        let sub = ["o/ex/sub/deep/z", f, "o/ex/sub/f.o"];
        let (others, g) = (["o/other/h", "o/[*\\/k"], "o/ex/g");
        let with = |one: &'static [&'static str]| [one, &others].concat();
        // What rsync 3.5.0 copies with -r.
        let cases: [(&[&str], &[&str], Vec<&str>); 18] = [
            (&["o/ex", f], &["ex"], vec![f]),
            (&[f, "o/ex/"], &["ex"], vec![f]),
            (&[f], &["ex"], vec![f]),
            (&["o/ex"], &["ex"], vec![]),
            (&["o/ex", "o/ex/sub"], &["ex"], sub.to_vec()),
            (&["o/ex", "o/ex/sub", f], &["ex"], sub.to_vec()),
            (&["o/ex", f], &["ex/"], vec![f]),
            (&["o", "o/ex/g"], &["ex"], with(&["o/ex/g"])),
            (&["o", f], &["ex"], with(&["o/ex/sub/f"])),
            (&["o", "o/ex", f], &["ex"], with(&["o/ex/sub/f"])),
            (&["o", "o/ex/sub"], &["ex", "deep"], with(&["o/ex/sub/f", "o/ex/sub/f.o"])),
            (&["o", f], &["o"], vec![f]),
            (&["o/ex", "o/ex/sub", f], &["sub"], vec![g, f]),
            (&[f], &["f"], vec![]),
            (&["o/ex", f], &["f"], vec![g, sub[0], sub[2]]),
            (&["o/ex", f], &["/o/ex/**"], vec![]),
            (&["o/ex", f], &["/o/ex/*"], vec![f]),
            (&["o/ex", "o/ex/sub/f.o", f], &["sub", "*.o"], vec![g, f]),
        ];
        for (names, patterns, files) in cases {
            assert_eq!(copied(names, patterns), files, "{names:?} {patterns:?}");
        }
        let wild = "o/[*\\/k";
        assert_eq!(copied(&["o", wild], &["/o/*"]), [wild]);
        assert_eq!(copied(&["", f], &["ex"]), with(&["o/ex/sub/f"]));
        assert_eq!(copied(&["", f], &["*"]), [""; 0]);
    }

    #[test]
    fn names_in_listed_directories_are_due() {
        let exclude = |it: &str| FilterRule { kind: FilterKind::Exclude, pattern: it.into() };
        let due = |names: &[&str], patterns: &[&str]| {
            let names = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            let rules = patterns.iter().map(|it| exclude(it)).collect();
            list_beside_rules(names, rules).unwrap().due
        };
        assert_eq!(due(&["o", "o/ex/f"], &["ex"]), [b"o/ex/f"]);
        assert_eq!(due(&["o", "o/ex/f"], &["ex", "f/"]), [b"o/ex"]);
        assert_eq!(due(&["o", "o/ex/f"], &["ex", "f"]), [b""; 0]);
        assert_eq!(due(&["o", "o/in/f"], &["ex"]), [b"o/in/f"]);
        assert_eq!(due(&["", "o/f", "o/l", "o/l/"], &[]), [&b"o/f"[..], b"o/l/"]);
        assert_eq!(due(&["o", "o-f", "p/f"], &[]), [b""; 0]);
        let names: Vec<_> = (0..1000).map(|number| format!("o/ex/{number}")).collect();
        let names = |count| {
            let names = names[..count].iter().map(|name| name.as_bytes().to_vec());
            names.chain([b"o".to_vec()]).collect()
        };
        let list = |count| list_beside_rules(names(count), vec![exclude("ex")]);
        assert_eq!(list(997).unwrap().rules.len(), MAX_RULES);
        let error = list(998).unwrap_err().to_string();
        assert!(error.starts_with("998 names are listed in directories that patterns"), "{error}");
    }
}
