//! Commands and options of other programs: the sentence that says what to write here.

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
    if command != "cp" {
        return None;
    }
    let option = match error.kind() {
        ErrorKind::UnknownArgument => named(ContextKind::InvalidArg)?,
        // As in -avh, where people ask for sizes that they can read.
        ErrorKind::DisplayHelp if words.iter().any(|word| is_among_letters(word, 'h')) => "-h",
        ErrorKind::ArgumentConflict if words.iter().any(|word| is_option_of_ssh(word)) => "-o",
        _ => return None,
    };
    let named = |(names, _): &&(&[&str], &str)| names.contains(&option);
    let (_, instead) = OPTIONS.iter().find(named)?;
    // Written otherwise these are taken.
    let there_is = ["-h", "-o"].contains(&option);
    let none = if there_is { "" } else { "there is no " };
    Some(format!("{none}{option}: {instead}"))
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
        format!("note: -R is that of cp, and SRC goes under its last name; where rsync's is meant, {PATHS_KEPT}")
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

/// Options of rsync, scp and rclone that `cp` does not take, with the sentence that says what to do.
const OPTIONS: [(&[&str], &str); 39] = [
    (
        &["-z", "--compress", "--compress-level", "--compress-choice", "--zc", "--zl"],
        "nothing is compressed; leave it out, or pipe: `zstd -c F | longhaul pipe lh://HOST/NAME`",
    ),
    (&["-C", "--cvs-exclude"], "nothing is compressed, and --exclude leaves names out"),
    (
        &["-i", "--itemize-changes"],
        "-v names what changes, -n what would; an identity of ssh is given with it: -e 'ssh -i FILE'",
    ),
    (
        &["-h", "--human-readable"],
        "people can read sizes always; leave it out (-h alone shows help)",
    ),
    (
        &["--info", "--debug", "--log-file", "--log-level", "--out-format"],
        "-v names what changes, --stats 30s shows progress, --json gives an object at the end",
    ),
    (&["--list-only"], "`longhaul ls -l HOST:PATH` lists"),
    (&["--bwlimit"], "the rate is limited by --rate, as in --rate 100Mbps"),
    (
        &["--transfers", "--checkers", "--multi-thread-streams"],
        "the rate is found, and files share it; leave it out (--lanes 2 uses more processors)",
    ),
    (&["--retries", "--low-level-retries"], "a lost connection is dialled again for --retry 5m"),
    (
        &["--timeout", "--contimeout"],
        "a copy that stands still is ended after --stall-timeout 300, a lost connection dialled for --retry 5m",
    ),
    (
        &[
            "--partial-dir",
            "--temp-dir",
            "--delay-updates",
            "--inplace",
            "--append",
            "--append-verify",
        ],
        "a file appears under its name when it is whole, and the same command goes on; leave it out",
    ),
    (
        &["--no-whole-file", "-y", "--fuzzy", "-B", "--block-size"],
        "a file that has changed goes whole, with -c the MiB of it that differ; leave it out",
    ),
    (
        &["--del", "--delete-before", "--delete-during", "--delete-delay", "--delete-after"],
        "--delete deletes, as the last step, if nothing failed; write that",
    ),
    (&["--delete-excluded"], "what --exclude names is not deleted; remove it at the destination"),
    (
        &["--ignore-errors", "--force"],
        "--delete deletes directories too, and nothing where something failed; leave it out",
    ),
    (
        &["-b", "--backup", "--backup-dir", "--suffix"],
        "what is replaced or deleted is not kept; -n names it before",
    ),
    (
        &["--link-dest", "--copy-dest", "--compare-dest"],
        "there is no third directory; `cp -al OLD NEW` at the destination, then a copy onto NEW, shares \
         what has not changed, and its mode, owner and attributes, which a copy mends in both",
    ),
    (&["--remove-source-files"], "sources stay; remove them where the status is 0"),
    (
        &["--size-only", "--modify-window", "-@"],
        "size and time are compared, the time as finely as the destination keeps it; -c compares contents",
    ),
    (
        &["--existing", "--ignore-existing", "--ignore-non-existing", "--immutable"],
        "what differs is replaced; -u leaves alone what is newer at the destination, --exclude what it names",
    ),
    (
        &["-x", "--one-file-system"],
        "what is mounted below SRC is copied too; --exclude leaves it out",
    ),
    (
        &["-f", "--filter", "--filter-from"],
        "rules are given by --exclude, --include and --exclude-from FILE, the first that matches decides",
    ),
    (
        &["-F"],
        "rules in directories are not read; a configuration of ssh is given with it: -e 'ssh -F FILE'",
    ),
    (
        &["--max-size", "--min-size", "--max-age", "--min-age"],
        "`find SRC -type f ... -printf '%P\\0' | longhaul cp -0 --files-from - SRC DST` chooses files",
    ),
    (
        &["-d", "--dirs", "-m", "--prune-empty-dirs"],
        "trees are copied whole, empty directories too; --exclude leaves directories out",
    ),
    (&["--relative"], PATHS_KEPT),
    (&["-D", "--devices", "--specials"], "devices, FIFOs and sockets are skipped; leave it out"),
    (
        &["-k", "--copy-dirlinks", "-K", "--keep-dirlinks", "--safe-links", "--copy-unsafe-links"],
        "links are copied as links, with -L as what they point at; a link at the destination where a \
         directory is to be is in the way, but with --delete",
    ),
    (
        &["-O", "--omit-dir-times", "-J", "--omit-link-times"],
        "times are kept always; a jump host is given with ssh: -e 'ssh -J HOST'",
    ),
    (
        &["-E", "--executability", "-U", "--atimes", "-N", "--crtimes"],
        "modes and times of modification are kept, and no other times; leave it out",
    ),
    (
        &["--chmod", "--chown", "--usermap", "--groupmap"],
        "modes are those of the source, with -o and -g its owners; change them there after the copy",
    ),
    (
        &["--rsync-path"],
        "--remote-path PATH is longhaul at the other host, where it is not in PATH",
    ),
    (&["-s", "--protect-args", "--secluded-args"], "no shell reads paths; leave it out"),
    (&["--port"], "the port stands behind its host: ssh://HOST:22/PATH or lh://HOST:7420/PATH"),
    (&["-o"], "options of ssh are given with it: -e 'ssh -o NAME=VALUE'"),
    (
        &["-3"],
        "data goes straight from host to host, or through here where the first does not reach the second; \
         leave it out",
    ),
    (
        &["-4", "--ipv4", "-6", "--ipv6"],
        "an address in place of the name says which: lh://[2001:db8::7]/PATH, or -e 'ssh -6'",
    ),
    (&["--password-file"], "the token is in --token-file FILE"),
    (&["--mkpath", "--create-empty-src-dirs"], "a slash behind DST makes it; leave it out"),
];

const PATHS_KEPT: &str =
    "--files-from keeps paths: `echo a/b | longhaul cp --files-from - . DST` makes DST/a/b";
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
            ("cp -J j a h:b", "-e 'ssh -J HOST'"),
            ("cp --transfers 8 a h:b", "the rate is found"),
            ("cp --delete-after a h:b", "as the last step"),
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
            "ls -z lh://h",
            "",
        ] {
            assert_eq!(of(words), None, "{words}");
        }
    }

    #[test]
    fn no_option_that_is_taken_is_called_unknown() {
        for (names, _) in OPTIONS {
            // Of -h and -o clusters alone have a sentence.
            for name in names.iter().filter(|name| !["-h", "-o"].contains(*name)) {
                let advice = of(&format!("cp {name} a h:b")).unwrap_or_default();
                assert!(advice.starts_with(&format!("there is no {name}: ")), "{name}: {advice}");
            }
        }
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
            ("-R a/b h:c", "-R is that of cp"),
        ] {
            assert!(of(words).contains(part), "{words}: {}", of(words));
        }
        for words in ["-P a h:b", "-l a h:b", "-o a=b h:c", "-R a/ h:b/c", "-r a/b h:c"] {
            assert_eq!(of(words), "", "{words}");
        }
    }
}
