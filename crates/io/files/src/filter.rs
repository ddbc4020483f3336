//! Rules about names that are copied and names that are not (docs/protocol.md section 7.9): the patterns
//! of `rsync`, matched in a time that grows with the length of a path only.

use longhaul_wire::{FilterKind, FilterRule, MAX_RULES};
use regex::bytes::{RegexSet, RegexSetBuilder};

/// Rules, made ready. The first one that matches a path decides; without one it is copied.
#[derive(Clone, Debug)]
pub struct Filter {
    patterns: RegexSet,
    /// Of each pattern: what becomes of what it matches.
    matched: Vec<Matched>,
}

#[derive(Clone, Copy, Debug)]
struct Matched {
    kind: FilterKind,
    /// It matches directories only.
    directory: bool,
}

/// Why rules cannot be used. Shown to people as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// A pattern is empty, or only slashes.
    #[error("the pattern {pattern:?} matches nothing")]
    Empty {
        /// The pattern.
        pattern: String,
    },
    /// A set of characters is no set.
    #[error(
        "the pattern {pattern:?} has a wrong set of characters: {reason}; a [ that is part of a name is \
         written \\["
    )]
    Set {
        /// The pattern.
        pattern: String,
        /// Why.
        reason: String,
    },
    /// More than a request can have.
    #[error("at most {MAX_RULES} patterns can be given")]
    TooMany,
    /// The names of a list need more of them than a request can have.
    #[error(
        "{names} names are listed in directories that patterns exclude, and directories above these are listed \
         too: that takes more rules than the {MAX_RULES} of a copy; list parts of them in several copies"
    )]
    TooManyListed {
        /// Names that rules are needed for.
        names: usize,
    },
    /// Together they would take too much memory.
    #[error("the patterns are too long together: {0}")]
    TooLarge(String),
}

impl Filter {
    /// Makes `rules` ready; nothing where there are none.
    pub fn new(rules: &[FilterRule]) -> Result<Option<Self>, FilterError> {
        if rules.len() > MAX_RULES {
            return Err(FilterError::TooMany);
        }
        if rules.is_empty() {
            return Ok(None);
        }
        let wrong = |pattern: &[u8], reason| FilterError::Set { pattern: shown(pattern), reason };
        let (mut patterns, mut matched) = (Vec::new(), Vec::new());
        for (rule, FilterRule { kind, pattern }) in rules.iter().enumerate() {
            if let Some(class) = unknown_class(pattern) {
                return Err(wrong(pattern, format!("there is no class {class}")));
            }
            let unended = || wrong(pattern, "it has no end: ] is missing".into());
            let translated = translate(pattern).ok_or_else(unended)?;
            if translated.is_empty() {
                return Err(FilterError::Empty { pattern: shown(pattern) });
            }
            for (expression, directory) in translated {
                patterns.push((expression, rule));
                matched.push(Matched { kind: *kind, directory });
            }
        }
        let set = RegexSetBuilder::new(patterns.iter().map(|(expression, _)| expression))
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(COMPILED_MOST)
            .build();
        // The set does not say which of them is wrong: each alone does.
        let reason = |error: regex::Error| {
            let alone = |(expression, rule): &(String, usize)| {
                let reason = check_syntax(expression).err()?;
                Some(wrong(&rules[*rule].pattern, reason))
            };
            let first = patterns.iter().find_map(alone);
            first.unwrap_or_else(|| FilterError::TooLarge(error.to_string()))
        };
        Ok(Some(Self { patterns: set.map_err(reason)?, matched }))
    }

    /// True if what has this path, as an entry has it, is copied. What is in a directory that is not is
    /// not looked at.
    pub fn admits(&self, path: &[u8], is_directory: bool) -> bool {
        let matches = self.patterns.matches(path);
        let mut rules = matches.iter().map(|number| self.matched[number]);
        let first = rules.find(|rule| is_directory || !rule.directory);
        first.is_none_or(|rule| rule.kind == FilterKind::Include)
    }
}

