//! The program as scripts see it: exit statuses, what goes to which stream, JSON.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

fn program(home: &TempDir, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(words).current_dir(home.path());
    command.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME");
    command
}

fn longhaul(home: &TempDir, words: &[&str]) -> Output {
    program(home, words).output().unwrap()
}

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The one JSON object on standard output.
fn json(output: &Output) -> Value {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert!(value.is_object());
    value
}

#[test]
fn help_is_no_failure_and_shows_examples() {
    let home = home();
    for words in [
        &["--help"][..],
        &["cp", "--help"],
        &["pipe", "--help"],
        &["serve", "--help"],
        &["keys", "new", "--help"],
        &["demo", "--help"],
        &["circuits", "simulate", "--help"],
    ] {
        let output = longhaul(&home, words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("longhaul "), "{text}");
        assert!(text.contains("Usage:"), "{text}");
    }
    let help = String::from_utf8(longhaul(&home, &["cp", "--help"]).stdout).unwrap();
    assert!(help.contains("Examples:") && help.contains("~/.config/longhaul/token"), "{help}");
    assert!(help.contains("SRC/. means the contents of SRC"), "{help}");
    let short = String::from_utf8(longhaul(&home, &["cp", "-h"]).stdout).unwrap();
    assert!(short.lines().count() <= 40, "{short}");
    let profiles = String::from_utf8(longhaul(&home, &["help", "profiles"]).stdout).unwrap();
    assert!(profiles.contains("rbudp"), "{profiles}");
    assert!(help.contains("rbudp") && help.contains("Usage: longhaul cp [OPTIONS] SRC... DST"));
}

