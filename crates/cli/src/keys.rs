//! `longhaul keys`.

use std::path::Path;

use serde_json::json;

use crate::args::{KeysArgs, KeysCommand};
use crate::failure::Failure;
use crate::output::Output;
use crate::token::{self, MADE};

pub(crate) fn run(args: &KeysArgs, output: &Output) -> Result<(), Failure> {
    match &args.command {
        KeysCommand::New { token_file } if token_file.as_deref() == Some(Path::new("-")) => {
            let token = token::generate()?;
            let id = token.key().id().to_string();
            output.result(&json!({ "token": token.to_string(), "id": id }), token.to_string())
        }
        KeysCommand::New { token_file } => {
            let file = token::file_or_default(token_file.as_deref())?;
            let token = token::generate()?;
            token::write(&file, &token)?;
            let (file, id) = (file.display().to_string(), token.key().id().to_string());
            let text = format!("{MADE}{id} is in {file}; give a copy to the other host");
            output.result(&json!({ "token_file": file, "id": id }), text)
        }
        KeysCommand::Id { token_file } => {
            let file = token::file_or_default(token_file.as_deref())?;
            let tokens = token::read(&file)?;
            let ids: Vec<String> =
                tokens.iter().map(|token| token.key().id().to_string()).collect();
            let file = file.display().to_string();
            output.result(&json!({ "token_file": file, "ids": ids }), ids.join("\n"))
        }
    }
}
