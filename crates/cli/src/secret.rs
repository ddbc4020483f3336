//! The secret by which this user knows again what a server has from his copies
//! (docs/protocol.md section 7.4).

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longhaul_sys::random;
use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::output::Output;
use crate::token;

/// The secret of this user, which is made where there is none. Without one, what is there of an
/// interrupted copy to a server is read again.
pub(crate) fn open(output: &Output) -> Option<[u8; 32]> {
    let Some(file) = file() else {
        output.detail(
            "note: no home directory to keep a secret in: what a server has of an interrupted copy is \
             read here and compared",
        );
        return None;
    };
    match read(&file).or_else(|error| match error.kind() {
        ErrorKind::NotFound => make(&file),
        _ => Err(error),
    }) {
        Ok(secret) => Some(secret),
        Err(error) => {
            output.say(format!(
                "note: {}: {error}; what a server has of an interrupted copy is read here and compared",
                file.display()
            ));
            None
        }
    }
}

fn file() -> Option<PathBuf> {
    let state = token::user_folder("XDG_STATE_HOME", ".local/state");
    Some(state?.join("longhaul/secret"))
}

fn read(file: &Path) -> io::Result<[u8; 32]> {
    // To open a FIFO waits for somebody who writes.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let mut open = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    let found = open.metadata()?;
    let others = found.mode() & 0o077 != 0;
    if !found.is_file() || found.uid() != geteuid().as_raw() || others {
        return Err(io::Error::other("not a file of this user alone (mode 600): remove it"));
    }
    let mut secret = [0; 32];
    match open.read_exact(&mut secret) {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(io::Error::other("it is too short: remove it"))
        }
        Err(error) => Err(error),
    }
}

/// Of several that make it one is the first, and the others take that.
fn make(file: &Path) -> io::Result<[u8; 32]> {
    let folder = file.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let secret: [u8; 32] = random::bytes()?;
    // For its owner only.
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(&secret)?;
    new.as_file().sync_all()?;
    match new.persist_noclobber(file) {
        Ok(_) => {}
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.error),
    }
    read(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_secret_is_made_once_for_its_owner_only_whoever_else_makes_it_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/er/secret");
        let makers: Vec<_> = (0..8)
            .map(|_| {
                let file = file.clone();
                std::thread::spawn(move || make(&file).unwrap())
            })
            .collect();
        let made: Vec<_> = makers.into_iter().map(|maker| maker.join().unwrap()).collect();
        assert!(made.iter().all(|secret| *secret == read(&file).unwrap()));
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_not_this_users_alone_or_cut_short_is_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        assert_eq!(read(&file).unwrap_err().kind(), ErrorKind::NotFound);
        make(&file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("this user alone"));
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        read(&link).unwrap_err();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        read(&file).unwrap();
        fs::write(&file, [1; 31]).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("too short"));
    }
}
