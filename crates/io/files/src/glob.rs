//! Sources that a client names by patterns (docs/protocol.md section 7.9).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_objects::NamePatterns;
use longhaul_sys::files::ConfinedDir;
use longhaul_units::Bytes;
use longhaul_wire::{EntryCode, EntryEnd, FilterKind, FilterRule, MAX_RULES};

use crate::filter::{Filter, FilterError, shown};
use crate::identify::{as_path, is_hidden_name};
use crate::source::own_name;

/// True where a path, or a name, has a wildcard of [`Filter`].
pub fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

/// True where a path has `*` or `?`, which are rare in names: it means several, and goes into a directory. Behind a
/// backslash they are themselves.
pub fn means_several(path: &[u8]) -> bool {
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'*' | b'?' => return true,
            b'\\' => _ = bytes.next(),
            _ => {}
        }
    }
    false
}

/// The paths below `root` that the sources of a request mean; of two none may have the own name of the other
/// where each goes under that.
///
/// # Errors
/// A pattern that is none, or that matches too much, or two of one name: in words for people.
pub fn expand_sources(
    root: &ConfinedDir,
    sources: &[Vec<u8>],
    copy_contents: bool,
    memory: Bytes,
) -> Result<Vec<Vec<u8>>, EntryEnd> {
    if sources.iter().filter(|path| is_pattern(path)).count() > MAX_RULES {
        let reason = format!("at most {MAX_RULES} patterns can be given");
        return Err(EntryEnd::new(EntryCode::OutOfResources, &reason));
    }
    let (mut paths, mut left) = (Vec::<Vec<u8>>::new(), memory.get());
    let mut names: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for path in sources {
        // As soon as they are found: many patterns that match the same take no memory.
        for found in expand(root, path, Bytes::new(left))? {
            left = left.saturating_sub(cost(&found));
            if let Some(name) = own_name(&found).filter(|_| !copy_contents) {
                left = left.saturating_sub(cost(name));
                if let Some(other) = names.insert(name.to_vec(), paths.len()) {
                    let (one, two) = (paths[other].escape_ascii(), found.escape_ascii());
                    let reason = format!(
                        "{one} and {two} have one name, and one would take the other's place: copy them one \
                         after the other, to different directories"
                    );
                    return Err(EntryEnd::new(EntryCode::Name, &reason));
                }
            }
            paths.push(found);
        }
    }
    Ok(paths)
}

/// The paths below `root` that a source of a request means: itself where it is there as written, or where
/// nothing matches; else what its wildcards match, in the order of names. Their names take at most `memory`.
///
/// # Errors
/// A pattern that is none, or that matches too much: in words for people.
pub(crate) fn expand(
    root: &ConfinedDir,
    path: &[u8],
    memory: Bytes,
) -> Result<Vec<Vec<u8>>, EntryEnd> {
    let is_there = |path: &[u8]| root.path_stat(as_path(path)).is_ok();
    if !is_pattern(path) || is_there(path) {
        return Ok(vec![path.to_vec()]);
    }
    let mut found = vec![Vec::new()];
    for component in path.split(|byte| *byte == b'/').filter(|it| !it.is_empty()) {
        let literal = |directory: &[u8]| join(directory, component);
        let is_literal = !is_pattern(component) || found.iter().any(|it| is_there(&literal(it)));
        found = match is_literal {
            true => found.iter().map(|directory| literal(directory)).collect(),
            false => matching(root, &found, component, memory)?,
        };
    }
    // A link that leads nowhere has the name, and is to fail by it.
    found.retain(|path| root.symlink_metadata(as_path(path)).is_ok());
    Ok(if found.is_empty() { vec![path.to_vec()] } else { found })
}

