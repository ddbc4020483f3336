//! Completion of command lines: in shells, by the scripts of `longhaul completions`, and what these ask for.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::process::Command;

use longhaul_needs::needs;

use crate::program::{PROGRAM, Program};
use crate::test::{Test, limited};

/// Names that may stand behind the last slash of `line`.
fn complete(test: &Test, line: &str) -> Vec<String> {
    let words = ["places", line];
    let ended = Program::start(test, &words).end();
    ended.assert_succeeded();
    assert_eq!(ended.stderr, "", "{ended:?}");
    ended.stdout.lines().map(str::to_owned).collect()
}

fn fill(test: &Test) {
    for directory in ["run-17", "run 18", "other"] {
        fs::create_dir(test.there(directory)).unwrap();
    }
    for file in ["run-17/a*b", "run-17/a.h5", "run-17/b.h5", "run 18/in it", "rune"] {
        fs::write(test.there(file), "x").unwrap();
    }
}

#[test]
fn names_that_begin_so_are_completed_as_the_user_writes_them() {
    limited(|test| {
        fill(test);
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let names = |path: &str| {
            complete(test, &format!("longhaul ls --token-file token lh://{at}/{path}"))
        };
        assert_eq!(names("run"), ["run%2018/", "run-17/", "rune"]);
        assert_eq!(names("run%20"), ["run%2018/"]);
        assert_eq!(names("run-17/a"), ["a%2Ab", "a.h5"], "no pattern");
        assert_eq!(names("none/"), [""; 0]);
    });
}

#[test]
fn token_and_quotes_are_those_of_the_command_line() {
    limited(|test| {
        fill(test);
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        for before in [
            "longhaul -q cp -a --token-file token --rate 1M here",
            "longhaul cp --token-file='token'",
            "longhaul verify --token-file ~/token list",
            "longhaul resume --via direct --token-file \"token\"",
        ] {
            for word in
                ["lh://@/run%20", r"lh://@/run\ ", "'lh://@/run ", "\"lh://@/run ", "lh://@/'run "]
            {
                let line = format!("{before} {}", word.replace('@', &at.to_string()));
                assert_eq!(complete(test, &line), ["run%2018/"], "{line}");
            }
        }
        for without in ["", "--token-file none"] {
            assert_eq!(complete(test, &format!("longhaul cp {without} lh://{at}/run")), [""; 0]);
        }
    });
}

#[test]
fn a_server_that_does_not_answer_completes_nothing_and_is_not_waited_for() {
    limited(|test| {
        // It accepts, and is silent.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        for word in [format!("lh://{at}/a"), "lh://127.0.0.1:1/a".into(), "lh://[::1".into()] {
            assert_eq!(complete(test, &format!("longhaul ls --token-file token {word}")), [""; 0]);
        }
    });
}

