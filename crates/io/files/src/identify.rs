//! Identities that a run and the one that resumes it have in common.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Identity of a request in the resume record ([`longhaul_objects::record::replay`]) and in the
/// name of the hidden directory of the transfer.
///
/// `source` tells the sources from any others: a client that pulls passes the server and the
/// paths as the user wrote them, a server that is pushed to passes what the client sent of
/// [`source_label`]. Two transfers with the same identity cannot run at the same time. What was
/// written without `verify` is not gone on with by a copy that verifies.
pub fn transfer_id(source: &[&[u8]], destination: &[u8], verify: bool) -> [u8; 16] {
    let context = if verify { TRANSFER_CONTEXT } else { UNVERIFIED_CONTEXT };
    digest(context, source.iter().copied().chain([destination]))
}

/// Label of the sources of a push, on this host: the same in a later run of
/// the same command on the same host, in whatever directory it runs. `listed` is the digest of the names that
/// alone are copied.
pub fn source_label(
    sources: &[PathBuf],
    copy_contents: bool,
    listed: Option<&[u8; 32]>,
) -> [u8; 16] {
    let machine = std::fs::read("/etc/machine-id")
        .or_else(|_| std::fs::read("/proc/sys/kernel/hostname"))
        .unwrap_or_default();
    let paths: Vec<PathBuf> = sources
        .iter()
        .map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        .collect();
    let listed = listed.map(|digest| &digest[..]);
    let paths = paths.iter().map(|path| path.as_os_str().as_bytes()).chain(listed);
    digest(LABEL_CONTEXT, [&machine[..], &[u8::from(copy_contents)]].into_iter().chain(paths))
}

/// Identifies the running boot of the operating system, for
/// [`longhaul_objects::Fsync::Never`]. Not all zero.
///
/// # Errors
/// `/proc` cannot be read or holds something else; then nothing unsynced can ever be trusted, and
/// random bytes in its place say so.
pub fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits = text.trim().replace('-', "");
    match u128::from_str_radix(&digits, 16) {
        Ok(number) if number != 0 && digits.len() == 32 => Ok(number.to_be_bytes()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Name of the hidden directory of a transfer; from `number` 1 on those that it has where others hold the
/// ones before.
pub(crate) fn hidden_name(transfer: &[u8; 16], number: u8) -> Vec<u8> {
    let digits = match number {
        0 => hex(transfer),
        number => hex(&digest(NEXT_CONTEXT, [&transfer[..], &[number]].into_iter())),
    };
    [HIDDEN_PREFIX, &digits[..]].concat()
}

/// True if a name is that of a hidden directory of some transfer, also for a file system that folds
/// case, leaves out what is not seen, or cuts dots and spaces at the end.
pub fn is_hidden_name(name: &[u8]) -> bool {
    let plain = folded(name);
    let digits = plain.strip_prefix(HIDDEN_PREFIX);
    digits.is_some_and(|digits| digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Part of a name that may be left on such a file system. Of what is not ASCII only the ligature of
/// two letters f becomes digits.
fn folded(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    for (at, byte) in name.iter().enumerate() {
        if name[at..].starts_with(LIGATURE_FF) {
            plain.extend(b"ff");
        } else if byte.is_ascii() {
            plain.push(byte.to_ascii_lowercase());
        }
    }
    while plain.last().is_some_and(|last| matches!(last, b'.' | b' ')) {
        plain.pop();
    }
    plain
}

/// Key of a place whose path may be long.
pub(crate) type PlaceKey = [u8; 16];

/// That of `place`.
pub(crate) fn place_key(place: &[u8]) -> PlaceKey {
    digest(STAGED_CONTEXT, [place].into_iter())
}

/// Name, in the hidden directory, of the new directory `place` while it is filled.
pub(crate) fn staged_name(place: &[u8]) -> [u8; 36] {
    let mut name = [0; 36];
    name[..4].copy_from_slice(STAGED_PREFIX);
    name[4..].copy_from_slice(&hex(&place_key(place)));
    name
}

/// True if a name is that of such a directory.
pub(crate) fn is_staged_name(name: &[u8]) -> bool {
    name.starts_with(STAGED_PREFIX)
}

/// 32 hexadecimal digits, as [`longhaul_objects::TempName`] shows itself.
pub(crate) fn hex(bytes: &[u8; 16]) -> [u8; 32] {
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    digits
}

/// A path of bytes as the standard library takes it.
pub(crate) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn digest<'a>(context: &str, parts: impl Iterator<Item = &'a [u8]>) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for part in parts {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let mut first = [0; 16];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    first
}

const HIDDEN_PREFIX: &[u8] = b".longhaul-";
/// U+FB00 in UTF-8.
const LIGATURE_FF: &[u8] = "\u{fb00}".as_bytes();
const STAGED_PREFIX: &[u8] = b"new-";
const STAGED_CONTEXT: &str = "longhaul 2026 directory that is filled";
const NEXT_CONTEXT: &str = "longhaul 2026 next name of a hidden directory";
const TRANSFER_CONTEXT: &str = "longhaul 2026 identity of a transfer";
const UNVERIFIED_CONTEXT: &str = "longhaul 2026 identity of a transfer that is not verified";
const LABEL_CONTEXT: &str = "longhaul 2026 label of sources";
const DIGITS: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_tell_requests_apart() {
        let id = |source: &[&[u8]], destination| transfer_id(source, destination, true);
        let one = id(&[b"a", b"b"], b"c");
        assert_eq!(one, id(&[b"a", b"b"], b"c"));
        let unverified = transfer_id(&[b"a", b"b"], b"c", false);
        for other in [id(&[b"ab"], b"c"), id(&[b"a"], b"bc"), unverified] {
            assert_ne!(one, other);
        }
        let label = source_label(&["x".into()], false, None);
        let here = std::env::current_dir().unwrap();
        assert_eq!(label, source_label(&[here.join("x")], false, None));
        assert_ne!(label, source_label(&["x".into()], true, None));
        assert_ne!(label, source_label(&["x".into()], false, Some(&[0; 32])));
    }

    #[test]
    fn a_boot_has_an_identity() {
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        assert_ne!(boot_id().unwrap(), [0; 16]);
    }

    #[test]
    fn hidden_names_are_known_again() {
        let name = hidden_name(&[0xa5; 16], 0);
        assert!(is_hidden_name(&hidden_name(&[0xa5; 16], 1)));
        assert_ne!(hidden_name(&[0xa5; 16], 1), hidden_name(&[0xa5; 16], 2));
        assert_eq!(name, b".longhaul-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5");
        assert!(is_hidden_name(&name));
        for other in [
            ".LongHaul-A5A5a5a5a5a5a5a5a5a5a5a5a5a5a5a5",
            ".long\u{200b}haul-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5",
            ".longhaul-a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5. .",
            ".longhaul-\u{fb00}a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5",
        ] {
            assert!(is_hidden_name(other.as_bytes()), "{other}");
        }
        assert!(!is_hidden_name("\u{e9}".as_bytes()));
        assert!(!is_hidden_name(b".longhaul-a5"));
        assert!(!is_hidden_name(&[&name[..], b"0"].concat()));
    }
}
