//! The words of a command, read.

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};
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

/// The words of clap on one line: what is wrong, with what to write where clap does not say it, and its tip.
pub(crate) fn complaint(error: &clap::Error) -> (String, Option<String>) {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let is_help =
        |part: &&str| part.starts_with("Usage:") || part.starts_with("For more information");
    let mut parts = text.split("\n\n").take_while(|part| !is_help(part)).map(on_one_line);
    let complaint = parts.next().unwrap_or_default();
    let tips: Vec<String> = parts
        .flat_map(|part| part.split("tip: ").map(|tip| tip.trim().to_owned()).collect::<Vec<_>>())
        .filter(|tip| !tip.is_empty())
        .collect();
    let tip = (!tips.is_empty()).then(|| tips.join("; "));
    let usage = text.split("\n\n").find_map(|part| part.strip_prefix("Usage: "));
    let usage = on_one_line(usage.unwrap_or("longhaul [OPTIONS] <COMMAND>"));
    match instead(error, &complaint, &usage) {
        Some(instead) => (format!("{complaint}: {instead}"), tip),
        None => (complaint, tip),
    }
}

/// The words that are to be written, unless `complaint` or a tip says them.
fn instead(error: &clap::Error, complaint: &str, usage: &str) -> Option<String> {
    let is_of_command = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let command: Vec<&str> = usage.split(' ').take_while(is_of_command).collect();
    let listed = |what: &str| format!("`{} --help` lists {what}", command.join(" "));
    let has = |kind| error.get(kind).is_some();
    Some(match error.kind() {
        ErrorKind::ArgumentConflict if complaint.ends_with("multiple times") => {
            "give it once".into()
        }
        ErrorKind::ArgumentConflict if complaint.contains("'--config <FILE>'") => {
            "what that file says is written there alone".into()
        }
        ErrorKind::ArgumentConflict => "leave one of them out".into(),
        ErrorKind::MissingRequiredArgument if complaint.contains(": -") => "give that, too".into(),
        ErrorKind::MissingRequiredArgument => format!("write {usage}"),
        ErrorKind::UnknownArgument if has(ContextKind::SuggestedArg) => return None,
        ErrorKind::UnknownArgument if complaint.contains("'-") => listed("the options"),
        ErrorKind::UnknownArgument => format!("write {usage}"),
        ErrorKind::InvalidSubcommand if has(ContextKind::SuggestedSubcommand) => return None,
        ErrorKind::InvalidSubcommand => listed("the commands"),
        _ => return None,
    })
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> (String, Option<String>) {
        let words = format!("longhaul {words}");
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        complaint(&parse(&words).unwrap_err())
    }

    #[test]
    fn a_complaint_is_one_line_and_its_tip_is_another() {
        let (error, tip) = of("cp --exclud x a b");
        assert_eq!(error, "unexpected argument '--exclud' found");
        assert_eq!(tip.as_deref(), Some("a similar argument exists: '--exclude'"));
        let (error, tip) = of("cp --carrier pigeon a b");
        assert!(
            error.contains("--carrier <KIND>") && error.contains("[possible values: "),
            "{error}"
        );
        assert!(!error.contains('\n') && tip.is_none(), "{error} {tip:?}");
    }

    #[test]
    fn a_complaint_says_what_to_write() {
        for (words, end) in [
            ("cp", "not provided: <PATH>...: write longhaul cp [OPTIONS] SRC... DST"),
            (
                "cp --booking 3 a b",
                "not provided: --circuit <https://HOST[:PORT][/FROM/TO]>: give that, too",
            ),
            ("cp --zzz a b", "'--zzz' found: `longhaul cp --help` lists the options"),
            (
                "gateway serve --zzz",
                "'--zzz' found: `longhaul gateway serve --help` lists the options",
            ),
            ("--zzz", "'--zzz' found: `longhaul --help` lists the options"),
            ("zzz", "subcommand 'zzz': `longhaul --help` lists the commands"),
            ("lab zzz", "subcommand 'zzz': `longhaul lab --help` lists the commands"),
            ("ls a b", "'b' found: write longhaul ls [OPTIONS] <PLACE>"),
            ("serve --config f d", "'[DIR]': what that file says is written there alone"),
            ("serve --root a b", "leave one of them out"),
            ("cp --retry 1 --retry 2 a b", "cannot be used multiple times: give it once"),
        ] {
            let (error, _) = of(words);
            assert!(error.ends_with(end), "{words}: {error}");
        }
    }
}
