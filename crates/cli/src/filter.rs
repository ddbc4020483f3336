//! `--exclude` and its kind: rules in the order in which they are written.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use longhaul::{FilterKind, FilterRule};

use crate::failure::Failure;
use crate::input;

/// Options that say which names are copied, in their order.
#[derive(Clone, Debug, Default)]
pub struct FilterArgs(Vec<Written>);

/// An option as it is written.
#[derive(Clone, Debug)]
enum Written {
    Rule(FilterKind, OsString),
    File(PathBuf),
}

impl FilterArgs {
    /// A file has some of them.
    pub(crate) fn has_file(&self) -> bool {
        self.0.iter().any(|written| matches!(written, Written::File(_)))
    }

    /// Number of times that rules are read from standard input.
    pub(crate) fn reads_standard_input(&self) -> usize {
        let reads = |it: &&Written| matches!(it, Written::File(path) if path.as_os_str() == "-");
        self.0.iter().filter(reads).count()
    }

    /// The rules; those of a file in the place of its option.
    pub(crate) fn rules(&self) -> Result<Vec<FilterRule>, Failure> {
        let mut rules = Vec::new();
        for written in &self.0 {
            match written {
                Written::Rule(kind, pattern) => rules.extend(rule(*kind, pattern.as_bytes())),
                Written::File(path) => rules.extend(read(path)?),
            }
        }
        Ok(rules)
    }
}

/// As rsync reads a line: a sign and a space before the pattern say which kind it is.
fn rule(kind: FilterKind, text: &[u8]) -> Option<FilterRule> {
    let (kind, pattern) = match text {
        [b'+', b' ', rest @ ..] => (FilterKind::Include, rest),
        [b'-', b' ', rest @ ..] => (FilterKind::Exclude, rest),
        all => (kind, all),
    };
    (!pattern.is_empty()).then(|| FilterRule { kind, pattern: pattern.to_vec() })
}

/// The rules of a file, or of standard input (`-`), one a line; blank lines, and those that begin with `#` or `;`, are none.
fn read(path: &Path) -> Result<Vec<FilterRule>, Failure> {
    let text = input::read(path).map_err(|error| {
        Failure::failed(format!("--exclude-from: cannot read {}: {error}", path.display()))
    })?;
    let lines =
        text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let is_rule = |line: &&[u8]| !matches!(line.first(), None | Some(b'#' | b';'));
    Ok(lines.filter(is_rule).filter_map(|line| rule(FilterKind::Exclude, line)).collect())
}

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        let pattern = |name: &'static str| {
            Arg::new(name)
                .long(name)
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .value_parser(value_parser!(OsString))
                // As in `--exclude '- *.o'`.
                .allow_hyphen_values(true)
        };
        command
            .arg(pattern(EXCLUDE).help("Do not copy what matches, nor what is in it").long_help(
                "Do not copy what matches, nor what is in it\n\n\
                 A pattern of rsync: * and ? stop at slashes, ** does not; a slash in front ties it to \
                 the top of the copy, one behind it matches directories only. The first of all rules \
                 that matches a path decides.",
            ))
            .arg(
                pattern(INCLUDE)
                    .help("Copy what matches, though a later --exclude does not")
                    .hide_short_help(true),
            )
            .arg(
                Arg::new(EXCLUDE_FROM)
                    .long(EXCLUDE_FROM)
                    .value_name("FILE")
                    .action(ArgAction::Append)
                    .value_parser(value_parser!(PathBuf))
                    .help("Take rules from a file, or - for standard input, one a line: `- PATTERN`, `+ PATTERN`, or a PATTERN")
                    .hide_short_help(true),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut written = Vec::new();
        for (name, kind) in [(EXCLUDE, FilterKind::Exclude), (INCLUDE, FilterKind::Include)] {
            let values = matches.get_many::<OsString>(name).unwrap_or_default().cloned();
            let places = matches.indices_of(name).unwrap_or_default();
            written.extend(places.zip(values.map(|pattern| Written::Rule(kind, pattern))));
        }
        let values = matches.get_many::<PathBuf>(EXCLUDE_FROM).unwrap_or_default().cloned();
        let places = matches.indices_of(EXCLUDE_FROM).unwrap_or_default();
        written.extend(places.zip(values.map(Written::File)));
        written.sort_by_key(|(place, _)| *place);
        Ok(Self(written.into_iter().map(|(_, written)| written).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

const EXCLUDE: &str = "exclude";
const INCLUDE: &str = "include";
const EXCLUDE_FROM: &str = "exclude-from";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_keep_their_order_across_options() {
        let command = FilterArgs::augment_args(Command::new("cp"));
        let words = ["cp", "--exclude", "*.o", "--include=a", "--exclude", "- b", "--exclude=+ c"];
        let matches = command.try_get_matches_from(words).unwrap();
        let rules = FilterArgs::from_arg_matches(&matches).unwrap().rules().unwrap_or_default();
        let shown: Vec<String> = rules
            .iter()
            .map(|rule| format!("{:?} {}", rule.kind, rule.pattern.escape_ascii()))
            .collect();
        assert_eq!(shown, ["Exclude *.o", "Include a", "Exclude b", "Include c"]);
    }
}
