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

/// The part of clap's words that says what is wrong, on one line, and its tip: without how to ask for help.
pub(crate) fn complaint(text: &str) -> (String, Option<String>) {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let is_help =
        |part: &&str| part.starts_with("Usage:") || part.starts_with("For more information");
    let mut parts = text.split("\n\n").take_while(|part| !is_help(part)).map(on_one_line);
    let complaint = parts.next().unwrap_or_default();
    let tips: Vec<String> = parts
        .flat_map(|part| part.split("tip: ").map(|tip| tip.trim().to_owned()).collect::<Vec<_>>())
        .filter(|tip| !tip.is_empty())
        .collect();
    (complaint, (!tips.is_empty()).then(|| tips.join("; ")))
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_one_line_and_its_tip_is_another() {
        let of = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            complaint(&parse(&words).unwrap_err().to_string())
        };
        let (error, tip) = of(&["longhaul", "cp", "--exclud", "x", "a", "b"]);
        assert_eq!(error, "unexpected argument '--exclud' found");
        assert_eq!(tip.as_deref(), Some("a similar argument exists: '--exclude'"));
        let (error, tip) = of(&["longhaul", "cp", "--carrier", "pigeon", "a", "b"]);
        assert!(
            error.contains("--carrier <KIND>") && error.contains("[possible values: "),
            "{error}"
        );
        assert!(!error.contains('\n') && tip.is_none(), "{error} {tip:?}");
        let (error, _) = of(&["longhaul", "cp"]);
        assert!(error.ends_with("not provided: <PATH>..."), "{error}");
    }
}
