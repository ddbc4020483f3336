//! Which names a source may give at the top of a copy (docs/protocol.md section 7.1).

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_wire::{Entry, EntryKind};

use crate::name_list::{Beside, NameList};

/// The names that a source may give at the top of a copy. Who asked for `data` gets nothing called
/// `.bashrc`, whatever the other side sends.
#[derive(Clone, Debug, Default)]
pub enum TopNames {
    /// Any: the source itself asks for the copy, as in a push.
    #[default]
    Any,
    /// The contents of directories were asked for: the names in them are the source's to choose.
    /// The top itself is a directory, never a file or link in its place.
    Contents,
    /// Only these. None of them is a symbolic link: a source follows the links it is asked for.
    Only(BTreeSet<Vec<u8>>),
    /// These, and what patterns match.
    Matching(BTreeSet<Vec<u8>>, Arc<dyn NamePatterns>),
    /// Of the contents of a directory only these names, what is in them, and the directories above them.
    Listed(Arc<NameList>),
}

/// Patterns of names that were asked for.
pub trait NamePatterns: core::fmt::Debug + Send + Sync {
    /// True if one of them matches the name; it is met then.
    fn admit(&self, name: &[u8]) -> bool;

    /// Those that nothing has met: nothing was announced for them, not even that it failed.
    fn unmet(&self) -> Vec<Vec<u8>>;
}

impl TopNames {
    /// Those that a request for `sources` asks for: the own name of each, `None` where the contents
    /// of a directory are asked for.
    pub fn asked<'a>(sources: impl IntoIterator<Item = Option<&'a [u8]>>) -> Self {
        let names: Option<BTreeSet<Vec<u8>>> =
            sources.into_iter().map(|name| name.map(<[u8]>::to_vec)).collect();
        names.map_or(Self::Contents, Self::Only)
    }

    /// True if the contents of directories were asked for.
    pub fn are_contents(&self) -> bool {
        matches!(self, Self::Contents | Self::Listed(_))
    }

    /// The list of names, where there is one.
    pub(crate) fn list(&self) -> Option<&NameList> {
        match self {
            Self::Listed(names) => Some(names),
            _ => None,
        }
    }

    /// True if an entry may be announced there that is no directory, but fails: others are listed below it.
    pub(crate) fn fails(&self, entry: &Entry) -> bool {
        let is_above = |names: &NameList| names.beside(entry.path.as_bytes()) == Beside::Above;
        entry.kind != EntryKind::Directory && self.list().is_some_and(is_above)
    }

    /// Patterns for which nothing was announced.
    pub(crate) fn unmet(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Matching(_, patterns) => patterns.unmet(),
            _ => Vec::new(),
        }
    }

    /// Names that the source has to announce, if only as failed: the top of what was asked for.
    pub(crate) fn due(&self) -> impl Iterator<Item = &[u8]> {
        let (names, top) = match self {
            Self::Any => (None, None),
            Self::Contents | Self::Listed(_) => (None, Some(&b""[..])),
            Self::Only(names) | Self::Matching(names, _) => (Some(names), None),
        };
        names.into_iter().flatten().map(Vec::as_slice).chain(top)
    }

    /// True if `entry` may be part of the copy.
    pub fn admit(&self, entry: &Entry) -> bool {
        match self {
            Self::Any => true,
            Self::Contents => !entry.path.is_empty() || entry.kind == EntryKind::Directory,
            Self::Listed(_) if entry.path.is_empty() => entry.kind == EntryKind::Directory,
            Self::Listed(names) => names.beside(entry.path.as_bytes()) != Beside::Apart,
            Self::Only(names) => is_under(entry, |first| names.contains(first)),
            Self::Matching(names, patterns) => {
                is_under(entry, |first| names.contains(first) || patterns.admit(first))
            }
        }
    }
}

/// True if the first component of the entry's path is admitted, and is no link.
fn is_under(entry: &Entry, admits: impl FnOnce(&[u8]) -> bool) -> bool {
    let is_link = matches!(entry.kind, EntryKind::Link { .. });
    let mut components = entry.path.components();
    components.next().is_some_and(admits) && (!is_link || components.next().is_some())
}

/// The first component of the entry's path, for people: escaped, and cut.
pub(crate) fn shown_top(entry: &Entry) -> String {
    shown_name(entry.path.components().next().unwrap_or_default())
}

