//! Programs that no library can be put in front of are refused: their connections would silently go
//! past the gateways.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The program `name` as the shell finds it.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let is_program = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found = env::split_paths(&folders).map(|folder| folder.join(name)).find(is_program);
    found.ok_or_else(|| Failure::failed(format!("no {} in PATH", name.display())))
}

/// Refuses what the library would not be loaded into, or would not see.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    let mut path = path.to_owned();
    for _ in 0..MAX_SCRIPTS {
        let refuse = |why: &str| {
            let shown = path.display();
            Err(Failure::failed(format!("{shown} cannot be led through gateways: {why}")))
        };
        let unreadable =
            |error| Failure::failed(format!("cannot read {}: {error}", path.display()));
        let mut bytes = Vec::new();
        let file = match File::open(&path) {
            // A user who may run but not read it leaves nothing to look at; the loader may do it.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
            opened => opened.map_err(unreadable)?,
        };
        if changes_identity(&file.metadata().map_err(unreadable)?) {
            let why = "it runs as another user or group (set-user-id), and then the system loads no library";
            return refuse(why);
        }
        if has_capabilities(&path) && !is_root() {
            return refuse("it has capabilities of its own, and then the system loads no library");
        }
        file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
        match kind(&bytes) {
            Kind::Script(interpreter) => path = interpreter.into(),
            Kind::Dynamic | Kind::Other => return Ok(()),
            Kind::Static => {
                return refuse(
                    "it is linked statically, so nothing stands between it and the kernel",
                );
            }
            Kind::Foreign => return refuse("it is for another kind of processor than the library"),
            Kind::Go => {
                return refuse("it is written in Go, which calls the kernel without the C library");
            }
        }
    }
    Ok(())
}

/// A file as the loader sees it.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// With the program that runs it.
    Script(OsString),
    Dynamic,
    Static,
    /// Of another processor or word size.
    Foreign,
    Go,
    /// Not known to the kernel by itself: a shell may run it.
    Other,
}

fn kind(bytes: &[u8]) -> Kind {
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words =
            line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        return match words.next() {
            Some(interpreter) => Kind::Script(OsString::from_vec(interpreter.into())),
            None => Kind::Other,
        };
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Kind::Other;
    }
    let (Some(class), Some(machine)) = (bytes.get(4), u16_at(bytes, 18)) else {
        return Kind::Other;
    };
    if *class != ELF_64 || Some(machine) != own_machine() {
        return Kind::Foreign;
    }
    if contains(bytes, b"\0.go.buildinfo\0") || contains(bytes, GO_BUILD_INFO) {
        return Kind::Go;
    }
    match headers(bytes, PROGRAM_HEADERS).map(|mut kinds| kinds.any(|kind| kind == INTERPRETER)) {
        Some(true) => Kind::Dynamic,
        Some(false) => Kind::Static,
        None => Kind::Other,
    }
}

/// The types of the program headers.
fn headers(bytes: &[u8], at: usize) -> Option<impl Iterator<Item = u32>> {
    let start = bytes.get(at..at + 8)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))?;
    let start = usize::try_from(start).ok()?;
    let (size, count) = (usize::from(u16_at(bytes, 54)?), usize::from(u16_at(bytes, 56)?));
    Some((0..count).map_while(move |i| {
        let at = start.checked_add(i * size)?;
        let kind = bytes.get(at..at.checked_add(4)?)?.first_chunk()?;
        Some(u32::from_ne_bytes(*kind))
    }))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The processor that this program is for.
fn own_machine() -> Option<u16> {
    let mut head = [0; 20];
    File::open("/proc/self/exe").ok()?.read_exact(&mut head).ok()?;
    u16_at(&head, 18)
}

/// It runs as another user or group than who starts it.
fn changes_identity(file: &Metadata) -> bool {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let set = |bit: u32| file.mode() & bit != 0;
    set(SET_USER) && file.uid() != user.as_raw() || set(SET_GROUP) && file.gid() != group.as_raw()
}

/// File capabilities are an attribute of the file.
fn has_capabilities(path: &Path) -> bool {
    rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64][..]).is_ok()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root() && rustix::process::getuid().is_root()
}

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
/// One script may name another as what runs it, as often as the kernel takes.
const MAX_SCRIPTS: usize = 5;
/// Headers come first, Go's mark within its data.
const MAX_BYTES: u64 = 64 << 20;
/// ELF: word size, where program headers are, and the type of the one that names the loader.
const ELF_64: u8 = 2;
const PROGRAM_HEADERS: usize = 32;
const INTERPRETER: u32 = 3;
/// Go puts this in front of the list of what a program was built from.
const GO_BUILD_INFO: &[u8] = b"\xff Go buildinf:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_files_are_distinguished() {
        let shell = std::fs::read("/bin/sh").unwrap();
        assert_eq!(kind(&shell), Kind::Dynamic);
        let mut fixed = shell.clone();
        // Its loader's header becomes one that nobody looks at.
        let start = u64::from_ne_bytes(*shell[32..].first_chunk().unwrap()) as usize;
        let (size, count) = (usize::from(shell[54]), usize::from(shell[56]));
        let at = (0..count).map(|i| start + i * size).find(|at| shell[*at] == 3).unwrap();
        fixed[at] = 0;
        assert_eq!(kind(&fixed), Kind::Static);
        let mut foreign = shell.clone();
        foreign[18] ^= 1;
        assert_eq!(kind(&foreign), Kind::Foreign);
        let mut go = shell;
        go.extend_from_slice(GO_BUILD_INFO);
        assert_eq!(kind(&go), Kind::Go);
        assert_eq!(kind(b"#! /usr/bin/env python3\n"), Kind::Script("/usr/bin/env".into()));
        for other in [&b""[..], b"#!", b"\x7fELF", b"text"] {
            assert_eq!(kind(other), Kind::Other);
        }
    }

    #[test]
    fn programs_are_found_as_the_shell_finds_them() {
        assert_eq!(find(OsStr::new("./x")).unwrap(), Path::new("./x"));
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        let missing = find(OsStr::new("no-such-program")).unwrap_err();
        assert_eq!(missing.message, "no no-such-program in PATH");
    }
}
