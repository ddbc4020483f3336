//! Commands and options of other programs: the sentence that says what to write here.

mod options;

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::CpArgs;

/// Advice where `words`, the program's name first, of which clap found `error`, are written for another program;
/// nothing where they are not.
pub(crate) fn advice(words: &[OsString], error: &clap::Error) -> Option<String> {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let words = words.iter().skip(1).filter_map(|word| word.to_str());
    let words: Vec<&str> = words.take_while(|word| *word != "--").collect();
    let command = *words.iter().find(|word| !word.starts_with('-'))?;
    if error.kind() == ErrorKind::InvalidSubcommand {
        let unknown = named(ContextKind::InvalidSubcommand)?;
        let (_, instead) = COMMANDS.iter().find(|(name, _)| *name == unknown)?;
        return Some(format!("there is no command {unknown}: {instead}"));
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(advice) = below_zero(&words, named(ContextKind::InvalidArg)?)
    {
        return Some(advice);
    }
    if command != "cp" {
        return None;
    }
    let option = match error.kind() {
        ErrorKind::UnknownArgument => named(ContextKind::InvalidArg)?,
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            let option = named(ContextKind::InvalidArg)?;
            let is_number = |value: &str| value.starts_with(|c: char| c.is_ascii_digit());
            let takes = |(name, _): &&(&str, &str)| option.split(' ').next() == Some(name);
            if named(ContextKind::InvalidValue).is_some_and(is_number) {
                return None;
            }
            let (name, takes) = options::WITH_VALUE.iter().find(takes)?;
            return Some(format!("{name} {takes}"));
        }
        ErrorKind::MissingRequiredArgument if lacks(error, "--files-from") => {
            return Some("-0 is of --files-from FILE; rules of --exclude-from are lines".into());
        }
        // As in -avh, where people ask for sizes that they can read.
        ErrorKind::DisplayHelp if words.iter().any(|word| is_among_letters(word, 'h')) => "-h",
        ErrorKind::ArgumentConflict if words.iter().any(|word| is_option_of_ssh(word)) => "-o",
        _ => return None,
    };
    let instead = options::instead(option)?;
    // Written otherwise these are taken.
    let there_is = ["-h", "-o"].contains(&option);
    let none = if there_is { "" } else { "there is no " };
    Some(format!("{none}{option}: {instead}"))
}

/// Advice where a number below zero stands behind an option, which clap takes for another `option` where it has a unit.
fn below_zero(words: &[&str], option: &str) -> Option<String> {
    let is_negative = |word: &str| {
        let rest = word.strip_prefix('-').unwrap_or_default();
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        unit.len() < rest.len() && !unit.is_empty() && word.starts_with(option)
    };
    let mut pairs = words.windows(2);
    let pair = pairs.find(|pair| pair[0].starts_with("--") && is_negative(pair[1]))?;
    let (option, value) = (pair[0], pair[1]);
    Some(match option.ends_with("rate") {
        true => format!(
            "{option} {value}: a rate is more than zero, and has a unit, as in {option} 1.6Gbps"
        ),
        false => format!("{option} {value}: nothing below zero is taken there"),
    })
}

/// True if clap misses `option`, which another one needs.
fn lacks(error: &clap::Error, option: &str) -> bool {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return false;
    };
    missing.iter().any(|it| it.starts_with(option))
}

