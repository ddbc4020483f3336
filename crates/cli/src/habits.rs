//! Commands and options of other programs: the sentence that says what to write here.

use std::ffi::OsString;

/// Advice where `words`, the program's name first, are written for another program; nothing where they are not.
pub(crate) fn advice(words: &[OsString]) -> Option<String> {
    let words: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let command = *words.iter().find(|word| !word.starts_with('-'))?;
    if let Some((_, instead)) = COMMANDS.iter().find(|(name, _)| *name == command) {
        return Some(format!("there is no command {command}: {instead}"));
    }
    if command != "cp" {
        return None;
    }
    let options = words.iter().take_while(|word| **word != "--");
    options.filter(|word| word.starts_with('-')).find_map(|word| {
        let name = word.split('=').next().unwrap_or(word);
        let named = OPTIONS.iter().find(|(names, _)| names.contains(&name));
        // Letters may stand together, as in -avz.
        let letter = || {
            let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
            let of = |letter: char| {
                let option = format!("-{letter}");
                OPTIONS.iter().find(|(names, _)| names.contains(&&*option))
            };
            // Among others -l is that of rsync: links, which are copied as links.
            let together = |letter: &char| letters.len() == 1 || *letter != 'l';
            letters.chars().filter(together).find_map(of)
        };
        let (names, instead) = named.or_else(letter)?;
        Some(format!("there is no {}: {instead}", names.join(" or ")))
    })
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

const OPTIONS: [(&[&str], &str); 5] = [
    (&["-t", "--times"], "times are kept always; leave it out"),
    (
        &["-z", "--compress"],
        "nothing is compressed; leave it out, or pipe: `zstd -c F | longhaul pipe lh://HOST/NAME`",
    ),
    (
        &["-i", "--itemize-changes"],
        "the token is named by --token-file FILE; -v lists what changes, -n what would",
    ),
    (&["--bwlimit", "-l"], "the rate is limited by --rate, as in --rate 100Mbps"),
    (&["--inplace", "--append"], "a file appears under its name when it is whole; leave it out"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Option<String> {
        let words = format!("longhaul {words}");
        advice(&words.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn words_of_other_programs_get_a_sentence() {
        for (words, part) in [
            ("get lh://h/a b", "no command get: `longhaul cp"),
            ("--json sync a lh://h/b", "no command sync: `longhaul cp"),
            ("cp -z a lh://h/b", "no -z or --compress: nothing is compressed"),
            ("cp -rvz a lh://h/b", "no -z or --compress"),
            ("cp -rlptgoD a lh://h/b", "no -t or --times: times are kept always"),
            ("cp -l 800 a lh://h/b", "no --bwlimit or -l: the rate is limited by --rate"),
            ("cp --bwlimit=3m a lh://h/b", "no --bwlimit or -l: the rate is limited by --rate"),
            ("cp a -i key lh://h/b", "--token-file FILE"),
        ] {
            let advice = of(words).unwrap_or_default();
            assert!(advice.contains(part), "{words}: {advice}");
        }
        for words in ["cp a lh://h/b", "cp -- -z lh://h/b", "ls lh://h", "cp --sync a lh://h/b", ""]
        {
            assert_eq!(of(words), None, "{words}");
        }
    }
}
