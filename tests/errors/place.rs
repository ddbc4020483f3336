//! Places that calls touch, as the table names them.

use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use longhaul_sys::faults::Attempt;

use crate::scene::Kind;

/// Paths of the places of a scene.
#[derive(Clone, Debug)]
pub struct Places {
    pub folder: PathBuf,
    pub kind: Kind,
}

impl Places {
    /// The place that the call touches; `None` for what is no part of the program's work (its libraries, its
    /// start).
    pub fn of(&self, attempt: &Attempt) -> Option<&'static str> {
        let [first, second, ..] = attempt.arguments;
        match attempt.call.name {
            "eventfd2" => Some("event"),
            "socket" => socket_of(first, second),
            "ppoll" => Some("wait"),
            // The standard library's, before it calls the program.
            "poll" => None,
            // Asked by assertions of the standard library only.
            "fcntl" if second == F_GETFD => None,
            "symlinkat" => self.path(attempt, second, attempt.arguments[2]),
            "open" | "mkdir" | "unlink" | "rename" | "rmdir" | "readlink" | "statfs" => {
                self.path(attempt, AT_FDCWD, first)
            }
            "openat" | "openat2" | "mkdirat" | "newfstatat" | "statx" | "unlinkat" | "renameat"
            | "renameat2" | "readlinkat" | "faccessat2" | "fchmodat" | "fchownat" | "utimensat" => {
                self.path(attempt, first, second)
            }
            _ => self.descriptor(attempt, first),
        }
    }

    fn path(&self, attempt: &Attempt, directory: u64, address: u64) -> Option<&'static str> {
        let text = match address {
            0 => Vec::new(),
            _ => attempt.text(address).ok()?,
        };
        if text.is_empty() {
            return self.descriptor(attempt, directory);
        }
        let base = match directory as u32 == AT_FDCWD as u32 {
            true => fs::read_link(format!("/proc/{}/cwd", attempt.thread)).ok()?,
            false => fs::read_link(handle(attempt, directory)).ok()?,
        };
        self.file(&base.join(PathBuf::from(std::ffi::OsString::from_vec(text))))
    }

    fn descriptor(&self, attempt: &Attempt, number: u64) -> Option<&'static str> {
        let at = handle(attempt, number);
        let target = fs::read_link(&at).ok()?;
        let text = target.to_string_lossy();
        if text.starts_with("socket:") {
            let mut name = [0; 16];
            let len = rustix::fs::getxattr(&at, "system.sockprotoname", &mut name).ok()?;
            return match &name[..len] {
                b"TCP\0" | b"TCPv6\0" => Some("tcp"),
                b"UDP\0" | b"UDPv6\0" => Some("udp"),
                b"NETLINK\0" => Some("netlink"),
                // The socket pair by which the program passes on its signals.
                _ => None,
            };
        }
        match number as u32 {
            0 => return Some("stdin"),
            1 => return Some("stdout"),
            // Nobody could read what is wrong with it.
            2 => return None,
            _ => {}
        }
        self.file(&target)
    }

    fn file(&self, path: &Path) -> Option<&'static str> {
        let Ok(inside) = path.strip_prefix(&self.folder) else {
            let system = path.starts_with("/proc") || path.starts_with("/sys");
            return system.then_some("system");
        };
        let mut parts = inside.components().map(|part| part.as_os_str().as_bytes());
        let (source, destination) = match self.kind {
            Kind::Pull => (b"there".as_slice(), b"here".as_slice()),
            Kind::Push | Kind::Pipe => (b"here".as_slice(), b"there".as_slice()),
        };
        let first = parts.next()?;
        if first == b"home" {
            Some("history")
        } else if first == b"token" {
            Some("token")
        } else if first == source {
            Some("source")
        } else if first == destination {
            let mut hidden = parts.skip_while(|part| !part.starts_with(b".longhaul-"));
            match (hidden.next(), hidden.next()) {
                (None, _) => Some("destination"),
                (Some(_), Some(b"record")) => Some("record"),
                (Some(_), _) => Some("hidden"),
            }
        } else {
            None
        }
    }
}

fn handle(attempt: &Attempt, number: u64) -> PathBuf {
    format!("/proc/{}/fd/{}", attempt.thread, number as u32).into()
}

fn socket_of(family: u64, kind: u64) -> Option<&'static str> {
    match (family, kind & 0xf) {
        (2 | 10, 1) => Some("tcp"),
        (2 | 10, 2) => Some("udp"),
        (16, _) => Some("netlink"),
        _ => None,
    }
}

const F_GETFD: u64 = 1;
/// A path is relative to the working directory.
const AT_FDCWD: u64 = -100_i32 as u32 as u64;
