//! `--exclude` and its kind: rules in the order in which they are written.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use longhaul::{FilterKind, FilterRule};
use longhaul_sys::reasons::unread;

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
                Written::Rule(kind, pattern) => {
                    let option = if *kind == FilterKind::Include { INCLUDE } else { EXCLUDE };
                    add(&mut rules, *kind, pattern.as_bytes())
                        .map_err(|why| Failure::usage(format!("--{option}: {why}")))?;
                }
                Written::File(path) => read(path, &mut rules)?,
            }
        }
        Ok(rules)
    }
}

/// Adds a rule as rsync reads a line: `!` takes away all before it.
fn add(rules: &mut Vec<FilterRule>, kind: FilterKind, text: &[u8]) -> Result<(), String> {
    match text {
        b"!" => rules.clear(),
        b"+ " | b"- " => {
            let sign = char::from(text[0]);
            return Err(format!("the rule `{sign} ` has no pattern: write `{sign} PATTERN`"));
        }
        text => rules.extend(rule(kind, text)),
    }
    Ok(())
}

/// A sign and a space before the pattern say which kind it is. One of slashes alone matches nothing, as in rsync.
fn rule(kind: FilterKind, text: &[u8]) -> Option<FilterRule> {
    let (kind, pattern) = match text {
        [b'+', b' ', rest @ ..] => (FilterKind::Include, rest),
        [b'-', b' ', rest @ ..] => (FilterKind::Exclude, rest),
        all => (kind, all),
    };
    let matches = pattern.iter().any(|byte| *byte != b'/');
    matches.then(|| FilterRule { kind, pattern: pattern.to_vec() })
}

/// Adds the rules of a file, or of standard input (`-`), one a line; blank lines, and those that begin with `#` or `;`, are none.
fn read(path: &Path, rules: &mut Vec<FilterRule>) -> Result<(), Failure> {
    let text = input::read(path).map_err(|error| {
        let (shown, why) = (path.display(), unread(&error));
        Failure::failed(format!("--exclude-from: cannot read {shown}: {why}"))
    })?;
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if matches!(line.first(), None | Some(b'#' | b';')) {
            continue;
        }
        add(rules, FilterKind::Exclude, line).map_err(|why| {
            Failure::usage(format!("--exclude-from {}: line {number}: {why}", path.display()))
        })?;
    }
    Ok(())
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

    /// The rules of a command line.
    fn read(words: &[&str]) -> Result<Vec<FilterRule>, Failure> {
        let command = FilterArgs::augment_args(Command::new("cp"));
        let matches = command.try_get_matches_from(words).unwrap();
        FilterArgs::from_arg_matches(&matches).unwrap().rules()
    }

    /// The same in words.
    fn shown(words: &[&str]) -> Vec<String> {
        let rules = read(words).unwrap();
        let show = |rule: &FilterRule| format!("{:?} {}", rule.kind, rule.pattern.escape_ascii());
        rules.iter().map(show).collect()
    }

    #[test]
    fn rules_keep_their_order_across_options() {
        let words = ["cp", "--exclude", "*.o", "--include=a", "--exclude", "- b", "--exclude=+ c"];
        assert_eq!(shown(&words), ["Exclude *.o", "Include a", "Exclude b", "Include c"]);
    }

    #[test]
    fn slashes_alone_match_nothing() {
        assert_eq!(shown(&["cp", "--exclude=/", "--include=//", "--exclude=/a/"]), ["Exclude /a/"]);
        assert!(shown(&["cp", "--exclude", "- /"]).is_empty());
    }

    #[test]
    fn a_sign_without_a_pattern_is_refused_by_option_or_file_and_line() {
        let refused = |words: &[&str]| {
            let failure = read(words).unwrap_err();
            assert_eq!(failure.status, 2);
            failure.message
        };
        let words = "the rule `- ` has no pattern: write `- PATTERN`";
        assert_eq!(refused(&["cp", "--exclude", "- "]), format!("--exclude: {words}"));
        let words = "the rule `+ ` has no pattern: write `+ PATTERN`";
        assert_eq!(refused(&["cp", "--include=+ "]), format!("--include: {words}"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules");
        std::fs::write(&file, "# rules\n\na\n+ \r\n- b\n").unwrap();
        let file = file.display();
        let from = format!("--exclude-from={file}");
        assert_eq!(refused(&["cp", &from]), format!("--exclude-from {file}: line 4: {words}"));
        assert_eq!(
            shown(&["cp", "--exclude=-", "--exclude=", "--exclude=-  "]),
            ["Exclude -", "Exclude  "]
        );
    }

    #[test]
    fn an_exclamation_mark_alone_takes_away_the_rules_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules");
        for (text, rules) in [
            ("b\n!\nc\n", &["Exclude c", "Exclude d"][..]),
            ("b\n!\r\nc\n", &["Exclude c", "Exclude d"]),
            ("!\n", &["Exclude d"]),
            ("! \n!x\n- !\n", &["Exclude a", "Exclude ! ", "Exclude !x", "Exclude !", "Exclude d"]),
        ] {
            std::fs::write(&file, text).unwrap();
            let from = format!("--exclude-from={}", file.display());
            assert_eq!(shown(&["cp", "--exclude=a", &from, "--exclude=d"]), rules, "{text:?}");
        }
        assert_eq!(shown(&["cp", "--exclude=a", "--include=!", "--exclude=d"]), ["Exclude d"]);
        assert!(shown(&["cp", "--exclude=a", "--exclude=!"]).is_empty());
    }
}
