//! Lists of hashes as `b3sum` writes and checks them.

use std::borrow::Cow;
use std::io::{self, BufRead};

use longhaul_sys::reasons::unread;
use longhaul_wire::{EntryPath, MAX_PATH};

/// Hashes by name, in the order of their lines. A name takes its bytes and 44 more.
#[derive(Debug, Default)]
pub struct HashList {
    /// Names, one behind the other.
    names: Vec<u8>,
    /// Begin and length of each name, and its hash.
    lines: Vec<(u64, u16, [u8; 32])>,
    /// Numbers of lines, by name.
    sorted: Vec<u32>,
}

/// Why a list is none, or is not used.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct HashListError {
    line: u64,
    reason: String,
    is_unread: bool,
}

impl HashListError {
    /// True where the list could not be read: it may be one.
    pub fn is_unread(&self) -> bool {
        self.is_unread
    }
}

impl HashList {
    /// Reads all lines.
    ///
    /// # Errors
    /// One of them is none that `b3sum` writes, leads out of the directory that it is about, or contradicts
    /// another; or it cannot be read.
    pub fn read(mut input: impl BufRead) -> Result<Self, HashListError> {
        let mut list = Self::default();
        let mut text = Vec::new();
        for number in 1.. {
            let at = |reason: String| HashListError { line: number, reason, is_unread: false };
            text.clear();
            let mut limited = io::Read::take(&mut input, LINE_MAX);
            let read = limited.read_until(b'\n', &mut text);
            read.map_err(|error| HashListError { is_unread: true, ..at(unread(&error)) })?;
            if text.is_empty() {
                break;
            }
            let (hash, name) = parse(&text).map_err(|reason| at(reason.into()))?;
            if list.lines.len() == u32::MAX as usize {
                return Err(at("more lines than 2^32".into()));
            }
            let start = list.names.len() as u64;
            list.names.extend_from_slice(name.as_bytes());
            list.lines.push((start, name.as_bytes().len() as u16, hash));
        }
        list.sort()?;
        Ok(list)
    }

    fn sort(&mut self) -> Result<(), HashListError> {
        let mut sorted: Vec<u32> = (0..self.lines.len() as u32).collect();
        sorted.sort_unstable_by_key(|line| (self.name(*line as usize), *line));
        let same = |pair: &&[u32]| self.name(pair[0] as usize) == self.name(pair[1] as usize);
        let other = |pair: &&[u32]| self.hash(pair[0] as usize) != self.hash(pair[1] as usize);
        if let Some(pair) = sorted.windows(2).filter(same).find(other) {
            let reason = format!("line {} has another hash of the same name", pair[0] + 1);
            let line = u64::from(pair[1]) + 1;
            return Err(HashListError { line, reason, is_unread: false });
        }
        self.sorted = sorted;
        Ok(())
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// True without lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The name in line number `line`, from 0.
    ///
    /// # Panics
    /// There is no such line.
    pub fn name(&self, line: usize) -> &[u8] {
        let (start, len, _) = self.lines[line];
        &self.names[start as usize..][..usize::from(len)]
    }

    /// The hash there.
    ///
    /// # Panics
    /// There is no such line.
    pub fn hash(&self, line: usize) -> &[u8; 32] {
        &self.lines[line].2
    }

    /// True if a line has this name.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.sorted.binary_search_by(|line| self.name(*line as usize).cmp(name)).is_ok()
    }

    /// Directories that the list is about: the first components of its names; the empty path, and no other,
    /// where a name has one component only.
    pub fn tops(&self) -> Vec<&[u8]> {
        let mut tops: Vec<&[u8]> = Vec::new();
        for line in &self.sorted {
            let name = self.name(*line as usize);
            let Some(slash) = name.iter().position(|byte| *byte == b'/') else {
                return vec![b""];
            };
            if tops.last() != Some(&&name[..slash]) {
                tops.push(&name[..slash]);
            }
        }
        // Names that differ behind the slash may be apart: `a/x`, `a-b/x`, `a/y` do not sort by component.
        tops.sort_unstable();
        tops.dedup();
        tops
    }
}

/// The line for a file `name` with such a hash. A name that is not UTF-8 has its bytes, as with `sha256sum`: `b3sum`
/// would put other characters there, and then find no such file. A carriage return is itself, as `b3sum` 1.2 reads and
/// writes it.
pub fn line(hash: &[u8; 32], name: &[u8]) -> Vec<u8> {
    let hash = blake3::Hash::from_bytes(*hash).to_hex();
    let escaped = escape(name);
    let mark = if matches!(escaped, Cow::Owned(_)) { "\\" } else { "" };
    [mark.as_bytes(), hash.as_bytes(), b"  ", &escaped, b"\n"].concat()
}

fn escape(name: &[u8]) -> Cow<'_, [u8]> {
    if !name.iter().any(|byte| matches!(byte, b'\\' | b'\n')) {
        return name.into();
    }
    let escaped = name.iter().flat_map(|byte| match byte {
        b'\\' => b"\\\\",
        b'\n' => b"\\n",
        byte => std::slice::from_ref(byte),
    });
    escaped.copied().collect::<Vec<u8>>().into()
}

/// Hash and name of a line.
fn parse(line: &[u8]) -> Result<([u8; 32], EntryPath), &'static str> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let (line, is_escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (hex, rest) = line.split_at_checked(64).ok_or(NO_LINE)?;
    let hash = blake3::Hash::from_hex(hex).map_err(|_| NO_LINE)?;
    let name = rest.strip_prefix(b"  ").ok_or(NO_LINE)?;
    let name = if is_escaped { unescape(name).ok_or(NO_LINE)? } else { name.to_vec() };
    Ok((*hash.as_bytes(), relative(&name)?))
}