/// Matches of the pattern of one name in some directories.
fn matching(
    root: &ConfinedDir,
    directories: &[Vec<u8>],
    pattern: &[u8],
    memory: Bytes,
) -> Result<Vec<Vec<u8>>, EntryEnd> {
    let name = NamePattern::new(pattern)
        .map_err(|error| EntryEnd::new(EntryCode::Refused, &error.to_string()))?;
    let (mut found, mut taken) = (Vec::new(), 0);
    for directory in directories {
        let path = if directory.is_empty() { b"." } else { &directory[..] };
        // What is no directory, or may not be read, has nothing that matches.
        let Ok(entries) = root.read_dir(as_path(path)) else { continue };
        for entry in entries.flatten() {
            let own = std::os::unix::ffi::OsStrExt::as_bytes(&*entry.name);
            if !name.matches(own) || is_hidden_name(own) {
                continue;
            }
            let path = join(directory, own);
            taken += cost(&path);
            if taken > memory.get() {
                let reason = format!("{}: {TOO_MANY}", pattern.escape_ascii());
                return Err(EntryEnd::new(EntryCode::OutOfResources, &reason));
            }
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Bytes of memory for a path.
fn cost(path: &[u8]) -> u64 {
    (path.len() + size_of::<Vec<u8>>()) as u64
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// A pattern of one name, in the syntax and time of [`Filter`]. As in a shell, a name that begins with a
/// dot is matched by a pattern that does.
#[derive(Clone, Debug)]
pub(crate) struct NamePattern {
    pattern: Vec<u8>,
    filter: Option<Filter>,
}

impl NamePattern {
    pub(crate) fn new(pattern: &[u8]) -> Result<Self, FilterError> {
        let anchored = [b"/", pattern].concat();
        let rule = FilterRule { kind: FilterKind::Exclude, pattern: anchored };
        // Without what anchors it, which nobody has written.
        let as_written = |error| match error {
            FilterError::Set { reason, .. } => FilterError::Set { pattern: shown(pattern), reason },
            error => error,
        };
        let filter = Filter::new(&[rule]).map_err(as_written)?;
        Ok(Self { pattern: pattern.to_vec(), filter })
    }

    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        let is_apart = name.starts_with(b".") && !self.pattern.starts_with(b".");
        !is_apart && self.filter.as_ref().is_some_and(|filter| !filter.admits(name, false))
    }
}

/// Patterns that a client has asked for, against which it checks the names that a server sends.
#[derive(Debug)]
pub struct AskedPatterns(BTreeMap<Vec<u8>, (NamePattern, AtomicBool)>);

impl AskedPatterns {
    /// Of the own names of sources.
    ///
    /// # Errors
    /// One is no pattern.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, FilterError> {
        let pattern =
            |name: &[u8]| Ok((name.to_vec(), (NamePattern::new(name)?, AtomicBool::new(false))));
        names.into_iter().map(pattern).collect::<Result<_, _>>().map(Self)
    }
}

impl NamePatterns for AskedPatterns {
    fn admit(&self, name: &[u8]) -> bool {
        let mut admits = false;
        for (pattern, (matching, was_met)) in &self.0 {
            // Where it is there as written, or nothing matches, it is a name.
            if pattern == name || matching.matches(name) {
                was_met.store(true, Ordering::Relaxed);
                admits = true;
            }
        }
        admits
    }

    fn unmet(&self) -> Vec<Vec<u8>> {
        let unmet = self.0.iter().filter(|(_, (_, was_met))| !was_met.load(Ordering::Relaxed));
        unmet.map(|(pattern, _)| pattern.clone()).collect()
    }
}

const TOO_MANY: &str = "it matches more names than the server has memory for; copy them in parts";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_behind_a_backslash_is_itself() {
        for (path, several) in
            [("a*b", true), ("a\\*b", false), ("a\\\\*b", true), ("a\\*b?", true), ("a\\", false)]
        {
            assert_eq!(means_several(path.as_bytes()), several, "{path}");
        }
        let pattern = AskedPatterns::new([&b"a\\*b"[..]]).unwrap();
        assert!(pattern.admit(b"a*b") && !pattern.admit(b"axb"));
    }

    #[test]
    fn names_are_those_of_a_pattern_or_the_pattern_itself_and_each_is_to_be_met() {
        let patterns = AskedPatterns::new([&b"a[12]"[..], b"*.h5"]).unwrap();
        for name in ["b1", "a3", "a12", "x.h5/y", ".h5", ".x.h5", "", "x.h50"] {
            assert!(!patterns.admit(name.as_bytes()), "{name}");
        }
        assert_eq!(patterns.unmet(), [b"*.h5".to_vec(), b"a[12]".to_vec()]);
        assert!(patterns.admit(b"a1") && patterns.admit(b"a[12]"));
        assert_eq!(patterns.unmet(), [b"*.h5".to_vec()]);
        assert!(patterns.admit(b"x.h5") && patterns.unmet().is_empty());
        let error = AskedPatterns::new([&b"a[b"[..]]).unwrap_err().to_string();
        let words =
            "the pattern \"a[b\" has a wrong set of characters: it has no end: ] is missing;";
        assert!(error.starts_with(words) && error.ends_with("is written \\["), "{error}");
    }
}