/// Advice where the first of these paths is the value of an option that takes none here.
pub(crate) fn value_as_path(args: &CpArgs) -> Option<String> {
    let find = |is_it: fn(&str) -> bool| {
        let is_it =
            |path: &&OsString| path.to_str().is_some_and(is_it) && !Path::new(path).exists();
        args.paths.iter().find(is_it).map(|path| path.to_string_lossy())
    };
    let number = find(|text| text.parse::<u32>().is_ok());
    if let Some(port) = number.as_ref().filter(|_| args.habits.progress) {
        return Some(format!(
            "-P {port}: the port stands behind its host: ssh://HOST:{port}/PATH or lh://HOST:{port}/PATH"
        ));
    }
    if let Some(rate) = number.filter(|_| args.habits.symlinks) {
        return Some(format!("-l {rate}: the rate is limited by --rate, as in --rate {rate}kbps"));
    }
    let is_cipher = |text: &str| CIPHERS.iter().any(|begin| text.starts_with(begin));
    if let Some(cipher) = find(is_cipher).filter(|_| args.change.checksum) {
        return Some(format!(
            "-c {cipher}: a cipher of ssh is given with it: -e 'ssh -c {cipher}'"
        ));
    }
    let is_of_sftp = |text: &str| text.starts_with("nrequests=") || text.starts_with("buffer=");
    if let Some(option) = find(is_of_sftp).filter(|_| args.attributes.keeps_xattrs()) {
        return Some(format!("-X {option}: nothing goes by sftp; leave it out"));
    }
    if let [folder, _, _, ..] = &args.paths[..]
        && args.change.no_target_directory
    {
        let folder = folder.to_string_lossy();
        return Some(format!(
            "-T {folder}: -T gives one SRC the name DST; what is not whole lies beside it in a hidden directory, so that \
             rsync's -T is not needed"
        ));
    }
    if let [program, _, _, ..] = &args.paths[..]
        && args.habits.sparse
        && let Some(name) = Path::new(program).file_name()
        && name.as_encoded_bytes().starts_with(b"ssh")
    {
        let program = program.to_string_lossy();
        return Some(format!(
            "-S {program}: the program that is run as ssh is given by -e {program} (holes are never sent: if it is to \
             be copied, leave -S out)"
        ));
    }
    let option = find(|text| is_option_of_ssh(&format!("-o{text}")));
    let option = option.filter(|_| args.attributes.keeps_owners())?;
    Some(format!("-o {option}: options of ssh are given with it: -e 'ssh -o {option}'"))
}

/// A note where `-R` has another meaning for `rsync` than here.
pub(crate) fn note_of_paths(args: &CpArgs) -> Option<String> {
    let sources = args.paths.split_last().map_or(&[][..], |(_, sources)| sources);
    let has_path = |source: &OsString| {
        let text = source.as_encoded_bytes();
        text.strip_suffix(b"/").unwrap_or(text).contains(&b'/')
    };
    let is_rsyncs = args.habits.all && sources.iter().any(has_path);
    is_rsyncs.then(|| {
        let kept = options::PATHS_KEPT;
        format!("note: -R is that of cp, and SRC goes under its last name; where rsync's is meant, {kept}")
    })
}

/// True for several letters of options, with `letter` among them and none before it whose value it could be.
fn is_among_letters(word: &str, letter: char) -> bool {
    let Some(letters) = word.strip_prefix('-').filter(|letters| letters.len() > 1) else {
        return false;
    };
    let before = letters.split(letter).next().unwrap_or_default();
    let is_flag = |c: char| c.is_ascii_alphabetic() && c != 'e';
    before.len() < letters.len() && before.chars().all(is_flag)
}

/// True for an option of ssh as scp takes it: `-oPort=22`.
fn is_option_of_ssh(word: &str) -> bool {
    let option = word.strip_prefix("-o").and_then(|option| option.split_once('='));
    option.is_some_and(|(name, _)| name.len() > 2 && name.chars().all(|c| c.is_ascii_alphabetic()))
}

const COPY: &str = "`longhaul cp SRC... DST` copies both ways; HOST:PATH is a place over ssh, lh://HOST/PATH at a server";
const COMMANDS: [(&str, &str); 12] = [
    ("get", COPY),
    ("put", COPY),
    ("send", COPY),
    ("receive", COPY),
    ("push", COPY),
    ("pull", COPY),
    ("copy", COPY),
    ("scp", COPY),
    ("rsync", COPY),
    ("sync", "`longhaul cp --delete SRC/. DST` keeps two trees alike"),
    ("dir", "`longhaul ls lh://HOST/PATH` lists what is at a server"),
    ("list", "`longhaul ls lh://HOST/PATH` lists what is at a server"),
];

