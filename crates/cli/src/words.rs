//! The words of a command, read.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};

use crate::args::Cli;

/// Reads the words. A negative number behind an option is its value, and not another option.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    fn with_numbers(command: clap::Command) -> clap::Command {
        let takes = |arg: clap::Arg| {
            let is_option = arg.get_action().takes_values() && !arg.is_positional();
            if is_option { arg.allow_negative_numbers(true) } else { arg }
        };
        command.mut_args(takes).mut_subcommands(with_numbers)
    }
    Cli::from_arg_matches(&with_numbers(Cli::command()).try_get_matches_from(words)?)
}

/// The part of clap's words that says what is wrong and what would be right: without how to ask for help.
pub(crate) fn complaint(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let is_help =
        |part: &&str| part.starts_with("Usage:") || part.starts_with("For more information");
    let parts: Vec<&str> = text.split("\n\n").take_while(|part| !is_help(part)).collect();
    parts.join("\n").trim_end().to_owned()
}
