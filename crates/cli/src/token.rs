//! Token files.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Display, Path, PathBuf};

use longhaul_session::{Token, parse_token_file};
use longhaul_sys::random;
use longhaul_sys::reasons::{unread, unwritten};

use crate::failure::Failure;
use crate::output::complain;

/// A new token.
///
/// # Errors
/// The operating system gives no randomness.
pub(crate) fn generate() -> Result<Token, Failure> {
    let drawn = random::bytes().map(Token::from_random);
    drawn.map_err(|error| Failure::failed(format!("no randomness for a token: {error}")))
}

/// `file`, or the file that is used where none is named.
///
/// # Errors
/// None is named, and there is no home directory.
pub(crate) fn file_or_default(file: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(file) = file {
        return Ok(file.to_owned());
    }
    let config = user_folder("XDG_CONFIG_HOME", ".config");
    config.map(|config| config.join("longhaul/token")).ok_or_else(|| {
        Failure::usage("no home directory to look for a token in: name a file with --token-file")
    })
}

/// The token of a client: the first one in `file`, or in the file that is used where none is named.
///
/// # Errors
/// There is no such file, or no token in it.
pub(crate) fn of_client(file: Option<&Path>) -> Result<Token, Failure> {
    Ok(read(&file_or_default(file)?)?.swap_remove(0))
}

/// The user's folder for one kind of files (XDG Base Directory Specification): that of `variable`,
/// or `below_home`.
pub(crate) fn user_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    folder(variable)
        .map(PathBuf::from)
        .or_else(|| folder("HOME").map(|home| Path::new(&home).join(below_home)))
}

/// `file`, or the file with the token for a booking service that is used where none is named: never that
/// with the token of servers, since who reads that one can use it as its owner can.
///
/// # Errors
/// None is named, and there is no home directory.
pub(crate) fn circuit_file_or_default(file: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(file) = file {
        return Ok(file.to_owned());
    }
    let config = user_folder("XDG_CONFIG_HOME", ".config");
    config.map(|config| config.join("longhaul/circuit-token")).ok_or_else(|| {
        Failure::usage("no home directory to look for the booking service's token in: name a file")
    })
}

/// The tokens of `file`, at least one.
///
/// # Errors
/// It cannot be read, or is no token file.
pub(crate) fn read(file: &Path) -> Result<Vec<Token>, Failure> {
    read_or(file, |_| {
        "`longhaul serve` prints a token and the commands to keep it here; `longhaul keys new` \
         makes one"
            .into()
    })
}

/// The same at a server.
///
/// # Errors
/// It cannot be read, or is no token file.
pub(crate) fn read_at_server(file: &Path) -> Result<Vec<Token>, Failure> {
    read_or(file, |shown| {
        format!("`longhaul keys new --token-file {shown}` makes one, of which clients need a copy")
    })
}

/// The same at a client of a booking service.
///
/// # Errors
/// It cannot be read, or is no token file.
pub(crate) fn read_of_circuits(file: &Path) -> Result<Vec<Token>, Failure> {
    read_or(file, |_| {
        "the operator of the booking service gives one out; that of servers stays with them".into()
    })
}

/// What is in the file, which may be a device or a pipe without end.
fn read_some(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(file)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 {
        0..=FILE_MAX => Ok(text),
        _ => Err(io::Error::other("it is larger than any token file")),
    }
}

/// Beginning of the words that say where a new token is. Some take them for it.
pub(crate) const MADE: &str = "token ";
/// A thousand tokens, with comments.
const FILE_MAX: u64 = 256 << 10;

/// Warns of a file that others than its owner can read.
pub(crate) fn warn_of_readers(file: &Path, what: &str) {
    if let Ok(metadata) = fs::metadata(file)
        && metadata.is_file()
        && metadata.mode() & 0o077 != 0
    {
        let shown = file.display();
        complain(format!("warning: others can read the {what} in {shown}: chmod 600 {shown}"));
    }
}

/// `advice` is for who has none.
fn read_or(file: &Path, advice: fn(&Display<'_>) -> String) -> Result<Vec<Token>, Failure> {
    let shown = file.display();
    let text = read_some(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::failed(format!("no token: {shown} does not exist. {}", advice(&shown)))
        }
        _ => Failure::failed(format!("cannot read the token file {shown}: {}", unread(&error))),
    })?;
    warn_of_readers(file, "token");
    let tokens = parse_token_file(&text).map_err(|error| match text.starts_with(MADE) {
        true => Failure::failed(format!(
            "{shown} holds the words of `longhaul keys new` and no token: use the file that they name, or \
             make a token with `longhaul keys new --token-file FILE`"
        )),
        false => Failure::failed(format!("{shown}: {error}")),
    })?;
    if tokens.is_empty() {
        return Err(Failure::failed(format!("{shown} holds no token")));
    }
    Ok(tokens)
}

/// Writes `token` to a new `file` that only its owner can read.
///
/// # Errors
/// It exists, or cannot be made.
pub(crate) fn write(file: &Path, token: &Token) -> Result<(), Failure> {
    let shown = file.display();
    let explain = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::failed(format!(
            "{shown} exists and is kept: name another file with --token-file, or remove it first"
        )),
        _ => Failure::failed(format!("cannot write the token file {shown}: {}", unwritten(&error))),
    };
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(explain)?;
    }
    let mut open = OpenOptions::new();
    let mut out = open.write(true).create_new(true).mode(0o600).open(file).map_err(explain)?;
    writeln!(out, "{token}").map_err(explain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_no_token_file() {
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("larger than any token file"), "{error}");
    }

    #[test]
    fn a_token_is_written_once_for_its_owner_only_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/er/token");
        let token = generate().unwrap();
        write(&file, &token).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let read = read(&file).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].key().id(), token.key().id());
        assert!(write(&file, &token).unwrap_err().message.contains("exists"));
    }

    #[test]
    fn a_bad_token_file_is_named_without_its_contents() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        assert!(read(&file).unwrap_err().message.contains("does not exist"));
        fs::write(&file, "# none yet\n").unwrap();
        assert!(read(&file).unwrap_err().message.contains("holds no token"));
        fs::write(&file, "token b6a50a24b64caaf2 is in /home/me/token; give a copy away\n")
            .unwrap();
        assert!(read(&file).unwrap_err().message.contains("use the file that they name"));
        fs::write(&file, "\nsecret\n").unwrap();
        let message = read(&file).unwrap_err().message;
        assert!(message.contains("line 2") && !message.contains("secret"), "{message}");
    }
}