/// A name, likewise.
pub(crate) fn shown_name(name: &[u8]) -> String {
    let mut shown: String = name.escape_ascii().map(char::from).take(SHOWN_MAX).collect();
    if shown.is_empty() {
        shown.push('.');
    }
    shown
}

/// Characters of a name that an error tells.
const SHOWN_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::file;

    fn link(path: &str) -> Entry {
        Entry { kind: EntryKind::Link { target: b"x".to_vec() }, ..file(path, 0) }
    }

    fn directory(path: &str) -> Entry {
        Entry { kind: EntryKind::Directory, ..file(path, 0) }
    }

    #[test]
    fn only_names_that_were_asked_for_are_admitted() {
        let one = TopNames::asked([Some(&b"data"[..])]);
        for path in ["data", "data/.bashrc", "data/data"] {
            assert!(one.admit(&file(path, 1)) && one.admit(&directory(path)), "{path}");
        }
        for path in ["", ".bashrc", "Data", "data ", "dat", "data2", ".ssh/data", "x/data"] {
            assert!(!one.admit(&file(path, 1)) && !one.admit(&directory(path)), "{path}");
        }
        let odd = [Some(&b"a\xff\n"[..]), Some(b"b")];
        let several = TopNames::asked(odd);
        let at = |path: &[u8]| Entry {
            path: longhaul_wire::EntryPath::new(path.to_vec()).unwrap(),
            ..file("", 1)
        };
        assert!(several.admit(&at(b"a\xff\n")) && several.admit(&at(b"b/c")));
        assert!(!several.admit(&at(b"a\xff")) && !several.admit(&at(b"a\xfe\n")));
    }

    /// Names of one byte.
    #[derive(Debug)]
    struct OneByte;

    impl NamePatterns for OneByte {
        fn admit(&self, name: &[u8]) -> bool {
            name.len() == 1
        }

        fn unmet(&self) -> Vec<Vec<u8>> {
            Vec::from([b"?".to_vec()])
        }
    }

    #[test]
    fn names_that_a_pattern_matches_are_admitted_and_others_are_not() {
        let names = BTreeSet::from([b"data".to_vec()]);
        let asked = TopNames::Matching(names, Arc::new(OneByte));
        for path in ["data", "data/.bashrc", "x", "x/long"] {
            assert!(asked.admit(&file(path, 1)) && asked.admit(&directory(path)), "{path}");
        }
        for path in ["", ".bashrc", "long", "long/x", "dat"] {
            assert!(!asked.admit(&file(path, 1)) && !asked.admit(&directory(path)), "{path}");
        }
        assert!(!asked.admit(&link("x")) && asked.admit(&link("x/link")));
        assert_eq!((asked.unmet(), asked.due().count()), (Vec::from([b"?".to_vec()]), 1));
    }

    #[test]
    fn a_source_is_no_link_and_what_is_in_it_may_be() {
        let one = TopNames::asked([Some(&b"data"[..])]);
        assert!(!one.admit(&link("data")));
        assert!(one.admit(&link("data/link")));
    }

    #[test]
    fn contents_have_any_name_below_a_directory() {
        let contents = TopNames::asked([None]);
        assert!(contents.admit(&directory("")) && contents.admit(&link("a")));
        assert!(!contents.admit(&file("", 1)) && !contents.admit(&link("")));
        assert!(TopNames::asked([Some(&b"a"[..]), None]).are_contents());
        assert!(TopNames::Any.admit(&file("", 1)));
    }

    #[test]
    fn each_source_that_was_asked_for_is_due() {
        let due = |names: TopNames| names.due().map(<[u8]>::to_vec).collect::<Vec<_>>();
        let both = TopNames::asked([Some(&b"b"[..]), Some(b"a")]);
        assert_eq!(due(both), [b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(due(TopNames::Contents), [b"".to_vec()]);
        assert_eq!(due(TopNames::Any), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_name_is_shown_escaped_and_not_at_length() {
        assert_eq!(shown_top(&file("\u{1b}[2J/b", 0)), "\\x1b[2J");
        assert_eq!(shown_top(&file(&"\n".repeat(99), 0)).len(), SHOWN_MAX);
        assert_eq!(shown_top(&file("", 0)), ".");
    }
}
