//! Where both ends of a pipe meet at a host that each reaches by ssh.
//!
//! The server of the end that comes first keeps a file, locked as long as it serves, in a directory of the
//! user's alone. There the server of the other end finds its port, and a token for that end.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use longhaul_sys::clock;
use longhaul_sys::files::FileLock;
use rustix::fs::OFlags;
use rustix::process::geteuid;

/// A pipe at this host.
pub(super) enum Meeting {
    /// The other end has not come: it is waited for here.
    Host(Host),
    /// It waits at this port of this host, and who comes has this token.
    Guest { port: u16, token: [u8; 16] },
}

/// The file of the end that came first.
pub(super) struct Host {
    file: File,
    path: PathBuf,
    _lock: FileLock,
}

impl Meeting {
    /// Comes to the pipe of that name and root, in `folder`.
    ///
    /// # Errors
    /// The folder cannot be used, or the other end says nothing.
    pub fn come(folder: &Path, root: &Path, name: &[u8]) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let found = folder.symlink_metadata()?;
        if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(io::Error::other("not a directory of this user alone"));
        }
        let path = folder.join(file_name(root, name));
        let until = clock::now() + PATIENCE;
        loop {
            let mut file = open(&path)?;
            match FileLock::try_take(&file) {
                // One that has been removed meanwhile is found by nobody.
                Ok(_) if file.metadata()?.nlink() == 0 => {}
                Ok(lock) => {
                    file.set_len(0)?;
                    return Ok(Self::Host(Host { file, path, _lock: lock }));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut found = [0; LEN];
                    if file.read_exact(&mut found).is_ok() {
                        let [high, low, token @ ..] = found;
                        return Ok(Self::Guest { port: u16::from_be_bytes([high, low]), token });
                    }
                }
                Err(error) => return Err(error),
            }
            if clock::now() >= until {
                return Err(io::Error::other(
                    "the other end of the pipe has come, and does not listen",
                ));
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Host {
    /// Lets the other end find this one.
    pub fn tell(&self, port: u16, token: &[u8; 16]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&[&port.to_be_bytes()[..], token].concat())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // While it is locked: who comes next makes another one.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path)?;
    let found = file.metadata()?;
    match found.is_file() && found.uid() == geteuid().as_raw() {
        true => Ok(file),
        false => Err(io::Error::other("not a file of this user")),
    }
}

/// Of this host: others may have the same home.
fn file_name(root: &Path, name: &[u8]) -> String {
    let host = rustix::system::uname();
    let parts = [host.nodename().to_bytes(), root.as_os_str().as_encoded_bytes(), name];
    let mut digest = Context::new(&SHA256);
    for part in parts {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A port and a token.
const LEN: usize = 18;
/// From coming to listening.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn host(folder: &Path, name: &[u8]) -> Host {
        match Meeting::come(folder, Path::new("/"), name).unwrap() {
            Meeting::Host(host) => host,
            Meeting::Guest { .. } => panic!("somebody was there"),
        }
    }

    #[test]
    fn the_second_finds_the_first_and_who_comes_later_waits_again() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state/pipes");
        let first = host(&folder, b"a/../pipe");
        first.tell(4711, &[7; 16]).unwrap();
        let second = Meeting::come(&folder, Path::new("/"), b"a/../pipe").unwrap();
        assert!(matches!(second, Meeting::Guest { port: 4711, token } if token == [7; 16]));
        // Those of another name or root do not meet it.
        let _other = host(&folder, b"other");
        let apart = Meeting::come(&folder, Path::new("/data"), b"a/../pipe").unwrap();
        assert!(matches!(apart, Meeting::Host(_)));
        drop(first);
        let again = host(&folder, b"a/../pipe");
        again.tell(4712, &[8; 16]).unwrap();
        let second = Meeting::come(&folder, Path::new("/"), b"a/../pipe").unwrap();
        assert!(matches!(second, Meeting::Guest { port: 4712, .. }));
    }

    #[test]
    fn what_a_killed_server_left_is_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file_name(Path::new("/"), b"name"));
        std::fs::write(&path, [1; LEN]).unwrap();
        let _first = host(folder.path(), b"name");
        assert_eq!(path.metadata().unwrap().len(), 0);
    }

    #[test]
    fn a_folder_that_others_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let error = Meeting::come(folder.path(), Path::new("/"), b"x").err().unwrap();
        assert!(error.to_string().contains("not a directory of this user alone"));
    }
}
