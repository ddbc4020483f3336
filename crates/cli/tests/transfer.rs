//! `serve` and `cp` together, as processes.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_longhaul");

/// A server that is ended with the test.
struct Server {
    process: Child,
    lines: BufReader<std::process::ChildStderr>,
    address: String,
}

impl Server {
    fn start(folder: &Path, words: &[&str]) -> Self {
        let mut process = Command::new(PROGRAM)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(words)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the server ended");
            if let Some(rest) = line.strip_prefix("listening on ") {
                break rest.split(',').next().unwrap().to_owned();
            }
        };
        Self { process, lines, address }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(folder: &Path, words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).current_dir(folder).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_tree_goes_there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir_all(at.join("run 17/deep")).unwrap();
    fs::create_dir(at.join("root")).unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(at.join("run 17/large"), &large).unwrap();
    fs::write(at.join("run 17/deep/small"), "small").unwrap();
    assert!(run(at, &["keys", "new", "--token-file", "token"]).status.success());
    let server = Server::start(at, &["--root", "root", "--token-file", "token"]);

    let there = format!("lh://{}/incoming/", server.address);
    let words = ["cp", "--json", "--token-file", "token", "run 17", &there];
    let output = run(at, &words);
    assert!(output.status.success(), "{}", error(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["bytes"], 3_000_005);
    assert_eq!(json["verified"], true);
    for field in ["seconds", "setup_seconds", "goodput_bps", "rtt_ms", "packets_sent"] {
        assert!(json[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {json}");
    }
    for cause in ["congestion", "random", "socket", "host", "sender", "unknown"] {
        assert!(json["lost"][cause].is_u64(), "{cause}");
    }
    assert!(json["cpu_seconds"]["local"].is_f64());
    assert_eq!(fs::read(at.join("root/incoming/run 17/large")).unwrap(), large);

    let back = format!("lh://{}/incoming/run%2017/.", server.address);
    let output = run(at, &["cp", "--token-file", "token", &back, "back/"]);
    assert!(output.status.success(), "{}", error(&output));
    assert!(output.stdout.is_empty());
    assert!(error(&output).contains("verified"), "{}", error(&output));
    assert_eq!(fs::read(at.join("back/deep/small")).unwrap(), b"small");
}

#[test]
fn a_server_says_what_to_run_and_its_own_token_works() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("root")).unwrap();
    fs::write(at.join("file"), "hello").unwrap();
    let mut server = Server::start(at, &["--root", "root", "--once"]);
    let mut printed = String::new();
    while !printed.contains("FILE .") {
        assert!(server.lines.read_line(&mut printed).unwrap() > 0, "{printed}");
    }
    let token = printed.split_whitespace().find(|word| word.starts_with("lh1-")).unwrap();
    fs::write(at.join("secret"), token).unwrap();
    assert!(printed.contains(&format!("lh://{}/", server.address)), "{printed}");
    let there = format!("lh://{}/copy", server.address);
    let output = run(at, &["cp", "--token-file", "secret", "file", &there]);
    assert!(output.status.success(), "{}", error(&output));
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read(at.join("root/copy")).unwrap(), b"hello");
}

#[test]
fn a_server_for_one_transfer_serves_no_second_client() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("root")).unwrap();
    fs::write(at.join("file"), vec![7; 1_000_000]).unwrap();
    assert!(run(at, &["keys", "new", "--token-file", "token"]).status.success());
    let mut server = Server::start(at, &["--root", "root", "--token-file", "token", "--once"]);
    let to = |name| format!("lh://{}/{name}", server.address);
    // Slow enough to be under way when the other comes.
    let mut first = Command::new(PROGRAM)
        .args(["cp", "-q", "--token-file", "token", "--rate", "4Mbps", "file", &to("first")])
        .current_dir(at)
        .spawn()
        .unwrap();
    let mut printed = String::new();
    while !printed.contains("copies to here") {
        assert!(server.lines.read_line(&mut printed).unwrap() > 0, "{printed}");
    }
    let second = run(at, &["cp", "--token-file", "token", "file", &to("second")]);
    assert_eq!(second.status.code(), Some(1));
    assert!(error(&second).contains("serves one transfer"), "{}", error(&second));
    assert!(first.wait().unwrap().success());
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    assert!(!at.join("root/second").exists());
}

#[test]
fn a_wrong_token_is_turned_away_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("file"), "hello").unwrap();
    for file in ["right", "wrong"] {
        assert!(run(at, &["keys", "new", "--token-file", file]).status.success());
    }
    let mut server = Server::start(at, &["--token-file", "right"]);
    let there = format!("lh://{}/copy", server.address);
    let output = run(at, &["cp", "--json", "--token-file", "wrong", "file", &there]);
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["error"].as_str().unwrap().contains("token"), "{json}");
    let mut line = String::new();
    server.lines.read_line(&mut line).unwrap();
    assert!(line.contains("refused"), "{line}");
    assert!(!at.join("copy").exists());
}

#[test]
fn a_server_ends_cleanly_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    for signal in ["-TERM", "-INT"] {
        let mut server = Server::start(folder.path(), &["--json"]);
        server.signal(signal);
        assert_eq!(server.process.wait().unwrap().code(), Some(0), "{signal}");
        let mut text = String::new();
        let stdout = server.process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut text).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["transfers"], 0);
    }
}

#[test]
fn the_demo_ends_with_the_same_bytes_and_says_what_was_lost() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["demo", "--json", "--size", "4MiB", "--rtt", "20ms", "--loss", "1%"];
    let output = Command::new(PROGRAM).args(words).env("TMPDIR", folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", error(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["identical"], true);
    assert_eq!(json["bytes"], 4 << 20);
    assert_eq!(json["cp"]["verified"], true);
    assert!(json["path"]["forward"]["lost_random"].as_u64().is_some_and(|lost| lost > 0));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