/// Lines that a shell makes of `lines`, as its script prints them.
fn shell(test: &Test, words: &[&str], lines: &[String]) -> Vec<String> {
    symlink(PROGRAM, test.path("longhaul")).unwrap();
    for (shell, file) in [("bash", "bash"), ("zsh", "_longhaul"), ("fish", "longhaul.fish")] {
        let ended = Program::start(test, &["completions", shell]).end();
        fs::write(test.path(file), ended.stdout).unwrap();
    }
    let path = format!("{}:{}", test.folder().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(lines).env("PATH", path);
    let ended = Program::spawn(test, &mut command).end();
    assert_eq!((ended.status, &*ended.stderr), (Some(0), ""), "{ended:?}");
    ended.stdout.lines().map(str::to_owned).collect()
}

/// Command lines with places at `at`, and what may stand for the last word of each.
fn places(at: SocketAddr) -> Vec<(String, String)> {
    let with = |text: &str| text.replace('@', &at.to_string());
    let cases = [
        ("longhaul ls --token-file token lh://@/run-1", "lh://@/run-17/"),
        ("longhaul cp --token-file=token here lh://@/run-1", "lh://@/run-17/"),
        ("longhaul cp --token-file token 'lh://@/run-17/a.", "'lh://@/run-17/a.h5"),
        ("longhaul cp --token-file token \"lh://@/run 18/i", "\"lh://@/run 18/in%20it"),
        (r"longhaul cp --token-file token lh://@/run\ 18/i", r"lh://@/run\ 18/in%20it"),
    ];
    cases.map(|(line, word)| (with(line), with(word))).to_vec()
}

#[test]
fn bash_completes_places_behind_a_colon() {
    limited(|test| {
        fill(test);
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let (lines, expected): (Vec<_>, Vec<_>) = places(at).into_iter().unzip();
        let script = "source bash\nfor line; do\nCOMP_LINE=$line\nCOMP_POINT=${#line}\n\
             word=${line#\"${line%lh:*}\"}\nquote=${line%\"$word\"}\nquote=${quote: -1}\n\
             [[ $quote == [\\\'\\\"] ]] || word=${word##*:} quote=\n\
             _longhaul_or_places longhaul \"$word\"\nprintf '%s\\n' \"$quote$COMPREPLY\"\ndone\n";
        // From the last colon of a word without quotes on.
        let port = format!("{}/", at.port());
        let expected = expected.iter().map(|word| match word.starts_with("lh") {
            true => word.replace(&format!("lh://{at}/"), &port),
            false => word.clone(),
        });
        let expected: Vec<_> = expected.collect();
        assert_eq!(shell(test, &["bash", "-c", script, "bash"], &lines), expected);
    });
}

#[test]
fn bash_completes_files_itself_where_no_option_is_begun() {
    limited(|test| {
        let cases = [
            ("longhaul|verify|", ""),
            ("longhaul|resume|", ""),
            ("longhaul|cp|here|", ""),
            ("longhaul|cp|--token-file|", ""),
            ("longhaul|verify|--token-file|a to", ""),
            ("longhaul|keys|", "new id help"),
            ("longhaul|cp|--fsync|", "end never"),
            ("longhaul|cp|--no-verif", "--no-verify"),
            ("longhaul|verify|--ig", "--ignore-extra"),
            ("longhaul|ver", "verify"),
        ];
        let (lines, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
        let lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
        fs::write(test.path("a token"), "").unwrap();
        let script = "source bash\nfor line; do\nmapfile -t -d '|' COMP_WORDS <<<\"$line\"\n\
             COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\nCOMP_WORDS[-1]=${COMP_WORDS[-1]%$'\\n'}\n\
             COMP_LINE=${COMP_WORDS[*]}\nCOMP_POINT=${#COMP_LINE}\n\
             _longhaul_or_places longhaul \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"\n\
             printf '%s\\n' \"${COMPREPLY[*]}\"\ndone\n";
        assert_eq!(shell(test, &["bash", "-c", script, "bash"], &lines), expected);
    });
}

#[needs(zsh)]
#[test]
fn zsh_completes_options_files_and_places() {
    limited(|test| {
        fill(test);
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let mut cases: Vec<_> = places(at);
        for (line, word) in [
            ("longhaul res", "resume "),
            ("longhaul cp --numeric-", "--numeric-ids "),
            ("longhaul cp here there --no-verif", "--no-verify "),
            ("longhaul cp --fsync=ne", "--fsync=never "),
            ("longhaul verify --token-file tok", "token "),
            ("longhaul cp -a the", "there/"),
            ("longhaul cp -a here the", "there/"),
            ("longhaul lab path -- slee", "sleep "),
        ] {
            cases.push((line.into(), word.into()));
        }
        let (lines, words): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
        let expected = lines.iter().zip(&words).map(|(line, word)| {
            let begin = line.len() - last_word(line).len();
            format!("{}{word}", &line[..begin])
        });
        let expected: Vec<_> = expected.collect();
        assert_eq!(shell(test, &["zsh", "-fc", ZSH, "zsh"], &lines), expected);
    });
}

/// With its quotation mark, and what is escaped in it.
fn last_word(line: &str) -> &str {
    let at = line.rfind("lh:").or_else(|| line.rfind(' ').map(|at| at + 1)).unwrap();
    let quoted = line[..at].ends_with(['\'', '"']);
    &line[at - usize::from(quoted)..]
}

/// Types each line and a tab in a terminal; prints what is there then.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty -b z zsh -fi
zpty -w z 'fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; setopt nobeep noautolist
    line() { print -r -- "<<$BUFFER>>"; BUFFER=; zle .accept-line }; zle -N line
    bindkey "^X" line; bindkey "^I" complete-word; print RE""ADY'
zpty -r -m z out '*READY*'
for line; do
    zpty -w -n z "$line"$'\t\C-X'
    zpty -r -m z out '*<<*>>*'
    print -r -- ${${out##*<<}%%>>*}
done
zpty -d z
"#;

#[needs(fish)]
#[test]
fn fish_completes_options_files_and_places() {
    limited(|test| {
        fill(test);
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let mut cases: Vec<_> = places(at);
        for (line, word) in [
            ("longhaul res", "resume"),
            ("longhaul cp --numeric-", "--numeric-ids"),
            ("longhaul cp here there --no-verif", "--no-verify"),
            ("longhaul cp --fsync=ne", "--fsync=never"),
            ("longhaul verify --token-file tok", "token"),
            ("longhaul cp -a here the", "there/"),
        ] {
            cases.push((line.into(), word.into()));
        }
        let (lines, words): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
        // It quotes what it puts there itself.
        let expected = words.iter().map(|word| word.replace(['\'', '"', '\\'], ""));
        let expected: Vec<_> = expected.collect();
        let script = "source longhaul.fish\nfor line in $argv\n\
             complete -C $line | string replace -r '\\t.*' ''\nend\ntrue\n";
        assert_eq!(shell(test, &["fish", "-c", script], &lines), expected);
    });
}