fn check_syntax(pattern: &str) -> Result<(), String> {
    let built =
        regex::bytes::RegexBuilder::new(pattern).unicode(false).size_limit(COMPILED_MOST).build();
    match built {
        Err(regex::Error::Syntax(error)) => {
            Err(error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
        }
        _ => Ok(()),
    }
}

/// Regular expressions over paths for a pattern, each with whether it is about directories only: none for
/// a pattern that is none. `None` where a set of characters does not end.
fn translate(pattern: &[u8]) -> Option<Vec<(String, bool)>> {
    // Without a wildcard each byte is itself, backslashes as well.
    let is_literal = !pattern.iter().any(|byte| b"*?[".contains(byte));
    let (is_anchored, pattern) = match pattern.strip_prefix(b"/") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let anchor = if is_anchored { "^" } else { "(?:^|/)" };
    let (all_below, pattern) = match pattern.strip_suffix(b"/***") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let (directory, pattern) = match pattern.strip_suffix(b"/") {
        Some(rest) => (true, rest),
        None => (all_below, pattern),
    };
    if pattern.is_empty() {
        return Some(Vec::new());
    }
    let mut out = String::from(anchor);
    if is_literal {
        pattern.iter().for_each(|byte| push_literal(&mut out, *byte));
    } else if let Some(rest) = pattern.strip_prefix(b"**/").filter(|_| !is_anchored) {
        // It may stand for nothing, with its slash; behind a slash it stands for a directory.
        out.push_str("(?:.*/)?");
        push_wild(&mut out, rest)?;
    } else {
        push_wild(&mut out, pattern)?;
    }
    let below = all_below.then(|| (format!("{out}/.*$"), false));
    Some(std::iter::once((format!("{out}$"), directory)).chain(below).collect())
}

/// The first class of characters in a pattern that there is not, as `[:this:]`.
fn unknown_class(pattern: &[u8]) -> Option<String> {
    let mut rest = pattern;
    while let Some(begin) = rest.windows(2).position(|pair| pair == b"[:") {
        rest = &rest[begin + 2..];
        let end = rest.windows(2).position(|pair| pair == b":]")?;
        let name = &rest[..end];
        if !CLASSES.iter().any(|class| class.as_bytes() == name) {
            return Some(format!("[:{}:]", shown(name)));
        }
        rest = &rest[end..];
    }
    None
}

fn push_wild(out: &mut String, pattern: &[u8]) -> Option<()> {
    let mut rest = pattern;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'*' if rest.first() == Some(&b'*') => {
                let stars = rest.iter().take_while(|byte| **byte == b'*').count();
                rest = &rest[stars..];
                out.push_str(".*");
            }
            b'*' => out.push_str("[^/]*"),
            b'?' => out.push_str("[^/]"),
            b'[' => rest = push_set(out, rest)?,
            b'\\' => match rest.split_first() {
                Some((escaped, after)) => {
                    push_literal(out, *escaped);
                    rest = after;
                }
                None => push_literal(out, b'\\'),
            },
            other => push_literal(out, *other),
        }
    }
    Some(())
}

/// A set of characters, which begins behind its bracket. Returns what is behind it, if it ends.
fn push_set<'a>(out: &mut String, rest: &'a [u8]) -> Option<&'a [u8]> {
    // No set holds a slash.
    out.push_str("[[^/]&&[");
    let mut rest = rest;
    if let [b'!' | b'^', after @ ..] = rest {
        out.push('^');
        rest = after;
    }
    let mut is_first = true;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b']' if !is_first => {
                out.push_str("]]");
                return Some(rest);
            }
            b'[' if rest.first() == Some(&b':') => {
                let end =
                    rest.windows(2).position(|pair| pair == b":]").map_or(rest.len(), |at| at + 2);
                out.push('[');
                out.push_str(&String::from_utf8_lossy(&rest[..end]));
                rest = &rest[end..];
            }
            b'-' if !is_first && rest.first().is_some_and(|next| *next != b']') => out.push('-'),
            b'\\' => {
                let escaped = rest.split_first();
                push_literal(out, escaped.map_or(b'\\', |(byte, _)| *byte));
                rest = escaped.map_or(rest, |(_, after)| after);
            }
            other => push_literal(out, *other),
        }
        is_first = false;
    }
    None
}

