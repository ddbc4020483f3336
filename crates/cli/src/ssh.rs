//! The server that a place names, for `cp`, `ls` and `probe`: one that listens, or one that ssh starts.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use longhaul::{ConnectOptions, SshHost, SshOptions, SshPurpose, SshServer, Stop, start_by_ssh};

use crate::args::SshArgs;
use crate::failure::Failure;
use crate::location::Server;
use crate::output::complain;
use crate::token;

/// To `server`, for a purpose and its paths; with the paths as requests name them.
///
/// # Errors
/// There is no token, or the server did not start, or does not grant that.
pub(crate) fn reach(
    server: Server,
    (purpose, paths): (SshPurpose, Vec<Vec<u8>>),
    token_file: Option<&Path>,
    args: &SshArgs,
    stop: &Stop,
) -> Result<(ConnectOptions, Vec<Vec<u8>>), Failure> {
    match server {
        Server::At(endpoint) => {
            Ok((ConnectOptions::new(endpoint, token::of_client(token_file)?), paths))
        }
        Server::BySsh(host) => {
            let server = start(args, &host, (purpose, &paths), stop)?;
            Ok((ConnectOptions::over_ssh(&server), server.paths().to_vec()))
        }
    }
}

/// A server at `host` for `purpose`, as `args` say. What ssh writes for people goes to standard error.
fn start(
    args: &SshArgs,
    host: &SshHost,
    (purpose, paths): (SshPurpose, &[Vec<u8>]),
    stop: &Stop,
) -> Result<Arc<SshServer>, Failure> {
    let pass_on = Arc::new(|line: &str| complain(line));
    start_by_ssh(&options(args, host)?, purpose, paths, pass_on, stop)
        .map_err(|error| Failure::of(&error, serde_json::Map::new))
}

/// How a server at `host` is started, as `args` say.
///
/// # Errors
/// The program that is to be run as ssh is not one.
pub(crate) fn options(args: &SshArgs, host: &SshHost) -> Result<SshOptions, Failure> {
    let mut options = SshOptions::new(host.clone());
    let (program, source) = match &args.rsh {
        Some(program) => (Some(program.clone()), "-e"),
        None => (std::env::var(PROGRAM).ok().filter(|program| !program.is_empty()), PROGRAM),
    };
    if let Some(program) = program {
        options.program = words(&program).ok_or_else(|| {
            Failure::usage(format!(
                "{source} {program}: a program is missing, or the end of a quote"
            ))
        })?;
    }
    options.remote_path.clone_from(&args.remote_path);
    options.ports = args.ports;
    Ok(options)
}

/// Words with blanks between them; quotes of either kind hold together what is between two.
fn words(text: &str) -> Option<Vec<OsString>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take().map(OsString::from)),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.map(OsString::from));
    let is_whole = quote.is_none() && words.first().is_some_and(|program| !program.is_empty());
    is_whole.then_some(words)
}

/// Environment variable with the command that is run as ssh, where no option gives one.
const PROGRAM: &str = "LONGHAUL_SSH";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_words_together() {
        for (text, expected) in [
            ("ssh", &["ssh"][..]),
            (" ssh  -p 22 ", &["ssh", "-p", "22"]),
            ("ssh -i 'my key' -o\"A B\"=c", &["ssh", "-i", "my key", "-oA B=c"]),
            ("x ''", &["x", ""]),
            ("$(x) `y`", &["$(x)", "`y`"]),
        ] {
            let expected: Vec<OsString> = expected.iter().map(OsString::from).collect();
            assert_eq!(words(text), Some(expected), "{text}");
        }
        for text in ["", " ", "ssh 'x", "''"] {
            assert_eq!(words(text), None, "{text}");
        }
    }
}