/// Begins of the names of ciphers that ssh knows.
const CIPHERS: [&str; 4] = ["aes", "chacha20-", "3des-", "blowfish"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Command;
    use crate::words;

    fn parse(words: &str) -> (Vec<OsString>, Result<CpArgs, clap::Error>) {
        let words: Vec<OsString> =
            format!("longhaul {words}").split(' ').map(OsString::from).collect();
        let args = words::parse(&words).map(|cli| match cli.command {
            Command::Cp(args) => args,
            other => panic!("{other:?}"),
        });
        (words, args)
    }

    fn of(words: &str) -> Option<String> {
        let (words, args) = parse(words);
        advice(&words, &args.err()?)
    }

    #[test]
    fn words_of_other_programs_get_a_sentence() {
        for (words, part) in [
            ("get lh://h/a b", "no command get: `longhaul cp"),
            ("--json sync a lh://h/b", "no command sync: `longhaul cp"),
            ("cp -z a lh://h/b", "no -z: nothing is compressed"),
            ("cp -rvz a lh://h/b", "no -z: "),
            ("cp -rlptgoD a lh://h/b", "no -D: devices, FIFOs"),
            ("cp --bwlimit=3m a lh://h/b", "the rate is limited by --rate"),
            ("cp a -i key lh://h/b", "-e 'ssh -i FILE'"),
            ("cp -oPort=22 a h:b", "-o: options of ssh are given with it: -e 'ssh -o NAME=VALUE'"),
            ("cp -avh a h:b", "-h: people can read sizes"),
            ("cp --link-dest=../old a h:b", "`cp -al OLD NEW`"),
            ("cp -x a h:b", "mounted below SRC"),
            ("cp -3 h:a g:b", "straight from host to host"),
            ("cp --delete -3 h:a g:b", "straight from host to host"),
            ("cp -J j a h:b", "-e 'ssh -J HOST'"),
            ("cp --transfers 8 a h:b", "the rate is found"),
            ("cp --delete-after a h:b", "as the last step"),
            ("cp --no-z a h:b", "there is no --no-z: nor is there -z; leave it out"),
            ("cp --no-backup a h:b", "nor is there --backup"),
            ("cp --no-follow -r a h:b", "no -L; leave both out"),
            (
                "cp -a --stats a h:b",
                "--stats takes the time between lines of progress, as in --stats 30s",
            ),
            ("cp a h:b --stats", "are in --json"),
            ("cp --fsync a h:b", "--fsync end, which is so without it"),
            ("cp -0 --exclude-from f a h:b", "rules of --exclude-from are lines"),
            ("cp -D sftp a h:b", "--remote-path PATH"),
            ("cp --rate -5Mbps a h:b", "--rate -5Mbps: a rate is more than zero, and has a unit"),
            ("pipe --max-rate -1Gbps h:b", "--max-rate -1Gbps: a rate is more than zero"),
            ("pipe --stall-timeout -5m h:b", "--stall-timeout -5m: nothing below zero is taken"),
        ] {
            let advice = of(words).unwrap_or_default();
            assert!(advice.contains(part), "{words}: {advice}");
        }
        for words in [
            "cp a lh://h/b",
            "cp -- -z lh://h/b",
            "cp --sync a lh://h/b",
            "cp --exclude -x --sync a lh://h/b",
            "cp -h",
            "cp -e ssh -h",
            "cp --no-bells a h:b",
            "cp --rate fast a h:b",
            "cp --rate -5 a h:b",
            "cp -5 a h:b",
            "cp --stats 0s a h:b",
            "cp --max-delete 5 a h:b",
            "ls -z lh://h",
            "",
        ] {
            assert_eq!(of(words), None, "{words}");
        }
    }

    #[test]
    fn no_option_that_is_taken_is_called_unknown() {
        for (names, _) in options::OPTIONS {
            // Of -h and -o clusters alone have a sentence.
            for name in names.iter().filter(|name| !["-h", "-o"].contains(*name)) {
                let advice = of(&format!("cp {name} a h:b")).unwrap_or_default();
                assert!(advice.starts_with(&format!("there is no {name}: ")), "{name}: {advice}");
            }
        }
    }

    /// Those whose meaning is that of rsync, or of scp.
    const TAKEN: &str = "-v --verbose -q --quiet -c --checksum -a --archive -r --recursive -R -u --update -l --links -L \
        --copy-links -H --hard-links --no-hard-links --no-H -p --perms -A --acls --no-acls --no-A -X --xattrs --no-xattrs \
        --no-X -o --owner --no-owner --no-o -g --group --no-group --no-g -t --times -S --sparse -n --dry-run -W \
        --whole-file -e --rsh --delete --max-delete --partial --numeric-ids --no-numeric-ids -I --ignore-times \
        --exclude --exclude-from --include --files-from -0 --from0 --progress -P -T";

    #[test]
    fn each_option_of_rsync_and_scp_is_taken_or_has_a_sentence() {
        let mut taken = Vec::new();
        for line in
            include_str!("habits/rsync.txt").lines().chain(include_str!("habits/scp.txt").lines())
        {
            let name = line.split([' ', '=']).next().unwrap();
            let (words, args) = parse(&format!("cp {line} a h:b"));
            let advice = match args {
                Ok(args) => value_as_path(&args),
                Err(error) if error.kind() == ErrorKind::DisplayHelp => continue,
                Err(error) => {
                    Some(advice(&words, &error).unwrap_or_else(|| panic!("{line}: {error}")))
                }
            };
            match advice {
                Some(advice) => assert!(advice.contains(name), "{line}: {advice}"),
                None => taken.push(name),
            }
        }
        let expected: std::collections::BTreeSet<&str> = TAKEN.split_whitespace().collect();
        assert_eq!(taken.into_iter().collect::<std::collections::BTreeSet<_>>(), expected);
    }

    #[test]
    fn what_is_done_anyway_is_taken() {
        for words in ["-rlptv", "-S -W --sparse --times --links --whole-file --perms", "-rR -R -r"]
        {
            assert!(parse(&format!("cp {words} a h:b")).1.is_ok(), "{words}");
        }
    }

    #[test]
    fn values_that_became_paths_and_paths_that_are_not_kept_are_noticed() {
        let of = |words: &str| {
            let args = parse(&format!("cp {words}")).1.unwrap();
            value_as_path(&args).or(note_of_paths(&args)).unwrap_or_default()
        };
        for (words, part) in [
            ("-P 2222 a h:b", "ssh://HOST:2222/PATH"),
            ("-l 800 a h:b", "--rate 800kbps"),
            ("-o Port=22 a h:b", "-e 'ssh -o Port=22'"),
            ("-c aes128-ctr a h:b", "-e 'ssh -c aes128-ctr'"),
            ("-X nrequests=64 a h:b", "nothing goes by sftp"),
            ("-S /opt/ssh a h:b", "given by -e /opt/ssh"),
            ("-T tmp a h:b", "rsync's -T is not needed"),
            ("-R a/b h:c", "-R is that of cp"),
        ] {
            assert!(of(words).contains(part), "{words}: {}", of(words));
        }
        for words in [
            "-P a h:b",
            "-l a h:b",
            "-o a=b h:c",
            "-R a/ h:b/c",
            "-r a/b h:c",
            "-S ssh h:b",
            "aes1 h:b",
        ] {
            assert_eq!(of(words), "", "{words}");
        }
    }
}
