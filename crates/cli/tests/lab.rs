//! `longhaul lab` as scripts see it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

use longhaul_needs::needs;
use serde_json::Value;

fn lab(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul")).arg("lab").args(words).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn path(words: &[&str]) -> Output {
    lab(&[&["path", "--rtt", "2ms"], words].concat())
}

#[test]
fn impossible_paths_are_usage_errors() {
    for (words, expected) in [
        (&["path", "--rtt=-5ms", "--", "true"][..], "expected a time like"),
        (&["path", "--loss", "120%"], "a probability is at most 1"),
        (&["path", "--queue", "1MB"], "--rate"),
        (&["path", "--rate", "10kbps"], "not one packet of 1500 bytes leaves"),
        (&["path", "--mtu", "500"], "an MTU is 1280 to 65535"),
        (&["path", "--topology", "moon"], "known are two-hosts, phoebus"),
        (&["path", "--topology", "phoebus", "--loss", "1%"], "cannot be used with"),
        (&["path", "--topology", "phoebus", "--at", "mars"], "has no node mars"),
        (&["path", "--run", "true"], "expected NODE=COMMAND"),
        (&["path", "--load", "sleep"], "known are loops, isosurface, memory, disk"),
        (&["topologies", "moon"], "no topology is called moon"),
        (&["check", "moon"], "no check is called"),
        (&["peers", "moon"], "no contender is called \"moon\"; known are auto"),
        (&["run", "moon"], "no experiment is called moon; known are long-haul-matrix"),
    ] {
        let output = lab(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn single_losses_of_a_line_of_the_kernel_are_not_promised() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).into_os_string().into_string().unwrap();
    let (topology, losses) = (file("t.toml"), file("losses"));
    let text = "name = \"t\"\nnode = [{ name = \"host\" }, { name = \"peer\" }]\n[[link]]\nname = \"l\"\n\
                between = [\"host\", \"peer\"]\nline = \"htb\"\nboth = { rate = \"1Gbps\" }\n";
    std::fs::write(&topology, text).unwrap();
    let output = lab(&["path", "--topology", &topology, "--losses", &losses, "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("losses of link l as one number"), "{}", stderr(&output));
    assert!(!std::path::Path::new(&losses).exists());
}

#[test]
fn peers_are_listed_with_version_or_reason() {
    let output = lab(&["peers", "--json", "auto", "cubic x8", "nosuch x1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [auto, cubic, nosuch] = [0, 1, 2].map(|at| &json["peers"][at]);
    assert!(auto["version"].as_str().unwrap().starts_with("longhaul "), "{auto}");
    assert_eq!(cubic["name"], "cubic x8");
    assert!(nosuch["absent"].as_str().unwrap().contains("no nosuch"), "{nosuch}");
    let text = String::from_utf8(lab(&["peers"]).stdout).unwrap();
    assert!(text.contains("\ngridftp -p 4 ") && text.contains("\nrsync-ssh "), "{text}");
}

#[needs(root)]
#[test]
fn what_is_missing_is_installed_by_root() {
    // In PATH there is nothing but what passes for apt-get, and that has tar and nothing else.
    let folder = tempfile::tempdir().unwrap();
    let tool = |name: &str, script: &str| {
        let file = folder.path().join(name);
        let written = folder.path().join(format!("{name}.written"));
        std::fs::write(&written, format!("#!/bin/sh\n{script}\n")).unwrap();
        // By another process: a file that this one has open for writing, a command that it is just
        // starting has too, and then nobody can run it.
        let mut install = Command::new("install");
        assert!(install.args(["-m", "755"]).args([&written, &file]).status().unwrap().success());
        file
    };
    let tar = tool("package", "echo 'tar (GNU tar) 9.9'");
    let place = folder.path().join("tar");
    let (tar, place) = (tar.display(), place.display());
    let words = "echo \"$*\" >&2; test \"$*\" = 'install -y --no-install-recommends tar'";
    tool("apt-get", &format!("{words} && /bin/cp -p {tar} {place}"));
    let install = |name| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(["lab", "peers", "--install", name]).env("PATH", folder.path());
        command.output().unwrap()
    };
    let output = install("tar");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("tar (GNU tar) 9.9"), "{output:?}");
    let output = install("iperf3 cubic x1");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("could not be installed: iperf3"), "{output:?}");
}

#[test]
fn a_malformed_topology_shows_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    let shown = lab(&["topologies", "two-hosts"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    std::fs::write(&file, text.replace("rate = ", "speed = ")).unwrap();
    let output = lab(&["path", "--topology", file.to_str().unwrap(), "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    let words = stderr(&output);
    assert!(
        words.contains("wrong.toml") && words.contains("line 12") && words.contains("speed"),
        "{words}"
    );
}

#[needs(namespaces)]
#[test]
fn the_status_is_that_of_the_command() {
    for (line, status) in [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)] {
        let output = path(&["-q", "--", "sh", "-c", line]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(status), String::new()));
    }
    let output = path(&["--", "/does/not/exist"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot start /does/not/exist"));
}

#[needs(namespaces)]
#[test]
fn the_path_gives_account_as_json_and_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let [losses, series] = ["losses", "series"].map(|name| folder.path().join(name));
    let words = [
        "--json",
        "--rate",
        "100Mbps",
        "--losses",
        losses.to_str().unwrap(),
        "--series",
        series.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "cat /etc/hosts; sleep 0.3",
    ];
    let output = path(&words);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["status"], 0);
    assert_eq!(json["links"][0]["link"], "path");
    assert_eq!(json["links"][0]["forward"]["lost"], serde_json::json!({}));
    assert!(stderr(&output).contains("198.51.100.2 peer"), "the command's words go to stderr");
    assert!(std::fs::read_to_string(losses).unwrap().starts_with("seconds,link,direction"));
    let series = std::fs::read_to_string(series).unwrap();
    assert!(series.lines().count() >= 2);
    assert!(series.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}
