//! How commands reach a booking service.

use std::path::Path;

use longhaul_circuits::client::{Access, Client, ClientError};

use serde_json::Value;

use super::args::Where;
use super::value;
use crate::failure::Failure;
use crate::token;

/// The options of a command that name the service.
pub(crate) struct Options {
    url: &'static str,
    authorities: &'static str,
}

/// Those of `cp` and `pipe`.
pub(crate) const OF_COPIES: Options = Options { url: "--circuit", authorities: "--circuit-ca" };
/// Those of `circuits`.
pub(crate) const OF_COMMANDS: Options = Options { url: "--url", authorities: "--ca" };

/// A client with the first token of the file.
///
/// # Errors
/// There is none, or the token may not be sent to where `url` leads.
pub(crate) fn client(
    url: &str,
    token_file: Option<&Path>,
    access: &Access,
    options: &Options,
) -> Result<Client, Failure> {
    let file = token::circuit_file_or_default(token_file)?;
    let token = token::read_of_circuits(&file)?.swap_remove(0).to_string();
    Client::new(url, &token, access).map_err(|error| match error {
        ClientError::Authorities { .. } => {
            Failure::failed(format!("{} {}", options.authorities, words(&error, options)))
        }
        _ => Failure::usage(format!("{} {}", options.url, words(&error, options))),
    })
}

/// The same, of a command of `circuits`.
///
/// # Errors
/// As there.
pub(super) fn client_of(at: &Where) -> Result<Client, Failure> {
    let access = Access { authorities: at.ca.clone(), plain_http: at.plain_http };
    client(&at.url, at.token_file.as_deref(), &access, &OF_COMMANDS)
}

/// Makes a client's error that of the command.
pub(super) fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Problem(problem) => {
            let mut fields = serde_json::Map::new();
            fields.insert("problem".into(), value(&problem).unwrap_or(Value::Null));
            let failure = Failure::failed(&problem.detail).with_fields(fields);
            match problem.explanation {
                Some(explanation) => failure.adding(explanation.summary),
                None => failure,
            }
        }
        other => Failure::failed(words(&other, &OF_COMMANDS)),
    }
}

/// A client's error in words, with the option that helps.
pub(crate) fn words(error: &ClientError, options: &Options) -> String {
    match error {
        ClientError::Plain(_) => format!("{error}, --plain-http allows it"),
        ClientError::Certificate { .. } => {
            let option = options.authorities;
            format!("{error}. The authority that vouches for it, in a file: {option} FILE")
        }
        other => other.to_string(),
    }
}