#[test]
fn wrong_use_is_status_2_with_a_reason_and_nothing_on_stdout() {
    let home = home();
    for (words, part) in [
        (&["cp"][..], "required"),
        (&["cp", "a"], "where to?"),
        (&["cp", "a", "b"], "both sides are on this host"),
        (&["cp", "lh://h/a", "lh://h/b"], "both sides are remote"),
        (&["cp", "a:x", "lh://b/y"], "from one host to another both are written HOST:PATH"),
        (&["cp", "lh://a/x", "b:y"], "over ssh one command does it"),
        (&["cp", "--losses", "f", "a:x", "b:y"], "--losses means something of this host"),
        (
            &["cp", "--files-from", "f", "a:x", "b:y"],
            "log in to a and run `longhaul cp --files-from ... PATH b:PATH`",
        ),
        (&["cp", "lh://h/a", "lh://g/b", "."], "all at one server"),
        (&["cp", "a", "lh://h/b", "."], "all at one server"),
        (&["cp", ":a", "b"], "host is missing"),
        (&["get", "lh://h/a", "b"], "there is no command get: `longhaul cp SRC... DST`"),
        (&["cp", "-rz", "a", "lh://h/b"], "there is no -z: nothing is compressed"),
        (&["cp", "--bwlimit", "3m", "a", "lh://h/b"], "limited by --rate"),
        (&["cp", "--stats", "0s", "a", "lh://h/b"], "0s is no time between lines"),
        (&["cp", "--manifest", "-", "a", "lh://h/b"], "--manifest -: the list is a file"),
        (&["cp", "-P", "7420", "a", "lh://h/b"], "lh://HOST:7420/PATH"),
        (&["cp", "-r", "-R", "-p", "-P", "--progress", "a", "b"], "both sides are on this host"),
        (&["cp", "a", "s3://bucket/b"], "does not speak s3"),
        (&["cp", "https://h/a", "b"], "does not speak https"),
        (&["cp", "a", "LH://h/b"], "is written lh://h/b"),
        (&["cp", "a", "lh:/h/b"], "is written lh://h/b"),
        (&["probe", "h:x"], "x is not a port"),
        (&["serve", "a", "--root", "b"], "cannot be used with"),
        (&["cp", "a", "lh://"], "host is missing"),
        (&["cp", "a/.", "b", "lh://h/"], "mixed"),
        (&["cp", "--profile", "tcp", "a", "lh://h/"], "--profile"),
        (&["cp", "--profile", "rbudp", "a", "lh://h/"], "--rate"),
        (&["cp", "--profile", "rbdup", "a", "lh://h/"], "'rbudp'"),
        (&["cp", "--profile", "bbr", "--param", "loss=1%", "a", "lh://h/"], "nearest: loss-"),
        (&["cp", "--param", "target=1ms", "a", "lh://h/"], "auto has no parameter target"),
        (&["cp", "--profile", "pcc", "--param", "epsilon", "a", "lh://h/"], "NAME=VALUE"),
        (
            &["cp", "--profile", "pcc", "--param", "epsilon=90%", "a", "lh://h/"],
            "epsilon is from 0.1% to 20%, not 90%",
        ),
        (&["cp", "--rate", "fast", "a", "lh://h/"], "--rate"),
        (&["cp", "--rate", "0", "a", "lh://h/"], "--rate 1Gbps"),
        (&["cp", "--rate", "1", "a", "lh://h/"], "1 b/s is not one small packet a second"),
        (&["pipe", "--rate", "7999", "lh://h/a"], "--rate 1Gbps"),
        (&["cp", "--lanes", "0", "a", "lh://h/"], "--lanes"),
        (&["cp", "--protect", "none", "a", "lh://h/"], "--protect"),
        (&["pipe"], "required"),
        (&["pipe", "name"], "a pipe is at a server"),
        (&["pipe", "dtn2:"], "a pipe has a name of 1 to 255 bytes: HOST:NAME or"),
        (&["pipe", "lh://h/"], "a name of 1 to 255 bytes"),
        (&["pipe", "--receive", "lh://h:x/a"], "not a port"),
        (&["pipe", "--profile", "fixed", "lh://h/a"], "--rate"),
        (&["pipe", "--receive", "--json", "--lanes", "0", "lh://h/a"], "--lanes"),
        (&["pipe", "--time", "1m", "lh://h/a"], "--circuit"),
        (&["pipe", "--receive", "--circuit", "http://h:1", "lh://h/a"], "the end that sends"),
        (&["pipe", "--circuit", "http://h:1", "--time", "1m", "lh://h/a"], "--max-rate"),
        (&["serve", "--listen", "here"], "--listen"),
        (&["demo", "--rtt", "long"], "--rtt"),
        (&["circuits", "simulate", "--load", "2"], "--load"),
        (&["-q", "-v", "keys", "id"], "cannot be used with"),
        (&["probe", "lh://h/no/such/path"], "not at no/such/path there"),
        (&["cp", "--profile", "cubic", "--param", "=5", "a", "lh://h/"], "written NAME=VALUE"),
        (&["gateway"], "gateway"),
    ] {
        let output = longhaul(&home, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{words:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn wrong_words_are_one_sentence_with_what_to_write() {
    let home = home();
    for (words, sentence) in [
        (
            &["cp", "--exclud", "x", "a", "lh://h/b"][..],
            "unexpected argument '--exclud' found; a similar argument exists: '--exclude'",
        ),
        (&["sevre"], "unrecognized subcommand 'sevre'; a similar subcommand exists: 'serve'"),
        (
            &["serve", "--config", "f", "--check", "d"],
            "the argument '--config <FILE>' cannot be used with '[DIR]': what that file says is written there alone",
        ),
        (
            &["ls"],
            "the following required arguments were not provided: <PLACE>: write longhaul ls <PLACE>",
        ),
        (
            &["gateway", "status", "--zzz"],
            "unexpected argument '--zzz' found: `longhaul gateway status --help` lists the options; to pass \
             '--zzz' as a value, use '-- --zzz'",
        ),
        (
            &["pipe", "lh://h/a", "--carrier", "x"],
            "invalid value 'x' for '--carrier <KIND>' [possible values: auto, udp, tcp]",
        ),
    ] {
        let output = longhaul(&home, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert_eq!(stderr(&output), format!("longhaul: {sentence}\n"));
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_a_failure_and_what_a_list_or_settings_say_wrongly_is_wrong_use() {
    let home = home();
    std::fs::create_dir(home.path().join("a")).unwrap();
    assert!(longhaul(&home, &["keys", "new"]).status.success());
    std::fs::write(home.path().join("wrong"), "- \n../x\nkey 1\n").unwrap();
    let to = "lh://127.0.0.1:1/";
    let at = "127.0.0.1:0";
    let circuit = "http://127.0.0.1:1";
    for (words, of_settings) in [
        (&["cp", "a", to, "--exclude-from"][..], true),
        (&["cp", "a", to, "--files-from"], true),
        (&["cp", "a", to, "--token-file"], false),
        (&["cp", "a", to, "--via", "127.0.0.1:1", "--via-token-file"], false),
        (&["cp", "a", to, "--circuit", circuit, "--circuit-token-file"], false),
        (&["ls", to, "--token-file"], false),
        (&["keys", "id", "--token-file"], false),
        (&["serve", "--listen", at, "--token-file"], false),
        (&["serve", "--config"], true),
        (&["serve", "--check", "--config"], true),
        (&["gateway", "serve", "--listen", at, "--allow", "127.0.0.1", "--token-file"], false),
        (&["gateway", "serve", "--config"], true),
        (&["gateway", "check"], true),
        (&["circuits", "serve", "--config"], true),
        (&["circuits", "list", "--url", circuit, "--token-file"], false),
        (&["verify"], true),
    ] {
        let of = |name: &'static str| {
            let output = match words {
                ["verify", ..] => longhaul(&home, &["verify", name, to]),
                _ => longhaul(&home, &[words, &[name]].concat()),
            };
            assert!(stderr(&output).contains(name), "{words:?}: {}", stderr(&output));
            for foreign in ["No such file", "Is a directory", "os error"] {
                assert!(!stderr(&output).contains(foreign), "{words:?}: {}", stderr(&output));
            }
            output.status.code()
        };
        assert_eq!(of("a"), Some(1), "{words:?}");
        assert_eq!(of("nosuch"), Some(1), "{words:?}");
        assert_eq!(of("wrong"), Some(if of_settings { 2 } else { 1 }), "{words:?}");
    }
}

#[test]
fn failures_are_one_json_object_with_the_error() {
    let home = home();
    for (words, status) in [
        (&["cp", "--json", "a", "b"][..], 2),
        (&["--json", "cp"], 2),
        (&["cp", "--json", "--rate", "fast", "a", "lh://h/"], 2),
        (&["keys", "id", "--json"], 1),
        (&["cp", "a", "lh://127.0.0.1:1/", "--json"], 1),
        (&["serve", "--json", "--root", "missing", "--listen", "127.0.0.1:0"], 1),
    ] {
        let output = longhaul(&home, words);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {}", stderr(&output));
        assert!(json(&output)["error"].as_str().is_some_and(|text| !text.is_empty()));
        assert!(!stderr(&output).is_empty());
    }
}

#[test]
fn a_missing_token_says_how_to_get_one() {
    let home = home();
    std::fs::write(home.path().join("a"), "a").unwrap();
    let output = longhaul(&home, &["cp", "a", "lh://127.0.0.1:1/"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains(".config/longhaul/token") && text.contains("keys new"), "{text}");
    let output = longhaul(&home, &["serve", "--token-file", "nosuch", "--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("nosuch does not exist"), "{text}");
    assert!(text.contains("`longhaul keys new --token-file nosuch` makes one"), "{text}");
    assert!(!text.contains("longhaul serve"), "{text}");
}

#[test]
fn keys_are_made_once_and_named() {
    let home = home();
    let made = longhaul(&home, &["keys", "new", "--json"]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let named = longhaul(&home, &["keys", "id", "--json"]);
    assert_eq!(json(&named)["ids"][0], json(&made)["id"]);
    let again = longhaul(&home, &["keys", "new"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("exists"));
    // The token itself is shown only where it was asked for.
    let file = home.path().join(".config/longhaul/token");
    let token = std::fs::read_to_string(file).unwrap();
    assert!(!String::from_utf8(made.stdout).unwrap().contains(token.trim()));
    let shown = longhaul(&home, &["keys", "new", "--token-file", "-"]);
    assert!(String::from_utf8(shown.stdout).unwrap().starts_with("lh1-"));
}

#[test]
fn nobody_there_is_reported_with_the_address() {
    let home = home();
    assert!(longhaul(&home, &["keys", "new"]).status.success());
    std::fs::write(home.path().join("a"), "a").unwrap();
    // Bound, so that nobody else gets the port, but not listening.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let port = silent.local_addr().unwrap().as_socket().unwrap().port();
    let output = longhaul(&home, &["cp", "--json", "a", &format!("lh://127.0.0.1:{port}/")]);
    assert_eq!(output.status.code(), Some(1));
    let error = json(&output)["error"].as_str().unwrap().to_owned();
    assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
    assert_eq!(json(&output)["verified"], false);
}

#[test]
fn a_port_in_use_is_reported() {
    let home = home();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = longhaul(&home, &["serve", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains(&address) && text.contains("another program uses the port"), "{text}");
}

#[test]
fn manual_pages_are_made_of_the_same_text() {
    let home = home();
    assert!(longhaul(&home, &["man", "pages"]).status.success());
    let page = std::fs::read_to_string(home.path().join("pages/longhaul-cp.1")).unwrap();
    assert!(page.contains("lh://HOST") && page.contains("token\\-file"), "{page}");
    assert!(page.contains(".SH FILES\n") && page.contains("secret"), "{page}");
    assert!(page.contains(".SH EXAMPLES\n.nf\n  longhaul cp run\\-17 "), "{page}");
    assert!(page.contains("SRC/. means the contents of SRC"), "{page}");
    // Also of what -h leaves out.
    assert!(page.contains("max\\-delete") && page.contains("Delete at most N names"), "{page}");
    let mut pages = 0;
    for page in std::fs::read_dir(home.path().join("pages")).unwrap() {
        let text = std::fs::read_to_string(page.unwrap().path()).unwrap();
        assert!(text.contains(".SH EXIT STATUS\n.TP\n"), "{text}");
        pages += 1;
    }
    assert!(pages > 30, "{pages}");
    assert!(home.path().join("pages/longhaul-serve.1").exists());
    let main = longhaul(&home, &["man"]);
    assert!(String::from_utf8(main.stdout).unwrap().contains(".TH longhaul"));
}

#[test]
fn shells_complete_commands_and_options() {
    let home = home();
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(longhaul(&home, &["completions", shell]).stdout).unwrap();
        assert!(script.contains("longhaul") && script.contains("dry-run"), "{shell}");
    }
    let script = longhaul(&home, &["completions", "bash"]).stdout;
    std::fs::write(home.path().join("longhaul"), script).unwrap();
    let checked = Command::new("bash").args(["-n", "longhaul"]).current_dir(home.path()).status();
    assert!(checked.unwrap().success());
}

#[test]
fn circuits_simulate_as_json() {
    let home = home();
    let words = ["circuits", "simulate", "--json", "-q", "--seeds", "2", "--requests", "100"];
    let output = longhaul(&home, &[&words[..], &["--load", "0.5"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).is_empty());
    assert!(json(&output)["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
}

#[test]
fn a_report_that_cannot_be_written_is_a_failure() {
    let home = home();
    let into = |stdout: File, words: &[&str]| {
        program(&home, words).stdout(stdout).stderr(Stdio::piped()).output().unwrap()
    };
    let full = File::options().write(true).open("/dev/full").unwrap();
    let simulate = ["circuits", "simulate", "--json", "-q", "--seeds", "2", "--requests", "100"];
    for words in [
        &["keys", "new", "--json"][..],
        &["keys", "id"],
        &["lab", "topologies", "--json"],
        &[&simulate[..], &["--load", "0.5"]].concat(),
        &["man"],
        &["--help"],
    ] {
        let output = into(full.try_clone().unwrap(), words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let text = stderr(&output);
        assert!(text.contains("cannot write the report: No space left"), "{words:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    for words in [&["--version"][..], &["--help"], &["cp", "--help"], &["man"]] {
        let script = "exec \"$0\" \"$@\" >&-";
        let program = env!("CARGO_BIN_EXE_longhaul");
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", script, program]).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(stderr(&output).contains("standard output is closed"), "{words:?}");
    }
    // The failure itself is printed too, and its status stays.
    let output = into(full, &["cp", "--json", "a", "b"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("both sides") && text.contains("cannot write the report"), "{text}");

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = into(File::from(std::os::fd::OwnedFd::from(writer)), &["keys", "id", "--json"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
}