fn push_literal(out: &mut String, byte: u8) {
    out.push_str(&format!("\\x{byte:02x}"));
}

pub(crate) fn shown(pattern: &[u8]) -> String {
    pattern.escape_ascii().to_string()
}

const CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];
/// Bytes of memory for all rules of a request.
const COMPILED_MOST: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str]) -> Filter {
        let rule = |text: &&str| {
            let (kind, pattern) = text.split_once(' ').unwrap();
            let kind = if kind == "+" { FilterKind::Include } else { FilterKind::Exclude };
            FilterRule { kind, pattern: pattern.into() }
        };
        Filter::new(&rules.iter().map(rule).collect::<Vec<_>>()).unwrap().unwrap()
    }

    fn check(pattern: &str, matched: &[&str], others: &[&str]) {
        let filter = filter(&[&format!("- {pattern}")]);
        let admits =
            |path: &str| filter.admits(path.trim_end_matches('/').as_bytes(), path.ends_with('/'));
        for path in matched {
            assert!(!admits(path), "{pattern} matches {path}");
        }
        for path in others {
            assert!(admits(path), "{pattern} does not match {path}");
        }
    }

    #[test]
    fn patterns_match_as_those_of_rsync() {
        check("*.o", &["a.o", "d/a.o", "d.o/", ".o"], &["a.ob", "a.o/b"]);
        check("/a", &["a", "a/"], &["d/a", "ab"]);
        check("a/", &["a/", "d/a/"], &["a", "d/a"]);
        check("d/a", &["d/a", "x/d/a"], &["xd/a", "d/ab", "d/x/a"]);
        check("d/*", &["d/a", "x/d/b"], &["d", "d/", "x/d/", "d/a/b"]);
        check("d/**", &["d/a", "d/a/b"], &["d", "d/"]);
        check("/d/**.c", &["d/a.c", "d/x/y.c"], &["x/d/a.c", "d.c"]);
        check("**/a", &["a", "d/a", "d/e/a"], &["ba"]);
        check("/**/a", &["d/a", "d/e/a"], &["a", "ba"]);
        check("/**/a/", &["d/a/", "d/e/a/"], &["a/", "d/a"]);
        check("a**", &["a", "ab", "a/b/c", "d/ab/c"], &["ba"]);
        check("d/***", &["d/", "d/a", "x/d/a/b"], &["d", "e/", "xd/a"]);
        check("a?c", &["abc", "x/abc"], &["ac", "a/c", "abbc"]);
        check("[a-c]x", &["ax", "cx"], &["dx", "x"]);
        check("[!a-c]x", &["dx", "d/-x"], &["ax", "x"]);
        check("[[:digit:]]*", &["1", "1a"], &["a1"]);
        check("a[]b]", &["a]", "ab"], &["a"]);
        check("a\\*b*", &["a*b", "a*bc"], &["axb"]);
        check("a\\b", &["a\\b"], &["ab"]);
        check("a.b", &["a.b"], &["axb"]);
        check("[/]", &[], &["a", "a/b"]);
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let filter = filter(&["+ keep.o", "- *.o", "+ d/", "- *.c"]);
        let admitted = ["keep.o", "d/keep.o", "a.h"];
        assert!(admitted.iter().all(|path| filter.admits(path.as_bytes(), false)));
        assert!(["a.o", "d/a.c"].iter().all(|path| !filter.admits(path.as_bytes(), false)));
    }

    #[test]
    fn rules_that_cannot_be_used_are_named() {
        let of = |pattern: &[u8]| {
            let rule = FilterRule { kind: FilterKind::Exclude, pattern: pattern.to_vec() };
            Filter::new(&[rule]).unwrap_err().to_string()
        };
        assert_eq!(of(b"/"), "the pattern \"/\" matches nothing");
        assert!(of(b"[z-a]").contains("wrong set of characters"), "{}", of(b"[z-a]"));
        assert!(of(b"[[:nothing:]]x").contains("no class [:nothing:]"));
        for unended in [&b"[a-"[..], b"[a", b"x[", b"[[:digit:]", b"d/[!a/b"] {
            assert!(of(unended).contains("] is missing"), "{}", of(unended));
        }
    }
}