/// The path of a name: slashes that follow one another are one, and a `.` on its own is none, as for the kernel.
fn relative(name: &[u8]) -> Result<EntryPath, &'static str> {
    if name.starts_with(b"/") {
        return Err(
            "this name is absolute: names have to be relative to the directory that is checked",
        );
    }
    if matches!(name, b"" | b".") || name.ends_with(b"/") || name.ends_with(b"/.") {
        return Err("this name is that of a directory, and not of a file");
    }
    let components: Vec<&[u8]> = name
        .split(|byte| *byte == b'/')
        .filter(|component| !matches!(*component, b"" | b"."))
        .collect();
    if components.contains(&&b".."[..]) {
        return Err(
            "this name has `..` in it: names have to stay below the directory that is checked",
        );
    }
    let path = EntryPath::new(components.join(&b'/'));
    path.map_err(|_| "this name is longer than 4096 bytes, or has a zero byte")
}

fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                // As later ones write it.
                b'r' => b'\r',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(plain)
}

/// Bytes of the longest line: each of a path's may be escaped.
const LINE_MAX: u64 = 2 * MAX_PATH as u64 + 80;
const NO_LINE: &str = "this is no line of b3sum: 64 hexadecimal digits, two blanks and a name";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &(impl AsRef<[u8]> + ?Sized)) -> Result<HashList, String> {
        HashList::read(text.as_ref()).map_err(|error| error.to_string())
    }

    #[test]
    fn lines_are_those_of_b3sum() {
        let hash = *blake3::hash(b"foo").as_bytes();
        let hex = "04e0bb39f30b1a3feb89f536c93be15055482df748674b00d26e5a75777702e9";
        assert_eq!(line(&hash, b"a b"), format!("{hex}  a b\n").as_bytes());
        assert_eq!(line(&hash, b"a\nb\\c\r"), format!("\\{hex}  a\\nb\\\\c\r\n").as_bytes());
        assert_eq!(line(&hash, b"a\rb\r"), format!("{hex}  a\rb\r\n").as_bytes());
        let list = read(&[line(&hash, b"a\nb\\c\r"), line(&hash, b"./d/e\r")].concat()).unwrap();
        assert_eq!((list.len(), list.name(0), list.hash(1)), (2, &b"a\nb\\c\r"[..], &hash));
        assert!(list.contains(b"d/e\r") && !list.contains(b"d"));
        let later = read(&format!("\\{hex}  a\\r\n")).unwrap();
        assert_eq!(later.name(0), b"a\r");
    }

    #[test]
    fn names_that_are_not_utf_8_are_read_as_they_were_written() {
        for name in [&b"caf\xe9"[..], b"\xff\\\xfe\n"] {
            let list = read(&line(&[4; 32], name)).unwrap();
            assert_eq!((list.len(), list.name(0)), (1, name));
        }
    }

    #[test]
    fn names_of_no_file_below_are_refused_with_their_line_and_why() {
        let hex = "04".repeat(32);
        for (name, why) in [
            ("/x", "is absolute"),
            ("//x", "is absolute"),
            ("../x", "has `..` in it"),
            ("a/../x", "has `..` in it"),
            ("a//..", "has `..` in it"),
            ("", "is that of a directory"),
            (".", "is that of a directory"),
            ("a/.", "is that of a directory"),
            ("a/", "is that of a directory"),
            ("a\0", "is longer than 4096 bytes, or has a zero byte"),
        ] {
            let failed = read(&format!("{hex}  ok\n{hex}  {name}\n")).unwrap_err();
            assert!(failed.starts_with(&format!("line 2: this name {why}")), "{failed}");
        }
        for text in ["x", "\n", &hex, &format!("{hex} one"), &format!("\\{hex}  a\\t")] {
            assert!(read(text).unwrap_err().contains("no line of b3sum"), "{text}");
        }
        let long = format!("{hex}  {}", "a".repeat(20_000));
        assert!(read(&long).is_err());
    }

    #[test]
    fn slashes_that_follow_one_another_are_one() {
        let hex = "04".repeat(32);
        for name in ["v//a", "v///a", "./v//a", "v/./a", ".//v/a", "v/.//./a"] {
            let list = read(&format!("{hex}  {name}\n")).unwrap();
            assert_eq!((list.name(0), list.tops()), (&b"v/a"[..], vec![&b"v"[..]]), "{name}");
        }
        let failed = read(&format!("{hex}  v/a\n{}  v//a\n", "05".repeat(32))).unwrap_err();
        assert_eq!(failed, "line 2: line 1 has another hash of the same name");
    }

    #[test]
    fn one_name_has_one_hash() {
        let (one, other) = ("04".repeat(32), "05".repeat(32));
        assert_eq!(read(&format!("{one}  a\n{one}  a\n")).unwrap().len(), 2);
        let failed = read(&format!("{one}  a\n{other}  b\n{other}  a\n")).unwrap_err();
        assert_eq!(failed, "line 3: line 1 has another hash of the same name");
    }

    #[test]
    fn a_list_is_about_the_directories_in_it() {
        let hex = "04".repeat(32);
        let list = |names: &[&str]| {
            read(&names.iter().map(|name| format!("{hex}  {name}\n")).collect::<String>()).unwrap()
        };
        assert_eq!(list(&["a/x", "a-b/x", "a/y/z"]).tops(), [b"a".as_slice(), b"a-b"]);
        assert_eq!(list(&["a/x", "b"]).tops(), [b"".as_slice()]);
        assert!(list(&[]).tops().is_empty());
    }
}
